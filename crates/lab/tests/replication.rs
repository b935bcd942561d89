//! Nothing is acknowledged that is not replicated, and nothing is said: a whole router with its store, judged by what came to
//! its peers, against what the store had confirmed by then.

mod commits;
mod containers;
mod deaths;
mod drills;
mod peers;
mod stores;
mod ways;

use std::{thread, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    drill::time::now,
    replication::{
        scene::{Kind, LIMIT, Scene, counter},
        stock::Special,
    },
    wait,
};
use rustix::process::{Signal, kill_process};

const SECOND: Duration = Duration::from_secs(1);

/// Changes come, nothing leaves that the store does not have, and nobody notices anything. The judge would.
#[test]
fn nothing_leaves_that_the_store_does_not_have() -> Result<()> {
    let scene = Scene::start(Kind::Redis, &[Special::Nothing], "")?;
    let version = scene.churn(2 * SECOND, 0)?;
    scene.settle(version)?;
    scene.until_told(250)?;
    let times = [(scene.gated, now())];
    scene.ensure_replicated(&times)?;
    scene.ensure_quiet()?;
    let shown = scene.until_protected("full", LIMIT)?;
    ensure!(!shown.contains("unprotected"), "{shown}");
    // A store that had confirmed everything a little later.
    let stock = &scene.stocks[0];
    let connection = stock.capture.stream(stock.address)?;
    let verdict = connection.judge(&scene.proxy()?.book(), &times, 300_000)?;
    ensure!(verdict.faults.len() > 1, "the judge sees nothing: {verdict:?}");
    Ok(())
}

#[test]
fn a_slow_store_is_waited_for() -> Result<()> {
    let scene = Scene::start(Kind::Redis, &[Special::Waits], "")?;
    let stock = &scene.stocks[0];
    let mut version = 0;
    scene.proxy()?.delay(Duration::from_millis(20));
    // A busy machine is slow by itself: one second without a time-out is wanted.
    let mut without = false;
    for _ in 0..5 {
        let before = counter(&stock.host, "TCPTimeouts")?;
        version = scene.churn(SECOND, version)?;
        scene.settle(version)?;
        let timeouts = counter(&stock.host, "TCPTimeouts")? - before;
        println!("{timeouts} time-outs at the peer");
        without |= timeouts == 0;
        if without {
            break;
        }
    }
    ensure!(without, "each second a time-out; {}", scene.trouble());
    scene.proxy()?.delay(Duration::from_millis(500));
    version = scene.churn(2 * SECOND, version)?;
    scene.settle(version)?;
    scene.proxy()?.delay(Duration::ZERO);
    scene.until_protected("full", LIMIT)?;
    scene.ensure_replicated(&[(scene.gated, now())])?;
    scene.ensure_quiet()
}

/// While the store is away nothing new is acknowledged; afterwards all goes on.
fn trouble(make: impl FnOnce(&mut Scene) -> Result<()>) -> Result<()> {
    let mut scene = Scene::start(Kind::Redis, &[Special::Waits], "")?;
    let version = scene.churn(SECOND / 2, 0)?;
    make(&mut scene)?;
    let version = scene.churn(SECOND / 2, version + 1)?;
    scene.settle(version)?;
    let shown = scene.until_protected("full", LIMIT)?;
    println!("{shown}");
    ensure!(!shown.contains("gaps:"), "{shown}");
    scene.until_told(250)?;
    scene.ensure_replicated(&[(scene.gated, now())])?;
    scene.ensure_quiet()
}

#[test]
fn a_store_that_stops_for_two_seconds_stops_the_sessions() -> Result<()> {
    trouble(|scene| {
        let pid = scene.redis()?.pid()?;
        kill_process(pid, Signal::STOP)?;
        thread::sleep(Duration::from_millis(50));
        let stopped = now();
        scene.change(1001)?;
        scene.announce(99);
        thread::sleep(2 * SECOND);
        let stock = &scene.stocks[0];
        let shown = scene.show()?;
        let (before, after) = {
            let connection = stock.capture.stream(stock.address)?;
            (connection.acknowledged(stopped), connection.acknowledged(now()))
        };
        kill_process(pid, Signal::CONT)?;
        ensure!(before == after, "{} octets were acknowledged; {}", after - before, scene.trouble());
        ensure!(shown.contains("protection:txt=waiting"), "{shown}");
        Ok(())
    })
}

/// A connection over which nothing comes is given up, and another one tried.
#[test]
fn a_connection_without_answers_is_given_up() -> Result<()> {
    trouble(|scene| {
        scene.proxy()?.deaf();
        scene.change(1001)?;
        thread::sleep(SECOND);
        // Who has connected meanwhile still hears nothing.
        scene.proxy()?.hear();
        Ok(())
    })
}

#[test]
fn without_a_store_for_too_long_sessions_go_on_unprotected() -> Result<()> {
    let scene = Scene::start(Kind::Redis, &[Special::Waits], "store-timeout = 3")?;
    let version = scene.churn(SECOND / 2, 0)?;
    scene.proxy()?.refuse(true);
    scene.change(version + 1)?;
    thread::sleep(2 * SECOND);
    let waited = now();
    let shown = scene.show()?;
    ensure!(shown.contains("protection:txt=waiting"), "{shown}\n{}", scene.router.log_tail());
    scene.until_protected("degraded", 10 * SECOND)?;
    scene.settle(version + 1)?;
    let version = scene.churn(SECOND / 2, version + 1)?;
    scene.settle(version)?;
    scene.proxy()?.refuse(false);
    scene.until_protected("full", LIMIT)?;
    let again = now();
    let version = scene.churn(SECOND, version)?;
    scene.settle(version)?;
    scene.ensure_replicated(&[(scene.gated, waited), (again, now())])?;
    scene.ensure_quiet()
}

/// Whoever steps down says so, and has no sessions before the store is back.
#[test]
fn without_a_store_for_too_long_a_router_steps_down() -> Result<()> {
    let more = "store-timeout = 2\non-store-loss = \"step-down\"";
    let scene = Scene::start(Kind::Redis, &[Special::Nothing], more)?;
    let bird = scene.stocks[0].bird()?;
    let version = scene.churn(SECOND / 2, 0)?;
    scene.settle(version)?;
    scene.proxy()?.refuse(true);
    scene.change(version + 1)?;
    scene.until_protected("stepped-down", 10 * SECOND)?;
    let ended = scene.other.status().notification.context("the other peer was told nothing")?;
    ensure!((ended.code, ended.subcode) == (6, 4), "{ended:?}");
    let log = bird.log();
    ensure!(log.contains("Received: Administrative reset"), "{log}");
    // Both sides would begin another session in the meantime.
    thread::sleep(3 * SECOND);
    let sessions = bird.log().matches("BGP session established").count();
    ensure!(sessions == 1, "{sessions} sessions: {}", bird.log());
    let shown = scene.router.cli(&["show", "nsr"])?;
    ensure!(shown.contains("protection stepped-down"), "{shown}");
    scene.proxy()?.refuse(false);
    wait::until("another session", LIMIT, || match bird.sessions() {
        Ok(2) => Ok(()),
        other => Err(format!("{other:?}: {}", scene.trouble())),
    })?;
    scene.router.until_established("stock1", LIMIT)?;
    wait::until("protection", LIMIT, || {
        let shown = scene.show().map_err(|error| error.to_string())?;
        let is_gated = shown.contains("\"gate\":\"gated\"") && shown.contains("protection:txt=full");
        if is_gated { Ok(()) } else { Err(shown) }
    })
}

#[test]
fn the_death_of_bgp_ends_no_session() -> Result<()> {
    let scene = Scene::start(Kind::Redis, &[Special::Waits], "")?;
    let mut version = 0;
    for _ in 0..2 {
        version = scene.churn(SECOND / 2, version)?;
        scene.router.kill("bgp")?;
        version = scene.churn(SECOND / 2, version)?;
        scene.settle(version)?;
        scene.router.wait_running()?;
        scene.until_protected("full", LIMIT)?;
    }
    version = scene.churn(SECOND / 2, version)?;
    scene.settle(version)?;
    scene.ensure_replicated(&[(scene.gated, now())])?;
    scene.ensure_quiet()
}

/// While `bgp` is dead or stands still, what comes is copied from its sockets.
#[test]
fn a_bgp_that_stands_still_is_acknowledged_for() -> Result<()> {
    let scene = Scene::start(Kind::Redis, &[Special::Waits], "")?;
    let stock = &scene.stocks[0];
    let version = scene.churn(SECOND / 2, 0)?;
    scene.settle(version)?;
    let bgp = scene.router.pid("bgp")?;
    kill_process(bgp, Signal::STOP)?;
    let stopped = now();
    let version = scene.churn(2 * SECOND, version)?;
    let (then, later) = {
        let connection = stock.capture.stream(stock.address)?;
        (connection.acknowledged(stopped), connection.acknowledged(now()))
    };
    kill_process(bgp, Signal::CONT)?;
    scene.settle(version)?;
    scene.until_protected("full", LIMIT)?;
    scene.ensure_replicated(&[(scene.gated, now())])?;
    scene.ensure_quiet()?;
    let mut waits = stock.capture.stream(stock.address)?.waits((stopped, now()));
    waits.sort_unstable();
    println!("acknowledged after ms: {waits:?}");
    let middle = waits.get(waits.len() / 2);
    // Less than a peer waits before it sends again (200 ms).
    ensure!(later > then && middle.is_some_and(|middle| *middle < 200), "{waits:?}\n{}", scene.trouble());
    Ok(())
}

/// A new generation that takes many batches counts when it is whole, and not before.
#[test]
fn a_large_copy_counts_when_it_is_whole() -> Result<()> {
    let scene = Scene::start(Kind::Redis, &[Special::Waits], "")?;
    scene.announce_many(400_000);
    scene.until_told(400_000)?;
    scene.until_protected("full", LIMIT)?;
    scene.proxy()?.pause(Duration::from_millis(300));
    scene.redis_cli(&["FLUSHALL"])?;
    let version = scene.churn(2 * SECOND, 0)?;
    scene.settle(version)?;
    scene.proxy()?.pause(Duration::ZERO);
    scene.until_protected("full", LIMIT)?;
    scene.ensure_replicated(&[(scene.gated, now())])?;
    scene.ensure_quiet()
}

/// All that can die dies, and the store is slow and forgets, in one run.
#[test]
fn many_troubles_in_a_row_end_no_session() -> Result<()> {
    let rounds = std::env::var("HOLDFAST_DRILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let scene = Scene::start(Kind::Redis, &[Special::Nothing, Special::Md5], "")?;
    scene.proxy()?.delay(Duration::from_millis(20));
    let mut version = 0;
    for round in 0..8 * rounds {
        version = scene.churn(Duration::from_millis(150 + 70 * (round % 5)), version)?;
        println!("round {round}");
        match round % 8 {
            0 => scene.router.kill("replicator")?,
            1 => scene.redis_cli(&["FLUSHALL"]).map(drop)?,
            2 => scene.router.kill("bgp")?,
            3 => scene.proxy()?.cut(),
            4 => scene.router.kill("gate")?,
            5 => {
                scene.router.kill("bgp")?;
                scene.router.kill("replicator")?;
            }
            6 => {
                scene.router.kill("gate")?;
                scene.redis_cli(&["FLUSHALL"])?;
                scene.router.kill("replicator")?;
            }
            _ => {
                scene.redis_cli(&["SCRIPT", "FLUSH"])?;
                scene.router.kill("manager")?;
            }
        }
        version = scene.churn(Duration::from_millis(200), version)?;
        scene.settle(version).with_context(|| format!("round {round}"))?;
        scene.router.wait_running()?;
        scene.until_protected("full", LIMIT).with_context(|| format!("round {round}"))?;
        scene.ensure_quiet().with_context(|| format!("round {round}"))?;
    }
    scene.ensure_replicated(&[(scene.gated, now())])
}

/// Sessions end in order, from either side, and the next ones are protected too.
#[test]
fn sessions_that_end_leave_nothing_behind() -> Result<()> {
    let scene = Scene::start(Kind::Redis, &[Special::Waits], "")?;
    let stock = &scene.stocks[0];
    let again = |sessions: usize| -> Result<()> {
        wait::until("another session", LIMIT, || match stock.sessions() {
            Ok(found) if found == sessions => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .with_context(|| format!("{}\n{}", stock.log(), scene.trouble()))?;
        scene.until_protected("full", LIMIT)?;
        let from = now();
        let version = scene.churn(SECOND / 2, sessions)?;
        scene.settle(version)?;
        thread::sleep(Duration::from_millis(200));
        let mut streams = stock.capture.streams(stock.address);
        ensure!(streams.len() == sessions, "{} connections", streams.len());
        let last = streams.pop().context("the last")?;
        let verdict = last.judge(&scene.proxy()?.book(), &[(from, now())], 0)?;
        ensure!(verdict.judged > 0 && verdict.faults.is_empty(), "{verdict:?}\n{}", scene.trouble());
        for ended in streams {
            ensure!(ended.fins >= 2 || ended.resets > 0, "an end is missing: {} FIN", ended.fins);
        }
        let named = scene.proxy()?.book().named();
        ensure!(named.len() == 2, "the store has {named:?}");
        Ok(())
    };
    stock.restart()?;
    again(2)?;
    scene.router.cli(&["clear", "bgp", "stock1"])?;
    again(3)?;
    let log = stock.log();
    ensure!(log.contains("Received: Administrative reset"), "{log}");
    Ok(())
}

/// An orderly stop says goodbye, even without a store.
#[test]
fn a_stop_is_told_to_the_peers() -> Result<()> {
    for is_away in [false, true] {
        let scene = Scene::start(Kind::Redis, &[Special::Waits], "")?;
        let Scene { stocks, router, proxy, .. } = &scene;
        if is_away {
            proxy.as_ref().context("a proxy")?.refuse(true);
            stocks[0].change(1)?;
            thread::sleep(SECOND / 2);
        }
        let pid = router.pid("keeper")?;
        let start = std::time::Instant::now();
        kill_process(pid, Signal::TERM)?;
        wait::until("the end of the session", LIMIT, || {
            let log = stocks[0].log();
            if log.contains("Received: ") { Ok(()) } else { Err(log) }
        })
        .with_context(|| format!("without a store: {is_away}; {}", router.log_tail()))?;
        println!("without a store: {is_away}: {:?}", start.elapsed());
    }
    Ok(())
}

/// The store is taken out of the configuration and put in again, and a new binary takes over: sessions stay.
#[test]
fn reloads_and_upgrades_end_no_session() -> Result<()> {
    let scene = Scene::start(Kind::Redis, &[Special::Waits], "")?;
    let version = scene.churn(SECOND / 2, 0)?;
    // The same with another name.
    let binary = scene.router.directory().join("another");
    std::fs::copy(holdfast_lab::router::binary()?, &binary)?;
    std::io::Write::write_all(&mut std::fs::OpenOptions::new().append(true).open(&binary)?, b"\n")?;
    let upgrade = scene.router.cli(&["upgrade", "--binary", binary.to_str().context("a path")?]);
    println!("{}", upgrade.with_context(|| scene.trouble())?);
    let version = scene.churn(SECOND / 2, version)?;
    scene.settle(version).context("after the upgrade")?;
    scene.router.wait_running()?;
    scene.until_protected("full", LIMIT).context("after the upgrade")?;
    scene.ensure_replicated(&[(scene.gated, now())])?;
    scene.ensure_quiet()?;
    let with = std::fs::read_to_string(scene.router.configuration())?;
    let begin = with.find("[nonstop.store]").context("a store")?;
    let end = with[begin..].find("[[bgp.peer]]").context("a peer behind it")? + begin;
    let without = [&with[..begin], &with[end..]].concat();
    println!("{}", scene.router.reload_with_files(&without, &Default::default())?);
    let version = scene.churn(SECOND / 2, version)?;
    scene.settle(version).context("without a store")?;
    scene.until_told(250)?;
    scene.ensure_quiet()?;
    println!("{}", scene.router.reload_with_files(&with, &Default::default())?);
    let version = scene.churn(SECOND / 2, version)?;
    scene.settle(version).context("with a store again")?;
    println!("{}", scene.show()?);
    scene.ensure_quiet()
}

fn of_this_host(kind: Kind) -> Result<()> {
    let scene = Scene::start(kind, &[Special::Waits], "")?;
    let version = scene.churn(SECOND, 0)?;
    scene.settle(version)?;
    scene.until_told(250)?;
    scene.until_protected("full", LIMIT)?;
    scene.ensure_quiet()
}

#[test]
fn a_store_in_memory_protects() -> Result<()> {
    of_this_host(Kind::Memory)
}

#[test]
fn a_store_in_files_protects() -> Result<()> {
    of_this_host(Kind::File)
}
