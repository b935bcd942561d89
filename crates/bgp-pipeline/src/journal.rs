//! The journal: what update groups have announced, in a form that outlives the process.
//!
//! Adj-RIB-Out is not stored, so a process that goes on with the sessions of another would not know what their peers
//! have been told. Each chunk of encoded messages therefore leaves an *entry*: which prefixes it withdraws, which it
//! announces with which attributes (as a hash), and from which peer those came, who was not told therefore. An entry
//! names the one before it, so a stream's history is a list, a fork of a stream is two entries behind the same one, and
//! a member's place is one number.
//!
//! Routes are entered also where their source is the only member of a stream: others may join it.

pub(crate) mod format;
pub(crate) mod list;

use std::{collections::HashMap, fmt};

use holdfast_bgp_wire::encode;
use siphasher::sip::SipHasher13;

use self::format::PeerNumber;
use crate::{PeerIndex, rewrite::export::ExportedNextHop};

/// Names an entry of the journal.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct JournalEntry(pub u64);

impl JournalEntry {
    /// Before the first: nothing has been announced.
    pub const NONE: Self = Self(0);
    /// An entry could not be kept: what was announced from there on is not known.
    pub const LOST: Self = Self(u64::MAX);
}

/// Keeps entries for whoever goes on after this process.
pub trait Journal: fmt::Debug {
    /// Keeps an entry behind `previous`, which is never [`JournalEntry::LOST`]; names it, or says
    /// [`JournalEntry::LOST`] when there is no room.
    fn append(&mut self, previous: JournalEntry, entry: &[u8]) -> JournalEntry;

    /// Key of the hashes: the same for all processes that go on with this journal, and unknown to peers.
    fn key(&self) -> [u8; 16];
}

/// Who is who: peers, and what the journal calls them.
#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: Vec<PeerNumber>,
    peers: HashMap<PeerNumber, PeerIndex>,
}

impl Names {
    pub(crate) fn name(&mut self, peer: PeerIndex, number: PeerNumber) {
        self.forget(peer);
        if self.numbers.len() <= peer.index() {
            self.numbers.resize(peer.index() + 1, 0);
        }
        self.numbers[peer.index()] = number;
        self.peers.insert(number, peer);
    }

    pub(crate) fn forget(&mut self, peer: PeerIndex) {
        if let Some(number) = self.numbers.get_mut(peer.index()) {
            self.peers.remove(&std::mem::take(number));
        }
    }

    /// 0 for a peer that is not up.
    pub(crate) fn number(&self, peer: PeerIndex) -> PeerNumber {
        self.numbers.get(peer.index()).copied().unwrap_or(0)
    }

    pub(crate) fn peer(&self, number: PeerNumber) -> Option<PeerIndex> {
        self.peers.get(&number).copied()
    }
}

/// Makes the hashes that stand for attributes as they are sent.
#[derive(Copy, Clone, Debug)]
pub(crate) struct AttributeHasher(SipHasher13);

impl AttributeHasher {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(&key))
    }

    /// The same whatever our own address on a link is: where we are the next hop, the NEXT_HOP in `attributes` does
    /// not count.
    pub(crate) fn hash(&self, attributes: &[u8], next_hop: ExportedNextHop) -> u64 {
        match next_hop {
            ExportedNextHop::Ourselves => {
                let (before, after) = encode::around_next_hop(attributes);
                hash(self.0, [&[0], before, after])
            }
            ExportedNextHop::Other(next_hop) => {
                let mut octets = vec![1];
                next_hop.push(&mut octets);
                hash(self.0, [&octets, attributes, &[]])
            }
        }
    }
}

fn hash(mut hasher: SipHasher13, parts: [&[u8]; 3]) -> u64 {
    use std::hash::Hasher;
    parts.into_iter().for_each(|part| hasher.write(part));
    hasher.finish()
}
