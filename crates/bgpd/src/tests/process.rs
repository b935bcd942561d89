//! The process, between a Finder, a keeper and doors that the test plays.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
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
    transport::v1::{self as transport, TransportClient},
};
use holdfast_bgp_wire::KEEPALIVE;
use holdfast_process::{Boot, OLD_TRANSPORT, Resolver};
use holdfast_types::Asn;
use holdfast_xrl::{
    Channel, Client, Finder, Handler, IncomingCall, Link, Node, PeerIdentity, ReplySink, Service,
    ServiceInfo, XrlError,
};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    sync::Notify,
    task::LocalSet,
    time::{sleep, timeout},
};

use super::{open_of, pair};
use crate::service::Server;

/// What peers and routers say within.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What the keeper holds, by its name for it.
pub(super) type Kept = BTreeMap<String, OwnedFd>;

/// A keeper that takes whoever asks to this Finder, as `bgp`.
struct Keeper(Finder, Rc<RefCell<Kept>>);

impl Service for Keeper {
    fn info(&self) -> &'static ServiceInfo {
        keeper::KeeperClient::SERVICE
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        let (finder, kept) = (self.0.clone(), Rc::clone(&self.1));
        let copies = move |keys: &[String]| -> (Vec<bool>, Vec<OwnedFd>) {
            let kept = kept.borrow();
            let copy = |key: &String| kept.get(key)?.as_fd().try_clone_to_owned().ok();
            let copies: Vec<_> = keys.iter().map(copy).collect();
            (copies.iter().map(Option::is_some).collect(), copies.into_iter().flatten().collect())
        };
        let kept = Rc::clone(&self.1);
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
            keeper::KeeperClient::GET => call.unary(|_, get: keeper::GetRequest, _| async move {
                Ok((keeper::Empty {}, copies(&[get.key]).1))
            }),
            keeper::KeeperClient::GET_MANY => call.unary(|_, get: keeper::GetManyRequest, _| async move {
                let (found, copies) = copies(&get.keys);
                Ok((keeper::GetManyReply { found }, copies))
            }),
            keeper::KeeperClient::DROP => call.unary(|_, drop: keeper::GetRequest, _| async move {
                kept.borrow_mut().remove(&drop.key);
                Ok((keeper::Empty {}, Vec::new()))
            }),
            _ => call.unknown(),
        }
    }
}

/// What a door gives: a connection with its descriptor.
type Given = (transport::Connection, OwnedFd);

/// A door that does what the test says.
#[derive(Default)]
pub(super) struct Door {
    let_in: RefCell<VecDeque<Given>>,
    wake: Notify,
    /// Its answers to who wants a connection, in order; without one it goes on trying.
    pub(super) connects: RefCell<VecDeque<Result<Given, XrlError>>>,
    /// Peers that somebody wanted a connection to, and how many gave it up.
    pub(super) asked: RefCell<Vec<String>>,
    pub(super) given_up: Rc<Cell<usize>>,
    /// What went through the connections that it carries.
    pub(super) meters: RefCell<BTreeMap<u64, transport::MeterReply>>,
    /// Which of them it was to end, and what it was to say.
    pub(super) closed: RefCell<Vec<(u64, u32)>>,
}

impl Door {
    /// Lets somebody in.
    pub(super) fn let_in(&self, said: transport::Connection, near: OwnedFd) {
        self.let_in.borrow_mut().push_back((said, near));
        self.wake.notify_one();
    }

    /// Hands over those that were let in, for as long as they are taken.
    async fn hand(&self, mut replies: ReplySink<transport::Connection>) -> Result<(), XrlError> {
        loop {
            let next = self.let_in.borrow_mut().pop_front();
            match next {
                Some((said, near)) => replies.send_with_fds(said, vec![near]).await?,
                None => self.wake.notified().await,
            }
        }
    }

    /// Lets the peer of this name in, over TCP from loopback; the peer's end.
    pub(super) async fn tcp(&self, peer: &str) -> TcpStream {
        let (near, far) = pair().await;
        let said = transport::Connection {
            peer: peer.to_owned(),
            remote_address: vec![127, 0, 0, 1],
            ..transport::Connection::default()
        };
        self.let_in(said, near.into_std().expect("a socket").into());
        far
    }
}

/// Counts its end.
struct GivenUp(Rc<Cell<usize>>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

struct Served(Rc<Door>);

impl Service for Served {
    fn info(&self) -> &'static ServiceInfo {
        TransportClient::SERVICE
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        let door = Rc::clone(&self.0);
        match call.method() {
            TransportClient::ACCEPT => {
                call.streaming(|_, _: transport::Empty, _, replies| async move { door.hand(replies).await })
            }
            TransportClient::CONNECT => call.unary(|_, wanted: transport::DialRequest, _| async move {
                door.asked.borrow_mut().push(wanted.peer);
                let answer = door.connects.borrow_mut().pop_front();
                let Some(answer) = answer else {
                    let _given_up = GivenUp(Rc::clone(&door.given_up));
                    return std::future::pending().await;
                };
                answer.map(|(said, near)| (said, vec![near]))
            }),
            TransportClient::CLOSE => call.unary(|_, wanted: transport::CloseRequest, _| async move {
                door.closed.borrow_mut().push((wanted.number, wanted.code));
                Ok((transport::Empty {}, Vec::new()))
            }),
            TransportClient::METER => call.unary(|_, wanted: transport::MeterRequest, _| async move {
                let meter = door.meters.borrow().get(&wanted.number).copied();
                let missing = || XrlError::not_found("it is not carried here");
                Ok((meter.ok_or_else(missing)?, Vec::new()))
            }),
            _ => call.unknown(),
        }
    }
}

/// The process and what is around it.
pub(super) struct Scene {
    pub(super) finder: Finder,
    pub(super) kept: Rc<RefCell<Kept>>,
    pub(super) server: Rc<Server>,
    pub(super) nodes: Vec<Node>,
}

impl Scene {
    /// A process that has just been started; the one before has left this.
    pub(super) fn new(left: Kept) -> Self {
        Self::after(left, false)
    }

    /// The same, where the one before may have been killed while it was busy.
    pub(super) fn after(left: Kept, last_was_busy: bool) -> Self {
        let (finder, kept) = (Finder::new(), Rc::new(RefCell::new(left)));
        let (near, far) = UnixStream::pair().expect("sockets");
        let node = Node::new("keeper");
        node.serve(Keeper(finder.clone(), Rc::clone(&kept)));
        node.attach(far.into(), PeerIdentity::new("bgp")).expect("attached");
        let keeper = keeper::KeeperClient::new(Channel::connect(near.into()).expect("connected"));
        let mut boot = Boot::new(Node::new("bgp"), keeper);
        boot.progress.last_was_busy = last_was_busy;
        let server = crate::serve(boot, crate::Plugs::default());
        Self { finder, kept, server, nodes: vec![node] }
    }

    /// The door of a table: the process `transport`, or its instance for a VRF.
    pub(super) async fn door(&mut self, node: Node) -> Rc<Door> {
        let door = Rc::new(Door::default());
        node.serve(Served(Rc::clone(&door)));
        let (near, far) = Link::pair();
        self.finder.attach_link(far, PeerIdentity::new("transport").class(OLD_TRANSPORT));
        node.join_link(near).await.expect("registered");
        self.nodes.push(node);
        door
    }

    /// Somebody who calls. Keys go with their owner: it has to live as long as its clients.
    pub(super) fn caller(&self, role: &str) -> Resolver {
        let (near, far) = Link::pair();
        self.finder.attach_link(far, PeerIdentity::new(role));
        Resolver::over(Channel::over(near))
    }

    /// Configures the process or a VRF; the sessions that ended.
    pub(super) async fn configure(
        &self,
        class: &str,
        message: api::Configuration,
    ) -> Result<Vec<String>, XrlError> {
        let manager = self.caller("manager");
        let bgp: BgpClient = manager.wait_for(class).await?;
        Ok(bgp.configure(message).await?.ended)
    }

    /// Prefix and AS path of each path in a table.
    pub(super) async fn routes(&self, class: &str) -> Vec<(String, String)> {
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

    /// The first peer, as it is shown.
    pub(super) async fn neighbor(&self) -> api::Neighbor {
        let operator = self.caller("operator");
        let bgp: BgpClient = operator.client("bgp").await.expect("it runs");
        let mut stream = bgp.show_neighbors(api::ShowNeighborsRequest::default());
        stream.next().await.expect("alive").expect("a peer")
    }

    /// What the keeper holds of sessions, by its name for it.
    pub(super) fn keys(&self) -> Vec<String> {
        let others = ["peers", "stopped", "rpki"];
        let is_of_sessions = |key: &&String| !others.iter().any(|other| key.starts_with(other));
        self.kept.borrow().keys().filter(is_of_sessions).cloned().collect()
    }
}

/// One peer of this name and AS number on loopback, and a network of our own.
pub(super) fn configuration(peer: &str, asn: u32, vrfs: &[&str]) -> api::Configuration {
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
    api::Configuration {
        router_id: 0x0a00_0001,
        asn: 65_000,
        max_paths: 1,
        default_local_pref: 100,
        sync_seconds: 120,
        nonstop: true,
        nonstop_octets: 4 << 20,
        peers: vec![peer],
        vrfs: vrfs.iter().map(|vrf| (*vrf).to_owned()).collect(),
        ..api::Configuration::default()
    }
}

/// What a peer says to have a session.
pub(super) fn greeting(asn: u16) -> Vec<u8> {
    [open_of(Asn(asn.into())), KEEPALIVE.to_vec()].concat()
}

/// An UPDATE that announces `NET.0.0.0/8`.
pub(super) fn announcement(asn: u16, net: u8) -> Vec<u8> {
    let [high, low] = asn.to_be_bytes();
    // ORIGIN, AS_PATH of one AS, NEXT_HOP; then the prefix.
    let attributes =
        [&[0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, high, low][..], &[0x40, 3, 4, 192, 0, 2, 1]].concat();
    let body = [&[0, 0, 0, attributes.len() as u8][..], &attributes, &[8, net]].concat();
    [&[255; 16][..], &[0, 19 + body.len() as u8, 2], &body].concat()
}

/// A session of the peer of this name; it announces 10.0.0.0/8.
pub(super) async fn session(door: &Door, peer: &str, asn: u16) -> TcpStream {
    let mut stream = door.tcp(peer).await;
    let all = [greeting(asn), announcement(asn, 10)].concat();
    stream.write_all(&all).await.expect("room in the socket");
    stream
}

pub(super) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !condition().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

pub(super) fn run(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, story);
}

/// Runs a story that ends with the death of the process: nothing of it is given back, or said.
pub(super) fn run_until_death<T>(story: impl Future<Output = (Scene, T)>) -> (Kept, T) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let tasks = LocalSet::new();
    let (scene, result) = tasks.block_on(&runtime, story);
    let kept = scene.kept.take();
    std::mem::forget((scene, tasks, runtime));
    (kept, result)
}
