//! A route server with 300 members, each with a view and an export policy of its own: whatever is done to the router, no
//! member loses its session or a route, and no process is taken for hung. `make drills` does the same with longer tables and
//! with 1,000 members.

use anyhow::{Result, ensure};
use holdfast_lab::drill::members::{Options, members};

/// A message of the router may be so late on a machine that is busy with other things, in milliseconds.
const LATE: u64 = 2_000;

#[test]
fn three_hundred_members_lose_neither_sessions_nor_routes_whatever_is_done_to_the_router() -> Result<()> {
    let options = Options {
        members: 300,
        prefixes: 50,
        hold_time: 9,
        changes: 8,
        flaps: 1,
        limit: 60,
        only: Vec::new(),
        strict: false,
        json: false,
    };
    let report = members(&options)?;
    ensure!(report.ok, "{report}");
    for played in &report.played {
        ensure!(played.hung > 0 || played.late_ms < LATE, "{played}");
    }
    Ok(())
}
