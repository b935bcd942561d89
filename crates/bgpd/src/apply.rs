//! From one configuration to the next: what is different is changed, everything else is not touched.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use holdfast_bgp_pipeline::{OriginateAttributes, PeerIndex};
use holdfast_bgp_session::{State, StopReason};
use holdfast_types::Prefix;
use tracing::{debug, info};

use crate::{
    config::{Configuration, Neighbor, Peers, Range},
    location::Location,
    seed::seed,
    sessions::slot::Slot,
    speaker::Speaker,
    takeover,
};

/// What becomes of a peer that is there.
enum Fate<'a> {
    Same,
    /// The session stays.
    Changes(Box<Neighbor>),
    /// Another session is needed, with the configured peer of this place.
    Restarts(&'a Neighbor),
    Goes,
}

/// Makes the peers those that are wanted; the names of those whose session was up and had to end.
pub(crate) fn peers(speaker: &mut Speaker, wanted: &Peers, now: Instant) -> Vec<String> {
    let configured: HashMap<Location, &Neighbor> =
        wanted.neighbors.iter().map(|neighbor| (neighbor.location.clone(), neighbor)).collect();
    let indexes: Vec<PeerIndex> = speaker.sessions.indexes();
    let (mut ended, mut removed, mut changed) = (Vec::new(), 0, 0);
    let mut restarts: HashSet<Location> = HashSet::new();
    for index in indexes {
        let Some(slot) = speaker.sessions.slot(index) else { continue };
        let (name, was_up) = (slot.neighbor.name.clone(), slot.session.state() == State::Established);
        let fate = match slot.dynamic {
            true => fate_of_guest(&slot.neighbor, was_up, wanted, &configured),
            false => fate(&slot.neighbor, was_up, wanted, &configured),
        };
        let reason = match fate {
            Fate::Same => continue,
            Fate::Changes(neighbor) => {
                debug!(peer = name, "changed");
                changed += 1;
                speaker.change_peer(index, *neighbor, now);
                // The operator keeps it down, or it has more than it may have now.
                let is_up = |slot: &Slot| slot.session.state() == State::Established;
                if was_up && !speaker.sessions.slot(index).is_some_and(is_up) {
                    ended.push(name);
                }
                continue;
            }
            Fate::Restarts(neighbor) => {
                restarts.insert(neighbor.location.clone());
                StopReason::OtherConfigChange
            }
            Fate::Goes => {
                debug!(peer = name, "removed");
                removed += 1;
                let location = slot.neighbor.location.clone();
                speaker.sessions.stopped.leave(&location);
                StopReason::PeerDeconfigured
            }
        };
        if was_up {
            ended.push(name);
        }
        speaker.remove_peer(index, reason, now);
    }
    let mut added = 0;
    for neighbor in &wanted.neighbors {
        if speaker.sessions.peer_at(&neighbor.location).is_none() {
            debug!(peer = neighbor.name, address = %neighbor.location, "configured");
            added += usize::from(!restarts.contains(&neighbor.location));
            speaker.add_peer(neighbor.clone(), false, seed(), now);
        }
    }
    let is_configured = |name: &str| wanted.ranges.iter().any(|range| range.template.source.name == name);
    speaker.sessions.ranges.retain(|name, members| members.present > 0 || is_configured(name));
    info!(
        event = "peers-configured",
        added,
        removed,
        changed,
        restarted = restarts.len(),
        ended = ended.len(),
        "peers configured"
    );
    ended
}

/// At the start, when what goes on is there: peers of ranges that the operator keeps down have their places again; nobody
/// keeps down who is not configured any more.
pub(crate) fn stopped(speaker: &mut Speaker, configuration: &Configuration, now: Instant) {
    let locations: Vec<Location> = speaker.sessions.stopped.peers().cloned().collect();
    for location in locations {
        match takeover::configured(configuration, &location) {
            Some((neighbor, true)) if speaker.sessions.peer_at(&location).is_none() => {
                speaker.add_peer(neighbor, true, seed(), now);
            }
            Some(_) => {}
            None => speaker.sessions.stopped.leave(&location),
        }
    }
}

fn fate<'a>(
    old: &Neighbor,
    is_up: bool,
    wanted: &Peers,
    configured: &HashMap<Location, &'a Neighbor>,
) -> Fate<'a> {
    let Some(&new) = configured.get(&old.location) else { return Fate::Goes };
    match () {
        () if begins_anew(new, is_up, wanted) || !old.keeps_session(new) => Fate::Restarts(new),
        () if old.is_same(new) => Fate::Same,
        () => Fate::Changes(Box::new(new.clone())),
    }
}

/// Whether it begins anew whatever differs: a connection without a session was made as sockets were before, and one with a
/// session is refitted.
fn begins_anew(new: &Neighbor, is_up: bool, wanted: &Peers) -> bool {
    wanted.restart.contains(&new.name) || !is_up && wanted.refit.contains(&new.name)
}

/// Of a peer that a listen range has brought. It stays while its range does, also when a more specific range is new.
fn fate_of_guest<'a>(
    old: &Neighbor,
    is_up: bool,
    wanted: &Peers,
    configured: &HashMap<Location, &'a Neighbor>,
) -> Fate<'a> {
    if let Some(&new) = configured.get(&old.location) {
        return Fate::Restarts(new);
    }
    // It may have another name.
    let is_its = |range: &&Neighbor| range.source.remote == old.source.remote;
    let range = wanted.ranges.iter().map(|range| &range.template).find(is_its);
    match range.filter(|range| !begins_anew(range, is_up, wanted) && old.keeps_session(range)) {
        None => Fate::Goes,
        Some(range) if old.is_same(range) => Fate::Same,
        Some(range) => Fate::Changes(Box::new(range.at(old.location.clone()))),
    }
}

/// What is counted of ranges goes on under the names that they have now: a range is known by its network.
pub(crate) fn rename_ranges(speaker: &mut Speaker, old: &[Range], new: &[Range]) {
    let names = old.iter().filter_map(|old| {
        let new = new.iter().find(|new| new.network == old.network)?;
        Some((old.template.name.clone(), new.template.name.clone())).filter(|(old, new)| old != new)
    });
    // All are taken out before the first is put in: names may have been exchanged.
    let renamed: Vec<_> = names
        .filter_map(|(old, new)| speaker.sessions.ranges.remove(&old).map(|members| (new, members)))
        .collect();
    speaker.sessions.ranges.extend(renamed);
}

/// Makes the networks that we originate those that are wanted.
pub(crate) fn networks(speaker: &mut Speaker, old: &[Prefix], new: &[Prefix]) {
    let (before, wanted): (HashSet<_>, HashSet<_>) = (old.iter().collect(), new.iter().collect());
    for gone in before.difference(&wanted) {
        speaker.pipeline.withdraw_origin(**gone);
    }
    for added in new.iter().filter(|prefix| !before.contains(prefix)) {
        speaker.pipeline.originate(*added, &OriginateAttributes::default());
    }
}
