//! What one peer has sent is compared with what the other one was told of it, UPDATE for UPDATE.
//!
//! Of each prefix what was told is followed through what was sent: every state of a prefix comes after those before it,
//! none comes twice, and none comes that was not sent. States may be left out where others have taken their place, but
//! not the last one, and none of a prefix that is [used once](super::churn). The first announcements of those must
//! also come in the order in which they were sent. Only a takeover may change that: what had not been told then is told
//! in the order of addresses, and what comes in meanwhile may go first.

use std::{collections::BTreeSet, ops::Range};

use holdfast_types::Prefix;
use serde::Serialize;

use super::{
    churn::is_used_once,
    record::{Event, Record, Route, Said},
};

/// Findings that are kept in words.
const FINDINGS: usize = 20;

/// What was counted of one direction: from one peer through the router to the other.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Audit {
    /// Prefixes that were used once: each of their announcements and withdrawals must pass.
    pub used_once: u64,
    /// States of prefixes that had to be told, and were not.
    pub lost: u64,
    /// Told what the peer had been told already.
    pub doubled: u64,
    /// Told after what came later.
    pub reordered: u64,
    /// Told what nobody has sent.
    pub corrupted: u64,
    /// In words; the first few.
    #[serde(skip)]
    pub findings: Vec<String>,
}

/// Compares what one peer has `sent` with what the other was `told`. `takeovers` are the times, in microseconds since
/// 1970, from each death of `bgp` until it told everybody what changes again. Nothing may be under way any more.
pub fn audit(sent: &Record, told: &Record, takeovers: &[Range<u64>]) -> Audit {
    let mut audit = Audit::default();
    let prefixes: BTreeSet<Prefix> = sent.prefixes().chain(told.prefixes()).collect();
    let mut first = Vec::new();
    for prefix in prefixes {
        let (sent, told) = (sent.of(prefix), told.of(prefix));
        Follow::new(sent).compare(prefix, told, &mut audit);
        if let (true, Some(sent)) = (is_used_once(prefix) && !is_forgotten(sent), sent.first()) {
            audit.used_once += 1;
            let told = told.first().filter(|told| told.said != Said::Withdrawn);
            first.extend(told.map(|told| (prefix, *sent, *told)));
        }
    }
    audit.compare_order(first, takeovers);
    audit
}

impl Audit {
    fn find(&mut self, finding: String) {
        if self.findings.len() < FINDINGS {
            self.findings.push(finding);
        }
    }

    /// Finds whose first announcement was told after that of a prefix that was sent later.
    fn compare_order(&mut self, mut first: Vec<(Prefix, Event, Event)>, takeovers: &[Range<u64>]) {
        first.sort_unstable_by_key(|(_, _, told)| told.number);
        let mut newest = 0;
        for (prefix, sent, told) in first {
            let was_under_way = |takeover: &Range<u64>| told.at >= takeover.start && sent.at <= takeover.end;
            if sent.number < newest && !takeovers.iter().any(was_under_way) {
                self.reordered += 1;
                self.find(format!("{prefix} was announced before others, and is told after them"));
            }
            newest = newest.max(sent.number);
        }
    }
}

fn is_forgotten(events: &[Event]) -> bool {
    events.iter().any(|event| event.said == Said::Forgotten)
}

/// A state that the sender has brought a prefix to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct State {
    route: Option<Route>,
    /// Whether the peer was told.
    is_told: bool,
}

/// How far what was told of a prefix has come.
struct Follow {
    /// What was sent, without what changes nothing.
    states: Vec<State>,
    /// How many of them are behind: the last of those is what the peer was told, or left out.
    behind: usize,
    /// The content that the peer has.
    held: Option<u64>,
    /// The sender has had one session all the time.
    is_one_session: bool,
}

impl Follow {
    fn new(sent: &[Event]) -> Self {
        let mut states: Vec<State> = Vec::new();
        for event in sent {
            let route = match event.said {
                Said::Announced(route) => Some(route),
                Said::Withdrawn | Said::Forgotten => None,
            };
            if states.last().and_then(|state| state.route) != route {
                states.push(State { route, is_told: false });
            }
        }
        Self { states, behind: 0, held: None, is_one_session: !is_forgotten(sent) }
    }

    fn compare(mut self, prefix: Prefix, told: &[Event], audit: &mut Audit) {
        let is_exact = self.is_one_session && is_used_once(prefix) && !is_forgotten(told);
        let before = (audit.reordered, audit.corrupted);
        // Withdrawals of what the peer had not: out of order if the announcement comes after all.
        let mut early = 0;
        for event in told {
            match event.said {
                Said::Forgotten => self.held = None,
                Said::Withdrawn => match (self.held.take(), self.go_on(None)) {
                    (Some(_), true) => {}
                    (None, true) => early += 1,
                    (Some(_), false) => {
                        audit.corrupted += 1;
                        audit.find(format!("{prefix} is told to be withdrawn, and is not"));
                    }
                    (None, false) => {
                        audit.doubled += 1;
                        audit.find(format!("{prefix} is told to be withdrawn, which the peer has not"));
                    }
                },
                Said::Announced(route) => self.announced(prefix, route, audit),
            }
        }
        let late = audit.reordered - before.0;
        if early > late {
            audit.doubled += early - late;
            audit.find(format!("{prefix} is told to be withdrawn, and never was announced"));
        }
        let untold = self.states.iter().filter(|state| !state.is_told).count() as u64;
        let last = self.states.last().and_then(|state| state.route).map(|route| route.content);
        // A state that came late or corrupted is a fault already.
        let is_other = self.held != last && before == (audit.reordered, audit.corrupted);
        let lost = if is_exact { untold } else { is_other.into() };
        if lost > 0 {
            audit.lost += lost;
            let serials: Vec<_> =
                self.states.iter().map(|state| state.route.map(|route| route.serial)).collect();
            audit.find(format!("{prefix}: {lost} not told of {serials:?}"));
        }
    }

    /// Goes on to the next state like this, if there is one.
    fn go_on(&mut self, content: Option<u64>) -> bool {
        let ahead = self.states[self.behind..].iter_mut();
        let next = ahead.enumerate().find(|(_, state)| state.route.map(|route| route.content) == content);
        let Some((skipped, state)) = next else { return false };
        state.is_told = true;
        self.behind += skipped + 1;
        true
    }

    fn announced(&mut self, prefix: Prefix, route: Route, audit: &mut Audit) {
        let (content, serial) = (route.content, route.serial);
        if self.held == Some(content) {
            // In a new session the sender has said it again: so may the router.
            if !self.is_one_session && self.go_on(Some(content)) {
                return;
            }
            audit.doubled += 1;
            return audit.find(format!("{prefix} is told as the peer has it, with serial number {serial:?}"));
        }
        let held = self.held.replace(content);
        if self.go_on(Some(content)) {
            return;
        }
        let is_this = |state: &State| state.route.is_some_and(|route| route.content == content);
        let (last, behind) = match self.states[..self.behind].split_last_mut() {
            Some((last, behind)) => (Some(last), behind),
            None => (None, &mut [][..]),
        };
        if last.is_some_and(|last| is_this(last)) {
            // In a new session, or after a withdrawal that nobody had sent.
            return;
        }
        match behind.iter_mut().rev().find(|state| is_this(state)) {
            Some(state) if state.is_told => {
                audit.doubled += 1;
                audit.find(format!("{prefix} is told a second time with serial number {serial:?}"));
            }
            Some(state) => {
                state.is_told = true;
                audit.reordered += 1;
                audit.find(format!("{prefix} is told late with serial number {serial:?}"));
            }
            None => {
                audit.corrupted += 1;
                audit.find(format!("{prefix} is told what nobody has sent, with serial number {serial:?}"));
                // It stands for the state that comes next, if that is another one than the peer has.
                let next = self
                    .states
                    .get_mut(self.behind)
                    .filter(|next| next.route.is_some_and(|route| Some(route.content) != held));
                if let Some(next) = next {
                    next.is_told = true;
                    self.behind += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was said of each prefix, by number, in order: the serial number, or `None` for a withdrawal.
    type Story = Vec<(u8, Option<u32>)>;

    fn once(number: u8) -> Prefix {
        Prefix::host([118, 0, 0, number].into())
    }

    fn moving(number: u8) -> Prefix {
        Prefix::new([100, 64, number, 0].into(), 24).expect("a length of IPv4")
    }

    fn said(serial: Option<u32>) -> Said {
        serial.map_or(Said::Withdrawn, |serial| {
            Said::Announced(Route { content: serial.into(), serial: Some(serial) })
        })
    }

    fn record(prefix: fn(u8) -> Prefix, story: &[(u8, Option<u32>)]) -> Record {
        let mut record = Record::default();
        for (at, (number, serial)) in (10..).zip(story) {
            record.say(prefix(*number), said(*serial), at);
        }
        record
    }

    /// Lost, doubled, reordered, corrupted.
    fn counts(audit: &Audit) -> [u64; 4] {
        [audit.lost, audit.doubled, audit.reordered, audit.corrupted]
    }

    fn found(prefix: fn(u8) -> Prefix, sent: &Story, told: &Story) -> [u64; 4] {
        let audit = audit(&record(prefix, sent), &record(prefix, told), &[]);
        let counted = counts(&audit);
        assert_eq!(audit.findings.is_empty(), counted == [0; 4], "{:?}", audit.findings);
        counted
    }

    /// Three prefixes that are used once; the first is withdrawn.
    fn used_once() -> Story {
        vec![(1, Some(1)), (2, Some(2)), (1, None), (3, Some(3))]
    }

    #[test]
    fn what_passes_unchanged_is_found_to_be_so() {
        let audit = audit(&record(once, &used_once()), &record(once, &used_once()), &[]);
        assert_eq!(audit, Audit { used_once: 3, ..Audit::default() });
        // Withdrawals may go before announcements of others.
        let mut told = used_once();
        told.swap(2, 3);
        assert_eq!(found(once, &used_once(), &told), [0; 4]);
    }

    #[test]
    fn each_update_of_a_prefix_that_is_used_once_that_is_dropped_is_lost() {
        for dropped in 0..used_once().len() {
            let mut told = used_once();
            told.remove(dropped);
            let [lost, doubled, reordered, corrupted] = found(once, &used_once(), &told);
            // A withdrawal without its announcement is one that the peer has no use for.
            assert_eq!(
                (lost, doubled, reordered, corrupted),
                (1, u64::from(dropped == 0), 0, 0),
                "{dropped}"
            );
        }
    }

    #[test]
    fn each_update_that_is_doubled_is_seen() {
        for doubled in 0..used_once().len() {
            for later in doubled + 1..=used_once().len() {
                let mut told = used_once();
                told.insert(later, told[doubled]);
                assert_eq!(found(once, &used_once(), &told), [0, 1, 0, 0], "{doubled} at {later}");
            }
        }
    }

    #[test]
    fn announcements_that_are_swapped_are_seen_unless_there_was_a_takeover() {
        for (one, other) in [(0, 1), (1, 3)] {
            let mut told = used_once();
            told.swap(one, other);
            assert_eq!(found(once, &used_once(), &told), [0, 0, 1, 0], "{one} and {other}");
        }
        let (sent, told) = (
            record(once, &used_once()),
            record(once, &[(2, Some(2)), (1, Some(1)), (1, None), (3, Some(3))]),
        );
        for (takeover, reordered) in [(5..9, 1), (5..10, 0), (11..30, 0), (12..30, 1)] {
            let found = counts(&audit(&sent, &told, std::slice::from_ref(&takeover)));
            assert_eq!(found, [0, 0, reordered, 0], "{takeover:?}");
        }
    }

    #[test]
    fn each_announcement_that_is_corrupted_is_seen() {
        for corrupted in [0, 1, 3] {
            let mut told = used_once();
            told[corrupted].1 = Some(99);
            assert_eq!(found(once, &used_once(), &told), [0, 0, 0, 1], "{corrupted}");
        }
        // In its prefix: one is lost, and one is there that nobody has sent.
        let mut told = used_once();
        told[3].0 = 77;
        assert_eq!(found(once, &used_once(), &told), [1, 0, 0, 1]);
        // Withdrawn instead of another one.
        let mut told = used_once();
        told[2].0 = 2;
        assert_eq!(found(once, &used_once(), &told), [1, 0, 0, 1]);
    }

    #[test]
    fn a_moving_prefix_may_skip_states_and_do_nothing_else() {
        let story = |serials: &[Option<u32>]| serials.iter().map(|serial| (1, *serial)).collect::<Story>();
        let sent = story(&[Some(1), Some(2), None, Some(3), Some(4), None, Some(5)]);
        let [s1, s2, s3, s4, s5, s9] = [1, 2, 3, 4, 5, 9].map(Some);
        for (told, counted) in [
            (vec![s5], [0; 4]),
            (vec![s1, None, s5], [0; 4]),
            (vec![s2, None, s4, None, s5], [0; 4]),
            (vec![s1, s3, s5], [0; 4]),
            // The last one is missing.
            (vec![s1, s4], [1, 0, 0, 0]),
            (vec![s1, s4, None], [1, 0, 0, 0]),
            (vec![], [1, 0, 0, 0]),
            (vec![s1, s1, s5], [0, 1, 0, 0]),
            (vec![s1, None, None, s5], [0, 1, 0, 0]),
            (vec![s1, s2, None, s4, None, None, s5], [0, 1, 0, 0]),
            (vec![s1, None, s1, s5], [0, 1, 0, 0]),
            (vec![None, s5], [0, 1, 0, 0]),
            (vec![s2, s1, s5], [0, 0, 1, 0]),
            (vec![s1, None, s2, s5], [0, 0, 1, 0]),
            (vec![s1, s5, s4], [0, 0, 1, 0]),
            (vec![s1, s9, s5], [0, 0, 0, 1]),
            (vec![s1, s5, None], [0, 0, 0, 1]),
        ] {
            assert_eq!(found(moving, &sent, &story(&told)), counted, "{told:?}");
        }
        // Nothing is to be told of what came and went.
        assert_eq!(found(moving, &story(&[s1, None]), &story(&[])), [0; 4]);
    }

    #[test]
    fn what_a_new_session_says_again_is_not_doubled() {
        let both = |serials: [Option<u32>; 2]| {
            let mut record = record(once, &[(1, serials[0])]);
            record.forget(50);
            record.say(once(1), said(serials[1]), 60);
            record
        };
        let first = record(once, &[(1, Some(1))]);
        let again = both([Some(1), Some(1)]);
        // Of the peer that is told; of the one that sends, with and without a withdrawal in between.
        let withdrawn = record(once, &[(1, Some(1)), (1, None), (1, Some(1))]);
        let doubled = record(once, &[(1, Some(1)), (1, Some(1))]);
        for (sent, told) in [(&first, &again), (&again, &first), (&again, &withdrawn), (&again, &doubled)] {
            assert_eq!(counts(&audit(sent, told, &[])), [0; 4]);
        }
        let twice = record(once, &[(1, Some(1)), (1, Some(1)), (1, Some(1))]);
        assert_eq!(counts(&audit(&again, &twice, &[])), [0, 1, 0, 0]);
        // And must be said again.
        let mut silent = first.clone();
        silent.forget(50);
        assert_eq!(counts(&audit(&first, &silent, &[])), [1, 0, 0, 0]);
    }
}
