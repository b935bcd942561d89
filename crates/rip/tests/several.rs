//! Several routers find their ways, and lose them.

use holdfast_rip::{Metric, Ripng, Ripv2, Settings, SplitHorizon};

use super::networks::{Net, Plan};

fn two_routers_find_each_other<P: Plan>() {
    let mut net = Net::<P>::line(2);
    net.attach(8, 0, |_| ());
    net.attach(9, 1, |_| ());
    net.run(0);
    net.run(6);
    assert_eq!(net.ribs[0].get(&P::network(9)), Some(&(2, 1, P::source(1, 1))));
    assert_eq!(net.ribs[1].get(&P::network(8)), Some(&(2, 1, P::source(1, 0))));
    assert_eq!(net.ribs[0].len(), 1, "not the network that both are on");
    assert_eq!(net.routers[0].neighbours().count(), 1);
}

#[test]
fn two_routers_of_each_family_find_each_other() {
    two_routers_find_each_other::<Ripv2>();
    two_routers_find_each_other::<Ripng>();
}

#[test]
fn metrics_grow_with_the_cost_and_tags_stay() {
    let mut net = Net::<Ripv2>::line(4);
    net.attach(2, 2, |interface| interface.cost = Metric::new(5).expect("a cost"));
    let prefix = Ripv2::destination(1);
    net.redistribute(0, prefix, 3);
    net.run(30);
    assert_eq!([1, 2, 3].map(|router| net.metric(router, prefix)), [Some(4), Some(9), Some(10)]);
    let tags: Vec<u16> = net.routers.iter().filter_map(|router| Some(router.route(prefix)?.tag)).collect();
    assert_eq!(tags, [77; 4]);
    assert_eq!(net.metric(3, Ripv2::network(2)), Some(6), "the cost of a network that is connected");
}

#[test]
fn what_is_sixteen_away_is_not_reachable() {
    let mut net = Net::<Ripng>::line(4);
    let prefix = Ripng::destination(1);
    net.redistribute(0, prefix, 14);
    net.run(60);
    assert_eq!([1, 2, 3].map(|router| net.metric(router, prefix)), [Some(15), None, None]);
}

#[test]
fn a_route_that_comes_through_a_neighbour_is_poisoned_there() {
    let mut net = Net::<Ripv2>::line(2);
    let prefix = Ripv2::destination(1);
    net.redistribute(0, prefix, 1);
    net.run(100);
    let back: Vec<u8> = net.updates(1, 1, 0).filter_map(|sent| sent.metric(prefix)).collect();
    assert!(back.len() >= 3 && back.iter().all(|metric| *metric == 16), "{back:?}");
    assert!(net.updates(0, 1, 0).all(|sent| sent.metric(Ripv2::network(1)).is_none()));
}

#[test]
fn a_simple_split_horizon_says_nothing() {
    let mut net = Net::<Ripv2>::new(2);
    net.join(1, &[0, 1], |interface| interface.split_horizon = SplitHorizon::Simple);
    let prefix = Ripv2::destination(1);
    net.redistribute(0, prefix, 1);
    net.run(100);
    assert_eq!(net.metric(1, prefix), Some(2));
    assert_eq!(net.updates(1, 1, 0).filter_map(|sent| sent.metric(prefix)).count(), 0);
}

#[test]
fn without_split_horizon_the_route_comes_back_with_its_next_hop() {
    let mut net = Net::<Ripv2>::new(2);
    net.join(1, &[0, 1], |interface| interface.split_horizon = SplitHorizon::Off);
    let prefix = Ripv2::destination(1);
    net.redistribute(0, prefix, 1);
    net.run(100);
    let back = net.updates(1, 1, 0).flat_map(super::networks::Sent::entries);
    let back: Vec<_> = back.filter(|entry| entry.prefix == prefix).collect();
    assert!(!back.is_empty());
    for entry in back {
        assert_eq!((entry.metric.get(), entry.next_hop), (2, Some(Ripv2::source(1, 0))));
    }
    assert_eq!(net.metric(0, prefix), None, "what comes back is no route");
}

/// Three routers in a circle, the worst case of RFC 2453 section 3.4.4: poisoned reverse does not prevent that they count.
#[test]
fn counting_to_infinity_ends() {
    for split_horizon in [SplitHorizon::PoisonedReverse, SplitHorizon::Simple, SplitHorizon::Off] {
        let mut net = Net::<Ripv2>::new(4);
        for (wire, members) in [(1, [0, 1]), (2, [1, 2]), (3, [2, 0]), (4, [0, 3])] {
            net.join(wire, &members, |interface| interface.split_horizon = split_horizon);
        }
        let prefix = Ripv2::destination(1);
        net.redistribute(3, prefix, 1);
        net.run(60);
        assert_eq!([0, 1, 2].map(|router| net.metric(router, prefix)), [Some(2), Some(3), Some(3)]);
        net.cut.insert(4);
        // The route is not lost before it times out; then at most 16 triggered updates.
        net.run(180 + 16 * 5);
        assert_eq!([0, 1, 2].map(|router| net.metric(router, prefix)), [None; 3], "{split_horizon:?}");
        net.run(121);
        assert_eq!([0, 1, 2].map(|router| net.told(router, prefix)), [None; 3], "{split_horizon:?}");
    }
}

#[test]
fn a_route_moves_to_what_is_left() {
    let mut net = Net::<Ripng>::new(3);
    for (wire, members) in [(1, [0, 1]), (2, [1, 2]), (3, [0, 2])] {
        net.join(wire, &members, |_| ());
    }
    let prefix = Ripng::destination(1);
    net.redistribute(0, prefix, 1);
    net.run(30);
    assert_eq!(net.ribs[2].get(&prefix), Some(&(2, 3, Ripng::source(3, 0))));
    net.routers[2].remove_interface(net.now, 3);
    net.run(0);
    assert_eq!(net.metric(2, prefix), None, "at once");
    net.run(36);
    assert_eq!(net.ribs[2].get(&prefix), Some(&(3, 2, Ripng::source(2, 1))));
}

#[test]
fn an_interface_that_goes_takes_its_routes_along() {
    let mut net = Net::<Ripv2>::line(4);
    let prefix = Ripv2::destination(1);
    net.redistribute(0, prefix, 1);
    net.run(60);
    assert_eq!(net.metric(3, prefix), Some(4));
    assert!(net.routers[1].remove_interface(net.now, 1));
    assert!(!net.routers[1].remove_interface(net.now, 1));
    net.run(11);
    for lost in [prefix, Ripv2::network(1)] {
        assert_eq!([1, 2, 3].map(|router| net.metric(router, lost)), [None; 3], "{lost}");
        assert_eq!([1, 2, 3].map(|router| net.told(router, lost)), [Some(16); 3], "{lost}");
    }
}

#[test]
fn a_passive_interface_listens_and_is_told_of() {
    let mut net = Net::<Ripv2>::new(3);
    net.attach(1, 0, |_| ());
    net.attach(1, 1, |interface| interface.passive = true);
    net.join(2, &[1, 2], |_| ());
    let prefix = Ripv2::destination(1);
    net.redistribute(0, prefix, 1);
    net.redistribute(2, Ripv2::destination(2), 1);
    net.run(100);
    assert_eq!([1, 2].map(|router| net.metric(router, prefix)), [Some(2), Some(3)]);
    assert_eq!(net.metric(2, Ripv2::network(1)), Some(2));
    assert!(net.ribs[0].is_empty());
    let sent = net.sent.iter().filter(|sent| sent.router == 1 && sent.transmit.interface == 1);
    assert_eq!(sent.count(), 0);
    // It becomes active, and passive again.
    net.attach(1, 1, |_| ());
    net.run(10);
    assert_eq!(net.metric(0, Ripv2::destination(2)), Some(3));
    net.attach(1, 1, |interface| interface.passive = true);
    let before = net.sent.len();
    net.run(100);
    assert_eq!(net.updates(1, 1, before).count(), 0);
}

#[test]
fn who_leaves_in_good_order_is_missed_at_once() {
    let mut net = Net::<Ripv2>::line(3);
    for number in 0..100 {
        net.redistribute(1, Ripv2::destination(number), 1);
    }
    net.redistribute(0, Ripv2::destination(1000), 1);
    net.run(60);
    assert_eq!(net.ribs[2].len(), 102);
    let now = net.now;
    net.routers[1].withdraw_all(now);
    net.run(1);
    assert!(net.ribs[2].is_empty() && net.ribs[0].is_empty());
    assert_eq!(net.routers[1].next_deadline(), None);
    let before = net.sent.len();
    net.run(1000);
    assert!(net.sent[before..].iter().all(|sent| sent.router != 1));
    assert_eq!([0, 2].map(|router| net.routers[router].route_count()), [2, 1], "all garbage is gone");
}

#[test]
fn a_large_table_comes_over_in_many_datagrams() {
    let mut net = Net::<Ripng>::new(2);
    for number in 0..5000 {
        net.redistribute(0, Ripng::destination(number), 1);
    }
    net.join(1, &[0, 1], |_| ());
    net.run(10);
    assert_eq!(net.ribs[1].len(), 5000);
    let now = net.now;
    for number in 0..5000 {
        assert!(net.routers[0].withdraw_redistributed(now, Ripng::destination(number)));
    }
    net.run(6);
    assert!(net.ribs[1].is_empty());
    net.run(130);
    assert_eq!([0, 1].map(|router| net.routers[router].route_count()), [1, 1]);
}

#[test]
fn a_full_table_ignores_and_counts_the_rest() {
    let mut net = Net::<Ripv2>::with(2, Settings { max_routes: 50, ..Settings::default() });
    net.join(1, &[0, 1], |_| ());
    for number in 0..49 {
        net.redistribute(0, Ripv2::destination(number), 1);
    }
    for number in 100..140 {
        net.redistribute(1, Ripv2::destination(number), 1);
    }
    net.run(100);
    assert_eq!([0, 1].map(|router| net.routers[router].route_count()), [50, 50]);
    assert!([0, 1].iter().all(|router| net.routers[*router].ignored_routes() > 10));
    assert_eq!([0, 1].map(|router| net.ribs[router].len()), [0, 9]);
    let metric = Metric::ONE;
    let refused = net.routers[0].redistribute(net.now, Ripv2::destination(999), metric, 0);
    assert_eq!(refused, Err(holdfast_rip::Refused::Full));
}
