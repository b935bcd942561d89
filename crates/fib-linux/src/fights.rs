//! When a route that others remove or replace again and again is written again.
//!
//! Pure: times come in.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use holdfast_types::Prefix;

/// Repairs of a route within [`WINDOW`] before the first pause.
pub(crate) const REPAIRS: u32 = 5;
const WINDOW: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Routes that are followed one by one. The repairs of others count together, a round of them as one.
pub(crate) const MOST: usize = 4096;

/// Whether a route is written again.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Now,
    /// It is left alone until [`Fights::take_due`] names it. The pause begins with this repair, or has begun before.
    Pause {
        begins: bool,
    },
}

#[derive(Copy, Clone, Debug)]
struct Fight {
    loss: Loss,
    /// Of the repairs that are counted.
    since: Instant,
    last: Instant,
    repairs: u32,
    /// The next one.
    pause: Duration,
    until: Option<Instant>,
}

impl Fight {
    fn new(loss: Loss, now: Instant) -> Self {
        Self { loss, since: now, last: now, repairs: 1, pause: FIRST_PAUSE, until: None }
    }

    fn repair(&mut self, loss: Loss, now: Instant) -> Verdict {
        self.loss = loss;
        if self.until.is_some() {
            return Verdict::Pause { begins: false };
        }
        if now.duration_since(self.since) > WINDOW {
            (self.since, self.repairs) = (now, 0);
        }
        (self.last, self.repairs) = (now, self.repairs + 1);
        if self.repairs <= REPAIRS {
            return Verdict::Now;
        }
        self.until = Some(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Verdict::Pause { begins: true }
    }

    /// The pause is over, if it is: a single repair within [`WINDOW`] begins the next one.
    fn resume(&mut self, now: Instant) -> bool {
        let is_over = self.until.is_some_and(|until| until <= now);
        if is_over {
            (self.until, self.since, self.last, self.repairs) = (None, now, now, REPAIRS);
        }
        is_over
    }

    /// Nothing has happened for so long that the route counts as any other.
    fn is_quiet(&self, now: Instant) -> bool {
        self.until.is_none() && now.duration_since(self.last) > WINDOW + self.pause
    }
}

/// The routes that were written again lately.
#[derive(Debug, Default)]
pub(crate) struct Fights {
    routes: BTreeMap<Prefix, Fight>,
    others: Option<Fight>,
    /// When quiet ones were looked for last: once a round.
    swept: Option<Instant>,
}

/// What others did to a route of ours.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    Removed,
    Replaced,
}

/// What may be written again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Due {
    /// With what was done last to each.
    pub(crate) routes: Vec<(Prefix, Loss)>,
    /// Those that were not followed one by one.
    pub(crate) others: bool,
}

impl Fights {
    /// Another program has removed or replaced a route. All that happens in a round has the same time.
    pub(crate) fn repair(&mut self, prefix: Prefix, loss: Loss, now: Instant) -> Verdict {
        if let Some(fight) = self.routes.get_mut(&prefix) {
            return fight.repair(loss, now);
        }
        if self.routes.len() == MOST && self.swept.replace(now) != Some(now) {
            self.routes.retain(|_, fight| !fight.is_quiet(now));
        }
        if self.routes.len() < MOST {
            self.routes.insert(prefix, Fight::new(loss, now));
            return Verdict::Now;
        }
        match &mut self.others {
            None => {
                self.others = Some(Fight::new(loss, now));
                Verdict::Now
            }
            Some(fight) if fight.last == now && fight.until.is_none() => Verdict::Now,
            Some(fight) => fight.repair(loss, now),
        }
    }

    /// Whether the route is followed for itself.
    pub(crate) fn knows(&self, prefix: Prefix) -> bool {
        self.routes.contains_key(&prefix)
    }

    /// When the next pause ends.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.routes.values().chain(&self.others).filter_map(|fight| fight.until).min()
    }

    /// The routes whose pause is over.
    pub(crate) fn take_due(&mut self, now: Instant) -> Due {
        let routes = self
            .routes
            .iter_mut()
            .filter_map(|(prefix, fight)| fight.resume(now).then_some((*prefix, fight.loss)));
        Due { routes: routes.collect(), others: self.others.as_mut().is_some_and(|fight| fight.resume(now)) }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{IpPrefix, Ipv4Prefix};

    use super::*;

    fn prefix(number: usize) -> Prefix {
        Prefix::V4(Ipv4Prefix::from_bits((number as u128) << 104, 24))
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_sixth_repair_in_ten_seconds_waits_and_each_pause_is_twice_the_one_before() {
        let (mut fights, mut now) = (Fights::default(), Instant::now());
        for _ in 0..REPAIRS {
            now += SECOND;
            assert_eq!(fights.repair(prefix(1), Loss::Removed, now), Verdict::Now);
        }
        let mut pauses = Vec::new();
        for _ in 0..7 {
            assert_eq!(fights.repair(prefix(1), Loss::Removed, now), Verdict::Pause { begins: true });
            assert_eq!(fights.repair(prefix(1), Loss::Removed, now), Verdict::Pause { begins: false });
            let until = fights.next_due().expect("a pause");
            assert_eq!(fights.take_due(until - SECOND), Due::default());
            pauses.push((until - now).as_secs());
            now = until;
            assert_eq!(fights.take_due(now).routes, [(prefix(1), Loss::Removed)]);
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(fights.next_due(), None);
    }

    #[test]
    fn repairs_now_and_then_are_no_fight() {
        let (mut fights, mut now) = (Fights::default(), Instant::now());
        for _ in 0..100 {
            now += WINDOW / 2 - SECOND;
            assert_eq!(fights.repair(prefix(1), Loss::Removed, now), Verdict::Now);
        }
    }

    #[test]
    fn routes_beyond_the_bound_count_together_and_quiet_ones_make_room() {
        let (mut fights, start) = (Fights::default(), Instant::now());
        let mut now = start;
        for round in 0..=REPAIRS + 1 {
            now += SECOND;
            let verdicts = (0..MOST + 10).map(|number| fights.repair(prefix(number), Loss::Replaced, now));
            let paused = verdicts.filter(|verdict| *verdict != Verdict::Now).count();
            let expected = if round < REPAIRS { 0 } else { MOST + 10 };
            assert_eq!(paused, expected, "{round}");
            assert_eq!(fights.routes.len(), MOST);
        }
        let due = fights.take_due(now + FIRST_PAUSE);
        assert!(due.routes.len() == MOST && due.others);
        now += Duration::from_secs(3600);
        assert_eq!(fights.repair(prefix(MOST + 1), Loss::Removed, now), Verdict::Now);
        assert_eq!(fights.routes.len(), 1);
    }
}
