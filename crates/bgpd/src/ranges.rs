//! What the peers of a listen range have done, those included that are gone: a peer of a range is forgotten with its
//! connection, and what it did counts on here. One entry for each configured range, of bounded size.

use std::collections::VecDeque;

use holdfast_bgp_pipeline::Drops;

use crate::location::Location;

/// What peers have done together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) peers: u64,
    /// How often their sessions came up, and how many of these ended.
    pub(crate) established: u64,
    pub(crate) dropped: u64,
    pub(crate) drops: Drops,
    /// Why the last session ended or did not come up, of those that went wrong, and whose it was.
    pub(crate) last_error: Option<(Location, String)>,
}

impl Totals {
    /// One more peer, with how often its session came up and ended.
    pub(crate) fn add(
        &mut self,
        location: &Location,
        (established, dropped): (u64, u64),
        drops: Option<&Drops>,
        last_error: String,
    ) {
        self.peers += 1;
        self.established += established;
        self.dropped += dropped;
        drops.into_iter().for_each(|drops| self.drops.merge(drops));
        if !last_error.is_empty() {
            self.last_error = Some((location.clone(), last_error));
        }
    }
}

/// Peers that are remembered at most; the one that was noted first is forgotten for another.
const MOST_OFFENDERS: usize = 1024;

/// Peers whose last sessions were ended for what they cost, and how often in a row: when one comes back, its next pause is longer
/// for that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offenders(VecDeque<(Location, u32)>);

impl Offenders {
    /// A peer is forgotten whose sessions were ended so often; 0: it has done nothing, or is forgiven.
    pub(crate) fn note(&mut self, location: &Location, times: u32) {
        self.0.retain(|(known, _)| known != location);
        if times > 0 {
            if self.0.len() == MOST_OFFENDERS {
                self.0.pop_front();
            }
            self.0.push_back((location.clone(), times));
        }
    }

    /// How often those of this one were.
    pub(crate) fn times(&self, location: &Location) -> u32 {
        self.0.iter().find(|(known, _)| known == location).map_or(0, |(_, times)| *times)
    }
}

/// One listen range.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    /// How many there are.
    pub(crate) present: usize,
    /// What those did that are gone.
    pub(crate) gone: Totals,
    pub(crate) offenders: Offenders,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(number: u32) -> Location {
        Location::Address(std::net::Ipv4Addr::from_bits(number).into())
    }

    #[test]
    fn so_many_offenders_are_remembered_and_those_of_last() {
        let mut offenders = Offenders::default();
        (0..=MOST_OFFENDERS as u32).for_each(|number| offenders.note(&guest(number), 3));
        assert_eq!([0, 1, MOST_OFFENDERS as u32].map(|number| offenders.times(&guest(number))), [0, 3, 3]);
        offenders.note(&guest(1), 4);
        offenders.note(&guest(2), 0);
        assert_eq!([1, 2, 3].map(|number| offenders.times(&guest(number))), [4, 0, 3]);
    }
}
