//! Callers from outside of the router, and what they leave unread.
//!
//! Windows and credits bound a channel. Operators and programs of others may have many channels, so what they do not
//! read is bounded for all channels of a process together ([`MOST_UNREAD`]): at the bound the reader that has read
//! nothing for longest is disconnected, and told why. Processes of the router have a known number of channels, and are
//! not counted.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::time::Instant;

use bytes::Bytes;

use crate::XrlError;
use crate::calls::WINDOW_CALLS;
use crate::channel::{Shared, State};
use crate::counts;
use crate::frame::{Header, Kind};
use crate::outbox::Outbox;
use crate::parts::Incoming;
use crate::serving::OUTBOX_FULL;
use crate::traffic;

/// Octets that all callers from outside may leave unread in one process: answers that are not written, items that wait
/// for credit, requests that are carried out, wait for that or have come in part, and [`CALL_OCTETS`] for each call.
pub const MOST_UNREAD: usize = 64 << 20;
/// Calls of one connection of an operator that are carried out at a time; the next ones wait for their turn.
pub const MOST_CALLS: usize = 64;
/// What a call counts for besides its octets: about what its task takes.
pub(crate) const CALL_OCTETS: usize = 1 << 10;
/// Channels that are closed and have their reason still to write; for one more the oldest is dropped.
const MOST_PARTING: usize = 16;
/// What such a channel keeps of the frame that it was writing. A longer rest is dropped with the channel, unsaid.
const LONGEST_REST: usize = 256 << 10;

thread_local! {
    /// What all readers of this thread have not read.
    static UNREAD: Cell<usize> = const { Cell::new(0) };
    /// Channels that have their reason still to write, the oldest first.
    static PARTING: RefCell<VecDeque<Weak<Shared>>> = const { RefCell::new(VecDeque::new()) };
}

/// What all callers from outside have not read, in this thread.
pub(crate) fn unread() -> usize {
    UNREAD.get()
}

/// A caller from outside, of one channel.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Calls that are carried out at a time.
    most_calls: usize,
    /// Calls that wait for their turn, in the order of their arrival.
    waiting: VecDeque<Postponed>,
    /// Octets of items that wait for credit.
    held: usize,
    /// What it has in [`UNREAD`].
    charged: usize,
    /// When it read something, or had nothing to read.
    read_at: Instant,
}

/// A call that waits for its turn.
#[derive(Debug)]
pub(crate) struct Postponed {
    pub(crate) header: Header,
    pub(crate) body: Bytes,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Reader {
    /// The one with this role, if it is not a process of the router. Programs have streams without an end for each of
    /// their neighbors, so their calls are bounded by the window alone.
    pub(crate) fn with_role(role: &str) -> Option<Self> {
        let most_calls = match role {
            "operator" => MOST_CALLS,
            "protocol" => WINDOW_CALLS,
            _ => return None,
        };
        let waiting = VecDeque::new();
        Some(Self { most_calls, waiting, held: 0, charged: 0, read_at: Instant::now() })
    }

    /// A call is not to be carried out.
    pub(crate) fn forget(&mut self, id: u32) {
        self.waiting.retain(|call| call.header.call != id);
    }

    /// Items of so many octets wait for credit from now on.
    pub(crate) fn hold(&mut self, octets: usize) {
        self.held += octets;
    }

    /// They do not.
    pub(crate) fn release(&mut self, octets: usize) {
        self.held -= octets;
    }

    fn charge(&mut self, octets: usize) {
        UNREAD.set(UNREAD.get() - self.charged + octets);
        self.charged = octets;
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.charge(0);
    }
}

impl State {
    /// Whether a call that has begun is not to be carried out yet.
    pub(crate) fn waits(&self) -> bool {
        let Some(reader) = &self.reader else { return false };
        self.running() > reader.most_calls || self.outbox.len() >= OUTBOX_FULL || !reader.waiting.is_empty()
    }

    /// Lets it wait for its turn.
    pub(crate) fn postpone(&mut self, call: Postponed) {
        if let Some(reader) = &mut self.reader {
            reader.waiting.push_back(call);
        }
    }

    /// Whether a call that waits may have its turn.
    pub(crate) fn has_turn(&self) -> bool {
        let is_free = |reader: &Reader| !reader.waiting.is_empty() && self.running() < reader.most_calls;
        self.outbox.len() < OUTBOX_FULL && self.reader.as_ref().is_some_and(is_free)
    }

    /// The call whose turn it is.
    pub(crate) fn take_turn(&mut self) -> Option<Postponed> {
        if !self.has_turn() {
            return None;
        }
        self.reader.as_mut()?.waiting.pop_front()
    }

    /// Calls that have begun and have no answer.
    fn running(&self) -> usize {
        self.serving.len() - self.reader.as_ref().map_or(0, |reader| reader.waiting.len())
    }

    /// Whether calls of the reader are under way, and since when it has read nothing or had nothing to read.
    pub(crate) fn idle_since(&self) -> Option<(bool, Instant)> {
        self.reader.as_ref().map(|reader| (!self.serving.is_empty(), reader.read_at))
    }

    /// So much is unwritten after writing, and it was so much before.
    pub(crate) fn was_read(&mut self, before: usize, after: usize) {
        self.charge();
        if let Some(reader) = self.reader.as_mut().filter(|_| after < before || after == 0) {
            reader.read_at = Instant::now();
        }
    }

    /// Counts what the reader has not read.
    pub(crate) fn charge(&mut self) {
        let Some(reader) = &mut self.reader else { return };
        let calls = self.serving.octets() + CALL_OCTETS * self.serving.len();
        let begun = self.incoming.as_ref().map_or(0, Incoming::octets);
        reader.charge(self.outbox.len() + reader.held + calls + begun);
    }

    /// Since when the reader has read nothing of what is there for it; who has nothing to read comes later.
    fn stands_since(&self) -> Option<(bool, Instant)> {
        let reader = self.reader.as_ref().filter(|reader| reader.charged > 0)?;
        Some((self.outbox.len() + reader.held == 0, reader.read_at))
    }
}

/// Disconnects the reader that has read nothing for longest, until all have left no more unread than they may.
#[inline]
pub(crate) fn relieve() {
    while UNREAD.get() > MOST_UNREAD {
        let channels = traffic::open_channels();
        let stands_since = |channel: &Rc<Shared>| channel.state.borrow().stands_since();
        let longest = channels.into_iter().filter_map(|channel| Some((stands_since(&channel)?, channel)));
        let Some((_, channel)) = longest.min_by_key(|(since, _)| *since) else { break };
        channel.cut_off();
    }
    counts::see(|counts| &counts.unread, UNREAD.get());
}

/// Why a reader is disconnected.
pub(crate) fn too_much_unread() -> XrlError {
    XrlError::unavailable(format!(
        "{} MiB wait for all who read here, and you have read nothing for longest",
        MOST_UNREAD >> 20
    ))
}

/// What a disconnected reader has still to be written: the rest of a frame, and the reason. Nothing if the rest is long.
pub(crate) fn last_words(mut outbox: Outbox, reason: &XrlError) -> Option<Outbox> {
    outbox.end_with_frame();
    if outbox.len() > LONGEST_REST {
        return None;
    }
    outbox.push_bytes(Header { call: 0, method: 0, kind: Kind::Error, fds: 0 }, &reason.encode(), Vec::new());
    Some(outbox)
}

/// A channel that has closed may have its last words to write. There is a place for so many: the oldest makes way.
pub(crate) fn part(channel: &Weak<Shared>) {
    let has_words = |channel: &Weak<Shared>| {
        channel.upgrade().is_some_and(|channel| channel.state.borrow().last_words.is_some())
    };
    let oldest = PARTING.with_borrow_mut(|parting| {
        parting.push_back(Weak::clone(channel));
        parting.retain(has_words);
        if parting.len() > MOST_PARTING { parting.pop_front() } else { None }
    });
    if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
        oldest.say_no_more();
    }
}
