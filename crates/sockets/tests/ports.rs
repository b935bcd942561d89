//! UDP sockets at ports of processes of the router, in a network namespace: needs root and `ip` of iproute2.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::OwnedFd,
};

use holdfast_api::socket::v1::{Configuration, PortGrant, PortRequest, SocketClient, SocketDispatcher};
use holdfast_sockets::{Place, SocketService};
use holdfast_sys::packet::{self, Way};
use holdfast_xrl::{ErrorKind, Node, PeerIdentity, XrlError};
use rustix::net::sockopt;

use super::packets::{awaited, client, story};

const PORT: u16 = 3784;

/// A process `bfd`, which is granted the port at this place.
async fn bfd(place: Place) -> (Node, SocketClient) {
    let node = Node::new("fea");
    node.serve(SocketDispatcher::new(SocketService::new(place, None)));
    let grant = PortGrant { class: "bfd".into(), port: PORT.into() };
    let configuration = Configuration { ports: vec![grant], ..Configuration::default() };
    client(&node, PeerIdentity::new("manager")).configure(configuration).await.expect("configured");
    let bfd = client(&node, PeerIdentity::new("bfd"));
    (node, bfd)
}

async fn open(bfd: &SocketClient, is_ipv6: bool, port: u16) -> Result<OwnedFd, XrlError> {
    let request = PortRequest { afi: if is_ipv6 { 2 } else { 1 }, port: port.into() };
    let (_, sockets) = bfd.port(request).await?;
    Ok(sockets.into_iter().next().expect("one socket"))
}

fn port_of(socket: &OwnedFd) -> u16 {
    let address = rustix::net::getsockname(socket).expect("an address");
    SocketAddr::try_from(address).expect("of IP").port()
}

#[test]
fn one_socket_sends_and_receives_for_all_neighbours_of_a_family() {
    story(|| async {
        let (_node, bfd) = bfd(Place::Here).await;
        for here in [IpAddr::from([10, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()] {
            let any =
                if here.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let [at, from] = [PORT, 0].map(|port| open(&bfd, here.is_ipv6(), port));
            let (at, from) = (at.await.expect("granted"), from.await.expect("granted"));
            assert_eq!(port_of(&at), PORT);
            assert!(port_of(&from) >= 49_152);
            let name = if here.is_ipv4() { "eth0" } else { "lo" };
            let interface = rustix::net::netdevice::name_to_index(&at, name).ok();
            let way = Way { interface: 0, source: any, destination: here, port: PORT };
            for source in [any, here] {
                packet::send(&from, b"hello", Way { source, ..way }).expect("sent");
                let received = awaited(&at, &mut [0; 64]);
                assert_eq!(received.source, Some(SocketAddr::new(here, port_of(&from))));
                // Of what has come over the loopback IPv4 tells the interface that has the address.
                let told = (received.destination, received.interface, received.hops, received.octets);
                assert_eq!(told, (Some(here), interface, Some(255), 5));
            }
        }
    });
}

#[test]
fn what_it_sends_is_as_urgent_as_what_the_router_sends_otherwise() {
    story(|| async {
        let (_node, bfd) = bfd(Place::Here).await;
        let [v4, v6] = [open(&bfd, false, PORT).await, open(&bfd, true, PORT).await];
        let (v4, v6) = (v4.expect("granted"), v6.expect("beside that of IPv4"));
        assert_eq!(sockopt::ip_tos(&v4).expect("a class"), 0xc0);
        assert_eq!(sockopt::ipv6_tclass(&v6).expect("a class"), 0xc0);
        for socket in [&v4, &v6] {
            assert_eq!(holdfast_sys::priority(socket).expect("a priority"), 6);
            assert!(sockopt::socket_recv_buffer_size(socket).expect("a size") >= 4 << 20);
        }
    });
}

#[test]
fn a_port_that_another_program_has_is_refused_and_says_so() {
    story(|| async {
        let (_node, bfd) = bfd(Place::Here).await;
        let other =
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None);
        let other = other.expect("a socket");
        // As BIRD does.
        sockopt::set_socket_reuseaddr(&other, true).expect("set");
        rustix::net::bind(&other, &SocketAddr::from(([0; 4], PORT))).expect("bound");
        let refused = open(&bfd, false, PORT).await.expect_err("it is taken");
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(refused.message().contains("another daemon"), "{refused}");
        drop(other);
        let ours = open(&bfd, false, PORT).await.expect("it is free");
        UdpSocket::bind(("0.0.0.0", PORT)).expect_err("it is ours");
        drop(ours);
    });
}

#[test]
fn each_table_has_the_port_in_whichever_order_they_ask() {
    story(|| async {
        let (_first, main) = bfd(Place::Here).await;
        let (_second, table) = bfd(Place::Device("eth0".into())).await;
        for is_ipv6 in [false, true] {
            let first = open(&main, is_ipv6, PORT).await.expect("granted");
            let second = open(&table, is_ipv6, PORT).await.expect("beside it");
            drop(first);
            let first = open(&main, is_ipv6, PORT).await.expect("beside the other one");
            assert_eq!([port_of(&first), port_of(&second)], [PORT; 2]);
        }
    });
}

#[test]
fn who_was_granted_nothing_has_no_port() {
    story(|| async {
        let (node, _bfd) = bfd(Place::Here).await;
        let rip = client(&node, PeerIdentity::new("protocol").class("rip"));
        for port in [PORT, 0] {
            let refused = open(&rip, false, port).await.expect_err("denied");
            assert_eq!(refused.kind(), ErrorKind::Denied);
        }
    });
}
