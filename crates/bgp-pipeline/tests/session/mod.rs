//! Whole sessions: octets in, and what becomes of the session, of its routes, and of the session beside it.

mod corpus;
mod others;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod router;
mod sequence;
mod signed;
#[path = "../../../bgp-wire/tests/reactions/table.rs"]
mod table;

use holdfast_bgp_pipeline::{DropReason, PeerKind};
use holdfast_bgp_wire::update::AsSets;
use router::{Router, Wild, update};
use table::{From, Reaction, Row, rows};

/// The prefix of the rows' NLRI, and that of their MP_REACH_NLRI.
const PREFIXES: [&str; 2] = ["203.0.113.0/24", "2001:db8:113::/48"];

/// The peer of a row.
fn wild(from: From) -> Wild {
    match from {
        From::Ebgp => Wild::EBGP,
        From::TwoOctetEbgp => Wild { four_octet_as: false, ..Wild::EBGP },
        From::EbgpWithSets => Wild { as_sets: AsSets::Accept, ..Wild::EBGP },
        From::EbgpWithV6Hops => Wild { v6_next_hops: true, ..Wild::EBGP },
        From::Ibgp => Wild { kind: PeerKind::Ibgp, ..Wild::EBGP },
        From::Confed => Wild { kind: PeerKind::ConfedEbgp, confederation: true, ..Wild::EBGP },
        From::Member => Wild { kind: PeerKind::Ibgp, confederation: true, ..Wild::EBGP },
    }
}

/// The first row from there in which nothing is wrong, for IPv4 and for IPv6: what the peer has announced before.
fn good(rows: &[Row], from: From) -> [&Row; 2] {
    [[true, false], [false, true]].map(|announces| {
        let fits =
            |row: &&Row| row.from == from && row.announces == announces && row.reaction == Reaction::Fine;
        rows.iter().find(fits).unwrap_or_else(|| panic!("no good UPDATE from {from:?}"))
    })
}

/// What has happened to a session.
fn reaction(router: &Router) -> Reaction {
    if let Some(told) = router.wild_was_told() {
        return Reaction::Reset(told.code, told.subcode);
    }
    let drops = router.pipeline.drops(router.wild_index()).expect("a peer");
    let reaction = |(reason, _): &(DropReason, u64)| match reason {
        DropReason::Withdrawn(fault) => Reaction::Withdraw(fault.attribute),
        DropReason::Discarded(fault) => Reaction::Discard(fault.attribute),
        DropReason::UnusableNextHop | DropReason::OwnNextHop | DropReason::Full => Reaction::Withdraw(0),
        DropReason::Family(_) | DropReason::RouteLeak | DropReason::TooManyPaths | DropReason::NoPlace => {
            Reaction::Fine
        }
    };
    let all: Vec<_> = drops.counts().iter().map(reaction).collect();
    // The strongest one (RFC 7606 section 3 h).
    let withdrawn = all.iter().find(|reaction| matches!(reaction, Reaction::Withdraw(_)));
    withdrawn.or(all.first()).copied().unwrap_or(Reaction::Fine)
}

#[test]
fn every_update_has_its_reaction_and_the_session_beside_it_stands() {
    let rows = rows();
    for row in &rows {
        let mut router = Router::new(wild(row.from));
        for good in good(&rows, row.from) {
            router.wild_says(&update(&good.body));
        }
        let line = row.line;
        assert!(PREFIXES.iter().all(|prefix| router.wild_has(prefix)), "line {line}: nothing to withdraw");
        router.wild_says(&update(&row.body));
        // RFC 4271 section 6.1: too short for an UPDATE is found before anybody looks into it.
        let expected = if row.body.len() < 4 { Reaction::Reset(1, 2) } else { row.reaction };
        assert_eq!(reaction(&router), expected, "line {line}, by {}", row.source);
        let is_reset = matches!(row.reaction, Reaction::Reset(..));
        assert_eq!(router.wild_is_up(), !is_reset, "line {line}");
        for (prefix, announced) in PREFIXES.into_iter().zip(row.announces) {
            if is_reset {
                router.settle();
                assert!(!router.wild_has(prefix), "line {line}: its routes go with the session");
            } else if announced {
                let withdrawn = matches!(row.reaction, Reaction::Withdraw(_));
                assert_eq!(router.wild_has(prefix), !withdrawn, "line {line}: {prefix}");
            }
        }
        let drops = router.pipeline.drops(router.wild_index()).expect("a peer");
        if row.announces != [false; 2] {
            let named = drops.last().all(|dropped| dropped.prefix.is_some() || is_family(dropped.reason));
            assert!(
                named,
                "line {line}: it is said what was dropped: {:?}",
                drops.last().collect::<Vec<_>>()
            );
        }
        router.assert_clean(3);
    }
}

fn is_family(reason: DropReason) -> bool {
    matches!(reason, DropReason::Family(_))
}

/// An announcement of 198.51.100.0/24 with so many octets of an attribute that nobody knows.
fn with_unknown_octets(count: u16) -> Vec<u8> {
    let [high, low] = count.to_be_bytes();
    let attributes =
        [
            &[
                0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe9, 0x40, 3, 4, 10, 0, 2, 2, 0xd0, 99, high,
                low,
            ][..],
            &vec![7; usize::from(count)],
        ]
        .concat();
    let length = attributes.len() as u16;
    update(&[&[0, 0][..], &length.to_be_bytes(), &attributes, &[24, 198, 51, 100]].concat())
}

#[test]
fn what_is_too_long_to_be_passed_on_is_withdrawn() {
    let mut router = Router::new(Wild { extended_messages: true, ..Wild::EBGP });
    // What fits beside the header, ORIGIN, NEXT_HOP, a path with one AS more, and this prefix.
    let most = 4096 - 19 - 4 - 4 - 7 - 13 - 4 - 4;
    let rows = [(100, true), (u16::MAX - 60, false), (most, true), (most + 1, false), (0, true)];
    let mut too_long = 0;
    for (octets, fits) in rows {
        router.wild_says(&with_unknown_octets(octets));
        assert!(router.wild_has("198.51.100.0/24"), "{octets}: we have it");
        too_long += u64::from(!fits);
        let known = router.clean_knows("198.51.100.0/24");
        assert_eq!((known, router.pipeline.too_long()), (fits, too_long), "{octets}");
    }
    router.assert_clean(3);
}

#[test]
fn what_was_dropped_is_told_with_its_prefix_and_how_many_they_were() {
    let mut router = Router::new(Wild::EBGP);
    // ORIGIN 7, and three prefixes.
    let body = [&[0, 0, 0, 4, 0x40, 1, 1, 7][..], &[24, 203, 0, 113, 24, 198, 51, 100, 16, 10, 1]].concat();
    router.wild_says(&update(&body));
    let drops = router.pipeline.drops(router.wild_index()).expect("a peer");
    let told: Vec<_> = drops
        .last()
        .map(|it| (it.prefix.map(|it| it.to_string()), it.routes, it.reason.to_string()))
        .collect();
    let reason = "treated as withdrawn: ORIGIN: undefined value (RFC 7606 section 7.1)".to_owned();
    assert_eq!(told, [(Some("203.0.113.0/24".to_owned()), 3, reason)]);
    assert_eq!(drops.total(), 1);
}
