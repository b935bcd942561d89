//! `show bgpsec`: routers' keys, what has been verified, and what is to be.

use std::io::Write;

use holdfast_api::{
    bgp::v1::{BgpClient, ShowNeighborsRequest},
    pathsec::v1::{Empty, PathSecClient},
};
use serde_json::json;

use super::neighbors::bgpsec_json;
use crate::{
    Failure,
    json::line,
    router::{Router, answer},
    text::Table,
};

pub(super) async fn show(router: &Router, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let pathsec: PathSecClient = router.client("pathsec").await?;
    let status = answer(pathsec.status(Empty {})).await?;
    let bgp: BgpClient = router.client("bgp").await?;
    let mut neighbors = bgp.show_neighbors(ShowNeighborsRequest::default());
    let mut peers = Vec::new();
    while let Some(neighbor) = answer(neighbors.next()).await? {
        if let (Some(peer), Some(bgpsec)) = (neighbor.peer, neighbor.bgpsec) {
            peers.push((peer.name, bgpsec));
        }
    }
    let queued_hops: u64 = peers.iter().map(|(_, bgpsec)| bgpsec.queued_hops).sum();
    if as_json {
        let peer = |(name, bgpsec): &(String, _)| {
            let mut value = bgpsec_json(bgpsec);
            value["name"] = name.as_str().into();
            value
        };
        return Ok(line(
            out,
            &json!({
                "router_keys": status.router_keys,
                "known": status.known,
                "verified": status.verified,
                "remembered": status.remembered,
                "failed": status.failed,
                "queued_hops": queued_hops,
                "memory_octets": status.memory_octets,
                "peers": peers.iter().map(peer).collect::<Vec<_>>(),
            }),
        )?);
    }
    let known = if status.known { "" } else { " (no cache has been heard yet)" };
    writeln!(out, "Routers' keys: {}{known}", status.router_keys)?;
    writeln!(
        out,
        "Signatures: {} verified, {} of them bad, {} remembered; {queued_hops} wait",
        status.verified, status.failed, status.remembered
    )?;
    if peers.is_empty() {
        return Ok(());
    }
    let mut table =
        Table::new(&["Neighbor", ">Valid", ">Not valid", ">Unverified", ">Queued hops", "Agreed"]);
    for (name, bgpsec) in &peers {
        let agreed = match (bgpsec.sent.is_empty(), bgpsec.received.is_empty()) {
            (true, true) => "nothing",
            (false, true) => "send",
            (true, false) => "receive",
            (false, false) => "both",
        };
        table.row([
            name.clone(),
            bgpsec.valid.to_string(),
            bgpsec.not_valid.to_string(),
            bgpsec.unverified.to_string(),
            bgpsec.queued_hops.to_string(),
            agreed.to_owned(),
        ]);
    }
    Ok(table.write(out)?)
}
