//! What the channels of this thread carry, counted since it began: a node and its channels live on one thread.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

pub use crate::channel::MAX_UNREAD;
use crate::channel::Shared;
use crate::counts::{COUNTS, Counts};
use crate::readers;
pub use crate::readers::MOST_UNREAD;

/// How long a kind of queue is, of the channel where it is longest.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Now.
    pub now: u64,
    /// The longest so far.
    pub high: u64,
}

/// All counts at one time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Open channels.
    pub channels: u64,
    /// Calls that were begun here.
    pub calls_made: u64,
    /// Calls that arrived, the refused ones included.
    pub calls_served: u64,
    /// Calls that arrived and were refused: there is no such method, or the caller may not call it.
    pub calls_refused: u64,
    /// Octets written.
    pub sent: u64,
    /// Octets read.
    pub received: u64,
    /// Octets that wait to be written; at most [`MAX_UNREAD`].
    pub unwritten: Depth,
    /// Channels that were closed because the other side went on calling and did not read.
    pub cut_off: u64,
    /// Octets that callers from outside of the router have not read, all together; at most [`MOST_UNREAD`].
    pub unread: Depth,
    /// Callers from outside that were disconnected because these were too many.
    pub disconnected: u64,
    /// Calls that wait for their answer; at most [`WINDOW_CALLS`](crate::WINDOW_CALLS).
    pub under_way: Depth,
    /// Calls that wait for the window; at most [`MAX_WAITING`](crate::MAX_WAITING).
    pub waiting: Depth,
    /// Calls that failed because so many waited.
    pub full: u64,
}

thread_local! {
    static OPEN: RefCell<Vec<Weak<Shared>>> = const { RefCell::new(Vec::new()) };
}

/// A channel is there.
pub(crate) fn opened(channel: &Rc<Shared>) {
    OPEN.with_borrow_mut(|open| {
        if open.len() == open.capacity() {
            open.retain(|channel| channel.strong_count() > 0);
        }
        open.push(Rc::downgrade(channel));
    });
}

/// The channels that are open.
pub(crate) fn open_channels() -> Vec<Rc<Shared>> {
    let is_open = |channel: &Rc<Shared>| !channel.is_closed();
    OPEN.with_borrow(|open| open.iter().filter_map(Weak::upgrade).filter(is_open).collect())
}

/// The counts of the calling thread.
pub fn of_this_thread() -> Traffic {
    let (mut traffic, [mut unwritten, mut under_way, mut waiting]) = COUNTS.with(Counts::read);
    for channel in open_channels() {
        let state = channel.state.borrow();
        traffic.channels += 1;
        unwritten.see(state.outbox.len());
        under_way.see(state.calls.in_progress());
        waiting.see(state.calls.waiting());
    }
    traffic.unread.see(readers::unread());
    Traffic { unwritten, under_way, waiting, ..traffic }
}

impl Counts {
    fn read(&self) -> (Traffic, [Depth; 3]) {
        let traffic = Traffic {
            calls_made: self.calls_made.get(),
            calls_served: self.calls_served.get(),
            calls_refused: self.calls_refused.get(),
            sent: self.sent.get(),
            received: self.received.get(),
            cut_off: self.cut_off.get(),
            unread: Depth { now: 0, high: self.unread.get() },
            disconnected: self.disconnected.get(),
            full: self.full.get(),
            ..Traffic::default()
        };
        let depth = |high: &Cell<u64>| Depth { now: 0, high: high.get() };
        (traffic, [&self.unwritten, &self.under_way, &self.waiting].map(depth))
    }
}

impl Depth {
    fn see(&mut self, length: usize) {
        self.now = self.now.max(length as u64);
        self.high = self.high.max(self.now);
    }
}
