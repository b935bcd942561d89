//! The receiver's side of a channel: calls of the peer that are being carried out.

use std::collections::HashMap;
use std::task::{Context, Poll, Waker};

use tokio::task::AbortHandle;

use crate::XrlError;
use crate::calls::{STREAM_WINDOW, WINDOW_BYTES, WINDOW_CALLS};

/// Streams wait while this much is unwritten on the channel.
pub(crate) const OUTBOX_FULL: usize = 1 << 20;

/// A call being carried out.
#[derive(Debug)]
struct Entry {
    /// Its task, if it did not end at once.
    task: Option<AbortHandle>,
    cost: usize,
    /// Octets of a stream that may still be sent; below 0 after an item that was longer.
    credit: i64,
    waker: Option<Waker>,
}

/// All calls of the peer.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    entries: HashMap<u32, Entry>,
    bytes: usize,
}

impl Serving {
    /// A call begins.
    ///
    /// # Errors
    /// When the peer uses a number twice or more than the window.
    pub(crate) fn begin(&mut self, id: u32, cost: usize) -> Result<(), XrlError> {
        if id == 0 || self.entries.contains_key(&id) {
            return Err(XrlError::internal(format!("call id {id} is in use")));
        }
        if self.entries.len() >= WINDOW_CALLS || self.bytes + cost > WINDOW_BYTES {
            return Err(XrlError::internal("more calls in progress than the window allows"));
        }
        self.bytes += cost;
        let credit = STREAM_WINDOW as i64;
        self.entries.insert(id, Entry { task: None, cost, credit, waker: None });
        Ok(())
    }

    /// Whether every call has been answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many calls have not been answered.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Octets of the requests of these calls.
    pub(crate) fn octets(&self) -> usize {
        self.bytes
    }

    /// The call goes on in this task.
    pub(crate) fn continues(&mut self, id: u32, task: AbortHandle) {
        match self.entries.get_mut(&id) {
            Some(entry) => entry.task = Some(task),
            None => task.abort(),
        }
    }

    /// The call has its answer. False if it had it before, or was cancelled.
    pub(crate) fn finish(&mut self, id: u32) -> bool {
        self.remove(id).is_some()
    }

    /// The peer has lost interest.
    pub(crate) fn cancel(&mut self, id: u32) {
        if let Some(task) = self.remove(id).and_then(|entry| entry.task) {
            task.abort();
        }
    }

    fn remove(&mut self, id: u32) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.bytes -= entry.cost;
        Some(entry)
    }

    /// The peer takes more of a stream.
    pub(crate) fn credit(&mut self, id: u32, octets: u32) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.credit = (entry.credit + i64::from(octets)).min(STREAM_WINDOW as i64);
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
    }

    /// Whether another item of a stream may be sent while so much is unwritten.
    pub(crate) fn poll_credit(
        &mut self,
        id: u32,
        unwritten: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), XrlError>> {
        let Some(entry) = self.entries.get_mut(&id) else {
            return Poll::Ready(Err(XrlError::cancelled("the caller has lost interest")));
        };
        if entry.credit > 0 && unwritten < OUTBOX_FULL {
            return Poll::Ready(Ok(()));
        }
        entry.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// An item was sent. False if the call has ended meanwhile.
    pub(crate) fn spend(&mut self, id: u32, cost: usize) -> bool {
        let entry = self.entries.get_mut(&id);
        entry.map(|entry| entry.credit -= cost as i64).is_some()
    }

    /// So much is unwritten after writing, and it was so much before: streams that waited for this go on.
    pub(crate) fn written(&mut self, before: usize, after: usize) {
        if before >= OUTBOX_FULL && after < OUTBOX_FULL {
            self.entries.values_mut().filter_map(|entry| entry.waker.take()).for_each(Waker::wake);
        }
    }

    /// The channel has closed: everything ends.
    pub(crate) fn close(&mut self) {
        for (_, entry) in self.entries.drain() {
            if let Some(task) = entry.task {
                task.abort();
            }
        }
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_beyond_the_window_violates_the_protocol() {
        let mut serving = Serving::default();
        for id in 1..=WINDOW_CALLS as u32 {
            serving.begin(id, 1).expect("within the window");
        }
        serving.begin(5000, 1).expect_err("beyond it");
        assert!(serving.finish(1));
        serving.begin(5000, 1).expect("room again");
    }

    #[test]
    fn a_call_id_in_use_is_refused() {
        let mut serving = Serving::default();
        serving.begin(1, 1).expect("free");
        serving.begin(1, 1).expect_err("in use");
        serving.begin(0, 1).expect_err("reserved");
    }
}
