//! The interfaces of a table, as `fea` says.

use std::{collections::BTreeMap, convert::Infallible, net::IpAddr};

use holdfast_api::fea::v1::{Empty, FeaClient, Interface};
use holdfast_process::Boot;
use holdfast_types::Prefix;
use holdfast_xrl::XrlError;

use crate::{Retry, client};

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The kernel's number: another one when an interface of this name is made again.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Up, and with carrier.
    pub is_up: bool,
    /// Octets of the longest packet.
    pub mtu: u32,
    /// Its addresses.
    pub addresses: Vec<LinkAddress>,
}

/// An address of an interface.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LinkAddress {
    /// Our own address.
    pub address: IpAddr,
    /// The network that is reached directly: around the address, or around the other end of a point-to-point link.
    pub network: Prefix,
}

impl LinkAddress {
    /// One of a link to many; `None`: the prefix of its network is longer than the address.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        Some(Self { address, network: Prefix::new(address, length)? })
    }
}

/// Interfaces by number.
pub type Links = BTreeMap<u32, Link>;

/// Tells of the interfaces for ever: all of them, and all again at each change. Nothing is told while `fea` is away.
///
/// With `true`, changes may have been missed: an interface may be another one of the same number. Sockets that were opened
/// on it before are in no group then.
pub async fn follow(boot: &Boot, mut tell: impl FnMut(&Links, bool)) -> Infallible {
    let mut retry = Retry::default();
    loop {
        let error = follow_one(boot, &mut tell).await;
        retry.after("interfaces", error).await;
    }
}

async fn follow_one(boot: &Boot, tell: &mut impl FnMut(&Links, bool)) -> XrlError {
    let client: FeaClient = match client(boot, "fea").await {
        Ok(client) => client,
        Err(error) => return error,
    };
    let (mut links, mut is_synced, mut events) = (Links::new(), false, client.interfaces(Empty {}));
    loop {
        let event = match events.next().await {
            Ok(Some(event)) => event,
            Ok(None) => return XrlError::unavailable("the fea ended its interfaces"),
            Err(error) => return error,
        };
        if event.gone != 0 {
            links.remove(&event.gone);
        }
        if let Some(interface) = event.interface {
            links.insert(interface.index, link(interface));
        }
        is_synced |= event.synced;
        if is_synced {
            tell(&links, event.synced || event.overrun);
        }
    }
}

fn link(interface: Interface) -> Link {
    let addresses = interface.addresses.iter().filter_map(|address| {
        let length = u8::try_from(address.length).ok()?;
        let own = holdfast_types::address(&address.address)?;
        let inside = if address.peer.is_empty() { own } else { holdfast_types::address(&address.peer)? };
        Some(LinkAddress { address: own, network: Prefix::new(inside, length)? })
    });
    Link {
        index: interface.index,
        is_up: interface.up && interface.running,
        mtu: interface.mtu,
        addresses: addresses.collect(),
        name: interface.name,
    }
}
