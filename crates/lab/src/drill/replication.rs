//! Failures of the store and of what stands between a router and its peers: nothing leaves that the store does not have, and
//! nobody notices.
//!
//! ```text
//!  round: changes on both sides ── a failure, under changes ── mended ── everything protected again ── judged
//! ```
//! `drill store` and `drill gate` go through their lists of failures ([`Failure`]) in turn. The stage is that of
//! [`crate::replication`]: four stock routers, one of them with an MD5 key, one over IPv6, two that are dialled by one side
//! only, and a feeder with a whole table. All captures are judged after each round.

mod failures;
mod report;
mod strangers;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{stock, time::now};
use crate::{
    replication::{
        judge::Verdict,
        scene::{OTHERS, Scene, Set},
        stock::{COUNT, Special, Stock},
    },
    table::{Table, random::Random},
    wait,
};
pub use report::{Report, Series};

/// How long a store may be away or a whole table be on its way before the drill gives up.
const LIMIT: Duration = Duration::from_secs(120);
/// For which a store is waited for, in seconds.
const STORE_TIMEOUT: u64 = 10;
/// The feeder changes 50 routes, so each stock router is told of 200 a second; and one of these changes 200 of its own.
const PACE: Duration = Duration::from_millis(250);
/// Routes of the feeder that take each other's places.
const MOVING: u16 = 25;
/// Changes before each failure, at most.
const LONGEST_PAUSE_MS: u32 = 1500;
/// How often the stage is set at most.
const ATTEMPTS: u32 = 3;

/// What a drill is about.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// What may happen to a store.
    Store,
    /// What may happen to who holds segments, and to connections whose segments are held.
    Gate,
}

/// What is done.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// The store answers 1 ms later.
    #[value(name = "slow-1")]
    Slow1,
    /// 20 ms.
    #[value(name = "slow-20")]
    Slow20,
    /// 500 ms.
    #[value(name = "slow-500")]
    Slow500,
    /// SIGSTOP, for a while.
    Stopped,
    /// kill -9, and another server that is empty.
    Empty,
    /// `FLUSHALL`.
    Flushed,
    /// `SCRIPT FLUSH`.
    Forgetful,
    /// `maxmemory` is reached.
    Full,
    /// A reply is cut in its middle, and the connection ends.
    Cut,
    /// What goes to the store is lost on its way.
    PartedTo,
    /// What comes from the store is lost on its way.
    PartedFrom,
    /// The store wants a password, and the router has none.
    Password,
    /// Other data is under our keys.
    OtherData,
    /// It goes on without the last writes, as a replica that was promoted.
    Promoted,
    /// The clock of the store is an hour wrong.
    Clock,
    /// SIGKILL of `gate`.
    KillGate,
    /// SIGKILL of `replicator`.
    KillReplicator,
    /// `nft flush ruleset`, while the store is slow.
    FlushRules,
    /// Another program wants the packet queue.
    OtherQueue,
    /// `gate` dies, and another program takes the packet queue for a while.
    TakenQueue,
    /// Resets of connections that nobody knows.
    StrangerReset,
    /// The peer's program dies while acknowledgements are held.
    PeerFin,
    /// The peer's kernel tears the connection down meanwhile.
    PeerReset,
    /// The peer ends the session in order meanwhile.
    PeerNotification,
    /// A peer reads nothing for a while.
    ZeroWindow,
}

impl Failure {
    /// Those of a drill.
    pub fn all(kind: Kind) -> &'static [Self] {
        match kind {
            Kind::Store => &[
                Self::Slow1,
                Self::Slow20,
                Self::Slow500,
                Self::Stopped,
                Self::Empty,
                Self::Flushed,
                Self::Forgetful,
                Self::Full,
                Self::Cut,
                Self::PartedTo,
                Self::PartedFrom,
                Self::Password,
                Self::OtherData,
                Self::Promoted,
                Self::Clock,
            ],
            Kind::Gate => &[
                Self::KillGate,
                Self::KillReplicator,
                Self::FlushRules,
                Self::OtherQueue,
                Self::TakenQueue,
                Self::StrangerReset,
                Self::PeerFin,
                Self::PeerReset,
                Self::PeerNotification,
                Self::ZeroWindow,
            ],
        }
    }

    /// Whether a session ends by it.
    pub fn ends_session(self) -> bool {
        matches!(self, Self::PeerFin | Self::PeerReset | Self::PeerNotification)
    }
}

/// How a drill is done.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The stock routers.
    #[arg(long, value_enum)]
    pub peer: stock::Kind,
    /// IPv4 routes of the feeder, which go to all stock routers; beside them a fifth as many IPv6 routes.
    #[arg(long, default_value_t = 500_000)]
    pub routes: u32,
    /// How many failures, those of the list in turn.
    #[arg(long, default_value_t = 100)]
    pub rounds: u32,
    /// This failure alone.
    #[arg(long, value_enum)]
    pub only: Option<Failure>,
    /// Seconds for which a store, or a third of it for which a peer, is stopped.
    #[arg(long, default_value_t = 30)]
    pub stop: u64,
    /// Another seed gives other moments.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds after which no further failure is made.
    #[arg(long, default_value_t = 7200)]
    pub limit: u64,
    /// The judge is judged: as if the store had confirmed everything so many milliseconds later. With more than 0 the drill must
    /// fail.
    #[arg(long, default_value_t = 0)]
    pub late: u64,
    /// The report as JSON, in the last line.
    #[arg(long)]
    pub json: bool,
}

/// Runs a drill; prints how it goes on.
///
/// # Errors
/// The stage could not be set. What the router does wrong is in the report.
pub fn replication(kind: Kind, options: &Options) -> Result<Report> {
    let start = Instant::now();
    let mut drill = Drill::begin(kind, options)?;
    println!("all sessions are protected after {:.1} s", start.elapsed().as_secs_f64());
    let all = options.only.as_ref().map_or(Failure::all(kind), std::slice::from_ref);
    for number in 0..options.rounds {
        if start.elapsed() > Duration::from_secs(options.limit) {
            drill
                .report
                .faults
                .push(format!("only {number} of {} within {} s", options.rounds, options.limit));
            break;
        }
        let failure = all[number as usize % all.len()];
        drill.doing = format!("number {number}, {failure:?}");
        println!("{}", drill.doing);
        if let Err(error) = drill.round(failure) {
            drill.report.faults.push(format!("{}: {error:#}", drill.doing));
            eprintln!("{}", drill.scene.trouble());
            break;
        }
    }
    drill.end()
}

/// A time, in microseconds since 1970.
type Time = (u64, u64);

/// What comes of a failure, beside what the judge sees.
#[derive(Debug)]
struct Outcome {
    /// When it was mended.
    mended: u64,
    /// When nothing was protected, and everybody was told so.
    unprotected: Option<Time>,
    /// The session with a stock router that has ended: which router, and the number in the log.
    ended: Option<(usize, u32)>,
}

/// A drill under way.
struct Drill<'a> {
    scene: Scene,
    options: &'a Options,
    random: Random,
    report: Report,
    /// What the feeder announces beside what stays.
    moving: Arc<Table>,
    steps: usize,
    /// What is done now, in words.
    doing: String,
}

/// Every stock router has had one connection, which was begun by whom it should.
fn ensure_begun(scene: &Scene) -> Result<()> {
    for stock in &scene.stocks {
        let is_dialled = stock.capture.stream(stock.address)?.is_dialled;
        let is_right = match stock.special {
            Special::V6 | Special::Waits => !is_dialled,
            Special::Dials => is_dialled,
            Special::Nothing | Special::Md5 => true,
        };
        ensure!(is_right, "{}: dialled by the router: {is_dialled}", stock.name);
    }
    Ok(())
}

impl<'a> Drill<'a> {
    fn begin(kind: Kind, options: &'a Options) -> Result<Self> {
        let more = format!("store-timeout = {STORE_TIMEOUT}");
        let moving = Arc::new(Table::of_24s(9, MOVING));
        let stage = || {
            let mut scene = Scene::open(&Set {
                peers: options.peer,
                specials: &[Special::Md5, Special::V6, Special::Waits, Special::Dials],
                more: &more,
                routes: options.routes,
                limit: LIMIT,
                clock: kind == Kind::Store,
                ..Set::default()
            })?;
            scene.other.announce(Arc::clone(&moving));
            scene.until_gated()?;
            Ok::<_, anyhow::Error>(scene)
        };
        let mut attempts = 0;
        let scene = loop {
            attempts += 1;
            let scene = stage()?;
            match ensure_begun(&scene) {
                // Where both sides dial at once, one connection is given up (RFC 4271 section 6.8).
                Err(error) if attempts < ATTEMPTS => println!("set once more: {error:#}"),
                begun => {
                    begun?;
                    break scene;
                }
            }
        };
        let report = Report::new(kind, options, scene.stocks.len());
        let random = Random::new(options.seed);
        Ok(Self { scene, options, random, report, moving, steps: 0, doing: String::new() })
    }

    /// Changes for a while: 200 a second from all stock routers together, and to each of them.
    fn churn(&mut self, duration: Duration) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < duration {
            let next = Instant::now() + PACE;
            self.step()?;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        self.steps += 1;
        let stock = &self.scene.stocks[self.steps % self.scene.stocks.len()];
        stock.change(stock.version() + 1)?;
        let new = Arc::new(Table::of_24s(10 + (self.steps % 200) as u8, MOVING));
        let old = std::mem::replace(&mut self.moving, Arc::clone(&new));
        self.scene.other.replace(old, new);
        Ok(())
    }

    fn round(&mut self, failure: Failure) -> Result<()> {
        let pause = self.random.below(LONGEST_PAUSE_MS);
        self.churn(Duration::from_millis(pause.into()))?;
        let start = now();
        let outcome = self.make(failure)?;
        self.scene.until_protected("full", LIMIT)?;
        let full = now();
        self.churn(4 * PACE)?;
        self.settle()?;
        let end = now();
        let times = match outcome.unprotected {
            Some((from, _)) => vec![(start, from), (full, end)],
            None => vec![(start, end)],
        };
        self.judge(&times, outcome.ended, full)?;
        let first =
            |stock: &Stock| stock.capture.streams(stock.address).pop()?.acknowledged_after(outcome.mended);
        let recovered = self.scene.stocks.iter().filter_map(first).min();
        let recovered = recovered.context("nothing was acknowledged any more")?;
        self.report.count(failure, recovered - outcome.mended);
        Ok(())
    }

    /// Waits until the last changes are everywhere.
    fn settle(&self) -> Result<()> {
        for stock in &self.scene.stocks {
            let sign = stock.sign(stock.version());
            wait::until("the last route of a stock router", LIMIT, || {
                let shown =
                    self.scene.router.cli(&["show", "route", &sign]).map_err(|error| error.to_string())?;
                if shown.contains(&sign) { Ok(()) } else { Err(shown) }
            })
            .with_context(|| stock.log())?;
            let expected = self.expected(stock.special);
            wait::until("the routes of the feeder", LIMIT, || match stock.received() {
                Ok(found) if found == expected => Ok(()),
                other => Err(format!("{other:?} of {expected}")),
            })
            .with_context(|| stock.name.clone())?;
        }
        Ok(())
    }

    /// Routes that a stock router has from the router: those of the feeder, and those of the others of its family.
    fn expected(&self, special: Special) -> u64 {
        let is_v6 = |special: Special| special == Special::V6;
        let others = self.scene.stocks.iter().filter(|stock| is_v6(stock.special) == is_v6(special)).count()
            as u64
            - 1;
        let each = COUNT as u64;
        match special {
            Special::V6 => others * each + u64::from(self.options.routes / 5),
            _ => others * each + u64::from(self.options.routes) + u64::from(OTHERS + MOVING),
        }
    }

    /// Judges what came to all peers.
    fn judge(&mut self, times: &[Time], ended: Option<(usize, u32)>, full: u64) -> Result<()> {
        // What was seen comes through a pipe.
        std::thread::sleep(Duration::from_millis(200));
        let late = self.options.late * 1000;
        let book = self.scene.book()?;
        let mut verdicts: Vec<(String, Verdict)> = Vec::new();
        for (at, stock) in self.scene.stocks.iter().enumerate() {
            let connections = stock.capture.streams(stock.address);
            let session = book.session(stock.address).context("a session in the store")?;
            let ended = ended.filter(|(which, _)| *which == at);
            // Both sides may have dialled: the other one was given up.
            let last = connections.iter().rfind(|connection| connection.fins + connection.resets == 0);
            let last = last.context("a connection")?;
            // Before all are gated again the new one is not.
            let of_last = if ended.is_some() { vec![(full, now())] } else { times.to_vec() };
            verdicts.push((stock.name.clone(), last.judge_as(session, &book, &of_last, late)));
            if let Some((_, session)) = ended {
                // What comes to a peer that has ended it does no harm.
                let (start, _) = *times.first().context("a time")?;
                let before = connections.iter().rfind(|connection| connection.begun() < start);
                let before = before.context("the connection before")?;
                let until = before.ended_by_peer().context("the peer has not ended the connection")?;
                let verdict = before.judge_as(session, &book, &[(start, until)], late);
                verdicts.push((format!("{}, before its end", stock.name), verdict));
            }
        }
        let address = self.scene.other_address();
        verdicts.push(("feeder".to_owned(), self.scene.at_other.stream(address)?.judge(&book, times, late)?));
        drop(book);
        for (name, verdict) in verdicts {
            self.report.segments += verdict.judged;
            self.report.stale_segments += verdict.stale;
            let Verdict { faults, more, .. } = verdict;
            let place = format!("{}, {name}", self.doing);
            self.report.faults.extend(faults.into_iter().map(|fault| format!("{place}: {fault}")));
            if more > 0 {
                self.report.faults.push(format!("{place}: {more} more"));
            }
        }
        Ok(())
    }

    fn end(self) -> Result<Report> {
        let Self { scene, mut report, .. } = self;
        let mut faults = Vec::new();
        for (at, stock) in scene.stocks.iter().enumerate() {
            let sessions = stock.sessions().unwrap_or(0);
            report.peer_flaps += sessions.saturating_sub(1) as u64;
            let expected = 1 + report.ends[at];
            if sessions != expected {
                faults.push(format!("{}: {sessions} sessions, not {expected}: {}", stock.name, stock.log()));
            }
            for connection in stock.capture.streams(stock.address) {
                report.fin += connection.fins;
                report.rst += connection.resets;
            }
        }
        report.feeder_flaps = u64::from(scene.other.status().sessions).saturating_sub(1);
        report.nsr = scene.router.show(&["nsr"]).ok();
        report.epoch = epoch(&scene)?;
        report.faults.extend(faults);
        report.judge();
        Ok(report)
    }
}

/// How many replicators have had the lease.
fn epoch(scene: &Scene) -> Result<u64> {
    epoch_in(&scene.show()?)
}

/// The epoch in what a replicator says.
pub(super) fn epoch_in(shown: &str) -> Result<u64> {
    let (_, rest) = shown.split_once("epoch:u64=").with_context(|| shown.to_owned())?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Ok(digits.parse()?)
}
