//! Peers, their keys, and the sockets opened for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
};

use holdfast_sys::{
    repair::{self, Agreed},
    tcp::{IpVersion, set_md5, set_ttl},
};
use holdfast_types::Prefix;
use holdfast_xrl::XrlError;
use rustix::{
    io::Errno,
    net::{Shutdown, sockopt},
};
use tracing::{info, warn};

use crate::{
    SocketError,
    custody::{FdStore, Left, Listening},
    datagrams::Datagrams,
    error::Step,
    filter::{Filter, FilteredPeer, GTSM_TTL},
    peer::{Peer, Secret, md5_peer},
    place::Place,
    ports::Granted,
    socket,
};

/// Connections that the kernel completes before somebody accepts them, per listener: as many as a large listen range brings
/// in a moment. Where there is no room the SYN of any peer is dropped, and comes again after a second.
pub const BACKLOG: i32 = 1024;

/// Opens sockets for protocols.
///
/// It keeps a copy of every listener, so that a change of the configuration reaches its keys, and so
/// that a protocol that dies and comes back finds it still bound, with whoever has called meanwhile. The keeper has
/// another, if there is a [`FdStore`]: so the opener that comes after this one finds it, too.
#[derive(Default)]
pub struct Opener {
    place: Place,
    custody: Option<FdStore>,
    known: Known,
    listeners: Vec<Listener>,
}

/// Who is configured.
#[derive(Debug, Default)]
struct Known {
    peers: BTreeMap<String, Peer>,
    /// Networks whose connections are taken to be refused.
    heard: Vec<Prefix>,
}

struct Listener {
    address: SocketAddr,
    socket: OwnedFd,
    /// Those that the kernel has for it; `None`: one that is not known.
    keys: Keys,
    /// The keeper has it, and a note that it may have keys for these networks.
    noted: Option<BTreeSet<Prefix>>,
    /// What the kernel was told to drop; `None`: nothing yet.
    filter: Option<Filter>,
    /// Not for peers.
    plain: bool,
}

/// TCP-MD5 keys by whom they are for.
type Keys = BTreeMap<Prefix, Option<Secret>>;

impl Opener {
    /// Without peers; its sockets will be there. What listens is in this custody, if one is given.
    pub fn new(place: Place, custody: Option<FdStore>) -> Self {
        Self { place, custody, ..Self::default() }
    }

    /// Replaces the peers, the networks that are heard without being peers, and the addresses where listeners may stay, each
    /// with whether it is a plain one.
    /// Listeners get the new keys; when the kernel has no room for them all, nothing changes: without its key a peer would
    /// be taken unsigned.
    ///
    /// # Errors
    /// What the kernel refused, or the keeper.
    pub async fn configure(
        &mut self,
        peers: impl IntoIterator<Item = Peer>,
        heard: Vec<Prefix>,
        listen: &BTreeSet<(SocketAddr, bool)>,
    ) -> Result<(), SocketError> {
        self.known = self.rehearse(peers, heard, listen).await?;
        self.listeners.retain(|listener| listen.contains(&listener.place()));
        if let Some(custody) = &self.custody {
            // Those of an earlier opener, too.
            custody.keep_only(listen).await.map_err(by_keeper)?;
        }
        let mut result = Ok(());
        for listener in &mut self.listeners {
            result = result.and(listener.prepare(&self.known, self.custody.as_ref()).await);
        }
        result
    }

    /// Whether [`configure`](Self::configure) could do this; nothing changes.
    ///
    /// # Errors
    /// What the kernel refused.
    pub async fn try_out(
        &self,
        peers: impl IntoIterator<Item = Peer>,
        heard: Vec<Prefix>,
        listen: &BTreeSet<(SocketAddr, bool)>,
    ) -> Result<(), SocketError> {
        self.rehearse(peers, heard, listen).await.map(drop)
    }

    /// What would be known, if the kernel has room for the keys at each listener that stays.
    async fn rehearse(
        &self,
        peers: impl IntoIterator<Item = Peer>,
        heard: Vec<Prefix>,
        listen: &BTreeSet<(SocketAddr, bool)>,
    ) -> Result<Known, SocketError> {
        let peers = peers.into_iter().map(|peer| (peer.name.clone(), peer)).collect();
        let known = Known { peers, heard };
        for listener in self.listeners.iter().filter(|listener| listen.contains(&listener.place())) {
            listener.rehearse(&self.place, &known).await?;
        }
        Ok(known)
    }

    /// A socket that listens on the address, non-blocking, with the keys of all peers of its family; or a plain one,
    /// where no peers are expected. Asked again, the same socket, also of the opener after this one.
    ///
    /// # Errors
    /// When the kernel refuses, or the keeper cannot be asked.
    pub async fn listen(&mut self, address: SocketAddr, plain: bool) -> Result<OwnedFd, SocketError> {
        self.follow().await;
        let place = (address, plain);
        if let Some(listener) = self.listeners.iter().find(|listener| listener.place() == place) {
            return listener.copy();
        }
        let mut listener = match self.left(place).await? {
            Some(Left { socket, keyed }) => {
                let keys = keyed.iter().map(|network| (*network, None)).collect();
                Listener { address, socket, keys, noted: Some(keyed), filter: None, plain }
            }
            None => {
                let socket = socket::bind(&self.place, address).await?;
                Listener { address, socket, keys: BTreeMap::new(), noted: None, filter: None, plain }
            }
        };
        let custody = self.custody.as_ref().filter(|_| address.port() != 0);
        // Before anybody can connect: without its key a peer would be taken unsigned.
        listener.prepare(&self.known, custody).await?;
        rustix::net::listen(&listener.socket, BACKLOG).step("listening")?;
        let copy = listener.copy()?;
        if address.port() != 0 {
            self.listeners.push(listener);
        }
        Ok(copy)
    }

    /// What an earlier opener has left in custody, if it can still be used.
    async fn left(&self, place: Listening) -> Result<Option<Left>, SocketError> {
        let Some(custody) = &self.custody else { return Ok(None) };
        let Some(left) = custody.take(place).await.map_err(by_keeper)? else { return Ok(None) };
        // One that was ended, or does not listen yet, would keep the next from the address.
        let listens = sockopt::socket_acceptconn(&left.socket).unwrap_or(false);
        if listens && self.place.has(&left.socket, place.0.ip()).await? {
            return Ok(Some(left));
        }
        let _ = rustix::net::shutdown(&left.socket, Shutdown::Read);
        custody.forget(place).await.map_err(by_keeper)?;
        Ok(None)
    }

    /// A UDP socket bound to the address, non-blocking. No copy is kept: it goes with who asked for it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn udp(&self, address: SocketAddr) -> Result<OwnedFd, SocketError> {
        socket::udp(&self.place, address).await
    }

    /// A UDP socket of a routing protocol on an interface.
    ///
    /// # Errors
    /// When the interface is not there, and when the kernel refuses.
    pub(crate) async fn group(&self, interface: &str, datagrams: &Datagrams) -> Result<OwnedFd, SocketError> {
        socket::group(&self.place, interface, datagrams).await
    }

    /// A UDP socket at a port of all addresses.
    ///
    /// # Errors
    /// When somebody else has the port, and when the kernel refuses.
    pub(crate) async fn port(&self, granted: Granted) -> Result<OwnedFd, SocketError> {
        socket::port(&self.place, granted).await
    }

    /// Ends the listeners at a device that has gone, or that was made again and has only its name in common with the one
    /// they are bound to. Whoever accepts at one is told `EINVAL` and may listen again.
    pub async fn follow(&mut self) {
        let place = &self.place;
        let gone: Vec<_> =
            self.listeners.extract_if(.., |listener| !place.still_has(&listener.socket)).collect();
        for listener in gone {
            // It listens no more, however many copies there are.
            let ended = rustix::net::shutdown(&listener.socket, Shutdown::Read);
            info!(event = "listener-ended", address = %listener.address, ?ended, "the device is another one");
            if let Some(custody) = &self.custody {
                // One that has stayed is known by that it does not listen.
                let _ = custody.forget(listener.place()).await;
            }
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
        let peer = self.known.peers.get(name).ok_or_else(|| SocketError::UnknownPeer(name.to_owned()))?;
        let address = match (peer.address(), peer.neighbor_on()) {
            (Some(address), _) => address,
            (None, Some(link)) => {
                neighbor(link).ok_or_else(|| SocketError::NoNeighbor(link.to_owned()))?.into()
            }
            (None, None) => return Err(SocketError::Range(name.to_owned())),
        };
        socket::dial(&self.place, peer, address).await
    }

    /// Gives the socket of a connection with the peer the key and the TTLs that it would be made with now.
    ///
    /// # Errors
    /// When the peer is not known, or the kernel refuses.
    pub fn refit(&self, name: &str, socket: &OwnedFd) -> Result<(), SocketError> {
        let peer = self.known.peers.get(name).ok_or_else(|| SocketError::UnknownPeer(name.to_owned()))?;
        socket::refit(peer, socket)
    }

    /// A connection with a configured peer, made again as another router has left it. It says nothing before it is
    /// [released](repair::release).
    ///
    /// # Errors
    /// When nobody at this address is configured, or the kernel refuses.
    pub async fn restore(&self, at: &repair::Place, agreed: &Agreed) -> Result<OwnedFd, SocketError> {
        let remote = at.remote.ip();
        let is_link_local = matches!(remote, IpAddr::V6(address) if address.is_unicast_link_local());
        if is_link_local {
            return Err(SocketError::LinkLocal(remote));
        }
        let peers = self.known.peers.values().filter(|peer| peer.network.contains_address(remote));
        // A peer of its own comes before the range that it is in.
        let peer = peers.max_by_key(|peer| peer.network.length());
        let peer = peer.ok_or_else(|| SocketError::UnknownPeer(remote.to_string()))?;
        socket::restore(&self.place, peer, at, agreed).await
    }

    /// The interfaces that peers are on.
    pub fn links(&self) -> impl Iterator<Item = &str> {
        self.known.peers.values().filter_map(|peer| peer.interface.as_deref().or(peer.link.as_deref()))
    }

    /// The interfaces on which the neighbour is a peer without address.
    pub fn unnumbered(&self) -> impl Iterator<Item = &str> {
        self.known.peers.values().filter_map(Peer::neighbor_on)
    }
}

impl Listener {
    fn place(&self) -> Listening {
        (self.address, self.plain)
    }

    /// Gives it what the peers need.
    async fn prepare(&mut self, known: &Known, custody: Option<&FdStore>) -> Result<(), SocketError> {
        let wanted = self.keys_for(known);
        if let Some(custody) = custody {
            self.note(&wanted, custody).await;
        }
        set_keys(&self.socket, &mut self.keys, wanted)?;
        // RFC 5082 section 3: the answer to a connection must have TTL 255 as well.
        if self.served(known).any(|peer| peer.ttl_security) {
            set_ttl(&self.socket, self.version(), GTSM_TTL).step("setting the TTL")?;
        }
        if !self.plain {
            self.set_filter(known);
        }
        Ok(())
    }

    /// Has the keeper know for whom it may have keys. Without custody it listens all the same, as long as this process lives.
    async fn note(&mut self, wanted: &Keys, custody: &FdStore) {
        let networks = self.keys.keys().chain(wanted.keys()).copied().collect();
        if self.noted.as_ref() == Some(&networks) {
            return;
        }
        let kept = match self.copy() {
            Ok(copy) => custody.keep(self.place(), copy, &networks).await.map_err(by_keeper),
            Err(error) => Err(error),
        };
        self.noted = Some(networks).filter(|_| kept.is_ok());
        if let Err(error) = kept {
            // The note before says too little.
            let _ = custody.forget(self.place()).await;
            let address = self.address;
            warn!(event = "listener-not-kept", %address, "it will not outlive this process: {error}");
        }
    }

    /// Has the kernel answer nobody who is not expected. Where it cannot, they are refused when they have come.
    fn set_filter(&mut self, known: &Known) {
        let peers = self
            .served(known)
            .map(|peer| FilteredPeer { network: peer.network, ttl_security: peer.ttl_security });
        let filter = Filter::listener(self.version(), peers, known.heard.iter().copied());
        if self.filter.as_ref() == Some(&filter) {
            return;
        }
        if let Err(error) = filter.attach(&self.socket) {
            let address = self.address;
            warn!(event = "filter-missing", %address, "the kernel answers others than peers, who are refused then: {error}");
        }
        // What it does not take now it does not take again either.
        self.filter = Some(filter);
    }

    /// Tries on another socket whether the kernel takes all the keys.
    async fn rehearse(&self, place: &Place, known: &Known) -> Result<(), SocketError> {
        let wanted = self.keys_for(known);
        if wanted == self.keys {
            return Ok(());
        }
        set_keys(&socket::open(place, self.address.ip()).await?, &mut Keys::new(), wanted)
    }

    fn keys_for(&self, known: &Known) -> Keys {
        self.served(known).filter_map(|peer| Some((peer.network, Some(peer.md5.clone()?)))).collect()
    }

    /// Peers that may come there.
    fn served<'a>(&self, known: &'a Known) -> impl Iterator<Item = &'a Peer> + use<'a, '_> {
        known.peers.values().filter(|peer| self.serves(peer))
    }

    fn version(&self) -> IpVersion {
        IpVersion::of(self.address.ip())
    }

    fn serves(&self, peer: &Peer) -> bool {
        !self.plain && !peer.only_dialled && self.address.is_ipv4() == peer.network.address().is_ipv4()
    }

    fn copy(&self) -> Result<OwnedFd, SocketError> {
        self.socket.try_clone().step("copying the descriptor")
    }
}

/// Tells the kernel what differs from the keys that a socket has: each costs it a search among all.
fn set_keys(socket: &OwnedFd, present: &mut Keys, wanted: Keys) -> Result<(), SocketError> {
    // What cannot be taken away is tried again next time; a key that is not known may not be there.
    present.retain(|network, _| {
        let is_there = |error: std::io::Error| Errno::from_io_error(&error) != Some(Errno::NOENT);
        wanted.contains_key(network) || set_md5(socket, md5_peer(*network), &[]).is_err_and(is_there)
    });
    let count = wanted.len();
    for (network, wanted) in wanted {
        if let Some(key) = &wanted
            && present.get(&network) != Some(&wanted)
        {
            socket::key_for(socket, md5_peer(network), key).map_err(|error| match error {
                SocketError::Refused { source, .. } if is_no_room(&source) => {
                    SocketError::TooManyKeys { network, set: present.len(), wanted: count }
                }
                error => error,
            })?;
            present.insert(network, wanted);
        }
    }
    Ok(())
}

fn by_keeper(error: XrlError) -> SocketError {
    SocketError::Keeper(error.message().to_owned())
}

fn is_no_room(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOMEM.raw_os_error())
}
