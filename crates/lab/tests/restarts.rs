//! Graceful restart with stock routers, in both roles: nobody beside sees anything.
//!
//! ```text
//!  FRR or BIRD ──1── Holdfast ──2── a speaker
//!  AS 65001          AS 65000       AS 65002
//! ```

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_lab::{
    kernel,
    peers::Frr,
    router::Router,
    topology::{ROUTER, Star},
    wait,
};

const LIMIT: Duration = Duration::from_secs(40);
const PREFIX: &str = "198.51.100.0/24";

fn peer(name: &str, network: u8, more: &str) -> String {
    format!(
        "[[bgp.peer]]\nname = \"{name}\"\naddress = \"10.0.{network}.2\"\nasn = 6500{network}
         import = \"accept-all\"\nexport = \"accept-all\"\n{more}\n"
    )
}

fn has_route(star: &Star) -> Result<bool> {
    Ok(kernel::routes(&star.router, false)?.contains_key(&PREFIX.parse()?))
}

#[test]
fn routes_of_a_router_that_restarts_stay_until_it_has_sent_them_again() -> Result<()> {
    let star = Star::new(2)?;
    let mut frr = Frr::start(
        star.neighbor(1),
        "router bgp 65001\n bgp router-id 10.0.1.2\n no bgp ebgp-requires-policy\n no bgp network import-check
 bgp graceful-restart\n bgp graceful-restart preserve-fw-state\n neighbor 10.0.1.1 remote-as 65000
 neighbor 10.0.1.1 timers connect 1\n address-family ipv4 unicast\n  network 198.51.100.0/24\n exit-address-family\n",
    )?;
    let router = Router::start(&star.router, &[ROUTER, &peer("frr", 1, ""), &peer("sink", 2, "")].concat())?;
    router.until_established("frr", LIMIT)?;
    let sink = star.speaker(2, 65002, |_| {})?;
    let prefix = PREFIX.parse()?;
    wait::until("the route at the sink", LIMIT, || match sink.route(prefix) {
        Some(_) => Ok(()),
        None => Err("it has none".to_owned()),
    })?;
    let before = sink.status().updates;

    frr.kill()?;
    router.until_neighbor("frr", LIMIT, |shown| {
        shown["addressFamilyInfo"]["ipv4Unicast"]["stalePrefixCounter"] == 1
    })?;
    ensure!(has_route(&star)?, "the kernel forwards on");
    frr.start_again(star.neighbor(1))?;
    router.until_neighbor("frr", LIMIT, |shown| {
        let family = &shown["addressFamilyInfo"]["ipv4Unicast"];
        shown["connectionsEstablished"] == 2
            && family["stalePrefixCounter"].is_null()
            && family["acceptedPrefixCounter"] == 1
    })?;
    ensure!(has_route(&star)?);
    ensure!(sink.route(prefix).is_some());
    ensure!(sink.status().updates == before, "the sink was told nothing");
    Ok(())
}

#[test]
fn a_neighbor_keeps_our_routes_while_we_restart() -> Result<()> {
    let star = Star::new(1)?;
    let bird = star.bird(1, 65001, &[PREFIX], "graceful restart on;")?;
    let configuration = [
        ROUTER,
        "nonstop = false\n[fea]\nkeep-routes = true\n[[bgp.network]]\nprefix = \"203.0.113.0/24\"\n",
        &peer("bird", 1, "graceful-restart = \"full\""),
    ]
    .concat();
    let ours = || -> Result<String> { bird.birdc("show route 203.0.113.0/24") };
    let router = Router::start(&star.router, &configuration)?;
    wait::until("our route at BIRD", LIMIT, || match ours() {
        Ok(shown) if shown.contains("203.0.113.0/24") => Ok(()),
        shown => Err(format!("{shown:?}")),
    })?;
    // Killed, all of it at once.
    drop(router);
    wait::until("BIRD waits", LIMIT, || {
        let shown = bird.birdc("show protocols all holdfast").map_err(|error| error.to_string())?;
        if shown.contains("Established") { Err(shown) } else { Ok(()) }
    })?;
    ensure!(ours()?.contains("203.0.113.0/24"), "{}", ours()?);
    ensure!(has_route(&star)?, "the kernel forwards on");
    let router = Router::start(&star.router, &configuration)?;
    router.until_neighbor("bird", LIMIT, |shown| {
        shown["addressFamilyInfo"]["ipv4Unicast"]["endOfRibSend"] == true
    })?;
    ensure!(router.log().contains("event=\"restart-over\""), "{}", router.log_tail());
    ensure!(ours()?.contains("203.0.113.0/24"), "{}", ours()?);
    wait::until("the end of the restart at BIRD", LIMIT, || {
        let shown = bird.birdc("show protocols all holdfast").map_err(|error| error.to_string())?;
        if shown.contains("Established") && !shown.contains("Restarting") { Ok(()) } else { Err(shown) }
    })?;
    ensure!(has_route(&star)?);
    Ok(())
}

#[test]
fn routes_of_a_router_that_stays_away_are_the_last_resort() -> Result<()> {
    let star = Star::new(2)?;
    let session = "graceful restart on; graceful restart time 1;
        long lived graceful restart on; long lived stale time 3600;";
    let bird = star.bird(1, 65001, &[PREFIX], session)?;
    let long = peer("bird", 1, "long-lived-stale-time = 3600");
    let router = Router::start(&star.router, &[ROUTER, &long, &peer("sink", 2, "")].concat())?;
    let sink = star.speaker(2, 65002, |_| {})?;
    let prefix = PREFIX.parse()?;
    wait::until("the route at the sink", LIMIT, || match sink.route(prefix) {
        Some(_) => Ok(()),
        None => Err("it has none".to_owned()),
    })?;
    // Killed, without a word.
    drop(bird);
    wait::until("the withdrawal for who does not know of it", LIMIT, || match sink.route(prefix) {
        Some(_) => Err("it has the route".to_owned()),
        None => Ok(()),
    })?;
    ensure!(has_route(&star)?, "the kernel forwards on");
    let shown = router.show(&["bgp", "route", PREFIX])?;
    ensure!(shown["paths"][0]["stale"] == true, "{shown}");
    ensure!(shown["paths"][0]["community"]["string"] == "65535:6", "{shown}");
    Ok(())
}
