//! Sessions: the peers, what is known of each beside its session, their connections and their timers.
//!
//! Nothing here knows of routes, of the replication log, or of those who are told what happens: that is
//! [`Speaker`](crate::speaker::Speaker)'s, which asks here who a peer is and what of it is under way.

mod awaited;
mod bfd;
mod connections;
pub(crate) mod cost;
pub(crate) mod facts;
mod finding;
mod restart;
pub(crate) mod slot;
mod succession;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    time::Instant,
};

use holdfast_bgp_pipeline::{Drops, PeerIndex};

use crate::{
    connection::{Connection, Key},
    location::Location,
    ranges::Members,
    roster::{Present, Stopped},
};

use self::{awaited::Awaited, slot::Slot};

pub(crate) use self::{awaited::Stale, cost::Cost};

/// Sessions that one listen range may have.
pub(crate) const MOST_PER_RANGE: usize = 4096;
/// Peers, those of listen ranges included: one of a range is refused when there are so many.
pub(crate) const MOST_PEERS: usize = 32_768;

/// Something to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Have the door connect to this peer, by its configured name.
    Dial(Key, String),
    /// Give the keeper a copy of this connection's descriptor: its session is in the log.
    Keep(Key),
    /// Follow the BFD session of this peer.
    Follow(PeerIndex),
}

/// Peers, their sessions and their connections.
pub(crate) struct Sessions {
    slots: BTreeMap<PeerIndex, Slot>,
    locations: HashMap<Location, PeerIndex>,
    connections: HashMap<Key, Connection>,
    /// The numbers of the interfaces that peers are on, as far as they were told; 0 while one carries nothing.
    links: BTreeMap<Box<str>, u32>,
    /// Peers that are gone while connections of theirs still say goodbye, and how many do. Nobody else gets their index.
    leaving: HashMap<PeerIndex, usize>,
    /// The peers of each listen range, by its name; those of ranges that are configured stay when nobody is there.
    pub(crate) ranges: HashMap<String, Members>,
    /// Peers whose sockets may hold octets that are not acknowledged.
    pub(crate) unacknowledged: BTreeSet<PeerIndex>,
    /// Whom the operator keeps down, and the text that was given, also for the next process.
    pub(crate) stopped: Stopped,
    deadlines: BTreeSet<(Instant, PeerIndex)>,
    effects: VecDeque<Effect>,
    next_accepted: u32,
    started: Instant,
    synced: bool,
    /// Who may still announce again what the process before had of them.
    awaited: Awaited,
    /// Whose routes are here, for the next process.
    present: Option<Present>,
    /// The kernel has kept our routes over a restart of our own.
    routes_kept: bool,
    /// That restart is under way; when it is looked at again.
    next_look: Option<Instant>,
}

impl Sessions {
    pub(crate) fn new(stopped: Stopped, now: Instant) -> Self {
        Self {
            slots: BTreeMap::new(),
            links: BTreeMap::new(),
            locations: HashMap::new(),
            connections: HashMap::new(),
            leaving: HashMap::new(),
            ranges: HashMap::new(),
            unacknowledged: BTreeSet::new(),
            stopped,
            deadlines: BTreeSet::new(),
            effects: VecDeque::new(),
            next_accepted: 0,
            started: now,
            synced: false,
            awaited: Awaited::Everybody,
            present: None,
            routes_kept: false,
            next_look: None,
        }
    }

    // Peers.

    /// Takes a peer in.
    pub(crate) fn insert(&mut self, index: PeerIndex, mut slot: Slot) -> &mut Slot {
        slot.stopped = self.stopped.noted(&slot.neighbor.location).is_some();
        self.locations.insert(slot.neighbor.location.clone(), index);
        if slot.dynamic {
            self.ranges.entry(slot.neighbor.source.name.clone()).or_default().present += 1;
        }
        self.slots.entry(index).insert_entry(slot).into_mut()
    }

    /// Takes a stopped peer out; how many of its connections still say goodbye, which live on until they have. `drops` is what
    /// was wrong in its UPDATEs.
    pub(crate) fn take_out(&mut self, index: PeerIndex, drops: Option<&Drops>) -> Option<usize> {
        let slot = self.slots.remove(&index)?;
        self.locations.remove(&slot.neighbor.location);
        self.await_no_more(&slot);
        if slot.dynamic
            && let Some(members) = self.ranges.get_mut(&slot.neighbor.source.name)
        {
            members.present -= 1;
            let offences = if slot.offends { slot.session.failures() } else { 0 };
            members.offenders.note(&slot.neighbor.location, offences);
            slot.add_to(&mut members.gone, drops);
        }
        if let Some(at) = slot.deadline {
            self.deadlines.remove(&(at, index));
        }
        for task in slot.dialing.into_values().flatten() {
            task.abort();
        }
        let open = self.connections.keys().filter(|key| key.0 == index).count();
        if open > 0 {
            self.leaving.insert(index, open);
        }
        Some(open)
    }

    /// Whether a peer of a listen range has no life any more: it does not dial, nor wait for others, beyond its connections. One
    /// that is held back stays as long as it is: in its place a new one could come at once.
    pub(crate) fn is_over(&self, index: PeerIndex) -> bool {
        let is_over = |slot: &Slot| {
            let is_gone = slot.session.connection().is_none() && slot.session.retained().next().is_none();
            slot.dynamic && is_gone && !slot.is_held_back()
        };
        self.slots.get(&index).is_some_and(is_over)
    }

    /// The operator has a peer stopped, for this reason; whether it is there.
    pub(crate) fn keep_down(&mut self, index: PeerIndex, text: &str) -> bool {
        let Some(slot) = self.slots.get_mut(&index) else { return false };
        (slot.stopped, slot.offends) = (true, false);
        self.stopped.enter(&slot.neighbor.location);
        self.stopped.note(&slot.neighbor.location, text);
        true
    }

    /// A peer may try again, whatever held it back; not where the configuration says `disabled`.
    pub(crate) fn release(&mut self, index: PeerIndex) -> bool {
        let Some(slot) = self.slots.get_mut(&index).filter(|slot| !slot.neighbor.disabled) else {
            return false;
        };
        (slot.stopped, slot.limited, slot.offends) = (false, false, false);
        self.stopped.leave(&slot.neighbor.location);
        true
    }

    #[inline]
    pub(crate) fn slot(&self, index: PeerIndex) -> Option<&Slot> {
        self.slots.get(&index)
    }

    #[inline]
    pub(crate) fn slot_mut(&mut self, index: PeerIndex) -> Option<&mut Slot> {
        self.slots.get_mut(&index)
    }

    /// All peers, by index.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (PeerIndex, &Slot)> {
        self.slots.iter().map(|(index, slot)| (*index, slot))
    }

    /// The same, to be kept while peers change.
    pub(crate) fn indexes(&self) -> Vec<PeerIndex> {
        self.slots.keys().copied().collect()
    }

    /// How many there are.
    pub(crate) fn peers(&self) -> usize {
        self.slots.len()
    }

    /// Whether what some peer sent to the process before is still being replayed.
    pub(crate) fn are_replaying(&self) -> bool {
        self.slots.values().any(Slot::is_replaying)
    }

    /// Whether a session is so young that what it costs, and waits for, is that of the tables.
    pub(crate) fn exchanges_tables(&self, index: PeerIndex, now: Instant) -> bool {
        self.slots.get(&index).is_none_or(|slot| slot.exchanges_tables(now))
    }

    // Timers.

    /// Notes when a session's next timer is due.
    pub(crate) fn arm(&mut self, index: PeerIndex) {
        let Some(slot) = self.slots.get_mut(&index) else { return };
        let deadline = slot.session.poll_timeout();
        if slot.deadline != deadline {
            if let Some(at) = slot.deadline {
                self.deadlines.remove(&(at, index));
            }
            if let Some(at) = deadline {
                self.deadlines.insert((at, index));
            }
            slot.deadline = deadline;
        }
    }

    /// Whose timer is due first, and when.
    pub(crate) fn first_deadline(&self) -> Option<(Instant, PeerIndex)> {
        self.deadlines.first().copied()
    }

    /// That timer is not due any more; whether it was.
    pub(crate) fn disarm(&mut self, (at, index): (Instant, PeerIndex)) -> bool {
        let is_due = self.deadlines.first() == Some(&(at, index));
        if is_due {
            self.deadlines.remove(&(at, index));
            if let Some(slot) = self.slots.get_mut(&index) {
                slot.deadline = None;
            }
        }
        is_due
    }

    /// When there is something to do without anything happening.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(at, _)| at).into_iter().chain(self.next_look).min()
    }
}
