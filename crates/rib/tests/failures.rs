//! Neighbours that fail: what the forwarding engine is told, and that nobody else is.

use std::{net::IpAddr, time::Instant};

use holdfast_rib::{
    ClientId, FibBatch, Interface, InterfaceAddress, InterfaceRef, Neighbor, Nexthop, NexthopSet, Nexthops,
    OriginConfig, OriginId, RedistFilter, Resolution, Rib, RibConfig, RouteAction,
};
use holdfast_types::{HashKey, Prefix};

const A: &str = "10.0.1.1";
const B: &str = "10.0.2.1";
const C: &str = "10.0.3.1";

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A table with a network for each of the gateways, and `bgp` in it.
fn table() -> (Rib, OriginId) {
    let mut rib = Rib::new(RibConfig { log_capacity: 100_000, ..RibConfig::new(HashKey::new([1, 0])) });
    for index in 1..=3 {
        let address = InterfaceAddress { address: [10, 0, index, 254].into(), length: 24 };
        let (index, name) = (index.into(), format!("eth{index}").into());
        rib.interface_changed(Interface { index, name, up: true, addresses: vec![address] });
    }
    let bgp = rib.add_origin("bgp", OriginConfig::external(20), Instant::now()).expect("room");
    rib.fib_attach();
    (rib, bgp)
}

fn nexthops(members: &[&str], backups: &[&str]) -> Nexthops {
    let via = |texts: &[&str]| texts.iter().map(|text| Nexthop::via(address(text))).collect();
    Nexthops { set: NexthopSet::Forward(via(members)), backups: via(backups) }
}

fn announce(rib: &mut Rib, origin: OriginId, nexthops: Nexthops, routes: u32) {
    let nexthops = rib.nexthops(origin, nexthops);
    let prefix =
        |number: u32| Prefix::new((0x1400_0000 | number << 8).to_be_bytes().into(), 24).expect("a prefix");
    let action = RouteAction::Announce { nexthops, metric: 0, distance: None, tag: 0, source: 0 };
    rib.origin_routes(origin, [(action, (0..routes).map(prefix))]).expect("valid");
    rib.release_nexthops(nexthops);
}

fn fail(rib: &mut Rib, text: &str, interface: u32, failed: bool) {
    rib.neighbors_failed([(Neighbor { address: address(text), interface }, failed)]);
}

/// Everything that the forwarding engine gets until there is no more to say.
fn drain(rib: &mut Rib) -> Vec<FibBatch> {
    while rib.work(1000) {}
    std::iter::from_fn(|| rib.poll_fib(4096)).collect()
}

fn gateways(resolution: &Resolution) -> Vec<IpAddr> {
    resolution.members().iter().filter_map(|way| way.gateway).collect()
}

/// Where the one handle that is defined anew leads, at once and in its order; no route is named.
fn redefined(rib: &mut Rib) -> Vec<IpAddr> {
    let hurried = rib.poll_fib_at_once();
    let batches = drain(rib);
    assert!(batches.iter().all(|batch| batch.routes.is_empty()), "{batches:?}");
    let defined: Vec<_> = batches.into_iter().flat_map(|batch| batch.define).collect();
    let [(handle, resolution)] = &*defined else { panic!("one message: {defined:?}") };
    assert_eq!(hurried.get(handle), Some(resolution), "and it need not wait");
    gateways(resolution)
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| address(text)).collect()
}

#[test]
fn routes_go_on_by_the_members_that_work_in_one_message_however_many_there_are() {
    let (mut rib, bgp) = table();
    announce(&mut rib, bgp, nexthops(&[A, B], &[C]), 50_000);
    drain(&mut rib);
    fail(&mut rib, A, 1, true);
    assert_eq!(redefined(&mut rib), addresses(&[B]));
    fail(&mut rib, B, 2, true);
    assert_eq!(redefined(&mut rib), addresses(&[C]), "no member works: the backup");
    fail(&mut rib, A, 1, false);
    assert_eq!(redefined(&mut rib), addresses(&[A]));
    fail(&mut rib, B, 2, false);
    assert_eq!(redefined(&mut rib), addresses(&[A, B]));
}

#[test]
fn a_set_stays_as_it_is_while_nothing_else_works() {
    let (mut rib, bgp) = table();
    announce(&mut rib, bgp, nexthops(&[A], &[]), 10);
    drain(&mut rib);
    fail(&mut rib, A, 1, true);
    assert_eq!(drain(&mut rib), [], "no backup");
    announce(&mut rib, bgp, nexthops(&[A], &[B]), 10);
    let defined: Vec<_> = drain(&mut rib).into_iter().flat_map(|batch| batch.define).collect();
    assert_eq!(gateways(&defined[0].1), addresses(&[B]), "defined around it from the first");
    fail(&mut rib, B, 2, true);
    assert_eq!(redefined(&mut rib), addresses(&[A]), "the backup has failed as well");
    fail(&mut rib, B, 2, false);
    assert_eq!(redefined(&mut rib), addresses(&[B]));
}

#[test]
fn only_the_forwarding_engine_hears_of_a_failure() {
    let (mut rib, bgp) = table();
    announce(&mut rib, bgp, nexthops(&[A], &[B]), 10);
    drain(&mut rib);
    let subscription = rib.redist_subscribe(RedistFilter::default()).expect("room");
    while rib.poll_redist(subscription, 100).is_some() {}
    let before = rib.register_interest(ClientId(1), address(A)).expect("room");
    fail(&mut rib, A, 1, true);
    assert_eq!(rib.poll_invalidation(ClientId(1)), None);
    assert_eq!(rib.register_interest(ClientId(2), address(A)), Ok(before));
    assert_eq!(rib.poll_redist(subscription, 100), None);
    assert!(rib.is_idle(), "no walk");
    let shown = rib.lookup(address("20.0.0.1")).expect("the route stays");
    assert_eq!((gateways(&shown.resolution), shown.nexthops), (addresses(&[B]), NexthopSet::via(address(A))));
}

#[test]
fn a_neighbor_that_nothing_leads_to_is_remembered_and_nobody_hears_of_it() {
    let (mut rib, bgp) = table();
    announce(&mut rib, bgp, nexthops(&[A, B], &[]), 10);
    drain(&mut rib);
    fail(&mut rib, "10.9.9.9", 0, true);
    fail(&mut rib, "fe80::1", 7, true);
    fail(&mut rib, C, 3, false);
    assert!(rib.poll_fib_at_once().is_empty());
    assert_eq!(drain(&mut rib), []);
    assert_eq!(rib.failed_neighbors().count(), 2);
}

#[test]
fn a_resolved_gateway_counts_on_its_own_interface() {
    let (mut rib, bgp) = table();
    let ospf = rib.add_origin("ospf", OriginConfig::internal(110), Instant::now()).expect("room");
    let on =
        |text, index| Nexthop { interface: Some(InterfaceRef::Index(index)), ..Nexthop::via(address(text)) };
    let nexthop = rib.nexthops(ospf, NexthopSet::Forward(vec![on(A, 1), on(B, 2)]));
    let action = RouteAction::Announce { nexthops: nexthop, metric: 5, distance: None, tag: 0, source: 0 };
    let loopback = Prefix::host(address("192.0.2.1"));
    rib.origin_routes(ospf, [(action, [loopback])]).expect("valid");
    announce(&mut rib, bgp, nexthops(&["192.0.2.1"], &[C]), 10);
    drain(&mut rib);
    fail(&mut rib, A, 2, true);
    assert_eq!(drain(&mut rib), [], "elsewhere");
    fail(&mut rib, A, 1, true);
    let hurried = rib.poll_fib_at_once();
    assert_eq!(hurried.len(), 2, "what ospf uses, and what bgp uses");
    assert!(hurried.values().all(|resolution| gateways(resolution) == addresses(&[B])));
    drain(&mut rib);
    // The router behind both has failed: that is known of the address, whatever leads there.
    fail(&mut rib, "192.0.2.1", 0, true);
    assert_eq!(redefined(&mut rib), addresses(&[C]));
}

#[test]
fn a_neighbor_that_flaps_between_two_looks_leaves_the_state_of_now() {
    let (mut rib, bgp) = table();
    announce(&mut rib, bgp, nexthops(&[A], &[B]), 10);
    drain(&mut rib);
    (0..99).for_each(|time| fail(&mut rib, A, 1, time % 2 == 0));
    assert_eq!(redefined(&mut rib), addresses(&[B]));
    rib.fib_attach();
    fail(&mut rib, A, 1, false);
    assert!(rib.poll_fib_at_once().is_empty(), "handles of the sync before mean nothing any more");
    let batches = drain(&mut rib);
    assert_eq!(gateways(&batches[0].define[0].1), addresses(&[A]));
}
