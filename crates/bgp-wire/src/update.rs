//! UPDATE as received (RFC 4271 sections 4.3 and 6.3, RFC 7606): split, cut, check.
//!
//! The quick way of an UPDATE whose attributes are already known, and the full way of any other:
//!
//! ```
//! use holdfast_bgp_wire::update::{self, AsSets, Checked, PeerKind, Rules, Verdict};
//! # fn main() -> Result<(), holdfast_bgp_wire::Notification> {
//! # let body = [0, 0, 0, 0];
//! # let known = |_: &[u8]| false;
//! let rules = Rules::new(PeerKind::Ebgp, AsSets::Reject);
//! let sections = update::sections(&body)?;
//! let (mut rest, mut checked) = (Vec::new(), Checked::default());
//! let mp = match update::cut(sections.attributes, &mut rest) {
//!     Some(cut) if rules.four_octet_as && known(&rest) => cut.parse(&rules)?,
//!     _ => update::check(sections.attributes, !sections.nlri.is_empty(), &rules, &mut checked),
//! };
//! match &checked.verdict {
//!     Verdict::Ok => { /* intern checked.canonical; announce sections.nlri and mp.reach */ }
//!     Verdict::TreatAsWithdraw(fault) => { /* count it; withdraw sections.nlri and mp.reach */ }
//!     Verdict::SessionReset(error) => return Err(error.clone()),
//! }
//! // In any case: withdraw sections.withdrawn and mp.unreach first.
//! # Ok(())
//! # }
//! ```

use holdfast_bgpsec_wire::Ingress;
use holdfast_types::{Afi, Family, Ipv4Prefix, Safi};

use crate::{
    MpReach, MpUnreach, Notification,
    attribute::{Walk, class, code, flag, push},
    fault::Fault,
    nlri::{self, NlriError},
    notification::UpdateSubcode,
};

mod check;
mod path;

pub use check::check;

/// On which side of the AS border the peer is.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum PeerKind {
    /// Another AS.
    Ebgp,
    /// Our AS.
    Ibgp,
    /// Our AS, which is a member of a confederation (RFC 5065).
    ConfedIbgp,
    /// Another member AS of our confederation (RFC 5065).
    ConfedEbgp,
}

/// What becomes of routes whose path has an AS_SET.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum AsSets {
    /// Treat as withdrawn (RFC 9774).
    Reject,
    /// Keep, as before RFC 9774.
    Accept,
}

/// What a session has agreed on, as far as the reading of UPDATEs depends on it: sessions with equal rules
/// may share what they know about attribute bytes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    /// Where the peer is.
    pub kind: PeerKind,
    /// Both sides have sent the four-octet AS capability (RFC 6793).
    pub four_octet_as: bool,
    /// What becomes of AS_SETs.
    pub as_sets: AsSets,
    /// IPv4 prefixes may have IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// Where prefixes have path identifiers (RFC 7911).
    pub identifiers: FamilySet,
    /// Whether the peer may send BGPsec_PATH (RFC 8205).
    pub bgpsec: Option<Secured>,
}

/// BGPsec_PATH on a session (RFC 8205 section 5.2).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Secured {
    /// In these families the peer sends it, as both OPENs say.
    pub families: FamilySet,
    /// What is looked at before any signature. A path that it lets pass stands for an AS_PATH of one message.
    pub ingress: Ingress,
}

impl Rules {
    /// Those of a session with four-octet AS numbers and nothing else.
    pub const fn new(kind: PeerKind, as_sets: AsSets) -> Self {
        let identifiers = FamilySet::NONE;
        Self { kind, four_octet_as: true, as_sets, extended_next_hop: false, identifiers, bgpsec: None }
    }
}

/// Families in which something was agreed on, in one direction of a session: that prefixes are behind path identifiers
/// (RFC 7911 section 3), or BGPsec (RFC 8205 section 2.2).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FamilySet([bool; Family::ALL.len()]);

impl FamilySet {
    /// None.
    pub const NONE: Self = Self([false; Family::ALL.len()]);

    /// Whether the family is one of them.
    #[inline]
    pub fn of(self, family: Family) -> bool {
        self != Self::NONE && Family::ALL.iter().zip(self.0).any(|(known, has)| *known == family && has)
    }
}

impl FromIterator<Family> for FamilySet {
    fn from_iter<T: IntoIterator<Item = Family>>(families: T) -> Self {
        let mut set = Self::NONE;
        for family in families {
            let known = Family::ALL.iter().zip(&mut set.0).filter(|(known, _)| **known == family);
            known.for_each(|(_, has)| *has = true);
        }
        set
    }
}

/// The fields of an UPDATE. Both lists of prefixes are sound: [`nlri::prefixes`] reads them to their end, or
/// [`nlri::identified`] after [`sections_identified`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Sections<'a> {
    /// Withdrawn Routes, IPv4 unicast.
    pub withdrawn: &'a [u8],
    /// Path Attributes, unchecked.
    pub attributes: &'a [u8],
    /// Network Layer Reachability Information, IPv4 unicast.
    pub nlri: &'a [u8],
}

/// Splits the body of an UPDATE.
///
/// # Errors
/// The prefixes cannot be located (RFC 7606 section 3 b) or read (section 5.3): the session must end.
pub fn sections(body: &[u8]) -> Result<Sections<'_>, Notification> {
    split(body, nlri::count::<Ipv4Prefix>)
}

/// The same where IPv4 prefixes have path identifiers (RFC 7911).
///
/// # Errors
/// As [`sections`].
pub fn sections_identified(body: &[u8]) -> Result<Sections<'_>, Notification> {
    split(body, nlri::count_identified::<Ipv4Prefix>)
}

fn split(
    body: &[u8],
    count: impl Fn(&[u8]) -> Result<usize, NlriError>,
) -> Result<Sections<'_>, Notification> {
    let malformed = || Notification::update(UpdateSubcode::MalformedAttributeList, &[]);
    let (withdrawn, rest) = split_field(body).ok_or_else(malformed)?;
    let (attributes, nlri) = split_field(rest).ok_or_else(malformed)?;
    for field in [withdrawn, nlri] {
        count(field).map_err(|_| Notification::update(UpdateSubcode::InvalidNetworkField, &[]))?;
    }
    Ok(Sections { withdrawn, attributes, nlri })
}

/// A two-octet length, that many octets, and the rest.
fn split_field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

impl Sections<'_> {
    /// The family of which this UPDATE is the End-of-RIB (RFC 4724 section 2): nothing at all for IPv4
    /// unicast, else only an MP_UNREACH_NLRI without prefixes.
    pub fn end_of_rib(&self) -> Option<Family> {
        if !self.withdrawn.is_empty() || !self.nlri.is_empty() {
            return None;
        }
        match *self.attributes {
            [] => Some(Family::IPV4_UNICAST),
            [flags, code::MP_UNREACH_NLRI, 3, high, low, safi] if flags & flag::EXTENDED_LENGTH == 0 => {
                Some(Family { afi: Afi(u16::from_be_bytes([high, low])), safi: Safi(safi) })
            }
            [flags, code::MP_UNREACH_NLRI, 0, 3, high, low, safi] if flags & flag::EXTENDED_LENGTH != 0 => {
                Some(Family { afi: Afi(u16::from_be_bytes([high, low])), safi: Safi(safi) })
            }
            _ => None,
        }
    }
}

/// The values of the two attributes that [`cut`] takes out, not looked into.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Cut<'a> {
    /// MP_REACH_NLRI.
    pub reach: Option<&'a [u8]>,
    /// MP_UNREACH_NLRI.
    pub unreach: Option<&'a [u8]>,
}

/// The routes that an UPDATE carries in its attributes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Mp<'a> {
    /// MP_REACH_NLRI. A next hop of `None` means its routes are to be treated as withdrawn.
    pub reach: Option<MpReach<'a>>,
    /// MP_UNREACH_NLRI.
    pub unreach: Option<MpUnreach<'a>>,
}

impl<'a> Cut<'a> {
    /// Reads both values.
    ///
    /// # Errors
    /// As [`MpReach::parse`] and [`MpUnreach::parse`]: the session must end.
    pub fn parse(self, rules: &Rules) -> Result<Mp<'a>, Notification> {
        let reach = self.reach.map(|value| MpReach::parse(value, rules)).transpose()?;
        Ok(Mp { reach, unreach: self.unreach.map(|value| MpUnreach::parse(value, rules)).transpose()? })
    }

    /// Whether the NLRI field has the routes of MP_REACH_NLRI once more, and the peer may do that beside BGPsec_PATH: it
    /// counts as empty then.
    #[cold]
    pub fn repeats(self, nlri: &[u8], rules: &Rules) -> bool {
        let may = rules.bgpsec.is_some_and(|secured| secured.ingress.repeated_prefix);
        let reach = self.reach.filter(|_| may && !nlri.is_empty());
        let reach = reach.and_then(|value| MpReach::parse(value, rules).ok());
        reach.is_some_and(|reach| reach.family == Family::IPV4_UNICAST && reach.nlri == nlri)
    }
}

/// Copies all attributes but MP_REACH_NLRI and MP_UNREACH_NLRI into `rest` (emptied first): one pass over
/// the headers. Lengths are brought to their short form, so that `rest` equals the canonical bytes for
/// all peers that send attributes in order. `None` if the headers are irregular: then [`check`].
///
/// Bytes equal to canonical bytes of the same [`Rules`] need no [`check`], with two limits. The rules have
/// `four_octet_as`: two-octet bytes may by chance equal canonical bytes that mean something else. And
/// a set that was checked without NLRI may lack the NEXT_HOP that an UPDATE with NLRI must have: look at
/// [`crate::Attributes::next_hop`], or keep `has_nlri` beside the set. Nor does that hold of BGPsec_PATH where
/// [`Rules::bgpsec`] is set: canonical bytes have two paths, of which a peer sends one.
pub fn cut<'a>(attributes: &'a [u8], rest: &mut Vec<u8>) -> Option<Cut<'a>> {
    rest.clear();
    let mut cut = Cut::default();
    // Attributes to be copied as they are, in one go: from `run` to `at`.
    let (mut run, mut at) = (0, 0);
    for attribute in Walk(attributes) {
        let attribute = attribute.ok()?;
        let end = at + attribute.wire.len();
        let long_form = attribute.flags & flag::EXTENDED_LENGTH != 0 && attribute.value.len() < 256;
        let mp = matches!(attribute.code, code::MP_REACH_NLRI | code::MP_UNREACH_NLRI);
        if mp || long_form {
            rest.extend_from_slice(&attributes[run..at]);
            run = end;
        }
        if mp {
            let place = if attribute.code == code::MP_REACH_NLRI { &mut cut.reach } else { &mut cut.unreach };
            let right_flags = attribute.flags & (flag::OPTIONAL | flag::TRANSITIVE) == flag::OPTIONAL;
            if !right_flags || place.replace(attribute.value).is_some() {
                return None;
            }
        } else if long_form {
            push(rest, attribute.flags, attribute.code, attribute.value);
        }
        at = end;
    }
    rest.extend_from_slice(&attributes[run..at]);
    Some(cut)
}

/// What is to be done with an UPDATE (RFC 7606 section 2); discarded attributes are no hindrance.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Verdict {
    /// Use it.
    #[default]
    Ok,
    /// All its routes count as withdrawn.
    TreatAsWithdraw(Fault),
    /// Send this and end the session.
    SessionReset(Notification),
}

/// How many discarded attributes [`Checked::discarded`] lists at most.
pub const MAX_DISCARDED: usize = 16;

/// What [`check`] finds. Kept from UPDATE to UPDATE so that its buffers are allocated once.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// If the verdict is [`Verdict::Ok`], the attributes ascending by type code, each with the flags of its
    /// kind (Partial kept for optional transitive ones) and the shortest length; without MP_REACH_NLRI,
    /// MP_UNREACH_NLRI and what was discarded, and without NEXT_HOP where no NLRI needs it (RFC 4760
    /// section 3); AS_PATH and AGGREGATOR with four-octet numbers, AS4_PATH and AS4_AGGREGATOR worked
    /// into them (RFC 6793 section 4.2.3). Beside BGPsec_PATH stands the AS_PATH that it stands for (RFC 8205 section 4.4).
    /// Where an internal peer has sent neither (section 4.1), both are there and empty. Else empty.
    pub canonical: Vec<u8>,
    /// What is to be done.
    pub verdict: Verdict,
    /// Attributes that were left out, the first [`MAX_DISCARDED`] of them.
    pub discarded: Vec<Fault>,
    kept: Vec<Kept>,
    /// The AS_PATH that BGPsec_PATH stands for, with its header, until it is written.
    as_path: Vec<u8>,
}

/// An attribute on its way into the canonical bytes: where it is in those received.
#[derive(Copy, Clone, Debug)]
struct Kept {
    code: u8,
    /// Those of its canonical form.
    flags: u8,
    start: usize,
    end: usize,
}

impl Kept {
    fn value(self, attributes: &[u8]) -> &[u8] {
        let wire = &attributes[self.start..self.end];
        let header = if wire[0] & flag::EXTENDED_LENGTH == 0 { 3 } else { 4 };
        &wire[header..]
    }
}

impl Checked {
    fn clear(&mut self) {
        self.canonical.clear();
        self.discarded.clear();
        self.kept.clear();
        self.as_path.clear();
        self.verdict = Verdict::Ok;
    }

    fn discard(&mut self, fault: Fault) {
        if self.discarded.len() < MAX_DISCARDED {
            self.discarded.push(fault);
        }
    }
}

/// The flags that an attribute has in canonical bytes.
#[inline]
fn canonical_flags(code: u8, flags: u8) -> u8 {
    const OPTIONAL_TRANSITIVE: u8 = flag::OPTIONAL | flag::TRANSITIVE;
    match class(code) {
        Some(OPTIONAL_TRANSITIVE) => OPTIONAL_TRANSITIVE | flags & flag::PARTIAL,
        // RFC 4271 section 4.3: Partial is 0 for all others.
        Some(class) => class,
        None => flags & (OPTIONAL_TRANSITIVE | flag::PARTIAL),
    }
}
