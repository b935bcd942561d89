//! Peers, and what is advertised to them.

use super::{Size, Transport, Trust};
use holdfast_policy::AsnRange;
use holdfast_types::{Asn, BgpRole, Family, Prefix};
use std::fmt;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::time::Duration;

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
    pub(super) fn could_be_several(&self) -> bool {
        !matches!(self.remote, Remote::Range(_)) && self.trust.could_be_several()
    }

    /// Whether there is a way around what it has to prove.
    pub(super) fn need_not_prove(&self) -> bool {
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
