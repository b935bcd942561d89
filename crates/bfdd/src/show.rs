//! What `holdfast show bfd` says, with the names of FRR's `show bfd peers json`.

use std::{ops::Bound, time::Duration, time::Instant};

use holdfast_bfd::{Hops, Session, SessionId, State};
use holdfast_process::{Part, ROWS};
use serde_json::{Map, Value, json};

use crate::{
    table::{Discarded, Inner},
    tables::Tables,
    wanted::Sessions,
};

/// A row of an answer.
pub(crate) type Row = Map<String, Value>;

/// How far an answer has come: it has the tables by name, and their sessions by number.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Cursor {
    vrf: Option<String>,
    /// The last session that was said.
    last: Option<SessionId>,
}

/// Some rows of the answer to one of the commands of the process.
pub(crate) fn part(command: &str, from: Option<Cursor>, tables: &Tables) -> Part<Row, Cursor> {
    if command == "status" {
        let all = tables.all();
        let mut rows = process(tables);
        rows.extend(all.iter().flat_map(|(vrf, table)| discarded(vrf.as_deref(), table.inner())));
        return Part::whole(rows);
    }
    let (from, all) = (from.unwrap_or_default(), tables.all());
    let next_table = |vrf: &Option<String>| {
        let (vrf, _) = all.range((Bound::Excluded(vrf), Bound::Unbounded)).next()?;
        Some(Cursor { vrf: vrf.clone(), last: None })
    };
    let Some(table) = all.get(&from.vrf) else {
        // It has gone since the part before, or there is no default table.
        return Part { rows: Vec::new(), next: next_table(&from.vrf) };
    };
    let (sessions, now) = (table.inner().sessions(), Instant::now());
    let rest = sessions.engine.sessions().filter(|(id, _)| from.last.is_none_or(|last| *id > last));
    let shown: Vec<_> = rest.take(ROWS).collect();
    let vrf = from.vrf.as_deref();
    let rows = shown.iter().map(|(id, session)| match command {
        "counters" => counters(vrf, &sessions, session),
        "peers" => peer(vrf, now, &sessions, *id, session),
        _ => brief(vrf, now, &sessions, session),
    });
    let rows = rows.collect();
    let next = match shown.get(ROWS - 1) {
        Some((last, _)) => Some(Cursor { last: Some(*last), ..from.clone() }),
        None => next_table(&from.vrf),
    };
    Part { rows, next }
}

fn row(value: Value) -> Row {
    match value {
        Value::Object(row) => row,
        _ => Row::new(),
    }
}

/// As FRR has it: in small letters, and an end that an operator holds down is `shutdown`.
fn status(state: State) -> &'static str {
    match state {
        State::AdminDown => "shutdown",
        State::Down => "down",
        State::Init => "init",
        State::Up => "up",
    }
}

fn milliseconds(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// Seconds in state Up.
fn uptime(now: Instant, session: &Session) -> Option<u64> {
    let seconds = now.saturating_duration_since(session.since()).as_secs();
    (session.state() == State::Up).then_some(seconds)
}

/// Seconds in another state.
fn downtime(now: Instant, session: &Session) -> Option<u64> {
    let seconds = now.saturating_duration_since(session.since()).as_secs();
    (session.state() != State::Up).then_some(seconds)
}

/// What names a session.
fn name(vrf: Option<&str>, sessions: &Sessions, session: &Session) -> Row {
    let path = session.path();
    row(json!({
        "peer": path.remote.to_string(),
        "local": path.local.map(|local| local.to_string()).unwrap_or_default(),
        "vrf": vrf.unwrap_or("default"),
        "interface": sessions.interface(path.interface),
        "multihop": path.hops == Hops::Multiple,
    }))
}

fn with(mut name: Row, more: Value) -> Row {
    name.extend(row(more));
    name
}

fn brief(vrf: Option<&str>, now: Instant, sessions: &Sessions, session: &Session) -> Row {
    let more = json!({
        "status": status(session.state()),
        "uptime": uptime(now, session),
        "downtime": downtime(now, session),
        "diagnostic": session.diagnostic().to_string(),
        "remote-diagnostic": session.remote_diagnostic().to_string(),
        "detection-time": milliseconds(session.detection_time()),
    });
    with(name(vrf, sessions, session), more)
}

fn peer(vrf: Option<&str>, now: Instant, sessions: &Sessions, id: SessionId, session: &Session) -> Row {
    let ([transmit, receive], [remote_transmit, remote_receive, remote_echo]) =
        (session.intervals(), session.remote_intervals());
    let profile = session.profile();
    let more = json!({
        "id": session.discriminator(),
        "remote-id": session.remote_discriminator(),
        "passive-mode": profile.passive,
        "minimum-ttl": if session.path().hops == Hops::Multiple { profile.minimum_ttl } else { 255 },
        "status": status(session.state()),
        "uptime": uptime(now, session),
        "downtime": downtime(now, session),
        "diagnostic": session.diagnostic().to_string(),
        "remote-status": status(session.remote_state()),
        "remote-diagnostic": session.remote_diagnostic().to_string(),
        "profile": sessions.profile_of(id),
        "authentication": !profile.keys.is_empty(),
        "receive-interval": milliseconds(receive),
        "transmit-interval": milliseconds(transmit),
        "echo-receive-interval": 0,
        "echo-transmit-interval": 0,
        "detect-multiplier": profile.detect_multiplier,
        "remote-receive-interval": milliseconds(remote_receive),
        "remote-transmit-interval": milliseconds(remote_transmit),
        "remote-echo-receive-interval": milliseconds(remote_echo),
        "remote-detect-multiplier": session.remote_detect_multiplier(),
        "remote-control-plane-independent": session.is_remote_control_plane_independent(),
        "remote-demand": session.is_demand_active(),
        "negotiated-transmit-interval": milliseconds(session.transmit_interval()),
        "detection-time": milliseconds(session.detection_time()),
    });
    with(name(vrf, sessions, session), more)
}

fn counters(vrf: Option<&str>, sessions: &Sessions, session: &Session) -> Row {
    let counters = session.counters();
    let more = json!({
        "control-packet-input": counters.received,
        "control-packet-output": counters.sent,
        "echo-packet-input": 0,
        "echo-packet-output": 0,
        "session-up": counters.ups,
        "session-down": counters.downs,
        "not-authentic": counters.unauthentic,
        "misdirected": counters.misdirected,
    });
    with(name(vrf, sessions, session), more)
}

fn said(what: &str, value: impl Into<Value>, vrf: Option<&str>) -> Row {
    row(json!({ "what": what, "value": value.into(), "vrf": vrf.unwrap_or("") }))
}

/// How the process runs: what the kernel has refused is said as it is.
fn process(tables: &Tables) -> Vec<Row> {
    let Some(real_time) = &tables.boot().real_time else { return Vec::new() };
    let outcome = |outcome: &Result<(), String>, granted: &str| match outcome {
        Ok(()) => granted.to_owned(),
        Err(refusal) => format!("refused: {refusal}"),
    };
    vec![
        said("scheduling", outcome(&real_time.scheduling, "real time"), None),
        said("memory", outcome(&real_time.memory, "locked"), None),
    ]
}

fn discarded(vrf: Option<&str>, table: &Inner) -> Vec<Row> {
    let Discarded { malformed, no_session, misdirected, unauthentic, unsent } = table.discarded();
    let vrf = Some(vrf.unwrap_or("default"));
    vec![
        said("sessions", table.sessions().engine.len(), vrf),
        said("malformed", malformed, vrf),
        said("no-session", no_session, vrf),
        said("misdirected", misdirected, vrf),
        said("not-authentic", unauthentic, vrf),
        said("dropped-by-kernel", table.dropped(), vrf),
        said("unsent", unsent, vrf),
    ]
}
