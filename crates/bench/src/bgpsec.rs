//! What BGPsec costs: memory of routers' keys, and how much more than the bare library of cryptography it takes to verify and to
//! sign ([`crypto`], [`keys`]); and what all of this comes to in a whole router ([`router`]).
//!
//! Ours and bare alternate in short rounds, so that what else the machine does meets both; figures are medians over the rounds,
//! ratios those of each pair. Bare is what cannot be left out: for each hop a SHA-256 and a verification by a key that is the
//! octets of a point, as our tables have it.

mod crypto;
mod keys;
mod router;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::{admission::median, machine};
use crypto::{Hops, Pair};
pub(crate) use keys::resident;

/// Octets of memory for a key, of 100,000.
const MOST_MEMORY: f64 = 105.0;
/// Seconds until 100,000 keys are in a table.
const MOST_LOADING: f64 = 0.5;
/// Ours to bare.
const MOST_VERIFY: f64 = 1.05;
const MOST_SIGN: f64 = 1.10;
/// Verdicts of two threads to those of one.
const LEAST_CORES: f64 = 1.8;
/// Hops of the longest path.
const HOPS: usize = 5;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these rows; all of them take some minutes.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Row::ALL)]
    rows: Vec<Row>,
    /// Less of everything: all rows in less than a minute on a quiet machine.
    #[arg(long)]
    quick: bool,
    /// As little as possible, of which figures come that say nothing.
    #[arg(long, conflicts_with = "quick")]
    tiny: bool,
    /// Sizes of tables of the library.
    #[arg(long, value_delimiter = ',')]
    keys: Option<Vec<u32>>,
    /// Rounds of each of the library's; figures are medians.
    #[arg(long)]
    rounds: Option<usize>,
    /// Paths in a round.
    #[arg(long)]
    paths: Option<usize>,
    /// An object of JSON for each figure, a line each, instead of the table.
    #[arg(long)]
    json: bool,
}

/// What is measured.
#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Row {
    /// The library by itself, beside the bare one; needs no rights.
    Library,
    /// Memory of routers' keys in all processes.
    Keys,
    /// Memory of paths by their hops.
    Paths,
    /// Processor time of an UPDATE, from the wire to the verdict.
    TakenIn,
    /// A table until all of it is valid, and what others notice.
    Table,
    /// A neighbour whose signatures are bad.
    Flood,
    /// A key that routes name goes.
    KeyRemoved,
    /// Processor time of an UPDATE that is signed, from the route to the wire.
    Made,
    /// What is kept of signed routes, and that each is signed once.
    Announced,
    /// A table that is signed for a new peer, and what others notice.
    SigningLoad,
}

impl Row {
    const ALL: [Self; 10] = [
        Self::Library,
        Self::Keys,
        Self::Paths,
        Self::TakenIn,
        Self::Table,
        Self::Flood,
        Self::KeyRemoved,
        Self::Made,
        Self::Announced,
        Self::SigningLoad,
    ];
}

/// How much the library is given to do.
struct Effort {
    rounds: usize,
    paths: usize,
}

/// What was measured, and what was to be.
#[derive(Debug, Serialize)]
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    /// The bare library in the same rounds, in the same unit.
    bare: Option<f64>,
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<Goal>,
}

#[derive(Debug, Serialize)]
struct Goal {
    text: String,
    is_reached: bool,
}

impl Goal {
    fn at_most(value: f64, most: f64) -> Option<Self> {
        Some(Self { text: format!("at most {most}"), is_reached: value <= most })
    }

    fn at_least(value: f64, least: f64) -> Option<Self> {
        Some(Self { text: format!("at least {least}"), is_reached: value >= least })
    }
}

impl Figure {
    /// A figure without a goal, and with nothing beside it.
    fn new(name: String, value: f64, unit: &'static str) -> Self {
        Self { name, value, unit, bare: None, ratio: None, goal: None }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { quick, tiny, json, .. } = *arguments;
    let (size, effort, keys): (_, _, &[u32]) = match (quick, tiny) {
        (false, false) => (router::FULL, Effort { rounds: 21, paths: 200 }, &[100, 1_000, 10_000, 100_000]),
        (true, _) => (router::QUICK, Effort { rounds: 5, paths: 50 }, &[100, 10_000]),
        (_, true) => (router::TINY, Effort { rounds: 2, paths: 2 }, &[100]),
    };
    let effort = Effort {
        rounds: arguments.rounds.unwrap_or(effort.rounds),
        paths: arguments.paths.unwrap_or(effort.paths),
    };
    let keys = arguments.keys.as_deref().unwrap_or(keys);
    ensure!(
        effort.rounds > 0 && effort.paths > 0 && keys.iter().all(|count| *count > 0),
        "nothing is to be done"
    );
    if !json {
        println!("{}", machine::description());
    }
    let mut print = |figure: Figure| -> Result<()> {
        if json {
            println!("{}", serde_json::to_string(&figure)?);
        } else {
            figure.print();
        }
        Ok(())
    };
    for row in &arguments.rows {
        if !json {
            let name =
                clap::ValueEnum::to_possible_value(row).map_or(String::new(), |it| it.get_name().to_owned());
            println!("{name}, load {:.2}", machine::load()?);
            println!("  {:78} {:>10} {:10} {:>8} {:>6}  goal", "", "value", "unit", "bare", "ratio");
        }
        let row = match row {
            Row::Library => {
                library(keys, &effort, &mut print)?;
                continue;
            }
            Row::Keys => router::Row::Keys,
            Row::Paths => router::Row::Paths,
            Row::TakenIn => router::Row::TakenIn,
            Row::Table => router::Row::Table,
            Row::Flood => router::Row::Flood,
            Row::KeyRemoved => router::Row::KeyRemoved,
            Row::Made => router::Row::Made,
            Row::Announced => router::Row::Announced,
            Row::SigningLoad => router::Row::SigningLoad,
        };
        row.run(&size, &mut print)?;
    }
    Ok(())
}

fn library(keys: &[u32], effort: &Effort, print: &mut dyn FnMut(Figure) -> Result<()>) -> Result<()> {
    for count in keys {
        memory(*count)?.into_iter().try_for_each(&mut *print)?;
    }
    let hops = Hops::new(HOPS)?;
    for count in 1..=HOPS {
        print(pair(format!("verify, {count} hops"), hops.verify(count, effort)?, MOST_VERIFY))?;
    }
    for count in 1..=HOPS {
        print(pair(format!("sign, hop {count}"), hops.sign(count, effort)?, MOST_SIGN))?;
    }
    let Pair { ours, bare, .. } = hops.cores(effort)?;
    print(Figure {
        bare: Some(bare),
        goal: Goal::at_least(ours, LEAST_CORES),
        ..Figure::new("two threads to one".to_owned(), ours, "times")
    })
}

fn memory(count: u32) -> Result<[Figure; 3]> {
    let figure = |name: &str, value, unit, goal| Figure {
        goal,
        ..Figure::new(format!("{name}, {count} keys"), value, unit)
    };
    let loaded = keys::load(count)?;
    let a_key = loaded.memory as f64 / f64::from(count);
    let resident = keys::resident_of_a_process(count)? as f64 / f64::from(count);
    let loading = (count == 100_000).then(|| Goal::at_most(loaded.seconds, MOST_LOADING)).flatten();
    Ok([
        figure("memory", a_key, "octets/key", Goal::at_most(a_key, MOST_MEMORY)),
        // Pages of 4 KiB, and what the allocator keeps: of few keys this says nothing.
        figure("resident", resident, "octets/key", None),
        figure("loading", loaded.seconds, "s", loading),
    ])
}

fn pair(name: String, pair: Pair, most: f64) -> Figure {
    let goal = Goal::at_most(pair.ratio, most);
    Figure { name, value: pair.ours, unit: "us", bare: Some(pair.bare), ratio: Some(pair.ratio), goal }
}

impl Figure {
    fn print(&self) {
        let number =
            |value: Option<f64>, digits| value.map_or(String::new(), |value| format!("{value:.digits$}"));
        let goal = match &self.goal {
            None => String::new(),
            Some(goal) => format!("{}: {}", goal.text, if goal.is_reached { "reached" } else { "MISSED" }),
        };
        println!(
            "  {:78} {:>10.3} {:10} {:>8} {:>6}  {goal}",
            self.name,
            self.value,
            self.unit,
            number(self.bare, 2),
            number(self.ratio, 3)
        );
    }
}
