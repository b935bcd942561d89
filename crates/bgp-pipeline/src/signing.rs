//! Signing: paths go on with signatures of ours (RFC 8205 section 4).
//!
//! The pipeline signs nothing. What a group of peers is to be told of a route is judged as ever; if signatures of ours are
//! missing, the announcement is put off ([`Pending`]), and a job handed out ([`Pipeline::poll_to_sign`]). When it is done
//! ([`Pipeline::signed`]) the prefix is looked at once more: what is in the table then is what the group is told. So nothing
//! stale is sent, and withdrawals and other prefixes do not wait.
//!
//! ```text
//! window ──> judged ──> all signatures are kept ──────────────────────────────> encoded
//!                └────> some are missing ──> put off, job ──> kept ──> ready ──┘
//! ```
//!
//! A signature that was made is kept ([`SignatureStore`]) for as long as the route says the same: whoever is told of it again
//! receives the same octets.

mod jobs;
mod pending;
mod silence;
mod store;

use std::{hash::Hasher, rc::Rc, time::Instant};

use holdfast_types::{HashKey, Prefix};

use self::silence::Silence;
pub use self::{
    jobs::SigningJob,
    silence::PATIENCE,
    store::{SignatureName, SignatureStore},
};
pub(crate) use self::{
    jobs::{Jobs, Waiter},
    pending::{Had, Outlook, Pending, Waiting},
};
use crate::onward::Signers;

/// What is counted of signatures of ours.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SigningCounts {
    /// Signatures that are kept.
    pub kept: u64,
    /// Those that were not, for want of room; only grows.
    pub lost: u64,
    /// Jobs that are not done.
    pub waiting: u64,
    /// Octets of what is kept and of the jobs.
    pub octets: usize,
}

/// Keys, signatures and jobs of all groups.
#[derive(Debug)]
pub(crate) struct SigningTable {
    /// Of the marks.
    key: HashKey,
    /// Whether some group is sent signed paths.
    pub(crate) is_used: bool,
    /// Whoever signs is heard, and will say which keys it has.
    pub(crate) is_followed: bool,
    /// `None`: nobody has said yet which there are.
    pub(crate) signers: Option<Rc<Signers>>,
    store: Option<Box<dyn SignatureStore>>,
    pub(crate) jobs: Jobs,
    pub(crate) silence: Silence,
    pub(crate) pace: Pace,
    pub(crate) now: Option<Instant>,
}

/// How fast routes are signed again after a change of keys.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Signatures a second.
    pub(crate) rate: u32,
    next: Option<Instant>,
}

impl Pace {
    /// The most that [`Self::rate`] may be.
    const MOST: u32 = 1_000_000;

    /// When the next ones may be; `None`: now.
    pub(crate) fn blocks(&self, now: Option<Instant>) -> Option<Instant> {
        self.next.filter(|next| now.is_some_and(|now| now < *next))
    }

    /// So many signatures are asked for again.
    fn spend(&mut self, signatures: u64, now: Option<Instant>) {
        let Some(now) = now else { return };
        let micros = signatures * 1_000_000 / u64::from(self.rate.clamp(1, Self::MOST));
        let from = self.next.map_or(now, |next| next.max(now));
        self.next = Some(from + std::time::Duration::from_micros(micros));
    }
}

impl SigningTable {
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            key,
            is_used: false,
            is_followed: false,
            signers: None,
            store: None,
            jobs: Jobs::new(key),
            silence: Silence::default(),
            pace: Pace { rate: 1000, next: None },
            now: None,
        }
    }

    pub(crate) fn keep_in(&mut self, store: Box<dyn SignatureStore>) {
        self.key = HashKey::new(store.key());
        // What is sent with the keys of the process before is sent so until somebody names others.
        self.signers = self.signers.take().or_else(|| Signers::read(store.noted()).map(Rc::new));
        self.store = Some(store);
    }

    pub(crate) fn keeps(&self) -> bool {
        self.store.is_some()
    }

    pub(crate) fn set_most(&mut self, most: usize) {
        self.store.iter_mut().for_each(|store| store.set_most(most));
    }

    /// Other keys; whether they are others.
    pub(crate) fn set_signers(&mut self, signers: Signers) -> bool {
        self.silence.heard(self.now);
        if self.signers.as_deref() == Some(&signers) {
            return false;
        }
        self.store.iter_mut().for_each(|store| store.note(&signers.octets()));
        self.signers = Some(Rc::new(signers));
        true
    }

    /// A walk for other keys has gone on; so many had been asked for before. What several peers of an AS share is counted once.
    pub(crate) fn spend(&mut self, asked: u64) {
        self.pace.spend(self.jobs.asked() - asked, self.now);
    }

    /// Makes marks.
    pub(crate) fn hasher(&self) -> impl Hasher + Clone + use<> {
        std::hash::BuildHasher::build_hasher(&self.key)
    }

    /// A signature that is kept, or was made a moment ago.
    pub(crate) fn signature(&self, name: &SignatureName, mark: u64) -> Option<&[u8]> {
        let kept = self.store.as_ref().and_then(|store| store.get(name, mark));
        kept.or_else(|| self.jobs.fresh(name, mark))
    }

    /// A job is done; who waits for it.
    pub(crate) fn done(
        &mut self,
        number: u64,
        signature: &[u8],
        is_used: &mut dyn FnMut(Prefix) -> bool,
    ) -> Vec<Waiter> {
        self.silence.heard(self.now);
        let Some(done) = self.jobs.take(number) else { return Vec::new() };
        let kept =
            self.store.as_mut().is_some_and(|store| store.keep(done.name, done.mark, signature, is_used));
        if !kept {
            self.jobs.remember(done.name, done.mark, signature);
        }
        done.waiters
    }

    pub(crate) fn counts(&self) -> SigningCounts {
        let (kept, lost) = self.store.as_ref().map(|store| store.counts()).unwrap_or_default();
        let waiting = self.jobs.len() as u64;
        SigningCounts { kept: kept as u64, lost, waiting, octets: self.memory() }
    }

    /// Octets held.
    pub(crate) fn memory(&self) -> usize {
        self.store.as_ref().map_or(0, |store| store.memory()) + self.jobs.memory()
    }
}
