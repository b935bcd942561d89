//! Other programs that change the kernel's routes and next hops: ours are restored, theirs are not touched. The kernel, read
//! with `ip`, is the judge.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{kernel::Monitor, netns::Namespace, router::Router, wait};

const LIMIT: Duration = Duration::from_secs(20);
/// Within so long what others change is as it was.
const RESTORED: Duration = Duration::from_secs(1);

/// ```text
///  us: n1 10.0.1.1/24 fd00:1::1/64 ── far1     n2 10.0.2.1/24 fd00:2::1/64 ── far2
/// ```
fn host() -> Result<Namespace> {
    let us = Namespace::new("us")?;
    for number in ["1", "2"] {
        let (near, far) = (format!("n{number}"), format!("far{number}"));
        us.ip(&["link", "add", &near, "type", "veth", "peer", "name", &far])?;
        us.ip(&["link", "set", &far, "up"])?;
        us.ip(&["link", "set", &near, "up"])?;
        us.ip(&["address", "add", &format!("10.0.{number}.1/24"), "dev", &near])?;
        us.ip(&["address", "add", &format!("fd00:{number}::1/64"), "dev", &near, "nodad"])?;
    }
    // What `ip route flush` has read it can delete then.
    us.run(|| std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", "0"))??;
    Ok(us)
}

const ROUTES: [(&str, &str); 5] = [
    ("20.0.1.0/24", "next-hop = \"10.0.1.9\""),
    ("20.0.2.0/24", "next-hop = \"10.0.2.9\""),
    ("20.0.3.0/24", "blackhole = true"),
    ("2001:db8:1::/48", "next-hop = \"fd00:1::9\""),
    ("2001:db8:2::/48", "next-hop = \"fd00:2::9\""),
];

fn configuration(fea: &str, routes: &[(&str, &str)]) -> String {
    let statics = routes.iter().map(|(prefix, way)| format!("[[static]]\nprefix = \"{prefix}\"\n{way}\n"));
    let statics: String = statics.collect();
    format!("[router]\nid = \"10.0.0.1\"\nasn = 65000\n[bgp]\nport = 10179\n[fea]\n{fea}\n{statics}")
}

/// Our routes in a table and our next hops, in order, without the numbers of objects, which may be others.
fn ours(us: &Namespace, table: &str) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for family in ["-4", "-6"] {
        let shown = us.ip(&[family, "route", "show", "proto", "75", "table", table]);
        // Of a table that is not there `ip` says so, with an error.
        lines.extend(shown.unwrap_or_default().lines().map(without_numbers));
    }
    lines.extend(us.ip(&["nexthop", "show", "proto", "75"])?.lines().map(without_numbers));
    lines.sort();
    Ok(lines)
}

fn without_numbers(line: &str) -> String {
    let words = line.split_whitespace();
    let is_number =
        |word: &str| word.bytes().all(|octet| octet.is_ascii_digit() || octet == b'/') && word.len() >= 8;
    words.filter(|word| !is_number(word)).collect::<Vec<_>>().join(" ")
}

/// A router with the routes, all of which the kernel has, and what that is.
fn start(us: &Namespace, fea: &str, table: &str) -> Result<(Router, Vec<String>)> {
    let router = Router::start(us, &configuration(fea, &ROUTES))?;
    let before = wait::until("all routes", LIMIT, || {
        let ours = ours(us, table).map_err(|error| format!("{error:#}"))?;
        let routes = ours.iter().filter(|line| !line.starts_with("id")).count();
        // Two ways of each family, a group for each.
        if routes == 5 && ours.len() == 5 + 8 { Ok(ours) } else { Err(format!("{ours:#?}")) }
    })
    .with_context(|| router.log_tail())?;
    Ok((router, before))
}

fn until_ours(us: &Namespace, table: &str, wanted: &[String], what: &str) -> Result<()> {
    let start = Instant::now();
    wait::until(what, RESTORED, || {
        let ours = ours(us, table).map_err(|error| format!("{error:#}"))?;
        if ours == wanted { Ok(()) } else { Err(format!("{ours:#?}")) }
    })?;
    println!("{what}: {} ms", start.elapsed().as_millis());
    Ok(())
}

/// Numbers of our next hops: those of groups, or all.
fn numbers(us: &Namespace, groups: bool) -> Result<Vec<String>> {
    let shown = us.ip(&["nexthop", "show", "proto", "75"])?;
    let lines = shown.lines().filter(|line| !groups || line.contains("group"));
    Ok(lines.filter_map(|line| Some(line.split_whitespace().nth(1)?.to_owned())).collect())
}

#[test]
fn what_others_remove_or_replace_is_restored_within_a_second() -> Result<()> {
    let us = host()?;
    let (router, before) = start(&us, "", "main")?;
    let restored = |what: &str| until_ours(&us, "main", &before, what).with_context(|| router.log_tail());
    for command in [
        "route del 20.0.1.0/24",
        "-6 route del 2001:db8:1::/48",
        "route del blackhole 20.0.3.0/24",
        "route flush proto 75",
        "-6 route flush proto 75",
        "route replace 20.0.1.0/24 via 10.0.2.7 metric 20 proto static",
        "-6 route replace 2001:db8:1::/48 via fd00:2::7 metric 20 proto bird",
        "route replace 20.0.2.0/24 via 10.0.1.7 metric 20 proto 75",
        "nexthop flush proto 75",
        "nexthop flush dev n1",
    ] {
        us.ip(&command.split(' ').collect::<Vec<_>>())?;
        restored(command)?;
    }
    for groups in [true, false] {
        for number in numbers(&us, groups)? {
            // An object that was made again meanwhile has another number.
            _ = us.ip(&["nexthop", "del", "id", &number]);
            restored(&format!("nexthop del id {number}"))?;
        }
    }
    for (down, up) in [("n1", "n1"), ("far2", "far2")] {
        us.ip(&["link", "set", down, "down"])?;
        us.ip(&["link", "set", up, "up"])?;
        // IPv6 addresses go with a link that is set down.
        for number in ["1", "2"] {
            _ = us.ip(&[
                "address",
                "add",
                &format!("fd00:{number}::1/64"),
                "dev",
                &format!("n{number}"),
                "nodad",
            ]);
        }
        restored(&format!("{down} down and up"))?;
    }
    let counted = router.cli(&["show", "counters", "holdfast_fea_repairs"])?;
    for cause in ["removed", "replaced", "next-hops"] {
        let line = counted.lines().find(|line| line.contains(cause)).with_context(|| counted.clone())?;
        ensure!(!line.ends_with(" 0"), "{line}");
    }
    ensure!(router.log().contains("kernel-repaired"), "{}", router.log_tail());
    let compared = router.cli(&["call", "fea/fea.v1/Compare", "--json"])?;
    ensure!(compared.contains("comparisons"), "{compared}");
    restored("compared")?;
    router.stop()
}

#[test]
fn a_program_that_removes_a_route_again_and_again_is_left_to_it() -> Result<()> {
    let us = host()?;
    let (router, before) = start(&us, "", "main")?;
    for _ in 0..5 {
        us.ip(&["route", "del", "20.0.1.0/24"])?;
        until_ours(&us, "main", &before, "the route is back").with_context(|| router.log_tail())?;
    }
    us.ip(&["route", "del", "20.0.1.0/24"])?;
    wait::until("the log names the route", LIMIT, || {
        let log = router.log();
        let line = log.lines().find(|line| line.contains("route-contested"));
        if line.is_some_and(|line| line.contains("20.0.1.0/24")) { Ok(()) } else { Err(log) }
    })?;
    ensure!(us.ip(&["route", "show", "20.0.1.0/24"])?.is_empty());
    wait::until("`show route` does not call it installed", LIMIT, || {
        let shown = router.show(&["route", "20.0.1.0/24"]).map_err(|error| error.to_string())?;
        let route = &shown["20.0.1.0/24"][0];
        let is_right = route["failed"] == true && route["installed"].is_null();
        if is_right { Ok(()) } else { Err(shown.to_string()) }
    })?;
    // Others are restored all the same.
    us.ip(&["route", "del", "20.0.2.0/24"])?;
    wait::until("the other route", RESTORED, || {
        let shown = us.ip(&["route", "show", "20.0.2.0/24"]).map_err(|error| error.to_string())?;
        if shown.contains("proto 75") { Ok(()) } else { Err(shown) }
    })?;
    router.stop()
}

/// What others have, with our prefixes and our metric, and beside ours.
const THEIRS: [&str; 6] = [
    "route add 20.0.1.0/24 via 10.0.2.7 metric 20 proto bgp",
    "-6 route add 2001:db8:1::/48 via fd00:2::7 metric 20 proto bgp",
    "route add 20.0.2.0/24 via 10.0.1.7 metric 10 proto bgp",
    "route add 20.0.9.0/24 via 10.0.1.7 metric 20 proto bgp",
    "nexthop add id 17 via 10.0.1.7 dev n1 proto bgp",
    "nexthop add id 75000003 via 10.0.1.7 dev n1 proto bgp",
];

fn theirs(us: &Namespace) -> Result<String> {
    let routes =
        [us.ip(&["route", "show", "proto", "bgp"])?, us.ip(&["-6", "route", "show", "proto", "bgp"])?];
    Ok(routes.concat() + &us.ip(&["nexthop", "show", "proto", "186"])?)
}

#[test]
fn routes_and_next_hops_of_others_are_not_touched() -> Result<()> {
    let us = host()?;
    for command in THEIRS {
        us.ip(&command.split(' ').collect::<Vec<_>>())?;
    }
    let before = theirs(&us)?;
    let monitor = Monitor::start_for(&us, "proto bgp")?;
    let router = Router::start(&us, &configuration("", &ROUTES))?;
    let until_routes = |count: usize| {
        wait::until("our routes", LIMIT, || {
            let ours = ours(&us, "main").map_err(|error| format!("{error:#}"))?;
            let routes = ours.iter().filter(|line| !line.starts_with("id")).count();
            if routes == count { Ok(()) } else { Err(format!("{ours:#?}")) }
        })
        .with_context(|| router.log_tail())
    };
    until_routes(3)?;
    for prefix in ["20.0.1.0/24", "2001:db8:1::/48"] {
        wait::until("`show route` says that another program has the route", LIMIT, || {
            let shown = router.show(&["route", prefix]).map_err(|error| error.to_string())?;
            let route = &shown[prefix][0];
            let is_right = route["failed"] == true && route["installed"].is_null();
            if is_right { Ok(()) } else { Err(shown.to_string()) }
        })?;
    }
    for process in ["fea", "rib", "manager", "bgp"] {
        router.kill(process)?;
        router.wait_running()?;
        until_routes(3)?;
    }
    std::fs::write(router.configuration(), configuration("", &ROUTES[2..3]))?;
    router.cli(&["reload"])?;
    until_routes(1)?;
    std::fs::write(router.configuration(), configuration("metric = 30", &ROUTES))?;
    router.cli(&["reload"])?;
    until_routes(5)?;
    router.stop()?;
    ensure!(ours(&us, "main")?.is_empty());
    let changes = monitor.changes()?;
    ensure!(changes.deleted.is_empty() && changes.written.is_empty(), "touched: {changes:?}");
    ensure!(theirs(&us)? == before);
    Ok(())
}

#[test]
fn two_routers_with_different_tables_leave_each_other_alone() -> Result<()> {
    let us = host()?;
    let (first, before) = start(&us, "", "main")?;
    let monitor = Monitor::start_for(&us, "nhid 75")?;
    let (second, _) = {
        let router = Router::start(&us, &configuration("table = 200", &ROUTES).replace("10179", "10180"))?;
        let routes = wait::until("the second router's routes", LIMIT, || {
            let shown = us.ip(&["route", "show", "table", "200"]).map_err(|error| error.to_string())?;
            if shown.lines().count() == 3 { Ok(shown) } else { Err(shown) }
        })
        .with_context(|| router.log_tail())?;
        (router, routes)
    };
    second.kill("fea")?;
    second.wait_running()?;
    second.stop()?;
    until_ours(&us, "main", &before, "the first router has all")?;
    let changes = monitor.changes()?;
    ensure!(changes.deleted.is_empty() && changes.written.is_empty(), "touched: {changes:?}");
    first.stop()
}
