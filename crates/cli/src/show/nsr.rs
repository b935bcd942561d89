//! `show nsr`.

use std::{
    io::{self, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use holdfast_api::{
    bgp::v1::{BgpClient, Empty, NsrReply, NsrSession},
    gate::v1::{self as gate, GateClient, GateStatus, QueueStatus},
    replicator::v1::{self as replicator, ReplicatorClient, SessionStatus, Status},
};
use serde_json::{Value, json};

use crate::{
    Failure,
    json::line,
    router::{Router, answer},
    text::{Table, or_dash, size, uptime},
};

pub(super) async fn show(router: &Router, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let store = match router.whole().client::<ReplicatorClient>("replicator").await {
        Ok(replicator) => Some(answer(replicator.show(replicator::Empty {})).await?),
        Err(Failure::NotRunning { .. }) => None,
        Err(failure) => return Err(failure),
    };
    let bgp: BgpClient = router.client("bgp").await?;
    let nsr = match answer(bgp.show_nsr(Empty {})).await {
        // It waits for its configuration as long as the sessions are elsewhere.
        Err(_) if store.as_ref().is_some_and(|store| store.role == "standby") => NsrReply::default(),
        nsr => nsr?,
    };
    // One that has just died is said to be missing.
    let gate = match (&store, router.whole().client::<GateClient>("gate").await) {
        (None, _) | (_, Err(Failure::NotRunning { .. })) => None,
        (Some(_), Ok(gate)) => answer(gate.show(gate::Empty {})).await.ok(),
        (Some(_), Err(failure)) => return Err(failure),
    };
    let vrf = router.vrf();
    if as_json {
        let mut value = to_json(&nsr, store.as_ref(), vrf);
        if let Some(store) = &store {
            value["store"] = store_json(store, vrf);
            value["gate"] = gate.as_ref().map_or(Value::Null, |gate| gate_json(gate, vrf));
        }
        line(out, &value)?;
    } else {
        write(&nsr, out)?;
        if let Some(store) = &store {
            write_store(store, gate.as_ref(), vrf, out)?;
        }
    }
    Ok(())
}

/// What protects a session.
fn tier(session: &NsrSession, store: Option<&Status>, vrf: Option<&str>) -> &'static str {
    let is_in_store = |store: &Status| {
        let mut own = sessions(store, vrf).filter(|own| remote(own) == session.address);
        store.protection == "full" && own.any(|own| own.unprotected.is_empty())
    };
    match session.protected {
        true if store.is_some_and(is_in_store) => "store",
        true => "keeper",
        false => "none",
    }
}

/// The queue of a table.
fn queue<'a>(gate: &'a GateStatus, vrf: Option<&str>) -> Option<&'a QueueStatus> {
    gate.queues.iter().find(|queue| queue.vrf == vrf.unwrap_or_default())
}

fn gate_json(gate: &GateStatus, vrf: Option<&str>) -> Value {
    let mut value = json!({ "attached": gate.attached, "lease": gate.lease, "missing": gate.missing });
    if let Some(queue) = queue(gate, vrf) {
        value["queue"] = json!({
            "number": queue.queue,
            "tables": queue.tables,
            "connections": queue.flows,
            "held": queue.held,
            "oldestHeldMsec": queue.oldest_held_milliseconds,
            "accepted": queue.accepted,
            "delayed": queue.delayed,
            "superseded": queue.superseded,
            "droppedUnknown": queue.unknown,
            "droppedClosed": queue.closed,
            "droppedNoLease": queue.no_lease,
            "droppedBound": queue.bound,
            "unreadable": queue.unreadable,
            "lost": queue.lost,
            "overruns": queue.overruns,
            "gaps": queue.gaps,
        });
    }
    value
}

/// The sessions of a table.
fn sessions<'a>(store: &'a Status, vrf: Option<&'a str>) -> impl Iterator<Item = &'a SessionStatus> {
    store.sessions.iter().filter(move |session| session.vrf == vrf.unwrap_or_default())
}

fn remote(session: &SessionStatus) -> String {
    holdfast_types::address(&session.remote_address).map_or_else(String::new, |address| address.to_string())
}

fn store_json(store: &Status, vrf: Option<&str>) -> Value {
    let session = |session: &SessionStatus| {
        json!({
            "session": session.session,
            "address": remote(session),
            "protected": session.unprotected.is_empty() && store.protection == "full",
            "reason": session.unprotected,
            "gate": session.gate,
            "received": session.received,
            "sent": session.sent,
            "waitingReceived": session.wanted_received.saturating_sub(session.received),
            "waitingSent": session.wanted_sent.saturating_sub(session.sent),
            "waitingMsec": session.waits_milliseconds.unwrap_or(0),
        })
    };
    json!({
        "kind": store.store,
        "server": store.server,
        "protection": store.protection,
        "phase": store.phase,
        "trouble": store.trouble,
        "silentMsec": store.silent_milliseconds.unwrap_or(0),
        "role": store.role,
        "restored": store.restored,
        "notRestored": store.not_restored,
        "preheated": store.preheated,
        "standIns": store.stand_ins,
        "configuration": number(store.configuration),
        "holderConfiguration": store.holder_configuration.map(number),
        "standbyConfiguration": store.standby_configuration.map(number),
        "hasAddresses": store.has_addresses,
        "serviceAddresses": store.service_addresses,
        "missingAddresses": store.missing_addresses,
        "lease": store.lease,
        "epoch": store.epoch,
        "incarnation": store.incarnation,
        "generation": store.generation,
        "batches": store.batches,
        "octets": store.octets,
        "batchesWaiting": store.waiting,
        "octetsInStore": store.octets_in_store,
        "losses": store.losses,
        "gaps": store.gaps,
        "segmentsHeld": store.held,
        "missing": store.missing,
        "sessions": sessions(store, vrf).map(session).collect::<Vec<_>>(),
    })
}

/// A configuration, as people compare it.
fn number(configuration: u64) -> String {
    format!("{configuration:016x}")
}

/// Which standby waits for the sessions of this router, or whose sessions this one waits for.
fn standby(store: &Status) -> Option<String> {
    let compared = |other: u64| match other == store.configuration {
        true => format!("configuration {}, as here", number(other)),
        false => {
            format!("configuration {}, ANOTHER one than here: {}", number(other), number(store.configuration))
        }
    };
    match (store.role.as_str(), store.holder_configuration, store.standby_configuration) {
        ("standby", Some(holder), _) => Some(format!("Sessions: {}", compared(holder))),
        ("primary" | "restoring", _, Some(standby)) => Some(format!("Standby: waits, {}", compared(standby))),
        ("primary" | "restoring", _, None) => Some("Standby: none is known".to_owned()),
        _ => None,
    }
}

/// What the router is to its sessions.
fn role(store: &Status) -> String {
    let role = or_dash(&store.role);
    match (store.preheated.as_str(), store.restored + store.not_restored) {
        ("", 0) => role.to_owned(),
        ("", _) => {
            format!(
                "{role}; {} sessions came from another router, {} did not",
                store.restored, store.not_restored
            )
        }
        (word, _) => format!("{role}, preheated ({word}): routes of {} sessions", store.stand_ins),
    }
}

fn write_store(
    store: &Status,
    gate: Option<&GateStatus>,
    vrf: Option<&str>,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out)?;
    let server = if store.server.is_empty() { String::new() } else { format!(" at {}", store.server) };
    let store_is = match (store.role.as_str(), store.lease) {
        // It reads what another router writes.
        ("standby", _) => "the router with the sessions writes it".to_owned(),
        (_, true) => format!("protection {}, {}, epoch {}", store.protection, store.phase, store.epoch),
        (_, false) => format!("protection {}, {}, no lease", store.protection, store.phase),
    };
    writeln!(out, "Store: {}{server}, {store_is}", store.store)?;
    writeln!(out, "Role: {}", role(store))?;
    if let Some(standby) = standby(store) {
        writeln!(out, "{standby}")?;
    }
    if store.service_addresses > 0 {
        let here = if store.has_addresses { "here" } else { "not here" };
        writeln!(out, "Service addresses: {}, {here}", store.service_addresses)?;
        for missing in &store.missing_addresses {
            writeln!(out, "Missing: {missing}")?;
        }
    }
    let (held, stored) = (size(store.octets_in_store), size(store.octets));
    writeln!(
        out,
        "Octets: {held} in the store, {stored} written; losses {}, gaps {}",
        store.losses, store.gaps
    )?;
    if !store.trouble.is_empty() {
        writeln!(out, "Trouble: {}", store.trouble)?;
    }
    for missing in &store.missing {
        writeln!(out, "Not gated: {missing}")?;
    }
    write_gate(store, gate, vrf, out)?;
    writeln!(out)?;
    let mut table = Table::new(&[
        "Neighbor",
        "Gate",
        ">Received",
        ">Sent",
        ">Waits in",
        ">Waits out",
        ">For ms",
        "Why not",
    ]);
    for session in sessions(store, vrf) {
        table.row([
            or_dash(&remote(session)).to_owned(),
            or_dash(&session.gate).to_owned(),
            session.received.to_string(),
            session.sent.to_string(),
            session.wanted_received.saturating_sub(session.received).to_string(),
            session.wanted_sent.saturating_sub(session.sent).to_string(),
            session.waits_milliseconds.map_or_else(|| "-".to_owned(), |waits| waits.to_string()),
            session.unprotected.clone(),
        ]);
    }
    table.write(out)
}

fn write_gate(
    store: &Status,
    gate: Option<&GateStatus>,
    vrf: Option<&str>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(gate) = gate else { return writeln!(out, "Gate: it does not run; nothing leaves") };
    let Some(queue) = queue(gate, vrf) else { return writeln!(out, "Gate: it does not stand here") };
    let tables = if queue.tables { "" } else { ", its tables are missing" };
    let oldest = match queue.held {
        0 => String::new(),
        _ => format!(", the oldest for {} ms", queue.oldest_held_milliseconds),
    };
    let held = store.held;
    writeln!(out, "Gate: queue {}{tables}; segments that wait: {held}{oldest}", queue.queue)
}

fn to_json(nsr: &NsrReply, store: Option<&Status>, vrf: Option<&str>) -> Value {
    let peers = nsr.sessions.iter().map(|session| {
        let mut value = session_json(session);
        value["tier"] = tier(session, store, vrf).into();
        (session.address.clone(), value)
    });
    let mut value = json!({
        "enabled": nsr.enabled,
        "logTotal": nsr.log_octets_total,
        "logUsed": nsr.log_octets_used,
        "lives": nsr.lives,
        "resumedSessions": nsr.resumed_sessions,
        "peers": Value::Object(peers.collect()),
    });
    if nsr.resumed_at_unix_milliseconds > 0 {
        value["resumedEpochMsec"] = nsr.resumed_at_unix_milliseconds.into();
        value["lastResumeMsec"] = nsr.last_resume_milliseconds.into();
    }
    value
}

fn session_json(session: &NsrSession) -> Value {
    let mut value = json!({
        "name": session.peer,
        "protected": session.protected,
        "incoming": session.incoming_octets,
        "outgoing": session.outgoing_octets,
        "lag": session.lag_octets,
        "snapshot": session.snapshot_octets,
    });
    if !session.reason.is_empty() {
        value["reason"] = session.reason.as_str().into();
    }
    if session.has_snapshot {
        value["snapshotAgeMsec"] = session.snapshot_age_milliseconds.into();
    }
    value
}

fn write(nsr: &NsrReply, out: &mut dyn Write) -> io::Result<()> {
    write_router(nsr, out)?;
    let mut table =
        Table::new(&["Name", "Neighbor", "Protected", ">In", ">Out", ">Lag", ">Snapshot", ">Age", "Why not"]);
    for session in &nsr.sessions {
        table.row(row(session));
    }
    table.write(out)
}

fn write_router(nsr: &NsrReply, out: &mut dyn Write) -> io::Result<()> {
    let (used, total) = (size(nsr.log_octets_used), size(nsr.log_octets_total));
    match nsr.enabled {
        true => writeln!(out, "Nonstop: on, {used} of {total} used")?,
        false => writeln!(out, "Nonstop: off")?,
    }
    if nsr.resumed_at_unix_milliseconds > 0 {
        let ago = uptime(since(nsr.resumed_at_unix_milliseconds).max(1));
        let (sessions, took) = (nsr.resumed_sessions, nsr.last_resume_milliseconds);
        writeln!(out, "Resumed: {sessions} sessions in {took} ms, {ago} ago")?;
    }
    if nsr.lives > 0 {
        writeln!(out, "Deaths in a row before all was resumed: {}", nsr.lives)?;
    }
    writeln!(out)
}

/// Milliseconds since this moment of Unix time.
fn since(unix_milliseconds: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    u64::try_from(now).unwrap_or(u64::MAX).saturating_sub(unix_milliseconds)
}

fn row(session: &NsrSession) -> [String; 9] {
    let amount = |octets: u64| if session.protected { size(octets) } else { "-".to_owned() };
    let [snapshot, age] = match session.has_snapshot {
        true => [size(session.snapshot_octets), uptime(session.snapshot_age_milliseconds.max(1))],
        false => ["-".to_owned(), "-".to_owned()],
    };
    [
        session.peer.clone(),
        or_dash(&session.address).to_owned(),
        if session.protected { "yes".to_owned() } else { "no".to_owned() },
        amount(session.incoming_octets),
        amount(session.outgoing_octets),
        amount(session.lag_octets),
        snapshot,
        age,
        session.reason.clone(),
    ]
}
