//! One connection of a peer: what waits to be sent, and what was received of an unfinished message.
//!
//! Of a session that is to outlive this process both are in the replication log ([`Held`]): octets are received
//! straight into it, and sent out of it.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, SocketAddr},
    rc::Rc,
    time::Instant,
};

use bytes::Bytes;
use holdfast_api::transport::v1 as transport;
use holdfast_bgp_pipeline::{PeerIndex, UpdatePart};
use holdfast_bgp_session::{ConnId, Messages};
use holdfast_bgp_wire::{HEADER_LEN, MessageType};
use holdfast_nsr::{EntryId, Full};
use holdfast_process::metrics::High;
use tokio::{sync::Notify, task::AbortHandle};

use crate::{
    nonstop::{Counted, Held, Progress, ReplicationLog, Unprotected},
    patience::Waits,
    stream::{AcceptedConnection, Offsets, Stream},
};

/// Octets read at once; behind an unfinished message there is always room for this much.
pub(crate) const READ: usize = 64 * 1024;
/// Octets that the log holds behind what the peer is known to have acknowledged, besides what lies in the socket: with more,
/// the socket is asked.
const MOST_KEPT: u64 = 64 << 10;
/// Queued buffers handed to one system call.
const SLICES: usize = 16;

/// Names a connection of a peer.
pub(crate) type Key = (PeerIndex, ConnId);

/// A connection, from the socket's side.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Rc<Stream>,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// What the door says of it.
    pub(crate) said: transport::Connection,
    /// Wakes the task that writes.
    pub(crate) wake: Rc<Notify>,
    /// The peer has forgotten it: what is queued goes out, then it is closed.
    pub(crate) closing: bool,
    /// The NOTIFICATION that ends it, as the door tells the other end ([`verdict`]).
    pub(crate) verdict: Option<u32>,
    pub(crate) last_read: Instant,
    pub(crate) last_write: Instant,
    /// Its place in the log.
    pub(crate) held: Option<Held>,
    /// The session on it is up.
    pub(crate) waits: Option<Waits>,
    /// Why it has none.
    pub(crate) unprotected: Unprotected,
    /// The most octets that were queued.
    pub(crate) most_queued: High,
    /// The OPENs of this connection, whole messages, for those who watch; empty after a takeover.
    pub(crate) sent_open: Vec<u8>,
    pub(crate) received_open: Vec<u8>,
    out: VecDeque<Bytes>,
    queued: usize,
    /// Received, and not taken in: what the last turn left, and the beginning of a message whose end has not come.
    partial: Vec<u8>,
    /// The last turn was over before every whole message was taken in.
    pub(crate) is_behind: bool,
    /// How far the first message of what is left was taken in, if some of it was.
    pub(crate) begun: Option<UpdatePart>,
    tasks: Vec<AbortHandle>,
}

/// What became of an attempt to write.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Nothing is queued any more.
    All,
    /// The socket takes no more for now.
    Blocked,
}

/// What became of an attempt to read.
#[derive(Debug)]
pub(crate) enum Received {
    /// So many octets came.
    Octets(usize),
    /// Nothing was read: there is something left that came before.
    Left,
    /// The log has no room for more.
    Full,
    /// The socket has none, is at its end (`None`), or fails.
    Failed(Option<io::Error>),
}

impl Connection {
    pub(crate) fn new(
        AcceptedConnection { stream, local, remote, said }: AcceptedConnection,
        now: Instant,
    ) -> Self {
        Self {
            stream: Rc::new(stream),
            local,
            remote,
            said,
            wake: Rc::new(Notify::new()),
            closing: false,
            verdict: None,
            last_read: now,
            last_write: now,
            held: None,
            waits: None,
            unprotected: Unprotected::NotConfigured,
            most_queued: High::default(),
            sent_open: Vec::new(),
            received_open: Vec::new(),
            out: VecDeque::new(),
            queued: 0,
            partial: Vec::new(),
            is_behind: false,
            begun: None,
            tasks: Vec::new(),
        }
    }

    /// What the next process asks how far it was read and written.
    pub(crate) fn counted(&self) -> Counted {
        match &*self.stream {
            Stream::Tcp(tcp) => Counted::ByKernel(tcp.origin),
            Stream::Pair(_) => Counted::ByDoor(self.said.clone()),
        }
    }

    /// The address at the other end.
    pub(crate) fn remote_address(&self) -> IpAddr {
        self.remote.ip().to_canonical()
    }

    /// Tasks that end with the connection.
    pub(crate) fn own(&mut self, task: AbortHandle) {
        self.tasks.push(task);
    }

    // Protection.

    /// Takes the connection into the log: from its `unparsed` last received octets on, which are to follow with
    /// [`Self::hold`].
    pub(crate) fn protect(&mut self, log: &Rc<ReplicationLog>, unparsed: usize, record: &[u8]) {
        let offsets = self.stream.offsets().ok();
        let incoming = offsets.and_then(|offsets| offsets.read.checked_sub(unparsed as u64));
        let (Some(Offsets { written: outgoing, .. }), Some(incoming)) = (offsets, incoming) else {
            self.unprotected = Unprotected::NoCustody;
            return;
        };
        let opened = log.log.borrow_mut().open(incoming, outgoing, record);
        let Ok(id) = opened else {
            self.unprotected = Unprotected::LogFull;
            return;
        };
        self.held = Some(Held::new(log, id, incoming, Progress::default()));
        self.queued = 0;
        for bytes in std::mem::take(&mut self.out) {
            self.queue(bytes, None);
        }
    }

    /// Octets that were received before the connection was in the log.
    pub(crate) fn hold(&mut self, mut octets: &[u8]) {
        while let Some(held) = &self.held
            && !octets.is_empty()
        {
            let mut log = held.log.log.borrow_mut();
            let Ok(room) = log.room(held.id, octets.len().min(READ)) else {
                drop(log);
                return self.unprotect(Unprotected::LogFull);
            };
            let mut count = 0;
            for place in room {
                let (now, rest) = octets.split_at(place.len().min(octets.len()));
                place[..now.len()].copy_from_slice(now);
                octets = rest;
                count += now.len();
            }
            log.received(held.id, count);
            held.log.pacing.borrow_mut().received(held.id, count as u64);
        }
    }

    /// Takes the connection out of the log: it ends with this process from now on.
    pub(crate) fn unprotect(&mut self, why: Unprotected) {
        let Some(held) = self.held.take() else { return };
        self.unprotected = why;
        let log = held.log.log.borrow();
        self.out = log.unsent(held.id).map(Bytes::copy_from_slice).collect();
        self.queued = self.out.iter().map(Bytes::len).sum();
        self.partial.clear();
        let mut at = held.parsed;
        while let octets @ [_, ..] = log.read(held.id, at) {
            self.partial.extend_from_slice(octets);
            at += octets.len() as u64;
        }
    }

    // Out.

    /// Queues bytes behind what is queued; `passed` is what the journal calls the place they lead to.
    pub(crate) fn queue(&mut self, bytes: Bytes, passed: Option<EntryId>) {
        if let Some(held) = &self.held {
            let pushed = held.log.log.borrow_mut().push(held.id, &bytes, passed);
            match pushed {
                Ok(()) => return,
                Err(Full) => self.unprotect(Unprotected::LogFull),
            }
        }
        self.queued += bytes.len();
        self.out.push_back(bytes);
    }

    /// So many messages of each type have been sent, or queued: the next process is to know.
    pub(crate) fn count(&self, sent: &Messages) {
        if let Some(held) = &self.held {
            held.log.log.borrow_mut().set_numbers(held.id, sent.by_type());
        }
    }

    /// The session has come to this place of the journal, and was given nothing for it.
    pub(crate) fn pass(&mut self, entry: EntryId) {
        if let Some(held) = &self.held {
            let mut log = held.log.log.borrow_mut();
            if log.passed(held.id) != entry {
                log.set_passed(held.id, entry);
            }
        }
    }

    /// Octets queued here, not counting the socket's own buffer.
    pub(crate) fn queued(&self) -> usize {
        match &self.held {
            Some(held) => {
                let outgoing = held.log.log.borrow().outgoing(held.id);
                (outgoing.end - outgoing.start) as usize
            }
            None => self.queued,
        }
    }

    /// Writes what the socket takes at once; whether anything went is said beside the outcome.
    pub(crate) fn write(&mut self, now: Instant) -> io::Result<(Written, bool)> {
        let mut progress = false;
        while self.queued() > 0 {
            match self.try_write() {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.advance(count);
                    self.last_write = now;
                    progress = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok((Written::Blocked, progress));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((Written::All, progress))
    }

    /// One system call for the first of what is queued.
    fn try_write(&self) -> io::Result<usize> {
        match &self.held {
            Some(held) => self.try_write_slices(held.log.log.borrow().unsent(held.id)),
            None => self.try_write_slices(self.out.iter().map(|bytes| &**bytes)),
        }
    }

    fn try_write_slices<'a>(&self, queued: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        for (slice, bytes) in slices.iter_mut().zip(queued) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        self.stream.try_write_vectored(&slices[..count])
    }

    fn advance(&mut self, mut count: usize) {
        if let Some(held) = &self.held {
            let mut log = held.log.log.borrow_mut();
            log.sent(held.id, count);
            // Of a connection that the door carries nobody knows what has arrived.
            if !held.log.keeps_sent.get() || self.stream.is_carried() {
                log.acknowledged(held.id, u64::MAX);
            } else {
                let sent = log.outgoing(held.id).start;
                if sent - log.unacknowledged(held.id).start >= MOST_KEPT
                    && let Ok(in_socket) = self.stream.unacknowledged()
                {
                    log.acknowledged(held.id, sent.saturating_sub(in_socket.into()));
                }
            }
            return held.log.written.notify_waiters();
        }
        self.queued -= count;
        while count > 0 {
            let Some(first) = self.out.front_mut() else { return };
            let part = count.min(first.len());
            bytes::Buf::advance(first, part);
            count -= part;
            if first.is_empty() {
                self.out.pop_front();
            }
        }
    }

    /// The peer has acknowledged all that was written but the last octets.
    pub(crate) fn acknowledged(&self, all_but: u32) {
        if let Some(held) = &self.held
            && !self.stream.is_carried()
        {
            let mut log = held.log.log.borrow_mut();
            let written = log.outgoing(held.id).start;
            log.acknowledged(held.id, written.saturating_sub(all_but.into()));
        }
    }

    // In.

    /// Reads once, unless there is something left to take in, and puts all that has not been taken in into the buffer.
    pub(crate) fn read(&mut self, buffer: &mut Vec<u8>) -> Received {
        if std::mem::take(&mut self.is_behind) {
            match self.held {
                Some(_) => self.unparsed(buffer, usize::MAX),
                None => buffer.clone_from(&self.partial),
            }
            return Received::Left;
        }
        let read = match &self.held {
            Some(held) => {
                let mut log = held.log.log.borrow_mut();
                let Ok([first, second]) = log.room(held.id, 1) else { return Received::Full };
                let (first_len, second_len) = (first.len().min(READ), second.len());
                let second_len = second_len.min(READ - first_len);
                let slices = &mut [
                    IoSliceMut::new(&mut first[..first_len]),
                    IoSliceMut::new(&mut second[..second_len]),
                ];
                let read = self.stream.try_read_vectored(slices);
                if read.as_ref().is_ok_and(|count| *count < first_len + second_len) {
                    self.stream.drained();
                }
                log.received(held.id, read.as_ref().copied().unwrap_or(0));
                if let Ok(count) = &read {
                    held.log.pacing.borrow_mut().received(held.id, *count as u64);
                }
                read
            }
            None => {
                let start = self.partial.len();
                buffer.clear();
                buffer.extend_from_slice(&self.partial);
                buffer.resize(start + READ, 0);
                let read = self.stream.try_read(&mut buffer[start..]);
                if read.as_ref().is_ok_and(|count| *count < READ) {
                    self.stream.drained();
                }
                buffer.truncate(start + read.as_ref().copied().unwrap_or(0));
                read
            }
        };
        match read {
            Ok(0) => Received::Failed(None),
            Ok(count) => {
                if self.held.is_some() {
                    self.unparsed(buffer, usize::MAX);
                }
                Received::Octets(count)
            }
            Err(error) => Received::Failed(Some(error)),
        }
    }

    /// Octets in the log that have not been taken in, `most` of them.
    pub(crate) fn unparsed(&self, buffer: &mut Vec<u8>, most: usize) {
        buffer.clear();
        let Some(held) = &self.held else { return };
        let log = held.log.log.borrow();
        while let octets @ [_, ..] = log.read(held.id, held.parsed + buffer.len() as u64)
            && buffer.len() < most
        {
            buffer.extend_from_slice(&octets[..octets.len().min(most - buffer.len())]);
        }
    }

    /// Of what [`Self::read`] or [`Self::unparsed`] gave, the first octets have been taken in; these were not.
    pub(crate) fn taken_in(&mut self, count: usize, rest: &[u8]) {
        match &mut self.held {
            Some(held) => held.parsed += count as u64,
            None => {
                self.partial.clear();
                self.partial.extend_from_slice(rest);
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        // The task that writes holds the socket too, and may be asleep: it is to see that this is the end.
        self.wake.notify_one();
    }
}

/// What the door tells the other end of a connection that ends with this message: the code and the subcode of a
/// NOTIFICATION, as one number. `None`: it is none.
pub(crate) fn verdict(message: &[u8]) -> Option<u32> {
    let is_notification = message.get(HEADER_LEN - 1) == Some(&(MessageType::Notification as u8));
    let [code, subcode] = *message.get(HEADER_LEN..HEADER_LEN + 2)?.first_chunk::<2>()?;
    is_notification.then(|| u32::from(code) << 8 | u32::from(subcode))
}
