//! What a cache has for its routers.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use holdfast_rtr_wire::{Record, Serial, Timing, Version};
use holdfast_types::{Asn, Aspa};

use crate::{Dataset, Delta};

/// Changes that are remembered at most, however small they are.
const MOST_CHANGES: usize = 128;

/// How a cache behaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// The highest version that is spoken; those below are as well. Default: the latest.
    pub version: Version,
    /// What routers are told of times. Default: [`Timing::RECOMMENDED`].
    pub timing: Timing,
    /// Between two Serial Notifies on a connection. Default: a minute, and the protocol wants no less (RFC 8210 section
    /// 8.2).
    pub notify: Duration,
    /// Records in changes that are remembered, so that routers need not ask for all; what is made of them for routers
    /// that ask has twice as many at most, whoever reads it. Default 200,000.
    pub history: usize,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            version: Version::LATEST,
            timing: Timing::RECOMMENDED,
            notify: Duration::from_secs(60),
            history: 200_000,
        }
    }
}

/// One step of the history.
#[derive(Debug)]
struct Change {
    from: Serial,
    delta: Delta,
    /// What the customers in it had before: a delta does not say.
    before: Vec<(Asn, Option<Aspa>)>,
}

/// Several steps as one.
#[derive(Debug)]
struct Told {
    from: Serial,
    to: Serial,
    weight: usize,
    /// As long as a router reads it, or it is among the recent ones.
    delta: Weak<Delta>,
}

/// The data of a cache with a serial number and a bounded past. All connections share it.
#[derive(Debug)]
pub struct Cache {
    config: CacheConfig,
    sessions: [u16; 3],
    serial: Serial,
    data: Option<Arc<Dataset>>,
    history: VecDeque<Change>,
    told: Vec<Told>,
    /// To the present, for the next router that asks for the same; the oldest first.
    recent: VecDeque<Arc<Delta>>,
}

impl Cache {
    /// A cache that has no data yet. Its Session IDs should be none that it had before a restart, and differ by version
    /// (RFC 8210 section 5.1): those of versions 1 and 2 follow the given one.
    pub fn new(config: CacheConfig, session: u16, serial: Serial) -> Self {
        let sessions = [session, session.wrapping_add(1), session.wrapping_add(2)];
        let (history, recent) = Default::default();
        Self { config, sessions, serial, data: None, history, told: Vec::new(), recent }
    }

    /// Has other data from now on. Whether they are other than before; then [`Connection::poll_reply`] has something
    /// for routers. A key or an ASPA that is too long for a PDU is not told to anybody; none that came in one is.
    ///
    /// [`Connection::poll_reply`]: crate::Connection::poll_reply
    pub fn publish(&mut self, data: Dataset) -> bool {
        if let Some(old) = &self.data {
            let delta = old.difference(&data);
            if delta.is_empty() {
                return false;
            }
            let before = delta.customers().into_iter().map(|asn| (asn, old.aspa(asn).cloned())).collect();
            self.recent.clear();
            self.history.push_back(Change { from: self.serial, delta, before });
            self.serial = self.serial.next();
        }
        self.data = Some(Arc::new(data));
        self.forget();
        true
    }

    /// What a cache has; `None` before there is any.
    pub fn data(&self) -> Option<&Dataset> {
        self.data.as_deref()
    }

    /// Its number.
    pub fn serial(&self) -> Serial {
        self.serial
    }

    pub(crate) fn config(&self) -> &CacheConfig {
        &self.config
    }

    pub(crate) fn session(&self, version: Version) -> u16 {
        self.sessions[usize::from(version.octet())]
    }

    pub(crate) fn shared(&self) -> Option<Arc<Dataset>> {
        self.data.clone()
    }

    /// The least that brings a router from there to here (RFC 8210 section 5.3); `None`: that is not remembered, or there
    /// is no room for it beside what others are being told. All data, which they are told instead, are there only once.
    pub(crate) fn since(&mut self, serial: Serial) -> Option<Arc<Delta>> {
        if serial == self.serial {
            return Some(Arc::default());
        }
        let start = self.history.iter().position(|change| change.from == serial)?;
        let same = self.told.iter().find(|told| (told.from, told.to) == (serial, self.serial));
        if let Some(delta) = same.and_then(|told| told.delta.upgrade()) {
            return Some(delta);
        }
        let most = self.history.range(start..).map(|change| change.delta.weight()).sum();
        if !self.has_room(most) {
            return None;
        }
        let data = self.data.as_ref()?;
        let changes = || self.history.range(start..);
        let mut whole = changes().fold(Delta::default(), |whole, change| whole.then(&change.delta));
        let mut before = BTreeMap::new();
        for (customer, aspa) in changes().flat_map(|change| &change.before) {
            before.entry(*customer).or_insert(aspa);
        }
        for (customer, before) in before {
            match (data.aspa(customer), before) {
                (now, before) if now == before.as_ref() => false,
                (Some(now), _) => whole.announced.insert(Record::Aspa(now.clone())),
                (None, Some(before)) => whole.withdrawn.insert(Record::Aspa(before.clone())),
                (None, None) => false,
            };
        }
        let (weight, whole) = (whole.weight(), Arc::new(whole));
        let delta = Arc::downgrade(&whole);
        self.told.push(Told { from: serial, to: self.serial, weight, delta });
        self.recent.push_back(whole.clone());
        Some(whole)
    }

    /// For so many records more; what nobody reads makes room.
    fn has_room(&mut self, weight: usize) -> bool {
        loop {
            self.told.retain(|told| told.delta.strong_count() > 0);
            let total: usize = self.told.iter().map(|told| told.weight).sum();
            if total + weight <= self.config.history.saturating_mul(2) {
                return true;
            }
            if self.recent.pop_front().is_none() {
                return false;
            }
        }
    }

    /// The oldest changes, as far as there are too many.
    fn forget(&mut self) {
        let mut total: usize = self.history.iter().map(|change| change.delta.weight()).sum();
        while total > self.config.history || self.history.len() > MOST_CHANGES {
            let Some(oldest) = self.history.pop_front() else { return };
            total -= oldest.delta.weight();
        }
    }
}
