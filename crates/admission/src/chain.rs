//! Stages in order, and what each has decided.

use std::{fmt, time::Instant};

use crate::{Attempt, Stage, Verdict};

/// What a stage has decided so far: `seen` is the sum of the others.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Attempts that came to it.
    pub seen: u64,
    /// It left them to the next stage.
    pub passed: u64,
    /// It had them ignored.
    pub ignored: u64,
    /// It had them refused.
    pub refused: u64,
    /// It had them prove their address.
    pub retried: u64,
    /// It let them in, past the stages behind it.
    pub accepted: u64,
}

impl Counters {
    fn count(&mut self, verdict: Verdict) {
        *match verdict {
            // It is asked again.
            Verdict::Wait(_) => return,
            Verdict::Ignore => &mut self.ignored,
            Verdict::Refuse(_) => &mut self.refused,
            Verdict::Retry => &mut self.retried,
            Verdict::Accept => &mut self.accepted,
            Verdict::Next => &mut self.passed,
        } += 1;
        self.seen += 1;
    }
}

/// A verdict, and whose it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// What becomes of the attempt; never [`Verdict::Next`].
    pub verdict: Verdict,
    /// The stage that decided. `None`: none did, so it is let in.
    pub stage: Option<&'static str>,
}

/// Stages in order. Each attempt goes through them once.
#[derive(Default)]
pub struct Chain {
    stages: Vec<(Box<dyn Stage>, Counters)>,
}

impl Chain {
    /// Of these, the cheapest first. Names should differ: counters go by them.
    pub fn new(stages: impl IntoIterator<Item = Box<dyn Stage>>) -> Self {
        Self { stages: stages.into_iter().map(|stage| (stage, Counters::default())).collect() }
    }

    /// Decides; never [`Verdict::Next`].
    pub fn judge(&mut self, attempt: &mut dyn Attempt, now: Instant) -> Verdict {
        self.decide(attempt, now).verdict
    }

    /// Decides, and says which stage did. A stage that asks for a retry where there is none, or waits for what does not
    /// come, is taken to have no opinion.
    pub fn decide(&mut self, attempt: &mut dyn Attempt, now: Instant) -> Decision {
        self.decide_from(0, attempt, now)
    }

    /// Goes on with an attempt that the stage of this name had wait: stages before it are not asked again, and each counts
    /// the attempt once. If there is no such stage any more, all are.
    pub fn resume(&mut self, stage: &str, attempt: &mut dyn Attempt, now: Instant) -> Decision {
        let first = self.stages.iter().position(|(known, _)| known.name() == stage);
        self.decide_from(first.unwrap_or(0), attempt, now)
    }

    /// Whether an attempt of whom no more is known than this would be let in; it is none, so nobody counts it. Stages that
    /// keep a rate take it for one.
    pub fn would_pass(&mut self, attempt: &mut dyn Attempt, now: Instant) -> bool {
        for (stage, _) in &mut self.stages {
            match stage.judge(attempt, now) {
                Verdict::Next => {}
                Verdict::Retry if !attempt.can_retry() => {}
                Verdict::Wait(_) if !attempt.awaits_hello() => {}
                Verdict::Accept => return true,
                Verdict::Ignore | Verdict::Refuse(_) | Verdict::Retry | Verdict::Wait(_) => return false,
            }
        }
        true
    }

    fn decide_from(&mut self, first: usize, attempt: &mut dyn Attempt, now: Instant) -> Decision {
        for (stage, counters) in self.stages.iter_mut().skip(first) {
            let verdict = match stage.judge(attempt, now) {
                Verdict::Retry if !attempt.can_retry() => Verdict::Next,
                Verdict::Wait(_) if !attempt.awaits_hello() => Verdict::Next,
                verdict => verdict,
            };
            counters.count(verdict);
            if verdict != Verdict::Next {
                return Decision { verdict, stage: Some(stage.name()) };
            }
        }
        Decision { verdict: Verdict::Accept, stage: None }
    }

    /// Stages with what they have decided, in order.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, Counters)> {
        self.stages.iter().map(|(stage, counters)| (stage.name(), *counters))
    }

    /// Goes on counting where another chain is that this one takes the place of: stages of the same name are the same.
    pub fn go_on_from(&mut self, former: &Self) {
        for (stage, counters) in &mut self.stages {
            if let Some((_, so_far)) = former.counters().find(|(name, _)| *name == stage.name()) {
                *counters = so_far;
            }
        }
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.counters()).finish()
    }
}
