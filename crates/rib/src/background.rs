//! Work that takes a walk over the table, done in slices: sweeping what a dead origin left, and telling readers about
//! routes whose next hops have become usable or unusable.

use holdfast_types::{Ipv4Prefix, Ipv6Prefix};

use crate::{
    Rib,
    log::Walk,
    nexthops::Flip,
    origin::OriginId,
    store::{Outdated, Store},
    tables::{Routed, Tables},
};

/// A walk over both families.
#[derive(Debug)]
struct Walks {
    v4: Walk<Ipv4Prefix>,
    v6: Walk<Ipv6Prefix>,
}

impl Walks {
    const START: Self = Self { v4: Walk::START, v6: Walk::START };

    fn are_done(&self) -> bool {
        self.v4 == Walk::Done && self.v6 == Walk::Done
    }
}

/// Sweeps of one origin that wait for the end of a walk. The oldest is left out beyond that: what it would have removed
/// stays until the origin's next end of sync.
const MOST_WAITING: usize = 32;

/// Removal of what is outdated of an origin.
#[derive(Debug)]
pub(crate) struct Sweep {
    origin: OriginId,
    outdated: Vec<Outdated>,
    walks: Walks,
    /// What a second walk removes: the first comes to its end however often more is outdated.
    next: Vec<Outdated>,
}

/// The walk that finds the routes of sets that have become usable or unusable. The winner of a prefix follows at
/// once, since it is worked out when asked for; the walk is for those who have been told of another one.
#[derive(Debug, Default)]
pub(crate) struct FlipWalk {
    walks: Option<Walks>,
    is_waiting: bool,
}

impl FlipWalk {
    pub(crate) fn is_idle(&self) -> bool {
        self.walks.is_none() && !self.is_waiting
    }

    /// There is a set that waits for a walk.
    pub(crate) fn request(&mut self) {
        self.is_waiting = true;
    }

    fn start(&mut self, store: &mut Store) {
        for set in store.sets.iter_mut().filter(|set| set.flip == Flip::Waiting) {
            set.flip = Flip::Walking;
        }
        self.is_waiting = false;
        self.walks = Some(Walks::START);
    }

    fn finish(&mut self, store: &mut Store) {
        for set in store.sets.iter_mut().filter(|set| set.flip == Flip::Walking) {
            set.flip = Flip::No;
        }
        self.walks = None;
    }
}

impl Rib {
    /// Does a slice of waiting work, looking at about `budget` rows. Returns whether there is more to do now. While
    /// the forwarding engine lags, work that would make it lag more waits: call again after [`Rib::poll_fib`].
    pub fn work(&mut self, budget: usize) -> bool {
        if self.is_congested() {
            return false;
        }
        let budget = budget.clamp(1, self.slice_limit());
        if let Some(sweep) = self.sweeps.pop_front() {
            self.sweep_slice(sweep, budget);
            self.settle();
        } else if !self.flips.is_idle() {
            self.flip_slice(budget);
        }
        !self.is_idle()
    }

    /// Whether no work waits.
    pub fn is_idle(&self) -> bool {
        self.sweeps.is_empty() && self.flips.is_idle()
    }

    /// Begins to remove what is outdated of the origin.
    pub(crate) fn sweep(&mut self, origin: OriginId, outdated: Outdated) {
        let Some(sweep) = self.sweeps.iter_mut().find(|sweep| sweep.origin == origin) else {
            let (outdated, next) = (vec![outdated], Vec::new());
            return self.sweeps.push_back(Sweep { origin, outdated, walks: Walks::START, next });
        };
        sweep.next.retain(|waiting| !outdated.covers(waiting));
        if sweep.next.len() == MOST_WAITING {
            sweep.next.remove(0);
        }
        sweep.next.push(outdated);
    }

    fn sweep_slice(&mut self, mut sweep: Sweep, budget: usize) {
        let Some(origin) = self.store.origin(sweep.origin) else { return };
        let internal = origin.is_internal();
        if sweep.walks.v4 != Walk::Done {
            sweep.walks.v4 = self.sweep_family(&sweep, sweep.walks.v4, internal, budget);
        } else {
            sweep.walks.v6 = self.sweep_family(&sweep, sweep.walks.v6, internal, budget);
        }
        if sweep.walks.are_done() && !sweep.next.is_empty() {
            (sweep.outdated, sweep.walks) = (std::mem::take(&mut sweep.next), Walks::START);
        }
        if !sweep.walks.are_done() {
            self.sweeps.push_back(sweep);
        }
    }

    fn sweep_family<P: Routed>(
        &mut self,
        sweep: &Sweep,
        walk: Walk<P>,
        internal: bool,
        budget: usize,
    ) -> Walk<P> {
        let family = P::tables_mut(&mut self.tables);
        let (store, mut dropped) = (&mut self.store, Vec::new());
        let walk = family.sweep(
            internal,
            walk,
            budget,
            |row| store.without(row, sweep.origin, &sweep.outdated),
            |prefix, put| dropped.push((prefix, put.origins_before, put.row.is_none())),
        );
        for (prefix, origins_before, gone) in dropped {
            self.changed(internal, prefix, origins_before, gone);
        }
        walk
    }

    fn flip_slice(&mut self, budget: usize) {
        let walks = match self.flips.walks.take() {
            Some(walks) => walks,
            None => {
                self.flips.start(&mut self.store);
                Walks::START
            }
        };
        let walks = match walks.v4 {
            Walk::Done => Walks { v6: flip_rows(&mut self.tables, &self.store, walks.v6, budget), ..walks },
            _ => Walks { v4: flip_rows(&mut self.tables, &self.store, walks.v4, budget), ..walks },
        };
        if walks.are_done() {
            self.flips.finish(&mut self.store);
        } else {
            self.flips.walks = Some(walks);
        }
    }

    /// Rows per slice: the readers' log must never overflow by our own work.
    fn slice_limit(&self) -> usize {
        (self.config.log_capacity / 4).max(1)
    }
}

/// Logs the rows that have a path whose set has flipped.
fn flip_rows<P: Routed>(tables: &mut Tables, store: &Store, walk: Walk<P>, budget: usize) -> Walk<P> {
    let Walk::After(from) = walk else { return Walk::Done };
    let has_flipped = |path| {
        let set = store.sets.get(store.path(path).nexthops);
        set.is_some_and(|set| set.flip == Flip::Walking)
    };
    let (mut last, mut seen, mut flipped) = (from, 0, Vec::new());
    for row in P::tables(tables).rows(from).take(budget) {
        (last, seen) = (Some(row.prefix), seen + 1);
        if row.paths(store).any(has_flipped) {
            flipped.push((row.prefix, row.origins(store)));
        }
    }
    let family = P::tables_mut(tables);
    flipped.into_iter().for_each(|entry| family.log_change(entry));
    if seen == budget { Walk::After(last) } else { Walk::Done }
}
