//! BGP Roles (RFC 9234 section 4): what one side of a session between two ASes is to the other.

use std::fmt;

/// What the local AS is in its relation with a neighbour.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum BgpRole {
    /// It sells transit to the neighbour.
    Provider,
    /// It is the route server of an Internet exchange, and the neighbour a client.
    RsServer,
    /// It is a client of the neighbour, a route server.
    RsClient,
    /// It buys transit from the neighbour.
    Customer,
    /// Both tell each other of their own and their customers' routes.
    Peer,
}

impl BgpRole {
    /// All roles, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Provider, Self::RsServer, Self::RsClient, Self::Customer, Self::Peer];

    /// The value of the capability (RFC 9234 section 4.1).
    pub fn octet(self) -> u8 {
        self as u8
    }

    /// The role with this value; `None` for one that is not assigned.
    pub fn from_octet(octet: u8) -> Option<Self> {
        Self::ALL.get(usize::from(octet)).copied()
    }

    /// The only role that the neighbour may have (RFC 9234 section 4.2).
    pub fn opposite(self) -> Self {
        match self {
            Self::Provider => Self::Customer,
            Self::Customer => Self::Provider,
            Self::RsServer => Self::RsClient,
            Self::RsClient => Self::RsServer,
            Self::Peer => Self::Peer,
        }
    }

    /// The word for it in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::RsServer => "rs-server",
            Self::RsClient => "rs-client",
            Self::Customer => "customer",
            Self::Peer => "peer",
        }
    }
}

impl fmt::Display for BgpRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
