//! Takes connections at a socket of noq's.

use std::{
    cell::Cell,
    future::pending,
    net::SocketAddr,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant as StdInstant},
};

use holdfast_admission::Verdict;
use holdfast_tls::PeerTls;
use noq::{Connecting, ConnectionId, Incoming, ServerConfig};
use tokio::{
    select,
    sync::Notify,
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{
    Ends,
    attempt::Initial,
    config, connection,
    crypto::{FirstFlight, Front, KeyUpdates},
    failure::failure,
    keys::Keys,
};
use crate::{
    Connection, Failure, Gate, Listener, LocalFuture, Permit, Protocol,
    attempt::canonical,
    spent::{Spent, TOKEN_LIFETIME},
    stray::Strays,
};

/// Which listener of a socket is the latest.
#[derive(Default)]
pub(super) struct Latest {
    turn: Cell<u64>,
    changed: Notify,
}

impl Latest {
    fn next(&self) -> u64 {
        self.turn.set(self.turn.get() + 1);
        self.changed.notify_waiters();
        self.turn.get()
    }
}

/// Takes connections at an [`Endpoint`](super::Endpoint).
///
/// Attempts are judged while somebody waits in `accept`; each one's handshake is a task of its own. Dropped, nobody who
/// comes gets an answer any more, handshakes under way end, connections stay.
pub struct NoqListener {
    endpoint: noq::Endpoint,
    gate: Rc<dyn Gate>,
    keys: Keys,
    flight: FirstFlight,
    front: Front,
    strays: Arc<Strays>,
    limit: Duration,
    local: SocketAddr,
    handshakes: JoinSet<Option<Connection>>,
    /// Tokens, by whom they were given to and the connection id of the attempt that was answered with them.
    spent: Spent<(SocketAddr, ConnectionId), StdInstant>,
    turn: u64,
    latest: Rc<Latest>,
}

impl NoqListener {
    /// The latest listener of a socket takes the place of those before.
    pub(super) fn new(endpoint: &super::Endpoint, gate: Rc<dyn Gate>) -> Self {
        let turn = endpoint.latest.next();
        endpoint.strays.decided_by(Some(Rc::clone(&gate)));
        endpoint.endpoint.set_server_config(Some(config::front(
            endpoint.front.clone(),
            &endpoint.keys,
            true,
        )));
        Self {
            endpoint: endpoint.endpoint.clone(),
            gate,
            keys: endpoint.keys.clone(),
            flight: endpoint.flight.clone(),
            front: endpoint.front.clone(),
            strays: endpoint.strays.clone(),
            limit: endpoint.limit,
            local: endpoint.local,
            handshakes: JoinSet::new(),
            spent: Spent::default(),
            turn,
            latest: endpoint.latest.clone(),
        }
    }

    async fn next(&mut self) -> Result<Connection, Failure> {
        loop {
            // Before looking, so that nothing is missed between.
            let replaced = self.latest.changed.notified();
            if self.turn != self.latest.turn.get() {
                return pending().await;
            }
            select! {
                biased;
                () = replaced => {}
                Some(handshake) = self.handshakes.join_next() => match handshake {
                    Ok(Some(connection)) => return Ok(connection),
                    Ok(None) => {}
                    Err(error) => tracing::error!(%error, "a QUIC handshake has stopped on a fault of ours"),
                },
                incoming = self.endpoint.accept() => match incoming {
                    Some(incoming) => self.judge(incoming),
                    None => return Err(Failure::Unreachable("the UDP socket has failed".into())),
                },
            }
        }
    }

    fn judge(&mut self, incoming: Incoming) {
        let now = Instant::now().into_std();
        let token =
            incoming.remote_address_validated().then(|| (incoming.remote_address(), incoming.orig_dst_cid()));
        let is_replay = token.is_some_and(|token| self.spent.has(&token, &now));
        let mut attempt =
            Initial::new(&incoming, &self.flight, &self.endpoint, self.handshakes.len(), is_replay);
        match self.gate.judge(Protocol::Quic, &mut attempt, now) {
            Verdict::Ignore => incoming.ignore(),
            Verdict::Refuse(_) => incoming.refuse(),
            Verdict::Retry => {
                if let Err(error) = incoming.retry() {
                    // It was asked before, and nobody is asked twice (RFC 9000 section 17.2.5.2).
                    error.into_incoming().refuse();
                }
            }
            Verdict::Accept | Verdict::Wait(_) | Verdict::Next => {
                let permit = self.gate.begin(Protocol::Quic);
                permit.pass();
                // For noq the address of a replay would be proven, and it would get a long answer there.
                if is_replay || attempt.is_void() {
                    return incoming.ignore();
                }
                if let Some(token) = token {
                    self.spent.add(token, now + TOKEN_LIFETIME);
                }
                self.begin(incoming, permit);
            }
        }
    }

    fn begin(&mut self, incoming: Incoming, permit: Box<dyn Permit>) {
        let remote = canonical(incoming.remote_address());
        let Some(expected) = self.gate.expect(Protocol::Quic, remote) else {
            incoming.refuse();
            return;
        };
        let updates = KeyUpdates::default();
        let (tls, server) = match let_in(&expected, &self.keys, &updates) {
            Ok(configured) => configured,
            Err(failure) => {
                self.gate.failed(Protocol::Quic, remote, &failure);
                incoming.refuse();
                return;
            }
        };
        match incoming.accept_with(server) {
            Ok(connecting) => {
                let ends = Ends { peer: expected.peer, tls, remote, local: self.local, updates };
                self.handshakes.spawn_local(handshake(
                    connecting,
                    ends,
                    self.gate.clone(),
                    self.limit,
                    permit,
                ));
            }
            Err(error) => self.gate.failed(Protocol::Quic, remote, &failure(&error)),
        }
    }
}

fn let_in(
    expected: &crate::Expected,
    keys: &Keys,
    updates: &KeyUpdates,
) -> Result<(PeerTls, Arc<ServerConfig>), Failure> {
    let server = config::let_in(expected, keys, updates.clone())?;
    Ok((config::tls(expected)?.clone(), server))
}

/// The server's handshake is complete when the client has proven who it is.
async fn handshake(
    connecting: Connecting,
    ends: Ends,
    gate: Rc<dyn Gate>,
    limit: Duration,
    permit: Box<dyn Permit>,
) -> Option<Connection> {
    let remote = ends.remote;
    let failed = match timeout(limit, connecting).await {
        Ok(Ok(established)) => {
            return Some(Connection { permit: Some(permit), ..connection(established, ends, None) });
        }
        Ok(Err(error)) => failure(&error),
        Err(_) => Failure::TimedOut,
    };
    gate.failed(Protocol::Quic, remote, &failed);
    None
}

impl Listener for NoqListener {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn accept(&mut self) -> LocalFuture<'_, Result<Connection, Failure>> {
        Box::pin(self.next())
    }
}

impl Drop for NoqListener {
    fn drop(&mut self) {
        if self.turn != self.latest.turn.get() {
            return;
        }
        self.strays.decided_by(None);
        self.endpoint.set_server_config(Some(config::front(self.front.clone(), &self.keys, false)));
        // Whoever waits for a verdict.
        while let Poll::Ready(Some(incoming)) =
            pin!(self.endpoint.accept()).poll(&mut Context::from_waker(Waker::noop()))
        {
            incoming.refuse();
        }
    }
}
