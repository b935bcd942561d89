//! UPDATEs with BGPsec_PATH (RFC 8205 section 4.1): what a receiver needs of one, and one that is built around a path.
//!
//! The attribute itself is read and checked by [`holdfast_bgpsec_wire`]; here is what is around it.

use holdfast_bgpsec_wire::{Ingress, Nlri, Outside, Update};
use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    MAX_EXTENDED_LEN, MpReach, NextHop, Notification, Origin, UpdateEncoder,
    attribute::{Attribute, Walk, code, flag, push},
    encode::AttributesTooLong,
    nlri,
    update::{self, AsSets, Checked, PeerKind, Rules, Secured, Verdict},
};

/// The type code of BGPsec_PATH in the examples of RFC 8208 and RFC 8608, which were made before 33 was assigned.
pub const BGPSEC_PATH_IN_EXAMPLES: u8 = 30;

/// An UPDATE with BGPsec_PATH, as far as validation is concerned.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SecureUpdate<'a> {
    /// The attribute's value.
    pub path: &'a [u8],
    /// The first route of MP_REACH_NLRI. Signatures cover one, so `update` says whether there are others.
    pub nlri: Option<Nlri>,
    /// What [`Ingress::check`](holdfast_bgpsec_wire::Ingress::check) looks at.
    pub update: Update,
    /// Its type code.
    code: u8,
    /// All of the UPDATE.
    attributes: &'a [u8],
}

impl<'a> SecureUpdate<'a> {
    /// Reads the body of an UPDATE. `path` is the type code of BGPsec_PATH: [`code::BGPSEC_PATH`] on any session.
    ///
    /// # Errors
    /// There is no such attribute, or the UPDATE cannot be read as far as that.
    pub fn parse(body: &'a [u8], path: u8) -> Result<Self, NotSecure> {
        let sections = update::sections(body)?;
        let attributes: Vec<Attribute<'a>> = Walk(sections.attributes)
            .collect::<Result<_, _>>()
            .map_err(|cut| NotSecure::Truncated(cut.0.unwrap_or_default()))?;
        let all = |wanted: u8| attributes.iter().filter(move |attribute| attribute.code == wanted);
        // RFC 7606 section 3 g: of several the first one counts.
        let Some(found) = all(path).next() else {
            let codes = attributes.iter().map(|attribute| attribute.code);
            return Err(NotSecure::NoPath { wanted: path, codes: codes.collect() });
        };
        let (mut nlri, mut reachable) = (None, 0);
        if all(code::MP_REACH_NLRI).count() > 1 {
            return Err(NotSecure::TwoReach);
        }
        if let Some(Attribute { value, .. }) = all(code::MP_REACH_NLRI).next() {
            // IPv4 routes may have next hops of IPv6 (RFC 8950), which is the session's to say.
            let rules = Rules { extended_next_hop: true, ..Rules::new(PeerKind::Ebgp, AsSets::Reject) };
            let reach = MpReach::parse(value, &rules)?;
            (nlri, reachable) = match reach.family {
                Family::IPV4_UNICAST => first_of::<Ipv4Prefix>(reach.nlri),
                Family::IPV6_UNICAST => first_of::<Ipv6Prefix>(reach.nlri),
                family => return Err(NotSecure::Family(family)),
            };
        }
        let as_path = all(code::AS_PATH).next().is_some();
        let outside = match first_of::<Ipv4Prefix>(sections.nlri) {
            (_, 0) => Outside::None,
            (once_more, 1) if reachable == 1 && once_more == nlri => Outside::Same,
            _ => Outside::Other,
        };
        Ok(Self {
            path: found.value,
            nlri,
            update: Update { as_path, reachable, outside },
            code: path,
            attributes: sections.attributes,
        })
    }

    /// What becomes of the UPDATE on a session with such a peer that has agreed on BGPsec: [`update::check`] of all that it has.
    pub fn check(&self, kind: PeerKind, ingress: Ingress) -> Verdict {
        // The attribute by its assigned number, whatever it has here.
        let mut attributes = Vec::with_capacity(self.attributes.len());
        for attribute in Walk(self.attributes).filter_map(Result::ok) {
            match attribute.code {
                found if found == self.code => {
                    push(&mut attributes, attribute.flags, code::BGPSEC_PATH, attribute.value);
                }
                code::BGPSEC_PATH => {}
                _ => attributes.extend_from_slice(attribute.wire),
            }
        }
        let has_nlri = match self.update.outside {
            Outside::None => false,
            Outside::Same => !ingress.repeated_prefix,
            Outside::Other => true,
        };
        let families = [Family::IPV4_UNICAST, Family::IPV6_UNICAST].into_iter().collect();
        let rules = Rules {
            extended_next_hop: true,
            bgpsec: Some(Secured { families, ingress }),
            ..Rules::new(kind, AsSets::Reject)
        };
        let mut checked = Checked::default();
        update::check(&attributes, has_nlri, &rules, &mut checked);
        checked.verdict
    }
}

/// The first prefix of a list that was found sound, and how many there are.
fn first_of<P: IpPrefix + Into<Prefix>>(list: &[u8]) -> (Option<Nlri>, usize) {
    let first = nlri::prefixes::<P>(list).next().and_then(Result::ok);
    (first.map(|prefix| Nlri::unicast(prefix.into())), nlri::prefixes::<P>(list).count())
}

/// Why nothing can be said of an UPDATE's path.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotSecure {
    /// What ends a session.
    #[error("the UPDATE cannot be read: {0}")]
    Broken(#[from] Notification),
    /// Its attributes end inside of one.
    #[error("the attributes end inside of one (type {0})")]
    Truncated(u8),
    /// What ends a session, too (RFC 7606 section 3 g).
    #[error("there are two MP_REACH_NLRI")]
    TwoReach,
    /// It is one without signatures.
    #[error("there is no attribute of type {wanted}, but those of types {codes:?}")]
    NoPath {
        /// BGPsec_PATH.
        wanted: u8,
        /// What is there, in its order.
        codes: Vec<u8>,
    },
    /// BGPsec is for unicast routes of IPv4 and IPv6 (RFC 8205 section 2.1).
    #[error("its route is of family {0}")]
    Family(Family),
}

/// A whole UPDATE that announces one route with BGPsec_PATH, in MP_REACH_NLRI whatever the family.
///
/// # Errors
/// No message has room for it.
pub fn announce(
    path: &[u8],
    origin: Origin,
    next_hop: NextHop,
    prefix: Prefix,
) -> Result<Vec<u8>, AttributesTooLong> {
    let mut attributes = Vec::with_capacity(path.len() + 8);
    push(&mut attributes, flag::TRANSITIVE, code::ORIGIN, &[origin as u8]);
    push(&mut attributes, flag::OPTIONAL, code::BGPSEC_PATH, path);
    let (encoder, mut out) = (UpdateEncoder::new(MAX_EXTENDED_LEN), Vec::new());
    match prefix {
        Prefix::V4(prefix) => encoder.announce_alone(&attributes, next_hop, prefix, &mut out)?,
        Prefix::V6(prefix) => encoder.announce_alone(&attributes, next_hop, prefix, &mut out)?,
    };
    Ok(out)
}

#[cfg(test)]
mod tests {
    use holdfast_bgpsec_wire::{Segment, SignatureBlock, Ski, extend};
    use holdfast_types::Asn;

    use super::*;
    use crate::{
        MAX_LEN,
        fault::{Fault, FaultReason, PathFault},
        next_message,
    };

    #[test]
    fn what_is_announced_is_what_a_receiver_finds() {
        for (prefix, next_hop) in [
            ("192.0.2.0/24", NextHop::V4([198, 51, 100, 1].into())),
            ("192.0.2.0/24", NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None }),
            ("2001:db8:7::/48", NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None }),
        ] {
            let prefix = prefix.parse().unwrap();
            let octets = announce(&[1, 2, 3], Origin::Igp, next_hop, prefix).expect("fits");
            let message = next_message(&octets, MAX_LEN).expect("sound").expect("whole");
            let found = SecureUpdate::parse(message.body, code::BGPSEC_PATH).expect("found");
            assert_eq!(found.path, [1, 2, 3]);
            assert_eq!((found.nlri, found.update), (Some(Nlri::unicast(prefix)), Update::PROPER));
        }
    }

    #[test]
    fn what_is_wrong_around_a_path_is_told() {
        let body =
            |attributes: &[u8], nlri: &[u8]| [&[0, 0, 0, attributes.len() as u8], attributes, nlri].concat();
        let path = [0x80, 33, 1, 7];
        let read = |octets: &[u8]| SecureUpdate::parse(octets, code::BGPSEC_PATH).map(|found| found.update);
        let with_as_path = body(&[&path[..], &[0x40, 2, 0]].concat(), &[8, 10]);
        let improper = Update { as_path: true, reachable: 0, outside: Outside::Other };
        assert_eq!(read(&with_as_path), Ok(improper));
        let one = [&path[..], &[0x80, 14, 11, 0, 1, 1, 4, 192, 0, 2, 1, 0, 8, 10]].concat();
        for (nlri, outside) in [
            (&[][..], Outside::None),
            (&[8, 10], Outside::Same),
            (&[8, 11], Outside::Other),
            (&[9, 10, 0], Outside::Other),
            (&[8, 10, 8, 10], Outside::Other),
        ] {
            assert_eq!(read(&body(&one, nlri)), Ok(Update { outside, ..Update::PROPER }), "{nlri:?}");
        }
        let two = [0x80, 14, 13, 0, 1, 1, 4, 192, 0, 2, 1, 0, 8, 10, 8, 11];
        let two = [&path[..], &two].concat();
        assert_eq!(read(&body(&two, &[])), Ok(Update { reachable: 2, ..Update::PROPER }));
        let other = Update { reachable: 2, outside: Outside::Other, ..Update::PROPER };
        assert_eq!(read(&body(&two, &[8, 10])), Ok(other));
        let labelled = [0x80, 14, 9, 0, 1, 4, 4, 192, 0, 2, 1, 0];
        let labelled = body(&[&path[..], &labelled].concat(), &[]);
        assert!(matches!(read(&labelled), Err(NotSecure::Family(_))));
        let twice = body(&[&path[..], &[0x80, 33, 1, 8], &one[4..]].concat(), &[]);
        let found = SecureUpdate::parse(&twice, code::BGPSEC_PATH);
        assert_eq!(found.map(|found| (found.path, found.update)), Ok((&[7][..], Update::PROPER)));
        assert_eq!(read(&body(&[&one[..], &one[4..]].concat(), &[])), Err(NotSecure::TwoReach));
        assert_eq!(read(&body(&path[..3], &[])), Err(NotSecure::Truncated(33)));
        assert!(matches!(read(&[0, 9]), Err(NotSecure::Broken(_))));
        let examples = body(&[0x80, 30, 1, 7], &[]);
        assert_eq!(read(&examples), Err(NotSecure::NoPath { wanted: 33, codes: vec![30] }));
        assert!(SecureUpdate::parse(&examples, BGPSEC_PATH_IN_EXAMPLES).is_ok());
    }

    #[test]
    fn an_update_is_judged_as_on_a_session() {
        const PEER: Asn = Asn(64500);
        const ORIGIN: [u8; 4] = [0x40, 1, 1, 0];
        const LOCAL_PREF: [u8; 7] = [0x40, 5, 4, 0, 0, 0, 100];
        let block = SignatureBlock { suite: 1, ski: Ski([0; 20]), signature: &[0; 8] };
        let segment = Segment { pcount: 1, flags: 0, asn: PEER };
        let value = extend(None, segment, &[block]).expect("it fits");
        let path = |flags: u8, code: u8| {
            let mut octets = Vec::new();
            push(&mut octets, flags, code, &value);
            octets
        };
        let long = [&[0x90, 33, 0, value.len() as u8], &value[..]].concat();
        let reach = |next_hop: u8| [0x80, 14, 11, 0, 1, 1, 4, next_hop, 0, 2, 1, 0, 8, 10];
        let external = Ingress::external(PEER, Asn(64501));
        let judge = |kind: PeerKind, ingress: Ingress, code: u8, attributes: &[&[u8]], nlri: &[u8]| {
            let attributes = attributes.concat();
            let body = [&[0, 0, 0, attributes.len() as u8], &attributes[..], nlri].concat();
            SecureUpdate::parse(&body, code).expect("can be read").check(kind, ingress)
        };
        let fault = |attribute, reason| Verdict::TreatAsWithdraw(Fault { attribute, reason });
        let refused = |fault_of: PathFault| fault(33, FaultReason::Bgpsec(fault_of));
        /// Attributes, NLRI, and what becomes of them.
        type Row<'a> = (&'a [&'a [u8]], &'a [u8], Verdict);
        let (fine, far) = (path(0x80, 33), reach(192));
        let rows: [Row<'_>; 13] = [
            (&[&ORIGIN, &far, &fine], &[], Verdict::Ok),
            (&[&ORIGIN, &far, &long], &[], Verdict::Ok),
            // The lower four bits mean nothing (RFC 4271 section 4.3).
            (&[&ORIGIN, &far, &path(0x8f, 33)], &[], Verdict::Ok),
            (&[&ORIGIN, &far, &path(0xc0, 33)], &[], fault(33, FaultReason::Flags)),
            (&[&ORIGIN, &far, &path(0x40, 33)], &[], fault(33, FaultReason::Flags)),
            (&[&ORIGIN, &far, &path(0, 33)], &[], fault(33, FaultReason::Flags)),
            (&[&far, &fine], &[], fault(1, FaultReason::Missing)),
            (&[&[0x40, 1, 1, 3], &far, &fine], &[], fault(1, FaultReason::UndefinedOrigin)),
            (&[&ORIGIN, &reach(0), &fine], &[], fault(14, FaultReason::UnusableNextHop)),
            (&[&ORIGIN, &[0x80, 4, 1, 0], &far, &fine], &[], fault(4, FaultReason::Length)),
            (&[&ORIGIN, &[0x40, 2, 0], &far, &fine], &[], refused(PathFault::AsPath)),
            (&[&ORIGIN, &far, &fine], &[8, 10], refused(PathFault::OutsideMpReach)),
            (&[&ORIGIN, &far, &[0x80, 33, 1, 7]], &[], refused(PathFault::Malformed)),
        ];
        for (number, (attributes, nlri, verdict)) in rows.into_iter().enumerate() {
            let found = judge(PeerKind::Ebgp, external, code::BGPSEC_PATH, attributes, nlri);
            assert_eq!(found, verdict, "row {number}");
        }
        let again = [&ORIGIN[..], &far, &fine];
        let tolerant = Ingress { repeated_prefix: true, ..external };
        assert_eq!(judge(PeerKind::Ebgp, tolerant, code::BGPSEC_PATH, &again, &[8, 10]), Verdict::Ok);
        let other = judge(PeerKind::Ebgp, tolerant, code::BGPSEC_PATH, &again, &[8, 11]);
        assert_eq!(other, refused(PathFault::OutsideMpReach));
        let of_examples = [&ORIGIN[..], &far, &path(0x80, BGPSEC_PATH_IN_EXAMPLES), &[0x80, 33, 1, 7]];
        assert_eq!(judge(PeerKind::Ebgp, external, BGPSEC_PATH_IN_EXAMPLES, &of_examples, &[]), Verdict::Ok);
        let internal = Ingress::internal(Asn(64501));
        let missing = judge(PeerKind::Ibgp, internal, code::BGPSEC_PATH, &again, &[]);
        assert_eq!(missing, fault(5, FaultReason::Missing));
        let preferred = [&again[..], &[&LOCAL_PREF]].concat();
        assert_eq!(judge(PeerKind::Ibgp, internal, code::BGPSEC_PATH, &preferred, &[]), Verdict::Ok);
    }
    #[test]
    fn no_path_at_all_is_not_an_empty_as_path() {
        let head = [0x40, 1, 1, 0];
        let (local_pref, tail) = ([0x40, 5, 4, 0, 0, 0, 100], [0xc0, 35, 4, 0, 0, 0, 9]);
        let reach = [0x80, 14, 11, 0, 1, 1, 4, 192, 0, 2, 1, 0, 8, 10];
        let ipv4: update::FamilySet = [Family::IPV4_UNICAST].into_iter().collect();
        let canonical = |families, path: &[u8]| {
            let ingress = Ingress::internal(Asn(64501));
            let bgpsec = Some(Secured { families, ingress });
            let rules = Rules { bgpsec, ..Rules::new(PeerKind::Ibgp, AsSets::Reject) };
            let mut checked = Checked::default();
            let attributes = [&head[..], path, &local_pref, &reach, &tail].concat();
            update::check(&attributes, false, &rules, &mut checked);
            (checked.verdict == Verdict::Ok).then_some(checked.canonical)
        };
        let with = |path: &[u8], mark: &[u8]| Some([&head[..], path, &local_pref, mark, &tail].concat());
        assert_eq!(canonical(ipv4, &[]), with(&[0x40, 2, 0], &[0x80, 33, 0]));
        assert_eq!(canonical(ipv4, &[0x40, 2, 0]), with(&[0x40, 2, 0], &[]));
        assert_eq!(canonical(ipv4, &[0x80, 33, 0]), None, "no path is sent so");
        assert_eq!(canonical(update::FamilySet::NONE, &[]), None, "AS_PATH is missing");
    }
}
