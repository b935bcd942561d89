//! Peers, their keys, and the sockets opened for them.

use std::{collections::BTreeMap, net::SocketAddr, os::fd::OwnedFd};

use holdfast_sys::tcp::{IpVersion, set_md5, set_min_ttl, set_ttl};

use crate::{
    TransportError,
    error::Step,
    peer::Peer,
    socket::{self, GTSM_TTL},
};

/// Connections that the kernel completes before somebody accepts them, per listener.
pub const BACKLOG: i32 = 128;

/// Opens sockets for protocols.
///
/// It keeps a copy of every listener, so that a change of the configuration reaches its keys, and so
/// that a protocol that dies and comes back finds it still bound, with whoever has called meanwhile.
#[derive(Debug, Default)]
pub struct Door {
    peers: BTreeMap<String, Peer>,
    listeners: Vec<Listener>,
}

#[derive(Debug)]
struct Listener {
    address: SocketAddr,
    socket: OwnedFd,
}

impl Door {
    /// Without peers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the peers. Listeners get the new keys; without any peer they are closed.
    ///
    /// # Errors
    /// The first key that the kernel refused for a listener; the others are set.
    pub fn configure(&mut self, peers: impl IntoIterator<Item = Peer>) -> Result<(), TransportError> {
        let peers = peers.into_iter().map(|peer| (peer.name.clone(), peer)).collect();
        let before = std::mem::replace(&mut self.peers, peers);
        if self.peers.is_empty() {
            self.listeners.clear();
        }
        for listener in &self.listeners {
            let gone = before.values().filter(|peer| peer.md5.is_some() && !self.has_key_for(peer));
            for peer in gone.filter(|peer| listener.serves(peer)) {
                // Refused only when the listener has no such key.
                let _ = set_md5(&listener.socket, peer.md5_peer(), &[]);
            }
        }
        let results: Vec<_> = self.listeners.iter().map(|listener| self.prepare(listener)).collect();
        results.into_iter().collect()
    }

    /// A socket that listens on the address, non-blocking, with the keys of all peers of its family. Asked
    /// again, the same socket.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn listen(&mut self, address: SocketAddr) -> Result<OwnedFd, TransportError> {
        if let Some(listener) = self.listeners.iter().find(|listener| listener.address == address) {
            return listener.copy();
        }
        let listener = Listener { address, socket: socket::listen(address, BACKLOG)? };
        self.prepare(&listener)?;
        let copy = listener.copy()?;
        if address.port() != 0 {
            self.listeners.push(listener);
        }
        Ok(copy)
    }

    /// A socket that is connecting to the peer, non-blocking: writable when it is connected or has failed
    /// (`SO_ERROR`).
    ///
    /// # Errors
    /// When the peer is not known or a range, or the kernel refuses at once.
    pub fn dial(&self, name: &str) -> Result<OwnedFd, TransportError> {
        let peer = self.peers.get(name).ok_or_else(|| TransportError::UnknownPeer(name.to_owned()))?;
        let address = peer.address().ok_or_else(|| TransportError::Range(name.to_owned()))?;
        socket::dial(peer, address)
    }

    fn has_key_for(&self, other: &Peer) -> bool {
        self.peers.values().any(|peer| peer.md5.is_some() && peer.network == other.network)
    }

    /// Sets what the peers need on a listener.
    fn prepare(&self, listener: &Listener) -> Result<(), TransportError> {
        let mut result = Ok(());
        for peer in self.peers.values().filter(|peer| listener.serves(peer)) {
            if let Some(key) = &peer.md5 {
                result = result.and(socket::key_for(&listener.socket, peer.md5_peer(), key));
            }
        }
        result.and(self.set_ttl(listener))
    }

    /// RFC 5082 section 3: the answer to a connection must have TTL 255 as well. Less is refused here only
    /// when every peer of the family is a neighbour.
    fn set_ttl(&self, listener: &Listener) -> Result<(), TransportError> {
        let version = IpVersion::of(listener.address.ip());
        let mut served = self.peers.values().filter(|peer| listener.serves(peer)).peekable();
        let minimum = if served.peek().is_some() && served.clone().all(|peer| peer.ttl_security) {
            GTSM_TTL
        } else {
            0
        };
        if served.any(|peer| peer.ttl_security) {
            set_ttl(&listener.socket, version, GTSM_TTL).step("setting the TTL")?;
        }
        set_min_ttl(&listener.socket, version, minimum).step("setting the minimum TTL")
    }
}

impl Listener {
    fn serves(&self, peer: &Peer) -> bool {
        self.address.is_ipv4() == peer.network.address().is_ipv4()
    }

    fn copy(&self) -> Result<OwnedFd, TransportError> {
        self.socket.try_clone().step("copying the descriptor")
    }
}
