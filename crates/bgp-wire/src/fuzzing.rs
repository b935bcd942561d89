//! Bodies of the fuzz targets in `fuzz/`, here so that the tests replay their corpora too. Each takes any
//! bytes; what must hold is asserted.

use std::net::Ipv6Addr;

use holdfast_bgpsec_wire::{Ingress, Update};
use holdfast_types::{Asn, Family, IpPrefix, Ipv4Prefix, Ipv6Prefix};

use crate::{
    Attributes, MAX_EXTENDED_LEN, MAX_LEN, NextHop, Notification, Open, OrfMessage, Origin, RouteRefresh,
    attribute::code,
    bgpsec::{BGPSEC_PATH_IN_EXAMPLES, SecureUpdate, announce},
    edit::{Change, Edit, PathEdit, PrivateAsns, Values, rewrite},
    message::{MessageType, next_message},
    nlri,
    update::{AsSets, Checked, PeerKind, Rules, Secured, Verdict, check, cut, sections, sections_identified},
};

/// A fuzz target: its name in `fuzz/` and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this crate.
pub const TARGETS: [Target; 7] = [
    ("message", message),
    ("open", open),
    ("notification", notification),
    ("route_refresh", route_refresh),
    ("update_check", update_check),
    ("attributes_view", attributes_view),
    ("nlri", nlri),
];

/// A stream: every message that can be framed is read by the parser of its type.
pub fn message(data: &[u8]) {
    for max_len in [MAX_LEN, MAX_EXTENDED_LEN] {
        let mut stream = data;
        while let Ok(Some(message)) = next_message(stream, max_len) {
            assert!(message.wire.len() <= max_len);
            match message.kind {
                MessageType::Open => open(message.body),
                MessageType::Update => update(message.body),
                MessageType::Notification => notification(message.body),
                MessageType::KeepAlive => assert!(message.body.is_empty()),
                MessageType::RouteRefresh => route_refresh(message.body),
            }
            stream = &stream[message.wire.len()..];
        }
    }
}

/// A ROUTE-REFRESH body, with or without outbound route filters.
pub fn route_refresh(body: &[u8]) {
    if OrfMessage::is_one(body)
        && let Ok(message) = OrfMessage::parse(body)
    {
        let wire = message.encode();
        assert_eq!(OrfMessage::parse(&wire[crate::HEADER_LEN..]).as_ref(), Ok(&message));
    }
    if let Ok(refresh) = RouteRefresh::parse(body) {
        assert_eq!(refresh.encode()[crate::HEADER_LEN..], *body);
    }
}

fn update(body: &[u8]) {
    secure_update(body);
    if let Ok(sections) = sections(body) {
        assert!(nlri::prefixes::<Ipv4Prefix>(sections.withdrawn).all(|prefix| prefix.is_ok()));
        assert!(nlri::prefixes::<Ipv4Prefix>(sections.nlri).all(|prefix| prefix.is_ok()));
        all_rules().for_each(|rules| check_twice(sections.attributes, !sections.nlri.is_empty(), &rules));
    }
    if let Ok(sections) = sections_identified(body) {
        assert!(nlri::identified::<Ipv4Prefix>(sections.withdrawn).all(|prefix| prefix.is_ok()));
        assert!(nlri::identified::<Ipv4Prefix>(sections.nlri).all(|prefix| prefix.is_ok()));
    }
}

/// What is found of a proper UPDATE with BGPsec_PATH is found again in what is made of it.
fn secure_update(body: &[u8]) {
    for path in [code::BGPSEC_PATH, BGPSEC_PATH_IN_EXAMPLES] {
        let Ok(found) = SecureUpdate::parse(body, path) else { continue };
        let Some(nlri) = found.nlri.filter(|_| found.update == Update::PROPER) else { continue };
        let next_hop = NextHop::V6 { global: Ipv6Addr::LOCALHOST, link_local: None };
        // One that fills its message may be too long with the longer next hop.
        let Ok(made) = announce(found.path, Origin::Igp, next_hop, nlri.prefix) else { continue };
        let again = SecureUpdate::parse(&made[crate::HEADER_LEN..], code::BGPSEC_PATH);
        let what = |found: SecureUpdate<'_>| (found.path.to_vec(), found.nlri, found.update);
        assert_eq!(again.map(what), Ok(what(found)));
    }
}

/// An OPEN body: what was understood survives being sent.
pub fn open(data: &[u8]) {
    let again = |open: &Open| Open::parse(&open.encode()[crate::HEADER_LEN..]).expect("what we send");
    if let Ok(open) = Open::parse(data) {
        // Names may be cut and capabilities that do not fit left out, once.
        let sent = again(&open);
        assert_eq!(again(&sent), sent);
    }
}

/// A NOTIFICATION body.
pub fn notification(data: &[u8]) {
    let Some(error) = Notification::parse(data) else { return };
    assert!(!error.to_string().contains(char::is_control));
    let wire = error.encode();
    assert!(wire.len() <= MAX_LEN && data.starts_with(&wire[crate::HEADER_LEN..]));
}

/// Path attributes after an octet that chooses the session's rules.
pub fn update_check(data: &[u8]) {
    let Some((&choice, attributes)) = data.split_first() else { return };
    // Members of a confederation are the upper half, behind the bit that says whether there are NLRI; path identifiers
    // double all that, and so does BGPsec.
    let index = usize::from(choice & 0x0f | (choice & 0xe0) >> 1);
    if let Some(rules) = all_rules().nth(index) {
        check_twice(attributes, choice & 0x10 != 0, &rules);
    }
}

fn all_rules() -> impl Iterator<Item = Rules> {
    (0..128u8).map(|bits| Rules {
        kind: match bits & 17 {
            0 => PeerKind::Ebgp,
            1 => PeerKind::Ibgp,
            16 => PeerKind::ConfedEbgp,
            _ => PeerKind::ConfedIbgp,
        },
        four_octet_as: bits & 2 == 0,
        as_sets: if bits & 4 == 0 { AsSets::Reject } else { AsSets::Accept },
        extended_next_hop: bits & 8 != 0,
        identifiers: Family::ALL.into_iter().filter(|_| bits & 32 != 0).collect(),
        bgpsec: (bits & 64 != 0).then(|| Secured {
            families: Family::ALL.into_iter().collect(),
            ingress: Ingress::external(Asn(64496), Asn(64497)),
        }),
    })
}

/// Canonical bytes are their own canonical bytes, and the quick way agrees with the full way.
fn check_twice(attributes: &[u8], has_nlri: bool, rules: &Rules) {
    let mut checked = Checked::default();
    let mp = check(attributes, has_nlri, rules, &mut checked);
    let mut rest = Vec::new();
    if let Some(cut) = cut(attributes, &mut rest)
        && !matches!(checked.verdict, Verdict::SessionReset(_))
    {
        assert_eq!(cut.parse(rules).as_ref(), Ok(&mp));
    }
    if checked.verdict != Verdict::Ok {
        assert!(checked.canonical.is_empty());
        return;
    }
    attributes_view(&checked.canonical);
    let canonical = std::mem::take(&mut checked.canonical);
    if Attributes(&canonical).iter().any(|attribute| attribute.code == code::BGPSEC_PATH) {
        // It has two paths, of which a peer sends one.
        check(&canonical, has_nlri, rules, &mut checked);
        assert!(matches!(checked.verdict, Verdict::TreatAsWithdraw(_)));
        return;
    }
    check(&canonical, has_nlri, &Rules { four_octet_as: true, ..*rules }, &mut checked);
    assert_eq!((&checked.verdict, &checked.discarded), (&Verdict::Ok, &vec![]));
    assert_eq!(checked.canonical, canonical);
    assert!(cut(&canonical, &mut rest).is_some() && rest == canonical);
}

/// Attribute bytes that nobody has checked, read and rewritten.
pub fn attributes_view(data: &[u8]) {
    let attributes = Attributes(data);
    let path = attributes.as_path();
    let facts = (path.hops(), path.first_as(), path.neighbor_as(), path.origin_as(), path.to_string());
    assert!(path.asns().all(|asn| path.contains(asn)), "{facts:?}");
    let numbers = (attributes.med(), attributes.local_pref(), attributes.next_hop(), attributes.origin());
    let ids = (attributes.aggregator(), attributes.originator_id(), attributes.atomic_aggregate());
    let lists = attributes.communities().len()
        + attributes.ext_communities().len()
        + attributes.large_communities().len()
        + attributes.cluster_list().len()
        + attributes.unknown().count();
    assert!(lists <= data.len(), "{numbers:?} {ids:?}");
    edits().for_each(|edit| rewrite(data, &edit, &mut Vec::new()));
}

fn edits() -> impl Iterator<Item = Edit<'static>> {
    const ASN: Asn = Asn(4_200_000_000);
    let values = Values { replace: false, remove: &[0xffff_ff01], add: &[1, 2, 1] };
    let full = Edit {
        path: PathEdit { strip_confederation: true, private: PrivateAsns::Remove(ASN), replace: None },
        prepend: &[(ASN, 3)],
        next_hop: Change::Set(std::net::Ipv4Addr::new(192, 0, 2, 1)),
        med: Change::Remove,
        communities: values,
        external: true,
        reflection: Change::Remove,
        only_to_customer: Some(ASN),
        four_octet_as: false,
        ..Edit::default()
    };
    [Edit::default(), full].into_iter()
}

/// Prefix lists of both families.
pub fn nlri(data: &[u8]) {
    nlri_of::<Ipv4Prefix>(data);
    nlri_of::<Ipv6Prefix>(data);
}

fn nlri_of<P: IpPrefix>(data: &[u8]) {
    let prefixes: Result<Vec<P>, _> = nlri::prefixes::<P>(data).collect();
    assert_eq!(prefixes.as_ref().map(Vec::len), nlri::count::<P>(data).as_ref().copied());
    let Ok(prefixes) = prefixes else { return };
    let mut out = Vec::new();
    prefixes.iter().for_each(|prefix| nlri::push_prefix(&mut out, *prefix));
    assert_eq!(out.len(), data.len());
    assert_eq!(nlri::prefixes::<P>(&out).collect::<Result<Vec<_>, _>>(), Ok(prefixes));
}
