//! One TCP connection of a peer: what waits to be sent, and what was received of an unfinished message.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    net::SocketAddr,
    rc::Rc,
    time::Instant,
};

use bytes::Bytes;
use tokio::{net::TcpStream, sync::Notify, task::AbortHandle};

/// Queued buffers handed to one system call.
const SLICES: usize = 16;

/// A connection, from the socket's side.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Rc<TcpStream>,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Wakes the task that writes.
    pub(crate) wake: Rc<Notify>,
    /// The peer has forgotten it: what is queued goes out, then it is closed.
    pub(crate) closing: bool,
    pub(crate) last_read: Instant,
    pub(crate) last_write: Instant,
    out: VecDeque<Bytes>,
    queued: usize,
    /// The beginning of a message whose end has not come.
    partial: Vec<u8>,
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

impl Connection {
    pub(crate) fn new(stream: TcpStream, now: Instant) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            local: stream.local_addr()?,
            remote: stream.peer_addr()?,
            stream: Rc::new(stream),
            wake: Rc::new(Notify::new()),
            closing: false,
            last_read: now,
            last_write: now,
            out: VecDeque::new(),
            queued: 0,
            partial: Vec::new(),
            tasks: Vec::new(),
        })
    }

    /// Tasks that end with the connection.
    pub(crate) fn own(&mut self, task: AbortHandle) {
        self.tasks.push(task);
    }

    /// Queues bytes behind what is queued.
    pub(crate) fn queue(&mut self, bytes: Bytes) {
        self.queued += bytes.len();
        self.out.push_back(bytes);
    }

    /// Octets queued here, not counting the socket's own buffer.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Writes what the socket takes at once; whether anything went is said beside the outcome.
    pub(crate) fn write(&mut self, now: Instant) -> io::Result<(Written, bool)> {
        let mut progress = false;
        while !self.out.is_empty() {
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
        let mut slices = [IoSlice::new(&[]); SLICES];
        for (slice, bytes) in slices.iter_mut().zip(&self.out) {
            *slice = IoSlice::new(bytes);
        }
        self.stream.try_write_vectored(&slices[..self.out.len().min(SLICES)])
    }

    fn advance(&mut self, mut count: usize) {
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

    /// Takes the unfinished message, so that what was just read can be put behind it.
    pub(crate) fn take_partial(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.partial)
    }

    /// Keeps an unfinished message.
    pub(crate) fn keep_partial(&mut self, rest: &[u8]) {
        self.partial = rest.to_vec();
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
