//! At which UDP ports processes of the router may receive from anybody.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_api::socket::v1::{PortGrant, PortRequest};
use holdfast_sys::tcp::IpVersion;
use holdfast_xrl::{PeerIdentity, XrlError};

/// Ports by the class that has them.
#[derive(Debug, Default)]
pub(crate) struct Ports(BTreeMap<String, BTreeSet<u16>>);

/// A port that somebody may have.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Granted {
    pub(crate) version: IpVersion,
    /// `None`: a free one.
    pub(crate) port: Option<u16>,
}

impl TryFrom<Vec<PortGrant>> for Ports {
    type Error = XrlError;

    fn try_from(grants: Vec<PortGrant>) -> Result<Self, XrlError> {
        let mut ports: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for PortGrant { class, port } in grants {
            let port = u16::try_from(port).ok().filter(|port| *port != 0);
            let wrong = || XrlError::invalid_argument(format!("a port of {class} is not from 1 to 65535"));
            let port = port.ok_or_else(wrong)?;
            ports.entry(class).or_default().insert(port);
        }
        Ok(Self(ports))
    }
}

impl Ports {
    /// What the caller may have of what it asks for. A free port belongs to whoever has any: it is the source of what that
    /// sends.
    pub(crate) fn granted(&self, caller: &PeerIdentity, request: &PortRequest) -> Result<Granted, XrlError> {
        let version = match request.afi {
            1 => IpVersion::V4,
            2 => IpVersion::V6,
            _ => {
                return Err(XrlError::invalid_argument(
                    "the address family is neither 1 (IPv4) nor 2 (IPv6)",
                ));
            }
        };
        let mut own = caller.classes.iter().filter_map(|class| self.0.get(class)).flatten();
        let port = match request.port {
            0 => own.next().map(|_| None),
            port => own.find(|own| u32::from(**own) == port).map(|own| Some(*own)),
        };
        let denied = || XrlError::denied(format!("you may not use UDP port {}", request.port));
        port.map(|port| Granted { version, port }).ok_or_else(denied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(grants: &[(&str, u32)]) -> Result<Ports, XrlError> {
        let grant = |&(class, port): &(&str, u32)| PortGrant { class: class.to_owned(), port };
        Ports::try_from(grants.iter().map(grant).collect::<Vec<_>>())
    }

    #[test]
    fn a_class_has_its_own_ports_and_a_free_one_beside_them() {
        let ports = ports(&[("bfd", 3784), ("bfd", 4784), ("ptp", 319)]).expect("grants");
        let ask = |class: &str, port| {
            let caller = PeerIdentity::new(class);
            ports.granted(&caller, &PortRequest { afi: 2, port }).map(|granted| granted.port).ok()
        };
        assert_eq!(
            [3784, 4784, 0].map(|port| ask("bfd", port)),
            [Some(Some(3784)), Some(Some(4784)), Some(None)]
        );
        assert_eq!([319, 0].map(|port| ask("ptp", port)), [Some(Some(319)), Some(None)]);
        for (class, port) in [("bfd", 319), ("ptp", 3784), ("rip", 3784), ("rip", 0), ("bfd", 3784 + 65_536)]
        {
            assert_eq!(ask(class, port), None, "{class} {port}");
        }
    }

    #[test]
    fn a_port_is_of_one_of_two_families() {
        let ports = ports(&[("bfd", 3784)]).expect("grants");
        let version = |afi| {
            let granted = ports.granted(&PeerIdentity::new("bfd"), &PortRequest { afi, port: 3784 });
            granted.map(|granted| granted.version).ok()
        };
        assert_eq!([0, 1, 2, 3].map(version), [None, Some(IpVersion::V4), Some(IpVersion::V6), None]);
    }

    #[test]
    fn a_grant_names_a_port() {
        assert!(ports(&[("bfd", 65_535)]).is_ok());
        assert!(ports(&[("bfd", 0)]).is_err() && ports(&[("bfd", 65_536)]).is_err());
    }
}
