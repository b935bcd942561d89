//! What a configuration says. Field names are the keys of the file, with `-` for `_`.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use holdfast_policy::{AsnRange, PolicySource};
use holdfast_types::{Asn, Family, Prefix, RouterId};

/// A whole configuration, checked: every name resolves, every value is in range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// `[router]`
    pub router: Router,
    /// `[log]`
    pub log: Log,
    /// `[fea]`
    pub fea: Fea,
    /// `[rib]`
    pub rib: Rib,
    /// `[[static]]`, one per prefix.
    pub statics: Vec<StaticRoute>,
    /// `[bgp]`; `None` when the file does not mention BGP, and no `bgp` process is wanted.
    pub bgp: Option<Bgp>,
    /// `[[policy]]` and the sets they name. Compiles without errors.
    pub policy: PolicySource,
}

/// Who the router is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Router {
    /// BGP identifier (RFC 6286).
    pub id: RouterId,
    /// Our AS number.
    pub asn: Asn,
}

/// How events are written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// `text` (default) or `json`.
    pub format: LogFormat,
    /// The least important level that is written; `info` by default.
    pub level: LogLevel,
}

/// Form of a log line.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Importance of a log line, most important first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something unexpected that was dealt with.
    Warn,
    /// Changes of state, as of a session.
    Info,
    /// Single events.
    Debug,
    /// Single steps.
    Trace,
}

impl LogLevel {
    /// The word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

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
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
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
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Distances {
    /// Networks of our own addresses; 0 by default.
    pub connected: u8,
    /// Static routes; 1 by default.
    pub static_: u8,
    /// Learned from another AS; 20 by default.
    pub ebgp: u8,
    /// Learned inside our AS; 200 by default.
    pub ibgp: u8,
}

impl Default for Distances {
    fn default() -> Self {
        Self { connected: 0, static_: 1, ebgp: 20, ibgp: 200 }
    }
}

/// A route by configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaticRoute {
    /// Where it leads.
    pub prefix: Prefix,
    /// By which way.
    pub target: StaticTarget,
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

/// BGP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bgp {
    /// What becomes of routes with an AS_SET (RFC 9774); refused by default.
    pub as_sets: AsSets,
    /// The port to listen on; 179 by default.
    pub port: u16,
    /// Addresses to listen on; none means all of both families.
    pub listen: Vec<IpAddr>,
    /// LOCAL_PREF of a route that policy gives none; 100 by default.
    pub local_preference: u32,
    /// How many equally good paths may be used at once; 1 by default.
    pub max_paths: u8,
    /// `[[bgp.peer]]`; names and addresses are unique.
    pub peers: Vec<Peer>,
    /// `[[bgp.network]]`: prefixes we originate, each once.
    pub networks: Vec<Prefix>,
}

/// What becomes of routes with an AS_SET or AS_CONFED_SET in their path.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AsSets {
    /// They are treated as withdrawn (RFC 9774).
    Reject,
    /// They are taken, as before RFC 9774.
    Accept,
}

/// A BGP neighbour, or a range of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// What the operator calls it.
    pub name: String,
    /// Free text.
    pub description: Option<String>,
    /// `address` or `listen-range`.
    pub remote: Remote,
    /// Our end of the session; chosen by the kernel if there is none. Of the remote's family.
    pub local_address: Option<IpAddr>,
    /// The port we connect to; 179 by default.
    pub port: u16,
    /// Whose session it may be. A single number unless it is a `listen-range`.
    pub asn: PeerAsn,
    /// Whether we only wait for the peer's connection. Always so for a `listen-range`.
    pub passive: bool,
    /// Offered in OPEN; the remote's own unicast family by default. Never empty.
    pub families: Vec<Family>,
    /// Policy for what we learn. `None`: nothing passes from another AS (RFC 8212).
    pub import: Option<String>,
    /// Policy for what we announce. `None`: nothing passes to another AS (RFC 8212).
    pub export: Option<String>,
    /// TCP-MD5 key (RFC 2385), 1 to 80 octets.
    pub md5: Option<Secret>,
    /// GTSM (RFC 5082): packets are sent with TTL 255, and taken only with that.
    pub ttl_security: bool,
    /// TTL of our packets where the peer is not on a connected network; `None`: 1 to another AS.
    /// Never together with `ttl_security`.
    pub multihop: Option<u8>,
    /// Hold time that we offer: 0, or 3 s and more; 90 s by default.
    pub hold_time: Duration,
    /// Time between attempts to connect; 5 s by default (RFC 4271 section 10 suggests 120 s, which makes
    /// restarts needlessly slow).
    pub connect_retry: Duration,
    /// Whether a path from another AS has to begin with that AS (RFC 4271 section 6.3); `true` by default.
    pub enforce_first_as: bool,
    /// Our address that we announce as next hop for IPv4 prefixes where the session runs over IPv6.
    pub next_hop_ipv4: Option<Ipv4Addr>,
    /// Our address that we announce as next hop for IPv6 prefixes where the session runs over IPv4.
    pub next_hop_ipv6: Option<Ipv6Addr>,
    /// Whether we announce ourselves as the next hop also inside our AS; `false` by default.
    pub next_hop_self: bool,
    /// Whether the session is kept down; `false` by default.
    pub disabled: bool,
}

/// Where a peer is.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Remote {
    /// One neighbour.
    Address(IpAddr),
    /// Any number of neighbours, which connect from addresses of this prefix.
    Range(Prefix),
}

/// The AS numbers that a peer may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerAsn {
    /// This one.
    One(Asn),
    /// One of these; never empty.
    OneOf(Vec<AsnRange>),
    /// Any that a neighbour may have.
    Any,
}

/// A text that is not shown in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
