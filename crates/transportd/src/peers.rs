//! Who is configured, and who somebody that comes from an address is. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use holdfast_api::transport::v1 as api;
use holdfast_tls::{PeerTls, Trust};
use holdfast_transport::{Expected, Protocol};
use holdfast_types::{IpPrefix, Ipv6Prefix, Prefix};
use holdfast_xrl::XrlError;

/// BGP's port (RFC 4271 section 8.2.1).
const BGP_PORT: u16 = 179;
/// The role of those who are let in: `bgp` takes them.
const LET_IN: &str = "bgp";
/// How long QUIC waits for a sign of life unless it is told: as long as the longest usual hold time.
const IDLE: Duration = Duration::from_secs(180);

/// Where somebody comes from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Source {
    pub(crate) address: IpAddr,
    /// Of a link-local address.
    pub(crate) interface: Option<Box<str>>,
}

impl Source {
    /// The other end of a connection; `name` knows interfaces by number.
    pub(crate) fn of(remote: SocketAddr, name: impl FnOnce(u32) -> Option<Box<str>>) -> Self {
        match remote {
            SocketAddr::V6(remote) if remote.scope_id() != 0 => {
                Self { address: (*remote.ip()).into(), interface: name(remote.scope_id()) }
            }
            remote => Self { address: remote.ip().to_canonical(), interface: None },
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interface {
            None => self.address.fmt(f),
            Some(interface) => write!(f, "{}%{interface}", self.address),
        }
    }
}

/// Where a peer is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// At an address, which may be a link-local one on an interface.
    At(Source),
    /// Whoever is the neighbour on this interface.
    Neighbor(Box<str>),
    /// Anywhere in here.
    Range(Prefix),
}

/// A peer or a listen range.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) place: Place,
    /// What it may use, the preferred first.
    pub(crate) transports: Vec<Protocol>,
    /// GTSM (RFC 5082): nothing of it may have passed a router.
    pub(crate) ttl_security: bool,
    /// Down on purpose.
    pub(crate) disabled: bool,
    /// Who may have a connection made to it.
    pub(crate) role: String,
    /// Where to dial.
    pub(crate) port: u16,
    /// Where to dial over QUIC, if that is said.
    pub(crate) quic_port: Option<u16>,
    /// Our address; `None`: the kernel chooses.
    pub(crate) local: Option<IpAddr>,
    /// How long QUIC waits for a sign of life.
    pub(crate) idle: Duration,
    /// What it has to prove over TLS and QUIC.
    pub(crate) trust: Trust,
    /// What becomes of that with what we show.
    pub(crate) tls: Option<PeerTls>,
}

/// A configuration that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("peer `{name}`: {fault}")]
pub(crate) struct PeerError {
    name: String,
    fault: &'static str,
}

impl TryFrom<api::Peer> for Peer {
    type Error = PeerError;

    fn try_from(peer: api::Peer) -> Result<Self, PeerError> {
        let fault = |fault| PeerError { name: peer.name.clone(), fault };
        let place = match (address(&peer.address), &*peer.interface) {
            (None, "") => return Err(fault("the address has neither 4 nor 16 octets")),
            (None, interface) if peer.address.is_empty() => Place::Neighbor(interface.into()),
            (None, _) => return Err(fault("the address has neither 4 nor 16 octets")),
            (Some(address), _) if peer.is_range => {
                let length = u8::try_from(peer.range_length).ok();
                let range = length.and_then(|length| Prefix::new(address, length));
                Place::Range(range.ok_or_else(|| fault("the range is longer than its address"))?)
            }
            (Some(address), interface) => {
                let interface = Some(interface).filter(|name| !name.is_empty() && address.is_ipv6());
                Place::At(Source { address, interface: interface.map(Into::into) })
            }
        };
        // What is not known must not leave a list that is weaker, or none.
        let known = |&number: &i32| protocol(api::Protocol::try_from(number).ok()?);
        let transports = peer.transports.iter().map(known).collect::<Option<Vec<_>>>();
        let mut transports = transports.ok_or_else(|| fault("one of its transports is not known"))?;
        if transports.is_empty() {
            transports.push(Protocol::Tcp);
        }
        let local = match peer.local_address.as_slice() {
            [] => None,
            octets => {
                Some(address(octets).ok_or_else(|| fault("the local address has neither 4 nor 16 octets"))?)
            }
        };
        let quic_port = u16::try_from(peer.quic_port).map_err(|_| fault("the port of QUIC is over 65535"))?;
        let port = port(peer.port).ok_or_else(|| fault("the port is over 65535"))?;
        let trust =
            trust(peer.trust.clone().unwrap_or_default()).ok_or_else(|| fault("a pin has 32 octets"))?;
        Ok(Self {
            place,
            transports,
            port,
            quic_port: (quic_port != 0).then_some(quic_port),
            local,
            trust,
            tls: None,
            ttl_security: peer.ttl_security,
            disabled: peer.disabled,
            role: if peer.role.is_empty() { LET_IN.to_owned() } else { peer.role },
            idle: match peer.idle_seconds {
                0 => IDLE,
                seconds => Duration::from_secs(seconds.into()),
            },
            name: peer.name,
        })
    }
}

impl Peer {
    /// Whether it may come itself. Others are only dialled.
    pub(crate) fn may_come(&self) -> bool {
        self.role == LET_IN
    }

    /// Whether it may use this.
    pub(crate) fn may_use(&self, protocol: Protocol) -> bool {
        self.transports.contains(&protocol)
    }

    /// Whether any of what it may use asks for a proof.
    pub(crate) fn has_to_prove(&self) -> bool {
        self.transports.iter().any(|protocol| !matches!(protocol, Protocol::Tcp | Protocol::Memory))
    }

    /// The interface of a link-local address that is configured.
    pub(crate) fn interface(&self) -> Option<&str> {
        match &self.place {
            Place::At(source) => source.interface.as_deref(),
            Place::Neighbor(interface) => Some(interface),
            Place::Range(_) => None,
        }
    }

    /// Where it may come from.
    pub(crate) fn network(&self) -> Prefix {
        match &self.place {
            Place::At(source) => Prefix::host(source.address),
            // All link-local addresses (RFC 4291 section 2.4).
            Place::Neighbor(_) => Prefix::V6(Ipv6Prefix::from_bits(0xfe80 << 112, 10)),
            Place::Range(range) => *range,
        }
    }

    /// For a handshake with it.
    pub(crate) fn expected(&self) -> Expected {
        Expected {
            peer: self.name.clone(),
            tls: self.tls.clone(),
            idle: self.idle,
            ttl_security: self.ttl_security,
        }
    }
}

fn trust(told: api::Trust) -> Option<Trust> {
    let pins = told.pins.iter().map(|pin| <[u8; 32]>::try_from(pin.as_slice()).ok());
    Some(Trust {
        pins: pins.collect::<Option<_>>()?,
        authorities: told.authorities,
        name: told.name,
        raw_public_key: told.raw_public_key,
        revocations: told.revocations,
        present_raw_public_key: told.present_raw_public_key,
    })
}

fn protocol(told: api::Protocol) -> Option<Protocol> {
    match told {
        api::Protocol::Unspecified => None,
        api::Protocol::Tcp => Some(Protocol::Tcp),
        api::Protocol::Tls => Some(Protocol::Tls),
        api::Protocol::Quic => Some(Protocol::Quic),
        api::Protocol::QuicS2n => Some(Protocol::QuicS2n),
    }
}

/// As messages say it.
pub(crate) fn told(protocol: Protocol) -> api::Protocol {
    match protocol {
        Protocol::Tcp => api::Protocol::Tcp,
        Protocol::Tls => api::Protocol::Tls,
        Protocol::Quic => api::Protocol::Quic,
        Protocol::QuicS2n => api::Protocol::QuicS2n,
        Protocol::Memory => api::Protocol::Unspecified,
    }
}

/// Reads 4 or 16 octets.
pub(crate) fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

/// 0 means BGP's.
pub(crate) fn port(number: u32) -> Option<u16> {
    match number {
        0 => Some(BGP_PORT),
        number => u16::try_from(number).ok(),
    }
}

/// Reads an address, or all of a family (1 IPv4, 2 IPv6).
pub(crate) fn listen_address(octets: &[u8], afi: u32) -> Option<IpAddr> {
    match (octets, afi) {
        ([], 1) => Some(Ipv4Addr::UNSPECIFIED.into()),
        ([], 2) => Some(Ipv6Addr::UNSPECIFIED.into()),
        (octets, _) => address(octets),
    }
}

/// As messages say it.
pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Who is at the other end, as messages say it. `number` is 0 for a socket of the kernel's.
pub(crate) fn describe(
    peer: &str,
    protocol: Protocol,
    (remote, local): (SocketAddr, SocketAddr),
    interface: Option<&str>,
) -> api::Connection {
    api::Connection {
        peer: peer.to_owned(),
        protocol: told(protocol).into(),
        remote_address: octets(remote.ip()),
        remote_port: remote.port().into(),
        local_address: octets(local.ip()),
        local_port: local.port().into(),
        interface: interface.unwrap_or_default().to_owned(),
        link: match remote {
            SocketAddr::V6(remote) => remote.scope_id(),
            SocketAddr::V4(_) => 0,
        },
        ..api::Connection::default()
    }
}

/// Where a listener is asked for.
pub(crate) fn listening(request: &api::ListenRequest) -> Result<SocketAddr, XrlError> {
    let port = port(request.port).ok_or_else(|| XrlError::invalid_argument("the port is over 65535"))?;
    let address = listen_address(&request.address, request.afi);
    let address =
        address.ok_or_else(|| XrlError::invalid_argument("there is no such address to listen at"))?;
    Ok(SocketAddr::new(address, port))
}

/// All that are configured.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    named: BTreeMap<String, Rc<Peer>>,
    at: HashMap<Source, Rc<Peer>>,
    neighbors: HashMap<Box<str>, Rc<Peer>>,
    /// The most specific first.
    ranges: Vec<(Prefix, Rc<Peer>)>,
}

impl Peers {
    /// These.
    pub(crate) fn new(peers: impl IntoIterator<Item = Peer>) -> Self {
        let mut all = Self::default();
        for peer in peers.into_iter().map(Rc::new) {
            all.named.insert(peer.name.clone(), Rc::clone(&peer));
            if !peer.may_come() {
                continue;
            }
            match peer.place.clone() {
                Place::At(source) => drop(all.at.insert(source, peer)),
                Place::Neighbor(interface) => drop(all.neighbors.insert(interface, peer)),
                Place::Range(range) => all.ranges.push((range, peer)),
            }
        }
        all.ranges.sort_by_key(|(range, _)| std::cmp::Reverse(range.length()));
        all
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.named.len()
    }

    /// Each that may come itself, in no order that counts.
    pub(crate) fn coming(&self) -> impl Iterator<Item = &Peer> {
        self.named.values().map(Rc::as_ref).filter(|peer| peer.may_come())
    }

    /// The one of that name.
    pub(crate) fn named(&self, name: &str) -> Option<&Rc<Peer>> {
        self.named.get(name)
    }

    /// The one at the place of another, whatever its name.
    pub(crate) fn at_place_of(&self, other: &Peer) -> Option<&Rc<Peer>> {
        match &other.place {
            Place::At(source) => self.at.get(source),
            Place::Neighbor(interface) => self.neighbors.get(interface),
            Place::Range(range) => self.ranges.iter().find(|(known, _)| known == range).map(|(_, peer)| peer),
        }
    }

    /// Who somebody that comes from there is: the peer of that address, the neighbour on that interface, or one of the most
    /// specific range.
    pub(crate) fn from(&self, source: &Source) -> Option<&Rc<Peer>> {
        let neighbor = || self.neighbors.get(source.interface.as_ref()?);
        let range = || self.ranges.iter().find(|(range, _)| range.contains_address(source.address));
        self.at.get(source).or_else(neighbor).or_else(|| range().map(|(_, peer)| peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, address: &str, interface: &str) -> api::Peer {
        let (address, length) = address.split_once('/').map_or((address, None), |(a, l)| (a, Some(l)));
        api::Peer {
            name: name.into(),
            address: address.parse().map(octets).unwrap_or_default(),
            interface: interface.into(),
            is_range: length.is_some(),
            range_length: length.map_or(0, |length| length.parse().expect("a number")),
            ..api::Peer::default()
        }
    }

    fn source(text: &str) -> Source {
        match text.split_once('%') {
            Some((address, interface)) => {
                Source { address: address.parse().expect("an address"), interface: Some(interface.into()) }
            }
            None => Source { address: text.parse().expect("an address"), interface: None },
        }
    }

    #[test]
    fn who_comes_is_who_is_configured_there_and_else_of_the_most_specific_range() {
        let told = [
            peer("all", "0.0.0.0/0", ""),
            peer("some", "10.0.0.0/8", ""),
            peer("one", "10.0.0.2", ""),
            peer("linked", "fe80::2", "eth0"),
            peer("unnumbered", "", "eth1"),
            peer("links", "fe80::/10", ""),
        ];
        let peers = Peers::new(told.map(|peer| Peer::try_from(peer).expect("fine")));
        let who = |text| peers.from(&source(text)).map(|peer| peer.name.as_str());
        assert_eq!(who("10.0.0.2"), Some("one"));
        assert_eq!(who("10.0.0.3"), Some("some"));
        assert_eq!(who("192.0.2.1"), Some("all"));
        assert_eq!(who("fe80::2%eth0"), Some("linked"));
        assert_eq!(who("fe80::2%eth1"), Some("unnumbered"));
        assert_eq!(who("fe80::2%eth2"), Some("links"));
        assert_eq!(who("2001:db8::1"), None);
        assert_eq!(peers.named("some").map(|peer| peer.transports.clone()), Some(vec![Protocol::Tcp]));
    }

    #[test]
    fn the_other_end_is_on_its_interface_if_that_counts() {
        let name = |number| (number == 3).then(|| "eth0".into());
        let of = |text: &str| Source::of(text.parse().expect("an address"), name).to_string();
        assert_eq!(of("[fe80::2%3]:179"), "fe80::2%eth0");
        assert_eq!(of("[fe80::2%4]:179"), "fe80::2", "gone meanwhile");
        assert_eq!(of("[2001:db8::2]:179"), "2001:db8::2");
        assert_eq!(of("[::ffff:10.0.0.2]:179"), "10.0.0.2");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        let cases = [
            (api::Peer { address: vec![1, 2, 3], ..peer("a", "", "eth0") }, "neither 4 nor 16"),
            (peer("a", "", ""), "neither 4 nor 16"),
            (api::Peer { range_length: 33, ..peer("a", "10.0.0.0/8", "") }, "longer than its address"),
            (api::Peer { transports: vec![0], ..peer("a", "10.0.0.1", "") }, "not known"),
            (api::Peer { local_address: vec![1], ..peer("a", "10.0.0.1", "") }, "local address"),
            (api::Peer { port: 65536, ..peer("a", "10.0.0.1", "") }, "65535"),
            (
                api::Peer {
                    trust: Some(api::Trust { pins: vec![vec![1]], ..api::Trust::default() }),
                    ..peer("a", "10.0.0.1", "")
                },
                "32 octets",
            ),
        ];
        for (told, expected) in cases {
            let error = Peer::try_from(told).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_peer_of_another_role_is_known_by_name_and_does_not_come() {
        let cache = api::Peer { role: "rpki".into(), ..peer("cache c", "10.0.0.2", "") };
        let told = [cache, peer("all", "10.0.0.0/8", "")];
        let peers = Peers::new(told.map(|peer| Peer::try_from(peer).expect("fine")));
        assert_eq!(peers.named("cache c").map(|peer| peer.role.as_str()), Some("rpki"));
        let who = peers.from(&source("10.0.0.2")).map(|peer| peer.name.as_str());
        assert_eq!(who, Some("all"), "who comes from there is not the cache");
        assert_eq!(peers.coming().map(|peer| peer.name.as_str()).collect::<Vec<_>>(), ["all"]);
    }

    #[test]
    fn what_it_may_use_is_in_the_order_of_the_list() {
        let told = api::Peer {
            transports: vec![api::Protocol::Quic.into(), api::Protocol::Tls.into()],
            ..peer("a", "10.0.0.1", "")
        };
        let peer = Peer::try_from(told).expect("fine");
        assert_eq!(peer.transports, [Protocol::Quic, Protocol::Tls]);
        assert!(peer.may_use(Protocol::Tls) && !peer.may_use(Protocol::Tcp), "nothing weaker");
    }
}
