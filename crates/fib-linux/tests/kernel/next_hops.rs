//! Handles and their nexthop objects.

use holdfast_fib::{Fib, Handle, NextHop, NextHops};

use crate::tests::kernel::{
    Watch, add, define, delete, errors, in_a_namespace, index, ip, kernel_routes, main_table, via, work,
};

fn objects() -> usize {
    ip("nexthop show proto 75").lines().count()
}

#[test]
fn routes_follow_their_handle_from_one_to_many_without_a_gap() {
    in_a_namespace(|| {
        let mut fib = main_table();
        define(&mut fib, 1, &[via("10.0.0.2", "eth0")]);
        add(&mut fib, "20.0.0.0/24", 1);
        let watch = Watch::begin();
        define(&mut fib, 1, &[via("10.0.0.2", "eth0"), NextHop { weight: 3, ..via("10.1.0.2", "eth1") }]);
        assert_eq!(
            kernel_routes("-4", 254),
            ["20.0.0.0/24 nexthop via 10.0.0.2 dev eth0 weight 1 nexthop via 10.1.0.2 dev eth1 weight 3"]
        );
        define(&mut fib, 1, &[via("10.1.0.3", "eth1")]);
        assert_eq!(kernel_routes("-4", 254), ["20.0.0.0/24 via 10.1.0.3 dev eth1"]);
        assert!(!watch.end().contains("Deleted"));
        assert_eq!(fib.take_loss(), None);
    });
}

#[test]
fn objects_are_shared_and_go_with_their_last_user() {
    in_a_namespace(|| {
        let mut fib = main_table();
        let (one, two) = (via("10.0.0.2", "eth0"), via("10.1.0.2", "eth1"));
        define(&mut fib, 1, &[one]);
        define(&mut fib, 2, &[one, two]);
        assert_eq!(objects(), 4, "two exits, two groups");
        fib.undefine(Handle(1)).expect("netlink works");
        assert_eq!(objects(), 3);
        define(&mut fib, 2, &[two]);
        assert_eq!(objects(), 2);
        fib.undefine(Handle(2)).expect("netlink works");
        fib.undefine(Handle(2)).expect("twice is nothing");
        assert_eq!(objects(), 0);
    });
}

#[test]
fn a_group_of_the_same_gateway_twice_is_one_with_both_weights() {
    in_a_namespace(|| {
        let mut fib = main_table();
        let one = via("10.0.0.2", "eth0");
        define(&mut fib, 1, &[one, NextHop { weight: 4, ..one }, via("10.1.0.2", "eth1")]);
        add(&mut fib, "20.0.0.0/24", 1);
        assert_eq!(
            kernel_routes("-4", 254),
            ["20.0.0.0/24 nexthop via 10.0.0.2 dev eth0 weight 5 nexthop via 10.1.0.2 dev eth1 weight 1"]
        );
    });
}

#[test]
fn an_object_of_another_program_under_our_number_is_passed_over() {
    in_a_namespace(|| {
        ip("nexthop add id 75000000 via 10.0.0.7 dev eth0 proto static");
        let mut fib = main_table();
        define(&mut fib, 1, &[via("10.0.0.2", "eth0")]);
        add(&mut fib, "20.0.0.0/24", 1);
        assert_eq!(kernel_routes("-4", 254), ["20.0.0.0/24 via 10.0.0.2 dev eth0"]);
        fib.clear().expect("netlink works");
        assert!(ip("nexthop show id 75000000").contains("10.0.0.7"));
        assert_eq!(objects(), 0);
    });
}

#[test]
fn a_handle_that_comes_to_drop_packets_has_its_routes_written_again() {
    in_a_namespace(|| {
        let mut fib = main_table();
        define(&mut fib, 1, &[via("10.0.0.2", "eth0")]);
        fib.define(Handle(1), &NextHops::Blackhole).expect("netlink works");
        assert_eq!((fib.has_work(), objects()), (false, 0), "no route had used it");
        define(&mut fib, 1, &[via("10.0.0.2", "eth0")]);
        add(&mut fib, "20.0.0.0/24", 1);
        fib.define(Handle(1), &NextHops::Blackhole).expect("netlink works");
        assert_eq!(kernel_routes("-4", 254).len(), 1, "no gap until it is written again");
        let watch = Watch::begin();
        work(&mut fib);
        assert_eq!(kernel_routes("-4", 254), ["blackhole 20.0.0.0/24"]);
        assert!(!watch.end().contains("Deleted"));
        assert_eq!(objects(), 0, "no route leads through the group any more");
        delete(&mut fib, "20.0.0.0/24");
        assert_eq!(fib.report().counters.routes, 0);
    });
}

#[test]
fn a_member_that_is_refused_does_not_spoil_the_others() {
    in_a_namespace(|| {
        let mut fib = main_table();
        // An address of this host is no gateway.
        ip("addr add 99.0.0.1/32 dev lo");
        define(&mut fib, 1, &[via("10.0.0.2", "eth0"), via("99.0.0.1", "eth1")]);
        add(&mut fib, "20.0.0.0/24", 1);
        assert_eq!(kernel_routes("-4", 254), ["20.0.0.0/24 via 10.0.0.2 dev eth0"]);
        let error = fib.report().last_errors().next().expect("refused").clone();
        assert_eq!(error.what, "next hops 1");
        assert!(
            error.error.contains("99.0.0.1") && error.error.contains("Nexthop has invalid gateway"),
            "{error:?}"
        );
        ip("addr del 99.0.0.1/32 dev lo");
        ip("addr add 99.0.0.9/24 dev eth1");
        fib.interface_changed(index("eth1"), true).expect("netlink works");
        assert!(kernel_routes("-4", 254)[0].contains("via 99.0.0.1 dev eth1"));
        assert!(!fib.has_work(), "its routes were there all the time");
    });
}

/// As clouds do: the address is alone in its network, and the gateway is outside of it.
#[test]
fn a_gateway_that_no_route_reaches_is_a_neighbor_on_its_link() {
    in_a_namespace(|| {
        ip("addr add 203.0.113.5/32 dev eth1");
        let mut fib = main_table();
        define(&mut fib, 1, &[via("172.31.1.1", "eth1")]);
        add(&mut fib, "0.0.0.0/0", 1);
        assert!(errors(&fib).is_empty(), "{:?}", errors(&fib));
        assert_eq!(kernel_routes("-4", 254), ["default via 172.31.1.1 dev eth1 onlink"]);
        assert_eq!(ip("nexthop show proto 75").matches("onlink").count(), 1);
        // The gateways in networks of the host are looked up as ever.
        define(&mut fib, 2, &[via("10.0.0.2", "eth0")]);
        assert_eq!(ip("nexthop show proto 75").matches("onlink").count(), 1);
    });
}

#[test]
fn next_hops_that_cannot_change_in_place_keep_their_routes_until_they_are_written_again() {
    in_a_namespace(|| {
        let mut fib = main_table();
        define(&mut fib, 1, &[via("fd00::2", "eth0")]);
        add(&mut fib, "20.0.0.0/24", 1);
        add(&mut fib, "2001:db8::/32", 1);
        // The kernel lets no IPv6 route have an IPv4 gateway.
        define(&mut fib, 1, &[via("10.1.0.2", "eth1")]);
        assert_eq!(kernel_routes("-4", 254), ["20.0.0.0/24 via inet6 fd00::2 dev eth0"]);
        work(&mut fib);
        assert_eq!(kernel_routes("-4", 254), ["20.0.0.0/24 via 10.1.0.2 dev eth1"]);
        let refused: Vec<_> = fib.report().refused.routes().keys().map(ToString::to_string).collect();
        assert_eq!(refused, ["2001:db8::/32"]);
    });
}

#[test]
fn what_is_refused_now_is_known_until_it_is_over() {
    in_a_namespace(|| {
        let mut fib = main_table();
        let prefix = |text: &str| text.parse::<holdfast_types::Prefix>().expect("prefix");
        // An address of this host is no gateway.
        ip("addr add 99.0.0.1/32 dev lo");
        define(&mut fib, 1, &[via("99.0.0.1", "eth1")]);
        add(&mut fib, "20.0.0.0/24", 1);
        let refused = fib.report().refused.clone();
        assert!(refused.handles().contains_key(&Handle(1)), "{:?}", errors(&fib));
        assert!(refused.routes().is_empty(), "its routes are those of the handle");
        ip("addr del 99.0.0.1/32 dev lo");
        ip("addr add 99.0.0.9/24 dev eth1");
        fib.interface_changed(index("eth1"), true).expect("netlink works");
        assert!(
            fib.report().refused.handles().is_empty() && fib.report().refused.changes() > refused.changes()
        );
        work(&mut fib);
        assert_eq!(kernel_routes("-4", 254), ["20.0.0.0/24 via 99.0.0.1 dev eth1"]);

        // One that IPv6 cannot use, for two routes of IPv6.
        define(&mut fib, 2, &[via("10.0.0.2", "eth0")]);
        add(&mut fib, "2001:db8:1::/48", 2);
        add(&mut fib, "2001:db8:2::/48", 2);
        let refused: Vec<_> = fib.report().refused.routes().keys().copied().collect();
        assert_eq!(refused, [prefix("2001:db8:1::/48"), prefix("2001:db8:2::/48")], "{:?}", errors(&fib));
        define(&mut fib, 3, &[via("fd00::2", "eth0")]);
        add(&mut fib, "2001:db8:1::/48", 3);
        delete(&mut fib, "2001:db8:2::/48");
        assert!(fib.report().refused.routes().is_empty());

        // The interface goes, with what the kernel had for the handle.
        ip("link set eth0 down");
        fib.interface_changed(index("eth0"), false).expect("netlink works");
        assert!(fib.report().refused.handles().contains_key(&Handle(3)));
        fib.sync_begin().expect("netlink works");
        assert!(fib.report().refused.handles().is_empty(), "handles are forgotten");
    });
}

#[test]
fn ipv4_routes_take_an_ipv6_gateway_in_place_and_go_back() {
    in_a_namespace(|| {
        let mut fib = main_table();
        define(&mut fib, 1, &[via("10.0.0.2", "eth0")]);
        add(&mut fib, "20.0.0.0/24", 1);
        let group = ip("nexthop show groups proto 75");
        let id = group.split_whitespace().nth(1).expect("a number").to_owned();
        let watch = Watch::begin();
        define(&mut fib, 1, &[via("fd00::2", "eth0")]);
        assert_eq!(kernel_routes("-4", 254), ["20.0.0.0/24 via inet6 fd00::2 dev eth0"]);
        define(&mut fib, 1, &[via("fd00::2", "eth0"), via("10.1.0.2", "eth1")]);
        define(&mut fib, 1, &[via("10.0.0.2", "eth0")]);
        assert_eq!(kernel_routes("-4", 254), ["20.0.0.0/24 via 10.0.0.2 dev eth0"]);
        assert!(!watch.end().contains("Deleted"));
        assert_eq!((fib.take_loss(), errors(&fib).len()), (None, 0));
        assert!(ip("nexthop show groups proto 75").contains(&format!("id {id} ")), "the group is the same");
    });
}
