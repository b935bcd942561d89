//! Interfaces and addresses as messages (linux/if_link.h, linux/if_addr.h).

use std::net::IpAddr;

use crate::message::{AF_UNSPEC, Message, address, attributes, kind, u8_at, u32_at};

/// Octets of `struct ifinfomsg`: `u8 family, u8 pad, u16 type, i32 index, u32 flags, u32 change`.
pub(crate) const LINK_HEADER: usize = 16;
/// Octets of `struct ifaddrmsg`: `u8 family, u8 length, u8 flags, u8 scope, u32 index`.
pub(crate) const ADDRESS_HEADER: usize = 8;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
/// In `IFLA_LINKINFO`.
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
/// In the data of the kind "vrf".
const IFLA_VRF_TABLE: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// The kernel's number: stays when the name changes, is not used again soon.
    pub index: u32,
    /// As shown by `ip link`.
    pub name: String,
    /// Administratively up.
    pub up: bool,
    /// The carrier is there.
    pub running: bool,
    /// Largest packet in octets.
    pub mtu: u32,
    /// Index of the interface that it is enslaved to, as to a VRF or a bridge; 0: to none.
    pub master: u32,
    /// The table that it is bound to, if it is a VRF device.
    pub vrf_table: Option<u32>,
    /// Hardware address; empty when it has none.
    pub mac: Vec<u8>,
    /// In order.
    pub addresses: Vec<InterfaceAddress>,
}

impl Interface {
    /// Whether packets can leave here.
    pub fn usable(&self) -> bool {
        self.up && self.running
    }
}

/// An address of an interface.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InterfaceAddress {
    /// Our own address.
    pub address: IpAddr,
    /// Length of the prefix of the network that is reached directly: the one of [`Self::peer`] if there is a peer, otherwise
    /// the one of [`Self::address`].
    pub length: u8,
    /// The other end of a point-to-point link, where the address was put there with one (`ip address add … peer …`).
    pub peer: Option<IpAddr>,
}

impl InterfaceAddress {
    /// One of a link to many.
    pub fn new(address: IpAddr, length: u8) -> Self {
        Self { address, length, peer: None }
    }
}

/// What a message of the kernel says about interfaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// All about the interface but its addresses.
    Link(Interface),
    LinkGone(u32),
    Address(u32, InterfaceAddress),
    AddressGone(u32, InterfaceAddress),
}

/// `None` for messages about other things.
pub(crate) fn parse(message: Message<'_>) -> Option<Notice> {
    let body = message.body;
    match message.kind {
        // The family of a bridge tells of its ports, not of interfaces.
        kind::NEW_LINK | kind::DEL_LINK if u8_at(body, 0) != AF_UNSPEC => None,
        kind::NEW_LINK => Some(Notice::Link(link(body))),
        kind::DEL_LINK => Some(Notice::LinkGone(u32_at(body, 4))),
        kind::NEW_ADDRESS => interface_address(body).map(|address| Notice::Address(u32_at(body, 4), address)),
        kind::DEL_ADDRESS => {
            interface_address(body).map(|address| Notice::AddressGone(u32_at(body, 4), address))
        }
        _ => None,
    }
}

fn link(body: &[u8]) -> Interface {
    let flags = u32_at(body, 8);
    let mut interface = Interface {
        index: u32_at(body, 4),
        up: flags & IFF_UP != 0,
        running: flags & IFF_LOWER_UP != 0,
        ..Interface::default()
    };
    for (kind, value) in attributes(body, LINK_HEADER) {
        match kind {
            IFLA_ADDRESS => interface.mac = value.to_vec(),
            IFLA_IFNAME => interface.name = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned(),
            IFLA_MTU => interface.mtu = u32_at(value, 0),
            IFLA_MASTER => interface.master = u32_at(value, 0),
            IFLA_LINKINFO => interface.vrf_table = vrf_table(value),
            _ => {}
        }
    }
    interface
}

fn vrf_table(info: &[u8]) -> Option<u32> {
    let inside =
        |body, wanted| attributes(body, 0).find_map(|(kind, value)| (kind == wanted).then_some(value));
    let kind: &[u8] = inside(info, IFLA_INFO_KIND)?;
    let is_vrf = kind.strip_suffix(b"\0").unwrap_or(kind) == b"vrf";
    let table = inside(inside(info, IFLA_INFO_DATA).filter(|_| is_vrf)?, IFLA_VRF_TABLE)?;
    Some(u32_at(table, 0))
}

fn interface_address(body: &[u8]) -> Option<InterfaceAddress> {
    let (mut network, mut local) = (None, None);
    for (kind, value) in attributes(body, ADDRESS_HEADER) {
        match kind {
            IFA_ADDRESS => network = address(value),
            IFA_LOCAL => local = address(value),
            _ => {}
        }
    }
    let address = local.or(network)?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    // IFA_ADDRESS is the address of the other end where there is one, otherwise the same as IFA_LOCAL.
    let peer = network.filter(|network| *network != address);
    Some(InterfaceAddress { address, length: u8_at(body, 1).min(width), peer })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AF_INET, Batch, messages};

    fn notice(kind: u16, header: &[u8], attributes: &[(u16, &[u8])]) -> Option<Notice> {
        let mut batch = Batch::new();
        batch.message(kind, 0, 1, |body| {
            body.header(header);
            attributes.iter().for_each(|(kind, value)| body.attribute(*kind, value));
        });
        messages(batch.bytes()).find_map(parse)
    }

    fn link_header(family: u8, flags: u32) -> Vec<u8> {
        let mut header = vec![family, 0, 1, 0];
        header.extend_from_slice(&7_u32.to_ne_bytes());
        header.extend_from_slice(&flags.to_ne_bytes());
        header.extend_from_slice(&[0; 4]);
        header
    }

    #[test]
    fn a_link_with_all_we_want_of_it() {
        let (mtu, master) = (1500_u32.to_ne_bytes(), 3_u32.to_ne_bytes());
        let attributes: [(u16, &[u8]); 4] =
            [(3, b"eth1\0"), (4, &mtu), (1, &[2, 0, 0, 0, 0, 1]), (10, &master)];
        let read = notice(kind::NEW_LINK, &link_header(0, IFF_UP | IFF_LOWER_UP), &attributes);
        let Some(Notice::Link(interface)) = read else { panic!("{read:?}") };
        assert_eq!((interface.index, interface.name.as_str(), interface.mtu), (7, "eth1", 1500));
        assert_eq!(interface.master, 3);
        assert!(interface.usable() && interface.mac == [2, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_vrf_device_says_its_table_and_no_other_device_has_one() {
        // `u16 length, u16 type, value`, the data nested.
        let attribute = |kind: u16, value: &[u8]| {
            let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
            bytes.extend_from_slice(&kind.to_ne_bytes());
            bytes.extend_from_slice(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let data = attribute(IFLA_INFO_DATA | 0x8000, &attribute(IFLA_VRF_TABLE, &70_000_u32.to_ne_bytes()));
        for (kind, data, table) in [
            (&b"vrf\0"[..], &data[..], Some(70_000)),
            (b"vrf", &data, Some(70_000)),
            (b"bridge\0", &data, None),
            (b"vrf\0", &[], None),
        ] {
            let info = [&attribute(IFLA_INFO_KIND, kind)[..], data].concat();
            let read = notice(kind::NEW_LINK, &link_header(0, 0), &[(IFLA_LINKINFO | 0x8000, &info)]);
            assert!(matches!(&read, Some(Notice::Link(link)) if link.vrf_table == table), "{read:?}");
        }
    }

    #[test]
    fn without_carrier_or_down_it_is_not_usable() {
        for flags in [0, IFF_UP, IFF_LOWER_UP] {
            let read = notice(kind::NEW_LINK, &link_header(0, flags), &[]);
            assert!(matches!(read, Some(Notice::Link(interface)) if !interface.usable()), "{flags:x}");
        }
    }

    #[test]
    fn a_port_that_leaves_its_bridge_is_not_gone() {
        assert_eq!(notice(kind::DEL_LINK, &link_header(7, 0), &[]), None);
        assert_eq!(notice(kind::DEL_LINK, &link_header(0, 0), &[]), Some(Notice::LinkGone(7)));
    }

    #[test]
    fn addresses_of_networks_and_of_single_peers() {
        let header =
            [AF_INET, 24, 0, 0, 7, 0, 0, 0].map(|byte| if cfg!(target_endian = "big") { 0 } else { byte });
        let (ours, peer) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let network = notice(kind::NEW_ADDRESS, &header, &[(1, &ours), (2, &ours)]);
        assert_eq!(network, Some(Notice::Address(7, InterfaceAddress::new(ours.into(), 24))));
        let single = notice(kind::DEL_ADDRESS, &header, &[(1, &peer), (2, &ours)]);
        let expected = InterfaceAddress { peer: Some(peer.into()), ..InterfaceAddress::new(ours.into(), 24) };
        assert_eq!(single, Some(Notice::AddressGone(7, expected)));
        assert_eq!(notice(kind::NEW_ADDRESS, &header, &[(1, &[1, 2, 3])]), None);
    }
}
