//! Routes that the kernel does not have as wanted, written again in slices.
//!
//! Few are queued one by one. When they are many, or when next hops have changed, a walk over the mirror finds them: by
//! their state, or by their slot.

use std::{collections::VecDeque, io};

use holdfast_types::Prefix;

use crate::{
    LinuxFib,
    mirror::{Cursor, Entry, START, State, Tally},
    slots::Fate,
    writes::{Attempt, Write},
};

/// Routes that are queued one by one.
pub(crate) const MOST_QUEUED: usize = 4096;
/// Routes that a slice of a walk looks at for each that it may find.
const VISITS: usize = 64;

/// Where the routes are.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    queue: VecDeque<Prefix>,
    /// The queue was full.
    overflowed: bool,
    /// Contested routes that are followed by nobody may be written again.
    resumes: bool,
    walk: Option<Cursor>,
}

impl Unsettled {
    /// The route is to be written again.
    pub(crate) fn push(&mut self, prefix: Prefix) {
        if self.queue.len() < MOST_QUEUED {
            self.queue.push_back(prefix);
        } else {
            self.overflowed = true;
        }
    }

    /// Contested routes that are followed by nobody may be written again.
    pub(crate) fn resume_others(&mut self) {
        self.resumes = true;
    }
}

impl LinuxFib {
    pub(crate) fn has_unsettled(&self) -> bool {
        let Unsettled { queue, overflowed, resumes, walk } = &self.unsettled;
        let is_pending = !queue.is_empty() || *overflowed || *resumes || walk.is_some();
        is_pending || self.mirror.tally.slots.retired_routes() > 0 || !self.strays.is_empty()
    }

    /// Writes some routes again; whether there are more.
    pub(crate) fn rewrite_some(&mut self, budget: usize) -> io::Result<bool> {
        if !self.has_unsettled() {
            return Ok(false);
        }
        let budget = budget.clamp(1, crate::request::MESSAGES_MAX);
        let strays: Vec<_> = self.strays.drain(self.strays.len().saturating_sub(budget)..).collect();
        let before = self.report.counters.deleted;
        self.carry_out(strays.into_iter().map(Write::delete).collect())?;
        self.report.repairs.strays += self.report.counters.deleted - before;
        let queued = self.unsettled.queue.len().min(budget);
        let found: Vec<Prefix> = match queued {
            0 => self.find_some(budget),
            _ => self.unsettled.queue.drain(..queued).collect(),
        };
        let writes: Vec<Write> = found.into_iter().filter_map(|prefix| self.write_again(prefix)).collect();
        self.carry_out(writes)?;
        if self.has_unsettled() {
            return Ok(true);
        }
        if self.sync.is_none() && self.objects.has_orphans() {
            // No route leads through them any more.
            self.objects.tidy(&mut self.requests)?;
        }
        Ok(false)
    }

    /// Goes on with the walk.
    fn find_some(&mut self, budget: usize) -> Vec<Prefix> {
        let unsettled = &mut self.unsettled;
        let from = unsettled.walk.unwrap_or(START);
        if from == START {
            unsettled.overflowed = false;
        }
        let (resumes, fights) = (unsettled.resumes, &self.fights);
        let wanted = |prefix: Prefix, entry: Entry, tally: &Tally| match entry.state {
            State::Missing | State::Overwritten => true,
            State::Contested if resumes && !fights.knows(prefix) => true,
            _ => tally.slots.fate(entry.slot) != Fate::Current,
        };
        let mut found = Vec::new();
        unsettled.walk = self.mirror.scan(from, budget * VISITS, budget, &mut found, wanted);
        unsettled.resumes &= unsettled.walk.is_some();
        found
    }

    /// What has to be written for a route that may not be as wanted.
    fn write_again(&mut self, prefix: Prefix) -> Option<Write> {
        let entry = self.mirror.get(prefix)?;
        let slots = &self.mirror.tally.slots;
        let (handle, fate) = (slots.handle(entry.slot), slots.fate(entry.slot));
        let attempt = match (entry.state, fate) {
            (State::Installed | State::Outdated, Fate::Moved) | (State::Overwritten, _) => Attempt::Replace,
            (State::Taken, Fate::Lost | Fate::Moved) => Attempt::Retake,
            (State::Installed | State::Outdated | State::Refused, Fate::Lost)
            | (State::Refused, Fate::Moved)
            | (State::Missing | State::Contested, _) => Attempt::Create,
            // Written meanwhile.
            (State::Installed | State::Outdated | State::Refused | State::Taken, Fate::Current) => {
                return None;
            }
        };
        let way = self.way(handle);
        let slot = way.slot.unwrap_or(entry.slot);
        match way.target {
            Ok(target) => {
                self.mirror.move_to(prefix, slot, State::Installed);
                Some(Write::put(prefix, target, attempt))
            }
            Err(reason) => {
                self.mirror.move_to(prefix, slot, State::Refused);
                if self.objects.why_refused(handle).is_none() {
                    self.report.refuse_route(prefix, reason);
                }
                None
            }
        }
    }
}
