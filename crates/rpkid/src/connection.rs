//! A connection to a cache: octets to and fro, and nothing that knows what they mean.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    time::Duration,
};

use holdfast_process::{Stream, dial};
use holdfast_rtr::CacheId;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
    time::timeout,
};

use crate::rpki::Rpki;

/// How long a connection may take to come about, over TLS with its handshake.
const DIAL_LIMIT: Duration = Duration::from_secs(20);
/// A cache that takes nothing of our few octets for so long is cut off.
const PATIENCE: Duration = Duration::from_secs(30);
/// Octets that are read at once.
const READ: usize = 64 << 10;

/// What is to be written on one connection.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    octets: RefCell<Vec<u8>>,
    /// It ends when that is written.
    closing: Cell<bool>,
    wake: Notify,
}

impl Outbox {
    /// More to be written: queries, and a report at the end.
    pub(crate) fn send(&self, octets: &[u8]) {
        self.octets.borrow_mut().extend(octets);
        self.wake.notify_one();
    }

    /// Nothing more comes.
    pub(crate) fn close(&self) {
        self.closing.set(true);
        self.wake.notify_one();
    }
}

/// The life of a connection. Its number tells it from others of the same cache: what comes of one that is not the cache's
/// any more is nobody's.
pub(crate) async fn live(rpki: Rc<Rpki>, (id, number): (CacheId, u64), peer: String, outbox: Rc<Outbox>) {
    let dialled = timeout(DIAL_LIMIT, dial(&rpki.resolver, peer)).await;
    let dialled =
        dialled.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")));
    let ended = match dialled {
        Ok((mut stream, proof)) => {
            rpki.connected(id, number, proof);
            carry(&rpki, (id, number), &mut *stream, &outbox).await
        }
        Err(error) => Err(error),
    };
    let reason = match ended {
        Ok(()) => "the cache has closed the connection".to_owned(),
        Err(error) => error.to_string(),
    };
    rpki.closed(id, number, reason);
}

/// Until one side has closed it.
async fn carry(
    rpki: &Rc<Rpki>,
    (id, number): (CacheId, u64),
    stream: &mut dyn Stream,
    outbox: &Outbox,
) -> io::Result<()> {
    let mut room = vec![0; READ];
    loop {
        let octets = outbox.octets.take();
        if !octets.is_empty() {
            let written = timeout(PATIENCE, stream.write_all(&octets)).await;
            written.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the cache takes nothing"))??;
            continue;
        }
        if outbox.closing.get() {
            return timeout(PATIENCE, stream.shutdown()).await.unwrap_or(Ok(()));
        }
        tokio::select! {
            read = stream.read(&mut room) => match read? {
                0 => return Ok(()),
                length => rpki.received(id, number, &room[..length]),
            },
            () = outbox.wake.notified() => {}
        }
    }
}
