//! What is kept for a process, as another one watches it that may have copies.
//!
//! A watcher has no queue: it is told how what is kept differs from what it was told before, whenever it has room for it.

use std::{cell::RefCell, collections::BTreeMap};

use holdfast_api::keeper::v1::{KeptChange, KeptChanges, KeptState};
use holdfast_xrl::{ReplySink, XrlError};

use crate::store::Store;

/// Changes in one message.
const AT_ONCE: usize = 256;

/// Tells all that is kept for this owner, and then every change, for as long as the reader listens.
pub(crate) async fn tell(
    store: &RefCell<Store>,
    owner: &str,
    replies: &mut ReplySink<KeptChanges>,
) -> Result<(), XrlError> {
    let mut changes = store.borrow().changes();
    let mut told = Told::default();
    // Whether the reader waits for a message that says that it knows everything.
    let mut is_owed = true;
    loop {
        // Who is slow is told what holds when there is room, and nothing of what was meanwhile.
        replies.ready().await?;
        changes.mark_unchanged();
        let (news, is_complete) = told.next(&store.borrow(), owner);
        if !news.is_empty() || is_owed {
            replies.send(KeptChanges { changes: news, complete: is_complete }).await?;
        }
        is_owed = !is_complete;
        if is_complete {
            changes.changed().await.map_err(|_| XrlError::unavailable("the keeper ends"))?;
        }
    }
}

/// What a reader was told: keys with the numbers of their descriptors. As many as an owner may have kept, at most.
#[derive(Default)]
struct Told(BTreeMap<String, u64>);

impl Told {
    /// What differs now from what was told, and counts as told from now on; and whether that is everything.
    fn next(&mut self, store: &Store, owner: &str) -> (Vec<KeptChange>, bool) {
        let now: BTreeMap<&str, u64> = store.of(owner).map(|(key, number, _)| (key, number)).collect();
        let gone = self.0.keys().filter(|key| !now.contains_key(key.as_str()));
        let gone = gone.map(|key| change(key, KeptState::KeptDropped, 0));
        let came = now.iter().filter_map(|(key, number)| match self.0.get(*key) {
            None => Some(change(key, KeptState::KeptPut, *number)),
            Some(before) if before != number => Some(change(key, KeptState::KeptReplaced, *number)),
            Some(_) => None,
        });
        // What goes makes room for what comes: no more is remembered than an owner may have.
        let mut news: Vec<_> = gone.chain(came).take(AT_ONCE + 1).collect();
        let is_complete = news.len() <= AT_ONCE;
        news.truncate(AT_ONCE);
        for KeptChange { key, number, .. } in &news {
            match number {
                0 => drop(self.0.remove(key)),
                number => drop(self.0.insert(key.clone(), *number)),
            }
        }
        (news, is_complete)
    }
}

fn change(key: &str, state: KeptState, number: u64) -> KeptChange {
    KeptChange { key: key.to_owned(), state: state.into(), number }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, time::Instant};

    use super::*;
    use crate::store::{Kept, OnDeath};

    fn put(store: &mut Store, owner: &str, key: &str, on_death: OnDeath) {
        let descriptor = File::open("/dev/null").expect("it is there").into();
        store.put(owner, key, Kept { descriptor, on_death, deadline: None, note: None }).expect("room");
    }

    fn next(told: &mut Told, store: &Store) -> Vec<(String, KeptState)> {
        let (news, is_complete) = told.next(store, "bgp");
        assert!(is_complete);
        news.iter().map(|change| (change.key.clone(), change.state())).collect()
    }

    #[test]
    fn each_difference_is_told_once_and_nothing_of_others() {
        let (mut store, mut told) = (Store::new(9), Told::default());
        for (owner, key) in [("bgp", "log"), ("bgp", "session-1"), ("bg", "log"), ("rib", "log")] {
            put(&mut store, owner, key, OnDeath::Keep(None));
        }
        let all = [("log".to_owned(), KeptState::KeptPut), ("session-1".to_owned(), KeptState::KeptPut)];
        assert_eq!(next(&mut told, &store), all);
        assert_eq!(next(&mut told, &store), []);
        put(&mut store, "bgp", "log", OnDeath::Keep(None));
        put(&mut store, "bgp", "accepting", OnDeath::Close);
        store.drop_key("bgp", "session-1");
        put(&mut store, "rib", "log", OnDeath::Keep(None));
        let now = [
            ("session-1".to_owned(), KeptState::KeptDropped),
            ("accepting".to_owned(), KeptState::KeptPut),
            ("log".to_owned(), KeptState::KeptReplaced),
        ];
        assert_eq!(next(&mut told, &store), now);
        store.owner_died("bgp", Instant::now());
        assert_eq!(next(&mut told, &store), [("accepting".to_owned(), KeptState::KeptDropped)]);
        put(&mut store, "bgp", "brief", OnDeath::Keep(None));
        store.drop_key("bgp", "brief");
        store.drop_key("bgp", "log");
        put(&mut store, "bgp", "log", OnDeath::Keep(None));
        let now = [("log".to_owned(), KeptState::KeptReplaced)];
        assert_eq!(
            next(&mut told, &store),
            now,
            "what came and went meanwhile is not told, what is another one is"
        );
    }

    #[test]
    fn many_are_told_in_parts() {
        let (mut store, mut told) = (Store::new(9999), Told::default());
        for number in 0..AT_ONCE + 1 {
            put(&mut store, "bgp", &format!("session-{number}"), OnDeath::Keep(None));
        }
        let parts = [(AT_ONCE, false), (1, true), (0, true)];
        for part in parts {
            let (news, is_complete) = told.next(&store, "bgp");
            assert_eq!((news.len(), is_complete), part);
        }
        store.forget("bgp");
        for part in parts {
            let (news, is_complete) = told.next(&store, "bgp");
            assert_eq!((news.len(), is_complete), part);
        }
        assert!(told.0.is_empty());
    }
}
