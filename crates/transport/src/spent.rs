//! Tokens of Retry that have served: their replay has to be limited (RFC 9000 section 8.1.4).

use std::{
    collections::{HashSet, VecDeque},
    hash::Hash,
    time::Duration,
};

/// How long a token of a Retry is good: a few round trips (RFC 9000 section 8.1.3).
pub(crate) const TOKEN_LIFETIME: Duration = Duration::from_secs(15);
/// Tokens that have served and are still good; while there are so many, no more are taken.
const MOST: usize = 16 * 1024;

/// Which tokens have served, until they are good for nothing anyway. `K` names one, `T` is a time of whichever clock.
pub(crate) struct Spent<K, T> {
    known: HashSet<K>,
    order: VecDeque<(T, K)>,
}

impl<K, T> Default for Spent<K, T> {
    fn default() -> Self {
        Self { known: HashSet::default(), order: VecDeque::default() }
    }
}

impl<K: Eq + Hash + Copy, T: Ord> Spent<K, T> {
    /// Whether it has served, or could not be taken note of.
    pub(crate) fn has(&mut self, token: &K, now: &T) -> bool {
        while let Some((_, token)) = self.order.pop_front_if(|(until, _)| *until < *now) {
            self.known.remove(&token);
        }
        self.order.len() >= MOST || self.known.contains(token)
    }

    /// It serves now, and is good until then.
    pub(crate) fn add(&mut self, token: K, until: T) {
        if self.known.insert(token) {
            self.order.push_back((until, token));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_serves_once() {
        let mut spent = Spent::default();
        assert!(!spent.has(&7, &100));
        spent.add(7, 110);
        assert!(spent.has(&7, &100) && spent.has(&7, &110) && !spent.has(&8, &110));
    }

    #[test]
    fn tokens_are_bounded_and_forgotten_when_they_have_expired() {
        let mut spent = Spent::default();
        for token in 0..MOST {
            assert!(!spent.has(&token, &100));
            spent.add(token, 100);
        }
        assert!(spent.has(&MOST, &100), "there is no room");
        assert!(!spent.has(&MOST, &101));
        assert_eq!((spent.known.len(), spent.order.len()), (0, 0));
    }
}
