//! What `holdfast show rip` says.

use std::{
    net::IpAddr,
    ops::Bound,
    time::{Duration, Instant},
};

use holdfast_process::{Part, ROWS};
use holdfast_rip::{Origin, ShownNeighbour, ShownRoute, Source};
use holdfast_types::Prefix;
use serde_json::{Map, Value, json};

use crate::{section::NAME, speaker::Speaker, table::Tables, version::Version};

/// A row of an answer.
pub(crate) type Row = Map<String, Value>;

/// How far an answer has come: it has the tables by name, RIPv2 before RIPng in each.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Cursor {
    vrf: Option<String>,
    is_ng: bool,
    /// The last row that was said of this version.
    last: Option<Last>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Last {
    Route(Prefix),
    Neighbor(u32, IpAddr),
}

/// Some rows of the answer to one of the commands of the process.
pub(crate) fn part(command: &str, from: Option<Cursor>, tables: &Tables) -> Part<Row, Cursor> {
    let from = from.unwrap_or_default();
    let of_next_table = |vrf: &Option<String>| {
        let (vrf, _) = tables.range((Bound::Excluded(vrf), Bound::Unbounded)).next()?;
        Some(Cursor { vrf: vrf.clone(), ..Cursor::default() })
    };
    let Some(table) = tables.get(&from.vrf) else {
        // It has gone since the part before.
        return Part { rows: Vec::new(), next: of_next_table(&from.vrf) };
    };
    let (rows, last) = match from.is_ng {
        false => of_version(command, &from, table.v2()),
        true => of_version(command, &from, table.ng()),
    };
    let next = match (last, from.is_ng) {
        (Some(last), _) => Some(Cursor { last: Some(last), ..from }),
        (None, false) => Some(Cursor { is_ng: true, last: None, ..from }),
        (None, true) => of_next_table(&from.vrf),
    };
    Part { rows, next }
}

/// Rows of one version, and the last of them if there may be more.
fn of_version<P: Version>(command: &str, from: &Cursor, speaker: &Speaker<P>) -> (Vec<Row>, Option<Last>) {
    let (now, vrf) = (Instant::now(), from.vrf.as_deref().unwrap_or(""));
    match command {
        // As many as the configuration names.
        "interfaces" => (interfaces(vrf, now, speaker), None),
        "neighbors" => neighbors(vrf, now, from.last, speaker),
        _ => routes(vrf, now, from.last, speaker),
    }
}

fn routes<P: Version>(
    vrf: &str,
    now: Instant,
    last: Option<Last>,
    speaker: &Speaker<P>,
) -> (Vec<Row>, Option<Last>) {
    let after = match last {
        Some(Last::Route(prefix)) => P::prefix(prefix),
        Some(Last::Neighbor(..)) | None => None,
    };
    let engine = speaker.engine();
    let shown: Vec<_> = engine.routes_after(after).take(ROWS).collect();
    let last = shown.get(ROWS - 1).map(|route| Last::Route(route.prefix.into()));
    (shown.iter().map(|route| of_route(vrf, now, speaker, route)).collect(), last)
}

fn neighbors<P: Version>(
    vrf: &str,
    now: Instant,
    last: Option<Last>,
    speaker: &Speaker<P>,
) -> (Vec<Row>, Option<Last>) {
    let after = match last {
        Some(Last::Neighbor(interface, address)) => P::address(address).map(|address| (interface, address)),
        Some(Last::Route(_)) | None => None,
    };
    let engine = speaker.engine();
    let shown: Vec<_> = engine.neighbours_after(after).take(ROWS).collect();
    let last = shown.get(ROWS - 1).map(|shown| Last::Neighbor(shown.interface, shown.address.into()));
    (shown.iter().map(|shown| of_neighbor(vrf, now, speaker, shown)).collect(), last)
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
        "prefix": Into::<Prefix>::into(route.prefix).to_string(),
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

fn interfaces<P: Version>(vrf: &str, now: Instant, speaker: &Speaker<P>) -> Vec<Row> {
    let engine = speaker.engine();
    let rows = engine.interfaces().map(|shown| {
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
            "refusedRequests": counters.refused_requests,
            "vrf": vrf,
        }))
    });
    rows.collect()
}

fn of_neighbor<P: Version>(
    vrf: &str,
    now: Instant,
    speaker: &Speaker<P>,
    shown: &ShownNeighbour<'_, P>,
) -> Row {
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
}
