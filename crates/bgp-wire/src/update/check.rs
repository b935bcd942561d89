//! The classification of RFC 7606, attribute by attribute.

use holdfast_bgpsec_wire::{Outside, Path, Update};
use holdfast_types::{AS_TRANS, Asn, Family};

use super::{AsSets, Checked, Kept, Mp, PeerKind, Rules, Secured, Verdict, canonical_flags, path};
use crate::{
    MpReach, MpUnreach, Notification,
    attribute::{Attribute, Truncated, Walk, class, code, flag, is_assigned_optional, push},
    attributes::Origin,
    fault::{Fault, FaultReason, PathFault},
    mp::usable_v4,
    notification::UpdateSubcode,
};

/// Checks all attributes of an UPDATE and brings them into canonical form. `has_nlri` says that the NLRI
/// field is not empty. What is found goes into `out`, whose old content is dropped; the routes inside the
/// attributes are returned, also if they are to be treated as withdrawn.
///
/// Canonical bytes checked again, with `four_octet_as`, give themselves.
pub fn check<'a>(attributes: &'a [u8], has_nlri: bool, rules: &Rules, out: &mut Checked) -> Mp<'a> {
    out.clear();
    let mut check = Check {
        attributes,
        has_nlri,
        rules,
        out,
        mp: Mp::default(),
        seen: [0; 4],
        regular: rules.four_octet_as,
        last: 0,
        withdraw: None,
        reset: None,
        as4_path: None,
        as4_aggregator: None,
        secure_path: None,
        starts_inside: false,
    };
    check.run();
    check.mp
}

struct Check<'a, 'r> {
    attributes: &'a [u8],
    has_nlri: bool,
    rules: &'r Rules,
    out: &'r mut Checked,
    mp: Mp<'a>,
    /// Type codes met so far, a bit each.
    seen: [u64; 4],
    /// Whether what is kept so far is as canonical bytes have it, beginning with the order.
    regular: bool,
    /// Type code of the attribute that was kept last.
    last: u8,
    /// The first fault that costs the routes, with its attribute.
    withdraw: Option<(Fault, &'a [u8])>,
    /// The first error that costs the session.
    reset: Option<Notification>,
    as4_path: Option<&'a [u8]>,
    as4_aggregator: Option<&'a [u8]>,
    /// BGPsec_PATH, with where it begins.
    secure_path: Option<(Attribute<'a>, usize)>,
    /// There is neither AS_PATH nor BGPsec_PATH, and the sender is in our AS.
    starts_inside: bool,
}

/// BGPsec_PATH without an octet, which no peer may send.
const STARTS_INSIDE: [u8; 3] = [flag::OPTIONAL, code::BGPSEC_PATH, 0];

/// What becomes of one attribute.
enum Treatment {
    Keep,
    /// Read already, not part of the canonical bytes.
    Take,
    /// It is judged when all attributes are known.
    Defer,
    Discard(FaultReason),
    Withdraw(FaultReason),
    Reset(Notification),
}

impl<'a> Check<'a, '_> {
    fn run(&mut self) {
        let mut at = 0;
        for attribute in Walk(self.attributes) {
            match attribute {
                Ok(attribute) => {
                    self.attribute(attribute, at);
                    at += attribute.wire.len();
                }
                Err(Truncated(code)) => self.truncated(code),
            }
        }
        self.whole();
        if self.reset.is_none() && self.withdraw.is_none() {
            self.write();
        }
        self.conclude();
    }

    /// `start` is the offset of the attribute.
    #[inline]
    fn attribute(&mut self, attribute: Attribute<'a>, start: usize) {
        let first = self.first_occurrence(attribute.code);
        if first && self.is_plain(attribute) {
            self.keep(attribute, start);
        } else {
            self.other(attribute, start, first);
        }
    }

    /// An attribute that is not plain. Out of the way of those that are, nearly all.
    #[inline(never)]
    fn other(&mut self, attribute: Attribute<'a>, start: usize, first: bool) {
        let Attribute { code, wire, .. } = attribute;
        let treatment = if first { self.treat(attribute) } else { duplicate(code) };
        match treatment {
            Treatment::Keep => self.keep(attribute, start),
            Treatment::Take => {}
            Treatment::Defer => self.secure_path = Some((attribute, start)),
            Treatment::Discard(reason) => self.out.discard(Fault { attribute: code, reason }),
            Treatment::Withdraw(reason) => self.withdraw(Fault { attribute: code, reason }, wire),
            Treatment::Reset(error) => self.reset(error),
        }
    }

    /// Whether it is kept for the simplest of reasons: we know it, whoever sends it, and nothing is wrong.
    #[inline]
    fn is_plain(&self, Attribute { code, flags, value, .. }: Attribute<'_>) -> bool {
        let for_all = matches!(
            code,
            code::ORIGIN..=code::MULTI_EXIT_DISC | code::ATOMIC_AGGREGATE..=code::COMMUNITIES
        );
        for_all
            && class(code) == Some(flags & (flag::OPTIONAL | flag::TRANSITIVE))
            && value_fault(code, value, self.rules, self.has_nlri).is_none()
    }

    #[inline]
    fn keep(&mut self, Attribute { code, flags, value, wire }: Attribute<'a>, start: usize) {
        let canonical = canonical_flags(code, flags);
        let shortest = canonical | if value.len() > 255 { flag::EXTENDED_LENGTH } else { 0 };
        self.regular &= code > self.last && flags == shortest;
        self.last = code;
        self.out.kept.push(Kept { code, flags: canonical, start, end: start + wire.len() });
    }

    #[inline]
    fn first_occurrence(&mut self, code: u8) -> bool {
        let (word, bit) = (&mut self.seen[usize::from(code / 64)], 1 << (code % 64));
        let first = *word & bit == 0;
        *word |= bit;
        first
    }

    fn has_seen(&self, code: u8) -> bool {
        self.seen[usize::from(code / 64)] & 1 << (code % 64) != 0
    }

    fn withdraw(&mut self, fault: Fault, wire: &'a [u8]) {
        self.withdraw.get_or_insert((fault, wire));
    }

    fn reset(&mut self, error: Notification) {
        self.reset.get_or_insert(error);
    }

    fn treat(&mut self, attribute: Attribute<'a>) -> Treatment {
        let Attribute { code, flags, value, wire } = attribute;
        let class = match class(code) {
            Some(class) => class,
            None if code == code::BGPSEC_PATH => return self.bgpsec_path(flags, wire),
            None => return unknown(code, flags, wire),
        };
        let external = self.rules.kind == PeerKind::Ebgp;
        match code {
            code::LOCAL_PREF if external => Treatment::Discard(FaultReason::ExternalNeighbor),
            // RFC 4456 section 8: they mean something in one AS, which another member of a confederation is not.
            code::ORIGINATOR_ID | code::CLUSTER_LIST
                if external || self.rules.kind == PeerKind::ConfedEbgp =>
            {
                Treatment::Discard(FaultReason::ExternalNeighbor)
            }
            code::AS4_PATH | code::AS4_AGGREGATOR if self.rules.four_octet_as => {
                Treatment::Discard(FaultReason::FourOctetNeighbor)
            }
            // RFC 7606 section 3 c.
            _ if flags & (flag::OPTIONAL | flag::TRANSITIVE) != class => {
                malformed(code, FaultReason::Flags, wire)
            }
            code::MP_REACH_NLRI => self.reach(value),
            code::MP_UNREACH_NLRI => self.unreach(value),
            code::AS4_PATH => self.as4_path(value),
            _ => match value_fault(code, value, self.rules, self.has_nlri) {
                Some(reason) => malformed(code, reason, wire),
                None if code == code::AS4_AGGREGATOR => {
                    self.as4_aggregator = Some(value);
                    Treatment::Take
                }
                None => Treatment::Keep,
            },
        }
    }

    /// What it says is looked at when all attributes are known.
    fn bgpsec_path(&self, flags: u8, wire: &[u8]) -> Treatment {
        // RFC 8205 section 3, RFC 7606 section 3 c.
        if flags & (flag::OPTIONAL | flag::TRANSITIVE) != flag::OPTIONAL {
            return malformed(code::BGPSEC_PATH, FaultReason::Flags, wire);
        }
        match self.rules.bgpsec {
            Some(_) => Treatment::Defer,
            None => Treatment::Discard(FaultReason::NotNegotiated),
        }
    }

    fn reach(&mut self, value: &'a [u8]) -> Treatment {
        match MpReach::parse(value, self.rules) {
            Ok(reach) => {
                self.mp.reach = Some(reach);
                if reach.next_hop.is_none() && Family::ALL.contains(&reach.family) && !reach.nlri.is_empty() {
                    return Treatment::Withdraw(FaultReason::UnusableNextHop);
                }
                Treatment::Take
            }
            Err(error) => Treatment::Reset(error),
        }
    }

    fn unreach(&mut self, value: &'a [u8]) -> Treatment {
        match MpUnreach::parse(value, self.rules) {
            Ok(unreach) => {
                self.mp.unreach = Some(unreach);
                Treatment::Take
            }
            Err(error) => Treatment::Reset(error),
        }
    }

    /// From a two-octet speaker.
    fn as4_path(&mut self, value: &'a [u8]) -> Treatment {
        // RFC 6793 section 6: too short for a segment with one number.
        if value.len() < 6 {
            return Treatment::Discard(FaultReason::Length);
        }
        if let Some(reason) = path::syntax_fault(value, 4) {
            return Treatment::Discard(reason);
        }
        if self.rules.as_sets == AsSets::Reject && path::has_set(value, 4) {
            return Treatment::Withdraw(FaultReason::AsSet);
        }
        if path::has_confed(value, 4) {
            // The segments only are dropped, when the paths are joined.
            self.out.discard(Fault { attribute: code::AS4_PATH, reason: FaultReason::ConfedSegment });
        }
        self.as4_path = Some(value);
        Treatment::Take
    }

    /// RFC 7606 section 4. If it is a list of prefixes that is cut off, section 3 j forbids to go on.
    fn truncated(&mut self, code: Option<u8>) {
        if let Some(code::MP_REACH_NLRI | code::MP_UNREACH_NLRI) = code {
            self.reset(Notification::update(UpdateSubcode::MalformedAttributeList, &[]));
        }
        self.withdraw(Fault { attribute: code.unwrap_or(0), reason: FaultReason::Truncated }, &[]);
    }

    /// What can be said only when all attributes are known.
    fn whole(&mut self) {
        let mp_reachable = self.mp.reach.is_some_and(|reach| !reach.nlri.is_empty());
        let rules = self.rules;
        if let Some(secured) = &rules.bgpsec {
            self.secured(secured);
        }
        if self.has_nlri || mp_reachable {
            self.mandatory();
        } else if let Some((fault, wire)) = self.withdraw {
            // RFC 7606 section 5.2: no routes to withdraw, so they may have been missed.
            self.reset(Notification::update(fault.subcode(), wire));
        }
        if !self.has_nlri {
            // RFC 4760 section 3: NEXT_HOP means nothing here.
            self.out.kept.retain(|kept| kept.code != code::NEXT_HOP);
        }
    }

    /// RFC 7606 section 3 d, for an UPDATE that announces something.
    fn mandatory(&mut self) {
        // RFC 4271 section 5.1.5; between members of a confederation it may be sent (RFC 5065 section 5.2).
        let internal = matches!(self.rules.kind, PeerKind::Ibgp | PeerKind::ConfedIbgp);
        let needed = [
            (code::ORIGIN, true),
            (code::AS_PATH, self.out.as_path.is_empty()),
            (code::NEXT_HOP, self.has_nlri),
            (code::LOCAL_PREF, internal),
        ];
        let missing = needed.into_iter().find(|&(code, needed)| needed && !self.has_seen(code));
        if let Some((code, _)) = missing {
            self.withdraw(Fault { attribute: code, reason: FaultReason::Missing }, &[]);
        }
    }

    /// RFC 8205 section 5.2, what comes before any signature: for an UPDATE that announces something in a family in which
    /// BGPsec was agreed on.
    #[cold]
    fn secured(&mut self, Secured { families, ingress }: &Secured) {
        let reach = self.mp.reach.filter(|reach| !reach.nlri.is_empty());
        let family = reach.map(|reach| reach.family).or(self.has_nlri.then_some(Family::IPV4_UNICAST));
        let is_agreed = family.is_some_and(|family| families.of(family));
        let has_as_path = self.has_seen(code::AS_PATH);
        let Some((attribute, start)) = self.secure_path else {
            // Section 4.1: inside an AS a route of that AS has neither attribute. With an empty AS_PATH the sender says that it
            // has no signatures, wherever the route starts.
            let internal = matches!(self.rules.kind, PeerKind::Ibgp | PeerKind::ConfedIbgp);
            if is_agreed && internal && !has_as_path {
                self.write_path(&[]);
                self.starts_inside = true;
            }
            return;
        };
        if !is_agreed {
            let reason = FaultReason::NotNegotiated;
            return self.out.discard(Fault { attribute: attribute.code, reason });
        }
        let reachable = reach.map_or(0, |reach| reach.routes(self.rules.identifiers));
        let outside = if self.has_nlri { Outside::Other } else { Outside::None };
        let update = Update { as_path: has_as_path, reachable, outside };
        let fault = match Path::parse(attribute.value) {
            // RFC 7607 section 2: in the AS_PATH that it stands for, and where it does not count.
            Ok(path) if path.segments().any(|segment| segment.asn.0 == 0) => PathFault::AsZero,
            Ok(path) => match ingress.check(&path, update) {
                Ok(()) => {
                    let as_path = path.as_path();
                    // Both are kept, as attributes of one message.
                    if self.attributes.len() + as_path.len() + 4 <= usize::from(u16::MAX) {
                        self.keep(attribute, start);
                        return self.write_path(&as_path);
                    }
                    PathFault::TooLong
                }
                Err(refused) => PathFault::from(refused),
            },
            Err(_) => PathFault::Malformed,
        };
        let reason = FaultReason::Bgpsec(fault);
        self.withdraw(Fault { attribute: attribute.code, reason }, attribute.wire);
    }

    fn write_path(&mut self, value: &[u8]) {
        push(&mut self.out.as_path, flag::TRANSITIVE, code::AS_PATH, value);
        self.regular = false;
    }

    fn conclude(&mut self) {
        self.out.verdict = match (self.reset.take(), self.withdraw) {
            (Some(error), _) => Verdict::SessionReset(error),
            (None, Some((fault, _))) => Verdict::TreatAsWithdraw(fault),
            (None, None) => return,
        };
        self.out.canonical.clear();
    }

    fn write(&mut self) {
        if self.regular {
            return self.copy();
        }
        let mut kept = std::mem::take(&mut self.out.kept);
        kept.sort_unstable_by_key(|kept| kept.code);
        let as4_is_stale = !self.rules.four_octet_as && self.aggregated_by_old_speaker(&kept);
        // They take the places of attributes that are not there.
        let mut as_path = std::mem::take(&mut self.out.as_path);
        let mut secure_path: &[u8] = if self.starts_inside { &STARTS_INSIDE } else { &[] };
        for attribute in &kept {
            if attribute.code > code::AS_PATH {
                self.out.canonical.append(&mut as_path);
            }
            if attribute.code > code::BGPSEC_PATH {
                self.out.canonical.extend_from_slice(std::mem::take(&mut secure_path));
            }
            let (&Kept { code, flags, .. }, value) = (attribute, attribute.value(self.attributes));
            match code {
                code::AS_PATH if !self.rules.four_octet_as => self.write_as_path(value, as4_is_stale),
                code::AGGREGATOR if !self.rules.four_octet_as => {
                    let value = path::four_octet_aggregator(value, self.as4_aggregator);
                    push(&mut self.out.canonical, flags, code, &value);
                }
                _ => push(&mut self.out.canonical, flags, code, value),
            }
        }
        self.out.canonical.append(&mut as_path);
        self.out.canonical.extend_from_slice(secure_path);
        (self.out.kept, self.out.as_path) = (kept, as_path);
    }

    /// Appends what is kept as it came: in one piece, mostly.
    fn copy(&mut self) {
        let (mut start, mut end) = (0, 0);
        for kept in &self.out.kept {
            if kept.start != end {
                self.out.canonical.extend_from_slice(&self.attributes[start..end]);
                start = kept.start;
            }
            end = kept.end;
        }
        self.out.canonical.extend_from_slice(&self.attributes[start..end]);
    }

    /// RFC 6793 section 4.2.3: an AGGREGATOR that is not AS_TRANS was written after both AS4 attributes.
    fn aggregated_by_old_speaker(&self, kept: &[Kept]) -> bool {
        let aggregator = kept.iter().find(|kept| kept.code == code::AGGREGATOR);
        let asn = aggregator.and_then(|kept| kept.value(self.attributes).first_chunk::<2>());
        let other = asn.is_some_and(|asn| Asn(u32::from(u16::from_be_bytes(*asn))) != AS_TRANS);
        other && self.as4_aggregator.is_some()
    }

    fn write_as_path(&mut self, value: &'a [u8], as4_is_stale: bool) {
        let as4_path = self.as4_path.filter(|_| !as4_is_stale);
        let joined = path::join(value, as4_path.unwrap_or_default());
        if joined.len() > usize::from(u16::MAX) {
            self.withdraw(Fault { attribute: code::AS_PATH, reason: FaultReason::Length }, &[]);
            return;
        }
        push(&mut self.out.canonical, flag::TRANSITIVE, code::AS_PATH, &joined);
    }
}

/// RFC 7606 section 3 g.
fn duplicate(code: u8) -> Treatment {
    match code {
        code::MP_REACH_NLRI | code::MP_UNREACH_NLRI => {
            Treatment::Reset(Notification::update(UpdateSubcode::MalformedAttributeList, &[]))
        }
        _ => Treatment::Discard(FaultReason::Duplicate),
    }
}

fn unknown(code: u8, flags: u8, wire: &[u8]) -> Treatment {
    if flags & flag::OPTIONAL != 0 {
        return Treatment::Keep;
    }
    // What it is we know, if not how to read it: RFC 7606 section 3 c.
    if is_assigned_optional(code) {
        return malformed(code, FaultReason::Flags, wire);
    }
    // RFC 4271 section 6.3; RFC 7606 leaves it.
    Treatment::Reset(Notification::update(UpdateSubcode::UnrecognizedWellKnownAttribute, wire))
}

/// How a malformed attribute is treated (RFC 7606 sections 3 e, 3 f, 5.3 and 7, RFC 6793 section 6).
fn malformed(code: u8, reason: FaultReason, wire: &[u8]) -> Treatment {
    match code {
        code::ATOMIC_AGGREGATE | code::AGGREGATOR | code::AS4_PATH | code::AS4_AGGREGATOR => {
            Treatment::Discard(reason)
        }
        code::MP_REACH_NLRI | code::MP_UNREACH_NLRI => {
            Treatment::Reset(Notification::update(UpdateSubcode::OptionalAttributeError, wire))
        }
        _ => Treatment::Withdraw(reason),
    }
}

/// What is wrong with a value, for every attribute with a class but the MP ones and AS4_PATH.
#[inline]
fn value_fault(code: u8, value: &[u8], rules: &Rules, has_nlri: bool) -> Option<FaultReason> {
    let len = value.len();
    let multiple_of = |size: usize| len != 0 && len.is_multiple_of(size);
    let length_is_right = match code {
        code::AS_PATH => return path::fault(value, rules),
        code::AGGREGATOR => return aggregator_fault(value, rules.four_octet_as),
        code::AS4_AGGREGATOR => return aggregator_fault(value, true),
        code::ORIGIN => len == 1,
        code::ATOMIC_AGGREGATE => len == 0,
        code::NEXT_HOP
        | code::MULTI_EXIT_DISC
        | code::LOCAL_PREF
        | code::ORIGINATOR_ID
        | code::ONLY_TO_CUSTOMER => len == 4,
        code::COMMUNITIES | code::CLUSTER_LIST => multiple_of(4),
        code::EXTENDED_COMMUNITIES => multiple_of(8),
        code::LARGE_COMMUNITIES => multiple_of(12),
        code::IPV6_EXTENDED_COMMUNITIES => multiple_of(20),
        _ => true,
    };
    if !length_is_right {
        return Some(FaultReason::Length);
    }
    match *value {
        [octet] if code == code::ORIGIN && Origin::from_octet(octet).is_none() => {
            Some(FaultReason::UndefinedOrigin)
        }
        [a, b, c, d] if code == code::NEXT_HOP && has_nlri && !usable_v4([a, b, c, d].into()) => {
            Some(FaultReason::UnusableNextHop)
        }
        _ => None,
    }
}

/// RFC 7606 section 7.7, RFC 7607.
fn aggregator_fault(value: &[u8], four_octet_as: bool) -> Option<FaultReason> {
    let width = if four_octet_as { 4 } else { 2 };
    if value.len() != width + 4 {
        return Some(FaultReason::Length);
    }
    value[..width].iter().all(|octet| *octet == 0).then_some(FaultReason::AsZero)
}
