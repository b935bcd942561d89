//! What BGPsec costs: memory of routers' keys, and how much more than the bare library of cryptography it takes to verify and to
//! sign.
//!
//! Ours and bare alternate in short rounds, so that what else the machine does meets both; figures are medians over the rounds,
//! ratios those of each pair. Bare is what cannot be left out: for each hop a SHA-256 and a verification by a key that is the
//! octets of a point, as our tables have it.

mod crypto;
mod keys;

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
    /// Sizes of tables.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 10_000, 100_000])]
    keys: Vec<u32>,
    /// Rounds of each; figures are medians.
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// Paths in a round.
    #[arg(long, default_value_t = 200)]
    paths: usize,
    /// An object of JSON for each figure, a line each, instead of the table.
    #[arg(long)]
    json: bool,
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

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(
        arguments.rounds > 0 && arguments.paths > 0 && arguments.keys.iter().all(|count| *count > 0),
        "nothing is to be done"
    );
    if !arguments.json {
        println!("{}, load {:.2}", machine::description(), machine::load()?);
        println!("{:34} {:>10} {:10} {:>8} {:>6}  goal", "", "value", "unit", "bare", "ratio");
    }
    let print = |figure: Figure| -> Result<()> {
        if arguments.json {
            println!("{}", serde_json::to_string(&figure)?);
        } else {
            figure.print();
        }
        Ok(())
    };
    for count in &arguments.keys {
        memory(*count)?.into_iter().try_for_each(print)?;
    }
    let hops = Hops::new(HOPS)?;
    for count in 1..=HOPS {
        print(pair(format!("verify, {count} hops"), hops.verify(count, arguments)?, MOST_VERIFY))?;
    }
    for count in 1..=HOPS {
        print(pair(format!("sign, hop {count}"), hops.sign(count, arguments)?, MOST_SIGN))?;
    }
    let Pair { ours, bare, .. } = hops.cores(arguments)?;
    print(Figure {
        name: "two threads to one".to_owned(),
        value: ours,
        unit: "times",
        bare: Some(bare),
        ratio: None,
        goal: Goal::at_least(ours, LEAST_CORES),
    })
}

fn memory(count: u32) -> Result<[Figure; 3]> {
    let figure = |name: &str, value, unit, goal| Figure {
        name: format!("{name}, {count} keys"),
        value,
        unit,
        bare: None,
        ratio: None,
        goal,
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
            "{:34} {:>10.3} {:10} {:>8} {:>6}  {goal}",
            self.name,
            self.value,
            self.unit,
            number(self.bare, 2),
            number(self.ratio, 3)
        );
    }
}
