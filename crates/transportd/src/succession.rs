//! A peer that connects while a connection with it is carried: it may have died, and know nothing of that one any more.
//!
//! ```text
//!  a new one, proven ──> those with the same peer are asked for a sign of life ── answered ──> both are the protocol's
//!                                                                              └─ silence ──> the new one replaces them
//! ```
//! Of TCP the kernel of the dead process says so at once. Of QUIC nobody does: the socket of a dialer is gone with it, and
//! who had listened answers only to what it hears. Until its own patience ended the protocol would go on with a session that
//! is none, and take the new connection for one too many (RFC 4271 section 6.8). A process that has retired is asked about
//! those that it carries.

use std::rc::Rc;

use holdfast_api::transport::v1::Connection;
use holdfast_transport::{Permit, Protocol};
use tokio::{task::JoinSet, time::timeout};
use tracing::{error, warn};

use crate::{
    carried::Carried,
    door::ConnectionBroker,
    handover::{AcceptedConnection, LONGEST},
};

/// Connections with one peer that are carried when it connects, at most: one that has more connects for nothing else.
pub(crate) const MOST: usize = 8;

/// Hands a connection over, beside `earlier` ones or in their place.
pub(crate) async fn hand_over(
    door: Rc<ConnectionBroker>,
    protocol: Protocol,
    (mut connection, descriptor): AcceptedConnection,
    permit: Option<Box<dyn Permit>>,
    earlier: Vec<Rc<Carried>>,
) {
    let (gone, elsewhere) = tokio::join!(gone(earlier), silent_elsewhere(&door, &connection));
    connection.replaces = [numbers(&gone), elsewhere].concat();
    if !connection.replaces.is_empty() && door.may_log(&connection.peer) {
        let (peer, protocol) = (&connection.peer, protocol.name());
        warn!(
            event = "connection-replaced",
            peer,
            protocol,
            "the peer has connected again, and does not answer over the connection that there was"
        );
    }
    door.hand_over((connection, descriptor), permit);
    release(gone).await;
}

/// Those of a process that has retired, with the peer of a connection that has come in at its successor, that do not
/// answer.
pub(crate) async fn silent(door: &Rc<ConnectionBroker>, connection: &Connection) -> Vec<u64> {
    let mut earlier = door.carried.beside(connection);
    earlier.truncate(MOST);
    let gone = gone(earlier).await;
    let numbers = numbers(&gone);
    if !gone.is_empty() {
        door.spawn(release(gone));
    }
    numbers
}

/// Asks one that has retired, if there is one.
async fn silent_elsewhere(door: &ConnectionBroker, connection: &Connection) -> Vec<u64> {
    let asked = async { door.retired_one().await?.silent(connection.clone()).await };
    match timeout(LONGEST, asked).await {
        Ok(Ok(reply)) => reply.numbers,
        // Mostly there is none.
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

fn numbers(connections: &[Rc<Carried>]) -> Vec<u64> {
    connections.iter().map(|carried| carried.number()).collect()
}

/// Ends connections when the protocol has let go of them.
async fn release(gone: Vec<Rc<Carried>>) {
    // Our end is held here: the protocol is not told of an end before it has what comes instead.
    let released = async {
        for carried in &gone {
            carried.released().await;
            carried.control.close(0, "");
        }
    };
    // Nobody takes it, or not this one: then their own patience ends them.
    let _ = timeout(LONGEST, released).await;
}

/// Those that do not answer; all are asked at the same time.
async fn gone(connections: Vec<Rc<Carried>>) -> Vec<Rc<Carried>> {
    let mut asked = JoinSet::new();
    for carried in connections {
        asked.spawn_local(async move { (!carried.control.answers().await).then_some(carried) });
    }
    let mut gone = Vec::new();
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(silent) => gone.extend(silent),
            Err(error) => error!(%error, "asking a connection has stopped on a fault of ours"),
        }
    }
    gone
}
