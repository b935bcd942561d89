//! Connections that are made again, with the options of their peers.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
};

use holdfast_sockets::{Peer, SocketError};
use holdfast_sys::repair::{self, Agreed};
use holdfast_types::Prefix;

use crate::tests::opener::{Opener, accept, key, listener, now, peer, settle};

/// A connection with a peer that has a key and GTSM, whichever side has dialled.
fn connection(dialled: bool, range: Option<Prefix>) -> (Opener, TcpStream, TcpStream) {
    let mut opener = Opener::new();
    let address = Ipv4Addr::new(127, 0, 0, 7);
    let (listening, port) = listener(&mut opener, address);
    let with = |peer: Peer| Peer { md5: key("secret"), ttl_security: true, ..peer };
    let mut peers = vec![with(Peer { local: Some(address.into()), ..peer("a", address, port) })];
    peers.extend(range.map(|network| Peer { network, ..peer("range", Ipv4Addr::UNSPECIFIED, port) }));
    opener.configure(peers, &[SocketAddr::from((address, port))]).expect("configured");
    let one = settle(opener.dial("a").expect("dialling")).expect("connected");
    let other = accept(&listening);
    for stream in [&one, &other] {
        stream.set_nonblocking(false).expect("set");
    }
    if dialled { (opener, one, other) } else { (opener, other, one) }
}

#[test]
fn a_connection_is_made_again_with_the_key_and_the_ttls_of_its_peer() {
    for dialled in [false, true] {
        // The range has no key: the peer of its own is meant.
        let (opener, mut ours, mut theirs) = connection(dialled, Some("127.0.0.0/8".parse().unwrap()));
        ours.write_all(b"before").expect("written");
        theirs.read_exact(&mut [0; 6]).expect("read");
        let agreed = repair::agreed(&ours).expect("a connection");
        let place = repair::take_out(&ours).expect("this test needs root");
        drop(ours);
        let socket = now(opener.0.restore(&place, &agreed)).expect("restored");
        assert_eq!(rustix::net::sockopt::ip_ttl(&socket), Ok(255));
        repair::release(&socket).expect("released");
        let mut ours = TcpStream::from(socket);
        ours.set_nonblocking(false).expect("set");
        theirs.write_all(b"hello").expect("written");
        let mut read = [0; 5];
        ours.read_exact(&mut read).expect("with the same key");
        assert_eq!(&read, b"hello");
        ours.write_all(b"hello").expect("written");
        theirs.read_exact(&mut read).expect("with the same key");
    }
}

#[test]
fn nobody_who_is_not_configured_has_connections() {
    let (opener, ours, _theirs) = connection(true, None);
    let agreed = repair::agreed(&ours).expect("a connection");
    let ends = |remote: &str| repair::Place {
        local: "[fe80::1]:179".parse().unwrap(),
        remote: remote.parse().unwrap(),
        send: 0,
        receive: 0,
    };
    let refused = |remote| now(opener.0.restore(&ends(remote), &Agreed { ..agreed })).expect_err(remote);
    assert!(matches!(refused("192.0.2.1:179"), SocketError::UnknownPeer(_)));
    assert!(matches!(refused("[fe80::2]:179"), SocketError::LinkLocal(_)));
}
