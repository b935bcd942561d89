//! The one stream of a connection, and what else can be done with the connection.

use std::{
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use s2n_quic::{
    application,
    connection::{Handle, StreamAcceptor},
    stream::BidirectionalStream,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    select,
    time::timeout,
};

use super::state::State;
use crate::{Closed, Control, LocalFuture, Stats, Stream, attempt::canonical, life::patience};

/// Octets both ways. The side that accepts has its stream when the first octets of the dialer are here.
pub(super) struct S2nStream {
    octets: Octets,
    /// Of who reads and of who writes. The library wakes only whoever has asked last.
    wakers: [Option<Waker>; 2],
    handle: Handle,
}

enum Octets {
    Waiting(StreamAcceptor),
    Open(BidirectionalStream),
    /// The connection has ended without a stream.
    Never,
}

const READER: usize = 0;
const WRITER: usize = 1;

impl S2nStream {
    pub(super) fn dialed(stream: BidirectionalStream, handle: Handle) -> Self {
        Self { octets: Octets::Open(stream), wakers: [None, None], handle }
    }

    pub(super) fn accepted(acceptor: StreamAcceptor, handle: Handle) -> Self {
        Self { octets: Octets::Waiting(acceptor), wakers: [None, None], handle }
    }

    /// Waits for the stream; `None`: there is never one.
    fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
        side: usize,
    ) -> Poll<io::Result<Option<Pin<&mut BidirectionalStream>>>> {
        if let Octets::Waiting(acceptor) = &mut self.octets {
            let Poll::Ready(accepted) = acceptor.poll_accept_bidirectional_stream(cx) else {
                self.wakers[side] = Some(cx.waker().clone());
                return Poll::Pending;
            };
            let (octets, error) = match accepted {
                Ok(Some(stream)) => (Octets::Open(stream), None),
                Ok(None) => (Octets::Never, None),
                Err(error) => (Octets::Never, Some(error)),
            };
            self.octets = octets;
            self.wakers.iter_mut().filter_map(Option::take).for_each(Waker::wake);
            if let Some(error) = error {
                return Poll::Ready(Err(error.into()));
            }
        }
        Poll::Ready(Ok(match &mut self.octets {
            Octets::Open(stream) => Some(Pin::new(stream)),
            Octets::Waiting(_) | Octets::Never => None,
        }))
    }
}

impl AsyncRead for S2nStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(self.poll_open(cx, READER))? {
            Some(stream) => AsyncRead::poll_read(stream, cx, buffer),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for S2nStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        match ready!(self.poll_open(cx, WRITER))? {
            Some(stream) => AsyncWrite::poll_write(stream, cx, octets),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What was written is on its way as fast as the peer takes it.
        Poll::Ready(Ok(()))
    }

    /// Done when the peer has acknowledged everything.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(self.poll_open(cx, WRITER))? {
            Some(stream) => AsyncWrite::poll_shutdown(stream, cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl Stream for S2nStream {
    fn into_socket(self: Box<Self>) -> Result<OwnedFd, Box<dyn Stream>> {
        Err(self)
    }
}

impl Drop for S2nStream {
    fn drop(&mut self) {
        // The first close counts: one with a number was before.
        self.handle.close(application::Error::UNKNOWN);
    }
}

/// What else can be done with a connection.
pub(super) struct S2nControl {
    handle: Handle,
    state: Arc<State>,
}

impl S2nControl {
    pub(super) fn new(handle: Handle, state: Arc<State>) -> Self {
        Self { handle, state }
    }
}

impl Control for S2nControl {
    fn remote(&self) -> SocketAddr {
        self.handle.remote_addr().map_or(self.state.remote, canonical)
    }

    fn stats(&self) -> Stats {
        self.state.stats()
    }

    /// The library changes keys by itself, and only when the old ones have protected too much.
    fn update_keys(&self) -> bool {
        false
    }

    fn answers(&self) -> LocalFuture<'_, bool> {
        Box::pin(async {
            let heard = self.state.heard();
            if self.handle.clone().ping().is_err() {
                return false;
            }
            let round_trip = Duration::from_micros(self.stats().smoothed_rtt_us.into());
            select! {
                answer = timeout(patience(round_trip), heard) => answer.is_ok(),
                _ = self.state.ended() => false,
            }
        })
    }

    /// The library has no place for the text.
    fn close(&self, code: u32, _reason: &str) {
        self.handle.close(code.into());
    }

    fn closed(&self) -> LocalFuture<'_, Closed> {
        Box::pin(self.state.ended())
    }
}
