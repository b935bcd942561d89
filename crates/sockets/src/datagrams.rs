//! Which datagrams routing protocols may send and receive, and where.

use std::{collections::BTreeSet, net::IpAddr};

use holdfast_api::socket::v1::{Datagrams as Api, GroupRequest};
use holdfast_sys::tcp::IpVersion;
use holdfast_xrl::{PeerIdentity, XrlError};

use crate::peer;

/// Datagrams at a port and in groups, all of one family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Datagrams {
    pub(crate) version: IpVersion,
    pub(crate) port: u16,
    pub(crate) groups: Vec<IpAddr>,
    /// TTL or hop limit of what is sent.
    pub(crate) hops: u8,
}

/// What a class may use, and the interfaces where it may.
#[derive(Debug)]
pub(crate) struct Grant {
    class: String,
    port: u16,
    group: IpAddr,
    hops: u8,
    interfaces: BTreeSet<String>,
}

impl TryFrom<Api> for Grant {
    type Error = XrlError;

    fn try_from(granted: Api) -> Result<Self, XrlError> {
        let wrong = |what| XrlError::invalid_argument(format!("datagrams of {}: {what}", granted.class));
        let group = peer::address(&granted.group).ok_or_else(|| wrong("the group is no address"))?;
        Ok(Self {
            port: u16::try_from(granted.port).map_err(|_| wrong("the port is over 65535"))?,
            group: Some(group).filter(IpAddr::is_multicast).ok_or_else(|| wrong("the group is none"))?,
            hops: u8::try_from(granted.hops).map_err(|_| wrong("the TTL is over 255"))?,
            class: granted.class,
            interfaces: granted.interfaces.into_iter().collect(),
        })
    }
}

/// What the caller is granted of what it asks for: the groups of all that fit, and the TTL of the first.
pub(crate) fn granted(
    grants: &[Grant],
    caller: &PeerIdentity,
    request: &GroupRequest,
) -> Result<Datagrams, XrlError> {
    let fits = |grant: &&Grant| {
        caller.classes.contains(&grant.class)
            && grant.interfaces.contains(&request.interface)
            && u32::from(grant.port) == request.port
            && grant.group.is_ipv6() == (request.afi == 2)
    };
    let fitting = || grants.iter().filter(fits);
    let first = fitting().next().ok_or_else(|| {
        let GroupRequest { interface, port, .. } = request;
        XrlError::denied(format!("you may not use UDP port {port} on interface {interface:?}"))
    })?;
    let groups = fitting().map(|grant| grant.group).collect();
    let version = IpVersion::of(first.group);
    Ok(Datagrams { version, port: first.port, groups, hops: first.hops })
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
    fn grants_of_one_port_are_one_socket_in_all_their_groups() {
        let rows = [([224, 0, 0, 9], "eth1"), ([224, 0, 0, 2], "eth1"), ([224, 0, 0, 3], "eth2")];
        let grants = rows.map(|(group, interface)| grant("mine", &group, &[interface]));
        let grants: Vec<_> = grants.into_iter().collect::<Result<_, _>>().expect("grants");
        let caller = PeerIdentity::new("mine");
        let request = GroupRequest { interface: "eth1".to_owned(), port: 520, afi: 1 };
        let found = granted(&grants, &caller, &request).expect("granted");
        assert_eq!(found.groups, [[224, 0, 0, 9], [224, 0, 0, 2]].map(IpAddr::from));
    }

    #[test]
    fn a_group_is_an_address_that_is_one() {
        assert!(grant("rip", &[224, 0, 0, 9], &[]).is_ok());
        assert!(grant("rip", &[10, 0, 0, 9], &[]).is_err());
        assert!(grant("rip", &[1, 2], &[]).is_err());
    }
}
