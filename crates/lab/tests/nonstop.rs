//! `bgp` dies and nobody notices: short forms of the drills, which see `holdfast-lab drill process`.
//!
//! Judged by a stock router, without graceful restart, and by a capture of what was on the wire.

use anyhow::{Result, ensure};
use holdfast_lab::drill::{Failure, Options, process, report::Report, stock::Kind};

fn options(peer: Kind, kind: Failure, kills: u32) -> Options {
    Options { peer, routes: 2000, kills, kind, seed: 1, limit: 300, json: false }
}

fn run(peer: Kind, kind: Failure, kills: u32) -> Result<Report> {
    let report = process(&options(peer, kind, kills))?;
    println!("{report}");
    ensure!(report.ok, "{:#?}", report.faults);
    Ok(report)
}

#[test]
fn bird_does_not_notice_three_deaths() -> Result<()> {
    let report = run(Kind::Bird, Failure::Kill, 3)?;
    ensure!(report.deaths == 3, "{} deaths", report.deaths);
    Ok(())
}

#[test]
fn frr_does_not_notice_two_deaths() -> Result<()> {
    let report = run(Kind::Frr, Failure::Kill, 2)?;
    ensure!(report.deaths == 2, "{} deaths", report.deaths);
    Ok(())
}

#[test]
fn a_pause_ends_no_session() -> Result<()> {
    let report = run(Kind::Bird, Failure::Stop, 1)?;
    ensure!(report.deaths == 0, "{} deaths", report.deaths);
    Ok(())
}

#[test]
fn a_bgp_without_memory_is_replaced_by_one_that_goes_on() -> Result<()> {
    run(Kind::Bird, Failure::Memory, 1).map(drop)
}

#[test]
fn a_poisoned_update_costs_its_own_session_and_no_other() -> Result<()> {
    run(Kind::Bird, Failure::Poison, 1).map(drop)
}

#[test]
fn twenty_deaths_in_ten_seconds_end_no_session() -> Result<()> {
    let report = run(Kind::Bird, Failure::Loop, 20)?;
    ensure!((report.kills, report.deaths) == (20, 20), "{} deaths of {}", report.deaths, report.kills);
    Ok(())
}

#[test]
fn an_update_that_is_never_done_with_costs_its_own_session_and_no_other() -> Result<()> {
    run(Kind::Bird, Failure::Hang, 1).map(drop)
}

#[test]
fn a_full_log_costs_protection_and_no_session() -> Result<()> {
    run(Kind::Bird, Failure::Full, 1).map(drop)
}
