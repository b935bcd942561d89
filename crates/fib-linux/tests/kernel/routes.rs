//! Routes one by one and in batches.

use holdfast_fib::{Fib, Handle, NextHop, NextHops, TableId};
use holdfast_fib_linux::LinuxFib;

use crate::tests::kernel::{
    add, change, define, delete, errors, finish, forward, in_a_namespace, index, ip, kernel_routes,
    main_table, ours, via, vrf_table,
};

#[test]
fn routes_of_both_families_are_added_replaced_and_deleted() {
    in_a_namespace(|| {
        let mut fib = main_table();
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
        let mut fib = main_table();
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
        let mut fib = main_table();
        define(&mut fib, 1, &[NextHop { gateway: None, interface: index("eth1"), weight: 1 }]);
        add(&mut fib, "20.0.0.0/24", 1);
        assert_eq!(kernel_routes("-4", 254), ["20.0.0.0/24 dev eth1"]);
    });
}

#[test]
fn packets_are_dropped_as_told() {
    in_a_namespace(|| {
        let mut fib = main_table();
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

/// Both tables with the same two routes, by the same handle.
fn two_tables(numbers: [u32; 2]) -> [LinuxFib; 2] {
    numbers.map(|number| {
        let mut fib = vrf_table(number);
        define(&mut fib, 1, &[via("fd00::2", "eth0")]);
        add(&mut fib, "20.0.0.0/24", 1);
        add(&mut fib, "2001:db8::/32", 1);
        fib
    })
}

#[test]
fn tables_are_separate() {
    in_a_namespace(|| {
        let [mut low, mut high] = two_tables([100, 100_000]);
        delete(&mut low, "20.0.0.0/24");
        assert_eq!((kernel_routes("-4", 254).len(), kernel_routes("-4", 100).len()), (0, 0));
        assert_eq!((kernel_routes("-6", 100).len(), kernel_routes("-4", 100_000).len()), (1, 1));
        assert_eq!((low.report().counters.routes, high.report().counters.routes), (1, 2));
        // All that the one does to its objects is nothing to the other.
        define(&mut high, 1, &[via("fd01::2", "eth1")]);
        assert_eq!(kernel_routes("-6", 100), ["2001:db8::/32 nexthop via fd00::2 dev eth0 weight 1"]);
        assert_eq!(kernel_routes("-6", 100_000), ["2001:db8::/32 nexthop via fd01::2 dev eth1 weight 1"]);
        low.clear().expect("netlink works");
        assert_eq!((kernel_routes("-6", 100).len(), kernel_routes("-6", 100_000).len()), (0, 1));
        assert_eq!(ip("nexthop show proto 75").lines().count(), 2);
    });
}

#[test]
fn a_sync_sees_its_own_table_only() {
    in_a_namespace(|| {
        drop(two_tables([100, 100_000]));
        let mut main = main_table();
        define(&mut main, 1, &[via("fd00::2", "eth0")]);
        add(&mut main, "20.0.0.0/24", 1);
        drop(main);
        // In every order, with a table that has never been there.
        for (mut fib, table, left) in [(vrf_table(100), 100, 2), (main_table(), 254, 1), (vrf_table(7), 7, 1)]
        {
            fib.sync_begin().expect("netlink works");
            finish(&mut fib);
            assert!(kernel_routes("-4", table).is_empty() && kernel_routes("-6", table).is_empty());
            let others = [100, 254, 100_000].map(|table| kernel_routes("-4", table).len());
            assert_eq!(others.iter().sum::<usize>(), left);
        }
        let mut last = vrf_table(100_000);
        last.sync_begin().expect("netlink works");
        define(&mut last, 9, &[via("fd00::2", "eth0")]);
        add(&mut last, "20.0.0.0/24", 9);
        assert_eq!(last.report().counters.kept, 1, "nobody has taken its objects away");
        last.clear().expect("netlink works");
        assert_eq!(ip("nexthop show proto 75"), "");
    });
}

#[test]
fn a_table_is_in_the_namespace_of_its_sockets() {
    let (inside, sockets) = std::sync::mpsc::channel();
    let (finished, wait) = std::sync::mpsc::channel();
    let elsewhere = std::thread::spawn(move || {
        in_a_namespace(move || {
            let socket = || holdfast_fib_linux::socket().expect("netlink");
            inside.send(([socket(), socket(), socket()], via("10.1.0.2", "eth1"))).expect("somebody waits");
            wait.recv().expect("an end");
            assert_eq!(kernel_routes("-4", 100), ["20.0.0.0/24 via 10.1.0.2 dev eth1"]);
        });
    });
    in_a_namespace(move || {
        let (sockets, way) = sockets.recv().expect("sockets");
        let mut fib = LinuxFib::over(sockets, ours(TableId(100))).expect("netlink");
        fib.sync_begin().expect("netlink works");
        define(&mut fib, 1, &[way]);
        add(&mut fib, "20.0.0.0/24", 1);
        finish(&mut fib);
        assert_eq!(errors(&fib), Vec::<String>::new());
        assert!(kernel_routes("-4", 100).is_empty(), "not here");
        finished.send(()).expect("somebody waits");
    });
    elsewhere.join().expect("the story holds");
}

#[test]
fn of_several_changes_in_a_batch_the_last_counts() {
    in_a_namespace(|| {
        let mut fib = main_table();
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
            fib.apply(&changes).expect("netlink works");
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
        let mut fib = main_table();
        define(&mut fib, 1, &[via("10.0.0.2", "eth0")]);
        let changes = [
            change("20.0.0.0/24", Some(1)),
            change("2001:db8::/32", Some(1)),
            change("20.0.1.0/24", Some(7)),
        ];
        fib.apply(&changes).expect("netlink works");
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
        let mut fib = main_table();
        fib.define(Handle(1), &forward(&[via("10.0.0.2", "eth0")])).expect("netlink works");
        let changes: Vec<_> =
            (0..10_000).map(|n| change(&format!("20.{}.{}.0/24", n / 256, n % 256), Some(1))).collect();
        fib.apply(&changes).expect("netlink works");
        assert_eq!((fib.report().counters.routes, kernel_routes("-4", 254).len()), (10_000, 10_000));
        // Written once more.
        fib.apply(&changes).expect("netlink works");
        let counters = fib.report().counters;
        assert_eq!((counters.routes, counters.added, counters.errors), (10_000, 20_000, 0));
    });
}

#[test]
fn routes_of_others_are_left_alone() {
    in_a_namespace(|| {
        ip("route add 20.0.0.0/24 via 10.0.0.9 proto static");
        let mut fib = main_table();
        define(&mut fib, 1, &[via("10.1.0.2", "eth1")]);
        add(&mut fib, "20.0.0.0/24", 1);
        assert!(ip("route get 20.0.0.1").contains("via 10.0.0.9"), "the operator's route wins");
        delete(&mut fib, "20.0.0.0/24");
        fib.clear().expect("netlink works");
        assert!(ip("route show 20.0.0.0/24").contains("via 10.0.0.9 dev eth0 proto static"));
    });
}
