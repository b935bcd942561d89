//! What the pipeline is told: about the speaker, its peers, and each session.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdfast_bgp_wire::update::{AsSets, FamilySet, Secured};
use holdfast_config::schema::{DecisionRules, PathRules};
use holdfast_policy::Program;
use holdfast_types::{Asn, Family, HashKey, RouterId};

/// A configured peer, as the driver names it. Small and reused after [`crate::Pipeline::remove_peer`].
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerIndex(pub u16);

impl PeerIndex {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// How the next hops of routes are judged.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NextHopMode {
    /// Every next hop is reachable at metric 0: a speaker without a RIB (route server, reflector).
    AlwaysReachable,
    /// A next hop counts as unreachable until [`crate::Pipeline::next_hop`] says otherwise.
    Resolved,
}

/// What holds for the whole speaker.
#[derive(Clone, Debug)]
pub struct SpeakerConfig {
    /// Our AS.
    pub asn: Asn,
    /// Our BGP identifier.
    pub router_id: RouterId,
    /// Whether paths with an AS_SET are taken (RFC 9774 says no).
    pub as_sets: AsSets,
    /// Where reachability of next hops comes from.
    pub next_hops: NextHopMode,
    /// Paths of one prefix that may be used at once; 1 or less is no multipath.
    pub max_paths: u8,
    /// LOCAL_PREF of routes that carry none.
    pub local_pref: u32,
    /// Of all hashes: attributes and prefixes come from the network.
    pub hash_key: HashKey,
    /// Bounds of queues.
    pub limits: Limits,
    /// Our cluster as a route reflector (RFC 4456 section 7); our BGP identifier by default.
    pub cluster_id: u32,
    /// The number by which others know the confederation that our AS is a member of (RFC 5065).
    pub confederation: Option<Asn>,
    /// Choices that RFC 4271 leaves open in the decision.
    pub decision: DecisionRules,
}

impl SpeakerConfig {
    /// Defaults for everything but the identity.
    pub fn new(asn: Asn, router_id: RouterId, hash_key: HashKey) -> Self {
        Self {
            asn,
            router_id,
            as_sets: AsSets::Reject,
            next_hops: NextHopMode::AlwaysReachable,
            max_paths: 1,
            local_pref: 100,
            hash_key,
            limits: Limits::default(),
            cluster_id: router_id.bits(),
            confederation: None,
            decision: DecisionRules::default(),
        }
    }

    /// Our AS as those outside know it.
    pub(crate) fn outer_asn(&self) -> Asn {
        self.confederation.unwrap_or(self.asn)
    }
}

/// Bounds. Each says what happens when it is reached.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// Changes of one family kept for readers that are behind; a reader behind more restarts from a walk.
    pub log: usize,
    /// Withdrawn prefixes remembered for such readers; beyond, their sessions are given up
    /// ([`crate::Event::TooSlow`]).
    pub withdrawn: usize,
    /// Changes encoded at once: the latency of one slice against how well routes of one set share messages.
    pub window: usize,
    /// Encoded bytes an update group keeps for members that read more slowly than others; a member behind
    /// more reads on alone.
    pub shared_bytes: usize,
    /// Octets a receiver may leave unacknowledged before background work waits for it.
    pub unacknowledged: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            log: 1 << 18,
            withdrawn: 1 << 20,
            window: 4096,
            shared_bytes: 1 << 20,
            unacknowledged: 16 << 10,
        }
    }
}

/// Where a peer is.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum PeerKind {
    /// Another AS.
    Ebgp,
    /// Our own AS.
    Ibgp,
    /// Another member AS of our confederation (RFC 5065).
    ConfedEbgp,
}

/// Which paths of a prefix are announced under path identifiers (RFC 7911): of those that take part in the decision,
/// whatever export policy lets pass.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum SendPaths {
    /// All.
    #[default]
    All,
    /// So many of the best, at most [`Self::MOST_BEST`].
    Best(u8),
}

impl SendPaths {
    /// The most paths that are put in order.
    pub const MOST_BEST: u8 = 16;
}

/// What is configured about a peer.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// The operator's name.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// Its AS.
    pub asn: Asn,
    /// Inside or outside our AS.
    pub kind: PeerKind,
    /// Which routes are taken. `None`: none from eBGP (RFC 8212), all from iBGP.
    pub import: Option<Program>,
    /// Which routes are announced. `None`: none to eBGP (RFC 8212), all to iBGP.
    pub export: Option<Program>,
    /// What becomes of paths from and to the peer besides, in the words of the configuration. The role, `own-view`,
    /// `local-asn` and what makes it a client of a route reflector stay as they are while the session is up.
    ///
    /// Cost: a peer of another AS with `own-view` shares no messages with others, and all paths of a prefix are put in order
    /// when one changes: beyond the thirtieth, in none that means anything. Paths with its own AS are none that it may have.
    pub paths: PathRules,
    /// Which paths of a prefix are announced where the session has agreed on path identifiers.
    pub send_paths: SendPaths,
}

/// Where a peer takes BGPsec_PATH from us (RFC 8205 section 2).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SignedFor {
    /// In these families, as both OPENs say.
    pub families: FamilySet,
    /// The AS in its OPEN.
    pub target: Asn,
}

/// What a session has agreed on, from its OPENs and its socket.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    /// Families both sides have announced.
    pub families: Vec<Family>,
    /// Four-octet AS numbers (RFC 6793).
    pub four_octet_as: bool,
    /// Longest message the peer takes: 4096, or 65535 (RFC 8654).
    pub max_message_len: usize,
    /// IPv4 routes with IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// The peer knows where a refresh begins and ends if it is told (RFC 7313).
    pub enhanced_refresh: bool,
    /// The peer knows what to do with routes that are the last resort (RFC 9494).
    pub long_lived: bool,
    /// Where the peer sends BGPsec_PATH (RFC 8205), and what is looked at there before any signature; `None`: nowhere.
    pub bgpsec_received: Option<Secured>,
    /// Where the peer takes BGPsec_PATH from us; `None`: nowhere.
    pub bgpsec_sent: Option<SignedFor>,
    /// Where the peer's prefixes have path identifiers (RFC 7911): it may send several paths of each.
    pub identifiers_received: FamilySet,
    /// Where it takes such prefixes from us.
    pub identifiers_sent: FamilySet,
    /// Where it may say which prefixes it wants to be told (RFC 5291): it is told nothing before it has asked.
    pub orf_received: Vec<Family>,
    /// The peer's BGP identifier.
    pub router_id: RouterId,
    /// The peer's address on this session.
    pub peer_address: IpAddr,
    /// Our next hop for IPv4 routes; `None` where the link has no IPv4 address.
    pub next_hop_v4: Option<Ipv4Addr>,
    /// Our global next hop for IPv6 routes (and IPv4 ones under RFC 8950).
    pub next_hop_v6: Option<Ipv6Addr>,
    /// Our link-local address, sent beside the global one on a shared link (RFC 2545 section 3).
    pub link_local: Option<Ipv6Addr>,
    /// Kernel's index of the interface to the peer, for link-local next hops; 0 when several hops away.
    pub interface: u32,
    /// What the [journal](crate::Journal) calls the peer: the same for all its sessions and for all processes that keep
    /// this journal, and never another peer's. 0 without a journal.
    pub number: u32,
    /// What [`Pipeline::first_identifier`](crate::Pipeline::first_identifier) has said of the session in another process;
    /// 0 for a new session.
    pub first_identifier: u32,
}
