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

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    #[test]
    fn tellers_of_a_process_take_turns_in_order_and_those_of_another_do_not_wait() {
        let (turns, mut cx) = (Turns::default(), Context::from_waker(Waker::noop()));
        let Poll::Ready(first) = pin!(turns.of("bgp")).poll(&mut cx) else { panic!("nobody tells bgp") };
        let (mut second, mut third) = (pin!(turns.of("bgp")), pin!(turns.of("bgp")));
        assert!(second.as_mut().poll(&mut cx).is_pending() && third.as_mut().poll(&mut cx).is_pending());
        assert!(pin!(turns.of("rib")).poll(&mut cx).is_ready());
        drop(first);
        assert!(third.as_mut().poll(&mut cx).is_pending(), "the second one is before it");
        let Poll::Ready(turn) = second.as_mut().poll(&mut cx) else { panic!("the first one is done") };
        drop(turn);
        assert!(third.as_mut().poll(&mut cx).is_ready());
    }
}
