//! What a receiver looks at before any signature (RFC 8205 section 5.2).

use holdfast_types::Asn;
use thiserror::Error;

use crate::path::{Path, Segment};

/// Hops that are looked at, if nothing else is set: a path of that many signatures costs milliseconds to verify, and no path of
/// today's Internet is near.
pub const MOST_HOPS: usize = 64;

/// The sum of pCounts that is looked at, if nothing else is set. 64 segments of 255 would make an AS_PATH of 65,408 octets, which
/// no message has room for.
pub const MOST_PCOUNT: u32 = 1000;

/// What else the UPDATE has that the path came in.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Update {
    /// Whether there is an AS_PATH as well.
    pub as_path: bool,
    /// Routes in MP_REACH_NLRI.
    pub reachable: usize,
    /// Routes in the UPDATE's NLRI field.
    pub outside: Outside,
}

impl Update {
    /// As RFC 8205 section 4.1 has it: one route in MP_REACH_NLRI, and no AS_PATH.
    pub const PROPER: Self = Self { as_path: false, reachable: 1, outside: Outside::None };
}

/// Routes of IPv4 in the UPDATE's NLRI field, where a BGPsec UPDATE has none (RFC 8205 section 4.1).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Outside {
    /// None.
    None,
    /// The one prefix of MP_REACH_NLRI once more, and nothing else. Some implementations send that.
    Same,
    /// Anything else.
    Other,
}

/// Where the peer of a session is.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Session {
    /// In another AS, and in no member AS of our confederation.
    External,
    /// In another member AS of our confederation (RFC 5065).
    Confederation,
    /// In our AS, or in our member AS. The peer adds no segment, so checks 2, 5, 6 and 7 do not apply: a router at the edge
    /// has made them.
    Internal,
}

/// Over which session a path has come, and what is allowed there.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ingress {
    /// Where the peer is.
    pub session: Session,
    /// The AS in the peer's OPEN.
    pub peer: Asn,
    /// The AS in ours.
    pub own: Asn,
    /// Another AS number of ours that no path may have: the confederation's beside that of the member AS, or the router's
    /// where the session has one of its own (`local-asn`).
    pub own_other: Option<Asn>,
    /// The peer may leave itself out of the path: a route server, or an AS that migrates (RFC 8206).
    pub pcount_zero: bool,
    /// A path of more segments than that is refused.
    pub most_hops: usize,
    /// A path whose pCounts sum up to more than that is refused. Segments of a confederation count, too.
    pub most_pcount: u32,
    /// The peer may repeat the prefix in the UPDATE's NLRI field ([`Outside::Same`]).
    pub repeated_prefix: bool,
}

impl Ingress {
    /// From a peer of another AS, of which nothing else is known.
    pub fn external(peer: Asn, own: Asn) -> Self {
        Self {
            session: Session::External,
            peer,
            own,
            own_other: None,
            pcount_zero: false,
            most_hops: MOST_HOPS,
            most_pcount: MOST_PCOUNT,
            repeated_prefix: false,
        }
    }

    /// From a peer of our own AS.
    pub fn internal(own: Asn) -> Self {
        Self { session: Session::Internal, ..Self::external(own, own) }
    }

    /// Checks the path in the order of the RFC.
    ///
    /// # Errors
    /// What is wrong: the UPDATE is treated as a withdrawal (RFC 7606), of all its routes.
    pub fn check(&self, path: &Path<'_>, update: Update) -> Result<(), Refused> {
        let newest = path.newest();
        let at_edge = self.session != Session::Internal;
        if at_edge && newest.asn != self.peer {
            return Err(Refused::NotThePeer { newest: newest.asn, peer: self.peer });
        }
        if update.as_path {
            return Err(Refused::AsPath);
        }
        match self.session {
            Session::External if path.segments().any(Segment::is_confed) => {
                return Err(Refused::ConfedSegment);
            }
            Session::Confederation if !newest.is_confed() => return Err(Refused::NoConfedSegment),
            Session::External | Session::Confederation | Session::Internal => {}
        }
        if at_edge && newest.pcount == 0 && !self.pcount_zero {
            return Err(Refused::PcountZero);
        }
        // In the AS_PATH that the path stands for, which has no segment of pCount 0.
        let is_ours = |asn| asn == self.own || Some(asn) == self.own_other;
        let ours = path.segments().find(|segment| segment.pcount > 0 && is_ours(segment.asn));
        if let Some(segment) = ours {
            return Err(Refused::Loop(segment.asn));
        }
        match update.outside {
            Outside::None => {}
            Outside::Same if self.repeated_prefix => {}
            Outside::Same | Outside::Other => return Err(Refused::OutsideMpReach),
        }
        if update.reachable != 1 {
            return Err(Refused::Routes(update.reachable));
        }
        if path.hops() > self.most_hops {
            return Err(Refused::TooManyHops { hops: path.hops(), most: self.most_hops });
        }
        let sum = path.segments().map(|segment| u32::from(segment.pcount)).sum();
        if sum > self.most_pcount {
            return Err(Refused::TooLong { sum, most: self.most_pcount });
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
    /// Ours.
    #[error("the pCounts sum up to {sum}, and {most} are allowed")]
    TooLong {
        /// In the path.
        sum: u32,
        /// Allowed.
        most: u32,
    },
}
