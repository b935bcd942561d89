//! What the driver of this model writes into entries, and what it makes of them.

use std::collections::BTreeMap;

use holdfast_nsr::{EntryId, Log, Memory, SessionId};

use crate::tests::crash::kernel::{Prefix, Table, Value, apply};

/// Prefixes with their values and where these come from: nobody is told his own.
pub(crate) type View = BTreeMap<Prefix, (Value, SessionId)>;

/// A chunk of announcements, encoded once for all it is for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunk {
    /// The only session it is for.
    pub(crate) target: Option<SessionId>,
    /// What was said before it is void: the session has just begun, or all of it follows.
    pub(crate) is_fresh: bool,
    pub(crate) changes: Vec<(Prefix, Value, Option<SessionId>)>,
}

impl Chunk {
    /// All that one session has been told.
    pub(crate) fn of_table(target: SessionId, told: &Table) -> Self {
        let changes = told.iter().map(|(prefix, value)| (*prefix, *value, None)).collect();
        Self { target: Some(target), is_fresh: true, changes }
    }

    /// From one table to another.
    pub(crate) fn of_changes(target: SessionId, from: &Table, to: &Table) -> Self {
        let changes = changes(from, to).into_iter().map(|(prefix, value)| (prefix, value, None)).collect();
        Self { target: Some(target), is_fresh: false, changes }
    }

    /// From one view to another, at most so many changes.
    pub(crate) fn of_views(from: &View, to: &View, most: usize) -> Self {
        let gone = from.keys().filter(|prefix| !to.contains_key(prefix)).map(|prefix| (*prefix, 0, None));
        let news = to.iter().filter(|(prefix, new)| from.get(prefix) != Some(new));
        let news = news.map(|(prefix, (value, origin))| (*prefix, *value, Some(*origin)));
        Self { changes: gone.chain(news).take(most).collect(), ..Self::default() }
    }

    pub(crate) fn apply_to(&self, told: &mut Table, id: SessionId) {
        if self.target.is_some_and(|target| target != id) {
            return;
        }
        if self.is_fresh {
            told.clear();
        }
        for (prefix, value, origin) in &self.changes {
            apply(told, (*prefix, if *origin == Some(id) { 0 } else { *value }));
        }
    }

    pub(crate) fn encode(&self, padding: usize) -> Vec<u8> {
        let number = |id: Option<SessionId>| id.map_or(0, |id| id.0).to_be_bytes();
        let mut octets = number(self.target).to_vec();
        octets.extend([u8::from(self.is_fresh), self.changes.len() as u8]);
        for (prefix, value, origin) in &self.changes {
            octets.push(*prefix);
            octets.extend(value.to_be_bytes());
            octets.extend(number(*origin));
        }
        octets.resize(octets.len() + padding, 0xdd);
        octets
    }

    fn decode(octets: &[u8]) -> Self {
        let number = |octets: &[u8]| u32::from_be_bytes(octets.try_into().expect("four octets"));
        let id = |octets| Some(SessionId(number(octets))).filter(|id| id.0 != 0);
        let (changes, padding) = octets[6..].split_at(9 * usize::from(octets[5]));
        assert!(padding.iter().all(|octet| *octet == 0xdd), "an entry is whole");
        let changes = changes.chunks(9).map(|change| (change[0], number(&change[1..5]), id(&change[5..])));
        Self { target: id(&octets[..4]), is_fresh: octets[4] == 1, changes: changes.collect() }
    }
}

/// What makes one table of another: new values, and 0 for those that are gone.
pub(crate) fn changes(from: &Table, to: &Table) -> Vec<(Prefix, Value)> {
    let gone = from.keys().filter(|prefix| !to.contains_key(prefix)).map(|prefix| (*prefix, 0));
    let news = to.iter().filter(|(prefix, value)| from.get(prefix) != Some(value));
    gone.chain(news.map(|(prefix, value)| (*prefix, *value))).collect()
}

/// What a session has been told when it has passed this entry.
pub(crate) fn told<M: Memory>(log: &Log<M>, passed: EntryId, id: SessionId) -> Table {
    let mut chunks = Vec::new();
    let mut at = passed;
    while at != EntryId::NONE {
        let (previous, octets) = log.entry(at);
        chunks.push(Chunk::decode(octets));
        at = previous;
    }
    let mut table = Table::new();
    chunks.iter().rev().for_each(|chunk| chunk.apply_to(&mut table, id));
    table
}
