//! How the path of a route goes on to a peer (RFC 8205 sections 4.1 to 4.3, RFC 8206): as it is, with segments of ours, or as an
//! AS_PATH alone.
//!
//! The AS_PATH that would be sent says what our segments are: what it has in front of that which BGPsec_PATH stands for. So
//! both say the same whatever policies and rules have done, and where they have done something else nothing is signed.

use std::{fmt, hash::Hasher, rc::Rc};

use holdfast_bgp_wire::as_path::{AsPath, SegmentType};
use holdfast_bgpsec_wire::{CONFED_SEGMENT, Path as SecurePath, Segment, Ski, leave_confederation};
use holdfast_types::{Asn, Prefix};
use smallvec::SmallVec;

use crate::PeerKind;

/// A key that paths are signed with: one for each AS of ours and algorithm suite.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Signer {
    /// The AS of the router's certificate.
    pub asn: Asn,
    /// Algorithm Suite Identifier.
    pub suite: u8,
    /// What others call the key.
    pub ski: Ski,
}

/// Of what is noted for the next process.
const FORMAT: u8 = 1;

/// All of them, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Signers(Vec<Signer>);

impl Signers {
    pub(crate) fn new(signers: impl IntoIterator<Item = Signer>) -> Self {
        let mut signers: Vec<_> = signers.into_iter().collect();
        signers.sort_unstable();
        signers.dedup_by_key(|signer| (signer.asn, signer.suite));
        Self(signers)
    }

    /// For the next process.
    pub(crate) fn octets(&self) -> Vec<u8> {
        let octets = |Signer { asn, suite, ski }: &Signer| {
            asn.0.to_be_bytes().into_iter().chain([*suite]).chain(ski.0).collect::<Vec<_>>()
        };
        [FORMAT].into_iter().chain(self.0.iter().flat_map(octets)).collect()
    }

    /// Those that the process before has noted, if it has.
    pub(crate) fn read(octets: &[u8]) -> Option<Self> {
        let (&FORMAT, octets) = octets.split_first()? else { return None };
        let (signers, []) = octets.as_chunks::<25>() else { return None };
        let signer = |&[a, b, c, d, suite, ref ski @ ..]: &[u8; 25]| Signer {
            asn: Asn(u32::from_be_bytes([a, b, c, d])),
            suite,
            ski: Ski(*ski),
        };
        Some(Self::new(signers.iter().map(signer)))
    }

    fn of(&self, asn: Asn) -> impl Iterator<Item = &Signer> {
        self.0.iter().filter(move |signer| signer.asn == asn)
    }

    fn key(&self, asn: Asn, suite: u8) -> Option<Ski> {
        self.of(asn).find(|signer| signer.suite == suite).map(|signer| signer.ski)
    }
}

/// What paths to a group of peers are signed for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Signing {
    /// By family, whether the peers take BGPsec_PATH.
    pub(crate) families: [bool; 2],
    /// The AS in their OPENs.
    pub(crate) target: Asn,
    /// The keys; `None` while nobody has said which there are.
    pub(crate) signers: Option<Rc<Signers>>,
}

/// Why a route goes to a peer with an AS_PATH and no signatures.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Unsigned {
    /// The session has not agreed on BGPsec.
    NotAgreed,
    /// It came without signatures (RFC 8205 section 4.1).
    Received,
    /// Policies or rules have made another path of it than its signatures cover.
    Changed,
    /// There is no key of this AS of ours.
    NoKey(Asn),
    /// It has no Signature_Block of an algorithm suite that we have a key of.
    Suite,
    /// We have made it of others.
    Aggregate,
    /// It starts in our AS, and has not left it: there is nothing to be signed.
    Internal,
    /// Nobody signs at the moment.
    NoSigner,
}

impl Unsigned {
    /// One word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::NotAgreed => "not-agreed",
            Self::Received => "unsigned",
            Self::Changed => "changed",
            Self::NoKey(_) => "no-key",
            Self::Suite => "suite",
            Self::Aggregate => "aggregate",
            Self::Internal => "internal",
            Self::NoSigner => "no-signer",
        }
    }
}

impl fmt::Display for Unsigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAgreed => f.write_str("the session has not agreed on BGPsec"),
            Self::Received => f.write_str("it came without signatures"),
            Self::Changed => f.write_str("its path was changed here"),
            Self::NoKey(asn) => write!(f, "no key of AS {asn} is in use"),
            Self::Suite => f.write_str("no key of the algorithm suite of its signatures is in use"),
            Self::Aggregate => f.write_str("an aggregate"),
            Self::Internal => f.write_str("it starts in our AS"),
            Self::NoSigner => f.write_str("pathsec does not sign"),
        }
    }
}

/// A route that is to go on.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Route<'a> {
    /// The value of its BGPsec_PATH; `None`: it starts here.
    pub(crate) signed: Option<&'a [u8]>,
    /// The AS that the path has been signed for.
    pub(crate) holder: Asn,
    /// AS_PATH as it would be sent.
    pub(crate) as_path: AsPath<'a>,
}

/// To whom.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Towards<'a> {
    pub(crate) kind: PeerKind,
    /// Our AS: the member AS in a confederation.
    pub(crate) own: Asn,
    /// The number by which those outside know the confederation, else our AS.
    pub(crate) outer: Asn,
    /// Our AS as the peers know it.
    pub(crate) known_as: Asn,
    pub(crate) signing: &'a Signing,
}

/// How it goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Onward {
    /// With an AS_PATH.
    Plain(Unsigned),
    /// With the BGPsec_PATH that it has.
    Unchanged,
    /// With segments of ours.
    Signed(Plan),
    /// Nobody has said yet which keys there are.
    Undecided,
}

/// Segments of ours in front of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// The value of BGPsec_PATH that ours come in front of, if it is not what the route has: without what members of our
    /// confederation have added. `None` inside: the path starts with us.
    pub(crate) left: Option<Option<Vec<u8>>>,
    /// The innermost first.
    pub(crate) segments: SmallVec<[OwnSegment; 2]>,
    /// In which suites each is signed, one or two, in the order of their blocks.
    pub(crate) suites: SmallVec<[u8; 2]>,
}

/// A segment of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OwnSegment {
    pub(crate) segment: Segment,
    /// The AS that it is signed for.
    pub(crate) target: Asn,
    /// The key of each suite.
    pub(crate) keys: SmallVec<[Ski; 2]>,
}

impl Plan {
    /// The path that our segments come in front of; `signed` is what the route has.
    pub(crate) fn older<'a>(&'a self, signed: Option<&'a [u8]>) -> Option<&'a [u8]> {
        match &self.left {
            None => signed,
            Some(left) => left.as_deref(),
        }
    }

    /// Stands for all that the signatures of a prefix cover but for those of our own, and for whose they are.
    pub(crate) fn mark(&self, mut hasher: impl Hasher, signed: Option<&[u8]>, prefix: Prefix) -> u64 {
        write_prefix(&mut hasher, prefix);
        for own in &self.segments {
            write_segment(&mut hasher, own);
            own.keys.iter().for_each(|ski| hasher.write(&ski.0));
        }
        hasher.write(&self.suites);
        hasher.write(self.older(signed).unwrap_or_default());
        hasher.finish()
    }

    /// Stands for what our segments say, whatever the keys: a signature takes the place of the one before that says the same.
    pub(crate) fn shape(&self, mut hasher: impl Hasher, identifier: u32) -> u64 {
        self.segments.iter().for_each(|own| write_segment(&mut hasher, own));
        hasher.write(&identifier.to_be_bytes());
        hasher.finish()
    }
}

fn write_segment(hasher: &mut impl Hasher, OwnSegment { segment, target, .. }: &OwnSegment) {
    hasher.write(&[segment.pcount, segment.flags]);
    hasher.write(&segment.asn.0.to_be_bytes());
    hasher.write(&target.0.to_be_bytes());
}

/// AS numbers with the kind of segment that they are in, the most recent first.
type Numbers = SmallVec<[(SegmentType, Asn); 16]>;

impl Onward {
    /// How a route goes on.
    pub(crate) fn of(route: &Route<'_>, towards: &Towards<'_>) -> Self {
        match Self::find(route, towards) {
            Ok(onward) => onward,
            Err(why) => Self::Plain(why),
        }
    }

    fn find(route: &Route<'_>, towards: &Towards<'_>) -> Result<Self, Unsigned> {
        let read = |value| SecurePath::parse(value).map_err(|_| Unsigned::Changed);
        let path = route.signed.map(read).transpose()?;
        let left = path.as_ref().map_or(Some(None), |path| leave(path, towards));
        let older = match (&left, path) {
            (None, path) => path,
            (Some(left), _) => left.as_deref().map(read).transpose()?,
        };
        let holder = match (&left, &older) {
            (_, None) => None,
            (Some(_), Some(_)) => Some(towards.outer),
            // A router at the edge has not said that it came in: it was signed for the confederation all the same.
            (None, Some(_)) if towards.kind == PeerKind::Ebgp && route.holder == towards.own => {
                Some(towards.outer)
            }
            (None, Some(_)) => Some(route.holder),
        };
        let front = front(route.as_path, older.as_ref()).ok_or(Unsigned::Changed)?;
        let numbers = own_numbers(&front, holder, towards)?;
        if numbers.is_empty() {
            return if older.is_some() { Ok(Self::Unchanged) } else { Err(Unsigned::Internal) };
        }
        let is_confed = towards.kind != PeerKind::Ebgp && towards.own != towards.outer;
        let flags = if is_confed { CONFED_SEGMENT } else { 0 };
        let last = if towards.kind == PeerKind::Ibgp { towards.own } else { towards.signing.target };
        let targets = numbers.iter().skip(1).map(|(asn, _)| *asn).chain([last]);
        let segment = |((asn, pcount), target): (&(Asn, u8), Asn)| OwnSegment {
            segment: Segment { pcount: *pcount, flags, asn: *asn },
            target,
            keys: SmallVec::new(),
        };
        let mut segments: SmallVec<[OwnSegment; 2]> = numbers.iter().zip(targets).map(segment).collect();
        let Some(signers) = &towards.signing.signers else { return Ok(Self::Undecided) };
        let suites = suites(&segments, older.as_ref(), signers)?;
        for own in &mut segments {
            own.keys = suites.iter().filter_map(|suite| signers.key(own.segment.asn, *suite)).collect();
        }
        Ok(Self::Signed(Plan { left, segments, suites }))
    }
}

/// What of a path leaves our confederation (section 4.3), if it is not all of it.
fn leave(path: &SecurePath<'_>, towards: &Towards<'_>) -> Option<Option<Vec<u8>>> {
    (towards.kind == PeerKind::Ebgp && path.newest().is_confed()).then(|| leave_confederation(path))
}

/// What AS_PATH has in front of that which the older path stands for: numbers, and how often each, the innermost first. `None`:
/// that is not the rest of it, or what is in front is no sequence.
fn front(as_path: AsPath<'_>, older: Option<&SecurePath<'_>>) -> Option<SmallVec<[(Asn, u8); 2]>> {
    let (whole, older) = (numbers(as_path), older.map(SecurePath::as_path).unwrap_or_default());
    let rest = numbers(AsPath::new(&older));
    let ours = whole.strip_suffix(&rest[..])?;
    let mut front = SmallVec::<[(Asn, u8); 2]>::new();
    for &(kind, asn) in ours.iter().rev() {
        match (kind, front.last_mut()) {
            (SegmentType::Set | SegmentType::ConfedSet, _) => return None,
            (_, Some((last, count))) if *last == asn => *count = count.checked_add(1)?,
            (_, Some(_) | None) => front.push((asn, 1)),
        }
    }
    Some(front)
}

fn numbers(path: AsPath<'_>) -> Numbers {
    path.segments().flat_map(|segment| segment.asns().map(move |asn| (segment.kind, asn))).collect()
}

/// The numbers of our segments with their pCounts, the innermost first. Each segment is signed for the AS of the next one, so
/// one that the path was signed for is there also where it does not count (RFC 8206 section 5, RFC 8205 section 4.3).
fn own_numbers(
    front: &[(Asn, u8)],
    mut holder: Option<Asn>,
    towards: &Towards<'_>,
) -> Result<SmallVec<[(Asn, u8); 2]>, Unsigned> {
    let mut numbers = SmallVec::<[(Asn, u8); 2]>::new();
    // Behind a segment of ours the path is signed for whatever comes next.
    let mut add = |asn, pcount, holder: &mut Option<Asn>| {
        numbers.extend(holder.take().filter(|holder| *holder != asn).map(|holder| (holder, 0)));
        numbers.push((asn, pcount));
    };
    for &(asn, pcount) in front {
        let is_ours = [towards.own, towards.outer, towards.known_as].contains(&asn) || holder == Some(asn);
        // A policy has put it there.
        if !is_ours || towards.kind == PeerKind::Ibgp && asn == towards.own {
            return Err(Unsigned::Changed);
        }
        add(asn, pcount, &mut holder);
    }
    match towards.kind {
        PeerKind::Ebgp | PeerKind::ConfedEbgp
            if front.last().map(|(asn, _)| *asn) != Some(towards.known_as) =>
        {
            add(towards.known_as, 0, &mut holder);
        }
        PeerKind::Ebgp | PeerKind::ConfedEbgp => {}
        PeerKind::Ibgp if front.is_empty() => {
            numbers.extend(holder.filter(|holder| *holder != towards.own).map(|holder| (holder, 0)));
        }
        PeerKind::Ibgp => {}
    }
    Ok(numbers)
}

/// The suites in which all segments can be signed, and the path before them is.
fn suites(
    segments: &[OwnSegment],
    older: Option<&SecurePath<'_>>,
    signers: &Signers,
) -> Result<SmallVec<[u8; 2]>, Unsigned> {
    let asns = || segments.iter().map(|own| own.segment.asn);
    let missing = |suite| asns().find(|asn| signers.key(*asn, suite).is_none());
    if let Some(asn) = asns().find(|asn| signers.of(*asn).next().is_none()) {
        return Err(Unsigned::NoKey(asn));
    }
    let candidates: SmallVec<[u8; 2]> = match older {
        Some(path) => path.blocks().map(|block| block.suite).collect(),
        None => {
            asns().next().into_iter().flat_map(|asn| signers.of(asn)).map(|signer| signer.suite).collect()
        }
    };
    let mut suites: SmallVec<[u8; 2]> =
        candidates.iter().copied().filter(|suite| missing(*suite).is_none()).collect();
    suites.truncate(holdfast_bgpsec_wire::MOST_BLOCKS);
    match (suites.first(), candidates.first().and_then(|suite| missing(*suite))) {
        (Some(_), _) => Ok(suites),
        (None, Some(asn)) if older.is_none() => Err(Unsigned::NoKey(asn)),
        (None, _) => Err(Unsigned::Suite),
    }
}

/// Hashes a prefix in the same way in each process.
fn write_prefix(hasher: &mut impl Hasher, prefix: Prefix) {
    let (family, bits) = match prefix {
        Prefix::V4(prefix) => (0, u128::from(prefix.address().to_bits()) << 96),
        Prefix::V6(prefix) => (1, prefix.address().to_bits()),
    };
    hasher.write(&[family, prefix.length()]);
    hasher.write(&bits.to_be_bytes());
}
