//! What is looked at before any signature, each check against a path that passes all others.

use holdfast_bgpsec_wire::{
    CONFED_SEGMENT, Ingress, Outside, Path, Refused, Segment, Session, SignatureBlock, Ski, Update, extend,
};
use holdfast_types::Asn;
use proptest::{collection::vec, option, prelude::*, sample::select};

const PEER: Asn = Asn(65002);
const OWN: Asn = Asn(65001);

/// A path of segments as pCount, flags and AS, the oldest first.
fn path(segments: &[(u8, u8, u32)]) -> Vec<u8> {
    let mut octets: Option<Vec<u8>> = None;
    for (pcount, flags, asn) in segments {
        let before = octets.as_deref().map(|octets| Path::parse(octets).expect("what we built"));
        let block = SignatureBlock { suite: 1, ski: Ski([0; 20]), signature: &[0; 8] };
        let segment = Segment { pcount: *pcount, flags: *flags, asn: Asn(*asn) };
        octets = Some(extend(before.as_ref(), segment, &[block]).expect("it fits"));
    }
    octets.expect("a segment")
}

fn check(ingress: Ingress, update: Update, segments: &[(u8, u8, u32)]) -> Result<(), Refused> {
    ingress.check(&Path::parse(&path(segments)).expect("well-formed"), update)
}

#[test]
fn each_check_refuses_what_it_is_for() {
    let external = Ingress::external(PEER, OWN);
    let member = Ingress { session: Session::Confederation, ..external };
    let internal = Ingress::internal(OWN);
    let server = Ingress { pcount_zero: true, ..external };
    let fine = [(1, 0, 64500), (1, 0, 65002)];
    let inside = [(1, 0, 64500), (0, 0x80, 65000), (1, 0x80, 65002)];
    let proper = Update::PROPER;
    let both = Update { as_path: true, ..proper };
    let many = |reachable| Update { reachable, ..proper };
    let outside = |outside| Update { outside, ..proper };
    let tolerant = Ingress { repeated_prefix: true, ..external };
    let two_numbers = Ingress { own_other: Some(Asn(65000)), ..external };
    let table = [
        (external, proper, &fine[..], Ok(())),
        (
            external,
            proper,
            &[(1, 0, 65002), (1, 0, 64500)],
            Err(Refused::NotThePeer { newest: Asn(64500), peer: PEER }),
        ),
        (external, both, &fine, Err(Refused::AsPath)),
        (external, proper, &inside, Err(Refused::ConfedSegment)),
        (member, proper, &inside, Ok(())),
        (member, proper, &fine, Err(Refused::NoConfedSegment)),
        // Only the most recent pCount is the peer's to answer for.
        (external, proper, &[(0, 0, 64500), (1, 0, 65002)], Ok(())),
        (external, proper, &[(1, 0, 64500), (0, 0, 65002)], Err(Refused::PcountZero)),
        (server, proper, &[(1, 0, 64500), (0, 0, 65002)], Ok(())),
        (external, proper, &[(1, 0, 65001), (1, 0, 65002)], Err(Refused::Loop(OWN))),
        // It is not in the AS_PATH that this stands for.
        (external, proper, &[(0, 0, 65001), (1, 0, 65002)], Ok(())),
        (two_numbers, proper, &[(1, 0, 65000), (1, 0, 65002)], Err(Refused::Loop(Asn(65000)))),
        (two_numbers, proper, &[(1, 0, 65001), (1, 0, 65002)], Err(Refused::Loop(OWN))),
        (two_numbers, proper, &fine, Ok(())),
        (external, outside(Outside::Same), &fine, Err(Refused::OutsideMpReach)),
        (external, outside(Outside::Other), &fine, Err(Refused::OutsideMpReach)),
        (tolerant, outside(Outside::Same), &fine, Ok(())),
        (tolerant, outside(Outside::Other), &fine, Err(Refused::OutsideMpReach)),
        // Whoever is inside our AS has added nothing.
        (internal, proper, &fine, Ok(())),
        (internal, proper, &[(1, 0x80, 64500), (0, 0, 64501)], Ok(())),
        (internal, both, &fine, Err(Refused::AsPath)),
        (internal, proper, &[(1, 0, 65001), (1, 0, 65002)], Err(Refused::Loop(OWN))),
        (internal, many(2), &fine, Err(Refused::Routes(2))),
        (external, many(0), &fine, Err(Refused::Routes(0))),
        (external, many(2), &fine, Err(Refused::Routes(2))),
        (Ingress { most_hops: 1, ..external }, proper, &fine, Err(Refused::TooManyHops { hops: 2, most: 1 })),
        (Ingress { most_hops: 2, ..external }, proper, &fine, Ok(())),
        (Ingress { most_pcount: 2, ..external }, proper, &fine, Ok(())),
        (Ingress { most_pcount: 1, ..external }, proper, &fine, Err(Refused::TooLong { sum: 2, most: 1 })),
        (Ingress { most_pcount: 2, ..member }, proper, &inside, Ok(())),
        (Ingress { most_pcount: 1, ..member }, proper, &inside, Err(Refused::TooLong { sum: 2, most: 1 })),
        (external, proper, &[(255, 0, 64500), (255, 0, 64500), (255, 0, 64500), (235, 0, 65002)], Ok(())),
        (
            external,
            proper,
            &[(255, 0, 64500), (255, 0, 64500), (255, 0, 64500), (236, 0, 65002)],
            Err(Refused::TooLong { sum: 1001, most: 1000 }),
        ),
        // Flags that nobody knows are let pass.
        (external, proper, &[(1, 0x7f, 64500), (1, 0x01, 65002)], Ok(())),
    ];
    for (number, (ingress, update, segments, outcome)) in table.into_iter().enumerate() {
        assert_eq!(check(ingress, update, segments), outcome, "row {number}");
    }
}

/// The routers of RFC 8206 section 5.4 while they migrate: PE-1 has AS 64500 and is AS 64510 to CE-1.
#[test]
fn paths_of_an_as_that_migrates_pass_where_rfc_8206_has_them() {
    let old = 64510;
    let external = |peer, own| Ingress::external(Asn(peer), Asn(own));
    let pe_1 = |peer, own, other| Ingress { own_other: Some(Asn(other)), ..external(peer, own) };
    let from_ce_1 = [(1, 0, 64496)];
    let hidden = [(1, 0, 64496), (0, 0, old)];
    let outbound = [(1, 0, 64499), (0, 0, 64500), (1, 0, old)];
    let third = [(1, 0, 64496), (0, 0, old), (1, 0, 64500)];
    let back = [(1, 0, 64499), (1, 0, 64500), (1, 0, 64496)];
    for (name, ingress, segments, outcome) in [
        ("PE-1 from CE-1, as AS 64510", pe_1(64496, old, 64500), &from_ce_1[..], Ok(())),
        ("PE-2 from PE-1, inside AS 64500", Ingress::internal(Asn(64500)), &hidden, Ok(())),
        ("what AS 64500 has told comes back", pe_1(64496, old, 64500), &back, Err(Refused::Loop(Asn(64500)))),
        ("CE-1 from PE-1", external(old, 64496), &outbound, Ok(())),
        ("AS 64505 from PE-2", external(64500, 64505), &third, Ok(())),
        ("CE-2 from PE-2", external(64500, 64499), &third, Ok(())),
        (
            "between both ASes, where nothing allows it",
            external(old, 64500),
            &hidden,
            Err(Refused::PcountZero),
        ),
        ("and where it is allowed", Ingress { pcount_zero: true, ..external(old, 64500) }, &hidden, Ok(())),
    ] {
        assert_eq!(check(ingress, Update::PROPER, segments), outcome, "{name}");
    }
}

/// Numbers of ours: few, of which paths have one.
fn asns() -> impl Strategy<Value = Asn> {
    (65003..65006u32).prop_map(Asn)
}

prop_compose! {
    fn ingresses()(
        session in select(vec![Session::External, Session::Confederation, Session::Internal]),
        peer in 65000..65004u32,
        (own, own_other) in (asns(), option::of(asns())),
        (pcount_zero, repeated_prefix) in any::<(bool, bool)>(),
        (most_hops, most_pcount) in (1..5usize, 0..9u32),
    ) -> Ingress {
        let peer = Asn(peer);
        Ingress { session, peer, own, own_other, pcount_zero, most_hops, most_pcount, repeated_prefix }
    }
}

prop_compose! {
    fn updates()(
        as_path in prop::bool::weighted(0.1),
        reachable in prop_oneof![9 => Just(1), 1 => 0..3usize],
        outside in prop_oneof![
            8 => Just(Outside::None),
            1 => Just(Outside::Same),
            1 => Just(Outside::Other),
        ],
    ) -> Update {
        Update { as_path, reachable, outside }
    }
}

/// The numbers in an AS_PATH.
fn asns_of(mut as_path: &[u8]) -> Vec<Asn> {
    let mut all = Vec::new();
    while let [_, count, rest @ ..] = as_path {
        let (numbers, rest) = rest.split_at(4 * usize::from(*count));
        all.extend(numbers.as_chunks().0.iter().map(|octets| Asn(u32::from_be_bytes(*octets))));
        as_path = rest;
    }
    all
}

/// RFC 8205 sections 5.2 and 4.1, sentence by sentence, and our bounds.
fn is_refused(ingress: &Ingress, update: Update, segments: &[(u8, u8, u32)]) -> bool {
    let (pcount, flags, asn) = *segments.last().expect("a segment");
    let confed = |flags: u8| flags & CONFED_SEGMENT != 0;
    let as_path = asns_of(&Path::parse(&path(segments)).expect("well-formed").as_path());
    let own: Vec<Asn> = [Some(ingress.own), ingress.own_other].into_iter().flatten().collect();
    let about_the_peer = match ingress.session {
        Session::External => segments.iter().any(|(_, flags, _)| confed(*flags)),
        Session::Confederation => !confed(flags),
        Session::Internal => false,
    };
    let about_the_edge = asn != ingress.peer.0 || pcount == 0 && !ingress.pcount_zero;
    let wrong = [
        ingress.session != Session::Internal && about_the_edge,
        about_the_peer,
        update.as_path,
        as_path.iter().any(|asn| own.contains(asn)),
        update.reachable != 1,
        update.outside == Outside::Other,
        update.outside == Outside::Same && !ingress.repeated_prefix,
        segments.len() > ingress.most_hops,
        as_path.len() > ingress.most_pcount as usize,
    ];
    wrong.contains(&true)
}

proptest! {
    #![proptest_config(holdfast_testing::cases(1024))]

    #[test]
    fn a_path_is_refused_when_the_rfc_says_so(
        (ingress, update) in (ingresses(), updates()),
        segments in vec((0..4u8, select(vec![0, CONFED_SEGMENT]), 65000..65004u32), 1..6),
        from_the_peer in any::<bool>(),
    ) {
        let mut segments = segments;
        if let Some(newest) = segments.last_mut().filter(|_| from_the_peer) {
            newest.2 = ingress.peer.0;
        }
        let outcome = check(ingress, update, &segments);
        prop_assert_eq!(outcome.is_err(), is_refused(&ingress, update, &segments), "{:?}", outcome);
    }
}
