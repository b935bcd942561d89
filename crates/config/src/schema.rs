//! What a configuration says. Field names are the keys of the file, with `-` for `_`.

mod door;
mod rpki;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use holdfast_policy::{AsnRange, PolicySource};
use holdfast_types::{Asn, BgpRole, Family, Prefix, RouterId};

pub use self::door::{Admission, AdmissionSet, DerFile, KeyFile, Pin, Rate, Retry, Tls, Transport, Trust};
pub use self::rpki::{Cache, ExceptionsFile, Rpki};
pub use crate::{processes::Routing, size::Size};

/// A whole configuration, checked: every name resolves, every value is in range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// `[router]`
    pub router: Router,
    /// `[log]`
    pub log: Log,
    /// `[metrics]`; `None` when the file does not mention it, and no `metrics` process is wanted.
    pub metrics: Option<Metrics>,
    /// `[glass]`; `None` when the file does not mention it, and no `glass` process is wanted.
    pub glass: Option<Glass>,
    /// `[fea]`
    pub fea: Fea,
    /// `[rib]`
    pub rib: Rib,
    /// `[sandbox]`
    pub sandbox: Sandbox,
    /// `[tls]`; `None`: we have nothing to show, and no peer uses TLS or QUIC.
    pub tls: Option<Tls>,
    /// `[admission]`
    pub admission: Admission,
    /// `[[vrf]]`; names, devices with their tables, and namespaces are unique.
    pub vrfs: Vec<Vrf>,
    /// `[[static]]`, in each VRF one per prefix.
    pub statics: Vec<StaticRoute>,
    /// `[[protocol]]`; names are unique, and none of ours.
    pub protocols: Vec<Protocol>,
    /// `[rpki]`; no `rpki` process is wanted without a cache in it.
    pub rpki: Rpki,
    /// `[bgp]`; `None` when the file does not mention BGP, and no `bgp` process is wanted.
    pub bgp: Option<Bgp>,
    /// `[[policy]]` and the sets they name. Compiles without errors.
    pub policy: PolicySource,
    /// `[xrl]`; without it XRL does not listen on TCP.
    pub xrl: Xrl,
    /// The sections that belong to one process each, by the process's name; it is wanted where its section is there.
    pub sections: BTreeMap<&'static str, ProcessSection>,
}

/// A section that belongs to one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessSection {
    /// What it says: names are the keys of the file. What has a default is there.
    pub values: serde_json::Map<String, serde_json::Value>,
    /// The interfaces that it names, each with its VRF; `None`: the default table.
    pub interfaces: BTreeSet<(Option<String>, String)>,
    /// The routing protocol of the process.
    pub routing: Option<Routing>,
}

impl ProcessSection {
    /// Whether it is of a routing protocol that has an interface in this table; one that has none is in the default table.
    pub fn routes_in(&self, vrf: Option<&str>) -> bool {
        let is_there = || self.interfaces.iter().any(|(of, _)| of.as_deref() == vrf);
        self.routing.is_some() && (vrf.is_none() || is_there())
    }
}

const ANYBODY_SIGNED: &str =
    "whoever its authorities have signed for may be it, since there is no `tls-name`";

impl Config {
    /// What is allowed, and may not be what was meant; in words of the operator.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for cache in &self.rpki.caches {
            if cache.trust.could_be_several() {
                notes.push(format!("cache `{}`: {ANYBODY_SIGNED}", cache.name));
            }
        }
        if self.rpki.caches.is_empty() && !self.rpki.exceptions.is_empty() {
            notes.push("`exceptions` of the RPKI do nothing without an `[[rpki.cache]]`".to_owned());
        }
        for peer in self.bgp.iter().flat_map(|bgp| &bgp.peers) {
            let mut note = |text: &str| notes.push(format!("peer `{}`: {text}", peer.name));
            if peer.could_be_several() {
                note(ANYBODY_SIGNED);
            }
            if peer.need_not_prove() {
                note("who comes over `tcp`, which is in its list, proves nothing");
            }
        }
        notes
    }
}

/// XRL over TCP.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Xrl {
    /// Addresses to listen on; none by default.
    pub listen: Vec<SocketAddr>,
    /// `[[xrl.client]]`: who may connect; names are unique.
    pub clients: Vec<XrlClient>,
}

/// Somebody who may connect to XRL over TCP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XrlClient {
    /// As it calls itself.
    pub name: String,
    /// What it may call; `operator` by default.
    pub role: XrlRole,
    /// What it has to know, 16 octets or more. Empty until the file of `key_file` has been read.
    pub key: Secret,
    /// `key-file`: where the key is, in place of `key`.
    pub key_file: Option<String>,
}

/// What a client over TCP is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum XrlRole {
    /// Like who opens the operator's socket.
    Operator,
    /// Like who opens the socket of the `[[protocol]]` of its name.
    Protocol,
}

impl XrlRole {
    /// The word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Protocol => "protocol",
        }
    }
}

/// Who the router is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Router {
    /// BGP identifier (RFC 6286).
    pub id: RouterId,
    /// Our AS number.
    pub asn: Asn,
    /// A process that does not answer for so long is hung; zero: none ever is.
    pub hang_limit: Duration,
}

/// Where Prometheus is answered.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// `127.0.0.1:9179` by default.
    pub listen: SocketAddr,
}

/// Where looking glasses are answered.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Glass {
    /// `127.0.0.1:29184` by default.
    pub listen: SocketAddr,
}

/// How events are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// `text` (default) or `json`.
    pub format: LogFormat,
    /// The least important level that is written; `info` by default.
    pub level: LogLevel,
    /// `[log.process]`: the levels of single processes.
    pub processes: Vec<(&'static str, LogLevel)>,
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

impl Log {
    /// As the processes take it by environment: `info,bgp=debug`.
    pub fn filter(&self) -> String {
        let own = self.processes.iter().map(|(process, level)| format!(",{process}={}", level.name()));
        std::iter::once(self.level.name().to_owned()).chain(own).collect()
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

impl Default for Distances {
    fn default() -> Self {
        Self { connected: 0, static_: 1, ebgp: 20, ibgp: 200, processes: BTreeMap::new() }
    }
}

/// How far the router's processes are confined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sandbox {
    /// `enforce` (default) or `off`: whether Landlock and seccomp are used where the kernel has them.
    pub mode: SandboxMode,
    /// The first of the users that processes become when the router is started as root; 60700 by default. 0: none, they
    /// keep the router's.
    pub first_user: u32,
    /// `[sandbox.limits.NAME]`: the name of a process, once, and what it may use.
    pub limits: Vec<(&'static str, ProcessLimits)>,
}

/// What a process may use.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessLimits {
    /// Memory; three quarters of the machine's by default, where a cgroup counts it.
    pub memory: Option<Size>,
    /// Processor time in percent of one processor; all by default.
    pub cpu: Option<u32>,
}

impl Sandbox {
    /// What the process of this name may use.
    pub fn limits_of(&self, name: &str) -> ProcessLimits {
        self.limits
            .iter()
            .find(|limited| limited.0 == name)
            .map_or(ProcessLimits::default(), |limited| limited.1)
    }
}

/// Whether processes are confined.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SandboxMode {
    /// By everything that the kernel has.
    Enforce,
    /// By capabilities and users only: to find out whether the sandbox is what stands in the way.
    Off,
}

impl SandboxMode {
    /// The word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Off => "off",
        }
    }
}

impl Default for Sandbox {
    fn default() -> Self {
        Self { mode: SandboxMode::Enforce, first_user: 60_700, limits: Vec::new() }
    }
}

/// Most VRFs of a router.
pub const MOST_VRFS: usize = 256;

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

/// A protocol in a process that somebody else starts: it connects to the socket `protocol-NAME.sock`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protocol {
    /// The class it is, and the name of its routes.
    pub name: String,
    /// Administrative distance of its routes; 120 by default.
    pub distance: u8,
    /// Who owns the socket, as a name or a number; the user that runs the router by default.
    pub user: Option<String>,
    /// Which group may connect besides; the group that runs the router by default.
    pub group: Option<String>,
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
    /// The UDP port for QUIC by the library noq; 179 by default. Only where a peer uses it.
    pub quic_port: u16,
    /// The UDP port for QUIC by the library s2n-quic, another one; never `None` where a peer uses it.
    pub quic_s2n_port: Option<u16>,
    /// LOCAL_PREF of a route that policy gives none; 100 by default.
    pub local_preference: u32,
    /// How many equally good paths may be used at once; 1 by default.
    pub max_paths: u8,
    /// Whether sessions outlive the `bgp` process; `true` by default.
    pub nonstop: bool,
    /// Room for what a next life of `bgp` needs of them; 1 GiB by default.
    pub nonstop_memory: Size,
    /// `[bgp.damping]`; `None`: no route is damped.
    pub damping: Option<Damping>,
    /// `[[bgp.peer]]`; names are unique, and addresses in each VRF.
    pub peers: Vec<Peer>,
    /// `[[bgp.network]]`: prefixes we originate, each once.
    pub networks: Vec<Prefix>,
    /// `[[bgp.aggregate]]`: each prefix once.
    pub aggregates: Vec<Aggregate>,
    /// `[[bgp.redistribute]]`: routes of other protocols that we originate; in each VRF each protocol once.
    pub redistribute: Vec<Redistribute>,
    /// Policy for what the rib is given of our best routes; `None`: all of them.
    pub rib_policy: Option<String>,
    /// `[[bgp.mrt]]`: dumps; files are unique.
    pub mrt: Vec<Mrt>,
    /// `[[bgp.bmp]]`: collectors; names and addresses are unique.
    pub bmp: Vec<Bmp>,
    /// Our cluster as a route reflector (RFC 4456); `None`: the router's id.
    pub cluster_id: Option<RouterId>,
    /// What the decision makes of MEDs and of equal paths; the keys are those of `[bgp]`.
    pub decision: Decision,
    /// `[bgp.confederation]`; `None`: our AS is a member of none.
    pub confederation: Option<Confederation>,
}

/// Dumps on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mrt {
    /// `updates` by default.
    pub what: MrtKind,
    /// An absolute path, with fields of strftime(3) in its last part.
    pub file: String,
    /// Between tables, or until the next file; 15 minutes by default.
    pub interval: Duration,
    /// Of a file of messages; `None`: as large as it gets.
    pub max_size: Option<Size>,
}

/// What a dump has in it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MrtKind {
    /// Messages received, and changes of state.
    Updates,
    /// All routes, as received.
    Table,
}

/// A collector that is told by BMP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bmp {
    /// For the log.
    pub name: String,
    /// Where it listens.
    pub address: IpAddr,
    /// 11019 by default.
    pub port: u16,
    /// `pre-policy` by default.
    pub send: Vec<BmpTable>,
    /// Between statistics reports, 0 for none; a minute by default.
    pub statistics: Duration,
}

/// What a collector is told of.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BmpTable {
    /// What peers send, before import policy.
    PrePolicy,
    /// What peers are told.
    AdjRibOut,
    /// The best routes.
    LocRib,
}

impl BmpTable {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::PrePolicy, Self::AdjRibOut, Self::LocRib];

    /// The word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::PrePolicy => "pre-policy",
            Self::AdjRibOut => "adj-rib-out",
            Self::LocRib => "loc-rib",
        }
    }
}

/// What RFC 4271 leaves to the operator in the decision.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Whether MEDs of different neighbouring ASes are compared; `false` by default.
    pub always_compare_med: bool,
    /// Whether a route without MED is the worst, not the best; `false` by default.
    pub med_missing_as_worst: bool,
    /// Whether paths of different neighbouring ASes may be used at once; `true` by default.
    pub multipath_relax: bool,
    /// Whether a best path of another AS stays although another one has the lower BGP identifier (RFC 5004); `false` by
    /// default.
    pub prefer_oldest: bool,
}

/// The confederation that our AS is a member of (RFC 5065).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Confederation {
    /// The AS number by which others know it; no member has it.
    pub id: Asn,
    /// The other members that we speak with.
    pub members: Vec<Asn>,
}

/// What becomes of paths from and to a peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PathRules {
    /// Whether it is our client as a route reflector; never outside our AS. `false` by default.
    pub route_reflector_client: bool,
    /// Whether it is our client as a route server (RFC 7947); `false` by default.
    pub route_server_client: bool,
    /// Whom routes to it name as next hop.
    pub next_hop: NextHopRule,
    /// Another AS number that we have for it.
    pub local_asn: Option<LocalAsn>,
    /// How often our AS may be in its paths; 0 by default, at most 10.
    pub allow_own_asn: u8,
    /// What becomes of private AS numbers in paths to it.
    pub remove_private_asns: PrivateAsns,
    /// Whether our AS number takes the place of its own in paths to it; `false` by default.
    pub as_override: bool,
    /// What we are to it (RFC 9234).
    pub role: Option<BgpRole>,
    /// Whether it has to say what it is to us. Never without `role`.
    pub role_strict: bool,
    /// Whether the session is about to end (RFC 8326); that of `[bgp]` by default, which is `false`.
    pub graceful_shutdown: bool,
    /// Whether packets to prefixes that it marks with BLACKHOLE are dropped (RFC 7999); `false` by default.
    pub blackhole: bool,
    /// Whether it is told of the best path that it may have (RFC 7947 section 2.3); `false` by default. Never without
    /// `route_server_client`.
    pub own_view: bool,
    /// Whether it is told of a default route of ours; `false` by default.
    pub default_originate: bool,
    /// Whether its routes are validated by what the RPKI says; `true` by default.
    pub origin_validation: bool,
    /// Whether what it says of validity counts where nothing is known here (RFC 8097); never outside our AS. `false` by default.
    pub accept_validity: bool,
    /// Whether it is told of the validity of routes (RFC 8097); never outside our AS. `false` by default.
    pub announce_validity: bool,
}

/// Whom routes name as next hop.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NextHopRule {
    /// `auto` (default): ourselves to another AS, the received one inside and to clients of a route server.
    Auto,
    /// `self`: ourselves, but for reflected routes.
    Ourselves,
    /// `unchanged`: the received one.
    Unchanged,
}

/// Another AS number of ours.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LocalAsn {
    /// `local-asn`
    pub asn: Asn,
    /// `local-asn-mode`
    pub mode: LocalAsnMode,
}

/// Where another AS number of ours stands in paths.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LocalAsnMode {
    /// `prepend` (default): in front of paths from the peer, and in front of our real number in paths to it.
    Prepend,
    /// `no-prepend`: only the latter.
    NoPrepend,
    /// `replace`: in the place of our real number in paths to the peer.
    Replace,
}

/// What becomes of private AS numbers (RFC 6996).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PrivateAsns {
    /// `off` (default): they stay.
    Keep,
    /// `all`: they are left out.
    Remove,
    /// `replace`: ours stands in their place.
    Replace,
}

/// A route of our own that is there while a best route lies inside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Aggregate {
    /// Where it leads; other prefixes lie inside it.
    pub prefix: Prefix,
    /// Whether peers are not told of routes that contribute; `false` by default.
    pub summary_only: bool,
    /// Policy that says which routes inside contribute; `None`: all.
    pub contributors: Option<String>,
    /// Policy for the aggregate itself; `None`: as it is made.
    pub policy: Option<String>,
}

/// Routes of another protocol as routes of our own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redistribute {
    /// The VRF in which this is done; `None`: the default table.
    pub vrf: Option<String>,
    /// `static`, `connected`, or the name of a [`Protocol`].
    pub from: String,
    /// Policy that says which, and with what attributes.
    pub policy: String,
}

/// Route-flap damping (RFC 2439 section 4.2, with the suppress threshold of RFC 7196).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Damping {
    /// Time in which a penalty becomes half of what it was; 15 minutes by default.
    pub half_life: Duration,
    /// Penalty from which on a route is held back; 6,000 by default.
    pub suppress: u32,
    /// Penalty below which it is used again; 750 by default.
    pub reuse: u32,
    /// The longest time a route is held back after its last flap; 60 minutes by default.
    pub max_suppress: Duration,
}

impl Default for Damping {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        Self { half_life: minutes(15), suppress: 6000, reuse: 750, max_suppress: minutes(60) }
    }
}

impl Damping {
    /// The highest penalty: one that decays to `reuse` in `max_suppress`.
    pub fn ceiling(&self) -> f64 {
        f64::from(self.reuse) * self.max_suppress.div_duration_f64(self.half_life).exp2()
    }
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
    /// The VRF that it is in; `None`: the default table.
    pub vrf: Option<String>,
    /// `address`, `listen-range` or `interface`.
    pub remote: Remote,
    /// Our end of the session; chosen by the kernel if there is none. Of the remote's family.
    pub local_address: Option<IpAddr>,
    /// The port we connect to; 179 by default.
    pub port: u16,
    /// The UDP port we connect to over QUIC; `None`: where we listen for it ourselves.
    pub quic_port: Option<u16>,
    /// Whose session it may be. A single number unless it is a `listen-range`, or an `interface` without address.
    pub asn: PeerAsn,
    /// Whether we only wait for the peer's connection. Always so for a `listen-range`.
    pub passive: bool,
    /// Offered in OPEN; the remote's own unicast family by default, both for a neighbour on an `interface`. Never empty.
    pub families: Vec<Family>,
    /// Policy for what we learn. `None`: nothing passes from another AS (RFC 8212).
    pub import: Option<String>,
    /// Policy for what we announce. `None`: nothing passes to another AS (RFC 8212).
    pub export: Option<String>,
    /// What carries its session, the preferred first; nothing else is ever used. Never empty; TCP alone by default.
    pub transports: Vec<Transport>,
    /// What it has to prove over those that prove something: never nothing where there is one.
    pub trust: Trust,
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
    /// What becomes of paths from and to it besides policy; the keys are the peer's own.
    pub paths: PathRules,
    /// The most that may be kept for it: of its routes, and of the attributes that it brings; 1 GiB by default.
    pub max_octets: Size,
    /// How much of a core other peers may wait for it, in per cent over ten seconds; any by default.
    pub max_cost: Option<u8>,
    /// Whether the session outlives the `bgp` process; that of [`Bgp`] by default, and never `true` where that is
    /// `false`.
    pub nonstop: bool,
    /// Whether its routes are damped if it is of another AS; `true` by default where there is [`Bgp::damping`], and never
    /// where there is none.
    pub damping: bool,
    /// Whether the session is kept down; `false` by default.
    pub disabled: bool,

    /// The `[[bgp.group]]` that it takes what it does not say from; that has been done.
    pub group: Option<String>,
    /// `[[bgp.peer.limit]]`, each family once.
    pub limits: Vec<PrefixLimit>,
    /// What the neighbour is told of `disabled` (RFC 9003); up to 255 octets.
    pub shutdown_text: Option<String>,
    /// Our part in graceful restart; [`GracefulRestart::Helper`] by default.
    pub graceful_restart: GracefulRestart,
    /// Time that we may need to come back, with [`GracefulRestart::Full`]; 120 s by default, below 4096 s.
    pub restart_time: Duration,
    /// How long routes of a peer that stays away are kept as the last resort; zero by default, below 2^24 s.
    pub long_lived_stale_time: Duration,
    /// How long routes of a peer that is back wait for its End-of-RIB; 360 s by default.
    pub stale_time: Duration,
    /// Whether it may send several paths of a prefix (RFC 7911); `false` by default.
    pub receive_paths: bool,
    /// Which paths it is sent; `None`: the best, without path identifiers.
    pub send_paths: Option<SendPaths>,
    /// Who tells the other which prefixes it wants (RFC 5291); [`Orf::Off`] by default.
    pub orf: Orf,
    /// The prefix set that the peer is told of, where [`Orf::sends`].
    pub orf_prefix_set: Option<String>,
}

impl Peer {
    /// Whether it is one neighbour, and others prove as much as it does.
    fn could_be_several(&self) -> bool {
        !matches!(self.remote, Remote::Range(_)) && self.trust.could_be_several()
    }

    /// Whether there is a way around what it has to prove.
    fn need_not_prove(&self) -> bool {
        let proves = |transport: &Transport| transport.proves();
        self.transports.iter().any(proves) && !self.transports.iter().all(proves)
    }
}

/// Outbound route filtering by address prefix (RFC 5291, RFC 5292).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Orf {
    /// Nobody.
    Off,
    /// The peer tells us.
    Receive,
    /// We tell the peer.
    Send,
    /// Each tells the other.
    Both,
}

impl Orf {
    /// The word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Receive => "receive",
            Self::Send => "send",
            Self::Both => "both",
        }
    }

    /// Whether we tell the peer.
    pub fn sends(self) -> bool {
        match self {
            Self::Send | Self::Both => true,
            Self::Off | Self::Receive => false,
        }
    }
}

/// Our part in graceful restart (RFC 4724).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum GracefulRestart {
    /// None; End-of-RIB is sent all the same.
    Off,
    /// Routes of a neighbour that restarts stay.
    Helper,
    /// And it keeps ours when we restart.
    Full,
}

impl GracefulRestart {
    /// The word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Helper => "helper",
            Self::Full => "full",
        }
    }
}

/// How many prefixes of a family a peer may have; `None`: any number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PrefixLimit {
    /// Of which family.
    pub family: Family,
    /// Announced to us.
    pub received: Option<u32>,
    /// Of those, taken by import policy.
    pub accepted: Option<u32>,
    /// Announced by us.
    pub announced: Option<u32>,
    /// Percent of a limit from which on the log warns; 75 by default.
    pub warn_percent: u8,
    /// What happens above a limit; [`LimitAction::Idle`] by default.
    pub action: LimitAction,
    /// For [`LimitAction::Restart`]; 300 s by default.
    pub restart_after: Duration,
}

/// What happens to a session above a limit of prefixes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LimitAction {
    /// It ends until somebody clears it or raises the limit.
    Idle,
    /// It ends for a while.
    Restart,
    /// It stays, and the log says so.
    Warn,
}

/// Which paths of a prefix a peer is sent that takes several (RFC 7911).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SendPaths {
    /// All that take part in the decision.
    All,
    /// So many of the best, 1 to 16.
    Best(u8),
}

/// Where a peer is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Remote {
    /// One neighbour.
    Address(IpAddr),
    /// One neighbour at a link-local address of this interface.
    LinkLocal(Ipv6Addr, String),
    /// Whoever is the neighbour on this interface, by its link-local address.
    Interface(String),
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
    /// This text.
    pub fn new(text: String) -> Self {
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
