//! The events that the manual lists are those that are logged.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(fs::read_to_string(&path).expect("text"));
        }
    }
}

/// Events of the code, each with all that is written behind its name.
fn logged() -> BTreeMap<String, String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates").flatten() {
        let source = entry.path().join("src");
        if source.is_dir() {
            sources(&source, &mut texts);
        }
    }
    let mut events: BTreeMap<String, String> = BTreeMap::new();
    for part in texts.iter().flat_map(|text| text.split("event = \"").skip(1)) {
        let (name, rest) = part.split_once('"').expect("a closing quote");
        let fields = rest.split(';').next().unwrap_or_default();
        events.entry(name.to_owned()).or_default().push_str(fields);
    }
    events
}

/// Events of the manual with their fields: rows of the table, as in ``| `session-up` | bgp | `peer`, `address` | …``.
fn documented() -> BTreeMap<String, Vec<String>> {
    let page = fs::read_to_string(root().join("docs/manual/logs.md")).expect("the page");
    let rows = page.lines().skip_while(|line| !line.starts_with("| event |")).skip(2);
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    rows.take_while(|line| line.starts_with('|'))
        .map(|row| {
            let cells: Vec<&str> = row.split('|').collect();
            (quoted(cells[1]).remove(0), quoted(cells[3]))
        })
        .collect()
}

#[test]
fn the_manual_lists_every_event_with_its_fields() {
    let (logged, documented) = (logged(), documented());
    let names = |events: BTreeSet<&String>| events.into_iter().cloned().collect::<Vec<_>>();
    let missing = names(logged.keys().filter(|name| !documented.contains_key(*name)).collect());
    let gone = names(documented.keys().filter(|name| !logged.contains_key(*name)).collect());
    assert!(missing.is_empty() && gone.is_empty(), "not in logs.md: {missing:?}; not in the code: {gone:?}");
    for (name, fields) in &documented {
        for field in fields {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let has = logged[name].split(|c| !is_word(c)).any(|word| word == field);
            assert!(has, "{name} has no field {field}");
        }
    }
}
