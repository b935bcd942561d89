//! The crates depend on each other as the table in docs/design/layers.md says.
//!
//! The table is read, not repeated: layers, and inside a layer the order. What lies behind a crate (tokio behind a
//! library, say) counts as well.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// What layers 0 to 2 must not contain, themselves or in what they use: the way to sockets, files, clocks, chance.
const OUTSIDE: [&str; 7] = ["tokio", "mio", "rustix", "libc", "netlink-sys", "getrandom", "rand"];
/// The highest layer without an outside.
const PURE: u8 = 2;
/// The layer of the processes.
const PROCESSES: u8 = 5;

/// What is for development only stands above all: nothing else may use it.
const DEVELOPMENT: u8 = u8::MAX;

/// Layer and place in the table.
type Place = (u8, usize);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn table() -> BTreeMap<String, Place> {
    let text = std::fs::read_to_string(root().join("docs/design/layers.md")).expect("the page is there");
    let rows = text.lines().skip_while(|line| !line.starts_with("| layer |")).skip(2);
    let mut places = BTreeMap::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let layer = if cells[1] == "dev" { DEVELOPMENT } else { cells[1].parse().expect("a layer") };
        for name in cells[2].split('`').skip(1).step_by(2) {
            let place = places.len();
            places.insert(name.to_owned(), (layer, place));
        }
    }
    places
}

/// Packages by name, with what is linked into them: no dependencies of tests or build scripts.
struct Graph(BTreeMap<String, BTreeSet<String>>);

impl Graph {
    fn read() -> Self {
        let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--filter-platform", &platform])
            .current_dir(root())
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let packages = list(&metadata["packages"]);
        let names: BTreeMap<_, _> = packages.iter().map(|p| (text(&p["id"]), text(&p["name"]))).collect();
        let is_linked = |used: &Value| list(&used["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let node = |node: &Value| {
            let used = list(&node["deps"]).into_iter().filter(is_linked);
            (names[&text(&node["id"])].clone(), used.map(|used| names[&text(&used["pkg"])].clone()).collect())
        };
        Self(list(&metadata["resolve"]["nodes"]).iter().map(node).collect())
    }

    /// Our crates by folder, each with those of ours that it uses.
    fn ours(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.0
            .iter()
            .filter_map(|(name, used)| Some((short(name)?, used.iter().filter_map(|u| short(u)).collect())))
    }

    /// Everything behind a package.
    fn behind<'a>(&'a self, package: &str, found: &mut BTreeSet<&'a str>) {
        for used in self.0.get(package).into_iter().flatten() {
            if found.insert(used) {
                self.behind(used, found);
            }
        }
    }
}

fn short(package: &str) -> Option<&str> {
    package.strip_prefix("holdfast-")
}

/// What is wrong with `name` using `used`.
fn fault(name: &str, used: &str, table: &BTreeMap<String, Place>) -> Option<String> {
    match (table.get(name)?, table.get(used)?) {
        ((PROCESSES, _), (PROCESSES, _)) if !["process", "routing"].contains(&used) && name != "holdfast" => {
            Some(format!("{name} uses {used}, the crate of another process"))
        }
        ((layer, _), (DEVELOPMENT, _)) if *layer != DEVELOPMENT => {
            Some(format!("{name} uses {used}, which is for development only"))
        }
        (place, below) if below >= place => {
            Some(format!("{name} (layer {}) uses {used} (layer {}), which is not below it", place.0, below.0))
        }
        _ => None,
    }
}

#[test]
fn every_crate_has_its_place_in_the_table() {
    let (table, graph) = (table(), Graph::read());
    let crates: BTreeSet<&str> = graph.ours().map(|(name, _)| name).collect();
    let places: BTreeSet<&str> = table.keys().map(String::as_str).collect();
    assert_eq!(crates, places);
}

#[test]
fn crates_use_only_what_is_below_them() {
    let (table, graph) = (table(), Graph::read());
    let pairs = graph.ours().flat_map(|(name, used)| used.into_iter().map(move |used| (name, used)));
    let faults: Vec<_> = pairs.filter_map(|(name, used)| fault(name, used, &table)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn pure_crates_have_no_way_outside() {
    let (table, graph) = (table(), Graph::read());
    for (name, place) in table {
        if place.0 <= PURE {
            let mut behind = BTreeSet::new();
            graph.behind(&format!("holdfast-{name}"), &mut behind);
            let outside: Vec<_> = OUTSIDE.into_iter().filter(|package| behind.contains(package)).collect();
            assert!(outside.is_empty(), "{name} contains {outside:?}");
        }
    }
}

#[test]
fn an_arrow_that_points_upwards_is_seen() {
    let table = table();
    let upwards = [
        ("types", "bgp-wire"),
        ("policy", "config"),
        ("rib", "xrl"),
        ("bgpd", "ribd"),
        ("manager", "keeper"),
        ("process", "lab"),
        ("lab", "bench"),
    ];
    for (name, used) in upwards {
        assert!(fault(name, used, &table).is_some(), "{name} may use {used}");
    }
    let downwards = [
        ("config", "policy"),
        ("bgpd", "process"),
        ("holdfast", "bgpd"),
        ("lab", "bgp-wire"),
        ("bench", "lab"),
    ];
    for (name, used) in downwards {
        assert_eq!(fault(name, used, &table), None);
    }
}
