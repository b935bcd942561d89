//! A table is sent whole, after a process came back.

use holdfast_fib::{Fib, Handle, NextHops};

use crate::tests::kernel::{Watch, add, define, finish, in_a_namespace, ip, kernel_routes, main_table, via};

/// What an earlier process has left: two routes to stay, one to move, one to go.
fn leave_routes() {
    let mut fib = main_table();
    define(&mut fib, 1, &[via("fd00::2", "eth0")]);
    define(&mut fib, 2, &[via("10.1.0.2", "eth1")]);
    fib.define(Handle(3), &NextHops::Blackhole).expect("netlink works");
    add(&mut fib, "20.0.1.0/24", 1);
    add(&mut fib, "2001:db8:1::/48", 1);
    add(&mut fib, "20.0.2.0/24", 2);
    add(&mut fib, "20.0.3.0/24", 2);
    add(&mut fib, "20.0.4.0/24", 3);
}

#[test]
fn after_a_crash_only_differences_are_written_and_nothing_that_stays_is_absent() {
    in_a_namespace(|| {
        leave_routes();
        let watch = Watch::begin();
        let mut fib = main_table();
        fib.sync_begin().expect("netlink works");
        // Other numbers than before, as a new feeder would choose.
        define(&mut fib, 7, &[via("10.1.0.2", "eth1")]);
        define(&mut fib, 8, &[via("fd00::2", "eth0")]);
        fib.define(Handle(9), &NextHops::Blackhole).expect("netlink works");
        add(&mut fib, "20.0.1.0/24", 8);
        add(&mut fib, "2001:db8:1::/48", 8);
        add(&mut fib, "20.0.2.0/24", 8);
        add(&mut fib, "20.0.4.0/24", 9);
        add(&mut fib, "20.0.5.0/24", 7);
        finish(&mut fib);
        assert_eq!(
            kernel_routes("-4", 254),
            [
                "20.0.1.0/24 via inet6 fd00::2 dev eth0",
                "20.0.2.0/24 via inet6 fd00::2 dev eth0",
                "20.0.5.0/24 via 10.1.0.2 dev eth1",
                "blackhole 20.0.4.0/24",
            ]
        );
        let counters = fib.report().counters;
        assert_eq!((counters.kept, counters.added, counters.deleted, counters.routes), (3, 2, 1, 5));
        let seen = watch.end();
        let deleted: Vec<_> = seen.lines().filter(|line| line.contains("Deleted")).collect();
        assert!(deleted.len() == 1 && deleted[0].contains("20.0.3.0/24"), "{seen}");
    });
}

#[test]
fn a_sync_of_nothing_leaves_nothing() {
    in_a_namespace(|| {
        leave_routes();
        let mut fib = main_table();
        fib.sync_begin().expect("netlink works");
        finish(&mut fib);
        assert!(kernel_routes("-4", 254).is_empty() && kernel_routes("-6", 254).is_empty());
        assert_eq!(ip("nexthop show proto 75"), "");
        assert_eq!(fib.report().counters.routes, 0);
    });
}

#[test]
fn clearing_leaves_nothing_of_ours() {
    in_a_namespace(|| {
        leave_routes();
        let mut fib = main_table();
        define(&mut fib, 1, &[via("fd00::2", "eth0")]);
        add(&mut fib, "::/0", 1);
        fib.define(Handle(2), &NextHops::Unreachable).expect("netlink works");
        add(&mut fib, "2001:db8:5::/48", 2);
        fib.clear().expect("netlink works");
        assert!(kernel_routes("-4", 254).is_empty() && kernel_routes("-6", 254).is_empty());
        assert_eq!(ip("nexthop show proto 75"), "");
    });
}

#[test]
fn changes_in_the_middle_of_a_sync_count() {
    in_a_namespace(|| {
        leave_routes();
        let mut fib = main_table();
        fib.sync_begin().expect("netlink works");
        define(&mut fib, 1, &[via("fd00::2", "eth0")]);
        add(&mut fib, "20.0.1.0/24", 1);
        // Named, moved with its handle, withdrawn; and one of before withdrawn without having been named.
        define(&mut fib, 1, &[via("fd01::3", "eth1")]);
        add(&mut fib, "20.0.9.0/24", 1);
        crate::tests::kernel::delete(&mut fib, "20.0.9.0/24");
        crate::tests::kernel::delete(&mut fib, "20.0.2.0/24");
        finish(&mut fib);
        assert_eq!(kernel_routes("-4", 254), ["20.0.1.0/24 via inet6 fd01::3 dev eth1"]);
        assert_eq!(fib.report().counters.routes, 1);
    });
}

#[test]
fn changes_between_the_end_of_a_sync_and_its_last_work_count() {
    in_a_namespace(|| {
        leave_routes();
        let mut fib = main_table();
        fib.sync_begin().expect("netlink works");
        fib.sync_end().expect("netlink works");
        define(&mut fib, 1, &[via("fd00::2", "eth0")]);
        add(&mut fib, "20.0.3.0/24", 1);
        while fib.work(1).expect("netlink works") {}
        assert_eq!(kernel_routes("-4", 254), ["20.0.3.0/24 via inet6 fd00::2 dev eth0"]);
    });
}

#[test]
fn a_sync_begun_again_starts_from_the_kernel() {
    in_a_namespace(|| {
        leave_routes();
        let mut fib = main_table();
        fib.sync_begin().expect("netlink works");
        define(&mut fib, 1, &[via("fd00::2", "eth0")]);
        add(&mut fib, "20.0.2.0/24", 1);
        fib.sync_begin().expect("netlink works");
        add(&mut fib, "20.0.2.0/24", 1);
        assert_eq!(fib.report().counters.errors, 1, "handles are forgotten");
        define(&mut fib, 5, &[via("fd00::2", "eth0")]);
        add(&mut fib, "20.0.2.0/24", 5);
        finish(&mut fib);
        assert_eq!(kernel_routes("-4", 254), ["20.0.2.0/24 via inet6 fd00::2 dev eth0"]);
        assert_eq!(fib.report().counters.kept, 1);
    });
}

#[test]
fn routes_with_another_metric_than_ours_are_cleaned_up() {
    in_a_namespace(|| {
        ip("route add 20.0.0.0/24 via 10.0.0.2 proto 75 metric 7");
        ip("route add 20.0.1.0/24 via 10.0.0.2 proto 75 metric 20");
        let mut fib = main_table();
        fib.sync_begin().expect("netlink works");
        define(&mut fib, 1, &[via("10.0.0.2", "eth0")]);
        add(&mut fib, "20.0.0.0/24", 1);
        add(&mut fib, "20.0.1.0/24", 1);
        finish(&mut fib);
        let routes = kernel_routes("-4", 254);
        assert_eq!(routes.len(), 2);
        assert!(!ip("route show").contains("metric 7"));
        assert_eq!(fib.report().counters.routes, 2);
    });
}
