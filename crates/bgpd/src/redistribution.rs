//! Routes of other protocols as routes of our own: what the rib says of them goes into the pipeline, batch by batch.
//!
//! A rib that is another one, or that we have fallen behind, says everything again, and then that this is all. So each
//! prefix is marked with the telling that named it last, and what a whole telling did not name is withdrawn at its end:
//! a route that stays is never absent. The policy stands in the pipeline.

use std::collections::BTreeMap;

use holdfast_api::{rib::v1::Redistributed, routes::v1::RouteBatch};
use holdfast_bgp_pipeline::ForeignRoute;
use holdfast_policy::{Program, Protocol};
use holdfast_prefix_table::PrefixTable;
use holdfast_process::hash_key;
use holdfast_types::{Ipv4Prefix, Ipv6Prefix, Prefix};
use holdfast_xrl::XrlError;
use tracing::warn;

use crate::speaker::Speaker;

/// Prefixes looked at in one slice of a sweep.
const SLICE: usize = 1024;

/// What is taken, from whom, under which policy.
pub(crate) type Wanted = BTreeMap<String, Program>;

/// Prefixes that other protocols have brought.
pub(crate) struct Redistribution {
    /// The number of the telling that named each last.
    v4: PrefixTable<Ipv4Prefix, u32>,
    v6: PrefixTable<Ipv6Prefix, u32>,
    telling: u32,
    /// A telling is to come to its end before it is known what is ours.
    pub(crate) is_awaited: bool,
    /// Routes that found no room in this telling.
    refused: u64,
}

impl Redistribution {
    pub(crate) fn new() -> Self {
        Self {
            v4: PrefixTable::new(hash_key()),
            v6: PrefixTable::new(hash_key()),
            telling: 0,
            is_awaited: false,
            refused: 0,
        }
    }

    /// Whether something is to be redistributed at all, at the start of the process.
    pub(crate) fn expect(&mut self, wanted: &Wanted) {
        self.is_awaited = !wanted.is_empty();
    }

    pub(crate) fn begin(&mut self) {
        self.telling = self.telling.wrapping_add(1);
        self.refused = 0;
    }

    fn mark(&mut self, prefix: Prefix) {
        match prefix {
            Prefix::V4(prefix) => drop(self.v4.insert(prefix, self.telling)),
            Prefix::V6(prefix) => drop(self.v6.insert(prefix, self.telling)),
        }
    }

    fn forget(&mut self, prefix: Prefix) {
        match prefix {
            Prefix::V4(prefix) => drop(self.v4.remove(prefix)),
            Prefix::V6(prefix) => drop(self.v6.remove(prefix)),
        }
    }

    /// Takes in one message.
    pub(crate) fn take(
        &mut self,
        speaker: &mut Speaker,
        wanted: &Wanted,
        told: &Redistributed,
    ) -> Result<(), XrlError> {
        let Some(batch) = &told.batch else { return Ok(()) };
        let mut rows = rows(batch)?.into_iter();
        for (at, &routes) in batch.runs.iter().enumerate() {
            let prefixes: Vec<Prefix> = rows.by_ref().take(routes as usize).collect();
            let metric = batch.metrics.get(at).copied().unwrap_or(0);
            let policy = wanted.get(&told.origin).filter(|_| batch.next_hops[at] != 0);
            match policy {
                Some(policy) => {
                    let protocol = protocol(&told.origin)?;
                    let route = ForeignRoute { protocol, tag: batch.tag, metric, policy: policy.clone() };
                    self.announce(speaker, &prefixes, &route);
                }
                None => {
                    prefixes.iter().for_each(|prefix| self.forget(*prefix));
                    speaker.pipeline.withdraw_redistributed(&prefixes);
                }
            }
        }
        Ok(())
    }

    fn announce(&mut self, speaker: &mut Speaker, prefixes: &[Prefix], route: &ForeignRoute) {
        match speaker.pipeline.redistribute(prefixes, route) {
            Ok(()) => prefixes.iter().for_each(|prefix| self.mark(*prefix)),
            Err(error) => {
                prefixes.iter().for_each(|prefix| self.forget(*prefix));
                if self.refused == 0 {
                    warn!(event = "redistribution-refused", protocol = %route.protocol, tag = route.tag, "routes are not redistributed: {error}");
                }
                self.refused += prefixes.len() as u64;
            }
        }
    }

    /// The next prefixes that this telling has not named, and where to go on, if anywhere.
    pub(crate) fn unnamed(&mut self, from: Place) -> (Vec<Prefix>, Option<Place>) {
        let (mut gone, telling) = (Vec::new(), self.telling);
        let next = match from {
            Place::V4(from) => {
                let next = self
                    .v4
                    .retain(from, SLICE, |prefix, named| keep(prefix.into(), named, telling, &mut gone));
                Some(next.map_or(Place::V6(None), |next| Place::V4(Some(next))))
            }
            Place::V6(from) => {
                let next = self
                    .v6
                    .retain(from, SLICE, |prefix, named| keep(prefix.into(), named, telling, &mut gone));
                next.map(|next| Place::V6(Some(next)))
            }
        };
        (gone, next)
    }
}

/// How far a sweep has come.
pub(crate) enum Place {
    V4(Option<Ipv4Prefix>),
    V6(Option<Ipv6Prefix>),
}

fn keep(prefix: Prefix, named: u32, telling: u32, gone: &mut Vec<Prefix>) -> Option<u32> {
    if named == telling {
        return Some(named);
    }
    gone.push(prefix);
    None
}

fn protocol(origin: &str) -> Result<Protocol, XrlError> {
    origin.parse().map_err(|_| XrlError::internal(format!("the rib has routes of {origin:?}")))
}

/// The prefixes of a batch whose columns fit together.
fn rows(batch: &RouteBatch) -> Result<Vec<Prefix>, XrlError> {
    let routes: usize = batch.runs.iter().map(|&routes| routes as usize).sum();
    let width = if batch.afi == 1 { 4 } else { 16 };
    let rows = batch.addresses.chunks(width).zip(&batch.lengths);
    let prefixes: Option<Vec<Prefix>> =
        rows.map(|(octets, &length)| Prefix::new(holdfast_types::address(octets)?, length)).collect();
    let fits = batch.lengths.len() == routes && batch.next_hops.len() == batch.runs.len();
    let prefixes = prefixes.filter(|prefixes| fits && prefixes.len() == routes);
    prefixes.ok_or_else(|| XrlError::internal("the rib has sent a batch that does not fit together"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    #[test]
    fn a_batch_is_read_only_if_its_columns_fit() {
        let good = RouteBatch {
            afi: 1,
            addresses: vec![10, 0, 0, 0, 192, 0, 2, 0],
            lengths: vec![8, 24],
            runs: vec![1, 1],
            next_hops: vec![1, 0],
            ..RouteBatch::default()
        };
        assert_eq!(rows(&good).expect("fits"), [prefix("10.0.0.0/8"), prefix("192.0.2.0/24")]);
        let broken: [fn(&mut RouteBatch); 5] = [
            |batch| batch.addresses.truncate(7),
            |batch| batch.lengths.truncate(1),
            |batch| batch.next_hops.truncate(1),
            |batch| batch.runs = vec![1, 2],
            |batch| batch.lengths[0] = 33,
        ];
        for (case, damage) in broken.into_iter().enumerate() {
            let mut batch = good.clone();
            damage(&mut batch);
            assert!(rows(&batch).is_err(), "case {case}");
        }
    }

    #[test]
    fn what_a_telling_does_not_name_is_found_after_it() {
        let mut known = Redistribution::new();
        known.begin();
        for text in ["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"] {
            known.mark(prefix(text));
        }
        known.begin();
        known.mark(prefix("10.1.0.0/16"));
        let (gone, next) = known.unnamed(Place::V4(None));
        assert_eq!(gone, [prefix("10.0.0.0/8")]);
        let (gone, next) = known.unnamed(next.expect("the other family"));
        assert_eq!((gone, next.is_none()), (vec![prefix("2001:db8::/32")], true));
        assert_eq!((known.v4.len(), known.v6.len()), (1, 0));
    }
}
