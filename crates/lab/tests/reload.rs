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
    peers::Bird,
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
        // From the second one on nothing is different for the kernel.
        if monitor.is_none() {
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
