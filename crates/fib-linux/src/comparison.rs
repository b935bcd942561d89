//! The whole table compared with the kernel's, in slices.
//!
//! A dump marks the routes that it shows, by parity; what is written meanwhile is marked by that. In the end the routes
//! without mark are gone. A change made meanwhile, by us or by others, is no difference: what the dump shows is judged by
//! what the mirror says in that moment.

use std::io;

use holdfast_types::{Afi, Prefix};

use crate::{
    LinuxFib,
    mirror::{Cursor, Entry, Family, START, State, Tally},
    route::{Route, Target},
    slots::Fate,
    sync::Part,
    writes::{Attempt, Write},
};

/// Routes that a slice of the walk looks at for each that it may find.
const VISITS: usize = 64;

/// IPv6 routes that we had written when the dump of a family began. When the table changes, the kernel begins a dump of IPv6
/// again past as many routes as it has shown, which need not be the same ones.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Written(u64);

/// How far a comparison is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Comparison {
    Dump(Afi, Written),
    /// Looks for routes without mark. Incomplete: the dump of IPv6 may have missed some that were there.
    Walk {
        cursor: Cursor,
        incomplete: bool,
    },
}

impl LinuxFib {
    pub(crate) fn begin_comparison(&mut self) -> io::Result<()> {
        if self.sync.is_some() || self.comparison.is_some() {
            return Ok(());
        }
        self.repair_objects()?;
        self.dump.begin_family(Afi::IPV4)?;
        self.mirror.begin_comparison();
        self.comparison = Some(Comparison::Dump(Afi::IPV4, Written(self.ipv6_written)));
        Ok(())
    }

    /// A slice; whether there is more.
    pub(crate) fn compare_some(&mut self, budget: usize) -> io::Result<bool> {
        let Some(comparison) = self.comparison else { return Ok(false) };
        self.comparison = match comparison {
            Comparison::Dump(afi, written) => Some(self.compare_part(afi, written)?),
            Comparison::Walk { cursor, incomplete } => {
                let budget = budget.clamp(1, crate::request::MESSAGES_MAX);
                let next = self.write_unseen(cursor, budget, incomplete)?;
                next.map(|cursor| Comparison::Walk { cursor, incomplete })
            }
        };
        self.report.repairs.comparisons += u64::from(self.comparison.is_none());
        Ok(self.comparison.is_some() || self.has_unsettled())
    }

    /// Marks what a part of the dump shows.
    fn compare_part(&mut self, afi: Afi, written: Written) -> io::Result<Comparison> {
        let (mut ipv4, mut ipv6) = (Shown::default(), Shown::default());
        let part = self.dump.read(|route| match route.prefix {
            Prefix::V4(prefix) => ipv4.push(prefix, route),
            Prefix::V6(prefix) => ipv6.push(prefix, route),
        })?;
        self.mark_shown(&ipv4)?;
        self.mark_shown(&ipv6)?;
        Ok(match part {
            Part::More => Comparison::Dump(afi, written),
            Part::Last { .. } if afi == Afi::IPV4 => {
                self.dump.begin_family(Afi::IPV6)?;
                Comparison::Dump(Afi::IPV6, Written(self.ipv6_written))
            }
            Part::Last { interrupted } => {
                let incomplete = interrupted || written != Written(self.ipv6_written);
                Comparison::Walk { cursor: START, incomplete }
            }
        })
    }

    fn mark_shown<P: Family>(&mut self, shown: &Shown<P>) -> io::Result<()> {
        let metric = self.ours.metric;
        let (mut unwanted, mut changed) = (Vec::new(), Vec::new());
        self.mirror.review_each(&shown.prefixes, |row, entry, tally| {
            let (prefix, (priority, target)) = (shown.prefixes[row].into(), shown.routes[row]);
            if priority != metric || entry.is_none() {
                unwanted.push((prefix, priority));
                return entry;
            }
            let entry = entry.map(|entry| judge(entry, target, tally))?;
            if entry.state == State::Overwritten {
                changed.push(prefix);
            }
            Some(entry)
        });
        self.report.repairs.replaced += changed.len() as u64;
        changed.into_iter().for_each(|prefix| self.unsettled.push(prefix));
        let before = self.report.counters.deleted;
        // One that we have deleted since it was shown is gone already.
        self.carry_out(unwanted.into_iter().map(Write::delete).collect())?;
        self.report.repairs.strays += self.report.counters.deleted - before;
        Ok(())
    }

    /// Writes routes that the dump has not shown. Where to go on; `None` at the end.
    fn write_unseen(&mut self, from: Cursor, budget: usize, incomplete: bool) -> io::Result<Option<Cursor>> {
        let mut unseen = Vec::new();
        let is_unseen = |_: Prefix, entry: Entry, tally: &Tally| {
            let is_current = tally.slots.fate(entry.slot) == Fate::Current;
            entry.state == State::Installed && entry.parity != tally.parity && is_current
        };
        let next = self.mirror.scan(from, budget * VISITS, budget, &mut unseen, is_unseen);
        let mut writes = Vec::with_capacity(unseen.len());
        for prefix in unseen {
            let slot = self.mirror.get(prefix).map(|entry| entry.slot);
            let target = slot.and_then(|slot| self.mirror.tally.slots.target(slot));
            let may_be_missed = incomplete && prefix.afi() == Afi::IPV6;
            let attempt = if may_be_missed { Attempt::Confirm } else { Attempt::Create };
            writes.extend(target.map(|target| Write::put(prefix, target, attempt)));
        }
        let before = self.report.counters.added;
        self.carry_out(writes)?;
        self.report.repairs.unseen += self.report.counters.added - before;
        Ok(next)
    }
}

/// What is known of a wanted route now that the kernel has shown one of ours there.
fn judge(entry: Entry, target: Target, tally: &Tally) -> Entry {
    let is_as_wanted = tally.slots.target(entry.slot) == Some(target);
    // Written since: the dump may have shown what was before. Or about to be written.
    let is_settled = entry.parity == tally.parity || tally.slots.fate(entry.slot) != Fate::Current;
    match entry.state {
        State::Installed if !is_as_wanted && !is_settled => {
            Entry { state: State::Overwritten, parity: tally.parity, ..entry }
        }
        _ => Entry { parity: tally.parity, ..entry },
    }
}

/// Routes that a part of the dump has shown.
struct Shown<P> {
    prefixes: Vec<P>,
    routes: Vec<(u32, Target)>,
}

impl<P> Default for Shown<P> {
    fn default() -> Self {
        Self { prefixes: Vec::new(), routes: Vec::new() }
    }
}

impl<P> Shown<P> {
    fn push(&mut self, prefix: P, route: Route) {
        self.prefixes.push(prefix);
        self.routes.push((route.priority, route.target));
    }
}
