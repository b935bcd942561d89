//! A table from an MRT dump.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::Read,
    path::Path,
};

use anyhow::{Context, Result, ensure};
use flate2::read::MultiGzDecoder;
use holdfast_bgp_wire::{
    Attributes,
    attribute::{Attribute, code},
};
use holdfast_mrt::{Body, RibEntry, records};
use holdfast_types::{Asn, Family};

use super::{AttributeSet, Table, attributes::push};

const GZIP: [u8; 2] = [0x1f, 0x8b];

impl Table {
    /// The unicast routes of the first peer in a TABLE_DUMP_V2 file, packed with gzip or not, in its order.
    ///
    /// The peer's own AS is taken off the front of paths, next hops and LOCAL_PREF are left out: a speaker puts its
    /// own in. Of several routes to a prefix (ADD-PATH) the first counts.
    ///
    /// # Errors
    /// The file cannot be read, or is no table dump, or one with a fault in it.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let dump = unpacked(path).with_context(|| format!("reading {}", path.display()))?;
        Self::from_dump(&dump).with_context(|| format!("reading {}", path.display()))
    }

    fn from_dump(dump: &[u8]) -> Result<Self> {
        let mut loader = Loader::default();
        let mut peer = None;
        for record in records(dump) {
            match record?.body()? {
                Body::PeerIndex(index) => peer = index.peers().next().transpose()?,
                Body::Rib(rib) if Family::ALL.contains(&rib.family) => {
                    let peer = peer.context("a route comes before the peers")?;
                    for entry in rib.entries() {
                        let entry = entry?;
                        if entry.peer == 0 && loader.seen.insert(rib.prefix) {
                            let set = loader.set(entry, peer.asn);
                            loader.table.routes.push((rib.prefix, set));
                            break;
                        }
                    }
                }
                _ => {}
            }
        }
        ensure!(!loader.table.routes.is_empty(), "no unicast route of a first peer in it");
        Ok(loader.table)
    }
}

fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(path)?;
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes);
    }
    let mut dump = Vec::new();
    MultiGzDecoder::new(&bytes[..]).read_to_end(&mut dump)?;
    Ok(dump)
}

#[derive(Default)]
struct Loader {
    table: Table,
    seen: HashSet<holdfast_types::Prefix>,
    numbers: HashMap<Vec<u8>, u32>,
}

impl Loader {
    fn set(&mut self, entry: RibEntry<'_>, peer: Asn) -> u32 {
        let bytes = without_speaker(entry.attributes, peer);
        let sets = &mut self.table.sets;
        *self.numbers.entry(bytes).or_insert_with_key(|bytes| {
            sets.push(AttributeSet { bytes: bytes.clone() });
            sets.len() as u32 - 1
        })
    }
}

/// Leaves out what depends on the speaker, and sorts the rest by type.
fn without_speaker(attributes: &[u8], peer: Asn) -> Vec<u8> {
    let own = [code::NEXT_HOP, code::LOCAL_PREF, code::MP_REACH_NLRI, code::MP_UNREACH_NLRI];
    let mut kept: Vec<Attribute<'_>> =
        Attributes(attributes).iter().filter(|attribute| !own.contains(&attribute.code)).collect();
    kept.sort_by_key(|attribute| attribute.code);
    let mut out = Vec::with_capacity(attributes.len());
    for attribute in kept {
        match attribute.code {
            code::AS_PATH => {
                push(&mut out, attribute.flags, code::AS_PATH, &without_first(attribute.value, peer));
            }
            code => push(&mut out, attribute.flags, code, attribute.value),
        }
    }
    out
}

/// An AS path without the AS in front, if it is this one.
fn without_first(path: &[u8], peer: Asn) -> Vec<u8> {
    match *path {
        [2, 1, a, b, c, d, ref rest @ ..] if u32::from_be_bytes([a, b, c, d]) == peer.0 => rest.to_vec(),
        [2, count, a, b, c, d, ref rest @ ..] if count > 0 && u32::from_be_bytes([a, b, c, d]) == peer.0 => {
            [&[2, count - 1], rest].concat()
        }
        _ => path.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speakers_as_comes_off_the_path() {
        let path = [2, 2, 0, 0, 0, 7, 0, 0, 0, 9];
        assert_eq!(without_first(&path, Asn(7)), [2, 1, 0, 0, 0, 9]);
        assert_eq!(without_first(&path, Asn(8)), path);
        assert!(without_first(&[2, 1, 0, 0, 0, 7], Asn(7)).is_empty());
    }

    #[test]
    fn a_dump_gives_as_many_routes_and_sets_as_its_readme_says() {
        let Some(folder) = std::env::var_os("HOLDFAST_DATA") else {
            return println!("HOLDFAST_DATA not set: skipped table-v6.mrt.gz");
        };
        let table = Table::load(Path::new(&folder).join("table-v6.mrt.gz")).expect("a table");
        assert_eq!((table.routes.len(), table.sets.len()), (279_855, 52_884));
        assert_eq!(table.count(Family::IPV6_UNICAST), 279_855);
    }
}
