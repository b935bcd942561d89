//! Tables of VRFs in the process.

use std::os::unix::net::UnixStream;

use holdfast_api::keeper::v1::Empty;
use holdfast_xrl::{Handler, IncomingCall, Lifecycle, Service, ServiceInfo};

use super::*;

/// A keeper that takes whoever asks to this Finder.
struct Doorman(Finder);

impl Service for Doorman {
    fn info(&self) -> &'static ServiceInfo {
        KeeperClient::SERVICE
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        let (near, far) = UnixStream::pair().expect("sockets");
        self.0.attach(far.into(), PeerIdentity::new("rib")).expect("attached");
        call.unary(|_, _: Empty, _| async { Ok((Empty {}, vec![near.into()])) })
    }
}

/// The process, and its keeper.
fn start_rib(finder: &Finder) -> Node {
    let (near, far) = UnixStream::pair().expect("sockets");
    let keeper = Node::new("keeper");
    keeper.serve(Doorman(finder.clone()));
    keeper.attach(far.into(), PeerIdentity::new("rib")).expect("attached");
    let client = KeeperClient::new(Channel::connect(near.into()).expect("connected"));
    let node = Node::new("rib");
    node.be_sole();
    spawn_local(holdfast_ribd::run(Boot::new(node, client)));
    keeper
}

/// A configuration for an instance, or for the process with these VRFs.
async fn configure(manager: &Resolver, class: &str, vrfs: &[&str], statics: &[&str]) {
    let rib: rib::RibClient = manager.wait_for(class).await.expect("resolved");
    let configuration = rib::Configuration {
        statics: statics.iter().map(|prefix| static_route(prefix)).collect(),
        vrfs: vrfs.iter().map(|&vrf| vrf.to_owned()).collect(),
        ..Default::default()
    };
    rib.configure(configuration).await.expect("configured");
}

async fn engine_of(finder: &Finder, vrf: &str) -> (Node, Rc<Engine>) {
    engine_on(finder, Node::of_scope("fea", vrf.into())).await
}

fn prefixes(engine: &Engine) -> Vec<(Vec<u8>, u8)> {
    engine.routes.borrow().keys().cloned().collect()
}

#[test]
fn each_vrf_has_a_table_that_feeds_the_engine_of_the_vrf() {
    run(async {
        let finder = Finder::new();
        let _keeper = start_rib(&finder);
        let manager = caller(&finder, "manager");
        let (_main, main) = start_engine(&finder, "fea-1").await;
        let (_blue, blue) = engine_of(&finder, "blue").await;
        let (red_node, red) = engine_of(&finder, "red").await;
        configure(&manager, "rib", &["blue", "red"], &["192.0.2.0/24"]).await;
        configure(&manager, "rib@blue", &[], &["192.0.2.0/24", "198.51.100.0/24"]).await;
        configure(&manager, "rib@red", &[], &["203.0.113.0/24"]).await;
        let synced = |engine: &Engine| engine.syncs.borrow().1 == 1;
        until("all are fed", || synced(&main) && synced(&blue) && synced(&red)).await;
        assert_eq!((main.count(), blue.count()), (1, 2));
        assert_eq!(prefixes(&red), [(vec![203, 0, 113, 0], 24)]);

        let mut watch = manager.watch("fea@red");
        assert!(matches!(watch.next().await, Ok(Lifecycle::Birth(_))));
        red_node.close();
        assert!(matches!(watch.next().await, Ok(Lifecycle::Death(_))));
        let (_red, red) = engine_of(&finder, "red").await;
        until("the next engine of the VRF has all of it", || synced(&red)).await;
        assert_eq!(prefixes(&red), [(vec![203, 0, 113, 0], 24)]);
        assert_eq!((*main.syncs.borrow(), *blue.syncs.borrow()), ((1, 1), (1, 1)), "nobody else noticed");
    });
}

#[test]
fn a_vrf_that_is_taken_away_leaves_and_may_come_back_empty() {
    run(async {
        let finder = Finder::new();
        let _keeper = start_rib(&finder);
        let manager = caller(&finder, "manager");
        let (_blue, blue) = engine_of(&finder, "blue").await;
        configure(&manager, "rib", &["blue"], &[]).await;
        configure(&manager, "rib@blue", &[], &["192.0.2.0/24"]).await;
        until("it is fed", || blue.syncs.borrow().1 == 1).await;
        let mut watch = manager.watch("rib@blue");
        assert!(matches!(watch.next().await, Ok(Lifecycle::Birth(_))));
        configure(&manager, "rib", &[], &[]).await;
        assert!(matches!(watch.next().await, Ok(Lifecycle::Death(_))));
        configure(&manager, "rib", &["blue"], &[]).await;
        assert!(matches!(watch.next().await, Ok(Lifecycle::Birth(_))));
        configure(&manager, "rib@blue", &[], &[]).await;
        until("the new one has told the engine that there is nothing", || *blue.syncs.borrow() == (2, 2))
            .await;
        assert_eq!(blue.count(), 0);
    });
}

#[test]
fn an_instance_has_no_vrfs_and_takes_routes_of_configured_protocols_only() {
    run(async {
        let finder = Finder::new();
        let _keeper = start_rib(&finder);
        let manager = caller(&finder, "manager");
        configure(&manager, "rib", &["blue"], &[]).await;
        let blue: rib::RibClient = manager.wait_for("rib@blue").await.expect("resolved");
        let vrfs = rib::Configuration { vrfs: vec!["red".into()], ..Default::default() };
        assert_eq!(blue.configure(vrfs).await.expect_err("refused").kind(), ErrorKind::InvalidArgument);
        blue.configure(rib::Configuration::default()).await.expect("configured");
        let protocol = caller(&finder, "protocol");
        let blue: rib::RibClient = protocol.wait_for("rib@blue").await.expect("resolved");
        let request = rib::AddOriginRequest { name: "igp".into(), distance: 110, external: false };
        let error = blue.add_origin(request).await.expect_err("refused");
        assert_eq!(error.message(), "\"igp\" is not configured in this VRF");
    });
}
