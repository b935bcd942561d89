//! UPDATEs with BGPsec_PATH (RFC 8205 section 4.1): what a receiver needs of one, and one that is built around a path.
//!
//! The attribute itself is read and checked by [`holdfast_bgpsec_wire`]; here is what is around it.

use holdfast_bgpsec_wire::{Nlri, Update};
use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    MAX_EXTENDED_LEN, MpReach, NextHop, Notification, Origin, UpdateEncoder,
    attribute::{Attribute, Walk, code, flag, push},
    encode::AttributesTooLong,
    nlri,
    update::{self, AsSets, PeerKind, Rules},
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
        let value = |wanted: u8| -> Result<Option<&'a [u8]>, NotSecure> {
            let mut all = attributes.iter().filter(|attribute| attribute.code == wanted);
            let first = all.next().map(|attribute| attribute.value);
            if all.next().is_some() { Err(NotSecure::Twice(wanted)) } else { Ok(first) }
        };
        let Some(found) = value(path)? else {
            let codes = attributes.iter().map(|attribute| attribute.code);
            return Err(NotSecure::NoPath { wanted: path, codes: codes.collect() });
        };
        let (mut nlri, mut reachable) = (None, 0);
        if let Some(value) = value(code::MP_REACH_NLRI)? {
            // IPv4 routes may have next hops of IPv6 (RFC 8950), which is the session's to say.
            let rules = Rules { extended_next_hop: true, ..Rules::new(PeerKind::Ebgp, AsSets::Reject) };
            let reach = MpReach::parse(value, &rules)?;
            (nlri, reachable) = match reach.family {
                Family::IPV4_UNICAST => first_of::<Ipv4Prefix>(reach.nlri),
                Family::IPV6_UNICAST => first_of::<Ipv6Prefix>(reach.nlri),
                family => return Err(NotSecure::Family(family)),
            };
        }
        let as_path = attributes.iter().any(|attribute| attribute.code == code::AS_PATH);
        let outside_mp_reach = !sections.nlri.is_empty();
        Ok(Self { path: found, nlri, update: Update { as_path, reachable, outside_mp_reach } })
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
    /// Which of them counts is not said anywhere.
    #[error("there are two attributes of type {0}")]
    Twice(u8),
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
        Prefix::V4(prefix) => encoder.announce_mp(&attributes, next_hop, [prefix], &mut out)?,
        Prefix::V6(prefix) => encoder.announce_mp(&attributes, next_hop, [prefix], &mut out)?,
    };
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_LEN, next_message};

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
            let expected =
                SecureUpdate { path: &[1, 2, 3], nlri: Some(Nlri::unicast(prefix)), update: Update::PROPER };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn what_is_wrong_around_a_path_is_told() {
        let body =
            |attributes: &[u8], nlri: &[u8]| [&[0, 0, 0, attributes.len() as u8], attributes, nlri].concat();
        let path = [0x80, 33, 1, 7];
        let read = |octets: &[u8]| SecureUpdate::parse(octets, code::BGPSEC_PATH).map(|found| found.update);
        let with_as_path = body(&[&path[..], &[0x40, 2, 0]].concat(), &[8, 10]);
        let improper = Update { as_path: true, reachable: 0, outside_mp_reach: true };
        assert_eq!(read(&with_as_path), Ok(improper));
        let two = [0x80, 14, 13, 0, 1, 1, 4, 192, 0, 2, 1, 0, 8, 10, 8, 11];
        let two = body(&[&path[..], &two].concat(), &[]);
        assert_eq!(read(&two), Ok(Update { reachable: 2, ..Update::PROPER }));
        let labelled = [0x80, 14, 9, 0, 1, 4, 4, 192, 0, 2, 1, 0];
        let labelled = body(&[&path[..], &labelled].concat(), &[]);
        assert!(matches!(read(&labelled), Err(NotSecure::Family(_))));
        assert_eq!(read(&body(&[path, path].concat(), &[])), Err(NotSecure::Twice(33)));
        assert_eq!(read(&body(&path[..3], &[])), Err(NotSecure::Truncated(33)));
        assert!(matches!(read(&[0, 9]), Err(NotSecure::Broken(_))));
        let examples = body(&[0x80, 30, 1, 7], &[]);
        assert_eq!(read(&examples), Err(NotSecure::NoPath { wanted: 33, codes: vec![30] }));
        assert!(SecureUpdate::parse(&examples, BGPSEC_PATH_IN_EXAMPLES).is_ok());
    }
}
