//! Which path may go where, with BIRD in network 1 and FRR in network 2 as judges.
//!
//! ```text
//!  BIRD ──1── Holdfast ──2── FRR
//! ```

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_lab::{
    kernel,
    peers::{Bird, Frr},
    router::Router,
    table::{AttributeSet, Table},
    topology::{ROUTER, Star},
    wait,
};
use holdfast_types::Asn;

const LIMIT: Duration = Duration::from_secs(30);

/// What BIRD and FRR have to announce.
const BIRDS: &str = "198.51.100.0/24";
const FRRS: &str = "203.0.113.0/24";

/// A passive peer with the keys of `more` besides.
fn peer(name: &str, network: u8, asn: u32, more: &str) -> String {
    format!(
        "[[bgp.peer]]\nname = \"{name}\"\naddress = \"10.0.{network}.2\"\nasn = {asn}\npassive = true\n{more}\n"
    )
}

const ALL: &str = "import = \"accept-all\"\nexport = \"accept-all\"\n";

/// BIRD with more about the session and its channel. A next hop need not be on its network: here nobody's is.
fn bird(star: &Star, asn: u32, prefixes: &[&str], channel: &str, session: &str) -> Result<Bird> {
    bird_at(star, 1, asn, prefixes, channel, session)
}

/// The same in another network.
fn bird_at(
    star: &Star,
    network: u8,
    asn: u32,
    prefixes: &[&str],
    channel: &str,
    session: &str,
) -> Result<Bird> {
    let routes: String = prefixes.iter().map(|prefix| format!("route {prefix} blackhole; ")).collect();
    let configuration = format!(
        "router id 10.0.{network}.2;
        protocol device {{ }}
        protocol static {{ ipv4; {routes} }}
        protocol bgp holdfast {{
          local 10.0.{network}.2 as {asn}; neighbor 10.0.{network}.1 as 65000;
          connect delay time 1; connect retry time 1; error wait time 1, 2;
          ipv4 {{ import all; export all; gateway recursive; {channel} }};
          {session}
        }}"
    );
    Bird::start(star.neighbor(network), &configuration)
}

/// FRR, to which we are this AS, with more about the session.
fn frr(star: &Star, asn: u32, us: u32, session: &str) -> Result<Frr> {
    let configuration = format!(
        "router bgp {asn}
         bgp router-id 10.0.2.2
         no bgp ebgp-requires-policy
         no bgp enforce-first-as
         no bgp network import-check
         neighbor 10.0.2.1 remote-as {us}
         neighbor 10.0.2.1 timers connect 1
         {session}
         address-family ipv4 unicast
          network {FRRS}
         exit-address-family\n"
    );
    Frr::start(star.neighbor(2), &configuration)
}

/// Until BIRD shows all of this for FRR's route.
fn until_bird(bird: &Bird, wanted: &[&str]) -> Result<String> {
    wait::until("the route at BIRD", LIMIT, || {
        let shown = bird.birdc(&format!("show route {FRRS} all")).map_err(|error| error.to_string())?;
        if wanted.iter().all(|wanted| shown.contains(wanted)) { Ok(shown) } else { Err(shown) }
    })
}

/// Until FRR shows all of this for BIRD's route.
fn until_frr(frr: &Frr, wanted: &[&str]) -> Result<String> {
    wait::until("the route at FRR", LIMIT, || {
        let shown =
            frr.vtysh(&format!("show bgp ipv4 unicast {BIRDS}")).map_err(|error| error.to_string())?;
        if wanted.iter().all(|wanted| shown.contains(wanted)) { Ok(shown) } else { Err(shown) }
    })
}

#[test]
fn a_client_and_another_internal_peer_hear_of_each_other_through_the_reflector() -> Result<()> {
    let star = Star::new(2)?;
    let client = peer("bird", 1, 65000, "route-reflector-client = true");
    let configuration = [ROUTER, "cluster-id = \"10.9.9.9\"\n", &client, &peer("frr", 2, 65000, "")].concat();
    let _router = Router::start(&star.router, &configuration)?;
    let bird = bird(&star, 65000, &[BIRDS], "", "")?;
    let frr = frr(&star, 65000, 65000, "")?;
    until_bird(&bird, &["next_hop: 10.0.2.2", "originator_id: 10.0.2.2", "cluster_list: 10.9.9.9"])?;
    until_frr(&frr, &["10.0.1.2", "Originator: 10.0.1.2", "Cluster list: 10.9.9.9"])?;
    Ok(())
}

#[test]
fn a_member_of_a_confederation_is_understood_inside_and_not_seen_outside() -> Result<()> {
    let star = Star::new(2)?;
    let confederation = "[bgp.confederation]\nid = 64999\nmembers = [65001]\n";
    let peers = [peer("bird", 1, 65001, ""), peer("frr", 2, 65002, ALL)].concat();
    let router = Router::start(&star.router, &[ROUTER, confederation, &peers].concat())?;
    let session = "confederation 64999; confederation member yes;";
    let bird = bird(&star, 65001, &[BIRDS], "", session)?;
    let frr = frr(&star, 65002, 64999, "")?;
    // Inside, the next hop stays and LOCAL_PREF is told.
    let shown = until_bird(&bird, &["as_path: (65000) 65002", "next_hop: 10.0.2.2", "local_pref: 100"])?;
    let told = until_frr(&frr, &["64999", "10.0.2.1"])?;
    ensure!(!told.contains("65001") && !told.contains("65000"), "{shown}{told}");
    let links = ["bird", "frr"].map(|name| router.neighbor(name).map(|shown| shown["localAs"].clone()));
    let links = links.into_iter().collect::<Result<Vec<_>>>()?;
    ensure!(links == [65000, 64999], "{links:?}");
    Ok(())
}

#[test]
fn clients_of_a_route_server_do_not_see_it() -> Result<()> {
    let star = Star::new(2)?;
    let client = [ALL, "route-server-client = true\n"].concat();
    let peers = [peer("bird", 1, 65001, &client), peer("frr", 2, 65002, &client)].concat();
    let _router = Router::start(&star.router, &[ROUTER, &peers].concat())?;
    let bird = bird(&star, 65001, &[BIRDS], "", "")?;
    let frr = frr(&star, 65002, 65000, "")?;
    until_bird(&bird, &["as_path: 65002\n", "next_hop: 10.0.2.2"])?;
    let told = until_frr(&frr, &["65001", "10.0.1.2"])?;
    ensure!(!told.contains("65000"), "{told}");
    Ok(())
}

#[test]
fn a_client_that_may_not_have_the_best_path_has_the_next_and_keeps_it_when_bgp_dies() -> Result<()> {
    let star = Star::new(3)?;
    let client = "route-server-client = true\nown-view = true\nimport = \"accept-all\"\n";
    let all = [client, "export = \"accept-all\"\n"].concat();
    let configuration = |refused: u32| {
        let policy = format!(
            "[[policy]]\nname = \"some\"\nterm = [{{ from = {{ neighbor-as = {refused} }}, then = \"reject\" }}, \
             {{ then = \"accept\" }}]\n"
        );
        let some = [client, "export = \"some\"\n"].concat();
        let peers =
            [peer("one", 1, 65001, &all), peer("frr", 2, 65002, &some), peer("three", 3, 65003, &all)];
        [ROUTER, &peers.concat(), &policy].concat()
    };
    let router = Router::start(&star.router, &configuration(65001))?;
    // Of two paths that are equal up to the router id the first one is best.
    let one = bird(&star, 65001, &[BIRDS], "", "")?;
    let three = bird_at(&star, 3, 65003, &[BIRDS], "", "")?;
    let frr = frr(&star, 65002, 65000, "")?;
    for (who, name, path) in [(&three, "three", "65001"), (&one, "one", "65003")] {
        wait::until(&format!("the other path at {name}"), LIMIT, || {
            let shown = who.birdc(&format!("show route {BIRDS} all")).map_err(|error| error.to_string())?;
            if shown.contains(&format!("as_path: {path}\n")) { Ok(()) } else { Err(shown) }
        })?;
    }
    let told = until_frr(&frr, &["65003", "10.0.3.2"])?;
    ensure!(!told.contains("65001"), "{told}");
    let advertised = router.show(&["bgp", "neighbors", "frr", "advertised-routes"])?.to_string();
    ensure!(advertised.contains("65003") && !advertised.contains("65001"), "{advertised}");
    let withheld = router.show(&["bgp", "neighbors", "frr", "withheld-routes"])?.to_string();
    ensure!(withheld.contains("65001") && withheld.contains("policy some"), "{withheld}");

    // FRR counts what it is told: after a death of `bgp` that is nothing, before the change of policy that follows.
    let updates = || -> Result<serde_json::Value> {
        let shown: serde_json::Value = serde_json::from_str(&frr.vtysh("show bgp neighbors 10.0.2.1 json")?)?;
        Ok(shown["10.0.2.1"]["messageStats"]["updatesRecv"].clone())
    };
    let (before, pid) = (updates()?, router.pid("bgp")?);
    router.kill("bgp")?;
    wait::until("another bgp that has told what differs", LIMIT, || {
        let pid_now = router.pid("bgp").map_err(|error| error.to_string())?;
        let shown = router.show(&["bgp", "neighbors", "frr", "advertised-routes"]);
        let shown = shown.map_err(|error| error.to_string())?.to_string();
        if pid_now != pid && shown.contains("65003") { Ok(()) } else { Err(shown) }
    })?;
    ensure!(updates()? == before, "an UPDATE was sent after the takeover");
    std::fs::write(router.configuration(), configuration(65003))?;
    router.cli(&["reload"])?;
    until_frr(&frr, &["65001", "10.0.1.2"])?;
    one.birdc("disable static1")?;
    wait::until("no path at FRR", LIMIT, || {
        let shown =
            frr.vtysh(&format!("show bgp ipv4 unicast {BIRDS}")).map_err(|error| error.to_string())?;
        if shown.contains("65001") || shown.contains("65003") { Err(shown) } else { Ok(()) }
    })?;
    let counted = updates()?.as_u64().zip(before.as_u64()).map(|(now, before)| now - before);
    ensure!(counted == Some(2), "one path in the place of another, and its withdrawal: {counted:?}");
    Ok(())
}

#[test]
fn another_number_of_ours_is_all_that_the_neighbor_sees_and_a_change_of_paths_ends_no_session() -> Result<()>
{
    let star = Star::new(2)?;
    let configuration = |to_frr: &str| {
        let local = [ALL, "local-asn = 64900\nlocal-asn-mode = \"replace\"\n", to_frr].concat();
        [ROUTER, &peer("bird", 1, 65001, ALL), &peer("frr", 2, 65002, &local)].concat()
    };
    let router = Router::start(&star.router, &configuration(""))?;
    let bird = bird(&star, 65001, &[BIRDS], "", "")?;
    let frr = frr(&star, 65002, 64900, "")?;
    until_frr(&frr, &["64900 65001", "10.0.2.1"])?;
    until_bird(&bird, &["as_path: 65000 65002"])?;
    let more = "remove-private-asns = \"all\"\nnext-hop = \"unchanged\"\n";
    std::fs::write(router.configuration(), configuration(more))?;
    router.cli(&["reload"])?;
    let told = until_frr(&frr, &["64900", "10.0.1.2"])?;
    ensure!(!told.contains("65001"), "{told}");
    let shown = router.neighbor("frr")?;
    ensure!(shown["connectionsDropped"] == 0, "{shown}");
    let rules = shown["pathRules"].to_string();
    ensure!(rules.contains("next-hop unchanged") && rules.contains("local-asn 64900"), "{rules}");
    Ok(())
}

#[test]
fn roles_are_agreed_on_and_keep_a_providers_routes_from_going_up_again() -> Result<()> {
    let star = Star::new(3)?;
    let role = |role: &str| format!("{ALL}role = \"{role}\"\n");
    let peers = [
        peer("bird", 1, 65001, &role("provider")),
        peer("frr", 2, 65002, &[&role("customer"), "role-strict = true\n"].concat()),
        peer("leaking", 3, 65003, &role("provider")),
    ];
    let router = Router::start(&star.router, &[ROUTER, &peers.concat()].concat())?;
    let bird = bird(&star, 65001, &[BIRDS], "", "local role customer; require roles on;")?;
    let frr = frr(&star, 65002, 65000, "neighbor 10.0.2.1 local-role provider strict-mode")?;
    until_bird(&bird, &["as_path: 65000 65002", "otc: 65002"])?;
    let told = until_frr(&frr, &["65000 65001"])?;
    ensure!(!told.to_lowercase().contains("otc"), "a customer's route goes up unmarked: {told}");

    // A customer that tells of what was for customers only.
    let path = AttributesBuilder { as_path: vec![Asn(9)], ..AttributesBuilder::new(Origin::Igp) };
    let bytes = [&path.build()[..], &[0xc0, 35, 4, 0, 0, 0, 9]].concat();
    let routes = vec![("192.0.2.0/24".parse()?, 0)];
    let table = std::sync::Arc::new(Table { sets: vec![AttributeSet { bytes }], routes });
    let _leaking = star.speaker(3, 65003, |config| config.tables = vec![table])?;
    let shown = router.until_neighbor("leaking", LIMIT, |shown| {
        shown["drops"]
            .as_object()
            .is_some_and(|drops| drops.keys().any(|reason| reason.contains("route leak")))
    })?;
    ensure!(shown["faults"].to_string().contains("192.0.2.0/24"), "{shown}");
    let route = router.show(&["bgp", "route", "192.0.2.0/24"])?;
    let reason = route["paths"][0]["reason"].as_str().context("a reason")?;
    ensure!(reason.contains("route leak"), "{route}");
    Ok(())
}

#[test]
fn two_providers_of_each_other_have_no_session() -> Result<()> {
    let star = Star::new(1)?;
    let router = Router::start(
        &star.router,
        &[ROUTER, &peer("bird", 1, 65001, &format!("{ALL}role = \"provider\"\n"))].concat(),
    )?;
    let bird = bird(&star, 65001, &[], "", "local role provider;")?;
    router.until_neighbor("bird", LIMIT, |shown| {
        shown["lastError"].as_str().is_some_and(|error| error.contains("Role Mismatch"))
    })?;
    let shown = bird.birdc("show protocols all holdfast")?;
    ensure!(!shown.contains("Established"), "{shown}");
    Ok(())
}

#[test]
fn what_a_neighbor_wants_dropped_is_dropped_by_the_kernel() -> Result<()> {
    let star = Star::new(2)?;
    let peers = [peer("bird", 1, 65001, &format!("{ALL}blackhole = true\n")), peer("frr", 2, 65002, ALL)];
    let _router = Router::start(&star.router, &[ROUTER, &peers.concat()].concat())?;
    let victim = "198.51.100.7/32";
    let mark =
        format!("export filter {{ if net = {victim} then bgp_community.add((65535, 666)); accept; }};");
    let _bird = bird(&star, 65001, &[BIRDS, victim], &mark, "")?;
    let frr = frr(&star, 65002, 65000, "")?;
    wait::until("the kernel's routes", LIMIT, || {
        let routes = star.router.ip(&["route", "show", "proto", kernel::PROTOCOL]);
        let routes = routes.map_err(|error| error.to_string())?;
        let has = |start: &str| routes.lines().any(|line| line.starts_with(start));
        let right = has("198.51.100.0/24 nhid") && has("blackhole 198.51.100.7");
        if right { Ok(()) } else { Err(routes) }
    })?;
    until_frr(&frr, &["65000 65001"])?;
    let told = frr.vtysh("show bgp ipv4 unicast")?;
    ensure!(!told.contains("198.51.100.7"), "it goes no further: {told}");
    Ok(())
}
