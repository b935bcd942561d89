//! A process with a VRF. The peers are the same in both tables, to the octet of their addresses.

use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    rc::Rc,
};

use holdfast_api::bgp::v1::{self as api, BgpClient};
use holdfast_bgp_wire::{CeaseSubcode, MessageType, Notification};
use holdfast_xrl::{ErrorKind, Node};
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};

use super::process::{PATIENCE, Scene, configuration, run, session, until};

/// The NOTIFICATION that ends a session.
async fn notification(stream: &mut TcpStream) -> Notification {
    loop {
        let mut header = [0; 19];
        stream.read_exact(&mut header).await.expect("a header");
        let mut body = vec![0; usize::from(u16::from_be_bytes([header[16], header[17]])) - 19];
        stream.read_exact(&mut body).await.expect("a body");
        if header[18] == MessageType::Notification as u8 {
            return Notification::parse(&body).expect("a good one");
        }
    }
}

#[test]
fn two_tables_with_the_same_peer_and_prefix_know_nothing_of_each_other() {
    run(async {
        let descriptor = |key: &str| {
            let (one, _) = UnixStream::pair().expect("sockets");
            (key.to_owned(), OwnedFd::from(one))
        };
        let mut scene = Scene::new(["log@red", "session-1@red"].map(descriptor).into());
        let door = scene.door(Node::new("transport")).await;
        let blue_door = scene.door(Node::of_scope("transport", "blue".into())).await;
        let ended = scene.configure("bgp", configuration("a", 65_001, &["blue"])).await;
        assert_eq!(ended.expect("taken"), Vec::<String>::new());
        scene.configure("bgp@blue", configuration("b", 65_002, &[])).await.expect("taken");
        until("what is left of red is given back", async || scene.keys() == ["log", "log@blue"]).await;

        let default = session(&door, "a", 65_001).await;
        let mut blue = session(&blue_door, "b", 65_002).await;
        let expected = |asn: &str| vec![("10.0.0.0/8".to_owned(), asn.to_owned())];
        until("the route of a", async || scene.routes("bgp").await == expected("65001")).await;
        until("the route of b", async || scene.routes("bgp@blue").await == expected("65002")).await;
        let protected = ["log", "log@blue", "session-1", "session-1@blue"];
        until("both are protected", async || scene.keys() == protected).await;

        let ours = Rc::downgrade(&scene.server.vrfs().expect("VRFs").servers()[0].bgp().expect("it runs"));
        let told = async {
            let why = timeout(PATIENCE, notification(&mut blue)).await.expect("it is told");
            assert_eq!((why.code, why.subcode), (6, CeaseSubcode::PeerDeconfigured as u8));
            drop(blue);
        };
        let removed = scene.configure("bgp", configuration("a", 65_001, &[]));
        let (ended, ()) = tokio::join!(removed, told);
        assert_eq!(ended.expect("taken"), ["b"]);
        let gone = scene.caller("operator").client::<BgpClient>("bgp@blue").await.map(|_| ());
        assert_eq!(gone.expect_err("gone").kind(), ErrorKind::NotFound);
        until("nothing is kept of blue", async || scene.keys() == ["log", "session-1"]).await;
        until("the memory is given back", async || ours.upgrade().is_none()).await;
        assert_eq!(scene.routes("bgp").await, expected("65001"), "the other has not noticed");

        // The name may come back.
        scene.configure("bgp", configuration("a", 65_001, &["blue"])).await.expect("taken");
        scene.configure("bgp@blue", configuration("b", 65_002, &[])).await.expect("taken");
        let again = session(&blue_door, "b", 65_002).await;
        until("the route of b again", async || scene.routes("bgp@blue").await == expected("65002")).await;

        let manager = scene.caller("manager");
        let bgp: BgpClient = manager.client("bgp").await.expect("it runs");
        let told = async |mut stream| {
            let why = timeout(PATIENCE, notification(&mut stream)).await.expect("it is told");
            assert_eq!((why.code, why.subcode), (6, CeaseSubcode::AdministrativeShutdown as u8));
        };
        let request = api::ShutdownRequest { text: "good night".into() };
        let (done, (), ()) = tokio::join!(bgp.shutdown(request), told(default), told(again));
        done.expect("done");
    });
}

#[test]
fn a_vrf_has_no_vrfs() {
    run(async {
        let scene = Scene::new(Default::default());
        scene.configure("bgp", configuration("a", 65_001, &["blue"])).await.expect("taken");
        let refused = scene.configure("bgp@blue", configuration("b", 65_002, &["red"])).await;
        assert_eq!(refused.expect_err("refused").kind(), ErrorKind::InvalidArgument);
    });
}
