//! `[bgp]` but for peers and what is watched.

use super::{Bmp, Mrt, Peer, Size};
use holdfast_types::{Asn, Prefix, RouterId};
use std::net::IpAddr;
use std::time::Duration;

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
