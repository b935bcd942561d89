//! Peers over link-local addresses: by address and interface, and whoever is the neighbour on an interface.
//!
//! ```text
//!  FRR, BIRD or another Holdfast ──n1── Holdfast ──n2── BIRD
//!  AS 65001                             AS 65000        AS 65002
//! ```
//!
//! No interface has an address but the link-local one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    kernel,
    netns::{End, Namespace, link},
    peers::{Bird, Frr, Programs},
    router::Router,
    wait,
};
use holdfast_types::Prefix;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(40);
/// What the neighbours originate.
const THEIRS: [&str; 2] = ["203.0.113.0/24", "2001:db8:113::/48"];
/// What we originate.
const OURS: [&str; 2] = ["198.51.100.0/24", "2001:db8:198::/48"];

/// Our configuration but for the peers.
fn router(host: &Namespace, id: u8, asn: u32, networks: [&str; 2], peers: &str) -> Result<Router> {
    let [v4, v6] = networks;
    let configuration = format!(
        "[router]\nid = \"10.0.0.{id}\"\nasn = {asn}\n[bgp]\nconnect-retry = 1\n\
         [[bgp.network]]\nprefix = \"{v4}\"\n[[bgp.network]]\nprefix = \"{v6}\"\n{peers}"
    );
    Router::start(host, &configuration)
}

/// A peer that lets everything pass.
fn peer(name: &str, place: &str, asn: u32) -> String {
    format!(
        "[[bgp.peer]]\nname = \"{name}\"\n{place}\nasn = {asn}\n\
         import = \"accept-all\"\nexport = \"accept-all\"\n"
    )
}

/// Joins two hosts by a network without addresses, but for link-local ones that are given.
fn join(interface: &str, first: (&Namespace, &[&str]), second: (&Namespace, &[&str])) -> Result<()> {
    link(
        &End { host: first.0, interface, addresses: first.1 },
        &End { host: second.0, interface, addresses: second.1 },
    )
}

/// Until the kernel of a host has the route as wanted.
fn until_kernel(host: &Namespace, wanted: &str, way: &str) -> Result<()> {
    let wanted: Prefix = wanted.parse()?;
    wait::until("the kernel's route", LIMIT, || {
        let routes =
            kernel::routes(host, matches!(wanted, Prefix::V6(_))).map_err(|error| error.to_string())?;
        let right = routes.get(&wanted).is_some_and(|line| line.contains(way));
        if right { Ok(()) } else { Err(format!("{wanted} by {way}: {routes:?}")) }
    })
}

/// FRR that knows its neighbour by the interface.
fn frr(host: &Namespace) -> Result<Frr> {
    let [v4, v6] = THEIRS;
    let configuration = format!(
        "router bgp 65001
 bgp router-id 10.0.1.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor n1 interface remote-as external
 neighbor n1 timers connect 1
 address-family ipv4 unicast
  network {v4}
 exit-address-family
 address-family ipv6 unicast
  network {v6}
  neighbor n1 activate
 exit-address-family
exit
"
    );
    Frr::start_with_zebra(Programs::Machine, host, &configuration)
}

/// Until FRR has both our routes, and has given them to its kernel by our link-local address.
fn until_frr(frr: &Frr, host: &Namespace) -> Result<()> {
    for (family, prefix) in [("ipv4", OURS[0]), ("ipv6", OURS[1])] {
        wait::until("our route in FRR", LIMIT, || {
            let text =
                frr.vtysh(&format!("show bgp {family} unicast {prefix}")).map_err(|e| e.to_string())?;
            if text.contains("fe80::") && text.contains("best") { Ok(()) } else { Err(text) }
        })?;
        let family = if family == "ipv4" { "-4" } else { "-6" };
        wait::until("our route in the kernel of FRR", LIMIT, || {
            let text = host.ip(&[family, "route", "show", prefix]).map_err(|error| error.to_string())?;
            if text.contains("fe80::") && text.contains("dev n1") { Ok(()) } else { Err(text) }
        })?;
    }
    Ok(())
}

/// How often the session has come up.
fn times(shown: &Value) -> Option<u64> {
    shown["connectionsEstablished"].as_u64()
}

#[test]
fn frr_is_found_on_the_interface_and_both_kernels_have_the_routes() -> Result<()> {
    let (us, them) = (Namespace::new("us")?, Namespace::new("frr")?);
    join("n1", (&us, &[]), (&them, &[]))?;
    let frr = frr(&them)?;
    let router = router(&us, 1, 65000, OURS, &peer("frr", "interface = \"n1\"", 65001))?;
    router.until_established("frr", LIMIT)?;
    until_kernel(&us, THEIRS[0], "via inet6 fe80::")?;
    until_kernel(&us, THEIRS[1], "via fe80::")?;
    until_frr(&frr, &them)?;

    // The next process goes on with the session.
    let sessions = || -> Result<_> {
        let heard: Value = serde_json::from_str(&frr.vtysh("show bgp neighbors n1 json")?)?;
        Ok((times(&router.neighbor("frr")?), heard["n1"]["connectionsDropped"].as_u64().context("a count")?))
    };
    wait::until("protection", LIMIT, || {
        let shown = router.show(&["nsr"]).map_err(|error| error.to_string())?;
        if shown.to_string().contains("\"protected\":true") { Ok(()) } else { Err(shown.to_string()) }
    })?;
    // At the start FRR may have begun anew.
    let before = sessions()?;
    router.kill("bgp")?;
    router.wait_running()?;
    router.until_established("frr", LIMIT)?;
    until_kernel(&us, THEIRS[0], "via inet6 fe80::")?;
    let after = sessions()?;
    ensure!(before.0.is_some() && before == after, "{before:?} {after:?}");

    // The interface goes, and comes back as another with another address.
    us.ip(&["link", "del", "n1"])?;
    wait::until("no route", LIMIT, || {
        let routes = kernel::routes(&us, false).map_err(|error| error.to_string())?;
        if routes.is_empty() { Ok(()) } else { Err(format!("{routes:?}")) }
    })?;
    router.until_neighbor("frr", LIMIT, |shown| shown["bgpState"] != "Established")?;
    join("n1", (&us, &[]), (&them, &[]))?;
    router.until_established("frr", LIMIT)?;
    until_kernel(&us, THEIRS[0], "via inet6 fe80::")?;
    until_frr(&frr, &them)?;
    router.stop()
}

/// The blocks of a page that begin with this line.
fn blocks<'p>(page: &'p str, fence: &str) -> Vec<&'p str> {
    let begin = format!("\n```{fence}\n");
    let blocks = page.split(&begin).skip(1);
    blocks.filter_map(|rest| rest.split("\n```").next()).collect()
}

/// The configurations of the manual as they stand there, in hosts that have no IPv4 address.
#[test]
fn the_configurations_of_the_manual_come_up() -> Result<()> {
    let page = include_str!("../../../docs/manual/unnumbered.md");
    let (ours, theirs) = (blocks(page, "toml complete"), blocks(page, "text"));
    let (Some(ours), [frr, bird]) = (ours.first(), &theirs[..]) else {
        anyhow::bail!("the page is another one")
    };
    for is_frr in [true, false] {
        let (us, them) = (Namespace::new("us")?, Namespace::new("them")?);
        join("eth1", (&us, &[]), (&them, &[]))?;
        let (_frr, _bird) = match is_frr {
            true => (Some(Frr::start_with_zebra(Programs::Machine, &them, frr)?), None),
            false => (None, Some(Bird::start(&them, bird)?)),
        };
        let router = Router::start(&us, ours)?;
        router.until_established("spine-1", LIMIT).with_context(|| router.log_tail())?;
        router.stop()?;
    }
    Ok(())
}

/// BIRD that knows us by our address, with an address of its own.
fn bird(host: &Namespace, interface: &str, asn: u32, far: &str, prefixes: [&str; 2]) -> Result<Bird> {
    let [v4, v6] = prefixes;
    Bird::start(
        host,
        &format!(
            "router id 10.0.{}.2;
            protocol device {{ }}
            protocol static {{ ipv4; route {v4} blackhole; }}
            protocol static {{ ipv6; route {v6} blackhole; }}
            protocol bgp holdfast {{
              local as {asn}; neighbor {far} as 65000; interface \"{interface}\";
              connect delay time 1; connect retry time 1; error wait time 1, 2;
              ipv4 {{ import all; export all; extended next hop on; }};
              ipv6 {{ import all; export all; }};
            }}",
            asn - 65000
        ),
    )
}

#[test]
fn one_address_on_two_links_is_two_peers() -> Result<()> {
    let (us, first, second) = (Namespace::new("us")?, Namespace::new("first")?, Namespace::new("second")?);
    join("n1", (&us, &["fe80::1/64"]), (&first, &["fe80::2/64"]))?;
    join("n2", (&us, &["fe80::1/64"]), (&second, &["fe80::2/64"]))?;
    let others = ["192.0.2.0/24", "2001:db8:2::/48"];
    let _first = bird(&first, "n1", 65001, "fe80::1", THEIRS)?;
    let second_bird = bird(&second, "n2", 65002, "fe80::1", others)?;
    let at = |interface: &str| {
        format!("address = \"fe80::2\"\ninterface = \"{interface}\"\nlocal-address = \"fe80::1\"")
    };
    let peers = peer("first", &at("n1"), 65001) + &peer("second", &at("n2"), 65002);
    let router = router(&us, 1, 65000, OURS, &peers)?;
    router.until_established("first", LIMIT)?;
    let shown = router.until_established("second", LIMIT)?;
    ensure!(shown.to_string().contains("fe80::2%n2"), "{shown}");
    until_kernel(&us, THEIRS[0], "via inet6 fe80::2 dev n1 ")?;
    until_kernel(&us, THEIRS[1], "via fe80::2 dev n1 ")?;
    until_kernel(&us, others[0], "via inet6 fe80::2 dev n2 ")?;
    until_kernel(&us, others[1], "via fe80::2 dev n2 ")?;
    for prefix in [THEIRS, OURS].concat() {
        wait::until("a route by us", LIMIT, || {
            let text =
                second_bird.birdc(&format!("show route for {prefix} all")).map_err(|e| e.to_string())?;
            if text.contains("via fe80::1 on n2") { Ok(()) } else { Err(text) }
        })?;
    }
    // An operator names one of them by its place; the other is not touched.
    router.cli(&["clear", "bgp", "fe80::2%n1"])?;
    router.until_neighbor("first", LIMIT, |shown| {
        shown["bgpState"] == "Established" && times(shown) == Some(2)
    })?;
    ensure!(times(&router.neighbor("second")?) == Some(1), "the other one stays");
    router.stop()
}

#[test]
fn two_of_us_find_each_other_on_an_interface_that_comes_late() -> Result<()> {
    let (us, them) = (Namespace::new("us")?, Namespace::new("them")?);
    let place = "interface = \"n1\"";
    let near = router(&us, 1, 65000, OURS, &peer("far", place, 65001))?;
    let far = router(&them, 2, 65001, THEIRS, &peer("near", place, 65000))?;
    let shown =
        near.until_neighbor("far", LIMIT, |shown| shown.to_string().contains("no neighbour heard"))?;
    ensure!(shown.to_string().contains("no neighbour heard on n1 yet"), "{shown}");
    join("n1", (&us, &[]), (&them, &[]))?;
    near.until_established("far", LIMIT)?;
    for (host, routes) in [(&us, THEIRS), (&them, OURS)] {
        until_kernel(host, routes[0], "via inet6 fe80::")?;
        until_kernel(host, routes[1], "via fe80::")?;
    }
    near.stop()?;
    far.stop()
}
