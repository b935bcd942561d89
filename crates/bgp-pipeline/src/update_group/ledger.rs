//! What is needed to keep the journal of announcements.

use crate::{
    adj_rib_out::Target,
    journal::{
        AttributeHasher, Journal, JournalEntry, Names,
        format::{self, Scope},
    },
};

/// What is needed to keep the journal.
#[derive(Debug)]
pub(super) struct Ledger {
    journal: Box<dyn Journal>,
    pub(super) hasher: AttributeHasher,
    pub(super) names: Names,
    entry: Vec<u8>,
}

impl Ledger {
    pub(super) fn new(journal: Box<dyn Journal>) -> Self {
        let hasher = AttributeHasher::new(journal.key());
        Self { journal, hasher, names: Names::default(), entry: Vec::new() }
    }

    /// Keeps what a run has announced.
    pub(super) fn append(&mut self, previous: JournalEntry, target: Target, items: &[u8]) -> JournalEntry {
        if previous == JournalEntry::LOST {
            return previous;
        }
        let whom = match target {
            Target::All | Target::Except(_) | Target::Nobody => Scope::All,
            Target::Only(peer) => Scope::Only(self.names.number(peer)),
        };
        self.entry.clear();
        format::push_whom(&mut self.entry, whom);
        self.entry.extend_from_slice(items);
        self.journal.append(previous, &self.entry)
    }
}
