//! What the descriptors of all processes make together.

use std::{collections::BTreeSet, fs};

use holdfast_process::{Process, formats::Formats};

/// Those that have no section for themselves: the others name what they need in their descriptors only.
fn names<'a>(order: impl Iterator<Item = &'a Process>) -> Vec<&'static str> {
    order.filter(|process| process.section().is_none()).map(|process| process.name).collect()
}

#[test]
fn they_are_replaced_before_whom_they_are_fed_by_and_configured_after_whom_they_need() {
    let processes = super::processes();
    let replaced = [
        "gate",
        "fea",
        "rib",
        "transport",
        "replicator",
        "bgp",
        "pathsec",
        "rpki",
        "metrics",
        "glass",
        "monitor",
    ];
    let configured = [
        "gate",
        "fea",
        "rib",
        "transport",
        "rpki",
        "replicator",
        "pathsec",
        "bgp",
        "metrics",
        "glass",
        "monitor",
    ];
    assert_eq!(names(processes.as_replaced()), replaced);
    assert_eq!(names(processes.as_configured()), configured);
}

#[test]
fn every_interface_is_served_by_a_process_that_says_so() {
    let mut services = BTreeSet::new();
    let folders = |path: &std::path::Path| fs::read_dir(path).into_iter().flatten().flatten();
    let api = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../api"));
    let versions = folders(api).flat_map(|interface| folders(&interface.path()).collect::<Vec<_>>());
    let files = versions.flat_map(|version| folders(&version.path()).collect::<Vec<_>>());
    for file in files.filter(|file| file.path().extension().is_some_and(|extension| extension == "proto")) {
        let text = fs::read_to_string(file.path()).expect("an interface");
        let after = |start| text.lines().filter_map(move |line| line.strip_prefix(start));
        let package = after("package ").find_map(|rest| rest.strip_suffix(';')).expect("a package");
        let named = after("service ").filter_map(|rest| rest.split_whitespace().next());
        services.extend(named.map(|name| format!("{package}.{name}")));
    }
    let known = Formats::own(&super::processes()).expect("readable").interfaces;
    assert_eq!(known.into_keys().collect::<BTreeSet<_>>(), services);
}
