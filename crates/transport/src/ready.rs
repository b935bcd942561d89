//! Reading and writing a socket of tokio that is shared, as its own traits want it alone.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};

/// Tries until the socket blocks and is not ready again.
pub(crate) fn poll_io<T>(
    mut ready: impl FnMut() -> Poll<io::Result<()>>,
    mut call: impl FnMut() -> io::Result<T>,
) -> Poll<io::Result<T>> {
    loop {
        ready!(ready())?;
        match call() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
    }
}

/// One of several who use a local socket: one of them reads, one writes.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Local<'a>(pub(crate) &'a UnixStream);

impl AsyncRead for Local<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let octets = buf.initialize_unfilled();
        let length = ready!(poll_io(|| self.0.poll_read_ready(cx), || self.0.try_read(octets)))?;
        buf.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Local<'_> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        poll_io(|| self.0.poll_write_ready(cx), || self.0.try_write(octets))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends with the socket.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
