//! BGP in VRFs: a BIRD in each table, all of the same address, with a prefix that all announce and one of its own.

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    kernel::Monitor,
    keys::Signer,
    peers::Bird,
    router::{Files, Router},
    vrf::{Scene, TABLES},
    wait,
};

const LIMIT: Duration = Duration::from_secs(60);

const MAIN: (&str, &[&str]) = ("main", &["20.0.0.0/24", "20.0.1.0/24"]);
const BLUE: (&str, &[&str]) = ("blue", &["20.0.0.0/24", "20.0.2.0/24"]);
const RED: (&str, &[&str]) = ("red", &["20.0.0.0/24", "20.0.3.0/24"]);

fn birds(scene: &Scene) -> Result<[Bird; 3]> {
    let bird = |(table, prefixes): (&str, &[&str]), asn| scene.bird(table, asn, prefixes);
    Ok([bird(MAIN, 65001)?, bird(BLUE, 65002)?, bird(RED, 65003)?])
}

/// A peer in each of these tables, called as the table, and a network of our own in each.
fn configuration(scene: &Scene, red: bool) -> String {
    let mut rest = "[bgp]\nconnect-retry = 1\n".to_owned();
    for (table, number) in TABLES.into_iter().zip(1..).filter(|(table, _)| red || *table != "red") {
        let vrf = if table == "main" { String::new() } else { format!("vrf = \"{table}\"\n") };
        rest += &format!(
            "[[bgp.peer]]\nname = \"{table}\"\n{vrf}address = \"10.0.1.2\"\nasn = {}\n\
            import = \"accept-all\"\nexport = \"accept-all\"\n",
            65000 + number
        );
    }
    rest += "[[bgp.network]]\nprefix = \"30.0.1.0/24\"\n";
    let text = scene.configuration(red, &rest);
    let with = |text: String, vrf: &str, network: &str| {
        let name = format!("name = \"{vrf}\"\n");
        text.replacen(&name, &format!("{name}networks = [\"{network}\"]\n"), 1)
    };
    with(with(text, "blue", "30.0.2.0/24"), "red", "30.0.3.0/24")
}

/// All that has become of BIRD's session, as BIRD says: it has come up once, and nothing since.
fn ensure_one_session(bird: &Bird) -> Result<()> {
    let log = bird.log();
    let up = log.find("holdfast: State changed to up").with_context(|| log.clone())?;
    let since = log[up..].lines().skip(1).find(|line| line.contains("holdfast"));
    ensure!(since.is_none(), "{log}");
    Ok(())
}

/// Waits until a BIRD has from us exactly the network of its table.
fn until_told(bird: &Bird, network: &str) -> Result<()> {
    wait::until("what BIRD is told", LIMIT, || {
        let text = bird.birdc("show route protocol holdfast").map_err(|error| format!("{error:#}"))?;
        let prefixes: Vec<_> = text
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .filter(|w| w.contains('/'))
            .collect();
        if prefixes == [network] { Ok(()) } else { Err(text) }
    })
}

/// Waits until each table is as it should be, in the kernel and at its BIRD.
fn until_settled(scene: &Scene, birds: &[Bird]) -> Result<()> {
    scene.until_routes(&[MAIN, BLUE, RED][..birds.len()])?;
    let networks = ["30.0.1.0/24", "30.0.2.0/24", "30.0.3.0/24"];
    birds.iter().zip(networks).try_for_each(|(bird, network)| until_told(bird, network))
}

#[test]
fn sessions_of_one_address_in_three_tables_stay_apart_and_outlive_bgp() -> Result<()> {
    let scene = Scene::new()?;
    let birds = birds(&scene)?;
    let router = Router::start(&scene.host, &configuration(&scene, true))?;
    until_settled(&scene, &birds).with_context(|| router.log_tail())?;

    let vrfs = router.show(&["vrf"])?;
    for vrf in ["blue", "red"] {
        let shown = &vrfs["vrfs"][vrf];
        ensure!(shown["numConfiguredPeers"] == 1 && shown["numEstablishedPeers"] == 1, "{vrfs}");
        let routes = router.show(&["bgp", "routes", "--vrf", vrf])?;
        ensure!(routes["totalRoutes"] == 3 && routes["vrfName"] == vrf, "{routes}");
        let shown = router.show(&["bgp", "neighbors", vrf, "--vrf", vrf])?;
        ensure!(shown["10.0.1.2"]["name"] == vrf, "{shown}");
        let called = router.cli(&["call", &format!("bgp@{vrf}/bgp.v1/ShowSummary")])?;
        ensure!(called.contains("65000"), "{called}");
        let counted = router.cli(&["show", "counters", "bgp_peer_up", "--vrf", vrf])?;
        ensure!(counted.trim() == format!("holdfast_bgp_peer_up{{peer={vrf:?},vrf={vrf:?}}} 1"), "{counted}");
    }
    ensure!(router.neighbor("blue").is_err(), "it is no peer of the default table");

    // Three sessions, three logs, and nobody notices.
    let protected = |vrf: &[&str]| {
        let nsr = router.show(&[&["nsr"], vrf].concat()).map_err(|error| format!("{error:#}"))?;
        let yes = nsr["peers"]["10.0.1.2"]["protected"] == true;
        if yes { Ok(nsr["resumedSessions"].clone()) } else { Err(nsr.to_string()) }
    };
    let all = [&[][..], &["--vrf", "blue"], &["--vrf", "red"]];
    for table in all {
        wait::until("protected", LIMIT, || protected(table))?;
    }
    let monitors = [Monitor::start(&scene.host)?, Monitor::start(&scene.red)?];
    for _ in 0..2 {
        let pid = router.pid("bgp")?;
        router.kill("bgp")?;
        wait::until("another bgp", LIMIT, || match router.pid("bgp") {
            Ok(now) if now != pid => Ok(()),
            now => Err(format!("{now:?}")),
        })?;
        router.wait_running()?;
        for table in all {
            wait::until("resumed", LIMIT, || match protected(table)? {
                resumed if resumed == 1 => Ok(()),
                resumed => Err(format!("{resumed} sessions")),
            })
            .with_context(|| router.log_tail())?;
        }
    }
    until_settled(&scene, &birds)?;
    birds.iter().try_for_each(ensure_one_session)?;
    for monitor in monitors {
        let deleted = monitor.deletions()?;
        ensure!(deleted.is_empty(), "the kernel has lost {deleted:?}");
    }

    // Whoever else dies: it comes back with all its tables.
    for process in ["manager", "rib", "fea", "transport"] {
        router.kill(process)?;
        wait::until("its successor", LIMIT, || router.pid(process).map_err(|error| format!("{error:#}")))?;
        router.wait_running()?;
        until_settled(&scene, &birds).with_context(|| format!("after the death of {process}"))?;
    }
    birds.iter().try_for_each(ensure_one_session)?;
    Ok(())
}

#[test]
fn a_vrf_comes_and_goes_with_its_sessions_and_no_other_notices() -> Result<()> {
    let scene = Scene::new()?;
    let birds = birds(&scene)?;
    let [with, without] = [true, false].map(|red| configuration(&scene, red));
    let router = Router::start(&scene.host, &with)?;
    until_settled(&scene, &birds).with_context(|| router.log_tail())?;
    fs::write(router.configuration(), &without)?;
    let said = router.cli(&["reload"])?;
    ensure!(said.contains("sessions ended: red"), "{said}");
    scene.until_routes(&[("red", &[])])?;
    let log = birds[2].log();
    ensure!(log.contains("Peer de-configured"), "{log}");
    ensure!(router.cli(&["show", "bgp", "summary", "--vrf", "red"]).is_err(), "it is gone");
    until_settled(&scene, &birds[..2])?;

    fs::write(router.configuration(), &with)?;
    router.cli(&["reload"])?;
    until_settled(&scene, &birds).with_context(|| router.log_tail())?;
    birds[..2].iter().try_for_each(ensure_one_session)?;

    // An orderly end tells the peers of all tables.
    router.stop()?;
    for bird in &birds {
        wait::until("the goodbye", LIMIT, || {
            let log = bird.log();
            if log.contains("Administrative shutdown") { Ok(()) } else { Err(log) }
        })?;
    }
    scene.until_routes(&[("main", &[]), ("blue", &[]), ("red", &[])])
}

#[test]
fn a_device_that_is_made_again_has_its_sessions_again_also_those_that_only_listen() -> Result<()> {
    let scene = Scene::new()?;
    let bird = scene.bird("blue", 65002, BLUE.1)?;
    // Only the neighbour dials: without a listener there is no session. In the default table none is in the way of blue's:
    // beside a bridge it would be.
    let peer = "[bgp]\nhold-time = 9\nlisten = [\"::1\"]\n[[bgp.peer]]\nname = \"blue\"\nvrf = \"blue\"\naddress = \"10.0.1.2\"\nasn = 65002\npassive = true
        import = \"accept-all\"\nexport = \"accept-all\"\n";
    let router = Router::start(&scene.host, &scene.configuration(false, peer))?;
    scene.until_routes(&[BLUE]).with_context(|| router.log_tail())?;
    scene.remake_blue()?;
    wait::until("its end is said", LIMIT, || {
        let log = router.log();
        if log.contains("the listening socket was ended") { Ok(()) } else { Err(router.log_tail()) }
    })?;
    wait::until("a second session", LIMIT, || {
        let log = bird.log();
        let times = log.matches("holdfast: State changed to up").count();
        if times >= 2 { Ok(()) } else { Err(log) }
    })
    .with_context(|| router.log_tail())?;
    scene.until_routes(&[BLUE]).with_context(|| router.log_tail())
}

/// What carries the sessions of both VRFs, each over the one and then over the other.
#[test]
fn sessions_over_tls_and_quic_come_up_in_vrfs_of_either_kind() -> Result<()> {
    let scene = Scene::new()?;
    let signer = Signer::new("Lab CA")?;
    const TLS: &str = "[tls]\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\n";
    let proves = |name: &str| format!("tls-authorities = \"authority.pem\"\ntls-name = \"{name}.example\"\n");
    let router = |over: [&str; 2]| {
        let mut rest = format!("{TLS}[bgp]\nconnect-retry = 1\n");
        for ((vrf, transport), asn) in ["blue", "red"].into_iter().zip(over).zip(65002..) {
            rest += &format!(
                "[[bgp.peer]]\nname = \"{vrf}\"\nvrf = \"{vrf}\"\naddress = \"10.0.1.2\"\nasn = {asn}\n\
                 transport = \"{transport}\"\n{}import = \"accept-all\"\nexport = \"accept-all\"\n",
                proves(vrf)
            );
        }
        scene.configuration(true, &rest)
    };
    let neighbor = |number: u8, transport: &str| {
        format!(
            "[router]\nid = \"10.0.1.2\"\nasn = 6500{number}\n[rib]\nenabled = false\n{TLS}\
             [bgp]\nconnect-retry = 1\n[[bgp.network]]\nprefix = \"20.0.{number}.0/24\"\n\
             [[bgp.peer]]\nname = \"r0\"\naddress = \"10.0.1.1\"\nasn = 65000\ntransport = \"{transport}\"\n{}\
             import = \"accept-all\"\nexport = \"accept-all\"\n",
            proves("r0")
        )
    };
    let over = ["tls", "quic"];
    let r0 = Router::start_with_files(&scene.host, &router(over), &signer.files("r0")?)?;
    let start = |at: usize, vrf: &str, transport: &str| {
        let configuration = neighbor(at as u8 + 1, transport);
        Router::start_with_files(&scene.neighbors[at], &configuration, &signer.files(vrf)?)
    };
    let (blue, red) = (start(1, "blue", over[0])?, start(2, "red", over[1])?);
    let until_over = |over: [&str; 2]| -> Result<()> {
        scene.until_routes(&[("blue", &["20.0.2.0/24"]), ("red", &["20.0.3.0/24"])])?;
        for (vrf, transport) in ["blue", "red"].into_iter().zip(over) {
            wait::until(vrf, LIMIT, || {
                let shown = r0.show(&["bgp", "neighbors", vrf, "--vrf", vrf]);
                let shown = shown.map_err(|error| error.to_string())?;
                let peer = &shown["10.0.1.2"];
                let is_up = peer["bgpState"] == "Established" && peer["transport"] == transport;
                if is_up { Ok(()) } else { Err(shown.to_string()) }
            })?;
        }
        Ok(())
    };
    until_over(over).with_context(|| r0.log_tail())?;

    let over = ["quic", "tls"];
    blue.reload_with_files(&neighbor(2, over[0]), &Files::new())?;
    red.reload_with_files(&neighbor(3, over[1]), &Files::new())?;
    r0.reload_with_files(&router(over), &Files::new())?;
    until_over(over).with_context(|| r0.log_tail())
}
