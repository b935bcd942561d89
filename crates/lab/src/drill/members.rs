//! A route server with hundreds of members, under everything that an operator does to it and a little more.
//!
//! Each member has a view and an export policy of its own ([`crate::members`]). After each step all members have all routes,
//! by their latest policy, over the sessions of the beginning. Of each step is printed how long it took until a route that a
//! member announces after it is at all others, and until `bgp` is quiet; what processor time that took; how late KEEPALIVEs
//! came; and how long an operator waited who asked `show bgp summary` all the time.
//!
//! A *fault* is what no machine excuses: a session lost, a process killed as hung, a route that is missing. A *miss* is a
//! goal of a quiet machine that was not reached. `--strict` makes faults of them.

mod asker;
mod scene;

use std::{collections::BTreeMap, fmt, time::Duration};

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use scene::Scene;

/// What a drill is.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Members of the exchange.
    #[arg(long, default_value_t = 300)]
    pub members: usize,
    /// Prefixes of each.
    #[arg(long, default_value_t = 200)]
    pub prefixes: usize,
    /// Hold time that the members offer, in seconds.
    #[arg(long, default_value_t = 9)]
    pub hold_time: u16,
    /// Members that change their policies at the same time.
    #[arg(long, default_value_t = 64)]
    pub changes: usize,
    /// How often a member flaps.
    #[arg(long, default_value_t = 5)]
    pub flaps: usize,
    /// Seconds that a step may take.
    #[arg(long, default_value_t = 300)]
    pub limit: u64,
    /// Only these steps, in this order.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<Step>,
    /// Goals that are missed are faults.
    #[arg(long)]
    pub strict: bool,
    /// The report as JSON, in the last line.
    #[arg(long)]
    pub json: bool,
}

/// What is done to the router.
#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// The members connect and exchange their routes.
    Exchange,
    /// SIGKILL to `bgp`.
    Kill,
    /// SIGSTOP to `bgp`, until the keeper kills it.
    Hang,
    /// An upgrade to a copy of the same build.
    Upgrade,
    /// A reload of `max-paths`, which replaces `bgp`.
    MaxPaths,
    /// A reload that changes the export policy of each member.
    AllPolicies,
    /// Many reloads one after the other without a pause, each of which changes the policy of one member.
    OnePolicyEach,
    /// A member's connection ends, and it connects again, several times.
    Flap,
}

impl Step {
    const ALL: [Self; 7] = [
        Self::Kill,
        Self::Hang,
        Self::Upgrade,
        Self::MaxPaths,
        Self::AllPolicies,
        Self::OnePolicyEach,
        Self::Flap,
    ];

    /// Another `bgp` takes the sessions over.
    fn is_takeover(self) -> bool {
        match self {
            Self::Kill | Self::Hang | Self::Upgrade | Self::MaxPaths => true,
            Self::Exchange | Self::AllPolicies | Self::OnePolicyEach | Self::Flap => false,
        }
    }

    /// Nobody answers until the keeper has waited for `hang-limit`.
    fn is_silent(self) -> bool {
        self == Self::Hang
    }
}

/// How long an operator waited for answers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Asked {
    /// Questions that were due, one each 50 ms.
    pub asked: usize,
    /// The median, in milliseconds.
    pub p50_ms: u64,
    /// Of a hundred questions one took longer.
    pub p99_ms: u64,
    /// The longest.
    pub max_ms: u64,
    /// Questions to which an error came.
    pub failed: usize,
    /// The first of these.
    pub error: Option<String>,
}

/// What came of a step.
#[derive(Clone, Debug, Serialize)]
pub struct Played {
    /// Which.
    pub step: Step,
    /// Until the command was over that did it, in milliseconds.
    pub command_ms: u64,
    /// Until all members had all routes and one that was announced after the command.
    pub routes_ms: u64,
    /// Until `bgp` was quiet after that.
    pub quiet_ms: u64,
    /// Processor time of `bgp`: of its whole life if it is another one.
    pub cpu_ms: u64,
    /// Prefixes announced to all members.
    pub announced: u64,
    /// Prefixes withdrawn from all members.
    pub withdrawn: u64,
    /// The latest message of the router to a member, in milliseconds after a third of the hold time.
    pub late_ms: u64,
    /// The operator.
    pub summary: Asked,
    /// Longest turn of each process, in microseconds of processor time, since it began.
    pub longest_turn_us: BTreeMap<String, u64>,
    /// The end of the range of the histogram that has the median turn of each process, in the same way.
    pub median_turn_us: BTreeMap<String, u64>,
    /// Processes killed as hung.
    pub hung: u64,
    /// Sessions lost.
    pub lost: u64,
}

/// What a drill found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Members.
    pub members: usize,
    /// Prefixes of each.
    pub prefixes: usize,
    /// By steps.
    pub played: Vec<Played>,
    /// What is not as it must be.
    pub faults: Vec<String>,
    /// What is not as it is on a quiet machine.
    pub missed: Vec<String>,
    /// Nothing is as it must not be.
    pub ok: bool,
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, command_ms, routes_ms, quiet_ms, cpu_ms, announced, withdrawn, .. } = self;
        let Asked { asked, p50_ms, p99_ms, max_ms, failed, ref error } = self.summary;
        let turns = |turns: &BTreeMap<String, u64>| {
            turns.iter().map(|(name, turn)| format!("{name} {turn}")).collect::<Vec<_>>().join(", ")
        };
        write!(
            f,
            "{step:?}: command {command_ms} ms, all routes {routes_ms} ms, quiet {quiet_ms} ms, bgp {cpu_ms} ms of processor \
             time; announced {announced}, withdrawn {withdrawn}; latest message {} ms; summary asked {asked} times: p50 \
             {p50_ms}, p99 {p99_ms}, max {max_ms} ms, {failed} failed {}; hung {}, lost {}; longest turns (us): {}; median turns, at most: {}",
            self.late_ms,
            error.as_deref().map(|error| format!("({error})")).unwrap_or_default(),
            self.hung,
            self.lost,
            turns(&self.longest_turn_us),
            turns(&self.median_turn_us)
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} members with {} prefixes each", self.members, self.prefixes)?;
        self.played.iter().try_for_each(|played| writeln!(f, "  {played}"))?;
        self.missed.iter().try_for_each(|missed| writeln!(f, "  missed: {missed}"))?;
        self.faults.iter().try_for_each(|fault| writeln!(f, "  fault: {fault}"))?;
        write!(f, "{}", if self.ok { "ok" } else { "FAILED" })
    }
}

/// An answer comes so soon, 99 of 100.
const SUMMARY_P99: u64 = 200;
/// And all of them.
const SUMMARY_MAX: u64 = 1_000;
/// The longest turn, in microseconds.
const TURN: u64 = 10_000;
/// The median of turns.
const MEDIAN_TURN: u64 = 2_000;
/// KEEPALIVEs.
const LATE: u64 = 100;
/// A takeover takes at most so many times the processor time of the first exchange.
const TAKEOVER: u64 = 2;
/// Until members are back after the death of `bgp`: up to 300 of them, and more.
const BACK: [u64; 2] = [1_000, 3_000];
/// What is said of that to the first is said up to here.
const FEW: usize = 300;

impl Played {
    /// Goals that it has missed.
    fn missed(&self, members: usize, exchange: Option<u64>) -> Vec<String> {
        let mut missed = Vec::new();
        let mut goal = |what: &str, found: u64, most: u64| {
            if found > most {
                missed.push(format!("{:?}: {what} {found}, at most {most}", self.step));
            }
        };
        if !self.step.is_silent() {
            goal("p99 of the summary (ms)", self.summary.p99_ms, SUMMARY_P99);
            goal("longest answer of the summary (ms)", self.summary.max_ms, SUMMARY_MAX);
            goal("latest message (ms)", self.late_ms, LATE);
        }
        for (process, turn) in &self.longest_turn_us {
            goal(&format!("longest turn of {process} (us)"), *turn, TURN);
        }
        for (process, turn) in &self.median_turn_us {
            goal(&format!("median turn of {process} (us)"), *turn, MEDIAN_TURN);
        }
        if let Some(exchange) = exchange
            && self.step.is_takeover()
        {
            goal("processor time of the takeover (ms)", self.cpu_ms, TAKEOVER * exchange);
        }
        if self.step == Step::Kill {
            goal("until members are back (ms)", self.routes_ms, BACK[usize::from(members > FEW)]);
        }
        missed
    }
}

/// Runs a drill; prints how it goes on.
///
/// # Errors
/// The stage could not be set. What the router does wrong is in the report.
pub fn members(options: &Options) -> Result<Report> {
    let mut scene = Scene::new(options)?;
    let mut report = Report {
        members: options.members,
        prefixes: options.prefixes,
        played: Vec::new(),
        faults: Vec::new(),
        missed: Vec::new(),
        ok: false,
    };
    let steps = if options.only.is_empty() { &Step::ALL[..] } else { &options.only[..] };
    let mut exchange = None;
    for step in std::iter::once(Step::Exchange).chain(steps.iter().copied()) {
        let played = match scene.play(step, Duration::from_secs(options.limit)) {
            Ok(played) => played,
            Err(error) => {
                report
                    .faults
                    .push(format!("{step:?}: {error:#}; sessions lost so far: {}", scene.why_lost()));
                eprintln!("{}", scene.log_tail());
                break;
            }
        };
        println!("{step:?}: all routes after {} ms", played.routes_ms);
        let expected = u64::from(step == Step::Hang);
        if played.hung != expected {
            report.faults.push(format!("{step:?}: {} processes were killed as hung", played.hung));
        }
        if played.lost > 0 {
            report.faults.push(format!("{step:?}: {} sessions were lost: {}", played.lost, scene.why_lost()));
        }
        let Asked { failed, error, .. } = &played.summary;
        if *failed > 0 {
            let error = error.as_deref().unwrap_or_default();
            report.faults.push(format!("{step:?}: {failed} questions were not answered: {error}"));
        }
        report.missed.extend(played.missed(options.members, exchange));
        if step == Step::Exchange {
            exchange = Some(played.cpu_ms);
        }
        report.played.push(played);
    }
    report.faults.extend(scene.wrong());
    if options.strict {
        report.faults.append(&mut report.missed);
    }
    report.ok = report.faults.is_empty();
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(step: Step) -> Played {
        Played {
            step,
            command_ms: 0,
            routes_ms: 1_500,
            quiet_ms: 0,
            cpu_ms: 250,
            announced: 0,
            withdrawn: 0,
            late_ms: 101,
            summary: Asked { p99_ms: 201, max_ms: 1_001, ..Asked::default() },
            longest_turn_us: [("bgp".to_owned(), 10_001), ("rib".to_owned(), 10_000)].into(),
            median_turn_us: [("bgp".to_owned(), 2_000)].into(),
            hung: 0,
            lost: 0,
        }
    }

    #[test]
    fn what_a_quiet_machine_reaches_is_a_goal_where_it_can_be_one() {
        assert_eq!(played(Step::Kill).missed(300, Some(100)).len(), 6);
        assert_eq!(played(Step::Kill).missed(301, Some(100)).len(), 5, "more members have more time");
        assert_eq!(played(Step::Kill).missed(300, Some(125)).len(), 5, "twice is enough");
        assert_eq!(played(Step::Flap).missed(300, Some(100)).len(), 4, "nobody takes over");
        assert_eq!(played(Step::Hang).missed(300, Some(100)).len(), 2, "nobody is there to answer");
        let slow = Played { median_turn_us: [("bgp".to_owned(), 5_000)].into(), ..played(Step::Flap) };
        assert_eq!(slow.missed(300, Some(100)).len(), 5);
    }
}
