//! Opens the sockets under protocols, with the keys and hop limits that the configuration asks for.
//!
//! An [`Opener`] knows the peers and their secrets, opens listeners and dialled connections, and hands them out as
//! descriptors; [`SocketService`] serves it as `socket.v1`, in whichever process stands at the door. Where its sockets
//! are is its [`Place`]: each VRF has an opener of its own. The protocol that gets a descriptor never sees a secret and
//! needs no rights. Nothing here reads or writes a connection, and nothing waits but for the first configuration: a dialled
//! socket is still connecting when it is handed out.
//!
//! A peer without address is whoever is the router on its interface, as router advertisements say (RFC 4861):
//! [`SocketService::discovery`] hears and sends those, where there are such peers.
//!
//! A listener for peers answers nobody else: the kernel drops what comes from where nobody is expected, and what should be of
//! a neighbour and has passed a router (GTSM, RFC 5082), before there is anything of it ([`filter`]).
//!
//! Listeners are in the keeper's custody as well ([`FdStore`]), so that an address answers at all times, whoever of those who
//! open, accept and serve is dead.
//!
//! Routing protocols get sockets for datagrams ([`datagrams`]), and have their raw IP packets relayed ([`relay`]). Processes
//! of the router get UDP sockets at ports of their descriptors ([`ports`]).
//!
//! Two duties are left to whoever takes what comes in, and need no rights: the minimum TTL of an accepted connection
//! ([`set_min_ttl`](holdfast_sys::tcp::set_min_ttl)), which is no filter's, since sockets keep that of their listener for
//! ever; and the filter of a UDP socket, which follows the configuration, and no copy of the socket is kept here. The TTL sent
//! is already right.

mod custody;
mod datagrams;
mod discovery;
mod error;
pub mod filter;
mod icmp;
mod neighbors;
mod opener;
mod peer;
mod place;
mod ports;
mod raw;
mod relay;
mod service;
pub mod settings;
mod socket;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_sockets;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use custody::FdStore;
pub use error::SocketError;
pub use opener::{BACKLOG, Opener};
pub use peer::{Peer, PeerError, Secret};
pub use place::Place;
pub use raw::{LONGEST_PACKET, Link, MOST_OCTETS, MOST_PACKETS};
pub use relay::{Counts, MOST_READERS, ROOM};
pub use service::SocketService;

/// Where BGP listens (RFC 4271 section 8.2.1).
pub const BGP_PORT: u16 = 179;
