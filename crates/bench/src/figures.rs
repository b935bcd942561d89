//! The figures of the XORP paper (section 8), measured here: calls between processes (9), the way of a route into the
//! kernel (10 to 12), and when it appears at another peer (13). Numbers as JSON, and from that tables and plots.

mod document;
mod routes;
mod xrl;

use std::{
    fs,
    os::fd::AsFd,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::machine;

/// `holdfast-bench figures`
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these: `9`, `10` (with 11 and 12), `13`. Of the others, what FILE has is kept.
    #[arg(long, value_delimiter = ',', value_name = "FIGURE")]
    only: Vec<u8>,
    /// The numbers.
    #[arg(long, value_name = "FILE", default_value = "docs/figures/figures.json")]
    json: PathBuf,
    /// Where plots and the page with the tables go.
    #[arg(long, value_name = "DIR", default_value = "docs/figures")]
    out: PathBuf,
    /// Measures nothing: plots and tables of what FILE has.
    #[arg(long)]
    plot: bool,
    /// Time from one route to the next in Figure 13 (the paper has 1 s).
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100)]
    interval: u64,
    /// The same in Figures 10 to 12 (the paper has 2 s).
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 50)]
    pace: u64,
    /// Routes of the full table where `HOLDFAST_DATA` names no real one (the paper has as many).
    #[arg(long, default_value_t = 146_515)]
    routes: usize,
    /// The other end of the calls of Figure 9, on its standard input.
    #[arg(long, hide = true)]
    receive: Option<xrl::Family>,
}

/// What was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Figures {
    #[serde(default)]
    calls: Measured<Vec<xrl::Series>>,
    #[serde(default)]
    ways: Measured<Vec<routes::Way>>,
    #[serde(default)]
    arrivals: Measured<Vec<routes::Arrivals>>,
}

/// A figure's numbers and where they are from.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Measured<T> {
    machine: String,
    /// Unix time.
    time: u64,
    /// Processes that wanted to run besides, on average over the minute before.
    load: f64,
    values: T,
}

impl<T> Measured<T> {
    fn take(measure: impl FnOnce() -> Result<T>) -> Result<Self> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        Ok(Self { machine: machine::description(), time, load: machine::load()?, values: measure()? })
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let Some(family) = arguments.receive {
        return xrl::receive(family, std::io::stdin().as_fd().try_clone_to_owned()?);
    }
    let mut figures: Figures = match fs::read(&arguments.json) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| arguments.json.display().to_string())?,
        Err(_) => Figures::default(),
    };
    if !arguments.plot {
        measure(arguments, &mut figures)?;
        fs::create_dir_all(arguments.json.parent().context("the JSON's directory")?)?;
        fs::write(&arguments.json, serde_json::to_string_pretty(&figures)?)?;
    }
    document::write(&figures, &arguments.out)
}

fn measure(arguments: &Arguments, figures: &mut Figures) -> Result<()> {
    let wanted = |number: u8| arguments.only.is_empty() || arguments.only.contains(&number);
    if wanted(9) {
        figures.calls = Measured::take(xrl::measure)?;
    }
    if wanted(10) {
        let pace = Duration::from_millis(arguments.pace);
        figures.ways = Measured::take(|| routes::ways(arguments.routes, pace))?;
    }
    if wanted(13) {
        let interval = Duration::from_millis(arguments.interval);
        figures.arrivals = Measured::take(|| routes::arrivals(interval))?;
    }
    Ok(())
}
