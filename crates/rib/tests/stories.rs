//! What is seen of the table from outside, one thing at a time.

use std::time::{Duration, Instant};

use holdfast_rib::{
    Awaited, ClientId, FibBatch, Interface, InterfaceAddress, MAX_ORIGINS, MAX_REGISTRATIONS, MAX_REJECTED,
    NexthopSet, OriginConfig, OriginError, OriginId, OriginKind, RedistFilter, Rejections, Resolution, Rib,
    RibConfig, RibError, RouteAction,
};
use holdfast_types::{HashKey, Prefix};

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn via(gateway: &str) -> NexthopSet {
    NexthopSet::via(gateway.parse().expect("an address"))
}

/// A table with one interface, 10.0.0.0/24, and an origin of each kind.
struct Setup {
    rib: Rib,
    ospf: OriginId,
    bgp: OriginId,
    now: Instant,
}

fn setup(log_capacity: usize) -> Setup {
    let mut rib = Rib::new(RibConfig { log_capacity, ..RibConfig::new(HashKey::new([1, 0])) });
    let now = Instant::now();
    let ospf = rib.add_origin("ospf", OriginConfig::internal(110), now).expect("room");
    let bgp = rib.add_origin("bgp", OriginConfig::external(20), now).expect("room");
    rib.interface_changed(interface(1, "10.0.0.254"));
    Setup { rib, ospf, bgp, now }
}

fn interface(index: u32, address: &str) -> Interface {
    let address = InterfaceAddress { address: address.parse().expect("an address"), length: 24 };
    Interface { index, name: format!("eth{index}").into(), up: true, addresses: vec![address] }
}

fn announce(rib: &mut Rib, origin: OriginId, text: &str, nexthops: NexthopSet, metric: u32) {
    announce_of(rib, origin, text, nexthops, metric, 0);
}

fn announce_of(rib: &mut Rib, origin: OriginId, text: &str, nexthops: NexthopSet, metric: u32, source: u32) {
    let nexthops = rib.nexthops(origin, nexthops);
    let action = RouteAction::Announce { nexthops, metric, distance: None, tag: 0, source };
    rib.origin_routes(origin, [(action, [prefix(text)])]).expect("valid");
    rib.release_nexthops(nexthops);
}

fn announce_many(setup: &mut Setup, count: u32) {
    for number in 0..count {
        let text = format!("20.{}.{}.0/24", number >> 8, number & 255);
        announce(&mut setup.rib, setup.bgp, &text, via("10.0.0.1"), 0);
    }
}

/// Everything that the forwarding engine gets until there is no more to say.
fn drain(rib: &mut Rib) -> Vec<FibBatch> {
    while rib.work(100) {}
    std::iter::from_fn(|| rib.poll_fib(1000)).collect()
}

#[test]
fn a_next_hop_that_moves_is_one_message_however_many_routes_use_it() {
    let mut setup = setup(10_000);
    announce(&mut setup.rib, setup.ospf, "172.16.0.0/16", via("10.0.0.1"), 5);
    for number in 0..500 {
        announce(&mut setup.rib, setup.bgp, &format!("20.0.{}.0/25", number % 256), via("172.16.0.9"), 0);
    }
    setup.rib.fib_attach();
    drain(&mut setup.rib);
    announce(&mut setup.rib, setup.ospf, "172.16.0.0/16", via("10.0.0.2"), 5);
    let batches = drain(&mut setup.rib);
    let defined: Vec<_> = batches.iter().flat_map(|batch| &batch.define).collect();
    let routes: Vec<_> = batches.iter().flat_map(|batch| &batch.routes).collect();
    let moved = |resolution: &Resolution| {
        resolution.members().iter().any(|member| member.gateway == Some("10.0.0.2".parse().expect("address")))
    };
    assert_eq!(routes.len(), 1, "only the ospf route itself");
    assert_eq!(defined.iter().filter(|(_, resolution)| moved(resolution)).count(), defined.len());
    assert_eq!(defined.len(), 2, "what ospf uses, and what bgp uses");
}

#[test]
fn next_hops_that_no_route_uses_leave_the_kernel_while_their_origin_names_them() {
    let Setup { mut rib, bgp, .. } = setup(10_000);
    let sets = ["10.0.0.1", "10.0.0.2"].map(|gateway| rib.nexthops(bgp, via(gateway)));
    let announce = |rib: &mut Rib, nexthops| {
        let action = RouteAction::Announce { nexthops, metric: 0, distance: None, tag: 0, source: 0 };
        rib.origin_routes(bgp, [(action, [prefix("20.0.0.0/24")])]).expect("valid");
    };
    rib.fib_attach();
    announce(&mut rib, sets[0]);
    let defined = |batches: &[FibBatch]| -> Vec<u32> {
        batches.iter().flat_map(|batch| batch.define.iter().map(|(handle, _)| *handle)).collect()
    };
    let undefined = |batches: &[FibBatch]| -> Vec<u32> {
        batches.iter().flat_map(|batch| batch.undefine.clone()).collect()
    };
    let mut before = defined(&drain(&mut rib));
    assert_eq!(before.len(), 1);
    for set in [sets[1], sets[0], sets[1]] {
        announce(&mut rib, set);
        let batches = drain(&mut rib);
        assert_eq!(undefined(&batches), before, "the last ones, which bgp still names");
        before = defined(&batches);
        assert_eq!(before.len(), 1, "defined again");
    }
}

#[test]
fn routes_of_a_next_hop_that_went_leave_the_kernel_and_come_back() {
    let mut setup = setup(10_000);
    announce_many(&mut setup, 300);
    setup.rib.fib_attach();
    drain(&mut setup.rib);
    setup.rib.interface_gone(1);
    assert_eq!(setup.rib.lookup("20.0.7.1".parse().expect("address")), None, "at once");
    let gone: usize = drain(&mut setup.rib).iter().flat_map(|b| &b.routes).filter(|r| r.1.is_none()).count();
    assert_eq!(gone, 300);
    setup.rib.interface_changed(interface(1, "10.0.0.254"));
    let back: usize = drain(&mut setup.rib).iter().flat_map(|b| &b.routes).filter(|r| r.1.is_some()).count();
    assert_eq!(back, 300);
}

#[test]
fn an_origin_that_restarts_with_the_same_routes_is_not_noticed_downstream() {
    let mut setup = setup(10_000);
    announce_many(&mut setup, 50);
    setup.rib.fib_attach();
    drain(&mut setup.rib);
    setup.rib.origin_died(setup.bgp, setup.now);
    assert!(setup.rib.routes_of(prefix("20.0.7.0/24"))[0].stale);
    let again = setup.rib.add_origin("bgp", OriginConfig::external(20), setup.now);
    assert_eq!(again, Ok(setup.bgp));
    announce_many(&mut setup, 50);
    assert!(!setup.rib.routes_of(prefix("20.0.7.0/24"))[0].stale);
    setup.rib.origin_end_of_sync(setup.bgp).expect("alive");
    assert_eq!(drain(&mut setup.rib), []);
}

#[test]
fn only_what_is_left_of_awaited_sources_stays_until_they_have_said_all() {
    let mut setup = setup(10_000);
    let Setup { rib, bgp, now, .. } = &mut setup;
    let say = |rib: &mut Rib, net: u8, source| {
        announce_of(rib, *bgp, &format!("20.0.{net}.0/24"), via("10.0.0.1"), 0, source);
    };
    for (net, source) in [(1, 1), (2, 2), (3, 3), (4, 0), (5, 1)] {
        say(rib, net, source);
    }
    let nets = |rib: &mut Rib| {
        while rib.work(1) {}
        let routes = rib.routes_after(None, 10);
        let of_bgp = routes.iter().filter(|route| route.origin == *bgp);
        of_bgp.map(|route| (route.prefix.to_string(), route.stale)).collect::<Vec<_>>()
    };
    let net = |number: u8, stale| (format!("20.0.{number}.0/24"), stale);
    rib.origin_died(*bgp, *now);
    rib.add_origin("bgp", OriginConfig::external(20), *now).expect("known");
    // The same from another source is the same to everybody else.
    say(rib, 5, 2);
    rib.origin_told(*bgp, Awaited::Everybody).expect("alive");
    assert_eq!(nets(rib).len(), 5, "all that was there, and what was said again");
    rib.origin_told(*bgp, Awaited::These(vec![3, 2])).expect("alive");
    assert_eq!(nets(rib), [net(2, true), net(3, true), net(5, false)]);
    assert!(rib.status().origins.iter().any(|origin| origin.id == *bgp && origin.told && !origin.synced));
    rib.origin_told(*bgp, Awaited::These(vec![3])).expect("alive");
    assert_eq!(nets(rib), [net(3, true), net(5, false)]);
    assert_eq!(rib.poll_timeout(), Some(*now + Duration::from_secs(120)), "its time goes on");
    rib.origin_end_of_sync(*bgp).expect("alive");
    assert_eq!(nets(rib), [net(5, false)]);
    assert_eq!(rib.poll_timeout(), None);
}

#[test]
fn a_sweep_that_waits_for_another_is_not_forgotten() {
    let mut setup = setup(10_000);
    announce_many(&mut setup, 50);
    let Setup { rib, bgp, now, .. } = &mut setup;
    announce_of(rib, *bgp, "30.0.0.0/24", via("10.0.0.1"), 0, 2);
    let restart = |rib: &mut Rib| rib.add_origin("bgp", OriginConfig::external(20), *now).expect("known");
    restart(rib);
    rib.origin_told(*bgp, Awaited::These(vec![1])).expect("alive");
    rib.work(1);
    restart(rib);
    rib.origin_told(*bgp, Awaited::These(vec![2])).expect("alive");
    while rib.work(1) {}
    assert_eq!(
        rib.routes_after(None, 100).len(),
        1,
        "each of them removes its own; the connected route is left"
    );
}

#[test]
fn what_a_dead_origin_left_goes_after_the_stale_time() {
    let mut setup = setup(10_000);
    announce_many(&mut setup, 3);
    setup.rib.origin_died(setup.bgp, setup.now);
    let deadline = setup.now + Duration::from_secs(120);
    assert_eq!(setup.rib.poll_timeout(), Some(deadline));
    let refused = setup.rib.origin_routes(setup.bgp, [(RouteAction::Withdraw, [prefix("20.0.0.0/24")])]);
    assert_eq!(refused, Err(RibError::UnknownOrigin(setup.bgp)));
    setup.rib.handle_timeout(deadline - Duration::from_millis(1));
    assert!(setup.rib.is_idle());
    setup.rib.handle_timeout(deadline);
    while setup.rib.work(1) {}
    assert_eq!(setup.rib.routes_after(None, 10).len(), 1, "the connected route is left");
}

#[test]
fn origins_that_come_after_the_readers_are_told_to_them() {
    let mut setup = setup(100);
    setup.rib.fib_attach();
    let filter = RedistFilter { origins: vec!["toy".into()], family: None };
    let subscription = setup.rib.redist_subscribe(filter).expect("room");
    drain(&mut setup.rib);
    assert!(setup.rib.poll_redist(subscription, 10).is_some_and(|batch| batch.synced));
    let toy = setup.rib.add_origin("toy", OriginConfig::internal(200), setup.now).expect("room");
    announce(&mut setup.rib, toy, "30.0.0.0/8", via("10.0.0.1"), 0);
    announce(&mut setup.rib, setup.bgp, "31.0.0.0/8", via("10.0.0.1"), 0);
    assert_eq!(drain(&mut setup.rib).iter().map(|batch| batch.routes.len()).sum::<usize>(), 2);
    let batch = setup.rib.poll_redist(subscription, 10).expect("a change");
    assert_eq!(batch.changes.len(), 1);
    assert_eq!(batch.changes[0].0, prefix("30.0.0.0/8"));
}

/// Figure 8 of Handley et al. 2005.
#[test]
fn an_answer_holds_for_the_largest_subnet_that_nothing_overlays() {
    let mut setup = setup(100);
    for text in ["128.16.0.0/16", "128.16.0.0/18", "128.16.128.0/17", "128.16.192.0/18"] {
        announce(&mut setup.rib, setup.ospf, text, via("10.0.0.1"), 7);
    }
    let mut ask = |text: &str| {
        let answer = setup.rib.register_interest(ClientId(1), text.parse().expect("address")).expect("room");
        (answer.route.expect("reachable").prefix.to_string(), answer.range.to_string())
    };
    assert_eq!(ask("128.16.32.1"), ("128.16.0.0/18".into(), "128.16.0.0/18".into()));
    assert_eq!(ask("128.16.160.1"), ("128.16.128.0/17".into(), "128.16.128.0/18".into()));
    announce(&mut setup.rib, setup.ospf, "128.16.160.0/24", via("10.0.0.2"), 7);
    assert_eq!(setup.rib.poll_invalidation(ClientId(2)), None);
    assert_eq!(setup.rib.poll_invalidation(ClientId(1)), Some(prefix("128.16.128.0/18")));
    assert_eq!(setup.rib.poll_invalidation(ClientId(1)), None);
}

#[test]
fn external_routes_resolve_nothing() {
    let mut setup = setup(100);
    announce(&mut setup.rib, setup.bgp, "40.0.0.0/8", via("10.0.0.1"), 0);
    announce(&mut setup.rib, setup.bgp, "50.0.0.0/8", via("40.0.0.1"), 0);
    assert!(setup.rib.lookup("40.0.0.1".parse().expect("address")).is_some());
    assert_eq!(setup.rib.lookup("50.0.0.1".parse().expect("address")), None);
    let answer =
        setup.rib.register_interest(ClientId(1), "40.0.0.1".parse().expect("address")).expect("room");
    assert_eq!(answer.route, None);
}

#[test]
fn origins_are_made_to_wait_before_a_slow_engine_loses_its_place() {
    let mut setup = setup(64);
    setup.rib.fib_attach();
    drain(&mut setup.rib);
    announce_many(&mut setup, 32);
    assert!(!setup.rib.is_congested());
    announce_many(&mut setup, 32);
    assert!(!setup.rib.is_congested(), "the same again is no change");
    let gateway = via("10.0.0.3");
    announce(&mut setup.rib, setup.bgp, "20.9.0.0/24", gateway, 0);
    assert!(setup.rib.is_congested());
    assert!(!drain(&mut setup.rib).iter().any(|batch| batch.begin));
    announce_many(&mut setup, 200);
    assert!(drain(&mut setup.rib)[0].begin, "those who do not wait make it start over");
}

#[test]
fn a_subscriber_that_fell_behind_starts_over() {
    let mut setup = setup(16);
    let subscription = setup.rib.redist_subscribe(RedistFilter::default()).expect("room");
    let poll =
        |setup: &mut Setup| std::iter::from_fn(|| setup.rib.poll_redist(subscription, 4)).collect::<Vec<_>>();
    assert!(poll(&mut setup)[0].begin);
    announce_many(&mut setup, 16);
    assert!(!poll(&mut setup).iter().any(|batch| batch.begin));
    announce_many(&mut setup, 40);
    let batches = poll(&mut setup);
    assert!(batches[0].begin && batches.last().is_some_and(|batch| batch.synced));
    assert_eq!(batches.iter().map(|batch| batch.changes.len()).sum::<usize>(), 41);
}

#[test]
fn limits_are_errors() {
    let mut setup = setup(16);
    for number in 3..MAX_ORIGINS {
        setup.rib.add_origin(&format!("o{number}"), OriginConfig::internal(9), setup.now).expect("room");
    }
    let more = setup.rib.add_origin("more", OriginConfig::internal(9), setup.now);
    assert_eq!(more, Err(OriginError::TooMany));
    let config = OriginConfig { kind: OriginKind::Internal, ..OriginConfig::external(20) };
    assert_eq!(setup.rib.add_origin("bgp", config, setup.now), Err(OriginError::KindChanged("bgp".into())));
    for number in 0..MAX_REGISTRATIONS as u32 {
        setup.rib.register_interest(ClientId(1), std::net::Ipv4Addr::from_bits(number).into()).expect("room");
    }
    let address = "200.0.0.1".parse().expect("address");
    assert_eq!(setup.rib.register_interest(ClientId(1), address), Err(RibError::TooManyRegistrations));
    setup.rib.register_interest(ClientId(2), address).expect("each has its own limit");
    setup.rib.client_gone(ClientId(1));
    setup.rib.register_interest(ClientId(1), address).expect("room again");
}

#[test]
fn next_hops_of_another_origin_cannot_be_used() {
    let mut setup = setup(16);
    let nexthops = setup.rib.nexthops(setup.ospf, via("10.0.0.1"));
    let action = RouteAction::Announce { nexthops, metric: 0, distance: None, tag: 0, source: 0 };
    let change = (action, [prefix("60.0.0.0/8")]);
    assert_eq!(setup.rib.origin_routes(setup.bgp, [change]), Err(RibError::UnknownNexthops));
    setup.rib.release_nexthops(nexthops);
    assert_eq!(setup.rib.origin_routes(setup.ospf, [change]), Err(RibError::UnknownNexthops));
}

#[test]
fn what_the_engine_rejects_is_shown_and_offered_again_and_nothing_else_depends_on_it() {
    let mut setup = setup(10_000);
    announce_many(&mut setup, 3);
    announce(&mut setup.rib, setup.bgp, "30.0.0.0/8", via("10.0.0.9"), 0);
    setup.rib.fib_attach();
    let batches = drain(&mut setup.rib);
    let routes = batches.iter().flat_map(|batch| &batch.routes);
    let handle = routes.filter(|route| route.0 == prefix("30.0.0.0/8")).find_map(|route| route.1);
    let shown = |rib: &Rib| {
        let shown: Vec<_> = rib.routes_after(None, 100);
        let bgp = shown.into_iter().filter(|route| route.origin == setup.bgp);
        bgp.map(|route| (route.installed, route.rejected.is_some())).collect::<Vec<_>>()
    };
    let (there, not_there) = ((true, false), (false, true));
    assert_eq!(shown(&setup.rib), [(false, false); 4], "the engine has not carried it out");
    acknowledge(&mut setup.rib);
    assert_eq!(shown(&setup.rib), [there; 4]);
    let rejections = |rejected: bool| {
        let reason = || rejected.then(|| "no room".into());
        Rejections {
            handles: vec![(handle.expect("sent"), reason())],
            routes: vec![(prefix("20.0.1.0/24"), reason()), (prefix("99.0.0.0/8"), reason())],
            incomplete: rejected,
        }
    };
    setup.rib.fib_rejects(rejections(true));
    assert_eq!(shown(&setup.rib), [there, not_there, there, not_there]);
    assert!(setup.rib.status().rejected_incomplete);
    assert_eq!(drain(&mut setup.rib), [], "nobody is told");

    // Not those of a handle: the engine has nothing to write them with. And not what is no route.
    assert!(setup.rib.fib_offer_again());
    let again: Vec<_> = drain(&mut setup.rib).into_iter().flat_map(|batch| batch.routes).collect();
    assert_eq!(again.iter().map(|route| route.0).collect::<Vec<_>>(), [prefix("20.0.1.0/24")]);

    setup.rib.fib_rejects(rejections(false));
    assert_eq!(shown(&setup.rib), [there; 4]);
    assert!(!setup.rib.status().rejected_incomplete && !setup.rib.fib_offer_again());

    setup.rib.fib_rejects(rejections(true));
    setup.rib.fib_forget_rejected();
    assert_eq!(shown(&setup.rib), [there; 4], "another engine has not said so");
}

/// The engine has carried out all that it was given.
fn acknowledge(rib: &mut Rib) {
    let batch = rib.fib_batch();
    rib.fib_acknowledged(batch);
}

#[test]
fn a_route_is_requested_until_the_engine_has_carried_it_out() {
    let mut setup = setup(10_000);
    announce_many(&mut setup, 3);
    let shown = |rib: &Rib| {
        let shown = rib.routes_after(None, 100).into_iter().filter(|route| route.origin == setup.bgp);
        shown.map(|route| (route.requested, route.installed)).collect::<Vec<_>>()
    };
    let (requested, installed) = ((true, false), (false, true));
    assert_eq!(shown(&setup.rib), [requested; 3], "there is no engine");
    setup.rib.fib_attach();
    // The walk, in steps of one route.
    let mut numbers = Vec::new();
    while setup.rib.poll_fib(1).is_some() {
        numbers.push(setup.rib.fib_batch());
    }
    assert_eq!(shown(&setup.rib), [requested; 3]);
    let mut seen = Vec::new();
    for number in numbers {
        setup.rib.fib_acknowledged(number);
        seen.push(shown(&setup.rib).iter().filter(|state| **state == installed).count());
    }
    assert!(seen.is_sorted() && seen.contains(&1) && seen.contains(&2) && seen.ends_with(&[3]), "{seen:?}");
    // A change, before and after it is fetched.
    announce(&mut setup.rib, setup.bgp, "20.0.1.0/24", via("10.0.0.9"), 0);
    assert_eq!(shown(&setup.rib), [installed, requested, installed]);
    drain(&mut setup.rib);
    assert_eq!(shown(&setup.rib), [installed, requested, installed]);
    acknowledge(&mut setup.rib);
    assert_eq!(shown(&setup.rib), [installed; 3]);
    assert_eq!(setup.rib.log_lengths(), [0, 0], "nothing is kept for longer");
}

#[test]
fn an_engine_that_acknowledges_nothing_costs_no_more_than_the_last_batches() {
    let mut setup = setup(100_000);
    setup.rib.fib_attach();
    drain(&mut setup.rib);
    for number in 0..200 {
        announce(&mut setup.rib, setup.bgp, &format!("20.0.{number}.0/24"), via("10.0.0.9"), 0);
        drain(&mut setup.rib);
    }
    let [ipv4, ipv6] = setup.rib.log_lengths();
    assert!((50..150).contains(&ipv4) && ipv6 == 0, "{ipv4}");
}

#[test]
fn rejected_routes_that_are_remembered_are_bounded() {
    let mut rib = setup(10).rib;
    let numbered = |number: usize| Prefix::new(std::net::Ipv4Addr::from(number as u32).into(), 32);
    let routes = (0..=MAX_REJECTED).filter_map(numbered).map(|prefix| (prefix, Some("no".into()))).collect();
    rib.fib_rejects(Rejections { routes, ..Rejections::default() });
    assert!(rib.status().rejected_incomplete);
    let known = vec![(numbered(0).expect("a prefix"), Some("no".into()))];
    rib.fib_rejects(Rejections { routes: known, ..Rejections::default() });
    assert!(!rib.status().rejected_incomplete, "one that it knows needs no room");
}
