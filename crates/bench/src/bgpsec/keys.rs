//! Tables of keys: how much memory, how long to load.

use std::{fs, process::Command, time::Instant};

use anyhow::{Context, Result, ensure};
use holdfast_path_validation::{Change, KeyTable, P256Signer, RouterKey, random_seed};
use holdfast_types::Asn;

/// Keys that come at once where it is looked at what a process keeps: what else a change takes is little then.
const BATCH: u32 = 1_000;

/// A table.
pub(super) struct Loaded {
    /// Octets.
    pub(super) memory: usize,
    /// Until all of them were there.
    pub(super) seconds: f64,
}

/// A key of its own for each router.
fn keys(from: u32, count: u32) -> impl Iterator<Item = Result<RouterKey>> {
    (from..from + count).map(|number| Ok(P256Signer::generate(Asn(1 + number))?.router_key()))
}

/// All as one change.
pub(super) fn load(count: u32) -> Result<Loaded> {
    let changes: Vec<Change> = keys(0, count).map(|key| key.map(Change::Announce)).collect::<Result<_>>()?;
    let table = KeyTable::new(random_seed()?);
    let begin = Instant::now();
    table.apply(changes);
    let seconds = begin.elapsed().as_secs_f64();
    let keys = table.keys();
    ensure!(keys.len() == count as usize, "{} of {count} keys", keys.len());
    Ok(Loaded { memory: keys.memory(), seconds })
}

/// By how much a process grows with so many keys in a table, in octets.
pub(super) fn resident_of_a_process(count: u32) -> Result<u64> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args(["bgpsec-keys", &count.to_string()]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)?.trim().parse().context("a number of octets")
}

/// The same of this process, which prints it.
pub(crate) fn resident(count: u32) -> Result<()> {
    // What the process takes for the first keys of all, whoever has them, is not the table's.
    fill(&KeyTable::new(random_seed()?), BATCH)?;
    let table = KeyTable::new(random_seed()?);
    let before = resident_octets()?;
    fill(&table, count)?;
    println!("{}", resident_octets()?.saturating_sub(before));
    ensure!(table.keys().len() == count as usize, "{} of {count} keys", table.keys().len());
    Ok(())
}

fn fill(table: &KeyTable, count: u32) -> Result<()> {
    for from in (0..count).step_by(BATCH as usize) {
        let keys = keys(from, BATCH.min(count - from)).collect::<Result<Vec<_>>>()?;
        table.apply(keys.into_iter().map(Change::Announce));
    }
    Ok(())
}

fn resident_octets() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).context("pages")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}
