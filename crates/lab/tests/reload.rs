//! Another configuration for a router that runs: what is different takes effect, nothing else is touched.
//!
//! ```text
//!  BIRD ──1── Holdfast ──2── a speaker, from a listen range
//!  AS 65001   AS 65000       AS 65002
//! ```

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    kernel,
    peers::{Bird, Frr},
    router::Router,
    scale::Scale,
    topology::{ROUTER, Star},
    wait,
};
use rustix::process::{Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(30);

const TRANSIT: &str = r#"
[[policy]]
name = "in"
[[policy.term]]
from = { prefix-set = "wanted" }
then = "accept"
[[bgp.peer]]
name = "transit"
address = "10.0.1.2"
asn = 65001
import = "in"
export = "accept-all"
"#;

/// BIRD counts its sessions in the log.
const EVENTS: &str = "debug { events };";

const TRANSIT_2: &str = r#"
[[bgp.peer]]
name = "second"
address = "10.0.2.2"
asn = 65001
import = "in"
export = "accept-all"
"#;

const GUESTS: &str = r#"
[[bgp.peer]]
name = "guests"
listen-range = "10.0.2.0/24"
asn = "any"
import = "accept-all"
export = "accept-all"
"#;

/// A peer that nobody is.
const NOBODY: &str = "[[bgp.peer]]\nname = \"nobody\"\naddress = \"10.0.1.77\"\nasn = 65077\n";

fn wanted(prefixes: &str) -> String {
    format!("[[prefix-set]]\nname = \"wanted\"\nprefixes = [{prefixes}]\n")
}

fn bird(star: &Star) -> Result<Bird> {
    star.bird(1, 65001, &["198.51.100.0/24", "203.0.113.0/24"], EVENTS)
}

/// Puts another configuration into the file; what `holdfast reload` says of it.
fn reload(router: &Router, parts: &[&str]) -> Result<String> {
    fs::write(router.configuration(), parts.concat())?;
    router.cli(&["reload"])
}

fn until_installed(star: &Star, prefix: &str, wanted: bool) -> Result<()> {
    let prefix = prefix.parse()?;
    wait::until("the kernel's route", LIMIT, || {
        let routes = kernel::routes(&star.router, false).map_err(|error| error.to_string())?;
        if routes.contains_key(&prefix) == wanted { Ok(()) } else { Err(format!("{routes:?}")) }
    })
}

/// Until the kernel has no more next hops than those of one route: two gateways, and the group of both.
fn until_used_alone(star: &Star) -> Result<()> {
    wait::until("the next hops that are used", LIMIT, || {
        let objects = star.router.ip(&["nexthop", "show", "proto", kernel::PROTOCOL]);
        let objects = objects.map_err(|error| error.to_string())?;
        if objects.lines().count() == 3 { Ok(()) } else { Err(objects) }
    })
}

#[test]
fn what_is_different_takes_effect_and_other_sessions_stay() -> Result<()> {
    let star = Star::new(2)?;
    let bird = bird(&star)?;
    let one = wanted("\"198.51.100.0/24\"");
    let router = Router::start(&star.router, &[ROUTER, TRANSIT, &one, GUESTS].concat())?;
    router.until_established("transit", LIMIT)?;
    until_installed(&star, "198.51.100.0/24", true)?;
    let guest = star.speaker(2, 65002, |_| {})?;
    router.until_established("guests:10.0.2.2", LIMIT)?;
    ensure!(bird.sessions()? == 1);

    ensure!(reload(&router, &[ROUTER, TRANSIT, &one, GUESTS])?.contains("nothing has changed"));

    // A policy: for routes that are there already. A peer more is no matter of the others. And a session that is not
    // to outlive bgp any more lives on, and what no OPEN says ends none.
    let other = wanted("\"203.0.113.0/24\"");
    let local =
        "nonstop = false\npassive = true\nconnect-retry = 9\nstale-time = 10\nenforce-first-as = false";
    let mortal = TRANSIT.replace("asn = 65001", &format!("asn = 65001\n{local}"));
    let text = reload(&router, &[ROUTER, &mortal, &other, GUESTS, NOBODY])?;
    for change in ["prefix-sets changed: wanted", "peers added: nobody", "peers changed: transit"] {
        ensure!(text.contains(change), "{text}");
    }
    until_installed(&star, "203.0.113.0/24", true)?;
    until_installed(&star, "198.51.100.0/24", false)?;
    ensure!(router.neighbor("nobody")?["bgpState"] != "Established");

    // A peer and a range less, by signal: who is gone is told so.
    fs::write(router.configuration(), [ROUTER, &mortal, &other].concat())?;
    kill_process(router.pid("keeper")?, Signal::HUP)?;
    wait::until("the end of the guest's session", LIMIT, || {
        let log = router.log();
        let ended = log.lines().any(|line| line.contains("sessions ended: guests:10.0.2.2"));
        if ended { Ok(()) } else { Err(router.log_tail()) }
    })?;
    ensure!(router.show(&["bgp", "neighbors"])?.as_object().map(serde_json::Map::len) == Some(1));
    drop(guest);
    ensure!(bird.sessions()? == 1, "the transit's session did not stay");

    // A key of the session itself: it begins anew, at once.
    let slower = TRANSIT.replace("asn = 65001", "asn = 65001\nhold-time = 30");
    let text = reload(&router, &[ROUTER, &slower, &other])?;
    ensure!(text.contains("peers changed: transit") && text.contains("sessions ended: transit"), "{text}");
    router.until_established("transit", LIMIT)?;
    ensure!(router.neighbor("transit")?["bgpTimerHoldTimeMsecs"] == 30_000);
    until_installed(&star, "203.0.113.0/24", true)
}

#[test]
fn a_wrong_file_changes_nothing() -> Result<()> {
    let star = Star::new(1)?;
    let bird = bird(&star)?;
    let one = wanted("\"198.51.100.0/24\"");
    let router = Router::start(&star.router, &[ROUTER, TRANSIT, &one].concat())?;
    router.until_established("transit", LIMIT)?;
    ensure!(bird.sessions()? == 1);
    let refused = |parts: &[&str]| -> Result<String> {
        Ok(reload(&router, parts).err().context("it should be refused")?.to_string())
    };
    let text = refused(&[ROUTER, TRANSIT, &wanted("\"203.0.113.0/24\""), "pasive = true\n"])?;
    ensure!(text.contains("router.toml:") && text.contains("pasive"), "{text}");
    until_installed(&star, "198.51.100.0/24", true)?;
    until_installed(&star, "203.0.113.0/24", false)?;
    ensure!(bird.sessions()? == 1, "a session more");
    ensure!(router.log().contains("reload refused"), "{}", router.log_tail());
    Ok(())
}

#[test]
fn of_five_thousand_peers_one_is_changed_and_the_others_are_not_touched() -> Result<()> {
    let star = Star::new(1)?;
    let _bird = bird(&star)?;
    let scale = Scale::default();
    let big = [ROUTER, &scale.configuration(), TRANSIT, &wanted("\"198.51.100.0/24\"")].concat();
    let router = Router::start(&star.router, &big)?;
    router.until_established("transit", LIMIT)?;
    let peers = router.show(&["bgp", "summary"])?;
    ensure!(peers["ipv4Unicast"]["peerCount"] == 4001, "{}", peers["ipv4Unicast"]["peerCount"]);

    ensure!(reload(&router, &[&big])?.contains("nothing has changed"));
    let name = Scale::name(4321);
    let text = reload(&router, &[&big.replace("port 4321 of", "port 9 of")])?;
    ensure!(text.trim() == format!("peers changed: {name}"), "{text}");
    let changed = router.neighbor(&name)?;
    ensure!(changed["nbrDesc"] == "port 9 of the exchange", "{changed}");
    ensure!(router.neighbor("transit")?["connectionsDropped"] == 0);
    Ok(())
}

/// What `bgp` has worked into every route, and the rib into its tables: their processes are replaced, and neither sessions
/// nor the kernel's routes notice.
#[test]
fn settings_of_the_whole_speaker_change_under_its_sessions() -> Result<()> {
    let star = Star::new(2)?;
    let prefix = "198.51.100.0/24";
    let birds = [star.bird(1, 65001, &[prefix], EVENTS)?, star.bird(2, 65001, &[prefix], EVENTS)?];
    let peers = [TRANSIT, TRANSIT_2].concat();
    let set = wanted(&format!("\"{prefix}\""));
    let with = |settings: &str, rib: &str| {
        let router = ROUTER.replace("[bgp]", &format!("{rib}[bgp]\n{settings}"));
        [router, peers.clone(), set.clone()].concat()
    };
    let router = Router::start(&star.router, &with("", ""))?;
    let names = ["transit", "second"];
    names.iter().try_for_each(|name| router.until_established(name, LIMIT).map(drop))?;
    until_installed(&star, prefix, true)?;
    let mut monitor = None;
    let gateways = |wanted: usize| {
        wait::until("next hops in the kernel", LIMIT, || {
            let routes = kernel::routes(&star.router, false).map_err(|error| error.to_string())?;
            let route = routes.get(&prefix.parse().expect("a prefix")).cloned().unwrap_or_default();
            let found = ["10.0.1.2", "10.0.2.2"].iter().filter(|gateway| route.contains(**gateway)).count();
            if found == wanted { Ok(()) } else { Err(route) }
        })
    };
    gateways(1)?;
    for (settings, rib, replaced) in [
        ("max-paths = 2\n", "", "processes replaced: bgp\n"),
        (
            "max-paths = 2\nlocal-preference = 200\ncluster-id = \"10.0.0.99\"\n",
            "",
            "processes replaced: bgp\n",
        ),
        ("max-paths = 2\ndamping = {}\nnonstop-memory = \"512 MiB\"\n", "", "processes replaced: bgp\n"),
        ("max-paths = 2\n", "[rib]\ndistance = { ebgp = 30 }\n", "processes replaced: rib, bgp\n"),
        ("max-paths = 2\n", "[sandbox.limits.rib]\nmemory = \"1 GiB\"\n", "processes replaced: rib, bgp\n"),
    ] {
        let text = reload(&router, &[&with(settings, rib)])?;
        ensure!(text.contains(replaced) && !text.contains("sessions ended"), "{text}");
        gateways(2)?;
        // From the second one on nothing is different for the kernel. What the route used before the first goes a little
        // after it.
        if monitor.is_none() {
            until_used_alone(&star)?;
            monitor = Some(kernel::Monitor::start(&star.router)?);
        }
        if settings.contains("local-preference") {
            let shown = router.show(&["bgp", "route", prefix])?;
            ensure!(shown["paths"][0]["locPrf"] == 200, "{shown}");
        }
        if rib.contains("ebgp") {
            wait::until("the distance", LIMIT, || {
                let shown = router.show(&["route", prefix]).map_err(|error| error.to_string())?;
                if shown[prefix][0]["distance"] == 30 { Ok(()) } else { Err(shown.to_string()) }
            })?;
        }
    }
    for bird in &birds {
        ensure!(bird.sessions()? == 1, "a session did not stay: {}", router.log_tail());
    }
    let deleted = monitor.context("it is watched")?.deletions()?;
    ensure!(deleted.is_empty(), "{deleted:?}");
    Ok(())
}

/// Whether a process is there, and whether seccomp closes it.
fn process(router: &Router, name: &str) -> Result<Option<bool>> {
    Ok(router.show(&["processes"])?[name]["seccomp"].as_bool())
}

/// The neighbour begins its session anew, by a connection of its own.
fn begin_anew(bird: &Bird) -> Result<()> {
    bird.birdc("disable holdfast")?;
    bird.birdc("enable holdfast")?;
    wait::until("the session that the neighbour begins", LIMIT, || {
        let text = bird.birdc("show protocols holdfast").map_err(|error| error.to_string())?;
        if text.contains("Established") { Ok(()) } else { Err(text) }
    })
}

/// The form of the log, the sandbox, the RIB, and BGP itself.
#[test]
fn what_the_router_is_made_of_changes_while_it_runs() -> Result<()> {
    let star = Star::new(2)?;
    let prefix = "198.51.100.0/24";
    let birds = [star.bird(1, 65001, &[prefix], EVENTS)?, star.bird(2, 65001, &[], EVENTS)?];
    // Who waits needs a listener.
    let peers = [TRANSIT, &TRANSIT_2.replace("asn = 65001", "asn = 65001\npassive = true")].concat();
    let set = wanted(&format!("\"{prefix}\""));
    let with = |more: &str| [ROUTER, &peers, &set, more].concat();
    let router = Router::start(&star.router, &with(""))?;
    ["transit", "second"].iter().try_for_each(|name| router.until_established(name, LIMIT).map(drop))?;
    until_installed(&star, prefix, true)?;

    reload(&router, &[&with("[log]\nformat = \"json\"\n")])?;
    // The manager says something.
    let objects = || router.log().lines().filter(|line| line.starts_with("{\"timestamp\"")).count();
    wait::until("lines that are objects", LIMIT, || {
        router.cli(&["reload"]).map_err(|error| error.to_string())?;
        if objects() > 0 { Ok(()) } else { Err(router.log_tail()) }
    })?;
    reload(&router, &[&with("")])?;

    let manager = router.pid("manager")?;
    ensure!(process(&router, "bgp")? == Some(true), "it is closed");
    let text = reload(&router, &[&with("[sandbox]\nmode = \"off\"\n")])?;
    ensure!(text.contains("processes replaced") && text.contains("manager"), "{text}");
    wait::until("processes that are open, and another manager", LIMIT, || {
        let is_open = |name| process(&router, name).is_ok_and(|closed| closed == Some(false));
        let next = router.pid("manager").is_ok_and(|pid| pid != manager);
        if next && ["fea", "rib", "bgp", "transport", "manager"].into_iter().all(is_open) {
            Ok(())
        } else {
            Err(router.log_tail())
        }
    })?;
    until_installed(&star, prefix, true)?;
    for bird in &birds {
        ensure!(bird.sessions()? == 1, "a session did not stay: {}", router.log_tail());
    }

    reload(&router, &[&with("[rib]\nenabled = false\n")])?;
    router.wait_running()?;
    until_installed(&star, prefix, false)?;
    ensure!(process(&router, "fea")?.is_none() && process(&router, "rib")?.is_none(), "they have gone");
    ensure!(birds[0].sessions()? == 1 && birds[1].sessions()? == 1, "a session did not stay");
    begin_anew(&birds[1]).context("the manager listens")?;

    reload(&router, &[&with("")])?;
    router.wait_running()?;
    until_installed(&star, prefix, true)?;
    ensure!(birds[0].sessions()? == 1 && birds[1].sessions()? == 2, "a session did not stay");
    begin_anew(&birds[1]).context("fea listens")?;

    let text = reload(&router, &["[router]\nid = \"10.0.0.1\"\nasn = 65000\n", &set])?;
    ensure!(text.contains("sessions ended: transit, second"), "{text}");
    until_installed(&star, prefix, false)?;
    ensure!(process(&router, "bgp")?.is_none(), "it has gone");
    reload(&router, &[&with("")])?;
    until_installed(&star, prefix, true)?;
    ensure!(birds[0].sessions()? == 2, "{}", router.log_tail());
    Ok(())
}

/// FRR makes one route of two, with an AS_SET.
#[test]
fn as_sets_are_asked_for_when_they_are_taken_from_now_on() -> Result<()> {
    let star = Star::new(2)?;
    let bird = "router id 10.0.1.2;
        protocol device { }
        protocol static { ipv4; route 198.51.100.0/25 blackhole; route 198.51.100.128/25 blackhole; }
        protocol bgp holdfast {
          local 10.0.1.2 as 65001; neighbor 10.0.1.1 as 65000;
          connect delay time 1; connect retry time 1;
          ipv4 { import all; export filter {
            if net = 198.51.100.0/25 then bgp_path.prepend(65077);
            accept;
          }; };
          debug { events };
        }";
    let bird = Bird::start(star.neighbor(1), bird)?;
    let frr = "router bgp 65002
          bgp router-id 10.0.2.2
          no bgp ebgp-requires-policy
          neighbor 10.0.2.1 remote-as 65000
          neighbor 10.0.2.1 timers connect 1
          address-family ipv4 unicast
            aggregate-address 198.51.100.0/24 as-set
        ";
    let frr = Frr::start(star.neighbor(2), frr)?;
    let peers = [TRANSIT, &TRANSIT_2.replace("asn = 65001", "asn = 65002\nallow-own-asn = 10")].concat();
    let peers = peers.replace("\"in\"\nexport", "\"accept-all\"\nexport");
    let with = |settings: &str| {
        [ROUTER.replace("[bgp]", &format!("[bgp]\n{settings}")), peers.clone(), wanted("\"10.0.0.0/8\"")]
            .concat()
    };
    let router = Router::start(&star.router, &with(""))?;
    ["transit", "second"].iter().try_for_each(|name| router.until_established(name, LIMIT).map(drop))?;
    let until_there = |wanted: bool| {
        wait::until("the route with the set", LIMIT, || {
            let shown = router.show(&["bgp", "route", "198.51.100.0/24"]);
            let is_there = shown.as_ref().is_ok_and(|shown| shown.to_string().contains("65077"));
            let text = shown.map_or_else(|error| error.to_string(), |shown| shown.to_string());
            if is_there == wanted { Ok(()) } else { Err(format!("{text}; {}", router.log_tail())) }
        })
    };
    wait::until("the aggregate at the neighbour", LIMIT, || {
        let text = frr.vtysh("show bgp ipv4 unicast 198.51.100.0/24").map_err(|error| error.to_string())?;
        if text.contains('{') { Ok(()) } else { Err(text) }
    })?;
    until_there(false)?;
    for (settings, is_there) in [("as-sets = \"accept\"\n", true), ("", false)] {
        let text = reload(&router, &[&with(settings)])?;
        ensure!(!text.contains("sessions ended") && !text.contains("replaced"), "{text}");
        until_there(is_there)?;
    }
    // In the same reload as what replaces bgp, the next process asks.
    let text = reload(&router, &[&with("as-sets = \"accept\"\nmax-paths = 4\n")])?;
    ensure!(text.contains("processes replaced: bgp") && !text.contains("sessions ended"), "{text}");
    until_there(true)?;
    ensure!(bird.sessions()? == 1 && router.neighbor("second")?["connectionsDropped"] == 0);
    Ok(())
}

/// Both families over one session: our next hop for the other one is what is configured.
#[test]
fn another_next_hop_is_told_in_the_same_session() -> Result<()> {
    let star = Star::new(1)?;
    let bird = "router id 10.0.1.2;
        protocol device { }
        protocol bgp holdfast {
          local 10.0.1.2 as 65001; neighbor 10.0.1.1 as 65000;
          connect delay time 1; connect retry time 1;
          ipv4 { import all; export all; };
          ipv6 { import all; export all; };
          debug { events };
        }";
    let bird = Bird::start(star.neighbor(1), bird)?;
    let with = |next_hop: &str, settings: &str| {
        let peer = format!(
            "[[bgp.network]]\nprefix = \"203.0.113.0/24\"\n[[bgp.network]]\nprefix = \"2001:db8:113::/48\"\n\
             [[bgp.peer]]\nname = \"a\"\naddress = \"10.0.1.2\"\nasn = 65001\n\
             families = [\"ipv4-unicast\", \"ipv6-unicast\"]\nexport = \"accept-all\"\n{next_hop}\n"
        );
        [ROUTER.replace("[bgp]", &format!("[bgp]\n{settings}")), peer].concat()
    };
    let next_hop = |last: u8| format!("next-hop-ipv6 = \"2001:db8:1::{last}\"");
    let router = Router::start(&star.router, &with(&next_hop(1), ""))?;
    router.until_established("a", LIMIT)?;
    let until_told = |wanted: Option<u8>| {
        let wanted = wanted.map(|last| format!("BGP.next_hop: 2001:db8:1::{last}"));
        wait::until("our next hop", LIMIT, || {
            let text = bird.birdc("show route 2001:db8:113::/48 all").unwrap_or_default();
            let is_told = match &wanted {
                Some(wanted) => text.lines().any(|line| line.trim().starts_with(wanted)),
                None => !text.contains("next_hop"),
            };
            if is_told { Ok(()) } else { Err(text) }
        })
    };
    until_told(Some(1))?;
    for (last, settings) in [(Some(7), ""), (None, ""), (Some(8), ""), (Some(9), "max-paths = 2\n")] {
        let text = reload(&router, &[&with(&last.map(next_hop).unwrap_or_default(), settings)])?;
        ensure!(!text.contains("sessions ended"), "{text}");
        until_told(last).with_context(|| router.log_tail())?;
    }
    ensure!(bird.sessions()? == 1, "a session more");
    Ok(())
}
