//! What other programs do to our routes and next hops, and what becomes of theirs.

use std::{
    io::ErrorKind,
    os::unix::net::UnixDatagram,
    time::{Duration, Instant},
};

use holdfast_fib::{Fib, Handle, Repairs};
use holdfast_fib_linux::LinuxFib;

use crate::tests::kernel::{
    Watch, add, change, define, delete, errors, finish, hear, hear_at, in_a_namespace, ip, kernel_routes,
    main_table, via, vrf_table, work,
};

/// Three routes of each family by two handles; the second has two members.
fn six_routes() -> LinuxFib {
    let mut fib = main_table();
    define(&mut fib, 1, &[via("fd00::2", "eth0")]);
    define(&mut fib, 2, &[via("fd00::3", "eth0"), via("fd01::3", "eth1")]);
    for (number, handle) in [(1, 1), (2, 2), (3, 2)] {
        add(&mut fib, &format!("20.0.{number}.0/24"), handle);
        add(&mut fib, &format!("2001:db8:{number}::/48"), handle);
    }
    hear(&mut fib);
    assert_eq!(fib.report().repairs, Repairs::default(), "our own echoes are not heard");
    fib
}

/// Whether the kernel has queued a notice for us, which is taken then.
fn is_told(fib: &LinuxFib) -> bool {
    let watched = fib.watched().expect("the kernel is watched").try_clone_to_owned().expect("a copy");
    let mut octets = [0; 4096];
    match UnixDatagram::from(watched).recv(&mut octets) {
        Ok(length) => {
            eprintln!("told: {:02x?}", &octets[..length]);
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            false
        }
    }
}

#[test]
fn what_we_do_ourselves_is_not_even_queued_nor_what_is_none_of_ours() {
    in_a_namespace(|| {
        let mut fib = six_routes();
        define(&mut fib, 1, &[via("fd01::2", "eth1")]);
        add(&mut fib, "20.0.1.0/24", 2);
        delete(&mut fib, "20.0.2.0/24");
        // Another table of ours, and other programs' routes elsewhere.
        let mut other = vrf_table(200);
        define(&mut other, 1, &[via("10.0.0.2", "eth0")]);
        add(&mut other, "20.0.0.0/24", 1);
        ip("route add 20.0.9.0/24 via 10.0.0.9 metric 21 proto bgp");
        ip("route add 20.0.9.0/24 via 10.0.0.9 metric 20 proto bgp table 77");
        assert!(!is_told(&fib) && !is_told(&other));
        // The kernel removes IPv6 routes with their link.
        ip("link set eth0 down");
        assert!(!is_told(&fib) && !is_told(&other), "the link tells");
        ip("route add 20.0.9.0/24 via 10.1.0.9 metric 20 proto bgp");
        assert!(is_told(&fib) && !is_told(&fib) && !is_told(&other));
    });
}

fn all() -> [Vec<String>; 2] {
    ["-4", "-6"].map(|family| kernel_routes(family, 254))
}

/// `ip route flush` asks to delete what was dumped, which the kernel refuses when that has both next hops and the number of
/// their object.
fn dump_numbers_only() {
    std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", "0").expect("writable");
}

fn repairs(fib: &LinuxFib) -> Repairs {
    fib.report().repairs
}

#[test]
fn routes_that_others_remove_are_written_again() {
    in_a_namespace(|| {
        dump_numbers_only();
        let mut fib = six_routes();
        let before = all();
        for (command, removed) in [
            ("route del 20.0.1.0/24", 1),
            ("-6 route del 2001:db8:2::/48", 1),
            ("route flush proto 75", 3),
            ("-6 route flush proto 75", 3),
        ] {
            let known = repairs(&fib).removed;
            ip(command);
            assert_ne!(all(), before, "{command}");
            hear(&mut fib);
            assert_eq!(all(), before, "{command}");
            let removed = known + removed;
            assert!((known + 1..=removed).contains(&repairs(&fib).removed), "{command}");
            let interference = fib.report().interference.clone().expect("somebody did it");
            assert!(interference.port > 0 && interference.what.contains('/'), "{interference:?}");
        }
        assert_eq!(fib.report().counters.routes, 6);
    });
}

#[test]
fn next_hops_that_others_remove_come_back_with_their_routes() {
    in_a_namespace(|| {
        let mut fib = six_routes();
        let before = all();
        let first = |what: &str| {
            let shown = ip(&format!("nexthop show {what} proto 75"));
            shown.split_whitespace().nth(1).expect("a number").to_owned()
        };
        for command in [
            format!("nexthop del id {}", first("groups")),
            format!("nexthop del id {}", first("")),
            "nexthop flush proto 75".to_owned(),
            "nexthop flush dev eth0".to_owned(),
        ] {
            ip(&command);
            assert_ne!(all(), before, "{command}");
            hear(&mut fib);
            assert_eq!(all(), before, "{command}");
            assert!(fib.take_is_doubtful(), "routes went without a word");
        }
        assert!(repairs(&fib).next_hops >= 4);
        assert_eq!((fib.take_loss(), errors(&fib)), (None, Vec::new()));
    });
}

#[test]
fn a_group_whose_members_others_change_is_as_before() {
    in_a_namespace(|| {
        let mut fib = six_routes();
        let before = all();
        ip("nexthop add id 7 via fd00::7 dev eth0 proto static");
        for group in ip("nexthop show groups proto 75").lines() {
            let id = group.split_whitespace().nth(1).expect("a number");
            ip(&format!("nexthop replace id {id} group 7 proto 75"));
        }
        assert_ne!(all(), before);
        hear(&mut fib);
        assert_eq!(all(), before);
        assert!(ip("nexthop show id 7").contains("fd00::7"), "theirs stays");
    });
}

#[test]
fn a_route_of_another_program_that_was_there_before_stays_as_long_as_they_want() {
    in_a_namespace(|| {
        ip("route add 20.0.0.0/24 via 10.0.0.9 metric 20 proto bgp");
        ip("-6 route add 2001:db8::/48 via fd00::9 metric 20 proto bgp");
        let theirs = || ip("route show proto bgp") + &ip("-6 route show proto bgp");
        let before = theirs();
        let mut fib = main_table();
        define(&mut fib, 1, &[via("fd00::2", "eth0")]);
        let watch = Watch::begin();
        let prefixes = ["20.0.0.0/24", "2001:db8::/48"];
        for prefix in prefixes {
            add(&mut fib, prefix, 1);
            add(&mut fib, prefix, 1);
            delete(&mut fib, prefix);
            // Twice in one batch: the second must not take the first for done.
            fib.apply(&[change(prefix, Some(1)), change(prefix, Some(1))]).expect("netlink works");
            assert!(errors(&fib).last().expect("refused").contains("another program has a route"));
        }
        assert_eq!((theirs(), watch.end()), (before, String::new()));
        assert_eq!((fib.report().counters.routes, fib.report().refused.routes().len()), (0, 2));

        ip("route del 20.0.0.0/24 proto bgp");
        ip("-6 route del 2001:db8::/48 proto bgp");
        hear(&mut fib);
        assert_eq!(all().map(|routes| routes.len()), [1, 1], "the place is free");
        assert!(fib.report().refused.routes().is_empty());
        assert_eq!(repairs(&fib), Repairs::default(), "nothing of ours was touched");
    });
}

#[test]
fn a_route_that_replaces_ours_is_replaced_again() {
    in_a_namespace(|| {
        let mut fib = six_routes();
        let before = all();
        ip("route replace 20.0.1.0/24 via 10.0.0.9 metric 20 proto static");
        ip("-6 route replace 2001:db8:1::/48 via fd00::9 metric 20 proto static");
        // In our own name.
        ip("route replace 20.0.2.0/24 via 10.0.0.9 metric 20 proto 75");
        hear(&mut fib);
        assert_eq!(all(), before);
        assert_eq!((repairs(&fib).replaced, repairs(&fib).removed), (3, 0));
    });
}

#[test]
fn routes_of_others_beside_ours_are_left_alone() {
    in_a_namespace(|| {
        let mut fib = six_routes();
        let before = all();
        ip("route add 20.0.1.0/24 via 10.0.0.9 metric 21 proto bgp");
        ip("route append 20.0.2.0/24 via 10.0.0.9 metric 20 proto bgp");
        ip("route add 20.0.9.0/24 via 10.0.0.9 metric 20 proto bgp");
        ip("route add 20.0.1.0/24 via 10.0.0.9 metric 20 proto bgp table 77");
        ip("route add 20.0.2.0/24 via 10.0.0.9 metric 20 proto 75 table 77");
        ip("route replace 20.0.1.0/24 via 10.0.0.9 tos 0x10 metric 20 proto bgp");
        ip("nexthop add id 80000000 via 10.0.0.9 dev eth0 proto 75");
        let watch = Watch::begin();
        hear(&mut fib);
        fib.compare_begin().expect("netlink works");
        work(&mut fib);
        assert_eq!((watch.end(), all()), (String::new(), before));
        let expected = Repairs { comparisons: 1, ..Repairs::default() };
        assert_eq!(repairs(&fib), expected);
        assert!(ip("nexthop show id 80000000").contains("10.0.0.9"));
    });
}

#[test]
fn what_is_in_our_name_and_not_wanted_goes() {
    in_a_namespace(|| {
        let mut fib = six_routes();
        let before = all();
        ip("route add 20.0.9.0/24 via 10.0.0.9 metric 20 proto 75");
        ip("route add 20.0.1.0/24 via 10.0.0.9 metric 7 proto 75");
        hear(&mut fib);
        assert_eq!(all(), before);
        assert_eq!(repairs(&fib).strays, 2);
    });
}

#[test]
fn a_fight_pauses_after_five_repairs_and_goes_on_later() {
    in_a_namespace(|| {
        let mut fib = six_routes();
        let before = all();
        let start = Instant::now();
        for _ in 0..5 {
            ip("route del 20.0.1.0/24");
            hear_at(&mut fib, start);
            assert_eq!(all(), before);
        }
        ip("route del 20.0.1.0/24");
        hear_at(&mut fib, start);
        assert_eq!(all()[0].len(), 2);
        let report = fib.report();
        assert_eq!((report.repairs.removed, report.repairs.pauses), (5, 1));
        assert_eq!(report.contested.map(|prefix| prefix.to_string()).as_deref(), Some("20.0.1.0/24"));
        assert_eq!(report.refused.routes().len(), 1);
        // Another route is not concerned.
        ip("route del 20.0.2.0/24");
        hear_at(&mut fib, start);
        assert_eq!(all()[0].len(), 2);
        let due = fib.next_due().expect("a pause ends");
        assert_eq!(due - start, Duration::from_secs(10));
        hear_at(&mut fib, due);
        assert_eq!(all(), before);
        assert!(fib.report().refused.routes().is_empty());
    });
}

#[test]
fn a_comparison_finds_what_nobody_told_of() {
    in_a_namespace(|| {
        let mut fib = six_routes();
        let before = all();
        ip("route del 20.0.1.0/24");
        ip("-6 route del 2001:db8:1::/48");
        ip("route replace 20.0.2.0/24 via 10.0.0.9 metric 20 proto 75");
        ip("route add 20.0.9.0/24 via 10.0.0.9 metric 20 proto 75");
        ip("route del 20.0.3.0/24");
        ip("route add 20.0.3.0/24 via 10.0.0.9 metric 20 proto bgp");
        fib.compare_begin().expect("netlink works");
        work(&mut fib);
        let mut expected = before.clone();
        assert!(expected[0].pop().expect("a route").starts_with("20.0.3.0/24"));
        assert_eq!(all(), expected, "but for the one whose place was taken");
        assert!(ip("route show proto bgp").contains("20.0.3.0/24 via 10.0.0.9"));
        let Repairs { unseen, strays, replaced, comparisons, .. } = repairs(&fib);
        assert_eq!((unseen, strays, replaced, comparisons), (2, 1, 1, 1));
        // Told afterwards, it is no news.
        hear(&mut fib);
        assert_eq!(all(), expected);
        ip("route del 20.0.3.0/24 proto bgp");
        hear(&mut fib);
        assert_eq!(all(), before);
    });
}

#[test]
fn changes_in_the_middle_of_a_comparison_are_no_differences() {
    in_a_namespace(|| {
        let mut fib = main_table();
        define(&mut fib, 1, &[via("fd00::2", "eth0")]);
        define(&mut fib, 2, &[via("fd01::2", "eth1")]);
        let name = |family: u32, number: u32| match family {
            4 => format!("20.{}.{}.0/24", number / 256, number % 256),
            _ => format!("2001:db8:{number:x}::/48"),
        };
        let row = |number, handle| [4, 6].map(|family| change(&name(family, number), handle));
        let changes: Vec<_> = (0..4000).flat_map(|number| row(number, Some(1))).collect();
        fib.apply(&changes).expect("netlink works");
        fib.compare_begin().expect("netlink works");
        let mut number = 0;
        while fib.work(100).expect("netlink works") {
            // One goes, one comes, one moves, all over the table.
            let [gone, moved, new] = [number * 67 % 4000, number * 71 % 4000, 4000 + number];
            let changes = [row(gone, None), row(moved, Some(2)), row(new, Some(1))].concat();
            fib.apply(&changes).expect("netlink works");
            number += 1;
        }
        assert!(number > 20, "in slices: {number}");
        let found = all().map(|routes| routes.len() as u64);
        assert_eq!(found[0], found[1]);
        assert_eq!(fib.report().counters.routes, found[0] * 2);
        assert_eq!(repairs(&fib), Repairs { comparisons: 1, ..Repairs::default() });
        assert_eq!(errors(&fib), Vec::<String>::new());
    });
}

#[test]
fn after_an_overrun_a_comparison_finds_everything() {
    in_a_namespace(|| {
        let mut fib = main_table();
        define(&mut fib, 1, &[via("10.0.0.2", "eth0")]);
        let name = |number: u32| format!("20.{}.{}.0/24", number / 256, number % 256);
        let changes: Vec<_> = (0..30_000).map(|number| change(&name(number), Some(1))).collect();
        fib.apply(&changes).expect("netlink works");
        dump_numbers_only();
        ip("route flush proto 75");
        assert!(all()[0].is_empty());
        hear(&mut fib);
        assert!(fib.take_is_doubtful() && !fib.take_is_doubtful());
        assert!(repairs(&fib).overruns > 0 && all()[0].len() < 30_000, "some were lost");
        fib.compare_begin().expect("netlink works");
        work(&mut fib);
        assert_eq!((all()[0].len(), fib.report().counters.routes), (30_000, 30_000));
    });
}

#[test]
fn two_tables_leave_each_others_next_hops_alone() {
    in_a_namespace(|| {
        let mut main = main_table();
        let mut other = vrf_table(200);
        for fib in [&mut main, &mut other] {
            define(fib, 1, &[via("10.0.0.2", "eth0")]);
            add(fib, "20.0.0.0/24", 1);
        }
        let watch = Watch::begin();
        // A second router begins as any: with a sync.
        let mut second = vrf_table(200);
        second.sync_begin().expect("netlink works");
        define(&mut second, 5, &[via("10.0.0.2", "eth0")]);
        add(&mut second, "20.0.0.0/24", 5);
        finish(&mut second);
        second.clear().expect("netlink works");
        let seen = watch.end();
        assert!(seen.lines().all(|line| line.contains("table 200")), "{seen}");
        assert_eq!((kernel_routes("-4", 254).len(), kernel_routes("-4", 200).len()), (1, 0));
        hear(&mut main);
        assert_eq!(repairs(&main), Repairs::default());
    });
}

#[test]
fn a_sync_knows_what_others_removed_after_its_dump() {
    in_a_namespace(|| {
        drop(six_routes());
        let mut fib = main_table();
        fib.sync_begin().expect("netlink works");
        while fib.work(1000).expect("netlink works") {}
        ip("route del 20.0.1.0/24");
        hear(&mut fib);
        fib.define(Handle(7), &crate::tests::kernel::forward(&[via("fd00::2", "eth0")])).expect("netlink");
        add(&mut fib, "20.0.1.0/24", 7);
        finish(&mut fib);
        assert_eq!(kernel_routes("-4", 254), ["20.0.1.0/24 via inet6 fd00::2 dev eth0"]);
        assert_eq!(fib.report().counters.kept, 0);
    });
}
