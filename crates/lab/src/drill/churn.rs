//! Changes all the time, every announcement with a serial number of its own: the AS at the end of the path, so every
//! router shows it. There are two kinds of prefixes.
//!
//! A *moving* prefix is announced, announced anew and withdrawn again and again, whether the change before has passed
//! or not. The router may leave out what has been replaced before it was sent.
//!
//! A prefix that is *used once* is announced once, and withdrawn once, no sooner than the announcement is at the other
//! peer. The router may leave out neither, so each of both UPDATEs can be counted.

use std::{
    collections::{BTreeMap, VecDeque},
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Result;
use holdfast_bgp_wire::{AsPath, Origin, edit::AttributesBuilder};
use holdfast_types::{Asn, Prefix};

use crate::table::{AttributeSet, Table, random::Random};

/// The first AS number for private use (RFC 6996): serial number 0.
pub const SERIALS: u32 = 4_200_000_000;

/// Moving prefixes, in each direction.
pub const MOVING: u32 = 64;
/// Prefixes used once that are announced, or whose withdrawal has not arrived, at most.
const MOST_ONCE: usize = 128;
/// How many of 10,000 changes are of a moving prefix.
const MOVES: u32 = 2_500;
/// How many of 10,000 changes of a moving prefix withdraw it.
const WITHDRAWS: u32 = 2_500;
/// How many of 10,000 other changes announce a prefix that was not there before, as long as there is room.
const ANNOUNCES: u32 = 6_000;

/// A number of /24s, one after the other.
pub fn prefixes(first: Ipv4Addr, count: u32) -> impl Iterator<Item = Prefix> {
    let address = move |number: u32| Ipv4Addr::from_bits(first.to_bits() + (number << 8));
    (0..count).map(move |number| Prefix::new(address(number).into(), 24).expect("a length of IPv4"))
}

/// Whether it is one that is used once: they are single addresses, and no others are.
pub fn is_used_once(prefix: Prefix) -> bool {
    prefix.length() == 32
}

/// The path, at its origin, of an announcement with this serial number.
pub fn path(serial: u32) -> Vec<Asn> {
    vec![Asn(SERIALS + serial)]
}

/// The serial number of a route.
pub fn serial(path: AsPath<'_>) -> Option<u32> {
    path.origin_as().and_then(serial_of)
}

/// The serial number that an AS number at the end of a path stands for.
pub fn serial_of(origin: Asn) -> Option<u32> {
    origin.0.checked_sub(SERIALS)
}

/// The serial number of a route whose path a router has printed.
pub fn printed_serial(path: &str) -> Option<u32> {
    serial_of(Asn(path.split_whitespace().next_back()?.parse().ok()?))
}

/// What becomes of a prefix: its new serial number, or `None` when it is withdrawn.
pub type Change = (Prefix, Option<u32>);

/// Where the prefixes of one direction begin.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ranges {
    /// Moving ones: [`MOVING`] of them.
    pub moving: Ipv4Addr,
    /// Those that are used once: the address is so much greater as the serial number says.
    pub once: Ipv4Addr,
}

/// The prefixes of one direction and how they are now.
#[derive(Clone, Debug)]
pub struct Churn {
    now: BTreeMap<Prefix, Option<u32>>,
    moving: Vec<Prefix>,
    /// Those used once that are announced, the oldest first.
    announced: VecDeque<(Prefix, u32)>,
    /// Those used once whose withdrawal has not arrived.
    leaving: Vec<Prefix>,
    first_once: Ipv4Addr,
    used_once: u64,
    withdrawals: BTreeMap<Prefix, u64>,
    serial: u32,
    random: Random,
}

impl Churn {
    /// All moving prefixes, announced once.
    pub fn new(ranges: Ranges, seed: u64) -> Self {
        let moving: Vec<_> = prefixes(ranges.moving, MOVING).collect();
        Self {
            now: moving.iter().copied().zip((1..).map(Some)).collect(),
            withdrawals: moving.iter().map(|prefix| (*prefix, 0)).collect(),
            moving,
            announced: VecDeque::new(),
            leaving: Vec::new(),
            first_once: ranges.once,
            used_once: 0,
            serial: MOVING,
            random: Random::new(seed),
        }
    }

    /// Makes one to four changes, no two of one prefix. `has_arrived` says whether the other peer was last told this of
    /// a prefix: its serial number, or `None` for the withdrawal of one that it had.
    pub fn step(&mut self, has_arrived: impl Fn(Prefix, Option<u32>) -> bool) -> Vec<Change> {
        let now = &mut self.now;
        self.leaving.retain(|prefix| {
            let is_gone = has_arrived(*prefix, None);
            if is_gone {
                now.remove(prefix);
            }
            !is_gone
        });
        let mut changes = BTreeMap::new();
        for _ in 0..=self.random.below(4) {
            let change = match self.random.chance(MOVES) {
                true => self.moved(&changes),
                false => self.used(&has_arrived),
            };
            changes.extend(change);
        }
        changes.into_iter().collect()
    }

    fn moved(&mut self, changes: &BTreeMap<Prefix, Option<u32>>) -> Option<Change> {
        let prefix = self.moving[self.random.below(MOVING) as usize];
        if changes.contains_key(&prefix) {
            return None;
        }
        let is_announced = self.now.get(&prefix).is_some_and(Option::is_some);
        let state = match is_announced && self.random.chance(WITHDRAWS) {
            true => self.withdraw(prefix),
            false => self.announce(prefix),
        };
        Some((prefix, state))
    }

    fn used(&mut self, has_arrived: &impl Fn(Prefix, Option<u32>) -> bool) -> Option<Change> {
        let is_room = self.announced.len() + self.leaving.len() < MOST_ONCE;
        if is_room && self.random.chance(ANNOUNCES) {
            let address = Ipv4Addr::from_bits(self.first_once.to_bits() + self.serial + 1);
            let prefix = Prefix::host(address.into());
            let state = self.announce(prefix);
            self.announced.push_back((prefix, self.serial));
            self.withdrawals.insert(prefix, 0);
            self.used_once += 1;
            return Some((prefix, state));
        }
        let arrived =
            self.announced.iter().position(|(prefix, serial)| has_arrived(*prefix, Some(*serial)))?;
        let (prefix, _) = self.announced.remove(arrived)?;
        self.leaving.push(prefix);
        Some((prefix, self.withdraw(prefix)))
    }

    fn announce(&mut self, prefix: Prefix) -> Option<u32> {
        self.serial += 1;
        self.now.insert(prefix, Some(self.serial));
        Some(self.serial)
    }

    fn withdraw(&mut self, prefix: Prefix) -> Option<u32> {
        self.now.insert(prefix, None);
        *self.withdrawals.entry(prefix).or_default() += 1;
        None
    }

    /// The serial number of the last announcement.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// How many prefixes that are used once have been announced.
    pub fn used_once(&self) -> u64 {
        self.used_once
    }

    /// All prefixes with their serial numbers, `None` for those that are withdrawn; without those used once whose
    /// withdrawal has arrived.
    pub fn now(&self) -> &BTreeMap<Prefix, Option<u32>> {
        &self.now
    }

    /// How often each was withdrawn.
    pub fn withdrawals(&self) -> &BTreeMap<Prefix, u64> {
        &self.withdrawals
    }

    /// The announced ones, with their paths.
    pub fn table(&self) -> Table {
        let mut table = Table::default();
        for (prefix, serial) in self.now.iter().filter_map(|(prefix, serial)| Some((*prefix, (*serial)?))) {
            let as_path = path(serial);
            table.routes.push((prefix, table.sets.len() as u32));
            let bytes = AttributesBuilder { as_path, ..AttributesBuilder::new(Origin::Igp) }.build();
            table.sets.push(AttributeSet { bytes });
        }
        table
    }
}

/// Changes on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Churner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    churn: Mutex<Churn>,
    paused: AtomicBool,
    stopped: AtomicBool,
    /// Why changing has ended.
    failure: Mutex<Option<String>>,
}

impl Churner {
    /// Begins, paused: makes a step every `pace`, and has `apply` tell it to the router that announces. `has_arrived`
    /// is that of [`Churn::step`].
    pub fn start(
        churn: Churn,
        pace: Duration,
        has_arrived: impl Fn(Prefix, Option<u32>) -> bool + Send + 'static,
        mut apply: impl FnMut(&Churn, &[Change]) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            churn: Mutex::new(churn),
            paused: AtomicBool::new(true),
            stopped: AtomicBool::new(false),
            failure: Mutex::default(),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("churn".into()).spawn(move || {
            while !theirs.stopped.load(Ordering::SeqCst) {
                if let Err(error) = theirs.step(&has_arrived, &mut apply) {
                    *lock(&theirs.failure) = Some(format!("{error:#}"));
                    break;
                }
                std::thread::sleep(pace);
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Changes nothing from now on; returns how everything is.
    pub fn pause(&self) -> Churn {
        self.shared.paused.store(true, Ordering::SeqCst);
        self.now()
    }

    /// Goes on after [`Self::pause`].
    pub fn resume(&self) {
        self.shared.paused.store(false, Ordering::SeqCst);
    }

    /// How everything is, all of it told to the router.
    pub fn now(&self) -> Churn {
        lock(&self.shared.churn).clone()
    }

    /// The serial number of the last announcement told to the router.
    pub fn serial(&self) -> u32 {
        lock(&self.shared.churn).serial
    }

    /// Why changing has ended before its time.
    pub fn failure(&self) -> Option<String> {
        lock(&self.shared.failure).clone()
    }
}

impl Shared {
    fn step(
        &self,
        has_arrived: &impl Fn(Prefix, Option<u32>) -> bool,
        apply: &mut impl FnMut(&Churn, &[Change]) -> Result<()>,
    ) -> Result<()> {
        let mut churn = lock(&self.churn);
        if self.paused.load(Ordering::SeqCst) {
            return Ok(());
        }
        let changes = churn.step(has_arrived);
        apply(&churn, &changes)
    }
}

impl Drop for Churner {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const RANGES: Ranges = Ranges { moving: Ipv4Addr::new(100, 64, 0, 0), once: Ipv4Addr::new(118, 0, 0, 0) };

    #[test]
    fn no_serial_number_comes_twice_and_the_table_is_what_was_announced() {
        let mut churn = Churn::new(RANGES, 1);
        let mut now = churn.now().clone();
        let mut seen: BTreeSet<u32> = now.values().flatten().copied().collect();
        for _ in 0..1000 {
            let before = now.clone();
            for (prefix, state) in churn.step(|prefix, state| before.get(&prefix) == Some(&state)) {
                assert!(state.is_none_or(|serial| serial <= churn.serial() && seen.insert(serial)));
                now.insert(prefix, state);
            }
        }
        let announced = |now: &BTreeMap<Prefix, Option<u32>>| -> Vec<(Prefix, u32)> {
            now.iter().filter_map(|(prefix, serial)| Some((*prefix, (*serial)?))).collect()
        };
        assert_eq!(announced(churn.now()), announced(&now));
        let table = churn.table();
        let found = (0..table.routes.len()).map(|route| {
            let attributes = holdfast_bgp_wire::Attributes(table.attributes(route));
            (table.routes[route].0, serial(attributes.as_path()).expect("a serial number"))
        });
        assert!(found.eq(announced(&now)));
        assert!(churn.withdrawals().values().sum::<u64>() > 100 && table.routes.len() > 30);
    }

    #[test]
    fn a_prefix_is_used_once_and_withdrawn_when_it_has_arrived() {
        let mut churn = Churn::new(RANGES, 2);
        let mut told: BTreeMap<Prefix, Vec<Option<u32>>> = BTreeMap::new();
        let mut steps = |churn: &mut Churn, arrives: fn(Option<u32>) -> bool| {
            for _ in 0..1000 {
                let is_told = |prefix, state| told.get(&prefix).is_some_and(|all| all.last() == Some(&state));
                let changes = churn.step(|prefix, state| arrives(state) && is_told(prefix, state));
                for (prefix, state) in changes.into_iter().filter(|(prefix, _)| is_used_once(*prefix)) {
                    told.entry(prefix).or_default().push(state);
                }
            }
        };
        // Nothing arrives: they are announced until there is no room, and none is withdrawn.
        steps(&mut churn, |_| false);
        assert_eq!((churn.used_once(), churn.announced.len()), (MOST_ONCE as u64, MOST_ONCE));
        // Announcements arrive, withdrawals do not: nothing takes the place of what is withdrawn.
        steps(&mut churn, |state| state.is_some());
        assert_eq!((churn.used_once(), churn.leaving.len()), (MOST_ONCE as u64, MOST_ONCE));
        steps(&mut churn, |_| true);
        assert!(churn.used_once() > 500 && churn.now().len() <= MOVING as usize + MOST_ONCE);
        for (prefix, states) in &told {
            assert!(matches!(states[..], [Some(_)] | [Some(_), None]), "{prefix}: {states:?}");
        }
        assert_eq!(told.len() as u64, churn.used_once());
    }

    #[test]
    fn a_serial_number_is_read_as_routers_print_it() {
        assert_eq!(printed_serial("65000 65002 4200000017"), Some(17));
        assert_eq!(printed_serial("65000 65002"), None);
        assert_eq!(printed_serial(""), None);
    }
}
