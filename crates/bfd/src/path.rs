//! Between which places a session checks the forwarding.

use std::net::IpAddr;

/// How far away the neighbour is.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hops {
    /// On the same link: UDP port 3784, TTL 255 (RFC 5881).
    Single,
    /// Behind other routers: UDP port 4784 (RFC 5883).
    Multiple,
}

impl Hops {
    /// The UDP port that packets are sent to.
    pub fn port(self) -> u16 {
        match self {
            Self::Single => 3784,
            Self::Multiple => 4784,
        }
    }
}

/// What a session is about. There is one session for a path.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Path {
    /// The neighbour.
    pub remote: IpAddr,
    /// Our address; `None`: any.
    pub local: Option<IpAddr>,
    /// The kernel's number of the interface; `None`: any.
    pub interface: Option<u32>,
    /// How far it is.
    pub hops: Hops,
}

impl Path {
    /// Whether a packet that came this way, without our discriminator, is one of this path.
    pub(crate) fn fits(&self, destination: Option<IpAddr>, interface: Option<u32>) -> bool {
        let same_interface = self.interface.is_none_or(|own| interface.is_none_or(|other| own == other));
        let same_address = self.local.is_none_or(|own| destination.is_none_or(|other| own == other));
        same_interface && same_address
    }
}
