//! Whether packets come to the queue: a session of ours with ourselves goes through it.

use std::{cell::RefCell, io, net::Ipv4Addr, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::{
    post::{Missing, Post},
    station::Station,
};

/// So long the session may take to be there.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the queue is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(1);
/// Segments that begin a session, all of which are ours: SYN, SYN-ACK, ACK. Without a lease the first one is dropped.
const HANDSHAKE: u64 = 3;

/// Tries it, in the network namespace of this process, before the post is served.
///
/// # Errors
/// [`Missing::Table`] and [`Missing::Trial`].
pub async fn try_out(station: &Station, post: &RefCell<Post>) -> Result<(), Missing> {
    let queue = post.borrow().settings().queue;
    let failed = |what: String| Missing::Trial { queue, what };
    let unable = |error: io::Error| failed(error.to_string());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(unable)?;
    let address = listener.local_addr().map_err(unable)?;
    let before = post.borrow().counted().0;
    post.borrow_mut().try_port(Some(address.port()))?;
    let looking = async {
        loop {
            station.turn(post)?;
            let now = post.borrow().counted().0;
            if now.accepted >= before.accepted + HANDSHAKE || now.no_lease > before.no_lease {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let refused = async {
        match TcpStream::connect(address).await {
            // Until its last segment was seen.
            Ok(_session) => std::future::pending().await,
            Err(error) => error,
        }
    };
    let outcome = timeout(PATIENCE, async {
        tokio::select! {
            seen = looking => seen,
            error = refused => Err(error),
        }
    });
    let outcome = outcome.await;
    post.borrow_mut().try_port(None)?;
    match outcome {
        Ok(outcome) => outcome.map_err(unable),
        Err(_) => Err(failed("no packet came".to_owned())),
    }
}
