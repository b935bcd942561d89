//! The examples as the routers that they are, beside BIRD. Needs root.

#[path = "router/marks.rs"]
mod marks;

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    peers::Bird,
    router::Router,
    topology::{ROUTER, Star},
    wait,
};

const LIMIT: Duration = Duration::from_secs(30);
/// How long newcomers wait.
const HOLD: Duration = Duration::from_secs(4);

const PEER: &str = r#"
[[bgp.peer]]
name = "bird"
address = "10.0.1.2"
asn = 65001
import = "accept-all"
"#;

/// BIRD with one route of its own, and what `routes.conf` adds.
const BIRD: &str = r#"
router id 10.0.1.2;
protocol device { scan time 1; }
protocol static {
  ipv4; route 198.51.100.0/24 blackhole;
include "routes.conf";
}
protocol bgp holdfast {
  local 10.0.1.2 as 65001;
  neighbor 10.0.1.1 as 65000;
  connect retry time 1;
  connect delay time 1;
  ipv4 { import none; export where source = RTS_STATIC; };
}
"#;

/// A route as if another AS were its origin.
const NEWCOMER: &str = "route 203.0.113.0/24 blackhole { bgp_path.prepend(64999); };";

/// What the router says of the only path to a prefix.
fn path(router: &Router, prefix: &str) -> Result<serde_json::Value, String> {
    let shown = router.show(&["bgp", "route", prefix]).map_err(|error| error.to_string())?;
    shown["paths"].get(0).cloned().ok_or_else(|| shown.to_string())
}

fn until(router: &Router, prefix: &str, wanted: impl Fn(&serde_json::Value) -> bool) -> Result<()> {
    wait::until(prefix, LIMIT, || {
        let path = path(router, prefix)?;
        if wanted(&path) { Ok(()) } else { Err(path.to_string()) }
    })
    .with_context(|| router.log_tail())
}

#[test]
fn a_route_of_a_new_origin_waits_and_those_of_known_ones_do_not() -> Result<()> {
    let star = Star::new(1)?;
    let program = Path::new(env!("CARGO_BIN_EXE_newcomers"));
    let seconds = HOLD.as_secs().to_string();
    let configuration = [ROUTER, PEER].concat();
    let router = Router::start_program(program, &star.router, &configuration, &[("HOLD_SECONDS", &seconds)])?;
    let bird = Bird::start_with(star.neighbor(1), BIRD, &[("routes.conf", "")])?;
    // Whoever is there at the start is known at once.
    let is_best = |path: &serde_json::Value| path["bestpath"]["overall"] == true;
    until(&router, "198.51.100.0/24", is_best)?;
    std::thread::sleep(HOLD);

    bird.reconfigure("routes.conf", NEWCOMER)?;
    let reason = |path: &serde_json::Value| path["reason"].as_str().unwrap_or_default().to_owned();
    until(&router, "203.0.113.0/24", |path| reason(path).starts_with("AS 64999 is new here (for "))?;
    until(&router, "203.0.113.0/24", is_best)?;

    // It is known from then on, and the others have not noticed anything.
    bird.reconfigure("routes.conf", &NEWCOMER.replace("203.0.113.0/24", "192.0.2.0/24"))?;
    wait::until("192.0.2.0/24", LIMIT, || path(&router, "192.0.2.0/24").map(drop))?;
    let known = path(&router, "192.0.2.0/24").map_err(anyhow::Error::msg)?;
    ensure!(is_best(&known), "{known}");
    ensure!(path(&router, "198.51.100.0/24").is_ok_and(|path| is_best(&path)));
    Ok(())
}

/// To wait for ever is longer than the clock can tell: the stage panics at the first route.
#[test]
fn a_stage_that_panics_is_left_out_after_three_deaths() -> Result<()> {
    let star = Star::new(1)?;
    let program = Path::new(env!("CARGO_BIN_EXE_newcomers"));
    let (configuration, ever) = ([ROUTER, PEER].concat(), u64::MAX.to_string());
    let router = Router::start_program(program, &star.router, &configuration, &[("HOLD_SECONDS", &ever)])?;
    let _bird = Bird::start_with(star.neighbor(1), BIRD, &[("routes.conf", "")])?;
    until(&router, "198.51.100.0/24", |path| path["bestpath"]["overall"] == true)?;
    let bgp = router.show(&["processes"])?["bgp"].clone();
    ensure!(bgp["quarantined"] == serde_json::json!(["Newcomers"]) && bgp["restarts"] == 3, "{bgp}");
    router.kill("bgp")?;
    router.wait_running()?;
    until(&router, "198.51.100.0/24", |path| path["bestpath"]["overall"] == true)?;
    let bgp = router.show(&["processes"])?["bgp"].clone();
    ensure!(bgp["quarantined"] == serde_json::json!(["Newcomers"]) && bgp["restarts"] == 4, "{bgp}");
    Ok(())
}
