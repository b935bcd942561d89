//! Tables: VRFs, the RIB, the kernel, static routes, protocols of others.

use holdfast_types::Prefix;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::time::Duration;

use super::StaticBfd;
use crate::Descriptor;
use crate::keyed::{Flag, OneOf, keys, number, seconds, words};

keys! {
    /// The forwarding engine abstraction.
    #[derive(Copy)]
    pub struct Fea {
        "backend" backend: Backend = OneOf::<Backend>(PhantomData), Reload, "`\"linux\"`: the kernel's tables; `\"none\"`: routes are selected and announced, and nothing is installed";
        "keep-routes" keep_routes: bool = Flag(false), Reload, "a router that stops leaves its routes in the kernel";
        "metric" metric: u32 = number!(1..=4294967295, 20), Reload, "the kernel's metric of the routes of all tables; a route of another program with a lower one precedes ours";
        "table" table: u32 = number!(1..=4294967295, 254), Reload, "number of the kernel's routing table; 254 is main";
    }
}

words! {
    /// A forwarding plane.
    pub enum Backend = Linux "linux" {
        /// The Linux kernel, through netlink.
        Linux = "linux",
        /// Nothing: routes are selected and announced, and counted here.
        None = "none",
    }
}

keys! {
    /// The routing information base.
    pub struct Rib {
        "enabled" enabled: bool = Flag(true), Reload, "`false`: neither `rib` nor `fea` run; BGP selects and announces only, and every next hop counts as reachable";
        "stale-time" stale_time: Duration = seconds!(0..=65535, 300), Reload, "seconds that the routes of a protocol that died stay while it is not back";
        + /// `[rib.distance]`
        distance: Distances = Distances::default();
    }
}

keys! {
    /// Administrative distances: of several protocols with a route for one prefix the lowest wins.
    /// 255 means: never used.
    pub struct Distances {
        "connected" connected: u8 = number!(0..=255, 0), Reload, "networks of our own addresses";
        "static" static_: u8 = number!(0..=255, 1), Reload, "static routes";
        "ebgp" ebgp: u8 = number!(0..=255, 20), Reload, "learned from another AS";
        "ibgp" ibgp: u8 = number!(0..=255, 200), Reload, "learned inside our AS";
        + /// Of processes that speak a routing protocol, by name.
        processes: BTreeMap<&'static str, u8> = BTreeMap::new();
    }
}

impl Distances {
    /// Of the routes between which BGP decides: connected ones, and its own from either kind of peer.
    pub fn of_bgp(&self) -> [u8; 3] {
        [self.connected, self.ebgp, self.ibgp]
    }
}

/// A table beside the default one, with sockets and interfaces of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vrf {
    /// 1 to 15 octets, as others of the file call it.
    pub name: String,
    /// Where it is.
    pub place: VrfPlace,
    /// Prefixes that we originate in it, each once.
    pub networks: Vec<Prefix>,
}

/// Where the routes and sockets of a VRF are.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum VrfPlace {
    /// At a VRF device, which is there already and bound to a table.
    Device {
        /// The VRF's name by default.
        name: String,
        /// Kernel routing table; none of the reserved ones, nor that of `[fea]`.
        table: u32,
    },
    /// In a network namespace.
    Netns {
        /// Name in `/run/netns`.
        name: String,
        /// Kernel routing table there; 254, `main`, by default.
        table: u32,
    },
}

/// A route by configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaticRoute {
    /// The VRF that it is in; `None`: the default table.
    pub vrf: Option<String>,
    /// Where it leads.
    pub prefix: Prefix,
    /// By which way.
    pub target: StaticTarget,
    /// For policies; 0, the default, is none.
    pub tag: u32,
    /// The BFD session to its next hop, while which is down it is not used; only with [`StaticTarget::NextHop`].
    pub bfd: Option<StaticBfd>,
}

/// The way of a static route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StaticTarget {
    /// `next-hop`, of the prefix's family, with `interface` where both are given (always for a
    /// link-local next hop).
    NextHop {
        /// The gateway.
        address: IpAddr,
        /// Where the gateway is; otherwise it is resolved.
        interface: Option<String>,
    },
    /// `interface` alone: everything is a neighbour there.
    Interface(String),
    /// `blackhole = true`: dropped.
    Blackhole,
}

/// A protocol of others. Without a descriptor somebody else starts it, and it connects to the socket `protocol-NAME.sock`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protocol {
    /// The class it is, and the name of its routes.
    pub name: String,
    /// What describes it, for the router to start it if its section is there.
    pub descriptor: Option<&'static Descriptor>,
    /// Administrative distance of its routes; 120 by default. With a descriptor it is among those of `[rib]`.
    pub distance: u8,
    /// Who owns the socket, as a name or a number; the user that runs the router by default.
    pub user: Option<String>,
    /// Which group may connect besides; the group that runs the router by default.
    pub group: Option<String>,
}
