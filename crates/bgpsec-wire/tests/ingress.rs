//! What is looked at before any signature, each check against a path that passes all others.

use holdfast_bgpsec_wire::{Ingress, Path, Refused, Segment, SignatureBlock, Ski, Update, extend};
use holdfast_types::Asn;

const PEER: Asn = Asn(65002);
const OWN: Asn = Asn(65001);

/// Segments as pCount, flags and AS, the oldest first.
fn check(ingress: Ingress, update: Update, segments: &[(u8, u8, u32)]) -> Result<(), Refused> {
    let mut octets: Option<Vec<u8>> = None;
    for (pcount, flags, asn) in segments {
        let before = octets.as_deref().map(|octets| Path::parse(octets).expect("what we built"));
        let block = SignatureBlock { suite: 1, ski: Ski([0; 20]), signature: &[0; 8] };
        let segment = Segment { pcount: *pcount, flags: *flags, asn: Asn(*asn) };
        octets = Some(extend(before.as_ref(), segment, &[block]).expect("it fits"));
    }
    ingress.check(&Path::parse(&octets.expect("a segment")).expect("well-formed"), update)
}

#[test]
fn each_check_refuses_what_it_is_for() {
    let external = Ingress::external(PEER, OWN);
    let member = Ingress { in_confederation: true, ..external };
    let server = Ingress { pcount_zero: true, ..external };
    let fine = [(1, 0, 64500), (1, 0, 65002)];
    let inside = [(1, 0, 64500), (0, 0x80, 65000), (1, 0x80, 65002)];
    let proper = Update::PROPER;
    let both = Update { as_path: true, ..proper };
    let many = |reachable| Update { reachable, ..proper };
    let elsewhere = Update { outside_mp_reach: true, ..proper };
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
        (external, elsewhere, &fine, Err(Refused::OutsideMpReach)),
        (external, many(0), &fine, Err(Refused::Routes(0))),
        (external, many(2), &fine, Err(Refused::Routes(2))),
        (Ingress { most_hops: 1, ..external }, proper, &fine, Err(Refused::TooManyHops { hops: 2, most: 1 })),
        // Flags that nobody knows are let pass.
        (external, proper, &[(1, 0x7f, 64500), (1, 0x01, 65002)], Ok(())),
    ];
    for (number, (ingress, update, segments, outcome)) in table.into_iter().enumerate() {
        assert_eq!(check(ingress, update, segments), outcome, "row {number}");
    }
}
