//! Whoever sends octets must not choose which of them collide. Hash tables of ours are keyed: with `holdfast_types::HashKey`, or as
//! the maps of std are. Here is looked for what is not. Crates with other hashes are banned in `deny.toml`.

use std::{fs, path::Path};

use crate::sources;

/// What a hash without a secret is called, or one that is only fast.
const UNKEYED: [&str; 7] = [
    "BuildHasherDefault",
    "DefaultHashBuilder",
    "DefaultHasher",
    "SipHasher::new()",
    "SipHasher13::new()",
    "SipHasher24::new()",
    "Hasher for ",
];

/// Where one is all the same, and why nobody gains by a collision. In order.
const EXCEPTIONS: [(&str, &str); 4] = [
    ("lab/src/drill/record.rs", "compares what two peers of a drill were told"),
    ("manager/src/file.rs", "names a text of the operator's, who may write another one anyway"),
    ("manager/src/history/parts.rs", "names parts of such a text on the disk, which are compared as well"),
    ("types/src/hash.rs", "is the keyed hash"),
];

#[test]
fn every_hash_table_is_keyed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    sources(&root.join("crates"), &mut all);
    assert!(all.len() > 100, "sources are found");
    let crates = root.join("crates");
    let (mut wrong, mut met) = (Vec::new(), Vec::new());
    for path in all {
        let name = path.strip_prefix(&crates).expect("in there").display().to_string();
        // This list is not to find itself, and tests may count as they like.
        if name.contains("/tests/") || name.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source");
        let found = findings(&text);
        match EXCEPTIONS.iter().find(|(file, _)| *file == name) {
            Some((file, _)) if !found.is_empty() => met.push(*file),
            Some(_) => {}
            None => wrong.extend(found.into_iter().map(|line| format!("{name}: {line}"))),
        }
    }
    assert!(wrong.is_empty(), "hashes without a key:\n{}", wrong.join("\n"));
    // Files come in any order.
    met.sort_unstable();
    assert_eq!(met, EXCEPTIONS.map(|(file, _)| file), "exceptions that are still needed");
}

/// Lines with a hash that has no key.
fn findings(text: &str) -> Vec<&str> {
    let imports = text.split(';').filter(|item| item.contains("use hashbrown"));
    // Its maps hash with what other crates have switched on, unless they are told.
    let [maps, sets] = ["HashMap", "HashSet"].map(|kind| imports.clone().any(|import| import.contains(kind)));
    let without_key = |line: &str| {
        let is_map = maps && line.contains("HashMap<") || sets && line.contains("HashSet<");
        is_map && !line.contains("HashKey")
    };
    text.lines()
        .filter(|line| UNKEYED.iter().any(|name| line.contains(name)) || without_key(line))
        .map(str::trim)
        .collect()
}

#[test]
fn what_has_no_key_is_found() {
    assert_eq!(findings("let mut hasher = SipHasher13::new();"), ["let mut hasher = SipHasher13::new();"]);
    assert_eq!(findings("impl std::hash::Hasher for Mine {"), ["impl std::hash::Hasher for Mine {"]);
    let map = "use hashbrown::{HashMap, hash_map::Entry};\nmap: HashMap<Prefix, u32>,";
    assert_eq!(findings(map), ["map: HashMap<Prefix, u32>,"]);
    assert!(findings("use std::collections::HashMap;\nmap: HashMap<Prefix, u32>,").is_empty());
    assert!(findings("use hashbrown::HashMap;\nmap: HashMap<Prefix, u32, HashKey>,").is_empty());
}
