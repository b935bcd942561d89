//! Interfaces, and the connected routes that follow from them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use holdfast_types::Prefix;

use crate::nexthop::InterfaceRef;

/// A network that is reached directly.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct InterfaceAddress {
    /// An address in it: of the interface, or of the other end of a point-to-point link.
    pub address: IpAddr,
    /// Bits of the network part.
    pub length: u8,
}

impl InterfaceAddress {
    /// The network whose hosts are neighbours. `None` for link-local and loopback networks (they exist on many
    /// interfaces, or on no wire) and where the length is impossible.
    pub fn network(self) -> Option<Prefix> {
        let usable = !self.address.is_loopback() && !is_link_local(self.address);
        Prefix::new(self.address, self.length).filter(|_| usable)
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// An interface as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The kernel's number.
    pub index: u32,
    /// Its name.
    pub name: Box<str>,
    /// Whether packets can leave by it.
    pub up: bool,
    /// The networks of its addresses.
    pub addresses: Vec<InterfaceAddress>,
}

impl Interface {
    /// Networks reached directly, while it is up.
    fn networks(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.addresses.iter().filter(|_| self.up).filter_map(|address| address.network())
    }
}

/// All interfaces by number.
#[derive(Debug, Default)]
pub(crate) struct Interfaces {
    by_index: BTreeMap<u32, Interface>,
}

impl Interfaces {
    /// Puts the interface in (`None`: takes it out). Returns the networks whose connected route may be another
    /// now.
    pub(crate) fn replace(&mut self, index: u32, new: Option<Interface>) -> BTreeSet<Prefix> {
        let mut touched: BTreeSet<_> = new.iter().flat_map(Interface::networks).collect();
        let old = match new {
            Some(interface) => self.by_index.insert(index, interface),
            None => self.by_index.remove(&index),
        };
        touched.extend(old.iter().flat_map(Interface::networks));
        touched
    }

    /// Where the hosts of a network are neighbours: of several interfaces the one with the lowest number.
    pub(crate) fn attached_to(&self, network: Prefix) -> Option<u32> {
        let mut interfaces = self.by_index.values();
        interfaces
            .find(|interface| interface.networks().any(|n| n == network))
            .map(|interface| interface.index)
    }

    /// The number of the interface if it exists and is up.
    pub(crate) fn usable(&self, interface: &InterfaceRef) -> Option<u32> {
        let found = match interface {
            InterfaceRef::Index(index) => self.by_index.get(index),
            InterfaceRef::Name(name) => self.by_index.values().find(|i| i.name == *name),
        };
        found.filter(|interface| interface.up).map(|interface| interface.index)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Interface> {
        self.by_index.values()
    }
}
