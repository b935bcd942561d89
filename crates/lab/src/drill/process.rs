//! A drill from its beginning to its report.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_types::Prefix;

use super::{
    Failure, Options,
    failures::{LOOPING, POISON, POISON_VARIABLE, SMALL_LOG},
    judge::{Counts, Judge},
    phases::{Kill, lines, phases, phrase, takeovers},
    relay::Relay,
    report::{Passages, Report, Wire},
    scene::{SETTLING, Scene, Serials, Set},
    stock::{NETWORK, Session},
    time::now,
};
use crate::{kernel::Monitor, table::random::Random, topology::Star};

/// Between two kills at most, once all is as it should be.
const LONGEST_PAUSE_MS: u32 = 500;
/// Kills in a row after which the router would wait before each start, if they came without a pause: it does from 30 in a
/// minute on.
const BURST: u32 = 25;
/// From one kill to the next where there are more.
const PACE: Duration = Duration::from_millis(2100);
/// Between two comparisons of all tables.
const COMPARING: Duration = Duration::from_millis(500);
/// Runs a drill; prints how it goes on.
///
/// # Errors
/// The stage could not be set, or something outside the router failed. What the router does wrong is in the report.
pub fn process(options: &Options) -> Result<Report> {
    let star = Star::new(2)?;
    let poison =
        if options.kind == Failure::Hang { format!("{LOOPING}{POISON}") } else { POISON.to_string() };
    let mut set = Set {
        stock_routes: options.routes,
        feeder_routes: options.routes,
        seed: options.seed,
        ..Set::default()
    };
    let environment = [(POISON_VARIABLE, poison.as_str())];
    match options.kind {
        Failure::Poison | Failure::Hang => set.environment = &environment,
        Failure::Full => set.bgp = SMALL_LOG,
        Failure::Kill | Failure::Stop | Failure::Memory | Failure::Loop => {}
    }
    let relay =
        options.tamper.map(|tampering| Relay::start(star.neighbor(NETWORK), tampering)).transpose()?;
    set.relay = relay.as_ref();
    println!("loading {} and {} routes", set.stock_routes, set.feeder_routes);
    let scene = Scene::start(&star, options.peer, &set)?;
    let monitor = Monitor::start(&star.router)?;
    let mut drill = Drill::begin(scene, options);
    drill.scene.change();
    let meddled = relay.as_ref().map_or(Ok(()), Relay::meddle);
    let failed = meddled.and_then(|()| drill.fail()).err();
    let settled = match failed {
        Some(_) => Ok(()),
        None => drill.scene.settle(),
    };
    let faults: Vec<_> =
        [failed, settled.err()].into_iter().flatten().map(|error| format!("{error:#}")).collect();
    if !faults.is_empty() {
        eprintln!("{}", drill.scene.log_tail());
    }
    // Whatever went wrong, nothing may change while tables are compared.
    drill.scene.stock_churn.pause();
    drill.scene.feeder_churn.pause();
    drill.report(monitor, faults)
}

/// A drill under way.
pub(super) struct Drill<'a> {
    pub(super) scene: Scene<'a>,
    pub(super) options: &'a Options,
    pub(super) random: Random,
    started: Instant,
    /// How often it was done.
    pub(super) done: u32,
    /// The deaths by SIGKILL, with the serial numbers at that moment.
    pub(super) kills: Vec<(u64, Serials)>,
    before: Before,
}

/// What had happened before the drill began.
struct Before {
    at: u64,
    wire: [Counts; 2],
    feeder_sessions: u32,
}

impl<'a> Drill<'a> {
    fn begin(scene: Scene<'a>, options: &'a Options) -> Self {
        let wire = counted(&scene);
        let before = Before { at: now(), wire, feeder_sessions: scene.feeder.status().sessions };
        let random = Random::new(options.seed);
        Self { scene, options, random, started: Instant::now(), done: 0, kills: Vec::new(), before }
    }

    fn fail(&mut self) -> Result<()> {
        match self.options.kind {
            Failure::Kill => self.again_and_again(Self::kill_and_recover),
            Failure::Stop => self.again_and_again(|drill, _| drill.stop()),
            Failure::Memory => self.exhaust_memory(),
            Failure::Poison | Failure::Hang => self.poison(),
            Failure::Loop => self.crash_loop(),
            Failure::Full => self.fill(),
        }
    }

    fn again_and_again(&mut self, mut once: impl FnMut(&mut Self, bool) -> Result<()>) -> Result<()> {
        let limit = Duration::from_secs(self.options.limit);
        while self.done < self.options.kills {
            let (done, kills) = (self.done, self.options.kills);
            ensure!(self.started.elapsed() < limit, "only {done} of {kills} within {} s", limit.as_secs());
            let next = Instant::now() + PACE;
            self.pause(LONGEST_PAUSE_MS);
            once(self, done + 1 == kills).with_context(|| format!("number {} of {kills}", done + 1))?;
            self.done += 1;
            if kills > BURST {
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        }
        Ok(())
    }

    /// A random moment; changes go on.
    pub(super) fn pause(&mut self, most_milliseconds: u32) {
        std::thread::sleep(Duration::from_millis(self.random.below(most_milliseconds).into()));
    }

    /// Deaths of `bgp` since the beginning, by the router's log.
    pub(super) fn deaths(&self) -> u64 {
        let died = |line: &super::phases::Line| {
            line.process == "bgp" && line.at >= self.before.at && line.message.starts_with(phrase::DEATH)
        };
        lines(&self.scene.router.log()).iter().filter(|line| died(line)).count() as u64
    }

    fn report(self, monitor: Monitor<'_>, mut faults: Vec<String>) -> Result<Report> {
        let Self { scene, options, kills, before, .. } = &self;
        // After a drill that did not settle nothing comes any more.
        let patience = if faults.is_empty() { SETTLING } else { Duration::ZERO };
        let log = lines(&scene.router.log());
        let audits = scene.audit(&takeovers(&log));
        for (direction, audit) in ["to the stock router", "to the feeder"].into_iter().zip(&audits) {
            faults.extend(audit.findings.iter().map(|finding| format!("{direction}: {finding}")));
        }
        let differences = compare(scene, patience).unwrap_or_else(|error| {
            faults.push(format!("tables cannot be compared: {error:#}"));
            Vec::new()
        });
        faults.extend(differences.iter().map(|(place, count)| format!("{count} differences {place}")));
        let kernel = kernel_changes(scene, monitor)?;
        faults.extend(kernel.iter().take(5).cloned());
        let (peer_flaps, down) = flaps(&scene.stock.sessions(), before.at, now());
        if options.kind.allowed() == (0, 0) {
            let at_stock = scene.at_stock.findings().into_iter();
            faults.extend(at_stock.map(|finding| format!("stock router: {finding}")));
            faults.extend(scene.at_feeder.findings().into_iter().map(|finding| format!("feeder: {finding}")));
        }
        let status = scene.feeder.status();
        let mut report = Report {
            kind: options.kind,
            peer: options.peer,
            routes: options.routes,
            seed: options.seed,
            kills: self.done,
            deaths: self.deaths(),
            measured: 0,
            detection: None,
            migration: None,
            tcp_recovery: None,
            application_recovery: None,
            total: None,
            peer_flaps,
            peer_downtime_s: down as f64 / 1e6,
            feeder_flaps: (status.sessions - before.feeder_sessions + u32::from(!status.established)).into(),
            wire: Wire::of(&counted(scene), &before.wire),
            passages: Passages::of(audits),
            miscounts: if options.kind.allowed() == (0, 0) { scene.miscounts()? } else { Vec::new() },
            differences: differences.iter().map(|(_, count)| count).sum(),
            kernel_changes: kernel.len(),
            nsr: scene.router.show(&["nsr"]).ok(),
            faults,
            ok: false,
        };
        let recovered = |serials: Serials| scene.at_stock.ask(|judge| judge.first_after(serials.feeder));
        let kills: Vec<_> =
            kills.iter().map(|(at, serials)| Kill { at: *at, recovered: recovered(*serials) }).collect();
        report.measure(&phases(&kills, &log));
        report.judge();
        Ok(report)
    }
}

/// Compares all tables, and again for a while if there are differences: the rib sweeps late what was not announced
/// again.
fn compare(scene: &Scene<'_>, patience: Duration) -> Result<Vec<(&'static str, usize)>> {
    let start = Instant::now();
    loop {
        let differences = scene.differences()?;
        if differences.is_empty() || start.elapsed() > patience {
            return Ok(differences);
        }
        std::thread::sleep(COMPARING);
    }
}

/// What the judges at the stock router and at the feeder have counted.
fn counted(scene: &Scene<'_>) -> [Counts; 2] {
    [&scene.at_stock, &scene.at_feeder].map(|watch| watch.ask(Judge::counts))
}

/// How often the session went down since `from`, and for how many microseconds it was down until `to`.
pub(super) fn flaps(sessions: &[(u64, Session)], from: u64, to: u64) -> (u64, u64) {
    let (mut flaps, mut down, mut since) = (0, 0, None);
    for &(at, session) in sessions.iter().filter(|(at, _)| *at >= from) {
        match session {
            // A second line about the same end.
            Session::Down if since.is_some() => {}
            Session::Down => (flaps, since) = (flaps + 1, Some(at)),
            Session::Up => down += since.take().map_or(0, |since| at.saturating_sub(since)),
        }
    }
    (flaps, down + since.map_or(0, |since| to.saturating_sub(since)))
}

/// What was done in the kernel to routes that nobody changed, and more deletions than withdrawals of the others.
fn kernel_changes(scene: &Scene<'_>, monitor: Monitor<'_>) -> Result<Vec<String>> {
    let fixed: HashSet<&Prefix> = scene.fixed().collect();
    let changes = monitor.changes()?;
    // Of a single address the length is not printed.
    let read = |word: &str| word.parse().ok().or_else(|| word.parse().ok().map(Prefix::host));
    let prefix = |line: &str| line.split(' ').find_map(read);
    let mut withdrawals = scene.stock_churn.now().withdrawals().clone();
    withdrawals.extend(scene.feeder_churn.now().withdrawals().clone());
    let mut wrong = Vec::new();
    for line in changes.deleted {
        let left = prefix(&line).and_then(|prefix| withdrawals.get_mut(&prefix));
        match left {
            Some(left) if *left > 0 => *left -= 1,
            Some(_) => wrong.push(line),
            None if prefix(&line).is_none_or(|prefix| fixed.contains(&prefix)) => wrong.push(line),
            // Of a table that the drill fed and withdrew.
            None => {}
        }
    }
    let written = changes.written.into_iter();
    wrong.extend(written.filter(|line| prefix(line).is_some_and(|prefix| fixed.contains(&prefix))));
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flaps_are_ends_after_the_beginning_and_last_until_the_next_session() {
        use Session::{Down, Up};
        let log = [(1, Up), (10, Down), (11, Down), (15, Up), (20, Down), (26, Up), (30, Down)];
        assert_eq!(flaps(&log, 5, 40), (3, 5 + 6 + 10));
        assert_eq!(flaps(&log, 16, 28), (2, 6));
        assert_eq!(flaps(&log[..1], 0, 40), (0, 0));
    }
}
