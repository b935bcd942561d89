//! Peers of all sorts: octets flow both ways through a gate whose watermarks lag behind, and not one is lost.

use std::{
    io::{Read, Write},
    net::{IpAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use holdfast_sys::tcp::{self, Md5Peer};

use crate::tests::world::{LIMIT, World, unacknowledged};

/// Octets each way.
const OCTETS: usize = 1 << 20;
/// So long the store takes.
const LAG: Duration = Duration::from_millis(2);

fn octets(of: usize) -> Vec<u8> {
    (0..of).map(|number| (number * 7 + number / 251) as u8).collect()
}

/// Sends all, and reads as much. The socket stays open: a FIN would wait, with the data that is in its segment.
fn exchange(socket: TcpStream, read: Arc<AtomicU64>, sent: Arc<AtomicU64>) -> TcpStream {
    let mut reader = socket.try_clone().expect("a copy");
    reader.set_read_timeout(Some(LIMIT)).expect("a socket");
    let reading = thread::spawn(move || {
        let (mut all, mut buffer) = (Vec::new(), vec![0; 16 << 10]);
        while all.len() < OCTETS {
            let octets = reader.read(&mut buffer).expect("octets");
            assert_ne!(octets, 0, "the session goes on");
            all.extend_from_slice(&buffer[..octets]);
            read.store(all.len() as u64, Ordering::Release);
        }
        assert!(all == octets(OCTETS), "as they were sent");
    });
    let mut writer = &socket;
    for chunk in octets(OCTETS).chunks(4000) {
        // What is sent is known before.
        sent.fetch_add(chunk.len() as u64, Ordering::AcqRel);
        writer.write_all(chunk).expect("room");
    }
    reading.join().expect("no panic");
    socket
}

fn flows_both_ways(address: &str, prepare: impl FnOnce(&World), key: Option<&'static [u8]>) {
    let mut world = World::new(4);
    prepare(&world);
    let gate = world.gate();
    let listener = world.listen(address);
    let target = listener.local_addr().expect("bound");
    if let Some(key) = key {
        let peer: IpAddr = "10.0.0.2".parse().expect("an address");
        tcp::set_md5(&listener, host(peer), key).expect("MD5");
    }
    let theirs = world.peers.inside(move || {
        let domain = socket2::Domain::for_address(target);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).expect("a socket");
        if let Some(key) = key {
            tcp::set_md5(&socket, host(target.ip()), key).expect("MD5");
        }
        socket.connect_timeout(&target.into(), LIMIT).expect("a session");
        TcpStream::from(socket)
    });
    let ours = listener.accept().expect("a session").0;
    let claim = world.claim(0, &ours, (0, 0));
    let [read, sent, their_read, their_sent] = [0; 4].map(|_| Arc::new(AtomicU64::new(0)));
    let watched = theirs.try_clone().expect("a copy");
    let (our_read, our_sent) = (Arc::clone(&read), Arc::clone(&sent));
    let ends = [thread::spawn(move || exchange(ours, our_read, our_sent)), {
        let (read, sent) = (Arc::clone(&their_read), Arc::clone(&their_sent));
        thread::spawn(move || exchange(theirs, read, sent))
    }];
    let began = Instant::now();
    let all = OCTETS as u64;
    loop {
        let marks = (read.load(Ordering::Acquire), sent.load(Ordering::Acquire));
        let is_done = their_read.load(Ordering::Acquire) == all && marks == (all, all);
        if is_done && unacknowledged(&watched) == 0 {
            break;
        }
        assert!(began.elapsed() < 2 * LIMIT, "{marks:?}");
        thread::sleep(LAG);
        // Nothing that the peer has read is more than had been replicated, and nothing that it may forget.
        let before = world.marks().watermarks(claim).expect("in use");
        assert!(their_read.load(Ordering::Acquire) <= before.2, "data left before it was replicated");
        let acknowledged =
            their_sent.load(Ordering::Acquire).saturating_sub(u64::from(unacknowledged(&watched)));
        // What is on its way into the socket counts for sent: a chunk at most.
        assert!(acknowledged <= before.1 + 4000, "an ACK left before what it acknowledges was replicated");
        world.change(|all| all.set_watermarks(claim, marks.0, marks.1));
    }
    let sockets = ends.map(|end| end.join().expect("no panic"));
    let took = began.elapsed();
    let report = gate.end(true);
    assert_eq!((report.tally.unreadable, report.tally.lost), (0, 0), "{report:?}");
    drop(sockets);
    println!("{address}: {took:?}, {report:?}");
}

fn host(address: IpAddr) -> Md5Peer {
    Md5Peer { address, length: 32 }
}

fn sysctl(world: &World, name: &str, value: u8) {
    for namespace in [&world.router, &world.peers] {
        namespace.exec(&["sysctl", "-q", "-w", &format!("net.ipv4.{name}={value}")]);
    }
}

#[test]
fn a_peer_as_they_are_over_both_families() {
    flows_both_ways("10.0.0.1", |_| (), None);
    flows_both_ways("[fd00::1]", |_| (), None);
}

#[test]
fn a_peer_without_timestamps_selective_acknowledgments_and_window_scale() {
    let options = |world: &World| {
        for name in ["tcp_timestamps", "tcp_sack", "tcp_window_scaling"] {
            sysctl(world, name, 0);
        }
    };
    flows_both_ways("10.0.0.1", options, None);
}

#[test]
fn a_peer_with_short_segments() {
    let short = |world: &World| {
        for namespace in [&world.router, &world.peers] {
            namespace.ip(&["link", "set", "eth0", "mtu", "576"]);
        }
    };
    flows_both_ways("10.0.0.1", short, None);
}

#[test]
fn a_peer_with_long_segments_and_congestion_notification() {
    let long = |world: &World| {
        for namespace in [&world.router, &world.peers] {
            namespace.ip(&["link", "set", "eth0", "mtu", "9000"]);
        }
        sysctl(world, "tcp_ecn", 1);
    };
    flows_both_ways("[fd00::1]", long, None);
}

#[test]
fn segments_that_the_kernel_does_not_cut_late() {
    let cut = |world: &World| {
        for namespace in [&world.router, &world.peers] {
            namespace.ip(&["link", "set", "eth0", "gso_max_segs", "1"]);
        }
    };
    flows_both_ways("10.0.0.1", cut, None);
}

#[test]
fn a_session_with_md5() {
    flows_both_ways("10.0.0.1", |_| (), Some(b"a secret"));
}
