//! Where a peer is, under the names of the file.

use std::net::IpAddr;

use holdfast_types::Prefix;
use serde::{Deserialize, Serialize};

use super::Remote;

/// `address`, `interface` and `listen-range` of a peer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Place {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interface: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listen_range: Option<Prefix>,
}

impl From<Remote> for Place {
    fn from(remote: Remote) -> Self {
        let (address, interface, listen_range) = match remote {
            Remote::Address(address) => (Some(address), None, None),
            Remote::LinkLocal(address, interface) => (Some(address.into()), Some(interface), None),
            Remote::OnLink(address, interface) => (Some(address), Some(interface), None),
            Remote::Interface(interface) => (None, Some(interface), None),
            Remote::Range(prefix) => (None, None, Some(prefix)),
        };
        Self { address, interface, listen_range }
    }
}

impl TryFrom<Place> for Remote {
    type Error = &'static str;

    fn try_from(place: Place) -> Result<Self, &'static str> {
        match (place.address, place.interface, place.listen_range) {
            (Some(IpAddr::V6(address)), Some(interface), None) if address.is_unicast_link_local() => {
                Ok(Self::LinkLocal(address, interface))
            }
            (Some(address), Some(interface), None) => Ok(Self::OnLink(address, interface)),
            (Some(address), None, None) => Ok(Self::Address(address)),
            (None, Some(interface), None) => Ok(Self::Interface(interface)),
            (None, None, Some(prefix)) => Ok(Self::Range(prefix)),
            _ => Err("a peer is at an address, on an interface or in a range"),
        }
    }
}
