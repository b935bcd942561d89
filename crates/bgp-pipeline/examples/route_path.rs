//! What a route costs: nanoseconds and bytes, from the UPDATE received to the UPDATE sent.
//!
//! `cargo run --release -p holdfast-bgp-pipeline --example route_path [routes] [part]`: one million synthetic
//! IPv4 routes, seven to an attribute set, prefixes all over the table. The figures beside ours are those of
//! the one-thread model that the layout was measured with, without sockets, on a machine like the author's.
//! With a part (`one`, `single`, `ipv6`, `feeders`, `sinks`, `resume`) only that one runs, as for counting instructions.
//! `single` has a set of its own for every route; `ipv6` a fifth of the number, in sizes as on the Internet.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::{
    AdjRibOutSnapshot, FamilySet, Journal, JournalEntry, PathRules, PeerConfig, PeerIndex, PeerKind,
    Pipeline, SendPaths, SessionFacts, SpeakerConfig, ThawedSets,
};
use holdfast_bgp_wire::{
    HEADER_LEN, MAX_LEN, NextHop, Origin, UpdateEncoder, edit::AttributesBuilder, next_message,
};
use holdfast_policy::Program;
use holdfast_types::{Asn, Family, HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix, RouterId};

const PER_SET: usize = 7;
/// Bytes taken from a peer before others are served, as a driver reads them.
const READ: usize = 64 << 10;
/// Background work at once, as the driver does it.
const SLICE: usize = 256;

fn main() {
    let routes = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let only = std::env::args().nth(2);
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    let prefixes = prefixes(routes);
    if wanted("one") {
        one_in_one_out(&prefixes, PER_SET);
    }
    if wanted("single") {
        one_in_one_out(&prefixes, 1);
    }
    if wanted("ipv6") {
        one_in_one_out(&prefixes_v6(routes / 5), PER_SET);
    }
    if wanted("feeders") {
        many_feeders(&prefixes[..routes / 10]);
    }
    if wanted("sinks") {
        many_sinks(&prefixes[..routes / 5]);
    }
    if wanted("resume") {
        go_on(&prefixes);
    }
}

fn one_in_one_out<P: IpPrefix>(prefixes: &[P], per_set: usize) {
    println!(
        "{} {} routes, {per_set} to a set, in from one peer, out to another",
        prefixes.len(),
        P::UNICAST
    );
    let before = resident();
    let feed = feed(prefixes, 1, per_set);
    let base = resident();
    let mut pipeline = pipeline();
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let (input, output) = run(&mut pipeline, from, &feed, &[from, to]);
    row("update: read, intern, table, decide, log", input, prefixes.len(), "166");
    row("pull: group, rewrite, encode", output, prefixes.len(), "19");
    let memory = pipeline.memory();
    let count = prefixes.len() as f64;
    println!(
        "  bytes per route: {:.1} resident (model 29.7); tables {:.1}, attributes {:.1}, output {:.1}",
        (resident() - base) as f64 / count,
        memory.tables as f64 / count,
        memory.attributes as f64 / count,
        memory.output as f64 / count,
    );
    println!("  (the feed itself: {:.1} MB)", (base - before) as f64 / 1e6);
    peer_down(&mut pipeline, from, to, prefixes.len());
}

/// Sweeps what a peer has sent; each slice of 256 routes is followed by the encoding that it causes.
fn peer_down(pipeline: &mut Pipeline, from: PeerIndex, to: PeerIndex, routes: usize) {
    pipeline.peer_down(from);
    let (mut work, mut pull) = (Duration::ZERO, Duration::ZERO);
    let mut slices = Vec::new();
    loop {
        let (start, wall) = (cpu_time(), Instant::now());
        let more = pipeline.work(SLICE);
        let worked = cpu_time() - start;
        while pipeline.pending(to) {
            pipeline.pull(to);
        }
        slices.push(wall.elapsed());
        work += worked;
        pull += cpu_time() - start - worked;
        if !more && !pipeline.is_waiting() {
            break;
        }
    }
    row("peer down: sweep", work, routes, "");
    row("peer down: withdraw", pull, routes, "32-53 in all");
    slices.sort_unstable();
    let at = |share: f64| slices[((slices.len() - 1) as f64 * share) as usize];
    println!(
        "  slices of {SLICE} with their encoding: median {:?}, 99.9 % {:?}, longest {:?}; {} bytes held after it",
        at(0.5),
        at(0.999),
        at(1.0),
        pipeline.memory().total()
    );
}

fn many_feeders(prefixes: &[Ipv4Prefix]) {
    println!("{} prefixes from each of 10 feeders, best ones to the others", prefixes.len());
    let feeds: Vec<_> = (1..=10).map(|n| feed(prefixes, n, PER_SET)).collect();
    let base = resident();
    let mut pipeline = pipeline();
    let peers: Vec<_> = (1..=10).map(|n| up(&mut pipeline, n)).collect();
    let (mut input, mut output, mut first) = (Duration::ZERO, Duration::ZERO, 0);
    for (peer, feed) in peers.iter().zip(&feeds) {
        let (one_in, one_out) = run(&mut pipeline, *peer, feed, &peers);
        input += one_in;
        output += one_out;
        if *peer == peers[0] {
            first = pipeline.memory().total();
        }
    }
    let count = prefixes.len() * feeds.len();
    row("update", input, count, "163 with the output");
    row("pull", output, count, "");
    let more = pipeline.memory().total() - first;
    println!(
        "  bytes per path: {:.1} resident (model 25.1); a further path {:.1} (model 22.6)",
        (resident() - base) as f64 / count as f64,
        more as f64 / (count - prefixes.len()) as f64
    );
}

fn many_sinks(prefixes: &[Ipv4Prefix]) {
    println!("{} routes to 10 sinks, each on a link of its own", prefixes.len());
    let feed = feed(prefixes, 1, PER_SET);
    let mut pipeline = pipeline();
    let from = up(&mut pipeline, 1);
    let mut peers: Vec<_> = (2..=11).map(|n| up(&mut pipeline, n)).collect();
    peers.push(from);
    let (input, output) = run(&mut pipeline, from, &feed, &peers);
    row("update", input, prefixes.len(), "");
    row("pull, all ten", output, prefixes.len(), "19 and copying");
}

/// The sessions of another process go on: its routes are taken in again, from UPDATEs and from records, and what a peer was
/// told is compared.
fn go_on(prefixes: &[Ipv4Prefix]) {
    println!("{} routes, {PER_SET} to a set, of another process, which has told one peer", prefixes.len());
    let feed = feed(prefixes, 1, PER_SET);
    let journal = Entries::default();
    let mut pipeline = pipeline();
    pipeline.keep_journal(Box::new(journal.clone()));
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    run(&mut pipeline, from, &feed, &[from, to]);
    let mut records = Vec::new();
    let mut sink = |_, record: &[u8]| {
        records.push(record.to_vec());
        true
    };
    let mut walk = pipeline.freeze([from]);
    while pipeline.freeze_routes(&mut walk, 4096, &mut sink) {}
    let passed = pipeline.journal_place(to);
    for frozen in [false, true] {
        let mut pipeline = self::pipeline();
        pipeline.keep_journal(Box::new(journal.clone()));
        let peers = [1, 2].map(|n| {
            let peer = pipeline.add_peer(config(n));
            pipeline.peer_resumed(peer, facts(n)).unwrap_or_else(|error| println!("  refused: {error}"));
            peer
        });
        let start = cpu_time();
        let mut rest = &*feed;
        if frozen {
            let mut sets = ThawedSets::new(HashKey::new([0x5eed, 1]));
            for record in &records {
                let thawed = pipeline.thaw_routes(peers[0], record, &mut sets);
                thawed.unwrap_or_else(|error| println!("  {error}"));
            }
            while pipeline.thawed(&mut sets, 4096) {}
        } else {
            while let Ok(Some(message)) = next_message(rest, MAX_LEN) {
                rest = &rest[message.wire.len()..];
                pipeline.update(peers[0], message.body).unwrap_or_else(|error| println!("  {error}"));
            }
        }
        row(if frozen { "thaw" } else { "update" }, cpu_time() - start, prefixes.len(), "");
        let start = cpu_time();
        let mut told = AdjRibOutSnapshot::new(HashKey::new([0x5eed, 0]));
        for entry in journal.0.borrow().iter() {
            told.entry(entry).unwrap_or_else(|error| println!("  {error}"));
        }
        row("read the journal", cpu_time() - start, prefixes.len(), "");
        let start = cpu_time();
        pipeline.resume(&peers, told, passed);
        let (mut messages, mut slices) = (0, Vec::new());
        while pipeline.pending(peers[1]) {
            let wall = Instant::now();
            messages += usize::from(pipeline.pull(peers[1]).is_some());
            slices.push(wall.elapsed());
        }
        row("compare", cpu_time() - start, prefixes.len(), "");
        println!(
            "  {messages} messages are told; {} slices, longest {:?}",
            slices.len(),
            slices.iter().max()
        );
    }
}

/// A journal in memory, of one stream.
#[derive(Clone, Debug, Default)]
struct Entries(Rc<RefCell<Vec<Vec<u8>>>>);

impl Journal for Entries {
    fn append(&mut self, _: JournalEntry, entry: &[u8]) -> JournalEntry {
        let mut entries = self.0.borrow_mut();
        entries.push(entry.to_vec());
        JournalEntry(entries.len() as u64)
    }

    fn key(&self) -> [u8; 16] {
        [7; 16]
    }
}

/// Feeds in portions; the receivers are served after each.
fn run(pipeline: &mut Pipeline, from: PeerIndex, feed: &[u8], to: &[PeerIndex]) -> (Duration, Duration) {
    let (mut input, mut output) = (Duration::ZERO, Duration::ZERO);
    let mut rest = feed;
    while !rest.is_empty() {
        let start = cpu_time();
        let portion = rest.len().saturating_sub(READ);
        while rest.len() > portion {
            let Ok(Some(message)) = next_message(rest, MAX_LEN) else { break };
            rest = &rest[message.wire.len()..];
            if let Err(error) = pipeline.update(from, message.body) {
                println!("  refused: {error}");
                return (input, output);
            }
        }
        input += cpu_time() - start;
        let start = cpu_time();
        for peer in to {
            while pipeline.pending(*peer) {
                std::hint::black_box(pipeline.pull(*peer));
            }
        }
        pipeline.work(10_000);
        output += cpu_time() - start;
    }
    (input, output)
}

fn row(what: &str, time: Duration, routes: usize, model: &str) {
    let nanoseconds = time.as_nanos() as f64 / routes as f64;
    let model = if model.is_empty() { String::new() } else { format!(" (model {model})") };
    println!("  {what}: {nanoseconds:.0} ns per route{model}");
}

fn pipeline() -> Pipeline {
    let router_id = RouterId::new(0x0a00_0001).unwrap_or_else(|| unreachable!("not zero"));
    Pipeline::new(SpeakerConfig::new(Asn(65000), router_id, HashKey::new([0x5eed, 0])))
}

fn config(n: u8) -> PeerConfig {
    let address = IpAddr::from([10, 0, n, 2]);
    PeerConfig {
        name: format!("peer-{n}"),
        address,
        asn: Asn(65000 + u32::from(n)),
        kind: PeerKind::Ebgp,
        import: Some(Program::accept_all()),
        export: Some(Program::accept_all()),
        paths: PathRules::default(),
        send_paths: SendPaths::All,
    }
}

fn facts(n: u8) -> SessionFacts {
    SessionFacts {
        families: Family::ALL.to_vec(),
        four_octet_as: true,
        max_message_len: MAX_LEN,
        enhanced_refresh: false,
        orf_received: Vec::new(),
        long_lived: false,
        extended_next_hop: false,
        bgpsec_received: None,
        bgpsec_sent: None,
        identifiers_received: FamilySet::NONE,
        identifiers_sent: FamilySet::NONE,
        router_id: RouterId::new(0x0a00_0100 + u32::from(n)).unwrap_or_else(|| unreachable!("not zero")),
        peer_address: IpAddr::from([10, 0, n, 2]),
        next_hop_v4: Some(Ipv4Addr::new(10, 0, n, 1)),
        next_hop_v6: Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        link_local: None,
        interface: 0,
        number: u32::from(n),
        first_identifier: 0,
    }
}

fn up(pipeline: &mut Pipeline, n: u8) -> PeerIndex {
    let peer = pipeline.add_peer(config(n));
    if let Err(error) = pipeline.peer_up(peer, facts(n)) {
        println!("  {error}");
    }
    peer
}

/// Different prefixes, /16 to /24, in no order.
fn prefixes(count: usize) -> Vec<Ipv4Prefix> {
    different(count, |random| {
        let bits = random.next();
        let address = 0x0100_0000 + (bits as u32) % 0xdf00_0000;
        let length = if bits >> 60 < 10 { 24 } else { 16 + (bits >> 56 & 7) as u8 };
        Ipv4Prefix::from_bits(u128::from(address) << 96, length)
    })
}

/// Different prefixes, /32 to /48, in no order: some of each of the registries' blocks, half of them /48, several
/// below the same /32.
fn prefixes_v6(count: usize) -> Vec<Ipv6Prefix> {
    const REGISTRIES: [u128; 6] = [0x2001, 0x2400, 0x2600, 0x2800, 0x2a00, 0x2c00];
    let holders = count as u64 / 6 + 1;
    different(count, |random| {
        let bits = random.next();
        let holder = Random(random.next() % holders).next();
        let registry = REGISTRIES[(holder % 6) as usize] + u128::from(holder >> 8 & 7);
        let below = u128::from(bits & 0xffff);
        let address = registry << 112 | u128::from(holder >> 16 & 0xffff) << 96 | below << 80;
        let length = match bits >> 60 {
            0..3 => 32,
            3..8 => 32 + 4 * (bits >> 56 & 3) as u8,
            _ => 48,
        };
        Ipv6Prefix::from_bits(address, length)
    })
}

fn different<P: IpPrefix>(count: usize, make: impl Fn(&mut Random) -> P) -> Vec<P> {
    let mut random = Random(1);
    let mut prefixes: Vec<P> = Vec::new();
    while prefixes.len() < count {
        let missing = count - prefixes.len();
        prefixes.extend((0..missing).map(|_| make(&mut random)));
        prefixes.sort_unstable();
        prefixes.dedup();
    }
    for at in (1..prefixes.len()).rev() {
        prefixes.swap(at, (random.next() % (at as u64 + 1)) as usize);
    }
    prefixes
}

/// The UPDATEs of one peer.
fn feed<P: IpPrefix>(prefixes: &[P], peer: u8, per_set: usize) -> Vec<u8> {
    let mut random = Random(u64::from(peer));
    let encoder = UpdateEncoder::new(MAX_LEN);
    let mut out = Vec::with_capacity(prefixes.len() * 16);
    for routes in prefixes.chunks(per_set) {
        let hops = 3 + random.next() % 3;
        let path = std::iter::once(65000 + u32::from(peer))
            .chain((0..hops).map(|_| 1000 + random.next() as u32 % 60_000));
        let mut attributes = AttributesBuilder {
            as_path: path.map(Asn).collect(),
            communities: (0..random.next() % 4).map(|_| random.next() as u32).collect(),
            ..AttributesBuilder::new(Origin::Igp)
        };
        let sent = if P::UNICAST == Family::IPV4_UNICAST {
            attributes.next_hop = Some(Ipv4Addr::new(10, 0, peer, 2));
            let routes = routes.iter().filter_map(|prefix| Ipv4Prefix::from_prefix((*prefix).into()));
            encoder.announce(&attributes.build(), routes, &mut out)
        } else {
            let global = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 1, peer.into());
            let next_hop = NextHop::V6 { global, link_local: None };
            encoder.announce_mp(&attributes.build(), next_hop, routes.iter().copied(), &mut out)
        };
        assert!(sent.is_ok() && out.len() > HEADER_LEN, "attributes of this size always fit");
    }
    out
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// Time this thread has spent on a CPU, so that neighbours on the machine do not count; 0 where the kernel
/// does not say. It moves in ticks of some milliseconds: good for sums, not for single slices.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// Resident bytes of this process; 0 where the kernel does not say.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
