//! Values that stay on their thread.
//!
//! Libraries of QUIC want whatever they are given to be `Send`, although all of it runs on one thread here; a
//! [`Gate`](crate::Gate) is not. So the library holds a number, under which only the value's own thread finds it.

use std::{
    any::Any,
    cell::RefCell,
    collections::HashMap,
    marker::PhantomData,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

static NUMBERS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static VALUES: RefCell<HashMap<u64, Rc<dyn Any>>> = RefCell::default();
}

/// A value of the thread that made it, which holders on any thread own. Where it is dropped on another one, the value stays
/// until its own thread ends.
pub(crate) struct Kept<T> {
    number: u64,
    value: PhantomData<fn() -> T>,
}

impl<T: 'static> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        VALUES.with_borrow_mut(|values| values.insert(number, Rc::new(value)));
        Self { number, value: PhantomData }
    }

    /// What the value says; `None` on any thread but its own.
    pub(crate) fn with<R>(&self, ask: impl FnOnce(&T) -> R) -> Option<R> {
        // Nothing is borrowed while foreign code runs, which may come back here.
        let value = VALUES.try_with(|values| values.borrow().get(&self.number).cloned()).ok()??;
        value.downcast_ref().map(ask)
    }

    /// The value itself; `None` on any thread but its own, and while it is in use.
    pub(crate) fn take(self) -> Option<T> {
        let value = VALUES.try_with(|values| values.borrow_mut().remove(&self.number)).ok()??;
        Rc::into_inner(value.downcast().ok()?)
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        // At the end of the thread there may be nothing to take it from. Its own drop is foreign code too.
        let value = VALUES.try_with(|values| values.borrow_mut().remove(&self.number));
        drop(value);
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, thread};

    use super::*;

    #[test]
    fn a_value_is_there_on_its_own_thread_only() {
        let kept = Kept::new(Rc::new(Cell::new(7)));
        assert_eq!(kept.with(|value| value.get()), Some(7));
        thread::scope(|scope| {
            let elsewhere = scope.spawn(|| kept.with(|value| value.get()));
            assert_eq!(elsewhere.join().expect("no panic"), None);
        });
        assert_eq!(kept.with(|value| value.get()), Some(7));
    }

    #[test]
    fn a_value_ends_with_who_holds_it() {
        let value = Rc::new(());
        let kept = Kept::new(Rc::clone(&value));
        assert_eq!(Rc::strong_count(&value), 2);
        drop(kept);
        assert_eq!(Rc::strong_count(&value), 1);
    }

    #[test]
    fn a_value_may_hold_and_make_others() {
        let outer = Kept::new(RefCell::new(None));
        outer.with(|slot| *slot.borrow_mut() = Some(Kept::new(1_u8)));
        let inner = outer.with(|slot| slot.borrow().as_ref().and_then(|inner| inner.with(|value| *value)));
        assert_eq!(inner, Some(Some(1)));
        drop(outer);
    }

    #[test]
    fn a_value_can_be_taken_where_it_is() {
        let kept = Kept::new(vec![7]);
        assert_eq!(kept.take(), Some(vec![7]));
        let kept = Kept::new(7);
        assert_eq!(thread::spawn(|| kept.take()).join().expect("no panic"), None);
    }
}
