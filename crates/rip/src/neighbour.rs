//! Routers, and others who ask, on one interface.

use std::{
    collections::BTreeMap,
    ops::Bound,
    time::{Duration, Instant},
};

use holdfast_rip_wire::Proof;

use crate::Protocol;

/// How often one neighbour may ask; and how often all of an interface may, once they have asked [`BURST`] times.
const ASKS: Duration = Duration::from_secs(2);
/// Answers on an interface that may follow each other at once: all of its routers may have come up together.
const BURST: u32 = 16;

/// Somebody whose messages were accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// When the last message was accepted.
    pub heard: Instant,
    /// Datagrams that came, good and bad, since it was first accepted.
    pub packets: u64,
    /// Datagrams that were discarded.
    pub bad_packets: u64,
    /// Entries that were ignored.
    pub bad_routes: u64,
    /// The last sequence number of each key (RFC 4822 section 2.2).
    sequences: BTreeMap<u8, u32>,
    /// When a request was answered.
    answered: Option<Instant>,
}

impl Neighbour {
    /// RFC 4822 section 2.3.2, step 6: numbers do not decrease. After `timeout` without a message there are no routes of it any
    /// more, and any number is accepted: the RFC has zero then, but FRR begins with one. The error is the last number.
    pub(crate) fn check(&self, now: Instant, timeout: Duration, proof: Proof) -> Result<(), u32> {
        match self.sequences.get(&proof.key) {
            Some(last) if proof.sequence < *last && !self.is_lost(now, timeout) => Err(*last),
            _ => Ok(()),
        }
    }

    /// Whether a replayed message could pass for one of its own if it were forgotten.
    fn is_protected(&self, now: Instant, timeout: Duration) -> bool {
        !self.sequences.is_empty() && !self.is_lost(now, timeout)
    }

    fn is_lost(&self, now: Instant, timeout: Duration) -> bool {
        now.saturating_duration_since(self.heard) > timeout
    }

    /// Whether it may be answered, having asked now.
    pub(crate) fn asks(&mut self, now: Instant) -> bool {
        let may = self.answered.is_none_or(|answered| now >= answered + ASKS);
        if may {
            self.answered = Some(now);
        }
        may
    }
}

/// How many answers an interface still has: sources are easily forged, and each may ask for the whole table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    /// When all of them are there again.
    full: Instant,
}

impl Budget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { full: now }
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let full = self.full.max(now) + ASKS;
        let may = full <= now + ASKS * BURST;
        if may {
            self.full = full;
        }
        may
    }
}

/// By address.
#[derive(Debug)]
pub(crate) struct Neighbours<P: Protocol>(BTreeMap<P::Address, Neighbour>);

impl<P: Protocol> Default for Neighbours<P> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<P: Protocol> Neighbours<P> {
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (P::Address, &Neighbour)> {
        self.0.iter().map(|(address, neighbour)| (*address, neighbour))
    }

    /// From the first address after one.
    pub(crate) fn after(
        &self,
        address: Option<P::Address>,
    ) -> impl Iterator<Item = (P::Address, &Neighbour)> {
        let from = address.map_or(Bound::Unbounded, Bound::Excluded);
        self.0.range((from, Bound::Unbounded)).map(|(address, neighbour)| (*address, neighbour))
    }

    pub(crate) fn get_mut(&mut self, address: P::Address) -> Option<&mut Neighbour> {
        self.0.get_mut(&address)
    }

    /// Accepts a message. Where there is no room for a new neighbour, the one that was silent for the longest time makes room:
    /// but not one whose sequence numbers count, for its old messages could be sent again then. If there is no other, the new
    /// one is refused.
    pub(crate) fn hear(
        &mut self,
        now: Instant,
        address: P::Address,
        proof: Option<Proof>,
        most: usize,
        timeout: Duration,
    ) -> Option<&mut Neighbour> {
        if !self.0.contains_key(&address) && self.0.len() >= most.max(1) {
            let may_go = self.0.iter().filter(|(_, known)| !known.is_protected(now, timeout));
            let (&silent, _) = may_go.min_by_key(|(_, known)| known.heard)?;
            self.0.remove(&silent);
        }
        let neighbour = self.0.entry(address).or_insert_with(|| Neighbour {
            heard: now,
            packets: 0,
            bad_packets: 0,
            bad_routes: 0,
            sequences: BTreeMap::new(),
            answered: None,
        });
        neighbour.heard = now;
        neighbour.packets += 1;
        neighbour.sequences.extend(proof.map(|proof| (proof.key, proof.sequence)));
        Some(neighbour)
    }
}
