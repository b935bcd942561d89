//! A drill of the store and one of the gate: each failure once. `make drills` makes 100 of each, under whole tables.

use anyhow::{Result, ensure};
use holdfast_lab::drill::{
    replication::{Failure, Kind, Options, replication},
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
