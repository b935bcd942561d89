//! What is made once and kept for good.

use std::{
    borrow::Borrow,
    sync::{Mutex, PoisonError},
};

/// Things that are made once and never freed, each found by what it was made from; there is room for so many.
#[derive(Debug)]
pub(crate) struct Kept<K, T: 'static> {
    known: Mutex<Vec<(K, &'static T)>>,
    most: usize,
}

/// There is no room for one more.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this process has read {0} different descriptors of protocols, and can keep no more")]
pub struct NoRoom(usize);

impl<K, T> Kept<K, T> {
    /// Room for so many.
    pub(crate) const fn new(most: usize) -> Self {
        Self { known: Mutex::new(Vec::new()), most }
    }

    /// The one that was made from this.
    pub(crate) fn find<Q: ?Sized + Eq>(&self, key: &Q) -> Option<&'static T>
    where
        K: Borrow<Q>,
    {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(known, _)| known.borrow() == key).map(|(_, thing)| *thing)
    }

    /// The one that was made from this; it is made now if there is none.
    ///
    /// # Errors
    /// There is no room. Nothing is made.
    pub(crate) fn keep(&self, key: K, make: impl FnOnce() -> T) -> Result<&'static T, NoRoom>
    where
        K: Eq,
    {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, thing)) = known.iter().find(|(known, _)| *known == key) {
            return Ok(thing);
        }
        if known.len() >= self.most {
            return Err(NoRoom(self.most));
        }
        let thing = &*Box::leak(Box::new(make()));
        known.push((key, thing));
        Ok(thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_made_once_and_no_more_than_there_is_room_for() {
        let kept = Kept::<String, usize>::new(2);
        let keep = |name: &str, value| kept.keep(name.to_owned(), || value).copied();
        assert_eq!((keep("a", 1), keep("b", 2), keep("a", 3)), (Ok(1), Ok(2), Ok(1)));
        assert_eq!((keep("c", 4), keep("b", 5)), (Err(NoRoom(2)), Ok(2)));
        assert_eq!((kept.find("a"), kept.find("c")), (Some(&1), None));
    }
}
