//! What the operator is shown.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use holdfast_api::bgp::v1 as api;
use holdfast_bgp_pipeline::{
    AggregateView, DropReason, Dropped, NeighborView, PathState, PathView, PeerIndex, PeerKind, SentSecured,
    SentTo, SignatureFault, SignatureView,
};
use holdfast_bgp_session::State;
use holdfast_bgp_wire::{MessageType, attribute::code};
use holdfast_damping::Flaps;
use holdfast_types::{Family, Prefix, RouterId};

use crate::{
    bfd::{DEFAULT_PROFILE, Following, Wanted, diagnostic, state_name},
    config::{Neighbor, Range},
    last_error::last_error,
    nonstop,
    sessions::{Cost, slot::Slot},
    speaker::Speaker,
    stream::transport_name,
};

pub(crate) fn summary(speaker: &Speaker, now: Instant) -> api::Summary {
    let family = |family: Family| {
        let (prefixes, paths) = speaker.pipeline.table_size(family);
        let configured =
            speaker.sessions.slots().filter(|(_, slot)| slot.neighbor.source.families.contains(&family));
        api::SummaryFamily {
            family: family.to_string(),
            prefixes: prefixes as u64,
            paths,
            peers: configured.map(|(index, slot)| peer(speaker, index, slot, &[family], now)).collect(),
        }
    };
    api::Summary {
        router_id: speaker.settings.router_id.to_string(),
        asn: speaker.settings.asn.0,
        families: Family::ALL.into_iter().map(family).collect(),
        memory_bytes: speaker.pipeline.memory().total() as u64,
    }
}

/// What would become of the sessions if this process died now.
pub(crate) fn nsr(speaker: &Speaker, now: Instant) -> api::NsrReply {
    let sessions =
        speaker.sessions.slots().map(|(index, slot)| nsr_session(speaker, index, slot, now)).collect();
    let Some(log) = &speaker.protection.log else {
        return api::NsrReply { sessions, ..api::NsrReply::default() };
    };
    let resumed = log.resumed.get();
    let log = log.log.borrow();
    let usage = log.usage();
    api::NsrReply {
        enabled: true,
        log_octets_total: usage.blocks * usage.block,
        log_octets_used: (usage.blocks - usage.free) * usage.block,
        resumed_sessions: resumed.map_or(0, |resumed| resumed.sessions as u32),
        resumed_at_unix_milliseconds: resumed.map_or(0, |resumed| nonstop::unix_milliseconds(resumed.at)),
        last_resume_milliseconds: resumed.map_or(0, |resumed| resumed.took.as_millis().max(1) as u64),
        lives: log.lives(),
        sessions,
    }
}

fn nsr_session(speaker: &Speaker, index: PeerIndex, slot: &Slot, now: Instant) -> api::NsrSession {
    let session = api::NsrSession {
        peer: slot.neighbor.name.clone(),
        address: slot.neighbor.location.to_string(),
        ..api::NsrSession::default()
    };
    let Some((_, connection)) = speaker.sessions.session_connection(index) else {
        return api::NsrSession { reason: "the session is not up".into(), ..session };
    };
    let session = api::NsrSession { established: true, ..session };
    let Some(held) = &connection.held else {
        let reason = match &speaker.protection.log {
            None => "nonstop is off",
            Some(_) => connection.unprotected.text(),
        };
        return api::NsrSession { reason: reason.into(), ..session };
    };
    let usage = held.log.log.borrow().session_usage(held.id);
    let age = held.snapshot_at.map(|at| milliseconds(now.saturating_duration_since(at)).max(1));
    api::NsrSession {
        protected: held.kept,
        reason: if held.kept { String::new() } else { "its socket is on the way to the keeper".into() },
        incoming_octets: usage.incoming,
        snapshot_octets: usage.snapshot,
        outgoing_octets: usage.outgoing,
        lag_octets: usage.incoming + usage.outgoing,
        snapshot_age_milliseconds: age.unwrap_or(0),
        has_snapshot: usage.snapshot > 0,
        ..session
    }
}

/// A peer with its counts in these families.
fn peer(
    speaker: &Speaker,
    index: PeerIndex,
    slot: &Slot,
    families: &[Family],
    now: Instant,
) -> api::SummaryPeer {
    let session = &slot.session;
    let history = session.history();
    let counts: Vec<_> = families.iter().map(|&family| speaker.pipeline.counts(index, family)).collect();
    let queued = speaker.sessions.session_connection(index).map_or(0, |(_, connection)| connection.queued());
    let established = session.state() == State::Established;
    let asn =
        session.negotiated().map_or_else(|| slot.neighbor.configured_asn(), |negotiated| negotiated.asn);
    let down = history.last_down.as_ref();
    let since = session.established_since().or(down.map(|(at, _)| *at));
    api::SummaryPeer {
        name: slot.neighbor.name.clone(),
        address: slot.neighbor.location.to_string(),
        asn: asn.0,
        local_asn: slot.neighbor.local_asn(&speaker.settings).0,
        messages_received: session.counters().received.total(),
        messages_sent: session.counters().sent.total(),
        state: state(slot),
        uptime_milliseconds: since
            .map_or(0, |since| milliseconds(now.saturating_duration_since(since)).max(1)),
        prefixes_received: counts.iter().map(|count| count.routes.received).sum(),
        prefixes_accepted: counts.iter().map(|count| count.routes.accepted).sum(),
        prefixes_sent: counts.iter().map(|count| count.announced).sum(),
        connections_established: history.established as u32,
        connections_dropped: history.established.saturating_sub(established.into()) as u32,
        out_queue: (speaker.pipeline.queued(index) + queued) as u64,
        description: slot.neighbor.source.rules.description.clone().unwrap_or_default(),
        last_error: if established { String::new() } else { last_error(history) },
        admin_state: match slot {
            Slot { neighbor: Neighbor { disabled: true, .. }, .. } => "disabled".into(),
            Slot { stopped: true, .. } => "stopped".into(),
            _ => "up".into(),
        },
        admin_text: speaker.sessions.stopped.noted(&slot.neighbor.location).unwrap_or_default().to_owned(),
    }
}

/// The state, and who keeps it Idle.
fn state(slot: &Slot) -> String {
    let state = slot.session.state();
    match slot {
        Slot { neighbor: Neighbor { disabled: true, .. }, .. } => "Idle (disabled)".into(),
        Slot { stopped: true, .. } => "Idle (stopped)".into(),
        Slot { limited: true, .. } if state == State::Idle => "Idle (too many prefixes)".into(),
        _ => state.to_string(),
    }
}

/// A listen range, with what all did that it ever had.
pub(crate) fn range(speaker: &Speaker, range: &Range) -> api::RangeTotals {
    let name = &range.template.source.name;
    let members = speaker.sessions.ranges.get(name);
    let mut totals = members.map(|members| members.gone.clone()).unwrap_or_default();
    for (index, slot) in speaker.sessions.slots() {
        if slot.dynamic && slot.neighbor.source.name == *name {
            slot.add_to(&mut totals, speaker.pipeline.drops(index));
        }
    }
    let (last_error_of, last_error) = totals.last_error.unzip();
    api::RangeTotals {
        name: name.clone(),
        prefix: range.network.to_string(),
        peers: members.map_or(0, |members| members.present as u32),
        peers_seen: totals.peers,
        connections_established: totals.established,
        connections_dropped: totals.dropped,
        drops: totals.drops.counts().iter().map(drop_count).collect(),
        faults: totals.drops.last().map(fault).collect(),
        last_error: last_error.unwrap_or_default(),
        last_error_of: last_error_of.map(|location| location.to_string()).unwrap_or_default(),
    }
}

fn drop_count((reason, count): &(DropReason, u64)) -> api::Drop {
    api::Drop { reason: reason.to_string(), count: *count }
}

pub(crate) fn neighbor(speaker: &Speaker, index: PeerIndex, now: Instant) -> Option<api::Neighbor> {
    let slot = speaker.sessions.slot(index)?;
    let source = &slot.neighbor.source;
    let negotiated = slot.session.negotiated();
    let connection = speaker.sessions.session_connection(index).map(|(_, connection)| connection);
    let ago = |at: Instant| milliseconds(now.saturating_duration_since(at));
    let asn = negotiated.map_or_else(|| slot.neighbor.configured_asn(), |negotiated| negotiated.asn);
    let drops = speaker.pipeline.drops(index);
    Some(api::Neighbor {
        peer: Some(peer(speaker, index, slot, &source.families, now)),
        local_address: connection.map(|connection| connection.local.ip().to_string()).unwrap_or_default(),
        local_port: connection.map_or(0, |connection| connection.local.port().into()),
        remote_address: connection
            .map(|connection| slot.neighbor.location.in_session(connection.remote_address()).to_string())
            .unwrap_or_default(),
        remote_port: connection.map_or(0, |connection| connection.remote.port().into()),
        transport: connection.map(|connection| transport_name(&connection.said).into()).unwrap_or_default(),
        proof: connection.map(|connection| connection.said.proof.clone()).unwrap_or_default(),
        router_id: negotiated.map(|negotiated| negotiated.router_id.to_string()).unwrap_or_default(),
        local_router_id: speaker.settings.router_id.to_string(),
        link: match slot.neighbor.kind(&speaker.settings, asn) {
            PeerKind::Ibgp => "internal".into(),
            PeerKind::Ebgp => "external".into(),
            PeerKind::ConfedEbgp => "confederation".into(),
        },
        hold_time: negotiated.map_or(0, |negotiated| negotiated.hold_time.as_secs() as u32),
        keepalive: negotiated.map_or(0, |negotiated| negotiated.keepalive.as_secs() as u32),
        configured_hold_time: source.hold_time.as_secs() as u32,
        capabilities_sent: slot.session.offered().iter().map(ToString::to_string).collect(),
        capabilities_received: negotiated
            .map(|negotiated| negotiated.capabilities.iter().map(ToString::to_string).collect())
            .unwrap_or_default(),
        messages: messages(slot),
        families: source.families.iter().map(|family| family_state(speaker, index, *family)).collect(),
        import: source.import.clone().unwrap_or_default(),
        export: source.export.clone().unwrap_or_default(),
        drops: drops.map(|drops| drops.counts().iter().map(drop_count).collect()).unwrap_or_default(),
        faults: drops.map(|drops| drops.last().map(fault).collect()).unwrap_or_default(),
        last_reset: slot
            .session
            .history()
            .last_down
            .as_ref()
            .map(|(_, reason)| reason.to_string())
            .unwrap_or_default(),
        ttl_security: source.rules.ttl_security,
        passive: slot.session.config().rules.passive,
        last_read_milliseconds: connection.map_or(0, |connection| ago(connection.last_read)),
        last_write_milliseconds: connection.map_or(0, |connection| ago(connection.last_write)),
        in_listen_range: slot.dynamic,
        group: source.group.clone().unwrap_or_default(),
        paths: None,
        options: source.options(),
        refreshing: slot.session.refreshing().map(|family| family.to_string()).collect(),
        filters: filters(speaker, index),
        filter_entries_sent: negotiated
            .filter(|negotiated| !negotiated.orf_sent.is_empty())
            .map_or(0, |_| slot.neighbor.orf.len() as u32),
        cost: Some(cost(&slot.cost, speaker.pipeline.kept_octets(index), now)),
        bgpsec: slot.neighbor.source.bgpsec.is_on().then(|| bgpsec(speaker, index, slot)),
        bfd: slot.bfd.as_ref().map(|following| bfd(slot, following, now)),
    })
}

fn bfd(slot: &Slot, following: &Following, now: Instant) -> api::NeighborBfd {
    let Wanted { local, hops, profile, .. } = &following.wanted;
    let shown = api::NeighborBfd {
        profile: profile.clone().unwrap_or_else(|| DEFAULT_PROFILE.to_owned()),
        hops: hops.name().into(),
        local_address: local.map(|local| local.to_string()).unwrap_or_default(),
        strict: slot.session.config().bfd.as_ref().is_some_and(|bfd| bfd.strict),
        awaited: slot.session.awaits_bfd(),
        ..api::NeighborBfd::default()
    };
    let Some((said, at)) = &following.said else { return shown };
    let diagnostic = |number| if number == 0 { String::new() } else { diagnostic(number).into() };
    api::NeighborBfd {
        state: state_name(said.state()).into(),
        remote_state: state_name(said.remote_state()).into(),
        diagnostic: diagnostic(said.diagnostic),
        remote_diagnostic: diagnostic(said.remote_diagnostic),
        since_milliseconds: said.since_milliseconds + milliseconds(now.saturating_duration_since(*at)),
        detection_microseconds: said.detection_microseconds,
        remote_control_plane_independent: said.remote_control_plane_independent,
        ..shown
    }
}

fn bgpsec(speaker: &Speaker, index: PeerIndex, slot: &Slot) -> api::NeighborBgpsec {
    let counts = speaker.pipeline.signature_counts(index);
    let negotiated = slot.session.negotiated();
    let named = |families: &[Family]| families.iter().map(ToString::to_string).collect();
    api::NeighborBgpsec {
        sent: negotiated.map(|agreed| named(&agreed.bgpsec_sent)).unwrap_or_default(),
        received: negotiated.map(|agreed| named(&agreed.bgpsec_received)).unwrap_or_default(),
        valid: counts.valid,
        not_valid: counts.not_valid,
        unverified: counts.unverified,
        queued_hops: counts.queued_hops,
        incomplete: negotiated.is_some_and(|agreed| agreed.lacks_bgpsec),
    }
}

/// A peer that a route is sent to.
pub(crate) fn sent_to(speaker: &Speaker, SentTo { peer, secured }: SentTo) -> Option<api::SentTo> {
    let peer = speaker.sessions.slot(peer)?.neighbor.name.clone();
    let (signed, why, reason) = match secured {
        SentSecured::Yes => (true, "", String::new()),
        SentSecured::Waiting => (false, "waiting", "it waits to be signed".into()),
        SentSecured::No(why) => (false, why.word(), why.to_string()),
    };
    Some(api::SentTo { peer, signed, why: why.into(), reason })
}

/// What is known of a path's signatures.
fn signatures(view: &SignatureView, now: Instant) -> api::PathSignatures {
    let fault = |fault: SignatureFault| api::SignatureFault {
        reason: fault.reason.to_string(),
        failing_hop: fault.hop,
        asn: fault.asn.0,
        ski: fault.ski.to_string(),
        suite: fault.suite.into(),
    };
    api::PathSignatures {
        state: view.state.to_string(),
        pending: view.is_pending,
        milliseconds_ago: view.at.map(|at| milliseconds(now.saturating_duration_since(at))),
        fault: view.fault.map(fault),
    }
}

fn cost(cost: &Cost, kept_octets: u64, now: Instant) -> api::Cost {
    api::Cost {
        cpu_microseconds: cost.cpu.as_micros() as u64,
        octets_in: cost.octets_in,
        turns: cost.turns,
        longest_turn_microseconds: cost.longest.as_micros() as u64,
        longest_turn_cause: cost.longest_cause.into(),
        kept_octets,
        waited_for_permille: cost.waited_for.clone().permille(now),
    }
}

/// What the peer has said of the prefixes that it wants.
fn filters(speaker: &Speaker, index: PeerIndex) -> Vec<api::ReceivedFilter> {
    let filter = |family: Family| {
        let (entries, has_asked) = speaker.pipeline.orf(index, family)?;
        Some(api::ReceivedFilter { family: family.to_string(), entries: entries as u32, has_asked })
    };
    Family::ALL.into_iter().filter_map(filter).collect()
}

fn fault(dropped: &Dropped) -> String {
    match dropped.prefix {
        Some(prefix) if dropped.routes > 1 => {
            format!("{prefix} and {} more: {}", dropped.routes - 1, dropped.reason)
        }
        Some(prefix) => format!("{prefix}: {}", dropped.reason),
        None => dropped.reason.to_string(),
    }
}

fn messages(slot: &Slot) -> Vec<api::MessageCount> {
    let counters = slot.session.counters();
    let kinds = [
        (MessageType::Open, "open"),
        (MessageType::Update, "update"),
        (MessageType::Notification, "notification"),
        (MessageType::KeepAlive, "keepalive"),
        (MessageType::RouteRefresh, "route-refresh"),
    ];
    let count = |(kind, name): (MessageType, &str)| api::MessageCount {
        kind: name.into(),
        sent: counters.sent.of(kind),
        received: counters.received.of(kind),
    };
    kinds.into_iter().map(count).collect()
}

fn family_state(speaker: &Speaker, index: PeerIndex, family: Family) -> api::FamilyState {
    let counts = speaker.pipeline.counts(index, family);
    let negotiated = speaker.sessions.slot(index).and_then(|slot| slot.session.negotiated());
    api::FamilyState {
        family: family.to_string(),
        received: counts.routes.received,
        accepted: counts.routes.accepted,
        best: counts.routes.best,
        sent: counts.announced,
        end_of_rib_received: counts.end_of_rib_received,
        limit: limit(speaker, index, family),
        stale: counts.stale,
        end_of_rib_sent: counts.end_of_rib_sent,
        update_group: speaker.pipeline.update_group(index).unwrap_or(0),
        identifiers_received: negotiated.is_some_and(|both| both.identifiers_received.contains(&family)),
        identifiers_sent: negotiated.is_some_and(|both| both.identifiers_sent.contains(&family)),
    }
}

fn limit(speaker: &Speaker, index: PeerIndex, family: Family) -> Option<api::PrefixLimit> {
    let limits = &speaker.sessions.slot(index)?.neighbor.source.limits;
    let limit = limits.iter().find(|limit| limit.family == family)?;
    Some(api::PrefixLimit {
        family: family.to_string(),
        received: limit.received.unwrap_or(0),
        accepted: limit.accepted.unwrap_or(0),
        announced: limit.announced.unwrap_or(0),
        warn_percent: limit.warn_percent.into(),
        action: limit.action.name().into(),
        restart_seconds: limit.restart_after.as_secs() as u32,
    })
}

/// Prefixes with those of their paths that are wanted, as far as they have one.
pub(crate) fn prefixes(
    speaker: &Speaker,
    rows: Vec<(Prefix, Vec<PathView>)>,
    wanted: impl Fn(&PathView) -> bool,
) -> Vec<api::Prefix> {
    let prefix = |(prefix, views): (Prefix, Vec<PathView>)| api::Prefix {
        prefix: prefix.to_string(),
        paths: views.iter().filter(|view| wanted(view)).map(|view| path(speaker, view)).collect(),
    };
    rows.into_iter().map(prefix).filter(|prefix| !prefix.paths.is_empty()).collect()
}

/// Routes of one peer; several paths of a prefix stand together. A LOCAL_PREF that the peer is not told is not shown.
pub(crate) fn neighbor_prefixes(
    speaker: &Speaker,
    view: NeighborView,
    routes: Vec<(Prefix, PathView)>,
) -> Vec<api::Prefix> {
    let mut prefixes: Vec<api::Prefix> = Vec::with_capacity(routes.len());
    for (prefix, shown) in routes {
        let (prefix, mut path) = (prefix.to_string(), path(speaker, &shown));
        if view == NeighborView::Advertised {
            path.local_pref = shown.attributes().local_pref();
        }
        match prefixes.last_mut().filter(|last| last.prefix == prefix) {
            Some(last) => last.paths.push(path),
            None => prefixes.push(api::Prefix { prefix, paths: vec![path] }),
        }
    }
    prefixes
}

/// Which of a peer's routes are asked for.
pub(crate) fn view(asked: api::NeighborView) -> NeighborView {
    match asked {
        api::NeighborView::Received => NeighborView::Received,
        api::NeighborView::Accepted => NeighborView::Accepted,
        api::NeighborView::Filtered => NeighborView::Filtered,
        api::NeighborView::Advertised => NeighborView::Advertised,
        api::NeighborView::Withheld => NeighborView::Withheld,
    }
}

/// Routes that have flapped: those that are held back, or all.
pub(crate) fn dampened(speaker: &Speaker, flaps: &[Flaps], all: bool) -> Vec<api::DampenedRoute> {
    let shown = flaps.iter().filter(|flaps| all || flaps.reuse_in.is_some());
    shown.filter_map(|flaps| Some(dampened_route(speaker.sessions.slot(flaps.peer)?, flaps))).collect()
}

fn dampened_route(slot: &Slot, flaps: &Flaps) -> api::DampenedRoute {
    api::DampenedRoute {
        prefix: flaps.prefix.to_string(),
        peer: slot.neighbor.name.clone(),
        peer_address: slot.neighbor.location.to_string(),
        penalty: flaps.penalty,
        flaps: flaps.flaps,
        period_milliseconds: milliseconds(flaps.since),
        suppressed: flaps.reuse_in.is_some(),
        reuse_milliseconds: flaps.reuse_in.map_or(0, milliseconds),
    }
}

fn path(speaker: &Speaker, view: &PathView) -> api::Path {
    let attributes = view.attributes();
    let slot = view.peer.and_then(|index| speaker.sessions.slot(index));
    api::Path {
        peer: slot.map_or_else(|| nobody(view), |slot| slot.neighbor.name.clone()),
        peer_address: slot.map(|slot| slot.neighbor.location.to_string()).unwrap_or_default(),
        peer_router_id: RouterId::new(view.peer_router_id).map(|id| id.to_string()).unwrap_or_default(),
        next_hop: view.next_hop.map(|gateway| gateway.address.to_string()).unwrap_or_default(),
        as_path: attributes.as_path().to_string(),
        origin: attributes.origin().map(|origin| origin.to_string()).unwrap_or_default(),
        med: attributes.med(),
        local_pref: Some(view.local_pref),
        weight: view.weight,
        path_id: view.identifier,
        communities: attributes.communities().map(|c| format!("{}:{}", c >> 16, c & 0xffff)).collect(),
        large_communities: attributes.large_communities().map(|(a, b, c)| format!("{a}:{b}:{c}")).collect(),
        ext_communities: attributes.ext_communities().map(|octets| hex(&octets)).collect(),
        aggregator: attributes
            .aggregator()
            .map(|(asn, address)| format!("{asn} {address}"))
            .unwrap_or_default(),
        atomic_aggregate: attributes.atomic_aggregate(),
        originator_id: attributes.originator_id().map(|id| id.to_string()).unwrap_or_default(),
        cluster_list: attributes.cluster_list().map(|id| Ipv4Addr::from_bits(id).to_string()).collect(),
        // What a peer is not told of is best all the same.
        best: view.state == PathState::Best || matches!(view.state, PathState::Withheld(_)) && view.is_best,
        multipath: matches!(view.state, PathState::Multipath(_)),
        valid: view.is_valid(),
        reason: if view.state == PathState::Best { String::new() } else { view.state.to_string() },
        external: view.kind == PeerKind::Ebgp,
        igp_metric: view.metric,
        unknown_attributes: attributes
            .unknown()
            .filter(|attribute| attribute.code != code::BGPSEC_PATH)
            .map(|attribute| format!("{}: {}", attribute.code, hex(attribute.value)))
            .collect(),
        peer_asn: view.peer_asn.0,
        tag: view.tag,
        filtered: !view.is_accepted,
        stale: view.is_stale,
        validity: view.states.map(|states| states.validity.to_string()).unwrap_or_default(),
        aspa: view.states.map(|states| states.path.to_string()).unwrap_or_default(),
        bgpsec: view.signatures.as_ref().map(|view| signatures(view, Instant::now())),
    }
}

pub(crate) fn aggregate(view: AggregateView) -> api::AggregateState {
    api::AggregateState {
        prefix: view.prefix.to_string(),
        summary_only: view.summary_only,
        contributors: view.contributors,
        counting: view.is_counting,
        origin: view.origin.map(|origin| origin.to_string()).unwrap_or_default(),
    }
}

/// Who a route is from that is of no peer.
fn nobody(view: &PathView) -> String {
    match view.peer {
        Some(_) => "(gone)".into(),
        None if view.is_redistributed => view.protocol.to_string(),
        None if view.is_aggregate => "aggregate".into(),
        None => "local".into(),
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
