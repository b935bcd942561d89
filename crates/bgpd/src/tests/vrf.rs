//! A process with a VRF, between a Finder, a keeper and doors that the test plays. The peers are the same in both
//! tables, to the octet of their addresses.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    rc::Rc,
    time::Duration,
};

use holdfast_api::{
    bgp::v1::{self as api, BgpClient},
    keeper::v1 as keeper,
    transport::v1 as transport,
};
use holdfast_bgp_wire::{CeaseSubcode, KEEPALIVE, MessageType, Notification};
use holdfast_process::{Boot, Resolver};
use holdfast_types::Asn;
use holdfast_xrl::{
    Channel, Client, ErrorKind, Finder, Handler, IncomingCall, Link, Node, PeerIdentity, Service,
    ServiceInfo, XrlError,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::LocalSet,
    time::{sleep, timeout},
};

use super::open_of;
use crate::service::Server;

/// What peers and routers say within.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the keeper holds.
type Kept = Rc<RefCell<BTreeMap<String, OwnedFd>>>;

/// A keeper that takes whoever asks to this Finder, as `bgp`.
struct Keeper(Finder, Kept);

impl Service for Keeper {
    fn info(&self) -> &'static ServiceInfo {
        keeper::KeeperClient::SERVICE
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        let (finder, kept) = (self.0.clone(), Rc::clone(&self.1));
        match call.method() {
            keeper::KeeperClient::ATTACH_FINDER => call.unary(|_, _: keeper::Empty, _| async move {
                let (near, far) = UnixStream::pair().expect("sockets");
                finder.attach(far.into(), PeerIdentity::new("bgp").pid(7)).expect("attached");
                Ok((keeper::Empty {}, vec![near.into()]))
            }),
            keeper::KeeperClient::LIST => call.unary(|_, _: keeper::Empty, _| async move {
                let one = |key: &String| keeper::Kept { key: key.clone(), ..keeper::Kept::default() };
                Ok((keeper::ListReply { kept: kept.borrow().keys().map(one).collect() }, Vec::new()))
            }),
            keeper::KeeperClient::PUT => call.unary(|_, put: keeper::PutRequest, fds| async move {
                kept.borrow_mut().extend(fds.into_iter().map(|fd| (put.key.clone(), fd)));
                Ok((keeper::Empty {}, Vec::new()))
            }),
            keeper::KeeperClient::DROP => call.unary(|_, drop: keeper::GetRequest, _| async move {
                kept.borrow_mut().remove(&drop.key);
                Ok((keeper::Empty {}, Vec::new()))
            }),
            _ => call.unknown(),
        }
    }
}

/// A door with one listening socket.
struct Door(std::net::TcpListener);

impl Service for Door {
    fn info(&self) -> &'static ServiceInfo {
        transport::TransportClient::SERVICE
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        let socket = self.0.as_fd().try_clone_to_owned().expect("a copy");
        match call.method() {
            transport::TransportClient::LISTEN => call
                .unary(|_, _: transport::ListenRequest, _| async { Ok((transport::Empty {}, vec![socket])) }),
            _ => call.unknown(),
        }
    }
}

/// The process and what is around it.
struct Scene {
    finder: Finder,
    kept: Kept,
    server: Rc<Server>,
    nodes: Vec<Node>,
}

impl Scene {
    /// A process that has just been started; the one before has left descriptors under these names.
    fn new(left: &[&str]) -> Self {
        let (finder, kept) = (Finder::new(), Kept::default());
        let descriptor = || UnixStream::pair().expect("sockets").0.into();
        kept.borrow_mut().extend(left.iter().map(|key| ((*key).to_owned(), descriptor())));
        let (near, far) = UnixStream::pair().expect("sockets");
        let node = Node::new("keeper");
        node.serve(Keeper(finder.clone(), Rc::clone(&kept)));
        node.attach(far.into(), PeerIdentity::new("bgp")).expect("attached");
        let keeper = keeper::KeeperClient::new(Channel::connect(near.into()).expect("connected"));
        let server = crate::serve(Boot::new(Node::new("bgp"), keeper), Vec::new);
        Self { finder, kept, server, nodes: vec![node] }
    }

    /// The door of a table; where it listens.
    async fn door(&mut self, node: Node) -> SocketAddr {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("an address");
        node.serve(Door(listener));
        let (near, far) = Link::pair();
        self.finder.attach_link(far, PeerIdentity::new("fea").class("transport"));
        node.join_link(near).await.expect("registered");
        self.nodes.push(node);
        address
    }

    /// Somebody who calls. Keys go with their owner: it has to live as long as its clients.
    fn caller(&self, role: &str) -> Resolver {
        let (near, far) = Link::pair();
        self.finder.attach_link(far, PeerIdentity::new(role));
        Resolver::over(Channel::over(near))
    }

    /// Configures the process or a VRF; the sessions that ended.
    async fn configure(&self, class: &str, message: api::Configuration) -> Result<Vec<String>, XrlError> {
        let manager = self.caller("manager");
        let bgp: BgpClient = manager.wait_for(class).await?;
        Ok(bgp.configure(message).await?.ended)
    }

    /// Prefix and AS path of each path in a table.
    async fn routes(&self, class: &str) -> Vec<(String, String)> {
        let operator = self.caller("operator");
        let bgp: BgpClient = operator.client(class).await.expect("it runs");
        let mut stream = bgp.show_routes(api::ShowRoutesRequest::default());
        let mut routes = Vec::new();
        while let Some(page) = stream.next().await.expect("alive") {
            for prefix in page.prefixes {
                routes.extend(prefix.paths.iter().map(|path| (prefix.prefix.clone(), path.as_path.clone())));
            }
        }
        routes
    }

    fn keys(&self) -> Vec<String> {
        self.kept.borrow().keys().cloned().collect()
    }
}

/// One peer of this name and AS number on loopback, and a network of our own.
fn configuration(peer: &str, asn: u32, vrfs: &[&str]) -> api::Configuration {
    let peer = api::Peer {
        name: peer.into(),
        address: vec![127, 0, 0, 1],
        asn,
        passive: true,
        nonstop: true,
        families: vec!["ipv4-unicast".into()],
        hold_time: 90,
        import: "accept-all".into(),
        ..api::Peer::default()
    };
    let listen = api::ListenAddress { afi: 1, port: 179, ..api::ListenAddress::default() };
    api::Configuration {
        router_id: 0x0a00_0001,
        asn: 65_000,
        max_paths: 1,
        default_local_pref: 100,
        sync_seconds: 120,
        nonstop: true,
        nonstop_octets: 4 << 20,
        peers: vec![peer],
        listen: vec![listen],
        vrfs: vrfs.iter().map(|vrf| (*vrf).to_owned()).collect(),
        ..api::Configuration::default()
    }
}

/// A session with the process at this address; it announces 10.0.0.0/8.
async fn session(address: SocketAddr, asn: u16) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("somebody listens");
    let [high, low] = asn.to_be_bytes();
    // ORIGIN, AS_PATH of one AS, NEXT_HOP; then the prefix.
    let attributes =
        [&[0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, high, low][..], &[0x40, 3, 4, 192, 0, 2, 1]].concat();
    let body = [&[0, 0, 0, attributes.len() as u8][..], &attributes, &[8, 10]].concat();
    let update = [&[255; 16][..], &[0, 19 + body.len() as u8, 2], &body].concat();
    let all = [open_of(Asn(asn.into())), KEEPALIVE.to_vec(), update].concat();
    stream.write_all(&all).await.expect("room in the socket");
    stream
}

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

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !condition().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn run(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, story);
}

#[test]
fn two_tables_with_the_same_peer_and_prefix_know_nothing_of_each_other() {
    run(async {
        let mut scene = Scene::new(&["log@red", "session-1@red"]);
        let (near, far) =
            (scene.door(Node::new("fea")).await, scene.door(Node::of_scope("fea", "blue".into())).await);
        let ended = scene.configure("bgp", configuration("a", 65_001, &["blue"])).await;
        assert_eq!(ended.expect("taken"), Vec::<String>::new());
        scene.configure("bgp@blue", configuration("b", 65_002, &[])).await.expect("taken");
        until("what is left of red is given back", async || scene.keys() == ["log", "log@blue"]).await;

        let default = session(near, 65_001).await;
        let mut blue = session(far, 65_002).await;
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
        let again = session(far, 65_002).await;
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
        let scene = Scene::new(&[]);
        scene.configure("bgp", configuration("a", 65_001, &["blue"])).await.expect("taken");
        let refused = scene.configure("bgp@blue", configuration("b", 65_002, &["red"])).await;
        assert_eq!(refused.expect_err("refused").kind(), ErrorKind::InvalidArgument);
    });
}
