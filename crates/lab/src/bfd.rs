//! BFD in the laboratory: what our router says of its sessions, who follows them, the ends of stock routers ([`stock`]), and
//! ends made by hand ([`puppet`]).

pub mod follower;
pub mod packet;
pub mod puppet;
pub mod scene;
pub mod stock;
pub mod wire;

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{router::Router, wait};

pub use follower::Follower;

/// What lets [`Follower`]s in.
pub const PROTOCOL: &str = "[[protocol]]\nname = \"lab\"\n";

/// A profile whose failures are found within three times so many milliseconds.
pub fn profile(name: &str, interval: u32, more: &str) -> String {
    format!(
        "[[bfd.profile]]\nname = \"{name}\"\ntransmit-interval = {interval}\nreceive-interval = {interval}\n{more}\n"
    )
}

/// A configuration that has BFD, followers and these lines.
pub fn configuration(rest: &str) -> String {
    format!("[router]\nid = \"10.0.0.1\"\nasn = 65000\n{PROTOCOL}[bfd]\n{rest}")
}

/// The rows of `show bfd COMMAND`.
///
/// # Errors
/// The router does not answer.
pub fn rows(router: &Router, command: &str) -> Result<Vec<Value>> {
    let shown = router.show(&["bfd", command])?;
    Ok(shown.as_array().with_context(|| format!("rows: {shown}"))?.clone())
}

/// Waits until the session to a neighbour is as wanted, by what `show bfd peers` says.
///
/// # Errors
/// It is not in time, or there is none.
pub fn until_session(
    router: &Router,
    remote: &str,
    limit: Duration,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Value> {
    wait::until(&format!("the session to {remote}"), limit, || {
        let rows = rows(router, "peers").map_err(|error| format!("{error:#}"))?;
        let found = rows.iter().find(|row| row["peer"] == remote && wanted(row));
        found.cloned().ok_or_else(|| serde_json::json!(rows).to_string())
    })
    .with_context(|| router.log_tail())
}

/// Waits until the session to a neighbour is in this state, as FRR names it.
///
/// # Errors
/// It is not in time, or there is none.
pub fn until_state(router: &Router, remote: &str, state: &str, limit: Duration) -> Result<Value> {
    until_session(router, remote, limit, |row| row["status"] == state)
}

/// One of the numbers of `show bfd counters`.
///
/// # Errors
/// There is no such session.
pub fn counter(router: &Router, remote: &str, name: &str) -> Result<u64> {
    let rows = rows(router, "counters")?;
    let found =
        rows.iter().find(|row| row["peer"] == remote).with_context(|| format!("{remote}: {rows:?}"))?;
    found[name].as_u64().with_context(|| format!("{name}: {found}"))
}

/// A number of `show bfd status` of the default table.
///
/// # Errors
/// There is no such number.
pub fn status(router: &Router, what: &str) -> Result<u64> {
    let rows = rows(router, "status")?;
    let found = rows.iter().find(|row| row["what"] == what && row["vrf"] == "default");
    found.and_then(|row| row["value"].as_u64()).with_context(|| format!("{what}: {rows:?}"))
}
