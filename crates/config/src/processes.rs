//! What a configuration may say follows from the processes that there are: each may have a level of its log and limits.

use crate::{
    describe::{Default::Else, Effect, Key, Table},
    keys,
};

/// A process, as far as a configuration speaks of it.
#[derive(Copy, Clone, Debug)]
pub struct ProcessKeys {
    /// Its name.
    pub name: &'static str,
    /// What it does: `speaks BGP`.
    pub does: &'static str,
}

/// The processes that every router has: they start all others.
const FIRST: [ProcessKeys; 2] = [
    ProcessKeys { name: "keeper", does: "starts the others" },
    ProcessKeys { name: "manager", does: "decides what runs" },
];

/// What a configuration of a router with certain processes may say.
///
/// Descriptions are static data; a schema is made once in a program, and is never freed.
#[derive(Copy, Clone, Debug)]
pub struct Schema {
    file: &'static Table,
    processes: &'static [&'static str],
}

impl Schema {
    /// The schema for a router of these processes, besides keeper and manager.
    pub fn new(processes: impl IntoIterator<Item = ProcessKeys>) -> Self {
        let all: Vec<_> = FIRST.into_iter().chain(processes).collect();
        let levels = all.iter().map(|process| {
            let doc = format!("of the process that {}", process.does);
            keys::key(process.name, keys::LEVEL, Else("`level`"), Effect::Restart, doc.leak())
        });
        // Nobody would start the keeper again when it has used up its memory.
        let limits = all.iter().skip(1).map(|process| keys::table(process.name, &keys::LIMITS));
        let log = with(&keys::LOG, "process", "The level of single processes.", levels.collect());
        let limits_doc = "What each process may use, from its next start on.";
        let sandbox = with(&keys::SANDBOX, "limits", limits_doc, limits.collect());
        let file = keys::FILE.keys.iter().map(|key| match key.name {
            "log" => keys::table("log", log),
            "sandbox" => keys::table("sandbox", sandbox),
            _ => *key,
        });
        let names: Vec<_> = all.iter().map(|process| process.name).collect();
        Self { file: leaked(keys::FILE.doc, file.collect()), processes: names.leak() }
    }

    /// The whole file.
    pub fn file(&self) -> &'static Table {
        self.file
    }

    /// The names of all processes, keeper and manager first.
    pub(crate) fn processes(&self) -> &'static [&'static str] {
        self.processes
    }
}

/// A table with one more, `name`, below it.
fn with(table: &Table, name: &'static str, doc: &'static str, keys: Vec<Key>) -> &'static Table {
    let below = keys::table(name, leaked(doc, keys));
    leaked(table.doc, table.keys.iter().copied().chain([below]).collect())
}

fn leaked(doc: &'static str, keys: Vec<Key>) -> &'static Table {
    Box::leak(Box::new(Table { doc, keys: keys.leak() }))
}
