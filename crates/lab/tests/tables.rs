//! Whole Internet tables through a stock router into Holdfast, from there into the kernel and on to another peer.
//!
//! ```text
//!  feeder ──9── BIRD or FRR ──1── Holdfast ──2── sink (lab)
//!  AS 65009      AS 65101        │AS 4200000001└──3── sink (FRR)
//!                             kernel
//! ```
//!
//! What arrives has to be exactly what was sent: no route more, none less, each with the path, next hop and
//! attributes that it must have. `HOLDFAST_DATA` names a folder with real tables; without, made-up ones of the same
//! size are used. Most cases need no whole table and take the beginning of one, as they say.

use std::{
    collections::{BTreeMap, HashSet},
    net::{IpAddr, Ipv4Addr},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_bgp_wire::{Attributes, NextHop, as_path::SegmentType, attribute::code};
use holdfast_lab::{
    kernel,
    netns::Namespace,
    peers::{Bird, Frr},
    router::Router,
    speaker::{Received, Speaker, SpeakerConfig},
    table::{Synthetic, Table},
    topology::{Side, Star, join, v4, v6},
    wait,
};
use holdfast_types::{Family, Prefix};

const FEEDER: u32 = 65009;
const RELAY: u32 = 65101;
const US: u32 = 4_200_000_001;
const SINK: u32 = 65102;
const FRR_SINK: u32 = 65103;

const LIMIT: Duration = Duration::from_secs(120);

/// The real table of a family when there is one, or a made-up one of its size; says which.
fn table(family: Family) -> Result<Table> {
    let v6 = family == Family::IPV6_UNICAST;
    let name = if v6 { "table-v6.mrt.gz" } else { "table-v4.mrt.gz" };
    if let Some(folder) = std::env::var_os("HOLDFAST_DATA") {
        let table = Table::load(Path::new(&folder).join(name))?;
        println!("{name} from HOLDFAST_DATA: {} routes", table.routes.len());
        return Ok(table);
    }
    let full = Synthetic::full(1);
    let wanted = if v6 { Synthetic { ipv4: 0, ..full } } else { Synthetic { ipv6: 0, ..full } };
    let table = wanted.build();
    println!("HOLDFAST_DATA is not set: a made-up {family} table of {} routes", table.routes.len());
    Ok(table)
}

/// The beginning of a table, with some of the few routes that have an AS_SET.
fn part(table: &Table, count: usize) -> Table {
    const AS_SETS: usize = 10;
    let (with, without): (Vec<_>, Vec<_>) =
        table.routes.iter().partition(|&&(_, set)| has_as_set(&table.sets[set as usize].bytes));
    let routes = with.into_iter().take(AS_SETS).chain(without).take(count).copied().collect();
    println!("of it the first {count}");
    Table { sets: table.sets.clone(), routes }
}

fn has_as_set(attributes: &[u8]) -> bool {
    Attributes(attributes).as_path().segments().any(|segment| segment.kind == SegmentType::Set)
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Relay {
    Bird,
    Frr,
}

/// Keeps the relay running; what it says when something goes wrong.
enum Running {
    Bird(Bird),
    Frr(Frr),
}

impl Running {
    fn state(&self) -> String {
        let (shown, log) = match self {
            Self::Bird(bird) => (bird.birdc("show protocols all"), bird.log()),
            Self::Frr(frr) => (frr.vtysh("show bgp summary"), frr.log()),
        };
        let tail: Vec<_> = log.lines().rev().take(10).collect();
        format!("{}\n{}", shown.unwrap_or_else(|error| error.to_string()), tail.join("\n"))
    }
}

struct Case {
    table: Arc<Table>,
    family: Family,
    relay: Relay,
    as_sets: &'static str,
    frr_sink: bool,
}

/// The hosts and everything that runs in them.
struct Chain {
    case: Case,
    star: Star,
    feeder_host: Namespace,
    relay: Running,
    router: Router,
    sink: Speaker,
    frr_sink: Option<Frr>,
}

impl Case {
    fn address(&self, network: u8, side: Side) -> IpAddr {
        match self.family {
            Family::IPV6_UNICAST => v6(network, side).into(),
            _ => v4(network, side).into(),
        }
    }

    fn is_v6(&self) -> bool {
        self.family == Family::IPV6_UNICAST
    }

    /// Everything but the feeder, all sessions up.
    fn start(self) -> Result<Chain> {
        let (star, feeder_host) = (Star::new(3)?, Namespace::new("feeder")?);
        join(9, star.neighbor(1), &feeder_host)?;
        let router = Router::start(&star.router, &self.configuration())?;
        let relay = match self.relay {
            Relay::Bird => Running::Bird(Bird::start(star.neighbor(1), &self.bird())?),
            Relay::Frr => Running::Frr(Frr::start(star.neighbor(1), &self.frr())?),
        };
        let sink = match self.is_v6() {
            true => star.speaker_v6(2, SINK, |_| ())?,
            false => star.speaker(2, SINK, |_| ())?,
        };
        let frr_sink = self
            .frr_sink
            .then(|| Frr::start(star.neighbor(3), &self.frr_sink_configuration()))
            .transpose()?;
        sink.wait_end_of_rib(self.family, LIMIT)?;
        Ok(Chain { case: self, star, feeder_host, relay, router, sink, frr_sink })
    }

    fn configuration(&self) -> String {
        let (relay, sink, frr) =
            (self.address(1, Side::Second), self.address(2, Side::Second), self.address(3, Side::Second));
        let as_sets = self.as_sets;
        format!(
            r#"
            [router]
            id = "10.0.0.1"
            asn = {US}
            [bgp]
            as-sets = "{as_sets}"
            connect-retry = 1
            [[bgp.peer]]
            name = "relay"
            address = "{relay}"
            asn = {RELAY}
            import = "accept-all"
            export = "reject-all"
            [[bgp.peer]]
            name = "sink"
            address = "{sink}"
            asn = {SINK}
            passive = true
            import = "accept-all"
            export = "accept-all"
            [[bgp.peer]]
            name = "frr-sink"
            address = "{frr}"
            asn = {FRR_SINK}
            passive = true
            import = "accept-all"
            export = "accept-all"
            "#
        )
    }

    fn bird(&self) -> String {
        let channel = if self.is_v6() { "ipv6" } else { "ipv4" };
        let (here, feeder) = (self.address(9, Side::First), self.address(9, Side::Second));
        let (near, us) = (self.address(1, Side::Second), self.address(1, Side::First));
        format!(
            "router id 10.0.1.2;
            protocol device {{ }}
            protocol bgp feeder {{
              local {here} as {RELAY}; neighbor {feeder} as {FEEDER}; passive;
              {channel} {{ import all; export none; }};
            }}
            protocol bgp holdfast {{
              local {near} as {RELAY}; neighbor {us} as {US}; connect retry time 1; connect delay time 1;
              {channel} {{ import none; export all; }};
            }}"
        )
    }

    fn frr(&self) -> String {
        let family = if self.is_v6() { "ipv6" } else { "ipv4" };
        let (feeder, us) = (self.address(9, Side::Second), self.address(1, Side::First));
        format!(
            "router bgp {RELAY}
             bgp router-id 10.0.1.2
             no bgp ebgp-requires-policy
             no bgp default ipv4-unicast
             neighbor {feeder} remote-as {FEEDER}
             neighbor {us} remote-as {US}
             neighbor {us} timers connect 1
             address-family {family} unicast
              neighbor {feeder} activate
              neighbor {us} activate
             exit-address-family\n"
        )
    }

    fn frr_sink_configuration(&self) -> String {
        let family = if self.is_v6() { "ipv6" } else { "ipv4" };
        let us = self.address(3, Side::First);
        format!(
            "router bgp {FRR_SINK}
             bgp router-id 10.0.3.2
             no bgp ebgp-requires-policy
             no bgp default ipv4-unicast
             neighbor {us} remote-as {US}
             neighbor {us} timers connect 1
             address-family {family} unicast
              neighbor {us} activate
             exit-address-family\n"
        )
    }

    /// What has to arrive: routes with an AS_SET only where they are accepted.
    fn expected(&self) -> BTreeMap<Prefix, u32> {
        let accepted =
            |set: u32| self.as_sets == "accept" || !has_as_set(&self.table.sets[set as usize].bytes);
        self.table.routes.iter().copied().filter(|&(_, set)| accepted(set)).collect()
    }
}

impl Chain {
    /// Feeds the table, waits until all of it has come through, compares, withdraws it.
    fn prove(self) -> Result<()> {
        let Self { case, star, router, sink, .. } = &self;
        let expected = case.expected();
        let before = kernel::count(&star.router, case.is_v6())?;
        let start = Instant::now();
        let feeder = self.feed()?;
        let kernel = self.wait_kernel(|count| count >= before + expected.len());
        let in_kernel = start.elapsed();
        let sunk = sink.wait_routes(expected.len(), LIMIT);
        kernel.and(sunk).with_context(|| self.relay.state())?;
        let at_sink = sink.status().last_update.context("an UPDATE")?;
        println!(
            "  {} {} routes through {:?}: in the kernel after {:.1} s, at the sink after {:.1} s",
            expected.len(),
            case.family,
            case.relay,
            in_kernel.as_secs_f32(),
            at_sink.saturating_duration_since(start).as_secs_f32()
        );
        report(router)?;
        self.compare_kernel(&expected)?;
        self.compare_sink(&expected)?;
        if let Some(frr) = &self.frr_sink {
            self.compare_frr(frr, &expected)?;
        }
        let start = Instant::now();
        feeder.stop();
        sink.wait_routes(0, LIMIT)?;
        let at_sink = start.elapsed();
        // That count has routes of others in it; near the end the routes themselves are asked for.
        self.wait_kernel(|count| count < before + 1000)?;
        wait::until("an empty kernel", LIMIT, || {
            let left = kernel::routes(&star.router, case.is_v6()).map_err(|error| error.to_string())?;
            left.is_empty().then_some(()).ok_or_else(|| format!("{} routes", left.len()))
        })?;
        println!(
            "  withdrawn: at the sink after {:.1} s, from the kernel after {:.1} s",
            at_sink.as_secs_f32(),
            start.elapsed().as_secs_f32()
        );
        ensure!(!router.log().contains("too slow"), "someone lost its place: {}", router.log_tail());
        Ok(())
    }

    fn feed(&self) -> Result<Speaker> {
        let case = &self.case;
        let (here, relay) = (case.address(9, Side::Second), case.address(9, Side::First));
        let config = SpeakerConfig {
            tables: vec![Arc::clone(&case.table)],
            ..SpeakerConfig::connect(here, relay, FEEDER)
        };
        self.feeder_host.run(move || Speaker::spawn(config))?
    }

    /// Until the kernel's own count of routes is as wanted: cheap enough to be asked all the time.
    fn wait_kernel(&self, wanted: impl Fn(usize) -> bool) -> Result<()> {
        wait::until("routes in the kernel", LIMIT, || {
            let count = kernel::count(&self.star.router, self.case.is_v6());
            let count = count.map_err(|error| error.to_string())?;
            if wanted(count) { Ok(()) } else { Err(format!("{count} routes")) }
        })
    }

    fn compare_kernel(&self, expected: &BTreeMap<Prefix, u32>) -> Result<()> {
        let way = format!("via {} dev n1 ", self.case.address(1, Side::Second));
        let routes = kernel::routes(&self.star.router, self.case.is_v6())?;
        same_prefixes("the kernel", expected.keys(), routes.keys())?;
        match routes.iter().find(|(_, line)| !line.contains(&way)) {
            Some((prefix, line)) => bail!("{prefix} is not {way}but: {line}"),
            None => Ok(()),
        }
    }

    fn compare_sink(&self, expected: &BTreeMap<Prefix, u32>) -> Result<()> {
        let routes = self.sink.routes();
        same_prefixes("the sink", expected.keys(), routes.keys())?;
        let next_hop = self.case.address(2, Side::First);
        // Routes share attributes, here and there: each pair needs to be looked at once.
        let mut seen = HashSet::new();
        for (prefix, &set) in expected {
            let route = &routes[prefix];
            if seen.insert((Arc::as_ptr(route), set)) {
                self.compare_route(&self.case.table.sets[set as usize].bytes, route, next_hop)
                    .with_context(|| prefix.to_string())?;
            }
        }
        Ok(())
    }

    fn compare_route(&self, sent: &[u8], received: &Received, next_hop: IpAddr) -> Result<()> {
        let path = Attributes(&received.attributes).as_path().to_string();
        let own = Attributes(sent).as_path();
        let wanted = format!("{US} {RELAY} {FEEDER} {own}");
        ensure!(path == wanted.trim_end(), "path {path} instead of {wanted}");
        ensure!(hop_of(received) == Some(next_hop), "next hop {:?}", hop_of(received));
        let (sent, received) = (carried(sent), carried(&received.attributes));
        ensure!(sent == received, "attributes {received:02x?} instead of {sent:02x?}");
        Ok(())
    }

    /// FRR's table, as its JSON says it.
    fn compare_frr(&self, frr: &Frr, expected: &BTreeMap<Prefix, u32>) -> Result<()> {
        let family = if self.case.is_v6() { "ipv6" } else { "ipv4" };
        let shown = wait::until("all routes at FRR", LIMIT, || {
            let shown = frr.vtysh(&format!("show bgp {family} unicast json")).map_err(|e| e.to_string())?;
            let mut shown: serde_json::Value = serde_json::from_str(&shown).map_err(|e| e.to_string())?;
            let serde_json::Value::Object(routes) = shown["routes"].take() else { return Err("none".into()) };
            if routes.len() == expected.len() { Ok(routes) } else { Err(format!("{} routes", routes.len())) }
        })?;
        let next_hop = self.case.address(3, Side::First).to_string();
        for (prefix, &set) in expected {
            let route = &shown.get(&prefix.to_string()).with_context(|| format!("{prefix} is missing"))?[0];
            let own = Attributes(&self.case.table.sets[set as usize].bytes).as_path().to_string();
            let wanted = format!("{US} {RELAY} {FEEDER} {own}");
            ensure!(route["path"] == wanted.trim_end(), "{prefix}: {route}, not {wanted}");
            ensure!(route["nexthops"][0]["ip"] == next_hop.as_str(), "{prefix}: {route}, not {next_hop}");
        }
        println!("  FRR behind Holdfast has all of it, too");
        Ok(())
    }
}

fn hop_of(route: &Received) -> Option<IpAddr> {
    match route.next_hop {
        Some(NextHop::V4(address)) => Some(address.into()),
        Some(NextHop::V6 { global, .. }) => Some(global.into()),
        None => Attributes(&route.attributes).next_hop().map(|address: Ipv4Addr| address.into()),
    }
}

/// What every router on the way must pass on, by type. Communities are sets: FRR sorts them.
fn carried(attributes: &[u8]) -> BTreeMap<u8, Vec<Vec<u8>>> {
    // MED is for the neighbouring AS only (RFC 4271 section 5.1.4).
    const CHANGED: [u8; 3] = [code::AS_PATH, code::NEXT_HOP, code::MULTI_EXIT_DISC];
    let all = Attributes(attributes).iter().filter(|attribute| !CHANGED.contains(&attribute.code));
    all.map(|attribute| {
        let size = match attribute.code {
            code::COMMUNITIES => 4,
            code::EXTENDED_COMMUNITIES => 8,
            code::LARGE_COMMUNITIES => 12,
            _ => attribute.value.len().max(1),
        };
        let mut parts: Vec<_> = attribute.value.chunks(size).map(<[u8]>::to_vec).collect();
        parts.sort();
        parts.dedup();
        (attribute.code, parts)
    })
    .collect()
}

fn same_prefixes<'a>(
    what: &str,
    expected: impl ExactSizeIterator<Item = &'a Prefix> + Clone,
    found: impl ExactSizeIterator<Item = &'a Prefix> + Clone,
) -> Result<()> {
    if expected.clone().eq(found.clone()) {
        return Ok(());
    }
    let (expected, found): (HashSet<_>, HashSet<_>) = (expected.collect(), found.collect());
    let some = |mut prefixes: Vec<&Prefix>| {
        prefixes.sort();
        prefixes.truncate(5);
        format!("{prefixes:?}")
    };
    bail!(
        "{what} has {} routes instead of {}; missing {}, too many {}",
        found.len(),
        expected.len(),
        some(expected.difference(&found).copied().collect()),
        some(found.difference(&expected).copied().collect())
    )
}

fn report(router: &Router) -> Result<()> {
    for name in ["bgp", "rib", "fea"] {
        let (cpu, memory) = (router.cpu(name)?, router.memory(name)?);
        println!("  {name}: {:.2} s of CPU, {} MiB", cpu.as_secs_f32(), memory >> 20);
    }
    Ok(())
}

fn prove(
    family: Family,
    count: Option<usize>,
    relay: Relay,
    as_sets: &'static str,
    frr_sink: bool,
) -> Result<()> {
    let full = table(family)?;
    let table = Arc::new(match count {
        Some(count) => part(&full, count),
        None => full,
    });
    Case { table, family, relay, as_sets, frr_sink }.start()?.prove()
}

#[test]
fn the_ipv4_internet_through_bird() -> Result<()> {
    prove(Family::IPV4_UNICAST, None, Relay::Bird, "reject", false)
}

#[test]
fn the_ipv6_internet_through_bird_as_sets_included() -> Result<()> {
    prove(Family::IPV6_UNICAST, None, Relay::Bird, "accept", false)
}

#[test]
fn the_ipv4_internet_through_frr() -> Result<()> {
    prove(Family::IPV4_UNICAST, None, Relay::Frr, "reject", false)
}

#[test]
fn a_part_of_the_ipv6_internet_through_frr() -> Result<()> {
    prove(Family::IPV6_UNICAST, Some(100_000), Relay::Frr, "reject", false)
}

#[test]
fn a_part_of_the_ipv4_internet_to_frr_as_sets_included() -> Result<()> {
    prove(Family::IPV4_UNICAST, Some(100_000), Relay::Bird, "accept", true)
}

#[test]
fn a_part_of_the_ipv6_internet_to_frr() -> Result<()> {
    prove(Family::IPV6_UNICAST, Some(50_000), Relay::Bird, "reject", true)
}
