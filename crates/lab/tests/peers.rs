//! What a router does between several peers, seen from its kernel, from its peers and from the operator's seat.
//!
//! Needs root (network namespaces) and BIRD and FRR from Debian.

use std::{net::IpAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::Attributes;
use holdfast_lab::{
    kernel,
    netns::Namespace,
    peers::{Bird, Frr},
    router::Router,
    speaker::Speaker,
    table::{Synthetic, Table},
    topology::{Side, Star, v4, v6},
    wait,
};
use holdfast_types::Prefix;

const LIMIT: Duration = Duration::from_secs(60);

fn configuration(rest: &str) -> String {
    format!("[router]\nid = \"10.0.0.1\"\nasn = 65000\n{rest}")
}

/// A peer in a network, with what else its section says.
fn peer(network: u8, asn: u32, rest: &str) -> String {
    let address = v4(network, Side::Second);
    format!("[[bgp.peer]]\nname = \"p{network}\"\naddress = \"{address}\"\nasn = {asn}\n{rest}\n")
}

const ACCEPT: &str = "import = \"accept-all\"\nexport = \"accept-all\"";

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn plain(prefixes: &[&str]) -> Arc<Table> {
    Arc::new(Table::plain(prefixes.iter().map(|text| prefix(text))))
}

fn speaker(star: &Star, network: u8, asn: u32, tables: Vec<Arc<Table>>) -> Result<Speaker> {
    let speaker = star.speaker(network, asn, |config| config.tables = tables)?;
    speaker.wait_established(LIMIT)?;
    Ok(speaker)
}

/// Waits until the kernel's route says this.
fn wait_kernel(host: &Namespace, destination: &str, says: &str) -> Result<()> {
    let v6 = destination.contains(':');
    wait::until(destination, LIMIT, || {
        let routes = kernel::routes(host, v6).map_err(|error| error.to_string())?;
        match routes.get(&prefix(destination)) {
            Some(route) if route.contains(says) => Ok(()),
            other => Err(format!("{other:?}, not {says:?}")),
        }
    })
}

fn wait_no_kernel_route(host: &Namespace, destination: &str) -> Result<()> {
    wait::until("no route", LIMIT, || {
        let routes = kernel::routes(host, destination.contains(':')).map_err(|error| error.to_string())?;
        routes.get(&prefix(destination)).map_or(Ok(()), |route| Err(route.clone()))
    })
}

/// Waits until the sink's route has this path.
fn wait_path(sink: &Speaker, destination: &str, path: &str) -> Result<()> {
    wait::until(destination, LIMIT, || {
        let route = sink.route(prefix(destination)).ok_or("no route")?;
        let seen = Attributes(&route.attributes).as_path().to_string();
        if seen == path { Ok(()) } else { Err(seen) }
    })
}

#[test]
fn the_preferred_of_two_paths_is_used_until_it_goes() -> Result<()> {
    let star = Star::new(3)?;
    let policy = "[[policy]]\nname = \"prefer\"\n[[policy.term]]\nthen = { local-preference = 200, action = \"accept\" }\n";
    let preferred = "import = \"prefer\"\nexport = \"accept-all\"";
    let peers = [peer(1, 65001, ACCEPT), peer(2, 65002, preferred), peer(3, 65003, ACCEPT)].concat();
    let router = Router::start(&star.router, &configuration(&(peers + policy)))?;
    let both = plain(&["198.51.100.0/24"]);
    let _first = speaker(&star, 1, 65001, vec![Arc::clone(&both)])?;
    let sink = speaker(&star, 3, 65003, Vec::new())?;
    wait_path(&sink, "198.51.100.0/24", "65000 65001")?;
    let second = speaker(&star, 2, 65002, vec![Arc::clone(&both)])?;
    wait_path(&sink, "198.51.100.0/24", "65000 65002")?;
    wait_kernel(&star.router, "198.51.100.0/24", "via 10.0.2.2")?;
    let shown = router.cli(&["show", "bgp", "route", "198.51.100.0/24"])?;
    ensure!(shown.contains("65001") && shown.to_lowercase().contains("local"), "why the other lost: {shown}");
    second.withdraw(both);
    wait_path(&sink, "198.51.100.0/24", "65000 65001")?;
    wait_kernel(&star.router, "198.51.100.0/24", "via 10.0.1.2")
}

#[test]
fn a_static_route_beats_bgp_and_a_better_distance_beats_a_static_route() -> Result<()> {
    let star = Star::new(1)?;
    let statics = "[rib.distance]\nstatic = 15\n[[static]]\nprefix = \"198.51.100.0/24\"\nblackhole = true\n";
    let router =
        Router::start(&star.router, &configuration(&(statics.to_owned() + &peer(1, 65001, ACCEPT))))?;
    let feeder = speaker(&star, 1, 65001, vec![plain(&["198.51.100.0/24", "203.0.113.0/24"])])?;
    wait_kernel(&star.router, "203.0.113.0/24", "via 10.0.1.2")?;
    let shown = router.show(&["route", "198.51.100.0/24"])?.to_string();
    ensure!(shown.contains("static") && shown.contains("bgp"), "both are shown: {shown}");
    let kernel = star.router.ip(&["route", "show", "198.51.100.0/24"])?;
    ensure!(kernel.starts_with("blackhole"), "the static route has distance 15, BGP 20: {kernel}");
    feeder.stop();
    wait_no_kernel_route(&star.router, "203.0.113.0/24")
}

#[test]
fn an_inner_next_hop_is_resolved_through_a_static_route_and_moves_with_it() -> Result<()> {
    let star = Star::new(1)?;
    let statics = "[[static]]\nprefix = \"192.0.2.0/24\"\nnext-hop = \"10.0.1.9\"\n";
    let text = configuration(&(statics.to_owned() + &peer(1, 65000, "")));
    let _router = Router::start(&star.router, &text)?;
    let far: IpAddr = "192.0.2.7".parse()?;
    let inner = star.speaker(1, 65000, |config| {
        config.tables = vec![plain(&["198.51.100.0/24"])];
        config.next_hop_v4 = far;
    })?;
    inner.wait_established(LIMIT)?;
    wait_kernel(&star.router, "198.51.100.0/24", "via 10.0.1.9")?;
    // Without a way to the next hop there is none to the route.
    star.router.ip(&["link", "set", "n1", "down"])?;
    wait_no_kernel_route(&star.router, "198.51.100.0/24")
}

#[test]
fn equal_paths_share_the_traffic() -> Result<()> {
    let star = Star::new(2)?;
    let text = format!("[bgp]\nmax-paths = 2\n{}{}", peer(1, 65001, ACCEPT), peer(2, 65001, ACCEPT));
    let _router = Router::start(&star.router, &configuration(&text))?;
    let table = plain(&["198.51.100.0/24"]);
    let _first = speaker(&star, 1, 65001, vec![Arc::clone(&table)])?;
    let second = speaker(&star, 2, 65001, vec![Arc::clone(&table)])?;
    wait::until("two next hops", LIMIT, || {
        let shown =
            star.router.ip(&["route", "show", "198.51.100.0/24"]).map_err(|error| error.to_string())?;
        let both = shown.contains("via 10.0.1.2") && shown.contains("via 10.0.2.2");
        if both { Ok(()) } else { Err(shown) }
    })?;
    second.withdraw(table);
    wait::until("one next hop", LIMIT, || {
        let shown =
            star.router.ip(&["route", "show", "198.51.100.0/24"]).map_err(|error| error.to_string())?;
        let one = shown.contains("via 10.0.1.2") && !shown.contains("via 10.0.2.2");
        if one { Ok(()) } else { Err(shown) }
    })
}

#[test]
fn without_a_policy_nothing_passes_to_or_from_another_as() -> Result<()> {
    let star = Star::new(2)?;
    let text = [peer(1, 65001, ACCEPT), peer(2, 65002, "")].concat();
    let router = Router::start(&star.router, &configuration(&text))?;
    let _accepted = speaker(&star, 1, 65001, vec![plain(&["198.51.100.0/24"])])?;
    let silent = speaker(&star, 2, 65002, vec![plain(&["203.0.113.0/24"])])?;
    wait_kernel(&star.router, "198.51.100.0/24", "via 10.0.1.2")?;
    wait::until("the other route is known and refused", LIMIT, || {
        let shown =
            router.cli(&["show", "bgp", "route", "203.0.113.0/24"]).map_err(|error| error.to_string())?;
        if shown.contains("no import policy") { Ok(()) } else { Err(shown) }
    })?;
    silent.wait_end_of_rib(holdfast_types::Family::IPV4_UNICAST, LIMIT)?;
    ensure!(silent.routes().is_empty(), "nothing is announced without an export policy");
    ensure!(!kernel::routes(&star.router, false)?.contains_key(&prefix("203.0.113.0/24")));
    Ok(())
}

#[test]
fn peers_that_flap_while_they_send_leave_the_right_routes() -> Result<()> {
    let star = Star::new(3)?;
    let text = [peer(1, 65001, ACCEPT), peer(2, 65002, ACCEPT), peer(3, 65003, ACCEPT)].concat();
    let _router = Router::start(&star.router, &configuration(&text))?;
    let tables = [1, 2].map(|seed| {
        let table = Synthetic { as_sets: false, ..Synthetic::ipv4(seed, 50_000) }.build();
        Arc::new(table)
    });
    let sink = speaker(&star, 3, 65003, Vec::new())?;
    let feeders = [
        speaker(&star, 1, 65001, vec![Arc::clone(&tables[0])])?,
        speaker(&star, 2, 65002, vec![Arc::clone(&tables[1])])?,
    ];
    for round in 0..6 {
        // In the middle of what it sends.
        wait::until("some routes", LIMIT, || match sink.status().routes {
            count if count >= 5_000 => Ok(()),
            count => Err(format!("{count} routes")),
        })?;
        feeders[round % 2].flap();
        feeders[round % 2].wait_established(LIMIT)?;
    }
    let mut expected: Vec<Prefix> = tables.iter().flat_map(|table| &table.routes).map(|(p, _)| *p).collect();
    expected.sort_unstable();
    expected.dedup();
    sink.wait_routes(expected.len(), LIMIT)?;
    ensure!(sink.routes().into_keys().eq(expected.iter().copied()), "other routes at the sink");
    wait::until("the kernel", LIMIT, || {
        let routes = kernel::routes(&star.router, false).map_err(|error| error.to_string())?;
        let same = routes.keys().eq(expected.iter());
        if same { Ok(()) } else { Err(format!("{} of {}", routes.len(), expected.len())) }
    })
}

#[test]
fn a_speaker_without_a_rib_announces_and_installs_nothing() -> Result<()> {
    let star = Star::new(2)?;
    let text = format!("[rib]\nenabled = false\n{}{}", peer(1, 65001, ACCEPT), peer(2, 65002, ACCEPT));
    let router = Router::start(&star.router, &configuration(&text))?;
    let _feeder = speaker(&star, 1, 65001, vec![plain(&["198.51.100.0/24"])])?;
    let sink = speaker(&star, 2, 65002, Vec::new())?;
    wait_path(&sink, "198.51.100.0/24", "65000 65001")?;
    ensure!(kernel::routes(&star.router, false)?.is_empty(), "no process speaks to the kernel");
    ensure!(router.pid("rib").is_err() && router.pid("fea").is_err(), "no rib and no fea");
    Ok(())
}

#[test]
fn a_peer_from_a_listen_range_is_taken_and_forgotten() -> Result<()> {
    let star = Star::new(1)?;
    let range =
        "[[bgp.peer]]\nname = \"guests\"\nlisten-range = \"10.0.1.0/24\"\nasn = [65001, \"65010-65019\"]\n";
    let router = Router::start(&star.router, &configuration(&format!("{range}{ACCEPT}\n")))?;
    let stranger = star.speaker(1, 65002, |config| config.reconnect = true)?;
    let guest = {
        stranger.stop();
        speaker(&star, 1, 65012, vec![plain(&["198.51.100.0/24"])])?
    };
    wait_kernel(&star.router, "198.51.100.0/24", "via 10.0.1.2")?;
    let shown = router.show(&["bgp", "neighbors"])?.to_string();
    ensure!(shown.contains("10.0.1.2") && shown.contains("65012"), "the guest is shown: {shown}");
    guest.stop();
    wait_no_kernel_route(&star.router, "198.51.100.0/24")?;
    wait::until("forgotten", LIMIT, || {
        let shown = router.show(&["bgp", "neighbors"]).map_err(|error| error.to_string())?.to_string();
        if shown.contains("65012") { Err(shown) } else { Ok(()) }
    })
}

/// BIRD in network 1 with further options of its session.
fn bird(star: &Star, options: &str) -> Result<Bird> {
    let (own, far) = (v4(1, Side::Second), v4(1, Side::First));
    Bird::start(
        star.neighbor(1),
        &format!(
            "router id {own};\nprotocol device {{}}\nprotocol static {{ ipv4; route 198.51.100.0/24 blackhole; }}\n\
             protocol bgp hf {{ local {own} as 65001; neighbor {far} as 65000; connect retry time 1; \
             error wait time 1, 2; {options} ipv4 {{ import all; export all; }}; }}\n"
        ),
    )
}

/// Whether a session of the summary is up.
fn is_up(summary: &str) -> bool {
    summary.contains("\"state\":\"Established\"")
}

fn wait_session(router: &Router, up: bool) -> Result<()> {
    wait::until("the session", LIMIT, || {
        let shown = router.show(&["bgp", "summary"]).map_err(|error| error.to_string())?.to_string();
        if is_up(&shown) == up { Ok(()) } else { Err(shown) }
    })
}

#[test]
fn a_session_with_md5_and_ttl_security_comes_up_and_says_why_it_ends() -> Result<()> {
    let star = Star::new(1)?;
    let guarded = format!("{ACCEPT}\nmd5 = \"open sesame\"\nttl-security = true");
    let router = Router::start(&star.router, &configuration(&peer(1, 65001, &guarded)))?;
    let bird = bird(&star, "password \"open sesame\"; ttl security yes;")?;
    wait_session(&router, true)?;
    wait_kernel(&star.router, "198.51.100.0/24", "via 10.0.1.2")?;
    router.cli(&["clear", "bgp", "p1"])?;
    wait::until("BIRD's log", LIMIT, || {
        let log = bird.log();
        if log.contains("Administrative reset") { Ok(()) } else { Err(log) }
    })?;
    wait_session(&router, true)?;
    router.stop()?;
    wait::until("BIRD's log", LIMIT, || {
        let log = bird.log();
        let said = log.contains("Administrative shutdown: \"Holdfast is stopped\"");
        if said { Ok(()) } else { Err(log) }
    })
}

/// A counter of the kernel in a host.
fn counter(host: &Namespace, name: &str) -> Result<u64> {
    let text = holdfast_lab::netns::output(host.command("nstat").args(["-a", "-z", "-s", name]))?;
    let line = text.lines().find(|line| line.starts_with(name)).context("no such counter")?;
    Ok(line.split_whitespace().nth(1).context("no number")?.parse()?)
}

#[test]
fn a_wrong_md5_key_keeps_the_session_down() -> Result<()> {
    let star = Star::new(1)?;
    let guarded = format!("{ACCEPT}\nmd5 = \"open sesame\"");
    let router = Router::start(&star.router, &configuration(&peer(1, 65001, &guarded)))?;
    let bird = bird(&star, "password \"open cesame\";")?;
    wait::until("refused segments", LIMIT, || match counter(&star.router, "TcpExtTCPMD5Failure") {
        Ok(count) if count > 3 => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    ensure!(!is_up(&router.show(&["bgp", "summary"])?.to_string()));
    ensure!(!bird.birdc("show protocols")?.contains("Established"));
    Ok(())
}

#[test]
fn without_full_ttl_a_peer_with_ttl_security_is_not_heard() -> Result<()> {
    let star = Star::new(1)?;
    let guarded = format!("{ACCEPT}\nttl-security = true");
    let router = Router::start(&star.router, &configuration(&peer(1, 65001, &guarded)))?;
    let bird = bird(&star, "multihop 3;")?;
    wait::until("refused segments", LIMIT, || match counter(&star.router, "TcpExtTCPMinTTLDrop") {
        Ok(count) if count > 0 => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    ensure!(!is_up(&router.show(&["bgp", "summary"])?.to_string()));
    ensure!(!bird.birdc("show protocols")?.contains("Established"));
    Ok(())
}

#[test]
fn ipv4_routes_pass_over_an_ipv6_session_with_ipv6_next_hops() -> Result<()> {
    let star = Star::new(1)?;
    let (far, own) = (v6(1, Side::Second), v6(1, Side::First));
    let text = format!(
        "[[bgp.peer]]\nname = \"frr\"\naddress = \"{far}\"\nasn = 65001\n\
         families = [\"ipv4-unicast\", \"ipv6-unicast\"]\n{ACCEPT}\n[[bgp.network]]\nprefix = \"203.0.113.0/24\"\n"
    );
    let _router = Router::start(&star.router, &configuration(&text))?;
    let frr = Frr::start(
        star.neighbor(1),
        &format!(
            "router bgp 65001\n bgp router-id 10.0.1.2\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
             neighbor {own} remote-as 65000\n neighbor {own} timers connect 1\n \
             neighbor {own} capability extended-nexthop\n \
             address-family ipv4 unicast\n  network 198.51.100.0/24\n  neighbor {own} activate\n exit-address-family\n \
             address-family ipv6 unicast\n  network 2001:db8:f::/48\n  neighbor {own} activate\n exit-address-family\n"
        ),
    )?;
    wait_kernel(&star.router, "2001:db8:f::/48", "dev n1")?;
    wait_kernel(&star.router, "198.51.100.0/24", "via inet6")?;
    wait::until("our network at FRR", LIMIT, || {
        let shown = frr.vtysh("show bgp ipv4 unicast 203.0.113.0/24").map_err(|error| error.to_string())?;
        if shown.contains(&own.to_string()) { Ok(()) } else { Err(shown) }
    })
}
