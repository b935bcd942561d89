//! What a scraper of metrics sees, and what becomes of one that means harm.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_lab::{
    router::Router,
    table::{AttributeSet, Table},
    topology::{ROUTER, Star},
    wait,
};
use holdfast_types::{Asn, Prefix};

const LIMIT: Duration = Duration::from_secs(30);
const PEER: &str = r#"
[[bgp.peer]]
name = "left"
address = "10.0.1.2"
asn = 65001
passive = true
import = "accept-all"
export = "accept-all"
"#;
const METRICS: &str = "[metrics]\n";
const STORE: &str = "[nonstop.store]\nkind = \"memory\"\n";
const RIP: &str = "[rip]\n[[rip.interface]]\nname = \"n1\"\n";
/// Behind a peer.
const BFD: &str = "bfd = true\n";
const OTHER_PORT: &str = "[metrics]\nlisten = \"127.0.0.1:9180\"\n";

fn table(routes: u16) -> Arc<Table> {
    let attributes = AttributesBuilder { as_path: [Asn(7)].into(), ..AttributesBuilder::new(Origin::Igp) };
    let prefix = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let prefix = Prefix::new(Ipv4Addr::new(100, 64 + high, low, 0).into(), 24);
        (prefix.expect("a length of IPv4"), 0)
    };
    let routes = (0..routes).map(prefix).collect();
    Arc::new(Table { sets: vec![AttributeSet { bytes: attributes.build() }], routes })
}

fn connect(star: &Star, port: u16) -> Result<TcpStream> {
    star.router.run(move || {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok::<_, anyhow::Error>(stream)
    })?
}

/// The head and the body of an answer.
fn ask(star: &Star, port: u16, request: &str) -> Result<(String, String)> {
    let mut stream = connect(star, port)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("no answer: {answer:?}"))?;
    Ok((head.to_owned(), body.to_owned()))
}

fn get(star: &Star, port: u16, path: &str) -> Result<(String, String)> {
    ask(star, port, &format!("GET {path} HTTP/1.1\r\nHost: router\r\n\r\n"))
}

/// A metric of a scrape: its kind, and its samples by what stands before the value.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    samples: BTreeMap<String, f64>,
}

/// Reads a scrape as strictly as OpenMetrics asks: HELP, TYPE and samples of a metric stand together, nothing comes twice,
/// and it ends.
fn parse(text: &str) -> Result<BTreeMap<String, Family>> {
    let body = text.strip_suffix("# EOF\n").context("it does not end")?;
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').context("a help")?;
            ensure!(!help.is_empty() && !families.contains_key(name), "{line}");
            name.clone_into(&mut current);
            families.insert(current.clone(), Family::default());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').context("a type")?;
            ensure!(name == current && ["gauge", "counter", "histogram"].contains(&kind), "{line}");
            kind.clone_into(&mut families.get_mut(name).context("its help comes first")?.kind);
        } else {
            sample(line, &current, &mut families)?;
        }
    }
    Ok(families)
}

fn sample(line: &str, current: &str, families: &mut BTreeMap<String, Family>) -> Result<()> {
    let (series, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
    let name = series.split('{').next().unwrap_or_default();
    let family = families.get_mut(current).with_context(|| line.to_owned())?;
    let suffixes: &[&str] = match family.kind.as_str() {
        "counter" => &["_total"],
        "histogram" => &["_sum", "_count", "_bucket"],
        _ => &[""],
    };
    let suffix = name.strip_prefix(current).unwrap_or("?");
    ensure!(suffixes.contains(&suffix), "{line}: not of {current}");
    labels(&series[name.len()..]).with_context(|| line.to_owned())?;
    let value: f64 = value.parse().with_context(|| line.to_owned())?;
    ensure!(family.samples.insert(series.to_owned(), value).is_none(), "twice: {line}");
    Ok(())
}

fn labels(text: &str) -> Result<()> {
    let Some(inner) = text.strip_prefix('{') else {
        ensure!(text.is_empty(), "what is between name and value?");
        return Ok(());
    };
    let inner = inner.strip_suffix('}').context("an open brace")?;
    let mut names = BTreeSet::new();
    // No value of ours has a comma in it.
    for label in inner.split(',') {
        let (name, value) = label.split_once('=').context("a label")?;
        ensure!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
        ensure!(value.len() >= 2 && value.starts_with('"') && value.ends_with('"'), "{value}");
        ensure!(names.insert(name), "{name} twice");
    }
    Ok(())
}

fn scrape(star: &Star, port: u16) -> Result<BTreeMap<String, Family>> {
    let (head, body) = get(star, port, "/metrics")?;
    ensure!(head.starts_with("HTTP/1.1 200 OK") && head.contains("application/openmetrics-text"), "{head}");
    parse(&body)
}

fn value(families: &BTreeMap<String, Family>, series: &str) -> Result<f64> {
    let found = families.values().find_map(|family| family.samples.get(series));
    found.copied().with_context(|| format!("no {series}"))
}

/// Names of the manual's tables: `| `holdfast_…` | …`. Some are of processes that run only where sessions are replicated to a
/// store.
fn documented(are_of_store: bool) -> Result<BTreeSet<String>> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manual/metrics.md"))?;
    let name = |line: &str| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned());
    let is_wanted = |name: &String| name.starts_with("holdfast_") && is_of_store(name) == are_of_store;
    Ok(page.lines().filter_map(name).filter(is_wanted).collect())
}

fn is_of_store(name: &str) -> bool {
    ["holdfast_gate_", "holdfast_replicator_"].iter().any(|of| name.starts_with(of))
}

/// Names of a scrape, as the manual has them.
fn names(families: &BTreeMap<String, Family>) -> BTreeSet<String> {
    let name = |(name, family): (&String, &Family)| {
        if family.kind == "counter" { format!("{name}_total") } else { name.clone() }
    };
    families.iter().map(name).collect()
}

#[test]
fn a_scrape_says_what_the_manual_says_and_costs_by_peer_and_not_by_route() -> Result<()> {
    let star = Star::new(1)?;
    let router = Router::start(&star.router, &[ROUTER, PEER, BFD, METRICS, RIP].concat())?;
    let left = star.speaker(1, 65001, |_| ())?;
    left.announce(table(1));
    let series = "holdfast_bgp_peer_prefixes_received{peer=\"left\",family=\"ipv4-unicast\"}";
    let until = |routes: f64| {
        wait::until("the scrape", LIMIT, || {
            let families = scrape(&star, 9179).map_err(|error| format!("{error:#}"))?;
            let seen = value(&families, series).map_err(|error| error.to_string())?;
            let in_kernel = value(&families, "holdfast_fea_routes").map_err(|error| error.to_string())?;
            if (seen, in_kernel) == (routes, routes) {
                Ok(families)
            } else {
                Err(format!("{seen}, {in_kernel}"))
            }
        })
    };
    let few = until(1.0)?;
    let (seen, documented) = (names(&few), documented(false)?);
    ensure!(
        seen == documented,
        "not the same: {:?}",
        seen.symmetric_difference(&documented).collect::<Vec<_>>()
    );
    for (series, expected) in [
        ("holdfast_bgp_peer_up{peer=\"left\"}", 1.0),
        ("holdfast_bgp_peer_state{peer=\"left\"}", 6.0),
        ("holdfast_bgp_peer_established_total{peer=\"left\"}", 1.0),
        ("holdfast_bgp_peer_flaps_total{peer=\"left\"}", 0.0),
        ("holdfast_bgp_peer_info{peer=\"left\",address=\"10.0.1.2\",asn=\"65001\"}", 1.0),
        ("holdfast_rib_routes{origin=\"bgp\"}", 1.0),
        ("holdfast_process_up{process=\"bgp\"}", 1.0),
        ("holdfast_process_up{process=\"metrics\"}", 1.0),
        ("holdfast_process_restarts_total{process=\"bgp\"}", 0.0),
        ("holdfast_scrape_complete{process=\"manager\"}", 1.0),
    ] {
        ensure!(value(&few, series)? == expected, "{series}: {}", value(&few, series)?);
    }
    ensure!(
        value(&few, "holdfast_process_cpu_seconds_total{process=\"bgp\"}")? > 0.0,
        "it has done something"
    );

    left.announce(table(5000));
    let many = until(5000.0)?;
    let lines =
        |families: &BTreeMap<String, Family>| families.values().map(|it| it.samples.len()).sum::<usize>();
    ensure!(lines(&many) == lines(&few), "{} lines were {}", lines(&many), lines(&few));
    ensure!(value(&many, "holdfast_fea_routes_added_total")? >= 5000.0, "counters count");
    drop(router);
    Ok(())
}

#[test]
fn a_router_with_a_store_has_the_metrics_of_the_manual_for_it() -> Result<()> {
    let star = Star::new(1)?;
    let router = Router::start(&star.router, &[ROUTER, STORE, PEER, METRICS].concat())?;
    let left = star.speaker(1, 65001, |_| ())?;
    left.announce(table(100));
    let documented = documented(true)?;
    let families = wait::until("a session that is protected", LIMIT, || {
        let families = scrape(&star, 9179).map_err(|error| format!("{error:#}"))?;
        let mut seen = names(&families);
        seen.retain(|name| is_of_store(name));
        if seen != documented {
            return Err(format!("{:?}", seen.symmetric_difference(&documented).collect::<Vec<_>>()));
        }
        // Each process counts at a time of its own.
        let is_counted = |series: &str, is_right: fn(f64) -> bool| match value(&families, series) {
            Ok(value) if is_right(value) => Ok(()),
            Ok(value) => Err(format!("{series}: {value}")),
            Err(error) => Err(error.to_string()),
        };
        for series in [
            "holdfast_replicator_sessions{protected=\"yes\"}",
            "holdfast_replicator_protection",
            "holdfast_replicator_lease",
            "holdfast_gate_attached",
        ] {
            is_counted(series, |value| value == 1.0)?;
        }
        for series in [
            "holdfast_replicator_batches_total",
            "holdfast_replicator_octets_total",
            "holdfast_replicator_store_octets",
            "holdfast_gate_flows",
            "holdfast_gate_segments_accepted_total",
        ] {
            is_counted(series, |value| value > 0.0)?;
        }
        Ok(families)
    })?;
    for series in [
        "holdfast_replicator_sessions{protected=\"no\"}",
        "holdfast_replicator_losses_total",
        "holdfast_replicator_gaps_total",
        "holdfast_gate_gaps_total",
    ] {
        ensure!(value(&families, series)? == 0.0, "{series}: {}", value(&families, series)?);
    }
    drop(router);
    Ok(())
}

#[test]
fn every_queue_says_how_long_it_may_become() -> Result<()> {
    let star = Star::new(1)?;
    let router = Router::start(&star.router, &[ROUTER, PEER, METRICS].concat())?;
    let left = star.speaker(1, 65001, |_| ())?;
    left.announce(table(3000));
    router.until_established("left", LIMIT)?;
    let queues = wait::until("the queues", LIMIT, || {
        let shown = router.show(&["queues"]).map_err(|error| error.to_string())?;
        let queues = shown.as_array().cloned().ok_or("no list")?;
        let log = |queue: &&serde_json::Value| queue["process"] == "rib" && queue["queue"] == "change-log";
        let high = queues.iter().filter(log).filter_map(|queue| queue["high"].as_u64()).max();
        if high > Some(0) { Ok(queues) } else { Err(shown.to_string()) }
    })?;
    let names: BTreeSet<_> = queues
        .iter()
        .map(|queue| format!("{}/{}", queue["process"], queue["queue"]).replace('"', ""))
        .collect();
    for name in [
        "bgp/change-log",
        "bgp/rib-window",
        "bgp/dials",
        "bgp/peer-output",
        "rib/change-log",
        "rib/fea-window",
        "fea/kernel",
        "manager/finder-events",
        "manager/operators",
        "keeper/deaths",
        "keeper/descriptors",
        "keeper/xrl-unwritten",
        "metrics/xrl-unwritten",
        "bgp/xrl-waiting",
    ] {
        ensure!(names.contains(name), "no {name} in {names:?}");
    }
    for queue in &queues {
        let [length, high, bound] = ["length", "high", "bound"].map(|key| queue[key].as_u64().unwrap_or(0));
        ensure!(length <= high && high <= bound && bound > 0, "{queue}");
    }
    let counters = router.cli(&["show", "counters", "peer_up"])?;
    ensure!(counters.trim() == "holdfast_bgp_peer_up{peer=\"left\"} 1", "{counters}");
    ensure!(router.cli(&["show", "counters", "no-such-thing"]).is_err(), "nothing is found");
    Ok(())
}

#[test]
fn a_reload_adds_moves_and_removes_the_process() -> Result<()> {
    let star = Star::new(1)?;
    let router = Router::start(&star.router, &[ROUTER, PEER].concat())?;
    let _left = star.speaker(1, 65001, |_| ())?;
    router.until_established("left", LIMIT)?;
    ensure!(connect(&star, 9179).is_err(), "nobody listens");
    let reload = |sections: &str| {
        std::fs::write(router.configuration(), [ROUTER, PEER, sections].concat())?;
        router.cli(&["reload"])
    };
    let answers = |port: u16| {
        wait::until("an answer", LIMIT, || scrape(&star, port).map_err(|error| format!("{error:#}")))
    };
    ensure!(reload(METRICS)?.contains("[metrics] changed"), "it says so");
    answers(9179)?;
    let pid = router.pid("metrics")?;
    reload(OTHER_PORT)?;
    answers(9180)?;
    ensure!(connect(&star, 9179).is_err(), "the old address is given up");
    ensure!(router.pid("metrics")? == pid, "the process stays");
    reload("")?;
    wait::until("the end of the process", LIMIT, || {
        let shown = router.show(&["processes"]).map_err(|error| error.to_string())?;
        let is_there = shown.get("metrics").is_some() || connect(&star, 9180).is_ok();
        if is_there { Err(shown.to_string()) } else { Ok(()) }
    })?;
    let shown = router.neighbor("left")?;
    ensure!(shown["bgpState"] == "Established" && shown["connectionsDropped"] == 0, "{shown}");
    Ok(())
}

#[test]
fn who_asks_wrongly_or_slowly_harms_nobody() -> Result<()> {
    let star = Star::new(1)?;
    let router = Router::start(&star.router, &[ROUTER, PEER, METRICS].concat())?;
    for (request, answer) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "405"),
        ("GET /metrics HTTP/1.1\r\nbroken\r\n\r\n", "400"),
    ] {
        let (head, _) = ask(&star, 9179, request)?;
        ensure!(head.starts_with(&format!("HTTP/1.1 {answer}")), "{request:?}: {head}");
    }
    let mut long = connect(&star, 9179)?;
    // It may be cut off while it still sends.
    let _ = long.write_all(&vec![b'a'; 1 << 20]);
    let mut said = Vec::new();
    let _ = long.read_to_end(&mut said);
    ensure!(!said.starts_with(b"HTTP/1.1 200"), "an endless head is no request");

    // More than there is room for say nothing: they make way for those who ask.
    let mut silent: Vec<_> = (0..1000).map(|_| connect(&star, 9179)).collect::<Result<_>>()?;
    let begin = Instant::now();
    scrape(&star, 9179)?;
    println!("beside 1,000 silent connections: a scrape within {:?}", begin.elapsed());
    // If each had its place for 5 s, it would be minutes.
    ensure!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    for stream in &mut silent {
        let mut rest = Vec::new();
        if let Err(error) = stream.read_to_end(&mut rest) {
            bail!("a silent connection stays open: {error}");
        }
    }
    ensure!(router.show(&["processes"])?["metrics"]["restarts"] == 0, "the process lives");
    Ok(())
}
