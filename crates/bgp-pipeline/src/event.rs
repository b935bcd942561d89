//! What the pipeline tells its driver.

use std::net::IpAddr;

use holdfast_types::{Family, Prefix};

use crate::{Direction, PeerIndex, Slot};

/// Where a next hop stands in the RIB.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reachability {
    /// No route leads there.
    Unreachable,
    /// Reachable.
    Reachable {
        /// The interior cost.
        metric: u32,
    },
}

/// Something the driver acts on or reports. Read with [`crate::Pipeline::poll_event`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Ask the RIB about this address and keep asking: answer with [`crate::Pipeline::next_hop`].
    RegisterNextHop(IpAddr),
    /// No route uses the address any more.
    UnregisterNextHop(IpAddr),
    /// The peer has sent all it had (RFC 4724 section 2).
    EndOfRib {
        /// The sender.
        peer: PeerIndex,
        /// Of which family.
        family: Family,
    },
    /// The peer has been given the whole table, End-of-RIB included.
    Announced {
        /// The receiver.
        peer: PeerIndex,
        /// Of which family.
        family: Family,
    },
    /// A change of the peer's policy has reached every route that was there.
    PolicyApplied {
        /// Whose policy.
        peer: PeerIndex,
        /// Which.
        direction: Direction,
    },
    /// So many signatures of the peer were bad that no more of its are verified for now.
    TooManyBadSignatures {
        /// The sender.
        peer: PeerIndex,
    },
    /// A route fits no message to the peer, with its attributes, or there is no next hop for it: it is withdrawn. Said of the first
    /// one of a session.
    RouteTooLong {
        /// The receiver.
        peer: PeerIndex,
        /// The route.
        prefix: Prefix,
    },
    /// A stage that rewrites has answered with what cannot be a route's attributes; routes with them do not pass.
    BadAnswer {
        /// Its name.
        stage: &'static str,
        /// Where it sits.
        slot: Slot,
    },
    /// The peer reads so slowly that what it missed cannot be remembered: end its session
    /// (Cease/Out of Resources) and report [`crate::Pipeline::peer_down`].
    TooSlow {
        /// The receiver.
        peer: PeerIndex,
    },
}
