//! Processes that do not answer are replaced like dead ones, and nobody outside notices.
//!
//! ```text
//!  BIRD ──1── Holdfast ── kernel
//! ```
//!
//! `make drills` (`HOLDFAST_DRILLS`) stops every process in turn, otherwise it is `bgp` and the manager.

use std::{
    fs,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_lab::{
    kernel::{self, Monitor},
    netns::{Namespace, output},
    router::Router,
    speaker::Speaker,
    table::{AttributeSet, Table},
    topology::Star,
    wait,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
const THEIRS: &str = "198.51.100.0/24";
const OURS: &str = "203.0.113.0/24";

const ROUTER: &str = "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[bgp]\nconnect-retry = 1\n\
    [[bgp.peer]]\nname = \"bird\"\naddress = \"10.0.1.2\"\nasn = 65001\nimport = \"accept-all\"\nexport = \"accept-all\"\n";
const NETWORK: &str = "[[bgp.network]]\nprefix = \"203.0.113.0/24\"\n";
/// So that every process runs; the collector and the cache are not there.
const EVERYBODY: &str = "[metrics]\n[glass]\n[[bgp.bmp]]\nname = \"collector\"\naddress = \"10.0.1.2\"\n\
    [[rpki.cache]]\nname = \"cache\"\naddress = \"10.0.1.2\"\n";

fn processes(router: &Router) -> Result<Vec<(String, Value)>> {
    let shown = router.show(&["processes"])?;
    Ok(shown.as_object().context("processes by name")?.clone().into_iter().collect())
}

fn pid(process: &Value) -> Result<Pid> {
    process["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)).with_context(|| process.to_string())
}

/// Stops a process and waits until another runs in its place, which says how the one before ended.
fn stop_until_replaced(router: &Router, name: &str) -> Result<()> {
    let stopped = router.pid(name)?;
    kill_process(stopped, Signal::STOP)?;
    wait::until(name, LIMIT, || {
        let shown = router.show(&["processes"]).map_err(|error| format!("{error:#}"))?;
        let process = &shown[name];
        match pid(process) {
            Ok(pid) if pid != stopped && process["state"] == "running" => Ok(()),
            _ => Err(shown.to_string()),
        }
    })
    .with_context(|| router.log_tail())?;
    let process = &router.show(&["processes"])?[name];
    ensure!(process["last_end"] == "hung" && process["hung"] == 1, "{process}");
    router.wait_running()
}

#[test]
fn a_process_that_is_stopped_is_replaced_and_nobody_notices() -> Result<()> {
    let (victims, more): (&[&str], _) = match std::env::var_os("HOLDFAST_DRILLS") {
        Some(_) => {
            (&["bgp", "fea", "rib", "transport", "rpki", "metrics", "glass", "monitor", "manager"], EVERYBODY)
        }
        None => (&["bgp", "manager"], ""),
    };
    let star = Star::new(1)?;
    let bird = star.bird(1, 65001, &[THEIRS], "hold time 9; debug { events };")?;
    let configuration = [ROUTER, more].concat();
    let router = Router::start(&star.router, &configuration)?;
    let forwards = || -> Result<bool> {
        Ok(kernel::routes(&star.router, false)?.contains_key(&THEIRS.parse().context("a prefix")?))
    };
    wait::until("the neighbour's route in the kernel", LIMIT, || match forwards() {
        Ok(true) => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    ensure!(router.neighbor("bird")?["bgpTimerHoldTimeMsecs"] == 9000, "{}", router.neighbor("bird")?);
    let monitor = Monitor::start(&star.router)?;
    for victim in victims {
        stop_until_replaced(&router, victim)?;
    }
    // What is announced now goes over the session that was there before.
    router.reload_with_files(&[&configuration, NETWORK].concat(), &Default::default())?;
    wait::until("our network at BIRD", LIMIT, || match bird.birdc(&format!("show route {OURS}")) {
        Ok(shown) if shown.contains(OURS) => Ok(()),
        shown => Err(format!("{shown:?}")),
    })
    .with_context(|| router.log_tail())?;
    ensure!(bird.sessions()? == 1, "the session has ended: {}", bird.log());
    ensure!(forwards()?, "the route has gone");
    let deletions = monitor.deletions()?;
    ensure!(deletions.is_empty(), "{deletions:?}");
    Ok(())
}

/// Kills a process and stops its successor before that has registered. The process id of that one.
fn stop_successor(router: &Router, name: &str) -> Result<Pid> {
    let keeper = router.pid("keeper")?.as_raw_nonzero();
    let children = format!("/proc/{keeper}/task/{keeper}/children");
    let is_meant = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|octet| *octet == 0).any(|argument| argument == name.as_bytes())
    };
    let living = || -> Result<Vec<i32>> {
        let children = fs::read_to_string(&children)?;
        Ok(children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(is_meant).collect())
    };
    // It may have been too fast for us.
    for _ in 0..20 {
        let before = router.pid(name)?;
        kill_process(before, Signal::KILL)?;
        let begin = Instant::now();
        let successor = loop {
            let new = living()?.into_iter().find(|pid| *pid != before.as_raw_nonzero().get());
            if let Some(new) = new.and_then(Pid::from_raw) {
                break new;
            }
            ensure!(begin.elapsed() < LIMIT, "no other {name}: {}", router.log_tail());
        };
        kill_process(successor, Signal::STOP)?;
        if router.show(&["processes"])?[name]["state"] == "starting" {
            return Ok(successor);
        }
        kill_process(successor, Signal::CONT)?;
        router.wait_running()?;
    }
    bail!("{name} was always faster")
}

/// A community; an UPDATE with it has `bgp` do what the environment says.
const POISON: u32 = 65001 << 16 | 666;

/// A router that asks for progress eight times a second, and has a session whose peer waits for 12 s. Then an UPDATE comes that
/// harms `bgp`. Which process that is.
fn harmed(star: &Star, harm: &str) -> Result<(Router, Speaker, Pid)> {
    let poison = format!("{harm}:{POISON}");
    let configuration = "[router]\nid = \"10.0.0.1\"\nasn = 65000\nhang-limit = 1\n[bgp]\n[[bgp.peer]]\nname = \"speaker\"\n\
        address = \"10.0.1.2\"\nasn = 65001\npassive = true\nimport = \"accept-all\"\n";
    let router = Router::start_with(&star.router, configuration, &[("HOLDFAST_TEST_POISON", &poison)])?;
    let speaker = star.speaker(1, 65001, |config| config.hold_time = 12)?;
    router.until_established("speaker", LIMIT)?;
    let bgp = router.pid("bgp")?;
    let path = AttributesBuilder { communities: vec![POISON], ..AttributesBuilder::new(Origin::Igp) };
    let table =
        Table { sets: vec![AttributeSet { bytes: path.build() }], routes: vec![(THEIRS.parse()?, 0)] };
    speaker.announce(Arc::new(table));
    Ok((router, speaker, bgp))
}

/// How long the keeper says that it has waited for the first process that it has killed, in seconds.
fn first_silence(router: &Router) -> Result<f32> {
    let log = wait::until("a process that is hung", LIMIT, || match router.log() {
        log if log.contains("event=\"process-hung\"") => Ok(log),
        log => Err(log),
    })?;
    let line = log.lines().find(|line| line.contains("process-hung")).context("the line")?;
    let words: Vec<_> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "for").with_context(|| line.to_owned())?;
    words.get(at + 1).and_then(|seconds| seconds.parse().ok()).with_context(|| line.to_owned())
}

#[test]
fn a_process_that_finishes_work_is_busy_and_has_as_long_as_its_peers_wait() -> Result<()> {
    let star = Star::new(1)?;
    let (router, _speaker, bgp) = harmed(&star, "work")?;
    // After two seconds it would have been killed, if it were hung.
    let shown = wait::until("a busy bgp", LIMIT, || match router.show(&["processes"]) {
        Ok(shown) if shown["bgp"]["busy_ms"].as_u64() >= Some(2_000) => Ok(shown),
        shown => Err(format!("{shown:?}")),
    })
    .with_context(|| router.log_tail())?;
    ensure!(pid(&shown["bgp"])? == bgp && shown["bgp"]["state"] == "running", "{shown}");
    ensure!(router.log().contains("event=\"process-busy\""), "{}", router.log_tail());
    let text = router.cli(&["show", "processes"])?;
    ensure!(text.contains("running, busy for "), "{text}");
    // A third of twelve seconds.
    let silent = first_silence(&router)?;
    ensure!((4.0..6.0).contains(&silent), "{silent} s: {}", router.log_tail());
    Ok(())
}

#[test]
fn a_process_that_only_turns_is_hung_after_the_limit() -> Result<()> {
    let star = Star::new(1)?;
    let (router, _speaker, _) = harmed(&star, "loop")?;
    let silent = first_silence(&router)?;
    ensure!((1.0..2.0).contains(&silent), "{silent} s: {}", router.log_tail());
    ensure!(!router.log().contains("process-busy"), "{}", router.log_tail());
    Ok(())
}

#[test]
fn a_process_that_is_stopped_while_it_starts_is_replaced_as_one_that_runs() -> Result<()> {
    // A birth that is only slow has ten times the limit: more than this test takes.
    const HANG_LIMIT: Duration = Duration::from_secs(5);
    let host = Namespace::new("birth")?;
    let configuration = "[router]\nid = \"10.0.0.1\"\nasn = 65000\nhang-limit = 5\n[bgp]\n";
    let router = Router::start(&host, configuration)?;
    let stopped = stop_successor(&router, "bgp")?;
    let begin = Instant::now();
    wait::until("another bgp", LIMIT, || match router.show(&["processes"]) {
        Ok(shown) if shown["bgp"]["last_end"] == "hung" => Ok(()),
        shown => Err(format!("{shown:?}")),
    })
    .with_context(|| router.log_tail())?;
    let took = begin.elapsed();
    ensure!(took < 4 * HANG_LIMIT, "{took:?}: {}", router.log_tail());
    router.wait_running()?;
    ensure!(router.pid("bgp")? != stopped, "{}", router.log_tail());
    Ok(())
}

#[test]
fn after_a_stop_of_the_whole_router_nobody_is_killed() -> Result<()> {
    let host = Namespace::new("whole")?;
    let router = Router::start(&host, "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[metrics]\n[bgp]\n")?;
    let before = processes(&router)?;
    let keeper = router.pid("keeper")?;
    let others = before.iter().map(|(_, process)| pid(process)).collect::<Result<Vec<_>>>()?;
    let others = || others.iter().filter(|pid| **pid != keeper);
    others().try_for_each(|pid| kill_process(*pid, Signal::STOP))?;
    kill_process(keeper, Signal::STOP)?;
    std::thread::sleep(Duration::from_secs(10));
    kill_process(keeper, Signal::CONT)?;
    others().try_for_each(|pid| kill_process(*pid, Signal::CONT))?;
    // One that hangs from now on is found, and everybody else had as long.
    stop_until_replaced(&router, "rib")?;
    for ((name, before), (_, now)) in before.iter().zip(processes(&router)?) {
        if name != "rib" {
            ensure!(now["pid"] == before["pid"] && now["hung"] == 0, "{name}: {now}; {}", router.log_tail());
        }
    }
    Ok(())
}

#[test]
fn a_limit_of_zero_is_for_debuggers() -> Result<()> {
    const OFF: &str = "[router]\nid = \"10.0.0.1\"\nasn = 65000\nhang-limit = 0\n[bgp]\n";
    let host = Namespace::new("debugger")?;
    let router = Router::start(&host, OFF)?;
    let bgp = router.pid("bgp")?;
    kill_process(bgp, Signal::STOP)?;
    // With a limit, that is how long it would take at most.
    std::thread::sleep(Duration::from_secs(3));
    ensure!(router.pid("bgp")? == bgp, "{}", router.log_tail());
    router.reload_with_files(&OFF.replace("hang-limit = 0", "hang-limit = 1"), &Default::default())?;
    wait::until("another bgp", LIMIT, || match router.pid("bgp") {
        Ok(pid) if pid != bgp => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .with_context(|| router.log_tail())
}

#[test]
fn a_pipe_in_place_of_the_configuration_is_refused_and_hangs_nobody() -> Result<()> {
    let host = Namespace::new("pipe")?;
    let router = Router::start(&host, "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[bgp]\n")?;
    let (file, aside) = (router.configuration(), router.directory().join("aside.toml"));
    fs::rename(&file, &aside)?;
    output(Command::new("mkfifo").arg(&file))?;
    let refused = router.cli(&["reload"]).err().context("it should be refused")?.to_string();
    ensure!(refused.contains("router.toml: it is no regular file"), "{refused}");
    // Nor does a manager wait for it that begins.
    let manager = router.pid("manager")?;
    router.kill("manager")?;
    let why = |line: &str| line.contains("process-failed") && line.contains("it is no regular file");
    wait::until("why there is no manager", LIMIT, || match router.log() {
        log if log.lines().any(why) => Ok(()),
        log => Err(log),
    })?;
    fs::rename(&aside, &file)?;
    router.wait_running()?;
    ensure!(router.pid("manager")? != manager);
    ensure!(router.show(&["processes"])?["manager"]["last_end"] == "exit");
    Ok(())
}
