//! What the kernel takes away without a word.

use holdfast_fib::{Fib, NextHops};
use holdfast_fib_linux::LinuxFib;

use crate::tests::kernel::{
    add, define, errors, in_a_namespace, index, ip, kernel_routes, main_table, via, work,
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

/// The kernel has both, through both interfaces.
fn are_both_there() {
    let routes = kernel_routes("-4", 254);
    assert_eq!(routes.len(), 2, "{routes:?}");
    assert_eq!(routes[0], "20.0.1.0/24 via 10.0.0.2 dev eth0");
    assert!(routes[1].contains("nexthop via 10.0.0.2"), "{routes:?}");
}

#[test]
fn an_interface_that_flaps_takes_its_routes_along_and_brings_them_back() {
    in_a_namespace(|| {
        let mut fib = two_routes();
        ip("link set eth0 down");
        assert_eq!(kernel_routes("-4", 254), ["20.0.2.0/24 via 10.1.0.2 dev eth1"], "the kernel's doing");
        tell(&mut fib, "eth0", false);
        work(&mut fib);
        assert_eq!(fib.report().counters.routes, 1);
        ip("link set eth0 up");
        tell(&mut fib, "eth0", true);
        work(&mut fib);
        are_both_there();
        assert_eq!((fib.take_loss(), fib.report().counters.routes), (None, 2));
    });
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
        work(&mut fib);
        are_both_there();
    });
}

#[test]
fn an_interface_that_was_back_before_anybody_heard_of_it_is_no_different() {
    in_a_namespace(|| {
        let mut fib = two_routes();
        ip("link set eth0 down");
        ip("link set eth0 up");
        tell(&mut fib, "eth0", true);
        work(&mut fib);
        are_both_there();
    });
}

#[test]
fn a_handle_that_moves_elsewhere_after_the_loss_has_its_routes_written_again() {
    in_a_namespace(|| {
        let mut fib = two_routes();
        ip("link set eth0 down");
        // The feeder may hear of it before we do.
        define(&mut fib, 1, &[via("10.1.0.2", "eth1")]);
        work(&mut fib);
        define(&mut fib, 2, &[via("10.1.0.2", "eth1")]);
        assert!(!fib.has_work(), "the kernel kept that route");
        tell(&mut fib, "eth0", false);
        assert_eq!(
            kernel_routes("-4", 254),
            ["20.0.1.0/24 via 10.1.0.2 dev eth1", "20.0.2.0/24 via 10.1.0.2 dev eth1"]
        );
    });
}

#[test]
fn routes_whose_handle_is_withdrawn_do_not_come_back() {
    in_a_namespace(|| {
        let mut fib = two_routes();
        ip("link set eth0 down");
        tell(&mut fib, "eth0", false);
        crate::tests::kernel::delete(&mut fib, "20.0.1.0/24");
        fib.undefine(holdfast_fib::Handle(1)).expect("netlink works");
        define(&mut fib, 2, &[via("10.1.0.2", "eth1")]);
        ip("link set eth0 up");
        tell(&mut fib, "eth0", true);
        work(&mut fib);
        assert_eq!(kernel_routes("-4", 254), ["20.0.2.0/24 via 10.1.0.2 dev eth1"]);
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
        assert_eq!(fib.report().counters.routes, 0);
        ip("link set eth0 up");
        tell(&mut fib, "eth0", true);
        work(&mut fib);
        assert_eq!(kernel_routes("-4", 254), ["20.0.1.0/24 via 10.0.0.2 dev eth0"]);
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
        work(&mut fib);
        assert_eq!(kernel_routes("-4", 254)[1], "blackhole 20.0.1.0/24");
    });
}
