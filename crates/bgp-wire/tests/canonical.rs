//! Properties of [`check`] over lists of plausible attributes: [`fuzzing::update_check`] asserts that canonical
//! bytes are a fixed point and that the quick way agrees; here is what they must hold besides.

use holdfast_bgp_wire::{
    Attributes, fuzzing,
    update::{AsSets, Checked, PeerKind, Rules, Verdict, check},
};
use proptest::{collection::vec, prelude::*};

const RULES: Rules = Rules { extended_next_hop: true, ..Rules::new(PeerKind::Ibgp, AsSets::Accept) };

fn octets(len: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(1..=223u8, len)
}

/// One segment, of two-octet or four-octet numbers.
fn path() -> impl Strategy<Value = Vec<u8>> {
    (1..=3u8, 1..6usize, prop_oneof![Just(2), Just(4)]).prop_flat_map(|(kind, count, width)| {
        octets(count * width).prop_map(move |numbers| [vec![kind, count as u8], numbers].concat())
    })
}

/// Code, flags and a value that mostly fit each other.
fn attribute() -> impl Strategy<Value = (u8, u8, Vec<u8>)> {
    prop_oneof![
        (0..3u8).prop_map(|origin| (1, 0x40, vec![origin])),
        path().prop_map(|path| (2, 0x40, path)),
        octets(4).prop_map(|value| (3, 0x40, value)),
        octets(4).prop_map(|value| (4, 0x80, value)),
        octets(4).prop_map(|value| (5, 0x40, value)),
        Just((6, 0x40, vec![])),
        prop_oneof![octets(6), octets(8)].prop_map(|value| (7, 0xc0, value)),
        (1..80usize).prop_flat_map(|count| octets(4 * count)).prop_map(|value| (8, 0xe0, value)),
        octets(8).prop_map(|value| (10, 0x80, value)),
        octets(16).prop_map(|value| (16, 0xc0, value)),
        path().prop_map(|path| (17, 0xc0, path)),
        octets(8).prop_map(|value| (18, 0xc0, value)),
        octets(12).prop_map(|value| (32, 0xc0, value)),
        (any::<u8>(), any::<u8>(), vec(any::<u8>(), 0..9)),
    ]
}

/// On the wire, with either form of the length.
fn encoded((code, flags, value): (u8, u8, Vec<u8>), long: bool) -> Vec<u8> {
    let head = if long || value.len() > 255 {
        let [high, low] = (value.len() as u16).to_be_bytes();
        vec![flags | 0x10, code, high, low]
    } else {
        vec![flags & !0x10, code, value.len() as u8]
    };
    [head, value].concat()
}

/// The mandatory ones are nearly always there.
fn list() -> impl Strategy<Value = Vec<u8>> {
    let mandatory = [
        encoded((1, 0x40, vec![0]), false),
        encoded((2, 0x40, vec![2, 1, 1, 1, 1, 1]), false),
        encoded((3, 0x40, vec![192, 0, 2, 1]), false),
        encoded((5, 0x40, vec![0, 0, 0, 100]), false),
    ];
    let one = (attribute(), any::<bool>()).prop_map(|(attribute, long)| encoded(attribute, long));
    (vec(one, 0..8), 0..20usize).prop_flat_map(move |(mut list, left_out)| {
        let kept = mandatory.iter().enumerate().filter(|(index, _)| *index != left_out);
        list.extend(kept.map(|(_, attribute)| attribute.clone()));
        Just(list).prop_shuffle().prop_map(|list| list.concat())
    })
}

proptest! {
    // Many of the lists are faulty, and say nothing about the canonical bytes of those that are not.
    #![proptest_config(holdfast_testing::cases(2000))]

    #[test]
    fn canonical_bytes_are_a_fixed_point_under_any_rules(list in list(), choice in 0..32u8) {
        fuzzing::update_check(&[vec![choice], list].concat());
    }

    #[test]
    fn canonical_bytes_are_the_first_of_each_attribute_in_order(list in list()) {
        let mut checked = Checked::default();
        check(&list, true, &RULES, &mut checked);
        prop_assume!(checked.verdict == Verdict::Ok);
        let canonical: Vec<_> = Attributes(&checked.canonical).iter().collect();
        prop_assert!(canonical.windows(2).all(|pair| pair[0].code < pair[1].code));
        let dropped = |code| checked.discarded.iter().any(|fault| fault.attribute == code);
        for received in Attributes(&list).iter() {
            let first = Attributes(&list).iter().find(|other| other.code == received.code).expect("itself");
            match canonical.iter().find(|kept| kept.code == received.code) {
                Some(kept) => prop_assert_eq!(kept.value, first.value),
                None => prop_assert!(dropped(received.code) || matches!(received.code, 14 | 15)),
            }
        }
    }
}
