//! `holdfast-bench nsr` runs, and each row has its figures; what they are is not decided here.

use std::{collections::BTreeMap, process::Command};

use anyhow::{Context, Result, ensure};
use holdfast_lab::router::binary;
use serde_json::Value;

#[test]
fn every_row_has_its_figures() -> Result<()> {
    let holdfast = binary()?;
    let bench = holdfast.with_file_name("holdfast-bench");
    ensure!(bench.exists(), "{} is not there: cargo build -p holdfast-bench", bench.display());
    let mut command = Command::new(bench);
    command.args(["nsr", "--tiny", "--json", "--routers", "none"]);
    let output = command.env("HOLDFAST_BIN", holdfast).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let mut figures = BTreeMap::new();
    for line in text.lines() {
        let figure: Value = serde_json::from_str(line)?;
        let name = figure["name"].as_str().context("a name")?.to_owned();
        ensure!(figure["unit"].is_string(), "{line}");
        ensure!(figures.insert(name, figure).is_none(), "it comes twice: {line}");
    }
    // What is no number is null in JSON.
    let positive = |name: &str| {
        let figure =
            figures.get(name).with_context(|| format!("{name} is not among {:?}", figures.keys()))?;
        let value = figure["value"].as_f64().with_context(|| format!("no figure: {figure}"))?;
        ensure!(value > 0.0, "{figure}");
        Ok(figure)
    };
    for place in ["Redis over veth", "Redis over loopback", "file", "memory"] {
        for what in [
            "one record confirmed, p50",
            "one record confirmed, p99",
            "50 records written",
            "50 records read",
        ] {
            positive(&format!("{place}: {what}"))?;
        }
    }
    for tier in ["nonstop off", "tier 1", "tier 2, store 0 ms later"] {
        positive(&format!("messages of 500 octets: {tier}"))?;
    }
    for way in ["200 routes in", "200 routes to 1 peer"] {
        for tier in ["nonstop off", "tier 1", "tier 2"] {
            for what in ["wall", "CPU"] {
                let figure = positive(&format!("{way}: {what}, {tier}"))?;
                if tier != "nonstop off" {
                    let beside = figure["beside"].as_array().context("what stands beside it")?;
                    let ratio = |of: &Value| of["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0);
                    ensure!(beside.iter().any(|of| of["name"] == "nonstop off" && ratio(of)), "{figure}");
                }
            }
        }
        // Nothing comes through a router with a store that the store does not get.
        for what in ["CPU of the store", "in the store for each", "written to the store for each"] {
            positive(&format!("{way}: {what}"))?;
        }
    }
    let way = "1000 routes, 4 sessions, an empty store";
    for what in ["until protected", "written", "in the store for each session", "in the store for each route"]
    {
        positive(&format!("{way}: {what}"))?;
    }
    positive("4 sessions without routes: in the store for each")?;
    Ok(())
}
