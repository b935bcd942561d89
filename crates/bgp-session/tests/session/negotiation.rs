//! What both OPENs make of each other.

use std::time::Duration;

use holdfast_bgp_session::{
    AddPath, Bgpsec, BgpsecFamily, Negotiated, Output, PeerAsn, PeerConfig, SendPaths, SessionEvent, State,
};
use holdfast_bgp_wire::{Capability, MAX_EXTENDED_LEN, MAX_LEN, Notification, Open};
use holdfast_types::{Afi, Asn, BgpRole, Family};

use crate::tests::session::solo::{
    DIALLED, OUR_ASN, PEER_ASN, Solo, config, graceful_open, peer_open, router_id, ruled, sent_notification,
    sent_open,
};

const V4: Family = Family::IPV4_UNICAST;
const V6: Family = Family::IPV6_UNICAST;

fn both_families() -> PeerConfig {
    PeerConfig { families: vec![V4, V6], ..config() }
}

fn answer(config: PeerConfig, open: &Open) -> (Solo, Vec<Output>) {
    let mut solo = Solo::new(config);
    solo.advance_to(State::OpenSent);
    let outputs = solo.feed_open(DIALLED, open);
    (solo, outputs)
}

fn negotiated(config: PeerConfig, open: &Open) -> Negotiated {
    let (mut solo, _) = answer(config, open);
    solo.feed_keepalive(DIALLED);
    solo.peer.negotiated().expect("up").clone()
}

fn refusal(config: PeerConfig, open: &Open) -> Notification {
    sent_notification(&answer(config, open).1)
}

fn with(capabilities: &[Capability]) -> Open {
    Open { capabilities: capabilities.to_vec(), ..peer_open() }
}

#[test]
fn our_open_offers_what_the_product_does_and_nothing_else() {
    let mut solo = Solo::new(PeerConfig { extended_next_hop: true, ..both_families() });
    solo.advance_to(State::Connect);
    let open = sent_open(&solo.feed(holdfast_bgp_session::Input::Connected(DIALLED)));
    assert_eq!((open.asn, open.hold_time, open.router_id), (OUR_ASN, 90, router_id(1)));
    let graceful =
        Capability::GracefulRestart { restarting: false, notification: false, time: 0, families: Vec::new() };
    let expected = [
        Capability::Multiprotocol(V4),
        Capability::Multiprotocol(V6),
        Capability::RouteRefresh,
        Capability::EnhancedRouteRefresh,
        Capability::FourOctetAs(OUR_ASN),
        graceful,
        Capability::ExtendedMessage,
        Capability::ExtendedNextHop(vec![(V4, Afi::IPV6)]),
    ];
    assert_eq!(open.capabilities, expected);
}

#[test]
fn hold_times_that_cannot_be_offered_are_bent() {
    for (set, offered) in [(0, 0), (1, 3), (2, 3), (3, 3), (65535, 65535)] {
        let mut solo = Solo::new(PeerConfig { hold_time: set, ..config() });
        solo.advance_to(State::Connect);
        let open = sent_open(&solo.feed(holdfast_bgp_session::Input::Connected(DIALLED)));
        assert_eq!(open.hold_time, offered, "{set}");
    }
}

#[test]
fn families_are_those_of_both_in_our_order() {
    let theirs = with(&[Capability::Multiprotocol(V6), Capability::Multiprotocol(V4)]);
    assert_eq!(negotiated(both_families(), &theirs).families, [V4, V6]);
    assert_eq!(negotiated(both_families(), &with(&[Capability::Multiprotocol(V6)])).families, [V6]);
}

#[test]
fn a_peer_that_names_no_family_means_ipv4() {
    assert_eq!(negotiated(both_families(), &with(&[Capability::RouteRefresh])).families, [V4]);
}

#[test]
fn without_capabilities_of_ours_only_ipv4_is_exchanged() {
    let ours = PeerConfig { capabilities: false, ..both_families() };
    let theirs = with(&[Capability::Multiprotocol(V6), Capability::Multiprotocol(V4)]);
    assert_eq!(negotiated(ours, &theirs).families, [V4]);
}

#[test]
fn without_a_common_family_the_peer_is_told_what_it_lacks() {
    let ours = PeerConfig { families: vec![V6], ..config() };
    let told = Notification::unsupported_capability(&[Capability::Multiprotocol(V6)]);
    assert_eq!(refusal(ours.clone(), &with(&[])), told);
    assert_eq!(refusal(ours, &with(&[Capability::Multiprotocol(V4)])), told);
}

#[test]
fn the_as_number_must_be_one_that_the_peer_may_have() {
    let rows = [
        (PeerAsn::Exact(PEER_ASN), PEER_ASN, true),
        (PeerAsn::Exact(PEER_ASN), Asn(7), false),
        (PeerAsn::Any, OUR_ASN, true),
        (PeerAsn::External, PEER_ASN, true),
        (PeerAsn::External, OUR_ASN, false),
        (PeerAsn::Internal, OUR_ASN, true),
        (PeerAsn::Internal, PEER_ASN, false),
    ];
    for (peer_asn, asn, good) in rows {
        let open = Open { asn, ..with(&[Capability::FourOctetAs(asn)]) };
        let (solo, outputs) = answer(PeerConfig { peer_asn: peer_asn.clone(), ..config() }, &open);
        if good {
            assert_eq!(solo.peer.state(), State::OpenConfirm, "{peer_asn:?} {asn}");
        } else {
            assert_eq!(sent_notification(&outputs), Notification::bad_peer_as(), "{peer_asn:?} {asn}");
        }
    }
}

#[test]
fn our_own_router_id_is_refused_inside_our_as_only() {
    let ours = PeerConfig { peer_asn: PeerAsn::Any, ..config() };
    let internal = Open { asn: OUR_ASN, router_id: router_id(1), ..with(&[]) };
    assert_eq!(refusal(ours.clone(), &internal), Notification::bad_bgp_identifier());
    let external = Open { router_id: router_id(1), ..peer_open() };
    assert!(!negotiated(ours.clone(), &external).is_ibgp);
    assert!(negotiated(ours, &Open { router_id: router_id(2), ..internal }).is_ibgp);
}

#[test]
fn a_hold_time_of_one_or_two_seconds_is_refused() {
    for hold_time in [1, 2] {
        let open = Open { hold_time, ..peer_open() };
        assert_eq!(refusal(config(), &open), Notification::unacceptable_hold_time());
    }
}

#[test]
fn four_octet_numbers_need_both_and_are_compared_whole() {
    let ours = PeerConfig { peer_asn: PeerAsn::Exact(Asn(70_000)), ..config() };
    let open = Open { asn: Asn(70_000), ..with(&[Capability::FourOctetAs(Asn(70_000))]) };
    assert!(negotiated(ours, &open).four_octet_as);
    assert!(!negotiated(config(), &with(&[])).four_octet_as);
    let ours = PeerConfig { capabilities: false, ..config() };
    assert!(!negotiated(ours, &peer_open()).four_octet_as);
}

#[test]
fn long_messages_are_sent_if_the_peer_takes_them_and_taken_if_we_said_so() {
    let rows = [
        (true, vec![Capability::ExtendedMessage], MAX_EXTENDED_LEN, MAX_EXTENDED_LEN),
        (true, vec![], MAX_LEN, MAX_EXTENDED_LEN),
        (false, vec![Capability::ExtendedMessage], MAX_LEN, MAX_LEN),
    ];
    for (extended_message, capabilities, max_sent, max_received) in rows {
        let ours = PeerConfig { extended_message, ..config() };
        let both = negotiated(ours.clone(), &with(&capabilities));
        assert_eq!((both.max_sent, both.max_received), (max_sent, max_received));
        let (solo, _) = answer(ours, &with(&capabilities));
        assert_eq!(solo.peer.max_received(DIALLED), max_received, "already in OpenConfirm");
    }
}

#[test]
fn ipv6_next_hops_for_ipv4_need_both() {
    let theirs = with(&[Capability::ExtendedNextHop(vec![(V4, Afi::IPV6)])]);
    let ours = PeerConfig { extended_next_hop: true, ..config() };
    assert_eq!(negotiated(ours.clone(), &theirs).extended_next_hop, [V4]);
    assert_eq!(negotiated(config(), &theirs).extended_next_hop, []);
    assert_eq!(negotiated(ours, &peer_open()).extended_next_hop, []);
}

#[test]
fn path_identifiers_need_one_who_sends_and_one_who_receives() {
    const RECEIVE: u8 = 1;
    const SEND: u8 = 2;
    let (v4, v6): (&[Family], &[Family]) = (&[V4], &[V6]);
    type Row<'a> = (bool, bool, &'a [(Family, u8)], &'a [Family], &'a [Family]);
    let rows: [Row<'_>; 7] = [
        (true, true, &[(V4, RECEIVE | SEND), (V6, RECEIVE)], v4, &[V4, V6]),
        (true, false, &[(V4, RECEIVE), (V6, SEND)], v6, &[]),
        (false, true, &[(V4, RECEIVE), (V6, SEND)], &[], v4),
        (true, true, &[], &[], &[]),
        (false, false, &[(V4, RECEIVE | SEND)], &[], &[]),
        (true, true, &[(V4, SEND), (V4, RECEIVE)], v4, &[]),
        (true, true, &[(V4, 7)], &[], &[]),
    ];
    for (receive_paths, send_paths, theirs, received, sent) in rows {
        let send = send_paths.then_some(SendPaths::All);
        let ours = PeerConfig { add_path: AddPath { receive: receive_paths, send }, ..both_families() };
        let offer = [
            Capability::Multiprotocol(V4),
            Capability::Multiprotocol(V6),
            Capability::AddPath(theirs.to_vec()),
        ];
        let both = negotiated(ours, &with(&offer));
        assert_eq!((&*both.identifiers_received, &*both.identifiers_sent), (received, sent), "{theirs:?}");
    }
    let mut solo =
        Solo::new(PeerConfig { add_path: AddPath { receive: true, send: None }, ..both_families() });
    solo.advance_to(State::Connect);
    let open = sent_open(&solo.feed(holdfast_bgp_session::Input::Connected(DIALLED)));
    let offered = open.capabilities.iter().find(|capability| matches!(capability, Capability::AddPath(_)));
    assert_eq!(offered, Some(&Capability::AddPath(vec![(V4, RECEIVE), (V6, RECEIVE)])));
}

#[test]
fn of_several_graceful_restart_capabilities_the_last_counts() {
    let mut open = graceful_open();
    let last =
        Capability::GracefulRestart { restarting: true, notification: true, time: 7, families: Vec::new() };
    open.capabilities.push(last);
    let restart = negotiated(config(), &open).graceful_restart.expect("offered");
    assert!(restart.restarting && restart.notification && restart.families.is_empty());
    assert_eq!(restart.time, Duration::from_secs(7));
}

#[test]
fn everything_the_peer_said_is_kept_for_display() {
    let theirs = with(&[Capability::Unknown { code: 200, value: vec![1] }, Capability::EnhancedRouteRefresh]);
    assert_eq!(negotiated(config(), &theirs).capabilities, theirs.capabilities);
}

/// RFC 9234 section 4.2.
#[test]
fn a_role_is_told_and_the_peers_has_to_fit() {
    let ours = |role_strict| PeerConfig {
        role: Some(BgpRole::Provider),
        ..ruled(config(), |rules| rules.role_strict = role_strict)
    };
    let mut solo = Solo::new(ours(false));
    solo.advance_to(State::Connect);
    let open = sent_open(&solo.feed(holdfast_bgp_session::Input::Connected(DIALLED)));
    assert!(open.capabilities.contains(&Capability::Role(0)));

    let said = |roles: &[u8]| {
        let roles = roles.iter().map(|role| Capability::Role(*role));
        Open { capabilities: peer_open().capabilities.into_iter().chain(roles).collect(), ..peer_open() }
    };
    // What the peer says, whether that fits, and whether it does where something has to be said.
    let rows: [(&[u8], bool, bool); 7] = [
        (&[3], true, true),
        (&[3, 3], true, true),
        (&[], true, false),
        (&[0], false, false),
        (&[4], false, false),
        (&[3, 4], false, false),
        (&[200], false, false),
    ];
    for (roles, fits, fits_strictly) in rows {
        for (strict, fits) in [(false, fits), (true, fits_strictly)] {
            if fits {
                negotiated(ours(strict), &said(roles));
            } else {
                assert_eq!(refusal(ours(strict), &said(roles)), Notification::role_mismatch(), "{roles:?}");
            }
        }
    }
    // Without a role of ours one of theirs means nothing, but two contradict each other in any case.
    negotiated(config(), &said(&[0]));
    assert_eq!(refusal(config(), &said(&[3, 4])), Notification::role_mismatch());
}

#[test]
fn a_role_that_has_to_be_told_is_not_given_up_with_the_capabilities() {
    for (role_strict, plain) in [(false, true), (true, false)] {
        let mut solo = Solo::new(PeerConfig {
            role: Some(BgpRole::Provider),
            ..ruled(config(), |rules| rules.role_strict = role_strict)
        });
        solo.advance_to(State::OpenSent);
        let outputs = solo.feed_notification(DIALLED, &Notification::unsupported_optional_parameter());
        let tried = outputs.contains(&Output::Log(SessionEvent::WithoutCapabilities));
        assert_eq!(tried, plain, "strict: {role_strict}");
    }
}

/// Of version 0.
fn bgpsec(send: bool, family: Family) -> Capability {
    Capability::Bgpsec { version: 0, send, afi: family.afi }
}

/// Who speaks BGPsec with all that it needs, and these capabilities.
fn secure(more: &[Capability]) -> Open {
    let needed =
        [Capability::Multiprotocol(V4), Capability::Multiprotocol(V6), Capability::FourOctetAs(PEER_ASN)];
    with(&[&needed[..], more].concat())
}

#[test]
fn bgpsec_is_agreed_on_by_direction_and_family() {
    let ours = |send, receive| PeerConfig {
        bgpsec: Bgpsec { send, receive, ..Bgpsec::default() },
        ..both_families()
    };
    let agreed = |config: PeerConfig, open: &Open| {
        let Negotiated { bgpsec_received, bgpsec_sent, .. } = negotiated(config, open);
        (bgpsec_received, bgpsec_sent)
    };
    let all = [bgpsec(true, V4), bgpsec(false, V4), bgpsec(true, V6), bgpsec(false, V6)];
    assert_eq!(agreed(ours(true, true), &secure(&all)), (vec![V4, V6], vec![V4, V6]));
    assert_eq!(agreed(ours(false, true), &secure(&all)), (vec![V4, V6], vec![]));
    assert_eq!(agreed(ours(true, false), &secure(&all)), (vec![], vec![V4, V6]));
    assert_eq!(agreed(ours(false, false), &secure(&all)), (vec![], vec![]));
    // It sends, and we do as well: nobody receives.
    assert_eq!(agreed(ours(true, false), &secure(&[bgpsec(true, V4)])), (vec![], vec![]));
    assert_eq!(
        agreed(ours(true, true), &secure(&[bgpsec(true, V4), bgpsec(false, V6)])),
        (vec![V4], vec![V6])
    );
    // Other versions and families are ignored, and the session comes up; several versions may be listed.
    let other = [
        Capability::Bgpsec { version: 1, send: true, afi: V4.afi },
        Capability::Bgpsec { version: 0, send: true, afi: Afi(9) },
    ];
    assert_eq!(agreed(ours(true, true), &secure(&other)), (vec![], vec![]));
    assert_eq!(agreed(ours(true, true), &secure(&[&other[..], &all].concat())), (vec![V4, V6], vec![V4, V6]));
    // Only beside multiprotocol for the family, and four-octet AS numbers.
    let v4_only = [Capability::Multiprotocol(V4), Capability::FourOctetAs(PEER_ASN)];
    assert_eq!(agreed(ours(true, true), &with(&[&v4_only[..], &all].concat())), (vec![V4], vec![V4]));
    let implicit = [Capability::FourOctetAs(PEER_ASN)];
    assert_eq!(agreed(ours(true, true), &with(&[&implicit[..], &all].concat())), (vec![], vec![]));
    let two_octets = [Capability::Multiprotocol(V4)];
    assert_eq!(agreed(ours(true, true), &with(&[&two_octets[..], &all].concat())), (vec![], vec![]));
    let one = Bgpsec { families: vec![BgpsecFamily::Ipv6], receive: true, ..Bgpsec::default() };
    let ours = PeerConfig { bgpsec: one, ..both_families() };
    assert_eq!(agreed(ours, &secure(&all)), (vec![V6], vec![]));
}

/// RFC 8205 section 2.2.
#[test]
fn bgpsec_is_offered_beside_what_it_needs_and_not_without() {
    let ours = Bgpsec { send: true, receive: true, ..Bgpsec::default() };
    let ipv6 = Bgpsec { families: vec![BgpsecFamily::Ipv6], ..ours.clone() };
    let both = |family| [bgpsec(true, family), bgpsec(false, family)];
    let rows = [
        (vec![V4], ours.clone(), both(V4).to_vec()),
        (vec![V6], ours.clone(), both(V6).to_vec()),
        (vec![V4, V6], ipv6.clone(), both(V6).to_vec()),
        (vec![V4], ipv6, vec![]),
    ];
    for (families, bgpsec, expected) in rows {
        let mut solo = Solo::new(PeerConfig { families: families.clone(), bgpsec, ..config() });
        solo.advance_to(State::Connect);
        let open = sent_open(&solo.feed(holdfast_bgp_session::Input::Connected(DIALLED)));
        let is_bgpsec = |capability: &&Capability| matches!(capability, Capability::Bgpsec { .. });
        assert!(open.capabilities.iter().filter(is_bgpsec).eq(&expected), "{:?}", open.capabilities);
        let needed = families.into_iter().map(Capability::Multiprotocol);
        for needed in needed.chain([Capability::FourOctetAs(OUR_ASN)]) {
            assert!(open.capabilities.contains(&needed), "{needed:?}");
        }
    }
    let mut solo = Solo::new(PeerConfig { capabilities: false, bgpsec: ours, ..config() });
    solo.advance_to(State::Connect);
    let open = sent_open(&solo.feed(holdfast_bgp_session::Input::Connected(DIALLED)));
    assert_eq!(open.capabilities, []);
}

#[test]
fn a_session_may_be_refused_for_want_of_bgpsec() {
    let required = Bgpsec { send: true, receive: true, require_session: true, ..Bgpsec::default() };
    let ours = PeerConfig { bgpsec: required, ..both_families() };
    let all = [bgpsec(true, V4), bgpsec(true, V6), bgpsec(false, V4), bgpsec(false, V6)];
    assert_eq!(negotiated(ours.clone(), &secure(&all)).bgpsec_sent, [V4, V6]);
    let told = Notification::unsupported_capability(&all);
    for without in 0..4 {
        let mut some = all.to_vec();
        some.remove(without);
        assert_eq!(refusal(ours.clone(), &secure(&some)), told);
    }
    assert_eq!(refusal(ours.clone(), &with(&[])), told);
    // A family that the peer does not have counts as well.
    let ipv4 =
        [Capability::Multiprotocol(V4), Capability::FourOctetAs(PEER_ASN), all[0].clone(), all[2].clone()];
    assert_eq!(refusal(ours.clone(), &with(&ipv4)), told);
    // And it is not given up with the capabilities.
    let mut solo = Solo::new(ours);
    solo.advance_to(State::OpenSent);
    let outputs = solo.feed_notification(DIALLED, &Notification::unsupported_optional_parameter());
    assert!(!outputs.contains(&Output::Log(SessionEvent::WithoutCapabilities)));
}

#[test]
fn a_session_that_lacks_bgpsec_is_what_require_session_would_have_refused() {
    let all = [bgpsec(true, V4), bgpsec(true, V6), bgpsec(false, V4), bgpsec(false, V6)];
    let wanted = |send, receive, families: &[BgpsecFamily]| PeerConfig {
        bgpsec: Bgpsec { send, receive, families: families.to_vec(), ..Bgpsec::default() },
        ..both_families()
    };
    let ipv4 = [Capability::Multiprotocol(V4), Capability::FourOctetAs(PEER_ASN), all[0].clone()];
    for (ours, open, lacks) in [
        (wanted(true, true, &[]), secure(&all), false),
        (wanted(true, true, &[]), secure(&all[1..]), true),
        (wanted(false, true, &[]), secure(&all[..2]), false),
        (wanted(false, true, &[]), with(&ipv4), true),
        (wanted(false, true, &[BgpsecFamily::Ipv4]), with(&ipv4), false),
        (wanted(false, false, &[]), with(&[]), false),
        (
            PeerConfig { capabilities: false, ..wanted(false, true, &[BgpsecFamily::Ipv4]) },
            secure(&all),
            true,
        ),
    ] {
        assert_eq!(negotiated(ours.clone(), &open).lacks_bgpsec, lacks, "{ours:?} {open:?}");
        let bgpsec = Bgpsec { require_session: true, ..ours.bgpsec.clone() };
        let (solo, _) = answer(PeerConfig { bgpsec, ..ours }, &open);
        assert_eq!(solo.peer.state() != State::OpenConfirm, lacks, "{open:?}");
    }
}
