//! `bgp` dies and nobody notices: short forms of the drills, which see `holdfast-lab drill process`.
//!
//! Judged by a stock router, without graceful restart, and by a capture of what was on the wire.

use anyhow::{Result, ensure};
use holdfast_lab::drill::{
    Failure, Options, audit::Audit, bgpsec, process, relay::Tampering, report::Report, stock::Kind,
};

fn options(peer: Kind, kind: Failure, kills: u32) -> Options {
    Options { peer, routes: 2000, kills, kind, seed: 1, limit: 300, tamper: None, json: false }
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

/// A drill in which a relay does this to one announcement of each direction, and one kill follows.
fn tampered(tampering: Tampering) -> Result<Report> {
    let tampered = Options { tamper: Some(tampering), routes: 100, ..options(Kind::Bird, Failure::Kill, 1) };
    let report = process(&tampered)?;
    println!("{report}");
    Ok(report)
}

/// Lost, doubled, reordered, corrupted.
fn counts(audit: &Audit) -> [u64; 4] {
    [audit.lost, audit.doubled, audit.reordered, audit.corrupted]
}

/// The judge must find this, to the stock router and to the feeder, and nothing else of the kind; and so many directions
/// of the tampered session in which the router has counted other UPDATEs.
fn must_find(tampering: Tampering, to_peer: [u64; 4], to_feeder: [u64; 4], miscounts: usize) -> Result<()> {
    let report = tampered(tampering)?;
    let found = [&report.passages.to_peer, &report.passages.to_feeder].map(counts);
    ensure!(!report.ok && found == [to_peer, to_feeder], "{found:?}: {:#?}", report.faults);
    ensure!(report.miscounts.len() == miscounts, "{:#?}", report.miscounts);
    ensure!((report.peer_flaps, report.feeder_flaps) == (0, 0), "a session went down: {:#?}", report.faults);
    Ok(())
}

#[test]
fn a_relay_that_passes_all_on_changes_no_judgement() -> Result<()> {
    let report = tampered(Tampering::Nothing)?;
    ensure!(report.ok && report.deaths == 1, "{:#?}", report.faults);
    Ok(())
}

#[test]
fn the_judge_sees_an_update_that_is_dropped_on_the_wire() -> Result<()> {
    must_find(Tampering::Drop, [1, 0, 0, 0], [1, 0, 0, 0], 2)
}

/// One that comes to the router twice goes on once: the router has counted one more than its peer has sent.
#[test]
fn the_judge_sees_an_update_that_is_doubled_on_the_wire() -> Result<()> {
    must_find(Tampering::Double, [0, 1, 0, 0], [0, 0, 0, 0], 2)
}

#[test]
fn the_judge_sees_two_updates_that_are_swapped_on_the_wire() -> Result<()> {
    must_find(Tampering::Swap, [0, 0, 1, 0], [0, 0, 1, 0], 0)
}

#[test]
fn the_judge_sees_an_update_that_is_corrupted_on_the_wire() -> Result<()> {
    must_find(Tampering::Corrupt, [0, 0, 0, 1], [0, 0, 0, 1], 0)
}

fn deaths_under_signed_paths(take_key: bool, kills: u32) -> Result<bgpsec::Report> {
    let options = bgpsec::Options { routes: 500, kills, seed: 1, limit: 300, take_key, json: false };
    let report = bgpsec::bgpsec(&options)?;
    println!("{report}");
    Ok(report)
}

#[test]
fn signed_routes_keep_their_states_whoever_dies() -> Result<()> {
    let report = deaths_under_signed_paths(false, 2)?;
    ensure!(report.ok, "{:#?}", report.faults);
    ensure!(report.deaths.iter().all(|deaths| deaths.deaths == 2) && report.changes > 10, "{report}");
    Ok(())
}

#[test]
fn signed_routes_that_lose_their_states_are_seen() -> Result<()> {
    let report = deaths_under_signed_paths(true, 1)?;
    let lacks = |fault: &String| fault.contains("BIRD lacks 500 routes");
    ensure!(!report.ok && report.faults.iter().any(lacks), "{:#?}", report.faults);
    Ok(())
}
