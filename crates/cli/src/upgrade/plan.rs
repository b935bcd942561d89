//! `holdfast upgrade --dry-run`: what would be replaced, which sessions that ends, and which stay with the old build.
//!
//! Who replaces processes knows nothing of sessions, so those who have them are asked: `bgp` which of them outlive it, and
//! `transport` which it carries.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Write,
    os::unix::ffi::OsStrExt,
    path::Path,
};

use holdfast_api::{
    bgp::v1::{BgpClient, Empty as BgpEmpty, NsrSession},
    manager::v1::{DiffRequest, Empty as ManagerEmpty, ManagerClient, UpgradeProgress, UpgradeRequest},
    transport::v1::{Empty as TransportEmpty, TransportClient},
};
use serde_json::{Value, json};

use super::STEP;
use crate::{
    Failure,
    json::line,
    router::{OLD_TRANSPORT, Router, Table, answer, answer_within, split},
    show::{ESTABLISHED, protocol},
};

/// What becomes of a session.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Fate {
    /// It would stay with a process of the old build.
    Carried,
    /// It would end, and come up anew.
    Ended,
}

/// A session that would not simply go on.
struct Concerned {
    fate: Fate,
    peer: String,
    address: String,
    vrf: Option<String>,
    reason: String,
}

/// Asks, and says what is answered.
pub(super) async fn show(
    router: &Router,
    (file, path): (File, &Path),
    now: bool,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let manager: ManagerClient = router.client("manager").await?;
    let request = UpgradeRequest { path: path.as_os_str().as_bytes().to_vec(), dry_run: true, now };
    let mut steps = manager.upgrade(request, vec![file.into()]);
    let mut plan = Vec::new();
    while let Some(step) = answer_within(STEP, steps.next()).await? {
        plan.push(step);
    }
    let mut concerned = Vec::new();
    for instance in router.instances().await? {
        if let ("bgp", vrf) = split(&instance.class) {
            let table = Table { vrf: vrf.map(str::to_owned) };
            concerned.extend(sessions(&router.of(&table), &plan).await?);
        }
    }
    let others = edited(&manager, &plan).await?;
    let is_new = |other: &Concerned| {
        !concerned.iter().any(|known| (&known.peer, &known.vrf) == (&other.peer, &other.vrf))
    };
    let others: Vec<_> = others.into_iter().filter(is_new).collect();
    concerned.extend(others);
    if as_json {
        return Ok(line(out, &to_json(&plan, &concerned))?);
    }
    for UpgradeProgress { process, text, build, .. } in &plan {
        let name = if process.is_empty() { "router" } else { process };
        writeln!(out, "{name:9} {text} ({build})")?;
    }
    for Concerned { fate, peer, address, vrf, reason } in &concerned {
        let vrf = vrf.as_ref().map_or(String::new(), |vrf| format!(" in VRF {vrf}"));
        let what = match fate {
            Fate::Carried => "stay with the old build",
            Fate::Ended => "end",
        };
        let address = if address.is_empty() { String::new() } else { format!(" ({address})") };
        writeln!(out, "the session with {peer}{address}{vrf} would {what}: {reason}")?;
    }
    if !concerned.iter().any(|session| session.fate == Fate::Ended) {
        writeln!(out, "no session would end")?;
    }
    Ok(())
}

/// The sessions that end because the file is another one by now: the next manager reads it. Only a router on this host has
/// its file here.
async fn edited(manager: &ManagerClient, plan: &[UpgradeProgress]) -> Result<Vec<Concerned>, Failure> {
    if !plan.iter().any(|step| step.process == "manager") {
        return Ok(Vec::new());
    }
    let running = answer(manager.show_configuration(ManagerEmpty {})).await?;
    let file = running.file;
    let Some(text) = fs::read_to_string(&file).ok().filter(|text| *text != running.text) else {
        return Ok(Vec::new());
    };
    let diff = answer(manager.diff(DiffRequest { text, file: file.clone() })).await?;
    let concern = |peer: String| {
        let over = diff.over.iter().find(|over| over.peer.split(':').next() == Some(peer.as_str()));
        let reason = format!("{file} has been edited and not reloaded, and the next manager reads it");
        let reason = over.map_or(reason.clone(), |over| format!("{reason}: {}", over.cause));
        let vrf = over.map(|over| over.vrf.clone()).filter(|vrf| !vrf.is_empty());
        Concerned { fate: Fate::Ended, peer, address: String::new(), vrf, reason }
    };
    Ok(diff.ending.iter().cloned().map(concern).collect())
}

/// The sessions of a table that would not simply go on.
async fn sessions(router: &Router, plan: &[UpgradeProgress]) -> Result<Vec<Concerned>, Failure> {
    let step = |name: &str| plan.iter().find(|step| step.process == name);
    let bgp: BgpClient = router.client("bgp").await?;
    let families = answer(bgp.show_summary(BgpEmpty {})).await?.families;
    let peers = families.iter().flat_map(|family| &family.peers);
    let up: BTreeSet<&str> =
        peers.filter(|peer| peer.state == ESTABLISHED).map(|peer| peer.name.as_str()).collect();
    // Whose connection is carried, and what becomes of it by that.
    let mut carried = BTreeMap::new();
    if let Some(step) = step("transport") {
        for (peer, protocol) in connections(router, "transport").await? {
            let concern = match step.retires {
                true => (Fate::Carried, format!("transport, which carries it over {protocol}, stays for it")),
                false => (Fate::Ended, format!("transport, which carries it over {protocol}, is replaced")),
            };
            carried.insert(peer, concern);
        }
    }
    for (peer, protocol) in connections(router, OLD_TRANSPORT).await? {
        let concern = match step(OLD_TRANSPORT) {
            Some(_) => (Fate::Ended, format!("{OLD_TRANSPORT}, which carries it over {protocol}, is ended")),
            None => (Fate::Carried, format!("{OLD_TRANSPORT} carries it over {protocol}")),
        };
        carried.insert(peer, concern);
    }
    let concern = |session: &NsrSession| match carried.get(&session.peer) {
        _ if step("bgp").is_some() && !session.protected => {
            Some((Fate::Ended, format!("not protected: {}", session.reason)))
        }
        concern => concern.cloned(),
    };
    let known = answer(bgp.show_nsr(BgpEmpty {})).await?.sessions;
    let known = known.into_iter().filter(|session| up.contains(session.peer.as_str()));
    let concerned = known.filter_map(|session| {
        let ((fate, reason), vrf) = (concern(&session)?, router.vrf().map(str::to_owned));
        Some(Concerned { fate, peer: session.peer, address: session.address, vrf, reason })
    });
    Ok(concerned.collect())
}

/// Whose connections go through a process of this class, and over what; nobody's if it does not run.
async fn connections(router: &Router, class: &str) -> Result<Vec<(String, &'static str)>, Failure> {
    let mut carried = Vec::new();
    let transport: TransportClient = match router.client(class).await {
        Ok(transport) => transport,
        Err(Failure::NotRunning { .. }) => return Ok(carried),
        Err(failure) => return Err(failure),
    };
    let mut shown = transport.show_connections(TransportEmpty {});
    while let Some(connection) = answer(shown.next()).await? {
        let connection = connection.connection.unwrap_or_default();
        let over = protocol(connection.protocol());
        carried.push((connection.peer, over));
    }
    Ok(carried)
}

fn to_json(plan: &[UpgradeProgress], concerned: &[Concerned]) -> Value {
    let processes = plan.iter().filter(|step| !step.process.is_empty());
    let processes: Vec<_> =
        processes.map(|step| json!({ "process": step.process, "text": step.text })).collect();
    let sessions = |fate: Fate| {
        let those = concerned.iter().filter(|session| session.fate == fate);
        let session = |session: &Concerned| {
            let Concerned { fate: _, peer, address, vrf, reason } = session;
            json!({ "peer": peer, "address": address, "vrf": vrf, "reason": reason })
        };
        those.map(session).collect::<Vec<_>>()
    };
    json!({
        "build": plan.first().map(|step| &step.build),
        "processes": processes,
        "sessions_on_old_build": sessions(Fate::Carried),
        "sessions_ended": sessions(Fate::Ended),
    })
}
