//! The second program: stages that rewrite, in all slots at once, between two BIRDs.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use holdfast_lab::{peers::Bird, router::Router, topology::Star, wait};
use serde_json::{Value, json};

use crate::{LIMIT, ROUTER};

const PEERS: &str = r#"
[[bgp.peer]]
name = "first"
address = "10.0.1.2"
asn = 65001
import = "accept-all"
export = "accept-all"
[[bgp.peer]]
name = "second"
address = "10.0.2.2"
asn = 65002
import = "accept-all"
export = "accept-all"
"#;

const THEIRS: &str = "198.51.100.0/24";
const NEXT: &str = "203.0.113.0/24";

/// BIRD with one route of its own, and what `routes.conf` adds; what it hears it keeps.
fn bird(star: &Star, n: u8, routes: &str) -> Result<Bird> {
    let configuration = format!(
        r#"
router id 10.0.{n}.2;
protocol device {{ scan time 1; }}
protocol static {{ ipv4;
include "routes.conf";
}}
protocol bgp holdfast {{
  local 10.0.{n}.2 as {asn};
  neighbor 10.0.{n}.1 as 65000;
  debug {{ events }};
  hold time 9;
  connect retry time 1;
  connect delay time 1;
  ipv4 {{ import all; export where source = RTS_STATIC; }};
}}
"#,
        asn = 65000 + u32::from(n)
    );
    Bird::start_with(star.neighbor(n), &configuration, &[("routes.conf", routes)])
}

fn blackhole(prefix: &str) -> String {
    format!("route {prefix} blackhole;")
}

fn start(star: &Star, configuration: &str, environment: &[(&str, &str)]) -> Result<Router> {
    let program = Path::new(env!("CARGO_BIN_EXE_marks"));
    Router::start_program(program, &star.router, configuration, environment)
}

/// Waits until a BIRD has a route with these marks; `None`: until it has none.
fn until_marked(router: &Router, bird: &Bird, prefix: &str, marks: Option<&str>) -> Result<()> {
    wait::until(prefix, LIMIT, || {
        let shown = bird.birdc(&format!("show route {prefix} all")).unwrap_or_default();
        let found = shown.lines().find_map(|line| line.trim().strip_prefix("BGP.community: "));
        match marks {
            Some(marks) if found == Some(marks) => Ok(()),
            None if !shown.contains(prefix) => Ok(()),
            _ => Err(shown),
        }
    })
    .with_context(|| router.log_tail())
}

/// Waits until the RIB has a route with this tag.
fn until_tagged(router: &Router, prefix: &str, tag: u32) -> Result<()> {
    wait::until(prefix, LIMIT, || {
        let shown = router.show(&["route", prefix]).map_err(|error| format!("{error:#}"))?;
        let has_it = |route: &Value| route["tag"].as_u64().unwrap_or(0) == u64::from(tag);
        match shown[prefix].as_array().is_some_and(|routes| routes.iter().any(has_it)) {
            true => Ok(()),
            false => Err(shown.to_string()),
        }
    })
    .with_context(|| router.log_tail())
}

/// A metric of `bgp`.
fn metric(router: &Router, name: &str) -> Result<String, String> {
    let said = router.cli(&["call", "bgp/metrics.v1/Collect"]).map_err(|error| format!("{error:#}"))?;
    let lines = said.lines().filter_map(|line| line.trim().strip_prefix("families:json="));
    let families = lines.filter_map(|line| serde_json::from_str::<Vec<Value>>(line).ok()).flatten();
    let family = families.into_iter().find(|family| family["name"] == name).ok_or(said.clone())?;
    Ok(family["samples"][0]["integer"].to_string())
}

/// Waits until the check has the whole table, or is off.
fn until_checked(router: &Router, wanted: &str) -> Result<()> {
    wait::until("the check", LIMIT, || match metric(router, "holdfast_bgp_consistency_checked")? {
        value if value == wanted => Ok(()),
        value => Err(value),
    })
    .with_context(|| router.log_tail())
}

const MARKED: &str = "(64900,1) (64900,2) (64900,3)";

#[test]
fn a_route_is_marked_in_each_slot_and_a_check_of_the_running_router_finds_no_fault() -> Result<()> {
    let star = Star::new(2)?;
    let configuration = [ROUTER, PEERS].concat();
    let router = start(&star, &configuration, &[])?;
    let (first, second) = (bird(&star, 1, &blackhole(THEIRS))?, bird(&star, 2, "")?);
    until_marked(&router, &second, THEIRS, Some(MARKED))?;
    until_tagged(&router, THEIRS, 3)?;

    // What was there before the check is taken over; what changes from then on is checked.
    let checked = configuration.replace("connect-retry = 1", "connect-retry = 1\nconsistency-check = true");
    ensure!(checked != configuration);
    let said = router.reload_with_files(&checked, &Default::default())?;
    ensure!(!said.contains("session"), "{said}");
    until_checked(&router, "1")?;
    first.reconfigure("routes.conf", &blackhole(NEXT))?;
    until_marked(&router, &second, THEIRS, None)?;
    until_marked(&router, &second, NEXT, Some(MARKED))?;
    until_tagged(&router, NEXT, 3)?;
    // With the next process the check begins anew, and the sessions go on.
    router.kill("bgp")?;
    router.wait_running()?;
    until_checked(&router, "1")?;
    first.reconfigure("routes.conf", &[blackhole(NEXT), blackhole(THEIRS)].concat())?;
    until_marked(&router, &second, THEIRS, Some(MARKED))?;
    until_marked(&router, &second, NEXT, Some(MARKED))?;
    let found = metric(&router, "holdfast_bgp_consistency_violations").map_err(anyhow::Error::msg)?;
    ensure!(found == "0", "{found}");
    router.reload_with_files(&configuration, &Default::default())?;
    until_checked(&router, "0")?;
    first.reconfigure("routes.conf", "")?;
    until_marked(&router, &second, THEIRS, None)?;
    for bird in [&first, &second] {
        ensure!(bird.sessions()? == 1, "a session has ended: {}", bird.log());
    }
    ensure!(!router.log().contains("consistency-violated"), "{}", router.log());
    Ok(())
}

/// Waits until the stage is left out and routes pass without its mark, over the sessions that were there.
fn is_left_out(failure: &str, slot: &str, marks: &str, tag: u32) -> Result<()> {
    let star = Star::new(2)?;
    // Nothing is there to fail on before both sessions are up.
    let router = start(&star, &[ROUTER, PEERS].concat(), &[("FAIL", failure), ("FAIL_IN", slot)])?;
    let (first, second) = (bird(&star, 1, "")?, bird(&star, 2, "")?);
    router.until_established("first", LIMIT)?;
    router.until_established("second", LIMIT)?;
    first.reconfigure("routes.conf", &blackhole(THEIRS))?;
    until_marked(&router, &second, THEIRS, Some(marks))?;
    until_tagged(&router, THEIRS, tag)?;
    let bgp = router.show(&["processes"])?["bgp"].clone();
    let name = format!("Marks {slot}");
    ensure!(bgp["quarantined"] == json!([name]) && bgp["restarts"] == 3, "{bgp}");
    let hung = if failure == "hang" { 3 } else { 0 };
    ensure!(bgp["hung"] == hung, "{bgp}");
    ensure!(!router.log().contains("process-busy"), "what walks one page finishes nothing: {}", router.log());
    for bird in [&first, &second] {
        ensure!(bird.sessions()? == 1, "a session has ended: {}", bird.log());
    }
    Ok(())
}

#[test]
fn a_stage_that_panics_before_import_is_left_out_and_no_session_ends() -> Result<()> {
    is_left_out("panic", "before-import", "(64900,2) (64900,3)", 2)
}

#[test]
fn a_stage_that_panics_after_import_is_left_out_and_no_session_ends() -> Result<()> {
    is_left_out("panic", "after-import", "(64900,1) (64900,3)", 2)
}

#[test]
fn a_stage_that_panics_before_export_is_left_out_and_no_session_ends() -> Result<()> {
    is_left_out("panic", "before-export", "(64900,1) (64900,2)", 3)
}

#[test]
fn a_stage_that_panics_before_the_rib_is_left_out_and_no_session_ends() -> Result<()> {
    is_left_out("panic", "before-rib", MARKED, 0)
}

/// The keeper kills a process whose loop does not turn; which stage it was in is known all the same.
#[test]
fn a_stage_that_hangs_is_left_out_after_three_deaths_and_no_session_ends() -> Result<()> {
    is_left_out("hang", "before-export", "(64900,1) (64900,2)", 3)
}
