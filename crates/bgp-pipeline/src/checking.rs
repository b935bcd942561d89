//! The consistency check of a running router ([`consistency`](crate::consistency)) is switched on and off, and takes the
//! table over.

use std::{cell::RefCell, rc::Rc};

use holdfast_types::{IpPrefix, Ipv4Prefix, Ipv6Prefix};

use crate::{
    Pipeline,
    consistency::{Consistency, Violation},
    core::Core,
    path::Path,
    seam::{Observer, RouteNumber, Seam, StreamKey},
    table::Table,
};

/// Entries that are given back for each prefix of a slice.
const FREED: usize = 8;

/// Where the table has been taken over up to.
#[derive(Copy, Clone, Debug)]
enum Place {
    Ipv4(Option<Ipv4Prefix>),
    Ipv6(Option<Ipv6Prefix>),
}

/// The check, while it is on, or while what it knew is given back.
#[derive(Debug, Default)]
pub(crate) struct Checking {
    on: Option<Rc<RefCell<Consistency>>>,
    /// The walk that takes the table over.
    place: Option<Place>,
    ended: Vec<Rc<RefCell<Consistency>>>,
    /// Violations that earlier checks have found.
    before: u64,
}

impl Pipeline {
    /// Has the contract between stages checked from now on, or not any more. What is there already is taken over in slices
    /// ([`Self::work`]). While it is off nothing is kept, and each seam costs the question whether anybody looks.
    pub fn check_consistency(&mut self, on: bool) {
        if on == self.checking.on.is_some() {
            return;
        }
        match self.checking.on.take() {
            Some(check) => {
                let observer: Rc<RefCell<dyn Observer>> = check.clone();
                self.core.seams.remove(&observer);
                self.checking.before += check.borrow().violations();
                check.borrow_mut().forget();
                self.checking.ended.push(check);
                self.checking.place = None;
            }
            None => {
                let groups = self.streams.iter().map(|(id, _)| StreamKey::Group(id.0));
                let rib = self.rib.as_ref().map(|_| StreamKey::Rib);
                let check = Rc::new(RefCell::new(Consistency::new(groups.chain(rib))));
                self.core.seams.add(check.clone());
                self.checking.on = Some(check);
                self.checking.place = Some(Place::Ipv4(None));
            }
        }
        self.streams.seams = self.core.seams.clone();
    }

    /// Whether the contract is checked, and of the whole table.
    pub fn is_consistency_checked(&self) -> bool {
        self.checking.on.as_ref().is_some_and(|check| check.borrow().is_complete())
    }

    /// The next violation to report.
    pub fn poll_violation(&mut self) -> Option<Violation> {
        self.checking.on.as_ref()?.borrow_mut().poll()
    }

    /// How many there were.
    pub fn violations(&self) -> u64 {
        self.checking.before + self.checking.on.as_ref().map_or(0, |check| check.borrow().violations())
    }

    /// The best route to a prefix has been withdrawn, as far as the check knows.
    #[cfg(test)]
    pub(crate) fn lose_a_change(&mut self, prefix: holdfast_types::Prefix) {
        let seam = Seam::DecisionToFanout;
        self.core.seams.pass(seam, StreamKey::LocRib, prefix, crate::seam::Old::Unknown, None);
    }

    /// Takes over up to `budget` prefixes of the table, and gives back what is not needed any more; whether there is more.
    pub(crate) fn check_slice(&mut self, budget: usize) -> bool {
        let mut more = false;
        if let Some(check) = self.checking.on.clone() {
            more |= check.borrow_mut().free(FREED * budget);
            if let Some(place) = self.checking.place {
                self.checking.place = self.take_over(&mut check.borrow_mut(), place, budget);
                more |= self.checking.place.is_some();
            }
        }
        if let Some(ended) = self.checking.ended.last() {
            let is_empty = !ended.borrow_mut().free(FREED * budget);
            self.checking.ended.truncate(self.checking.ended.len() - usize::from(is_empty));
        }
        more || !self.checking.ended.is_empty()
    }

    fn take_over(&mut self, check: &mut Consistency, place: Place, budget: usize) -> Option<Place> {
        match place {
            Place::Ipv4(after) => {
                let next = self.v4.take_over(&mut self.core, check, after, budget);
                Some(next.map_or(Place::Ipv6(None), |next| Place::Ipv4(Some(next))))
            }
            Place::Ipv6(after) => {
                let next = self.v6.take_over(&mut self.core, check, after, budget);
                next.map(|next| Place::Ipv6(Some(next)))
            }
        }
    }
}

impl<P: IpPrefix> Table<P> {
    /// The last prefix that was looked at; `None` at the end.
    fn take_over(
        &self,
        core: &mut Core,
        check: &mut Consistency,
        after: Option<P>,
        budget: usize,
    ) -> Option<P> {
        let table = &self.rib.table;
        let found: Vec<(P, u64)> = match after {
            Some(after) => table.iter_from(after, false).take(budget).collect(),
            None => table.iter().take(budget).collect(),
        };
        let mut paths: Vec<Path> = Vec::new();
        for &(prefix, word) in &found {
            self.rib.lists.load(word, &mut paths);
            for path in &paths {
                core.show_to(check, prefix.into(), *path);
            }
            if let Some(best) = RouteNumber::of(self.rib.lists.best(word)) {
                check.take_over(Seam::DecisionToFanout, StreamKey::LocRib, prefix.into(), best);
            }
        }
        match found.last() {
            Some((last, _)) => check.cover((*last).into()),
            None => check.cover_all(P::UNICAST),
        }
        found.last().map(|(last, _)| *last)
    }
}

impl Core {
    /// What a path of the table is at the seams up to the decision.
    fn show_to(&mut self, check: &mut Consistency, prefix: holdfast_types::Prefix, path: Path) {
        let lane = StreamKey::Session(path.source.0);
        for (seam, number) in Self::BEFORE_DECISION.into_iter().zip(self.passing(prefix, path)) {
            if let Some(number) = number {
                check.take_over(seam, lane, prefix, number);
            }
        }
    }
}
