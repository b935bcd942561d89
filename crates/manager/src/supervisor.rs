//! What runs and what should: the decisions of starting and restarting, without doing either.
//!
//! A process goes `BackingOff -> Starting -> Configuring -> Running`; its death from any state leads back to
//! `BackingOff`. How long it stays there is decided by [`BackOff`].

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use holdfast_process::{
    Processes,
    back_off::{BackOff, Pauses},
};

/// A process that lived this long has come up, be it that it never took its configuration.
pub(crate) const GOOD_LIFE: Duration = Duration::from_secs(5);

/// Where a process stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not running; started again at this time.
    BackingOff { until: Instant },
    /// Asked for at the keeper.
    Spawning,
    /// Runs, but has not yet registered at the Finder.
    Starting { pid: u32, since: Instant },
    /// Registered; it is not time for its configuration yet.
    Waiting { pid: u32, since: Instant },
    /// Registered; its configuration is on the way.
    Configuring { pid: u32, since: Instant },
    /// Does its work.
    Running { pid: u32, since: Instant },
    /// Told to end.
    Stopping { pid: u32, since: Instant },
    /// Ended as it was told.
    Stopped,
}

impl State {
    /// The word that the operator reads.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::BackingOff { .. } => "backing off",
            Self::Spawning | Self::Starting { .. } => "starting",
            Self::Waiting { .. } => "waiting",
            Self::Configuring { .. } => "configuring",
            Self::Running { .. } => "running",
            Self::Stopping { .. } => "stopping",
            Self::Stopped => "stopped",
        }
    }

    /// Process id and time of start, when there is a process.
    pub(crate) fn life(&self) -> Option<(u32, Instant)> {
        match *self {
            Self::Starting { pid, since }
            | Self::Waiting { pid, since }
            | Self::Configuring { pid, since }
            | Self::Running { pid, since }
            | Self::Stopping { pid, since } => Some((pid, since)),
            Self::BackingOff { .. } | Self::Spawning | Self::Stopped => None,
        }
    }
}

/// One process that is to run.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: &'static str,
    pub(crate) state: State,
    pub(crate) restarts: u32,
    /// How it ended last time.
    pub(crate) last_exit: String,
    /// The same as one word.
    pub(crate) last_end: String,
    /// How often it was ended because it was hung.
    pub(crate) hung: u32,
    /// Stages that it has left out.
    pub(crate) quarantined: Vec<String>,
    /// What is wrong with it now.
    pub(crate) detail: String,
    /// What it was started from.
    pub(crate) build: String,
    /// It is told its configuration until it takes it.
    telling: Option<Telling>,
    /// The one that runs, or the last one, has taken its configuration.
    came_up: bool,
    back_off: BackOff,
}

/// A process is told its configuration.
#[derive(Debug)]
struct Telling {
    pid: u32,
    /// There may be another one since this attempt began.
    again: bool,
}

/// A process that was there before this manager.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    pub(crate) name: &'a str,
    pub(crate) pid: u32,
    pub(crate) build: &'a str,
    /// Deaths of earlier ones of its name.
    pub(crate) restarts: u32,
    pub(crate) last_exit: &'a str,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Have the keeper start it; answer with [`Supervisor::spawned`] or [`Supervisor::spawn_failed`].
    Spawn(&'static str),
    /// Send it its configuration; answer with [`Supervisor::configured`] or [`Supervisor::refused`].
    Configure(&'static str),
}

/// All processes that are to run.
#[derive(Debug)]
pub(crate) struct Supervisor {
    processes: Vec<Process>,
    /// How long starts wait, by process.
    pauses: BTreeMap<&'static str, Pauses>,
    stopping: bool,
}

impl Supervisor {
    /// None of them runs yet.
    pub(crate) fn new(names: &[&'static str], now: Instant) -> Self {
        let processes = names.iter().map(|&name| Process::new(name, Pauses::default(), now)).collect();
        Self { processes, pauses: BTreeMap::new(), stopping: false }
    }

    /// Starts wait as long as these say.
    pub(crate) fn paced(mut self, processes: &Processes) -> Self {
        self.pauses = processes.as_configured().map(|process| (process.name, process.pauses())).collect();
        for process in &mut self.processes {
            process.back_off = BackOff::new(self.pauses.get(process.name).copied().unwrap_or_default());
        }
        self
    }

    /// Others are to run from now on. Names and process ids of those that are to end.
    pub(crate) fn want(&mut self, names: &[&'static str], now: Instant) -> Vec<(&'static str, u32)> {
        let (stay, go): (Vec<_>, Vec<_>) =
            self.processes.drain(..).partition(|process| names.contains(&process.name));
        self.processes = stay;
        for &name in names {
            if self.process(name).is_none() {
                let pauses = self.pauses.get(name).copied().unwrap_or_default();
                self.processes.push(Process::new(name, pauses, now));
            }
        }
        go.iter().filter_map(|process| Some((process.name, process.state.life()?.0))).collect()
    }

    /// All, in the order of start.
    pub(crate) fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Whether each has taken its configuration, or waits for the time to take it.
    pub(crate) fn all_run(&self) -> bool {
        let runs = |state: &State| matches!(state, State::Running { .. } | State::Waiting { .. });
        self.processes.iter().all(|process| runs(&process.state))
    }

    /// The one of that name.
    pub(crate) fn process(&self, name: &str) -> Option<&Process> {
        self.processes.iter().find(|process| process.name == name)
    }

    fn find(&mut self, name: &str) -> Option<&mut Process> {
        self.processes.iter_mut().find(|process| process.name == name)
    }

    /// A process that runs already, with how often one of its name has ended and how the last one did: this manager is
    /// not the first. Whether it is wanted.
    pub(crate) fn found(&mut self, found: &Found<'_>, now: Instant) -> bool {
        let &Found { name, pid, build, restarts, last_exit } = found;
        let alive = self.is_alive(name, pid);
        let Some(process) = self.find(name) else { return false };
        build.clone_into(&mut process.build);
        process.restarts = restarts;
        last_exit.clone_into(&mut process.last_exit);
        // Told a second time of one that is known, it would wait for a birth that has been.
        if !alive {
            process.state = State::Starting { pid, since: now };
        }
        true
    }

    /// Whether this is the process of that name that lives.
    pub(crate) fn is_alive(&self, name: &str, pid: u32) -> bool {
        self.process(name).and_then(|process| process.state.life()).is_some_and(|(living, _)| living == pid)
    }

    /// What is due now.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Action> {
        if self.stopping {
            return Vec::new();
        }
        let mut actions = Vec::new();
        for process in &mut self.processes {
            if matches!(process.state, State::BackingOff { until } if until <= now) {
                process.state = State::Spawning;
                process.came_up = false;
                actions.push(Action::Spawn(process.name));
            }
        }
        actions
    }

    /// When something becomes due without any event.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let waiting = self.processes.iter().filter_map(|process| match process.state {
            State::BackingOff { until } => Some(until),
            _ => None,
        });
        waiting.min().filter(|_| !self.stopping)
    }

    /// The keeper has started it.
    pub(crate) fn spawned(&mut self, name: &str, pid: u32, build: String, now: Instant) {
        if let Some(process) = self.find(name)
            && let State::Spawning | State::Configuring { .. } | State::Running { .. } = process.state
        {
            process.build = build;
            if process.state == State::Spawning {
                process.state = State::Starting { pid, since: now };
            }
        }
    }

    /// Its next death is wanted, and not held against it.
    pub(crate) fn forgive(&mut self, name: &str) {
        if let Some(process) = self.find(name) {
            process.back_off.forgive();
        }
    }

    /// The keeper could not start it.
    pub(crate) fn spawn_failed(&mut self, name: &str, why: String, now: Instant) {
        if let Some(process) = self.find(name) {
            process.start_again(false, now);
            process.detail = why;
        }
    }

    /// It has registered at the Finder.
    pub(crate) fn registered(&mut self, name: &str, pid: u32, now: Instant) -> Option<Action> {
        let process = self.find(name)?;
        let since = match process.state {
            State::Starting { pid: living, since } if living == pid => since,
            // Its birth is known before the keeper's answer to Spawn.
            State::Spawning => now,
            _ => return None,
        };
        process.state = State::Configuring { pid, since };
        Some(Action::Configure(process.name))
    }

    /// It is not time for its configuration yet.
    pub(crate) fn waits(&mut self, name: &str) {
        if let Some(process) = self.find(name)
            && let State::Configuring { pid, since } = process.state
        {
            process.state = State::Waiting { pid, since };
        }
    }

    /// It is.
    pub(crate) fn waited(&mut self, name: &str) {
        if let Some(process) = self.find(name)
            && let State::Waiting { pid, since } = process.state
        {
            process.state = State::Configuring { pid, since };
        }
    }

    /// Whether somebody has to begin to tell this process its configuration. If somebody does so already, that one goes on
    /// with what is the configuration then.
    pub(crate) fn begins_to_tell(&mut self, name: &str, pid: u32) -> bool {
        let Some(process) = self.find(name) else { return false };
        match &mut process.telling {
            Some(telling) if telling.pid == pid => {
                telling.again = true;
                false
            }
            telling => {
                *telling = Some(Telling { pid, again: false });
                true
            }
        }
    }

    /// Who has told it is done, and whether it has to be told once more.
    pub(crate) fn has_told(&mut self, name: &str, pid: u32) -> bool {
        let Some(process) = self.find(name) else { return false };
        match &mut process.telling {
            Some(telling) if telling.pid == pid => {
                let again = std::mem::take(&mut telling.again);
                if !again {
                    process.telling = None;
                }
                again
            }
            _ => false,
        }
    }

    /// It has taken its configuration.
    pub(crate) fn configured(&mut self, name: &str) {
        if let Some(process) = self.find(name)
            && let State::Configuring { pid, since } = process.state
        {
            process.state = State::Running { pid, since };
            process.came_up = true;
            process.detail.clear();
        }
    }

    /// It is told another configuration; its process id if it lives and has one. Otherwise it is told at its birth.
    pub(crate) fn reconfigure(&mut self, name: &str) -> Option<u32> {
        let process = self.find(name)?;
        match process.state {
            State::Running { pid, since } | State::Configuring { pid, since } => {
                process.state = State::Configuring { pid, since };
                Some(pid)
            }
            _ => None,
        }
    }

    /// Whether it runs and is told what changes. Others are told everything at their birth.
    pub(crate) fn is_told(&self, name: &str) -> bool {
        let told =
            |process: &Process| matches!(process.state, State::Running { .. } | State::Configuring { .. });
        self.process(name).is_some_and(told)
    }

    /// It runs but could not take its configuration.
    pub(crate) fn refused(&mut self, name: &str, why: String) {
        if let Some(process) = self.find(name) {
            process.detail = why;
        }
    }

    /// The keeper says that this process has ended.
    pub(crate) fn ended(&mut self, name: &str, pid: u32, how: &str, now: Instant) {
        let stopping = self.stopping;
        let Some(process) = self.find(name) else { return };
        // A process that died before the keeper's answer to Spawn came is still `Spawning`.
        let life = process.state.life();
        if life.is_some_and(|(running, _)| running != pid) {
            return;
        }
        how.clone_into(&mut process.last_exit);
        if stopping {
            process.state = State::Stopped;
            return;
        }
        process.restarts += 1;
        let is_old = life.is_some_and(|(_, since)| now.saturating_duration_since(since) >= GOOD_LIFE);
        process.start_again(process.came_up || is_old, now);
    }

    /// It lives on, and not as this process: another one is started in its place.
    pub(crate) fn retired(&mut self, name: &str, pid: u32, now: Instant) {
        let is_it = self.is_alive(name, pid);
        if let Some(process) = self.find(name).filter(|_| is_it) {
            process.state = State::BackingOff { until: now };
        }
    }

    /// What the keeper knows of the dead of a name: how the last one ended, as one word, and how many were hung.
    pub(crate) fn remember(&mut self, name: &str, last_end: &str, hung: u32) {
        if let Some(process) = self.find(name) {
            last_end.clone_into(&mut process.last_end);
            process.hung = hung;
        }
    }

    /// It has told which of its stages it has left out.
    pub(crate) fn leaves_out(&mut self, name: &str, stages: Vec<String>) {
        if let Some(process) = self.find(name) {
            process.quarantined = stages;
        }
    }

    /// From now on nothing is started; what does not run counts as stopped.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
        for process in &mut self.processes {
            process.state = match process.state.life() {
                Some((pid, since)) => State::Stopping { pid, since },
                None => State::Stopped,
            };
        }
    }

    /// [`Self::stop`] was called.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }
}

impl Process {
    /// To be started at once.
    fn new(name: &'static str, pauses: Pauses, now: Instant) -> Self {
        Self {
            name,
            state: State::BackingOff { until: now },
            restarts: 0,
            last_exit: String::new(),
            last_end: String::new(),
            hung: 0,
            quarantined: Vec::new(),
            detail: String::new(),
            build: String::new(),
            telling: None,
            came_up: false,
            back_off: BackOff::new(pauses),
        }
    }

    fn start_again(&mut self, came_up: bool, now: Instant) {
        self.telling = None;
        self.state = State::BackingOff { until: now + self.back_off.died(came_up, now) };
    }
}

#[cfg(test)]
mod tests {
    use holdfast_process::back_off::FIRST_DELAY;

    use super::*;

    fn running(now: Instant) -> Supervisor {
        let mut supervisor = Supervisor::new(&["bgp"], now);
        assert_eq!(supervisor.due(now), [Action::Spawn("bgp")]);
        supervisor.spawned("bgp", 7, String::new(), now);
        assert_eq!(supervisor.registered("bgp", 7, now), Some(Action::Configure("bgp")));
        supervisor.configured("bgp");
        supervisor
    }

    fn found(name: &str, pid: u32) -> Found<'_> {
        Found { name, pid, build: "0.1.0+1", restarts: 2, last_exit: "signal 9" }
    }

    fn state(supervisor: &Supervisor) -> State {
        supervisor.process("bgp").expect("bgp is supervised").state.clone()
    }

    #[test]
    fn who_waits_is_told_nothing_and_keeps_nobody_waiting() {
        let now = Instant::now();
        let mut supervisor = Supervisor::new(&["bgp"], now);
        supervisor.due(now);
        supervisor.spawned("bgp", 7, String::new(), now);
        supervisor.registered("bgp", 7, now);
        assert!(!supervisor.all_run());
        supervisor.waits("bgp");
        assert_eq!(state(&supervisor), State::Waiting { pid: 7, since: now });
        assert!(supervisor.all_run() && supervisor.is_alive("bgp", 7));
        assert_eq!(supervisor.reconfigure("bgp"), None, "it is told when it is time");
        supervisor.waited("bgp");
        assert_eq!(supervisor.reconfigure("bgp"), Some(7));
        supervisor.configured("bgp");
        supervisor.waits("bgp");
        assert_eq!(state(&supervisor), State::Running { pid: 7, since: now }, "its time has been");
    }

    #[test]
    fn a_process_is_spawned_once_and_configured_when_it_registers() {
        let now = Instant::now();
        let mut supervisor = running(now);
        assert_eq!(state(&supervisor), State::Running { pid: 7, since: now });
        assert!(supervisor.due(now).is_empty() && supervisor.next_due().is_none());
        assert_eq!(
            supervisor.registered("bgp", 7, now),
            None,
            "a second birth of the same process changes nothing"
        );
    }

    #[test]
    fn who_retires_is_replaced_at_once_and_has_not_died() {
        let now = Instant::now();
        let mut supervisor = running(now);
        supervisor.retired("bgp", 8, now);
        assert_eq!(state(&supervisor), State::Running { pid: 7, since: now }, "it is another one");
        supervisor.retired("bgp", 7, now);
        assert_eq!(supervisor.process("bgp").map(|process| process.restarts), Some(0));
        comes_up(&mut supervisor, 8, now);
        // It is told again, and its own end comes later.
        supervisor.retired("bgp", 7, now);
        assert_eq!(state(&supervisor), State::Running { pid: 8, since: now });
    }

    /// The next process is there, and has taken its configuration.
    fn comes_up(supervisor: &mut Supervisor, pid: u32, now: Instant) {
        assert_eq!(supervisor.due(now), [Action::Spawn("bgp")]);
        supervisor.spawned("bgp", pid, String::new(), now);
        supervisor.registered("bgp", pid, now);
        supervisor.configured("bgp");
    }

    #[test]
    fn who_came_up_is_started_again_at_once_and_slowly_where_it_dies_all_the_time() {
        let start = Instant::now();
        let mut supervisor = running(start);
        for pid in 7..36 {
            let now = start + Duration::from_millis(500) * (pid - 6);
            // Another configuration in between is no new life.
            supervisor.reconfigure("bgp");
            supervisor.ended("bgp", pid, "signal 9", now);
            assert_eq!(supervisor.next_due(), Some(now), "death {}", pid - 6);
            comes_up(&mut supervisor, pid + 1, now);
        }
        let now = start + Duration::from_secs(30);
        supervisor.ended("bgp", 36, "signal 9", now);
        assert_eq!(supervisor.next_due(), Some(now + Pauses::default().slow));
    }

    #[test]
    fn the_first_restart_is_at_once_and_the_next_are_delayed_longer_each_time_up_to_a_bound() {
        let start = Instant::now();
        let mut now = start;
        let mut supervisor = Supervisor::new(&["bgp"], now);
        supervisor.due(now);
        supervisor.spawned("bgp", 7, String::new(), now);
        let mut delays = Vec::new();
        for pid in 7..17 {
            supervisor.ended("bgp", pid, "signal 9", now);
            let due = supervisor.next_due().expect("it is to be started again");
            delays.push(due - now);
            assert!(due == now || supervisor.due(due - Duration::from_millis(1)).is_empty());
            now = due;
            assert_eq!(supervisor.due(now), [Action::Spawn("bgp")]);
            supervisor.spawned("bgp", pid + 1, String::new(), now);
        }
        assert_eq!(delays[..4], [Duration::ZERO, FIRST_DELAY, FIRST_DELAY * 2, FIRST_DELAY * 4]);
        assert_eq!(delays[9], Pauses::default().longest);
        assert_eq!(supervisor.process("bgp").map(|p| p.restarts), Some(10));
    }

    #[test]
    fn a_long_life_forgives_earlier_deaths() {
        let now = Instant::now();
        let mut supervisor = running(now);
        supervisor.ended("bgp", 7, "signal 9", now);
        supervisor.due(now);
        supervisor.spawned("bgp", 8, String::new(), now);
        let end = now + GOOD_LIFE;
        supervisor.ended("bgp", 8, "exit 1", end);
        assert_eq!(supervisor.next_due(), Some(end), "at once");
    }

    #[test]
    fn news_of_an_earlier_process_is_ignored() {
        let now = Instant::now();
        let mut supervisor = running(now);
        supervisor.ended("bgp", 6, "signal 9", now);
        assert_eq!(state(&supervisor), State::Running { pid: 7, since: now });
    }

    #[test]
    fn what_runs_already_is_configured_once_it_registers_and_stays_so() {
        let now = Instant::now();
        let mut supervisor = Supervisor::new(&["bgp"], now);
        assert!(supervisor.found(&found("bgp", 7), now) && !supervisor.found(&found("ospf", 8), now));
        assert!(supervisor.due(now).is_empty(), "it is not started a second time");
        let process = supervisor.process("bgp").expect("bgp is supervised");
        assert_eq!((process.restarts, process.build.as_str()), (2, "0.1.0+1"));
        assert_eq!(supervisor.registered("bgp", 7, now), Some(Action::Configure("bgp")));
        supervisor.configured("bgp");
        assert!(
            supervisor.found(&found("bgp", 7), now + FIRST_DELAY),
            "told again, after a gap in the keeper's news"
        );
        assert_eq!(state(&supervisor), State::Running { pid: 7, since: now });
    }

    #[test]
    fn after_stop_nothing_starts_and_the_last_death_ends_it() {
        let now = Instant::now();
        let mut supervisor = running(now);
        supervisor.stop();
        assert_eq!(state(&supervisor), State::Stopping { pid: 7, since: now });
        supervisor.ended("bgp", 7, "exit 0", now);
        assert_eq!(state(&supervisor), State::Stopped);
        assert!(
            supervisor.due(now + Pauses::default().longest).is_empty() && supervisor.next_due().is_none()
        );
    }

    #[test]
    fn another_configuration_is_for_who_has_one_already() {
        let now = Instant::now();
        let mut supervisor = running(now);
        assert_eq!(supervisor.reconfigure("bgp"), Some(7));
        assert_eq!(state(&supervisor), State::Configuring { pid: 7, since: now });
        supervisor.configured("bgp");
        assert_eq!(state(&supervisor), State::Running { pid: 7, since: now });
        supervisor.ended("bgp", 7, "signal 9", now);
        assert_eq!(supervisor.reconfigure("bgp"), None, "it will be told at its birth");
    }

    #[test]
    fn a_process_that_takes_nothing_is_told_by_one_however_often_its_configuration_changes() {
        let now = Instant::now();
        let mut supervisor = running(now);
        assert!(supervisor.begins_to_tell("bgp", 7));
        assert!(!supervisor.begins_to_tell("bgp", 7) && !supervisor.begins_to_tell("bgp", 7));
        assert!(supervisor.has_told("bgp", 7), "what is the configuration now");
        assert!(!supervisor.has_told("bgp", 7));
        assert!(supervisor.begins_to_tell("bgp", 7), "that was all");
        assert!(supervisor.begins_to_tell("bgp", 8), "the next one in its place");
        assert!(!supervisor.has_told("bgp", 7), "who told the one before has nothing more to do");
        assert!(!supervisor.begins_to_tell("bgp", 8));
    }

    #[test]
    fn a_death_before_the_answer_to_spawn_is_not_lost() {
        let now = Instant::now();
        let mut supervisor = Supervisor::new(&["bgp"], now);
        supervisor.due(now);
        supervisor.ended("bgp", 7, "exit 1", now);
        supervisor.spawned("bgp", 7, String::new(), now);
        assert_eq!(state(&supervisor), State::BackingOff { until: now });
    }

    #[test]
    fn what_another_configuration_wants_is_started_and_what_it_does_not_ends() {
        let now = Instant::now();
        let mut supervisor = running(now);
        assert!(supervisor.want(&["bgp", "metrics"], now).is_empty());
        assert_eq!(supervisor.due(now), [Action::Spawn("metrics")], "bgp is left alone");
        supervisor.spawned("metrics", 8, String::new(), now);
        assert_eq!(supervisor.want(&["bgp"], now), [("metrics", 8)]);
        supervisor.ended("metrics", 8, "signal 15", now);
        assert!(supervisor.due(now).is_empty() && supervisor.process("metrics").is_none());
    }

    #[test]
    fn a_death_that_is_wanted_is_not_held_against_it() {
        let now = Instant::now();
        let mut supervisor = running(now);
        for pid in [7, 8, 9] {
            supervisor.ended("bgp", pid, "signal 9", now);
            let due = supervisor.next_due().expect("it is to be started again");
            supervisor.due(due);
            supervisor.spawned("bgp", pid + 1, String::new(), due);
        }
        supervisor.forgive("bgp");
        supervisor.ended("bgp", 10, "upgrade", now);
        assert_eq!(supervisor.next_due(), Some(now));
    }
}
