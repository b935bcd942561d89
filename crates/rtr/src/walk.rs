//! An answer to a router, record by record, without being written as a whole.
//!
//! Other routers may use records before End of Data: then none should be taken away before what replaces it is there, nor
//! a short prefix be announced before the longer ones in it (8210bis, on races). So announcements come before
//! withdrawals, and announcements from the last prefix to the first, as a set has the shorter before the longer.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use holdfast_rtr_wire::{Pdu, Record, Version};
use holdfast_types::{Asn, Aspa};

use crate::{
    Dataset, Delta,
    dataset::{Row4, Row6},
    key::Key,
};

/// What is told.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    All(Arc<Dataset>),
    Changes(Arc<Delta>),
}

/// How far it has been told.
#[derive(Debug)]
pub(crate) struct Walk {
    told: Told,
    version: Version,
    announcing: bool,
    place: Place,
}

/// The last record of its kind.
#[derive(Debug)]
enum Place {
    Ipv4(Option<Row4>),
    Ipv6(Option<Row6>),
    Keys(Option<Key>),
    Aspas(Option<Asn>),
}

impl Walk {
    pub(crate) fn new(told: Told, version: Version) -> Self {
        Self { told, version, announcing: true, place: Place::Ipv4(None) }
    }

    fn set(&self) -> Option<&Dataset> {
        match (&self.told, self.announcing) {
            (Told::All(set), true) => Some(set),
            (Told::All(_), false) => None,
            (Told::Changes(delta), true) => Some(&delta.announced),
            (Told::Changes(delta), false) => Some(&delta.withdrawn),
        }
    }

    /// The next of a kind; `None` when there is none.
    fn step(&mut self) -> Option<Record> {
        let back = self.announcing;
        let set = self.set()?;
        let (record, place) = match &self.place {
            Place::Ipv4(last) => {
                let row = *beside(&set.ipv4, last.as_ref(), back)?;
                (Record::Vrp(row.into()), Place::Ipv4(Some(row)))
            }
            Place::Ipv6(last) => {
                let row = *beside(&set.ipv6, last.as_ref(), back)?;
                (Record::Vrp(row.into()), Place::Ipv6(Some(row)))
            }
            Place::Keys(last) => {
                let key = beside(&set.router_keys, last.as_ref(), back)?.clone();
                (Record::RouterKey((&key).into()), Place::Keys(Some(key)))
            }
            Place::Aspas(last) => {
                let aspa = after(&set.aspas, last.as_ref())?.clone();
                let customer = aspa.customer();
                (Record::Aspa(aspa), Place::Aspas(Some(customer)))
            }
        };
        self.place = place;
        Some(record)
    }

    /// To the next kind, if there is one.
    fn turn(&mut self) -> bool {
        self.place = match self.place {
            Place::Ipv4(_) => Place::Ipv6(None),
            Place::Ipv6(_) if self.version >= Version::V1 => Place::Keys(None),
            Place::Keys(_) if self.version >= Version::V2 => Place::Aspas(None),
            _ if self.announcing => {
                self.announcing = false;
                Place::Ipv4(None)
            }
            _ => return false,
        };
        true
    }
}

impl Iterator for Walk {
    type Item = Pdu;

    fn next(&mut self) -> Option<Pdu> {
        loop {
            if let Some(record) = self.step() {
                return Some(if self.announcing { Pdu::Announce(record) } else { Pdu::Withdraw(record) });
            }
            if !self.turn() {
                return None;
            }
        }
    }
}

fn beside<'a, T: Ord>(set: &'a BTreeSet<T>, last: Option<&T>, back: bool) -> Option<&'a T> {
    let open = last.map_or(Bound::Unbounded, Bound::Excluded);
    if back {
        set.range((Bound::Unbounded, open)).next_back()
    } else {
        set.range((open, Bound::Unbounded)).next()
    }
}

fn after<'a>(aspas: &'a BTreeMap<Asn, Aspa>, last: Option<&Asn>) -> Option<&'a Aspa> {
    let open = last.map_or(Bound::Unbounded, Bound::Excluded);
    aspas.range((open, Bound::Unbounded)).next().map(|(_, aspa)| aspa)
}
