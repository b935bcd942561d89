//! What the process has of the door: who was let in, connections that it wants, a door that dies.

use std::{os::unix::net::UnixStream, rc::Rc};

use holdfast_api::{bgp::v1 as api, transport::v1 as transport};
use holdfast_bgp_wire::{CeaseSubcode, Notification};
use holdfast_xrl::{Node, XrlError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::process::{PATIENCE, Scene, announcement, configuration, greeting, run, session, until};

/// What the door says of a connection that it carries.
pub(super) fn carried(number: u64) -> transport::Connection {
    transport::Connection {
        peer: "a".into(),
        protocol: transport::Protocol::Quic.into(),
        remote_address: vec![127, 0, 0, 1],
        remote_port: 4433,
        local_address: vec![127, 0, 0, 9],
        local_port: 179,
        number,
        proof: "public key, SHA-256 2b:00".into(),
        ..transport::Connection::default()
    }
}

async fn is_established(scene: &Scene) -> bool {
    scene.neighbor().await.peer.is_some_and(|peer| peer.state == "Established")
}

#[test]
fn a_new_door_is_asked_and_sessions_over_tcp_do_not_notice() {
    run(async {
        let mut scene = Scene::new(Default::default());
        let first = scene.door(Node::new("transport")).await;
        let mut message = configuration("a", 65_001, &[]);
        let other = api::Peer { name: "b".into(), address: vec![127, 0, 0, 2], ..message.peers[0].clone() };
        message.peers.push(other);
        scene.configure("bgp", message).await.expect("taken");
        let mut a = session(&first, "a", 65_001).await;
        until("the session of a", async || is_established(&scene).await).await;

        scene.nodes.pop().expect("the door").end();
        let second = scene.door(Node::named("transport", "transport-2")).await;
        let (near, far) = UnixStream::pair().expect("sockets");
        let said =
            transport::Connection { remote_address: vec![127, 0, 0, 2], peer: "b".into(), ..carried(1) };
        second.let_in(said, near.into());
        far.set_nonblocking(true).expect("a socket");
        let mut far = tokio::net::UnixStream::from_std(far).expect("a socket");
        far.write_all(&[greeting(65_001), announcement(65_001, 11)].concat()).await.expect("room");
        a.write_all(&announcement(65_001, 12)).await.expect("room");
        let expected = ["10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8"];
        until("routes of both", async || {
            let routes = scene.routes("bgp").await;
            routes.iter().map(|(prefix, _)| prefix.as_str()).eq(expected)
        })
        .await;
    });
}

#[test]
fn a_connection_is_for_the_peer_that_it_was_proven_for_and_no_other() {
    run(async {
        let mut scene = Scene::new(Default::default());
        let door = scene.door(Node::new("transport")).await;
        scene.configure("bgp", configuration("a", 65_001, &[])).await.expect("taken");
        let elsewhere = transport::Connection { remote_address: vec![127, 0, 0, 7], ..carried(1) };
        let another = transport::Connection { peer: "b".into(), ..carried(2) };
        let nowhere = transport::Connection { remote_address: Vec::new(), ..carried(3) };
        let without_end = transport::Connection { local_address: Vec::new(), ..carried(4) };
        let rejected = Notification::cease(CeaseSubcode::ConnectionRejected).encode();
        for (said, words) in
            [(elsewhere, &rejected[..]), (another, &rejected), (nowhere, &[]), (without_end, &[])]
        {
            let (near, mut far) = tokio::net::UnixStream::pair().expect("sockets");
            door.let_in(said, near.into_std().expect("a socket").into());
            let mut heard = Vec::new();
            let read = timeout(PATIENCE, far.read_to_end(&mut heard)).await.expect("it is closed");
            assert_eq!((read.expect("in order"), &heard[..]), (words.len(), words));
        }
        // Nobody is waited for.
        until("the door is told", async || *door.closed.borrow() == [(1, 0x605), (2, 0x605)]).await;
        let mut a = session(&door, "a", 65_001).await;
        until("the session of a", async || is_established(&scene).await).await;
        assert_eq!(scene.neighbor().await.transport, "tcp");
        a.read_exact(&mut [0; 19]).await.expect("its OPEN");
    });
}

#[test]
fn a_connection_is_asked_for_again_until_there_is_one_or_nobody_wants_it() {
    run(async {
        let mut scene = Scene::new(Default::default());
        let door = scene.door(Node::new("transport")).await;
        let why = "quic: the peer's certificate is for r3, not r2";
        // The first time it has not been told of the peer.
        door.connects.borrow_mut().push_back(Err(XrlError::not_found("there is no peer a")));
        door.connects.borrow_mut().push_back(Err(XrlError::unavailable(why)));
        let mut message = configuration("a", 65_001, &[]);
        let peer = &mut message.peers[0];
        (peer.passive, peer.connect_retry_seconds) = (false, 1);
        scene.configure("bgp", message.clone()).await.expect("taken");
        until("the reason", async || {
            let peer = scene.neighbor().await.peer.expect("a peer");
            peer.last_error == format!("connecting failed: {why}")
        })
        .await;

        // It is asked again, tries on, and is told that nobody waits.
        until("a third attempt", async || door.asked.borrow().len() >= 3).await;
        assert!(door.asked.borrow().iter().all(|peer| peer == "a"));
        let given_up = Rc::clone(&door.given_up);
        message.peers[0].disabled = true;
        scene.configure("bgp", message.clone()).await.expect("taken");
        until("the attempt is given up", async || given_up.get() > 0).await;

        let (near, mut far) = tokio::net::UnixStream::pair().expect("sockets");
        let near = near.into_std().expect("a socket").into();
        door.connects.borrow_mut().push_back(Ok((carried(9), near)));
        message.peers[0].disabled = false;
        scene.configure("bgp", message).await.expect("taken");
        far.write_all(&greeting(65_001)).await.expect("room");
        until("a session", async || is_established(&scene).await).await;
        let shown = scene.neighbor().await;
        assert_eq!((shown.transport.as_str(), shown.proof.as_str()), ("quic", "public key, SHA-256 2b:00"));
        assert_eq!((shown.local_address.as_str(), shown.remote_port), ("127.0.0.9", 4433));
    });
}

#[test]
fn a_connection_that_comes_while_its_peer_is_down_is_closed_at_once() {
    run(async {
        let mut scene = Scene::new(Default::default());
        let door = scene.door(Node::new("transport")).await;
        let mut message = configuration("a", 65_001, &[]);
        message.peers[0].disabled = true;
        scene.configure("bgp", message).await.expect("taken");
        let rejected = Notification::cease(CeaseSubcode::ConnectionRejected).encode();

        let (near, mut far) = tokio::net::UnixStream::pair().expect("sockets");
        door.let_in(carried(7), near.into_std().expect("a socket").into());
        let mut heard = Vec::new();
        timeout(PATIENCE, far.read_to_end(&mut heard)).await.expect("it is closed").expect("in order");
        assert_eq!(heard, rejected);
        until("the door is told", async || *door.closed.borrow() == [(7, 0x605)]).await;

        // TCP's own has no door that could be told.
        let mut far = door.tcp("a").await;
        let mut heard = Vec::new();
        timeout(PATIENCE, far.read_to_end(&mut heard)).await.expect("it is closed").expect("in order");
        assert_eq!(heard, rejected);
        assert_eq!(door.closed.borrow().len(), 1);
    });
}
