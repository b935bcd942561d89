//! `[bgp]` but for peers and what is watched.

use super::{Bmp, Mrt, Peer, Size};
use holdfast_types::{Asn, Prefix, RouterId};
use std::marker::PhantomData;
use std::net::IpAddr;
use std::time::Duration;

use crate::keyed::{Flag, MaybeNumber, Most, OneOf, keys, number, seconds, words};

keys! {
    /// BGP.
    pub struct Bgp {
        "as-sets" as_sets: AsSets = OneOf::<AsSets>(PhantomData), Reload, "`\"reject\"`: routes with an AS_SET count as withdrawn (RFC 9774); `\"accept\"`: taken";
        "port" port: u16 = number!(1..=65535, 179), Reload, "where to listen";
        "quic-port" quic_port: u16 = number!(1..=65535, 179), Reload, "where to listen for QUIC (UDP), if a peer has `\"quic\"` among its `transport`";
        "quic-s2n-port" quic_s2n_port: Option<u16> = MaybeNumber(1, 65535, "none"), Reload, "the same for `\"quic-s2n\"`, which needs a port of its own";
        "local-preference" local_preference: u32 = number!(0..=4294967295, 100), Reload, "of routes that neither the peer nor a policy gives one";
        "max-paths" max_paths: u8 = number!(1..=64, 1), Reload, "equally good paths used at once";
        "bgpsec-pace" bgpsec_pace: Duration = seconds!(0..=3600, 5), Reload, "a path of which only the signatures have changed is passed on at most once in so many seconds; 0: at once (see [BGPsec](bgpsec.md#paths-that-are-signed-again))";
        "nonstop" nonstop: bool = Flag(true), Reload, "whether sessions outlive the `bgp` process (see [nonstop](nonstop.md)); a peer may be left out";
        "nonstop-memory" nonstop_memory: Size = Most("\"1 GiB\""), Reload, "room for what the next `bgp` process needs of them";
        "consistency-check" consistency_check: bool = Flag(false), Reload, "check in the running router that each stage hands on what belongs together (see [stages](stages.md#checking-a-running-router))";
        + /// Addresses to listen on; none means all of both families.
        listen: Vec<IpAddr> = Vec::new();
        + /// `[bgp.damping]`; `None`: no route is damped.
        damping: Option<Damping> = None;
        + /// `[[bgp.peer]]`; names are unique, and addresses in each VRF.
        peers: Vec<Peer> = Vec::new();
        + /// `[[bgp.network]]`: prefixes we originate, each once.
        networks: Vec<Prefix> = Vec::new();
        + /// `[[bgp.aggregate]]`: each prefix once.
        aggregates: Vec<Aggregate> = Vec::new();
        + /// `[[bgp.redistribute]]`: routes of other protocols that we originate; in each VRF each protocol once.
        redistribute: Vec<Redistribute> = Vec::new();
        + /// Policy for what the rib is given of our best routes; `None`: all of them.
        rib_policy: Option<String> = None;
        + /// `[[bgp.mrt]]`: dumps; files are unique.
        mrt: Vec<Mrt> = Vec::new();
        + /// `[[bgp.bmp]]`: collectors; names and addresses are unique.
        bmp: Vec<Bmp> = Vec::new();
        + /// Our cluster as a route reflector (RFC 4456); `None`: the router's id.
        cluster_id: Option<RouterId> = None;
        + /// What the decision makes of MEDs and of equal paths; the keys are those of `[bgp]`.
        decision: DecisionRules = DecisionRules::default();
        + /// `[bgp.confederation]`; `None`: our AS is a member of none.
        confederation: Option<Confederation> = None;
    }
}

keys! {
    /// What RFC 4271 leaves to the operator in the decision.
    #[derive(Copy)]
    pub struct DecisionRules {
        "always-compare-med" always_compare_med: bool = Flag(false), Reload, "compare the MEDs of paths of different neighbouring ASes";
        "med-missing-as-worst" med_missing_as_worst: bool = Flag(false), Reload, "a path without MED is worse than any with one, not better";
        "multipath-relax" multipath_relax: bool = Flag(true), Reload, "with `max-paths`, use paths of different neighbouring ASes at once";
        "prefer-oldest" prefer_oldest: bool = Flag(false), Reload, "a path of another AS that is best stays so although another one has the lower router id (RFC 5004)";
    }
}

/// The confederation that our AS is a member of (RFC 5065).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Confederation {
    /// The AS number by which others know it; no member has it.
    pub id: Asn,
    /// The other members that we speak with.
    pub members: Vec<Asn>,
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

keys! {
    /// Route-flap damping (RFC 2439 section 4.2, with the suppress threshold of RFC 7196).
    #[derive(Copy)]
    pub struct Damping {
        "half-life" half_life: Duration = seconds!(1..=65535, 900), Reload, "seconds in which a route's penalty becomes half of what it was";
        "suppress" suppress: u32 = number!(1..=4294967295, 6000), Reload, "penalty from which on a route is held back; a withdrawal counts 1000, a change of attributes 500";
        "reuse" reuse: u32 = number!(1..=4294967295, 750), Reload, "penalty below which it is used again; less than `suppress`";
        "max-suppress" max_suppress: Duration = seconds!(1..=65535, 3600), Reload, "seconds after its last flap for which a route is held back at most";
    }
}

impl Damping {
    /// The highest penalty: one that decays to `reuse` in `max_suppress`.
    pub fn ceiling(&self) -> f64 {
        f64::from(self.reuse) * self.max_suppress.div_duration_f64(self.half_life).exp2()
    }
}

words! {
    /// What becomes of routes with an AS_SET or AS_CONFED_SET in their path.
    pub enum AsSets = Reject "reject" {
        /// They are treated as withdrawn (RFC 9774).
        Reject = "reject",
        /// They are taken, as before RFC 9774.
        Accept = "accept",
    }
}
