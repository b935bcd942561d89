//! What an operator says about a peer.

use std::time::Duration;

use holdfast_config::schema::{AddPath, Bgpsec, PeerBfd, SessionRules};
use holdfast_types::{Asn, BgpRole, Family, RouterId};

/// The session parameters of one peer. Plain data: checked by whoever reads the configuration; values
/// that make no sense are bent to the nearest that does, as each field says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Our AS number, as this peer sees it.
    pub local_asn: Asn,
    /// Our BGP identifier.
    pub router_id: RouterId,
    /// Which AS numbers the peer may have.
    pub peer_asn: PeerAsn,
    /// The hold time we propose, in seconds: 0 (no KEEPALIVEs, no hold timer) or at least 3; 1 and 2
    /// count as 3. Default: 90 (RFC 4271 section 10).
    pub hold_time: u16,
    /// The families we want to exchange, each sent as a multiprotocol capability.
    pub families: Vec<Family>,
    /// Offer the extended message capability (RFC 8654). Default: true.
    pub extended_message: bool,
    /// Offer IPv6 next hops for IPv4 unicast (RFC 8950), which a session over IPv6 needs to carry
    /// IPv4. Ignored without that family. Default: false.
    pub extended_next_hop: bool,
    /// We have restarted: the peer need not wait for our End-of-RIB. Default: false.
    pub restarting: bool,
    /// What we forwarded before a restart is forwarded still; after the first session it is in any case. Default: false.
    pub forwarding: bool,
    /// Send capabilities at all; without, the session is IPv4 unicast with two-octet AS numbers.
    /// Default: true. A peer that refuses them is tried without in any case (RFC 5492 section 3).
    pub capabilities: bool,
    /// The pause after a failed session (DampPeerOscillations of RFC 4271 section 8.1.1).
    pub idle_hold: IdleHold,
    /// How long nothing may be sent in Established before the session is given up (RFC 9687). `None`
    /// is its default: 8 minutes or twice the negotiated hold time, whichever is greater. Zero switches
    /// it off, as does a negotiated hold time of zero; a value below that time counts as that time.
    pub send_hold: Option<Duration>,
    /// What we are to a peer of another AS (RFC 9234). Default: none.
    pub role: Option<BgpRole>,
    /// What else an operator says of the session, as in the file.
    pub rules: SessionRules,
    /// Several paths of a prefix, in all families (RFC 7911), as in the file.
    pub add_path: AddPath,
    /// Signed paths (RFC 8205), as in the file.
    pub bgpsec: Bgpsec,
    /// The BFD session to the peer, as in the file; `None`: there is none.
    pub bfd: Option<PeerBfd>,
}

/// RFC 4271 section 6.2: a hold time of one or two seconds is refused.
const MIN_HOLD_TIME: u16 = 3;

impl PeerConfig {
    /// The defaults named at each field, with IPv4 unicast.
    pub fn new(local_asn: Asn, router_id: RouterId, peer_asn: PeerAsn) -> Self {
        Self {
            local_asn,
            router_id,
            peer_asn,
            hold_time: 90,
            families: vec![Family::IPV4_UNICAST],
            extended_message: true,
            extended_next_hop: false,
            restarting: false,
            forwarding: false,
            capabilities: true,
            idle_hold: IdleHold::default(),
            send_hold: None,
            role: None,
            rules: SessionRules::default(),
            add_path: AddPath::default(),
            bgpsec: Bgpsec::default(),
            bfd: None,
        }
    }

    /// Whether the session is to wait for BFD, if the peer says so, too.
    pub(crate) fn is_bfd_strict(&self) -> bool {
        self.bfd.as_ref().is_some_and(|bfd| bfd.strict)
    }

    /// What our OPEN says.
    pub(crate) fn proposed_hold_time(&self) -> u16 {
        match self.hold_time {
            0 => 0,
            seconds => seconds.max(MIN_HOLD_TIME),
        }
    }
}

/// Which AS numbers a peer may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAsn {
    /// This one.
    Exact(Asn),
    /// One of these ranges, first and last number each (a range of peers that one listens for).
    OneOf(Vec<(Asn, Asn)>),
    /// Any, ours included (a range that one listens for).
    Any,
    /// Any but ours.
    External,
    /// Ours.
    Internal,
}

impl PeerAsn {
    /// Whether `asn` may be the peer's when ours is `local`.
    pub fn admits(&self, asn: Asn, local: Asn) -> bool {
        match self {
            Self::Exact(wanted) => asn == *wanted,
            Self::OneOf(ranges) => ranges.iter().any(|&(first, last)| (first..=last).contains(&asn)),
            Self::Any => true,
            Self::External => asn != local,
            Self::Internal => asn == local,
        }
    }
}

/// The pause in Idle after a session or an attempt failed: it doubles with every failure in a row. A
/// passive peer waits half as long, so that it listens again when the other side dials.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct IdleHold {
    /// After the first failure; at least one second. Default: 1 s.
    pub initial: Duration,
    /// The longest pause; at least `initial`. Default: 60 s.
    pub max: Duration,
    /// A session that was Established for this long clears the count of failures. Default: 60 s.
    pub forgiven_after: Duration,
}

impl Default for IdleHold {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(60),
            forgiven_after: Duration::from_secs(60),
        }
    }
}

impl IdleHold {
    /// The pause after `failures` (at least one) in a row, before jitter.
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let initial = self.initial.max(Duration::from_secs(1));
        initial.saturating_mul(1 << doublings).min(self.max.max(initial))
    }
}
