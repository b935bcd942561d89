//! What it costs that sessions outlive their process, and their host: figures 5 and 6 of the paper on TENSOR (SIGCOMM 2023),
//! and how soon a store that has lost everything has it again.
//!
//! A row compares variants that take turns, so that what else the machine does meets all of them. Figures are medians over the
//! rounds, and ratios are medians of what each round had. Goals are those of issue 23.

mod client;
mod delay;
mod figure;
mod proxy;
mod records;
mod recovery;
mod scene;
mod updates;

use anyhow::{Result, ensure};

use crate::{admission::name, cgroup, machine};
use figure::Figure;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these rows.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Row::ALL)]
    rows: Vec<Row>,
    /// Less of everything: all rows in less than a minute on a quiet machine.
    #[arg(long)]
    quick: bool,
    /// As little as possible, of which figures come that say nothing.
    #[arg(long, conflicts_with = "quick")]
    tiny: bool,
    /// Beside Holdfast in `in` and `out`, only these routers: see `holdfast-bench list`. `none` leaves out all.
    #[arg(long, value_delimiter = ',')]
    routers: Vec<String>,
    /// Sizes of `in` and `out`, in routes.
    #[arg(long, value_delimiter = ',')]
    updates: Option<Vec<usize>>,
    /// Rounds; figures are medians.
    #[arg(long)]
    rounds: Option<usize>,
    /// An object of JSON for each figure, a line each, instead of the table.
    #[arg(long)]
    json: bool,
}

/// What is measured.
#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Row {
    /// Figure 5 (b): records of 4 KiB written to stores, and read again.
    Records,
    /// Figure 5 (a): octets a second through the gate, by the delay of the store and the size of messages.
    Delay,
    /// Figure 6 (a): routes taken in from one peer.
    In,
    /// Figure 6 (b): routes that go on to one peer, and to ten.
    Out,
    /// A store that has lost everything, until it has everything again.
    Recovery,
}

impl Row {
    const ALL: [Self; 5] = [Self::Records, Self::Delay, Self::In, Self::Out, Self::Recovery];
}

/// How much there is to do.
#[derive(Clone, Debug)]
struct Size {
    rounds: usize,
    /// Records that are written at once.
    records: &'static [usize],
    /// Records that are written one after the other.
    single: usize,
    /// Octets that come through the gate in one run.
    octets: usize,
    /// Octets of the messages, and milliseconds by which the store is slower.
    messages: &'static [usize],
    delays: &'static [u64],
    /// Routes in and out.
    updates: Vec<usize>,
    /// Peers that are told of them.
    sinks: &'static [usize],
    /// Routes and sessions when the store is lost, and who of these announces routes.
    routes: usize,
    sessions: usize,
    feeders: usize,
}

impl Size {
    fn full() -> Self {
        Self {
            rounds: 3,
            records: &[1, 10, 100, 1_000, 10_000],
            single: 3_000,
            octets: 64 << 20,
            messages: &[100, 500, 1_000, 2_000],
            delays: &[0, 1, 5, 20],
            updates: vec![100, 10_000, 100_000, 500_000],
            sinks: &[1, 10],
            routes: 1_000_000,
            sessions: 50,
            feeders: 10,
        }
    }

    fn quick() -> Self {
        Self {
            rounds: 1,
            single: 500,
            octets: 8 << 20,
            messages: &[500],
            delays: &[0, 5],
            updates: vec![100, 50_000],
            routes: 100_000,
            ..Self::full()
        }
    }

    fn tiny() -> Self {
        Self {
            records: &[1, 50],
            single: 20,
            octets: 1 << 20,
            delays: &[0],
            updates: vec![200],
            sinks: &[1],
            routes: 1_000,
            sessions: 4,
            feeders: 2,
            ..Self::quick()
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "it needs root");
    cgroup::sweep()?;
    machine::allow_files();
    let mut size = match (arguments.quick, arguments.tiny) {
        (false, false) => Size::full(),
        (true, _) => Size::quick(),
        (_, true) => Size::tiny(),
    };
    size.rounds = arguments.rounds.unwrap_or(size.rounds);
    size.updates = arguments.updates.clone().unwrap_or(size.updates);
    ensure!(size.rounds > 0 && size.updates.iter().all(|count| *count > 0), "nothing is to be done");
    if !arguments.json {
        println!("{}", machine::description());
    }
    let mut print = |figure: Figure| figure.print(arguments.json);
    for row in &arguments.rows {
        if !arguments.json {
            println!("{}, load {:.2} before", name(*row), machine::load()?);
            Figure::print_head();
        }
        match row {
            Row::Records => records::run(&size, &mut print)?,
            Row::Delay => delay::run(&size, &mut print)?,
            Row::In => updates::run(&size, &[0], &arguments.routers, &mut print)?,
            Row::Out => updates::run(&size, size.sinks, &arguments.routers, &mut print)?,
            Row::Recovery => recovery::run(&size, &mut print)?,
        }
    }
    Ok(())
}
