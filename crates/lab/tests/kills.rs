//! kill -9 of every process, and orderly stops: what must survive, and how long it takes until all is as before.
//!
//! ```text
//!  feeder ──1── Holdfast ──2── sink
//!  AS 65001     │AS 65000└──3── other feeder
//!             kernel
//! ```
//!
//! While a process is dead the kernel must not lose a route that stays (`ip monitor`), and forward every packet.
//! `HOLDFAST_DRILLS` says how often the drills with a whole table are repeated: once, or `make drills`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::Notification;
use holdfast_lab::{
    kernel::{self, Monitor},
    router::Router,
    speaker::Speaker,
    table::{Synthetic, Table},
    topology::{Side, Star, v4, v6},
    traffic::Traffic,
    wait,
};
use holdfast_types::{Family, Prefix};

const FEEDER: u8 = 1;
const SINK: u8 = 2;
const OTHER: u8 = 3;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(120);

fn rounds() -> usize {
    std::env::var("HOLDFAST_DRILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The real tables if there are any, made-up ones of their size otherwise; says which.
fn whole_internet() -> Result<Vec<Arc<Table>>> {
    let Some(folder) = std::env::var_os("HOLDFAST_DATA") else {
        let table = Synthetic::full(1).build();
        println!("HOLDFAST_DATA is not set: a made-up table of {} routes", table.routes.len());
        return Ok(vec![Arc::new(table)]);
    };
    let load = |name| Table::load(Path::new(&folder).join(name)).map(Arc::new);
    let tables = vec![load("table-v4.mrt.gz")?, load("table-v6.mrt.gz")?];
    println!(
        "table-v4 and table-v6 from HOLDFAST_DATA: {} routes",
        tables.iter().map(|t| t.routes.len()).sum::<usize>()
    );
    Ok(tables)
}

/// A small table of IPv4 routes, different for each number.
fn small(number: u8) -> Arc<Table> {
    let prefixes =
        (0..=255).map(|third| Prefix::new([50 + number, 0, third, 0].into(), 24).expect("a length of IPv4"));
    Arc::new(Table::plain(prefixes))
}

fn prefixes<'a>(tables: impl IntoIterator<Item = &'a Arc<Table>>) -> BTreeSet<Prefix> {
    tables.into_iter().flat_map(|table| table.routes.iter().map(|(prefix, _)| *prefix)).collect()
}

fn configuration(fea: &str, bgp: &str) -> String {
    let peer = |network: u8| {
        format!(
            "[[bgp.peer]]\nname = \"n{network}\"\naddress = \"{}\"\nasn = 6500{network}\npassive = true\n\
             families = [\"ipv4-unicast\", \"ipv6-unicast\"]\nnext-hop-ipv6 = \"{}\"\n\
             import = \"accept-all\"\nexport = \"accept-all\"\n",
            v4(network, Side::Second),
            v6(network, Side::First),
        )
    };
    format!(
        "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[fea]\n{fea}\n[bgp]\n{bgp}\nas-sets = \"accept\"\n{}{}{}",
        peer(FEEDER),
        peer(SINK),
        peer(OTHER)
    )
}

fn speaker(star: &Star, network: u8, tables: Vec<Arc<Table>>) -> Result<Speaker> {
    star.speaker(network, 65_000 + u32::from(network), |config| {
        config.tables = tables;
        config.families = Family::ALL.to_vec();
    })
}

/// Everything that runs.
struct Scene<'a> {
    star: &'a Star,
    router: Router,
    feeder: Speaker,
    sink: Speaker,
    other: Speaker,
}

impl<'a> Scene<'a> {
    /// Starts all, with the tables of both feeders, and waits until all is as it should be.
    fn start(
        star: &'a Star,
        fea: &str,
        bgp: &str,
        feeder: Vec<Arc<Table>>,
        other: Vec<Arc<Table>>,
    ) -> Result<Self> {
        let expected = prefixes(feeder.iter().chain(&other)).len();
        let start = Instant::now();
        let scene = Self {
            star,
            router: Router::start(&star.router, &configuration(fea, bgp))?,
            feeder: speaker(star, FEEDER, feeder)?,
            sink: speaker(star, SINK, Vec::new())?,
            other: speaker(star, OTHER, other)?,
        };
        scene.wait_right(expected)?;
        println!("{expected} routes in the kernel and at the sink after {}", seconds(start));
        Ok(scene)
    }

    /// Waits until every process says that nothing is left to do and the sink has so many routes.
    fn wait_right(&self, routes: usize) -> Result<()> {
        let right = || {
            let status = self.rib_status().map_err(|error| format!("{error:#}"))?;
            let origins = status["origins"].as_array().ok_or("no origins")?;
            let synced =
                |name| origins.iter().any(|origin| origin["name"] == name && origin["synced"] == true);
            let pending =
                status["pending"].as_u64().or_else(|| status["pending"].as_str()?.parse().ok()).unwrap_or(0);
            let at_sink = self.sink.status().routes;
            if synced("bgp") && status["fea_synced"] == true && pending == 0 && at_sink == routes {
                return Ok(());
            }
            Err(format!("{at_sink} routes at the sink; {status}"))
        };
        wait::until("the right state", LIMIT, right).with_context(|| self.router.log_tail())
    }

    fn rib_status(&self) -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.router.cli(&["call", "rib/rib.v1/ShowStatus", "--json"])?)?)
    }

    /// What is in the kernel: prefix and the neighbour's network.
    fn kernel(&self) -> Result<BTreeMap<Prefix, u8>> {
        let mut routes = kernel::routes(&self.star.router, false)?;
        routes.append(&mut kernel::routes(&self.star.router, true)?);
        let network = |(prefix, line): (Prefix, String)| {
            let through = |network: &u8| {
                line.contains(&format!("via {} ", v4(*network, Side::Second)))
                    || line.contains(&format!("via {} ", v6(*network, Side::Second)))
            };
            let network = [FEEDER, SINK, OTHER].into_iter().find(through);
            Ok((prefix, network.with_context(|| format!("{prefix} leads elsewhere: {line}"))?))
        };
        routes.into_iter().map(network).collect()
    }

    /// Waits until exactly these are in the kernel: the rib takes away what is stale piece by piece.
    fn wait_kernel(&self, through_feeder: &BTreeSet<Prefix>, through_other: &BTreeSet<Prefix>) -> Result<()> {
        let of = |routes: &BTreeSet<Prefix>, network| {
            routes.iter().map(move |prefix| (*prefix, network)).collect()
        };
        let mut expected: BTreeMap<Prefix, u8> = of(through_feeder, FEEDER);
        expected.append(&mut of(through_other, OTHER));
        wait::until("the kernel's routes", LIMIT, || {
            let found = self.kernel().map_err(|error| format!("{error:#}"))?;
            if found == expected { Ok(()) } else { Err(difference(&found, &expected)) }
        })
        .with_context(|| self.router.log_tail())
    }

    /// Kills processes and waits until others run in their place.
    fn kill(&self, victims: &[&str]) -> Result<()> {
        let pids = victims.iter().map(|name| self.router.pid(name)).collect::<Result<Vec<_>>>()?;
        // All at the same moment, even when the manager is among them.
        for pid in &pids {
            rustix::process::kill_process(*pid, rustix::process::Signal::KILL)?;
        }
        for (name, pid) in victims.iter().zip(pids) {
            wait::until(name, LIMIT, || match self.router.pid(name) {
                Ok(new) if new != pid => Ok(()),
                Ok(_) => Err("the old one".to_owned()),
                Err(error) => Err(format!("{error:#}")),
            })?;
        }
        self.router.wait_running()
    }
}

fn difference<V: PartialEq + std::fmt::Debug>(
    found: &BTreeMap<Prefix, V>,
    expected: &BTreeMap<Prefix, V>,
) -> String {
    let wrong = |(prefix, value): &(&Prefix, &V)| expected.get(prefix) != Some(value);
    let missing: Vec<_> = expected.keys().filter(|prefix| !found.contains_key(prefix)).collect();
    let wrong: Vec<_> = found.iter().filter(wrong).collect();
    let few = |count: usize| 5.min(count);
    format!(
        "{} missing, as {:?}; {} wrong, as {:?}",
        missing.len(),
        &missing[..few(missing.len())],
        wrong.len(),
        &wrong[..few(wrong.len())]
    )
}

fn seconds(since: Instant) -> String {
    format!("{:.1} s", since.elapsed().as_secs_f32())
}

/// An address behind a route of the table, at the feeder; packets find their way there and back.
fn destination(star: &Star, tables: &[Arc<Table>]) -> Result<SocketAddr> {
    let routes = tables.iter().flat_map(|table| &table.routes).map(|(prefix, _)| *prefix);
    let found = routes.filter(|prefix| prefix.length() == 24).find_map(|prefix| match prefix.address() {
        IpAddr::V4(network) => Some(Ipv4Addr::from_bits(network.to_bits() + 1)),
        IpAddr::V6(_) => None,
    });
    let address = found.context("no /24 in the table")?;
    star.router.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))??;
    star.neighbor(FEEDER).ip(&["address", "add", &format!("{address}/32"), "dev", "lo"])?;
    for network in [FEEDER, SINK] {
        let gateway = v4(network, Side::First).to_string();
        star.neighbor(network).ip(&["route", "add", "default", "via", &gateway])?;
    }
    Ok(SocketAddr::new(address.into(), 7500))
}

#[test]
fn a_whole_table_survives_the_death_of_every_process() -> Result<()> {
    let tables = whole_internet()?;
    let expected = prefixes(&tables);
    let star = Star::new(3)?;
    let scene = Scene::start(&star, "", "", tables.clone(), Vec::new())?;
    scene.wait_kernel(&expected, &BTreeSet::new())?;
    let destination = destination(&star, &tables)?;
    let drills: [&[&str]; 8] = [
        &["fea"],
        &["rib"],
        &["transport"],
        &["bgp"],
        &["manager"],
        &["rib", "bgp"],
        &["transport", "bgp"],
        &["manager", "bgp"],
    ];
    for round in 1..=rounds() {
        for victims in drills {
            let (back, right) = drill(&scene, victims, &expected, destination)
                .with_context(|| format!("round {round}, kill -9 of {victims:?}"))?;
            println!(
                "round {round}: kill -9 of {}: back after {back}, all right after {right}",
                victims.join(" and ")
            );
        }
    }
    Ok(())
}

fn drill(
    scene: &Scene<'_>,
    victims: &[&str],
    expected: &BTreeSet<Prefix>,
    destination: SocketAddr,
) -> Result<(String, String)> {
    let star = scene.star;
    let monitor = Monitor::start(&star.router)?;
    let traffic = Traffic::start(star.neighbor(SINK), star.neighbor(FEEDER), destination)?;
    let before = scene.sink.status();
    let start = Instant::now();
    scene.kill(victims)?;
    let back = seconds(start);
    scene.wait_right(expected.len())?;
    let right = seconds(start);
    scene.wait_kernel(expected, &BTreeSet::new())?;
    let count = traffic.end();
    ensure!(count.sent > 0 && count.received == count.sent, "not all packets were forwarded: {count:?}");
    let deletions = monitor.deletions()?;
    ensure!(deletions.is_empty(), "{} deletions, as {:?}", deletions.len(), deletions.first());
    let after = scene.sink.status();
    let sessions =
        |status: &holdfast_lab::speaker::Status| (status.sessions, status.withdrawn, status.announced);
    ensure!(sessions(&after) == sessions(&before), "a peer noticed: {before:?}, {after:?}");
    ensure!(scene.sink.routes().keys().eq(expected), "the sink has other routes than before");
    Ok((back, right))
}

#[test]
fn what_changes_while_bgp_is_dead_is_changed_in_the_kernel_and_nothing_else() -> Result<()> {
    let (stays, goes, moves) = (small(0), small(1), small(2));
    let star = Star::new(3)?;
    let all = vec![Arc::clone(&stays), Arc::clone(&goes), Arc::clone(&moves)];
    let scene = Scene::start(&star, "", "nonstop = false", all, Vec::new())?;
    let monitor = Monitor::start(&star.router)?;
    // Deaths in quick succession, and one after which nobody starts another for as long as something changes.
    for _ in 1..if rounds() > 1 { 20 } else { 6 } {
        scene.kill(&["bgp"])?;
    }
    scene.wait_right(3 * stays.routes.len())?;
    let [manager, bgp] = ["manager", "bgp"].map(|name| scene.router.pid(name));
    let (manager, bgp) = (manager?, bgp?);
    rustix::process::kill_process(manager, rustix::process::Signal::STOP)?;
    rustix::process::kill_process(bgp, rustix::process::Signal::KILL)?;
    scene.feeder.wait_down(LIMIT)?;
    scene.feeder.withdraw(Arc::clone(&goes));
    scene.feeder.withdraw(Arc::clone(&moves));
    scene.other.announce(Arc::clone(&moves));
    rustix::process::kill_process(manager, rustix::process::Signal::CONT)?;
    scene.wait_right(stays.routes.len() + moves.routes.len())?;
    scene.wait_kernel(&prefixes([&stays]), &prefixes([&moves]))?;
    let gone = prefixes([&goes]);
    let mut deleted = BTreeSet::new();
    for line in monitor.deletions()?.iter().filter(|line| !line.contains(" id ")) {
        let prefix = line.split(' ').find_map(|word| word.parse::<Prefix>().ok());
        deleted.insert(prefix.with_context(|| format!("no prefix in {line}"))?);
    }
    ensure!(deleted == gone, "{} deleted instead of {}: {deleted:?}", deleted.len(), gone.len());
    Ok(())
}

#[test]
fn nothing_outlives_the_keeper_and_the_next_router_takes_over_its_routes() -> Result<()> {
    let (stays, goes) = (small(0), small(1));
    let star = Star::new(3)?;
    let scene = Scene::start(&star, "", "", vec![Arc::clone(&stays), Arc::clone(&goes)], Vec::new())?;
    let names = ["manager", "fea", "rib", "transport", "bgp"];
    let pids = names.iter().map(|name| scene.router.pid(name)).collect::<Result<Vec<_>>>()?;
    let monitor = Monitor::start(&star.router)?;
    scene.router.kill("keeper")?;
    for (name, pid) in names.iter().zip(pids) {
        wait::until(name, LIMIT, || match rustix::process::test_kill_process(pid) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            result => Err(format!("{pid:?} still lives: {result:?}")),
        })?;
    }
    scene.feeder.wait_down(LIMIT)?;
    ensure!(scene.kernel()?.len() == 512, "the kernel forwards as before");
    ensure!(monitor.deletions()?.is_empty(), "nobody has touched its routes");

    let Scene { feeder, sink, other, router, .. } = scene;
    drop(router);
    feeder.withdraw(goes);
    let monitor = Monitor::start(&star.router)?;
    let router = Router::start(&star.router, &configuration("", ""))?;
    let scene = Scene { star: &star, router, feeder, sink, other };
    scene.wait_right(256)?;
    scene.wait_kernel(&prefixes([&stays]), &BTreeSet::new())?;
    let deleted = monitor.deletions()?;
    let kept = prefixes([&stays]);
    let wrong =
        |line: &&String| line.split(' ').any(|word| word.parse().is_ok_and(|prefix| kept.contains(&prefix)));
    ensure!(!deleted.iter().any(|line| wrong(&line)), "a route that stays was deleted: {deleted:?}");
    Ok(())
}

/// The NOTIFICATION that ended a speaker's session.
fn goodbye(speaker: &Speaker) -> Result<Notification> {
    speaker.wait_down(LIMIT)?;
    let status = speaker.status();
    status.notification.with_context(|| format!("no NOTIFICATION: {:?}", status.ended))
}

#[test]
fn an_orderly_stop_says_goodbye_and_leaves_nothing() -> Result<()> {
    let star = Star::new(3)?;
    let Scene { router, feeder, sink, other, .. } = Scene::start(&star, "", "", vec![small(0)], Vec::new())?;
    router.stop()?;
    for speaker in [&feeder, &sink, &other] {
        let notification = goodbye(speaker)?;
        // RFC 4486: Cease, Administrative Shutdown.
        ensure!((notification.code, notification.subcode) == (6, 2), "{notification:?}");
    }
    ensure!(kernel::routes(&star.router, false)?.is_empty(), "routes are left");
    let objects = star.router.ip(&["nexthop", "show", "proto", kernel::PROTOCOL])?;
    ensure!(objects.is_empty(), "next hops are left: {objects}");
    Ok(())
}

#[test]
fn routes_that_are_kept_over_a_stop_are_taken_over_by_the_next_router() -> Result<()> {
    let star = Star::new(3)?;
    let kept = small(0);
    let scene = Scene::start(&star, "keep-routes = true", "", vec![Arc::clone(&kept)], Vec::new())?;
    let monitor = Monitor::start(&star.router)?;
    let Scene { router, feeder, sink, other, .. } = scene;
    router.stop()?;
    ensure!(goodbye(&feeder)?.code == 6, "a goodbye all the same");
    ensure!(kernel::routes(&star.router, false)?.len() == 256, "they stay");
    let router = Router::start(&star.router, &configuration("keep-routes = true", ""))?;
    let scene = Scene { star: &star, router, feeder, sink, other };
    scene.wait_right(256)?;
    scene.wait_kernel(&prefixes([&kept]), &BTreeSet::new())?;
    let deletions = monitor.deletions()?;
    ensure!(deletions.is_empty(), "{deletions:?}");
    Ok(())
}
