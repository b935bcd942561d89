//! Peers, their keys, and the sockets opened for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
};

use holdfast_sys::{
    filter::{Instruction, set_filter},
    tcp::{IpVersion, set_md5, set_min_ttl, set_ttl},
};
use holdfast_types::Prefix;
use rustix::{io::Errno, net::Shutdown};
use tracing::{info, warn};

use crate::{
    SocketError,
    error::Step,
    filter,
    peer::{Peer, Secret, md5_peer},
    place::Place,
    socket::{self, GTSM_TTL},
};

/// Connections that the kernel completes before somebody accepts them, per listener.
pub const BACKLOG: i32 = 128;

/// Opens sockets for protocols.
///
/// It keeps a copy of every listener, so that a change of the configuration reaches its keys, and so
/// that a protocol that dies and comes back finds it still bound, with whoever has called meanwhile.
#[derive(Debug, Default)]
pub struct Opener {
    place: Place,
    peers: BTreeMap<String, Peer>,
    listeners: Vec<Listener>,
}

#[derive(Debug)]
struct Listener {
    address: SocketAddr,
    socket: OwnedFd,
    /// Those that the kernel has for it.
    keys: Keys,
    /// What the kernel has from whom nothing is taken; `None`: it has none.
    filter: Option<Vec<Instruction>>,
    /// Not for peers.
    plain: bool,
}

/// TCP-MD5 keys by whom they are for.
type Keys = BTreeMap<Prefix, Secret>;

impl Opener {
    /// Without peers; its sockets will be there.
    pub fn new(place: Place) -> Self {
        Self { place, ..Self::default() }
    }

    /// Replaces the peers, and the addresses where listeners may stay. Listeners get the new keys; when the kernel
    /// has no room for them all, nothing changes: without its key a peer would be taken unsigned.
    ///
    /// # Errors
    /// What the kernel refused.
    pub async fn configure(
        &mut self,
        peers: impl IntoIterator<Item = Peer>,
        listen: &[SocketAddr],
    ) -> Result<(), SocketError> {
        let peers = peers.into_iter().map(|peer| (peer.name.clone(), peer)).collect();
        for listener in self.listeners.iter().filter(|listener| listen.contains(&listener.address)) {
            listener.rehearse(&self.place, &peers).await?;
        }
        self.peers = peers;
        self.listeners.retain(|listener| listen.contains(&listener.address));
        let mut result = Ok(());
        for listener in &mut self.listeners {
            result = result.and(listener.prepare(&self.peers));
        }
        result
    }

    /// A socket that listens on the address, non-blocking, with the keys of all peers of its family; or a plain one,
    /// where no peers are expected. Asked again, the same socket.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn listen(&mut self, address: SocketAddr, plain: bool) -> Result<OwnedFd, SocketError> {
        self.follow();
        if let Some(listener) = self.listeners.iter().find(|it| (it.address, it.plain) == (address, plain)) {
            return listener.copy();
        }
        let socket = socket::bind(&self.place, address).await?;
        let mut listener = Listener { address, socket, keys: BTreeMap::new(), filter: None, plain };
        // Before anybody can connect: without its key a peer would be taken unsigned.
        listener.prepare(&self.peers)?;
        rustix::net::listen(&listener.socket, BACKLOG).step("listening")?;
        let copy = listener.copy()?;
        if address.port() != 0 {
            self.listeners.push(listener);
        }
        Ok(copy)
    }

    /// A UDP socket bound to the address, non-blocking. No copy is kept: it goes with who asked for it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn udp(&self, address: SocketAddr) -> Result<OwnedFd, SocketError> {
        socket::udp(&self.place, address).await
    }

    /// Ends the listeners at a device that has gone, or that was made again and has only its name in common with the one
    /// they are bound to. Whoever accepts at one is told `EINVAL` and may listen again.
    pub fn follow(&mut self) {
        let place = &self.place;
        for listener in self.listeners.extract_if(.., |listener| !place.still_has(&listener.socket)) {
            // It listens no more, however many copies there are.
            let ended = rustix::net::shutdown(&listener.socket, Shutdown::Read);
            info!(event = "listener-ended", address = %listener.address, ?ended, "the device is another one");
        }
    }

    /// A socket that is connecting to the peer, non-blocking: writable when it is connected or has failed
    /// (`SO_ERROR`). `neighbor` says which router is on the interface of a peer without address.
    ///
    /// # Errors
    /// When the peer is not known or a range, its neighbour is not, or the kernel refuses at once.
    pub async fn dial(
        &self,
        name: &str,
        neighbor: impl FnOnce(&str) -> Option<Ipv6Addr>,
    ) -> Result<OwnedFd, SocketError> {
        let peer = self.peers.get(name).ok_or_else(|| SocketError::UnknownPeer(name.to_owned()))?;
        let address = match (peer.address(), peer.neighbor_on()) {
            (Some(address), _) => address,
            (None, Some(link)) => {
                neighbor(link).ok_or_else(|| SocketError::NoNeighbor(link.to_owned()))?.into()
            }
            (None, None) => return Err(SocketError::Range(name.to_owned())),
        };
        socket::dial(&self.place, peer, address).await
    }

    /// The interfaces that peers are on.
    pub fn links(&self) -> impl Iterator<Item = &str> {
        self.peers.values().filter_map(|peer| peer.interface.as_deref())
    }

    /// The interfaces on which the neighbour is a peer without address.
    pub fn unnumbered(&self) -> impl Iterator<Item = &str> {
        self.peers.values().filter_map(Peer::neighbor_on)
    }
}

impl Listener {
    /// Gives it what the peers need.
    fn prepare(&mut self, peers: &BTreeMap<String, Peer>) -> Result<(), SocketError> {
        let wanted = self.keys_for(peers);
        set_keys(&self.socket, &mut self.keys, wanted)?;
        self.set_ttl(peers)?;
        if !self.plain {
            self.set_filter(peers);
        }
        Ok(())
    }

    /// Has the kernel answer peers only. Where it cannot, others are refused when they have come.
    fn set_filter(&mut self, peers: &BTreeMap<String, Peer>) {
        let networks: BTreeSet<Prefix> =
            peers.values().filter(|peer| self.serves(peer)).map(|peer| peer.network).collect();
        let program = filter::program(networks);
        let everybody = program.is_none();
        let program = program.unwrap_or_else(|| vec![Instruction::TAKE]);
        if self.filter.as_ref() == Some(&program) {
            return;
        }
        let set = set_filter(&self.socket, &program);
        let address = self.address;
        match set {
            Err(error) => {
                warn!(event = "filter-missing", %address, "the kernel answers others than peers, who are refused then: {error}");
            }
            Ok(()) if everybody => {
                warn!(event = "filter-missing", %address, "the kernel answers others than peers, who are refused then: there are too many peers for a filter");
            }
            Ok(()) => {}
        }
        // What it does not take now it does not take again either.
        self.filter = Some(program);
    }

    /// Tries on another socket whether the kernel takes all the keys.
    async fn rehearse(&self, place: &Place, peers: &BTreeMap<String, Peer>) -> Result<(), SocketError> {
        let wanted = self.keys_for(peers);
        if wanted == self.keys {
            return Ok(());
        }
        set_keys(&socket::open(place, self.address.ip()).await?, &mut Keys::new(), wanted)
    }

    fn keys_for(&self, peers: &BTreeMap<String, Peer>) -> Keys {
        let served = peers.values().filter(|peer| self.serves(peer));
        served.filter_map(|peer| Some((peer.network, peer.md5.clone()?))).collect()
    }

    /// RFC 5082 section 3: the answer to a connection must have TTL 255 as well. Less is refused here only
    /// when every peer of the family is a neighbour.
    fn set_ttl(&self, peers: &BTreeMap<String, Peer>) -> Result<(), SocketError> {
        let version = IpVersion::of(self.address.ip());
        let mut served = peers.values().filter(|peer| self.serves(peer)).peekable();
        let minimum = if served.peek().is_some() && served.clone().all(|peer| peer.ttl_security) {
            GTSM_TTL
        } else {
            0
        };
        if served.any(|peer| peer.ttl_security) {
            set_ttl(&self.socket, version, GTSM_TTL).step("setting the TTL")?;
        }
        set_min_ttl(&self.socket, version, minimum).step("setting the minimum TTL")
    }

    fn serves(&self, peer: &Peer) -> bool {
        !self.plain && self.address.is_ipv4() == peer.network.address().is_ipv4()
    }

    fn copy(&self) -> Result<OwnedFd, SocketError> {
        self.socket.try_clone().step("copying the descriptor")
    }
}

/// Tells the kernel what differs from the keys that a socket has: each costs it a search among all.
fn set_keys(socket: &OwnedFd, present: &mut Keys, wanted: Keys) -> Result<(), SocketError> {
    // What cannot be taken away is tried again next time.
    present.retain(|network, _| {
        wanted.contains_key(network) || set_md5(socket, md5_peer(*network), &[]).is_err()
    });
    let count = wanted.len();
    for (network, key) in wanted {
        if present.get(&network) != Some(&key) {
            socket::key_for(socket, md5_peer(network), &key).map_err(|error| match error {
                SocketError::Refused { source, .. } if is_no_room(&source) => {
                    SocketError::TooManyKeys { network, set: present.len(), wanted: count }
                }
                error => error,
            })?;
            present.insert(network, key);
        }
    }
    Ok(())
}

fn is_no_room(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOMEM.raw_os_error())
}
