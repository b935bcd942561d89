//! What `holdfast show rip` says.

use std::time::{Duration, Instant};

use holdfast_rip::{Origin, ShownRoute, Source};
use serde_json::{Map, Value, json};

use crate::{section::NAME, speaker::Speaker, table::Tables, version::Version};

/// A row of an answer.
pub(crate) type Row = Map<String, Value>;

/// The answer to one of the commands of the process.
pub(crate) fn rows(command: &str, tables: &Tables) -> Vec<Row> {
    let mut rows = Vec::new();
    for (vrf, table) in tables {
        let vrf = vrf.as_deref().unwrap_or("");
        of_version(command, vrf, table.v2(), &mut rows);
        of_version(command, vrf, table.ng(), &mut rows);
    }
    rows
}

fn of_version<P: Version>(command: &str, vrf: &str, speaker: &Speaker<P>, rows: &mut Vec<Row>) {
    let now = Instant::now();
    match command {
        "interfaces" => interfaces(vrf, now, speaker, rows),
        "neighbors" => neighbors(vrf, now, speaker, rows),
        _ => rows.extend(speaker.engine().routes().map(|route| of_route(vrf, now, speaker, &route))),
    }
}

/// Seconds from one time to a later one.
fn seconds(from: Instant, to: Instant) -> u64 {
    // To the nearest: a timer of 180 s is not at 179 when it has just been set.
    (to.saturating_duration_since(from) + Duration::from_millis(500)).as_secs()
}

fn row(value: Value) -> Row {
    match value {
        Value::Object(row) => row,
        _ => Row::new(),
    }
}

fn of_route<P: Version>(vrf: &str, now: Instant, speaker: &Speaker<P>, route: &ShownRoute<P>) -> Row {
    let (source, next_hop, interface, neighbor, expires) = match route.source {
        Source::Own(Origin::Connected(interface)) => {
            ("connected", String::new(), speaker.interface(interface), String::new(), None)
        }
        Source::Own(Origin::Redistributed) => {
            ("redistributed", String::new(), String::new(), String::new(), None)
        }
        Source::Learned { interface, neighbour, next_hop, expires, .. } => (
            NAME,
            next_hop.to_string(),
            speaker.interface(interface),
            neighbour.to_string(),
            Some(seconds(now, expires)),
        ),
        Source::Garbage { expires, .. } => {
            ("lost", String::new(), String::new(), String::new(), Some(seconds(now, expires)))
        }
    };
    row(json!({
        "prefix": Into::<holdfast_types::Prefix>::into(route.prefix).to_string(),
        "source": source,
        "metric": route.metric.get(),
        "tag": route.tag,
        "nextHop": next_hop,
        "interface": interface,
        "neighbor": neighbor,
        "expiresSeconds": expires,
        "vrf": vrf,
    }))
}

fn interfaces<P: Version>(vrf: &str, now: Instant, speaker: &Speaker<P>, rows: &mut Vec<Row>) {
    let engine = speaker.engine();
    rows.extend(engine.interfaces().map(|shown| {
        let counters = shown.counters;
        row(json!({
            "interface": speaker.interface(shown.id),
            "version": P::VERSION_NAME,
            "passive": shown.interface.passive,
            "cost": shown.interface.cost.get(),
            "neighbors": shown.neighbours,
            "nextUpdateSeconds": shown.next_update.map(|next| seconds(now, next)),
            "updates": counters.updates,
            "triggeredUpdates": counters.triggered_updates,
            "sent": counters.sent,
            "received": counters.received,
            "badPackets": counters.bad_packets,
            "badRoutes": counters.bad_routes,
            "notAuthentic": counters.authentication_failures,
            "vrf": vrf,
        }))
    }));
}

fn neighbors<P: Version>(vrf: &str, now: Instant, speaker: &Speaker<P>, rows: &mut Vec<Row>) {
    let engine = speaker.engine();
    rows.extend(engine.neighbours().map(|shown| {
        row(json!({
            "neighbor": shown.address.to_string(),
            "interface": speaker.interface(shown.interface),
            "version": P::VERSION_NAME,
            "heardSeconds": seconds(shown.neighbour.heard, now),
            "packets": shown.neighbour.packets,
            "badPackets": shown.neighbour.bad_packets,
            "badRoutes": shown.neighbour.bad_routes,
            "vrf": vrf,
        }))
    }));
}
