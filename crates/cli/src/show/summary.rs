//! `show bgp summary`.

use std::{
    io::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use holdfast_api::bgp::v1::{BgpClient, Empty, Summary, SummaryFamily, SummaryPeer};
use serde_json::{Map, Value, json};

use super::vrf;
use crate::{
    Failure,
    json::line,
    router::{Router, answer},
    text::{Table, afi, camel, or_dash, size, uptime},
};

pub(super) async fn show(router: &Router, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let bgp: BgpClient = router.client("bgp").await?;
    let summary = answer(bgp.show_summary(Empty {})).await?;
    match as_json {
        true => line(out, &to_json(&summary, router.vrf()))?,
        false => write(&summary, out)?,
    }
    Ok(())
}

pub(crate) const ESTABLISHED: &str = "Established";

fn to_json(summary: &Summary, vrf: Option<&str>) -> Value {
    let families =
        summary.families.iter().map(|family| (camel(&family.family), family_json(summary, family, vrf)));
    Value::Object(families.collect())
}

pub(super) fn family_json(summary: &Summary, family: &SummaryFamily, vrf: Option<&str>) -> Value {
    let failed = family.peers.iter().filter(|peer| peer.state != ESTABLISHED).count();
    let peers: Map<_, _> = family.peers.iter().map(|peer| (key(peer), peer_json(peer))).collect();
    let mut value = json!({
        "routerId": summary.router_id,
        "as": summary.asn,
        "ribCount": family.prefixes,
        "pathCount": family.paths,
        "memory": summary.memory_bytes,
        "peerCount": family.peers.len(),
        "peers": peers,
        "failedPeers": failed,
        "displayedPeers": family.peers.len(),
        "totalPeers": family.peers.len(),
    });
    vrf::members(vrf).into_iter().for_each(|(key, member)| value[key] = member);
    value
}

/// FRR's key: the address; a peer without one goes by its name.
pub(super) fn key(peer: &SummaryPeer) -> String {
    if peer.address.is_empty() { peer.name.clone() } else { peer.address.clone() }
}

fn peer_json(peer: &SummaryPeer) -> Value {
    let mut value = json!({
        "name": peer.name,
        "remoteAs": peer.asn,
        "localAs": peer.local_asn,
        "version": 4,
        "msgRcvd": peer.messages_received,
        "msgSent": peer.messages_sent,
        "outq": peer.out_queue,
        "inq": 0,
        "peerUptime": uptime(peer.uptime_milliseconds),
        "peerUptimeMsec": peer.uptime_milliseconds,
        "pfxRcd": peer.prefixes_received,
        "pfxAccepted": peer.prefixes_accepted,
        "pfxSnt": peer.prefixes_sent,
        "state": peer.state,
        "admin_state": peer.admin_state,
        "peerState": if peer.state == ESTABLISHED { "OK" } else { peer.last_error.as_str() },
        "connectionsEstablished": peer.connections_established,
        "connectionsDropped": peer.connections_dropped,
        "idType": afi(&peer.address),
    });
    if let Some(epoch) = established_epoch(peer) {
        value["peerUptimeEstablishedEpoch"] = epoch.into();
    }
    if !peer.description.is_empty() {
        value["desc"] = peer.description.as_str().into();
    }
    value
}

/// When the session came up, in seconds of Unix time.
pub(super) fn established_epoch(peer: &SummaryPeer) -> Option<u64> {
    (peer.state == ESTABLISHED).then(|| epoch_of(peer.uptime_milliseconds)).flatten()
}

/// When that was, in seconds of Unix time.
pub(super) fn epoch_of(milliseconds_ago: u64) -> Option<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(second_of_start(now, milliseconds_ago))
}

/// Rounded once, at the end: rounded before, it would be another second with each call.
fn second_of_start(now: Duration, uptime_milliseconds: u64) -> u64 {
    now.saturating_sub(Duration::from_millis(uptime_milliseconds)).as_secs()
}

fn write(summary: &Summary, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "BGP router identifier {}, local AS number {}", summary.router_id, summary.asn)?;
    writeln!(out, "Memory {}", size(summary.memory_bytes))?;
    for family in summary.families.iter().filter(|family| family.prefixes > 0 || !family.peers.is_empty()) {
        writeln!(out, "\n{}: {} prefixes, {} paths", family.family, family.prefixes, family.paths)?;
        let mut table = Table::new(&[
            "Name",
            "Neighbor",
            ">AS",
            ">MsgRcvd",
            ">MsgSent",
            ">OutQ",
            ">Up/Down",
            ">State/PfxRcd",
            ">PfxAcc",
            ">PfxSnt",
            "Desc",
        ]);
        for peer in &family.peers {
            table.row(row(peer));
        }
        table.write(out)?;
    }
    Ok(())
}

fn row(peer: &SummaryPeer) -> [String; 11] {
    let established = peer.state == ESTABLISHED;
    let count = |count: u64| if established { count.to_string() } else { "-".to_owned() };
    [
        peer.name.clone(),
        or_dash(&peer.address).to_owned(),
        // A member of a listen range that may have any, and has not said which.
        if peer.asn == 0 { "any".into() } else { peer.asn.to_string() },
        peer.messages_received.to_string(),
        peer.messages_sent.to_string(),
        peer.out_queue.to_string(),
        uptime(peer.uptime_milliseconds),
        if established { peer.prefixes_received.to_string() } else { peer.state.clone() },
        count(peer.prefixes_accepted),
        count(peer.prefixes_sent),
        description(peer),
    ]
}

/// The description; for a session that is down, also why.
fn description(peer: &SummaryPeer) -> String {
    let why = if peer.state == ESTABLISHED { "" } else { peer.last_error.as_str() };
    match (peer.description.as_str(), why) {
        (text, "") => text.to_owned(),
        ("", why) => format!("({why})"),
        (text, why) => format!("{text} ({why})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_in_which_a_session_came_up_is_the_same_at_any_time() {
        // It came up at 8.9 s.
        for (now, uptime) in [(9_000, 100), (9_850, 950), (10_000, 1_100), (10_899, 1_999)] {
            assert_eq!(second_of_start(Duration::from_millis(now), uptime), 8, "{now}");
        }
        assert_eq!(second_of_start(Duration::ZERO, 7), 0, "a clock that has been put back");
    }
}
