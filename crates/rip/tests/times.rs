//! Regular and triggered updates, and what is not repeated.

use std::time::Duration;

use holdfast_rip::{Metric, Ripng, Ripv2, Source};

use super::{
    networks::{Net, Plan, secs},
    one::One,
};

#[test]
fn regular_updates_come_every_half_minute_and_not_at_the_same_time() {
    let mut net = Net::<Ripng>::line(2);
    net.run(3600);
    let mut intervals = Vec::new();
    for router in [0, 1] {
        net.redistribute(router, Ripng::destination(router as u32), 1);
        let times: Vec<Duration> = net.updates(router, 1, 0).map(|sent| sent.at).collect();
        intervals.extend(times.windows(2).map(|pair| pair[1] - pair[0]));
    }
    // A router with one network, on that network, has nothing to say.
    assert!(intervals.is_empty());
    let before = net.sent.len();
    net.run(3600);
    for router in [0, 1] {
        let times: Vec<Duration> = net.updates(router, 1, before).map(|sent| sent.at).collect();
        assert!((115..=125).contains(&times.len()), "{}", times.len());
        intervals.extend(times.windows(2).skip(2).map(|pair| pair[1] - pair[0]));
    }
    assert!(intervals.iter().all(|it| (secs(25)..=secs(35)).contains(it)), "{intervals:?}");
    assert!(intervals.iter().any(|it| *it < secs(27)) && intervals.iter().any(|it| *it > secs(33)));
}

#[test]
fn a_change_is_told_at_once_and_alone() {
    let mut net = Net::<Ripv2>::line(3);
    for number in 0..10 {
        net.redistribute(0, Ripv2::destination(number), 1);
    }
    net.run(8);
    let (before, at) = (net.sent.len(), net.elapsed());
    net.redistribute(0, Ripv2::destination(99), 1);
    net.run(0);
    let told: Vec<_> = net.updates(0, 1, before).collect();
    assert_eq!((told.len(), told[0].at), (1, at));
    assert_eq!(told[0].entries().len(), 1);
    assert_eq!(net.metric(2, Ripv2::destination(99)), Some(3), "and by the next router");
}

#[test]
fn triggered_updates_are_one_to_five_seconds_apart() {
    let mut net = Net::<Ripv2>::line(2);
    net.run(8);
    let before = net.sent.len();
    for number in 0..300 {
        net.redistribute(0, Ripv2::destination(number), 1);
        let now = net.now + Duration::from_millis(50);
        net.run(0);
        net.now = now;
    }
    net.run(6);
    let mut times: Vec<Duration> = net.updates(0, 1, before).map(|sent| sent.at).collect();
    // An update of more than a few datagrams is told in parts.
    times.dedup_by(|later, earlier| *later - *earlier < Duration::from_millis(100));
    // About 20 s with one change in each 50 ms.
    assert!((4..=20).contains(&times.len()), "{times:?}");
    let regular = |pair: &&[Duration]| pair[1] - pair[0] < secs(1);
    assert!(times.windows(2).filter(regular).count() <= 1, "{times:?}");
    assert_eq!(net.ribs[1].len(), 300);
}

#[test]
fn a_route_that_flaps_is_told_as_it_is_then() {
    let mut net = Net::<Ripv2>::line(2);
    net.run(8);
    let prefix = Ripv2::destination(1);
    net.redistribute(0, prefix, 1);
    net.run(0);
    let before = net.sent.len();
    for metric in [2, 3, 16, 4] {
        net.redistribute(0, prefix, metric);
    }
    net.run(5);
    let told: Vec<_> = net.updates(0, 1, before).filter_map(|sent| sent.metric(prefix)).collect();
    assert_eq!(told, [4]);
    assert_eq!(net.metric(1, prefix), Some(5));
}

#[test]
fn what_is_not_repeated_is_lost_then_told_then_forgotten() {
    let mut net = Net::<Ripv2>::line(3);
    let prefix = Ripv2::destination(1);
    net.redistribute(0, prefix, 1);
    net.run(20);
    net.cut.insert(1);
    let Some(Source::Learned { expires, .. }) = net.routers[1].route(prefix).map(|route| route.source) else {
        panic!("it is learned");
    };
    let left = expires - net.now;
    assert!(left <= secs(180) && left > secs(140), "{left:?}");
    net.run(left.as_secs() - 1);
    assert_eq!([1, 2].map(|router| net.metric(router, prefix)), [Some(2), Some(3)]);
    let before = net.sent.len();
    net.run(7);
    assert_eq!([1, 2].map(|router| net.metric(router, prefix)), [None; 2]);
    assert!(net.updates(1, 2, before).any(|sent| sent.metric(prefix) == Some(16)));
    let before = net.sent.len();
    net.run(105);
    let told = net.updates(1, 2, before).filter(|sent| sent.metric(prefix) == Some(16)).count();
    assert!(told >= 3, "told until it is forgotten: {told}");
    net.run(20);
    assert_eq!([1, 2].map(|router| net.told(router, prefix)), [None; 2]);
}

#[test]
fn a_route_that_comes_back_is_no_garbage() {
    let mut net = Net::<Ripv2>::line(2);
    let prefix = Ripv2::destination(1);
    net.redistribute(0, prefix, 1);
    net.run(20);
    net.redistribute(0, prefix, 16);
    net.run(60);
    assert!(matches!(net.routers[1].route(prefix).map(|r| r.source), Some(Source::Garbage { .. })));
    net.redistribute(0, prefix, 2);
    net.run(0);
    assert_eq!(net.metric(1, prefix), Some(3));
    net.run(300);
    assert_eq!(net.metric(1, prefix), Some(3));
}

#[test]
fn a_router_is_synchronised_after_two_update_intervals() {
    let mut net = Net::<Ripv2>::new(2);
    assert!(net.routers[0].is_synchronised(net.now), "there is nobody to wait for");
    net.attach(1, 0, |interface| interface.passive = true);
    assert!(!net.routers[0].is_synchronised(net.now));
    net.run(64);
    assert!(!net.routers[0].is_synchronised(net.now));
    net.run(1);
    assert!(net.routers[0].is_synchronised(net.now));
    net.attach(3, 0, |_| ());
    assert!(net.routers[0].is_synchronised(net.now), "another interface changes nothing");
    net.attach(4, 1, |_| ());
    net.run(0);
    let now = net.now;
    net.routers[1].remove_interface(now, 4);
    assert!(net.routers[1].is_synchronised(net.now));
}

#[test]
fn an_update_that_is_due_takes_the_place_of_a_triggered_one() {
    let mut net = Net::<Ripv2>::line(2);
    net.redistribute(0, Ripv2::destination(0), 1);
    net.run(40);
    let due = net.routers[0].interfaces().next().and_then(|shown| shown.next_update).expect("active");
    // Two changes shortly before: the second waits for longer than until the regular update.
    net.now = due - Duration::from_millis(10);
    let before = net.sent.len();
    net.redistribute(0, Ripv2::destination(1), 1);
    net.run(0);
    net.redistribute(0, Ripv2::destination(2), 1);
    net.now = due;
    net.run(10);
    let sizes: Vec<usize> = net.updates(0, 1, before).map(|sent| sent.entries().len()).collect();
    assert_eq!(sizes, [1, 3]);
}

#[test]
fn a_regular_update_says_what_a_triggered_one_has_not_said_yet() {
    let mut one = One::<Ripv2>::new();
    one.wait(secs(20));
    let due = one.rip.interfaces().filter_map(|shown| shown.next_update).max().expect("active");
    one.rip.redistribute(one.now, Ripv2::destination(1), Metric::ONE, 0).expect("taken");
    one.rip.advance(one.now);
    one.rip.advance(due);
    let sent: Vec<_> = std::iter::from_fn(|| one.rip.poll_transmit()).collect();
    assert_eq!(sent.len(), 2, "one on each interface");
}
