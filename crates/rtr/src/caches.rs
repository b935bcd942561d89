//! All caches, and what is made of them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Instant,
};

use holdfast_rtr_wire::Record;
use holdfast_types::{Asn, Aspa, RouterKey, Vrp};

use crate::{Client, ClientConfig, Counts, Dataset, Delta, Exceptions, Input, Output, view::View};

/// A cache, by the caller's number.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CacheId(pub u32);

#[derive(Debug)]
struct Entry {
    preference: u32,
    client: Client,
    /// It only has data, which nobody renews.
    retired: bool,
}

/// The sessions with all caches, and what is published of them (RFC 8210 section 10).
///
/// Connections are held to all caches, so that what another one says is there when it is needed. *Used* are, of those
/// that have data, the ones with the lowest preference value, all of one value together: a record holds while one of
/// them says it, and for an ASPA the providers of all hold. Local exceptions are applied to that (RFC 8416): what they
/// filter is left out, what they assert is there in any case.
///
/// Whatever happens, [`Caches::poll_delta`] has the difference to what was published before, also where other caches are
/// used from one moment to the next. What is published is not stored but for ASPAs.
#[derive(Debug, Default)]
pub struct Caches {
    entries: BTreeMap<CacheId, Entry>,
    exceptions: Exceptions,
    used: BTreeSet<CacheId>,
    aspas: BTreeMap<Asn, Aspa>,
    deltas: VecDeque<Delta>,
}

impl Caches {
    /// Has a cache; the lower its preference value, the better. One that is there already keeps its session and its data.
    pub fn insert(&mut self, id: CacheId, preference: u32, config: ClientConfig, now: Instant) {
        match self.entries.get_mut(&id) {
            Some(entry) => {
                entry.client.reconfigure(config, now);
                entry.preference = preference;
            }
            None => {
                self.entries
                    .insert(id, Entry { preference, client: Client::new(config, now), retired: false });
            }
        }
        self.use_others(None);
    }

    /// Forgets a cache. Its connection is the caller's to close.
    pub fn remove(&mut self, id: CacheId) {
        let Some(entry) = self.entries.remove(&id) else { return };
        if let Some(data) = entry.client.into_data() {
            self.use_others(Some((id, &data)));
        }
    }

    /// Has no session with these caches any more. Their connections are the caller's to close. What they have said holds
    /// on where there are other caches, until one of those has data, or it expires.
    pub fn retire(&mut self, ids: impl IntoIterator<Item = CacheId>) {
        for id in ids {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.retired = true;
            entry.client.retire();
        }
        self.forget_retired();
    }

    /// Forgets those that hold nothing, or nothing that is needed.
    fn forget_retired(&mut self) {
        let mut others = self.entries.values().filter(|entry| !entry.retired).peekable();
        let are_needed = others.peek().is_some() && others.all(|entry| entry.client.data().is_none());
        let is_over = |entry: &Entry| entry.retired && !(are_needed && entry.client.data().is_some());
        let over: Vec<CacheId> =
            self.entries.iter().filter(|(_, entry)| is_over(entry)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.remove(id));
    }

    /// Has other local exceptions from now on.
    pub fn set_exceptions(&mut self, exceptions: Exceptions) {
        let old = std::mem::replace(&mut self.exceptions, exceptions);
        let before = View { exceptions: &old, ..self.view() };
        let delta = before.difference(&self.view());
        self.publish(delta, None);
    }

    /// Takes in what has happened to the session with a cache.
    pub fn handle(&mut self, id: CacheId, input: Input<'_>, now: Instant) {
        let Some(mut entry) = self.entries.remove(&id) else { return };
        let others: Vec<&Dataset> = self.entries.values().flat_map(|other| other.client.sets()).collect();
        entry.client.handle_beside(&others, input, now);
        let entry = self.entries.entry(id).insert_entry(entry).into_mut();
        // Together, as the client has only the data after the last of them to be compared with.
        let Some(mut delta) = entry.client.poll_delta() else { return };
        let mut customers = delta.customers();
        while let Some(next) = entry.client.poll_delta() {
            customers.append(&mut next.customers());
            delta = delta.then(&next);
        }
        self.changed(id, delta, customers);
        self.forget_retired();
    }

    /// Hands [`Input::Timeout`] to all that wait for it.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due = |entry: &Entry| entry.client.poll_timeout().is_some_and(|at| at <= now);
        let due: Vec<CacheId> =
            self.entries.iter().filter(|(_, entry)| due(entry)).map(|(id, _)| *id).collect();
        due.into_iter().for_each(|id| self.handle(id, Input::Timeout, now));
    }

    /// When [`Caches::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.entries.values().filter_map(|entry| entry.client.poll_timeout()).min()
    }

    /// What is to be done next, and for which cache; until `None`.
    pub fn poll_output(&mut self) -> Option<(CacheId, Output)> {
        self.entries.iter_mut().find_map(|(id, entry)| Some((*id, entry.client.poll_output()?)))
    }

    /// How what is published has changed; until `None`.
    pub fn poll_delta(&mut self) -> Option<Delta> {
        self.deltas.pop_front()
    }

    /// Caches in the order of preference, without those that are retired.
    pub fn clients(&self) -> impl Iterator<Item = (CacheId, u32, &Client)> {
        let mut order: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| !entry.retired)
            .map(|(id, entry)| (*id, entry.preference, &entry.client))
            .collect();
        order.sort_by_key(|(id, preference, _)| (*preference, *id));
        order.into_iter()
    }

    /// The session with a cache.
    pub fn client(&self, id: CacheId) -> Option<&Client> {
        self.entries.get(&id).map(|entry| &entry.client)
    }

    /// Whether what is published comes from it, among others.
    pub fn uses(&self, id: CacheId) -> bool {
        self.used.contains(&id)
    }

    /// Whether any cache has data.
    pub fn has_data(&self) -> bool {
        !self.used.is_empty()
    }

    /// When the last of what is used expires, if nothing more is heard.
    pub fn expires(&self) -> Option<Instant> {
        self.used.iter().filter_map(|id| self.client(*id)?.expires()).max()
    }

    /// VRPs that are published, by prefix, IPv4 before IPv6.
    pub fn vrps(&self) -> impl Iterator<Item = Vrp> {
        self.view().vrps()
    }

    /// Routers' keys that are published.
    pub fn router_keys(&self) -> impl Iterator<Item = RouterKey> {
        self.view().router_keys()
    }

    /// ASPAs that are published, by customer.
    pub fn aspas(&self) -> impl Iterator<Item = &Aspa> {
        self.aspas.values()
    }

    /// All that is published, put together.
    pub fn dataset(&self) -> Dataset {
        self.view().dataset()
    }

    /// How much is published of each kind: a walk over all of it.
    pub fn counts(&self) -> Counts {
        self.view().counts()
    }

    fn view(&self) -> View<'_> {
        View { sets: self.sets(&self.used, None), exceptions: &self.exceptions }
    }

    /// What some caches say; one of them may have said something else before.
    fn sets<'a>(
        &'a self,
        ids: &BTreeSet<CacheId>,
        before: Option<(CacheId, &'a Dataset)>,
    ) -> Vec<&'a Dataset> {
        let set = |id: &CacheId| match before {
            Some((other, data)) if other == *id => Some(data),
            _ => self.client(*id).and_then(Client::data),
        };
        ids.iter().filter_map(set).collect()
    }

    /// Those that are to be used.
    fn best(&self) -> BTreeSet<CacheId> {
        let with_data = || self.entries.iter().filter(|(_, entry)| entry.client.data().is_some());
        let best = with_data().map(|(_, entry)| entry.preference).min();
        with_data().filter(|(_, entry)| Some(entry.preference) == best).map(|(id, _)| *id).collect()
    }

    /// The data of a cache have changed, and ASPAs of these customers.
    fn changed(&mut self, id: CacheId, delta: Delta, customers: BTreeSet<Asn>) {
        if self.best() != self.used {
            // A cache comes to be used with its first data, or is not any more as it has lost all.
            return self.use_others(Some((id, &delta.withdrawn)));
        }
        if !self.used.contains(&id) {
            return;
        }
        let others: BTreeSet<CacheId> = self.used.iter().copied().filter(|other| *other != id).collect();
        let others = View { sets: self.sets(&others, None), exceptions: &self.exceptions };
        let published =
            Delta { announced: others.lacks(delta.announced), withdrawn: others.lacks(delta.withdrawn) };
        self.publish(published, Some(customers));
    }

    /// Looks which caches are to be used now. One of them may have had other data before.
    fn use_others(&mut self, before: Option<(CacheId, &Dataset)>) {
        let best = self.best();
        if best == self.used {
            return;
        }
        let old = View { sets: self.sets(&self.used, before), exceptions: &self.exceptions };
        let new = View { sets: self.sets(&best, None), exceptions: &self.exceptions };
        let delta = old.difference(&new);
        self.used = best;
        self.publish(delta, None);
    }

    /// Adds what has changed of ASPAs: those of these customers, or of all.
    fn publish(&mut self, mut delta: Delta, customers: Option<BTreeSet<Asn>>) {
        let view = self.view();
        let now: Vec<(Asn, Option<Aspa>)> = match customers {
            Some(customers) => {
                customers.into_iter().map(|customer| (customer, view.aspa(customer))).collect()
            }
            None => {
                let all = view.aspas();
                let gone =
                    self.aspas.keys().filter(|customer| !all.contains_key(customer)).map(|asn| (*asn, None));
                gone.collect::<Vec<_>>()
                    .into_iter()
                    .chain(all.into_iter().map(|(asn, aspa)| (asn, Some(aspa))))
                    .collect()
            }
        };
        for (customer, aspa) in now {
            if self.aspas.get(&customer) == aspa.as_ref() {
                continue;
            }
            let before = match &aspa {
                Some(aspa) => self.aspas.insert(customer, aspa.clone()),
                None => self.aspas.remove(&customer),
            };
            match (aspa, before) {
                (Some(aspa), _) => delta.announced.insert(Record::Aspa(aspa)),
                (None, Some(before)) => delta.withdrawn.insert(Record::Aspa(before)),
                (None, None) => false,
            };
        }
        if !delta.is_empty() {
            self.deltas.push_back(delta);
        }
    }
}

impl View<'_> {
    /// Of these VRPs and keys, those about which nobody in the view says anything, nor an exception.
    fn lacks(&self, records: Dataset) -> Dataset {
        let Dataset { mut ipv4, mut ipv6, mut router_keys, .. } = records;
        let filters = &self.exceptions.filters;
        let says = |there: &dyn Fn(&Dataset) -> bool| {
            self.sets.iter().any(|set| there(set)) || there(&self.exceptions.assertions)
        };
        ipv4.retain(|row| !filters.vrp(Vrp::from(*row)) && !says(&|set| set.ipv4.contains(row)));
        ipv6.retain(|row| !filters.vrp(Vrp::from(*row)) && !says(&|set| set.ipv6.contains(row)));
        router_keys.retain(|key| !filters.stored_key(key) && !says(&|set| set.router_keys.contains(key)));
        Dataset::of(ipv4, ipv6, router_keys, std::iter::empty())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_rtr_wire::{Pdu, Serial, Version};
    use holdfast_types::Ski;

    use super::*;
    use crate::key::Stored;

    #[test]
    fn a_key_that_several_caches_say_is_in_memory_once() {
        let (now, ids) = (Instant::now(), [CacheId(1), CacheId(2), CacheId(3)]);
        let mut caches = Caches::default();
        let say = |caches: &mut Caches, id: CacheId, pdus: &[Pdu]| {
            let mut octets = Vec::new();
            pdus.iter().for_each(|pdu| pdu.write(Version::LATEST, &mut octets).expect("it can be said"));
            caches.handle(id, Input::Received(&octets), now);
        };
        let key = RouterKey { asn: Asn(64496), ski: Ski([7; 20]), spki: vec![9; 91] };
        let begin = [Pdu::CacheResponse { session: 1 }, Pdu::Announce(Record::RouterKey(key))];
        let end = [Pdu::EndOfData { session: 1, serial: Serial(1), timing: None }];
        for id in ids {
            caches.insert(id, 1, ClientConfig::default(), now);
        }
        caches.handle_timeout(now);
        ids.iter().for_each(|id| caches.handle(*id, Input::Connected, now));
        // Two answer at the same time, the third one later.
        ids[..2].iter().for_each(|id| say(&mut caches, *id, &begin));
        ids[..2].iter().for_each(|id| say(&mut caches, *id, &end));
        say(&mut caches, ids[2], &begin);
        say(&mut caches, ids[2], &end);
        let place = |set: &Dataset| set.router_keys.iter().map(|key| &raw const **key).collect::<Vec<_>>();
        let published = caches.poll_delta().expect("what the first one said");
        let first: Vec<*const Stored> = place(&published.announced);
        assert_eq!(first.len(), 1);
        for id in ids {
            assert_eq!(caches.client(id).and_then(Client::data).map(place), Some(first.clone()), "{id:?}");
        }
        assert_eq!(caches.poll_delta(), None, "the others say nothing new");
    }
}
