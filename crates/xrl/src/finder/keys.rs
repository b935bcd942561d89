//! Keys that are valid, by whose they are.

use std::collections::HashMap;

use super::table::Owner;
use crate::{Grant, Key, XrlError};

/// Most valid keys of one caller. The manager has five for each table, and a router with 1,024 tables is far away.
const MAX_KEYS: usize = 8192;
/// The same for a protocol of somebody else, of which there may be many: each key is a connection that the target holds.
const MAX_KEYS_OF_PROTOCOL: usize = 16;

/// All of them: for each caller its keys, with whom each opens.
#[derive(Default)]
pub(super) struct Keys(HashMap<Owner, Vec<(Key, Owner)>>);

impl Keys {
    /// One more.
    ///
    /// # Errors
    /// `Unavailable` when the caller has as many as it may.
    pub(super) fn add(&mut self, grant: &Grant, caller: Owner, target: Owner) -> Result<(), XrlError> {
        let most = if grant.role == "protocol" { MAX_KEYS_OF_PROTOCOL } else { MAX_KEYS };
        let keys = self.0.entry(caller).or_default();
        if keys.len() >= most {
            return Err(XrlError::unavailable(format!("the caller has {most} connections already")));
        }
        keys.push((grant.key.clone(), target));
        Ok(())
    }

    /// This one is not valid any more.
    pub(super) fn forget(&mut self, caller: Owner, key: &Key) {
        if let Some(keys) = self.0.get_mut(&caller) {
            keys.retain(|(known, _)| known != key);
            if keys.is_empty() {
                self.0.remove(&caller);
            }
        }
    }

    /// Forgets the keys to and of somebody; those that they had as a caller, with whom each opens.
    pub(super) fn take_of(&mut self, owner: Owner) -> Vec<(Key, Owner)> {
        let theirs = self.0.remove(&owner).unwrap_or_default();
        self.0.retain(|_, keys| {
            keys.retain(|(_, target)| *target != owner);
            !keys.is_empty()
        });
        theirs
    }
}
