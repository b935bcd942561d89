//! The process dies, and another goes on with the sessions that the door carries.

use std::{
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
};

use holdfast_api::{
    bgp::v1::{self as api, BgpClient},
    transport::v1::MeterReply,
};
use holdfast_bgp_wire::{MessageType, next_message};
use holdfast_sys::pair;
use holdfast_xrl::Node;

use super::{
    door::carried,
    process::{Kept, Scene, announcement, configuration, greeting, run, run_until_death, until},
};

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

async fn resumed(scene: &Scene) -> u32 {
    let operator = scene.caller("operator");
    let bgp: BgpClient = operator.client("bgp").await.expect("it runs");
    bgp.show_nsr(api::Empty {}).await.expect("it answers").resumed_sessions
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
