//! Instructions of the hot kernels, compared with a committed baseline.
//!
//! Counted by valgrind's callgrind, so that it does not matter how busy the machine is; what a kernel needs before it
//! is not counted ([`measured`]). The baseline is `instructions.toml`; a kernel that costs more than [`TOLERANCE`] above
//! it fails `make test`, one that costs as much less asks for a new baseline. Another compiler makes other code: its counts
//! are shown beside the baseline and fail nothing.

pub(crate) mod cost;
mod door;
pub(crate) mod search;
pub(crate) mod validation;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet},
    fs,
    hint::black_box,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_bgp_pipeline::{
    FamilySet, NextHopMode, PathRules, PeerConfig, PeerIndex, PeerKind, Pipeline, SendPaths, SessionFacts,
    SpeakerConfig, ThawedSets,
};
use holdfast_bgp_wire::{
    MAX_LEN,
    nlri::prefixes,
    update::{self, AsSets, Checked, Rules, check, cut},
};
use holdfast_lab::table::{Synthetic, Table};
use holdfast_policy::Program;
use holdfast_rib::{Interface, InterfaceAddress, NexthopSet, OriginConfig, Rib, RibConfig, RouteAction};
use holdfast_sys::blocks;
use holdfast_types::{Asn, Family, HashKey, Ipv4Prefix, Ipv6Prefix, RouterId};
use serde::{Deserialize, Serialize};

use crate::{feed, load::updates};

/// Routes that each kernel is given.
const ROUTES: usize = 50_000;
/// What may come on top of the baseline, as a share of it.
const TOLERANCE: f64 = 0.05;
/// Octets of UPDATEs between two turns of the receivers, as `bgp` reads them.
const READ: usize = 64 << 10;
/// Routes in a batch between processes, and in a slice of background work.
const BATCH: usize = 4096;
const SLICE: usize = 256;
/// The path to the function that counting is switched on in, as callgrind matches it.
const MEASURED: &str = "--toggle-collect=*kernels::counted*";

thread_local! {
    /// How often each block was executed in what was counted last.
    static LAST: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Runs what is counted.
fn measured<T>(body: impl FnOnce() -> T) -> T {
    blocks::forget();
    let result = counted(body);
    LAST.set(blocks::counts());
    result
}

/// Counting is switched on here, and off at its end.
#[inline(never)]
fn counted<T>(body: impl FnOnce() -> T) -> T {
    black_box(body())
}

/// How often each block was executed in what was counted last; of none, where the program was not built for that.
fn last_counts() -> Vec<u64> {
    LAST.take()
}

/// A kernel: what it is, and how to run it; it returns how many items (routes, sets) were worked on.
struct Kernel {
    name: &'static str,
    what: &'static str,
    run: fn() -> Result<usize>,
}

const KERNELS: [Kernel; 21] = [
    Kernel { name: "decode", what: "frame, split, cut, read NLRI; per route", run: decode },
    Kernel { name: "check", what: "RFC 7606 check and canonical form; per set", run: check_sets },
    Kernel { name: "receive", what: "UPDATE to log, everything new; per route", run: receive },
    Kernel { name: "intern", what: "UPDATE of what is known already; per route", run: intern },
    Kernel { name: "replace", what: "UPDATE with other attributes; per route", run: replace },
    Kernel { name: "sets", what: "UPDATE to log, a set for every route; per route", run: sets },
    Kernel { name: "ipv6", what: "UPDATE to log, IPv6; per route", run: ipv6 },
    Kernel { name: "decide", what: "UPDATE of a fifth feeder; per route", run: decide },
    Kernel { name: "encode", what: "log to UPDATE for one peer; per route", run: encode },
    Kernel { name: "fan-out", what: "log to UPDATEs for ten peers on ten links; per route", run: fan_out },
    Kernel { name: "sweep", what: "routes of a dead peer, with the withdrawals; per route", run: sweep },
    Kernel { name: "freeze", what: "all routes of four peers to records; per route", run: freeze },
    Kernel { name: "thaw", what: "records to log, everything new; per route", run: thaw },
    Kernel { name: "rib", what: "rib: batch in, batch to the fea out; per route", run: rib },
    Kernel { name: "rib-ipv6", what: "the same, IPv6; per route", run: rib_ipv6 },
    Kernel {
        name: "validate",
        what: "origin of a route by 25,000 VRPs; per route",
        run: validation::validate,
    },
    Kernel {
        name: "receive-validated",
        what: "UPDATE to log, everything new, validated; per route",
        run: validation::receive,
    },
    Kernel { name: "ignore", what: "admission of a stranger, 1,000 peers; per attempt", run: door::ignore },
    Kernel { name: "accept", what: "admission of a peer through all stages; per attempt", run: door::accept },
    Kernel {
        name: "hello",
        what: "look at a ClientHello in one datagram; per ClientHello",
        run: door::hello,
    },
    Kernel { name: "long-hello", what: "the same in two datagrams; per ClientHello", run: door::long_hello },
];

/// The committed counts.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Baseline {
    /// What the counted program was compiled with.
    compiler: String,
    /// Instructions per item.
    instructions: BTreeMap<String, f64>,
}

/// Counts all kernels and compares, or makes what was counted the baseline.
pub(crate) fn compare(accept: bool) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.toml");
    let baseline: Baseline = match fs::read_to_string(&path) {
        Ok(text) => toml::from_str(&text).with_context(|| path.display().to_string())?,
        Err(error) if accept && error.kind() == std::io::ErrorKind::NotFound => Baseline::default(),
        Err(error) => bail!("{}: {error}", path.display()),
    };
    let compiler = compiler()?;
    let compiler_is_same = compiler == baseline.compiler;
    if !compiler_is_same {
        println!("NOT COMPARABLE: the baseline was made with {}, this is {compiler};", baseline.compiler);
        println!("what follows can be read, but nothing fails by it");
    }
    println!("{:10} {:>9} {:>9} {:>8}", "kernel", "counted", "baseline", "change");
    let mut new = Baseline { compiler, ..Baseline::default() };
    let mut worse = Vec::new();
    for kernel in KERNELS {
        let counted = (count(&["kernels", "--run", kernel.name])? * 10.0).round() / 10.0;
        new.instructions.insert(kernel.name.to_owned(), counted);
        let Some(&before) = baseline.instructions.get(kernel.name) else {
            println!("{:10} {counted:>9.1} {:>9} {:>8}  {}", kernel.name, "-", "new", kernel.what);
            worse.push(kernel.name);
            continue;
        };
        let change = counted / before - 1.0;
        let remark = match change {
            change if change > TOLERANCE => "  TOO MUCH",
            change if change < -TOLERANCE => "  better: accept it",
            _ => "",
        };
        println!(
            "{:10} {counted:>9.1} {before:>9.1} {:>+7.1}%  {}{remark}",
            kernel.name,
            100.0 * change,
            kernel.what
        );
        if change > TOLERANCE && compiler_is_same {
            worse.push(kernel.name);
        }
    }
    if accept {
        fs::write(&path, toml::to_string(&new)?)?;
        println!("written to {}", path.display());
        return Ok(());
    }
    ensure!(
        worse.is_empty(),
        "{} cost more than {:.0} % above the baseline, or have none; if that is meant: make bench-accept, and say why in the commit",
        worse.join(", "),
        100.0 * TOLERANCE
    );
    Ok(())
}

/// Runs one kernel, uncounted: what callgrind watches, and prints the time for who runs it by hand.
pub(crate) fn run(name: &str) -> Result<()> {
    let kernel = KERNELS.iter().find(|kernel| kernel.name == name);
    let start = Instant::now();
    let items = (kernel.with_context(|| format!("there is no kernel {name}"))?.run)()?;
    println!("items {items}");
    eprintln!("{:?} with what comes before", start.elapsed());
    Ok(())
}

fn compiler() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output().context("running rustc")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Instructions per item of this program with these arguments.
fn count(arguments: &[&str]) -> Result<f64> {
    let program: PathBuf = std::env::current_exe()?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no", MEASURED]);
    valgrind.arg(program).args(arguments).stdin(Stdio::null());
    let name = arguments.join(" ");
    let output = valgrind.output().context("running valgrind (Debian package valgrind)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {said}");
    let number = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.split_once(key));
        line.and_then(|(_, rest)| rest.trim_start_matches([' ', ':']).split(' ').next()?.parse::<f64>().ok())
    };
    let counted = number(&said, "Collected").with_context(|| format!("{name}: no count in {said}"))?;
    ensure!(counted > 0.0, "{name}: nothing was counted: is the function that is measured still there?");
    let items = number(&String::from_utf8_lossy(&output.stdout), "items").context("no items")?;
    Ok(counted / items)
}

// The kernels.

fn ipv4(seed: u64) -> Table {
    Synthetic::ipv4(seed, ROUTES).build()
}

/// Feeder or sink number so many.
fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, number, 2).into()
}

fn asn(number: u8) -> Asn {
    Asn(64_600 + u32::from(number))
}

fn announcement(table: &Table, number: u8) -> Result<Vec<u8>> {
    feed::announce(table, address(number), asn(number))
}

fn rules() -> Rules {
    Rules::new(update::PeerKind::Ebgp, AsSets::Accept)
}

fn decode() -> Result<usize> {
    let octets = announcement(&ipv4(1), 1)?;
    let mut rest = Vec::new();
    let mut sum = 0;
    measured(|| -> Result<()> {
        for body in updates(&octets) {
            let sections = update::sections(body)?;
            black_box(cut(sections.attributes, &mut rest));
            sum += prefixes::<Ipv4Prefix>(sections.nlri).flat_map(black_box).count();
        }
        Ok(())
    })?;
    ensure!(sum == ROUTES, "{sum} routes decoded");
    Ok(sum)
}

fn check_sets() -> Result<usize> {
    let octets = announcement(&ipv4(1), 1)?;
    let mut sets: HashSet<&[u8]> = HashSet::new();
    for body in updates(&octets) {
        sets.insert(update::sections(body)?.attributes);
    }
    let (rules, mut checked) = (rules(), Checked::default());
    let mut sets: Vec<&[u8]> = sets.into_iter().collect();
    sets.sort_unstable();
    measured(|| {
        for set in &sets {
            let _ = black_box(check(set, true, &rules, &mut checked));
        }
    });
    Ok(sets.len())
}

/// A speaker and its peers.
struct Speaker {
    pipeline: Pipeline,
    peers: Vec<PeerIndex>,
}

impl Speaker {
    /// With so many peers, each on a link of its own.
    fn new(peers: u8, family: Family) -> Result<Self> {
        let mut speaker = Self::without_peers()?;
        for number in 1..=peers {
            speaker.add(number, family)?;
        }
        Ok(speaker)
    }

    fn without_peers() -> Result<Self> {
        let router_id = RouterId::new(0x0a00_0001).context("not zero")?;
        let mut config = SpeakerConfig::new(Asn(65_500), router_id, HashKey::new([0x5eed, 0]));
        config.next_hops = NextHopMode::AlwaysReachable;
        Ok(Self { pipeline: Pipeline::new(config), peers: Vec::new() })
    }

    fn add(&mut self, number: u8, family: Family) -> Result<()> {
        self.add_with(number, |_, facts| facts.families = vec![family])
    }

    /// With something else about it.
    fn add_with(
        &mut self,
        number: u8,
        change: impl FnOnce(&mut PeerConfig, &mut SessionFacts),
    ) -> Result<()> {
        let mut config = PeerConfig {
            name: format!("peer-{number}"),
            address: address(number),
            asn: asn(number),
            kind: PeerKind::Ebgp,
            import: Some(Program::accept_all()),
            export: Some(Program::accept_all()),
            paths: PathRules::default(),
            send_paths: SendPaths::All,
        };
        let mut facts = SessionFacts {
            enhanced_refresh: false,
            orf_received: Vec::new(),
            long_lived: false,
            families: Vec::new(),
            four_octet_as: true,
            max_message_len: MAX_LEN,
            extended_next_hop: false,
            bgpsec_received: None,
            bgpsec_sent: None,
            identifiers_received: FamilySet::NONE,
            identifiers_sent: FamilySet::NONE,
            router_id: RouterId::new(0x0a00_0100 + u32::from(number)).context("not zero")?,
            peer_address: address(number),
            next_hop_v4: Some(Ipv4Addr::new(10, 0, number, 1)),
            next_hop_v6: Some(local_v6(number)),
            link_local: None,
            interface: 0,
            number: 0,
            first_identifier: 0,
        };
        change(&mut config, &mut facts);
        let index = self.pipeline.add_peer(config);
        self.pipeline.peer_up(index, facts)?;
        self.peers.push(index);
        self.pull();
        Ok(())
    }

    fn update(&mut self, from: u8, octets: &[u8]) -> Result<()> {
        let peer = self.peers[usize::from(from) - 1];
        for body in updates(octets) {
            self.pipeline.update(peer, body).map_err(|refused| anyhow::anyhow!("{refused}"))?;
        }
        Ok(())
    }

    /// What receivers take between two reads.
    fn pull(&mut self) {
        for peer in &self.peers {
            while self.pipeline.pending(*peer) {
                black_box(self.pipeline.pull(*peer));
            }
        }
    }

    /// Updates by portions with all receivers served after each; only one of the two is counted.
    fn serve(&mut self, from: u8, octets: &[u8], counted: Part) -> Result<()> {
        for portion in portions(octets) {
            match counted {
                Part::Update => {
                    measured(|| self.update(from, portion))?;
                    self.pull();
                }
                Part::Pull => {
                    self.update(from, portion)?;
                    measured(|| self.pull());
                }
            }
        }
        Ok(())
    }
}

#[derive(Copy, Clone)]
enum Part {
    Update,
    Pull,
}

fn local_v6(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, number.into(), 0, 0, 0, 0, 1)
}

/// Whole messages of about [`READ`] octets.
fn portions(mut octets: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let mut end = 0;
        while end < READ.min(octets.len()) {
            end += usize::from(u16::from_be_bytes([octets[end + 16], octets[end + 17]]));
        }
        let (portion, rest) = octets.split_at(end);
        octets = rest;
        (!portion.is_empty()).then_some(portion)
    })
}

fn receive() -> Result<usize> {
    let octets = announcement(&ipv4(1), 1)?;
    Speaker::new(2, Family::IPV4_UNICAST)?.serve(1, &octets, Part::Update)?;
    Ok(ROUTES)
}

fn intern() -> Result<usize> {
    let octets = announcement(&ipv4(1), 1)?;
    let mut speaker = Speaker::new(2, Family::IPV4_UNICAST)?;
    speaker.update(1, &octets)?;
    speaker.pull();
    speaker.serve(1, &octets, Part::Update)?;
    Ok(ROUTES)
}

fn replace() -> Result<usize> {
    let (old, new) = (ipv4(1), ipv4(2));
    let routes = old.routes.iter().zip(&new.routes).map(|(a, b)| (a.0, b.1)).collect();
    let changed = Table { routes, sets: new.sets };
    let (old, changed) = (announcement(&old, 1)?, announcement(&changed, 1)?);
    let mut speaker = Speaker::new(2, Family::IPV4_UNICAST)?;
    speaker.update(1, &old)?;
    speaker.pull();
    speaker.serve(1, &changed, Part::Update)?;
    Ok(ROUTES)
}

fn sets() -> Result<usize> {
    let octets = announcement(&crate::rows::one_set_per_prefix(&ipv4(1)), 1)?;
    Speaker::new(2, Family::IPV4_UNICAST)?.serve(1, &octets, Part::Update)?;
    Ok(ROUTES)
}

fn ipv6() -> Result<usize> {
    let table = Synthetic::ipv6(1, ROUTES).build();
    let from = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2));
    let octets = feed::announce(&table, from, asn(1))?;
    let mut speaker = Speaker::new(2, Family::IPV6_UNICAST)?;
    for body in updates(&octets).take(1) {
        let first = update::sections(body)?;
        ensure!(prefixes::<Ipv6Prefix>(first.nlri).next().is_none(), "IPv6 prefixes are in MP_REACH_NLRI");
    }
    speaker.serve(1, &octets, Part::Update)?;
    Ok(ROUTES)
}

fn decide() -> Result<usize> {
    let mut speaker = Speaker::new(6, Family::IPV4_UNICAST)?;
    for number in 1..=5 {
        let octets = view(number)?;
        if number == 5 {
            speaker.serve(number, &octets, Part::Update)?;
        } else {
            speaker.update(number, &octets)?;
            speaker.pull();
        }
    }
    Ok(ROUTES)
}

/// The same prefixes for all feeders, with the attributes of each.
fn view(number: u8) -> Result<Vec<u8>> {
    let (base, own) = (ipv4(1), ipv4(u64::from(number)));
    let routes = base.routes.iter().zip(&own.routes).map(|(a, b)| (a.0, b.1)).collect();
    announcement(&Table { routes, sets: own.sets }, number)
}

fn encode() -> Result<usize> {
    let octets = announcement(&ipv4(1), 1)?;
    Speaker::new(2, Family::IPV4_UNICAST)?.serve(1, &octets, Part::Pull)?;
    Ok(ROUTES)
}

fn fan_out() -> Result<usize> {
    let octets = announcement(&ipv4(1), 1)?;
    Speaker::new(11, Family::IPV4_UNICAST)?.serve(1, &octets, Part::Pull)?;
    Ok(ROUTES)
}

fn sweep() -> Result<usize> {
    let octets = announcement(&ipv4(1), 1)?;
    let mut speaker = Speaker::new(2, Family::IPV4_UNICAST)?;
    speaker.update(1, &octets)?;
    speaker.pull();
    measured(|| {
        speaker.pipeline.peer_down(speaker.peers[0]);
        while speaker.pipeline.work(SLICE) || speaker.pipeline.is_waiting() {
            speaker.pull();
        }
        speaker.pull();
    });
    Ok(ROUTES)
}

/// Feeders with a view of all prefixes each.
const FEEDERS: u8 = 4;

fn freeze() -> Result<usize> {
    let mut speaker = Speaker::new(FEEDERS, Family::IPV4_UNICAST)?;
    for number in 1..=FEEDERS {
        speaker.update(number, &view(number)?)?;
        speaker.pull();
    }
    let mut octets = 0;
    measured(|| walk(&mut speaker, |record| octets += black_box(record).len()));
    ensure!(octets > 0, "nothing was frozen");
    Ok(ROUTES * usize::from(FEEDERS))
}

fn thaw() -> Result<usize> {
    let mut before = Speaker::new(1, Family::IPV4_UNICAST)?;
    before.update(1, &announcement(&ipv4(1), 1)?)?;
    let mut records = Vec::new();
    walk(&mut before, |record| records.push(record.to_vec()));
    let mut speaker = Speaker::new(2, Family::IPV4_UNICAST)?;
    let (peer, mut sets) = (speaker.peers[0], ThawedSets::new(HashKey::new([1, 0])));
    for record in records {
        measured(|| speaker.pipeline.thaw_routes(peer, &record, &mut sets))?;
        speaker.pull();
    }
    measured(|| while speaker.pipeline.thawed(&mut sets, SLICE) {});
    Ok(ROUTES)
}

/// Freezes all routes.
fn walk(speaker: &mut Speaker, mut sink: impl FnMut(&[u8])) {
    let mut walk = speaker.pipeline.freeze(speaker.peers.iter().copied());
    let mut sink = |_, record: &[u8]| {
        sink(record);
        true
    };
    while speaker.pipeline.freeze_routes(&mut walk, BATCH, &mut sink) {}
}

fn rib() -> Result<usize> {
    rib_of(&ipv4(1), [10, 0, 0, 254].into(), [10, 0, 0, 1].into())
}

fn rib_ipv6() -> Result<usize> {
    let gateway = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2);
    rib_of(&Synthetic::ipv6(1, ROUTES).build(), local_v6(1).into(), gateway.into())
}

/// The table by way of a gateway on a link where our address is `ours`.
fn rib_of(table: &Table, ours: IpAddr, gateway: IpAddr) -> Result<usize> {
    let mut rib = Rib::new(RibConfig::new(HashKey::new([1, 0])));
    let origin = rib.add_origin("bgp", OriginConfig::external(20), Instant::now())?;
    let length = if ours.is_ipv4() { 24 } else { 64 };
    let address = InterfaceAddress { address: ours, length };
    rib.interface_changed(Interface { index: 1, name: "eth0".into(), up: true, addresses: vec![address] });
    let nexthops = rib.nexthops(origin, NexthopSet::via(gateway));
    let action = RouteAction::Announce { nexthops, metric: 0, distance: None, tag: 0, source: 0 };
    let prefixes: Vec<_> = table.routes.iter().map(|(prefix, _)| *prefix).collect();
    rib.fib_attach();
    let mut told = 0;
    measured(|| -> Result<()> {
        for batch in prefixes.chunks(BATCH) {
            rib.origin_routes(origin, [(action, batch.iter().copied())])?;
            while let Some(batch) = rib.poll_fib(BATCH) {
                told += batch.routes.len();
            }
        }
        Ok(())
    })?;
    ensure!(told >= ROUTES, "{told} routes were told to the fea");
    eprintln!("{} bytes in all", rib.status().memory);
    Ok(ROUTES)
}
