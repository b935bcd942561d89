//! Descriptors kept for others, by owner and key.

use std::{collections::BTreeMap, os::fd::OwnedFd};

use rustix::fd::AsFd;

/// Descriptors that one owner may have kept; one more is refused.
pub(crate) const MOST_PER_OWNER: usize = 16_384;

/// What becomes of a kept descriptor when its owner dies.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum OnDeath {
    /// Closed at once, so that the other side sees the end.
    Close,
    /// Kept for the owner's next life.
    Keep,
}

#[derive(Debug)]
struct Kept {
    descriptor: OwnedFd,
    on_death: OnDeath,
}

/// Owner and key to descriptor.
#[derive(Debug)]
pub(crate) struct Store {
    kept: BTreeMap<(String, String), Kept>,
    most_per_owner: usize,
}

/// The owner has no room left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Store {
    /// Empty, with room for so many of each owner.
    pub(crate) fn new(most_per_owner: usize) -> Self {
        Self { kept: BTreeMap::new(), most_per_owner }
    }

    /// Keeps a descriptor, in place of one under the same key.
    pub(crate) fn put(
        &mut self,
        owner: &str,
        key: &str,
        descriptor: OwnedFd,
        on_death: OnDeath,
    ) -> Result<(), Full> {
        let slot = (owner.to_owned(), key.to_owned());
        if !self.kept.contains_key(&slot) && self.of(owner).count() >= self.most_per_owner {
            return Err(Full);
        }
        self.kept.insert(slot, Kept { descriptor, on_death });
        Ok(())
    }

    /// A copy of it.
    pub(crate) fn get(&self, owner: &str, key: &str) -> Option<std::io::Result<OwnedFd>> {
        let kept = self.kept.get(&(owner.to_owned(), key.to_owned()))?;
        Some(kept.descriptor.as_fd().try_clone_to_owned())
    }

    /// Closes it; whether there was one.
    pub(crate) fn drop_key(&mut self, owner: &str, key: &str) -> bool {
        self.kept.remove(&(owner.to_owned(), key.to_owned())).is_some()
    }

    /// Closes what the dead owner wanted closed.
    pub(crate) fn owner_died(&mut self, owner: &str) {
        self.kept.retain(|(name, _), kept| name != owner || kept.on_death == OnDeath::Keep);
    }

    /// Owner, key and fate of all.
    pub(crate) fn list(&self) -> impl Iterator<Item = (&str, &str, OnDeath)> {
        self.kept.iter().map(|((owner, key), kept)| (owner.as_str(), key.as_str(), kept.on_death))
    }

    fn of(&self, owner: &str) -> impl Iterator<Item = &Kept> {
        let from = (owner.to_owned(), String::new());
        let owner = owner.to_owned();
        self.kept.range(from..).take_while(move |((name, _), _)| *name == owner).map(|(_, kept)| kept)
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

    #[test]
    fn the_owners_death_closes_what_is_marked_so_and_nothing_else() {
        let mut store = Store::new(3);
        let (session, mut far) = watched();
        store.put("bgp", "session", session, OnDeath::Close).expect("room");
        store.put("bgp", "log", watched().0, OnDeath::Keep).expect("room");
        store.put("fea", "session", watched().0, OnDeath::Close).expect("room");
        store.owner_died("bgp");
        assert_eq!(far.read(&mut [0]).expect("end of file"), 0, "the far side sees the end");
        let left: Vec<_> = store.list().map(|(owner, key, _)| (owner, key)).collect();
        assert_eq!(left, [("bgp", "log"), ("fea", "session")]);
    }

    #[test]
    fn a_copy_is_a_copy() {
        let mut store = Store::new(3);
        store.put("bgp", "log", watched().0, OnDeath::Keep).expect("room");
        assert!(store.get("bgp", "log").is_some_and(|copy| copy.is_ok()));
        assert!(store.get("bgp", "log").is_some() && store.get("rib", "log").is_none());
        assert!(store.drop_key("bgp", "log") && !store.drop_key("bgp", "log"));
    }

    #[test]
    fn the_bound_is_per_owner() {
        let mut store = Store::new(3);
        let (descriptor, _far) = watched();
        let mut put =
            |owner, key: &str| store.put(owner, key, descriptor.try_clone().expect("a copy"), OnDeath::Close);
        assert_eq!(["1", "2", "3", "4"].map(|key| put("bgp", key)), [Ok(()), Ok(()), Ok(()), Err(Full)]);
        assert_eq!(put("bgp", "2"), Ok(()), "replacing needs no room");
        assert_eq!(put("bg", "1"), Ok(()), "another owner has room of its own");
    }
}
