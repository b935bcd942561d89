//! `holdfast-bench ring` runs, and every route comes back; how fast is not decided here.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use holdfast_lab::router::binary;
use serde_json::Value;

#[test]
fn every_route_comes_back_over_tcp_and_over_quic() -> Result<()> {
    const ROUTES: u64 = 2000;
    let holdfast = binary()?;
    let bench = holdfast.with_file_name("holdfast-bench");
    ensure!(bench.exists(), "{} is not there: cargo build -p holdfast-bench", bench.display());
    let mut command = Command::new(bench);
    command.args([
        "ring",
        "--json",
        "--runs",
        "1",
        "--transports",
        "tcp,quic",
        "--routes",
        &ROUTES.to_string(),
    ]);
    // Generated routes are enough.
    let output = command.env("HOLDFAST_BIN", holdfast).env_remove("HOLDFAST_DATA").output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let rows: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(rows.iter().map(|row| &row["transport"]).eq(["tcp", "quic"]), "{text}");
    for row in &rows {
        let figure = |name: &str| row[name].as_f64().with_context(|| format!("{name} of {row}"));
        ensure!(row["routes"] == ROUTES, "{row}");
        let names = ["p5_ms", "p25_ms", "p50_ms", "p75_ms", "p95_ms", "p99_ms", "max_ms"];
        let latencies = names.into_iter().map(figure).collect::<Result<Vec<_>>>()?;
        ensure!(latencies[0] > 0.0 && latencies.is_sorted(), "{row}");
        // In milliseconds the same time may differ in its last digit.
        ensure!(1e3 * figure("all_back_s")? > latencies[6] - 1e-6, "{row}");
        for name in ["cpu_s", "peak_memory_mib", "p95_to_tcp", "cpu_to_tcp"] {
            ensure!(figure(name)? > 0.0, "{name} of {row}");
        }
    }
    Ok(())
}
