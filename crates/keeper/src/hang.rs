//! Which processes are hung: asked for progress, and silent for longer than they may be. Only decides; [`crate::progress`]
//! asks and ends.
//!
//! A process answers from its event loop, so it answers while that turns. Time counts against it only where it could have
//! answered: the asker was on time, and the process was neither waiting for a processor nor throttled. One process is ended at a
//! time: what makes one hang may make others seem to, and each needs the rest to come back.
//!
//! A process that does not answer and finishes work meanwhile is *busy*. It counts that work itself
//! ([`holdfast_process::progress`]), and may lie: it has longer than others, but not for ever.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use holdfast_process::HangLimit;

/// How long a process may be silent, unless the configuration or its descriptor says otherwise.
pub(crate) const DEFAULT_LIMIT: Duration = Duration::from_secs(2);
/// Turns of the asker in that time.
const TURNS: u32 = 8;
/// So many times the limit has a process that is being born or about to end, and one that waits where no signal reaches it.
/// A birth takes long on a slow machine; but a process that was stopped is not slow, and has the limit alone.
const PATIENCE: u32 = 10;
/// So long a process may be busy, or shorter: as long as those wait who wait for it.
const MOST_BUSY: Duration = Duration::from_secs(60);
/// It is replaced first: it starts all others again.
const FIRST: &str = "manager";

/// What a process does at a moment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It runs, or would if it had a processor. So does one that is throttled.
    Running,
    /// It sleeps.
    Waiting,
    /// A signal or a debugger has stopped it: it does nothing until somebody has it go on.
    Stopped,
    /// It waits inside the kernel, and dies only when that is over.
    Uninterruptible,
    /// It is dead and about to be reaped.
    Ended,
}

/// What the kernel says of a process: of its first thread, which has the event loop.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) doing: Doing,
    /// How long it has run.
    pub(crate) ran: Duration,
    /// How long it has waited for a processor before each time that it got one.
    pub(crate) queued: Duration,
    /// How long its cgroup was throttled.
    pub(crate) throttled: Duration,
    /// What it says itself; `None`: nothing.
    pub(crate) said: Option<Said>,
}

/// What a process says of itself, without answering.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// Units of work that it has finished.
    pub(crate) finished: u64,
    /// How long those wait at most who wait for it, if there are any.
    pub(crate) patience: Option<Duration>,
}

impl Sample {
    /// Where the kernel does not say anything, all time counts.
    pub(crate) const UNKNOWN: Self = Self {
        doing: Doing::Waiting,
        ran: Duration::ZERO,
        queued: Duration::ZERO,
        throttled: Duration::ZERO,
        said: None,
    };

    /// How much of the time since `before` it could have used to answer.
    fn counts(&self, before: &Self, elapsed: Duration) -> Duration {
        let excused =
            self.queued.saturating_sub(before.queued) + self.throttled.saturating_sub(before.throttled);
        match self.doing {
            // How long it waits for a processor is known only when it has got one.
            Doing::Running => self.ran.saturating_sub(before.ran).min(elapsed),
            Doing::Waiting | Doing::Stopped | Doing::Uninterruptible => elapsed.saturating_sub(excused),
            Doing::Ended => Duration::ZERO,
        }
    }

    /// Whether it has finished work since `before`.
    fn has_got_on(&self, before: &Self) -> bool {
        let finished = |sample: &Self| sample.said.map(|said| said.finished);
        finished(self) > finished(before)
    }

    /// For how long it may be busy.
    fn most_busy(&self) -> Duration {
        let patience = self.said.and_then(|said| said.patience);
        patience.map_or(MOST_BUSY, |patience| patience.min(MOST_BUSY))
    }
}

/// A process that is to be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hung {
    pub(crate) pid: u32,
    /// How long it could have answered.
    pub(crate) silent: Duration,
    pub(crate) doing: Doing,
    /// It was busy meanwhile.
    pub(crate) was_busy: bool,
}

/// A process that has become busy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    pub(crate) pid: u32,
    /// How long it could have answered so far.
    pub(crate) silent: Duration,
    /// And how long it may be busy.
    pub(crate) most: Duration,
}

/// What is to be done in a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Who is asked.
    pub(crate) ask: Vec<u32>,
    /// Who has become busy.
    pub(crate) busy: Vec<Busy>,
    pub(crate) end: Option<Hung>,
}

/// All processes, and how long each has been silent.
#[derive(Debug)]
pub(crate) struct Hangs {
    limit: Duration,
    lives: BTreeMap<u32, Life>,
    last_turn: Option<Instant>,
    replacing: Option<Replacing>,
}

#[derive(Debug)]
struct Life {
    name: String,
    /// Where it has another limit than the router's.
    own: Option<HangLimit>,
    stage: Stage,
    /// When it was asked the last time.
    asked: Option<Instant>,
    /// It has been asked and has not answered.
    silence: Option<Silence>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// Has not answered yet.
    Starting,
    Serving,
    /// Its channel has closed: it ends by itself.
    Leaving,
    /// Was ended.
    Killed,
}

#[derive(Debug, Default)]
struct Silence {
    counted: Duration,
    /// Of that, the end in which it has finished nothing.
    idle: Duration,
    /// Of that, the end in which it was stopped whenever it was looked at.
    stopped: Duration,
    /// It was silent for its limit, and had finished work in that time.
    is_busy: bool,
    /// At the last turn that found it silent.
    sample: Option<Sample>,
}

/// A process was ended as hung: its successor is waited for.
#[derive(Debug)]
struct Replacing {
    name: String,
    since: Instant,
}

impl Hangs {
    /// Of nobody. Without a limit nobody is asked.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, lives: BTreeMap::new(), last_turn: None, replacing: None }
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// From now on another one holds: whatever was counted is forgotten.
    pub(crate) fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
        self.last_turn = None;
    }

    /// How often there is to be a [turn](Self::turn): as those wish who have the shortest limit; `None`: never.
    pub(crate) fn interval(&self) -> Option<Duration> {
        let limits = self.lives.values().map(|life| life.limit(self.limit));
        let shortest = limits.filter(|limit| !limit.is_zero()).fold(self.limit, Duration::min);
        Some(shortest / TURNS).filter(|interval| !interval.is_zero())
    }

    /// `own` is what its descriptor says.
    pub(crate) fn born(&mut self, pid: u32, name: &str, own: Option<HangLimit>) {
        let (name, stage) = (name.to_owned(), Stage::Starting);
        self.lives.insert(pid, Life { name, own, stage, asked: None, silence: None });
    }

    /// A program of somebody else may be silent for another time; zero: for ever.
    pub(crate) fn set_limit_of(&mut self, pid: u32, limit: Duration) {
        if let Some(life) = self.lives.get_mut(&pid) {
            life.own = Some(HangLimit::Exactly(limit));
        }
    }

    /// That time, where it has one.
    pub(crate) fn limit_of(&self, pid: u32) -> Option<Duration> {
        match self.lives.get(&pid)?.own? {
            HangLimit::Exactly(limit) => Some(limit),
            HangLimit::Percent(_) => None,
        }
    }

    pub(crate) fn died(&mut self, pid: u32) {
        self.lives.remove(&pid);
    }

    /// Its event loop turns.
    pub(crate) fn answered(&mut self, pid: u32) {
        let Some(life) = self.lives.get_mut(&pid) else { return };
        if life.stage == Stage::Killed {
            return;
        }
        life.silence = None;
        life.stage = Stage::Serving;
        self.replacing.take_if(|replacing| replacing.name == life.name);
    }

    /// For how long a process has not answered that is busy.
    pub(crate) fn busy(&self, pid: u32) -> Option<Duration> {
        let silence = self.lives.get(&pid)?.silence.as_ref()?;
        silence.is_busy.then_some(silence.counted)
    }

    /// Its channel has closed: there will be no answer.
    pub(crate) fn left(&mut self, pid: u32) {
        if let Some(life) = self.lives.get_mut(&pid)
            && life.stage != Stage::Killed
        {
            life.stage = Stage::Leaving;
        }
    }

    /// A turn of the asker, at the latest after each [interval](Self::interval); `look` says what the kernel does of a process.
    pub(crate) fn turn(&mut self, now: Instant, look: impl Fn(u32, &str) -> Sample) -> Turn {
        if self.limit.is_zero() {
            return Turn::default();
        }
        let elapsed = self.last_turn.replace(now).map(|last| now.saturating_duration_since(last));
        let (mut ask, mut busy) = (Vec::new(), Vec::new());
        for (&pid, life) in &mut self.lives {
            let limit = life.limit(self.limit);
            let interval = limit / TURNS;
            // Whatever kept the asker from running may have kept this one from it, too: it begins anew.
            let elapsed = elapsed.filter(|elapsed| *elapsed < 2 * interval);
            match &mut life.silence {
                Some(silence) => {
                    let sample = look(pid, &life.name);
                    silence.goes_on(elapsed, sample);
                    // One with a limit of its own has neighbours that do not wait any longer.
                    let may_be = life.own.is_none() && life.stage == Stage::Serving;
                    if may_be && silence.counted >= limit && silence.idle < limit && !silence.is_busy {
                        silence.is_busy = true;
                        let most = sample.most_busy().max(limit);
                        busy.push(Busy { pid, silent: silence.counted, most });
                    }
                }
                // The turns are those of another one, with a shorter limit.
                None if life.asked.is_some_and(|asked| now < asked + interval) => {}
                None => {
                    (life.silence, life.asked) = (Some(Silence::default()), Some(now));
                    ask.push(pid);
                }
            }
        }
        Turn { ask, busy, end: self.next_hung(now) }
    }

    fn next_hung(&mut self, now: Instant) -> Option<Hung> {
        // A successor that does not come must not protect all others for ever.
        self.replacing.take_if(|replacing| now.saturating_duration_since(replacing.since) >= self.limit);
        if self.replacing.is_some() {
            return None;
        }
        let hung = self.lives.iter_mut().filter_map(|(pid, life)| {
            let silence = life.silence.as_ref()?;
            let sample = silence.sample?;
            let (silent, was_busy) = (silence.counted, silence.is_busy);
            let hung = Hung { pid: *pid, silent, doing: sample.doing, was_busy };
            life.is_hung(self.limit, silence, &sample).then_some((life, hung))
        });
        let (life, hung) = hung.max_by_key(|(life, hung)| (life.name == FIRST, hung.silent))?;
        life.stage = Stage::Killed;
        self.replacing = Some(Replacing { name: life.name.clone(), since: now });
        Some(hung)
    }
}

impl Life {
    /// Its limit, where the router's is this.
    fn limit(&self, router: Duration) -> Duration {
        self.own.map_or(router, |own| own.of(router))
    }

    /// Whether it has been silent for longer than it may be. Never where nothing more can be done about it.
    fn is_hung(&self, router: Duration, silence: &Silence, sample: &Sample) -> bool {
        let limit = self.limit(router);
        if limit.is_zero() {
            return false;
        }
        // A birth takes as long as that of others.
        let patience = limit.max(router) * PATIENCE;
        let idle = if self.own.is_none() { silence.idle } else { silence.counted };
        let most_busy = sample.most_busy();
        match (self.stage, sample.doing) {
            (Stage::Killed, _) | (_, Doing::Ended) => false,
            (Stage::Serving, Doing::Running | Doing::Waiting | Doing::Stopped) => {
                idle >= limit || silence.counted >= most_busy.max(limit)
            }
            (Stage::Starting | Stage::Leaving, _) | (_, Doing::Uninterruptible) => {
                let is_idle = idle >= patience || silence.stopped >= limit.max(router);
                is_idle || silence.counted >= most_busy.max(patience)
            }
        }
    }
}

impl Silence {
    /// It is still silent, after so much time in which the asker was on time.
    fn goes_on(&mut self, elapsed: Option<Duration>, sample: Sample) {
        let more = match (elapsed, self.sample) {
            (Some(elapsed), Some(before)) => Some((sample.counts(&before, elapsed), before.doing)),
            _ => None,
        };
        self.counted = more.map_or(Duration::ZERO, |(more, _)| self.counted + more);
        self.idle = match (more, self.sample) {
            (Some((more, _)), Some(before)) if !sample.has_got_on(&before) => self.idle + more,
            _ => Duration::ZERO,
        };
        self.stopped = match more {
            Some((more, Doing::Stopped)) if sample.doing == Doing::Stopped => self.stopped + more,
            _ => Duration::ZERO,
        };
        self.sample = Some(sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(250);
    const SLEEPING: Sample = Sample::UNKNOWN;
    const MANAGER: u32 = 2;
    const FEA: u32 = 3;
    const BGP: u32 = 5;

    /// Processes, the asker, and a clock that both share.
    struct Scene {
        hangs: Hangs,
        now: Instant,
        /// What the kernel says of everybody who is silent.
        sample: Sample,
        /// Who has become busy so far.
        busy: Vec<Busy>,
    }

    impl Scene {
        /// All of them have answered once.
        fn new() -> Self {
            let hangs = Hangs::new(DEFAULT_LIMIT);
            let mut scene = Self { hangs, now: Instant::now(), sample: SLEEPING, busy: Vec::new() };
            for (pid, name) in [(MANAGER, "manager"), (FEA, "fea"), (BGP, "bgp")] {
                scene.hangs.born(pid, name, None);
                scene.hangs.answered(pid);
            }
            scene
        }

        /// A turn that comes so long after the last one; who is not `silent` answers at once.
        fn turn(&mut self, after: Duration, silent: &[u32]) -> Option<Hung> {
            self.now += after;
            let Turn { ask, busy, end } = self.hangs.turn(self.now, |_, _| self.sample);
            self.busy.extend(busy);
            ask.into_iter().filter(|pid| !silent.contains(pid)).for_each(|pid| self.hangs.answered(pid));
            end
        }

        /// Turns until one is ended, or so much time has passed; how long that took.
        fn until_ended(&mut self, silent: &[u32], limit: Duration) -> Option<(u32, Duration)> {
            let begin = self.now;
            while self.now - begin < limit {
                if let Some(hung) = self.turn(INTERVAL, silent) {
                    return Some((hung.pid, self.now - begin));
                }
            }
            None
        }

        /// The process of this name has died, and another has begun that answers.
        fn replaced(&mut self, pid: u32, successor: u32, name: &str) {
            self.hangs.died(pid);
            self.hangs.born(successor, name, None);
            self.hangs.answered(successor);
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_program_of_somebody_else_may_be_silent_for_ever() {
        let mut scene = Scene::new();
        scene.hangs.set_limit_of(BGP, seconds(5));
        let (ended, after) = scene.until_ended(&[BGP], seconds(60)).expect("it is ended");
        assert!(ended == BGP && after >= seconds(5) && after < seconds(6), "{after:?}");
        let mut scene = Scene::new();
        scene.hangs.set_limit_of(BGP, Duration::ZERO);
        assert_eq!(
            (scene.until_ended(&[BGP], seconds(60)), scene.hangs.limit_of(BGP)),
            (None, Some(Duration::ZERO))
        );
        assert_eq!(scene.hangs.interval(), Some(INTERVAL), "the others are asked as ever");
    }

    #[test]
    fn who_answers_lives() {
        let mut scene = Scene::new();
        assert_eq!(scene.until_ended(&[], seconds(60)), None);
    }

    #[test]
    fn who_sleeps_or_is_stopped_and_does_not_answer_is_hung_after_the_limit() {
        let mut scene = Scene::new();
        let (pid, after) = scene.until_ended(&[BGP], seconds(10)).expect("hung");
        assert_eq!(pid, BGP);
        // Asked in the first turn, seen silent in the second.
        assert_eq!(after, DEFAULT_LIMIT + 2 * INTERVAL);
    }

    #[test]
    fn an_answer_that_is_late_is_one() {
        let mut scene = Scene::new();
        for _ in 0..20 {
            for _ in 0..8 {
                assert_eq!(scene.turn(INTERVAL, &[BGP]), None, "a turn of nearly two seconds");
            }
            scene.hangs.answered(BGP);
        }
    }

    #[test]
    fn who_runs_all_the_time_and_does_not_answer_is_hung() {
        let mut scene = Scene::new();
        let mut ended = None;
        for _ in 0..10 {
            scene.sample = Sample { doing: Doing::Running, ran: scene.sample.ran + INTERVAL, ..SLEEPING };
            ended = ended.or(scene.turn(INTERVAL, &[BGP]));
        }
        let hung = ended.expect("hung");
        assert_eq!((hung.pid, hung.doing, hung.silent), (BGP, Doing::Running, DEFAULT_LIMIT));
    }

    #[test]
    fn who_gets_no_processor_is_not_hung() {
        let mut scene = Scene::new();
        // The kernel adds to `queued` only when the wait is over.
        scene.sample = Sample { doing: Doing::Running, ..SLEEPING };
        assert_eq!(scene.until_ended(&[BGP], seconds(60)), None);
        let hung = loop {
            // A twentieth of the time.
            scene.sample.ran += INTERVAL / 20;
            scene.sample.queued += INTERVAL / 20 * 19;
            if let Some(hung) = scene.turn(INTERVAL, &[BGP]) {
                break hung;
            }
        };
        assert_eq!((hung.silent, scene.sample.ran), (DEFAULT_LIMIT, DEFAULT_LIMIT), "it had it, bit by bit");
    }

    #[test]
    fn who_had_to_wait_for_a_processor_or_was_throttled_has_that_time_beside_its_own() {
        for throttled in [false, true] {
            let mut scene = Scene::new();
            let begin = scene.now;
            let hung = loop {
                // Half the time; now it sleeps.
                let excused = if throttled { &mut scene.sample.throttled } else { &mut scene.sample.queued };
                *excused += INTERVAL / 2;
                if let Some(hung) = scene.turn(INTERVAL, &[BGP]) {
                    break hung;
                }
            };
            assert_eq!((hung.pid, scene.now - begin), (BGP, 2 * DEFAULT_LIMIT + 2 * INTERVAL));
        }
    }

    #[test]
    fn after_a_stop_of_the_whole_router_nobody_is_hung() {
        let mut scene = Scene::new();
        // All of them are about to be.
        for _ in 0..9 {
            assert_eq!(scene.turn(INTERVAL, &[MANAGER, FEA, BGP]), None);
        }
        assert_eq!(scene.turn(seconds(10), &[MANAGER, FEA, BGP]), None);
        for _ in 0..7 {
            assert_eq!(scene.turn(INTERVAL, &[MANAGER, FEA, BGP]), None, "they have all their time again");
        }
        [MANAGER, FEA, BGP].iter().for_each(|pid| scene.hangs.answered(*pid));
        assert_eq!(scene.until_ended(&[], seconds(10)), None);
    }

    #[test]
    fn one_is_ended_at_a_time_and_the_manager_first() {
        let mut scene = Scene::new();
        let all = [MANAGER, FEA, BGP];
        // The manager is the last to become silent.
        scene.turn(INTERVAL, &[FEA, BGP]);
        scene.turn(INTERVAL, &all);
        scene.sample.doing = Doing::Uninterruptible;
        assert_eq!(scene.until_ended(&all, seconds(4)), None);
        scene.sample.doing = Doing::Waiting;
        assert_eq!(scene.turn(INTERVAL, &all).map(|hung| hung.pid), Some(MANAGER));
        scene.turn(INTERVAL, &all);
        assert_eq!(scene.turn(INTERVAL, &all), None, "there is no other manager yet");
        scene.replaced(MANAGER, 12, "manager");
        let next = scene.turn(INTERVAL, &all).expect("the next");
        assert!([FEA, BGP].contains(&next.pid), "{next:?}");
    }

    #[test]
    fn a_successor_that_does_not_come_protects_nobody_for_long() {
        let mut scene = Scene::new();
        let both = [FEA, BGP];
        let (first, _) = scene.until_ended(&both, seconds(10)).expect("hung");
        let (second, after) = scene.until_ended(&both, seconds(10)).expect("hung");
        assert_eq!((first != second, after), (true, DEFAULT_LIMIT));
        assert_eq!(scene.until_ended(&both, seconds(10)), None, "each is ended once");
    }

    #[test]
    fn who_has_not_answered_yet_or_has_closed_its_channel_has_more_time() {
        for leaves in [false, true] {
            let mut scene = Scene::new();
            scene.hangs.born(9, "rib", None);
            if leaves {
                scene.hangs.answered(9);
                scene.turn(INTERVAL, &[9]);
                scene.hangs.left(9);
            }
            let (pid, after) = scene.until_ended(&[9], seconds(60)).expect("it never serves");
            assert_eq!((pid, after > DEFAULT_LIMIT * PATIENCE), (9, true), "{after:?}");
        }
    }

    #[test]
    fn who_is_stopped_before_it_has_answered_or_while_it_leaves_has_no_more_time_than_others() {
        for leaves in [false, true] {
            let mut scene = Scene::new();
            scene.hangs.born(9, "rib", None);
            if leaves {
                scene.hangs.answered(9);
                scene.turn(INTERVAL, &[9]);
                scene.hangs.left(9);
            }
            scene.sample.doing = Doing::Stopped;
            let (pid, after) = scene.until_ended(&[9], seconds(60)).expect("it never serves");
            assert!(pid == 9 && after <= DEFAULT_LIMIT + 2 * INTERVAL, "{after:?}");
        }
    }

    #[test]
    fn a_slow_birth_that_is_stopped_for_a_moment_goes_on() {
        let mut scene = Scene::new();
        scene.hangs.born(9, "rib", None);
        assert_eq!(scene.until_ended(&[9], seconds(10)), None, "it is only slow");
        for _ in 0..3 {
            scene.sample.doing = Doing::Stopped;
            assert_eq!(scene.until_ended(&[9], DEFAULT_LIMIT), None, "somebody has looked at it");
            scene.sample.doing = Doing::Waiting;
            assert_eq!(scene.turn(Duration::ZERO, &[9]), None);
        }
        scene.hangs.answered(9);
        assert_eq!(scene.until_ended(&[], seconds(60)), None);
    }

    #[test]
    fn who_waits_inside_the_kernel_has_more_time() {
        let mut scene = Scene::new();
        scene.sample.doing = Doing::Uninterruptible;
        let (pid, after) = scene.until_ended(&[FEA], seconds(60)).expect("in the end");
        assert_eq!((pid, after), (FEA, DEFAULT_LIMIT * PATIENCE + 2 * INTERVAL));
    }

    #[test]
    fn who_is_dead_is_not_ended() {
        let mut scene = Scene::new();
        scene.sample.doing = Doing::Ended;
        assert_eq!(scene.until_ended(&[BGP], seconds(60)), None);
    }

    /// Turns in which everybody who is silent finishes a unit as it is said, until one is ended; how long that took.
    fn until_ended_busy(
        scene: &mut Scene,
        silent: &[u32],
        patience: Option<Duration>,
        finishes: impl Fn(Duration) -> bool,
    ) -> Option<(Hung, Duration)> {
        let begin = scene.now;
        let mut finished = 0;
        while scene.now - begin < seconds(200) {
            finished += u64::from(finishes(scene.now - begin));
            scene.sample.said = Some(Said { finished, patience });
            if let Some(hung) = scene.turn(INTERVAL, silent) {
                return Some((hung, scene.now - begin));
            }
        }
        None
    }

    #[test]
    fn who_finishes_work_and_does_not_answer_is_busy_and_has_a_minute() {
        let mut scene = Scene::new();
        let (hung, after) = until_ended_busy(&mut scene, &[BGP], None, |_| true).expect("ended");
        assert_eq!((hung.pid, hung.was_busy, after), (BGP, true, MOST_BUSY + 2 * INTERVAL));
        let busy = Busy { pid: BGP, silent: DEFAULT_LIMIT, most: MOST_BUSY };
        assert_eq!(scene.busy, [busy], "it is said once, after the limit");
        assert_eq!(scene.hangs.busy(BGP), Some(MOST_BUSY));
    }

    #[test]
    fn who_is_waited_for_with_less_patience_has_no_longer_and_nobody_has_less_than_the_limit() {
        for (patience, expected) in [(3, 3), (1, 2), (600, 60)] {
            let mut scene = Scene::new();
            let patience = Some(seconds(patience));
            let (hung, after) = until_ended_busy(&mut scene, &[BGP], patience, |_| true).expect("ended");
            assert_eq!((hung.pid, after), (BGP, seconds(expected) + 2 * INTERVAL), "{patience:?}");
        }
    }

    #[test]
    fn who_finishes_nothing_for_the_limit_is_hung_whatever_it_finished_before() {
        let until = |time| move |since| since <= time;
        let mut scene = Scene::new();
        let (hung, after) = until_ended_busy(&mut scene, &[BGP], None, until(seconds(10))).expect("ended");
        assert!(hung.was_busy && after >= seconds(12) && after <= seconds(13), "{after:?}");
        // It is never busy: what it finished, it finished before it was silent for the limit, and nothing after that.
        let mut scene = Scene::new();
        let (hung, after) = until_ended_busy(&mut scene, &[BGP], None, until(Duration::ZERO)).expect("ended");
        assert!(!hung.was_busy && after <= DEFAULT_LIMIT + 3 * INTERVAL, "{after:?}");
        assert_eq!(scene.busy, []);
    }

    #[test]
    fn who_answers_is_busy_no_more() {
        let mut scene = Scene::new();
        for finished in 0..40 {
            scene.sample.said = Some(Said { finished, patience: None });
            assert_eq!(scene.turn(INTERVAL, &[BGP]), None);
        }
        assert!(scene.hangs.busy(BGP).is_some());
        scene.hangs.answered(BGP);
        assert_eq!(scene.hangs.busy(BGP), None);
        assert_eq!(scene.until_ended(&[], seconds(60)), None);
    }

    #[test]
    fn who_has_a_limit_of_its_own_is_not_spared_for_being_busy() {
        let (mut scene, interval) = scene_with_bfd();
        let begin = scene.now;
        for finished in 0.. {
            scene.sample.said = Some(Said { finished, patience: None });
            if let Some(hung) = scene.turn(interval, &[BFD]) {
                assert_eq!((hung.pid, hung.was_busy), (BFD, false));
                break;
            }
        }
        assert_eq!((scene.now - begin, scene.busy), (OWN + 2 * interval, Vec::new()));
    }

    #[test]
    fn a_birth_that_finishes_work_has_a_minute_too() {
        let mut scene = Scene::new();
        scene.hangs.born(9, "rib", None);
        let (hung, after) = until_ended_busy(&mut scene, &[9], None, |_| true).expect("ended");
        assert_eq!((hung.pid, after), (9, MOST_BUSY + 2 * INTERVAL));
    }

    /// Half a second.
    const OWN: Duration = Duration::from_millis(500);
    const BFD: u32 = 7;

    /// With a process that has a limit of its own, and the turns that it needs.
    fn scene_with_bfd() -> (Scene, Duration) {
        let mut scene = Scene::new();
        scene.hangs.born(BFD, "bfd", Some(HangLimit::Exactly(OWN)));
        scene.hangs.answered(BFD);
        let interval = scene.hangs.interval().expect("turns");
        (scene, interval)
    }

    #[test]
    fn who_has_a_limit_of_its_own_is_hung_after_that_and_others_after_theirs() {
        for (silent, limit) in [(BFD, OWN), (BGP, DEFAULT_LIMIT)] {
            let (mut scene, interval) = scene_with_bfd();
            assert_eq!(interval, OWN / TURNS);
            let begin = scene.now;
            let hung = loop {
                if let Some(hung) = scene.turn(interval, &[silent]) {
                    break hung;
                }
            };
            assert_eq!((hung.pid, scene.now - begin), (silent, limit + 2 * interval));
        }
    }

    #[test]
    fn who_has_the_routers_limit_is_asked_no_more_often_for_another_ones() {
        let (mut scene, interval) = scene_with_bfd();
        let mut asked = BTreeMap::new();
        for _ in 0..64 {
            scene.now += interval;
            for pid in scene.hangs.turn(scene.now, |_, _| SLEEPING).ask {
                *asked.entry(pid).or_insert(0) += 1;
                scene.hangs.answered(pid);
            }
        }
        assert_eq!([BFD, BGP].map(|pid| asked[&pid]), [64, 16]);
    }

    #[test]
    fn a_turn_that_is_late_for_a_short_limit_is_not_for_a_long_one() {
        let (mut scene, interval) = scene_with_bfd();
        let late = 3 * interval;
        let begin = scene.now;
        let hung = loop {
            if let Some(hung) = scene.turn(late, &[BFD, BGP]) {
                break hung;
            }
        };
        assert_eq!(hung.pid, BGP, "the other one may not have had a processor");
        assert!(scene.now - begin < DEFAULT_LIMIT + 3 * late, "{:?}", scene.now - begin);
    }

    #[test]
    fn a_birth_takes_as_long_as_that_of_others_and_without_a_limit_there_is_none_of_its_own() {
        let (mut scene, interval) = scene_with_bfd();
        scene.hangs.born(8, "bfd", Some(HangLimit::Exactly(OWN)));
        let begin = scene.now;
        while scene.turn(interval, &[8]).is_none() {}
        assert!(scene.now - begin >= DEFAULT_LIMIT * PATIENCE);
        scene.hangs.set_limit(Duration::ZERO);
        assert_eq!(scene.hangs.interval(), None);
    }

    #[test]
    fn without_a_limit_nobody_is_asked_and_with_another_all_begin_anew() {
        let mut scene = Scene::new();
        for _ in 0..9 {
            scene.turn(INTERVAL, &[BGP]);
        }
        scene.hangs.set_limit(Duration::ZERO);
        assert_eq!((scene.hangs.interval(), scene.until_ended(&[BGP], seconds(60))), (None, None));
        scene.hangs.set_limit(seconds(4));
        assert_eq!(scene.hangs.interval(), Some(2 * INTERVAL));
        let begin = scene.now;
        while scene.turn(2 * INTERVAL, &[BGP]).is_none() {}
        assert_eq!(scene.now - begin, seconds(4) + 2 * INTERVAL, "asked before, and not counted");
    }
}
