//! The process, with whoever opens its sockets, and those who call it. Needs root: each story has a network of its own.

mod proven;

use std::{
    cell::RefCell,
    io::{ErrorKind as Kind, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::Command,
    rc::Rc,
    thread,
    time::Duration,
};

use holdfast_api::{
    keeper::v1::{Empty as KeeperEmpty, KeeperClient, Kept, ListReply, PutRequest},
    socket::v1::{self as sockets, SocketClient, SocketDispatcher},
    transport::v1::{
        Configuration, Connection, DialRequest, Empty, ListenRequest, Listener, MeterRequest, Peer, Protocol,
        TransportClient,
    },
};
use holdfast_process::{Boot, OLD_TRANSPORT};
use holdfast_sockets::{Place, SocketService};
use holdfast_xrl::{
    Channel, Client, ErrorKind, Finder, Handler, IncomingCall, Link, Node, PeerIdentity, Resolver, Service,
    ServiceInfo, XrlError,
};
use tokio::{
    task::{LocalSet, spawn_local},
    time::timeout,
};

const LIMIT: Duration = Duration::from_secs(20);
const PORT: u16 = 1790;
const ROUTER: Ipv4Addr = Ipv4Addr::LOCALHOST;
const NEIGHBOR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// A keeper that takes whoever asks to this Finder, and has what was put there.
#[derive(Clone)]
struct Doorman(Finder, Rc<RefCell<Vec<Kept>>>);

impl Service for Doorman {
    fn info(&self) -> &'static ServiceInfo {
        KeeperClient::SERVICE
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        let Self(finder, kept) = self.clone();
        match call.method() {
            KeeperClient::ATTACH_FINDER => call.unary(|_, _: KeeperEmpty, _| async move {
                let (near, far) = UnixStream::pair().expect("sockets");
                let identity = PeerIdentity::new("transport").class(OLD_TRANSPORT).pid(7);
                finder.attach(far.into(), identity).expect("attached");
                Ok((KeeperEmpty {}, vec![near.into()]))
            }),
            KeeperClient::PUT => call.unary(|_, put: PutRequest, _| async move {
                let PutRequest { key, note, .. } = put;
                kept.borrow_mut().push(Kept { key, note: Some(note), ..Kept::default() });
                Ok((KeeperEmpty {}, Vec::new()))
            }),
            KeeperClient::LIST => call.unary(|_, _: KeeperEmpty, _| async move {
                Ok((ListReply { kept: kept.borrow().clone() }, Vec::new()))
            }),
            KeeperClient::RETIRE => {
                call.unary(|_, _: KeeperEmpty, _| async { Ok((KeeperEmpty {}, Vec::new())) })
            }
            _ => call.unknown(),
        }
    }
}

/// Starts a process with this keeper.
fn process(keeper: &Doorman) {
    let node = Node::new("keeper");
    node.serve(keeper.clone());
    let (near, far) = UnixStream::pair().expect("sockets");
    node.attach(far.into(), PeerIdentity::new("transport")).expect("attached");
    let client = KeeperClient::new(Channel::connect(near.into()).expect("connected"));
    spawn_local(async move {
        let _open = node;
        holdfast_transportd::run(Boot::new(Node::new("transport"), client)).await.expect("it lives");
    });
}

/// The process, and those around it.
struct Router {
    manager: Resolver,
    bgp: Resolver,
    metrics: Resolver,
    keeper: Doorman,
    /// Whoever opens sockets.
    _opener: Node,
}

impl Router {
    async fn start() -> Self {
        let finder = Finder::new();
        let keeper = Doorman(finder.clone(), Rc::default());
        process(&keeper);
        let opener = Node::new("fea");
        opener.serve(SocketDispatcher::new(SocketService::new(Place::Here, None)));
        let (near, far) = Link::pair();
        finder.attach_link(far, PeerIdentity::new("fea").class("socket"));
        opener.resolver().rejoin_link(near).await.expect("registered");
        let resolver = |role: &str| {
            let (near, far) = Link::pair();
            finder.attach_link(far, PeerIdentity::new(role));
            Resolver::over(Channel::over(near))
        };
        Self {
            manager: resolver("manager"),
            bgp: resolver("bgp"),
            metrics: resolver("metrics"),
            keeper,
            _opener: opener,
        }
    }

    /// Tells everybody who the peers are; it listens at the router's address.
    async fn configure(&self, peers: &[Peer]) {
        self.configure_with(peers, Configuration::default()).await;
    }

    /// With more than that for the door.
    async fn configure_with(&self, peers: &[Peer], more: Configuration) {
        let told = |peer: &Peer| sockets::Peer {
            name: peer.name.clone(),
            address: peer.address.clone(),
            is_range: peer.is_range,
            range_length: peer.range_length,
            port: peer.port,
            local_address: peer.local_address.clone(),
            ..sockets::Peer::default()
        };
        let (address, port) = (ROUTER.octets().to_vec(), u32::from(PORT));
        let plain = ListenRequest {
            address: address.clone(),
            port: 9100,
            plain: true,
            role: "metrics".into(),
            ..ListenRequest::default()
        };
        let listen = [ListenRequest { address, port, ..ListenRequest::default() }, plain];
        let opener: SocketClient = self.manager.wait_for("socket").await.expect("it is there");
        let places = listen.iter().map(|place| sockets::ListenRequest {
            address: place.address.clone(),
            port: place.port,
            plain: place.plain,
            ..sockets::ListenRequest::default()
        });
        let request = sockets::Configuration {
            peers: peers.iter().map(told).collect(),
            listen: places.collect(),
            ..Default::default()
        };
        opener.configure(request).await.expect("configured");
        let door: TransportClient = self.manager.wait_for("transport").await.expect("it is there");
        let request = Configuration { peers: peers.to_vec(), listen: listen.to_vec(), ..more };
        door.configure(request).await.expect("configured");
    }

    async fn door(&self) -> TransportClient {
        self.bgp.wait_for("transport").await.expect("it is there")
    }

    /// Its only listener, for the operator.
    async fn listener(&self) -> Listener {
        let mut shown = self.door().await.show_listeners(Empty {});
        shown.next().await.expect("it lives").expect("a listener")
    }
}

fn peer(name: &str, address: Ipv4Addr) -> Peer {
    Peer {
        name: name.into(),
        address: address.octets().to_vec(),
        local_address: ROUTER.octets().to_vec(),
        port: PORT.into(),
        ..Peer::default()
    }
}

/// Connects from an address of ours, as soon as somebody listens; what happens then is in a thread of its own, for the
/// process has ours.
async fn call<T: Send + 'static>(from: Ipv4Addr, and: impl FnOnce(TcpStream) -> T + Send + 'static) -> T {
    let calling = tokio::task::spawn_blocking(move || {
        let stream = loop {
            match connect(from) {
                Ok(stream) => break stream,
                Err(error) if error.kind() == Kind::ConnectionRefused => {
                    thread::sleep(Duration::from_millis(10));
                }
                Err(error) => panic!("{from}: {error}"),
            }
        };
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        and(stream)
    });
    calling.await.expect("no panic")
}

fn connect(from: Ipv4Addr) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let descriptor: OwnedFd = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&descriptor, &SocketAddr::new(from.into(), 0))?;
    connect(&descriptor, &SocketAddr::new(ROUTER.into(), PORT))?;
    Ok(descriptor.into())
}

/// Begins to connect, to somebody who listens.
fn knock(from: Ipv4Addr) -> OwnedFd {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
    let descriptor =
        socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None).expect("a socket");
    bind(&descriptor, &SocketAddr::new(from.into(), 0)).expect("bound");
    // On the loopback the answer, if there is one, is there when this returns.
    let _ = connect(&descriptor, &SocketAddr::new(ROUTER.into(), PORT));
    descriptor
}

/// How reading ends: octets, none, or an error.
fn read(mut stream: TcpStream) -> Result<usize, Kind> {
    stream.read(&mut [0; 16]).map_err(|error| error.kind())
}

async fn handed(stream: &mut holdfast_xrl::ReplyStream<Connection>) -> (Connection, OwnedFd) {
    let (connection, descriptors) = stream.next_with_fds().await.expect("it lives").expect("it has no end");
    (connection, descriptors.into_iter().next().expect("a descriptor"))
}

async fn next(stream: &mut holdfast_xrl::ReplyStream<Connection>) -> (Connection, TcpStream) {
    let (connection, descriptor) = handed(stream).await;
    let stream = TcpStream::from(descriptor);
    stream.set_nonblocking(false).expect("it blocks");
    (connection, stream)
}

fn story<F: Future<Output = ()>>(story: impl FnOnce(Router) -> F + Send + 'static) {
    let inside = thread::spawn(move || {
        holdfast_sys::process::enter_new_network().expect("this test needs root");
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.expect("ip runs").success());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let story = async move { timeout(LIMIT, story(Router::start().await)).await.expect("in time") };
        LocalSet::new().block_on(&runtime, story);
    });
    inside.join().expect("the story is told");
}

#[test]
fn a_peer_that_comes_is_handed_over_and_a_stranger_is_not_let_in() {
    story(|router| async move {
        router.configure(&[peer("neighbor", NEIGHBOR)]).await;
        let mut accepted = router.door().await.accept(Empty {});
        let calling = spawn_local(call(NEIGHBOR, |mut stream| {
            stream.write_all(b"OPEN").expect("written");
            read(stream)
        }));
        let (connection, mut socket) = next(&mut accepted).await;
        assert_eq!((connection.peer.as_str(), connection.protocol()), ("neighbor", Protocol::Tcp));
        assert_eq!((connection.number, connection.proof.as_str()), (0, ""), "the kernel's own socket");
        let (remote, local) = (NEIGHBOR.octets(), ROUTER.octets());
        assert_eq!(
            (connection.remote_address.as_slice(), &*connection.local_address),
            (&remote[..], &local[..])
        );
        assert_eq!(connection.local_port, u32::from(PORT));
        let mut open = [0; 4];
        socket.read_exact(&mut open).expect("what was sent is there");
        assert_eq!(&open, b"OPEN");
        drop(socket);
        assert_eq!(calling.await.expect("no panic"), Ok(0), "the socket is bgp's alone");

        let stranger = knock(STRANGER);
        assert!(rustix::net::getpeername(&stranger).is_err(), "not even the kernel has answered");
        assert_eq!(rustix::net::sockopt::socket_error(&stranger), Ok(Ok(())), "nor refused");
        let answered = knock(NEIGHBOR);
        assert!(rustix::net::getpeername(&answered).is_ok(), "who is configured is answered at once");
        assert_eq!(next(&mut accepted).await.0.peer, "neighbor");
        assert_eq!(router.listener().await.established, 2);
    });
}

#[test]
fn who_is_down_or_may_use_something_else_only_is_refused() {
    story(|router| async move {
        let disabled = Peer { disabled: true, ..peer("down", NEIGHBOR) };
        router.configure(std::slice::from_ref(&disabled)).await;
        assert_eq!(call(NEIGHBOR, read).await, Err(Kind::ConnectionReset));
        let range = Peer { is_range: true, range_length: 8, ..peer("range", Ipv4Addr::new(127, 0, 0, 0)) };
        router.configure(&[disabled, range]).await;
        assert_eq!(call(NEIGHBOR, read).await, Err(Kind::ConnectionReset), "it is not one of the range");
        let mut accepted = router.door().await.accept(Empty {});
        let calling = spawn_local(call(STRANGER, read));
        let (connection, socket) = next(&mut accepted).await;
        assert_eq!(connection.peer, "range");
        drop(socket);
        assert_eq!(calling.await.expect("no panic"), Ok(0));
    });
}

#[test]
fn who_takes_connections_gives_way_to_the_next_who_does() {
    story(|router| async move {
        router.configure(&[peer("neighbor", NEIGHBOR)]).await;
        let mut first = router.door().await.accept(Empty {});
        // Both come over one channel, in this order.
        let mut second = router.door().await.accept(Empty {});
        let error = first.next_with_fds().await.expect_err("another one takes");
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        let calling = spawn_local(call(NEIGHBOR, read));
        let (connection, socket) = next(&mut second).await;
        assert_eq!(connection.peer, "neighbor");
        drop(socket);
        assert_eq!(calling.await.expect("no panic"), Ok(0));
    });
}

#[test]
fn what_comes_while_nobody_takes_waits() {
    story(|router| async move {
        router.configure(&[peer("neighbor", NEIGHBOR)]).await;
        let calling = spawn_local(call(NEIGHBOR, read));
        while router.listener().await.established == 0 {
            tokio::task::yield_now().await;
        }
        let mut accepted = router.door().await.accept(Empty {});
        drop(next(&mut accepted).await);
        assert_eq!(calling.await.expect("no panic"), Ok(0));
    });
}

#[test]
fn a_connection_is_made_over_what_the_peer_may_use() {
    story(|router| async move {
        router.configure(&[peer("neighbor", NEIGHBOR)]).await;
        let listener = TcpListener::bind((NEIGHBOR, PORT)).expect("bound");
        let door = router.door().await;
        let dial = |peer: &str| door.connect(DialRequest { peer: peer.into() });
        let (connection, descriptors) = dial("neighbor").await.expect("connected");
        assert_eq!((connection.peer.as_str(), connection.protocol()), ("neighbor", Protocol::Tcp));
        assert_eq!((connection.remote_port, connection.number), (u32::from(PORT), 0));
        let (_, from) = listener.accept().expect("it has come");
        assert_eq!(from.ip(), IpAddr::from(ROUTER), "from our address");
        drop(descriptors);
        // What it may use is not for whoever dials to say.
        let error = door.dial(DialRequest { peer: "neighbor".into() }).await.expect_err("it is a peer");
        assert_eq!(error.kind(), ErrorKind::Denied);

        drop(listener);
        let error = dial("neighbor").await.expect_err("nobody listens");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("refused"), "{error}");
        assert_eq!(dial("nobody").await.expect_err("not configured").kind(), ErrorKind::NotFound);
        let error = door.meter(MeterRequest { number: 7 }).await.expect_err("nothing is carried");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn others_have_the_plain_listener_that_is_configured_for_them() {
    story(|router| async move {
        router.configure(&[peer("neighbor", NEIGHBOR)]).await;
        let door: TransportClient = router.metrics.wait_for("transport").await.expect("it is there");
        let listen = |port: u32, plain| {
            door.listen(ListenRequest {
                address: ROUTER.octets().to_vec(),
                port,
                plain,
                ..ListenRequest::default()
            })
        };
        assert_eq!(listen(9100, true).await.expect("listening").1.len(), 1);
        let kind = |result: Result<(Empty, Vec<OwnedFd>), XrlError>| result.expect_err("denied").kind();
        assert_eq!(kind(listen(9101, true).await), ErrorKind::Denied);
        assert_eq!(kind(listen(u32::from(PORT), false).await), ErrorKind::Denied);
    });
}
