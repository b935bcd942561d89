//! The process dies, and another goes on with the sessions that the door carries.

use std::{
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    rc::Rc,
    time::Duration,
};

use holdfast_api::{
    bgp::v1::{self as api, BgpClient},
    transport::v1::MeterReply,
};
use holdfast_bgp_wire::{
    Capability, KEEPALIVE, MessageType, NextHop, Open, Origin, bgpsec::announce, next_message,
};
use holdfast_bgpsec_wire::{Segment, SignatureBlock, Ski, extend};
use holdfast_nsr::{Log, Relief, SessionId};
use holdfast_process::OLD_TRANSPORT;
use holdfast_sys::{memory::SharedMemory, pair};
use holdfast_types::{Afi, Asn, Family, RouterId};
use holdfast_xrl::Node;

use super::{
    door::carried,
    process::{Door, Kept, Scene, announcement, configuration, greeting, run, run_until_death, until},
};
use crate::{config::before, nonstop::Shared, protection::ROOM, roster::Stopped, sessions::Stale};

/// The door's number of the connection.
const NUMBER: u64 = 41;

/// The door's end of a pair.
struct Far {
    socket: UnixStream,
    put_in: u64,
    taken_out: Vec<u8>,
}

impl Far {
    /// With our end.
    fn new() -> (UnixStream, Self) {
        let (near, socket) = UnixStream::pair().expect("sockets");
        socket.set_nonblocking(true).expect("a socket");
        (near, Self { socket, put_in: 0, taken_out: Vec::new() })
    }

    fn put_in(&mut self, octets: &[u8]) {
        self.socket.write_all(octets).expect("room");
        self.put_in += octets.len() as u64;
    }

    /// Takes out what is there; whether the end is.
    fn take_out(&mut self) -> bool {
        let mut octets = [0; 4096];
        loop {
            match self.socket.read(&mut octets) {
                Ok(0) => return true,
                Ok(count) => self.taken_out.extend_from_slice(&octets[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// What the door says of it.
    fn meter(&self) -> MeterReply {
        let waiting = pair::unread(&self.socket).expect("FIONREAD");
        MeterReply { received: self.put_in, sent: self.taken_out.len() as u64 + u64::from(waiting) }
    }

    /// The messages that the peer has heard, whole and without a gap.
    fn heard(&mut self) -> Vec<MessageType> {
        self.take_out();
        let (mut rest, mut kinds) = (&self.taken_out[..], Vec::new());
        while let Some(message) = next_message(rest, 4096).expect("good ones") {
            kinds.push(message.kind);
            rest = &rest[message.wire.len()..];
        }
        assert_eq!(rest, b"", "the last one is whole");
        kinds
    }
}

/// A peer that is told of our network.
fn told(networks: &[&str]) -> api::Configuration {
    let mut message = configuration("a", 65_001, &[]);
    message.peers[0].export = "accept-all".into();
    message.networks = networks.iter().map(|&prefix| api::Network { prefix: prefix.into() }).collect();
    message
}

/// A process whose session is protected, and that has died in the middle of a message of the peer, having sent it our
/// network. What the door had put in and it had not read is there.
fn died() -> (Kept, Far) {
    run_until_death(async {
        let mut scene = Scene::new(Kept::new());
        let door = scene.door(Node::new("transport")).await;
        scene.configure("bgp", told(&["192.0.2.0/24"])).await.expect("taken");
        let (near, mut far) = Far::new();
        door.let_in(carried(NUMBER), near.into());
        far.put_in(&[greeting(65_001), announcement(65_001, 10)].concat());
        far.put_in(&announcement(65_001, 11)[..30]);
        until("the session is protected", async || scene.keys() == ["log", "session-1"]).await;
        until("a route", async || scene.routes("bgp").await.len() == 2).await;
        until("our network is told", async || {
            far.heard().iter().filter(|kind| **kind == MessageType::Update).count() == 2
        })
        .await;
        (scene, far)
    })
}

#[test]
fn who_goes_away_while_the_process_is_dead_is_waited_for_by_nobody() {
    let (kept, far) = died();
    let meter = far.meter();
    run(async {
        let mut scene = Scene::new(kept);
        let door = scene.door(Node::new("transport")).await;
        door.meters.borrow_mut().insert(NUMBER, meter);
        far.socket.shutdown(std::net::Shutdown::Write).expect("a socket");
        scene.configure("bgp", told(&["192.0.2.0/24"])).await.expect("taken");
        until("its routes go", async || scene.routes("bgp").await.len() == 1).await;
        let bgp = scene.server.bgp().expect("it runs");
        let stale = bgp.speaker.borrow_mut().stale(std::time::Instant::now());
        assert_eq!(stale, Some(Stale::Goes));
    });
    drop(far);
}

#[test]
fn a_session_whose_peer_the_operator_had_stopped_at_the_death_is_ended_with_the_text() {
    let (kept, mut far) = died();
    let copy = kept["stopped"].try_clone().expect("a copy");
    let mut stopped = Stopped::recover(copy).expect("memory").expect("readable");
    let Ok(location) = "127.0.0.1".parse();
    stopped.enter(&location);
    stopped.note(&location, "back at 5");
    run(async {
        let (scene, _door) = goes_on(kept, &far).await;
        until("its peer knows", async || far.heard().last() == Some(&MessageType::Notification)).await;
        assert!(far.taken_out.ends_with(b"\x06\x02\x09back at 5"), "{:?}", far.taken_out);
        until("it is in the log no more", async || scene.keys() == ["log"]).await;
        let peer = scene.neighbor().await.peer.expect("a peer");
        assert_eq!((peer.state.as_str(), peer.admin_state.as_str()), ("Idle (stopped)", "stopped"));
        assert_eq!(peer.admin_text, "back at 5");
    });
}

async fn nsr(scene: &Scene) -> api::NsrReply {
    let operator = scene.caller("operator");
    let bgp: BgpClient = operator.client("bgp").await.expect("it runs");
    bgp.show_nsr(api::Empty {}).await.expect("it answers")
}

async fn resumed(scene: &Scene) -> u32 {
    nsr(scene).await.resumed_sessions
}

/// A process that goes on with what the one before has left.
async fn goes_on(kept: Kept, far: &Far) -> (Scene, Rc<Door>) {
    goes_on_in(Scene::new(kept), far).await
}

async fn goes_on_in(mut scene: Scene, far: &Far) -> (Scene, Rc<Door>) {
    let door = scene.door(Node::new("transport")).await;
    door.meters.borrow_mut().insert(NUMBER, far.meter());
    scene.configure("bgp", told(&["192.0.2.0/24"])).await.expect("taken");
    (scene, door)
}

/// The log that a process has left.
fn log(kept: &Kept) -> Log<Shared> {
    let copy = kept["log"].try_clone().expect("a copy");
    Log::recover(Shared(SharedMemory::from_descriptor(copy).expect("memory"))).expect("a log")
}

/// Messages to the peer and from it, as shown: OPEN, UPDATE, KEEPALIVE.
async fn counted(scene: &Scene) -> [[u64; 3]; 2] {
    let shown = scene.neighbor().await.messages;
    let of = |kind: &str| {
        let count = shown.iter().find(|count| count.kind == kind).expect("counted");
        (count.sent, count.received)
    };
    let [open, update, keepalive] = ["open", "update", "keepalive"].map(of);
    [[open.0, update.0, keepalive.0], [open.1, update.1, keepalive.1]]
}

#[test]
fn a_carried_session_goes_on_in_the_next_process_to_the_octet() {
    let (kept, mut far) = died();
    far.put_in(&announcement(65_001, 11)[30..]);
    run(async {
        let mut scene = Scene::new(kept);
        let door = scene.door(Node::new("transport")).await;
        door.meters.borrow_mut().insert(NUMBER, far.meter());
        scene.configure("bgp", told(&["192.0.2.0/24", "198.51.100.0/24"])).await.expect("taken");
        until("it goes on", async || resumed(&scene).await == 1).await;
        until("the routes of both lives", async || scene.routes("bgp").await.len() == 4).await;
        far.put_in(&announcement(65_001, 12));
        until("a new route", async || scene.routes("bgp").await.len() == 5).await;
        let updates = |heard: &[MessageType]| heard.iter().filter(|it| **it == MessageType::Update).count();
        until("the new network is told, and the other one not again", async || updates(&far.heard()) == 3)
            .await;
        let heard = far.heard();
        assert_eq!(heard[..2], [MessageType::Open, MessageType::KeepAlive]);
        let rest = [MessageType::KeepAlive, MessageType::Update];
        assert!(heard[2..].iter().all(|kind| rest.contains(kind)), "no word of a death: {heard:?}");
        let shown = scene.neighbor().await;
        assert_eq!((shown.transport.as_str(), shown.proof.as_str()), ("quic", "public key, SHA-256 2b:00"));
        assert_eq!((shown.local_address.as_str(), shown.remote_port), ("127.0.0.9", 4433));
        assert_eq!(scene.keys(), ["log", "session-1"], "it would go on once more");
    });
}

/// A peer that may send signed paths.
fn signs() -> api::Configuration {
    let mut message = told(&[]);
    let mut peer = before::peer(&message.peers[0]).expect("sound");
    peer.bgpsec.receive = true;
    message.peers[0].settings = serde_json::to_vec(&peer).expect("JSON");
    message
}

/// What such a peer says: an OPEN, a KEEPALIVE, a route over itself.
fn signed() -> Vec<u8> {
    let asn = Asn(65_001);
    let capabilities = vec![
        Capability::Multiprotocol(Family::IPV4_UNICAST),
        Capability::FourOctetAs(asn),
        Capability::Bgpsec { version: 0, send: true, afi: Afi::IPV4 },
    ];
    let router_id = RouterId::new(0x0a00_0002).expect("not 0");
    let open = Open { asn, hold_time: 90, router_id, capabilities }.encode();
    let block = SignatureBlock { suite: 1, ski: Ski([7; 20]), signature: &[1; 8] };
    let path = extend(None, Segment { pcount: 1, flags: 0, asn }, &[block]).expect("it fits");
    let prefix = "203.0.113.0/24".parse().expect("a prefix");
    let update = announce(&path, Origin::Igp, NextHop::V4([192, 0, 2, 1].into()), prefix).expect("it fits");
    [open, KEEPALIVE.to_vec(), update].concat()
}

#[test]
fn who_waits_for_verdicts_leaves_others_their_turns() {
    let (kept, far) = run_until_death(async {
        let mut scene = Scene::new(Kept::new());
        let door = scene.door(Node::new("transport")).await;
        scene.configure("bgp", signs()).await.expect("taken");
        let (near, mut far) = Far::new();
        door.let_in(carried(NUMBER), near.into());
        far.put_in(&signed());
        until("the session is protected", async || scene.keys() == ["log", "session-1"]).await;
        until("a route", async || scene.routes("bgp").await.len() == 1).await;
        (scene, far)
    });
    run(async {
        let mut scene = Scene::new(kept);
        let door = scene.door(Node::new("transport")).await;
        door.meters.borrow_mut().insert(NUMBER, far.meter());
        scene.configure("bgp", signs()).await.expect("taken");
        // There is no pathsec: it waits for two seconds, and answers all the time.
        let mut answers = 0;
        until("it goes on", async || {
            answers += 1;
            resumed(&scene).await == 1
        })
        .await;
        assert!(answers > 10, "{answers}");
        assert_eq!(scene.routes("bgp").await.len(), 1);
    });
}

#[test]
fn a_read_that_finds_no_room_waits_until_the_history_of_its_session_is_read() {
    let (kept, far) = run_until_death(async {
        let mut scene = Scene::new(Kept::new());
        let door = scene.door(Node::new("transport")).await;
        scene.configure("bgp", signs()).await.expect("taken");
        let (near, mut far) = Far::new();
        door.let_in(carried(NUMBER), near.into());
        far.put_in(&signed());
        until("the session is protected", async || scene.keys() == ["log", "session-1"]).await;
        until("a route", async || scene.routes("bgp").await.len() == 1).await;
        (scene, far)
    });
    run(async {
        let mut scene = Scene::new(kept);
        let door = scene.door(Node::new("transport")).await;
        door.meters.borrow_mut().insert(NUMBER, far.meter());
        scene.configure("bgp", signs()).await.expect("taken");
        let bgp = scene.server.bgp().expect("it runs");
        let relief = |waited| {
            let speaker = bgp.speaker.borrow();
            let peer = speaker.sessions.indexes()[0];
            speaker.protection.relieve((&speaker.sessions, &speaker.pipeline), peer, waited)
        };
        let replayed = || bgp.speaker.borrow().sessions.slots().all(|(_, slot)| !slot.is_replaying());
        // There is no pathsec: it waits for two seconds for verdicts before it reads what the peer was told.
        until("what was received is replayed", async || replayed()).await;
        assert_eq!(
            [Duration::ZERO, ROOM].map(relief),
            [Relief::Wait; 2],
            "its session is lost without the log"
        );
        until("it goes on", async || resumed(&scene).await == 1).await;
        assert_eq!(relief(ROOM), Relief::GiveUp(None), "it goes on without the log");
    });
}

#[test]
fn a_session_goes_on_that_a_door_carries_which_has_retired() {
    let (kept, mut far) = died();
    run(async {
        let mut scene = Scene::new(kept);
        let _new = scene.door(Node::new("transport")).await;
        let old = scene.door(Node::retired(OLD_TRANSPORT, None)).await;
        old.meters.borrow_mut().insert(NUMBER, far.meter());
        scene.configure("bgp", told(&["192.0.2.0/24"])).await.expect("taken");
        until("it goes on", async || resumed(&scene).await == 1).await;
        far.put_in(&announcement(65_001, 11)[30..]);
        until("the rest of a message", async || scene.routes("bgp").await.len() == 3).await;
    });
}

#[test]
fn without_the_door_that_carried_it_a_session_is_lost_and_its_peer_is_not() {
    // The door does not know it; the door has died; it is another one, which has a connection of the same number.
    for (dies, knows) in [(false, false), (true, false), (true, true)] {
        let (kept, far) = died();
        let meter = far.meter();
        let far = (!dies).then_some(far);
        run(async {
            let mut scene = Scene::new(kept);
            let door = scene.door(Node::new("transport")).await;
            if knows {
                door.meters.borrow_mut().insert(NUMBER, meter);
            }
            scene.configure("bgp", told(&["192.0.2.0/24"])).await.expect("taken");
            until("it is given up", async || scene.keys() == ["log"]).await;
            assert_eq!(resumed(&scene).await, 0);
            assert_eq!(scene.routes("bgp").await.len(), 1, "ours");
            let (near, mut again) = Far::new();
            door.let_in(carried(NUMBER + 1), near.into());
            again.put_in(&[greeting(65_001), announcement(65_001, 10)].concat());
            until("a new session", async || scene.routes("bgp").await.len() == 2).await;
            assert_eq!(again.heard().first(), Some(&MessageType::Open));
            until("it is protected", async || scene.keys().len() == 2).await;
        });
        drop(far);
    }
}

#[test]
fn messages_are_counted_on_over_deaths() {
    let (mut kept, mut far) = died();
    let mut shown = [[0; 3]; 2];
    // The peer has sent OPEN, KEEPALIVE, an UPDATE and half of another. Records of the session are old, or, where it is
    // told everything again, new.
    for life in 1..7_u8 {
        far.put_in(&announcement(65_001, 10 + life)[30..]);
        far.put_in(&KEEPALIVE);
        far.put_in(&announcement(65_001, 11 + life)[..30]);
        (kept, (far, shown)) = run_until_death(async move {
            let (scene, _door) = goes_on(kept, &far).await;
            let first = counted(&scene).await;
            let mut pairs = first.iter().flatten().zip(shown.iter().flatten());
            assert!(pairs.all(|(now, before)| now >= before), "{first:?} after {shown:?}");
            until("it goes on", async || resumed(&scene).await == 1).await;
            if life % 2 == 0 {
                let operator = scene.caller("operator");
                let bgp: BgpClient = operator.client("bgp").await.expect("it runs");
                let again =
                    api::ClearRequest { peer: "*".into(), soft: true, ..api::ClearRequest::default() };
                bgp.clear(again).await.expect("taken");
            }
            let received = [1, 1 + u64::from(life), 1 + u64::from(life)];
            until("all is counted, and once", async || {
                let heard = far.heard();
                let of = |kind| heard.iter().filter(|it| **it == kind).count() as u64;
                let sent = [MessageType::Open, MessageType::Update, MessageType::KeepAlive].map(of);
                counted(&scene).await == [sent, received]
            })
            .await;
            let shown = counted(&scene).await;
            (scene, (far, shown))
        });
    }
}

#[test]
fn lives_that_resume_all_are_no_crash_loop_and_five_that_do_not_are_one() {
    let (mut kept, mut far) = died();
    for _ in 0..8 {
        (kept, far) = run_until_death(async move {
            let (scene, _door) = goes_on(kept, &far).await;
            until("it goes on, and is well", async || {
                let nsr = nsr(&scene).await;
                (nsr.resumed_sessions, nsr.lives) == (1, 0)
            })
            .await;
            (scene, far)
        });
    }
    (1..=4).for_each(|deaths| assert_eq!(log(&kept).lives(), deaths));
    run(async {
        let (scene, _door) = goes_on(kept, &far).await;
        until("it is given up", async || scene.keys() == ["log"]).await;
        until("its peer knows", async || far.heard().last() == Some(&MessageType::Notification)).await;
    });
}

#[test]
fn a_death_of_a_process_that_was_busy_is_none_of_the_five() {
    let (kept, far) = died();
    (1..=4).for_each(|deaths| assert_eq!(log(&kept).lives(), deaths));
    run(async {
        let (scene, _door) = goes_on_in(Scene::after(kept, true), &far).await;
        until("it goes on", async || resumed(&scene).await == 1).await;
    });
}

#[test]
fn three_deaths_at_one_place_end_the_session_whatever_happened_in_between() {
    let (mut kept, mut far) = died();
    far.put_in(&announcement(65_001, 11)[30..]);
    for death in 1..=3 {
        (kept, far) = run_until_death(async move {
            let (scene, _door) = goes_on(kept, &far).await;
            until("it goes on", async || resumed(&scene).await == 1).await;
            far.put_in(&KEEPALIVE);
            let received = 1 + death;
            until("it gets further", async || counted(&scene).await[1][2] == received).await;
            (scene, far)
        });
        // And dies at another place, too.
        for place in [40, 1000 + death] {
            let mut log = log(&kept);
            log.enter(SessionId(1), place);
        }
    }
    run(async {
        let (scene, _door) = goes_on(kept, &far).await;
        until("it is given up", async || scene.keys() == ["log"]).await;
    });
}

#[test]
fn what_was_received_makes_one_snapshot_and_not_a_second_one() {
    run(async {
        let mut scene = Scene::new(Kept::new());
        let door = scene.door(Node::new("transport")).await;
        scene.configure("bgp", told(&[])).await.expect("taken");
        let (near, mut far) = Far::new();
        door.let_in(carried(NUMBER), near.into());
        far.put_in(&greeting(65_001));
        until("the session is protected", async || scene.keys() == ["log", "session-1"]).await;
        // More than the sixteenth of the log that is worth it.
        let updates: Vec<u8> =
            (0..6000_u32).flat_map(|i| announcement(65_001, 1 + (i % 100) as u8)).collect();
        let mut rest = &updates[..];
        while !rest.is_empty() {
            match far.socket.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
        until("a snapshot", async || nsr(&scene).await.sessions[0].has_snapshot).await;
        until("all is read", async || counted(&scene).await[1][1] == 6000).await;
        let snapshot = nsr(&scene).await.sessions[0].snapshot_octets;
        let bgp = scene.server.bgp().expect("configured");
        let log = bgp.speaker.borrow().protection.log.clone().expect("nonstop");
        let (received, written) = log.pacing.borrow().totals();
        assert_eq!((received, written), (updates.len() as u64, snapshot));
    });
}
