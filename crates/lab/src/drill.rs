//! Drills: failures made on purpose, judged from outside.
//!
//! `holdfast-lab drill process` has `bgp` die in one of several ways while a stock router and a feeder change routes
//! all the time ([`scene`]). Whether anybody noticed is read from the stock router's own log ([`stock`]), from a
//! capture of both sessions ([`watch`], [`judge`]), in which each UPDATE of one peer is looked for in what the other
//! was told ([`record`], [`audit`]), from everybody's tables and from the kernel. How long each part of a recovery took
//! is in the router's log and in the capture ([`phases`]). Whether the judge sees what goes wrong on the wire is tried with a
//! [`relay`] that meddles with it. Start with [`process`].

pub mod audit;
pub mod bfd;
pub mod bgpsec;
pub mod capture;
pub mod churn;
mod failures;
pub mod judge;
pub mod members;
pub mod phases;
mod pressure;
mod process;
pub mod record;
pub mod relay;
pub mod replication;
pub mod report;
pub mod scene;
pub mod standby;
pub mod stock;
pub mod time;
pub mod watch;

use clap::{Args, ValueEnum};
use serde::Serialize;

pub use process::process;

/// What is done to `bgp`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Failure {
    /// SIGKILL, again and again.
    Kill,
    /// SIGSTOP, and SIGCONT a second later, again and again.
    Stop,
    /// It may have hardly more memory than it has, and is fed a table.
    Memory,
    /// An UPDATE on which it aborts, again when it replays it: `HOLDFAST_TEST_POISON` names its community.
    Poison,
    /// An UPDATE on which it loops for ever, again when it replays it.
    Hang,
    /// SIGKILL twice a second, without a rest.
    Loop,
    /// More routes than the replication log holds.
    Full,
}

impl Failure {
    /// How often the sessions of the stock router and of the feeder go down: given up, in order.
    pub fn allowed(self) -> (u64, u64) {
        match self {
            Self::Kill | Self::Stop | Self::Memory | Self::Loop | Self::Full => (0, 0),
            Self::Poison | Self::Hang => (0, 1),
        }
    }
}

/// What a drill is.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The stock router.
    #[arg(long, value_enum)]
    pub peer: stock::Kind,
    /// Routes that each peer announces, beside those that change.
    #[arg(long, default_value_t = 10_000)]
    pub routes: u32,
    /// How often it is done, if it is SIGKILL or SIGSTOP; the others are done once. From 30 deaths in a minute on the router
    /// waits a second before each start.
    #[arg(long, default_value_t = 3)]
    pub kills: u32,
    /// What is done to `bgp`.
    #[arg(long, value_enum, default_value = "kill")]
    pub kind: Failure,
    /// Another seed gives other moments and other changes.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds after which no further kill is made.
    #[arg(long, default_value_t = 3600)]
    pub limit: u64,
    /// The judge is judged: a relay between the stock router and Holdfast does this to one announcement of each
    /// direction, before the first failure. With all but `nothing` the drill must fail.
    #[arg(long, value_enum)]
    pub tamper: Option<relay::Tampering>,
    /// The report as JSON, in the last line.
    #[arg(long)]
    pub json: bool,
}
