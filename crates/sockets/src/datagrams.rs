//! Which datagrams routing protocols may send and receive, and where.

use std::{collections::BTreeSet, net::IpAddr};

use holdfast_api::socket::v1::{Datagrams as Api, GroupRequest};
use holdfast_xrl::{PeerIdentity, XrlError};

/// Datagrams at a port and in a group.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Datagrams {
    pub(crate) port: u16,
    pub(crate) group: IpAddr,
    /// TTL or hop limit of what is sent.
    pub(crate) hops: u8,
}

/// What a class may use, and the interfaces where it may.
#[derive(Debug)]
pub(crate) struct Grant {
    class: String,
    datagrams: Datagrams,
    interfaces: BTreeSet<String>,
}

impl TryFrom<Api> for Grant {
    type Error = XrlError;

    fn try_from(granted: Api) -> Result<Self, XrlError> {
        let wrong = |what| XrlError::invalid_argument(format!("datagrams of {}: {what}", granted.class));
        let group = match <[u8; 4]>::try_from(granted.group.as_slice()) {
            Ok(octets) => IpAddr::from(octets),
            Err(_) => {
                let octets = <[u8; 16]>::try_from(granted.group.as_slice());
                IpAddr::from(octets.map_err(|_| wrong("the group is no address"))?)
            }
        };
        let datagrams = Datagrams {
            port: u16::try_from(granted.port).map_err(|_| wrong("the port is over 65535"))?,
            group: Some(group).filter(IpAddr::is_multicast).ok_or_else(|| wrong("the group is none"))?,
            hops: u8::try_from(granted.hops).map_err(|_| wrong("the TTL is over 255"))?,
        };
        Ok(Self { class: granted.class, datagrams, interfaces: granted.interfaces.into_iter().collect() })
    }
}

/// What the caller is granted of what it asks for.
pub(crate) fn granted(
    grants: &[Grant],
    caller: &PeerIdentity,
    request: &GroupRequest,
) -> Result<Datagrams, XrlError> {
    let fits = |grant: &&Grant| {
        caller.classes.contains(&grant.class)
            && grant.interfaces.contains(&request.interface)
            && u32::from(grant.datagrams.port) == request.port
            && grant.datagrams.group.is_ipv6() == (request.afi == 2)
    };
    grants.iter().find(fits).map(|grant| grant.datagrams).ok_or_else(|| {
        let GroupRequest { interface, port, .. } = request;
        XrlError::denied(format!("you may not use UDP port {port} on interface {interface:?}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(class: &str, group: &[u8], interfaces: &[&str]) -> Result<Grant, XrlError> {
        let interfaces = interfaces.iter().map(|&name| name.to_owned()).collect();
        let (class, group) = (class.to_owned(), group.to_owned());
        Grant::try_from(Api { class, port: 520, group, hops: 1, interfaces })
    }

    #[test]
    fn a_protocol_has_its_own_datagrams_on_its_own_interfaces_only() {
        let grants = [grant("rip", &[224, 0, 0, 9], &["eth1"]), grant("mine", &[224, 0, 0, 120], &["eth2"])];
        let grants: Vec<_> = grants.into_iter().collect::<Result<_, _>>().expect("grants");
        let ask = |class: &str, interface: &str, port, afi| {
            let caller = PeerIdentity { classes: vec![class.to_owned()], ..PeerIdentity::new("protocol") };
            let request = GroupRequest { interface: interface.to_owned(), port, afi };
            granted(&grants, &caller, &request).is_ok()
        };
        assert!(ask("rip", "eth1", 520, 1));
        assert!(ask("mine", "eth2", 520, 1));
        let refused = [
            ("rip", "eth2", 520, 1),
            ("mine", "eth1", 520, 1),
            ("rip", "eth1", 521, 1),
            ("rip", "eth1", 520, 2),
        ];
        for (class, interface, port, afi) in refused {
            assert!(!ask(class, interface, port, afi), "{class} {interface} {port} {afi}");
        }
    }

    #[test]
    fn a_group_is_an_address_that_is_one() {
        assert!(grant("rip", &[224, 0, 0, 9], &[]).is_ok());
        assert!(grant("rip", &[10, 0, 0, 9], &[]).is_err());
        assert!(grant("rip", &[1, 2], &[]).is_err());
    }
}
