//! Requests about routes: which follow from a change, and what the kernel's answers mean.

use std::{borrow::Cow, collections::HashMap, io};

use holdfast_fib::{Handle, Report, RouteChange};
use holdfast_types::{Afi, Ipv4Prefix, Ipv6Prefix, Prefix};
use rustix::io::Errno;

use crate::{
    LinuxFib,
    message::Batch,
    mirror::{Entry, Family, State},
    request::Refusal,
    route::{self, Mode, Ownership, Target},
    slots::Slot,
};

/// Attempts at a route: the third is the last that can follow from an answer ([`Attempt`]).
const ATTEMPTS: usize = 3;

/// Why the kernel does not have a route of ours.
const TAKEN: &str = "another program has a route of this prefix and metric";

/// A request about one route.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Write {
    pub(crate) prefix: Prefix,
    pub(crate) action: Action,
}

#[derive(Copy, Clone, Debug)]
pub(crate) enum Action {
    Put(Target, Attempt),
    Delete { metric: u32 },
}

/// How a route is put there. No attempt touches a route of another program, except [`Attempt::Replace`] one that has
/// replaced ours.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    /// In the place of the one that we have there. Next, if there is none: `Create`.
    Replace,
    /// Where none is. Next, if there is one: `Displace`.
    Create,
    /// Where none is, after one of our protocol was deleted. If there still is one, it is another program's.
    Displace,
    /// Where another program has had one. If there still is one, that has not changed.
    Retake,
    /// Where a dump that was interrupted has shown none. If there is one, the dump has missed it.
    Confirm,
}

impl Attempt {
    /// The attempt for a route of which this was known.
    fn after(before: Option<Entry>) -> Self {
        match before.map(|entry| entry.state) {
            Some(State::Installed | State::Outdated | State::Overwritten) => Self::Replace,
            Some(State::Taken) => Self::Retake,
            Some(State::Refused | State::Missing | State::Contested) | None => Self::Create,
        }
    }

    /// What the kernel's refusal means.
    fn refused(self, errno: Errno) -> Outcome {
        match (self, errno) {
            (Self::Replace, Errno::NOENT) => Outcome::Again(Self::Create),
            (Self::Create, Errno::EXIST) => Outcome::Again(Self::Displace),
            (Self::Displace | Self::Retake, Errno::EXIST) => Outcome::Is(State::Taken),
            (Self::Confirm, Errno::EXIST) => Outcome::Is(State::Installed),
            (Self::Replace, _) => Outcome::Is(State::Outdated),
            (Self::Create | Self::Displace | Self::Retake | Self::Confirm, _) => Outcome::Is(State::Refused),
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Again(Attempt),
    Is(State),
}

impl Write {
    pub(crate) fn delete((prefix, metric): (Prefix, u32)) -> Self {
        Self { prefix, action: Action::Delete { metric } }
    }

    pub(crate) fn put(prefix: Prefix, target: Target, attempt: Attempt) -> Self {
        Self { prefix, action: Action::Put(target, attempt) }
    }
}

/// The rows of one family in a batch.
struct Rows<P> {
    prefixes: Vec<P>,
    places: Vec<Option<(Slot, State)>>,
    targets: Vec<Option<Target>>,
}

impl<P> Rows<P> {
    fn new() -> Self {
        Self { prefixes: Vec::new(), places: Vec::new(), targets: Vec::new() }
    }

    fn push(&mut self, prefix: P, place: Option<(Slot, State)>, target: Option<Target>) {
        self.prefixes.push(prefix);
        self.places.push(place);
        self.targets.push(target);
    }
}

/// Where routes of a handle lead: their slot and target, or why nowhere.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) slot: Option<Slot>,
    pub(crate) target: Result<Target, String>,
}

impl LinuxFib {
    pub(crate) fn apply_some(&mut self, changes: &[RouteChange]) -> io::Result<()> {
        let writes = self.plan(&latest(changes));
        self.carry_out(writes)?;
        if self.objects_doubtful {
            self.repair_objects()?;
        }
        if self.report.refused.take_is_drained() {
            self.loss = Some("more routes were refused than are remembered".into());
        }
        Ok(())
    }

    /// Where routes of the handle lead from now on.
    pub(crate) fn way(&mut self, handle: Handle) -> Way {
        let target = self.objects.target(handle);
        let slot = self.mirror.tally.slots.current(handle, target.as_ref().ok().copied());
        let target = if slot.is_none() { Err("too many sets of next hops".to_owned()) } else { target };
        Way { slot, target }
    }

    /// What has to be written for the changes, which are to different prefixes.
    fn plan(&mut self, changes: &[RouteChange]) -> Vec<Write> {
        let (mut ipv4, mut ipv6) = (Rows::<Ipv4Prefix>::new(), Rows::<Ipv6Prefix>::new());
        let mut last: Option<(Handle, Way)> = None;
        for RouteChange { prefix, next_hops } in changes {
            let (place, target) = match next_hops {
                None => (None, None),
                Some(handle) => {
                    if last.as_ref().is_none_or(|(known, _)| known != handle) {
                        last = Some((*handle, self.way(*handle)));
                    }
                    let Some((_, way)) = &last else { continue };
                    let state = match &way.target {
                        Ok(_) => State::Installed,
                        Err(reason) => {
                            self.refuse_for_way(*prefix, *handle, reason.clone());
                            State::Refused
                        }
                    };
                    (way.slot.map(|slot| (slot, state)), way.target.as_ref().ok().copied())
                }
            };
            match prefix {
                Prefix::V4(prefix) => ipv4.push(*prefix, place, target),
                Prefix::V6(prefix) => ipv6.push(*prefix, place, target),
            }
        }
        let mut writes = Vec::with_capacity(changes.len());
        self.plan_family(&ipv4, &mut writes);
        self.plan_family(&ipv6, &mut writes);
        writes
    }

    /// A route cannot be written because of its next hops.
    pub(crate) fn refuse_for_way(&mut self, prefix: Prefix, handle: Handle, reason: String) {
        // All routes of a refused handle are, and are told so by the handle.
        match self.objects.why_refused(handle).is_some() {
            true => self.report.refuse(prefix.to_string(), reason),
            false => self.report.refuse_route(prefix, reason),
        }
    }

    fn plan_family<P: Family>(&mut self, rows: &Rows<P>, writes: &mut Vec<Write>) {
        let Self { mirror, sync, report, ours, .. } = self;
        let mut numbers = 0..;
        mirror.change_each(&rows.prefixes, &rows.places, |before| {
            let Some(row) = numbers.next() else { return };
            let prefix: Prefix = rows.prefixes[row].into();
            let (place, target) = (rows.places[row], rows.targets[row]);
            if place.is_some() && target.is_none() {
                return;
            }
            let leftover = sync.as_mut().map(|sync| sync.leftover.take(prefix));
            match target {
                Some(target) => match leftover.flatten() {
                    Some(left) if left == target => {
                        report.counters.kept += 1;
                        report.refused.settle(prefix);
                    }
                    Some(_) => writes.push(Write::put(prefix, target, Attempt::Replace)),
                    None => writes.push(Write::put(prefix, target, Attempt::after(before))),
                },
                None if leftover.is_none() && before.is_none_or(|it| it.state == State::Taken) => {
                    report.refused.settle(prefix);
                }
                None => writes.push(Write::delete((prefix, ours.metric))),
            }
        });
    }

    /// Writes, again as the answers suggest, and notes what has become of each route.
    pub(crate) fn carry_out(&mut self, mut writes: Vec<Write>) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            if writes.is_empty() {
                return Ok(());
            }
            let refused = self.write(&writes)?;
            count(&mut self.report, &writes, &refused);
            writes = self.sort_out(&writes, refused);
        }
        for Write { prefix, .. } in writes {
            self.mirror.set_state(prefix, State::Refused);
            self.report.refuse_route(prefix, "another program changes the same route".into());
        }
        Ok(())
    }

    /// Writes: the refusals with the number of what was refused.
    fn write(&mut self, writes: &[Write]) -> io::Result<Vec<(usize, Refusal)>> {
        let mut batch = Batch::new();
        // Of each message: which of the writes it is, unless it only makes room.
        let mut numbers: Vec<Option<usize>> = Vec::with_capacity(writes.len());
        let first = self.requests.next_sequence();
        let mut sequence = first;
        for (number, Write { prefix, action }) in writes.iter().enumerate() {
            let mut next = |number, requests: &mut crate::request::Requests| {
                let own = if numbers.is_empty() { sequence } else { requests.next_sequence() };
                sequence = own;
                numbers.push(number);
                own
            };
            let ours = self.ours;
            self.ipv6_written += u64::from(prefix.afi() == Afi::IPV6);
            match *action {
                Action::Put(target, attempt) => {
                    if attempt == Attempt::Displace {
                        let sequence = next(None, &mut self.requests);
                        route::delete(&mut batch, sequence, ours, *prefix);
                    }
                    let mode = if attempt == Attempt::Replace { Mode::Replace } else { Mode::Create };
                    let sequence = next(Some(number), &mut self.requests);
                    route::write(&mut batch, sequence, ours, *prefix, (target, mode));
                }
                Action::Delete { metric } => {
                    let sequence = next(Some(number), &mut self.requests);
                    route::delete(&mut batch, sequence, Ownership { metric, ..ours }, *prefix);
                }
            }
        }
        let mut refused = Vec::new();
        self.requests.exchange(&mut batch, |sequence, refusal| {
            let number = numbers.get(sequence.wrapping_sub(first) as usize).copied().flatten();
            refused.extend(number.map(|number| (number, refusal)));
        })?;
        Ok(refused)
    }

    /// What has to be written again; the state of what does not.
    fn sort_out(&mut self, writes: &[Write], refused: Vec<(usize, Refusal)>) -> Vec<Write> {
        let mut again = Vec::new();
        for (number, refusal) in refused {
            let Some(Write { prefix, action }) = writes.get(number).copied() else { continue };
            match action {
                Action::Delete { .. } if matches!(refusal.errno, Errno::SRCH | Errno::NOENT) => {
                    self.report.refused.settle(prefix);
                }
                Action::Delete { .. } => self.report.refuse(prefix.to_string(), refusal.to_string()),
                Action::Put(target, attempt) => match attempt.refused(refusal.errno) {
                    Outcome::Again(attempt) => again.push(Write::put(prefix, target, attempt)),
                    Outcome::Is(State::Installed) => self.report.refused.settle(prefix),
                    Outcome::Is(state) => {
                        let is_taken = state == State::Taken;
                        let reason = if is_taken { TAKEN.to_owned() } else { refusal.to_string() };
                        self.mirror.set_state(prefix, state);
                        self.report.refuse_route(prefix, reason);
                        let by_group = matches!(target, Target::Group(_));
                        self.objects_doubtful |= by_group && refusal.errno == Errno::INVAL;
                    }
                },
            }
        }
        again
    }
}

/// Counts what was done.
fn count(report: &mut Report, writes: &[Write], refused: &[(usize, Refusal)]) {
    let Report { counters, refused: known, .. } = report;
    let mut refused = refused.iter().map(|(number, _)| *number).peekable();
    for (number, write) in writes.iter().enumerate() {
        if refused.next_if_eq(&number).is_some() {
            continue;
        }
        known.settle(write.prefix);
        match write.action {
            Action::Put(..) => counters.added += 1,
            Action::Delete { .. } => counters.deleted += 1,
        }
    }
}

/// The last change of each prefix, in order: what is written must not depend on a write of the same batch, whose answer
/// comes later. A table that is walked has no prefix twice and its prefixes in order.
fn latest(changes: &[RouteChange]) -> Cow<'_, [RouteChange]> {
    if changes.is_sorted_by(|one, next| one.prefix < next.prefix) {
        return Cow::Borrowed(changes);
    }
    let numbers = changes.iter().enumerate();
    let last: HashMap<Prefix, usize> =
        numbers.clone().map(|(number, change)| (change.prefix, number)).collect();
    if last.len() == changes.len() {
        return Cow::Borrowed(changes);
    }
    numbers
        .filter(|(number, change)| last.get(&change.prefix) == Some(number))
        .map(|(_, change)| *change)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(prefix: &str, handle: u32) -> RouteChange {
        let next_hops = (handle != 0).then_some(Handle(handle));
        RouteChange { prefix: prefix.parse().expect("prefix"), next_hops }
    }

    #[test]
    fn of_several_changes_of_a_prefix_the_last_counts() {
        let once = [change("11.0.0.0/8", 1), change("10.0.0.0/8", 1)];
        assert_eq!(*latest(&once), once);
        let [eleven, ten] = once;
        let again = change("11.0.0.0/8", 0);
        assert_eq!(*latest(&[eleven, ten, again]), [ten, again]);
    }

    #[test]
    fn every_attempt_comes_to_an_end_and_none_but_the_first_replaces() {
        for errno in [Errno::EXIST, Errno::NOENT, Errno::INVAL, Errno::NETUNREACH] {
            for first in [Attempt::Replace, Attempt::Create, Attempt::Retake, Attempt::Confirm] {
                let (mut attempt, mut attempts) = (first, 1);
                while let Outcome::Again(next) = attempt.refused(errno) {
                    assert_ne!(next, Attempt::Replace);
                    (attempt, attempts) = (next, attempts + 1);
                }
                assert!(attempts <= ATTEMPTS);
            }
        }
        assert_eq!(Attempt::Displace.refused(Errno::EXIST), Outcome::Is(State::Taken));
        assert_eq!(Attempt::Confirm.refused(Errno::EXIST), Outcome::Is(State::Installed));
    }
}
