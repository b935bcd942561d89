//! The form of entries, written and read.
//!
//! An entry is `target`, then items, all numbers big-endian; a source of 0 is none that could be told, as is
//! one of all ones, which is routes of our own that come from elsewhere (`OURS_AGAIN`):
//!
//! ```text
//! target    0 (all) | 1 peer:u32 (this one alone: only withdrawals)
//! withdrawn 0x10|family octets:u32 NLRI
//! announced 0x20|family source:u32 hash:u64 octets:u32 NLRI
//! EndOfRib  0x30|family
//! withdrawn 0x40|family octets:u32 NLRI with path identifiers
//! announced 0x50|family source:u32 hash:u64 identifier:u32 octets:u32 NLRI
//! withdrawn 0x60|family octets:u32 list
//! announced 0x70|family source:u32 hash:u64 octets:u32 list
//! ```
//!
//! 0x40 and 0x50 are of paths that are announced under identifiers (RFC 7911), which hold in other processes, too: those of
//! a session are [`Pipeline::first_identifier`](crate::Pipeline::first_identifier) and the following ones. Of the others,
//! 0x60 and 0x70 are written since version 9 of the log: their [lists](super::list) are shorter than NLRI. 0x10 and 0x20 are
//! read.

use holdfast_bgp_wire::nlri::{Identified, Nlri};
use holdfast_types::IpPrefix;

use super::list;
pub use super::list::Unreadable;

/// What a peer is called in the journal: [`SessionFacts::number`](crate::SessionFacts::number).
pub(crate) type PeerNumber = u32;

/// In the place of a peer: routes of our own that a process may have to hear of again before it has them, those of other
/// protocols and aggregates.
pub(crate) const OURS_AGAIN: PeerNumber = PeerNumber::MAX;

/// What one route was announced with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Announced {
    /// Of the attributes as sent.
    pub(crate) hash: u64,
    /// The peer that it came from, which was not told; 0: none, or [`OURS_AGAIN`].
    pub(crate) source: PeerNumber,
}

const ALL: u8 = 0;
const ONLY: u8 = 1;
const WITHDRAWN: u8 = 0x10;
const ANNOUNCED: u8 = 0x20;
const END_OF_RIB: u8 = 0x30;
const PATHS_WITHDRAWN: u8 = 0x40;
const PATHS_ANNOUNCED: u8 = 0x50;
const LIST_WITHDRAWN: u8 = 0x60;
const LIST_ANNOUNCED: u8 = 0x70;

/// Writes the items of entries.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) items: Vec<u8>,
}

impl Recorder {
    pub(crate) fn withdrawn<P: IpPrefix>(&mut self, prefixes: impl Iterator<Item = P>) {
        self.items.push(LIST_WITHDRAWN | family::<P>());
        self.sized(|items| list::push(prefixes, items));
    }

    pub(crate) fn paths_withdrawn<P: IpPrefix>(&mut self, paths: impl Iterator<Item = Identified<P>>) {
        self.items.push(PATHS_WITHDRAWN | family::<P>());
        self.sized(|items| paths.for_each(|path| path.push(items)));
    }

    /// Under this path identifier, if it is not 0.
    pub(crate) fn announced<P: IpPrefix>(
        &mut self,
        Announced { source, hash }: Announced,
        identifier: u32,
        prefixes: impl Iterator<Item = P>,
    ) {
        let kind = if identifier == 0 { LIST_ANNOUNCED } else { PATHS_ANNOUNCED };
        self.items.push(kind | family::<P>());
        self.items.extend_from_slice(&source.to_be_bytes());
        self.items.extend_from_slice(&hash.to_be_bytes());
        match identifier {
            0 => self.sized(|items| list::push(prefixes, items)),
            _ => {
                self.items.extend_from_slice(&identifier.to_be_bytes());
                self.sized(|items| prefixes.for_each(|prefix| prefix.push(items)));
            }
        }
    }

    pub(crate) fn end_of_rib<P: IpPrefix>(&mut self) {
        self.items.push(END_OF_RIB | family::<P>());
    }

    /// Appends a length of four octets, and the octets that `write` appends.
    fn sized(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.items.len();
        self.items.extend_from_slice(&[0; 4]);
        write(&mut self.items);
        let octets = (self.items.len() - start - 4) as u32;
        self.items[start..start + 4].copy_from_slice(&octets.to_be_bytes());
    }
}

fn family<P: IpPrefix>() -> u8 {
    u8::from(P::WIDTH != 32)
}

/// Whom an entry is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    All,
    Only(PeerNumber),
}

/// An entry.
pub(crate) fn entry(whom: Scope, items: &[u8]) -> Vec<u8> {
    let mut entry = Vec::with_capacity(5 + items.len());
    push_whom(&mut entry, whom);
    entry.extend_from_slice(items);
    entry
}

/// Begins an entry.
pub(crate) fn push_whom(entry: &mut Vec<u8>, whom: Scope) {
    match whom {
        Scope::All => entry.push(ALL),
        Scope::Only(peer) => {
            entry.push(ONLY);
            entry.extend_from_slice(&peer.to_be_bytes());
        }
    }
}

/// Prefixes of an item, as they stand there.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Prefixes<'a> {
    Nlri(&'a [u8]),
    List(&'a [u8]),
}

/// One item of an entry, of a family (0 IPv4, 1 IPv6). Lists of prefixes are as they stand there.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Item<'a> {
    Withdrawn(Prefixes<'a>),
    /// With path identifiers.
    PathsWithdrawn(&'a [u8]),
    /// Under this path identifier, if it is not 0.
    Announced(Announced, u32, Prefixes<'a>),
    EndOfRib,
}

/// Reads an entry: whom it is for, and the rest for [`Items`].
pub(crate) fn read(entry: &[u8]) -> Result<(Scope, Items<'_>), Unreadable> {
    let (&kind, rest) = entry.split_first().ok_or(Unreadable)?;
    match kind {
        ALL => Ok((Scope::All, Items(rest))),
        ONLY => {
            let (peer, rest) = rest.split_first_chunk().ok_or(Unreadable)?;
            Ok((Scope::Only(u32::from_be_bytes(*peer)), Items(rest)))
        }
        _ => Err(Unreadable),
    }
}

/// The items of an entry.
#[derive(Debug)]
pub(crate) struct Items<'a>(&'a [u8]);

impl<'a> Items<'a> {
    fn item(&mut self) -> Option<(usize, Item<'a>)> {
        let (&kind, mut rest) = self.0.split_first()?;
        let (kind, family @ 0..=1) = (kind & 0xf0, kind & 0x0f) else { return None };
        let item = match kind {
            END_OF_RIB => Item::EndOfRib,
            WITHDRAWN => Item::Withdrawn(Prefixes::Nlri(sized(&mut rest)?)),
            LIST_WITHDRAWN => Item::Withdrawn(Prefixes::List(sized(&mut rest)?)),
            PATHS_WITHDRAWN => Item::PathsWithdrawn(sized(&mut rest)?),
            ANNOUNCED | PATHS_ANNOUNCED | LIST_ANNOUNCED => {
                let source = u32::from_be_bytes(*octets(&mut rest)?);
                let hash = u64::from_be_bytes(*octets(&mut rest)?);
                let identifier = match kind {
                    PATHS_ANNOUNCED => u32::from_be_bytes(*octets(&mut rest)?),
                    _ => 0,
                };
                let prefixes = sized(&mut rest)?;
                let prefixes = match kind {
                    LIST_ANNOUNCED => Prefixes::List(prefixes),
                    _ => Prefixes::Nlri(prefixes),
                };
                Item::Announced(Announced { hash, source }, identifier, prefixes)
            }
            _ => return None,
        };
        self.0 = rest;
        Some((family.into(), item))
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<(usize, Item<'a>), Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let item = self.item().ok_or(Unreadable);
        if item.is_err() {
            self.0 = &[];
        }
        Some(item)
    }
}

fn octets<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (octets, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(octets)
}

fn sized<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let count = u32::from_be_bytes(*octets(rest)?);
    let (list, after) = rest.split_at_checked(count as usize)?;
    *rest = after;
    Some(list)
}
