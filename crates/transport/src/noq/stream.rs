//! A connection of noq's as octets both ways, and what else can be done with it.

use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Wake, Waker, ready},
    time::Duration,
};

use noq::{ConnectionError, PathId, PathStats, RecvStream, SendStream, Stopped, VarInt};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    select,
    time::{sleep, timeout},
};

use super::{crypto::KeyUpdates, failure::closed};
use crate::{Closed, Control, LocalFuture, Stats, Stream, attempt::canonical, life::patience};

/// How often it is looked whether the other end has answered.
const LOOK: Duration = Duration::from_millis(10);

/// A connection, and what is noted of it in passing.
pub(super) struct Handle {
    connection: noq::Connection,
    updates: KeyUpdates,
    remote: Cell<SocketAddr>,
    migrations: Cell<u32>,
    stats: Cell<Stats>,
}

impl Handle {
    pub(super) fn new(connection: noq::Connection, remote: SocketAddr, updates: KeyUpdates) -> Rc<Self> {
        Rc::new(Self {
            connection,
            updates,
            remote: Cell::new(remote),
            migrations: Cell::new(0),
            stats: Cell::new(Stats::default()),
        })
    }

    /// `None`: the connection has ended.
    fn path_stats(&self) -> Option<PathStats> {
        self.connection.path_stats(PathId::ZERO)
    }

    /// noq tells nobody that the peer has moved (RFC 9000 section 9): we look whenever something was heard.
    fn look(&self) {
        let path = self.connection.path(PathId::ZERO);
        if let Some(Ok(remote)) = path.map(|path| path.remote_address()) {
            let remote = canonical(remote);
            if self.remote.replace(remote) != remote {
                self.migrations.set(self.migrations.get().saturating_add(1));
            }
        }
    }
}

impl Control for Handle {
    fn remote(&self) -> SocketAddr {
        self.look();
        self.remote.get()
    }

    fn stats(&self) -> Stats {
        self.look();
        let mut stats = self.stats.get();
        // Of a connection that has ended, the last figures stay.
        if let Some(path) = self.path_stats() {
            // Probes that are too long for the path are meant to be lost.
            stats.lost_packets = path.lost_packets.saturating_sub(path.lost_plpmtud_probes);
            stats.smoothed_rtt_us = u32::try_from(path.rtt.as_micros()).unwrap_or(u32::MAX);
        }
        stats.migrations = self.migrations.get();
        stats.key_updates = self.updates.count();
        self.stats.set(stats);
        stats
    }

    fn update_keys(&self) -> bool {
        self.connection.force_key_update();
        true
    }

    fn answers(&self) -> LocalFuture<'_, bool> {
        Box::pin(async {
            let (Some(path), Some(before)) = (self.connection.path(PathId::ZERO), self.path_stats()) else {
                return false;
            };
            if path.ping().is_err() {
                return false;
            }
            let acknowledged = async {
                // noq tells nobody.
                while self.path_stats().is_none_or(|now| now.frame_rx.acks == before.frame_rx.acks) {
                    sleep(LOOK).await;
                }
            };
            select! {
                answer = timeout(patience(before.rtt), acknowledged) => answer.is_ok(),
                _ = self.connection.closed() => false,
            }
        })
    }

    fn close(&self, code: u32, reason: &str) {
        // noq would take this for the reason, also of a connection that has ended before.
        if self.connection.close_reason().is_none() {
            self.connection.close(VarInt::from_u32(code), reason.as_bytes());
        }
    }

    fn closed(&self) -> LocalFuture<'_, Closed> {
        Box::pin(async { closed(&self.connection.closed().await) })
    }
}

/// The one stream of a connection.
pub(super) struct QuicStream {
    handle: Rc<Handle>,
    state: State,
    finishing: Option<Pin<Box<Stopped>>>,
}

type Halves = (SendStream, RecvStream);

enum State {
    /// The dialer has said nothing yet: a stream begins with its first octets.
    Awaited(Awaited),
    Open(Halves),
    /// The connection has ended before.
    Ended(ConnectionError),
}

impl QuicStream {
    /// Of a dialer.
    pub(super) fn open(handle: Rc<Handle>, halves: Halves) -> Self {
        Self { handle, state: State::Open(halves), finishing: None }
    }

    /// Of whoever was dialed.
    pub(super) fn awaited(handle: Rc<Handle>) -> Self {
        let connection = handle.connection.clone();
        let stream = Box::pin(async move { connection.accept_bi().await });
        let waiting = Arc::<Waiting>::default();
        Self { handle, state: State::Awaited(Awaited { stream, waiting }), finishing: None }
    }

    fn poll_open(&mut self, cx: &mut Context<'_>, half: Half) -> Poll<io::Result<&mut Halves>> {
        if let State::Awaited(awaited) = &mut self.state {
            self.state = match ready!(awaited.poll(cx, half)) {
                Ok(halves) => {
                    // No second one when this one ends.
                    self.handle.connection.set_max_concurrent_bi_streams(0u32.into());
                    State::Open(halves)
                }
                Err(error) => State::Ended(error),
            };
        }
        match &mut self.state {
            State::Open(halves) => Poll::Ready(Ok(halves)),
            State::Ended(error) => Poll::Ready(Err(error.clone().into())),
            // Left above.
            State::Awaited(_) => Poll::Pending,
        }
    }
}

impl AsyncRead for QuicStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let (_, receive) = ready!(this.poll_open(cx, Half::Read))?;
        let read = ready!(AsyncRead::poll_read(Pin::new(receive), cx, buf));
        this.handle.look();
        Poll::Ready(read)
    }
}

impl AsyncWrite for QuicStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let (send, _) = ready!(self.get_mut().poll_open(cx, Half::Write))?;
        AsyncWrite::poll_write(Pin::new(send), cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What was written is sent without being asked for.
        Poll::Ready(Ok(()))
    }

    /// Waits until the peer has acknowledged everything: who closes the connection then loses nothing.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.finishing.is_none() {
            let (send, _) = ready!(this.poll_open(cx, Half::Write))?;
            // It fails if it was done before, which is what we want.
            let _ = send.finish();
            let stopped = Box::pin(send.stopped());
            this.finishing = Some(stopped);
        }
        match &mut this.finishing {
            Some(stopped) => stopped.as_mut().poll(cx).map(|end| end.map(drop).map_err(io::Error::from)),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl Stream for QuicStream {
    fn into_socket(self: Box<Self>) -> Result<OwnedFd, Box<dyn Stream>> {
        Err(self)
    }
}

impl Drop for QuicStream {
    fn drop(&mut self) {
        self.handle.close(0, "");
    }
}

/// The stream that the dialer opens. Reader and writer may be two tasks; whichever looked last is not the only one that
/// wants to know.
struct Awaited {
    stream: LocalFuture<'static, Result<Halves, ConnectionError>>,
    waiting: Arc<Waiting>,
}

impl Awaited {
    fn poll(&mut self, cx: &mut Context<'_>, half: Half) -> Poll<Result<Halves, ConnectionError>> {
        self.waiting.register(half, cx.waker());
        let waker = Waker::from(self.waiting.clone());
        self.stream.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

#[derive(Copy, Clone)]
enum Half {
    Read,
    Write,
}

#[derive(Default)]
struct Waiting(Mutex<[Option<Waker>; 2]>);

impl Waiting {
    fn register(&self, half: Half, waker: &Waker) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[half as usize] = Some(waker.clone());
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let waiting = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().flatten().for_each(Waker::wake);
    }
}
