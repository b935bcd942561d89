//! Aggregates and default routes of our own, with BIRD in network 1 bringing routes and FRR in network 2 as judge.
//!
//! ```text
//!  BIRD ──1── Holdfast ──2── FRR
//! ```

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_lab::{
    kernel,
    peers::{Bird, Frr},
    router::Router,
    topology::{ROUTER, Star},
    wait,
};

const LIMIT: Duration = Duration::from_secs(30);

const AGGREGATE: &str = "198.18.0.0/15";
const INSIDE: [&str; 2] = ["198.18.7.0/24", "198.19.0.0/16"];
const OUTSIDE: &str = "203.0.113.0/24";
const DEFAULT: &str = "0.0.0.0/0";

fn configuration(summary_only: bool) -> String {
    let policies = "import = \"accept-all\"\nexport = \"accept-all\"\npassive = true\n";
    let peer = |name: &str, network: u8, asn: u32, more: &str| {
        let address = format!("10.0.{network}.2");
        format!("[[bgp.peer]]\nname = \"{name}\"\naddress = \"{address}\"\nasn = {asn}\n{policies}{more}\n")
    };
    let peers = [peer("bird", 1, 65001, ""), peer("frr", 2, 65002, "default-originate = true")].concat();
    format!(
        "{ROUTER}{peers}[[bgp.aggregate]]\nprefix = \"{AGGREGATE}\"\nsummary-only = {summary_only}\npolicy = \"mark\"\n
         [[policy]]\nname = \"mark\"\n[[policy.term]]\nthen = {{ add-communities = [\"65000:18\"], action = \"accept\" }}\n"
    )
}

fn statics(prefixes: &[&str]) -> String {
    let routes: String = prefixes.iter().map(|prefix| format!("route {prefix} blackhole; ")).collect();
    format!("protocol static {{ ipv4; {routes} }}")
}

fn bird(star: &Star) -> Result<Bird> {
    let configuration = "router id 10.0.1.2;
        protocol device { }
        include \"routes.conf\";
        protocol bgp holdfast {
          local 10.0.1.2 as 65001; neighbor 10.0.1.1 as 65000;
          connect delay time 1; connect retry time 1; error wait time 1, 2;
          ipv4 { import all; export all; };
        }";
    let all = [INSIDE[0], INSIDE[1], OUTSIDE];
    Bird::start_with(star.neighbor(1), configuration, &[("routes.conf", &statics(&all))])
}

fn frr(star: &Star) -> Result<Frr> {
    let configuration = "router bgp 65002
         bgp router-id 10.0.2.2
         no bgp ebgp-requires-policy
         neighbor 10.0.2.1 remote-as 65000
         neighbor 10.0.2.1 timers connect 1\n";
    Frr::start(star.neighbor(2), configuration)
}

/// Until FRR has just these routes.
fn until_frr(frr: &Frr, wanted: &[&str]) -> Result<()> {
    wait::until("the routes at FRR", LIMIT, || {
        let shown = frr.vtysh("show bgp ipv4 unicast json").map_err(|error| error.to_string())?;
        let parsed: serde_json::Value = serde_json::from_str(&shown).map_err(|error| error.to_string())?;
        let mut routes: Vec<&str> =
            parsed["routes"].as_object().into_iter().flatten().map(|(prefix, _)| prefix.as_str()).collect();
        let mut wanted = wanted.to_vec();
        routes.sort_unstable();
        wanted.sort_unstable();
        if routes == wanted { Ok(()) } else { Err(shown.clone()) }
    })
}

/// Until the kernel drops what reaches the aggregate, or does not any more.
fn until_kernel(star: &Star, drops: bool) -> Result<()> {
    wait::until("the kernel's route", LIMIT, || {
        let routes = star.router.ip(&["route", "show", "proto", kernel::PROTOCOL]);
        let routes = routes.map_err(|error| error.to_string())?;
        let has = routes.lines().any(|line| line.starts_with(&format!("blackhole {AGGREGATE}")));
        if has == drops { Ok(()) } else { Err(routes) }
    })
}

#[test]
fn a_neighbor_is_told_of_the_aggregate_and_of_a_default_route_as_long_as_each_is_to_be_there() -> Result<()> {
    let star = Star::new(2)?;
    let router = Router::start(&star.router, &configuration(true))?;
    let (bird, frr) = (bird(&star)?, frr(&star)?);
    until_frr(&frr, &[DEFAULT, AGGREGATE, OUTSIDE])?;
    let shown = frr.vtysh(&format!("show bgp ipv4 unicast {AGGREGATE}"))?;
    for wanted in ["aggregated by 65000 10.0.0.1", "atomic-aggregate", "65000:18", "IGP"] {
        ensure!(shown.contains(wanted), "{wanted}: {shown}");
    }
    until_kernel(&star, true)?;
    let inside = star.router.ip(&["route", "show", INSIDE[0]])?;
    ensure!(
        inside.contains("10.0.1.2") || inside.contains("nhid"),
        "what lies inside is forwarded: {inside}"
    );
    let none = star.router.ip(&["route", "show", "default"])?;
    ensure!(none.is_empty(), "the default route is for the neighbour alone: {none}");
    let aggregates = router.show(&["bgp", "aggregates"])?;
    ensure!(aggregates[0]["contributors"] == 2 && aggregates[0]["active"] == true, "{aggregates}");

    std::fs::write(router.configuration(), configuration(false))?;
    router.cli(&["reload"])?;
    until_frr(&frr, &[DEFAULT, AGGREGATE, INSIDE[0], INSIDE[1], OUTSIDE])?;

    // The next process counts the same, and tells nobody.
    router.kill("bgp")?;
    bird.reconfigure("routes.conf", &statics(&[INSIDE[1], OUTSIDE]))?;
    until_frr(&frr, &[DEFAULT, AGGREGATE, INSIDE[1], OUTSIDE])?;
    bird.reconfigure("routes.conf", &statics(&[OUTSIDE]))?;
    until_frr(&frr, &[DEFAULT, OUTSIDE])?;
    until_kernel(&star, false)?;
    let shown: serde_json::Value = serde_json::from_str(&frr.vtysh("show bgp neighbors 10.0.2.1 json")?)?;
    ensure!(shown["10.0.2.1"]["connectionsDropped"] == 0, "{shown}");
    Ok(())
}
