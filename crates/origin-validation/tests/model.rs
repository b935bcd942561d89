//! Both tables against the plainest thing that follows the text: a list that is looked through, and all apexes tried.

use std::collections::BTreeSet;

use holdfast_origin_validation::{AspaTable, Authorizations, Delta, Procedure, VrpTable, origin};
use holdfast_policy::{PathElement, PathValidity, Validity};
use holdfast_types::{Asn, Aspa, HashKey, Ipv4Prefix, Ipv6Prefix, Prefix, Vrp};
use proptest::prelude::*;

/// RFC 6811 section 2, as it is written.
fn plainly(vrps: &[Vrp], prefix: Prefix, origin: Option<Asn>) -> Validity {
    let covering: Vec<_> = vrps.iter().filter(|vrp| vrp.prefix().contains(prefix)).collect();
    let matches =
        |vrp: &&Vrp| prefix.length() <= vrp.max_length() && Some(vrp.asn()) == origin && vrp.asn() != Asn(0);
    match () {
        () if covering.is_empty() => Validity::NotFound,
        () if covering.iter().any(matches) => Validity::Valid,
        () => Validity::Invalid,
    }
}

/// Few addresses, so that prefixes meet.
fn prefixes() -> impl Strategy<Value = Prefix> {
    let v4 = (0..8u32, 0..4u32, 0..=32u8).prop_map(|(high, low, length)| {
        Ipv4Prefix::new((high << 29 | low << 8).into(), length).unwrap().into()
    });
    let v6 = (0..4u128, 0..4u128, 0..=128u8).prop_map(|(high, low, length)| {
        Ipv6Prefix::new((high << 100 | low << 64 | low << 3).into(), length).unwrap().into()
    });
    prop_oneof![v4, v6]
}

fn vrps() -> impl Strategy<Value = Vrp> {
    (prefixes(), 0..=128u8, 0..4u32).prop_map(|(prefix, longer, asn)| {
        let longest = if matches!(prefix, Prefix::V4(_)) { 32 } else { 128 };
        let max_length = prefix.length() + longer % (longest - prefix.length() + 1);
        Vrp::new(prefix, max_length, Asn(asn)).unwrap()
    })
}

/// One hop: whether the customer has said that the provider is one; `None`: it has said nothing.
fn attests(aspas: &[Aspa], customer: Asn, provider: Asn) -> Option<bool> {
    let said = aspas.iter().find(|aspa| aspa.customer() == customer)?;
    Some(said.providers().contains(&provider))
}

/// Whether a path leads up to an apex, over at most one hop that nobody need attest to another, and down from there. Hops
/// of which nothing is said count as `unsaid`.
fn is_possible(aspas: &[Aspa], from_origin: &[Asn], downstream: bool, unsaid: bool) -> bool {
    let up = |at: usize| attests(aspas, from_origin[at], from_origin[at + 1]).unwrap_or(unsaid);
    let down = |at: usize| attests(aspas, from_origin[at + 1], from_origin[at]).unwrap_or(unsaid);
    let last = from_origin.len() - 1;
    if !downstream {
        return (0..last).all(up);
    }
    (0..=last).any(|k| (k..=(k + 1).min(last)).any(|l| (0..k).all(up) && (l..last).all(down)))
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn an_origin_is_what_a_list_that_is_looked_through_says(
        steps in prop::collection::vec((any::<bool>(), vrps()), 0..60),
        routes in prop::collection::vec((prefixes(), prop::option::of(0..4u32)), 1..40),
    ) {
        let (mut table, mut list) = (VrpTable::new(), Vec::new());
        for (announced, vrp) in steps {
            let known = list.contains(&vrp);
            if announced {
                prop_assert_eq!(table.insert(vrp), !known);
                list.extend((!known).then_some(vrp));
            } else {
                prop_assert_eq!(table.remove(vrp), known);
                list.retain(|other| *other != vrp);
            }
        }
        list.sort_unstable();
        prop_assert_eq!(table.len(), list.len());
        let mut held: Vec<_> = table.iter().collect();
        held.sort_unstable();
        prop_assert_eq!(&held, &list);
        for (prefix, asn) in routes {
            let asn = asn.map(Asn);
            prop_assert_eq!(table.validate(prefix, asn), plainly(&list, prefix, asn));
            let mut covering = table.covering(prefix);
            covering.sort_unstable();
            let plainly: Vec<_> = list.iter().copied().filter(|vrp| vrp.prefix().contains(prefix)).collect();
            prop_assert_eq!(covering, plainly);
        }
    }

    #[test]
    fn a_difference_is_what_its_vrps_are_one_by_one(
        deltas in prop::collection::vec(prop::collection::vec((any::<bool>(), vrps()), 0..30), 1..6),
    ) {
        let (mut table, mut one_by_one) = (VrpTable::new(), VrpTable::new());
        for delta in deltas {
            let of = |announced| delta.iter().filter(move |(is, _)| *is == announced).map(|(_, vrp)| *vrp);
            let (withdrawn, announced): (Vec<_>, Vec<_>) = (of(false).collect(), of(true).collect());
            let before: BTreeSet<_> = one_by_one.iter().collect();
            withdrawn.iter().for_each(|vrp| _ = one_by_one.remove(*vrp));
            announced.iter().for_each(|vrp| _ = one_by_one.insert(*vrp));
            let after: BTreeSet<_> = one_by_one.iter().collect();
            let changed: BTreeSet<_> = before.symmetric_difference(&after).map(|vrp| vrp.prefix()).collect();
            prop_assert_eq!(table.apply(&withdrawn, &announced), changed.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(table.len(), after.len());
            prop_assert!(table.iter().eq(one_by_one.iter()));
        }
        prop_assert_eq!(table.left_out(), 0);
    }

    #[test]
    fn a_path_is_what_trying_all_apexes_says(
        aspas in prop::collection::btree_map(0..6u32, prop::collection::vec(0..6u32, 1..4), 0..6),
        path in prop::collection::vec((0..6u32, 1..3usize), 1..7),
    ) {
        let aspas: Vec<_> = aspas
            .into_iter()
            .map(|(customer, providers)| Aspa::new(Asn(customer), providers.into_iter().map(Asn).collect()))
            .collect();
        let mut table = AspaTable::new(HashKey::new([1, 0]));
        aspas.iter().for_each(|aspa| {
            table.insert(aspa);
        });
        let prepended: Vec<_> = path.iter().flat_map(|(asn, times)| vec![Asn(*asn); *times]).collect();
        let mut from_origin = prepended.clone();
        from_origin.dedup();
        from_origin.reverse();
        for (procedure, downstream) in [(Procedure::Upstream, false), (Procedure::Downstream, true)] {
            let expected = match () {
                () if !is_possible(&aspas, &from_origin, downstream, true) => PathValidity::Invalid,
                () if !is_possible(&aspas, &from_origin, downstream, false) => PathValidity::Unknown,
                () => PathValidity::Valid,
            };
            let elements = prepended.iter().map(|asn| PathElement::Sequence(*asn));
            prop_assert_eq!(table.verify(elements, prepended[0], procedure), expected);
        }
    }
}

/// What RFC 6811 leaves to the reader of RFC 6483, RFC 6907 and RFC 5065.
#[test]
fn as_0_allows_nobody_and_a_set_is_nobody() {
    let mut table = VrpTable::new();
    let prefix: Prefix = "192.0.2.0/24".parse().unwrap();
    table.insert(Vrp::new(prefix, 24, Asn(0)).unwrap());
    assert_eq!(table.validate(prefix, Some(Asn(0))), Validity::Invalid);
    table.insert(Vrp::new(prefix, 24, Asn(64496)).unwrap());
    assert_eq!(table.validate(prefix, Some(Asn(64496))), Validity::Valid);
    let (set, inner) = (PathElement::Set(Asn(64496)), PathElement::ConfedSequence(Asn(65001)));
    let (outer, ours) = (PathElement::Sequence(Asn(64496)), Asn(64500));
    assert_eq!(origin([outer, set].into_iter(), ours), None);
    assert_eq!(table.validate(prefix, None), Validity::Invalid);
    assert_eq!(origin([inner, outer].into_iter(), ours), Some(Asn(64496)));
    assert_eq!([origin([inner].into_iter(), ours), origin([].into_iter(), ours)], [Some(ours); 2]);
}

/// A is a customer of C and D, which are peers and customers of F, and D of G; B is a customer of E, and E of G. F and G are
/// peers. E and F have said nothing, and G that it has no provider.
#[test]
fn paths_over_a_small_internet() {
    const A: u32 = 1;
    const B: u32 = 2;
    const C: u32 = 3;
    const D: u32 = 4;
    const E: u32 = 5;
    const F: u32 = 6;
    const G: u32 = 7;
    let mut table = AspaTable::new(HashKey::new([1, 0]));
    for (customer, providers) in [(A, vec![C, D]), (B, vec![E]), (C, vec![F]), (D, vec![F, G]), (G, vec![0])]
    {
        table.insert(&Aspa::new(Asn(customer), providers.into_iter().map(Asn).collect()));
    }
    use PathValidity::{Invalid, Unknown, Valid};
    use Procedure::{Downstream, Upstream};
    let cases: [(&[u32], Procedure, PathValidity); 10] = [
        (&[C, A], Upstream, Valid),
        (&[F, C, A], Upstream, Valid),
        // C tells its peer D of what it has from its peer D: a leak that A's word alone does not show, but C's does.
        (&[D, C, A], Upstream, Invalid),
        (&[E, B], Upstream, Valid),
        // E has said nothing of G.
        (&[G, E, B], Upstream, Unknown),
        (&[G, D, A], Downstream, Valid),
        // Up to F, over to G, down to D: F has said nothing, but it is the apex.
        (&[D, G, F, C, A], Downstream, Valid),
        // E, below G, has said nothing of it: the way down may be none.
        (&[E, G, F, C, A], Downstream, Unknown),
        // Down to D, and up again to F: if F were a customer of D, it would be no leak, and F has said nothing.
        (&[F, D, G, E, B], Downstream, Unknown),
        // D tells G, which is no customer of its, of what it has from its peer.
        (&[G, D, C, A], Downstream, Invalid),
    ];
    for (path, procedure, expected) in cases {
        let elements = path.iter().map(|asn| PathElement::Sequence(Asn(*asn)));
        assert_eq!(table.verify(elements, Asn(path[0]), procedure), expected, "{path:?} {procedure:?}");
    }
    let elements = |path: &'static [u32]| path.iter().map(|asn| PathElement::Sequence(Asn(*asn)));
    assert_eq!(table.verify(elements(&[C, A]), Asn(D), Upstream), Invalid);
    assert_eq!(table.verify(elements(&[C, A]), Asn(D), Procedure::UpstreamOfServer), Valid);
    assert_eq!(table.verify(elements(&[]), Asn(C), Upstream), Invalid);
    let with_set = elements(&[C]).chain([PathElement::Set(Asn(A))]);
    assert_eq!(table.verify(with_set, Asn(C), Upstream), Invalid);
}

#[test]
fn a_difference_names_what_it_changes_and_nothing_else() {
    let mut all = Authorizations::new(HashKey::new([1, 0]));
    let vrp = |text: &str, asn| Vrp::new(text.parse().unwrap(), 24, Asn(asn)).unwrap();
    let (one, other) = (vrp("192.0.2.0/24", 1), vrp("198.51.100.0/24", 2));
    let aspa = Aspa::new(Asn(1), vec![Asn(2)]);
    let delta = Delta { announced: vec![one, other, one], aspas: vec![aspa.clone()], ..Delta::default() };
    let affected = all.apply(&delta);
    assert_eq!((affected.prefixes.as_slice(), affected.paths), (&[one.prefix(), other.prefix()][..], true));
    assert!(affected.all, "they are the first");
    assert!(all.apply(&delta).is_empty());
    let back = Delta { withdrawn: vec![other, other], without_aspa: vec![Asn(7)], ..Delta::default() };
    let affected = all.apply(&back);
    assert_eq!((affected.prefixes.as_slice(), affected.paths), (&[other.prefix()][..], false));
    assert_eq!((all.vrps.len(), all.aspas.len(), affected.all), (1, 1, false));
    let last = Delta { withdrawn: vec![one], ..Delta::default() };
    assert!(all.apply(&last).all && !all.apply(&last).all);
}
