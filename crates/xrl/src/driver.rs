//! The task of a channel: reads, hands over what arrives, writes.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::task::{spawn_local, yield_now};

use crate::XrlError;
use crate::channel::{Shared, closed_here};
use crate::counts;
use crate::frame::{FrameDecoder, Header, Kind, MAX_FDS};
use crate::link::Link;

/// Why a channel ends.
pub(crate) enum Ending {
    /// The peer has violated the protocol; it is told.
    Violation(XrlError),
    /// The peer said why it closes.
    Theirs(XrlError),
    /// The link is of no more use.
    Link(io::Error),
    /// The peer has closed.
    EndOfStream,
}

impl From<XrlError> for Ending {
    fn from(error: XrlError) -> Self {
        Self::Violation(error)
    }
}

impl From<io::Error> for Ending {
    fn from(error: io::Error) -> Self {
        Self::Link(error)
    }
}

impl From<Ending> for XrlError {
    fn from(ending: Ending) -> Self {
        Self::disconnected(match ending {
            Ending::Violation(error) => format!("closed by this side: {}", error.message()),
            Ending::Theirs(error) => format!("closed by the other side: {}", error.message()),
            Ending::Link(error) => error.to_string(),
            Ending::EndOfStream => "closed by the other side".to_owned(),
        })
    }
}

/// Reads this often before other tasks have their turn.
const READS_PER_TURN: usize = 8;
/// What arrives is carried out for so long before other tasks have their turn. What is carried out is said by the peer: many
/// small calls may fit in one read, and each may be a long one.
const TURN: Duration = Duration::from_millis(2);

/// The task of a channel.
pub(crate) struct Driver {
    shared: Rc<Shared>,
    link: Link,
    decoder: FrameDecoder,
    /// Descriptors that have arrived and whose frames have not.
    fds: VecDeque<OwnedFd>,
    /// The turn is over.
    pauses: Rc<Cell<bool>>,
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.shared.is_closed() {
            return this.say_last_words(cx);
        }
        if let Err(ending) = this.read(cx).and_then(|()| this.write(cx)) {
            this.end(cx, ending);
        }
        if let Err(error) = this.release() {
            this.shared.close(Ending::Link(error).into());
        }
        let mut state = this.shared.state.borrow_mut();
        state.driver = Some(cx.waker().clone());
        if state.has_turn() && !this.pauses.get() || state.last_words.is_some() {
            cx.waker().wake_by_ref();
        }
        if state.closed.is_some() && state.last_words.is_none() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Driver {
    pub(crate) fn new(shared: Rc<Shared>, link: Link) -> Self {
        Self { shared, link, decoder: FrameDecoder::default(), fds: VecDeque::new(), pauses: Rc::default() }
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), Ending> {
        if self.pauses.get() {
            return Ok(());
        }
        let end = Instant::now() + TURN;
        // What the turn before has left.
        let mut has_time = self.shared.take_turns(end) && self.take_frames(end)?;
        for _ in 0..READS_PER_TURN {
            if !has_time {
                break;
            }
            let Poll::Ready(len) = self.link.poll_recv(cx, self.decoder.space(), &mut self.fds) else {
                self.decoder.rest();
                return Ok(());
            };
            match len? {
                0 => return Err(Ending::EndOfStream),
                len => {
                    counts::add(|counts| &counts.received, len);
                    self.decoder.filled(len);
                }
            }
            has_time = self.take_frames(end)?;
        }
        self.pause(cx);
        Ok(())
    }

    /// Reads on when the others have had their turn, and when what else arrives has been heard of. An answer that wakes this
    /// task before is only written.
    fn pause(&self, cx: &Context<'_>) {
        self.pauses.set(true);
        let (pauses, driver) = (Rc::clone(&self.pauses), cx.waker().clone());
        spawn_local(async move {
            yield_now().await;
            pauses.set(false);
            driver.wake();
        });
    }

    /// Whether there was time for all that has arrived.
    fn take_frames(&mut self, end: Instant) -> Result<bool, Ending> {
        loop {
            // What arrives behind the call that closed the channel is for nobody.
            if self.shared.is_closed() {
                return Ok(false);
            }
            let frame = self.decoder.next_frame();
            let Some((header, body)) = frame.map_err(|error| XrlError::internal(error.to_string()))? else {
                break;
            };
            let count = usize::from(header.fds);
            if self.fds.len() < count {
                return Err(XrlError::internal("a frame came without its descriptors").into());
            }
            let fds = if count == 0 { Vec::new() } else { self.fds.drain(..count).collect() };
            self.shared.receive(header, body, fds)?;
            if Instant::now() >= end {
                return Ok(false);
            }
        }
        if self.fds.len() > MAX_FDS {
            return Err(XrlError::internal("descriptors came without frames").into());
        }
        Ok(true)
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), Ending> {
        let Self { shared, link, .. } = self;
        let mut state = shared.state.borrow_mut();
        counts::see(|counts| &counts.unwritten, state.outbox.len());
        let mut written = 0;
        while state.outbox.len() > 0 {
            let (bytes, fds) = state.outbox.front();
            let Poll::Ready(len) = link.poll_send(cx, bytes, fds) else { break };
            let len = len?;
            counts::add(|counts| &counts.sent, len);
            written += len;
            drop(state.outbox.wrote(len));
            state.feed();
        }
        let after = state.outbox.len();
        let before = after + written;
        state.serving.written(before, after);
        state.was_read(before, after);
        drop(state);
        if after == 0 && before > 0 {
            shared.changed.notify_waiters();
        }
        Ok(())
    }

    /// Writes what is left to say on a channel that has closed, and hears nothing any more.
    fn say_last_words(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { shared, link, decoder, fds, .. } = self;
        let mut state = shared.state.borrow_mut();
        while let Some(words) = state.last_words.as_mut().filter(|words| words.len() > 0) {
            match link.poll_send(cx, words.front().0, &[]) {
                Poll::Ready(Ok(len)) => drop(words.wrote(len)),
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        if state.last_words.as_ref().is_none_or(|words| words.len() == 0) {
            state.last_words = None;
            return Poll::Ready(());
        }
        state.driver = Some(cx.waker().clone());
        // Octets that nobody has read would reset a TCP connection, and the end of it is heard this way only.
        for _ in 0..READS_PER_TURN {
            match link.poll_recv(cx, decoder.space(), fds) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(_)) => fds.clear(),
                Poll::Pending => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Gives the socket to who waits for it, if nothing is under way, and closes.
    fn release(&mut self) -> io::Result<()> {
        let mut state = self.shared.state.borrow_mut();
        let quiet = state.outbox.len() == 0 && state.calls.is_empty() && state.serving.is_empty();
        if state.release.is_none() || !quiet || !self.decoder.is_empty() || !self.fds.is_empty() {
            return Ok(());
        }
        let socket = self.link.socket()?;
        // Who waited may have given up: then the channel goes on.
        let taken = state.release.take().is_some_and(|give| give.send(socket).is_ok());
        drop(state);
        if taken {
            self.shared.close(XrlError::disconnected("released"));
        }
        Ok(())
    }

    /// Tells the peer why, if it did something wrong and the link takes it, and closes.
    fn end(&mut self, cx: &mut Context<'_>, ending: Ending) {
        if let Ending::Violation(error) = &ending {
            tracing::warn!(event = "channel-closed", reason = error.message(), "closing a channel");
            let header = Header { call: 0, method: 0, kind: Kind::Error, fds: 0 };
            self.shared.push_bytes(header, &error.encode());
            // If this fails the peer will notice the end of the stream all the same.
            let _ = self.write(cx);
        }
        self.shared.close(ending.into());
    }
}

impl Drop for Driver {
    /// Also when the runtime ends: nobody shall wait for answers that cannot come.
    fn drop(&mut self) {
        self.shared.close(closed_here());
    }
}
