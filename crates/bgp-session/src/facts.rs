//! What an operator wants to know of a session.

use std::{fmt, time::Instant};

use holdfast_bgp_wire::{MessageType, Notification};

use crate::{DownReason, SessionEvent};

/// The states of RFC 4271 section 8.2.2. A peer with two connections is in the later of their states.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Stopped, or held after a failure: nothing is tried and nobody let in.
    Idle,
    /// Dialling.
    Connect,
    /// Waiting for the peer to connect, or for the next time to dial.
    Active,
    /// Our OPEN is sent, the peer's is awaited.
    OpenSent,
    /// Both OPENs are good; the peer's first KEEPALIVE is awaited.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Idle => "Idle",
            Self::Connect => "Connect",
            Self::Active => "Active",
            Self::OpenSent => "OpenSent",
            Self::OpenConfirm => "OpenConfirm",
            Self::Established => "Established",
        })
    }
}

/// A NOTIFICATION and when it went by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// When.
    pub at: Instant,
    /// What it said.
    pub notification: Notification,
}

/// What happened to a peer since it was configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The present state.
    pub state: State,
    /// Since when it is the state.
    pub since: Instant,
    /// How often the session came up.
    pub established: u64,
    /// The last NOTIFICATION we sent.
    pub last_sent: Option<Noted>,
    /// The last NOTIFICATION we received.
    pub last_received: Option<Noted>,
    /// When and why the session went down last.
    pub last_down: Option<(Instant, DownReason)>,
    /// When and why an attempt to bring the session up failed last.
    pub last_failed: Option<(Instant, SessionEvent)>,
}

impl History {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            state: State::Idle,
            since: now,
            established: 0,
            last_sent: None,
            last_received: None,
            last_down: None,
            last_failed: None,
        }
    }

    pub(crate) fn enter(&mut self, state: State, now: Instant) {
        if self.state != state {
            self.state = state;
            self.since = now;
        }
    }
}

/// Messages by type.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Messages(pub(crate) [u64; 5]);

impl Messages {
    /// How many of this type.
    pub fn of(&self, kind: MessageType) -> u64 {
        self.0[index(kind)]
    }

    /// How many in all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// How many of each type, in the order of the types' numbers.
    pub fn by_type(&self) -> [u64; 5] {
        self.0
    }

    /// So many more of a type.
    pub fn add(&mut self, kind: MessageType, count: u64) {
        self.0[index(kind)] += count;
    }
}

fn index(kind: MessageType) -> usize {
    match kind {
        MessageType::Open => 0,
        MessageType::Update => 1,
        MessageType::Notification => 2,
        MessageType::KeepAlive => 3,
        MessageType::RouteRefresh => 4,
    }
}

/// Messages of all connections of a peer since it was configured.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sent by us.
    pub sent: Messages,
    /// Received from the peer.
    pub received: Messages,
}
