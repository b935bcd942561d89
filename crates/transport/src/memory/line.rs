//! A connection in memory: two lines, one in each direction, and at both ends who reads the one and writes the other.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{Instant, Sleep, sleep_until, timeout},
};

use super::{Cut, Net, Network};
use crate::{Closed, Control, LocalFuture, Stats, Stream, end, life::patience};

/// Octets on their way in one direction, at most.
const MOST_QUEUED: usize = 64 * 1024;

/// One direction.
#[derive(Default)]
pub(super) struct Line {
    /// With when they arrive; nothing overtakes.
    octets: VecDeque<(Instant, Bytes)>,
    queued: usize,
    /// When the last of all arrives.
    last: Option<Instant>,
    /// Nothing follows; behind all octets.
    finished: Option<Instant>,
    /// The writing side has ended the connection; behind all octets.
    closed: Option<(Instant, u32, String)>,
    /// Nobody reads it any more.
    deaf: bool,
    lost: u64,
    reader: Option<Waker>,
    writer: Option<Waker>,
    changed: Rc<Notify>,
}

impl Line {
    /// Something is different for who reads.
    pub(super) fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        self.changed.notify_waiters();
    }

    pub(super) fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    /// When something that is sent now arrives.
    fn arrival(&mut self, net: &mut Net) -> Instant {
        let (way, lost) = net.way();
        self.lost += u64::from(lost);
        let mut at = Instant::now() + way;
        if let Cut::Since(since) = net.cut {
            // What is sent over it, at the very moment too, is not what had arrived before.
            at = at.max(since + Duration::from_nanos(1));
        }
        *self.last.insert(self.last.map_or(at, |last| last.max(at)))
    }
}

/// One end, not in use yet. Dropped like that it ends the connection.
pub(super) struct End {
    network: Network,
    incoming: Rc<RefCell<Line>>,
    outgoing: Rc<RefCell<Line>>,
    ended: end::End,
    /// The other side was told.
    left: Cell<bool>,
}

/// Both ends of a new connection.
pub(super) fn ends(network: &Network) -> (End, End) {
    let lines = [Rc::new(RefCell::new(Line::default())), Rc::new(RefCell::new(Line::default()))];
    let [one, other] = &lines;
    let end = |incoming: &Rc<RefCell<Line>>, outgoing: &Rc<RefCell<Line>>| End {
        network: network.clone(),
        incoming: incoming.clone(),
        outgoing: outgoing.clone(),
        ended: end::End::default(),
        left: Cell::new(false),
    };
    let mut net = network.0.borrow_mut();
    net.lines.retain(|line| line.strong_count() > 0);
    net.lines.extend(lines.iter().map(Rc::downgrade));
    (end(one, other), end(other, one))
}

impl End {
    pub(super) fn into_parts(
        self,
        remote: SocketAddr,
        idle: Duration,
        counted: Option<Rc<()>>,
    ) -> (Box<dyn Stream>, Rc<dyn Control>) {
        let control = Rc::new(MemoryControl { end: self, remote, idle });
        let octets =
            MemoryOctets { control: control.clone(), reading: None, writing: None, _counted: counted };
        (Box::new(octets), control)
    }

    /// Ends it here, once.
    fn close(&self, code: u32, reason: &str) {
        self.ended.set(Closed::Here);
        if !self.left.replace(true) {
            self.leave(code, reason);
        }
    }

    /// Tells the other side, and reads no more.
    fn leave(&self, code: u32, reason: &str) {
        {
            let mut outgoing = self.outgoing.borrow_mut();
            let at = outgoing.arrival(&mut self.network.0.borrow_mut());
            outgoing.closed = Some((at, code, reason.to_owned()));
            outgoing.wake();
            // Ours, who may wait for room.
            outgoing.wake_writer();
        }
        let mut incoming = self.incoming.borrow_mut();
        incoming.deaf = true;
        incoming.octets.clear();
        incoming.queued = 0;
        incoming.wake();
        incoming.wake_writer();
    }

    /// What is known of the end by now, and else when there may be more to know.
    fn look(&self, idle: Duration) -> Look {
        if let Some(closed) = self.ended.get() {
            return Look::Ended(closed);
        }
        let net = self.network.0.borrow();
        let incoming = self.incoming.borrow();
        let now = Instant::now();
        let told = incoming.closed.as_ref().and_then(|(at, ..)| net.arrival(*at));
        let silent = match net.cut {
            Cut::Since(since) => Some(since + idle),
            Cut::Never | Cut::Mended(..) => None,
        };
        if let (Some(at), Some((_, code, reason))) = (told, &incoming.closed)
            && at <= now
        {
            self.ended.set(Closed::Peer((*code).into(), reason.clone()));
        } else if silent.is_some_and(|at| at <= now) {
            self.ended.set(Closed::TimedOut);
        } else {
            return Look::Open(told.into_iter().chain(silent).min());
        }
        Look::Ended(self.ended.get().unwrap_or(Closed::Here))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.close(0, "");
    }
}

enum Look {
    Ended(Closed),
    /// May have, then.
    Open(Option<Instant>),
}

/// When whoever waits has to look again.
type Timer = Option<Pin<Box<Sleep>>>;

struct MemoryOctets {
    control: Rc<MemoryControl>,
    reading: Timer,
    writing: Timer,
    _counted: Option<Rc<()>>,
}

impl MemoryOctets {
    fn end(&self) -> &End {
        &self.control.end
    }
}

/// Is polled again at that time.
fn wake_at(timer: &mut Timer, at: Option<Instant>, cx: &mut Context<'_>) {
    *timer = at.map(|at| Box::pin(sleep_until(at)));
    if let Some(timer) = timer
        && timer.as_mut().poll(cx).is_ready()
    {
        cx.waker().wake_by_ref();
    }
}

impl AsyncRead for MemoryOctets {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let now = Instant::now();
        let mut next = {
            let end = self.end();
            let net = end.network.0.borrow();
            let mut incoming = end.incoming.borrow_mut();
            let line = &mut *incoming;
            let mut next = None;
            let before = buf.filled().len();
            while buf.remaining() > 0
                && let Some((at, octets)) = line.octets.front_mut()
            {
                next = net.arrival(*at);
                if next.is_none_or(|at| at > now) {
                    break;
                }
                let length = octets.len().min(buf.remaining());
                buf.put_slice(&octets[..length]);
                octets.advance(length);
                line.queued -= length;
                if octets.is_empty() {
                    line.octets.pop_front();
                }
            }
            if buf.filled().len() > before || buf.remaining() == 0 {
                line.wake_writer();
                return Poll::Ready(Ok(()));
            }
            if line.octets.is_empty()
                && let Some(at) = line.finished
            {
                next = net.arrival(at);
                if next.is_some_and(|at| at <= now) {
                    return Poll::Ready(Ok(()));
                }
            }
            next
        };
        match self.end().look(self.control.idle) {
            Look::Ended(closed) => return Poll::Ready(Err(broken(&closed))),
            Look::Open(at) => next = next.into_iter().chain(at).min(),
        }
        self.end().incoming.borrow_mut().reader = Some(cx.waker().clone());
        wake_at(&mut self.reading, next, cx);
        Poll::Pending
    }
}

impl AsyncWrite for MemoryOctets {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let next = match self.end().look(self.control.idle) {
            Look::Ended(closed) => return Poll::Ready(Err(broken(&closed))),
            Look::Open(next) => next,
        };
        let control = self.control.clone();
        let mut line = control.end.outgoing.borrow_mut();
        if line.finished.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if line.deaf {
            // They arrive where nobody is; that is told on the other line.
            return Poll::Ready(Ok(octets.len()));
        }
        let length = octets.len().min(MOST_QUEUED - line.queued);
        if octets.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if length == 0 {
            line.writer = Some(cx.waker().clone());
            drop(line);
            wake_at(&mut self.writing, next, cx);
            return Poll::Pending;
        }
        let at = line.arrival(&mut control.end.network.0.borrow_mut());
        line.octets.push_back((at, Bytes::copy_from_slice(&octets[..length])));
        line.queued += length;
        line.wake();
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Done at once: nothing that was sent is lost when the connection is closed.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut line = self.end().outgoing.borrow_mut();
        if line.finished.is_none() {
            let at = line.arrival(&mut self.end().network.0.borrow_mut());
            line.finished = Some(at);
            line.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl Stream for MemoryOctets {
    fn into_socket(self: Box<Self>) -> Result<OwnedFd, Box<dyn Stream>> {
        Err(self)
    }
}

impl Drop for MemoryOctets {
    fn drop(&mut self) {
        self.end().close(0, "");
    }
}

/// What reading and writing says of a connection that has ended.
fn broken(closed: &Closed) -> io::Error {
    match closed {
        Closed::Here => io::ErrorKind::NotConnected.into(),
        Closed::Peer(code, reason) => io::Error::new(
            io::ErrorKind::ConnectionAborted,
            format!("closed by the peer with {code}: {reason}"),
        ),
        Closed::TimedOut => io::ErrorKind::TimedOut.into(),
        Closed::Reset => io::ErrorKind::ConnectionReset.into(),
        Closed::Failed(text) => io::Error::other(text.clone()),
    }
}

struct MemoryControl {
    end: End,
    remote: SocketAddr,
    idle: Duration,
}

impl Control for MemoryControl {
    fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn stats(&self) -> Stats {
        let round_trip = 2 * self.end.network.0.borrow().delay;
        Stats {
            lost_packets: self.end.outgoing.borrow().lost,
            smoothed_rtt_us: u32::try_from(round_trip.as_micros()).unwrap_or(u32::MAX),
            ..Stats::default()
        }
    }

    fn update_keys(&self) -> bool {
        false
    }

    fn answers(&self) -> LocalFuture<'_, bool> {
        Box::pin(async {
            let network = &self.end.network;
            let there_and_back = async {
                network.crossing().await;
                network.crossing().await;
            };
            let round_trip = Duration::from_micros(self.stats().smoothed_rtt_us.into());
            tokio::select! {
                biased;
                _ = self.closed() => false,
                answer = timeout(patience(round_trip), there_and_back) => answer.is_ok(),
            }
        })
    }

    fn close(&self, code: u32, reason: &str) {
        self.end.close(code, reason);
    }

    fn closed(&self) -> LocalFuture<'_, Closed> {
        Box::pin(async move {
            loop {
                let changed = self.end.incoming.borrow().changed.clone();
                let changed = changed.notified();
                match self.end.look(self.idle) {
                    Look::Ended(closed) => return closed,
                    Look::Open(Some(at)) => tokio::select! {
                        () = changed => {}
                        () = sleep_until(at) => {}
                    },
                    Look::Open(None) => changed.await,
                }
            }
        })
    }
}
