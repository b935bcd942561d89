//! `show bgp policy`.

use std::io::{self, Write};

use holdfast_api::bgp::v1::{BgpClient, Empty, PolicyChange};
use serde_json::{Value, json};

use crate::{
    Failure,
    json::line,
    router::{Router, answer},
    text::{Table, or_dash, uptime},
};

pub(super) async fn show(router: &Router, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let bgp: BgpClient = router.client("bgp").await?;
    let changes = answer(bgp.show_policy(Empty {})).await?.changes;
    match as_json {
        true => line(out, &json!({ "changes": changes.iter().map(to_json).collect::<Vec<_>>() }))?,
        false => write(&changes, out)?,
    }
    Ok(())
}

/// 0 to 99 while it runs: at its end it does not run any more.
fn percent(change: &PolicyChange) -> u64 {
    match change.running {
        true => (100 * change.done).checked_div(change.total).unwrap_or(0).min(99),
        false => 100,
    }
}

fn to_json(change: &PolicyChange) -> Value {
    json!({
        "peer": change.peer,
        "address": change.address,
        "direction": change.direction,
        "policy": change.policy,
        "running": change.running,
        "percent": percent(change),
        "prefixesDone": change.done,
        "prefixesTotal": change.total,
        "startedMsecAgo": change.age_milliseconds,
        "tookMsec": change.took_milliseconds,
    })
}

fn write(changes: &[PolicyChange], out: &mut dyn Write) -> io::Result<()> {
    if changes.is_empty() {
        return writeln!(out, "No policy has changed since the sessions came up");
    }
    let mut table = Table::new(&["Name", "Neighbor", "Direction", "Policy", ">Done", ">Began", ">Took"]);
    for change in changes {
        table.row([
            change.peer.clone(),
            change.address.clone(),
            change.direction.clone(),
            or_dash(&change.policy).to_owned(),
            format!("{} %", percent(change)),
            format!("{} ago", uptime(change.age_milliseconds.max(1))),
            format!("{} ms", change.took_milliseconds),
        ]);
    }
    table.write(out)
}
