//! What the operator asks about policies.

use std::time::Instant;

use holdfast_api::bgp::v1 as api;
use holdfast_bgp_pipeline::{Direction, PeerIndex};
use holdfast_policy::{Decision, Place, PolicySource, Program, Trace};
use holdfast_types::Prefix;

use crate::{
    sessions::slot::{PolicyChange, Slot},
    show,
    speaker::Speaker,
};

/// Which routes a policy is asked about.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Asked {
    /// Those received from a peer, or from all.
    Received(Option<PeerIndex>),
    /// The best one, on its way to a peer.
    Exported(PeerIndex),
}

/// What a policy makes of routes that are there; empty if there are none.
pub(crate) fn trace(
    speaker: &mut Speaker,
    prefix: Prefix,
    asked: Asked,
    program: &Program,
    source: &PolicySource,
) -> Vec<api::PolicyTrace> {
    let traces = match asked {
        Asked::Received(from) => speaker.pipeline.trace_import(prefix, from, program, source),
        Asked::Exported(to) => {
            speaker.pipeline.trace_export(prefix, to, program, source).into_iter().collect()
        }
    };
    let name = |peer: Option<PeerIndex>| match peer {
        Some(index) => {
            speaker.sessions.slot(index).map(|slot| slot.neighbor.name.clone()).unwrap_or_default()
        }
        None => "local".to_owned(),
    };
    traces.into_iter().map(|(peer, trace)| to_api(name(peer), trace)).collect()
}

fn to_api(peer: String, trace: Trace) -> api::PolicyTrace {
    let Trace { accepted, decided_by, places, result } = trace;
    api::PolicyTrace { peer, accepted, decided_by, places: places.into_iter().map(place).collect(), result }
}

fn place(place: Place) -> api::PolicyPlace {
    let (failed, found) = place.failed.map(|failed| (failed.condition, failed.found)).unwrap_or_default();
    let decision = match place.decision {
        Some(Decision::Accept) => "accept",
        Some(Decision::Reject) => "reject",
        None => "",
    };
    api::PolicyPlace {
        policy: place.policy,
        term: place.term,
        depth: place.depth,
        failed,
        found,
        changes: place.changes,
        decision: decision.to_owned(),
    }
}

/// The last changes of policies, those under way first.
pub(crate) fn changes(speaker: &Speaker, now: Instant) -> Vec<api::PolicyChange> {
    let of_slot = |(index, slot): (PeerIndex, &Slot)| {
        let changes = slot.policies.iter();
        changes
            .map(|(&direction, change)| shown(speaker, index, slot, direction, *change, now))
            .collect::<Vec<_>>()
    };
    let mut changes: Vec<_> = speaker.sessions.slots().flat_map(of_slot).collect();
    changes.sort_by_key(|change| !change.running);
    changes
}

fn shown(
    speaker: &Speaker,
    index: PeerIndex,
    slot: &Slot,
    direction: Direction,
    change: PolicyChange,
    now: Instant,
) -> api::PolicyChange {
    let source = &slot.neighbor.source;
    let (direction_name, policy) = match direction {
        Direction::Import => ("import", &source.import),
        Direction::Export => ("export", &source.export),
    };
    let progress = match change.ended {
        None => speaker.pipeline.policy_progress(index, direction),
        Some(_) => None,
    };
    let took = change.ended.unwrap_or(now).saturating_duration_since(change.started);
    api::PolicyChange {
        peer: slot.neighbor.name.clone(),
        address: slot.neighbor.location.to_string(),
        direction: direction_name.to_owned(),
        policy: policy.clone().unwrap_or_default(),
        running: change.ended.is_none(),
        done: progress.map_or(0, |progress| progress.done),
        total: progress.map_or(0, |progress| progress.total),
        age_milliseconds: show::milliseconds(now.saturating_duration_since(change.started)),
        took_milliseconds: show::milliseconds(took),
    }
}
