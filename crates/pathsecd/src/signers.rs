//! Which private key of an AS is in use (RFC 8635 section 5): of those that others can verify by, the last. Pure: time and what
//! caches publish come in.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use holdfast_api::pathsec::v1::{KeyState, PrivateKey, Signer as InUse};
use holdfast_path_validation::{RouterKey, Signer as _};
use holdfast_types::{Asn, Ski};
use tokio::time::Instant;

use crate::signing::Key;

/// Private keys at most.
pub(crate) const MOST_KEYS: usize = 64;
/// If no cache is heard for so long, keys count as published: a dead cache does not keep us from signing. For so long nothing
/// is said of a key that caches do not publish: the certificate may be on its way.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);
/// Somebody may set the clock on the wall at any time: while a key waits for its time, it is looked at so often.
const GLANCE: Duration = Duration::from_secs(60);

/// A key, as the manager gives it.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) key: Arc<Key>,
    /// In seconds since 1970.
    pub(crate) sign_from: u64,
}

/// What a key has become, where somebody is to hear of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) asn: Asn,
    pub(crate) ski: Ski,
    pub(crate) state: KeyState,
}

/// Whether caches publish a key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Publication {
    /// They never have.
    Never,
    /// They do, or did until nobody was left to say so.
    Published,
    /// They did, and do not any more.
    Withdrawn,
}

struct Held {
    given: Given,
    publication: Publication,
    /// Its time has come. It stays so when the clock is set back.
    has_begun: bool,
    state: KeyState,
    /// Since when it is in that state.
    since: Instant,
    /// The log has that no cache publishes it.
    is_alarmed: bool,
}

/// All private keys, in the order of the configuration.
#[derive(Default)]
pub(crate) struct Signers {
    keys: Vec<Held>,
    ases: BTreeSet<Asn>,
    /// Since when there are caches; `None`: there are none.
    caches: Option<Instant>,
    /// What they publish is known. That may be before it is known that they are there.
    is_heard: bool,
    /// The manager has said all this.
    is_configured: bool,
    /// What is in use has been decided.
    is_decided: bool,
}

impl Signers {
    /// The manager says which keys there are, which ASes are ours, and whether there are caches. What is known of a key that
    /// was there before stays.
    pub(crate) fn configure(
        &mut self,
        given: &[Given],
        ases: BTreeSet<Asn>,
        has_caches: bool,
        is_published: impl Fn(&RouterKey) -> bool,
        now: Instant,
    ) {
        // Of caches that there were before nothing is known any more.
        self.is_heard &= has_caches;
        self.caches = has_caches.then(|| self.caches.unwrap_or(now));
        let mut before = std::mem::take(&mut self.keys);
        self.keys = given.iter().map(|given| Held::of(given, &mut before, now)).collect();
        self.ases = ases;
        self.is_configured = true;
        if self.is_heard {
            self.publish(is_published, false);
        }
    }

    /// What caches publish has changed. `withdraws`: a cache that lives says that the rest is gone; otherwise some have only
    /// expired.
    pub(crate) fn heard(&mut self, is_published: impl Fn(&RouterKey) -> bool, withdraws: bool) {
        self.is_heard = true;
        self.publish(is_published, withdraws);
    }

    fn publish(&mut self, is_published: impl Fn(&RouterKey) -> bool, withdraws: bool) {
        for held in &mut self.keys {
            held.publication = match (is_published(&held.given.key.public), held.publication) {
                (true, _) => Publication::Published,
                (false, Publication::Published) if withdraws => Publication::Withdrawn,
                (false, before) => before,
            };
        }
    }

    /// Decides what is in use; what is to be heard of it. `wall` is the time of day, in seconds since 1970.
    pub(crate) fn decide(&mut self, now: Instant, wall: u64) -> Vec<Event> {
        for held in &mut self.keys {
            held.has_begun |= held.given.sign_from <= wall;
        }
        let is_open = self.decided_at().is_some_and(|at| now < at);
        self.is_decided |= self.is_configured && !is_open;
        // From the last to the first: the first that is met is in use.
        let mut used = HashSet::new();
        let mut states: Vec<_> =
            self.keys.iter().rev().map(|held| self.state(held, is_open, &mut used)).collect();
        states.reverse();
        let keys = self.keys.iter_mut().zip(states);
        keys.filter_map(|(held, state)| held.become_state(state, now)).collect()
    }

    /// Until when nothing is decided, where there are keys of ours that caches may publish which nobody has heard.
    fn decided_at(&self) -> Option<Instant> {
        let is_ours = |held: &Held| self.ases.contains(&held.given.key.public.asn);
        let since = self.caches.filter(|_| !self.is_heard && self.keys.iter().any(is_ours));
        since.map(|since| since + PATIENCE)
    }

    /// `used` has the AS and the suite of the keys that are in use.
    fn state(&self, held: &Held, is_open: bool, used: &mut HashSet<(Asn, u8)>) -> KeyState {
        let key = &held.given.key;
        let counts = self.caches.is_some() && self.is_heard;
        let publication = if counts { held.publication } else { Publication::Published };
        match publication {
            _ if !self.ases.contains(&key.public.asn) => KeyState::Foreign,
            _ if is_open && held.state != KeyState::Foreign => held.state,
            _ if is_open => KeyState::Unspecified,
            Publication::Withdrawn => KeyState::Withdrawn,
            _ if !held.has_begun => KeyState::Waiting,
            Publication::Never => KeyState::Unpublished,
            Publication::Published if used.insert((key.public.asn, key.signer.suite())) => KeyState::InUse,
            Publication::Published => KeyState::Superseded,
        }
    }

    /// The keys in use; `None`: that is not known yet.
    pub(crate) fn in_use(&self) -> Option<Vec<InUse>> {
        let used = self.keys.iter().filter(|held| held.state == KeyState::InUse);
        let told = used.map(|held| {
            let Key { public, signer, .. } = &*held.given.key;
            InUse { asn: public.asn.0, ski: public.ski.0.to_vec(), suite: signer.suite().into() }
        });
        self.is_decided.then(|| told.collect())
    }

    /// The key of this name, whether it is in use or not; none that is not ours.
    pub(crate) fn key(&self, asn: Asn, ski: &[u8], suite: u32) -> Option<Arc<Key>> {
        let mut keys = self.keys.iter().map(|held| &held.given.key).filter(|_| self.ases.contains(&asn));
        let is_it = |key: &&Arc<Key>| {
            (key.public.asn, &key.public.ski.0[..], u32::from(key.signer.suite())) == (asn, ski, suite)
        };
        keys.find(is_it).map(Arc::clone)
    }

    /// All of them, as they are shown.
    pub(crate) fn shown(&self) -> Vec<PrivateKey> {
        let shown = |held: &Held| {
            let Key { public, .. } = &*held.given.key;
            PrivateKey {
                asn: public.asn.0,
                ski: public.ski.0.to_vec(),
                state: held.state.into(),
                signed: held.given.key.signed(),
            }
        };
        self.keys.iter().map(shown).collect()
    }

    /// After how long something is to be [decided](Self::decide) again, if nothing else happens.
    pub(crate) fn timeout(&self, now: Instant, wall: u64) -> Option<Duration> {
        let until = |at: Instant| at.saturating_duration_since(now);
        let open = self.decided_at().filter(|at| now < *at).map(until);
        let of_key = |held: &Held| match held.state {
            KeyState::Waiting => {
                Some(Duration::from_secs(held.given.sign_from.saturating_sub(wall)).min(GLANCE))
            }
            KeyState::Unpublished if !held.is_alarmed => Some(until(held.since + PATIENCE)),
            KeyState::Unspecified
            | KeyState::InUse
            | KeyState::Superseded
            | KeyState::Unpublished
            | KeyState::Withdrawn
            | KeyState::Foreign => None,
        };
        self.keys.iter().filter_map(of_key).chain(open).min()
    }
}

impl Held {
    /// What `before` has of that key stays.
    fn of(given: &Given, before: &mut Vec<Self>, now: Instant) -> Self {
        let place = before.iter().position(|held| held.given.key.public == given.key.public);
        match place.map(|place| before.swap_remove(place)) {
            Some(held) => Self {
                has_begun: held.has_begun && held.given.sign_from == given.sign_from,
                // Its signatures are counted on.
                given: Given { key: held.given.key, sign_from: given.sign_from },
                ..held
            },
            None => Self {
                given: given.clone(),
                publication: Publication::Never,
                has_begun: false,
                state: KeyState::Unspecified,
                since: now,
                is_alarmed: false,
            },
        }
    }

    /// What is to be heard of it, once for each change.
    fn become_state(&mut self, state: KeyState, now: Instant) -> Option<Event> {
        let is_new = self.state != state;
        if is_new {
            (self.state, self.since, self.is_alarmed) = (state, now, false);
        }
        let is_heard = match state {
            KeyState::InUse | KeyState::Withdrawn | KeyState::Foreign => is_new,
            KeyState::Unpublished => {
                let is_due = !self.is_alarmed && now >= self.since + PATIENCE;
                self.is_alarmed |= is_due;
                is_due
            }
            KeyState::Unspecified | KeyState::Superseded | KeyState::Waiting => false,
        };
        let RouterKey { asn, ski, .. } = self.given.key.public;
        is_heard.then_some(Event { asn, ski, state })
    }
}
