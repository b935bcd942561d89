//! What other people's crates may be used, by whom and under which licence: `deny.toml`, read here without cargo-deny, which
//! takes minutes to compile. `make drills` runs cargo-deny itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use spdx::{Expression, Licensee, ParseMode};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Sections of `deny.toml` with the keys that are read here; cargo-deny would obey others.
const KEYS: [(&str, &[&str]); 4] = [
    ("bans", &["allow-wildcard-paths", "deny", "multiple-versions", "wildcards"]),
    ("graph", &["all-features", "targets"]),
    ("licenses", &["allow", "exceptions"]),
    ("sources", &["unknown-git", "unknown-registry"]),
];

/// The rules of `deny.toml` that hold here.
struct Rules {
    /// What is built at all is what is built for one of these.
    platforms: Vec<String>,
    licences: Vec<Licensee>,
    /// Further ones, by crate.
    exceptions: BTreeMap<String, Vec<Licensee>>,
    /// Who may depend on a crate, for those where that is limited.
    wrappers: BTreeMap<String, BTreeSet<String>>,
}

impl Rules {
    fn read(text: &str) -> Self {
        let rules: toml::Table = text.parse().expect("TOML");
        let list = |value: &toml::Value| value.as_array().expect("a list").clone();
        let text = |value: &toml::Value| value.as_str().expect("text").to_owned();
        let licensees = |value: &toml::Value| -> Vec<Licensee> {
            list(value).iter().map(|name| Licensee::parse(&text(name)).expect("a licence of SPDX")).collect()
        };
        let exceptions = list(&rules["licenses"]["exceptions"]);
        let banned = list(&rules["bans"]["deny"]);
        let names = |section: &toml::Value| -> BTreeSet<String> {
            section.as_table().expect("a section").keys().cloned().collect()
        };
        let keys: BTreeMap<_, _> =
            rules.iter().map(|(name, section)| (name.as_str(), names(section))).collect();
        let known = KEYS.map(|(name, keys)| (name, keys.iter().map(|key| (*key).to_owned()).collect()));
        assert_eq!(keys, BTreeMap::from(known), "keys of deny.toml that are known here");
        for (section, key) in [("graph", "all-features"), ("bans", "allow-wildcard-paths")] {
            assert_eq!(rules[section][key].as_bool(), Some(true), "{section}.{key}");
        }
        for (section, key) in
            [("bans", "wildcards"), ("sources", "unknown-registry"), ("sources", "unknown-git")]
        {
            assert_eq!(rules[section][key].as_str(), Some("deny"), "{section}.{key} is looked at as denied");
        }
        Self {
            platforms: list(&rules["graph"]["targets"]).iter().map(text).collect(),
            licences: licensees(&rules["licenses"]["allow"]),
            exceptions: exceptions
                .iter()
                .map(|one| (text(&one["crate"]), licensees(&one["allow"])))
                .collect(),
            wrappers: banned
                .iter()
                .map(|one| (text(&one["name"]), list(&one["wrappers"]).iter().map(&text).collect()))
                .collect(),
        }
    }

    /// What is wrong with one package of `cargo metadata`.
    fn faults(&self, package: &Value) -> Vec<String> {
        let name = package["name"].as_str().expect("a name");
        let version = package["version"].as_str().expect("a version");
        let mut faults = Vec::new();
        // "MIT/Apache-2.0" is how it was written once.
        let licence = |text| Expression::parse_mode(text, ParseMode::LAX);
        match package["license"].as_str().map(licence) {
            Some(Ok(licence)) => {
                let more = self.exceptions.get(name).into_iter().flatten();
                let allowed: Vec<_> = self.licences.iter().chain(more).collect();
                if !licence.evaluate(|asked| allowed.iter().any(|licensee| licensee.satisfies(asked))) {
                    faults.push(format!("{name} {version} has the licence {licence}"));
                }
            }
            Some(Err(error)) => faults.push(format!("{name} {version}: {error}")),
            None => faults.push(format!("{name} {version} names no licence")),
        }
        let source = package["source"].as_str();
        if source.is_some_and(|source| source != "registry+https://github.com/rust-lang/crates.io-index") {
            faults.push(format!("{name} {version} comes from {source:?}"));
        }
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let used = dependency["name"].as_str().expect("a name");
            if self.wrappers.get(used).is_some_and(|wrappers| !wrappers.contains(name)) {
                faults.push(format!("{name} uses {used}, which it may not"));
            }
            if dependency["req"] == "*" && dependency["path"].is_null() {
                faults.push(format!("{name} takes any version of {used}"));
            }
        }
        faults
    }
}

/// The packages that are built for a platform, with what of their dependencies is used there.
fn packages(platform: &str) -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--all-features", "--filter-platform", platform])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let nodes = metadata["resolve"]["nodes"].as_array().expect("a graph").clone();
    let used: BTreeMap<&str, BTreeSet<&str>> = nodes.iter().map(used_by).collect();
    let mut built = Vec::new();
    for mut package in metadata["packages"].as_array().expect("packages").clone() {
        let Some(used) = package["id"].as_str().and_then(|id| used.get(id)) else { continue };
        let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
        let kept = dependencies.filter(|one| used.iter().any(|id| is_of(id, &one["name"])));
        package["dependencies"] = kept.cloned().collect();
        built.push(package);
    }
    built
}

fn used_by(node: &Value) -> (&str, BTreeSet<&str>) {
    let dependencies = node["deps"].as_array().expect("dependencies").iter();
    (node["id"].as_str().expect("an id"), dependencies.filter_map(|one| one["pkg"].as_str()).collect())
}

/// Whether a package id of cargo's (`registry+…#name@1.0.0`, `path+…/name#1.0.0`) is of that name.
fn is_of(id: &str, name: &Value) -> bool {
    let (path, last) = id.rsplit_once('#').expect("a package id");
    let named = last.split_once('@').map_or_else(|| path.rsplit('/').next(), |(name, _)| Some(name));
    named == name.as_str()
}

fn rules() -> Rules {
    Rules::read(&std::fs::read_to_string(root().join("deny.toml")).expect("the rules"))
}

#[test]
fn licences_sources_and_users_are_those_that_deny_toml_allows() {
    let rules = rules();
    let packages: Vec<_> = rules.platforms.iter().flat_map(|platform| packages(platform)).collect();
    assert!(packages.len() > 200, "{} packages", packages.len());
    for name in rules.wrappers.keys().chain(rules.exceptions.keys()) {
        assert!(packages.iter().any(|package| package["name"] == **name), "deny.toml: nobody uses {name}");
    }
    let faults: BTreeSet<_> = packages.iter().flat_map(|package| rules.faults(package)).collect();
    assert_eq!(faults, BTreeSet::new());
}

#[test]
fn what_is_not_allowed_is_seen() {
    let package = serde_json::json!({
        "name": "guest", "version": "1.0.0", "license": "MIT AND GPL-3.0-only", "source": "git+https://example.org",
        "dependencies": [
            { "name": "netlink-sys", "req": "^0.9", "path": null },
            { "name": "bytes", "req": "*", "path": null },
        ],
    });
    let faults = rules().faults(&package);
    assert_eq!(
        faults,
        [
            "guest 1.0.0 has the licence MIT AND GPL-3.0-only",
            "guest 1.0.0 comes from Some(\"git+https://example.org\")",
            "guest uses netlink-sys, which it may not",
            "guest takes any version of bytes",
        ]
    );
    let free = serde_json::json!({
        "name": "cbindgen", "version": "1.0.0", "license": "MPL-2.0", "source": null, "dependencies": [],
    });
    assert_eq!(rules().faults(&free), [""; 0]);
}
