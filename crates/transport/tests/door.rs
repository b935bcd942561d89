//! Sockets as protocols get them, over loopback. Keys need CAP_NET_ADMIN nowhere: only port 179 would.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use holdfast_transport::{Door, Peer, Secret, TransportError};
use holdfast_types::Prefix;
use rustix::net::sockopt;

fn peer(name: &str, address: impl Into<IpAddr>, port: u16) -> Peer {
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
    }
}

fn key(text: &str) -> Option<Secret> {
    Secret::new(text.into())
}

/// A listener on a free port of the loopback address.
fn listener(door: &mut Door, address: impl Into<IpAddr>) -> (TcpListener, u16) {
    let address = address.into();
    let free = TcpListener::bind((address, 0)).and_then(|socket| socket.local_addr()).expect("a free port");
    let socket: TcpListener = door.listen(free, false).expect("listening").into();
    (socket, free.port())
}

/// Waits until the dialled socket is connected or has failed.
fn settle(socket: OwnedFd) -> Result<TcpStream, rustix::io::Errno> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut descriptors = [PollFd::new(&socket, PollFlags::OUT)];
    poll(&mut descriptors, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).expect("poll");
    let ready = !descriptors[0].revents().is_empty();
    sockopt::socket_error(&socket).expect("SO_ERROR")?;
    if ready { Ok(socket.into()) } else { Err(rustix::io::Errno::TIMEDOUT) }
}

fn accept(listener: &TcpListener) -> TcpStream {
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
    let mut door = Door::new();
    let (listening, port) = listener(&mut door, Ipv4Addr::LOCALHOST);
    let local = Ipv4Addr::new(127, 0, 0, 9);
    door.configure(
        [Peer { local: Some(local.into()), ..peer("a", Ipv4Addr::LOCALHOST, port) }],
        &[(Ipv4Addr::LOCALHOST, port).into()],
    )
    .expect("configured");
    let dialled = settle(door.dial("a").expect("dialling")).expect("connected");
    let accepted = accept(&listening);
    assert_eq!(accepted.peer_addr().expect("connected"), dialled.local_addr().expect("connected"));
    assert_eq!(accepted.peer_addr().expect("connected").ip(), local);
    assert_eq!(sockopt::ip_tos(&dialled), Ok(0xc0));
}

#[test]
fn dialling_never_waits() {
    let mut door = Door::new();
    // TEST-NET-1: nobody answers, if there is a route at all.
    door.configure([peer("far", Ipv4Addr::new(192, 0, 2, 1), 179)], &[]).expect("configured");
    let begin = Instant::now();
    let _ = door.dial("far");
    assert!(begin.elapsed() < Duration::from_millis(500));
}

#[test]
fn who_cannot_be_dialled_is_told_why() {
    let mut door = Door::new();
    let range =
        Peer { network: "127.0.0.0/8".parse().expect("prefix"), ..peer("range", Ipv4Addr::LOCALHOST, 1) };
    let link = Peer {
        interface: Some("nowhere0".into()),
        ..peer("link", "fe80::1".parse::<IpAddr>().expect("address"), 1)
    };
    door.configure([range, link], &[]).expect("configured");
    assert!(matches!(door.dial("nobody"), Err(TransportError::UnknownPeer(_))));
    assert!(matches!(door.dial("range"), Err(TransportError::Range(_))));
    assert!(matches!(door.dial("link"), Err(TransportError::NoInterface { .. })));
}

#[test]
fn with_the_same_key_they_connect_and_with_another_they_do_not() {
    for (address, local) in [
        (IpAddr::from(Ipv4Addr::LOCALHOST), Ipv4Addr::LOCALHOST.into()),
        (Ipv6Addr::LOCALHOST.into(), IpAddr::from(Ipv6Addr::LOCALHOST)),
    ] {
        let (mut server, mut client) = (Door::new(), Door::new());
        server.configure([Peer { md5: key("one"), ..peer("client", local, 1) }], &[]).expect("configured");
        let (listening, port) = listener(&mut server, address);
        let dial = |client: &mut Door, md5| {
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
fn a_range_shares_a_key() {
    let (mut server, mut client) = (Door::new(), Door::new());
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
    let (mut server, mut client) = (Door::new(), Door::new());
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
fn a_listener_outlives_who_asked_for_it_until_no_peer_is_left() {
    let mut door = Door::new();
    door.configure([peer("a", Ipv4Addr::LOCALHOST, 1)], &[]).expect("configured");
    let (first, port) = listener(&mut door, Ipv4Addr::LOCALHOST);
    drop(first);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let _waiting = TcpStream::connect(address).expect("the kernel answers");
    let second: TcpListener = door.listen(address, false).expect("again").into();
    accept(&second);
    drop(second);
    door.configure([peer("a", Ipv4Addr::LOCALHOST, 1)], &[]).expect("configured");
    assert!(TcpStream::connect(address).is_err(), "closed");
}

#[test]
fn both_families_can_listen_on_the_same_port() {
    let mut door = Door::new();
    let (_v4, port) = listener(&mut door, Ipv4Addr::UNSPECIFIED);
    let v6 = door.listen((Ipv6Addr::UNSPECIFIED, port).into(), false).expect("no conflict");
    assert_eq!(sockopt::ipv6_v6only(&v6), Ok(true));
}

#[test]
fn keys_that_do_not_fit_change_nothing() {
    let mut door = Door::new();
    let peers = |count: u32| {
        (0..count).map(|number| Peer {
            md5: key("k"),
            ..peer(&number.to_string(), Ipv4Addr::from_bits(0x0a00_0000 + number), 1)
        })
    };
    door.configure(peers(10), &[]).expect("ten always fit");
    let (_listening, port) = listener(&mut door, Ipv4Addr::LOCALHOST);
    let stays = [(Ipv4Addr::LOCALHOST, port).into()];
    // As much as the kernel may allow for all options of a socket, with a key of 80 octets each.
    let most: u32 = std::fs::read_to_string("/proc/sys/net/core/optmem_max")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .expect("the kernel says its limit");
    let error = door.configure(peers(most / 80), &stays).expect_err("more than fit");
    assert!(matches!(error, TransportError::TooManyKeys { .. }), "{error}");
    assert!(error.to_string().contains("net.core.optmem_max"), "{error}");
    let far = most / 80 - 1;
    assert!(matches!(door.dial(&far.to_string()), Err(TransportError::UnknownPeer(_))));
}
