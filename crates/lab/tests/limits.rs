//! Limits of prefixes, groups of peers, and sessions that are stopped with a text.
//!
//! ```text
//!  BIRD or FRR ──1── Holdfast ──2── a speaker
//!  AS 65001          AS 65000       AS 65002
//! ```

use std::{fs, time::Duration};

use anyhow::{Result, ensure};
use holdfast_lab::{
    peers::{Bird, Frr},
    router::Router,
    topology::{ROUTER, Star},
    wait,
};

const LIMIT: Duration = Duration::from_secs(30);

const FIVE: [&str; 5] =
    ["198.51.100.0/28", "198.51.100.16/28", "198.51.100.32/28", "198.51.100.48/28", "198.51.100.64/28"];

/// A peer in network 1 of a group that lets everything pass, with these keys.
fn peer(rest: &str) -> String {
    format!(
        "[[bgp.group]]\nname = \"neighbors\"\nasn = 65001\nimport = \"accept-all\"\nexport = \"accept-all\"
         [[bgp.peer]]\nname = \"one\"\ngroup = \"neighbors\"\naddress = \"10.0.1.2\"\n{rest}\n"
    )
}

fn limit(rest: &str) -> String {
    peer(&format!("limit = [{{ family = \"ipv4-unicast\", {rest} }}]"))
}

fn reload(router: &Router, rest: &str) -> Result<String> {
    fs::write(router.configuration(), format!("{ROUTER}{rest}"))?;
    router.cli(&["reload"])
}

fn until_bird_says(bird: &Bird, words: &str) -> Result<()> {
    wait::until(words, LIMIT, || {
        let said = bird.birdc("show protocols all holdfast").map_err(|error| error.to_string())?;
        if said.contains(words) { Ok(()) } else { Err(said) }
    })
}

#[test]
fn above_a_limit_the_session_ends_and_with_a_higher_one_it_comes_back() -> Result<()> {
    let star = Star::new(1)?;
    let bird = star.bird(1, 65001, &FIVE, "")?;
    let router = Router::start(&star.router, &format!("{ROUTER}{}", limit("received = 4")))?;
    until_bird_says(&bird, "Maximum number of prefixes reached")?;
    router.until_neighbor("one", LIMIT, |shown| shown["bgpState"] == "Idle (too many prefixes)")?;

    let said = reload(&router, &limit("received = 6"))?;
    ensure!(!said.contains("ended"), "{said}");
    let shown = router.until_neighbor("one", LIMIT, |shown| {
        shown["addressFamilyInfo"]["ipv4Unicast"]["acceptedPrefixCounter"] == 5
    })?;
    ensure!(shown["addressFamilyInfo"]["ipv4Unicast"]["prefixAllowedMax"] == 6, "{shown}");
    ensure!(shown["peerGroup"] == "neighbors", "{shown}");
    ensure!(router.log().contains("event=\"prefixes-near-limit\""), "{}", router.log_tail());

    // What is raised and lowered above what there is leaves the session alone.
    let up = shown["connectionsEstablished"].clone();
    reload(&router, &limit("received = 5, announced = 7"))?;
    let shown = router.until_established("one", LIMIT)?;
    ensure!(shown["connectionsEstablished"] == up, "{shown}");
    let said = reload(&router, &limit("accepted = 1, action = \"restart\", restart-after = 1"))?;
    ensure!(said.contains("peers changed: one"), "{said}");
    // It is tried again every second, and each time ended again.
    router.until_neighbor("one", LIMIT, |shown| {
        shown["connectionsEstablished"].as_u64() > up.as_u64().map(|up| up + 1)
    })?;
    Ok(())
}

#[test]
fn a_peer_is_not_told_of_more_than_it_may_be() -> Result<()> {
    let star = Star::new(2)?;
    let frr = Frr::start(
        star.neighbor(1),
        "router bgp 65001\n bgp router-id 10.0.1.2\n no bgp ebgp-requires-policy\n neighbor 10.0.1.1 remote-as 65000\n",
    )?;
    let other =
        "[[bgp.peer]]\nname = \"bird\"\naddress = \"10.0.2.2\"\nasn = 65002\nimport = \"accept-all\"\n";
    let with = |most: u32| format!("{}{other}", limit(&format!("announced = {most}")));
    let router = Router::start(&star.router, &format!("{ROUTER}{}", with(4)))?;
    router.until_established("one", LIMIT)?;
    let _bird = star.bird(2, 65002, &FIVE, "")?;
    router.until_neighbor("one", LIMIT, |shown| shown["bgpState"] == "Idle (too many prefixes)")?;
    wait::until("what FRR has read", LIMIT, || {
        let shown = frr.vtysh("show bgp neighbors 10.0.1.1").map_err(|error| error.to_string())?;
        if shown.contains("Cease/Maximum Number of Prefixes Reached") { Ok(()) } else { Err(shown) }
    })?;
    ensure!(!frr.vtysh("show bgp ipv4 unicast")?.contains("198.51.100.64/28"));
    reload(&router, &with(5))?;
    wait::until("all routes at FRR", LIMIT, || {
        let shown = frr.vtysh("show bgp ipv4 unicast").map_err(|error| error.to_string())?;
        if FIVE.iter().all(|prefix| shown.contains(prefix)) { Ok(()) } else { Err(shown) }
    })
}

#[test]
fn a_peer_that_is_disabled_or_stopped_reads_why() -> Result<()> {
    let star = Star::new(1)?;
    let bird = star.bird(1, 65001, &FIVE, "")?;
    let router = Router::start(&star.router, &format!("{ROUTER}{}", peer("")))?;
    router.until_established("one", LIMIT)?;
    router.cli(&["peer", "stop", "one", "--text", "new fibre"])?;
    until_bird_says(&bird, "new fibre")?;
    ensure!(router.neighbor("one")?["bgpState"] == "Idle (stopped)");
    router.cli(&["peer", "start", "one"])?;
    router.until_established("one", LIMIT)?;

    let said = reload(&router, &peer("disabled = true\nshutdown-text = \"until Friday\""))?;
    ensure!(said.contains("sessions ended: one"), "{said}");
    until_bird_says(&bird, "until Friday")?;
    let shown = router.neighbor("one")?;
    ensure!(shown["bgpState"] == "Idle (disabled)" && shown["connectionsEstablished"] == 2, "{shown}");
    ensure!(router.cli(&["peer", "start", "one"]).is_err(), "the configuration says otherwise");
    reload(&router, &peer(""))?;
    router.until_established("one", LIMIT)?;
    router.cli(&["clear", "bgp", "one", "--text", "once more"])?;
    until_bird_says(&bird, "once more")?;
    Ok(())
}
