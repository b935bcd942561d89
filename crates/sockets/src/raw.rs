//! Which raw IP packets routing protocols may send and receive, and where.

use std::{collections::BTreeSet, net::IpAddr};

use holdfast_api::socket::v1::{Packet, RawGrant as Api};
use holdfast_sys::{packet::Way, tcp::IpVersion};
use holdfast_types::is_for_routing;
use holdfast_xrl::{PeerIdentity, XrlError};

use crate::{filter::destinations::MOST_GROUPS, peer};

/// Packets of one call.
pub const MOST_PACKETS: usize = 64;
/// Octets of their payloads together.
pub const MOST_OCTETS: usize = 256 << 10;
/// Octets of one payload: what a packet of IPv4 may have behind its header.
pub const LONGEST_PACKET: usize = 65_515;

/// An interface as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The kernel's number.
    pub index: u32,
    /// Addresses of ours there.
    pub addresses: Vec<IpAddr>,
}

/// Packets of one protocol number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RawIp {
    pub(crate) version: IpVersion,
    /// The protocol number, or next header.
    pub(crate) protocol: u8,
    /// At most [`MOST_GROUPS`], of the version.
    pub(crate) groups: Vec<IpAddr>,
    /// TTL or hop limit of what is sent.
    pub(crate) hops: u8,
}

/// What a class may use, and the interfaces where it may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RawGrant {
    pub(crate) class: String,
    pub(crate) packets: RawIp,
    pub(crate) interfaces: BTreeSet<String>,
    /// It may have sockets of its own.
    pub(crate) descriptors: bool,
}

/// Why packets are not sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0} packets are more than {MOST_PACKETS}")]
    TooMany(usize),
    #[error("{0} octets are more than {MOST_OCTETS}")]
    TooMuch(usize),
    #[error("its {0} octets are more than {LONGEST_PACKET}")]
    TooLong(usize),
    #[error("you may not send IP protocol {protocol} on interface {interface:?}")]
    NotGranted { protocol: u8, interface: String },
    #[error("there is no interface {0:?}")]
    NoInterface(String),
    #[error("its {0} is no address of the family")]
    NoAddress(&'static str),
    #[error("its source {source_address} is no address of interface {interface:?}")]
    ForeignSource { source_address: IpAddr, interface: String },
    #[error("you were not granted the group {0}")]
    ForeignGroup(IpAddr),
    #[error("its destination {0} is not another router")]
    NoRouter(IpAddr),
}

impl From<Refusal> for XrlError {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        match refusal {
            Refusal::NoInterface(_) => Self::unavailable(text),
            Refusal::NotGranted { .. } | Refusal::ForeignSource { .. } | Refusal::ForeignGroup(_) => {
                Self::denied(text)
            }
            Refusal::TooMany(_)
            | Refusal::TooMuch(_)
            | Refusal::TooLong(_)
            | Refusal::NoAddress(_)
            | Refusal::NoRouter(_) => Self::invalid_argument(text),
        }
    }
}

impl TryFrom<Api> for RawGrant {
    type Error = XrlError;

    fn try_from(granted: Api) -> Result<Self, XrlError> {
        let Api { class, afi, protocol, groups, hops, interfaces, descriptors } = granted;
        let wrong =
            |what: &str| XrlError::invalid_argument(format!("IP protocol {protocol} of {class}: {what}"));
        let version = version(afi).ok_or_else(|| wrong("the family is neither 1 (IPv4) nor 2 (IPv6)"))?;
        let number = u8::try_from(protocol).map_err(|_| wrong("the number is over 255"))?;
        if !is_for_routing(number) {
            return Err(wrong("it is the kernel's, or carries other packets"));
        }
        if groups.len() > MOST_GROUPS {
            return Err(wrong(&format!("there are more than {MOST_GROUPS} groups")));
        }
        let group = |octets: &Vec<u8>| {
            let address = peer::address(octets).filter(|group| IpVersion::of(*group) == version);
            address.filter(IpAddr::is_multicast).ok_or_else(|| wrong("a group is none of the family"))
        };
        let packets = RawIp {
            version,
            protocol: number,
            groups: groups.iter().map(group).collect::<Result<_, _>>()?,
            hops: u8::try_from(hops)
                .ok()
                .filter(|hops| *hops > 0)
                .ok_or_else(|| wrong("the TTL is not 1 to 255"))?,
        };
        Ok(Self { packets, interfaces: interfaces.into_iter().collect(), descriptors, class })
    }
}

/// All of a configuration: none is there twice.
pub(crate) fn grants(granted: Vec<Api>) -> Result<Vec<RawGrant>, XrlError> {
    let grants: Vec<RawGrant> = granted.into_iter().map(RawGrant::try_from).collect::<Result<_, _>>()?;
    let mut keys = BTreeSet::new();
    for RawGrant { class, packets, .. } in &grants {
        if !keys.insert((class, packets.version == IpVersion::V6, packets.protocol)) {
            let text = format!("IP protocol {} of {class} is granted twice", packets.protocol);
            return Err(XrlError::invalid_argument(text));
        }
    }
    Ok(grants)
}

/// 1 IPv4, 2 IPv6.
pub(crate) fn version(afi: u32) -> Option<IpVersion> {
    match afi {
        1 => Some(IpVersion::V4),
        2 => Some(IpVersion::V6),
        _ => None,
    }
}

impl RawGrant {
    /// Whether it is of the caller, and of these packets.
    pub(crate) fn is_for(&self, caller: &PeerIdentity, afi: u32, protocol: u32) -> bool {
        caller.classes.contains(&self.class)
            && version(afi) == Some(self.packets.version)
            && u32::from(self.packets.protocol) == protocol
    }

    /// Which way a packet leaves, if it may; `find` gives interfaces as they are now.
    pub(crate) fn way(&self, packet: &Packet, find: impl Fn(&str) -> Option<Link>) -> Result<Way, Refusal> {
        let interface = &packet.interface;
        let octets = packet.payload.len();
        if octets > LONGEST_PACKET {
            return Err(Refusal::TooLong(octets));
        }
        if !self.interfaces.contains(interface) {
            let protocol = self.packets.protocol;
            return Err(Refusal::NotGranted { protocol, interface: interface.clone() });
        }
        let link = find(interface).ok_or_else(|| Refusal::NoInterface(interface.clone()))?;
        let source = self.address(&packet.source).ok_or(Refusal::NoAddress("source"))?;
        let destination = self.address(&packet.destination).ok_or(Refusal::NoAddress("destination"))?;
        if !link.addresses.contains(&source) {
            return Err(Refusal::ForeignSource { source_address: source, interface: interface.clone() });
        }
        if destination.is_multicast() {
            if !self.packets.groups.contains(&destination) {
                return Err(Refusal::ForeignGroup(destination));
            }
        } else if !may_be_router(destination) || link.addresses.contains(&destination) {
            return Err(Refusal::NoRouter(destination));
        }
        Ok(Way { interface: link.index, source, destination, port: 0 })
    }

    fn address(&self, octets: &[u8]) -> Option<IpAddr> {
        peer::address(octets).filter(|address| IpVersion::of(*address) == self.packets.version)
    }
}

/// Whether the packets of one call are few enough.
pub(crate) fn within_bounds(packets: &[Packet]) -> Result<(), Refusal> {
    let octets = packets.iter().map(|packet| packet.payload.len()).sum();
    match packets.len() {
        count if count > MOST_PACKETS => Err(Refusal::TooMany(count)),
        _ if octets > MOST_OCTETS => Err(Refusal::TooMuch(octets)),
        _ => Ok(()),
    }
}

/// Whether one host may have this address, which is no group.
fn may_be_router(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => (1..240).contains(&address.octets()[0]) && !address.is_loopback(),
        IpAddr::V6(address) => {
            !address.is_unspecified() && !address.is_loopback() && address.to_ipv4_mapped().is_none()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn igp() -> Api {
        Api {
            class: "igp".to_owned(),
            afi: 1,
            protocol: 253,
            groups: vec![vec![224, 0, 0, 5], vec![224, 0, 0, 6]],
            hops: 1,
            interfaces: vec!["eth1".to_owned()],
            descriptors: false,
        }
    }

    fn packet(interface: &str, source: &[u8], destination: &[u8]) -> Packet {
        let (source, destination) = (source.to_owned(), destination.to_owned());
        Packet { interface: interface.to_owned(), source, destination, ..Packet::default() }
    }

    /// eth1 and eth2 are there, with one address of each family.
    fn find(name: &str) -> Option<Link> {
        let index = match name {
            "eth1" => 1,
            "eth2" => 2,
            _ => return None,
        };
        let v4 = IpAddr::from([10, 0, index as u8, 1]);
        Some(Link { index, addresses: vec![v4, "fe80::1".parse().expect("an address")] })
    }

    fn way(grant: Api, packet: &Packet) -> Result<Way, Refusal> {
        RawGrant::try_from(grant).expect("a grant").way(packet, find)
    }

    const OURS: [u8; 4] = [10, 0, 1, 1];
    const THEIRS: [u8; 4] = [10, 0, 1, 2];

    #[test]
    fn a_packet_leaves_from_an_address_of_its_interface_to_a_router_or_a_group() {
        for destination in [THEIRS, [224, 0, 0, 5], [224, 0, 0, 6]] {
            let expected =
                Way { interface: 1, source: OURS.into(), destination: destination.into(), port: 0 };
            assert_eq!(way(igp(), &packet("eth1", &OURS, &destination)), Ok(expected));
        }
        let v6 = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address").octets();
        let grant = Api { afi: 2, groups: vec![v6("ff02::5").into()], ..igp() };
        for destination in ["ff02::5", "fe80::2", "2001:db8::2"] {
            way(grant.clone(), &packet("eth1", &v6("fe80::1"), &v6(destination))).expect(destination);
        }
        for destination in ["ff02::6", "::", "::1", "::ffff:10.0.1.2", "fe80::1"] {
            way(grant.clone(), &packet("eth1", &v6("fe80::1"), &v6(destination))).expect_err(destination);
        }
    }

    #[test]
    fn what_was_not_granted_is_refused_and_the_reason_named() {
        let long = Packet { payload: vec![0; LONGEST_PACKET + 1], ..packet("eth1", &OURS, &THEIRS) };
        let foreign = |source: [u8; 4]| Refusal::ForeignSource {
            source_address: source.into(),
            interface: "eth1".to_owned(),
        };
        let other = Refusal::NotGranted { protocol: 253, interface: "eth2".to_owned() };
        let cases = [
            (packet("eth2", &[10, 0, 2, 1], &THEIRS), other),
            (packet("eth1", &[10, 0, 2, 1], &THEIRS), foreign([10, 0, 2, 1])),
            (packet("eth1", &THEIRS, &THEIRS), foreign(THEIRS)),
            (packet("eth1", &OURS, &[224, 0, 0, 9]), Refusal::ForeignGroup([224, 0, 0, 9].into())),
            (packet("eth1", &OURS, &[255; 4]), Refusal::NoRouter([255; 4].into())),
            (packet("eth1", &OURS, &[0; 4]), Refusal::NoRouter([0; 4].into())),
            (packet("eth1", &OURS, &[127, 0, 0, 1]), Refusal::NoRouter([127, 0, 0, 1].into())),
            (packet("eth1", &OURS, &OURS), Refusal::NoRouter(OURS.into())),
            (packet("eth1", &[], &THEIRS), Refusal::NoAddress("source")),
            (packet("eth1", &OURS, &[0; 16]), Refusal::NoAddress("destination")),
            (long, Refusal::TooLong(LONGEST_PACKET + 1)),
        ];
        for (packet, expected) in cases {
            assert_eq!(way(igp(), &packet), Err(expected));
        }
        let gone = Api { interfaces: vec!["eth9".to_owned()], ..igp() };
        let refusal = way(gone, &packet("eth9", &OURS, &THEIRS)).expect_err("it is not there");
        assert_eq!(refusal, Refusal::NoInterface("eth9".to_owned()));
    }

    #[test]
    fn a_call_has_so_many_packets_and_octets_and_no_more() {
        let packets = |count, octets| vec![Packet { payload: vec![0; octets], ..Packet::default() }; count];
        assert_eq!(within_bounds(&packets(MOST_PACKETS, MOST_OCTETS / MOST_PACKETS)), Ok(()));
        assert_eq!(within_bounds(&packets(MOST_PACKETS + 1, 0)), Err(Refusal::TooMany(MOST_PACKETS + 1)));
        let much = within_bounds(&packets(5, MOST_OCTETS / 4));
        assert_eq!(much, Err(Refusal::TooMuch(MOST_OCTETS / 4 * 5)));
    }

    #[test]
    fn a_grant_is_of_one_class_family_and_number() {
        let grant = RawGrant::try_from(igp()).expect("a grant");
        let caller = |class: &str| PeerIdentity::new("protocol").class(class);
        assert!(grant.is_for(&caller("igp"), 1, 253));
        for (class, afi, protocol) in [("other", 1, 253), ("igp", 2, 253), ("igp", 1, 89), ("igp", 0, 253)] {
            assert!(!grant.is_for(&caller(class), afi, protocol), "{class} {afi} {protocol}");
        }
    }

    #[test]
    fn what_no_protocol_may_have_is_granted_to_none() {
        let six = vec![vec![0; 16]; 1];
        let many = vec![vec![224, 0, 0, 5]; MOST_GROUPS + 1];
        let wrong = [
            Api { protocol: 6, ..igp() },
            Api { protocol: 255, ..igp() },
            Api { protocol: 256, ..igp() },
            Api { afi: 3, ..igp() },
            Api { hops: 0, ..igp() },
            Api { hops: 256, ..igp() },
            Api { groups: six, ..igp() },
            Api { groups: many, ..igp() },
            Api { groups: vec![vec![10, 0, 0, 1]], ..igp() },
        ];
        for grant in wrong {
            RawGrant::try_from(grant.clone()).expect_err(&format!("{grant:?}"));
        }
        RawGrant::try_from(Api { groups: vec![vec![224, 0, 0, 5]; MOST_GROUPS], ..igp() }).expect("a grant");
        grants(vec![igp(), Api { protocol: 89, ..igp() }, Api { class: "b".into(), ..igp() }])
            .expect("three");
        grants(vec![igp(), igp()]).expect_err("the same twice");
    }
}
