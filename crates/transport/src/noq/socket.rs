//! The UDP socket of an endpoint, and from which of our addresses a connection is sent.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use noq::{
    AsyncUdpSocket, UdpSender,
    udp::{RecvMeta, Transmit},
};

use super::keys::Keys;
use crate::{Stray, stray::Strays};

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

/// A socket of noq's whose senders know their source, and at which strays are counted.
#[derive(Debug)]
pub(super) struct Socket {
    inner: Box<dyn AsyncUdpSocket>,
    next: NextSource,
    keys: Keys,
    strays: Arc<Strays>,
    /// The endpoint has its own sender: it asks for that before there is any connection.
    has_sender: AtomicBool,
}

impl Socket {
    pub(super) fn new(
        inner: Box<dyn AsyncUdpSocket>,
        next: NextSource,
        keys: Keys,
        strays: Arc<Strays>,
    ) -> Self {
        Self { inner, next, keys, strays, has_sender: AtomicBool::new(false) }
    }

    /// Takes out of what was received together what noq is not to see.
    fn sift(&self, octets: &mut [u8], meta: &mut RecvMeta) {
        if meta.len == 0 {
            self.strays.count(Stray::Garbage);
        }
        let (mut kept, mut at) = (0, 0);
        while at < meta.len {
            let end = meta.len.min(at + meta.stride.max(1));
            let is_ours = |id: &[u8]| self.keys.may_have_made(id);
            if self.strays.pass((meta.addr, meta.dst_ip), &octets[at..end], Keys::ID, is_ours) {
                octets.copy_within(at..end, kept);
                kept += end - at;
            }
            at = end;
        }
        meta.len = kept;
    }
}

impl AsyncUdpSocket for Socket {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        let is_first = !self.has_sender.swap(true, Ordering::Relaxed);
        Box::pin(Sender {
            inner: self.inner.create_sender(),
            source: self.next.current(),
            answers: is_first.then(|| Arc::clone(&self.strays)),
        })
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = ready!(self.inner.poll_recv(cx, bufs, meta))?;
        for (octets, meta) in bufs.iter_mut().zip(meta.iter_mut()).take(received) {
            self.sift(octets, meta);
        }
        Poll::Ready(Ok(received))
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
    /// Of the endpoint, which answers those of whom it keeps nothing: with a reset, the only packet of these whose header
    /// is short.
    answers: Option<Arc<Strays>>,
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
        let sent = this.inner.as_mut().poll_send(&transmit, cx);
        if let (Some(strays), Poll::Ready(Ok(()))) = (&this.answers, &sent)
            && transmit.contents.first().is_some_and(|first| first & 0x80 == 0)
        {
            strays.count(Stray::Reset);
        }
        sent
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        self.inner.max_transmit_segments()
    }
}
