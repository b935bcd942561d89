//! Other peers, and peers that have to wait.

use std::{sync::Arc, thread};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    drill::{stock, time::now},
    replication::{
        scene::{LIMIT, Scene, Set, counter, table_of_paths},
        stock::Special,
    },
    wait,
};
use rustix::process::{Signal, kill_process};

use super::SECOND;

#[test]
fn sessions_with_frr_are_replicated() -> Result<()> {
    let set = Set { peers: stock::Kind::Frr, specials: &[Special::Md5, Special::V6], ..Set::default() };
    let mut scene = Scene::open(&set)?;
    scene.until_gated()?;
    let version = scene.churn(SECOND, 0)?;
    scene.router.kill("replicator")?;
    let version = scene.churn(SECOND, version)?;
    scene.settle(version)?;
    scene.router.kill("bgp")?;
    let version = scene.churn(SECOND, version)?;
    scene.settle(version)?;
    scene.until_told(250)?;
    scene.until_protected("full", LIMIT)?;
    scene.ensure_replicated(&[(scene.gated, now())])?;
    scene.ensure_quiet()
}

/// `bgp` reads nothing for eight seconds while a peer sends 5 MB: they are acknowledged as far as the window reaches, then the
/// window is closed, and probes are answered. The peer's timer for retransmissions never fires. In the end all has come once.
#[test]
fn what_a_peer_sends_while_bgp_reads_nothing_waits_in_the_window() -> Result<()> {
    /// Routes with a path of their own each: about 56 octets in an UPDATE.
    const ROUTES: u32 = 95_000;
    let mut scene = Scene::open(&Set { router: "hang-limit = 0", ..Set::default() })?;
    scene.until_gated()?;
    let version = scene.churn(SECOND / 2, 0)?;
    scene.settle(version)?;
    let address = scene.other_address();
    let stream = || scene.at_other.stream(address);
    let before = stream()?.sent();
    let acknowledged = || stream().map(|stream| stream.acknowledged(now()));
    let counted = || -> Result<[u64; 2]> {
        Ok([counter(&scene.other_host, "TCPTimeouts")?, counter(&scene.host, "TCPToZeroWindowAdv")?])
    };
    let [timeouts, closed] = counted()?;
    let bgp = scene.router.pid("bgp")?;
    kill_process(bgp, Signal::STOP)?;
    let stopped = now();
    scene.other.announce(Arc::new(table_of_paths(ROUTES)));
    thread::sleep(2 * SECOND);
    let full = acknowledged()?;
    thread::sleep(6 * SECOND);
    let (still, woken) = (acknowledged()?, now());
    kill_process(bgp, Signal::CONT)?;
    scene.until_told(u64::from(ROUTES))?;
    scene.until_protected("full", LIMIT)?;
    let [timeouts, closed] = [counted()?[0] - timeouts, counted()?[1] - closed];
    wait::until("all octets", LIMIT, || {
        let stream = stream().map_err(|error| error.to_string())?;
        let (sent, acknowledged) = (stream.sent(), stream.acknowledged(now()));
        if acknowledged == sent as i64 { Ok(()) } else { Err(format!("{acknowledged} of {sent}")) }
    })?;
    let connection = stream()?;
    let sent = connection.sent() - before;
    let probes = connection.closed_windows((stopped, woken));
    println!(
        "{sent} octets; {} acknowledged meanwhile; window closed {closed} times, {probes} segments say so; {timeouts} time-outs",
        full - before as i64
    );
    ensure!(sent > 5_000_000, "{sent} octets");
    ensure!(full > before as i64 && full == still, "{before}, {full}, {still}; {}", scene.trouble());
    // The first says that nothing more may come, the others answer probes.
    ensure!(closed > 0 && probes > 3, "{closed}, {probes}");
    ensure!(timeouts == 0, "{timeouts} time-outs at the peer; {}", scene.trouble());
    let verdict = connection.judge(&*scene.book()?, &[(scene.gated, now())], 0)?;
    ensure!(verdict.faults.is_empty(), "{verdict:?}");
    scene.ensure_replicated(&[(scene.gated, now())])?;
    let shown = scene.router.neighbor("other").context("the peer")?;
    ensure!(shown["connectionsDropped"].as_u64().unwrap_or(0) == 0, "{shown}");
    scene.ensure_quiet()
}
