//! Where a peer is: its address, and for link-local ones the interface.

use std::{
    convert::Infallible,
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use holdfast_config::schema::Remote;

/// Where a peer is; no two peers are at the same place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Location {
    /// At an address that says enough by itself.
    Address(IpAddr),
    /// At a link-local address on this interface (RFC 4007).
    OnLink(Ipv6Addr, Box<str>),
    /// Whoever is the neighbour on this interface.
    Neighbor(Box<str>),
}

impl Location {
    /// Of a configured peer; of a range, that of its network.
    pub(crate) fn of(remote: &Remote) -> Self {
        match remote {
            Remote::Address(address) | Remote::OnLink(address, _) => Self::Address(*address),
            Remote::LinkLocal(address, interface) => Self::OnLink(*address, interface.as_str().into()),
            Remote::Interface(interface) => Self::Neighbor(interface.as_str().into()),
            Remote::Range(network) => Self::Address(network.address()),
        }
    }

    /// As messages say it: 4 or 16 octets, or none for the neighbour on the interface.
    pub(crate) fn read(address: &[u8], interface: &str) -> Option<Self> {
        match (holdfast_types::address(address), interface) {
            (Some(IpAddr::V6(address)), name) if !name.is_empty() => Some(Self::OnLink(address, name.into())),
            (Some(address), _) => Some(Self::Address(address)),
            (None, name) if address.is_empty() && !name.is_empty() => Some(Self::Neighbor(name.into())),
            (None, _) => None,
        }
    }

    /// The address; the unspecified one for a neighbour that can have any.
    pub(crate) fn address(&self) -> IpAddr {
        match self {
            Self::Address(address) => *address,
            Self::OnLink(address, _) => (*address).into(),
            Self::Neighbor(_) => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// The same with the address that the peer turned out to have.
    pub(crate) fn in_session(&self, remote: IpAddr) -> Self {
        match (self, remote) {
            (Self::Neighbor(interface), IpAddr::V6(remote)) => Self::OnLink(remote, interface.clone()),
            (Self::Neighbor(_) | Self::Address(_) | Self::OnLink(..), _) => self.clone(),
        }
    }

    /// The octets of the address, as in [`Self::read`].
    pub(crate) fn octets(&self) -> Vec<u8> {
        match self {
            Self::Address(_) | Self::OnLink(..) => holdfast_types::octets(self.address()),
            Self::Neighbor(_) => Vec::new(),
        }
    }

    /// The interface, as in [`Self::read`].
    pub(crate) fn interface(&self) -> &str {
        match self {
            Self::Address(_) => "",
            Self::OnLink(_, interface) | Self::Neighbor(interface) => interface,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::OnLink(address, interface) => write!(f, "{address}%{interface}"),
            Self::Neighbor(interface) => f.write_str(interface),
        }
    }
}

/// As operators write it; what is no address is an interface.
impl FromStr for Location {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let on_link = text
            .split_once('%')
            .and_then(|(address, interface)| Some(Self::OnLink(address.parse().ok()?, interface.into())));
        let address = || text.parse().ok().map(Self::Address);
        Ok(on_link.or_else(address).unwrap_or_else(|| Self::Neighbor(text.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in ["10.0.0.2", "2001:db8::2", "fe80::2%eth0", "eth0"] {
            let Ok(location) = text.parse::<Location>();
            assert_eq!(location.to_string(), text);
            assert_eq!(Location::read(&location.octets(), location.interface()), Some(location));
        }
        assert_eq!(Location::read(&[], ""), None);
        assert_eq!(Location::read(&[1, 2, 3], "eth0"), None);
    }
}
