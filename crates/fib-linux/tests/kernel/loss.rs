//! What the kernel takes away without a word.

use holdfast_fib::{Fib, NextHops};
use holdfast_fib_linux::LinuxFib;

use crate::tests::kernel::{
    add, define, errors, finish, in_a_namespace, index, ip, kernel_routes, main_table, via,
};

/// Two routes, one through eth0 only, one through both interfaces.
fn two_routes() -> LinuxFib {
    let mut fib = main_table();
    define(&mut fib, 1, &[via("10.0.0.2", "eth0")]);
    define(&mut fib, 2, &[via("10.0.0.2", "eth0"), via("10.1.0.2", "eth1")]);
    add(&mut fib, "20.0.1.0/24", 1);
    add(&mut fib, "20.0.2.0/24", 2);
    fib
}

fn tell(fib: &mut LinuxFib, interface: &str, usable: bool) {
    fib.interface_changed(index(interface), usable).expect("netlink works");
}

#[test]
fn an_interface_that_flaps_leads_to_a_sync_and_the_other_members_stay() {
    in_a_namespace(|| {
        let mut fib = two_routes();
        ip("link set eth0 down");
        assert_eq!(kernel_routes("-4", 254), ["20.0.2.0/24 via 10.1.0.2 dev eth1"], "the kernel's doing");
        tell(&mut fib, "eth0", false);
        assert_eq!(fib.take_loss(), None, "no use in a sync while it is down");
        ip("link set eth0 up");
        tell(&mut fib, "eth0", true);
        assert!(fib.take_loss().is_some());
        assert!(kernel_routes("-4", 254)[0].contains("nexthop via 10.0.0.2"), "the group is whole again");
        resync(&mut fib);
        assert_eq!(kernel_routes("-4", 254).len(), 2);
        let counters = fib.report().counters;
        assert_eq!((counters.routes, counters.kept), (2, 1));
    });
}

fn resync(fib: &mut LinuxFib) {
    fib.sync_begin().expect("netlink works");
    define(fib, 1, &[via("10.0.0.2", "eth0")]);
    define(fib, 2, &[via("10.0.0.2", "eth0"), via("10.1.0.2", "eth1")]);
    add(fib, "20.0.1.0/24", 1);
    add(fib, "20.0.2.0/24", 2);
    finish(fib);
}

#[test]
fn a_lost_carrier_is_the_same_as_down() {
    in_a_namespace(|| {
        let mut fib = two_routes();
        ip("link set peer0 down");
        tell(&mut fib, "eth0", false);
        assert_eq!(kernel_routes("-4", 254).len(), 1);
        ip("link set peer0 up");
        tell(&mut fib, "eth0", true);
        assert!(fib.take_loss().is_some());
    });
}

#[test]
fn a_handle_that_moves_elsewhere_after_the_loss_asks_for_its_routes() {
    in_a_namespace(|| {
        let mut fib = two_routes();
        ip("link set eth0 down");
        // The feeder may hear of it before we do.
        define(&mut fib, 1, &[via("10.1.0.2", "eth1")]);
        assert!(fib.take_loss().is_some());
        define(&mut fib, 2, &[via("10.1.0.2", "eth1")]);
        assert_eq!(fib.take_loss(), None, "the kernel kept that route");
        tell(&mut fib, "eth0", false);
        add(&mut fib, "20.0.1.0/24", 1);
        assert_eq!(
            kernel_routes("-4", 254),
            ["20.0.1.0/24 via 10.1.0.2 dev eth1", "20.0.2.0/24 via 10.1.0.2 dev eth1"]
        );
    });
}

#[test]
fn routes_whose_handle_is_withdrawn_are_no_loss() {
    in_a_namespace(|| {
        let mut fib = two_routes();
        ip("link set eth0 down");
        tell(&mut fib, "eth0", false);
        crate::tests::kernel::delete(&mut fib, "20.0.1.0/24");
        fib.undefine(holdfast_fib::Handle(1)).expect("netlink works");
        define(&mut fib, 2, &[via("10.1.0.2", "eth1")]);
        ip("link set eth0 up");
        tell(&mut fib, "eth0", true);
        assert_eq!(fib.take_loss(), None);
        assert_eq!(errors(&fib), [""; 0]);
    });
}

#[test]
fn next_hops_refused_while_an_interface_is_down_come_when_it_is_up() {
    in_a_namespace(|| {
        ip("link set eth0 down");
        let mut fib = main_table();
        define(&mut fib, 1, &[via("10.0.0.2", "eth0")]);
        add(&mut fib, "20.0.1.0/24", 1);
        assert_eq!(fib.report().counters.errors, 2, "{:?}", errors(&fib));
        ip("link set eth0 up");
        tell(&mut fib, "eth0", true);
        assert!(fib.take_loss().is_some(), "the route was refused");
        add(&mut fib, "20.0.1.0/24", 1);
        assert_eq!(kernel_routes("-4", 254).len(), 1);
    });
}

#[test]
fn objects_flushed_by_hand_are_noticed_at_the_next_write() {
    in_a_namespace(|| {
        let mut fib = two_routes();
        ip("nexthop flush");
        add(&mut fib, "20.0.3.0/24", 1);
        assert!(fib.take_loss().is_some());
        add(&mut fib, "20.0.3.0/24", 1);
        assert_eq!(kernel_routes("-4", 254).len(), 1);
    });
}

#[test]
fn an_interface_that_is_deleted_takes_only_its_own_along() {
    in_a_namespace(|| {
        let mut fib = two_routes();
        let eth0 = index("eth0");
        ip("link del eth0");
        fib.interface_changed(eth0, false).expect("netlink works");
        assert_eq!(kernel_routes("-4", 254), ["20.0.2.0/24 via 10.1.0.2 dev eth1"]);
        fib.define(holdfast_fib::Handle(1), &NextHops::Blackhole).expect("netlink works");
        assert!(fib.take_loss().is_some());
    });
}
