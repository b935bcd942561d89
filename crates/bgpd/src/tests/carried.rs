//! Connections that the door carries: our end is one of a pair of sockets, the test is the door.

use holdfast_api::bgp::v1::HeldSession;
use prost::Message;
use tokio::net::UnixStream;

use super::*;
use crate::stream::Offsets;

/// Both ends of a connection, as the door says it.
fn carried(number: u64) -> (AcceptedConnection, UnixStream) {
    let (near, far) = UnixStream::pair().expect("sockets");
    let said = transport::Connection {
        peer: "peer".into(),
        protocol: transport::Protocol::Quic.into(),
        remote_address: vec![10, 0, 0, 2],
        remote_port: 4433,
        local_address: vec![10, 0, 0, 1],
        local_port: 179,
        number,
        proof: "certificate CN=peer".into(),
        ..transport::Connection::default()
    };
    let near = near.into_std().expect("a socket");
    let stream = Stream::new(near.into()).expect("a stream");
    (AcceptedConnection::new(said, stream).expect("complete"), far)
}

#[tokio::test]
async fn a_carried_session_is_in_the_log_with_what_the_next_process_asks_the_door_by() {
    let mut scene = Scene::new();
    let log = protected(&mut scene);
    let (handed, far) = carried(7);
    let mut line = scene.take(scene.peer, handed, far);
    let octets = [&open()[..], &KEEPALIVE, &END_OF_RIB, &KEEPALIVE[..5]].concat();
    scene.says(&mut line, &octets).await;
    assert_eq!(scene.state(scene.peer), Some(State::Established));
    assert_eq!(scene.speaker.sessions.poll_effect(), Some(Effect::Keep(line.key)));
    while scene.speaker.transmit(line.key, scene.now, &|| false) == Write::Yield {}
    let heard: [MessageType; 3] = scene.hears(&mut line).await;
    assert_eq!(heard, [MessageType::Open, MessageType::KeepAlive, MessageType::Update]);

    let id = log.log.borrow().sessions().next().expect("a session");
    let connection = scene.speaker.sessions.connection(line.key).expect("a connection");
    let offsets = connection.stream.offsets().expect("counts");
    assert_eq!(offsets.read, octets.len() as u64);
    assert_eq!(log.log.borrow().incoming(id).end, offsets.read);
    assert_eq!(log.log.borrow().outgoing(id), offsets.written..offsets.written, "all is written");
    let held = HeldSession::decode(log.log.borrow().record(id)).expect("a record");
    assert_eq!(held.connection.as_ref(), Some(&connection.said));
    assert_eq!((connection.said.number, connection.remote.to_string().as_str()), (7, "10.0.0.2:4433"));
    assert_ne!(offsets, Offsets { read: 0, written: 0 });
}

#[tokio::test]
async fn a_session_over_tcp_needs_no_door_in_the_log() {
    let mut scene = Scene::new();
    let log = protected(&mut scene);
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    let id = log.log.borrow().sessions().next().expect("a session");
    let held = HeldSession::decode(log.log.borrow().record(id)).expect("a record");
    assert_eq!(held.connection, None);
}

#[tokio::test]
async fn when_the_door_dies_what_it_carried_ends_and_nothing_else() {
    let mut scene = Scene::new();
    let mut guest = scene.guest().await;
    scene.establish(&mut guest).await;
    let (handed, far) = carried(1);
    let mut line = scene.take(scene.peer, handed, far);
    scene.establish(&mut line).await;
    drop(line.far);
    assert_eq!(scene.reads(line.key).await, Read::Gone);
    assert_eq!(scene.state(scene.peer), Some(State::Idle), "the operator sees a lost connection");
    assert!(scene.speaker.sessions.connection(line.key).is_none());
    assert_eq!(scene.says(&mut guest, &KEEPALIVE).await, Read::Wait);
    assert_eq!(scene.state(guest.key.0), Some(State::Established));
}

#[tokio::test]
async fn what_the_door_has_not_taken_holds_background_work_up() {
    let mut scene = Scene::new();
    let (handed, far) = carried(1);
    let mut line = scene.take(scene.peer, handed, far);
    scene.says(&mut line, &open()).await;
    scene.speaker.transmit(line.key, scene.now, &|| false);
    let stream =
        std::rc::Rc::clone(&scene.speaker.sessions.connection(line.key).expect("a connection").stream);
    assert!(stream.unacknowledged().expect("SIOCOUTQ") > 0);
    line.next().await;
    line.next().await;
    assert_eq!(stream.unacknowledged().expect("SIOCOUTQ"), 0);
}

/// A peer that we connect to, and the attempt.
fn connecting(scene: &mut Scene) -> Key {
    let mut source = scene.slot().neighbor.source.clone();
    source.session.passive = false;
    let location = Location::Address(Ipv4Addr::new(10, 0, 0, 3).into());
    let neighbor = Neighbor { name: "active".into(), source, ..scene.range.at(location) };
    scene.speaker.add_peer(neighbor, false, 3, scene.now);
    match scene.speaker.sessions.poll_effect() {
        Some(Effect::Dial(key, name)) if name == "active" => key,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn that_there_is_no_connection_is_one_event_with_the_reason_of_each_transport() {
    let mut scene = Scene::new();
    let key = connecting(&mut scene);
    let why = "quic: its certificate has expired 3 days ago; tls: connection refused";
    scene.speaker.connect_failed(key, why, scene.now);
    assert_eq!(scene.state(key.0), Some(State::Active));
    let shown = crate::show::neighbor(&scene.speaker, key.0, scene.now).and_then(|shown| shown.peer);
    assert_eq!(shown.expect("a peer").last_error, format!("connecting failed: {why}"));
    assert_eq!(scene.speaker.sessions.poll_effect(), None, "the next attempt has its time");
}

#[tokio::test]
async fn a_connection_that_comes_when_nobody_wants_it_is_closed() {
    let mut scene = Scene::new();
    let key = connecting(&mut scene);
    scene.speaker.stop_peer(key.0, "", scene.now);
    let (handed, mut far) = carried(1);
    assert!(!scene.speaker.connected(key, handed, scene.now));
    assert_eq!(far.read(&mut [0; 1]).await.expect("the end"), 0);
}

#[tokio::test]
async fn what_carries_a_session_and_what_proves_its_peer_is_shown() {
    let mut scene = Scene::new();
    let shown = |scene: &Scene, index| {
        let shown = crate::show::neighbor(&scene.speaker, index, scene.now).expect("a peer");
        (shown.transport, shown.proof, shown.local_address)
    };
    assert_eq!(shown(&scene, scene.peer), Default::default(), "no session");
    let (handed, far) = carried(1);
    let mut line = scene.take(scene.peer, handed, far);
    scene.establish(&mut line).await;
    let expected = ("quic".to_owned(), "certificate CN=peer".to_owned(), "10.0.0.1".to_owned());
    assert_eq!(shown(&scene, scene.peer), expected);
    let mut guest = scene.guest().await;
    scene.establish(&mut guest).await;
    let expected = ("tcp".to_owned(), String::new(), "127.0.0.1".to_owned());
    assert_eq!(shown(&scene, guest.key.0), expected);
}

#[tokio::test]
async fn a_second_connection_takes_the_session_only_if_the_door_says_that_the_first_is_dead() {
    for replaced in [&[][..], &[8], &[7]] {
        let mut scene = Scene::new();
        let (first, far) = carried(7);
        let mut first = scene.take(scene.peer, first, far);
        scene.establish(&mut first).await;
        let (second, far) = carried(9);
        let key = scene.speaker.accepted(scene.peer, second, replaced, scene.now).expect("it is taken");
        let mut second = Line { key, far: Box::new(far) };
        scene.says(&mut second, &[open(), KEEPALIVE.to_vec()].concat()).await;
        let is_dead = replaced == [7];
        assert_eq!(scene.speaker.sessions.connection(first.key).is_none(), is_dead, "{replaced:?}");
        // It need not wait for the pause after a session that has ended.
        assert_eq!(scene.state(scene.peer), Some(State::Established), "{replaced:?}");
        let session = scene.speaker.sessions.session_connection(scene.peer).map(|(key, _)| key);
        assert_eq!(session, Some(if is_dead { second.key } else { first.key }), "{replaced:?}");
        let heard: [MessageType; 2] = scene.hears(&mut second).await;
        let answer = if is_dead { MessageType::KeepAlive } else { MessageType::Notification };
        assert_eq!(heard, [MessageType::Open, answer], "{replaced:?}");
    }
}
