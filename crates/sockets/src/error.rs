//! Why a socket could not be had.

use std::{io, net::IpAddr};

use holdfast_types::Prefix;

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The caller asks for a peer that is not configured.
    #[error("no peer `{0}` is configured")]
    UnknownPeer(String),
    /// A listen range cannot be dialled.
    #[error("peer `{0}` is a listen range: it has no address to dial")]
    Range(String),
    /// Which interface it was on is not known.
    #[error("the connection with {0} cannot be made again: its address is link-local")]
    LinkLocal(IpAddr),
    /// The interface of a link-local address does not exist (now).
    #[error("there is no interface `{name}`: {source}")]
    NoInterface {
        /// As configured.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A socket in a network namespace could not be made, as the keeper says.
    #[error("{0}")]
    Keeper(String),
    /// A peer without address whose interface has no neighbour yet.
    #[error("no neighbour heard on {0} yet")]
    NoNeighbor(String),
    /// The kernel keeps so many octets of options for a socket and no more.
    #[error(
        "the kernel has room for {set} of the {wanted} MD5 keys of a listener, and none for that of {network}: raise the \
         sysctl net.core.optmem_max, in proportion"
    )]
    TooManyKeys {
        /// Whose key was the first without room.
        network: Prefix,
        /// Keys that the listener has.
        set: usize,
        /// Keys that it needs.
        wanted: usize,
    },
    /// Somebody outside of the router has a port that one of its processes needs.
    #[error(
        "UDP port {0} is in use: another daemon of the same protocol may be running, as `ss -ulnp sport = :{0}` shows"
    )]
    PortInUse(u16),
    /// No port was free of all that were tried.
    #[error("no UDP port from 49152 to 65535 was free in {0} attempts")]
    NoFreePort(u32),
    /// The kernel refused a step.
    #[error("{step}: {source}")]
    Refused {
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Says which step the kernel refused.
pub(crate) trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, SocketError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T, SocketError> {
        self.map_err(|error| SocketError::Refused { step, source: error.into() })
    }
}
