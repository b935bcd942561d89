//! What the process counts, by peer, and how full its queues are.

use std::rc::Rc;

use holdfast_bgp_pipeline::{Drops, Limits, PeerIndex};
use holdfast_bgp_session::{Bfd, State};
use holdfast_bgp_wire::MessageType;
use holdfast_process::metrics::{Metric, Metrics, Queue, Sheet};
use holdfast_types::Family;

use crate::{
    bgp::{Bgp, MOST_DIALS},
    depths::Depths,
    service::Server,
    sessions::slot::Slot,
    speaker::{CHUNK, Speaker},
};

/// Peers in a slice: a fraction of a millisecond.
const SLICE: usize = 64;

static PEERS: Metric = Metric::gauge("holdfast_bgp_peers", "Peers, those of listen ranges included");
static PREFIXES: Metric = Metric::gauge("holdfast_bgp_prefixes", "Prefixes in the table");
static PATHS: Metric = Metric::gauge("holdfast_bgp_paths", "Paths in the table");
static MEMORY: Metric =
    Metric::gauge("holdfast_bgp_memory_bytes", "Memory of tables, attributes and encoded messages");
static GROUPS: Metric = Metric::gauge("holdfast_bgp_update_groups", "Update groups");
static NSR_USED: Metric =
    Metric::gauge("holdfast_bgp_nsr_log_used_bytes", "What the replication log of the sessions holds");
static NSR_SIZE: Metric =
    Metric::gauge("holdfast_bgp_nsr_log_size_bytes", "How much the replication log has room for");
static NSR_RECEIVED: Metric =
    Metric::counter("holdfast_bgp_nsr_received_octets", "Octets received into the replication log");
static NSR_SNAPSHOTS: Metric = Metric::counter(
    "holdfast_bgp_nsr_snapshot_octets",
    "Octets of snapshots written into it, those included that were given up",
);

static VRPS: Metric = Metric::gauge("holdfast_bgp_rpki_vrps", "VRPs that routes are validated by");
static ASPAS: Metric =
    Metric::gauge("holdfast_bgp_rpki_aspas", "Provider authorizations that paths are verified by");
static EPOCH: Metric =
    Metric::gauge("holdfast_bgp_rpki_epoch", "Number of the last change that is applied; 0 before the first");

static TOO_LONG: Metric = Metric::counter(
    "holdfast_bgp_routes_too_long",
    "Routes withdrawn instead of announced: their attributes fit no message of the receiver, or there is no next hop",
);

static SIGNATURES_KEPT: Metric =
    Metric::gauge("holdfast_bgp_signatures_kept", "Signatures of ours that are kept");
static SIGNATURES_LOST: Metric = Metric::counter(
    "holdfast_bgp_signatures_lost",
    "Signatures of ours that were not kept, for want of room, or not found whole",
);
static SIGNATURES_WAITING: Metric =
    Metric::gauge("holdfast_bgp_signatures_waiting", "Signatures of ours that announcements wait for");

static CHECKED: Metric = Metric::gauge(
    "holdfast_bgp_consistency_checked",
    "Whether each change is checked, of the whole table (`consistency-check`)",
);
static VIOLATIONS: Metric = Metric::counter(
    "holdfast_bgp_consistency_violations",
    "Changes that did not follow from those before them, while `consistency-check` was on",
);

static UP: Metric = Metric::gauge("holdfast_bgp_peer_up", "Whether the session is established");
static STATE: Metric = Metric::gauge(
    "holdfast_bgp_peer_state",
    "State of RFC 4271: 1 Idle, 2 Connect, 3 Active, 4 OpenSent, 5 OpenConfirm, 6 Established",
);
static INFO: Metric =
    Metric::gauge("holdfast_bgp_peer_info", "Address and AS number of a peer as labels; always 1");
static ESTABLISHED: Metric =
    Metric::counter("holdfast_bgp_peer_established", "How often the session came up");
static FLAPS: Metric = Metric::counter("holdfast_bgp_peer_flaps", "How often an established session ended");
static RECEIVED: Metric = Metric::counter("holdfast_bgp_peer_messages_received", "Messages from the peer");
static SENT: Metric = Metric::counter("holdfast_bgp_peer_messages_sent", "Messages to the peer");
static PROTECTED: Metric =
    Metric::gauge("holdfast_bgp_peer_protected", "Whether the session outlives the bgp process");
static DROPS: Metric =
    Metric::counter("holdfast_bgp_peer_drops", "Routes and attributes dropped from the peer's UPDATEs");
static PEER_KEPT: Metric = Metric::gauge(
    "holdfast_bgp_peer_kept_bytes",
    "Octets kept for the peer: its routes, and attributes that it brought first",
);
static PEER_CPU: Metric = Metric::counter(
    "holdfast_bgp_peer_cpu_seconds",
    "Processor time of turns in which the peer was read or written, with what followed for others",
);
static PREFIXES_RECEIVED: Metric =
    Metric::gauge("holdfast_bgp_peer_prefixes_received", "Prefixes that the peer announces");
static PREFIXES_ACCEPTED: Metric =
    Metric::gauge("holdfast_bgp_peer_prefixes_accepted", "Those that import policy accepts");
static PREFIXES_BEST: Metric =
    Metric::gauge("holdfast_bgp_peer_prefixes_best", "Those for which the peer's path is the best");
static PREFIXES_SENT: Metric =
    Metric::gauge("holdfast_bgp_peer_prefixes_sent", "Prefixes announced to the peer");

static BGPSEC_VALID: Metric =
    Metric::gauge("holdfast_bgp_bgpsec_valid", "Routes of the peer whose signatures are good");
static BGPSEC_NOT_VALID: Metric =
    Metric::gauge("holdfast_bgp_bgpsec_not_valid", "Routes of the peer of which a signature is not good");
static BGPSEC_UNVERIFIED: Metric =
    Metric::gauge("holdfast_bgp_bgpsec_unverified", "Signed routes of the peer without a verdict");
static BGPSEC_QUEUED: Metric = Metric::gauge(
    "holdfast_bgp_bgpsec_queued_hops",
    "Hops of the peer's paths that wait to be verified, or are being verified",
);
static BGPSEC_INCOMPLETE: Metric = Metric::gauge(
    "holdfast_bgp_bgpsec_incomplete",
    "Whether the session has not agreed on all of BGPsec that is configured",
);

static BFD_UP: Metric = Metric::gauge("holdfast_bgp_peer_bfd_up", "Whether BFD says that packets arrive");
static BFD_FAILURES: Metric =
    Metric::counter("holdfast_bgp_peer_bfd_failures", "How often BFD was up and has failed");

static RANGE_PEERS: Metric = Metric::gauge("holdfast_bgp_range_peers", "Peers of the listen range");
static RANGE_GONE: Metric =
    Metric::counter("holdfast_bgp_range_peers_gone", "Peers of the listen range that are gone");
static RANGE_ESTABLISHED: Metric =
    Metric::counter("holdfast_bgp_range_established", "How often sessions of peers came up that are gone");
static RANGE_DROPS: Metric = Metric::counter(
    "holdfast_bgp_range_drops",
    "Routes and attributes dropped from UPDATEs of peers of the listen range that are gone",
);

static OF_RANGES: [&Metric; 4] = [&RANGE_PEERS, &RANGE_GONE, &RANGE_ESTABLISHED, &RANGE_DROPS];

static OF_PEERS: [&Metric; 22] = [
    &UP,
    &STATE,
    &INFO,
    &ESTABLISHED,
    &FLAPS,
    &RECEIVED,
    &SENT,
    &PROTECTED,
    &DROPS,
    &PEER_CPU,
    &PEER_KEPT,
    &PREFIXES_RECEIVED,
    &PREFIXES_ACCEPTED,
    &PREFIXES_BEST,
    &PREFIXES_SENT,
    &BGPSEC_VALID,
    &BGPSEC_NOT_VALID,
    &BGPSEC_UNVERIFIED,
    &BGPSEC_QUEUED,
    &BGPSEC_INCOMPLETE,
    &BFD_UP,
    &BFD_FAILURES,
];

/// From now on the numbers of what runs can be read.
pub(crate) fn register(metrics: &Metrics, server: &Rc<Server>) {
    let server = Rc::clone(server);
    metrics.register_in_slices(move |sheet, slice| {
        let Ok(bgp) = server.bgp() else { return false };
        if slice == 0 {
            whole(sheet, &bgp);
        }
        peers(sheet, &bgp.speaker.borrow(), slice)
    });
}

fn whole(sheet: &mut Sheet, bgp: &Bgp) {
    let speaker = bgp.speaker.borrow();
    sheet.add(&PEERS, &[], speaker.sessions.peers() as u64);
    for family in Family::ALL {
        let (prefixes, paths) = speaker.pipeline.table_size(family);
        let name = family.to_string();
        sheet.add(&PREFIXES, &[("family", &name)], prefixes as u64);
        sheet.add(&PATHS, &[("family", &name)], paths);
    }
    sheet.add(&MEMORY, &[], speaker.pipeline.memory().total() as u64);
    sheet.add(&GROUPS, &[], speaker.pipeline.update_groups() as u64);
    sheet.add(&TOO_LONG, &[], speaker.pipeline.too_long());
    let signing = speaker.pipeline.signing_counts();
    sheet.add(&SIGNATURES_KEPT, &[], signing.kept);
    sheet.add(&SIGNATURES_LOST, &[], signing.lost);
    sheet.add(&SIGNATURES_WAITING, &[], signing.waiting);
    sheet.add(&CHECKED, &[], u64::from(speaker.pipeline.is_consistency_checked()));
    sheet.add(&VIOLATIONS, &[], speaker.pipeline.violations());
    let validation = &bgp.surroundings.validation;
    let (vrps, aspas) = validation.counts();
    sheet.add(&VRPS, &[], vrps as u64);
    sheet.add(&ASPAS, &[], aspas as u64);
    sheet.add(&EPOCH, &[], validation.epoch().unwrap_or(0));
    OF_RANGES.iter().for_each(|metric| sheet.declare(metric));
    for (name, members) in &speaker.sessions.ranges {
        let of_range = [("range", name.as_str())];
        sheet.add(&RANGE_PEERS, &of_range, members.present as u64);
        sheet.add(&RANGE_GONE, &of_range, members.gone.peers);
        sheet.add(&RANGE_ESTABLISHED, &of_range, members.gone.established);
        sheet.add(&RANGE_DROPS, &of_range, members.gone.drops.total());
    }
    OF_PEERS.iter().for_each(|metric| sheet.declare(metric));
    queues(sheet, bgp, &speaker);
    nsr(sheet, &speaker);
}

fn queues(sheet: &mut Sheet, bgp: &Bgp, speaker: &Speaker) {
    let Depths { logs, window, window_high, restarts, dials } = &bgp.depths;
    let families = Family::ALL.into_iter().zip(logs).zip(speaker.pipeline.log_lengths());
    for ((family, high), length) in families {
        sheet.queue(Queue {
            of: family.to_string(),
            high: high.with(length as u64),
            ..queue("change-log", "routes", length, Limits::default().log)
        });
    }
    sheet.queue(Queue {
        high: window_high.with(window.get() as u64),
        drops: restarts.get(),
        ..queue("rib-window", "batches", window.get(), crate::rib::WINDOW)
    });
    let dialled = bgp.dialled();
    sheet.queue(Queue {
        high: dials.with(dialled as u64),
        ..queue("dials", "connections", dialled, MOST_DIALS)
    });
}

fn queue(name: &str, unit: &str, length: usize, bound: usize) -> Queue {
    Queue {
        name: name.into(),
        unit: unit.into(),
        length: length as u64,
        bound: bound as u64,
        ..Queue::default()
    }
}

fn nsr(sheet: &mut Sheet, speaker: &Speaker) {
    let ((size, used), (received, snapshots)) = match &speaker.protection.log {
        Some(log) => (log.log.borrow().size_and_used(), log.pacing.borrow().totals()),
        None => Default::default(),
    };
    sheet.add(&NSR_RECEIVED, &[], received);
    sheet.add(&NSR_SNAPSHOTS, &[], snapshots);
    sheet.add(&NSR_SIZE, &[], size);
    sheet.add(&NSR_USED, &[], used);
}

fn peers(sheet: &mut Sheet, speaker: &Speaker, slice: usize) -> bool {
    let mut left = speaker.sessions.slots().skip(slice * SLICE);
    left.by_ref().take(SLICE).for_each(|(index, slot)| peer(sheet, speaker, index, slot));
    left.next().is_some()
}

fn peer(sheet: &mut Sheet, speaker: &Speaker, index: PeerIndex, slot: &Slot) {
    let name = slot.neighbor.name.as_str();
    let of_peer = [("peer", name)];
    let session = &slot.session;
    let (state, established) = (session.state(), session.history().established);
    let is_up = state == State::Established;
    let connection = speaker.sessions.session_connection(index).map(|(_, connection)| connection);
    let is_protected = connection.is_some_and(|it| it.held.as_ref().is_some_and(|held| held.kept));
    let drops = speaker.pipeline.drops(index).map_or(0, Drops::total);
    for (metric, value) in [
        (&UP, is_up.into()),
        (&STATE, number(state)),
        (&ESTABLISHED, established),
        (&FLAPS, established.saturating_sub(is_up.into())),
        (&PROTECTED, is_protected.into()),
        (&DROPS, drops),
        (&PEER_KEPT, speaker.pipeline.kept_octets(index)),
    ] {
        sheet.add(metric, &of_peer, value);
    }
    sheet.add_real(&PEER_CPU, &of_peer, slot.cost.cpu.as_secs_f64());
    let asn = session.negotiated().map_or(slot.neighbor.configured_asn().0, |negotiated| negotiated.asn.0);
    let (address, asn) = (slot.neighbor.location.to_string(), asn.to_string());
    sheet.add(&INFO, &[("peer", name), ("address", &address), ("asn", &asn)], 1);
    messages(sheet, name, slot);
    routes(sheet, speaker, index, slot);
    if slot.neighbor.source.bgpsec.is_on() {
        bgpsec(sheet, speaker, index, slot);
    }
    if slot.bfd.is_some() {
        sheet.add(&BFD_UP, &of_peer, (session.bfd() == Bfd::Up).into());
        sheet.add(&BFD_FAILURES, &of_peer, slot.bfd_failures);
    }
    if let Some(connection) = connection {
        let queued = connection.queued();
        sheet.queue(Queue {
            of: name.into(),
            high: connection.most_queued.with(queued as u64),
            ..queue("peer-output", "octets", queued, 2 * CHUNK)
        });
    }
}

fn number(state: State) -> u64 {
    match state {
        State::Idle => 1,
        State::Connect => 2,
        State::Active => 3,
        State::OpenSent => 4,
        State::OpenConfirm => 5,
        State::Established => 6,
    }
}

fn messages(sheet: &mut Sheet, peer: &str, slot: &Slot) {
    let counters = slot.session.counters();
    for (kind, name) in [
        (MessageType::Open, "open"),
        (MessageType::Update, "update"),
        (MessageType::Notification, "notification"),
        (MessageType::KeepAlive, "keepalive"),
        (MessageType::RouteRefresh, "route-refresh"),
    ] {
        let labels = [("peer", peer), ("type", name)];
        sheet.add(&RECEIVED, &labels, counters.received.of(kind));
        sheet.add(&SENT, &labels, counters.sent.of(kind));
    }
}

fn routes(sheet: &mut Sheet, speaker: &Speaker, index: PeerIndex, slot: &Slot) {
    for &family in &slot.neighbor.source.families {
        let counts = speaker.pipeline.counts(index, family);
        let family = family.to_string();
        let labels = [("peer", slot.neighbor.name.as_str()), ("family", &family)];
        sheet.add(&PREFIXES_RECEIVED, &labels, counts.routes.received);
        sheet.add(&PREFIXES_ACCEPTED, &labels, counts.routes.accepted);
        sheet.add(&PREFIXES_BEST, &labels, counts.routes.best);
        sheet.add(&PREFIXES_SENT, &labels, counts.announced);
    }
}

/// As `show bgpsec` has it.
fn bgpsec(sheet: &mut Sheet, speaker: &Speaker, index: PeerIndex, slot: &Slot) {
    let counts = speaker.pipeline.signature_counts(index);
    let lacks = slot.session.negotiated().is_some_and(|agreed| agreed.lacks_bgpsec);
    for (metric, value) in [
        (&BGPSEC_VALID, counts.valid),
        (&BGPSEC_NOT_VALID, counts.not_valid),
        (&BGPSEC_UNVERIFIED, counts.unverified),
        (&BGPSEC_QUEUED, counts.queued_hops),
        (&BGPSEC_INCOMPLETE, lacks.into()),
    ] {
        sheet.add(metric, &[("peer", slot.neighbor.name.as_str())], value);
    }
}
