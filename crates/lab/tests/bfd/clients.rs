//! What BGP and static routes make of a session: a silent link, AdminDown, strict mode.
//!
//! ```text
//!  Holdfast ──n1── BIRD, FRR or a puppet      by a bridge that can fall silent
//!           ──n2── BIRD                       the other way
//! ```

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    bfd::{
        packet::{ADMIN_DOWN, Control, DOWN},
        profile,
        puppet::Puppet,
        stock::{Stock, bird_protocol, frr_bfd},
        until_state,
        wire::Wire,
    },
    netns::{End, Namespace, link, output},
    peers::Programs,
    router::Router,
    speaker::{Speaker, SpeakerConfig},
    topology::{ROUTER, Side, Star, join, v4},
    vrf::{Scene, TABLES},
    wait,
};
use serde_json::Value;

use super::{Distance, LIMIT, distance};

const NETWORK: &str = "203.0.113.0/24";

/// A peer with BFD.
fn peer(name: &str, address: &str, asn: u32, bfd: &str) -> String {
    format!(
        "[[bgp.peer]]\nname = \"{name}\"\naddress = \"{address}\"\nasn = {asn}\nbfd = {bfd}\n\
         import = \"accept-all\"\nexport = \"accept-all\"\n"
    )
}

const FAST: &str = "{ profile = \"fast\" }";

fn configuration(rest: &str) -> String {
    format!("{ROUTER}{rest}{}", profile("fast", 300, ""))
}

/// BIRD that speaks BGP with us over a network, with these lines, and originates [`NETWORK`].
fn bird_bgp(network: u8, asn: u32, more: &str) -> String {
    let (own, router) = (v4(network, Side::Second), v4(network, Side::First));
    format!(
        "protocol static {{ ipv4; route {NETWORK} blackhole; }}
        protocol bgp holdfast {{
          debug {{ states, events }};
          local {own} as {asn}; neighbor {router} as 65000;
          connect delay time 1; connect retry time 1; error wait time 1, 2;
          ipv4 {{ import all; export all; }};
          {more}
        }}"
    )
}

fn frr_bgp(more: &str) -> String {
    format!(
        "router bgp 65001\n bgp router-id 10.0.1.2\n no bgp ebgp-requires-policy\n \
         no bgp network import-check\n neighbor 10.0.1.1 remote-as 65000\n neighbor 10.0.1.1 timers connect 1\n \
         neighbor 10.0.1.1 bfd\n{more} address-family ipv4 unicast\n  network {NETWORK}\n exit-address-family\nexit\n"
    )
}

fn until_kernel(host: &Namespace, way: Option<&str>, limit: Duration) -> Result<()> {
    wait::until("the kernel's route", limit, || {
        let line = host.ip(&["route", "show", NETWORK]).map_err(|error| error.to_string())?;
        let is_right = match way {
            Some(way) => line.contains(way),
            None => line.is_empty(),
        };
        if is_right { Ok(()) } else { Err(format!("{way:?}: {line:?}")) }
    })
}

/// How often the session of a peer has come up, and why it ended last.
fn established(router: &Router, name: &str) -> Result<(u64, String)> {
    let shown = router.neighbor(name)?;
    let times = shown["connectionsEstablished"].as_u64().context("a count")?;
    Ok((times, shown["lastResetDueTo"].as_str().unwrap_or_default().to_owned()))
}

/// A stock router at the other end of a wire.
fn stock(programs: &Programs, host: &Namespace, with_bird: bool) -> Result<Stock> {
    match with_bird {
        true => {
            let bfd = bird_protocol("interval 300 ms; multiplier 3;", &[]);
            Stock::bird(programs, host, &bfd, &bird_bgp(1, 65001, "bfd on;"))
        }
        false => Stock::frr(programs, host, &frr_bfd(&[], &[]), &frr_bgp("")),
    }
}

#[test]
fn a_link_that_falls_silent_ends_the_session_of_bgp_at_once_and_it_comes_back() -> Result<()> {
    Programs::all().try_for_each(|programs| {
        falls_silent(&programs, true)?;
        falls_silent(&programs, false)
    })
}

fn falls_silent(programs: &Programs, with_bird: bool) -> Result<()> {
    let (us, them, other) = (Namespace::new("us")?, Namespace::new("them")?, Namespace::new("other")?);
    let wire = Wire::new(1, &us, &them)?;
    join(2, &us, &other)?;
    let peers = peer("near", "10.0.1.2", 65001, FAST) + &peer("other", "10.0.2.2", 65002, "false");
    let router = Router::start(&us, &configuration(&peers))?;
    let stock = stock(programs, &them, with_bird)?;
    let longer = "ipv4 { import all; export filter { bgp_path.prepend(65002); accept; }; };";
    let rest = bird_bgp(2, 65002, "").replace("ipv4 { import all; export all; };", longer);
    let _other = Stock::bird(&Programs::Machine, &other, "", &rest)?;
    until_kernel(&us, Some("via 10.0.1.2"), LIMIT).with_context(|| router.log_tail())?;
    router.until_established("other", LIMIT)?;
    until_state(&router, "10.0.1.2", "up", LIMIT)?;
    stock.until("10.0.1.1", "up", LIMIT)?;
    wait::until("intervals as agreed", LIMIT, || {
        let found = until_state(&router, "10.0.1.2", "up", LIMIT).map_err(|error| format!("{error:#}"))?;
        if found["detection-time"] == 900 { Ok(()) } else { Err(found.to_string()) }
    })?;
    let (before, _) = established(&router, "near")?;

    wire.set_silent(true)?;
    // The hold time is 90 s; a busy machine may be late, but not so late.
    until_kernel(&us, Some("via 10.0.2.2"), Duration::from_secs(8)).with_context(|| router.log_tail())?;
    let shown = router.until_neighbor("near", LIMIT, |shown| shown["bgpState"] != "Established")?;
    let why = shown["lastResetDueTo"].as_str().unwrap_or_default();
    ensure!(why.contains("BFD"), "why it ended: {shown}");
    wire.set_silent(false)?;
    router.until_established("near", LIMIT)?;
    until_kernel(&us, Some("via 10.0.1.2"), LIMIT)?;
    until_state(&router, "10.0.1.2", "up", LIMIT)?;
    let (after, _) = established(&router, "near")?;
    ensure!(after == before + 1, "{before} {after}");
    router.stop()
}

/// A speaker and a puppet at the neighbour, so that each packet is known.
struct Made {
    star: Star,
    puppet: Puppet,
}

impl Made {
    fn new() -> Result<Self> {
        let star = Star::new(1)?;
        let [ours, theirs] = [v4(1, Side::First), v4(1, Side::Second)];
        let puppet = Puppet::start(star.neighbor(1), theirs.into(), ours.into(), Control::new(77))?;
        Ok(Self { star, puppet })
    }

    fn speaker(&self) -> Result<Speaker> {
        self.star.speaker(1, 65001, |config: &mut SpeakerConfig| config.reconnect = true)
    }
}

#[test]
fn the_session_ends_with_cease_bfd_down_and_not_with_admindown() -> Result<()> {
    let made = Made::new()?;
    let router = Router::start(&made.star.router, &configuration(&peer("made", "10.0.1.2", 65001, FAST)))?;
    let speaker = made.speaker()?;
    speaker.wait_established(LIMIT)?;
    made.puppet.until_up(LIMIT).with_context(|| router.log_tail())?;

    // An operator of the other end: BGP goes on, also when the session is Up again (RFC 5882 section 3.2).
    made.puppet.hold(ADMIN_DOWN);
    until_state(&router, "10.0.1.2", "down", LIMIT)?;
    made.puppet.release();
    made.puppet.until_up(LIMIT)?;
    ensure!(speaker.status().sessions == 1, "{:?}", speaker.status());

    // The other end says Down: it hears nothing of us.
    made.puppet.change(|says| says.diagnostic = 1);
    made.puppet.hold(DOWN);
    let notification = wait::until("a NOTIFICATION", LIMIT, || {
        speaker.status().notification.ok_or_else(|| format!("{:?}", speaker.status()))
    })?;
    ensure!((notification.code, notification.subcode) == (6, 10), "{notification:?}");
    // Without strict mode BGP comes back whatever BFD says.
    wait::until("a second session", LIMIT, || match speaker.status() {
        status if status.sessions >= 2 && status.established => Ok(()),
        status => Err(format!("{status:?}")),
    })?;
    made.puppet.release();
    made.puppet.until_up(LIMIT)?;

    // Silence is found by the detection time.
    let sessions = speaker.status().sessions;
    made.puppet.set_silent(true);
    wait::until("the end of the session", Duration::from_secs(8), || match speaker.status() {
        status if status.sessions > sessions || !status.established => Ok(()),
        status => Err(format!("{status:?}")),
    })?;
    router.stop()
}

#[test]
fn frr_and_an_operator_who_shuts_its_bfd_down_do_not_end_the_session_of_bgp() -> Result<()> {
    Programs::all().try_for_each(|programs| shuts_down(&programs))
}

fn shuts_down(programs: &Programs) -> Result<()> {
    let (us, them) = (Namespace::new("us")?, Namespace::new("them")?);
    join(1, &us, &them)?;
    let router = Router::start(&us, &configuration(&peer("frr", "10.0.1.2", 65001, FAST)))?;
    // The end that an operator has named is not that which BGP has asked for, unless they are the same.
    let bfd = frr_bfd(&[], &["10.0.1.1 interface n1"]);
    let mut frr = Stock::frr(programs, &them, &bfd, &frr_bgp(""))?;
    router.until_established("frr", LIMIT)?;
    until_state(&router, "10.0.1.2", "up", LIMIT)?;
    let (before, _) = established(&router, "frr")?;
    let peer = "peer 10.0.1.1 interface n1";
    for (word, state) in [("shutdown", "down"), ("no shutdown", "up")] {
        frr.as_frr()?.configure("bfdd", &["configure terminal", "bfd", peer, word])?;
        until_state(&router, "10.0.1.2", state, LIMIT)?;
    }
    let (after, why) = established(&router, "frr")?;
    ensure!(before == after, "{before} {after} {why}");
    router.until_established("frr", LIMIT)?;
    router.stop()
}

#[test]
fn in_strict_mode_bgp_waits_for_bfd() -> Result<()> {
    let (us, them) = (Namespace::new("us")?, Namespace::new("them")?);
    let wire = Wire::new(1, &us, &them)?;
    let strict = "{ profile = \"fast\", strict = true }";
    // BFD of the other end begins when its configuration has it.
    let far = |bfd: &str| {
        let peer = peer("us", "10.0.1.1", 65000, bfd);
        let router = ROUTER.replace("10.0.0.1", "10.0.0.2").replace("65000", "65001");
        format!("{router}{peer}{}", profile("fast", 300, ""))
    };
    let drop = "add table inet lab; add chain inet lab in { type filter hook input priority 0; }; \
                add rule inet lab in udp dport 3784 drop";
    let filter = |rules: &str| output(them.command("nft").arg(rules));
    filter(drop)?;
    let near = Router::start(&us, &configuration(&peer("them", "10.0.1.2", 65001, strict)))?;
    let other = Router::start(&them, &far(strict))?;
    // No packet of BFD comes through, but all of BGP.
    near.until_neighbor("them", LIMIT, |shown| shown["peerBfdInfo"]["awaited"] == true)?;
    let waiting = near.neighbor("them")?;
    ensure!(waiting["bgpState"] != "Established", "{waiting}");
    filter("flush ruleset")?;
    for (router, name) in [(&near, "them"), (&other, "us")] {
        router.until_established(name, LIMIT)?;
    }
    until_state(&near, "10.0.1.2", "up", LIMIT)?;
    wire.set_silent(true)?;
    near.until_neighbor("them", Duration::from_secs(8), |shown| shown["bgpState"] != "Established")?;
    wire.set_silent(false)?;
    near.until_established("them", LIMIT)?;
    other.stop()?;
    // Who is not strict is not waited for.
    filter(drop)?;
    let _other = Router::start(&them, &far("{ profile = \"fast\" }"))?;
    near.until_established("them", LIMIT)?;
    near.stop()
}

#[test]
fn a_static_route_gives_way_while_its_next_hop_is_silent() -> Result<()> {
    let (us, them, other) = (Namespace::new("us")?, Namespace::new("them")?, Namespace::new("other")?);
    let wire = Wire::new(1, &us, &them)?;
    join(2, &us, &other)?;
    let fixed = format!("[[static]]\nprefix = \"{NETWORK}\"\nnext-hop = \"10.0.1.2\"\nbfd = {FAST}\n");
    let peers = peer("other", "10.0.2.2", 65002, "false");
    let router = Router::start(&us, &configuration(&(fixed + &peers)))?;
    let _other = Stock::bird(&Programs::Machine, &other, "", &bird_bgp(2, 65002, ""))?;
    router.until_established("other", LIMIT)?;
    let bfd = frr_bfd(&["detect-multiplier 3"], &["10.0.1.1 interface n1"]);
    let frr = Stock::frr(&Programs::Machine, &them, &bfd, "")?;
    frr.until("10.0.1.1", "up", LIMIT).with_context(|| router.log_tail())?;
    until_kernel(&us, Some("via 10.0.1.2"), LIMIT).with_context(|| router.log_tail())?;
    for _ in 0..2 {
        wire.set_silent(true)?;
        until_kernel(&us, Some("via 10.0.2.2"), Duration::from_secs(8)).with_context(|| router.log_tail())?;
        wire.set_silent(false)?;
        until_kernel(&us, Some("via 10.0.1.2"), LIMIT).with_context(|| router.log_tail())?;
    }
    // Without BFD it stays, whatever becomes of its next hop; and nobody has a session to it.
    let plain = format!("[[static]]\nprefix = \"{NETWORK}\"\nnext-hop = \"10.0.1.2\"\n");
    router.reload_with_files(&configuration(&(plain + &peers)), &Default::default())?;
    wire.set_silent(true)?;
    frr.until("10.0.1.1", "down", LIMIT)?;
    wait::until("no session", LIMIT, || {
        let shown = router.show(&["bfd", "peers"]).map_err(|error| error.to_string())?;
        if shown.as_array().is_some_and(Vec::is_empty) { Ok(()) } else { Err(shown.to_string()) }
    })?;
    until_kernel(&us, Some("via 10.0.1.2"), LIMIT)?;
    router.stop()
}

#[test]
fn a_peer_behind_a_router_has_a_session_over_several_hops() -> Result<()> {
    let Distance { us, far, _between } = &distance()?;
    let peer = peer("far", "10.0.2.2", 65001, FAST) + "multihop = 2\nlocal-address = \"10.0.1.1\"\n";
    let text = format!("{ROUTER}{peer}{}", profile("fast", 300, "minimum-ttl = 63"));
    let router = Router::start(us, &text)?;
    let bgp = bird_bgp(1, 65001, "bfd on; multihop 2;").replace("local 10.0.1.2", "local 10.0.2.2");
    let bfd = bird_protocol("interval 300 ms;", &[]);
    let bird = Stock::bird(&Programs::Machine, far, &bfd, &bgp)?;
    router.until_established("far", LIMIT)?;
    let session = until_state(&router, "10.0.2.2", "up", LIMIT)?;
    ensure!(session["multihop"] == true && session["local"] == "10.0.1.1", "{session}");
    bird.until("10.0.1.1", "up", LIMIT)?;
    output(far.command("nft").arg(
        "add table inet lab; add chain inet lab in { type filter hook input priority 0; policy drop; }",
    ))?;
    router.until_neighbor("far", Duration::from_secs(8), |shown| shown["bgpState"] != "Established")?;
    output(far.command("nft").arg("flush ruleset"))?;
    router.until_established("far", LIMIT)?;
    router.stop()
}

#[test]
fn peers_in_vrfs_have_sessions_there() -> Result<()> {
    let scene = Scene::new()?;
    let (mut rest, mut birds) = ("[bgp]\nconnect-retry = 1\n".to_owned(), Vec::new());
    for (table, number) in TABLES.into_iter().zip(0..) {
        let vrf = if table == "main" { String::new() } else { format!("vrf = \"{table}\"\n") };
        rest += &(peer(table, "10.0.1.2", 65001, FAST) + &vrf);
        let bfd = bird_protocol("interval 300 ms;", &[]);
        let host = &scene.neighbors[number];
        birds.push(Stock::bird(&Programs::Machine, host, &bfd, &bird_bgp(1, 65001, "bfd on;"))?);
    }
    let router = Router::start(&scene.host, &scene.configuration(true, &(rest + &profile("fast", 300, ""))))?;
    for bird in &birds {
        bird.until("10.0.1.1", "up", LIMIT).with_context(|| router.log_tail())?;
    }
    scene.until_routes(&TABLES.map(|table| (table, &[NETWORK][..])))?;
    // One of them falls silent.
    birds[1].as_bird()?.pause()?;
    scene.until_routes(&[("blue", &[])])?;
    scene.until_routes(&[("main", &[NETWORK]), ("red", &[NETWORK])])?;
    birds[1].as_bird()?.resume()?;
    scene.until_routes(&[("blue", &[NETWORK])])?;
    ensure!(birds[0].downs("10.0.1.1")? + birds[2].downs("10.0.1.1")? == 0);
    router.stop()
}

/// Unnumbered: FRR is found on the interface, and BFD with it.
#[test]
fn a_neighbour_that_is_found_on_the_interface_has_a_session() -> Result<()> {
    let (us, them) = (Namespace::new("us")?, Namespace::new("them")?);
    let end = |host| End { host, interface: "n1", addresses: &[] };
    link(&end(&us), &end(&them))?;
    let unnumbered = "[[bgp.peer]]\nname = \"frr\"\ninterface = \"n1\"\nasn = 65001\nimport = \"accept-all\"\n\
                      export = \"accept-all\"\nbfd = { profile = \"fast\" }\n";
    let router = Router::start(&us, &configuration(unnumbered))?;
    let bgp = format!(
        "router bgp 65001\n bgp router-id 10.0.1.2\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
         neighbor n1 interface remote-as external\n neighbor n1 timers connect 1\n neighbor n1 bfd\n \
         address-family ipv4 unicast\n  network {NETWORK}\n exit-address-family\nexit\n"
    );
    let mut frr = Stock::frr(&Programs::Machine, &them, &frr_bfd(&[], &[]), &bgp)?;
    router.until_established("frr", LIMIT)?;
    let session = wait::until("a session", LIMIT, || {
        let shown = router.show(&["bfd", "peers"]).map_err(|error| error.to_string())?;
        let found = shown.as_array().into_iter().flatten().find(|row| row["status"] == "up");
        found.cloned().ok_or_else(|| shown.to_string())
    })
    .with_context(|| router.log_tail())?;
    ensure!(session["peer"].as_str().is_some_and(|peer| peer.starts_with("fe80::")), "{session}");
    ensure!(session["interface"] == "n1" && session["multihop"] == false, "{session}");
    let theirs: Value = serde_json::from_str(&frr.as_frr()?.ask("bfdd", "show bfd peers json")?)?;
    ensure!(theirs[0]["status"] == "up", "{theirs}");
    // The carrier goes, and comes back.
    let (before, _) = established(&router, "frr")?;
    them.ip(&["link", "set", "n1", "down"])?;
    router.until_neighbor("frr", LIMIT, |shown| shown["bgpState"] != "Established")?;
    them.ip(&["link", "set", "n1", "up"])?;
    router.until_established("frr", LIMIT)?;
    let (after, _) = established(&router, "frr")?;
    ensure!(after == before + 1, "{before} {after}");
    router.stop()
}
