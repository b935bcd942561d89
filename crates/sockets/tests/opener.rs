//! Sockets as protocols get them, over loopback: those that listen in a network namespace of the test, which needs root.

use std::{
    cell::Cell,
    future::Future,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    pin::pin,
    process::Command,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use holdfast_sockets::{Peer, Place, Secret, SocketError};
use holdfast_types::Prefix;
use rustix::net::sockopt;

/// An opener whose sockets are made here, for which it waits for nobody; and who is heard there without being a peer.
pub(super) struct Opener(pub(super) holdfast_sockets::Opener, Vec<Prefix>);

impl Opener {
    pub(super) fn new() -> Self {
        Self::at(Place::Here)
    }

    fn at(place: Place) -> Self {
        Self(holdfast_sockets::Opener::new(place, None), Vec::new())
    }

    pub(super) fn configure(
        &mut self,
        peers: impl IntoIterator<Item = Peer>,
        listen: &[SocketAddr],
    ) -> Result<(), SocketError> {
        let listen = listen.iter().map(|address| (*address, false)).collect();
        now(self.0.configure(peers, self.1.clone(), &listen))
    }

    fn listen(&mut self, address: SocketAddr, plain: bool) -> Result<OwnedFd, SocketError> {
        now(self.0.listen(address, plain))
    }

    pub(super) fn dial(&self, name: &str) -> Result<OwnedFd, SocketError> {
        now(self.0.dial(name, |_| None))
    }
}

pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}

pub(super) fn peer(name: &str, address: impl Into<IpAddr>, port: u16) -> Peer {
    let network = Prefix::host(address.into());
    Peer {
        name: name.into(),
        network,
        port,
        local: None,
        interface: None,
        md5: None,
        ttl_security: false,
        ttl: None,
        only_dialled: false,
        link: None,
    }
}

pub(super) fn key(text: &str) -> Option<Secret> {
    Secret::new(text.into())
}

/// A port of an address of loopback that is free, and stays so: this test has a network namespace of its own from here on. In one
/// for all, another test may take the port before this one listens there.
pub(super) fn free_port(address: impl Into<IpAddr>) -> SocketAddr {
    thread_local!(static IS_ALONE: Cell<bool> = const { Cell::new(false) });
    if !IS_ALONE.replace(true) {
        holdfast_sys::process::enter_new_network().expect("this test needs root");
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().expect("ip runs");
        assert!(up.success(), "loopback is up");
    }
    TcpListener::bind((address.into(), 0)).and_then(|socket| socket.local_addr()).expect("a free port")
}

/// A listener on a free port of the loopback address.
pub(super) fn listener(opener: &mut Opener, address: impl Into<IpAddr>) -> (TcpListener, u16) {
    let free = free_port(address);
    let socket: TcpListener = opener.listen(free, false).expect("listening").into();
    (socket, free.port())
}

/// Waits until the dialled socket is connected or has failed.
pub(super) fn settle(socket: OwnedFd) -> Result<TcpStream, rustix::io::Errno> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut descriptors = [PollFd::new(&socket, PollFlags::OUT)];
    poll(&mut descriptors, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).expect("poll");
    let ready = !descriptors[0].revents().is_empty();
    sockopt::socket_error(&socket).expect("SO_ERROR")?;
    if ready { Ok(socket.into()) } else { Err(rustix::io::Errno::TIMEDOUT) }
}

pub(super) fn accept(listener: &TcpListener) -> TcpStream {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match listener.accept() {
            Ok((stream, _)) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_dialled_socket_connects_from_the_local_address() {
    let mut opener = Opener::new();
    let (listening, port) = listener(&mut opener, Ipv4Addr::LOCALHOST);
    let local = Ipv4Addr::new(127, 0, 0, 9);
    opener
        .configure(
            [
                Peer { local: Some(local.into()), ..peer("a", Ipv4Addr::LOCALHOST, port) },
                // Who is no peer gets no answer.
                peer("b", local, port),
            ],
            &[(Ipv4Addr::LOCALHOST, port).into()],
        )
        .expect("configured");
    let dialled = settle(opener.dial("a").expect("dialling")).expect("connected");
    let accepted = accept(&listening);
    assert_eq!(accepted.peer_addr().expect("connected"), dialled.local_addr().expect("connected"));
    assert_eq!(accepted.peer_addr().expect("connected").ip(), local);
    assert_eq!(sockopt::ip_tos(&dialled), Ok(0xc0));
    assert_eq!(sockopt::socket_keepalive(&dialled), Ok(false), "BGP has a hold timer");
}

/// A collector or cache that dies without a word is noticed within a minute: after the idle time and the silence.
#[test]
fn the_kernel_ends_connections_to_those_who_are_only_dialled_and_fall_silent() {
    let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listening.local_addr().expect("bound").port();
    let mut opener = Opener::new();
    let collector = Peer { only_dialled: true, ..peer("collector", Ipv4Addr::LOCALHOST, port) };
    opener.configure([collector], &[]).expect("configured");
    let dialled = settle(opener.dial("collector").expect("dialling")).expect("connected");
    assert_eq!(sockopt::socket_keepalive(&dialled), Ok(true));
    let idle = sockopt::tcp_keepidle(&dialled).expect("an option");
    let silence = Duration::from_millis(sockopt::tcp_user_timeout(&dialled).expect("an option").into());
    assert!(idle + silence <= Duration::from_secs(60), "{idle:?}, {silence:?}");
    assert!(!silence.is_zero() && sockopt::tcp_keepintvl(&dialled).expect("an option") < silence);
}

#[test]
fn dialling_never_waits() {
    let mut opener = Opener::new();
    // TEST-NET-1: nobody answers, if there is a route at all.
    opener.configure([peer("far", Ipv4Addr::new(192, 0, 2, 1), 179)], &[]).expect("configured");
    let begin = Instant::now();
    let _ = opener.dial("far");
    assert!(begin.elapsed() < Duration::from_millis(500));
}

#[test]
fn who_cannot_be_dialled_is_told_why() {
    let mut opener = Opener::new();
    let range =
        Peer { network: "127.0.0.0/8".parse().expect("prefix"), ..peer("range", Ipv4Addr::LOCALHOST, 1) };
    let link = Peer {
        interface: Some("nowhere0".into()),
        ..peer("link", "fe80::1".parse::<IpAddr>().expect("address"), 1)
    };
    opener.configure([range, link], &[]).expect("configured");
    assert!(matches!(opener.dial("nobody"), Err(SocketError::UnknownPeer(_))));
    assert!(matches!(opener.dial("range"), Err(SocketError::Range(_))));
    assert!(matches!(opener.dial("link"), Err(SocketError::NoInterface { .. })));
}

#[test]
fn a_peer_without_address_is_the_neighbour_that_is_heard_and_nobody_before() {
    let mut opener = Opener::new();
    let peer = Peer {
        interface: Some("lo".into()),
        network: "fe80::/10".parse().expect("prefix"),
        ..peer("unnumbered", Ipv6Addr::LOCALHOST, 1)
    };
    opener.configure([peer], &[]).expect("configured");
    assert_eq!(opener.0.unnumbered().collect::<Vec<_>>(), ["lo"]);
    let nobody = opener.dial("unnumbered").expect_err("nobody is there").to_string();
    assert_eq!(nobody, "no neighbour heard on lo yet");
    // The loopback interface is a link where nobody listens at once.
    let asked = Cell::new(None);
    let _ = now(opener.0.dial("unnumbered", |link| {
        asked.set(Some(link.to_owned()));
        Some(Ipv6Addr::LOCALHOST)
    }));
    assert_eq!(asked.take().as_deref(), Some("lo"));
}

#[test]
fn at_a_device_all_sockets_are_bound_to_it() {
    let mut opener = Opener::at(Place::Device("lo".into()));
    let (listening, port) = listener(&mut opener, Ipv4Addr::LOCALHOST);
    let stays = [(Ipv4Addr::LOCALHOST, port).into()];
    opener.configure([peer("a", Ipv4Addr::LOCALHOST, port)], &stays).expect("configured");
    let dialled = settle(opener.dial("a").expect("dialling")).expect("connected");
    accept(&listening);
    let shown = Command::new("ss").args(["-Htan", &format!("dport = :{port} or sport = :{port}")]).output();
    let shown = String::from_utf8(shown.expect("ss of iproute2 runs").stdout).expect("text");
    let at = |socket: &str| shown.lines().any(|line| line.split_whitespace().nth(3) == Some(socket));
    let local = dialled.local_addr().expect("connected").port();
    assert!(at(&format!("127.0.0.1%lo:{port}")) && at(&format!("127.0.0.1%lo:{local}")), "{shown}");
}

/// In a network namespace of its own.
#[test]
fn a_listener_ends_with_its_device_and_another_one_is_at_the_next_of_that_name() {
    let story = || {
        holdfast_sys::process::enter_new_network().expect("this test needs root");
        let ip = |arguments: &str| {
            let status = Command::new("ip").args(arguments.split(' ')).status().expect("ip runs");
            assert!(status.success(), "{arguments}");
        };
        ip("link add blue0 type bridge");
        let (mut opener, address) =
            (Opener::at(Place::Device("blue0".into())), (Ipv4Addr::UNSPECIFIED, 1790));
        let mut listen = || TcpListener::from(opener.listen(address.into(), false).expect("listening"));
        let first = listen();
        let still = listen();
        ip("link add other0 type bridge");
        listen();
        let waits = |listener: &TcpListener| listener.accept().expect_err("nobody calls").kind();
        assert_eq!([waits(&first), waits(&still)], [std::io::ErrorKind::WouldBlock; 2]);

        ip("link del blue0");
        ip("link add blue0 type bridge");
        let again = listen();
        assert_eq!([waits(&first), waits(&still)], [std::io::ErrorKind::InvalidInput; 2]);
        assert_eq!(waits(&again), std::io::ErrorKind::WouldBlock);
        ip("link del blue0");
        now(opener.0.follow());
        assert_eq!(waits(&again), std::io::ErrorKind::InvalidInput);
    };
    std::thread::spawn(story).join().expect("no panic");
}

#[test]
fn a_device_that_is_not_there_is_told() {
    let mut opener = Opener::at(Place::Device("nowhere0".into()));
    let error = opener.listen((Ipv4Addr::LOCALHOST, 1790).into(), false).expect_err("no device");
    assert_eq!(error.to_string(), "there is no interface `nowhere0`: No such device (os error 19)");
}

#[test]
fn with_the_same_key_they_connect_and_with_another_they_do_not() {
    for (address, local) in [
        (IpAddr::from(Ipv4Addr::LOCALHOST), Ipv4Addr::LOCALHOST.into()),
        (Ipv6Addr::LOCALHOST.into(), IpAddr::from(Ipv6Addr::LOCALHOST)),
    ] {
        let (mut server, mut client) = (Opener::new(), Opener::new());
        server.configure([Peer { md5: key("one"), ..peer("client", local, 1) }], &[]).expect("configured");
        let (listening, port) = listener(&mut server, address);
        let dial = |client: &mut Opener, md5| {
            client.configure([Peer { md5, ..peer("server", address, port) }], &[]).expect("configured");
            settle(client.dial("server").expect("dialling"))
        };
        assert!(dial(&mut client, key("one")).is_ok());
        accept(&listening);
        assert!(dial(&mut client, key("two")).is_err(), "another key");
        assert!(dial(&mut client, None).is_err(), "no key");
        // The listener follows the configuration.
        server
            .configure([Peer { md5: key("two"), ..peer("client", local, 1) }], &[(address, port).into()])
            .expect("configured");
        assert!(dial(&mut client, key("two")).is_ok(), "changed");
        server.configure([peer("client", local, 1)], &[(address, port).into()]).expect("configured");
        assert!(dial(&mut client, None).is_ok(), "taken away");
    }
}

#[test]
fn a_connection_takes_another_key_and_loses_nothing_that_is_in_flight() {
    use std::io::{Read, Write};

    let (mut server, mut client) = (Opener::new(), Opener::new());
    let any = Peer { network: "127.0.0.0/8".parse().expect("prefix"), ..peer("any", Ipv4Addr::LOCALHOST, 1) };
    server.configure([any.clone()], &[]).expect("configured");
    let (listening, port) = listener(&mut server, Ipv4Addr::LOCALHOST);
    client.configure([peer("server", Ipv4Addr::LOCALHOST, port)], &[]).expect("configured");
    let mut dialled = settle(client.dial("server").expect("dialling")).expect("connected");
    let mut accepted = accept(&listening);
    accepted.set_nonblocking(false).expect("set");
    for md5 in [key("one"), key("two"), None] {
        let to_server = Peer { md5: md5.clone(), ..peer("server", Ipv4Addr::LOCALHOST, port) };
        client.configure([to_server], &[]).expect("configured");
        client.0.refit("server", &OwnedFd::from(dialled.try_clone().expect("a copy"))).expect("refitted");
        dialled.write_all(b"new").expect("room");
        accepted.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
        accepted.read(&mut [0; 3]).expect_err("it still has what there was before");
        server
            .configure([Peer { md5, ..any.clone() }], &[(Ipv4Addr::LOCALHOST, port).into()])
            .expect("configured");
        server.0.refit("any", &OwnedFd::from(accepted.try_clone().expect("a copy"))).expect("refitted");
        accepted.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        let mut read = [0; 3];
        accepted.read_exact(&mut read).expect("sent again");
        assert_eq!(&read, b"new");
    }
    let nobody = client.0.refit("nobody", &OwnedFd::from(dialled)).expect_err("not known");
    assert!(matches!(nobody, SocketError::UnknownPeer(_)), "{nobody}");
}

#[test]
fn a_range_shares_a_key() {
    let (mut server, mut client) = (Opener::new(), Opener::new());
    let network = "127.0.0.0/8".parse().expect("prefix");
    server
        .configure([Peer { network, md5: key("many"), ..peer("range", Ipv4Addr::LOCALHOST, 1) }], &[])
        .expect("configured");
    let (_listening, port) = listener(&mut server, Ipv4Addr::LOCALHOST);
    let local = Some(Ipv4Addr::new(127, 7, 7, 7).into());
    client
        .configure([Peer { local, md5: key("many"), ..peer("server", Ipv4Addr::LOCALHOST, port) }], &[])
        .expect("configured");
    assert!(settle(client.dial("server").expect("dialling")).is_ok());
}

#[test]
fn neighbours_with_gtsm_send_255_and_others_are_not_heard() {
    let (mut server, mut client) = (Opener::new(), Opener::new());
    server
        .configure([Peer { ttl_security: true, ..peer("client", Ipv4Addr::LOCALHOST, 1) }], &[])
        .expect("configured");
    let (listening, port) = listener(&mut server, Ipv4Addr::LOCALHOST);
    client.configure([peer("server", Ipv4Addr::LOCALHOST, port)], &[]).expect("configured");
    assert!(settle(client.dial("server").expect("dialling")).is_err(), "64 is from far away");
    client
        .configure([Peer { ttl_security: true, ..peer("server", Ipv4Addr::LOCALHOST, port) }], &[])
        .expect("configured");
    let dialled = settle(client.dial("server").expect("dialling")).expect("connected");
    let accepted = accept(&listening);
    assert_eq!((sockopt::ip_ttl(&dialled), sockopt::ip_ttl(&accepted)), (Ok(255), Ok(255)));
}

#[test]
fn who_is_heard_is_answered_from_any_distance_and_a_stranger_is_not() {
    let (mut server, mut client) = (Opener::new(), Opener::new());
    let [neighbour, heard, stranger] = [7, 8, 9].map(|host| Ipv4Addr::new(127, 0, 0, host));
    server.1 = vec![Prefix::host(heard.into())];
    server.configure([Peer { ttl_security: true, ..peer("client", neighbour, 1) }], &[]).expect("configured");
    let (_listening, port) = listener(&mut server, Ipv4Addr::LOCALHOST);
    let mut connects = |from: Ipv4Addr| {
        let to = Peer { local: Some(from.into()), ..peer("server", Ipv4Addr::LOCALHOST, port) };
        client.configure([to], &[]).expect("configured");
        settle(client.dial("server").expect("dialling")).is_ok()
    };
    assert_eq!([neighbour, heard, stranger].map(&mut connects), [false, true, false]);
    server.1.clear();
    server
        .configure([peer("client", neighbour, 1)], &[(Ipv4Addr::LOCALHOST, port).into()])
        .expect("configured");
    assert_eq!([neighbour, heard, stranger].map(&mut connects), [true, false, false], "it follows");
}

#[test]
fn a_listener_outlives_who_asked_for_it_until_no_peer_is_left() {
    let mut opener = Opener::new();
    opener.configure([peer("a", Ipv4Addr::LOCALHOST, 1)], &[]).expect("configured");
    let (first, port) = listener(&mut opener, Ipv4Addr::LOCALHOST);
    drop(first);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let _waiting = TcpStream::connect(address).expect("the kernel answers");
    let second: TcpListener = opener.listen(address, false).expect("again").into();
    accept(&second);
    drop(second);
    opener.configure([peer("a", Ipv4Addr::LOCALHOST, 1)], &[]).expect("configured");
    assert!(TcpStream::connect(address).is_err(), "closed");
}

#[test]
fn a_socket_of_datagrams_is_bound_beside_one_that_lets_others_in_and_beside_no_other() {
    let opener = Opener::new();
    let open = |address| now(opener.0.udp(address));
    let first = open((Ipv4Addr::LOCALHOST, 0).into()).expect("opened");
    let address = SocketAddr::try_from(rustix::net::getsockname(&first).expect("bound")).expect("an address");
    assert_eq!(sockopt::socket_reuseport(&first), Ok(false));
    open(address).expect_err("it is taken");
    sockopt::set_socket_reuseport(&first, true).expect("set");
    let second = open(address).expect("beside it");
    assert_eq!(sockopt::socket_reuseport(&second), Ok(true), "who has it knows");
    drop((first, second));
    let again = open(address).expect("alone");
    assert_eq!(sockopt::socket_reuseport(&again), Ok(false));
}

#[test]
fn both_families_can_listen_on_the_same_port() {
    let mut opener = Opener::new();
    let (_v4, port) = listener(&mut opener, Ipv4Addr::UNSPECIFIED);
    let v6 = opener.listen((Ipv6Addr::UNSPECIFIED, port).into(), false).expect("no conflict");
    assert_eq!(sockopt::ipv6_v6only(&v6), Ok(true));
}

#[test]
fn keys_that_do_not_fit_change_nothing() {
    let mut opener = Opener::new();
    let peers = |count: u32| {
        (0..count).map(|number| Peer {
            md5: key("k"),
            ..peer(&number.to_string(), Ipv4Addr::from_bits(0x0a00_0000 + number), 1)
        })
    };
    opener.configure(peers(10), &[]).expect("ten always fit");
    let (_listening, port) = listener(&mut opener, Ipv4Addr::LOCALHOST);
    let stays = [(Ipv4Addr::LOCALHOST, port).into()];
    // As much as the kernel may allow for all options of a socket, with a key of 80 octets each.
    let most: u32 = std::fs::read_to_string("/proc/sys/net/core/optmem_max")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .expect("the kernel says its limit");
    let error = opener.configure(peers(most / 80), &stays).expect_err("more than fit");
    assert!(matches!(error, SocketError::TooManyKeys { .. }), "{error}");
    assert!(error.to_string().contains("net.core.optmem_max"), "{error}");
    let far = most / 80 - 1;
    assert!(matches!(opener.dial(&far.to_string()), Err(SocketError::UnknownPeer(_))));
}
