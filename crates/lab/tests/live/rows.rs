//! The rows of the schema, and which of them differ between two configurations.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value as Json;
use toml::Value;

/// What `holdfast schema` prints; a test holds the file to the rows.
const SCHEMA: &str = include_str!("../../../../docs/holdfast.schema.json");

/// The rows, as `bgp.peer.hold-time`, with whether a change ends sessions.
pub(super) struct Rows {
    schema: Json,
    ends: BTreeMap<String, bool>,
}

/// A row of `true` or `false`.
pub(super) struct Flag {
    /// In full.
    pub(super) row: String,
    /// Of a peer, not of `[bgp]`.
    pub(super) of_peer: bool,
    pub(super) key: String,
    /// `false`, too, where another key says what it is.
    pub(super) default: bool,
    /// Whether a change ends sessions.
    pub(super) ends: bool,
}

impl Rows {
    pub(super) fn read() -> Result<Self> {
        let schema: Json = serde_json::from_str(SCHEMA)?;
        let mut ends = BTreeMap::new();
        walk("", &schema, &mut ends);
        Ok(Self { schema, ends })
    }

    pub(super) fn all(&self) -> BTreeSet<String> {
        self.ends.keys().cloned().collect()
    }

    pub(super) fn ends(&self, row: &str) -> Result<bool> {
        self.ends.get(row).copied().with_context(|| format!("no row {row}"))
    }

    /// The boolean rows of `[bgp]` and of a peer.
    pub(super) fn flags(&self) -> Vec<Flag> {
        let bgp = &self.schema["properties"]["bgp"];
        let tables = [("bgp", bgp), ("bgp.peer", &bgp["properties"]["peer"])];
        let keys = tables.iter().flat_map(|(table, schema)| {
            properties(schema).into_iter().map(move |(key, schema)| (*table, key, schema))
        });
        let flags = keys.filter(|(_, _, schema)| schema["type"] == "boolean");
        let flags = flags.map(|(table, key, schema)| {
            let row = format!("{table}.{key}");
            Flag {
                of_peer: table != "bgp",
                key: key.clone(),
                default: schema["default"] == true,
                ends: self.ends.get(&row) == Some(&true),
                row,
            }
        });
        flags.collect()
    }

    /// The rows that differ; of a table that comes or goes, all that it has.
    pub(super) fn changed(&self, old: &toml::Table, new: &toml::Table) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        compare("", &self.schema, &[old], &[new], &mut changed);
        changed
    }
}

/// The keys of a table, wherever its schema has them; none of one that is described elsewhere.
fn properties(schema: &Json) -> Vec<(&String, &Json)> {
    let own = schema["properties"].as_object().into_iter().flatten();
    let listed = schema.get("items").map(properties).unwrap_or_default();
    let either = schema["anyOf"].as_array().into_iter().flatten().flat_map(properties);
    // What a list of tables has may be said for the table alone as well.
    let mut all: Vec<_> =
        own.chain(listed).chain(either).filter(|(_, key)| key["description"].is_string()).collect();
    all.dedup_by_key(|(name, _)| *name);
    all
}

fn walk(above: &str, schema: &Json, ends: &mut BTreeMap<String, bool>) {
    for (name, key) in properties(schema) {
        let row = format!("{above}{name}");
        let says = key["description"].as_str().unwrap_or_default();
        ends.insert(row.clone(), says.contains("ends the session"));
        walk(&format!("{row}."), key, ends);
    }
}

/// The tables that stand under a key.
fn tables(value: Option<&Value>) -> Vec<&toml::Table> {
    match value {
        Some(Value::Table(table)) => vec![table],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_table).collect(),
        _ => Vec::new(),
    }
}

fn compare(
    above: &str,
    schema: &Json,
    old: &[&toml::Table],
    new: &[&toml::Table],
    changed: &mut BTreeSet<String>,
) {
    let empty = toml::Table::new();
    let name = |table: &toml::Table| table.get("name").cloned();
    for place in 0..old.len().max(new.len()) {
        // Tables are told apart by their names, or by their places.
        let before = old.get(place).copied();
        let after = match before.and_then(name) {
            Some(called) => new.iter().find(|table| name(table) == Some(called.clone())).copied(),
            None => new.get(place).copied(),
        };
        let added = new
            .get(place)
            .filter(|table| name(table).is_some() && !old.iter().any(|old| name(old) == name(table)));
        for (before, after) in [(before, after), (None, added.copied())] {
            let (before, after) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
            for (key, schema) in properties(schema) {
                let (was, is) = (before.get(key), after.get(key));
                if was != is {
                    let row = format!("{above}{key}");
                    compare(&format!("{row}."), schema, &tables(was), &tables(is), changed);
                    changed.insert(row);
                }
            }
        }
    }
}
