//! Descriptors kept for others, by owner and key, and how long.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use tokio::sync::watch;

/// Descriptors that one owner may have kept; one more is refused.
pub(crate) const MOST_PER_OWNER: usize = 16_384;
/// Octets of a note.
pub(crate) const LONGEST_NOTE: usize = 256 << 10;

/// What becomes of a kept descriptor when its owner dies.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum OnDeath {
    /// Closed at once, so that the other side sees the end.
    Close,
    /// Kept for the owner's next life, which has to ask for it within this time if one is given.
    Keep(Option<Duration>),
}

/// A descriptor and its fate.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) descriptor: OwnedFd,
    pub(crate) on_death: OnDeath,
    /// Closed then: its owner has died and not asked for it since.
    pub(crate) deadline: Option<Instant>,
    /// For its owner's next life; `None`: a keeper has had it that took no notes.
    pub(crate) note: Option<String>,
}

/// Owner and key to descriptor.
#[derive(Debug)]
pub(crate) struct Store {
    kept: BTreeMap<(String, String), Numbered>,
    most_per_owner: usize,
    /// The number of the last descriptor.
    last: u64,
    /// How often something has changed.
    changes: watch::Sender<u64>,
}

/// What is kept, with a number that no other has had.
#[derive(Debug)]
struct Numbered {
    number: u64,
    kept: Kept,
}

/// The owner has no room left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Store {
    /// Empty, with room for so many of each owner.
    pub(crate) fn new(most_per_owner: usize) -> Self {
        Self { kept: BTreeMap::new(), most_per_owner, last: 0, changes: watch::Sender::new(0) }
    }

    /// Keeps a descriptor, in place of one under the same key.
    pub(crate) fn put(&mut self, owner: &str, key: &str, kept: Kept) -> Result<(), Full> {
        let slot = (owner.to_owned(), key.to_owned());
        if !self.kept.contains_key(&slot) && self.of(owner).count() >= self.most_per_owner {
            return Err(Full);
        }
        self.last += 1;
        self.kept.insert(slot, Numbered { number: self.last, kept });
        self.changed();
        Ok(())
    }

    /// How many descriptors each owner has here.
    pub(crate) fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        self.kept.keys().for_each(|(owner, _)| *counts.entry(owner.as_str()).or_default() += 1);
        counts
    }

    /// A copy of it. Its owner is back: it is not closed any more.
    pub(crate) fn get(&mut self, owner: &str, key: &str) -> Option<std::io::Result<OwnedFd>> {
        let Numbered { kept, .. } = self.kept.get_mut(&(owner.to_owned(), key.to_owned()))?;
        let copy = kept.descriptor.as_fd().try_clone_to_owned();
        if copy.is_ok() {
            kept.deadline = None;
        }
        Some(copy)
    }

    /// A copy of it for somebody else: nothing changes for its owner.
    pub(crate) fn copy(&self, owner: &str, key: &str) -> Option<std::io::Result<OwnedFd>> {
        let Numbered { kept, .. } = self.kept.get(&(owner.to_owned(), key.to_owned()))?;
        Some(kept.descriptor.as_fd().try_clone_to_owned())
    }

    /// Closes it; whether there was one.
    pub(crate) fn drop_key(&mut self, owner: &str, key: &str) -> bool {
        let was_there = self.kept.remove(&(owner.to_owned(), key.to_owned())).is_some();
        if was_there {
            self.changed();
        }
        was_there
    }

    /// Closes all that this owner has here.
    pub(crate) fn forget(&mut self, owner: &str) {
        self.kept.retain(|(name, _), _| name != owner);
        self.changed();
    }

    /// Closes what the dead owner wanted closed; for the rest the time begins in which its next life has to ask.
    pub(crate) fn owner_died(&mut self, owner: &str, now: Instant) {
        self.kept.retain(|(name, _), Numbered { kept, .. }| {
            if name != owner {
                return true;
            }
            let OnDeath::Keep(hold) = kept.on_death else { return false };
            // The peer's patience began with the first death: a life that did not ask does not prolong it.
            kept.deadline = kept.deadline.or(hold.map(|hold| now + hold));
            true
        });
        self.changed();
    }

    /// Closes what nobody has asked for in time; owner and key of each.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<(String, String)> {
        let is_due = |kept: &Kept| kept.deadline.is_some_and(|deadline| deadline <= now);
        let due = self.kept.extract_if(.., |_, numbered| is_due(&numbered.kept));
        let due: Vec<_> = due.map(|(slot, _)| slot).collect();
        if !due.is_empty() {
            self.changed();
        }
        due
    }

    /// When [`Self::expire`] has something to do next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.kept.values().filter_map(|numbered| numbered.kept.deadline).min()
    }

    /// Owner, key and what is kept of all.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, &Kept)> {
        self.kept.iter().map(|((owner, key), Numbered { kept, .. })| (owner.as_str(), key.as_str(), kept))
    }

    /// Key, number and what is kept of this owner, in the order of the keys.
    pub(crate) fn of(&self, owner: &str) -> impl Iterator<Item = (&str, u64, &Kept)> {
        let from = (owner.to_owned(), String::new());
        let owner = owner.to_owned();
        let theirs = self.kept.range(from..).take_while(move |((name, _), _)| *name == owner);
        theirs.map(|((_, key), Numbered { number, kept })| (key.as_str(), *number, kept))
    }

    /// Says when something changes, of whomever it is.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// A descriptor whose other end sees when the last copy is closed.
    fn watched() -> (OwnedFd, std::io::PipeReader) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        (writer.into(), reader)
    }

    fn kept(descriptor: OwnedFd, on_death: OnDeath) -> Kept {
        Kept { descriptor, on_death, deadline: None, note: None }
    }

    fn keys(store: &Store) -> Vec<(&str, &str)> {
        store.iter().map(|(owner, key, _)| (owner, key)).collect()
    }

    #[test]
    fn the_owners_death_closes_what_is_marked_so_and_nothing_else() {
        let mut store = Store::new(3);
        let (session, mut far) = watched();
        store.put("bgp", "session", kept(session, OnDeath::Close)).expect("room");
        store.put("bgp", "log", kept(watched().0, OnDeath::Keep(None))).expect("room");
        store.put("fea", "session", kept(watched().0, OnDeath::Close)).expect("room");
        store.owner_died("bgp", Instant::now());
        assert_eq!(far.read(&mut [0]).expect("end of file"), 0, "the far side sees the end");
        assert_eq!(keys(&store), [("bgp", "log"), ("fea", "session")]);
        assert_eq!(store.next_deadline(), None, "for ever");
    }

    #[test]
    fn a_copy_is_a_copy() {
        let mut store = Store::new(3);
        store.put("bgp", "log", kept(watched().0, OnDeath::Keep(None))).expect("room");
        assert!(store.get("bgp", "log").is_some_and(|copy| copy.is_ok()));
        assert!(store.get("bgp", "log").is_some() && store.get("rib", "log").is_none());
        assert!(store.drop_key("bgp", "log") && !store.drop_key("bgp", "log"));
    }

    #[test]
    fn the_bound_is_per_owner() {
        let mut store = Store::new(3);
        let (descriptor, _far) = watched();
        let mut put = |owner, key: &str| {
            store.put(owner, key, kept(descriptor.try_clone().expect("a copy"), OnDeath::Close))
        };
        assert_eq!(["1", "2", "3", "4"].map(|key| put("bgp", key)), [Ok(()), Ok(()), Ok(()), Err(Full)]);
        assert_eq!(put("bgp", "2"), Ok(()), "replacing needs no room");
        assert_eq!(put("bg", "1"), Ok(()), "another owner has room of its own");
    }

    #[test]
    fn what_a_dead_owner_does_not_ask_for_in_time_is_closed() {
        let hold = Duration::from_secs(90);
        let mut store = Store::new(9);
        let (session, mut far) = watched();
        store.put("bgp", "session-1", kept(session, OnDeath::Keep(Some(hold)))).expect("room");
        store.put("bgp", "session-2", kept(watched().0, OnDeath::Keep(Some(hold * 2)))).expect("room");
        store.put("rib", "session-1", kept(watched().0, OnDeath::Keep(Some(hold)))).expect("room");
        assert_eq!(store.next_deadline(), None, "nobody is dead");
        let death = Instant::now();
        store.owner_died("bgp", death);
        assert_eq!(store.next_deadline(), Some(death + hold));
        assert!(store.expire(death + hold - Duration::from_millis(1)).is_empty());
        assert_eq!(store.expire(death + hold), [("bgp".to_owned(), "session-1".to_owned())]);
        assert_eq!(far.read(&mut [0]).expect("end of file"), 0, "the far side sees the end");
        assert_eq!(keys(&store), [("bgp", "session-2"), ("rib", "session-1")]);
        assert_eq!(store.next_deadline(), Some(death + hold * 2));
    }

    #[test]
    fn the_next_life_stops_the_clock_by_asking_and_only_by_asking() {
        let hold = Duration::from_secs(90);
        let mut store = Store::new(9);
        for key in ["asked", "forgotten"] {
            store.put("bgp", key, kept(watched().0, OnDeath::Keep(Some(hold)))).expect("room");
        }
        let death = Instant::now();
        store.owner_died("bgp", death);
        store.get("bgp", "asked").expect("it is kept").expect("a copy");
        let second = death + Duration::from_secs(60);
        store.owner_died("bgp", second);
        assert_eq!(store.expire(death + hold).len(), 1, "time runs from the first death on");
        assert_eq!(keys(&store), [("bgp", "asked")]);
        assert_eq!(store.next_deadline(), Some(second + hold));
    }
}
