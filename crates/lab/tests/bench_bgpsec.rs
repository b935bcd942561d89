//! `holdfast-bench bgpsec` runs its rows of the router, and each has its figures; what they are is not decided here.

use std::{collections::BTreeMap, process::Command};

use anyhow::{Context, Result, ensure};
use holdfast_lab::router::binary;
use serde_json::Value;

const ROWS: &str = "keys,paths,taken-in,table,flood,key-removed,made,announced,signing-load";

#[test]
fn every_row_of_the_router_has_its_figures() -> Result<()> {
    let holdfast = binary()?;
    let bench = holdfast.with_file_name("holdfast-bench");
    ensure!(bench.exists(), "{} is not there: cargo build -p holdfast-bench", bench.display());
    let mut command = Command::new(bench);
    command.args(["bgpsec", "--tiny", "--json", "--rows", ROWS]);
    let output = command.env("HOLDFAST_BIN", holdfast).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let mut figures = BTreeMap::new();
    for line in text.lines() {
        let figure: Value = serde_json::from_str(line)?;
        let name = figure["name"].as_str().context("a name")?.to_owned();
        // What is no number is null in JSON.
        let value = figure["value"].as_f64().with_context(|| format!("no figure: {line}"))?;
        ensure!(figure["unit"].is_string(), "{line}");
        ensure!(figures.insert(name, value).is_none(), "it comes twice: {line}");
    }
    let figure = |name: &str| {
        figures.get(name).copied().with_context(|| format!("{name} is not among {:?}", figures.keys()))
    };
    for name in ["a key more, one cache", "the same key of a further cache"] {
        figure(name)?;
    }
    for name in ["a path without hops, 200 paths", "a hop more, 200 paths"] {
        figure(name)?;
    }
    for name in ["plain BGP, bgp", "taken in, bgp", "taken in, pathsec", "hops known, bgp and pathsec"] {
        ensure!(figure(&format!("{name}, 2 hops"))? > 0.0, "{name} costs nothing");
    }
    for name in ["until all are valid", "longest turn of bgp", "a plain route meanwhile, p99", "show, worst"]
    {
        ensure!(figure(&format!("table of 200 routes, 4 hops: {name}"))? > 0.0, "{name} takes no time");
    }
    for flood in ["nothing", "bad signatures", "64 hops, the oldest bad", "unknown keys"] {
        for name in ["verdict of another's route, p99", "signatures verified, the other's too"] {
            ensure!(figure(&format!("flood of {flood}: {name}"))? > 0.0, "{flood}: {name}");
        }
        figure(&format!("flood of {flood}: memory more, all processes"))?;
        let taken = figure(&format!("flood of {flood}: taken"))?;
        ensure!((taken > 0.0) == (flood != "nothing"), "{flood}: {taken} MB/s");
    }
    for count in [1, 20] {
        let name = |what: &str| format!("a key of 200 goes, {count} routes name it: {what}");
        ensure!(figure(&name("judged again"))? == f64::from(count), "{count} routes name it");
        ensure!(figure(&name("from the cache's word to the last verdict"))? > 0.0, "it takes no time");
    }
    for name in ["made of plain routes, bgp", "made, bgp", "made, pathsec", "made, bgp and pathsec"] {
        for hops in ["1 hop", "3 hops"] {
            ensure!(figure(&format!("{name}, {hops}"))? > 0.0, "{name} costs nothing");
        }
    }
    figure("5,000 UPDATEs, 1 hop (FRR 520 ms, BGP-SRx 177 ms)")?;
    let announced = |what: &str| figure(&format!("200 routes announced: {what}"));
    ensure!(announced("signatures for 3 peers of an AS")? == 200.0, "one for each route");
    ensure!(announced("signatures after 3 refreshes")? == 0.0, "routes have not changed");
    announced("memory of a signed one more")?;
    for name in ["signed routes for plain peers, p50", "the same with signatures, p50"] {
        figure(&format!("bgp dies with 200 routes and 4 peers: {name}"))?;
    }
    for name in ["until all are told", "longest turn of bgp", "a plain route meanwhile, p99"] {
        ensure!(figure(&format!("200 routes signed for a new peer: {name}"))? > 0.0, "{name} takes no time");
    }
    Ok(())
}
