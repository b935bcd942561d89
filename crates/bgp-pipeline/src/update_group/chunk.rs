//! Messages that are encoded and not read by all members yet.

use std::{ops::Deref, rc::Rc};

use bytes::{Bytes, BytesMut};
use holdfast_bgp_wire::MessageType;

use crate::{adj_rib_out::Target, journal::JournalEntry, own_next_hop::OwnNextHops};

/// Encoded messages for the members it is meant for.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Bytes,
    pub(super) messages: u64,
    pub(super) kind: MessageType,
    pub(super) target: Target,
    /// Where we stand as next hop, ascending; shared with the other chunks of its window.
    pub(super) own_next_hops: Rc<[u32]>,
    /// Where it starts in the window.
    pub(super) start: usize,
    /// It is about IPv4 routes.
    pub(super) ipv4: bool,
    /// What the journal says of it and of all before it.
    pub(super) entry: JournalEntry,
    /// Members that have not passed it.
    pub(super) readers: usize,
}

/// Whole messages for a peer's socket.
#[derive(Clone, Debug)]
pub struct Messages {
    /// One behind the other.
    pub bytes: Bytes,
    /// How many.
    pub count: u64,
    /// What they are: UPDATEs, or the ROUTE-REFRESH that encloses some (RFC 7313).
    pub kind: MessageType,
}

impl Deref for Messages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Chunk {
    /// The messages: the shared bytes for who has the addresses that they were encoded with, else a copy with the
    /// member's own.
    pub(super) fn messages(&self, shared: &OwnNextHops, own: &OwnNextHops) -> Messages {
        let (bytes, count, kind) = (self.bytes.clone(), self.messages, self.kind);
        let Some(next_hop) = own.get(self.ipv4).filter(|own| Some(*own) != shared.get(self.ipv4)) else {
            return Messages { bytes, count, kind };
        };
        let end = self.start + bytes.len();
        let first = self.own_next_hops.partition_point(|at| (*at as usize) < self.start);
        let places = self.own_next_hops[first..].iter().map(|at| *at as usize).take_while(|at| *at < end);
        let mut copy = BytesMut::from(&*bytes);
        for at in places {
            next_hop.put(&mut copy[at - self.start..]);
        }
        Messages { bytes: copy.freeze(), count, kind }
    }
}
