//! What a cache has said, kept small: 12 octets of an IPv4 VRP, 24 of an IPv6 one, and what the trees take. Keys are
//! shared between sets ([`Key`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, Ipv6Addr},
};

use holdfast_rtr_wire::Record;
use holdfast_types::{Asn, Aspa, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix, RouterKey, Vrp};

use crate::{
    Delta,
    key::{Key, Stored},
};

/// A VRP, packed. Ordered by prefix.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Row<A> {
    address: A,
    length: u8,
    max_length: u8,
    asn: u32,
}

/// Of IPv4.
pub(crate) type Row4 = Row<u32>;
/// Of IPv6; two words, as one of 128 bits would cost its alignment.
pub(crate) type Row6 = Row<[u64; 2]>;

/// A VRP of either family, packed.
pub(crate) enum Packed {
    V4(Row4),
    V6(Row6),
}

impl From<Vrp> for Packed {
    fn from(vrp: Vrp) -> Self {
        let (max_length, asn) = (vrp.max_length(), vrp.asn().0);
        match vrp.prefix() {
            Prefix::V4(prefix) => Self::V4(Row {
                address: prefix.address().to_bits(),
                length: prefix.length(),
                max_length,
                asn,
            }),
            Prefix::V6(prefix) => {
                Self::V6(Row { address: words(prefix.address()), length: prefix.length(), max_length, asn })
            }
        }
    }
}

fn words(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

impl<A> Row<A> {
    fn vrp(&self, prefix: Option<Prefix>) -> Vrp {
        let vrp = prefix.and_then(|prefix| Vrp::new(prefix, self.max_length, Asn(self.asn)).ok());
        vrp.expect("made of a VRP")
    }
}

impl From<Row4> for Vrp {
    fn from(row: Row4) -> Self {
        row.vrp(Ipv4Prefix::new(Ipv4Addr::from_bits(row.address), row.length).map(Prefix::V4))
    }
}

impl From<Row6> for Vrp {
    fn from(row: Row6) -> Self {
        let bits = u128::from(row.address[0]) << 64 | u128::from(row.address[1]);
        row.vrp(Ipv6Prefix::new(Ipv6Addr::from_bits(bits), row.length).map(Prefix::V6))
    }
}

/// Octets of a router key or an ASPA for which it counts like one more VRP.
const OCTETS_OF_A_RECORD: usize = 32;

/// How much is there of each kind.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// VRPs of IPv4.
    pub ipv4: usize,
    /// VRPs of IPv6.
    pub ipv6: usize,
    /// Routers' keys.
    pub router_keys: usize,
    /// ASPAs.
    pub aspas: usize,
}

/// Records: VRPs and routers' keys each once, ASPAs one for each customer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dataset {
    pub(crate) ipv4: BTreeSet<Row4>,
    pub(crate) ipv6: BTreeSet<Row6>,
    pub(crate) router_keys: BTreeSet<Key>,
    pub(crate) aspas: BTreeMap<Asn, Aspa>,
    /// Of what has no fixed length, in records.
    long: usize,
}

impl Dataset {
    /// Puts it there. Whether it was not there before; of an ASPA, whether the customer had none.
    pub fn insert(&mut self, record: Record) -> bool {
        match record {
            Record::Vrp(vrp) => match Packed::from(vrp) {
                Packed::V4(row) => self.ipv4.insert(row),
                Packed::V6(row) => self.ipv6.insert(row),
            },
            Record::RouterKey(key) => self.insert_key(Stored::from(&key).into()),
            Record::Aspa(aspa) => {
                self.long += aspa_weight(&aspa);
                let old = self.aspas.insert(aspa.customer(), aspa);
                self.long -= old.as_ref().map_or(0, aspa_weight);
                old.is_none()
            }
        }
    }

    /// The same. A key that one of these sets has is taken from there, and has no memory of its own.
    pub(crate) fn insert_as_in<'a>(
        &mut self,
        others: impl IntoIterator<Item = &'a Self>,
        record: Record,
    ) -> bool {
        let Record::RouterKey(key) = &record else { return self.insert(record) };
        let key = Stored::from(key);
        let known = others.into_iter().find_map(|set| set.router_keys.get(&key)).cloned();
        self.insert_key(known.unwrap_or_else(|| key.into()))
    }

    pub(crate) fn insert_key(&mut self, key: Key) -> bool {
        let weight = key_weight(&key);
        let new = self.router_keys.insert(key);
        self.long += if new { weight } else { 0 };
        new
    }

    pub(crate) fn remove_key(&mut self, key: &Stored) -> bool {
        let there = self.router_keys.remove(key);
        self.long -= if there { key_weight(key) } else { 0 };
        there
    }

    /// Nodes of a tree that has grown in no order are two thirds full; those of one that is made at once are full.
    pub(crate) fn pack(&mut self) {
        self.router_keys = std::mem::take(&mut self.router_keys).into_iter().collect();
    }

    /// Takes it away. Whether it was there; of an ASPA, whether the customer had any.
    pub fn remove(&mut self, record: &Record) -> bool {
        match record {
            Record::Vrp(vrp) => match Packed::from(*vrp) {
                Packed::V4(row) => self.ipv4.remove(&row),
                Packed::V6(row) => self.ipv6.remove(&row),
            },
            Record::RouterKey(key) => self.remove_key(&Stored::from(key)),
            Record::Aspa(aspa) => self.remove_aspa(aspa.customer()).is_some(),
        }
    }

    pub(crate) fn remove_aspa(&mut self, customer: Asn) -> Option<Aspa> {
        let old = self.aspas.remove(&customer)?;
        self.long -= aspa_weight(&old);
        Some(old)
    }

    /// Whether it is there; of an ASPA, whether the customer has any.
    pub fn contains(&self, record: &Record) -> bool {
        match record {
            Record::Vrp(vrp) => match Packed::from(*vrp) {
                Packed::V4(row) => self.ipv4.contains(&row),
                Packed::V6(row) => self.ipv6.contains(&row),
            },
            Record::RouterKey(key) => self.router_keys.contains(&Stored::from(key)),
            Record::Aspa(aspa) => self.aspas.contains_key(&aspa.customer()),
        }
    }

    /// VRPs by prefix, IPv4 before IPv6.
    pub fn vrps(&self) -> impl Iterator<Item = Vrp> {
        self.ipv4.iter().map(|row| (*row).into()).chain(self.ipv6.iter().map(|row| (*row).into()))
    }

    /// Routers' keys: those that have their own name by AS, then the others.
    pub fn router_keys(&self) -> impl Iterator<Item = RouterKey> {
        self.router_keys.iter().map(RouterKey::from)
    }

    /// ASPAs by customer.
    pub fn aspas(&self) -> impl Iterator<Item = &Aspa> {
        self.aspas.values()
    }

    /// The ASPA of a customer.
    pub fn aspa(&self, customer: Asn) -> Option<&Aspa> {
        self.aspas.get(&customer)
    }

    /// How much is there of each kind.
    pub fn counts(&self) -> Counts {
        Counts {
            ipv4: self.ipv4.len(),
            ipv6: self.ipv6.len(),
            router_keys: self.router_keys.len(),
            aspas: self.aspas.len(),
        }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.ipv4.len() + self.ipv6.len() + self.router_keys.len() + self.aspas.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a bound on records is held against: a long one, of many providers or of a large key, counts as several.
    pub fn weight(&self) -> usize {
        self.len() + self.long
    }

    /// What has to be said to who holds this, so that it holds the other.
    pub fn difference(&self, new: &Self) -> Delta {
        let gone = |aspa: &&Aspa| !new.aspas.contains_key(&aspa.customer());
        let fresh = |aspa: &&Aspa| self.aspas.get(&aspa.customer()) != Some(aspa);
        Delta {
            announced: Self::of(
                new.ipv4.difference(&self.ipv4).copied().collect(),
                new.ipv6.difference(&self.ipv6).copied().collect(),
                new.router_keys.difference(&self.router_keys).cloned().collect(),
                new.aspas.values().filter(fresh).cloned(),
            ),
            withdrawn: Self::of(
                self.ipv4.difference(&new.ipv4).copied().collect(),
                self.ipv6.difference(&new.ipv6).copied().collect(),
                self.router_keys.difference(&new.router_keys).cloned().collect(),
                self.aspas.values().filter(gone).cloned(),
            ),
        }
    }

    pub(crate) fn of(
        ipv4: BTreeSet<Row4>,
        ipv6: BTreeSet<Row6>,
        router_keys: BTreeSet<Key>,
        aspas: impl Iterator<Item = Aspa>,
    ) -> Self {
        let long = router_keys.iter().map(|key| key_weight(key)).sum();
        let mut set = Self { ipv4, ipv6, router_keys, aspas: BTreeMap::new(), long };
        set.extend(aspas.map(Record::Aspa));
        set
    }

    /// Makes it what it is after the delta.
    pub fn apply(&mut self, delta: &Delta) {
        let Delta { announced, withdrawn } = delta;
        for row in &withdrawn.ipv4 {
            self.ipv4.remove(row);
        }
        for row in &withdrawn.ipv6 {
            self.ipv6.remove(row);
        }
        for key in &withdrawn.router_keys {
            self.remove_key(key);
        }
        for customer in withdrawn.aspas.keys() {
            self.remove_aspa(*customer);
        }
        self.ipv4.extend(&announced.ipv4);
        self.ipv6.extend(&announced.ipv6);
        for key in &announced.router_keys {
            self.insert_key(key.clone());
        }
        self.extend(announced.aspas.values().cloned().map(Record::Aspa));
    }
}

impl Extend<Record> for Dataset {
    fn extend<I: IntoIterator<Item = Record>>(&mut self, records: I) {
        for record in records {
            self.insert(record);
        }
    }
}

impl FromIterator<Record> for Dataset {
    fn from_iter<I: IntoIterator<Item = Record>>(records: I) -> Self {
        let mut set = Self::default();
        set.extend(records);
        set
    }
}

fn key_weight(key: &Stored) -> usize {
    key.spki_len() / OCTETS_OF_A_RECORD
}

fn aspa_weight(aspa: &Aspa) -> usize {
    aspa.providers().len() * 4 / OCTETS_OF_A_RECORD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_small() {
        assert_eq!((size_of::<Row4>(), size_of::<Row6>()), (12, 24));
    }
}
