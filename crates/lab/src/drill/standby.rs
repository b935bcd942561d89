//! The death of a whole router, or of its host, under sessions that another one goes on with.
//!
//! ```text
//!  round: changes on both sides ── a death, under changes ── taken over ── settled ── everything protected again
//! ```
//! `drill keeper` kills all processes of a router, and has another one begin in the same network namespace. `drill container`
//! takes the namespace away as well: the other router is in one of its own, to and fro. The stage is a [`lan`], with four
//! stock routers ([`stock`]): one with an MD5 key, one over IPv6, one that only dials and one that only waits.
//!
//! Each announcement and withdrawal is of a prefix that is used once. So each has to come once to each other peer,
//! whatever dies ([`audit`]). Captures at all peers count what must not be there ([`judge`]).

pub mod audit;
pub mod dut;
pub mod judge;
pub mod lan;
pub mod peers;
pub mod report;
pub mod scene;
pub mod stock;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use self::{
    report::{Report, Times},
    scene::Scene,
};
use super::{pressure::Pressure, process::flaps, report::Wire, time::now};
use crate::{drill::judge::Counts, peers::Programs, shaper::Way, table::random::Random};

/// Between two changes: 100 prefixes are announced in a second by all stock routers together, and by the feeder, and as many
/// withdrawn.
const PACE: Duration = Duration::from_millis(250);
/// Changes before each failure, at most.
const LONGEST_PAUSE_MS: u32 = 1500;
/// A takeover takes about so long: a router that dies again does so within that time.
const TAKEOVER_MS: u32 = 150;
/// A commit takes about so long: the router dies within that time, or a little later.
const COMMITTING_MS: u32 = 400;
/// After a takeover that takes longer until the first segment, all that the router has logged is printed.
const SLOW: Duration = Duration::from_secs(1);
/// Changes behind a router that has woken up: what it has held would be on the wire by then.
const AFTER_WAKING: Duration = Duration::from_secs(2);
/// For a router that has woken up to see that it has lost the sessions.
const FENCING: Duration = Duration::from_secs(30);
/// How often the stage is set at most.
const ATTEMPTS: u32 = 3;
/// For the next router to take over.
const TAKING_OVER: Duration = Duration::from_secs(60);

/// What a drill is about.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// All processes of a router die.
    Keeper,
    /// Its host dies, too.
    Container,
}

/// Who waits for the sessions.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standby {
    /// Nobody: the next router is started when the one before has died.
    None,
    /// A router that has nothing yet.
    Cold,
    /// A router that has the routes.
    Preheated,
}

/// What a host is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// A network namespace.
    Netns,
    /// A container of Docker.
    Docker,
}

/// The wires of the stock routers.
#[derive(Copy, Clone, PartialEq, Debug, Default, Args, Serialize)]
pub struct Wires {
    /// Milliseconds from a stock router to the router and back.
    #[arg(long, default_value_t = 0)]
    pub delay: u32,
    /// Percentage of all frames from and to a stock router that are lost.
    #[arg(long, default_value_t = 0.0, value_parser = percentage)]
    pub loss: f64,
    /// Percentage of them that come twice.
    #[arg(long, default_value_t = 0.0, value_parser = percentage)]
    pub doubled: f64,
    /// Percentage of them that others overtake.
    #[arg(long, default_value_t = 0.0, value_parser = percentage)]
    pub overtaken: f64,
}

fn percentage(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.0..=50.0).contains(&number) { Ok(number) } else { Err("from 0 to 50".to_owned()) }
}

impl Wires {
    /// What happens to frames in each direction; `None` if nothing does.
    fn way(self) -> Option<Way> {
        let [lost, doubled, overtaken] =
            [self.loss, self.doubled, self.overtaken].map(|percentage| (percentage * 100.0).round() as u32);
        let way = Way { delay: Duration::from_millis(self.delay.into()) / 2, lost, doubled, overtaken };
        (way != Way::default()).then_some(way)
    }
}

/// Which processes of the router are stopped, instead of a death of all.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pause {
    /// All of them.
    All,
    /// The keeper and the manager, the gate, and the replicator, so that the lease ends. The gate is the first that wakes up
    /// behind the keeper.
    Gate,
    /// The keeper and the manager, which would have another one in its place, and the replicator.
    Replicator,
}

/// How a drill is done.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The stock routers.
    #[arg(long, value_enum)]
    pub peer: stock::Kind,
    /// Another router dies instead of ours, and is started again at once: nobody goes on with its sessions.
    #[arg(long, value_enum)]
    pub dut: Option<dut::Kind>,
    /// The directory that `scripts/current-peers` has made, to take today's stock routers from it; by default those of this
    /// machine's packages.
    #[arg(long)]
    pub programs: Option<PathBuf>,
    /// Who waits for the sessions.
    #[arg(long, value_enum, default_value = "none")]
    pub standby: Standby,
    /// What a host is.
    #[arg(long, value_enum, default_value = "netns")]
    pub engine: Engine,
    /// IPv4 routes of the feeder, which go to all stock routers; beside them a fifth as many IPv6 routes.
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(5..=1_000_000))]
    pub routes: u32,
    /// Each IPv4 route of the feeder has attributes of its own, with so many communities, and goes to no stock router: with 950,
    /// 275,000 routes are 1 GiB of a log.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=950))]
    pub communities: u32,
    /// How many routers die.
    #[arg(long, default_value_t = 100)]
    pub rounds: u32,
    /// Their wires.
    #[command(flatten)]
    pub wires: Wires,
    /// In a drill of the container: nothing dies. These processes are stopped until a standby has taken over. Then they go on,
    /// and nothing of theirs may be on the wire; after `takeover --reset` the router is the next standby.
    #[arg(long, value_enum)]
    pub pause: Option<Pause>,
    /// SIGKILL goes to the keeper alone; the others die with it.
    #[arg(long)]
    pub keeper_only: bool,
    /// The next router dies, too, while it takes over, and a third one goes on.
    #[arg(long)]
    pub again: bool,
    /// A commit is under way when the router dies. If the operator was told that it is in effect, the next router has it. There has
    /// to be a standby: a router that starts goes by its own file.
    #[arg(long)]
    pub commit: bool,
    /// Every second router is of this build.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "commit")]
    pub other_build: Option<PathBuf>,
    /// The judge is judged: the store is emptied before the first death. The drill must fail.
    #[arg(long)]
    pub forget: bool,
    /// Another seed gives other moments.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds after which no further router dies.
    #[arg(long, default_value_t = 7200)]
    pub limit: u64,
    /// The report as JSON, in the last line.
    #[arg(long)]
    pub json: bool,
}

impl Options {
    /// A drill of one death and few routes.
    pub fn short(peer: stock::Kind) -> Self {
        Self {
            peer,
            dut: None,
            programs: None,
            standby: Standby::None,
            engine: Engine::Netns,
            routes: 20_000,
            communities: 0,
            rounds: 1,
            wires: Wires::default(),
            pause: None,
            keeper_only: false,
            again: false,
            commit: false,
            other_build: None,
            forget: false,
            seed: 1,
            limit: 240,
            json: false,
        }
    }

    fn programs(&self) -> Programs {
        self.programs.clone().map_or(Programs::Machine, Programs::Tree)
    }
}

/// Runs a drill; prints how it goes on.
///
/// # Errors
/// The stage could not be set. What the router does wrong is in the report.
pub fn standby(kind: Kind, options: &Options) -> Result<Report> {
    ensure!(
        (kind, options.engine) != (Kind::Keeper, Engine::Docker),
        "in a container the router goes with its host: drill container"
    );
    if options.commit && options.standby == Standby::None {
        bail!("a commit is a drill with a standby");
    }
    if options.pause.is_some() && (kind != Kind::Container || options.standby == Standby::None) {
        bail!("a pause is a drill of the container with a standby");
    }
    let start = Instant::now();
    let scene = begin(kind, options)?;
    println!("all sessions are protected after {:.1} s", start.elapsed().as_secs_f64());
    let mut drill = Drill::begin(kind, options, scene)?;
    for number in 1..=options.rounds {
        if start.elapsed() > Duration::from_secs(options.limit) {
            let fault = format!("only {} of {} within {} s", number - 1, options.rounds, options.limit);
            drill.report.faults.push(fault);
            break;
        }
        if let Err(error) = drill.round() {
            drill.report.faults.push(format!("death {number}: {error:#}"));
            eprintln!("{}", drill.scene.logs());
            break;
        }
        println!("death {number} of {}: {}", options.rounds, drill.last);
    }
    drill.end()
}

/// A stage on which every peer has had one session. Where both sides dial at once, a peer may have seen the connection come up
/// that is given up (RFC 4271 section 6.8): then it is set once more.
fn begin(kind: Kind, options: &Options) -> Result<Scene> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let scene = Scene::start(kind, options)?;
        match scene.peers.ensure_quiet() {
            Err(error) if attempts < ATTEMPTS => println!("set once more: {error:#}"),
            quiet => return quiet.map(|()| scene),
        }
    }
}

/// A drill under way.
struct Drill<'a> {
    scene: Scene,
    options: &'a Options,
    random: Random,
    report: Report,
    /// What had been counted, and dropped for its signature, before the first failure.
    before: Before,
    /// How long anything had to wait for the machine during the last takeover.
    pressure: Option<Pressure>,
    /// How the last round went.
    last: String,
}

struct Before {
    at: u64,
    wire: Vec<Counts>,
    bad_signatures: u64,
}

impl<'a> Drill<'a> {
    fn begin(kind: Kind, options: &'a Options, scene: Scene) -> Result<Self> {
        let before = Before { at: now(), wire: counts(&scene), bad_signatures: bad_signatures(&scene)? };
        let (mut report, random) = (Report::new(kind, options), Random::new(options.seed));
        report.peer_version = options.peer.version(&options.programs())?;
        Ok(Self { scene, options, random, report, before, pressure: None, last: String::new() })
    }

    /// Changes until something is so.
    fn churn(&mut self, limit: Duration, mut is_over: impl FnMut(&Scene) -> bool) -> Result<bool> {
        let start = Instant::now();
        while start.elapsed() < limit {
            if is_over(&self.scene) {
                return Ok(true);
            }
            let next = Instant::now() + PACE;
            self.scene.peers.step()?;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(is_over(&self.scene))
    }

    fn round(&mut self) -> Result<()> {
        if self.options.standby != Standby::None {
            self.scene.prepare()?;
        }
        let packets = self.scene.packets()?;
        let pause = self.random.below(LONGEST_PAUSE_MS);
        self.churn(Duration::from_millis(pause.into()), |_| false)?;
        if self.options.forget && self.report.kills == 0 {
            self.scene.redis.cli(&["FLUSHALL"])?;
        }
        if self.options.commit {
            self.scene.begin_commit()?;
            let pause = self.random.below(COMMITTING_MS);
            std::thread::sleep(Duration::from_millis(pause.into()));
        }
        let again = self.options.again.then(|| Duration::from_millis(self.random.below(TAKEOVER_MS).into()));
        let before = Pressure::now();
        let at = match self.options.pause {
            Some(pause) => self.scene.pause(pause)?,
            None => self.scene.fail(self.options.keeper_only, again)?,
        };
        self.report.kills += 1;
        if self.options.pause.is_none() {
            self.report.deaths += 1 + u32::from(again.is_some());
        }
        let taken_over = self.take_over(at, before).and_then(|times| self.wake().map(|()| times));
        let count = packets.end();
        self.report.packets += count.sent;
        self.report.packets_lost += count.sent - count.received;
        let gap = count.gap.div_ceil(1000);
        self.report.forwarding_gap_ms = self.report.forwarding_gap_ms.max(gap);
        let times = taken_over?;
        self.scene.ensure_committed()?;
        self.report.count(times);
        if times.first_segment.is_none_or(|time| Duration::from_micros(time) > SLOW) {
            eprintln!("{}", self.scene.router.log());
        }
        let shown = |time: Option<u64>| time.map_or("-".to_owned(), |time| (time / 1000).to_string());
        self.last = format!(
            "lease {} ms, sessions {} ms, first segment {} ms, acknowledged {} ms, new route {} ms, all {} ms; \
             {} packets lost; {}",
            shown(times.detection),
            shown(times.start),
            shown(times.first_segment),
            shown(times.tcp),
            shown(times.bgp),
            times.total / 1000,
            count.sent - count.received,
            self.pressure.map_or_else(String::new, |pressure| pressure.to_string())
        );
        Ok(())
    }

    /// Has a router that was stopped go on under changes, and makes it a standby. No effect where none was.
    fn wake(&mut self) -> Result<()> {
        if self.options.pause.is_none() {
            return Ok(());
        }
        let epoch = self.scene.epoch()?;
        self.scene.resume()?;
        self.churn(AFTER_WAKING, |_| false)?;
        self.scene.until_fenced(FENCING)?;
        self.churn(AFTER_WAKING, |_| false)?;
        self.scene.peers.settle()?;
        self.scene.peers.ensure_quiet()?;
        self.scene.until_protected()?;
        ensure!(self.scene.epoch()? == epoch, "the store has another epoch than {epoch}");
        self.scene.reset()
    }

    /// Waits until the next router has taken over from the one that died at this time, and all is as it should be.
    fn take_over(&mut self, at: u64, before: Option<Pressure>) -> Result<Times> {
        let has_come = |scene: &Scene| {
            (0..scene.peers.stocks.len()).all(|stock| scene.peers.judge(stock).after.route.is_some())
        };
        if !self.churn(TAKING_OVER, has_come)? {
            bail!("no new route came through for {} s", TAKING_OVER.as_secs());
        }
        self.scene.peers.settle()?;
        let total = now() - at;
        self.pressure = before.and_then(|before| Some(Pressure::now()?.since(before)));
        // Each stock router changes something under the next router, too.
        self.churn(4 * PACE, |_| false)?;
        self.scene.peers.settle()?;
        self.scene.peers.ensure_quiet()?;
        self.scene.until_protected()?;
        self.scene.until_listens()?;
        let first = |of: fn(&judge::Judge) -> Option<u64>| {
            (0..self.scene.peers.judges()).filter_map(|peer| of(&self.scene.peers.judge(peer))).min()
        };
        let since = |time: Option<u64>| time.map(|time| time.saturating_sub(at));
        Ok(Times {
            detection: since(self.scene.logged("lease-taken", at)),
            start: since(self.scene.logged("sessions-restored", at)),
            first_segment: since(first(|judge| judge.after.segment)),
            tcp: since(first(|judge| judge.after.acknowledged)),
            bgp: since(first(|judge| judge.after.route)),
            total,
        })
    }

    fn end(self) -> Result<Report> {
        let Self { mut scene, mut report, before, .. } = self;
        // What was seen comes through a pipe.
        std::thread::sleep(Duration::from_millis(200));
        for stock in &scene.peers.stocks {
            let (flaps, down) = flaps(&stock.sessions(), before.at, now());
            report.peer_flaps += flaps;
            report.peer_downtime_s += down as f64 / 1e6;
            report
                .faults
                .extend(stock.findings().into_iter().map(|found| format!("{}: {found}", stock.name)));
            if let Err(error) = stock.ensure_quiet() {
                report.faults.push(format!("{error:#}"));
            }
        }
        report
            .faults
            .extend(scene.peers.at_feeder.findings().into_iter().map(|found| format!("feeder: {found}")));
        let status = scene.peers.feeder.status();
        report.feeder_flaps = u64::from(status.sessions - 1 + u32::from(!status.established));
        report.wire = Wire::of(&counts(&scene), &before.wire);
        for at in 0..scene.peers.judges() {
            let judge = scene.peers.judge(at);
            if report.wire.syn + report.wire.fin + report.wire.rst > 0 {
                let marked = judge.marked_since(before.at).map(|marked| format!("on the wire: {marked}"));
                report.faults.extend(marked);
            }
            report.unreachable += judge.unreachable;
            report.stale_segments += judge.stale;
        }
        report.passages = scene.peers.audit();
        report.bad_signatures = bad_signatures(&scene)? - before.bad_signatures;
        match scene.differences() {
            Ok(differences) => report.differences = differences,
            Err(error) => report.faults.push(format!("the kernel's table: {error:#}")),
        }
        match scene.epoch() {
            Ok(epoch) => report.epoch = epoch,
            Err(error) => report.faults.push(format!("the epoch: {error:#}")),
        }
        report.nsr = scene.router.show(&["nsr"]).ok();
        report.frames = scene.peers.end_wires();
        report.judge();
        Ok(report)
    }
}

fn counts(scene: &Scene) -> Vec<Counts> {
    (0..scene.peers.judges()).map(|at| scene.peers.judge(at).counts.clone()).collect()
}

fn bad_signatures(scene: &Scene) -> Result<u64> {
    scene.peers.stocks.iter().map(stock::Stock::bad_signatures).sum::<Result<u64>>().context("signatures")
}
