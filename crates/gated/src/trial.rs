//! Whether packets come to the queue: a session of ours with ourselves goes through it.

use std::{cell::RefCell, io, net::Ipv4Addr, pin::pin, time::Duration};

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
    let mut session = None;
    let outcome = timeout(PATIENCE, async {
        let mut connecting = pin!(TcpStream::connect(address));
        loop {
            tokio::select! {
                biased;
                begun = &mut connecting, if session.is_none() => session = Some(begun?),
                () = tokio::time::sleep(LOOK) => {}
            }
            station.turn(post)?;
            let now = post.borrow().counted().0;
            let has_begun = session.is_some() && now.accepted >= before.accepted + HANDSHAKE;
            // While nothing comes in nothing leaves: whoever closes the gate makes sessions of this router, and is not kept waiting.
            if has_begun || now.no_lease > before.no_lease || post.borrow().is_closed() {
                return Ok(());
            }
        }
    });
    let outcome = outcome.await;
    post.borrow_mut().try_port(None)?;
    // Not before: what it says at its end would come to the queue, too.
    drop(session);
    match outcome {
        Ok(outcome) => outcome.map_err(unable),
        Err(_) => Err(failed("no packet came".to_owned())),
    }
}
