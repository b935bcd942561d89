//! What takes how much room.

use crate::{Log, Memory, SessionId};

/// What the log holds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Octets of a block.
    pub block: u64,
    /// Blocks of the log.
    pub blocks: u64,
    /// Blocks nobody uses.
    pub free: u64,
    /// Sessions in the log.
    pub sessions: u64,
    /// Sessions there can be.
    pub most_sessions: u64,
    /// What all sessions hold together.
    pub held: SessionUsage,
    /// Octets of entries, those included that [`Log::collect`] would free.
    pub entries: u64,
    /// Blocks of entries.
    pub entry_blocks: u64,
}

/// What a session holds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionUsage {
    /// Octets of what came in since the snapshot.
    pub incoming: u64,
    /// Octets not known to be acknowledged.
    pub outgoing: u64,
    /// Octets of records of the snapshot that holds.
    pub snapshot: u64,
    /// Blocks, of a snapshot that was begun too.
    pub blocks: u64,
}

impl<M: Memory> Log<M> {
    /// What the log holds. It takes time proportional to its size.
    pub fn usage(&self) -> Usage {
        let held = self.sessions().map(|id| self.session_usage(id)).fold(SessionUsage::default(), |a, b| {
            SessionUsage {
                incoming: a.incoming + b.incoming,
                outgoing: a.outgoing + b.outgoing,
                snapshot: a.snapshot + b.snapshot,
                blocks: a.blocks + b.blocks,
            }
        });
        let (entries, entry_blocks) = self.entries.usage();
        Usage {
            block: self.store.layout.block() as u64,
            blocks: self.store.layout.blocks as u64,
            free: self.store.free_blocks() as u64,
            sessions: self.sessions().count() as u64,
            most_sessions: self.store.layout.cells as u64,
            held,
            entries,
            entry_blocks: entry_blocks as u64,
        }
    }

    /// What a session holds.
    pub fn session_usage(&self, id: SessionId) -> SessionUsage {
        let session = self.session(id);
        let building = session.building.as_ref().map_or(0, |building| building.blocks.len());
        let blocks =
            session.incoming.blocks() + session.outgoing.blocks() + session.snapshot.len() + building;
        SessionUsage {
            incoming: session.incoming.len(),
            outgoing: session.outgoing.len(),
            snapshot: session.snapshot_octets,
            blocks: blocks as u64,
        }
    }

    /// Octets there is room for, and those of blocks in use.
    pub fn size_and_used(&self) -> (u64, u64) {
        let (block, blocks) = (self.store.layout.block() as u64, self.store.layout.blocks as u64);
        (block * blocks, block * (blocks - self.store.free_blocks() as u64))
    }

    /// Blocks nobody uses: what is left before [`Full`](crate::Full).
    pub fn free_blocks(&self) -> usize {
        self.store.free_blocks()
    }
}
