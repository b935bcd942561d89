//! `holdfast-bench admission` runs, and says what was agreed; how fast is not decided here.

use std::process::Command;

#[test]
fn every_mode_has_its_object_and_every_client_is_served() {
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast-bench"))
        .args(["admission", "--json", "--runs", "1", "--attempts", "100", "--completions", "4"])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let rows: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object each line")).collect();
    let modes = |backend: &str| -> Vec<_> {
        rows.iter().filter(|row| row["backend"] == backend).map(|row| &row["mode"]).collect()
    };
    assert_eq!(
        modes("noq"),
        ["ignore", "refuse", "retry", "retry-refuse", "alpn", "open", "echo", "garbage", "spam", "transfer"]
    );
    // What it has no verdict for is not there.
    assert_eq!(modes("s2n"), ["ignore", "refuse", "retry", "open", "echo", "garbage", "spam", "transfer"]);
    for row in &rows {
        let figure = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} of {row}"));
        assert!(figure("ops_per_cpu_s") > 0.0 && figure("ratio_to_bare") > 0.0, "{row}");
        assert_eq!(row["asked"], row["served"], "{row}");
    }
}
