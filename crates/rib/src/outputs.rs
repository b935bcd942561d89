//! What others fetch: batches for the forwarding engine and for subscribers.

use holdfast_types::{Family as FamilyId, Prefix};

use crate::{
    MAX_SUBSCRIPTIONS, Rib,
    family::Family,
    fib::FibBatch,
    path::PathId,
    reader::{Reader, Step},
    redist::{RedistBatch, RedistFilter, RedistRoute, Subscription, SubscriptionId, TooManySubscriptions},
    tables::Routed,
};

/// The forwarding engine.
impl Rib {
    /// A forwarding engine is there (again): it gets the whole table, then every change.
    pub fn fib_attach(&mut self) {
        self.fib.discards = false;
        self.fib.reader = Some(Reader::new(&self.tables, self.installed_origins(), true, true));
        self.fib.begin();
        self.follow();
    }

    /// The forwarding engine forwards nothing: it is told nothing, and always in step.
    pub fn fib_discards(&mut self) {
        self.fib_detach();
        self.fib.discards = true;
    }

    /// The forwarding engine is gone.
    pub fn fib_detach(&mut self) {
        self.fib.discards = false;
        self.fib.reader = None;
        self.fib.forget_handles(&mut self.store);
        self.follow();
    }

    /// While held, a sync of the forwarding engine does not end, so that it removes nothing. To be held until the
    /// origins that are expected after a start have announced what they have.
    pub fn hold_fib_sync(&mut self, held: bool) {
        self.fib.is_held = held;
    }

    /// The next messages for the forwarding engine with at most `max` routes; `None` when there are none, or no
    /// engine. The batch must reach the engine, or [`Self::fib_attach`] be called.
    pub fn poll_fib(&mut self, max: usize) -> Option<FibBatch> {
        if self.fib.is_overrun() {
            self.fib_attach();
        }
        let reader = self.fib.reader.as_mut()?;
        let step = reader.step(&self.tables, &self.store, max);
        let step = step.unwrap_or(Step { is_complete: true, ..Step::default() });
        let mut batch = FibBatch { begin: step.begins, ..FibBatch::default() };
        if step.begins {
            self.fib.forget_handles(&mut self.store);
            self.fib.begin();
        }
        self.fib.define_changed(&mut self.store, &mut batch);
        for (prefix, path) in step.changes {
            let set = path.map(|path| self.store.path(path).nexthops);
            let handle = set.and_then(|set| self.fib.handle(&mut self.store, set, &mut batch));
            batch.routes.push((prefix, handle));
        }
        self.offer_again(&mut batch, max);
        batch.end = step.is_complete && self.end_fib_sync();
        self.fib.undefine(&mut batch);
        let silent = step.is_complete && batch.is_empty();
        self.fib.note_read(!silent);
        self.trim();
        (!silent).then_some(batch)
    }

    /// The number of the batch that [`Self::poll_fib`] has given last.
    pub fn fib_batch(&self) -> u64 {
        self.fib.number()
    }

    /// The engine has carried out all batches up to that of this number.
    pub fn fib_acknowledged(&mut self, number: u64) {
        self.fib.acknowledge(number);
        self.trim();
    }

    /// Adds routes that are offered once more. A walk offers all of them anyway.
    fn offer_again(&mut self, batch: &mut FibBatch, max: usize) {
        let is_synced = self.fib.reader.as_ref().is_some_and(|reader| reader.is_synced);
        while is_synced && batch.routes.len() < max {
            let Some(prefix) = self.fib.rejected.next_again() else { return };
            let set = self.offered_again(prefix);
            let handle = set.and_then(|set| self.fib.handle(&mut self.store, set, batch));
            if handle.is_some() {
                batch.routes.push((prefix, handle));
            }
        }
    }

    fn end_fib_sync(&mut self) -> bool {
        let may_end = !self.fib.is_held && self.flips.is_idle();
        let reader = self.fib.reader.as_mut().filter(|reader| may_end && !reader.is_synced);
        reader.is_some_and(|reader| !std::mem::replace(&mut reader.is_synced, true))
    }

    /// Whether the forwarding engine is so far behind that origins should wait: their batches are to be answered
    /// later. Without that it would have to start over.
    pub fn is_congested(&self) -> bool {
        let lag = self.fib.reader.as_ref().map_or(0, |reader| reader.lag(&self.tables));
        lag > self.config.log_capacity as u64 / 2
    }

    fn installed_origins(&self) -> u32 {
        let installed = self.store.origins.iter().enumerate().filter(|(_, origin)| origin.config.install);
        installed.fold(0, |bits, (number, _)| bits | 1 << number)
    }
}

/// Redistribution.
impl Rib {
    /// Someone wants the winning routes of some origins: all, then every change.
    pub fn redist_subscribe(&mut self, filter: RedistFilter) -> Result<SubscriptionId, TooManySubscriptions> {
        if self.subscriptions.len() == MAX_SUBSCRIPTIONS {
            return Err(TooManySubscriptions);
        }
        let origins = self.wanted_origins(&filter);
        let (v4, v6) =
            (filter.wants_family(FamilyId::IPV4_UNICAST), filter.wants_family(FamilyId::IPV6_UNICAST));
        let reader = Reader::new(&self.tables, origins, v4, v6);
        // Numbers in use are few: the next free one is near.
        while self.subscriptions.contains_key(&SubscriptionId(self.last_subscription)) {
            self.last_subscription = self.last_subscription.wrapping_add(1);
        }
        let id = SubscriptionId(self.last_subscription);
        self.subscriptions.insert(id, Subscription { filter, reader });
        self.follow();
        Ok(id)
    }

    /// The subscriber is gone.
    pub fn redist_unsubscribe(&mut self, id: SubscriptionId) {
        self.subscriptions.remove(&id);
        self.follow();
    }

    /// The next changes for a subscriber, at most `max`; `None` when there are none.
    pub fn poll_redist(&mut self, id: SubscriptionId, max: usize) -> Option<RedistBatch> {
        let reader = &mut self.subscriptions.get_mut(&id)?.reader;
        let step = reader.step(&self.tables, &self.store, max)?;
        let synced = step.is_complete && !std::mem::replace(&mut reader.is_synced, step.is_complete);
        let changes = step.changes.iter().map(|&(prefix, path)| (prefix, path.map(|path| self.redist(path))));
        let batch = RedistBatch { begin: step.begins, changes: changes.collect(), synced };
        self.trim();
        let silent = step.is_complete && batch.is_empty();
        (!silent).then_some(batch)
    }

    fn redist(&self, id: PathId) -> RedistRoute {
        let path = self.store.path(id);
        RedistRoute {
            origin: path.origin,
            distance: path.distance,
            metric: path.metric,
            tag: path.tag,
            nexthops: path.nexthops,
        }
    }

    fn wanted_origins(&self, filter: &RedistFilter) -> u32 {
        let origins = self.store.origins.iter().enumerate();
        let wanted = origins.filter(|(_, origin)| filter.wants_origin(&origin.name));
        wanted.fold(0, |bits, (number, _)| bits | 1 << number)
    }
}

/// The log.
impl Rib {
    /// Entries of the logs that some reader has not read, by family.
    pub fn log_lengths(&self) -> [usize; 2] {
        [self.tables.v4.log.len(), self.tables.v6.log.len()]
    }

    /// Most entries of a log.
    pub fn log_capacity(&self) -> usize {
        self.config.log_capacity
    }

    /// To how many routes are redistributed.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions.len()
    }

    /// How far the logs of changed prefixes have come, by family.
    pub fn changes_end(&self) -> (u64, u64) {
        (self.tables.v4.log.end(), self.tables.v6.log.end())
    }

    /// The prefixes whose route changed after [`changes_end`](Self::changes_end) said this, and whether there is one
    /// now. Changes that every reader has passed may be missing.
    pub fn changes_since(&self, ends: (u64, u64)) -> Vec<(Prefix, bool)> {
        let mut changes = Vec::new();
        self.changes_of(&self.tables.v4, ends.0, &mut changes);
        self.changes_of(&self.tables.v6, ends.1, &mut changes);
        changes
    }

    fn changes_of<P: Routed>(&self, family: &Family<P>, from: u64, changes: &mut Vec<(Prefix, bool)>) {
        let entries = family.log.since(from);
        let state = |prefix: P| (prefix.into(), family.row(prefix).winner(&self.store).is_some());
        changes.extend(entries.map(|(prefix, _)| state(prefix)));
    }

    /// An origin is new, or treated otherwise: readers may want its routes.
    pub(crate) fn choose_origins(&mut self) {
        let installed = self.installed_origins();
        if let Some(reader) = &mut self.fib.reader {
            reader.origins = installed;
        }
        let ids: Vec<_> = self.subscriptions.keys().copied().collect();
        for id in ids {
            let origins = self.subscriptions.get(&id).map(|it| self.wanted_origins(&it.filter));
            if let (Some(origins), Some(subscription)) = (origins, self.subscriptions.get_mut(&id)) {
                subscription.reader.origins = origins;
            }
        }
    }

    /// A reader came or went.
    fn follow(&mut self) {
        let followed = self.fib.reader.is_some() || !self.subscriptions.is_empty();
        self.tables.v4.is_followed = followed;
        self.tables.v6.is_followed = followed;
        self.trim();
    }

    /// Forgets what all readers have read.
    fn trim(&mut self) {
        let readers = self.subscriptions.values().map(|subscription| &subscription.reader);
        let positions = readers.map(Reader::positions).chain(self.fib.positions());
        let (v4, v6) = positions.fold((u64::MAX, u64::MAX), |a, b| (a.0.min(b.0), a.1.min(b.1)));
        self.tables.v4.log.trim(v4);
        self.tables.v6.log.trim(v6);
    }
}
