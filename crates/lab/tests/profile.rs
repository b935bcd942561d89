//! Profiling points: the way of a route from the peer's socket into the kernel, as the processes record it.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_lab::{
    kernel,
    router::Router,
    table::{AttributeSet, Table},
    topology::{ROUTER, Star},
    wait,
};
use holdfast_types::{Asn, Prefix};
use serde_json::Value;

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
const POINTS: [&str; 8] =
    ["bgp-in", "bgp-queued", "bgp-sent", "rib-in", "rib-queued", "rib-sent", "fea-in", "kernel"];

/// One route.
fn route(number: u8) -> Arc<Table> {
    let prefix = Prefix::new(Ipv4Addr::new(100, 64, number, 0).into(), 24).expect("a length of IPv4");
    let attributes = AttributesBuilder { as_path: [Asn(7)].into(), ..AttributesBuilder::new(Origin::Igp) };
    Arc::new(Table { sets: vec![AttributeSet { bytes: attributes.build() }], routes: vec![(prefix, 0)] })
}

fn until_kernel(star: &Star, count: usize) -> Result<()> {
    wait::until("the kernel's routes", LIMIT, || {
        let routes = kernel::routes(&star.router, false).map_err(|error| error.to_string())?;
        if routes.len() == count { Ok(()) } else { Err(format!("{}", routes.len())) }
    })
}

fn shown(router: &Router, args: &[&str]) -> Result<Value> {
    Ok(serde_json::from_str(&router.cli(&[&["profile"], args, &["--json"]].concat())?)?)
}

fn column(shown: &Value, key: &str) -> Result<Vec<f64>> {
    let points = shown["points"].as_array().context("points")?;
    points.iter().map(|point| point[key].as_f64().with_context(|| key.to_owned())).collect()
}

#[test]
fn each_route_is_seen_at_all_eight_points_in_their_order() -> Result<()> {
    const ROUTES: u8 = 20;
    let star = Star::new(1)?;
    let router = Router::start(&star.router, &[ROUTER, PEER].concat())?;
    let left = star.speaker(1, 65001, |_| ())?;
    left.announce(route(0));
    until_kernel(&star, 1)?;

    router.cli(&["profile", "on"])?;
    for number in 1..=ROUTES {
        left.announce(route(number));
        until_kernel(&star, 1 + usize::from(number))?;
    }
    left.withdraw(route(1));
    until_kernel(&star, usize::from(ROUTES))?;
    router.cli(&["profile", "off"])?;
    left.announce(route(99));
    until_kernel(&star, 1 + usize::from(ROUTES))?;

    let sums = shown(&router, &["show"])?;
    let names: Vec<_> = sums["points"].as_array().context("points")?.iter().map(|p| &p["name"]).collect();
    ensure!(names == POINTS, "{names:?}");
    ensure!(column(&sums, "routes")?.iter().all(|&routes| routes == f64::from(ROUTES) + 1.0), "{sums}");
    for key in ["averageMsec", "minMsec"] {
        ensure!(
            column(&sums, key)?.is_sorted(),
            "a route is nowhere before it is where it came from: {sums}"
        );
    }
    let kernel = &sums["points"][7];
    ensure!(kernel["averageMsec"].as_f64() < Some(1000.0), "{kernel}");

    let records = router.cli(&["profile", "show", "--records", "--json"])?;
    let records: Vec<Value> = records.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(records.len() == usize::from(ROUTES) + 1, "{}", records.len());
    let gone: Vec<_> = records.iter().filter(|record| record["change"] == "delete").collect();
    ensure!(gone.len() == 1 && gone[0]["prefix"] == "100.64.1.0/24", "{gone:?}");

    router.cli(&["profile", "clear"])?;
    let sums = shown(&router, &["show"])?;
    ensure!(column(&sums, "routes")?.iter().all(|&routes| routes == 0.0), "{sums}");
    Ok(())
}

#[test]
fn points_are_listed_and_switched_by_name() -> Result<()> {
    let star = Star::new(1)?;
    let router = Router::start(&star.router, &[ROUTER, PEER].concat())?;
    router.cli(&["profile", "on", "rib-in", "--capacity", "16"])?;
    let points = shown(&router, &["points"])?;
    let on = points.as_array().context("points")?.iter().filter(|point| point["enabled"] == true);
    ensure!(on.map(|point| &point["name"]).eq(["rib-in"]), "{points}");
    let refused = router.cli(&["profile", "on", "rib-in", "nowhere"]);
    ensure!(
        refused.is_err_and(|error| error.to_string().contains("bgp-in, bgp-queued")),
        "it says which there are"
    );

    // More than there is room for.
    let left = star.speaker(1, 65001, |_| ())?;
    for number in 0..20 {
        left.announce(route(number));
    }
    until_kernel(&star, 20)?;
    let sums = shown(&router, &["show", "--from", "rib-in"])?;
    ensure!(sums["overwritten"] == 4 && sums["points"][0]["routes"] == 16, "{sums}");
    Ok(())
}
