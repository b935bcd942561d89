//! What is to be signed, what is under way, and signatures that were made a moment ago.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;
use holdfast_bgpsec_wire::Ski;
use holdfast_types::{Asn, HashKey, Prefix};

use super::store::SignatureName;

/// Octets that are to be signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SigningJob {
    /// Given back with the signature.
    pub number: u64,
    /// The AS of the key.
    pub asn: Asn,
    /// The key.
    pub ski: Ski,
    /// Algorithm Suite Identifier.
    pub suite: u8,
    /// What the signature covers (RFC 8205 section 4.2).
    pub octets: Vec<u8>,
}

/// Jobs that are not done, at most: those of some streams. Who comes later looks again when there are fewer.
const MOST_JOBS: usize = 8192;
/// Octets of all of them, if the last one does not go beyond: a neighbour chooses how long its paths are.
const MOST_OCTETS: usize = 32 << 20;
/// Signatures without room in the store that are remembered until they are sent.
const MOST_FRESH: usize = 8192;

/// Who is told of a route when a job is done.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    /// The number of its stream.
    pub(crate) stream: u32,
    pub(crate) identifier: u32,
    pub(crate) prefix: Prefix,
}

/// A job that is not done.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) name: SignatureName,
    pub(crate) mark: u64,
    pub(crate) waiters: Vec<Waiter>,
    job: SigningJob,
}

/// The jobs.
#[derive(Debug)]
pub(crate) struct Jobs {
    next: u64,
    open: BTreeMap<u64, Open>,
    /// Octets that those cover.
    octets: usize,
    /// Those that are not handed out, the oldest first.
    queue: VecDeque<u64>,
    /// Those of keys that there were not.
    refused: Vec<u64>,
    /// There were too many for somebody who asked.
    was_full: bool,
    by_name: HashMap<(SignatureName, u64), u64, HashKey>,
    fresh: HashMap<(SignatureName, u64), Box<[u8]>, HashKey>,
    /// The oldest first.
    age: VecDeque<(SignatureName, u64)>,
}

impl Jobs {
    pub(super) fn new(key: HashKey) -> Self {
        Self {
            next: 0,
            open: BTreeMap::new(),
            octets: 0,
            queue: VecDeque::new(),
            refused: Vec::new(),
            was_full: false,
            by_name: HashMap::with_hasher(key),
            fresh: HashMap::with_hasher(key),
            age: VecDeque::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// How many there have been.
    pub(crate) fn asked(&self) -> u64 {
        self.next
    }

    /// Somebody waits for a signature: one more for a job that is there, or a new one. `false`: there are too many.
    pub(crate) fn ask(
        &mut self,
        (name, mark): (SignatureName, u64),
        waiter: Waiter,
        job: impl FnOnce() -> SigningJob,
    ) -> bool {
        if let Some(open) = self.by_name.get(&(name, mark)).and_then(|number| self.open.get_mut(number)) {
            if !open.waiters.contains(&waiter) {
                open.waiters.push(waiter);
            }
            return true;
        }
        if self.open.len() >= MOST_JOBS || self.octets >= MOST_OCTETS {
            self.was_full = true;
            return false;
        }
        let number = self.next;
        self.next += 1;
        let job = SigningJob { number, ..job() };
        self.octets += job.octets.len();
        self.open.insert(number, Open { name, mark, waiters: vec![waiter], job });
        self.by_name.insert((name, mark), number);
        self.queue.push_back(number);
        true
    }

    /// Whether those who were told that there are too many can ask again: said once.
    pub(crate) fn has_room_again(&mut self) -> bool {
        let has_room = self.open.len() <= MOST_JOBS / 2 && self.octets <= MOST_OCTETS / 2;
        has_room && std::mem::take(&mut self.was_full)
    }

    /// Whether there is one that was not handed out.
    pub(crate) fn is_ready(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The next one that somebody still waits for; those that nobody does are dropped.
    pub(crate) fn poll(&mut self, is_awaited: impl Fn(&Waiter, u64) -> bool) -> Option<SigningJob> {
        while let Some(number) = self.queue.pop_front() {
            if let Some(job) = self.awaited(number, &is_awaited) {
                return Some(job);
            }
        }
        None
    }

    /// A job that somebody still waits for; one that nobody does is dropped.
    fn awaited(&mut self, number: u64, is_awaited: impl Fn(&Waiter, u64) -> bool) -> Option<SigningJob> {
        let open = self.open.get_mut(&number)?;
        open.waiters.retain(|waiter| is_awaited(waiter, open.mark));
        if open.waiters.is_empty() {
            self.take(number);
            return None;
        }
        Some(open.job.clone())
    }

    /// There is no such key. If somebody still waits for it, it is asked once more when it is said which keys there are:
    /// otherwise it would be asked all the time.
    pub(crate) fn refuse(&mut self, number: u64, is_awaited: impl Fn(&Waiter, u64) -> bool) {
        if self.awaited(number, is_awaited).is_some() {
            self.refused.push(number);
        }
    }

    /// What was refused is handed out again.
    pub(crate) fn retry(&mut self) {
        self.queue.extend(self.refused.drain(..));
    }

    /// Takes out a job.
    pub(super) fn take(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        self.octets -= open.job.octets.len();
        self.by_name.remove(&(open.name, open.mark));
        Some(open)
    }

    /// All that were handed out are handed out again.
    pub(crate) fn lost(&mut self) {
        self.refused.clear();
        self.queue = self.open.keys().copied().collect();
    }

    /// A signature that the store has no room for.
    pub(super) fn remember(&mut self, name: SignatureName, mark: u64, signature: &[u8]) {
        if self.fresh.insert((name, mark), signature.into()).is_none() {
            self.age.push_back((name, mark));
        }
        while self.age.len() > MOST_FRESH {
            self.age.pop_front().iter().for_each(|oldest| {
                self.fresh.remove(oldest);
            });
        }
    }

    pub(super) fn fresh(&self, name: &SignatureName, mark: u64) -> Option<&[u8]> {
        self.fresh.get(&(*name, mark)).map(|signature| &**signature)
    }

    /// Octets held.
    pub(super) fn memory(&self) -> usize {
        self.octets + self.by_name.allocation_size() + self.fresh.allocation_size() + 72 * self.fresh.len()
    }
}
