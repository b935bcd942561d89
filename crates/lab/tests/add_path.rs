//! Several paths of one prefix (RFC 7911), with BIRD and FRR as judges.
//!
//! ```text
//!  left ──1──┐          ┌──3── BIRD
//!            ├ Holdfast ┤
//! right ──2──┘          └──4── FRR
//! ```

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_lab::{
    peers::{Bird, Frr},
    router::Router,
    speaker::Speaker,
    table::{AttributeSet, Table},
    topology::{ROUTER, Star},
    wait,
};
use holdfast_types::Asn;

const LIMIT: Duration = Duration::from_secs(30);
/// Announced by both speakers, and what BIRD has two routes to.
const SHARED: &str = "198.51.100.0/24";
const DOUBLE: &str = "203.0.113.0/24";
const DOUBLE_V6: &str = "2001:db8:a::/48";

fn peer(name: &str, network: u8, more: &str) -> String {
    format!(
        "[[bgp.peer]]\nname = \"{name}\"\naddress = \"10.0.{network}.2\"\nasn = 6500{network}\npassive = true\n\
         import = \"accept-all\"\nexport = \"accept-all\"\n{more}\n"
    )
}

fn several(name: &str, network: u8, add_path: &str) -> String {
    let both = "families = [\"ipv4-unicast\", \"ipv6-unicast\"]";
    peer(
        name,
        network,
        &format!("{both}\nnext-hop-ipv6 = \"2001:db8:{network}::1\"\nadd-path = {{ {add_path} }}"),
    )
}

fn announce(speaker: &Speaker, prefix: &str, path: &[u32]) -> Arc<Table> {
    let as_path = path.iter().copied().map(Asn).collect();
    let bytes = AttributesBuilder { as_path, ..AttributesBuilder::new(Origin::Igp) }.build();
    let routes = vec![(prefix.parse().expect("a prefix"), 0)];
    let table = Arc::new(Table { sets: vec![AttributeSet { bytes }], routes });
    speaker.announce(Arc::clone(&table));
    table
}

fn bird(star: &Star) -> Result<Bird> {
    let double = |tag: u8| {
        format!(
            "protocol static {{ ipv4; route {DOUBLE} blackhole {{ bgp_community.add((65003, {tag})); }}; }}
            protocol static {{ ipv6; route {DOUBLE_V6} blackhole {{ bgp_community.add((65003, {tag})); }}; }}"
        )
    };
    let configuration = format!(
        "router id 10.0.3.2;
        protocol device {{ }}
        {}
        {}
        protocol bgp holdfast {{
          debug {{ events }};
          local 10.0.3.2 as 65003; neighbor 10.0.3.1 as 65000; connect delay time 1;
          ipv4 {{ import all; export where source = RTS_STATIC; add paths on; }};
          ipv6 {{ import all; export where source = RTS_STATIC; add paths on; next hop address 2001:db8:3::2; }};
        }}",
        double(1),
        double(2)
    );
    Bird::start(star.neighbor(3), &configuration)
}

fn frr(star: &Star) -> Result<Frr> {
    Frr::start(
        star.neighbor(4),
        "router bgp 65004
         bgp router-id 10.0.4.2
         no bgp ebgp-requires-policy
         no bgp network import-check
         neighbor 10.0.4.1 remote-as 65000
         neighbor 10.0.4.1 timers connect 1
         address-family ipv4 unicast
          network 192.0.2.0/24
          neighbor 10.0.4.1 addpath-tx-all-paths
         exit-address-family
         address-family ipv6 unicast
          neighbor 10.0.4.1 activate
          neighbor 10.0.4.1 addpath-tx-all-paths
         exit-address-family
        ",
    )
}

/// Until BIRD has so many paths to a prefix from us.
fn until_bird(bird: &Bird, prefix: &str, count: usize) -> Result<()> {
    wait::until("BIRD's paths", LIMIT, || {
        let shown = bird.birdc(&format!("show route for {prefix} protocol holdfast all"));
        let shown = shown.map_err(|error| error.to_string())?;
        if shown.matches("as_path: ").count() == count { Ok(()) } else { Err(shown) }
    })
}

/// The same of FRR.
fn until_frr(frr: &Frr, family: &str, prefix: &str, count: usize) -> Result<()> {
    wait::until("FRR's paths", LIMIT, || {
        let shown = frr.vtysh(&format!("show bgp {family} unicast {prefix} json"));
        let shown = shown.map_err(|error| error.to_string())?;
        let json: serde_json::Value = serde_json::from_str(&shown).map_err(|error| error.to_string())?;
        let paths = json["paths"].as_array().map_or(0, Vec::len);
        if paths == count { Ok(()) } else { Err(shown) }
    })
}

/// The path identifiers that the router shows for a neighbour's paths to a prefix.
fn identifiers(router: &Router, prefix: &str, peer: &str) -> Result<Vec<u64>> {
    let shown = router.show(&["bgp", "route", prefix])?;
    let paths = shown["paths"].as_array().context("paths")?;
    let of_peer = paths.iter().filter(|path| path["peer"]["peerName"] == peer);
    let mut identifiers: Vec<u64> = of_peer.filter_map(|path| path["pathId"].as_u64()).collect();
    identifiers.sort_unstable();
    identifiers.dedup();
    Ok(identifiers)
}

#[test]
fn bird_and_frr_send_and_are_told_several_paths_of_a_prefix() -> Result<()> {
    let star = Star::new(4)?;
    let peers = [
        peer("left", 1, ""),
        peer("right", 2, ""),
        several("bird", 3, "receive = true, send = \"all\""),
        several("frr", 4, "receive = true, send = 2"),
    ];
    let router = Router::start(&star.router, &[ROUTER, &peers.concat()].concat())?;
    let (left, right) = (star.speaker(1, 65001, |_| ())?, star.speaker(2, 65002, |_| ())?);
    let (bird, frr) = (bird(&star)?, frr(&star)?);
    announce(&left, SHARED, &[7]);
    let longer = announce(&right, SHARED, &[8, 9]);

    until_bird(&bird, SHARED, 2)?;
    until_frr(&frr, "ipv4", SHARED, 2)?;
    for (family, prefix) in [("ipv4", DOUBLE), ("ipv6", DOUBLE_V6)] {
        until_frr(&frr, family, prefix, 2)?;
        let found = identifiers(&router, prefix, "bird")?;
        ensure!(found.len() == 2, "{prefix}: {found:?}");
    }
    // FRR has one path, under an identifier all the same.
    until_bird(&bird, "192.0.2.0/24", 1)?;
    ensure!(identifiers(&router, "192.0.2.0/24", "frr")?.len() == 1);
    left.wait_routes(2, LIMIT)?;

    right.withdraw(longer);
    until_bird(&bird, SHARED, 1)?;
    until_frr(&frr, "ipv4", SHARED, 1)?;
    Ok(())
}

/// Routes that BIRD was told of since its session came up, the same again included.
fn import_updates(bird: &Bird) -> Result<u64> {
    let shown = bird.birdc("show protocols all holdfast")?;
    let counted = shown.lines().filter_map(|line| line.trim().strip_prefix("Import updates:"));
    let received = counted.filter_map(|counts| counts.split_whitespace().next()?.parse::<u64>().ok());
    Ok(received.sum())
}

/// Another `bgp`, with all three sessions of the one before.
fn kill(router: &Router) -> Result<()> {
    let before = router.pid("bgp")?;
    router.kill("bgp")?;
    wait::until("another bgp", LIMIT, || match router.pid("bgp") {
        Ok(now) if now != before => Ok(()),
        now => Err(format!("{now:?}")),
    })?;
    wait::until("the sessions go on", LIMIT, || {
        let nsr = router.show(&["nsr"]).map_err(|error| error.to_string())?;
        let is_protected = nsr["peers"]["10.0.3.2"]["protected"] == true;
        if nsr["resumedSessions"] == 3 && is_protected { Ok(()) } else { Err(nsr.to_string()) }
    })
    .with_context(|| router.log_tail())
}

#[test]
fn who_is_told_several_paths_sees_one_session_and_differences_only_however_often_bgp_dies() -> Result<()> {
    let star = Star::new(3)?;
    let peers =
        [peer("left", 1, ""), peer("right", 2, ""), several("bird", 3, "receive = true, send = \"all\"")];
    let router = Router::start(&star.router, &[ROUTER, &peers.concat()].concat())?;
    let (left, right) = (star.speaker(1, 65001, |_| ())?, star.speaker(2, 65002, |_| ())?);
    let bird = bird(&star)?;
    announce(&left, SHARED, &[7]);
    let longer = announce(&right, SHARED, &[8, 9]);
    until_bird(&bird, SHARED, 2)?;
    wait::until("protected", LIMIT, || {
        let nsr = router.show(&["nsr"]).map_err(|error| error.to_string())?;
        let all = ["10.0.1.2", "10.0.2.2", "10.0.3.2"].map(|peer| nsr["peers"][peer]["protected"] == true);
        if all == [true; 3] { Ok(()) } else { Err(nsr.to_string()) }
    })?;

    // Nothing has changed: the next route is the only one that it hears of.
    let mut told = import_updates(&bird)?;
    for n in 0..3 {
        kill(&router)?;
        let next = format!("192.0.2.{}/32", 10 + n);
        announce(&left, &next, &[7]);
        until_bird(&bird, &next, 1)?;
        told += 1;
        ensure!(import_updates(&bird)? == told, "{} instead of {told}", import_updates(&bird)?);
        until_bird(&bird, SHARED, 2)?;
    }
    // What goes and comes meanwhile is all that is told.
    right.withdraw(longer);
    kill(&router)?;
    until_bird(&bird, SHARED, 1)?;
    announce(&right, SHARED, &[8]);
    kill(&router)?;
    until_bird(&bird, SHARED, 2)?;
    ensure!(import_updates(&bird)? == told + 1, "{} instead of {told} and one", import_updates(&bird)?);

    ensure!(bird.sessions()? == 1, "{}", bird.log());
    Ok(())
}
