//! What is configured of a peer.

use std::{fmt, net::IpAddr, num::NonZeroU8};

use holdfast_api::socket::v1 as api;
use holdfast_sys::tcp::{MD5_KEY_MAX, Md5Peer};
use holdfast_types::{IpPrefix, Ipv6Prefix, Prefix};

use crate::BGP_PORT;

/// A key that no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The key in octets: 1 to [`MD5_KEY_MAX`] of them.
    pub fn new(octets: Vec<u8>) -> Option<Self> {
        (1..=MD5_KEY_MAX).contains(&octets.len()).then_some(Self(octets))
    }

    pub(crate) fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// A peer as the opener knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// How protocols name it.
    pub name: String,
    /// Its address as a prefix of full length, or a listen range; all link-local ones if it is whoever is the
    /// neighbour on its interface.
    pub network: Prefix,
    /// Where to dial.
    pub port: u16,
    /// Our address of the connection; `None`: the kernel chooses.
    pub local: Option<IpAddr>,
    /// Interface by name, for a link-local address or where the neighbour is that has none.
    pub interface: Option<String>,
    /// Interface by name whose link is followed, if the address needs none.
    pub link: Option<String>,
    /// TCP-MD5 key (RFC 2385).
    pub md5: Option<Secret>,
    /// GTSM (RFC 5082): send with TTL 255 and accept no less.
    pub ttl_security: bool,
    /// TTL to send with otherwise; `None`: the kernel's default.
    pub ttl: Option<NonZeroU8>,
    /// Listeners do not know it: it never comes itself.
    pub only_dialled: bool,
}

/// A configuration that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("peer `{name}`: {fault}")]
pub struct PeerError {
    /// The peer's name.
    pub name: String,
    /// What is wrong with it.
    pub fault: &'static str,
}

impl Peer {
    /// The address; `None` for a listen range, and for whoever is the neighbour on an interface.
    pub fn address(&self) -> Option<IpAddr> {
        let address = self.network.address();
        (Prefix::host(address) == self.network).then_some(address)
    }

    /// Where it is the neighbour, if it has no address of its own.
    pub fn neighbor_on(&self) -> Option<&str> {
        self.interface.as_deref().filter(|_| self.address().is_none())
    }
}

/// All link-local addresses (RFC 4291 section 2.4).
fn link_local() -> Prefix {
    Prefix::V6(Ipv6Prefix::from_bits(0xfe80 << 112, 10))
}

/// Whose segments a key is for.
pub(crate) fn md5_peer(network: Prefix) -> Md5Peer {
    Md5Peer { address: network.address(), length: network.length() }
}

impl TryFrom<api::Peer> for Peer {
    type Error = PeerError;

    fn try_from(peer: api::Peer) -> Result<Self, PeerError> {
        let fault = |fault| PeerError { name: peer.name.clone(), fault };
        let network = if peer.address.is_empty() && !peer.interface.is_empty() {
            link_local()
        } else {
            let address =
                address(&peer.address).ok_or_else(|| fault("the address has neither 4 nor 16 octets"))?;
            network(address, peer.is_range.then_some(peer.range_length))
                .ok_or_else(|| fault("the range is longer than its address"))?
        };
        let local = match peer.local_address.as_slice() {
            [] => None,
            octets => {
                Some(address(octets).ok_or_else(|| fault("the local address has neither 4 nor 16 octets"))?)
            }
        };
        if local.is_some_and(|local| local.is_ipv4() != network.address().is_ipv4()) {
            return Err(fault("the addresses are of different families"));
        }
        let md5 = match peer.md5.len() {
            0 => None,
            _ => Some(
                Secret::new(peer.md5.clone()).ok_or_else(|| fault("the MD5 key is longer than 80 octets"))?,
            ),
        };
        Ok(Self {
            network,
            local,
            md5,
            port: port(peer.port).ok_or_else(|| fault("the port is over 65535"))?,
            interface: (!peer.interface.is_empty()).then(|| peer.interface.clone()),
            link: (!peer.link.is_empty()).then(|| peer.link.clone()),
            ttl_security: peer.ttl_security,
            only_dialled: peer.only_dialled,
            ttl: NonZeroU8::new(u8::try_from(peer.ttl).map_err(|_| fault("the TTL is over 255"))?),
            name: peer.name,
        })
    }
}

/// Reads 4 or 16 octets.
pub(crate) fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
        _ => None,
    }
}

fn network(address: IpAddr, range_length: Option<u32>) -> Option<Prefix> {
    match range_length {
        None => Some(Prefix::host(address)),
        Some(length) => Prefix::new(address, u8::try_from(length).ok()?),
    }
}

/// 0 means BGP's.
pub(crate) fn port(number: u32) -> Option<u16> {
    match number {
        0 => Some(BGP_PORT),
        number => u16::try_from(number).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured() -> api::Peer {
        api::Peer {
            name: "a".into(),
            address: vec![192, 0, 2, 1],
            md5: b"hush".to_vec(),
            ..api::Peer::default()
        }
    }

    #[test]
    fn a_peer_without_options_is_dialled_at_179() {
        let peer = Peer::try_from(configured()).expect("fine");
        assert_eq!((peer.port, peer.address(), peer.ttl), (179, Some([192, 0, 2, 1].into()), None));
        assert!(!format!("{peer:?}").contains("104"), "no octet of the key is shown");
    }

    #[test]
    fn a_range_has_no_address_to_dial() {
        let peer =
            Peer::try_from(api::Peer { is_range: true, range_length: 24, ..configured() }).expect("fine");
        assert_eq!((peer.address(), peer.network.to_string().as_str()), (None, "192.0.2.0/24"));
        let everybody = api::Peer { address: vec![0; 4], is_range: true, ..configured() };
        let everybody = Peer::try_from(everybody).expect("fine");
        assert_eq!((everybody.address(), everybody.network.to_string().as_str()), (None, "0.0.0.0/0"));
    }

    #[test]
    fn a_peer_without_address_is_the_neighbour_on_its_interface() {
        let unnumbered = api::Peer { address: Vec::new(), interface: "eth0".into(), ..configured() };
        let peer = Peer::try_from(unnumbered).expect("fine");
        assert_eq!((peer.address(), peer.neighbor_on()), (None, Some("eth0")));
        assert_eq!(peer.network.to_string(), "fe80::/10");
        let address = "fe80::1".parse::<std::net::Ipv6Addr>().expect("an address").octets().to_vec();
        let numbered = api::Peer { address, interface: "eth0".into(), ..configured() };
        assert_eq!(Peer::try_from(numbered).expect("fine").neighbor_on(), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        let cases = [
            (api::Peer { address: vec![1, 2, 3], ..configured() }, "neither 4 nor 16"),
            (api::Peer { is_range: true, range_length: 33, ..configured() }, "longer than its address"),
            (api::Peer { local_address: vec![0; 16], ..configured() }, "different families"),
            (api::Peer { md5: vec![b'x'; 81], ..configured() }, "80 octets"),
            (api::Peer { port: 65536, ..configured() }, "65535"),
            (api::Peer { ttl: 256, ..configured() }, "255"),
        ];
        for (peer, expected) in cases {
            let error = Peer::try_from(peer).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
