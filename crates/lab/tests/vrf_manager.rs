//! What the manager does for VRFs: it opens their sockets where no fea runs, and has them move.
//!
//! ```text
//!  Holdfast ── nothing          default table
//!     └─ red ──1── BIRD         a network namespace
//! ```

use std::{collections::BTreeSet, fs, time::Duration};

use anyhow::{Context, Result};
use holdfast_lab::{
    netns::Namespace,
    peers::Bird,
    router::Router,
    topology::{ROUTER, join},
    wait,
};

const LIMIT: Duration = Duration::from_secs(30);

fn vrf(netns: &Namespace) -> String {
    format!("[[vrf]]\nname = \"red\"\nnetns = \"{}\"\n", netns.name())
}

fn peer(rest: &str) -> String {
    format!(
        "[[bgp.peer]]\nname = \"beside\"\nvrf = \"red\"\naddress = \"10.0.1.2\"\nasn = 65001\nconnect-retry = 1
        import = \"accept-all\"\nexport = \"accept-all\"\n{rest}\n"
    )
}

fn bird(host: &Namespace) -> Result<Bird> {
    let session = "protocol bgp holdfast {
        local 10.0.1.2 as 65001; neighbor 10.0.1.1 as 65000;
        connect delay time 1; connect retry time 1; error wait time 1, 2;
        ipv4 { import all; export all; };
    }";
    let routes = "protocol device { } protocol static { ipv4; route 198.51.100.0/24 blackhole; }";
    Bird::start(host, &format!("router id 10.0.1.2; {routes} {session}"))
}

/// Waits until the session in the VRF is up, for this number of times by now.
fn until_established(router: &Router, times: u64) -> Result<()> {
    wait::until("the session in the VRF", LIMIT, || {
        let shown = router.show(&["bgp", "neighbors", "beside", "--vrf", "red"]);
        let shown = shown.map_err(|error| error.to_string())?;
        let peer = shown.as_object().and_then(|all| all.values().next()).ok_or("no peer")?;
        let is_up =
            peer["bgpState"] == "Established" && peer["connectionsEstablished"].as_u64() == Some(times);
        if is_up { Ok(()) } else { Err(peer.to_string()) }
    })
    .with_context(|| router.log_tail())
}

fn reload(router: &Router, text: &str) -> Result<String> {
    fs::write(router.configuration(), text)?;
    router.cli(&["reload"])
}

#[test]
fn without_a_fea_sockets_of_a_vrf_come_from_the_manager_and_from_the_next_one() -> Result<()> {
    let [host, red, neighbor] =
        [Namespace::new("router")?, Namespace::new("red")?, Namespace::new("beside")?];
    join(1, &red, &neighbor)?;
    let _bird = bird(&neighbor)?;
    let text = |rest: &str| format!("{ROUTER}[rib]\nenabled = false\n{}{}", vrf(&red), peer(rest));
    let router = Router::start(&host, &text(""))?;
    until_established(&router, 1)?;
    router.kill("manager")?;
    router.wait_running()?;
    until_established(&router, 1).context("the death of the manager is nothing to the session")?;
    // A session of its own: it needs a listener and a dialled socket of the new manager's.
    reload(&router, &text("hold-time = 33"))?;
    wait::until("the session anew", LIMIT, || {
        let shown =
            router.show(&["bgp", "neighbors", "beside", "--vrf", "red"]).map_err(|e| e.to_string())?;
        let peer = shown.as_object().and_then(|all| all.values().next()).ok_or("no peer")?;
        let is_up = peer["bgpState"] == "Established" && peer["bgpTimerHoldTimeMsecs"] == 33_000;
        if is_up { Ok(()) } else { Err(peer.to_string()) }
    })
    .with_context(|| router.log_tail())?;
    router.stop()
}

#[test]
fn a_vrf_that_moves_takes_its_routes_along_and_the_next_manager_knows_it() -> Result<()> {
    let [host, before, after] =
        [Namespace::new("router")?, Namespace::new("before")?, Namespace::new("after")?];
    let [left, right] = [Namespace::new("left")?, Namespace::new("right")?];
    join(1, &before, &left)?;
    join(1, &after, &right)?;
    let route = "[[static]]\nvrf = \"red\"\nprefix = \"192.0.2.0/24\"\nnext-hop = \"10.0.1.2\"\n";
    let router = Router::start(&host, &format!("{ROUTER}{}{route}", vrf(&before)))?;
    let installed = |netns: &Namespace, wanted: &[&str]| {
        wait::until("routes of ours", LIMIT, || {
            let shown =
                netns.ip(&["-o", "route", "show", "proto", "75"]).map_err(|error| error.to_string())?;
            let routes: BTreeSet<_> = shown.lines().filter_map(|line| line.split(' ').next()).collect();
            let is_so = routes.iter().eq(wanted.iter());
            if is_so { Ok(()) } else { Err(shown) }
        })
    };
    installed(&before, &["192.0.2.0/24"]).with_context(|| router.log_tail())?;
    reload(&router, &format!("{ROUTER}{}{route}", vrf(&after)))?;
    installed(&after, &["192.0.2.0/24"]).with_context(|| router.log_tail())?;
    installed(&before, &[]).with_context(|| router.log_tail())?;

    router.kill("manager")?;
    router.wait_running()?;
    installed(&after, &["192.0.2.0/24"])?;
    let another = route.replace("192.0.2.0", "203.0.113.0");
    reload(&router, &format!("{ROUTER}{}{route}{another}", vrf(&after)))?;
    installed(&after, &["192.0.2.0/24", "203.0.113.0/24"]).context("by way of the next manager")?;
    router.stop()
}
