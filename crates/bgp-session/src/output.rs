//! What a session asks of its driver, and what it tells the operator.

use std::{fmt, io};

use holdfast_bgp_wire::{CeaseSubcode, Notification};
use holdfast_types::Family;

use crate::{ConnId, Negotiated, StopReason};

/// Something to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Dial the peer; answer with `Connected` or `ConnectFailed`.
    Connect(ConnId),
    /// Send what is queued, as far as the transport takes it at once, then close; for a connection
    /// still being dialled: give up. The peer has forgotten the connection.
    Close(ConnId),
    /// Queue these bytes, which are one message.
    Send(ConnId, Vec<u8>),
    /// The session is up on this connection. What the driver sends goes behind what is queued.
    Established(ConnId, Box<Negotiated>),
    /// The session is down; exactly once for each `Established`.
    Down {
        /// Why.
        reason: DownReason,
        /// Of these families what the peer has sent stays until [`Self::Forget`] (RFC 4724): it is said to come back. What
        /// had stayed of an earlier session does not.
        retained: Vec<Family>,
    },
    /// What stayed of an earlier session in a family stays on, as the last resort (RFC 9494).
    LongLived(Family),
    /// What stayed of an earlier session in a family is to go, if it did not come again.
    Forget(Family),
    /// What the peer has announced of a family is stale unless it comes again (RFC 7313 section 4).
    MarkStale(Family),
    /// What is still stale in the Established session goes.
    Sweep(Family),
    /// For the log.
    Log(SessionEvent),
}

/// Who dialled a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// We did.
    Outgoing,
    /// The peer did.
    Incoming,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Outgoing => "outgoing",
            Self::Incoming => "incoming",
        })
    }
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// We stopped it on demand.
    Stopped(StopReason),
    /// We found an error, or a timer expired, and said so to the peer.
    Sent(Notification),
    /// The peer said so.
    Received(Notification),
    /// The transport connection ended without a NOTIFICATION: closed by the peer, or broken.
    Lost(Option<io::ErrorKind>),
    /// BFD says that packets do not arrive, or did not come up in time: the peer is told so (RFC 9384).
    BfdDown,
    /// The peer restarted and is up again on another connection (RFC 4724 section 5).
    Replaced,
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(reason) => reason.fmt(f),
            Self::Sent(notification) => write!(f, "sent {notification}"),
            Self::Received(notification) => write!(f, "received {notification}"),
            Self::Lost(None) => f.write_str("connection closed by the peer"),
            Self::Lost(Some(error)) => write!(f, "connection lost: {error}"),
            Self::BfdDown => f.write_str("BFD is down"),
            Self::Replaced => f.write_str("the peer restarted and connected anew"),
        }
    }
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The session came up.
    Established(Role),
    /// The session went down.
    Down(DownReason),
    /// A connection ended before the session was up.
    OpenFailed(Role, DownReason),
    /// The session waits for BFD to come up, on this connection (draft-ietf-idr-bgp-bfd-strict-mode).
    AwaitsBfd(Role),
    /// The peer cannot be reached.
    ConnectFailed(String),
    /// The peer did not answer our dialling in time.
    ConnectTimedOut,
    /// Two connections met, or a newer one met the session: this one was closed (RFC 4271 section 6.8).
    CollisionLost(Role),
    /// A connection of the peer was not taken: the session is down and waits (Connection Rejected), or there are two already
    /// (Connection Collision Resolution).
    Refused(CeaseSubcode),
    /// The peer knows no capabilities: the next OPEN goes without (RFC 5492 section 3).
    WithoutCapabilities,
    /// The peer begins to announce a family again before it has announced it once: ignored (RFC 7313 section 4).
    RefreshTooEarly(Family),
    /// It does not come to an end with that: what it has not announced again goes.
    RefreshTooLong(Family),
}

impl fmt::Display for SessionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Established(role) => write!(f, "session up on the {role} connection"),
            Self::Down(reason) => write!(f, "session down: {reason}"),
            Self::OpenFailed(role, reason) => write!(f, "{role} connection failed to come up: {reason}"),
            Self::AwaitsBfd(role) => write!(f, "the session waits for BFD on the {role} connection"),
            Self::ConnectFailed(error) => write!(f, "connecting failed: {error}"),
            Self::ConnectTimedOut => f.write_str("connecting failed: no answer"),
            Self::CollisionLost(role) => write!(f, "{role} connection closed: the other one is kept"),
            Self::Refused(why) => {
                write!(f, "incoming connection refused: sent {}", Notification::cease(*why))
            }
            Self::RefreshTooEarly(family) => {
                write!(f, "a refresh of {family} begins before End-of-RIB: ignored")
            }
            Self::RefreshTooLong(family) => {
                write!(f, "a refresh of {family} has no end: what was not announced again goes")
            }
            Self::WithoutCapabilities => {
                f.write_str("the peer refuses optional parameters: trying without capabilities")
            }
        }
    }
}
