//! What several caches say together, less and plus local exceptions. It is not stored: it is looked at.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::Peekable,
};

use holdfast_types::{Asn, Aspa, RouterKey, Vrp};

use crate::{
    Counts, Dataset, Delta, Exceptions,
    dataset::{Row4, Row6},
    key::Key,
};

/// Caches that are used, and exceptions.
#[derive(Clone)]
pub(crate) struct View<'a> {
    pub(crate) sets: Vec<&'a Dataset>,
    pub(crate) exceptions: &'a Exceptions,
}

type Sorted<'a, T> = Box<dyn Iterator<Item = T> + 'a>;

impl<'a> View<'a> {
    pub(crate) fn vrps(&self) -> impl Iterator<Item = Vrp> + use<'a> {
        self.ipv4().map(Vrp::from).chain(self.ipv6().map(Vrp::from))
    }

    fn ipv4(&self) -> Merged<'a, Row4> {
        self.merged(|set| &set.ipv4, |exceptions, row| exceptions.filters.vrp(Vrp::from(*row)))
    }

    fn ipv6(&self) -> Merged<'a, Row6> {
        self.merged(|set| &set.ipv6, |exceptions, row| exceptions.filters.vrp(Vrp::from(*row)))
    }

    pub(crate) fn router_keys(&self) -> impl Iterator<Item = RouterKey> + use<'a> {
        self.keys().map(|key| RouterKey::from(&key))
    }

    fn keys(&self) -> Merged<'a, Key> {
        self.merged(|set| &set.router_keys, |exceptions, key| exceptions.filters.stored_key(key))
    }

    fn merged<T: Ord + Clone>(
        &self,
        part: fn(&'a Dataset) -> &'a BTreeSet<T>,
        filtered: fn(&Exceptions, &T) -> bool,
    ) -> Merged<'a, T> {
        let exceptions = self.exceptions;
        let caches = self.sets.iter().map(|set| -> Sorted<'a, &'a T> {
            let all = part(set).iter();
            if exceptions.filters.is_empty() {
                Box::new(all)
            } else {
                Box::new(all.filter(move |record| !filtered(exceptions, record)))
            }
        });
        let asserted: Sorted<'a, &'a T> = Box::new(part(&exceptions.assertions).iter());
        Merged(caches.chain([asserted]).map(Iterator::peekable).collect())
    }

    /// The providers of all sources together: each cache has one ASPA of a customer, but not all the same.
    pub(crate) fn aspa(&self, customer: Asn) -> Option<Aspa> {
        let filtered = self.exceptions.filters.aspa(customer);
        let caches = self.sets.iter().filter(|_| !filtered).copied();
        let said = caches.chain([&self.exceptions.assertions]).filter_map(|set| set.aspa(customer));
        let mut said = said.peekable();
        said.peek()?;
        let mut providers: Vec<Asn> = said.flat_map(Aspa::providers).copied().collect();
        // AS 0 says that there is none (8210bis section 5.12); where there is one it says nothing.
        if providers.iter().any(|provider| *provider != Asn(0)) {
            providers.retain(|provider| *provider != Asn(0));
        }
        Some(Aspa::new(customer, providers))
    }

    pub(crate) fn aspas(&self) -> BTreeMap<Asn, Aspa> {
        let sets = self.sets.iter().copied().chain([&self.exceptions.assertions]);
        let customers: BTreeSet<Asn> = sets.flat_map(|set| set.aspas.keys().copied()).collect();
        customers.into_iter().filter_map(|customer| Some((customer, self.aspa(customer)?))).collect()
    }

    pub(crate) fn dataset(&self) -> Dataset {
        let (ipv4, ipv6) = (self.ipv4().collect(), self.ipv6().collect());
        Dataset::of(ipv4, ipv6, self.keys().collect(), self.aspas().into_values())
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            ipv4: self.ipv4().count(),
            ipv6: self.ipv6().count(),
            router_keys: self.keys().count(),
            aspas: self.aspas().len(),
        }
    }

    /// What changes for who saw this and sees the other, but for ASPAs. One walk over both.
    pub(crate) fn difference(&self, new: &View<'_>) -> Delta {
        let (ipv4, no_ipv4) = difference(self.ipv4(), new.ipv4());
        let (ipv6, no_ipv6) = difference(self.ipv6(), new.ipv6());
        let (keys, no_keys) = difference(self.keys(), new.keys());
        let none = std::iter::empty;
        Delta {
            announced: Dataset::of(ipv4, ipv6, keys, none()),
            withdrawn: Dataset::of(no_ipv4, no_ipv6, no_keys, none()),
        }
    }
}

/// Several ascending iterators as one, each item once.
struct Merged<'a, T>(Vec<Peekable<Sorted<'a, &'a T>>>);

impl<T: Ord + Clone> Iterator for Merged<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let least: &T = self.0.iter_mut().filter_map(|source| source.peek().copied()).min()?;
        for source in &mut self.0 {
            source.next_if(|item| *item == least);
        }
        Some(least.clone())
    }
}

/// Items of the second only, and of the first only. Both ascend.
fn difference<T: Ord>(
    old: impl Iterator<Item = T>,
    new: impl Iterator<Item = T>,
) -> (BTreeSet<T>, BTreeSet<T>) {
    let (mut old, mut new) = (old.peekable(), new.peekable());
    let (mut come, mut gone) = (Vec::new(), Vec::new());
    loop {
        match (old.peek(), new.peek()) {
            (Some(a), Some(b)) if a == b => {
                old.next();
                new.next();
            }
            (Some(a), Some(b)) if a < b => gone.extend(old.next()),
            (Some(_), None) => gone.extend(old.next()),
            (_, Some(_)) => come.extend(new.next()),
            (None, None) => return (come.into_iter().collect(), gone.into_iter().collect()),
        }
    }
}
