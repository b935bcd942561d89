//! The caller's side of a channel: calls in progress, the window they share, and those that wait for it.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use prost::Message;

use crate::XrlError;
use crate::counts;
use crate::frame::{HEADER_LEN, Header, Kind, MAX_FDS};
use crate::outbox::Outbox;
use crate::parts::{MAX_REQUEST, Outgoing, is_long};

/// Most calls in progress on a channel in one direction.
pub const WINDOW_CALLS: usize = 1024;
/// Most octets of requests in progress on a channel in one direction (a single longer request may go alone).
pub const WINDOW_BYTES: usize = 8 << 20;
/// Octets of a stream that may be under way or unread.
pub const STREAM_WINDOW: usize = 256 << 10;
/// Most calls that may wait for the window; the next one fails with `Unavailable`.
pub const MAX_WAITING: usize = 65_536;

/// What a request of this length takes of the window; what an item takes of its stream's credit.
pub(crate) fn cost(body_len: usize) -> usize {
    (HEADER_LEN + body_len).min(WINDOW_BYTES)
}

/// Whether a request may be sent at all.
fn check(len: usize, fds: &[OwnedFd]) -> Result<(), XrlError> {
    if len > MAX_REQUEST || fds.len() > MAX_FDS {
        let text = format!("a request of {len} octets and {} descriptors is too large", fds.len());
        return Err(XrlError::invalid_argument(text));
    }
    Ok(())
}

/// A body as it arrived, with what came along.
#[derive(Debug, Default)]
pub(crate) struct Payload {
    pub(crate) body: Bytes,
    pub(crate) fds: Vec<OwnedFd>,
}

/// A request that waits for the window.
#[derive(Debug)]
struct Waiting {
    method: u32,
    body: Bytes,
    fds: Vec<OwnedFd>,
}

/// A call that somebody waits for.
#[derive(Debug, Default)]
struct Entry {
    waiting: Option<Waiting>,
    cost: usize,
    items: VecDeque<Payload>,
    /// Octets of items that have arrived and for which no credit was given since.
    owed: usize,
    /// Octets of those in `items`.
    unread: usize,
    end: Option<Result<Payload, XrlError>>,
    waker: Option<Waker>,
    /// Nobody waits: the answer is dropped.
    detached: bool,
}

impl Entry {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn in_progress(&self) -> bool {
        self.waiting.is_none() && self.end.is_none()
    }
}

/// All calls of this side.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    entries: HashMap<u32, Entry>,
    /// Ids of calls that wait for the window, in order. May contain calls that were dropped meanwhile.
    queue: VecDeque<u32>,
    last_id: u32,
    in_progress: usize,
    in_progress_bytes: usize,
    /// A long request, as far as it is not written.
    outgoing: Option<Outgoing>,
}

impl Calls {
    /// Whether no call waits for its answer, or to be sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many calls wait for their answer, or to be sent.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Begins a call: into the outbox if the window has room, behind those that wait otherwise.
    pub(crate) fn start<M: Message>(
        &mut self,
        method: u32,
        body: &M,
        fds: Vec<OwnedFd>,
        outbox: &mut Outbox,
    ) -> Result<u32, XrlError> {
        let len = body.encoded_len();
        if is_long(len) || fds.len() > MAX_FDS || !self.queue.is_empty() || !self.has_room(cost(len)) {
            check(len, &fds)?;
            return self.start_encoded(method, body.encode_to_vec().into(), fds, outbox);
        }
        let id = self.enter(len);
        self.take_room(cost(len));
        outbox.push(Header { call: id, method, kind: Kind::Call, fds: 0 }, body, fds);
        Ok(id)
    }

    /// The same with a request that is encoded already.
    pub(crate) fn start_encoded(
        &mut self,
        method: u32,
        body: Bytes,
        fds: Vec<OwnedFd>,
        outbox: &mut Outbox,
    ) -> Result<u32, XrlError> {
        let cost = cost(body.len());
        check(body.len(), &fds)?;
        let goes = self.queue.is_empty() && self.has_room(cost);
        if !goes && self.queue.len() >= MAX_WAITING {
            counts::add(|counts| &counts.full, 1);
            return Err(XrlError::unavailable(format!("{MAX_WAITING} calls wait already for a slow peer")));
        }
        let (id, request) = (self.enter(body.len()), Waiting { method, body, fds });
        if goes {
            self.take_room(cost);
            self.send(id, request, outbox);
        } else {
            self.entries.entry(id).or_default().waiting = Some(request);
            self.queue.push_back(id);
            counts::see(|counts| &counts.waiting, self.queue.len());
        }
        Ok(id)
    }

    /// A new call, with a request of this length.
    fn enter(&mut self, len: usize) -> u32 {
        counts::add(|counts| &counts.calls_made, 1);
        let id = self.unused_id();
        self.entries.insert(id, Entry { cost: cost(len), ..Entry::default() });
        id
    }

    /// Calls that were sent and have no answer yet.
    pub(crate) fn in_progress(&self) -> usize {
        self.in_progress
    }

    /// Calls that wait for the window.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn unused_id(&mut self) -> u32 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if self.last_id != 0 && !self.entries.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    fn has_room(&self, cost: usize) -> bool {
        self.in_progress < WINDOW_CALLS && self.in_progress_bytes + cost <= WINDOW_BYTES
    }

    /// Whether a call with a small request would go out at once.
    pub(crate) fn is_ready(&self) -> bool {
        self.queue.is_empty() && self.has_room(0)
    }

    fn take_room(&mut self, cost: usize) {
        self.in_progress += 1;
        counts::see(|counts| &counts.under_way, self.in_progress);
        self.in_progress_bytes += cost;
    }

    /// A call has ended: lets those that wait go.
    fn give_room(&mut self, cost: usize, outbox: &mut Outbox) {
        self.in_progress -= 1;
        self.in_progress_bytes -= cost;
        while let Some(id) = self.queue.front().copied() {
            let Some(entry) = self.entries.get_mut(&id) else {
                self.queue.pop_front();
                continue;
            };
            let cost = entry.cost;
            if self.in_progress >= WINDOW_CALLS || self.in_progress_bytes + cost > WINDOW_BYTES {
                break;
            }
            self.queue.pop_front();
            if let Some(waiting) = entry.waiting.take() {
                self.send(id, waiting, outbox);
                self.take_room(cost);
            }
        }
    }

    /// Writes a request for which there is room. The window lets one go at a time that is longer than a frame.
    fn send(&mut self, id: u32, request: Waiting, outbox: &mut Outbox) {
        let Waiting { method, body, fds } = request;
        let header = Header { call: id, method, kind: Kind::Call, fds: 0 };
        if is_long(body.len()) {
            self.outgoing = Outgoing::new(header, body, fds).feed(outbox);
        } else {
            outbox.push_bytes(header, &body, fds);
        }
    }

    /// Writes more of a long request, if there is room for more.
    pub(crate) fn feed(&mut self, outbox: &mut Outbox) {
        self.outgoing = self.outgoing.take().and_then(|outgoing| outgoing.feed(outbox));
    }

    /// The answer, or the end of a stream. Answers to calls that were cancelled meanwhile are dropped.
    pub(crate) fn end(&mut self, id: u32, end: Result<Payload, XrlError>, outbox: &mut Outbox) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.in_progress()) else { return };
        let (cost, detached) = (entry.cost, entry.detached);
        entry.end = Some(end);
        entry.wake();
        if detached {
            self.entries.remove(&id);
        }
        self.give_room(cost, outbox);
    }

    /// One message of a stream.
    ///
    /// # Errors
    /// When the sender has no credit left for it.
    pub(crate) fn item(&mut self, id: u32, item: Payload) -> Result<(), XrlError> {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.in_progress()) else {
            return Ok(());
        };
        if entry.owed >= STREAM_WINDOW {
            return Err(XrlError::internal("a stream exceeded its credit"));
        }
        entry.owed += cost(item.body.len());
        entry.unread += cost(item.body.len());
        entry.items.push_back(item);
        entry.wake();
        Ok(())
    }

    /// How the call ended.
    pub(crate) fn poll_end(&mut self, id: u32, cx: &mut Context<'_>) -> Poll<Result<Payload, XrlError>> {
        let Some(entry) = self.entries.get_mut(&id) else { return Poll::Ready(Err(forgotten())) };
        match entry.end.take() {
            Some(end) => {
                self.entries.remove(&id);
                Poll::Ready(end)
            }
            None => {
                entry.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The next message of a stream, `None` at its end. Gives the sender credit for what was read.
    pub(crate) fn poll_item(
        &mut self,
        id: u32,
        cx: &mut Context<'_>,
        outbox: &mut Outbox,
    ) -> Poll<Result<Option<Payload>, XrlError>> {
        let Some(entry) = self.entries.get_mut(&id) else { return Poll::Ready(Ok(None)) };
        let Some(item) = entry.items.pop_front() else {
            return self.poll_end(id, cx).map_ok(|_| None);
        };
        entry.unread -= cost(item.body.len());
        let read = entry.owed - entry.unread;
        if read >= STREAM_WINDOW / 2 && entry.end.is_none() {
            entry.owed = entry.unread;
            let header = Header { call: id, method: 0, kind: Kind::Credit, fds: 0 };
            outbox.push_bytes(header, &(read as u32).to_be_bytes(), Vec::new());
        }
        Poll::Ready(Ok(Some(item)))
    }

    /// Nobody waits for the call any more: cancels it unless it has ended.
    pub(crate) fn forget(&mut self, id: u32, outbox: &mut Outbox) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.outgoing.take_if(|outgoing| outgoing.is_of(id));
        if entry.in_progress() {
            outbox.push_bytes(Header { call: id, method: 0, kind: Kind::Cancel, fds: 0 }, &[], Vec::new());
            self.give_room(entry.cost, outbox);
        }
    }

    /// Lets the call go on with nobody waiting for its answer.
    pub(crate) fn detach(&mut self, id: u32) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.detached = true;
            if entry.end.is_some() {
                self.entries.remove(&id);
            }
        }
    }

    /// The channel has closed: everything ends.
    pub(crate) fn close(&mut self, reason: &XrlError) {
        self.queue.clear();
        self.in_progress = 0;
        self.in_progress_bytes = 0;
        self.outgoing = None;
        for entry in self.entries.values_mut() {
            entry.waiting = None;
            entry.end.get_or_insert_with(|| Err(reason.clone()));
            entry.wake();
        }
        self.entries.retain(|_, entry| !entry.detached);
    }
}

fn forgotten() -> XrlError {
    XrlError::internal("the answer was taken before")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(calls: &mut Calls, outbox: &mut Outbox, len: usize) -> u32 {
        calls.start(7, &vec![1u8; len], Vec::new(), outbox).expect("room to wait")
    }

    fn sent(outbox: &mut Outbox) -> usize {
        let len = outbox.len();
        outbox.clear();
        len
    }

    #[test]
    fn a_full_window_holds_calls_back_until_one_ends() {
        let (mut calls, mut outbox) = (Calls::default(), Outbox::default());
        for _ in 0..WINDOW_CALLS {
            start(&mut calls, &mut outbox, 0);
        }
        assert_eq!(sent(&mut outbox), WINDOW_CALLS * HEADER_LEN);
        assert!(!calls.is_ready());
        start(&mut calls, &mut outbox, 0);
        assert_eq!(sent(&mut outbox), 0);
        calls.end(5, Ok(Payload::default()), &mut outbox);
        assert_eq!(sent(&mut outbox), HEADER_LEN);
    }

    #[test]
    fn large_requests_fill_the_window_in_octets() {
        let (mut calls, mut outbox) = (Calls::default(), Outbox::default());
        for _ in 0..20 {
            start(&mut calls, &mut outbox, 1 << 20);
        }
        assert!(sent(&mut outbox) <= WINDOW_BYTES);
    }

    #[test]
    fn a_waiting_call_that_is_dropped_was_never_sent() {
        let (mut calls, mut outbox) = (Calls::default(), Outbox::default());
        let first = start(&mut calls, &mut outbox, WINDOW_BYTES);
        let second = start(&mut calls, &mut outbox, 1);
        sent(&mut outbox);
        calls.forget(second, &mut outbox);
        calls.end(first, Ok(Payload::default()), &mut outbox);
        assert_eq!(sent(&mut outbox), 0);
        assert!(calls.is_ready());
    }

    #[test]
    fn too_many_waiting_calls_are_refused() {
        let (mut calls, mut outbox) = (Calls::default(), Outbox::default());
        start(&mut calls, &mut outbox, WINDOW_BYTES);
        for _ in 0..MAX_WAITING {
            start(&mut calls, &mut outbox, 0);
        }
        let error = calls.start(7, &Vec::<u8>::new(), Vec::new(), &mut outbox).expect_err("full");
        assert_eq!(error.kind(), crate::ErrorKind::Unavailable);
    }

    #[test]
    fn a_stream_beyond_its_credit_is_a_violation() {
        let (mut calls, mut outbox) = (Calls::default(), Outbox::default());
        let id = start(&mut calls, &mut outbox, 0);
        let item = || Payload { body: vec![0; STREAM_WINDOW].into(), fds: Vec::new() };
        calls.item(id, item()).expect("the first fits");
        calls.item(id, item()).expect_err("the second does not");
    }
}
