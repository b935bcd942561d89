//! `holdfast upgrade --dry-run`: what would be replaced, and which sessions that ends.
//!
//! Who replaces processes knows nothing of sessions, so those who have them are asked: `bgp` which of them outlive it, and
//! `transport` which it carries.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Write,
    os::unix::ffi::OsStrExt,
    path::Path,
};

use holdfast_api::{
    bgp::v1::{BgpClient, Empty as BgpEmpty, NsrSession},
    manager::v1::{ManagerClient, UpgradeProgress, UpgradeRequest},
    transport::v1::{Empty as TransportEmpty, TransportClient},
};
use serde_json::{Value, json};

use super::STEP;
use crate::{
    Failure,
    json::line,
    router::{Router, Table, answer, answer_within, split},
    show::{ESTABLISHED, protocol},
};

/// A session that would end, and come up anew.
struct Ended {
    peer: String,
    address: String,
    vrf: Option<String>,
    reason: String,
}

/// Asks, and says what is answered.
pub(super) async fn show(
    router: &Router,
    file: File,
    path: &Path,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let manager: ManagerClient = router.client("manager").await?;
    let request = UpgradeRequest { path: path.as_os_str().as_bytes().to_vec(), dry_run: true };
    let mut steps = manager.upgrade(request, vec![file.into()]);
    let mut plan = Vec::new();
    while let Some(step) = answer_within(STEP, steps.next()).await? {
        plan.push(step);
    }
    let mut ended = Vec::new();
    for instance in router.instances().await? {
        if let ("bgp", vrf) = split(&instance.class) {
            let table = Table { vrf: vrf.map(str::to_owned) };
            ended.extend(sessions(&router.of(&table), &plan).await?);
        }
    }
    if as_json {
        return Ok(line(out, &to_json(&plan, &ended))?);
    }
    for UpgradeProgress { process, text, build, .. } in &plan {
        let name = if process.is_empty() { "router" } else { process };
        writeln!(out, "{name:9} {text} ({build})")?;
    }
    for Ended { peer, address, vrf, reason } in &ended {
        let vrf = vrf.as_ref().map_or(String::new(), |vrf| format!(" in VRF {vrf}"));
        writeln!(out, "the session with {peer} ({address}){vrf} would end: {reason}")?;
    }
    if ended.is_empty() {
        writeln!(out, "no session would end")?;
    }
    Ok(())
}

/// The sessions of a table that would end.
async fn sessions(router: &Router, plan: &[UpgradeProgress]) -> Result<Vec<Ended>, Failure> {
    let is_replaced = |name: &str| plan.iter().any(|step| step.process == name);
    let bgp: BgpClient = router.client("bgp").await?;
    let families = answer(bgp.show_summary(BgpEmpty {})).await?.families;
    let peers = families.iter().flat_map(|family| &family.peers);
    let up: BTreeSet<&str> =
        peers.filter(|peer| peer.state == ESTABLISHED).map(|peer| peer.name.as_str()).collect();
    let carried = if is_replaced("transport") { carried(router).await? } else { BTreeMap::new() };
    let reason = |session: &NsrSession| match carried.get(&session.peer) {
        Some(protocol) => Some(format!("transport, which carries it over {protocol}, is replaced")),
        None if is_replaced("bgp") && !session.protected => {
            Some(format!("not protected: {}", session.reason))
        }
        None => None,
    };
    let known = answer(bgp.show_nsr(BgpEmpty {})).await?.sessions;
    let ended =
        known.into_iter().filter(|session| up.contains(session.peer.as_str())).filter_map(|session| {
            let (reason, vrf) = (reason(&session)?, router.vrf().map(str::to_owned));
            Some(Ended { peer: session.peer, address: session.address, vrf, reason })
        });
    Ok(ended.collect())
}

/// Whose connections go through `transport`, and over what.
async fn carried(router: &Router) -> Result<BTreeMap<String, &'static str>, Failure> {
    let mut carried = BTreeMap::new();
    let transport: TransportClient = match router.client("transport").await {
        Ok(transport) => transport,
        Err(Failure::NotRunning { .. }) => return Ok(carried),
        Err(failure) => return Err(failure),
    };
    let mut shown = transport.show_connections(TransportEmpty {});
    while let Some(connection) = answer(shown.next()).await? {
        let connection = connection.connection.unwrap_or_default();
        let over = protocol(connection.protocol());
        carried.insert(connection.peer, over);
    }
    Ok(carried)
}

fn to_json(plan: &[UpgradeProgress], ended: &[Ended]) -> Value {
    let processes = plan.iter().filter(|step| !step.process.is_empty());
    let processes: Vec<_> =
        processes.map(|step| json!({ "process": step.process, "text": step.text })).collect();
    let session = |ended: &Ended| {
        let Ended { peer, address, vrf, reason } = ended;
        json!({ "peer": peer, "address": address, "vrf": vrf, "reason": reason })
    };
    json!({
        "build": plan.first().map(|step| &step.build),
        "processes": processes,
        // No process of the old build stays.
        "sessions_on_old_build": [],
        "sessions_ended": ended.iter().map(session).collect::<Vec<_>>(),
    })
}
