//! The process with VRFs: one at a device, one in another network namespace, into which a keeper reaches for it. Needs
//! root, `ip` and `ss` of iproute2. The device is a bridge: not every kernel has VRF devices, and to the fea any interface
//! with others enslaved to it is one.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io::ErrorKind as ErrorKindOfIo,
    net::TcpListener,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::Command,
    rc::Rc,
    sync::mpsc,
    thread,
    time::Duration,
};

use holdfast_api::{
    address::v1::{
        AddressClient, AnnounceRequest, AssumeReply, AssumeRequest, ResignRequest, ServiceAddress,
    },
    fea::v1::{Configuration, Empty, FeaClient, ShutdownRequest, Vrf},
    keeper::v1::{
        Empty as KeeperEmpty, GetRequest, KeeperClient, ListReply, PutRequest, SocketKind, SocketRequest,
    },
    routes::v1::{NextHop, NextHopSet, RouteBatch},
    socket::v1::{Configuration as Sockets, ListenRequest, SocketClient},
};
use holdfast_process::Boot;
use holdfast_xrl::{
    Channel, Client, ErrorKind, Finder, Handler, IncomingCall, Link, Node, PeerIdentity, Resolver, Service,
    ServiceInfo, XrlError,
};
use rustix::net::{AddressFamily, SocketType};
use tokio::{
    task::{LocalSet, spawn_local},
    time::timeout,
};

const LIMIT: Duration = Duration::from_secs(20);

type Job = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own, which has eth0 10.0.0.1/24 with a neighbour 10.0.0.2.
#[derive(Clone)]
struct Namespace(mpsc::Sender<Job>);

impl Namespace {
    fn new() -> Self {
        let (jobs, work) = mpsc::channel::<Job>();
        thread::spawn(move || {
            holdfast_sys::process::enter_new_network().expect("this test needs root");
            ip("link set lo up");
            ip("link add eth0 type veth peer name peer0");
            ip("link set peer0 up");
            ip("link set eth0 up");
            ip("addr add 10.0.0.1/24 dev eth0");
            work.into_iter().for_each(|job| job());
        });
        Self(jobs)
    }

    /// Does this inside.
    fn inside<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        self.0.send(Box::new(move || drop(done.send(job())))).expect("it is there");
        result.recv().expect("the job is done")
    }
}

fn ip(arguments: &str) -> String {
    run("ip", arguments)
}

fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split_whitespace()).output().expect("it runs");
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Routes of ours that `ip route show` tells of a table, which may never have been used.
fn routes(table: &str) -> usize {
    let output = Command::new("ip").args(["route", "show", "proto", "75", "table", table]).output();
    String::from_utf8(output.expect("ip runs").stdout).expect("text").lines().count()
}

/// A keeper that takes whoever asks to this Finder, and knows these namespaces.
#[derive(Clone)]
struct Keeper {
    finder: Finder,
    namespaces: Rc<RefCell<BTreeMap<String, Namespace>>>,
}

impl Keeper {
    fn socket(&self, request: &SocketRequest) -> Result<OwnedFd, XrlError> {
        let namespaces = self.namespaces.borrow();
        let namespace = namespaces.get(&request.netns);
        let namespace = namespace.ok_or_else(|| XrlError::failed_precondition("it is not there"))?;
        let family = match request.kind() {
            SocketKind::NetlinkRoute => {
                return Ok(namespace.inside(|| holdfast_fib_linux::socket().expect("netlink")));
            }
            SocketKind::Packet => {
                let frames = || rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, None);
                return Ok(namespace.inside(move || frames().expect("a socket")));
            }
            SocketKind::TcpV4 => AddressFamily::INET,
            SocketKind::TcpV6
            | SocketKind::IcmpV6
            | SocketKind::UdpV4
            | SocketKind::UdpV6
            | SocketKind::RawV4
            | SocketKind::RawV6
            | SocketKind::NetlinkNetfilter
            | SocketKind::NetlinkSockDiag => {
                return Err(XrlError::internal("nobody asks for that"));
            }
        };
        Ok(namespace.inside(move || rustix::net::socket(family, SocketType::STREAM, None).expect("a socket")))
    }
}

impl Service for Keeper {
    fn info(&self) -> &'static ServiceInfo {
        KeeperClient::SERVICE
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        let number = call.method();
        let method = KeeperClient::SERVICE.methods.iter().find(|method| method.id == number);
        let keeper = self.clone();
        match method.map(|method| method.name) {
            Some("Socket") => call.unary(move |_, request: SocketRequest, _| async move {
                Ok((KeeperEmpty {}, vec![keeper.socket(&request)?]))
            }),
            Some("AttachFinder") => call.unary(move |_, _: KeeperEmpty, _| async move {
                let (near, far) = UnixStream::pair().expect("sockets");
                keeper
                    .finder
                    .attach(far.into(), PeerIdentity::new("fea").class("socket").pid(7))
                    .expect("attached");
                Ok((KeeperEmpty {}, vec![near.into()]))
            }),
            // It forgets whatever it is given.
            Some("List") => {
                call.unary(|_, _: KeeperEmpty, _| async { Ok((ListReply::default(), Vec::new())) })
            }
            Some("Put") => call.unary(|_, _: PutRequest, _| async { Ok((KeeperEmpty {}, Vec::new())) }),
            Some("Drop") => call.unary(|_, _: GetRequest, _| async { Ok((KeeperEmpty {}, Vec::new())) }),
            _ => call.unknown(),
        }
    }
}

/// The process, and those who call it.
struct Router {
    keeper: Keeper,
    manager: Resolver,
    rib: Resolver,
    replicator: Resolver,
    transport: Resolver,
}

impl Router {
    fn start() -> Self {
        let finder = Finder::new();
        let keeper = Keeper { finder: finder.clone(), namespaces: Rc::default() };
        let door = Node::new("keeper");
        door.serve(keeper.clone());
        let (near, far) = UnixStream::pair().expect("sockets");
        door.attach(far.into(), PeerIdentity::new("fea")).expect("attached");
        let client = KeeperClient::new(Channel::connect(near.into()).expect("connected"));
        spawn_local(async move {
            let _open = door;
            holdfast_fea::run(Boot::new(Node::new("fea"), client)).await.expect("it lives");
        });
        let resolver = |role: &str| {
            let (near, far) = Link::pair();
            finder.attach_link(far, PeerIdentity::new(role));
            Resolver::over(Channel::over(near))
        };
        Self {
            manager: resolver("manager"),
            rib: resolver("rib"),
            replicator: resolver("replicator"),
            transport: resolver("transport"),
            keeper,
        }
    }

    /// What the process is told.
    async fn configure(&self, vrfs: &[Vrf]) -> Result<Empty, XrlError> {
        let request = Configuration { vrfs: vrfs.to_vec(), ..configuration(0) };
        self.manager.wait_for::<FeaClient>("fea").await?.configure(request).await
    }

    /// What an instance is told.
    async fn configure_vrf(&self, class: &str, table: u32) {
        let fea: FeaClient = self.manager.wait_for(class).await.expect("it is there");
        fea.configure(configuration(table)).await.expect("configured");
    }

    /// The opener of the VRF `red`, which may listen there.
    async fn sockets_of_red(&self, listen: &[ListenRequest]) -> SocketClient {
        let opener: SocketClient = self.manager.wait_for("socket@red").await.expect("it is there");
        let request = Sockets { listen: listen.to_vec(), ..Sockets::default() };
        opener.configure(request).await.expect("configured");
        self.transport.wait_for("socket@red").await.expect("it is there")
    }

    /// Has `count` routes 20.0.n.0/24 to 10.0.0.2 as the whole table.
    async fn sync(&self, class: &str, count: u8) {
        let fea: FeaClient = self.rib.wait_for(class).await.expect("it is there");
        fea.sync_begin(Empty {}).await.expect("begins");
        fea.apply(batch(count)).await.expect("applied");
        fea.sync_end(Empty {}).await.expect("ends");
        let manager: FeaClient = self.manager.wait_for(class).await.expect("it is there");
        let status = manager.show_status(Empty {}).await.expect("a status");
        assert_eq!((status.routes, status.last_errors), (count.into(), Vec::new()), "{class}");
    }

    /// Waits until the rib is told of a loss.
    async fn lost(&self, class: &str) {
        let fea: FeaClient = self.rib.wait_for(class).await.expect("it is there");
        fea.losses(Empty {}).next().await.expect("it lives").expect("a loss");
    }

    /// The names of the interfaces that the rib is shown.
    async fn interfaces(&self, class: &str) -> Vec<String> {
        let fea: FeaClient = self.rib.wait_for(class).await.expect("it is there");
        let mut stream = fea.interfaces(Empty {});
        let mut names = Vec::new();
        loop {
            let event = stream.next().await.expect("it lives").expect("it has no end");
            names.extend(event.interface.map(|interface| interface.name));
            if event.synced {
                names.sort();
                return names;
            }
        }
    }
}

fn configuration(table: u32) -> Configuration {
    Configuration { backend: "linux".into(), table, ..Configuration::default() }
}

fn red() -> Vrf {
    Vrf { name: "red".into(), netns: "red".into(), ..Vrf::default() }
}

fn blue() -> Vrf {
    Vrf { name: "blue".into(), table: 100, device: "blue0".into(), ..Vrf::default() }
}

fn batch(count: u8) -> RouteBatch {
    let member = NextHop { gateway: vec![10, 0, 0, 2], interface: "eth0".into(), ..NextHop::default() };
    RouteBatch {
        afi: 1,
        define: vec![NextHopSet { handle: 1, kind: 0, members: vec![member], backups: Vec::new() }],
        addresses: (0..count).flat_map(|third| [20, 0, third, 0]).collect(),
        lengths: vec![24; count.into()],
        runs: vec![count.into()],
        next_hops: vec![1],
        ..RouteBatch::default()
    }
}

/// Runs the story in a namespace of its own, which is the process's.
fn story<F: Future<Output = ()>>(story: impl FnOnce(Router) -> F + Send + 'static) {
    Namespace::new().inside(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let story = async move { timeout(LIMIT, story(Router::start())).await.expect("in time") };
        LocalSet::new().block_on(&runtime, story);
    });
}

#[test]
fn tables_and_sockets_of_a_namespace_are_inside_and_go_with_the_vrf() {
    story(|router| async move {
        let namespace = Namespace::new();
        router.keeper.namespaces.borrow_mut().insert("red".into(), namespace.clone());
        router.configure(&[red()]).await.expect("configured");
        router.configure_vrf("fea@red", 0).await;
        router.sync("fea", 1).await;
        router.sync("fea@red", 3).await;
        let counts = || (routes("main"), namespace.inside(|| routes("main")));
        assert_eq!(counts(), (1, 3));
        router.sync("fea", 2).await;
        assert_eq!(counts(), (2, 3));

        let listen = ListenRequest { address: vec![10, 0, 0, 1], port: 1790, ..ListenRequest::default() };
        let door = router.sockets_of_red(std::slice::from_ref(&listen)).await;
        let (_, listening) = door.listen(listen).await.expect("listening");
        assert_eq!(listening.len(), 1);
        assert!(namespace.inside(|| run("ss", "-Htln")).contains("10.0.0.1:1790"));
        assert!(!run("ss", "-Htln").contains("1790"));

        router.configure(&[]).await.expect("configured");
        assert_eq!(counts(), (2, 0));
        // The Finder hears of it a moment later.
        let gone = loop {
            match router.rib.client::<FeaClient>("fea@red").await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => break error,
            }
        };
        assert_eq!(gone.kind(), ErrorKind::NotFound);
    });
}

/// Waits until what `ip` says of addresses inside has this, or not.
async fn until(namespace: &Namespace, text: &str, is_there: bool) {
    loop {
        if namespace.inside(|| ip("address show")).contains(text) == is_there {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn service_addresses_are_there_and_told_until_they_are_resigned() {
    story(|router| async move {
        let namespace = Namespace::new();
        router.keeper.namespaces.borrow_mut().insert("red".into(), namespace.clone());
        router.configure(&[red()]).await.expect("configured");
        router.configure_vrf("fea@red", 0).await;
        let ear = namespace.inside(|| {
            let every = rustix::net::Protocol::from_raw(u32::from(3_u16.to_be()).try_into().expect("not 0"));
            rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, Some(every)).expect("a socket")
        });
        rustix::io::ioctl_fionbio(&ear, true).expect("set");
        let address = |octets: &[u8], length, interface: &str| ServiceAddress {
            address: octets.to_vec(),
            length,
            interface: interface.into(),
        };
        let v6 = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        let all = [
            address(&[10, 0, 0, 9], 24, "eth0"),
            address(&v6, 64, "eth0"),
            address(&[10, 9, 0, 9], 24, "late0"),
        ];
        let fea: AddressClient = router.replicator.wait_for("fea@red").await.expect("it is there");
        let assume = |addresses: &[ServiceAddress], until: u64| {
            fea.assume(AssumeRequest { addresses: addresses.to_vec(), until })
        };
        let resign = |addresses: &[ServiceAddress], stay: bool| {
            fea.resign(ResignRequest { addresses: addresses.to_vec(), stay })
        };
        let late = assume(&all, 1).await.expect("told");
        assert!(!late.added && late.missing.is_empty(), "the lease is over: {late:?}");
        assert!(!namespace.inside(|| ip("address show")).contains("10.0.0.9/24"));
        let assumed = assume(&all, u64::MAX).await.expect("assumed");
        assert!(assumed.added);
        assert_eq!(assumed.missing, ["10.9.0.9: there is no interface late0"]);
        let shown = namespace.inside(|| ip("address show dev eth0"));
        assert!(shown.contains("10.0.0.9/24") && shown.contains("fd00::9/64 scope global nodad"), "{shown}");

        fea.announce(AnnounceRequest { until: 1 }).await.expect("told");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(frames(&ear), [0; 3], "the lease is over");
        fea.announce(AnnounceRequest { until: u64::MAX }).await.expect("told");
        let mut heard = [0; 3];
        while heard.iter().any(|count| *count < 2) {
            heard.iter_mut().zip(frames(&ear)).for_each(|(all, more)| *all += more);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }

        namespace.inside(|| ip("address del 10.0.0.9/24 dev eth0"));
        until(&namespace, "10.0.0.9/24", true).await;
        namespace.inside(|| ip("link add late0 type veth peer name late1"));
        until(&namespace, "10.9.0.9/24", true).await;

        let fewer = &all[..2];
        assert_eq!(assume(fewer, u64::MAX).await.expect("assumed"), AssumeReply::default());
        until(&namespace, "10.9.0.9/24", false).await;
        resign(fewer, true).await.expect("they are another router's");
        assert!(namespace.inside(|| ip("address show")).contains("10.0.0.9/24"));
        resign(fewer, false).await.expect("resigned");
        let shown = namespace.inside(|| ip("address show"));
        assert!(!shown.contains("10.0.0.9/24") && !shown.contains("fd00::9/64"), "{shown}");
        assert!(shown.contains("10.0.0.1/24"), "what is not Holdfast's stays: {shown}");
        resign(fewer, false).await.expect("there is nothing to remove");
        for wrong in [
            address(&[1, 2], 8, "eth0"),
            address(&[10, 0, 0, 9], 33, "eth0"),
            address(&[10, 0, 0, 9], 24, ""),
        ] {
            let error = assume(&[wrong], u64::MAX).await.expect_err("no address");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
        assume(&all[..1], u64::MAX).await.expect("assumed");
        router.configure(&[]).await.expect("configured");
        until(&namespace, "10.0.0.9/24", false).await;
    });
}

/// How many ARP requests, ARP replies and Neighbor Advertisements have come since.
fn frames(ear: &OwnedFd) -> [u32; 3] {
    let (mut heard, mut frame) = ([0; 3], [0; 2048]);
    while let Ok((octets, _)) = rustix::net::recv(ear, &mut frame, rustix::net::RecvFlags::empty()) {
        let frame = &frame[..octets];
        let is_arp = |operation: u8| frame[12..].starts_with(&[8, 6]) && frame[20..22] == [0, operation];
        let is_told = frame[12..].starts_with(&[0x86, 0xdd]) && frame.get(54) == Some(&136);
        let kinds = [is_arp(1), is_arp(2), is_told];
        heard.iter_mut().zip(kinds).for_each(|(count, is)| *count += u32::from(is));
    }
    heard
}

#[test]
fn a_device_has_its_table_and_its_interfaces_beside_the_default_table() {
    story(|router| async move {
        ip("link add blue0 type bridge");
        ip("link add eth1 type veth peer name peer1");
        ip("link set eth1 master blue0");
        router.configure(&[blue()]).await.expect("configured");
        router.configure_vrf("fea@blue", 100).await;
        assert_eq!(router.interfaces("fea@blue").await, ["blue0", "eth1"]);
        assert_eq!(router.interfaces("fea").await, ["eth0", "lo", "peer0", "peer1"]);
        router.sync("fea", 2).await;
        router.sync("fea@blue", 3).await;
        assert_eq!((routes("main"), routes("100")), (2, 3));
        router.configure_vrf("fea@blue", 101).await;
        assert_eq!(
            (routes("main"), routes("100"), routes("101")),
            (2, 0, 0),
            "another table is to be told again"
        );
        router.sync("fea@blue", 1).await;
        router.sync("fea", 0).await;
        assert_eq!((routes("main"), routes("101")), (0, 1));
        let fea: FeaClient = router.manager.wait_for("fea").await.expect("it is there");
        fea.shutdown(ShutdownRequest { keep_routes: false }).await.expect("shut down");
        assert_eq!(routes("101"), 0, "the end of the process is that of its VRFs");
    });
}

#[test]
fn tables_are_given_up_before_another_takes_them() {
    story(|router| async move {
        let at = |blue_table, green_table| {
            let green =
                Vrf { name: "green".into(), table: green_table, device: "green0".into(), ..Vrf::default() };
            [Vrf { table: blue_table, ..blue() }, green]
        };
        let fea: FeaClient = router.manager.wait_for("fea").await.expect("it is there");
        router.configure(&at(100, 101)).await.expect("configured");
        for (class, table, count) in [("fea@blue", 100, 3), ("fea@green", 101, 2)] {
            router.configure_vrf(class, table).await;
            router.sync(class, count).await;
        }
        router.sync("fea", 1).await;

        // They swap; whoever is told first has its routes before the other is told.
        router.configure(&at(101, 100)).await.expect("configured");
        assert_eq!((routes("main"), routes("100"), routes("101")), (1, 0, 0));
        for (class, table, count) in [("fea@blue", 101, 4), ("fea@green", 100, 5)] {
            router.lost(class).await;
            router.configure_vrf(class, table).await;
            router.sync(class, count).await;
        }
        assert_eq!((routes("main"), routes("100"), routes("101")), (1, 5, 4));

        // The default table becomes blue's, and blue's a new one.
        let request = Configuration { vrfs: at(102, 100).to_vec(), ..configuration(101) };
        fea.configure(request).await.expect("configured");
        router.lost("fea").await;
        router.sync("fea", 6).await;
        router.lost("fea@blue").await;
        router.configure_vrf("fea@blue", 102).await;
        router.sync("fea@blue", 7).await;
        assert_eq!(["main", "100", "101", "102"].map(routes), [0, 5, 6, 7]);
    });
}

#[test]
fn a_namespace_that_comes_later_is_waited_for_and_nobody_waits_with_it() {
    story(|router| async move {
        router.configure(&[red(), blue()]).await.expect("configured");
        router.configure_vrf("fea@red", 0).await;
        router.sync("fea", 1).await;
        let fea: FeaClient = router.rib.wait_for("fea@red").await.expect("it is there");
        let mut begun = Box::pin(fea.sync_begin(Empty {}));
        assert!(timeout(Duration::from_millis(200), &mut begun).await.is_err(), "nothing is there");
        let namespace = Namespace::new();
        router.keeper.namespaces.borrow_mut().insert("red".into(), namespace.clone());
        begun.await.expect("begins");
        router.sync("fea@red", 2).await;
        assert_eq!(namespace.inside(|| routes("main")), 2);
        assert_eq!(router.interfaces("fea@red").await, ["eth0", "lo", "peer0"]);
    });
}

#[test]
fn a_namespace_that_is_made_again_is_the_one_from_then_on() {
    story(|router| async move {
        let [old, new] = [Namespace::new(), Namespace::new()];
        router.keeper.namespaces.borrow_mut().insert("red".into(), old.clone());
        router.configure(&[red()]).await.expect("configured");
        router.configure_vrf("fea@red", 0).await;
        router.sync("fea@red", 3).await;
        let at = |port| ListenRequest { address: vec![10, 0, 0, 1], port, ..ListenRequest::default() };
        let door = router.sockets_of_red(&[1790, 1791].map(at)).await;
        let listen = |port| {
            let request = at(port);
            let door = door.clone();
            async move { TcpListener::from(door.listen(request).await.expect("listening").1.remove(0)) }
        };
        let listening = listen(1790).await;
        let waits = || listening.accept().expect_err("nobody calls").kind();
        assert_eq!(waits(), ErrorKindOfIo::WouldBlock);

        let fea: FeaClient = router.rib.wait_for("fea@red").await.expect("it is there");
        let mut losses = fea.losses(Empty {});
        router.keeper.namespaces.borrow_mut().insert("red".into(), new.clone());
        // The first socket that is made there.
        let elsewhere = listen(1791).await;
        let loss = losses.next().await.expect("it lives").expect("it has no end");
        assert!(loss.reason.contains("made again"), "{loss:?}");
        router.sync("fea@red", 2).await;
        assert_eq!([&old, &new].map(|namespace| namespace.inside(|| routes("main"))), [0, 2]);
        router.interfaces("fea@red").await;
        while waits() != ErrorKindOfIo::InvalidInput {
            tokio::task::yield_now().await;
        }
        assert_eq!(elsewhere.accept().expect_err("nobody calls").kind(), ErrorKindOfIo::WouldBlock);
        let again = listen(1790).await;
        assert!(new.inside(|| run("ss", "-Htln")).contains("10.0.0.1:1790"));
        drop(again);
    });
}

#[test]
fn what_cannot_be_is_refused_and_nothing_has_changed() {
    story(|router| async move {
        router.configure(&[blue()]).await.expect("configured");
        let twice = [blue(), Vrf { name: "green".into(), device: "green0".into(), ..blue() }];
        let error = router.configure(&twice).await.expect_err("one table twice");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        router.manager.client::<FeaClient>("fea@blue").await.map(|_| ()).expect("is still there");
        let fea: FeaClient = router.manager.wait_for("fea@blue").await.expect("it is there");
        let nested = Configuration { vrfs: vec![red()], ..configuration(100) };
        assert_eq!(fea.configure(nested).await.expect_err("no").kind(), ErrorKind::InvalidArgument);
    });
}
