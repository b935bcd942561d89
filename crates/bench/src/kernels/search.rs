//! The search for what is dearer than the recipes that are known: changes their numbers, and keeps what costs more.
//!
//! The compiler counts how often each block of the program is executed ([`blocks`]). What executes one of them twice as often for
//! its octets as anything before is changed further, also if it is not dear itself: what makes a table's chains longer is on the
//! way to what makes them long.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::recipe::{self, Recipe, Second, Setup, shorter};
use holdfast_sys::blocks;
use holdfast_types::{Family, Prefix};

use super::cost::send;

/// Recipes for one speaker and family that are changed further, at most.
const SEEDS: usize = 64;

/// What was found for one speaker and family.
struct Found {
    /// The dearest, in times what an ordinary table costs.
    dearest: (f64, Recipe),
    /// How dear the dearest of the corpus is.
    before: f64,
    seeds: Vec<Recipe>,
    /// By block: the greatest power of two of its executions for 1024 octets, and one.
    highest: Vec<u32>,
}

impl Found {
    /// Whether these octets execute a block twice as often as all before.
    fn is_new(&mut self, counts: &[u64], octets: usize) -> bool {
        let mut is_new = false;
        self.highest.resize(counts.len(), 0);
        for (highest, count) in self.highest.iter_mut().zip(counts) {
            let level = 64 - (count * 1024 / octets.max(1) as u64).leading_zeros();
            is_new |= level > *highest;
            *highest = level.max(*highest);
        }
        is_new
    }

    fn see(&mut self, recipe: &Recipe, random: &mut u64) {
        let Some((counts, octets)) = executed(recipe) else { return };
        let Some(ordinary) = per_octet(&recipe.ordinary()) else { return };
        if self.is_new(&counts, octets) {
            match self.seeds.len() < SEEDS {
                true => self.seeds.push(recipe.clone()),
                false => self.seeds[next(random) as usize % SEEDS] = recipe.clone(),
            }
        }
        let times = counts.iter().sum::<u64>() as f64 / octets as f64 / ordinary;
        if times > self.dearest.0 {
            self.dearest = (times, recipe.clone());
        }
    }
}

/// How often each block is executed for the octets of a recipe, and how many octets those are; `None` for what is refused.
fn executed(recipe: &Recipe) -> Option<(Vec<u64>, usize)> {
    let octets = send(recipe).ok().filter(|octets| *octets > 0)?;
    Some((super::last_counts(), octets))
}

/// Blocks executed for an octet.
fn per_octet(recipe: &Recipe) -> Option<f64> {
    let (counts, octets) = executed(recipe)?;
    Some(counts.iter().sum::<u64>() as f64 / octets as f64)
}

/// Changes recipes for so long. What is dearer than all of the corpus for its speaker and family is written to `into`, named after
/// what it is for.
///
/// # Errors
/// The program does not count blocks; the corpus cannot be read, or what is found not written.
pub(crate) fn search(seconds: u64, into: &Path) -> Result<()> {
    ensure!(
        !blocks::counts().is_empty(),
        "this program does not count what it executes: run scripts/fuzz-cost"
    );
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut random, mut tried) = (0x5eed_u64, 0_u64);
    let mut all: BTreeMap<(Setup, bool), Found> = BTreeMap::new();
    for (_, recipe) in recipe::all()? {
        let found = all.entry((recipe.speaker, recipe.family() == Family::IPV4_UNICAST)).or_insert(Found {
            dearest: (0.0, recipe.clone()),
            before: 0.0,
            seeds: Vec::new(),
            highest: Vec::new(),
        });
        found.see(&recipe, &mut random);
        found.before = found.dearest.0;
    }
    while Instant::now() < end {
        for found in all.values_mut() {
            // As often from the dearest as from another.
            let other = found.seeds.get(next(&mut random) as usize % (2 * found.seeds.len()).max(1));
            let mut recipe = other.unwrap_or(&found.dearest.1).clone();
            (0..1 + next(&mut random) % 3).for_each(|_| mutate(&mut recipe, &mut random));
            let before = found.dearest.0;
            found.see(&recipe, &mut random);
            tried += 1;
            if found.dearest.0 > before * 1.05 {
                println!("{:.2} times: {recipe:?}", found.dearest.0);
            }
        }
    }
    println!("{tried} recipes tried");
    fs::create_dir_all(into).with_context(|| into.display().to_string())?;
    for ((speaker, is_ipv4), Found { dearest: (times, mut recipe), before, .. }) in all {
        println!(
            "{speaker:?}, IPv{}: {times:.2} times what a table costs, {before:.2} in the corpus",
            if is_ipv4 { 4 } else { 6 }
        );
        if times > 1.2 * before {
            let name = format!("{speaker:?}-{}.toml", if is_ipv4 { "ipv4" } else { "ipv6" }).to_lowercase();
            recipe.what = format!("found by search: {speaker:?}, {:?}", recipe.family());
            fs::write(into.join(&name), toml::to_string(&recipe)?)?;
            println!("written to {}", into.join(name).display());
        }
    }
    Ok(())
}

/// A number that follows (SplitMix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Changes one number.
fn mutate(recipe: &mut Recipe, random: &mut u64) {
    let (choice, value) = (next(random), next(random));
    // Of all magnitudes alike.
    let up_to = |most: u64| value % (most >> ((value >> 32) % 16)).max(1);
    match choice % 13 {
        0 => recipe.stride = 1 << (value % 40),
        1 => recipe.stride = value | 1,
        2 => recipe.wrap = up_to(20_000),
        3 => recipe.routes = 1 + up_to(1000),
        4 => recipe.sets = up_to(5000),
        5 => recipe.path = 1 + up_to(900),
        6 => recipe.communities = up_to(900),
        7 => recipe.unknown = up_to(3000),
        8 => recipe.paths = if recipe.paths == 0 { 0 } else { 1 + up_to(64) },
        9 => recipe.second = [Second::Again, Second::Withdraws, Second::Longer][(value % 3) as usize],
        10 => recipe.refresh = up_to(200),
        11 => recipe.apart = value % 2 == 0,
        _ => {
            let length = match recipe.first {
                Prefix::V4(_) => 8 + value % 25,
                Prefix::V6(_) => 16 + value % 113,
            };
            recipe.first = shorter(recipe.first, length as u8);
        }
    }
}
