//! When there is something to go by. Pure: time comes in.
//!
//! Whoever watches may have what an earlier life of this process has told, and keeps it until it is told something new. So
//! nothing is told while it would only be less: not before the caches that are preferred have said all, or have had time
//! for it.

use std::time::{Duration, Instant};

use holdfast_rtr::{Caches, Client, Phase};

/// How long the other caches that are preferred are waited for, once one cache has said all, while they are not speaking.
const SETTLE: Duration = Duration::from_secs(5);
/// How long those are that do, and any cache where there are assertions of our own: the shortest time that data hold (RFC 8210
/// section 6). Without assertions there is nothing to be told without a cache: what was told earlier expires with whoever watches.
const LONGEST: Duration = Duration::from_secs(600);

/// How far it has come.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Readiness {
    /// Nobody has said all yet; since when that is waited for.
    Waiting(Instant),
    /// Somebody has, then.
    Settling(Instant),
    /// There is something to go by, from now on for ever.
    Ready,
}

impl Readiness {
    /// Looks whether that has changed.
    pub(crate) fn look(&mut self, caches: &Caches, asserts: bool, now: Instant) {
        if matches!(self, Self::Waiting(_)) && caches.has_data() {
            *self = Self::Settling(now);
        }
        if preferred_have_data(caches)
            || self.deadline(caches, asserts).is_some_and(|deadline| deadline <= now)
        {
            *self = Self::Ready;
        }
    }

    /// When to look again.
    pub(crate) fn deadline(self, caches: &Caches, asserts: bool) -> Option<Instant> {
        match self {
            Self::Waiting(since) => asserts.then(|| since + LONGEST),
            Self::Settling(since) => Some(since + if preferred_speak(caches) { LONGEST } else { SETTLE }),
            Self::Ready => None,
        }
    }

    pub(crate) fn is_ready(self) -> bool {
        matches!(self, Self::Ready)
    }
}

/// Those with the lowest preference value.
fn preferred(caches: &Caches) -> impl Iterator<Item = &Client> {
    let best = caches.clients().map(|(_, preference, _)| preference).min();
    caches.clients().filter(move |(_, preference, _)| Some(*preference) == best).map(|(_, _, client)| client)
}

/// Whether these have all said all. Without caches there is nobody to wait for.
fn preferred_have_data(caches: &Caches) -> bool {
    preferred(caches).all(|client| client.data().is_some())
}

/// Whether one of them is about to.
fn preferred_speak(caches: &Caches) -> bool {
    preferred(caches).any(|client| client.data().is_none() && client.phase() == Phase::Syncing)
}

#[cfg(test)]
mod tests {
    use holdfast_rtr::{CacheId, ClientConfig, Input};
    use holdfast_rtr_wire::{Pdu, Serial, Version};

    use super::*;

    /// A cache says that it has nothing, all of it.
    fn says_all(caches: &mut Caches, id: u32, now: Instant) {
        caches.handle_timeout(now);
        caches.handle(CacheId(id), Input::Connected, now);
        let mut octets = Vec::new();
        let end = Pdu::EndOfData { session: 7, serial: Serial(1), timing: None };
        for pdu in [Pdu::CacheResponse { session: 7 }, end] {
            pdu.write(Version::V1, &mut octets).expect("written");
        }
        caches.handle(CacheId(id), Input::Received(&octets), now);
        assert!(caches.client(CacheId(id)).expect("there").data().is_some());
    }

    fn caches(preferences: &[u32], now: Instant) -> Caches {
        let mut caches = Caches::default();
        for (id, preference) in (0..).zip(preferences) {
            caches.insert(CacheId(id), *preference, ClientConfig::default(), now);
        }
        caches
    }

    #[test]
    fn the_preferred_caches_are_waited_for_but_not_for_long() {
        let now = Instant::now();
        let mut caches = caches(&[10, 10, 20], now);
        let mut readiness = Readiness::Waiting(now);
        readiness.look(&caches, false, now);
        assert!(!readiness.is_ready());
        says_all(&mut caches, 2, now);
        readiness.look(&caches, false, now);
        assert_eq!((readiness.is_ready(), readiness.deadline(&caches, false)), (false, Some(now + SETTLE)));
        says_all(&mut caches, 0, now);
        readiness.look(&caches, false, now + SETTLE / 2);
        assert!(!readiness.is_ready(), "one of two");
        let mut late = readiness;
        late.look(&caches, false, now + SETTLE);
        assert!(late.is_ready());
        says_all(&mut caches, 1, now);
        readiness.look(&caches, false, now + SETTLE / 2);
        assert!(readiness.is_ready(), "both");
    }

    #[test]
    fn who_is_still_speaking_is_waited_for_longer() {
        let now = Instant::now();
        let mut caches = caches(&[10, 10], now);
        caches.handle_timeout(now);
        caches.handle(CacheId(1), Input::Connected, now);
        says_all(&mut caches, 0, now);
        let mut readiness = Readiness::Waiting(now);
        readiness.look(&caches, false, now);
        readiness.look(&caches, false, now + 2 * SETTLE);
        assert_eq!((readiness.is_ready(), readiness.deadline(&caches, false)), (false, Some(now + LONGEST)));
        caches.handle(CacheId(1), Input::Closed, now + 2 * SETTLE);
        readiness.look(&caches, false, now + 2 * SETTLE);
        assert!(readiness.is_ready());
    }

    #[test]
    fn caches_that_say_nothing_are_waited_for_and_only_assertions_are_told_without_them() {
        let now = Instant::now();
        let caches = caches(&[10], now);
        let mut readiness = Readiness::Waiting(now);
        readiness.look(&caches, false, now + 2 * LONGEST);
        assert_eq!((readiness.is_ready(), readiness.deadline(&caches, false)), (false, None), "for ever");
        readiness.look(&caches, true, now + LONGEST - Duration::from_millis(1));
        assert!(!readiness.is_ready());
        readiness.look(&caches, true, now + LONGEST);
        assert!(readiness.is_ready());
        let mut readiness = Readiness::Waiting(now);
        readiness.look(&Caches::default(), false, now);
        assert!(readiness.is_ready(), "there is nobody to wait for");
    }
}
