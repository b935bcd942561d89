//! Whose signatures are verified next.
//!
//! Each peer has a queue, and peers take turns by hops: one with long paths gets as much of the workers' time as one with
//! short ones. Routes that could be used come before those that could not, and before those that are looked at again.
//! Signatures that turn out bad are charged: a peer that has used up its budget waits, and its routes stay unverified.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::routes::RouteKey;
use crate::PeerIndex;

/// Hops that a peer may have verified before it is another one's turn.
const QUANTUM: i64 = 64;
/// The most hops that a peer may be behind with its turns, however many keys were tried for what it has sent: 64 turns of others.
const MOST_BEHIND: i64 = 64 * QUANTUM;
/// Bad signatures that a peer may have verified at once, by hops that it takes to find them.
pub const FAILED_HOPS: u32 = 4096;
/// The same a second, on and on: 0.1 s of one processor.
pub const FAILED_HOPS_A_SECOND: u32 = 1024;
/// The most that a peer may owe, whatever `pathsec` says that its signatures have cost: a minute of waiting.
const DEEPEST_DEBT: i64 = 60 * FAILED_HOPS_A_SECOND as i64;
/// Hops that a peer whose budget is used up waits for: 62 ms.
const RESUMED_HOPS: i64 = 64;
/// Tickets beyond those that count, before these are looked for.
const MOST_STALE: usize = 64;
/// Tickets that are looked at for each new one then. More than half of them do not count, so that there are fewer and fewer.
const LOOKED_AT: usize = 4;

/// Which queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Priority {
    /// A route that might be the best.
    First,
    /// One that could not, and one of which there was a verdict.
    Later,
}

/// A place in a queue: it counts as long as the route has a ticket with this number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    pub(crate) key: RouteKey,
    pub(crate) number: u32,
}

/// The queues of all peers.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    lanes: [Lane; 2],
    budgets: Vec<Option<Budget>>,
    numbers: u32,
}

/// Those of one priority.
#[derive(Debug, Default)]
struct Lane {
    /// Peers that have tickets, in turn.
    turns: VecDeque<PeerIndex>,
    queues: Vec<Queue>,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    tickets: VecDeque<Ticket>,
    /// Hops of this turn that are left.
    credit: i64,
    /// The peer is among those that take turns, once.
    has_turn: bool,
}

/// What a peer may still have verified in vain.
#[derive(Copy, Clone, Debug)]
struct Budget {
    /// Below 0 where more was under way when it was used up.
    left: i64,
    at: Instant,
    /// It was used up, and somebody has been told.
    is_out: bool,
}

impl Budget {
    /// Whether further signatures of the peer may be verified.
    fn lets_go_on(&self) -> bool {
        self.left >= if self.is_out { RESUMED_HOPS } else { 1 }
    }

    fn refill(&mut self, now: Instant) {
        let gained =
            now.saturating_duration_since(self.at).as_millis() * u128::from(FAILED_HOPS_A_SECOND) / 1000;
        if gained > 0 {
            let gained = i64::try_from(gained).unwrap_or(i64::MAX);
            self.left = self.left.saturating_add(gained).min(FAILED_HOPS.into());
            self.at = now;
        }
    }
}

impl Queues {
    /// A ticket for a route of the peer. `counts` says of earlier ones whether they still count.
    pub(crate) fn push(
        &mut self,
        peer: PeerIndex,
        priority: Priority,
        key: RouteKey,
        live: usize,
        counts: impl Fn(&Ticket) -> bool,
    ) -> u32 {
        self.numbers = self.numbers.wrapping_add(1);
        let ticket = Ticket { key, number: self.numbers };
        let Lane { turns, queues } = &mut self.lanes[priority as usize];
        if queues.len() <= peer.index() {
            queues.resize(peer.index() + 1, Queue::default());
        }
        let queue = &mut queues[peer.index()];
        if queue.tickets.len() > 2 * live + MOST_STALE {
            for _ in 0..LOOKED_AT {
                queue
                    .tickets
                    .pop_front()
                    .into_iter()
                    .filter(&counts)
                    .for_each(|it| queue.tickets.push_back(it));
            }
        }
        if !std::mem::replace(&mut queue.has_turn, true) {
            turns.push_back(peer);
            // What its last paths have cost is not forgotten because it had no others for a moment.
            queue.credit = (queue.credit + QUANTUM).min(QUANTUM);
        }
        queue.tickets.push_back(ticket);
        ticket.number
    }

    /// The next ticket, with its priority. Tickets that do not count any more come as well.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Priority, PeerIndex, Ticket)> {
        for priority in [Priority::First, Priority::Later] {
            let Lane { turns, queues } = &mut self.lanes[priority as usize];
            // Those that have no credit have one turn less to wait; if that is all of them, so many turns as the first one needs.
            let (mut looked_at, mut turns_to_wait) = (0, i64::MAX);
            loop {
                if looked_at == turns.len() {
                    if turns_to_wait == i64::MAX {
                        break;
                    }
                    for peer in &*turns {
                        let queue = &mut queues[peer.index()];
                        queue.credit = (queue.credit + turns_to_wait * QUANTUM).min(QUANTUM);
                    }
                    (looked_at, turns_to_wait) = (0, i64::MAX);
                }
                let Some(&peer) = turns.front() else { break };
                let queue = &mut queues[peer.index()];
                let may = may_go_on(&mut self.budgets, peer, now);
                if !may || queue.credit <= 0 {
                    queue.credit = (queue.credit + QUANTUM).min(QUANTUM);
                    if may {
                        turns_to_wait = turns_to_wait.min((QUANTUM - queue.credit) / QUANTUM);
                    }
                    looked_at += 1;
                    turns.rotate_left(1);
                    continue;
                }
                looked_at = 0;
                let Some(ticket) = queue.tickets.pop_front() else {
                    (queue.has_turn, _) = (false, turns.pop_front());
                    continue;
                };
                if queue.tickets.is_empty() {
                    queue.tickets = VecDeque::new();
                    (queue.has_turn, _) = (false, turns.pop_front());
                }
                return Some((priority, peer, ticket));
            }
        }
        None
    }

    /// Whether [`Self::pop`] has something.
    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        let has_budget = |peer: &PeerIndex| match self.budgets.get(peer.index()).copied().flatten() {
            None => true,
            Some(mut budget) => {
                budget.refill(now);
                budget.lets_go_on()
            }
        };
        self.lanes.iter().any(|lane| lane.turns.iter().any(has_budget))
    }

    /// What was popped takes so many hops of the peer's turn.
    pub(crate) fn charge(&mut self, priority: Priority, peer: PeerIndex, hops: usize) {
        if let Some(queue) = self.lanes[priority as usize].queues.get_mut(peer.index()) {
            queue.credit = (queue.credit - hops as i64).max(-MOST_BEHIND);
        }
    }

    /// So many signatures were verified, once for each key that was tried, to find a bad one; whether the peer's budget is used up
    /// by that.
    pub(crate) fn failed(&mut self, peer: PeerIndex, hops: u32, now: Instant) -> bool {
        if self.budgets.len() <= peer.index() {
            self.budgets.resize(peer.index() + 1, None);
        }
        let full = Budget { left: FAILED_HOPS.into(), at: now, is_out: false };
        let budget = self.budgets[peer.index()].get_or_insert(full);
        budget.refill(now);
        budget.left = budget.left.saturating_sub(hops.into()).max(-DEEPEST_DEBT);
        budget.left <= 0 && !std::mem::replace(&mut budget.is_out, true)
    }

    /// When a peer that waits may go on; `None` if none does.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let waits = |peer: &PeerIndex| {
            self.budgets.get(peer.index()).copied().flatten().filter(|budget| !budget.lets_go_on())
        };
        let all = self.lanes.iter().flat_map(|lane| &lane.turns);
        let resumes = |budget: Budget| {
            // One more, as what was gained is counted in whole milliseconds.
            let hops = u32::try_from(RESUMED_HOPS - budget.left + 1).unwrap_or(u32::MAX);
            budget.at + Duration::from_secs(1) / FAILED_HOPS_A_SECOND * hops
        };
        all.filter_map(waits).map(resumes).min()
    }

    /// The peer is gone: the next one with its number is another.
    pub(crate) fn forget(&mut self, peer: PeerIndex) {
        for Lane { turns, queues } in &mut self.lanes {
            turns.retain(|other| *other != peer);
            if let Some(queue) = queues.get_mut(peer.index()) {
                *queue = Queue::default();
            }
        }
        if let Some(budget) = self.budgets.get_mut(peer.index()) {
            *budget = None;
        }
    }

    /// Octets of memory, without those of the allocator.
    pub(crate) fn memory(&self) -> usize {
        let of_lane = |lane: &Lane| {
            let tickets: usize = lane.queues.iter().map(|queue| queue.tickets.capacity()).sum();
            tickets * size_of::<Ticket>() + lane.queues.capacity() * size_of::<Queue>()
        };
        self.lanes.iter().map(of_lane).sum()
    }
}

fn may_go_on(budgets: &mut [Option<Budget>], peer: PeerIndex, now: Instant) -> bool {
    let Some(budget) = budgets.get_mut(peer.index()).and_then(Option::as_mut) else { return true };
    budget.refill(now);
    if budget.left > i64::from(FAILED_HOPS / 2) {
        budget.is_out = false;
    }
    budget.lets_go_on()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::SourceId;

    const ONE: PeerIndex = PeerIndex(0);
    const OTHER: PeerIndex = PeerIndex(3);

    fn key(peer: PeerIndex, number: usize) -> RouteKey {
        let prefix = format!("10.{}.{}.0/24", number / 256, number % 256).parse().expect("a prefix");
        RouteKey::new(SourceId(peer.0 + 1), prefix)
    }

    fn push(queues: &mut Queues, peer: PeerIndex, priority: Priority, count: usize) {
        for number in 0..count {
            queues.push(peer, priority, key(peer, number), usize::MAX / 4, |_| true);
        }
    }

    #[test]
    fn peers_take_turns_by_hops() {
        let (mut queues, now) = (Queues::default(), Instant::now());
        push(&mut queues, ONE, Priority::First, 1000);
        push(&mut queues, OTHER, Priority::First, 1000);
        let mut hops = [0, 0];
        for _ in 0..500 {
            let (priority, peer, _) = queues.pop(now).expect("a ticket");
            let (at, of_this) = if peer == ONE { (0, 1) } else { (1, 40) };
            hops[at] += of_this;
            queues.charge(priority, peer, of_this);
        }
        assert!(hops[0].abs_diff(hops[1]) <= 2 * 64 + 40, "{hops:?}");
    }

    #[test]
    fn what_might_be_the_best_comes_first() {
        let (mut queues, now) = (Queues::default(), Instant::now());
        push(&mut queues, ONE, Priority::Later, 3);
        push(&mut queues, OTHER, Priority::First, 2);
        let order: Vec<_> =
            std::iter::from_fn(|| queues.pop(now)).map(|(priority, peer, _)| (priority, peer)).collect();
        let first = [(Priority::First, OTHER); 2];
        assert_eq!(order, [&first[..], &[(Priority::Later, ONE); 3]].concat());
        assert_eq!(queues.pop(now), None);
    }

    #[test]
    fn who_sends_bad_signatures_waits_and_others_do_not() {
        let (mut queues, now) = (Queues::default(), Instant::now());
        push(&mut queues, ONE, Priority::First, 3);
        push(&mut queues, OTHER, Priority::First, 3);
        assert!(!queues.failed(ONE, FAILED_HOPS - 1, now));
        assert!(queues.failed(ONE, 1, now), "said once");
        assert!(!queues.failed(ONE, 1, now));
        let peers: Vec<_> = std::iter::from_fn(|| queues.pop(now)).map(|(_, peer, _)| peer).collect();
        assert_eq!(peers, [OTHER; 3]);
        let later = queues.poll_timeout().expect("it waits");
        assert!(later > now && queues.pop(later + Duration::from_millis(1)).is_some());
        assert!(queues.pop(now + Duration::from_secs(10)).is_some());
        assert!(queues.failed(ONE, FAILED_HOPS, now + Duration::from_secs(10)), "said again");
    }

    #[test]
    fn a_queue_of_which_nothing_counts_any_more_is_none() {
        let (mut queues, now) = (Queues::default(), Instant::now());
        for number in 0..MOST_STALE + 3 {
            queues.push(ONE, Priority::First, key(ONE, number), 0, |_| false);
        }
        push(&mut queues, OTHER, Priority::First, 2);
        let mut peers: Vec<_> = std::iter::from_fn(|| queues.pop(now)).map(|(_, peer, _)| peer).collect();
        peers.dedup();
        assert_eq!(peers, [ONE, OTHER]);
        assert!(!queues.is_ready(now) && queues.pop(now).is_none());
        push(&mut queues, ONE, Priority::First, MOST_STALE + 1);
        queues.push(ONE, Priority::First, key(ONE, 0), 0, |_| false);
        assert_eq!(queues.lanes[0].turns, [ONE], "once");
    }

    #[test]
    fn what_was_under_way_when_the_budget_was_used_up_is_a_debt() {
        let (mut queues, now) = (Queues::default(), Instant::now());
        push(&mut queues, ONE, Priority::First, 3);
        assert!(queues.failed(ONE, 2 * FAILED_HOPS, now));
        let seconds = u64::from(FAILED_HOPS / FAILED_HOPS_A_SECOND);
        assert!(!queues.is_ready(now + Duration::from_secs(seconds)));
        assert!(queues.is_ready(now + Duration::from_secs(seconds + 1)));
        queues.failed(ONE, u32::MAX, now);
        assert!(!queues.is_ready(now + Duration::from_secs(59)));
        assert!(queues.is_ready(now + Duration::from_secs(61)));
    }

    #[test]
    fn tickets_that_do_not_count_any_more_take_no_room() {
        let mut queues = Queues::default();
        for number in 0..10_000 {
            queues.push(ONE, Priority::First, key(ONE, number % 10), 10, |ticket| {
                ticket.number > number as u32
            });
        }
        assert!(queues.lanes[0].queues[0].tickets.len() <= 2 * 10 + MOST_STALE + 1);
    }
}
