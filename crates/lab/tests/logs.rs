//! The log as others read it: one JSON object a line, with stable fields, and no more lines than somebody can read.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    router::{Files, Router},
    topology::{ROUTER, Star},
    wait,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);
const FLAPPING: &str = r#"
[[bgp.peer]]
name = "guests"
listen-range = "10.0.1.0/24"
asn = 65001
[[bgp.peer]]
name = "right"
address = "10.0.2.2"
asn = 65002
passive = true
"#;
const LOG: &str = "[log]\nformat = \"json\"\nprocess = { fea = \"error\" }\n";
/// Of a peer, or of the members of a range, as the manual says.
const AT_ONCE: u64 = 20;

fn lines(router: &Router) -> Result<Vec<Value>> {
    router.log().lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

#[test]
fn a_guest_that_flaps_has_few_lines_and_the_others_keep_theirs() -> Result<()> {
    // Unlike a peer with a name, it is not held back longer each time.
    const FLAPS: u64 = 100;
    let star = Star::new(2)?;
    let router = Router::start(&star.router, &[LOG, ROUTER, FLAPPING].concat())?;
    let begin = Instant::now();
    let left = star.speaker(1, 65001, |_| ())?;
    for _ in 0..FLAPS {
        left.wait_established(LIMIT)?;
        left.flap();
    }
    let took = begin.elapsed().as_secs() + 1;
    let _right = star.speaker(2, 65002, |_| ())?;
    router.until_established("right", LIMIT)?;
    let seen = wait::until("a line about the other", LIMIT, || {
        let lines = lines(&router).map_err(|error| format!("{error:#}"))?;
        let is_of = |line: &Value, peer: &str| line["peer"].as_str().is_some_and(|it| it.starts_with(peer));
        let of = |peer: &str| lines.iter().filter(|line| is_of(line, peer)).cloned().collect::<Vec<_>>();
        let right = of("right");
        if right.iter().any(|line| line["event"] == "session-up") {
            Ok(of("guests"))
        } else {
            Err(format!("{right:?}"))
        }
    })?;
    let count = seen.len() as u64;
    // Each second one line of its own, and one that says how many are missing.
    ensure!(count <= AT_ONCE + 2 * took, "{count} lines in {took} s");
    let events = ["session-up", "session-down", "lines-left-out"];
    ensure!(seen.iter().all(|line| events.iter().any(|event| line["event"] == *event)), "{seen:?}");
    let left_out: u64 = seen.iter().filter_map(|line| line["lines"].as_u64()).sum();
    let told = seen.iter().filter(|line| line["event"] != "lines-left-out").count() as u64;
    // Those since the last line are not told yet.
    ensure!(
        told + left_out >= FLAPS && told + left_out <= 2 * FLAPS,
        "{told} and {left_out} of {}",
        2 * FLAPS
    );
    Ok(())
}

#[test]
fn each_line_is_an_object_that_names_its_process_and_a_process_may_be_silent() -> Result<()> {
    let star = Star::new(2)?;
    let router = Router::start(&star.router, &[LOG, ROUTER, FLAPPING].concat())?;
    let guest = star.speaker(1, 65001, |_| ())?;
    guest.wait_established(LIMIT)?;
    let lines = wait::until("a line of the rib", LIMIT, || {
        let lines = lines(&router).map_err(|error| format!("{error:#}"))?;
        let is_there = lines.iter().any(|line| line["span"]["process"] == "rib");
        is_there.then_some(lines).ok_or_else(String::new)
    })?;
    for line in &lines {
        ensure!(line["span"]["process"].is_string() && line["level"].is_string(), "{line}");
        let is_important = ["INFO", "WARN", "ERROR"].iter().any(|level| line["level"] == *level);
        ensure!(!is_important || line["event"].is_string(), "no event: {line}");
    }
    ensure!(lines.iter().all(|line| line["span"]["process"] != "fea"), "the fea was told to say errors only");
    Ok(())
}

/// The level of a process is another one after a reload, in the same process and in the next one of its name.
#[test]
fn a_level_changes_in_processes_that_run() -> Result<()> {
    const DEBUGGING: &str = "[log]\nformat = \"json\"\nprocess = { bgp = \"debug\" }\n";
    let star = Star::new(2)?;
    let router = Router::start(&star.router, &[LOG, ROUTER, FLAPPING].concat())?;
    let pids = || ["keeper", "manager", "rib", "bgp"].map(|name| router.pid(name).ok());
    let before = pids();
    let debugged = |process: &str| {
        let lines = lines(&router).unwrap_or_default();
        lines.iter().filter(|line| line["span"]["process"] == process && line["level"] == "DEBUG").count()
    };
    // A peer that changes is worth a line of debugging.
    let change = |log: &str, number: usize| {
        let changed =
            FLAPPING.replace("passive = true", &format!("passive = true\ndescription = \"{number}\""));
        router.reload_with_files(&[log, ROUTER, &changed].concat(), &Files::new())
    };
    let until_more = |number: usize| {
        let then = debugged("bgp");
        wait::until("a line of debugging", LIMIT, || {
            change(DEBUGGING, number + router.log().len()).map_err(|error| format!("{error:#}"))?;
            if debugged("bgp") > then { Ok(()) } else { Err(router.log_tail()) }
        })
    };
    change(LOG, 1)?;
    ensure!(debugged("bgp") == 0, "{}", router.log_tail());
    let said = change(DEBUGGING, 2)?;
    ensure!(said.contains("[log] changed"), "{said}");
    until_more(3)?;
    ensure!(debugged("rib") == 0 && pids() == before, "{}", router.log_tail());
    router.kill("bgp")?;
    router.wait_running()?;
    until_more(4)?;
    Ok(())
}
