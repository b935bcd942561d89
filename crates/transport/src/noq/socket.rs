//! The UDP socket of an endpoint, and from which of our addresses a connection is sent.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use noq::{
    AsyncUdpSocket, UdpSender,
    udp::{RecvMeta, Transmit},
};

/// From which of our addresses the packets of a connection go.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// From the one that the peer has sent to; it knows no other.
    Asked,
    /// From whichever the kernel chooses, for each packet anew. noq alone would stay with the one that answers came to,
    /// also when it has gone: so the connection follows to the next one (RFC 9000 section 9).
    Any,
    /// From this one.
    Fixed(IpAddr),
}

/// What the next connection of an endpoint is sent from: noq makes a sender for each, and says not for whom.
#[derive(Clone, Debug)]
pub(super) struct NextSource(Arc<Mutex<Source>>);

impl NextSource {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Source::Asked)))
    }

    /// While `f` makes its one connection.
    pub(super) fn during<T>(&self, source: Source, f: impl FnOnce() -> T) -> T {
        self.set(source);
        let made = f();
        self.set(Source::Asked);
        made
    }

    fn set(&self, source: Source) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = source;
    }

    fn current(&self) -> Source {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket of noq's whose senders know their source.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) inner: Box<dyn AsyncUdpSocket>,
    pub(super) next: NextSource,
}

impl AsyncUdpSocket for Socket {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(Sender { inner: self.inner.create_sender(), source: self.next.current() })
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_receive_segments(&self) -> NonZeroUsize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

#[derive(Debug)]
struct Sender {
    inner: Pin<Box<dyn UdpSender>>,
    source: Source,
}

impl UdpSender for Sender {
    fn poll_send(
        self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let src_ip = match this.source {
            Source::Asked => transmit.src_ip,
            Source::Any => None,
            Source::Fixed(address) => Some(address),
        };
        let transmit = Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn,
            contents: transmit.contents,
            segment_size: transmit.segment_size,
            src_ip,
        };
        this.inner.as_mut().poll_send(&transmit, cx)
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        self.inner.max_transmit_segments()
    }
}
