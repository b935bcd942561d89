//! Routes one by one and in batches.

use holdfast_fib::{Fib, Handle, NextHop, NextHops, TableId};
use holdfast_fib_linux::LinuxFib;

use crate::{add, change, define, delete, errors, forward, in_a_namespace, index, ip, kernel_routes, via};

#[test]
fn routes_of_both_families_are_added_replaced_and_deleted() {
    in_a_namespace(|| {
        let mut fib = LinuxFib::new().expect("netlink");
        define(&mut fib, 1, &[via("10.0.0.2", "eth0")]);
        define(&mut fib, 2, &[via("10.1.0.2", "eth1")]);
        define(&mut fib, 3, &[via("fd00::2", "eth0")]);
        add(&mut fib, "20.0.0.0/24", 1);
        add(&mut fib, "0.0.0.0/0", 1);
        add(&mut fib, "2001:db8::/32", 3);
        add(&mut fib, "20.0.0.0/24", 2);
        assert_eq!(
            kernel_routes("-4", 254),
            ["20.0.0.0/24 via 10.1.0.2 dev eth1", "default via 10.0.0.2 dev eth0"]
        );
        assert_eq!(kernel_routes("-6", 254), ["2001:db8::/32 nexthop via fd00::2 dev eth0 weight 1"]);
        assert_eq!(fib.report().counters.routes, 3);
        for prefix in ["20.0.0.0/24", "0.0.0.0/0", "2001:db8::/32", "2001:db8::/32"] {
            delete(&mut fib, prefix);
        }
        assert!(kernel_routes("-4", 254).is_empty() && kernel_routes("-6", 254).is_empty());
        let counters = fib.report().counters;
        assert_eq!((counters.routes, counters.added, counters.deleted, counters.errors), (0, 4, 3, 0));
    });
}

#[test]
fn ipv4_leads_through_ipv6_gateways_and_bare_interfaces() {
    in_a_namespace(|| {
        let mut fib = LinuxFib::new().expect("netlink");
        define(&mut fib, 1, &[via("fd00::2", "eth0")]);
        define(&mut fib, 2, &[via("fe80::2", "eth1")]);
        define(&mut fib, 3, &[NextHop { gateway: None, interface: index("eth1"), weight: 1 }]);
        for (number, handle) in [(1, 1), (2, 2), (3, 3)] {
            add(&mut fib, &format!("20.0.{number}.0/24"), handle);
            add(&mut fib, &format!("2001:db8:{number}::/48"), handle);
        }
        assert_eq!(errors(&fib), [""; 0]);
        assert_eq!(
            kernel_routes("-4", 254),
            [
                "20.0.1.0/24 via inet6 fd00::2 dev eth0",
                "20.0.2.0/24 via inet6 fe80::2 dev eth1",
                "20.0.3.0/24 dev eth1",
            ]
        );
        assert_eq!(kernel_routes("-6", 254).len(), 3);
    });
}

#[test]
fn an_interface_without_ipv6_still_serves_ipv4() {
    in_a_namespace(|| {
        std::fs::write("/proc/sys/net/ipv6/conf/eth1/disable_ipv6", "1").expect("writable");
        let mut fib = LinuxFib::new().expect("netlink");
        define(&mut fib, 1, &[NextHop { gateway: None, interface: index("eth1"), weight: 1 }]);
        add(&mut fib, "20.0.0.0/24", 1);
        assert_eq!(kernel_routes("-4", 254), ["20.0.0.0/24 dev eth1"]);
    });
}

#[test]
fn packets_are_dropped_as_told() {
    in_a_namespace(|| {
        let mut fib = LinuxFib::new().expect("netlink");
        fib.define(Handle(1), &NextHops::Blackhole).expect("netlink works");
        fib.define(Handle(2), &NextHops::Unreachable).expect("netlink works");
        define(&mut fib, 3, &[via("fd00::2", "eth0")]);
        for prefix in ["20.0.0.0/24", "2001:db8::/32"] {
            for handle in [3, 1, 2, 1] {
                add(&mut fib, prefix, handle);
            }
        }
        assert_eq!(kernel_routes("-4", 254), ["blackhole 20.0.0.0/24"]);
        assert_eq!(kernel_routes("-6", 254), ["blackhole 2001:db8::/32 dev lo"]);
        add(&mut fib, "20.0.0.0/24", 2);
        assert_eq!(kernel_routes("-4", 254), ["unreachable 20.0.0.0/24"]);
        assert_eq!(fib.report().counters.routes, 2);
    });
}

#[test]
fn tables_are_separate() {
    in_a_namespace(|| {
        let mut fib = LinuxFib::new().expect("netlink");
        define(&mut fib, 1, &[via("fd00::2", "eth0")]);
        let changes = [change("20.0.0.0/24", Some(1)), change("2001:db8::/32", Some(1))];
        fib.apply(TableId(100), &changes).expect("netlink works");
        fib.apply(TableId(100_000), &changes).expect("netlink works");
        fib.apply(TableId(100), &[change("20.0.0.0/24", None)]).expect("netlink works");
        assert_eq!((kernel_routes("-4", 254).len(), kernel_routes("-4", 100).len()), (0, 0));
        assert_eq!((kernel_routes("-6", 100).len(), kernel_routes("-4", 100_000).len()), (1, 1));
        assert_eq!(fib.report().counters.routes, 3);
    });
}

#[test]
fn the_order_within_a_batch_holds_however_the_guess_was() {
    in_a_namespace(|| {
        let mut fib = LinuxFib::new().expect("netlink");
        define(&mut fib, 1, &[via("10.0.0.2", "eth0")]);
        define(&mut fib, 2, &[via("10.1.0.2", "eth1")]);
        for round in 0..4 {
            // An old route goes after it was announced again; a new one is announced twice.
            add(&mut fib, "20.0.0.0/24", 1);
            let changes = [
                change("20.0.0.0/24", Some(2)),
                change("20.0.0.0/24", None),
                change("20.0.1.0/24", Some(1)),
                change("20.0.1.0/24", Some(2)),
            ];
            fib.apply(TableId::MAIN, &changes).expect("netlink works");
            assert_eq!(kernel_routes("-4", 254), ["20.0.1.0/24 via 10.1.0.2 dev eth1"], "{round}");
            assert_eq!(fib.report().counters.routes, 1, "{round}");
            if round % 2 == 1 {
                delete(&mut fib, "20.0.1.0/24");
            }
        }
    });
}

#[test]
fn what_the_kernel_refuses_is_told_with_its_words() {
    in_a_namespace(|| {
        let mut fib = LinuxFib::new().expect("netlink");
        define(&mut fib, 1, &[via("10.0.0.2", "eth0")]);
        let changes = [
            change("20.0.0.0/24", Some(1)),
            change("2001:db8::/32", Some(1)),
            change("20.0.1.0/24", Some(7)),
        ];
        fib.apply(TableId::MAIN, &changes).expect("netlink works");
        assert_eq!(kernel_routes("-4", 254).len(), 1);
        let errors = errors(&fib);
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert_eq!(errors[0], "20.0.1.0/24: next hops 7 are not defined");
        assert!(
            errors[1].starts_with("2001:db8::/32: IPv6 routes can not use an IPv4 nexthop"),
            "{}",
            errors[1]
        );
    });
}

#[test]
fn a_large_batch_is_applied_whole() {
    in_a_namespace(|| {
        let mut fib = LinuxFib::new().expect("netlink");
        fib.define(Handle(1), &forward(&[via("10.0.0.2", "eth0")])).expect("netlink works");
        let changes: Vec<_> =
            (0..10_000).map(|n| change(&format!("20.{}.{}.0/24", n / 256, n % 256), Some(1))).collect();
        fib.apply(TableId::MAIN, &changes).expect("netlink works");
        assert_eq!((fib.report().counters.routes, kernel_routes("-4", 254).len()), (10_000, 10_000));
        // All of them exist, against the expectation: every one is refused first.
        fib.apply(TableId::MAIN, &changes).expect("netlink works");
        let counters = fib.report().counters;
        assert_eq!((counters.routes, counters.added, counters.errors), (10_000, 20_000, 0));
    });
}

#[test]
fn routes_of_others_are_left_alone() {
    in_a_namespace(|| {
        ip("route add 20.0.0.0/24 via 10.0.0.9 proto static");
        let mut fib = LinuxFib::new().expect("netlink");
        define(&mut fib, 1, &[via("10.1.0.2", "eth1")]);
        add(&mut fib, "20.0.0.0/24", 1);
        assert!(ip("route get 20.0.0.1").contains("via 10.0.0.9"), "the operator's route wins");
        delete(&mut fib, "20.0.0.0/24");
        fib.clear().expect("netlink works");
        assert!(ip("route show 20.0.0.0/24").contains("via 10.0.0.9 dev eth0 proto static"));
    });
}
