//! Routers at the door.

use std::{
    cell::RefCell,
    io,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_rtr::{Cache, Connection, Reply};
use rustix::net::sockopt;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::spawn_local,
    time::{sleep, sleep_until, timeout},
};
use tracing::{info, warn};

/// Octets that are read at once.
const CHUNK: usize = 4096;

/// How long 64 KiB may take to be written.
const WRITING: Duration = Duration::from_secs(60);

/// Longer than anything that is waited for.
const FOR_EVER: Duration = Duration::from_secs(86400);

/// Data that all routers are given, and word of each change.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) cache: Rc<RefCell<Cache>>,
    pub(crate) changed: watch::Receiver<()>,
    pub(crate) room: Arc<Semaphore>,
}

/// Lets routers in, for ever.
pub(crate) async fn listen(listener: TcpListener, shared: Shared) {
    loop {
        let (stream, router) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Too many descriptors, say: there is no use in asking again at once.
                warn!("no router can connect: {error}");
                sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let Ok(place) = shared.room.clone().try_acquire_owned() else {
            warn!(%router, "turned away: there are as many routers as may be (--clients)");
            continue;
        };
        let shared = shared.clone();
        spawn_local(async move {
            info!(%router, "connected");
            match serve(stream, &shared).await {
                Ok(()) => info!(%router, "has gone"),
                Err(why) => info!(%router, "ended: {why}"),
            }
            drop(place);
        });
    }
}

/// What a router is told, until it goes or is sent away.
async fn serve(mut stream: TcpStream, shared: &Shared) -> Result<(), String> {
    let lost = |error: io::Error| error.to_string();
    // RFC 8210 section 9: a router that is gone without a word is noticed.
    let _ = sockopt::set_socket_keepalive(&stream, true);
    let _ = stream.set_nodelay(true);
    let mut changed = shared.changed.clone();
    let mut connection = Connection::new(Instant::now());
    let mut octets = [0; CHUNK];
    loop {
        let reply = connection.poll_reply(&mut shared.cache.borrow_mut(), Instant::now());
        match reply {
            // Once begun it is written to its end, or the connection is of no use any more.
            Some(Reply::Send(octets)) => {
                let written = timeout(WRITING, stream.write_all(&octets)).await;
                written.map_err(|_| "it does not read what it asked for".to_owned())?.map_err(lost)?;
                connection.handle_timeout(Instant::now());
            }
            Some(Reply::Close) => {
                // What was written last is read before the end is seen.
                let _ = stream.shutdown().await;
                return connection.fault().map_or(Ok(()), |fault| Err(fault.to_string()));
            }
            None => {
                let due = connection.poll_timeout(&shared.cache.borrow());
                let due = sleep_until(due.unwrap_or_else(|| Instant::now() + FOR_EVER).into());
                tokio::select! {
                read = stream.read(&mut octets) => match read.map_err(lost)? {
                    0 => return Ok(()),
                    length => connection.received(&mut shared.cache.borrow_mut(), &octets[..length], Instant::now()),
                },
                change = changed.changed() => change.map_err(|_| "the cache has ended".to_owned())?,
                () = due => connection.handle_timeout(Instant::now()),
                }
            }
        }
    }
}
