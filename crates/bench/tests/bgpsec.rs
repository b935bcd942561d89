//! `holdfast-bench bgpsec` runs, and says what was agreed; how fast is not decided here.

use std::process::Command;

#[test]
fn every_figure_is_there_and_memory_is_within_its_goal() {
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast-bench"))
        .args([
            "bgpsec", "--rows", "library", "--json", "--rounds", "2", "--paths", "2", "--keys", "100,1500",
        ])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let figures: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object each line")).collect();
    let names: Vec<_> = figures.iter().map(|figure| figure["name"].as_str().expect("a name")).collect();
    let of_keys = |count| ["memory", "resident", "loading"].map(|name| format!("{name}, {count} keys"));
    let verify = (1..=5).map(|hops| format!("verify, {hops} hops"));
    let sign = (1..=5).map(|hop| format!("sign, hop {hop}"));
    let wanted: Vec<_> = of_keys(100).into_iter().chain(of_keys(1500)).chain(verify).chain(sign).collect();
    assert_eq!(names, [&wanted[..], &["two threads to one".to_owned()]].concat());
    for figure in &figures {
        let name = figure["name"].as_str().expect("a name");
        let value = figure["value"].as_f64().expect("a number");
        assert!(value > 0.0 || name.starts_with("resident"), "{figure}");
        if name.starts_with("memory") {
            // A record of P-256 has 68 octets.
            assert!((68.0..=105.0).contains(&value) && figure["goal"]["is_reached"] == true, "{figure}");
        }
    }
}
