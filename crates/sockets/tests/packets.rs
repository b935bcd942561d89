//! Packets of protocols at their bounds, in a network namespace: needs root and `ip` of iproute2. What is sent to a group on
//! eth0 comes back there.

use std::{
    cell::Cell,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::AsFd,
    process::Command,
    rc::Rc,
    thread,
    time::Duration,
};

use holdfast_api::socket::v1::{
    Configuration, Datagrams, GroupRequest, Packet, RawGrant, ReceiveRequest, ReceivedPackets, SendRequest,
    SocketClient, SocketDispatcher,
};
use holdfast_sockets::{
    Counts, Link as Interface, MOST_OCTETS, MOST_PACKETS, MOST_READERS, Place, ROOM, SocketService,
};
use holdfast_sys::packet;
use holdfast_xrl::{Channel, Client, ErrorKind, Link, Node, PeerIdentity, ReplyStream, STREAM_WINDOW};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{AddressFamily, Protocol, SocketType, sockopt},
};
use tokio::{
    sync::watch,
    task::{LocalSet, spawn_local, yield_now},
    time::timeout,
};

const LIMIT: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(100);
const NUMBER: u32 = 253;
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 5);

/// Whoever opens sockets, with a protocol `toy` that is granted packets on eth0.
struct Scene {
    node: Node,
    manager: SocketClient,
    counts: Rc<Counts>,
    _changes: watch::Sender<u64>,
}

impl Scene {
    async fn new(knows_interfaces: bool) -> Self {
        let service = SocketService::new(Place::Here, None);
        let (changes, version) = watch::channel(1);
        let index =
            rustix::net::netdevice::name_to_index(UdpSocket::bind("0.0.0.0:0").expect("bound"), "eth0");
        let index = index.expect("it is there");
        if knows_interfaces {
            service.relay(version, move |name| {
                (name == "eth0").then(|| Interface { index, addresses: vec![OURS.into()] })
            });
        }
        let (counts, node) = (service.packets(), Node::new("fea"));
        node.serve(SocketDispatcher::new(service));
        let manager = client(&node, PeerIdentity::new("manager"));
        let scene = Self { node, manager, counts, _changes: changes };
        let datagrams = [GROUP, Ipv4Addr::new(224, 0, 0, 6)].map(|group| Datagrams {
            class: "toy".into(),
            port: 1520,
            group: group.octets().into(),
            hops: 7,
            interfaces: vec!["eth0".into()],
        });
        let raw = RawGrant {
            class: "toy".into(),
            afi: 1,
            protocol: NUMBER,
            groups: vec![GROUP.octets().into()],
            hops: 1,
            interfaces: vec!["eth0".into()],
            descriptors: false,
        };
        let configuration =
            Configuration { datagrams: datagrams.into(), raw: vec![raw], ..Configuration::default() };
        scene.manager.configure(configuration).await.expect("configured");
        scene
    }

    fn toy(&self) -> SocketClient {
        client(&self.node, PeerIdentity::new("protocol").class("toy"))
    }
}

pub(super) fn client(node: &Node, identity: PeerIdentity) -> SocketClient {
    let (near, far) = Link::pair();
    node.attach_link(far, identity);
    SocketClient::new(Channel::over(near))
}

pub(super) fn story<F: Future<Output = ()>>(story: impl FnOnce() -> F + Send + 'static) {
    let inside = move || {
        holdfast_sys::process::enter_new_network().expect("this test needs root");
        ip("link set lo up");
        ip("link add eth0 type veth peer name peer0");
        ip("link set peer0 up");
        ip("link set eth0 up");
        ip("address add 10.0.0.1/24 dev eth0");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let story = async move { timeout(LIMIT, story()).await.expect("in time") };
        LocalSet::new().block_on(&runtime, story);
    };
    thread::spawn(inside).join().expect("the story holds");
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("ip runs");
    assert!(status.success(), "ip {arguments}");
}

/// A kernel under load delivers a packet to its own host after the call that sent it.
pub(super) fn awaited(at: impl AsFd, packet: &mut [u8]) -> packet::Received {
    let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
    poll(&mut [PollFd::new(&at, PollFlags::IN)], Some(&limit)).expect("polled");
    packet::receive(at, packet).expect("it came")
}

fn packets(count: usize, octets: usize) -> SendRequest {
    let packet = Packet {
        interface: "eth0".into(),
        source: OURS.octets().into(),
        destination: GROUP.octets().into(),
        payload: vec![7; octets],
        ..Packet::default()
    };
    SendRequest { afi: 1, protocol: NUMBER, packets: vec![packet; count] }
}

/// Another router, whose packets come in at eth0.
struct Neighbor(rustix::fd::OwnedFd);

impl Neighbor {
    fn new() -> Self {
        let protocol = Protocol::from_raw(NUMBER.try_into().expect("not 0"));
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(protocol));
        Self(socket.expect("a socket"))
    }

    fn send(&self, octets: usize) {
        let interface = rustix::net::netdevice::name_to_index(&self.0, "eth0").expect("it is there");
        let way = packet::Way { interface, source: OURS.into(), destination: GROUP.into(), port: 0 };
        packet::send(&self.0, &vec![1; octets], way).expect("sent");
    }
}

/// A stream that hears already.
async fn hearing(toy: &SocketClient, neighbor: &Neighbor) -> ReplyStream<ReceivedPackets> {
    let mut stream = toy.receive(ReceiveRequest { afi: 1, protocol: NUMBER });
    loop {
        neighbor.send(1);
        if let Ok(received) = timeout(MOMENT, stream.next()).await {
            received.expect("it lives");
            return stream;
        }
    }
}

#[test]
fn a_slow_reader_loses_packets_is_told_how_many_and_costs_no_more_than_its_room() {
    const COUNT: usize = 4000;
    const OCTETS: usize = 1000;
    story(|| async {
        let scene = Scene::new(true).await;
        let (toy, neighbor) = (scene.toy(), Neighbor::new());
        let mut stream = hearing(&toy, &neighbor).await;
        for _ in 0..COUNT {
            neighbor.send(OCTETS);
            yield_now().await;
        }
        let (mut received, mut dropped) = (0, 0);
        while let Ok(batch) = timeout(MOMENT, stream.next()).await {
            let batch = batch.expect("it lives").expect("it has no end");
            let octets: usize = batch.packets.iter().map(|packet| packet.payload.len()).sum();
            assert!(batch.packets.len() <= MOST_PACKETS && octets <= MOST_OCTETS);
            received += batch.packets.iter().filter(|packet| packet.payload.len() == OCTETS).count();
            dropped += usize::try_from(batch.dropped).expect("few");
        }
        // The last ones that were lost are told with the next packet.
        neighbor.send(1);
        let last = stream.next().await.expect("it lives").expect("it has no end");
        dropped += usize::try_from(last.dropped).expect("few");
        assert_eq!(received + dropped, COUNT);
        assert!(dropped > 0);
        // The kernel counts its own needs as well, and doubles what it is asked for.
        assert!(received * OCTETS <= STREAM_WINDOW + MOST_OCTETS + 2 * ROOM, "{received}");
        assert_eq!(scene.counts.dropped.get(), dropped as u64);
    });
}

#[test]
fn a_class_has_so_many_streams_and_no_more() {
    story(|| async {
        let scene = Scene::new(true).await;
        let (toy, neighbor) = (scene.toy(), Neighbor::new());
        let mut streams = Vec::new();
        for _ in 0..MOST_READERS {
            streams.push(hearing(&toy, &neighbor).await);
        }
        let one_more = || toy.receive(ReceiveRequest { afi: 1, protocol: NUMBER });
        let refused = one_more().next().await.expect_err("there are enough");
        assert_eq!(refused.kind(), ErrorKind::FailedPrecondition);
        streams.pop();
        while timeout(MOMENT, one_more().next()).await.is_ok_and(|outcome| outcome.is_err()) {}
    });
}

#[test]
fn a_call_beyond_its_bounds_sends_nothing_and_is_counted() {
    story(|| async {
        let scene = Scene::new(true).await;
        let toy = scene.toy();
        let sent = toy.send(packets(MOST_PACKETS, 10)).await.expect("allowed");
        assert_eq!((sent.sent, sent.failure.as_str()), (MOST_PACKETS as u32, ""));
        let mut mixed = packets(3, 10);
        mixed.packets[2].source = vec![10, 0, 0, 9];
        for (request, kind) in [
            (packets(MOST_PACKETS + 1, 10), ErrorKind::InvalidArgument),
            (packets(5, 60_000), ErrorKind::InvalidArgument),
            (packets(1, 65_516), ErrorKind::InvalidArgument),
            (mixed, ErrorKind::Denied),
        ] {
            let refused = toy.send(request).await.expect_err("beyond its bounds");
            assert_eq!(refused.kind(), kind, "{refused}");
        }
        assert_eq!(scene.counts.sent.get(), MOST_PACKETS as u64);
        assert_eq!(scene.counts.refused.get(), MOST_PACKETS as u64 + 1 + 5 + 1 + 3);
        assert_eq!(scene.counts.failed.get(), 0);
    });
}

#[test]
fn between_two_batches_of_a_protocol_others_have_their_turn() {
    const BATCHES: usize = 200;
    story(|| async {
        let scene = Scene::new(true).await;
        let toy = scene.toy();
        let (turns, ended) = (Rc::new(Cell::new(0_usize)), Rc::new(Cell::new(false)));
        let (counted, over) = (Rc::clone(&turns), Rc::clone(&ended));
        let other = spawn_local(async move {
            while !over.get() {
                counted.set(counted.get() + 1);
                yield_now().await;
            }
        });
        let calls: Vec<_> = (0..BATCHES).map(|_| toy.send(packets(MOST_PACKETS, 10))).collect();
        for call in calls {
            assert_eq!(call.await.expect("allowed").sent, MOST_PACKETS as u32);
        }
        ended.set(true);
        other.await.expect("no panic");
        // The others may begin after the first batch, and end before the last one.
        assert!(turns.get() + 1 >= BATCHES, "{} turns", turns.get());
    });
}

#[test]
fn where_nobody_knows_interfaces_nothing_is_relayed() {
    story(|| async {
        let scene = Scene::new(false).await;
        let refused = scene.toy().send(packets(1, 10)).await.expect_err("there are none");
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
    });
}

#[test]
fn a_socket_for_datagrams_tells_the_way_of_each_and_hears_its_own_groups_only() {
    story(|| async {
        let scene = Scene::new(true).await;
        let request = GroupRequest { interface: "eth0".into(), port: 1520, afi: 1 };
        let (_, sockets) = scene.toy().group(request).await.expect("granted");
        let [socket] = sockets.as_slice() else { panic!("one socket") };
        // Somebody else on this host has joined a third one.
        let other = UdpSocket::bind("0.0.0.0:0").expect("bound");
        other.join_multicast_v4(&Ipv4Addr::new(224, 0, 0, 9), &OURS).expect("joined");
        let sender = UdpSocket::bind((OURS, 0)).expect("bound");
        sockopt::set_ip_multicast_ttl(&sender, 3).expect("set");
        for last in [9, 5, 6] {
            let to = SocketAddr::from(([224, 0, 0, last], 1520));
            sender.send_to(&[last], to).expect("sent");
        }
        let mut buffer = [0; 8];
        for last in [5, 6] {
            let received = awaited(socket, &mut buffer);
            assert_eq!((received.octets, buffer[0]), (1, last));
            assert_eq!(received.destination, Some(IpAddr::from([224, 0, 0, last])));
            assert_eq!((received.hops, received.source), (Some(3), sender.local_addr().ok()));
            let index = rustix::net::netdevice::name_to_index(socket, "eth0").expect("it is there");
            assert_eq!(received.interface, Some(index));
        }
    });
}
