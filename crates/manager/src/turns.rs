//! Who tells a process next.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use tokio::sync::{Mutex, OwnedMutexGuard};

/// Turns to tell processes their configuration. A manager tells a process after its birth, and a commit tells it as well:
/// the older message must not arrive after the newer one.
#[derive(Default)]
pub(crate) struct Turns(RefCell<BTreeMap<String, Arc<Mutex<()>>>>);

impl Turns {
    /// The turn to tell the process of this name.
    pub(crate) async fn of(&self, process: &str) -> OwnedMutexGuard<()> {
        let turn = Arc::clone(self.0.borrow_mut().entry(process.to_owned()).or_default());
        turn.lock_owned().await
    }
}
