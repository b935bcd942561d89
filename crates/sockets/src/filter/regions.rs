//! The address space of one family, in regions of one verdict each. Addresses are left-aligned in 128 bits.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use holdfast_sys::tcp::IpVersion;
use holdfast_types::{IpPrefix, Prefix};

use super::{FilteredPeer, Verdict};

/// What a socket is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Connections of TCP come in there. More than has to be may be taken, since what comes is judged again.
    Listener,
    /// Datagrams come in there. Nobody judges again how far a neighbour's have come.
    Datagrams,
}

/// Addresses up to the next region.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Region {
    verdict: Verdict,
    /// Nobody is expected from there.
    vacant: bool,
}

/// All of them, by their first address. There is one that begins with the first address of all, and neighbouring ones
/// differ in their verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Regions {
    purpose: Purpose,
    by_first: BTreeMap<u128, Region>,
}

impl Regions {
    pub(super) fn new(
        version: IpVersion,
        purpose: Purpose,
        peers: impl IntoIterator<Item = FilteredPeer>,
        heard: impl IntoIterator<Item = Prefix>,
    ) -> Self {
        let others = match purpose {
            Purpose::Listener => Verdict::Drop,
            Purpose::Datagrams => Verdict::Take,
        };
        let mut regions =
            Self { purpose, by_first: BTreeMap::from([(0, Region { verdict: others, vacant: true })]) };
        for network in heard {
            regions.paint(version, network, Verdict::Take);
        }
        let mut peers: Vec<_> = peers.into_iter().collect();
        // The most specific last. One address may be that of peers on two links: then each has to be a neighbour.
        peers.sort_by_key(|peer| (peer.network.length(), peer.ttl_security));
        for FilteredPeer { network, ttl_security } in peers {
            regions.paint(version, network, if ttl_security { Verdict::OneHop } else { Verdict::Take });
        }
        regions.join();
        regions
    }

    /// Whether there is one verdict, and this.
    pub(super) fn is_all(&self, verdict: Verdict) -> bool {
        self.by_first.values().all(|region| region.verdict == verdict)
    }

    pub(super) fn len(&self) -> usize {
        self.by_first.len()
    }

    /// The verdict of each, behind its first address.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u128, Verdict)> {
        self.by_first.iter().map(|(first, region)| (*first, region.verdict))
    }

    /// Somebody is expected in a network, if it is of this family.
    fn paint(&mut self, version: IpVersion, network: Prefix, verdict: Verdict) {
        let bits = match (network, version) {
            (Prefix::V4(network), IpVersion::V4) => network.bits(),
            (Prefix::V6(network), IpVersion::V6) => network.bits(),
            (Prefix::V4(_), IpVersion::V6) | (Prefix::V6(_), IpVersion::V4) => return,
        };
        let last = bits | u128::MAX.checked_shr(network.length().into()).unwrap_or(0);
        let behind = self.by_first.range(..=last).next_back().map(|(_, region)| *region);
        if let (Some(next), Some(behind)) = (last.checked_add(1), behind) {
            self.by_first.entry(next).or_insert(behind);
        }
        while let Some((&inside, _)) = self.by_first.range(bits..=last).next() {
            self.by_first.remove(&inside);
        }
        self.by_first.insert(bits, Region { verdict, vacant: false });
    }

    /// Regions of one verdict, one behind the other, become one.
    fn join(&mut self) {
        let mut joined: Vec<(u128, Region)> = Vec::with_capacity(self.by_first.len());
        for (&first, &region) in &self.by_first {
            match joined.last_mut() {
                Some((_, before)) if before.verdict == region.verdict => before.vacant &= region.vacant,
                _ => joined.push((first, region)),
            }
        }
        self.by_first = joined.into_iter().collect();
    }

    /// Leaves so many regions at most: the smallest get the verdict of a neighbour, where they may. `None`: there are more
    /// that may not.
    pub(super) fn coarsen(&mut self, most: usize) -> Option<()> {
        let mut smallest: BinaryHeap<_> =
            self.by_first.keys().map(|&first| Reverse((self.size(first), first))).collect();
        while self.by_first.len() > most {
            let Reverse((size, first)) = smallest.pop()?;
            let is_there = self.by_first.contains_key(&first) && self.size(first) == size;
            let Some(verdict) = self.instead(first).filter(|_| is_there) else { continue };
            let grown = self.give(first, verdict);
            // Those beside it have another neighbour now.
            let before = self.before(grown).map(|(first, _)| first);
            let after = self.after(grown).map(|(first, _)| first);
            let again = [before, Some(grown), after].into_iter().flatten();
            smallest.extend(again.map(|first| Reverse((self.size(first), first))));
        }
        Some(())
    }

    /// Which verdict of a neighbour a region may have instead of its own: the strictest.
    fn instead(&self, first: u128) -> Option<Verdict> {
        let region = self.by_first.get(&first)?;
        let beside = [self.before(first), self.after(first)].into_iter().flatten();
        let may = |verdict: &Verdict| match self.purpose {
            Purpose::Listener => *verdict > region.verdict,
            Purpose::Datagrams => region.vacant,
        };
        beside.map(|(_, region)| region.verdict).filter(may).min()
    }

    /// Gives a region the verdict of a neighbour; the first address of what becomes of them.
    fn give(&mut self, first: u128, verdict: Verdict) -> u128 {
        if let Some((after, region)) = self.after(first)
            && region.verdict == verdict
        {
            self.by_first.remove(&after);
        }
        match self.before(first) {
            Some((before, region)) if region.verdict == verdict => {
                self.by_first.remove(&first);
                before
            }
            _ => {
                self.by_first.insert(first, Region { verdict, vacant: false });
                first
            }
        }
    }

    /// Its addresses but one.
    fn size(&self, first: u128) -> u128 {
        self.after(first).map_or(u128::MAX, |(next, _)| next - 1) - first
    }

    fn before(&self, first: u128) -> Option<(u128, Region)> {
        self.by_first.range(..first).next_back().map(|(first, region)| (*first, *region))
    }

    fn after(&self, first: u128) -> Option<(u128, Region)> {
        self.by_first.range(first.checked_add(1)?..).next().map(|(first, region)| (*first, *region))
    }
}
