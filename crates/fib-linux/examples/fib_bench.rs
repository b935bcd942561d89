//! Writes a table through the `Fib` trait and, for comparison, the same routes raw from one thread.
//!
//! `cargo run --release -p holdfast-fib-linux --example fib_bench [ROUTES]` as root; each run is in a network
//! namespace of its own. Raw means: messages made in advance, 1000 in a write, nothing read but the last answer.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use holdfast_fib::{Fib, Handle, NextHop, NextHops, RouteChange, TableId};
use holdfast_fib_linux::{LinuxFib, METRIC, Ownership};
use holdfast_types::{IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// As many changes as the feeder puts in a batch.
const BATCH: usize = 4096;

fn main() {
    let routes = std::env::args().nth(1).map_or(1_000_000, |text| text.parse().expect("a number of routes"));
    println!("{routes} IPv4 routes, wall time; the ratio is raw time to ours");
    // Twice, in both orders: the first run warms the kernel's caches.
    let mut best: [Option<Duration>; 2] = [None, None];
    for round in 0..4 {
        let which = usize::from((round + 1) / 2 % 2 == 1);
        let taken =
            in_a_namespace(move |interface| if which == 0 { raw(routes) } else { ours(routes, interface) });
        best[which] = Some(best[which].map_or(taken, |before| before.min(taken)));
    }
    in_a_namespace(changing);
    let [Some(raw), Some(ours)] = best else { return };
    println!(
        "raw {}   Fib {}   ratio {:.2}",
        rate(routes, raw),
        rate(routes, ours),
        raw.as_secs_f64() / ours.as_secs_f64()
    );
}

fn ours(routes: u32, interface: u32) -> Duration {
    let mut fib = LinuxFib::open(Ownership { table: TableId::MAIN, metric: METRIC }).expect("netlink");
    let changes: Vec<_> =
        (0..routes).map(|n| RouteChange { prefix: prefix(n), next_hops: Some(Handle(1)) }).collect();
    define(&mut fib, interface);
    let first = timed(|| apply(&mut fib, &changes));
    let again = timed(|| apply(&mut fib, &changes));
    let sync = timed(|| {
        fib.sync_begin().expect("netlink");
        define(&mut fib, interface);
        apply(&mut fib, &changes);
        fib.sync_end().expect("netlink");
        while fib.work(BATCH).expect("netlink") {}
    });
    let counters = fib.report().counters;
    assert_eq!((counters.routes, counters.kept, counters.errors), (routes.into(), routes.into(), 0));
    let compared = compare(&mut fib, |_, _| {});
    let moved = timed(|| {
        let hop = NextHop { gateway: Some([10, 0, 0, 3].into()), interface, weight: 1 };
        fib.define(Handle(1), &NextHops::Forward(vec![hop])).expect("netlink");
    });
    let cleared = timed(|| fib.clear().expect("netlink"));
    println!(
        "Fib: add {}, replace {}, sync of the same table {}, comparison {compared}, next hop of all {:.1} ms, clear {:.0} ms",
        rate(routes, first),
        rate(routes, again),
        rate(routes, sync),
        moved.as_secs_f64() * 1e3,
        cleared.as_secs_f64() * 1e3
    );
    first
}

/// 200,000 IPv6 routes are compared while 1,000 a second are withdrawn and announced again.
fn changing(interface: u32) -> Duration {
    const ROUTES: u32 = 200_000;
    let mut fib = LinuxFib::open(Ownership { table: TableId::MAIN, metric: METRIC }).expect("netlink");
    let hop = NextHop { gateway: None, interface, weight: 1 };
    fib.define(Handle(1), &NextHops::Forward(vec![hop])).expect("netlink");
    let change = |number: u32, next_hops| {
        let bits = 0x2001_0db8 << 96 | u128::from(number) << 64;
        RouteChange { prefix: Ipv6Prefix::from_bits(bits, 64).into(), next_hops }
    };
    let all: Vec<_> = (0..ROUTES).map(|number| change(number, Some(Handle(1)))).collect();
    apply(&mut fib, &all);
    let mut done = 0;
    let compared = compare(&mut fib, |fib, elapsed| {
        while done < elapsed.as_millis() as u32 {
            let number = done.wrapping_mul(7919) % ROUTES;
            apply(fib, &[change(number, None)]);
            apply(fib, &[change(number, Some(Handle(1)))]);
            done += 2;
        }
    });
    let counters = fib.report().counters;
    assert_eq!((counters.routes, counters.errors), (ROUTES.into(), 0));
    println!(
        "{ROUTES} IPv6 routes, {done} changes meanwhile: comparison {compared}, {:?}",
        fib.report().repairs
    );
    Duration::ZERO
}

/// How long a comparison takes, and its longest slice.
fn compare(fib: &mut LinuxFib, mut between: impl FnMut(&mut LinuxFib, Duration)) -> String {
    let begin = Instant::now();
    fib.compare_begin().expect("netlink");
    let (mut longest, mut working, mut slices) = (Duration::ZERO, Duration::ZERO, 0);
    loop {
        let slice = Instant::now();
        let more = fib.work(256).expect("netlink");
        (working, slices) = (working + slice.elapsed(), slices + 1);
        longest = longest.max(slice.elapsed());
        if !more {
            break;
        }
        between(fib, begin.elapsed());
    }
    format!(
        "{:.0} ms in {slices} slices, the longest {:.2} ms",
        working.as_secs_f64() * 1e3,
        longest.as_secs_f64() * 1e3
    )
}

fn define(fib: &mut LinuxFib, interface: u32) {
    let hop = NextHop { gateway: Some([10, 0, 0, 2].into()), interface, weight: 1 };
    fib.define(Handle(1), &NextHops::Forward(vec![hop])).expect("netlink");
}

fn apply(fib: &mut LinuxFib, changes: &[RouteChange]) {
    for batch in changes.chunks(BATCH) {
        fib.apply(batch).expect("netlink");
    }
}

fn raw(routes: u32) -> Duration {
    ip("nexthop add id 1 via 10.0.0.2 dev eth0");
    let numbers: Vec<u32> = (0..routes).collect();
    let writes: Vec<Vec<u8>> = numbers.chunks(1000).map(messages).collect();
    let mut socket = Socket::new(NETLINK_ROUTE).expect("netlink");
    socket.bind_auto().expect("netlink");
    socket.connect(&SocketAddr::new(0, 0)).expect("netlink");
    let mut answer = [0; 4096];
    let taken = timed(|| {
        for write in &writes {
            socket.send(write, 0).expect("netlink");
            rustix::net::recv(&socket, &mut answer, rustix::net::RecvFlags::empty()).expect("an answer");
            assert_eq!(answer[16..20], [0; 4], "refused");
        }
    });
    println!("raw: add {}", rate(routes, taken));
    taken
}

/// `RTM_NEWROUTE` for each, by nexthop id 1; the last asks for an answer.
fn messages(numbers: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(numbers.len() * 52);
    for (place, number) in numbers.iter().enumerate() {
        let flags: u16 = if place + 1 == numbers.len() { 0x605 } else { 0x601 };
        let Prefix::V4(prefix) = prefix(*number) else { continue };
        bytes.extend_from_slice(&52_u32.to_ne_bytes());
        bytes.extend_from_slice(&24_u16.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&[2, 24, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0]);
        for (kind, value) in
            [(1_u16, prefix.address().octets()), (6, 20_u32.to_ne_bytes()), (30, 1_u32.to_ne_bytes())]
        {
            bytes.extend_from_slice(&8_u16.to_ne_bytes());
            bytes.extend_from_slice(&kind.to_ne_bytes());
            bytes.extend_from_slice(&value);
        }
    }
    bytes
}

/// Different /24 networks, scattered over the address space as announcements are.
fn prefix(number: u32) -> Prefix {
    let scattered = number.wrapping_mul(0x9e_3779) % 0xd0_0000 + 0x0b_0000;
    Ipv4Prefix::new((scattered << 8).into(), 24).expect("24 is a length").into()
}

fn in_a_namespace(run: impl FnOnce(u32) -> Duration + Send + 'static) -> Duration {
    let inside = move || {
        holdfast_sys::process::enter_new_network().expect("needs root");
        ip("link add eth0 type veth peer name peer0");
        ip("link set eth0 up");
        ip("link set peer0 up");
        ip("addr add 10.0.0.1/24 dev eth0");
        let shown =
            Command::new("ip").args(["-o", "link", "show", "dev", "eth0"]).output().expect("ip runs").stdout;
        let index = String::from_utf8_lossy(&shown).split(':').next().and_then(|text| text.parse().ok());
        run(index.expect("an index"))
    };
    thread::spawn(inside).join().expect("no panic")
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip runs");
    assert!(status.success(), "ip {arguments}");
}

fn timed(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

fn rate(routes: u32, taken: Duration) -> String {
    format!("{:.0}k/s ({:.2} s)", f64::from(routes) / taken.as_secs_f64() / 1e3, taken.as_secs_f64())
}
