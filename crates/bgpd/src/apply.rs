//! From one configuration to the next: what is different is changed, everything else is not touched.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
    time::Instant,
};

use holdfast_bgp_pipeline::{OriginateAttributes, PeerIndex};
use holdfast_bgp_session::{State, StopReason};
use holdfast_types::Prefix;
use tracing::{debug, info};

use crate::{
    bgp::{Bgp, TURN},
    config::{Configuration, Neighbor, Peers, Range},
    location::Location,
    seed::seed,
    sessions::slot::Slot,
    speaker::Speaker,
    takeover::Configured,
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

/// Makes the peers those that are wanted, in slices: a thousand of them take longer than a turn. The names of those whose
/// session was up and had to end.
pub(crate) async fn peers(bgp: &Rc<Bgp>, wanted: &Peers) -> Vec<String> {
    let mut applying = bgp.with(|speaker, _| Applying::new(speaker, wanted));
    while bgp.with(|speaker, now| applying.work(speaker, now, &|| now.elapsed() >= TURN)) {
        tokio::task::yield_now().await;
    }
    applying.ended
}

/// How far the peers are those that are wanted.
pub(crate) struct Applying<'a> {
    wanted: &'a Peers,
    configured: HashMap<Location, &'a Neighbor>,
    /// Peers that were there and have not been looked at, the last first.
    before: Vec<PeerIndex>,
    /// Those wanted that have been looked at since then.
    added_to: usize,
    restarts: HashSet<Location>,
    /// The names of those whose session was up and had to end.
    pub(crate) ended: Vec<String>,
    removed: usize,
    changed: usize,
    added: usize,
}

impl<'a> Applying<'a> {
    pub(crate) fn new(speaker: &Speaker, wanted: &'a Peers) -> Self {
        let neighbors = wanted.neighbors.iter();
        let mut before = speaker.sessions.indexes();
        before.reverse();
        Self {
            wanted,
            configured: neighbors.map(|neighbor| (neighbor.location.clone(), neighbor)).collect(),
            before,
            added_to: 0,
            restarts: HashSet::new(),
            ended: Vec::new(),
            removed: 0,
            changed: 0,
            added: 0,
        }
    }

    /// One slice; whether there is more.
    pub(crate) fn work(&mut self, speaker: &mut Speaker, now: Instant, is_over: &dyn Fn() -> bool) -> bool {
        while let Some(index) = self.before.pop() {
            self.look_at(speaker, index, now);
            if is_over() {
                return true;
            }
        }
        while let Some(neighbor) = self.wanted.neighbors.get(self.added_to) {
            self.added_to += 1;
            if speaker.sessions.peer_at(&neighbor.location).is_none() {
                debug!(peer = neighbor.name, address = %neighbor.location, "configured");
                self.added += usize::from(!self.restarts.contains(&neighbor.location));
                speaker.add_peer(neighbor.clone(), false, seed(), now);
            }
            if is_over() {
                return true;
            }
        }
        let ranges = &self.wanted.ranges;
        let is_configured = |name: &str| ranges.iter().any(|range| range.template.source.name == name);
        speaker.sessions.ranges.retain(|name, members| members.present > 0 || is_configured(name));
        info!(
            event = "peers-configured",
            added = self.added,
            removed = self.removed,
            changed = self.changed,
            restarted = self.restarts.len(),
            ended = self.ended.len(),
            "peers configured"
        );
        false
    }

    /// A peer that was there.
    fn look_at(&mut self, speaker: &mut Speaker, index: PeerIndex, now: Instant) {
        let Some(slot) = speaker.sessions.slot(index) else { return };
        let (name, was_up) = (slot.neighbor.name.clone(), slot.session.state() == State::Established);
        let fate = match slot.dynamic {
            true => fate_of_guest(&slot.neighbor, was_up, self.wanted, &self.configured),
            false => fate(&slot.neighbor, was_up, self.wanted, &self.configured),
        };
        let reason = match fate {
            Fate::Same => return,
            Fate::Changes(neighbor) => {
                debug!(peer = name, "changed");
                self.changed += 1;
                speaker.change_peer(index, *neighbor, now);
                // The operator keeps it down, or it has more than it may have now.
                let is_up = |slot: &Slot| slot.session.state() == State::Established;
                if was_up && !speaker.sessions.slot(index).is_some_and(is_up) {
                    self.ended.push(name);
                }
                return;
            }
            Fate::Restarts(neighbor) => {
                self.restarts.insert(neighbor.location.clone());
                StopReason::OtherConfigChange
            }
            Fate::Goes => {
                debug!(peer = name, "removed");
                self.removed += 1;
                let location = slot.neighbor.location.clone();
                speaker.sessions.stopped.leave(&location);
                StopReason::PeerDeconfigured
            }
        };
        if was_up {
            self.ended.push(name);
        }
        speaker.remove_peer(index, reason, now);
    }
}

/// At the start, when what goes on is there: peers of ranges that the operator keeps down have their places again; nobody
/// keeps down who is not configured any more.
pub(crate) fn stopped(speaker: &mut Speaker, configuration: &Configuration, now: Instant) {
    let locations: Vec<Location> = speaker.sessions.stopped.peers().cloned().collect();
    let configured = Configured::new(configuration);
    for location in locations {
        match configured.at(&location) {
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
