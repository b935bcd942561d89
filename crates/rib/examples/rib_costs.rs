//! Prints what a route costs: `cargo run --release -p holdfast-rib --example rib_costs [ROUTES]`.

use std::time::Instant;

use holdfast_rib::{
    Interface, InterfaceAddress, Neighbor, Nexthop, NexthopSet, Nexthops, OriginConfig, Rib, RibConfig,
    RouteAction,
};
use holdfast_types::{HashKey, IpPrefix, Ipv4Prefix};

const GATEWAYS: u32 = 64;
const BATCH: usize = 4096;

/// A generator of the same numbers each time (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Clustered prefixes, most of them /24, as in the Internet.
fn prefixes(count: usize) -> Vec<Ipv4Prefix> {
    let (mut numbers, mut block) = (Numbers(42), 0);
    let one = |index: usize| {
        if index.is_multiple_of(64) {
            block = (numbers.next() as u32 % 0xdf00_0000) & 0xffff_0000;
        }
        let length = if numbers.next() % 10 < 6 { 24 } else { 17 + (numbers.next() % 7) as u8 };
        let address = block | (numbers.next() as u32 & 0xffff);
        Ipv4Prefix::from_bits(u128::from(address) << 96, length)
    };
    (0..count).map(one).collect()
}

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let mut rib = Rib::new(RibConfig::new(HashKey::new([1, 0])));
    let now = Instant::now();
    let bgp = rib.add_origin("bgp", OriginConfig::external(20), now).expect("room");
    let address = InterfaceAddress { address: [10, 0, 0, 254].into(), length: 24 };
    rib.interface_changed(Interface { index: 1, name: "eth0".into(), up: true, addresses: vec![address] });
    let gateway = |n: u32| [10, 0, 0, (n % GATEWAYS) as u8 + 1].into();
    let nexthops =
        |n| Nexthops { set: NexthopSet::via(gateway(n)), backups: vec![Nexthop::via(gateway(n + 1))] };
    let gateways: Vec<_> = (0..GATEWAYS).map(|n| rib.nexthops(bgp, nexthops(n))).collect();
    let mut numbers = Numbers(7);
    let changes: Vec<_> = prefixes(count)
        .into_iter()
        .map(|prefix| {
            let nexthops = gateways[(numbers.next() % u64::from(GATEWAYS)) as usize];
            let action = RouteAction::Announce { nexthops, metric: 0, distance: None, tag: 0, source: 0 };
            (action, [prefix.into()])
        })
        .collect();

    rib.fib_attach();
    let start = Instant::now();
    let mut told = 0;
    for batch in changes.chunks(BATCH) {
        rib.origin_routes(bgp, batch.iter().copied()).expect("valid");
        while let Some(batch) = rib.poll_fib(BATCH) {
            told += batch.routes.len();
        }
    }
    let status = rib.status();
    let routes = status.ipv4_prefixes as usize;
    let per = |elapsed: std::time::Duration| elapsed.as_nanos() as usize / routes;
    println!("{count} announcements of {routes} prefixes, {told} routes told to the forwarding engine");
    println!("announce and tell: {} ns a route", start.elapsed().as_nanos() as usize / count);
    println!("memory: {:.1} bytes a route", status.memory as f64 / routes as f64);

    let start = Instant::now();
    rib.fib_attach();
    while rib.poll_fib(BATCH).is_some() {}
    println!("tell everything again: {} ns a route", per(start.elapsed()));

    let start = Instant::now();
    rib.neighbors_failed([(Neighbor { address: gateway(0), interface: 1 }, true)]);
    let defined = rib.poll_fib_at_once().len();
    let elapsed = start.elapsed().as_micros();
    println!("neighbour failed: {elapsed} us until its routes go another way, by {defined} message");

    let start = Instant::now();
    rib.interface_gone(1);
    println!("interface down: {} us until every lookup is right", start.elapsed().as_micros());
    while !rib.is_idle() {
        rib.work(2048);
        while rib.poll_fib(BATCH).is_some() {}
    }
    println!("routes withdrawn from the forwarding engine: {} ns a route", per(start.elapsed()));
}
