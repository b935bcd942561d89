//! A router as far as its sessions go: what one peer says, all others are told.
//!
//! A message says that a peer has said its octets from one offset to another. So each peer sees whether anything was lost,
//! doubled or told in another order. Entries say of which peer how much was told, so the next process knows as well.

use std::collections::BTreeMap;

use holdfast_nsr::{EntryId, Full, Log, SessionId};

use crate::{scene::Both, tests::whole::PEERS};

/// Octets of a message: who, from where, up to where.
pub(super) const MESSAGE: usize = 17;

pub(super) fn message(who: usize, from: u64, to: u64) -> Vec<u8> {
    [&[who as u8][..], &from.to_le_bytes(), &to.to_le_bytes()].concat()
}

/// What of a stream of messages is whole.
pub(super) fn messages(octets: &[u8]) -> impl Iterator<Item = (usize, u64, u64)> {
    octets.chunks_exact(MESSAGE).map(|message| {
        let word = |at: usize| u64::from_le_bytes(message[at..at + 8].try_into().expect("eight octets"));
        (message[0].into(), word(1), word(9))
    })
}

/// How far each peer's octets were told.
pub(super) type Told = [u64; PEERS];

/// What an entry says on top of those before it.
fn entry(told: impl Iterator<Item = (usize, u64)>) -> Vec<u8> {
    told.flat_map(|(who, to)| [&[who as u8][..], &to.to_le_bytes()].concat()).collect()
}

/// The process.
pub(super) struct App {
    pub(super) log: Log<Both>,
    pub(super) ids: Vec<SessionId>,
    /// Of each peer, the offset up to which its octets were processed, and what it was told.
    processed: Vec<u64>,
    told: Vec<Told>,
}

impl App {
    /// Goes on with a log. `begin`: where the peers' streams began.
    pub(super) fn new(log: Log<Both>, ids: Vec<SessionId>, begin: Told) -> Self {
        let mut app = Self { log, ids, processed: Vec::new(), told: Vec::new() };
        for at in 0..PEERS {
            let id = app.ids[at];
            let snapshot: Vec<u8> = app.log.snapshot(id).flatten().copied().collect();
            let said = snapshot.first_chunk().map(|chunk| u64::from_le_bytes(*chunk));
            let start = app.log.incoming(id).start;
            assert_eq!(said.unwrap_or(begin[at]), start, "octets count from where the snapshot ends");
            app.processed.push(start);
            app.told.push(app.list(app.log.passed(id), begin));
        }
        app
    }

    /// What a list of entries says.
    fn list(&self, mut at: EntryId, begin: Told) -> Told {
        let mut told = begin;
        while at != EntryId::NONE {
            let (previous, octets) = self.log.entry(at);
            for one in octets.chunks_exact(9) {
                let to = u64::from_le_bytes(one[1..].try_into().expect("eight octets"));
                let who = usize::from(one[0]);
                told[who] = told[who].max(to);
            }
            at = previous;
        }
        told
    }

    pub(super) fn told(&self, to: usize) -> &Told {
        &self.told[to]
    }

    /// Takes octets of a peer; `is_said`: it lives long enough to say so in the log. How many there was room for.
    pub(super) fn receive(&mut self, from: usize, octets: &[u8], is_said: bool) -> usize {
        let id = self.ids[from];
        let Ok([first, second]) = self.log.room(id, 1) else { return 0 };
        let count = octets.len().min(first.len() + second.len());
        let cut = first.len().min(count);
        first[..cut].copy_from_slice(&octets[..cut]);
        second[..count - cut].copy_from_slice(&octets[cut..count]);
        if is_said {
            self.log.received(id, count);
        }
        count
    }

    /// Processes so many octets of a peer, and tells others of it: so many of them before it dies, if it does.
    pub(super) fn process(&mut self, from: usize, count: u64, most: usize) {
        let end = self.log.incoming(self.ids[from]).end;
        self.processed[from] = (self.processed[from] + count).min(end);
        // Without room it is told later.
        let _ = self.tell(from, most);
    }

    fn tell(&mut self, who: usize, most: usize) -> Result<(), Full> {
        let to = self.processed[who];
        let mut entries = BTreeMap::new();
        let late: Vec<usize> =
            (0..PEERS).filter(|other| *other != who && self.told[*other][who] < to).collect();
        for other in late.into_iter().take(most) {
            let id = self.ids[other];
            let head = self.log.passed(id);
            let new = match entries.get(&head) {
                Some(new) => *new,
                None => self.log.append(head, &entry([(who, to)].into_iter()))?,
            };
            entries.insert(head, new);
            self.log.push(id, &message(who, self.told[other][who], to), Some(new))?;
            self.told[other][who] = to;
        }
        // Who has said it shares the list, where it can.
        let id = self.ids[who];
        if let Some(new) = entries.get(&self.log.passed(id)) {
            self.log.set_passed(id, *new);
        }
        Ok(())
    }

    /// What was processed is in a snapshot from now on.
    pub(super) fn snapshot(&mut self, who: usize, padding: usize) {
        let (id, to) = (self.ids[who], self.processed[who]);
        self.log.begin_snapshot(id);
        let record = [&to.to_le_bytes()[..], &vec![0; padding]].concat();
        match self.log.snapshot_record(id, &record) {
            Ok(()) => self.log.commit_snapshot(id, to),
            Err(Full) => self.log.abort_snapshot(id),
        }
    }

    /// What stands before the last entry of a peer's list becomes one entry; what nobody reaches is collected.
    pub(super) fn fold(&mut self, who: usize, begin: Told) {
        let head = self.log.passed(self.ids[who]);
        if head != EntryId::NONE {
            let (previous, _) = self.log.entry(head);
            let told = self.list(previous, begin);
            if let Ok(base) = self.log.append(EntryId::NONE, &entry(told.into_iter().enumerate())) {
                self.log.rebase(head, base);
            }
        }
        self.log.collect([]);
    }
}
