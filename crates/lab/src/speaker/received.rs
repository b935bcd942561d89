//! What the peer has announced, and what the handle may ask about.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use holdfast_bgp_wire::{MpReach, NextHop, Notification, Open, nlri, update};
use holdfast_prefix_table::PrefixTable;
use holdfast_types::{Family, HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

/// Attributes of a route as received.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Received {
    /// Path attributes without MP_REACH_NLRI and MP_UNREACH_NLRI.
    pub attributes: Vec<u8>,
    /// The next hop of MP_REACH_NLRI, for routes that came in one.
    pub next_hop: Option<NextHop>,
}

/// What is known of a session.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// OPENs and KEEPALIVEs have been exchanged.
    pub established: bool,
    /// Sessions so far.
    pub sessions: u32,
    /// All that the speaker knows it has to send has been given to the kernel.
    pub idle: bool,
    /// Routes now.
    pub routes: usize,
    /// UPDATEs received, in all sessions, as the next two.
    pub updates: u64,
    /// Prefixes announced by them.
    pub announced: u64,
    /// Prefixes withdrawn by them.
    pub withdrawn: u64,
    /// Octets received.
    pub octets: u64,
    /// Families whose End-of-RIB has come in this session.
    pub end_of_rib: Vec<Family>,
    /// ROUTE-REFRESHes received in this session.
    pub refreshes: u32,
    /// When the last UPDATE came.
    pub last_update: Option<Instant>,
    /// The peer's OPEN.
    pub open: Option<Open>,
    /// The last NOTIFICATION received.
    pub notification: Option<Notification>,
    /// Why the last session ended, or could not begin.
    pub ended: Option<String>,
}

/// The state behind a handle.
#[derive(Debug)]
pub(super) struct State {
    pub(super) status: Status,
    /// Commands given by the handle, and taken by the thread.
    pub(super) told: u64,
    pub(super) taken: u64,
    /// UPDATEs of this session, where they are kept.
    pub(super) updates: Vec<Vec<u8>>,
    ipv4: PrefixTable<Ipv4Prefix, u32>,
    ipv6: PrefixTable<Ipv6Prefix, u32>,
    sets: Vec<Arc<Received>>,
    numbers: HashMap<Arc<Received>, u32>,
    rest: Vec<u8>,
}

impl Default for State {
    fn default() -> Self {
        // The lab needs no protection against those who choose prefixes.
        Self {
            status: Status::default(),
            told: 0,
            taken: 0,
            updates: Vec::new(),
            ipv4: PrefixTable::new(HashKey::new([0, 0])),
            ipv6: PrefixTable::new(HashKey::new([0, 0])),
            sets: Vec::new(),
            numbers: HashMap::new(),
            rest: Vec::new(),
        }
    }
}

impl State {
    pub(super) fn len(&self) -> usize {
        self.ipv4.len() + self.ipv6.len()
    }

    pub(super) fn status(&self) -> Status {
        Status { routes: self.len(), ..self.status.clone() }
    }

    /// The session is over: what it brought is gone.
    pub(super) fn clear(&mut self) {
        let status = std::mem::take(&mut self.status);
        let (told, taken) = (self.told, self.taken);
        *self = Self { told, taken, ..Self::default() };
        self.status = Status {
            established: false,
            idle: false,
            end_of_rib: Vec::new(),
            refreshes: 0,
            open: None,
            ..status
        };
    }

    /// Whether there is nothing to be sent any more.
    pub(super) fn all_sent(&self) -> bool {
        self.status.established && self.status.idle && self.told == self.taken
    }

    pub(super) fn route(&self, prefix: Prefix) -> Option<Arc<Received>> {
        let set = match prefix {
            Prefix::V4(prefix) => self.ipv4.get(prefix),
            Prefix::V6(prefix) => self.ipv6.get(prefix),
        };
        set.map(|set| Arc::clone(&self.sets[set as usize]))
    }

    pub(super) fn routes(&self) -> BTreeMap<Prefix, Arc<Received>> {
        let ipv4 = self.ipv4.iter().map(|(prefix, set)| (Prefix::V4(prefix), set));
        let ipv6 = self.ipv6.iter().map(|(prefix, set)| (Prefix::V6(prefix), set));
        ipv4.chain(ipv6).map(|(prefix, set)| (prefix, Arc::clone(&self.sets[set as usize]))).collect()
    }

    /// Applies an UPDATE.
    ///
    /// # Errors
    /// It cannot be read; a speaker under test must not send such.
    pub(super) fn update(&mut self, body: &[u8], rules: &update::Rules) -> Result<(), Notification> {
        let sections = update::sections(body)?;
        self.status.updates += 1;
        self.status.last_update = Some(Instant::now());
        self.status.end_of_rib.extend(sections.end_of_rib());
        let mut rest = std::mem::take(&mut self.rest);
        let cut = update::cut(sections.attributes, &mut rest).ok_or_else(|| {
            Notification::update(holdfast_bgp_wire::notification::UpdateSubcode::MalformedAttributeList, &[])
        })?;
        let mp = cut.parse(rules)?;
        self.withdraw::<Ipv4Prefix>(sections.withdrawn);
        if let Some(unreach) = mp.unreach {
            match unreach.family {
                Family::IPV4_UNICAST => self.withdraw::<Ipv4Prefix>(unreach.nlri),
                Family::IPV6_UNICAST => self.withdraw::<Ipv6Prefix>(unreach.nlri),
                _ => {}
            }
        }
        if !sections.nlri.is_empty() {
            self.announce::<Ipv4Prefix>(sections.nlri, &rest, None);
        }
        match mp.reach {
            Some(MpReach { family: Family::IPV4_UNICAST, next_hop, nlri }) => {
                self.announce::<Ipv4Prefix>(nlri, &rest, next_hop);
            }
            Some(MpReach { family: Family::IPV6_UNICAST, next_hop, nlri }) => {
                self.announce::<Ipv6Prefix>(nlri, &rest, next_hop);
            }
            _ => {}
        }
        self.rest = rest;
        Ok(())
    }

    fn announce<P: Kept>(&mut self, prefixes: &[u8], attributes: &[u8], next_hop: Option<NextHop>) {
        let set = self.number(Received { attributes: attributes.to_vec(), next_hop });
        for prefix in nlri::prefixes::<P>(prefixes).flatten() {
            P::table(self).insert(prefix, set);
            self.status.announced += 1;
        }
    }

    fn withdraw<P: Kept>(&mut self, prefixes: &[u8]) {
        for prefix in nlri::prefixes::<P>(prefixes).flatten() {
            P::table(self).remove(prefix);
            self.status.withdrawn += 1;
        }
    }

    fn number(&mut self, received: Received) -> u32 {
        if let Some(number) = self.numbers.get(&received) {
            return *number;
        }
        let (number, received) = (self.sets.len() as u32, Arc::new(received));
        self.sets.push(Arc::clone(&received));
        self.numbers.insert(received, number);
        number
    }
}

/// A family with its table.
trait Kept: IpPrefix {
    fn table(state: &mut State) -> &mut PrefixTable<Self, u32>;
}

impl Kept for Ipv4Prefix {
    fn table(state: &mut State) -> &mut PrefixTable<Self, u32> {
        &mut state.ipv4
    }
}

impl Kept for Ipv6Prefix {
    fn table(state: &mut State) -> &mut PrefixTable<Self, u32> {
        &mut state.ipv6
    }
}

/// The state, shared between the handle and its thread.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and lets those who wait look at it.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `found` has something to return.
    pub(super) fn wait<T>(
        &self,
        what: &str,
        limit: Duration,
        found: impl Fn(&State) -> Option<T>,
    ) -> Result<T> {
        let start = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(result) = found(&state) {
                return Ok(result);
            }
            if start.elapsed() >= limit {
                let ended = state.status.ended.as_deref().unwrap_or("nothing ended");
                bail!("no {what} within {} s ({ended})", limit.as_secs_f32());
            }
            // Some conditions are about time alone, so look again now and then.
            let nap = Duration::from_millis(10).min(limit);
            state = self.changed.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
