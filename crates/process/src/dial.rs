//! Connections of processes that open none: `transport.v1` makes them to what is configured, and hands them over.

use std::{io, os::fd::OwnedFd};

use holdfast_api::transport::v1::{Connection, DialRequest, TransportClient};
use holdfast_xrl::{Resolver, XrlError};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

/// What a connection is read from and written to.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// A connection to what `transport` knows under this name, and what the other end has proven. It may take long: the caller
/// has a limit.
///
/// # Errors
/// `transport` could not connect, as it says, or the descriptor is of no use.
pub async fn dial(resolver: &Resolver, peer: String) -> io::Result<(Box<dyn Stream>, String)> {
    let failed = |error: XrlError| io::Error::other(error.message().to_owned());
    let transport: TransportClient = resolver.wait_for("transport").await.map_err(failed)?;
    let (said, descriptors) = transport.connect(DialRequest { peer }).await.map_err(failed)?;
    let descriptor = descriptors.into_iter().next();
    let descriptor = descriptor.ok_or_else(|| io::Error::other("no descriptor came"))?;
    Ok((stream(&said, descriptor)?, said.proof))
}

/// The kernel's own socket, or our end of a pair that `transport` carries.
fn stream(said: &Connection, descriptor: OwnedFd) -> io::Result<Box<dyn Stream>> {
    Ok(match said.number {
        0 => {
            let socket = std::net::TcpStream::from(descriptor);
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            Box::new(TcpStream::from_std(socket)?)
        }
        _ => {
            let pair = std::os::unix::net::UnixStream::from(descriptor);
            pair.set_nonblocking(true)?;
            Box::new(UnixStream::from_std(pair)?)
        }
    })
}
