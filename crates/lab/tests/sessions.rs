//! How sessions come up, stay and end, with stock routers and with peers that behave badly.
//!
//! ```text
//!  BIRD, FRR or a speaker of the lab ──1── Holdfast ──2── another
//!  AS 65001                                AS 65000       AS 65002
//! ```

use std::{
    fs,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::Attributes;
use holdfast_lab::{
    kernel,
    netns::Namespace,
    peers::{Bird, Frr},
    router::Router,
    speaker::Speaker,
    table::{Synthetic, Table},
    topology::{ROUTER, Star},
    wait,
};
use holdfast_types::{Family, Prefix};
use serde_json::Value;

const US: u32 = 65000;
const PEER: u32 = 65001;
const OTHER: u32 = 65002;

const LIMIT: Duration = Duration::from_secs(30);

/// A peer in network 1 or 2 that lets everything pass, with the keys of `more` besides.
fn peer(name: &str, network: u8, asn: u32, more: &str) -> String {
    format!(
        "[[bgp.peer]]\nname = \"{name}\"\naddress = \"10.0.{network}.2\"\nasn = {asn}
         import = \"accept-all\"\nexport = \"accept-all\"\n{more}\n"
    )
}

fn router(star: &Star, rest: &[&str]) -> Result<Router> {
    Router::start(&star.router, &[&[ROUTER], rest].concat().concat())
}

/// BIRD in network 1 with a route, and these lines about its session.
fn bird(star: &Star, asn: u32, session: &str) -> Result<Bird> {
    star.bird(1, asn, &["198.51.100.0/24"], session)
}

/// Until what the router says of a peer is as wanted.
fn until_shown(router: &Router, name: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    router.until_neighbor(name, LIMIT, wanted)
}

fn until_established(router: &Router, name: &str) -> Result<Value> {
    router.until_established(name, LIMIT)
}

/// Until the peer's log has all these words in one line.
fn until_logged(bird: &Bird, words: &[&str]) -> Result<()> {
    wait::until("BIRD's log", LIMIT, || {
        let log = bird.log();
        let found = log.lines().any(|line| words.iter().all(|word| line.contains(word)));
        if found { Ok(()) } else { Err(log) }
    })
}

fn until_log(router: &Router, words: &[&str]) -> Result<()> {
    wait::until("the router's log", LIMIT, || {
        let log = router.log();
        let found = log.lines().any(|line| words.iter().all(|word| line.contains(word)));
        if found { Ok(()) } else { Err(format!("no line with {words:?}; {}", router.log_tail())) }
    })
}

/// Until the kernel has counted something in a host, by its name in `/proc/net/netstat`.
fn until_counted(host: &Namespace, name: &'static str) -> Result<()> {
    wait::until(name, LIMIT, || {
        let text = host.run(|| fs::read_to_string("/proc/thread-self/net/netstat"));
        let text = text.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
        let (names, counts) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let count = names.split(' ').zip(counts.split(' ')).find(|(other, _)| *other == name);
        match count.ok_or("no such counter")? {
            (_, "0") => Err("0".to_owned()),
            _ => Ok(()),
        }
    })
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn until_kernel(host: &Namespace, wanted: &str, way: &str) -> Result<()> {
    let wanted = prefix(wanted);
    wait::until("the kernel's route", LIMIT, || {
        let routes =
            kernel::routes(host, matches!(wanted, Prefix::V6(_))).map_err(|error| error.to_string())?;
        let right = routes.get(&wanted).is_some_and(|line| line.contains(way));
        if right { Ok(()) } else { Err(format!("{routes:?}")) }
    })
}

#[test]
fn either_side_may_be_the_one_that_waits() -> Result<()> {
    for (ours, theirs, direction) in [("passive = true", "", "incoming"), ("", "passive;", "outgoing")] {
        let star = Star::new(1)?;
        let router = router(&star, &[&peer("bird", 1, PEER, ours)])?;
        let _bird = bird(&star, PEER, theirs)?;
        until_established(&router, "bird")?;
        until_log(&router, &["session up", direction])?;
        until_kernel(&star.router, "198.51.100.0/24", "via 10.0.1.2 dev n1 ")?;
    }
    Ok(())
}

#[test]
fn of_two_connections_at_once_one_stays() -> Result<()> {
    let star = Star::new(1)?;
    let router = router(&star, &[&peer("bird", 1, PEER, "")])?;
    let bird = bird(&star, PEER, "")?;
    for round in 1..=5 {
        let shown = until_shown(&router, "bird", |shown| {
            shown["bgpState"] == "Established" && shown["connectionsEstablished"] == round
        })?;
        ensure!(shown["addressFamilyInfo"]["ipv4Unicast"].is_object(), "{shown}");
        wait::until("BIRD's side", LIMIT, || {
            let state = bird.birdc("show protocols holdfast").map_err(|error| error.to_string())?;
            if state.contains("Established") { Ok(()) } else { Err(state) }
        })?;
        // Both sides try again at the same time.
        router.cli(&["clear", "bgp", "bird"])?;
    }
    until_established(&router, "bird")?;
    Ok(())
}

#[test]
fn a_range_takes_whoever_belongs_there_and_forgets_those_who_left() -> Result<()> {
    let star = Star::new(2)?;
    let range = "[[bgp.peer]]\nname = \"lab\"\nlisten-range = \"10.0.1.0/24\"\nasn = [65001, \"65010-65019\"]
        import = \"accept-all\"\nexport = \"accept-all\"\n";
    let router = router(&star, &[range])?;
    let second: IpAddr = "10.0.1.3".parse()?;
    star.neighbor(1).ip(&["address", "add", "10.0.1.3/24", "dev", "n1"])?;
    let first = star.speaker(1, PEER, |config| {
        config.tables = vec![Arc::new(Table::plain([prefix("203.0.113.0/24")]))];
    })?;
    let other = star.speaker(1, 65015, |config| config.local = second)?;
    other.wait_routes(1, LIMIT)?;
    until_established(&router, "lab:10.0.1.2")?;
    let shown = until_established(&router, "lab:10.0.1.3")?;
    ensure!(shown["dynamicPeer"] == true && shown["remoteAs"] == 65015, "{shown}");

    // In the range, of an AS that is not; of the AS, not in the range.
    star.neighbor(1).ip(&["address", "add", "10.0.1.4/24", "dev", "n1"])?;
    let fourth: IpAddr = "10.0.1.4".parse()?;
    let wrong = star.speaker(1, 65020, |config| config.local = fourth)?;
    let stranger = star.speaker(2, PEER, |_| ())?;
    wait::until("both refused", LIMIT, || {
        let (wrong, stranger) = (wrong.status(), stranger.status());
        let refused = wrong.notification.as_ref().map(|last| (last.code, last.subcode)) == Some((2, 2));
        if refused && stranger.ended.is_some() { Ok(()) } else { Err(format!("{wrong:?} {stranger:?}")) }
    })?;
    ensure!((wrong.status().sessions, stranger.status().sessions) == (0, 0));

    drop(first);
    other.wait_routes(0, LIMIT)?;
    wait::until("the end of the peer", LIMIT, || match shown_names(&router) {
        Ok(names) if names == ["lab:10.0.1.3"] => Ok(()),
        other => Err(format!("{other:?}")),
    })
}

/// All peers but those that are just being refused.
fn shown_names(router: &Router) -> Result<Vec<String>> {
    let shown = router.show(&["bgp", "neighbors"])?;
    let all = shown.as_object().context("peers")?.values();
    let established = all.filter(|peer| peer["bgpState"] == "Established");
    Ok(established.filter_map(|peer| peer["name"].as_str().map(str::to_owned)).collect())
}

#[test]
fn with_tcp_md5_both_need_the_same_key() -> Result<()> {
    let key = "md5 = \"secret\"";
    let cases = [
        ("passive = true", "password \"secret\";", None),
        ("", "password \"secret\"; passive;", None),
        ("passive = true", "password \"wrong\";", Some("TCPMD5Failure")),
        ("", "password \"wrong\"; passive;", Some("TCPMD5Failure")),
        ("passive = true", "", Some("TCPMD5NotFound")),
    ];
    for (ours, theirs, refused) in cases {
        let star = Star::new(1)?;
        let router = router(&star, &[&peer("bird", 1, PEER, &format!("{key}\n{ours}"))])?;
        let _bird = bird(&star, PEER, theirs)?;
        match refused {
            None => drop(until_established(&router, "bird")?),
            Some(counter) => {
                let counts_at = if ours.is_empty() { star.neighbor(1) } else { &star.router };
                until_counted(counts_at, counter)?;
                ensure!(router.neighbor("bird")?["connectionsEstablished"] == 0);
            }
        }
        ensure!(!router.log().contains("secret"), "a key is not logged");
    }
    Ok(())
}

#[test]
fn with_ttl_security_a_peer_has_to_be_one_hop_away() -> Result<()> {
    for ours in ["passive = true", ""] {
        for theirs in ["on", "off"] {
            let star = Star::new(1)?;
            let router = router(&star, &[&peer("bird", 1, PEER, &format!("ttl-security = true\n{ours}"))])?;
            let side = if ours.is_empty() { "passive;" } else { "" };
            let _bird = bird(&star, PEER, &format!("ttl security {theirs}; {side}"))?;
            if theirs == "on" {
                until_established(&router, "bird")?;
            } else {
                // What comes to a listener is dropped by its filter, what answers us by the minimum of the socket.
                match ours {
                    "" => until_counted(&star.router, "TCPMinTTLDrop")?,
                    _ => until_dropped(&router)?,
                }
                ensure!(router.neighbor("bird")?["connectionsEstablished"] == 0);
            }
        }
    }
    Ok(())
}

/// Waits until the kernel has dropped what came to the listener of TCP.
fn until_dropped(router: &Router) -> Result<()> {
    wait::until("a drop", LIMIT, || {
        let shown = router.show(&["listeners"]).map_err(|error| error.to_string())?;
        let has_dropped = |listener: &Value| listener["kernelDrops"].as_u64() >= Some(1);
        let listeners = shown["listeners"].as_array();
        if listeners.is_some_and(|all| all.iter().any(has_dropped)) { Ok(()) } else { Err(shown.to_string()) }
    })
}

#[test]
fn a_silent_peer_is_given_up_after_the_hold_time() -> Result<()> {
    let star = Star::new(1)?;
    let router = router(&star, &[&peer("bird", 1, PEER, "hold-time = 3")])?;
    let bird = bird(&star, PEER, "")?;
    until_kernel(&star.router, "198.51.100.0/24", "via 10.0.1.2 dev n1 ")?;
    ensure!(until_established(&router, "bird")?["bgpTimerHoldTimeMsecs"] == 3000);
    let silent = Instant::now();
    bird.pause()?;
    let ended = until_shown(&router, "bird", |shown| shown["bgpState"] != "Established");
    let after = silent.elapsed();
    // The last KEEPALIVE may be as old as the time between two.
    ensure!(Duration::from_millis(1500) < after && after < Duration::from_secs(6), "{after:?}");
    wait::until("an empty kernel", LIMIT, || {
        let routes = kernel::routes(&star.router, false).map_err(|error| error.to_string())?;
        if routes.is_empty() { Ok(()) } else { Err(format!("{routes:?}")) }
    })?;
    bird.resume()?;
    until_logged(&bird, &["Received", "Hold timer expired"])?;
    until_log(&router, &["session down", "Hold Timer Expired"])?;
    until_established(&router, "bird")?;
    drop(ended?);
    Ok(())
}

#[test]
fn the_other_side_reads_why_a_session_ended() -> Result<()> {
    let star = Star::new(1)?;
    let router = router(&star, &[&peer("bird", 1, PEER, "")])?;
    let bird = bird(&star, PEER, "")?;
    until_established(&router, "bird")?;
    router.cli(&["clear", "bgp", "bird"])?;
    until_logged(&bird, &["Received", "Administrative reset", "cleared by the operator"])?;
    until_shown(&router, "bird", |shown| {
        shown["bgpState"] == "Established" && shown["connectionsEstablished"] == 2
    })?;
    bird.birdc("disable holdfast \"work on the line\"")?;
    let shown = until_shown(&router, "bird", |shown| shown["bgpState"] != "Established")?;
    let why = shown["lastResetDueTo"].as_str().unwrap_or_default();
    ensure!(why.contains("work on the line"), "{shown}");
    bird.birdc("enable holdfast")?;
    until_established(&router, "bird")?;
    router.stop()?;
    until_logged(&bird, &["Received", "Administrative shutdown"])
}

#[test]
fn a_peer_of_another_as_is_told_so() -> Result<()> {
    let star = Star::new(1)?;
    let router = router(&star, &[&peer("bird", 1, PEER, "")])?;
    let bird = bird(&star, 65009, "")?;
    until_logged(&bird, &["Received", "Bad peer AS"])?;
    let shown = until_shown(&router, "bird", |shown| shown["lastError"].is_string())?;
    ensure!(shown["connectionsEstablished"] == 0, "{shown}");
    until_log(&router, &["failed to come up", "Bad Peer AS"])
}

#[test]
fn routes_of_both_families_over_ipv6_with_bird() -> Result<()> {
    let star = Star::new(2)?;
    let over_ipv6 = "[[bgp.peer]]\nname = \"bird\"\naddress = \"2001:db8:1::2\"\nasn = 65001
        families = [\"ipv4-unicast\", \"ipv6-unicast\"]\nimport = \"accept-all\"\nexport = \"accept-all\"\n";
    let router = router(&star, &[over_ipv6, &peer("other", 2, OTHER, "passive = true")])?;
    let other = star.speaker(2, OTHER, |config| {
        config.tables = vec![Arc::new(Table::plain([prefix("203.0.113.0/24")]))];
    })?;
    let bird = Bird::start(
        star.neighbor(1),
        &format!(
            "router id 10.0.1.2;
            protocol device {{ }}
            protocol static {{ ipv4; route 198.51.100.0/24 blackhole; }}
            protocol static {{ ipv6; route 2001:db8:a::/48 blackhole; }}
            protocol bgp holdfast {{
              local 2001:db8:1::2 as {PEER}; neighbor 2001:db8:1::1 as {US}; connect delay time 1;
              ipv4 {{ import all; export all; extended next hop; }};
              ipv6 {{ import all; export all; }};
            }}"
        ),
    )?;
    until_established(&router, "bird")?;
    // RFC 8950: an IPv4 route by way of an IPv6 address, in the kernel too.
    until_kernel(&star.router, "198.51.100.0/24", "via inet6 2001:db8:1::2 dev n1 ")?;
    until_kernel(&star.router, "2001:db8:a::/48", "via 2001:db8:1::2 dev n1 ")?;
    other.wait_routes(1, LIMIT)?;
    let route = other.route(prefix("198.51.100.0/24")).context("BIRD's route")?;
    ensure!(Attributes(&route.attributes).next_hop() == Some("10.0.2.1".parse()?));
    wait::until("the way back", LIMIT, || {
        let shown = bird.birdc("show route 203.0.113.0/24 all").map_err(|error| error.to_string())?;
        let right = shown.contains("via 2001:db8:1::1") && shown.contains("as_path: 65000 65002");
        if right { Ok(()) } else { Err(shown) }
    })
}

#[test]
fn ipv4_routes_over_ipv6_with_frr() -> Result<()> {
    let star = Star::new(1)?;
    let over_ipv6 = "[[bgp.peer]]\nname = \"frr\"\naddress = \"2001:db8:1::2\"\nasn = 65001
        families = [\"ipv4-unicast\"]\nimport = \"accept-all\"\nexport = \"accept-all\"
        [[bgp.network]]\nprefix = \"203.0.113.0/24\"\n";
    let router = router(&star, &[over_ipv6])?;
    let frr = Frr::start(
        star.neighbor(1),
        &format!(
            "router bgp {PEER}
             bgp router-id 10.0.1.2
             no bgp ebgp-requires-policy
             no bgp network import-check
             neighbor 2001:db8:1::1 remote-as {US}
             neighbor 2001:db8:1::1 timers connect 1
             neighbor 2001:db8:1::1 capability extended-nexthop
             address-family ipv4 unicast
              neighbor 2001:db8:1::1 activate
              network 198.51.100.0/24
             exit-address-family\n"
        ),
    )?;
    until_established(&router, "frr")?;
    until_kernel(&star.router, "198.51.100.0/24", "via inet6 2001:db8:1::2 dev n1 ")?;
    wait::until("the way back", LIMIT, || {
        let shown = frr.vtysh("show bgp ipv4 unicast 203.0.113.0/24").map_err(|error| error.to_string())?;
        if shown.contains("2001:db8:1::1") { Ok(()) } else { Err(shown) }
    })
}

#[test]
fn without_a_rib_routes_are_selected_and_announced_only() -> Result<()> {
    let star = Star::new(2)?;
    let peers = [peer("bird", 1, PEER, "ttl-security = true"), peer("other", 2, OTHER, "passive = true")];
    let router = router(&star, &[&peers.concat(), "[rib]\nenabled = false\n"])?;
    let other = star.speaker(2, OTHER, |_| ())?;
    let _bird = bird(&star, PEER, "ttl security on;")?;
    other.wait_routes(1, LIMIT)?;
    let processes = router.show(&["processes"])?;
    let mut names: Vec<_> = processes.as_object().context("processes")?.keys().collect();
    names.sort();
    ensure!(names == ["bgp", "keeper", "manager", "transport"], "{names:?}");
    ensure!(kernel::routes(&star.router, false)?.is_empty());
    Ok(())
}

#[test]
fn without_a_backend_routes_are_resolved_and_installed_nowhere() -> Result<()> {
    let star = Star::new(2)?;
    let peers = [peer("bird", 1, PEER, ""), peer("other", 2, OTHER, "passive = true")];
    let router = router(&star, &[&peers.concat(), "[fea]\nbackend = \"none\"\n"])?;
    let other = star.speaker(2, OTHER, |_| ())?;
    let _bird = bird(&star, PEER, "")?;
    other.wait_routes(1, LIMIT)?;
    let route = other.routes().keys().next().context("no route")?.to_string();
    wait::until("the route in the rib", LIMIT, || {
        let shown = router.cli(&["show", "route", &route]).map_err(|error| error.to_string())?;
        if shown.contains(&route) { Ok(()) } else { Err(shown) }
    })?;
    let status = router.cli(&["call", "finder://fea/fea.v1/ShowStatus"])?;
    ensure!(!status.contains("routes:u64"), "the fea was told routes: {status}");
    ensure!(kernel::routes(&star.router, false)?.is_empty());
    Ok(())
}

/// A generated table of IPv4 routes.
fn table(routes: usize) -> Arc<Table> {
    Arc::new(Synthetic::ipv4(3, routes).build())
}

/// Until the kernel's routes are exactly those of a table.
fn until_installed(host: &Namespace, table: &Table) -> Result<()> {
    let mut expected: Vec<_> = table.routes.iter().map(|(prefix, _)| *prefix).collect();
    expected.sort_unstable();
    wait::until("the table in the kernel", LIMIT, || {
        let routes = kernel::routes(host, false).map_err(|error| error.to_string())?;
        if routes.keys().eq(&expected) { Ok(()) } else { Err(format!("{} routes", routes.len())) }
    })
}

#[test]
fn a_peer_that_flaps_while_its_table_is_loaded_leaves_no_trace() -> Result<()> {
    const ROUTES: usize = 200_000;
    let star = Star::new(2)?;
    let peers = [peer("feeder", 1, PEER, "passive = true"), peer("other", 2, OTHER, "passive = true")];
    let router = router(&star, &[&peers.concat()])?;
    let other = star.speaker(2, OTHER, |_| ())?;
    let table = table(ROUTES);
    let feeder = star.speaker(1, PEER, |config| config.tables = vec![Arc::clone(&table)])?;
    for round in 1..=4 {
        feeder.wait_established(LIMIT)?;
        let before = other.status().announced;
        wait::until("a part of the table", LIMIT, || {
            // What was not withdrawn before it came again is told to nobody.
            let (more, held) = (other.status().announced - before, other.status().routes);
            let is_part = more >= ROUTES as u64 / 5 * round || held == ROUTES;
            if is_part { Ok(()) } else { Err(format!("{more} more routes, {held} in all")) }
        })?;
        feeder.flap();
    }
    other.wait_routes(ROUTES, LIMIT)?;
    until_installed(&star.router, &table)?;
    ensure!(other.status().sessions == 1 && feeder.status().sessions >= 5, "{:?}", feeder.status());
    let path = format!("{US} {PEER} ");
    let strange = other
        .routes()
        .into_iter()
        .find(|(_, route)| !Attributes(&route.attributes).as_path().to_string().starts_with(&path));
    ensure!(strange.is_none(), "{strange:?}");
    ensure!(!router.log().contains("is not defined"), "{}", router.log_tail());
    drop(feeder);
    other.wait_routes(0, LIMIT)?;
    until_installed(&star.router, &Table::default())
}

#[test]
fn a_slow_reader_holds_nobody_up_and_costs_little() -> Result<()> {
    const ROUTES: usize = 300_000;
    let star = Star::new(3)?;
    let peers = [
        peer("feeder", 1, PEER, "passive = true"),
        peer("other", 2, OTHER, "passive = true"),
        "[[bgp.peer]]\nname = \"slow\"\naddress = \"10.0.3.2\"\nasn = 65003\npassive = true
         import = \"accept-all\"\nexport = \"accept-all\"\n"
            .to_owned(),
    ];
    let router = router(&star, &[&peers.concat()])?;
    let other = star.speaker(2, OTHER, |_| ())?;
    let slow = star.speaker(3, 65003, |config| {
        (config.read_rate, config.receive_buffer) = (Some(20_000), Some(4096));
    })?;
    for speaker in [&other, &slow] {
        speaker.wait_established(LIMIT)?;
    }
    let table = table(ROUTES);
    let _feeder = star.speaker(1, PEER, |config| config.tables = vec![Arc::clone(&table)])?;
    other.wait_routes(ROUTES, LIMIT)?;
    until_installed(&star.router, &table)?;
    let (held_by_slow, with_slow) = (slow.status().routes, router.memory("bgp")?);
    ensure!(held_by_slow < ROUTES / 2, "it was not slow: {held_by_slow} routes");
    slow.set_read_rate(None);
    slow.wait_routes(ROUTES, LIMIT)?;
    ensure!((slow.status().sessions, other.status().sessions) == (1, 1));
    let without = router.memory("bgp")?;
    println!("  bgp with a slow reader {} KiB, without {} KiB", with_slow >> 10, without >> 10);
    // The log of changes is bounded: 2^18 of 24 octets. Messages are not made before they can be sent.
    ensure!(with_slow < without + (7 << 20), "what it has not read must be kept in the log only");
    same(&slow, &other)
}

/// Both have been told the same.
fn same(a: &Speaker, b: &Speaker) -> Result<()> {
    let (a, b) = (a.routes(), b.routes());
    let different = a.iter().find(|(prefix, route)| {
        b.get(prefix).is_none_or(|other| {
            let path = |bytes: &[u8]| Attributes(bytes).as_path().to_string();
            path(&other.attributes) != path(&route.attributes)
        })
    });
    ensure!(a.len() == b.len() && different.is_none(), "{different:?}");
    Ok(())
}

#[test]
fn a_family_that_only_one_side_has_is_left_out() -> Result<()> {
    let star = Star::new(2)?;
    let both = "families = [\"ipv4-unicast\", \"ipv6-unicast\"]\nnext-hop-ipv6 = \"2001:db8:1::1\"";
    let peers = [peer("bird", 1, PEER, both), peer("other", 2, OTHER, "passive = true")];
    let router = router(&star, &[&peers.concat()])?;
    let _bird = bird(&star, PEER, "")?;
    let other = star.speaker(2, OTHER, |_| ())?;
    other.wait_routes(1, LIMIT)?;
    other.wait_end_of_rib(Family::IPV4_UNICAST, LIMIT)?;
    let shown = until_established(&router, "bird")?;
    let offered = &shown["neighborCapabilities"]["multiprotocolExtensions"];
    ensure!(offered["ipv4Unicast"]["advertisedAndReceived"] == true, "{offered}");
    ensure!(offered["ipv6Unicast"]["advertised"] == true, "{offered}");
    ensure!(shown["addressFamilyInfo"]["ipv6Unicast"]["endOfRibSend"] == false, "{shown}");
    Ok(())
}

/// One of two routers of ours with a session between them, of which some lines are another.
struct Ours<'a> {
    number: u8,
    host: &'a Namespace,
    router: Router,
}

impl<'a> Ours<'a> {
    fn start(number: u8, host: &'a Namespace, lines: &str) -> Result<Self> {
        Ok(Self { number, host, router: Router::start(host, &configuration(number, lines, 0))? })
    }

    /// It takes other lines, and originates another prefix: that is how the other one hears of it.
    fn takes(&self, lines: &str, step: u8) -> Result<()> {
        let said =
            self.router.reload_with_files(&configuration(self.number, lines, step), &Default::default())?;
        ensure!(!said.contains("sessions ended"), "{said}");
        Ok(())
    }

    /// Until what the other one originates now is here, over the session that has been there from the beginning.
    fn hears(&self, step: u8) -> Result<()> {
        let other = 3 - self.number;
        until_kernel(self.host, &format!("20.{other}.{step}.0/24"), &format!("10.0.1.{other}"))?;
        let shown = self.router.neighbor("other")?;
        ensure!(shown["connectionsEstablished"] == 1, "{shown}");
        Ok(())
    }
}

fn configuration(number: u8, lines: &str, step: u8) -> String {
    let other = 3 - number;
    let (asn, other_asn) = (US - 1 + u32::from(number), US - 1 + u32::from(other));
    format!(
        "[router]\nid = \"10.0.1.{number}\"\nasn = {asn}\n[bgp]\nhold-time = 9\n\
         [[bgp.network]]\nprefix = \"20.{number}.{step}.0/24\"\n\
         [[bgp.peer]]\nname = \"other\"\naddress = \"10.0.1.{other}\"\nasn = {other_asn}\n\
         import = \"accept-all\"\nexport = \"accept-all\"\n{lines}\n"
    )
}

/// A key or TTL is of the socket: it is set on that of the session, at one end and then at the other.
#[test]
fn another_key_or_ttl_ends_no_session() -> Result<()> {
    let star = Star::new(1)?;
    let first = Ours::start(1, &star.router, "")?;
    let second = Ours::start(2, star.neighbor(1), "passive = true")?;
    first.hears(0)?;
    second.hears(0)?;
    let steps = [
        ("md5 = \"first\"", Some("TCPMD5Unexpected")),
        ("md5 = \"second\"", Some("TCPMD5Failure")),
        ("md5 = \"second\"\nttl-security = true", None),
        ("md5 = \"third\"\nmultihop = 3", Some("TCPMD5Failure")),
        ("", Some("TCPMD5NotFound")),
    ];
    for (step, (lines, refused)) in (1..).zip(steps) {
        first.takes(lines, step)?;
        // The other one has what there was before, and takes nothing of this one.
        if let Some(counter) = refused {
            until_counted(second.host, counter)?;
        }
        second.takes(&format!("passive = true\n{lines}"), step)?;
        first.hears(step).with_context(|| lines.to_owned())?;
        second.hears(step).with_context(|| lines.to_owned())?;
    }
    // Longer than the hold time.
    std::thread::sleep(Duration::from_secs(12));
    for ours in [&first, &second] {
        let shown = ours.router.neighbor("other")?;
        ensure!(shown["connectionsEstablished"] == 1 && shown["bgpState"] == "Established", "{shown}");
        ensure!(!ours.router.log().contains("refit-failed"), "{}", ours.router.log_tail());
    }
    Ok(())
}

/// A peer is known by where it is: its name, and that of a range, is for people.
#[test]
fn another_name_ends_no_session() -> Result<()> {
    let star = Star::new(2)?;
    let range = |name: &str| {
        format!(
            "[[bgp.peer]]\nname = \"{name}\"\nlisten-range = \"10.0.2.0/24\"\nasn = {OTHER}\n\
             import = \"accept-all\"\nexport = \"accept-all\"\n"
        )
    };
    let configuration = |one: &str, all: &str| [ROUTER, &peer(one, 1, PEER, ""), &range(all)].concat();
    let router = Router::start(&star.router, &configuration("first", "guests"))?;
    let debug = "debug { events };";
    let birds = [bird(&star, PEER, debug)?, star.bird(2, OTHER, &["203.0.113.0/24"], debug)?];
    until_established(&router, "first")?;
    until_established(&router, "guests:10.0.2.2")?;
    wait::until("a route of the range", LIMIT, || {
        let shown = router.show(&["bgp", "routes"]).map_err(|error| error.to_string())?.to_string();
        if shown.contains("guests:10.0.2.2") { Ok(()) } else { Err(shown) }
    })?;

    let said = router.reload_with_files(&configuration("one", "others"), &Default::default())?;
    ensure!(!said.contains("sessions ended"), "{said}");
    for name in ["one", "others:10.0.2.2"] {
        let shown = router.neighbor(name)?;
        ensure!(shown["bgpState"] == "Established" && shown["connectionsEstablished"] == 1, "{shown}");
    }
    ensure!(router.neighbor("first").is_err(), "the old name means nobody");
    let shown = router.show(&["bgp", "routes"])?.to_string();
    ensure!(shown.contains("others:10.0.2.2") && !shown.contains("guests"), "{shown}");
    for bird in &birds {
        ensure!(bird.sessions()? == 1, "BIRD has seen nothing of it: {}", bird.log());
    }
    Ok(())
}
