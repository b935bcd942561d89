//! Changes all the time: prefixes that are announced, announced anew and withdrawn, every announcement with a serial
//! number of its own. The number is the AS at the end of the path, so every router shows it.

use std::{
    collections::BTreeMap,
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

/// Prefixes that change, in each direction.
pub const CHANGING: u32 = 64;

/// A number of /24s, one after the other.
pub fn prefixes(first: Ipv4Addr, count: u32) -> impl Iterator<Item = Prefix> {
    let address = move |number: u32| Ipv4Addr::from_bits(first.to_bits() + (number << 8));
    (0..count).map(move |number| Prefix::new(address(number).into(), 24).expect("a length of IPv4"))
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

/// The prefixes of one direction and how they are now.
#[derive(Clone, Debug)]
pub struct Churn {
    now: BTreeMap<Prefix, Option<u32>>,
    withdrawals: BTreeMap<Prefix, u64>,
    serial: u32,
    random: Random,
}

impl Churn {
    /// All [`CHANGING`] prefixes from this one on, announced once.
    pub fn new(first: Ipv4Addr, seed: u64) -> Self {
        let now: BTreeMap<_, _> = prefixes(first, CHANGING).zip((1..).map(Some)).collect();
        let withdrawals = now.keys().map(|prefix| (*prefix, 0)).collect();
        Self { now, withdrawals, serial: CHANGING, random: Random::new(seed) }
    }

    /// Changes one to four prefixes; a quarter of the changes are withdrawals.
    pub fn step(&mut self) -> Vec<Change> {
        let mut changes = BTreeMap::new();
        for _ in 0..=self.random.below(4) {
            let number = self.random.below(CHANGING) as usize;
            let Some((prefix, state)) = self.now.iter_mut().nth(number) else { continue };
            if changes.contains_key(prefix) {
                continue;
            }
            if state.is_some() && self.random.chance(2_500) {
                *state = None;
                *self.withdrawals.entry(*prefix).or_default() += 1;
            } else {
                self.serial += 1;
                *state = Some(self.serial);
            }
            changes.insert(*prefix, *state);
        }
        changes.into_iter().collect()
    }

    /// The serial number of the last announcement.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// All prefixes with their serial numbers, `None` for those that are withdrawn.
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
    /// Begins, paused: makes a step every `pace`, and has `apply` tell it to the router that announces.
    pub fn start(
        churn: Churn,
        pace: Duration,
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
                if let Err(error) = theirs.step(&mut apply) {
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
    fn step(&self, apply: &mut impl FnMut(&Churn, &[Change]) -> Result<()>) -> Result<()> {
        let mut churn = lock(&self.churn);
        if self.paused.load(Ordering::SeqCst) {
            return Ok(());
        }
        let changes = churn.step();
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
    use super::*;

    #[test]
    fn no_serial_number_comes_twice_and_the_table_is_what_was_announced() {
        let mut churn = Churn::new(Ipv4Addr::new(100, 64, 0, 0), 1);
        let mut now = churn.now().clone();
        let mut last = churn.serial();
        for _ in 0..1000 {
            let mut serials: Vec<u32> = Vec::new();
            for (prefix, state) in churn.step() {
                serials.extend(state);
                now.insert(prefix, state);
            }
            serials.sort_unstable();
            assert!(serials.iter().copied().eq(last + 1..=churn.serial()));
            last = churn.serial();
        }
        assert_eq!(churn.now(), &now);
        let table = churn.table();
        let announced = now.iter().filter_map(|(prefix, serial)| Some((*prefix, (*serial)?)));
        let found = (0..table.routes.len()).map(|route| {
            let attributes = holdfast_bgp_wire::Attributes(table.attributes(route));
            (table.routes[route].0, serial(attributes.as_path()).expect("a serial number"))
        });
        assert!(found.eq(announced));
        assert!(churn.withdrawals().values().sum::<u64>() > 100 && table.routes.len() > 30);
    }

    #[test]
    fn a_serial_number_is_read_as_routers_print_it() {
        assert_eq!(printed_serial("65000 65002 4200000017"), Some(17));
        assert_eq!(printed_serial("65000 65002"), None);
        assert_eq!(printed_serial(""), None);
    }
}
