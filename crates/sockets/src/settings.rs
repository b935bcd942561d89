//! What a configuration says to whoever opens the sockets under protocols.

mod packets;

use std::net::{IpAddr, SocketAddr};

use holdfast_api::{socket::v1 as api, transport::v1 as transport_api};
use holdfast_config::{
    Config,
    schema::{Bgp, Bmp, Cache, Peer, PeerAsn, Remote, Store, Vrf},
};
use holdfast_types::octets;

/// What is said for a table, without ports: those only the manager knows. Collectors,
/// caches and stores are dialled, and are nobody who is let in.
pub fn configuration(config: &Config, table: Option<&Vrf>) -> api::Configuration {
    let vrf = table.map(|vrf| vrf.name.as_str());
    let peers = config.peers(table).map(|peer| self::peer(peer, config));
    let collectors = config.bgp.iter().filter(|_| table.is_none()).flat_map(|bgp| &bgp.bmp);
    let is_ours = |process: &str| config.protocols.iter().all(|protocol| protocol.name != process);
    api::Configuration {
        peers: peers
            .chain(collectors.map(collector))
            .chain(config.caches(table).iter().map(cache))
            .chain(config.store_servers(table).into_iter().flat_map(store))
            .collect(),
        listen: listen(config, table),
        heard: heard(config),
        datagrams: packets::datagrams(config.routing(table), vrf),
        raw: packets::raw(config.routing(table), vrf, is_ours),
        ports: Vec::new(),
    }
}

/// Where somebody listens in a table, and for whom.
pub fn listen(config: &Config, table: Option<&Vrf>) -> Vec<api::ListenRequest> {
    let mut listen: Vec<_> = config.bgp.iter().flat_map(|bgp| listeners(bgp, table)).collect();
    if table.is_none() {
        let metrics = config.metrics.iter().map(|metrics| (metrics.listen, "metrics"));
        let glass = config.glass.iter().map(|glass| (glass.listen, "glass"));
        let xrl = config.xrl.listen.iter().map(|address| (*address, "manager"));
        let others = metrics.chain(glass).chain(xrl);
        listen.extend(others.map(|(address, role)| plain_listener(address, role)));
    }
    listen
}

/// What is asked for to listen where no peers are expected, and who may.
pub fn plain_listener(address: SocketAddr, role: &str) -> api::ListenRequest {
    api::ListenRequest {
        address: octets(address.ip()),
        afi: if address.is_ipv4() { 1 } else { 2 },
        port: address.port().into(),
        plain: true,
        role: role.into(),
    }
}

/// The same request for `transport`.
pub fn of_transport(request: api::ListenRequest) -> transport_api::ListenRequest {
    let api::ListenRequest { address, afi, port, plain, role } = request;
    transport_api::ListenRequest { address, afi, port, plain, role }
}

/// Where BGP listens: the addresses that are configured are those of the default table.
fn listeners(bgp: &Bgp, table: Option<&Vrf>) -> Vec<api::ListenRequest> {
    let listener = |address: Vec<u8>, afi| api::ListenRequest {
        address,
        afi,
        port: bgp.port.into(),
        ..api::ListenRequest::default()
    };
    if bgp.listen.is_empty() || table.is_some() {
        return [1, 2].map(|afi| listener(Vec::new(), afi)).into();
    }
    let at = |&address: &IpAddr| listener(octets(address), if address.is_ipv4() { 1 } else { 2 });
    bgp.listen.iter().map(at).collect()
}

/// The sockets to a peer.
pub fn peer(peer: &Peer, config: &Config) -> api::Peer {
    let (address, range_length, interface) = match &peer.remote {
        Remote::Address(address) | Remote::OnLink(address, _) => (octets(*address), None, String::new()),
        Remote::LinkLocal(address, interface) => (address.octets().to_vec(), None, interface.clone()),
        Remote::Interface(interface) => (Vec::new(), None, interface.clone()),
        Remote::Range(prefix) => (octets(prefix.address()), Some(prefix.length()), String::new()),
    };
    api::Peer {
        name: peer.name.clone(),
        address,
        is_range: range_length.is_some(),
        range_length: range_length.unwrap_or(0).into(),
        port: peer.rules.port.into(),
        local_address: peer.local_address.map(octets).unwrap_or_default(),
        interface,
        md5: peer.md5.as_ref().map(|key| key.expose().as_bytes().to_vec()).unwrap_or_default(),
        ttl_security: peer.rules.ttl_security,
        ttl: ttl(peer, config),
        only_dialled: false,
        link: match &peer.remote {
            Remote::OnLink(_, interface) => interface.clone(),
            Remote::Address(_) | Remote::LinkLocal(..) | Remote::Interface(_) | Remote::Range(_) => {
                String::new()
            }
        },
    }
}

/// What we send with: 1 to a neighbour of another AS, the kernel's choice inside our own.
fn ttl(peer: &Peer, config: &Config) -> u32 {
    match (peer.rules.multihop, &peer.asn) {
        (Some(ttl), _) => ttl.into(),
        (None, PeerAsn::One(asn)) if *asn == config.router.asn => 0,
        (None, _) => 1,
    }
}

fn collector(bmp: &Bmp) -> api::Peer {
    api::Peer {
        name: bmp.peer_name(),
        address: octets(bmp.address),
        port: bmp.port.into(),
        only_dialled: true,
        ..api::Peer::default()
    }
}

/// The bare socket to a cache.
pub fn cache(cache: &Cache) -> api::Peer {
    api::Peer {
        name: cache.peer_name(),
        address: octets(cache.address),
        port: cache.port.into(),
        local_address: cache.local_address.map(octets).unwrap_or_default(),
        only_dialled: true,
        ..api::Peer::default()
    }
}

/// The bare sockets to the servers of a store.
pub fn store(store: &Store) -> impl Iterator<Item = api::Peer> {
    store.peer_names().map(|(name, server)| api::Peer {
        name,
        address: octets(server.ip()),
        port: server.port().into(),
        only_dialled: true,
        ..api::Peer::default()
    })
}

/// Networks of all sets of admission, whose members are heard without being peers.
fn heard(config: &Config) -> Vec<String> {
    config.admission.sets.iter().flat_map(|set| &set.prefixes).map(ToString::to_string).collect()
}
