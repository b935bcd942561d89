//! The demonstration: speaker, router, router, each in a host of its own.
//!
//! ```text
//!  speaker ──1── edge ──2── core
//!  AS 65101      AS 65001   AS 65002
//! ```

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    kernel::{self, Monitor},
    netns::Namespace,
    router::Router,
    speaker::{Speaker, SpeakerConfig},
    table::{Synthetic, Table},
    topology::{Side, join, v4, v6},
    wait,
};
use holdfast_types::Family;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

/// Nothing here takes longer on two slow cores.
const LIMIT: Duration = Duration::from_secs(240);
/// Pause between two questions: each is a process of its own.
const ASK: Duration = Duration::from_millis(100);

/// The whole story.
pub(crate) fn run(routes: usize) -> Result<()> {
    let (hosts, table) = prepare(routes)?;
    let total = table.routes.len() as u64;
    say("starting two routers, each of five processes");
    let edge = Router::start(&hosts.edge, &edge_configuration())?;
    let core = Router::start(&hosts.core, &core_configuration())?;

    let start = Instant::now();
    let speaker = hosts.feed(Arc::clone(&table))?;
    speaker.wait_established(LIMIT)?;
    load(&core, "routes in the kernel of the second router", total)?;
    let took = start.elapsed();
    summary(&hosts, &[("edge", &edge), ("core", &core)], total, took)?;
    survive(&hosts, &edge, &core, total)?;

    say("stopping both routers: sessions are closed, kernel routes removed");
    speaker.stop();
    core.stop()?;
    edge.stop()?;
    for host in [&hosts.edge, &hosts.core] {
        ensure!(count(host)? == 0, "routes were left behind in a kernel");
    }
    Ok(())
}

struct Hosts {
    speaker: Namespace,
    edge: Namespace,
    core: Namespace,
}

fn prepare(routes: usize) -> Result<(Hosts, Arc<Table>)> {
    say("making three hosts (network namespaces) and a table like the Internet's");
    let hosts = Hosts {
        speaker: Namespace::new("speaker")?,
        edge: Namespace::new("edge")?,
        core: Namespace::new("core")?,
    };
    join(1, &hosts.edge, &hosts.speaker)?;
    join(2, &hosts.edge, &hosts.core)?;
    let plain = |synthetic: Synthetic| Synthetic { as_sets: false, ..synthetic }.build();
    let mut table = plain(Synthetic::ipv4(1, routes));
    table.append(plain(Synthetic::ipv6(2, routes / 5)));
    let (ipv4, ipv6) = (table.count(Family::IPV4_UNICAST), table.count(Family::IPV6_UNICAST));
    println!("  {ipv4} IPv4 and {ipv6} IPv6 routes with {} attribute sets", table.sets.len());
    Ok((hosts, Arc::new(table)))
}

impl Hosts {
    fn feed(&self, table: Arc<Table>) -> Result<Speaker> {
        let (near, far) = (v4(1, Side::First), v4(1, Side::Second));
        let config = SpeakerConfig {
            tables: vec![table],
            families: Family::ALL.to_vec(),
            next_hop_v6: v6(1, Side::Second),
            ..SpeakerConfig::connect(far.into(), near.into(), 65101)
        };
        self.speaker.run(move || Speaker::spawn(config))?
    }
}

fn edge_configuration() -> String {
    let (speaker, core) = (v4(1, Side::Second), v4(2, Side::Second));
    let next_hop = v6(2, Side::First);
    format!(
        r#"
[router]
id = "10.0.0.1"
asn = 65001
[[bgp.peer]]
name = "speaker"
address = "{speaker}"
asn = 65101
families = ["ipv4-unicast", "ipv6-unicast"]
import = "accept-all"
[[bgp.peer]]
name = "core"
address = "{core}"
asn = 65002
families = ["ipv4-unicast", "ipv6-unicast"]
next-hop-ipv6 = "{next_hop}"
import = "accept-all"
export = "accept-all"
"#
    )
}

fn core_configuration() -> String {
    let edge = v4(2, Side::First);
    let next_hop = v6(2, Side::Second);
    format!(
        r#"
[router]
id = "10.0.0.2"
asn = 65002
[[bgp.peer]]
name = "edge"
address = "{edge}"
asn = 65001
families = ["ipv4-unicast", "ipv6-unicast"]
next-hop-ipv6 = "{next_hop}"
import = "accept-all"
"#
    )
}

/// Shows a bar until the router's forwarding engine has so many routes.
fn load(router: &Router, what: &str, total: u64) -> Result<()> {
    let style = ProgressStyle::with_template("  {bar:40} {pos}/{len} {msg} ({elapsed})")?;
    let bar = ProgressBar::new(total).with_style(style).with_message(what.to_owned());
    let result = until(what, || {
        let installed = installed(router)?;
        bar.set_position(installed);
        ensure!(installed == total, "{installed} of {total}");
        Ok(())
    });
    bar.finish_and_clear();
    result.with_context(|| router.log_tail())
}

/// Routes that the router's forwarding engine has.
fn installed(router: &Router) -> Result<u64> {
    Ok(number(&ask(router, "fea/fea.v1/ShowStatus")?["routes"]))
}

fn ask(router: &Router, method: &str) -> Result<Value> {
    Ok(serde_json::from_str(&router.cli(&["call", "--json", method])?)?)
}

/// A number in JSON as protobuf writes it: 64 bits are a string there.
fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

/// Routes of Holdfast in a kernel, counted by iproute2.
fn count(host: &Namespace) -> Result<u64> {
    Ok((kernel::routes(host, false)?.len() + kernel::routes(host, true)?.len()) as u64)
}

fn summary(hosts: &Hosts, routers: &[(&str, &Router); 2], total: u64, took: Duration) -> Result<()> {
    say("loaded");
    println!("  {total} routes through both routers into both kernels in {}", seconds(took));
    for ((name, router), host) in routers.iter().zip([&hosts.edge, &hosts.core]) {
        let in_kernel = count(host)?;
        ensure!(in_kernel == total, "{in_kernel} routes in the kernel of {name}, not {total}");
        let mut line = format!("  {name}: {in_kernel} kernel routes; memory");
        let mut sum = 0;
        for process in ["bgp", "rib", "fea", "manager"] {
            let bytes = router.memory(process)?;
            sum += bytes;
            line += &format!(" {process} {:.1} MiB,", bytes as f64 / f64::from(1 << 20));
        }
        println!("{line} in all {} bytes per route", sum / total);
    }
    println!("\n{}", routers[0].1.cli(&["show", "bgp", "summary"])?);
    Ok(())
}

/// kill -9 of the first router's bgp.
fn survive(hosts: &Hosts, edge: &Router, core: &Router, total: u64) -> Result<()> {
    say("kill -9 of the first router's bgp");
    let monitor = Monitor::start(&hosts.edge)?;
    let (killed, start) = (edge.pid("bgp")?, Instant::now());
    edge.kill("bgp")?;
    until("a new bgp", || {
        let pid = edge.pid("bgp")?;
        ensure!(pid != killed, "the old one");
        Ok(())
    })?;
    let back = start.elapsed();
    until("the sessions", || established(edge))?;
    let sessions = start.elapsed();
    until("the first router's routes", || in_step(edge, total))?;
    let whole = start.elapsed();
    until("the second router's routes", || in_step(core, total))?;
    let (lost, dropped) = (monitor.deletions()?.len(), dropped(core)?);
    println!(
        "  bgp was started again after {}, and had its sessions after {}",
        seconds(back),
        seconds(sessions)
    );
    println!(
        "  edge: the kernel kept its routes, {lost} were deleted; all in step again after {}",
        seconds(whole)
    );
    println!("  core: its session with edge went on, {dropped} were dropped");
    ensure!(dropped == 0, "the second router noticed");
    ensure!(lost == 0, "the kernel of edge lost routes");
    for (name, host) in [("edge", &hosts.edge), ("core", &hosts.core)] {
        let in_kernel = count(host)?;
        ensure!(in_kernel == total, "{in_kernel} routes in the kernel of {name} at the end, not {total}");
    }
    Ok(())
}

fn until(what: &str, probe: impl Fn() -> Result<()>) -> Result<()> {
    wait::until(what, LIMIT, || {
        std::thread::sleep(ASK);
        probe().map_err(|error| format!("{error:#}"))
    })
}

fn established(router: &Router) -> Result<()> {
    let shown = router.show(&["bgp", "summary"])?.to_string();
    ensure!(shown.matches("\"Established\"").count() >= 4, "not all sessions are up");
    Ok(())
}

/// Sessions of a router that have ended.
fn dropped(router: &Router) -> Result<u64> {
    let shown = router.show(&["bgp", "summary"])?;
    let peers = shown.as_object().into_iter().flatten().filter_map(|(_, family)| family["peers"].as_object());
    Ok(peers.flatten().map(|(_, peer)| number(&peer["connectionsDropped"])).sum())
}

/// bgp has received the whole table in sessions that are up, and the forwarding engine has it, too.
fn in_step(router: &Router, total: u64) -> Result<()> {
    let shown = router.show(&["bgp", "summary"])?;
    let peers = shown.as_object().into_iter().flatten().filter_map(|(_, family)| family["peers"].as_object());
    let received: u64 = peers.flatten().filter_map(|(_, peer)| peer["pfxRcd"].as_u64()).sum();
    ensure!(received == total, "{received} routes received");
    let status = ask(router, "rib/rib.v1/ShowStatus")?;
    let origins = status["origins"].as_array().context("origins")?;
    let bgp = origins.iter().find(|origin| origin["name"] == "bgp").context("bgp is no origin")?;
    ensure!(bgp["synced"] == true && number(&status["pending"]) == 0, "still syncing");
    ensure!(installed(router)? == total, "not all routes");
    Ok(())
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

fn say(text: &str) {
    println!("\n== {text}");
}
