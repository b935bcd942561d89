//! The death of the whole router: whoever is started next goes on with its sessions, from the store alone.

use std::thread;

use anyhow::{Result, ensure};
use holdfast_lab::{
    drill::{stock, time::now},
    netns::output,
    replication::{
        scene::{LIMIT, OTHERS, Scene, Set},
        stock::{Special, Stock},
    },
    wait,
};

use super::SECOND;

/// A router dies three times under changes both ways, with all its processes, and is started again in the same place.
fn the_router_dies(peers: stock::Kind, specials: &[Special]) -> Result<()> {
    let mut scene = Scene::open(&Set { peers, specials, routes: 2000, ..Set::default() })?;
    scene.until_gated()?;
    let mut version = scene.churn(SECOND, 0)?;
    for round in 0..3 {
        scene.router.die()?;
        version += 1;
        scene.change(version)?;
        scene.announce(201 + round);
        scene.router.begin_again(&scene.host)?;
        version = scene.churn(SECOND, version)?;
    }
    scene.settle(version)?;
    scene.until_told(250)?;
    let shown = scene.until_protected("full", LIMIT)?;
    ensure!(shown.contains("restored:u32"), "{shown}");
    scene.ensure_replicated(&[(scene.gated, now())])?;
    scene.ensure_quiet()
}

/// What a peer does while no router is there.
enum End {
    /// Its process dies: FIN.
    Fin,
    /// Its kernel forgets the connection: RST.
    Reset,
    /// It ends the session in order: NOTIFICATION and FIN.
    Notification,
}

/// A session that its peer has ended meanwhile begins anew, and the one beside it goes on.
fn a_peer_ends_meanwhile(end: End) -> Result<()> {
    let specials = &[Special::Waits, Special::Md5];
    let mut scene = Scene::open(&Set { specials, routes: 2000, ..Set::default() })?;
    scene.until_gated()?;
    let version = scene.churn(SECOND, 0)?;
    scene.settle(version)?;
    scene.router.die()?;
    let victim = &mut scene.stocks[0];
    match end {
        End::Fin => {
            victim.kill()?;
            victim.start_again()?;
        }
        End::Reset => {
            let mut forget = victim.host.command("ss");
            output(forget.args(["-K", "state", "established", "( dport = :179 or sport = :179 )"]))?;
        }
        End::Notification => victim.restart()?,
    }
    scene.router.begin_again(&scene.host)?;
    let version = scene.churn(SECOND, version)?;
    scene.settle(version)?;
    scene.until_told(250)?;
    scene.until_protected("full", LIMIT)?;
    let log = scene.router.log();
    let has_ended = ["session-down", "session-given-up"].iter().any(|event| log.contains(event));
    ensure!(has_ended, "nobody has noticed: {log}");
    scene.stocks[1].ensure_quiet()
}

#[test]
fn a_peer_that_dies_while_no_router_is_there_begins_anew() -> Result<()> {
    a_peer_ends_meanwhile(End::Fin)
}

#[test]
fn a_connection_that_is_reset_while_no_router_is_there_begins_anew() -> Result<()> {
    a_peer_ends_meanwhile(End::Reset)
}

#[test]
fn a_session_that_is_ended_while_no_router_is_there_begins_anew() -> Result<()> {
    a_peer_ends_meanwhile(End::Notification)
}

/// An outage that is longer than the hold time ends all sessions, at both sides, and they come back.
#[test]
fn sessions_whose_hold_time_is_over_while_no_router_is_there_begin_anew() -> Result<()> {
    const HOLD_TIME: u32 = 3;
    let set = Set { specials: &[Special::Waits, Special::Dials], hold_time: HOLD_TIME, ..Set::default() };
    let mut scene = Scene::open(&set)?;
    scene.until_gated()?;
    scene.router.die()?;
    thread::sleep(SECOND * (HOLD_TIME + 1));
    scene.router.begin_again(&scene.host)?;
    wait::until("sessions that began anew", LIMIT, || {
        let counts: Result<Vec<usize>> = scene.stocks.iter().map(Stock::sessions).collect();
        match counts {
            Ok(counts) if counts == [2, 2] => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })?;
    let version = scene.churn(SECOND, 0)?;
    scene.settle(version)?;
    scene.until_told(u64::from(OTHERS))?;
    scene.until_protected("full", LIMIT).map(drop)
}

#[test]
fn sessions_with_frr_outlive_all_processes_of_the_router() -> Result<()> {
    the_router_dies(stock::Kind::Frr, &[Special::Md5, Special::V6])
}

#[test]
fn sessions_with_bird_outlive_all_processes_of_the_router() -> Result<()> {
    the_router_dies(stock::Kind::Bird, &[Special::Waits, Special::Dials, Special::Md5])
}
