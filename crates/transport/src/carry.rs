//! Moving octets between a connection and a local socket, for whoever can only use a descriptor.
//!
//! ```text
//!  peer ──> connection ──> 64 KiB ──> inner      counted when written into inner
//!  peer <── connection <── 64 KiB <── inner      counted when read from inner
//! ```
//! Whoever does not read stops the other side, and nothing grows. An end on either side ends both, once what had come
//! before is delivered, for which there is a bounded time.

use std::{cell::Cell, io, rc::Rc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest},
    net::UnixStream,
    sync::Notify,
    time::{sleep, timeout},
};

use crate::{Closed, Connection, ready::Local};

/// Octets on their way, in each direction.
const BUFFER: usize = 64 * 1024;
/// For what is still on its way when one side has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// When the protocol has said why it ends a connection: so long the other end may take to read its last words.
const TO_READ: Duration = Duration::from_millis(500);

/// How the protocol ends a connection, when it says more than that it does.
#[derive(Debug, Default)]
pub struct Parting {
    code: Cell<Option<u32>>,
    said: Notify,
}

impl Parting {
    /// It has let go of its end, or does. The first number that is said is what the peer is told.
    pub fn with(&self, code: u32) {
        if self.code.get().is_none() {
            self.code.set(Some(code));
            self.said.notify_waiters();
        }
    }

    async fn is_said(&self) {
        let said = self.said.notified();
        if self.code.get().is_none() {
            said.await;
        }
    }
}

/// How many octets have passed, counted on the inner side.
#[derive(Debug, Default)]
pub struct ByteCounters {
    /// Of the peer: written into the inner socket.
    pub received: Cell<u64>,
    /// For the peer: read from the inner socket.
    pub sent: Cell<u64>,
}

/// Carries octets both ways until one side ends; says how the connection has ended. An end of the inner socket closes the
/// connection with 0, after everything that was in it was sent and the peer has ended it as well, or after 5 s. With a
/// [`Parting`] it is closed with that number, and the peer is not waited for.
pub async fn carry(
    connection: Connection,
    inner: UnixStream,
    meter: Rc<ByteCounters>,
    parting: Rc<Parting>,
) -> Closed {
    let Connection { stream, control, .. } = connection;
    let (mut from_peer, mut to_peer) = tokio::io::split(stream);
    let end = {
        let inward = pump(&mut from_peer, Local(&inner), |_| {}, |octets| count(&meter.received, octets));
        let outward = pump(Local(&inner), &mut to_peer, |octets| count(&meter.sent, octets), |_| {});
        tokio::pin!(inward, outward);
        tokio::select! {
            biased;
            stopped = &mut inward => match stopped {
                Stopped::End => Ended::PeerInOrder,
                Stopped::Read => Ended::Peer,
                // What was put into it before it ended is still to be sent.
                Stopped::Write => ended_inside(timeout(LAST_WORDS, outward).await.ok()),
            },
            stopped = &mut outward => match stopped {
                Stopped::End | Stopped::Read => Ended::Inside,
                Stopped::Write => ended_outside(timeout(LAST_WORDS, inward).await.ok()),
            },
            _ = control.closed() => ended_outside(timeout(LAST_WORDS, inward).await.ok()),
            // It may have ended behind octets that the peer does not take.
            () = hung_up(&inner) => ended_inside(timeout(LAST_WORDS, outward).await.ok()),
        }
    };
    if end == Ended::Inside {
        let enough = async {
            parting.is_said().await;
            sleep(TO_READ).await;
        };
        tokio::select! {
            _ = timeout(LAST_WORDS, finish(&mut from_peer, &mut to_peer)) => {}
            () = enough => {}
        }
    }
    control.close(parting.code.get().unwrap_or(0), "");
    match (end, control.closed().await) {
        // Whatever the peer has answered to that.
        (Ended::Inside, _) => Closed::Here,
        // Not every transport tells the end of a stream from our own close after it.
        (Ended::PeerInOrder, Closed::Here) => Closed::Peer(0, String::new()),
        (Ended::Peer | Ended::PeerInOrder, closed) => closed,
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Ended {
    /// There is nobody any more to whom anything could be sent.
    Peer,
    /// The peer sends no more, and all of what it sent has arrived inside.
    PeerInOrder,
    /// The inner side has ended, and all of what it sent was written to the connection.
    Inside,
}

/// When the inner side has ended: whether what it had sent was written to the peer in time.
fn ended_inside(outward: Option<Stopped>) -> Ended {
    match outward {
        Some(Stopped::End | Stopped::Read) => Ended::Inside,
        Some(Stopped::Write) | None => Ended::Peer,
    }
}

/// When the peer has ended: whether what it had sent has arrived inside in time.
fn ended_outside(inward: Option<Stopped>) -> Ended {
    match inward {
        Some(Stopped::End) => Ended::PeerInOrder,
        Some(Stopped::Read | Stopped::Write) | None => Ended::Peer,
    }
}

/// Why a pump has stopped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stopped {
    /// There is no more to be read.
    End,
    /// Reading fails. Of a local socket that was closed with octets unread, this is its end.
    Read,
    /// Writing fails.
    Write,
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    read: impl Fn(usize),
    written: impl Fn(usize),
) -> Stopped {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = match from.read(&mut buffer).await {
            Ok(0) => return Stopped::End,
            Err(_) => return Stopped::Read,
            Ok(length) => length,
        };
        read(length);
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            match to.write(rest).await {
                Ok(0) | Err(_) => return Stopped::Write,
                Ok(length) => {
                    written(length);
                    rest = &rest[length..];
                }
            }
        }
        if to.flush().await.is_err() {
            return Stopped::Write;
        }
    }
}

fn count(meter: &Cell<u64>, octets: usize) {
    meter.set(meter.get() + octets as u64);
}

/// Waits until the other end of an inner socket writes no more, whether or not there is something to be read.
pub async fn hung_up(inner: &UnixStream) {
    // Nobody sends urgent octets; what else makes this ready is that the end has come. An error is one, too.
    let _ = inner.ready(Interest::PRIORITY).await;
}

/// Says that no more comes, and waits until the peer has everything: with octets of it unread TCP would reset.
async fn finish(
    from_peer: &mut (impl AsyncRead + Unpin),
    to_peer: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    to_peer.shutdown().await?;
    let mut rest = vec![0; 4096];
    while from_peer.read(&mut rest).await? > 0 {}
    Ok(())
}
