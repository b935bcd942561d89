//! Deaths, hangs and upgrades of `bfd` under sessions with stock routers, which must not notice ([`Scene`]).

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::process::Signal;
use serde::Serialize;

use crate::{
    bfd::scene::{Counts, NAMES, Scene},
    table::random::Random,
};

/// Between two kills at most, once all is as it should be.
const LONGEST_PAUSE_MS: u32 = 500;
/// Kills are for sessions of 300 ms × 3, hangs for those of 600 ms × 3.
const INTERVALS: [u32; 2] = [300, 600];

/// What a drill is.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// How often `bfd` is killed.
    #[arg(long, default_value_t = 100)]
    pub kills: u32,
    /// How often it is stopped, until the keeper kills it.
    #[arg(long, default_value_t = 10)]
    pub hangs: u32,
    /// How often the router is upgraded, there and back in turn.
    #[arg(long, default_value_t = 4)]
    pub upgrades: u32,
    /// Another seed gives other moments.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds after which no further kill is made.
    #[arg(long, default_value_t = 1500)]
    pub limit: u64,
    /// The judge is judged: a neighbour falls silent before the first kill. The drill must fail.
    #[arg(long)]
    pub silence: bool,
    /// The report as JSON, in the last line.
    #[arg(long)]
    pub json: bool,
}

/// What is done to `bfd`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// SIGKILL.
    Kill,
    /// An upgrade of the router.
    Upgrade,
    /// SIGSTOP.
    Hang,
}

/// What came of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// What was done.
    pub kind: Kind,
    /// How often.
    pub times: u32,
    /// Of the sessions: the interval in milliseconds, three of which are the detection time.
    pub interval_ms: u32,
    /// The longest time until another process was there, in milliseconds, by asking the router.
    pub slowest_ms: u64,
    /// The longest time in which a neighbour heard nothing of us, in milliseconds.
    pub silence_ms: u64,
    /// How often sessions were down, by those at the other ends.
    pub downs: [u64; 4],
}

/// What a drill found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Seed of all chance.
    pub seed: u64,
    /// Who is at the other ends, in the order of `downs`.
    pub peers: [&'static str; 4],
    /// By what was done.
    pub series: Vec<Series>,
    /// What is not as it must be.
    pub faults: Vec<String>,
    /// Nothing is.
    pub ok: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Series { kind, times, interval_ms, slowest_ms, silence_ms, downs } in &self.series {
            writeln!(
                f,
                "{times} of {kind:?} under {interval_ms} ms × 3: another process after {slowest_ms} ms, silent for \
                 {silence_ms} ms at most; sessions down: {downs:?}"
            )?;
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "  {fault}"))?;
        write!(f, "{}", if self.ok { "ok" } else { "FAILED" })
    }
}

/// Runs a drill; prints how it goes on.
///
/// # Errors
/// The stage could not be set. What the router does wrong is in the report.
pub fn bfd(options: &Options) -> Result<Report> {
    let (mut random, start) = (Random::new(options.seed), Instant::now());
    let mut report =
        Report { seed: options.seed, peers: NAMES, series: Vec::new(), faults: Vec::new(), ok: false };
    let [fast, slow] = INTERVALS;
    let parts: [(u32, &[(Kind, u32)]); 2] = [
        (fast, &[(Kind::Kill, options.kills), (Kind::Upgrade, options.upgrades)]),
        (slow, &[(Kind::Hang, options.hangs)]),
    ];
    for (interval, kinds) in parts {
        let scene = Scene::new(interval).context("setting the stage")?;
        for (kind, times) in kinds {
            let mut series = Series {
                kind: *kind,
                times: 0,
                interval_ms: interval,
                slowest_ms: 0,
                silence_ms: 0,
                downs: [0; 4],
            };
            let limit = start + Duration::from_secs(options.limit);
            let played = scene.counts().and_then(|before| {
                if options.silence {
                    scene.silence_puppet(Duration::from_millis(u64::from(interval) * 6));
                }
                play(&scene, before, *times, limit, &mut random, &mut series, &mut report.faults)
            });
            if let Err(error) = played {
                report.faults.push(format!("{kind:?} number {}: {error:#}", series.times + 1));
                eprintln!("{}", scene.router.log_tail());
            }
            println!("{} of {kind:?}: {} s since the beginning", series.times, start.elapsed().as_secs());
            report.series.push(series);
        }
    }
    report.ok = report.faults.is_empty();
    Ok(report)
}

/// Does it so many times, each time until all is as before.
fn play(
    scene: &Scene,
    before: Counts,
    times: u32,
    limit: Instant,
    random: &mut Random,
    series: &mut Series,
    faults: &mut Vec<String>,
) -> Result<()> {
    scene.longest_silence();
    for number in 0..times {
        ensure!(Instant::now() < limit, "no more in time");
        std::thread::sleep(Duration::from_millis(random.below(LONGEST_PAUSE_MS).into()));
        let took = match series.kind {
            Kind::Kill => scene.replace_by(Signal::KILL)?,
            Kind::Hang => scene.replace_by(Signal::STOP)?,
            Kind::Upgrade => {
                scene.until_protected()?;
                let begin = Instant::now();
                scene.upgrade(number % 2 == 1)?;
                begin.elapsed()
            }
        };
        scene.until_packets()?;
        series.times += 1;
        series.slowest_ms = series.slowest_ms.max(took.as_millis() as u64);
        series.silence_ms = series.silence_ms.max(scene.longest_silence().as_millis() as u64);
    }
    faults.extend(scene.faults(before)?.into_iter().map(|fault| format!("{:?}: {fault}", series.kind)));
    let now = scene.counts()?.downs;
    series.downs = std::array::from_fn(|end| now[end] - before.downs[end]);
    Ok(())
}
