//! A drill of the store and one of the gate: each failure once, and a router that dies as a whole. `make drills` makes 100 of
//! each, under whole tables.

use anyhow::{Result, ensure};
use holdfast_lab::drill::{
    replication::{Failure, Kind, Options, replication},
    standby::{self, standby},
    stock,
};

fn drill(kind: Kind) -> Result<()> {
    let report = replication(
        kind,
        &Options {
            peer: stock::Kind::Bird,
            routes: 20_000,
            rounds: Failure::all(kind).len() as u32,
            only: None,
            stop: 3,
            seed: 1,
            limit: 240,
            late: 0,
            json: false,
        },
    )?;
    println!("{report}");
    ensure!(report.ok, "{report}");
    Ok(())
}

#[test]
fn no_failure_of_the_store_lets_anything_out() -> Result<()> {
    drill(Kind::Store)
}

#[test]
fn no_failure_of_the_gate_lets_anything_out() -> Result<()> {
    drill(Kind::Gate)
}

#[test]
fn sessions_go_on_in_the_next_router_of_a_host() -> Result<()> {
    let report = standby(standby::Kind::Keeper, &standby::Options::short(standby::stock::Kind::Bird))?;
    println!("{report}");
    ensure!(report.ok, "{report}");
    Ok(())
}

#[test]
fn sessions_go_on_in_a_standby_in_another_host() -> Result<()> {
    let short = standby::Options::short(standby::stock::Kind::Bird);
    let options = standby::Options { standby: standby::Standby::Preheated, rounds: 2, ..short };
    let report = standby(standby::Kind::Container, &options)?;
    println!("{report}");
    ensure!(report.ok, "{report}");
    Ok(())
}

fn paused(pause: standby::Pause) -> Result<()> {
    let short = standby::Options::short(standby::stock::Kind::Bird);
    let options =
        standby::Options { standby: standby::Standby::Cold, pause: Some(pause), routes: 1000, ..short };
    let report = standby(standby::Kind::Container, &options)?;
    println!("{report}");
    ensure!(report.ok, "{report}");
    Ok(())
}

#[test]
fn a_router_that_was_stopped_says_nothing_when_it_wakes_up() -> Result<()> {
    paused(standby::Pause::All)
}

#[test]
fn a_gate_that_was_stopped_lets_nothing_go_when_it_wakes_up() -> Result<()> {
    paused(standby::Pause::Gate)
}

#[test]
fn a_replicator_that_was_stopped_has_nobody_say_anything() -> Result<()> {
    paused(standby::Pause::Replicator)
}

/// What was committed runs at the next router, and its sessions go on, whenever the router dies.
#[test]
fn a_router_that_dies_in_the_middle_of_a_commit_loses_neither_it_nor_a_session() -> Result<()> {
    let short = standby::Options::short(standby::stock::Kind::Bird);
    let waits = standby::Standby::Cold;
    let options = standby::Options { standby: waits, routes: 1000, rounds: 3, commit: true, ..short };
    let report = standby(standby::Kind::Keeper, &options)?;
    println!("{report}");
    ensure!(report.ok, "{report}");
    Ok(())
}

/// The judge is judged: sessions that nobody can go on with end, and the drill says so.
#[test]
fn sessions_that_the_store_has_forgotten_are_seen_to_end() -> Result<()> {
    let short = standby::Options::short(standby::stock::Kind::Bird);
    let report = standby(standby::Kind::Keeper, &standby::Options { routes: 1000, forget: true, ..short })?;
    ensure!(!report.ok && report.peer_flaps > 0 && report.wire.syn > 0, "{report}");
    Ok(())
}

/// Retransmissions are under way, and frames are lost, doubled and overtaken while the next router takes over.
#[test]
fn sessions_go_on_over_wires_that_lose_double_and_reorder() -> Result<()> {
    let short = standby::Options::short(standby::stock::Kind::Openbgpd);
    let wires = standby::Wires { delay: 50, loss: 1.0, doubled: 0.5, overtaken: 0.5 };
    let report = standby(standby::Kind::Keeper, &standby::Options { routes: 1000, wires, ..short })?;
    println!("{report}");
    ensure!(report.ok && report.frames.is_some_and(|frames| frames.lost > 0), "{report}");
    Ok(())
}

#[test]
fn a_router_that_dies_while_it_takes_over_is_followed_by_a_third_one() -> Result<()> {
    let short = standby::Options::short(standby::stock::Kind::Gobgp);
    let (waits, routes) = (standby::Standby::Cold, 1000);
    let options = standby::Options { standby: waits, routes, again: true, ..short };
    let report = standby(standby::Kind::Container, &options)?;
    println!("{report}");
    ensure!(report.ok && report.deaths == 2, "{report}");
    Ok(())
}
