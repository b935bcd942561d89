//! A member of a group, and how it is called to read.

use crate::{journal::JournalEntry, own_next_hop::OwnNextHops, seam::StreamKey};

/// The number of a stream.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct StreamId(pub(crate) u32);

impl StreamId {
    pub(super) fn lane(self) -> StreamKey {
        StreamKey::Group(self.0)
    }
}

/// Where a member is in its stream's queue.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) stream: StreamId,
    pub(super) own: OwnNextHops,
    pub(super) chunk: u64,
    /// The journal's entry of the chunk before.
    pub(crate) passed: JournalEntry,
    /// Prefixes not announced to it because it is where they come from.
    pub(super) withheld: [i64; 2],
    pub(super) call: Call,
}

/// How a member is called to pull. Whoever was named is not named again until it was given nothing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Call {
    /// It has pulled all there was.
    Quiet,
    /// To be named.
    Queued,
    /// Named.
    Pulling,
}
