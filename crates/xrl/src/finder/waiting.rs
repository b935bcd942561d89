//! Callers who wait for somebody to come to life. A birth wakes those whom it concerns: with hundreds of tables, hundreds
//! wait, and thousands are born.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::Notify;

use super::table::classes;
use crate::finder_api::v1::Instance;

/// For each class or name that somebody waits for, whom to wake.
#[derive(Default)]
pub(super) struct Waiting(RefCell<HashMap<String, Rc<Notify>>>);

impl Waiting {
    /// Waits for the next birth of an instance that answers to a class or name; "*" is any.
    pub(super) async fn for_birth(&self, target: &str) {
        let notify = Rc::clone(self.0.borrow_mut().entry(target.to_owned()).or_default());
        let _place = Place { waiting: self, target };
        notify.notified().await;
    }

    /// Somebody has registered.
    pub(super) fn born(&self, instance: &Instance) {
        let waiting = self.0.borrow();
        for target in classes(instance).chain([instance.name.as_str(), "*"]) {
            if let Some(notify) = waiting.get(target) {
                notify.notify_waiters();
            }
        }
    }
}

/// Taken by who waits. The last who leaves clears it away.
struct Place<'a> {
    waiting: &'a Waiting,
    target: &'a str,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiting.0.borrow_mut();
        // The map has one, and this one has gone or is about to.
        if waiting.get(self.target).is_some_and(|notify| Rc::strong_count(notify) <= 2) {
            waiting.remove(self.target);
        }
    }
}
