//! Sessions and routes in birdwatcher's words: what alice-lg reads of them, and what people look for.

use std::time::SystemTime;

use holdfast_api::bgp::v1::{Neighbor, Path, SummaryPeer};
use serde_json::{Map, Value, json};

use crate::time;

const ESTABLISHED: &str = "Established";

fn peer(neighbor: &Neighbor) -> SummaryPeer {
    neighbor.peer.clone().unwrap_or_default()
}

/// BIRD's word for how a protocol fares.
fn state(peer: &SummaryPeer) -> &'static str {
    if peer.state == ESTABLISHED { "up" } else { "start" }
}

/// The tables that a session fills; BIRD's protocols have one.
fn table(neighbor: &Neighbor) -> &'static str {
    match neighbor.families.iter().any(|family| family.family.starts_with("ipv4")) {
        true => "master4",
        false => "master6",
    }
}

/// When the session came up, or was lost.
fn since(peer: &SummaryPeer, at: SystemTime) -> String {
    time::short(time::before(at, peer.uptime_milliseconds))
}

/// A session as in `/protocols/bgp`, as it was then.
pub(crate) fn protocol(neighbor: &Neighbor, at: SystemTime) -> (String, Value) {
    let peer = peer(neighbor);
    let sum =
        |count: fn(&holdfast_api::bgp::v1::FamilyState) -> u64| neighbor.families.iter().map(count).sum();
    let (received, accepted): (u64, u64) = (sum(|family| family.received), sum(|family| family.accepted));
    let (best, sent): (u64, u64) = (sum(|family| family.best), sum(|family| family.sent));
    let value = json!({
        "protocol": peer.name,
        "bird_protocol": "BGP",
        "table": table(neighbor),
        "state": state(&peer),
        "state_changed": since(&peer, at),
        "connection": peer.state,
        "bgp_state": peer.state,
        "description": peer.description,
        "neighbor_address": peer.address,
        "neighbor_as": peer.asn,
        "local_as": peer.local_asn,
        "neighbor_id": neighbor.router_id,
        "source_address": neighbor.local_address,
        "session": neighbor.link,
        "hold_timer": neighbor.hold_time.to_string(),
        "keepalive_timer": neighbor.keepalive.to_string(),
        "input_filter": neighbor.import,
        "output_filter": neighbor.export,
        "last_error": peer.last_error,
        "routes": {
            "imported": accepted,
            "filtered": received.saturating_sub(accepted),
            "accepted": accepted,
            "exported": sent,
            "preferred": best,
        },
        "route_changes": {},
    });
    (peer.name, value)
}

/// A session as in `/protocols/short`, as it was then.
pub(crate) fn short(neighbor: &Neighbor, at: SystemTime) -> (String, Value) {
    let peer = peer(neighbor);
    let value = json!({
        "proto": "BGP",
        "table": table(neighbor),
        "state": state(&peer),
        "since": since(&peer, at),
        "info": peer.state,
    });
    (peer.name, value)
}

/// A route. Its age is not known: a path is eight octets, and none of them is a time.
pub(crate) fn route(prefix: &str, path: &Path) -> Value {
    let from_peer = !path.peer_address.is_empty();
    let kind = match (from_peer, path.external) {
        (true, true) => ["BGP", "unicast", "univ"].as_slice(),
        (true, false) => ["BGP", "unicast", "iBGP"].as_slice(),
        (false, _) => ["static", "unicast", "univ"].as_slice(),
    };
    let mut value = json!({
        "network": prefix,
        "gateway": path.next_hop,
        "learnt_from": path.peer_address,
        "interface": "",
        "from_protocol": path.peer,
        "age": "",
        "primary": path.best,
        "metric": 100,
        "type": kind,
        "bgp": bgp(path),
    });
    if !path.reason.is_empty() {
        value["reason"] = path.reason.as_str().into();
    }
    value
}

fn bgp(path: &Path) -> Map<String, Value> {
    let mut bgp = Map::new();
    let mut put = |key: &str, value: Value| bgp.insert(key.to_owned(), value);
    put("origin", path.origin.as_str().into());
    put("as_path", asns(&path.as_path).into());
    put("next_hop", path.next_hop.as_str().into());
    if let Some(preference) = path.local_pref {
        put("local_pref", preference.to_string().into());
    }
    if let Some(med) = path.med {
        put("med", med.to_string().into());
    }
    put("communities", path.communities.iter().map(|text| numbers(text)).collect());
    put("large_communities", path.large_communities.iter().map(|text| numbers(text)).collect());
    put("ext_communities", path.ext_communities.iter().filter_map(|text| ext_community(text)).collect());
    if path.atomic_aggregate {
        put("atomic_aggr", "".into());
    }
    for (key, text) in [("aggregator", &path.aggregator), ("originator_id", &path.originator_id)] {
        if !text.is_empty() {
            put(key, text.as_str().into());
        }
    }
    if !path.cluster_list.is_empty() {
        put("cluster_list", path.cluster_list.join(" ").into());
    }
    bgp
}

/// The AS numbers of a path, one text each; alice-lg reads numbers only, so sets lose their braces.
fn asns(path: &str) -> Vec<&str> {
    path.split(|c: char| !c.is_ascii_digit()).filter(|asn| !asn.is_empty()).collect()
}

fn numbers(community: &str) -> Value {
    community.split(':').map(|part| part.parse::<u64>().unwrap_or(0)).collect()
}

/// BIRD's three parts of an extended community that is shown as eight octets in hexadecimal: kind, and the two halves of
/// its value (RFC 4360 section 3, RFC 5668).
fn ext_community(text: &str) -> Option<Value> {
    let word = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16)?;
    let (kind, subtype) = (word >> 56, word >> 48 & 0xff);
    let word32 = word & 0xffff_ffff;
    let (first, second) = match kind & 0x3f {
        0 => (word >> 32 & 0xffff, word32),
        _ => (word >> 16 & 0xffff_ffff, word & 0xffff),
    };
    let name = match subtype {
        2 if kind & 0x3f <= 2 => "rt".to_owned(),
        3 if kind & 0x3f <= 2 => "ro".to_owned(),
        _ => return Some(json!([format!("generic 0x{:x}", word >> 32), format!("0x{word32:x}"), "0"])),
    };
    Some(json!([name, first.to_string(), second.to_string()]))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn path() -> Path {
        Path {
            peer: "rs-a".into(),
            peer_address: "10.0.1.2".into(),
            next_hop: "10.0.1.2".into(),
            as_path: "65001 {65002,65003}".into(),
            origin: "IGP".into(),
            local_pref: Some(100),
            communities: vec!["65001:7".into()],
            large_communities: vec!["65001:1:2".into()],
            ext_communities: vec![
                "0002fde800000064".into(),
                "0202000100010064".into(),
                "4300000000000001".into(),
            ],
            best: true,
            external: true,
            reason: "refused by policy in, term bogons".into(),
            ..Path::default()
        }
    }

    #[test]
    fn a_route_has_every_field_that_alice_lg_reads() {
        let route = route("192.0.2.0/24", &path());
        let text = |key: &str| route[key].as_str().map(str::to_owned);
        for key in ["network", "gateway", "learnt_from", "interface", "from_protocol", "age"] {
            assert!(text(key).is_some(), "{key}");
        }
        assert!(route["primary"].is_boolean() && route["metric"].is_number() && route["type"].is_array());
        assert_eq!(route["bgp"]["as_path"], json!(["65001", "65002", "65003"]));
        assert_eq!(route["bgp"]["communities"], json!([[65001, 7]]));
        assert_eq!(route["bgp"]["large_communities"], json!([[65001, 1, 2]]));
        assert_eq!(route["bgp"]["local_pref"], "100");
        let ext = json!([["rt", "65000", "100"], ["rt", "65537", "100"], ["generic 0x43000000", "0x1", "0"]]);
        assert_eq!(route["bgp"]["ext_communities"], ext);
        assert_eq!(route["reason"], "refused by policy in, term bogons");
    }

    #[test]
    fn a_session_has_every_field_that_alice_lg_reads() {
        let family = holdfast_api::bgp::v1::FamilyState {
            family: "ipv4-unicast".into(),
            received: 10,
            accepted: 7,
            best: 3,
            sent: 5,
            ..Default::default()
        };
        let peer = SummaryPeer {
            name: "rs-a".into(),
            address: "10.0.1.2".into(),
            asn: 65001,
            state: ESTABLISHED.into(),
            uptime_milliseconds: 5000,
            ..SummaryPeer::default()
        };
        let neighbor = Neighbor { peer: Some(peer), families: vec![family], ..Neighbor::default() };
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
        let (name, value) = protocol(&neighbor, at);
        assert_eq!(
            (name.as_str(), &value["state"], &value["neighbor_as"]),
            ("rs-a", &json!("up"), &json!(65001))
        );
        let routes = &value["routes"];
        assert_eq!((&routes["imported"], &routes["filtered"]), (&json!(7), &json!(3)));
        assert_eq!((&routes["exported"], &routes["preferred"]), (&json!(5), &json!(3)));
        for key in
            ["neighbor_address", "description", "last_error", "state_changed", "table", "bird_protocol"]
        {
            assert!(value[key].is_string(), "{key}");
        }
        assert_eq!(short(&neighbor, at).1["since"], "1970-01-01 00:00:02");
        assert_eq!(value["state_changed"], "1970-01-01 00:00:02");
    }
}
