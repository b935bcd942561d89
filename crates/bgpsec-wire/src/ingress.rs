//! What a receiver looks at before any signature (RFC 8205 section 5.2).

use holdfast_types::Asn;
use thiserror::Error;

use crate::path::{Path, Segment};

/// Hops that are looked at, if nothing else is set: a path of that many signatures costs milliseconds to verify, and no path of
/// today's Internet is near.
pub const MOST_HOPS: usize = 64;

/// What else the UPDATE has that the path came in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// Whether there is an AS_PATH as well.
    pub as_path: bool,
    /// Routes in MP_REACH_NLRI.
    pub reachable: usize,
    /// Whether routes of IPv4 are in the UPDATE's own fields.
    pub outside_mp_reach: bool,
}

impl Update {
    /// As RFC 8205 section 4.1 has it: one route in MP_REACH_NLRI, and no AS_PATH.
    pub const PROPER: Self = Self { as_path: false, reachable: 1, outside_mp_reach: false };
}

/// Who has sent a path over an external session, and to whom.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ingress {
    /// The AS in the peer's OPEN.
    pub peer: Asn,
    /// The AS in ours.
    pub own: Asn,
    /// The peer is in another member AS of our confederation (RFC 5065).
    pub in_confederation: bool,
    /// The peer may leave itself out of the path: a route server, or an AS that migrates (RFC 8206).
    pub pcount_zero: bool,
    /// A path of more segments than that is refused.
    pub most_hops: usize,
}

impl Ingress {
    /// From a peer of another AS, of which nothing else is known.
    pub fn external(peer: Asn, own: Asn) -> Self {
        Self { peer, own, in_confederation: false, pcount_zero: false, most_hops: MOST_HOPS }
    }

    /// In the order of the RFC.
    ///
    /// # Errors
    /// What is wrong: the UPDATE is treated as a withdrawal (RFC 7606), of all its routes.
    pub fn check(&self, path: &Path<'_>, update: Update) -> Result<(), Refused> {
        let newest = path.newest();
        if newest.asn != self.peer {
            return Err(Refused::NotThePeer { newest: newest.asn, peer: self.peer });
        }
        if update.as_path {
            return Err(Refused::AsPath);
        }
        if !self.in_confederation && path.segments().any(Segment::is_confed) {
            return Err(Refused::ConfedSegment);
        }
        if self.in_confederation && !newest.is_confed() {
            return Err(Refused::NoConfedSegment);
        }
        if newest.pcount == 0 && !self.pcount_zero {
            return Err(Refused::PcountZero);
        }
        if path.segments().any(|segment| segment.pcount > 0 && segment.asn == self.own) {
            return Err(Refused::Loop(self.own));
        }
        if update.outside_mp_reach {
            return Err(Refused::OutsideMpReach);
        }
        if update.reachable != 1 {
            return Err(Refused::Routes(update.reachable));
        }
        if path.hops() > self.most_hops {
            return Err(Refused::TooManyHops { hops: path.hops(), most: self.most_hops });
        }
        Ok(())
    }
}

/// Why a path that can be read is not taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum Refused {
    /// Check 2.
    #[error("the most recent segment is of AS {newest}, the peer is AS {peer}")]
    NotThePeer {
        /// Of the segment.
        newest: Asn,
        /// In the peer's OPEN.
        peer: Asn,
    },
    /// Check 4.
    #[error("there is an AS_PATH beside BGPsec_PATH")]
    AsPath,
    /// Check 5.
    #[error("a segment is of a confederation, and the peer is in none of ours")]
    ConfedSegment,
    /// Check 6.
    #[error("the peer is in our confederation, and its segment does not say so")]
    NoConfedSegment,
    /// Check 7.
    #[error("the peer leaves itself out of the path (pCount 0), which it may not")]
    PcountZero,
    /// Check 8.
    #[error("our AS {0} is in the path")]
    Loop(Asn),
    /// Section 4.1.
    #[error("a route outside MP_REACH_NLRI")]
    OutsideMpReach,
    /// Section 4.1: the signatures cover one route.
    #[error("{0} routes, where signatures cover one")]
    Routes(usize),
    /// Ours.
    #[error("{hops} segments, of which {most} are looked at")]
    TooManyHops {
        /// In the path.
        hops: usize,
        /// Allowed.
        most: usize,
    },
}
