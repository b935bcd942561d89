//! `show vrf`.

use std::{collections::BTreeMap, io::Write};

use holdfast_api::{
    bgp::v1::{BgpClient, Empty as Nothing},
    manager::v1::{Empty, ManagerClient, Vrf},
};
use serde_json::{Map, Value, json};

use super::summary::ESTABLISHED;
use crate::{
    Failure,
    json::line,
    router::{self, Router, answer},
    text::Table,
};

/// Sessions of a VRF, and how many are up; none of one whose speaker does not run.
type Sessions = Option<(usize, usize)>;

/// FRR's name of the default table.
pub(super) const DEFAULT: &str = "default";

/// FRR's members for the table that an answer is about. The number of a VRF is that of its device, which is for the
/// kernel to know.
pub(super) fn members(vrf: Option<&str>) -> Vec<(&'static str, Value)> {
    match vrf {
        Some(vrf) => vec![("vrfName", vrf.into())],
        None => vec![("vrfId", 0.into()), ("vrfName", DEFAULT.into())],
    }
}

pub(super) async fn show(router: &Router, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let manager: ManagerClient = router.client("manager").await?;
    let mut shown = Vec::new();
    for vrf in answer(manager.show_vrfs(Empty {})).await?.vrfs {
        let sessions = sessions(router, &vrf).await?;
        shown.push((vrf, sessions));
    }
    if as_json {
        let all: Map<_, _> =
            shown.iter().map(|(vrf, sessions)| (vrf.name.clone(), to_json(vrf, *sessions))).collect();
        return Ok(line(out, &json!({ "totalVrfs": all.len(), "vrfs": all }))?);
    }
    let mut table = Table::new(&["VRF", "Kind", "Device/Netns", "Table", ">Sessions", ">Up"]);
    for (vrf, sessions) in &shown {
        let [all, up] = match sessions {
            Some((all, up)) => [all, up].map(ToString::to_string),
            None => ["-", "-"].map(str::to_owned),
        };
        let (kind, place) = place(vrf);
        table.row([vrf.name.clone(), kind.to_owned(), place.to_owned(), kernel_table(vrf), all, up]);
    }
    Ok(table.write(out)?)
}

async fn sessions(router: &Router, vrf: &Vrf) -> Result<Sessions, Failure> {
    let table = router::Table { vrf: Some(vrf.name.clone()) };
    let bgp: BgpClient = match router.of(&table).client("bgp").await {
        Ok(bgp) => bgp,
        Err(Failure::NotRunning { .. } | Failure::NothingFound(_)) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let families = answer(bgp.show_summary(Nothing {})).await?.families;
    let peers = families.iter().flat_map(|family| &family.peers);
    // A peer is there once for each of its families.
    let peers: BTreeMap<&str, bool> =
        peers.map(|peer| (peer.name.as_str(), peer.state == ESTABLISHED)).collect();
    Ok(Some((peers.len(), peers.into_values().filter(|up| *up).count())))
}

/// What the VRF is for the kernel, and that one's name.
fn place(vrf: &Vrf) -> (&'static str, &str) {
    match vrf.netns.as_str() {
        "" => ("device", &vrf.device),
        netns => ("netns", netns),
    }
}

/// As `ip route` calls it.
fn kernel_table(vrf: &Vrf) -> String {
    /// RT_TABLE_MAIN.
    const MAIN: u32 = 254;
    if vrf.table == MAIN { "main".to_owned() } else { vrf.table.to_string() }
}

fn to_json(vrf: &Vrf, sessions: Sessions) -> Value {
    let (kind, name) = place(vrf);
    let mut value = json!({ "kind": kind, "table": vrf.table });
    value[kind] = name.into();
    if let Some((all, up)) = sessions {
        value["numConfiguredPeers"] = all.into();
        value["numEstablishedPeers"] = up.into();
    }
    value
}
