//! Tables: VRFs, the RIB, the kernel, static routes, protocols of others.

use holdfast_types::Prefix;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::Descriptor;

/// The forwarding engine abstraction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fea {
    /// What is forwarding: `linux` (default) or `none`.
    pub backend: Backend,
    /// Whether the kernel keeps our routes when the router stops; `false` by default.
    pub keep_routes: bool,
    /// The kernel's routing table; 254, `main`, by default.
    pub table: u32,
}

/// A forwarding plane.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Backend {
    /// The Linux kernel, through netlink.
    Linux,
    /// Nothing: routes are selected and announced, and counted here.
    None,
}

impl Backend {
    /// The word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::None => "none",
        }
    }
}

/// The routing information base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rib {
    /// `false`: select and announce only; there is no `rib` and no `fea`. `true` by default.
    pub enabled: bool,
    /// How long the routes of a protocol that died stay while it is not back; 300 s by default.
    pub stale_time: Duration,
    /// `[rib.distance]`
    pub distance: Distances,
}

/// Administrative distances: of several protocols with a route for one prefix the lowest wins.
/// 255 means: never used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distances {
    /// Networks of our own addresses; 0 by default.
    pub connected: u8,
    /// Static routes; 1 by default.
    pub static_: u8,
    /// Learned from another AS; 20 by default.
    pub ebgp: u8,
    /// Learned inside our AS; 200 by default.
    pub ibgp: u8,
    /// Of processes that speak a routing protocol, by name.
    pub processes: BTreeMap<&'static str, u8>,
}

impl Distances {
    /// Of the routes between which BGP decides: connected ones, and its own from either kind of peer.
    pub fn of_bgp(&self) -> [u8; 3] {
        [self.connected, self.ebgp, self.ibgp]
    }
}

impl Default for Distances {
    fn default() -> Self {
        Self { connected: 0, static_: 1, ebgp: 20, ibgp: 200, processes: BTreeMap::new() }
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
