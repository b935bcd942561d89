//! What operators look at, a part at a time, while it changes.

use holdfast_rip::{Metric, Ripv2};

use super::{
    networks::Plan,
    one::{One, entry, response},
};

/// A router that has these destinations of its own, and has heard routers 1 to 3 on each wire.
fn one(destinations: impl IntoIterator<Item = u32>) -> One {
    let mut one = One::new();
    for number in destinations {
        one.rip.redistribute(one.now, Ripv2::destination(number), Metric::ONE, 0).expect("room");
    }
    let octets = response::<Ripv2>(&[entry(Ripv2::destination(99), 16)]);
    for (wire, router) in [1, 2].into_iter().flat_map(|wire| [1, 2, 3].map(|router| (wire, router))) {
        one.rip.receive(one.now, &one.datagram(wire, router, &octets)).expect("good");
    }
    one
}

#[test]
fn routes_follow_one_that_need_not_be_there_any_more() {
    let mut one = one(0..10);
    let prefixes = |one: &One, after| -> Vec<_> {
        one.rip.routes_after(after).map(|route| route.prefix).take(4).collect()
    };
    let whole: Vec<_> = one.rip.routes().map(|route| route.prefix).collect();
    let first = prefixes(&one, None);
    assert_eq!(first, whole[..4]);
    // What was said last goes, and is forgotten.
    one.rip.withdraw_redistributed(one.now, first[3]);
    one.wait(super::networks::secs(200));
    assert_eq!(one.rip.route(first[3]), None);
    assert_eq!(prefixes(&one, Some(first[3])), whole[4..8]);
    assert!(prefixes(&one, whole.last().copied()).is_empty());
}

#[test]
fn neighbours_follow_one_on_an_interface_that_need_not_be_there_any_more() {
    let mut one = one([]);
    let after = |one: &One, after| -> Vec<_> {
        one.rip.neighbours_after(after).map(|shown| (shown.interface, shown.address)).collect()
    };
    let whole = after(&one, None);
    assert_eq!(whole.len(), 6);
    for (place, neighbour) in whole.iter().enumerate() {
        assert_eq!(after(&one, Some(*neighbour)), whole[place + 1..]);
    }
    one.rip.remove_interface(one.now, 1);
    assert_eq!(after(&one, Some(whole[1])), whole[3..]);
}
