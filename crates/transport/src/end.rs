//! How a connection has ended, for backends whose library does not keep it.

use std::{cell::RefCell, io, rc::Rc};

use tokio::sync::Notify;

use crate::{Closed, failure};

/// Known once, asked for by anybody.
#[derive(Debug, Default)]
pub(crate) struct End {
    closed: RefCell<Option<Closed>>,
    known: Notify,
}

impl End {
    /// The first reason counts: what follows is its consequence.
    pub(crate) fn set(&self, closed: Closed) {
        self.closed.borrow_mut().get_or_insert(closed);
        self.known.notify_waiters();
    }

    /// As far as it is known.
    pub(crate) fn get(&self) -> Option<Closed> {
        self.closed.borrow().clone()
    }

    /// Waits for it.
    pub(crate) async fn wait(&self) -> Closed {
        loop {
            // Before looking, so that nothing is missed between.
            let known = self.known.notified();
            if let Some(closed) = self.get() {
                return closed;
            }
            known.await;
        }
    }

    /// An error of TCP, or of what is above it.
    pub(crate) fn failed(&self, error: &io::Error) {
        self.set(match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Closed::Reset,
            io::ErrorKind::TimedOut => Closed::TimedOut,
            _ => Closed::Failed(failure::words(error)),
        });
    }
}

/// Part of a stream: with it the connection ends here, if it has not before.
#[derive(Debug)]
pub(crate) struct Ending(pub(crate) Rc<End>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.set(Closed::Here);
    }
}
