//! What the operator has said of a peer outlives the process that was told, in each table.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    peers::Bird,
    router::{Files, Router, binary},
    vrf::Scene,
    wait,
};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// A neighbour that may come up tries every second, and so do we.
const TRIES: Duration = Duration::from_secs(4);

fn configuration(scene: &Scene) -> String {
    let peer = |name: &str, vrf: &str, asn| {
        format!(
            "[[bgp.peer]]\nname = \"{name}\"\n{vrf}address = \"10.0.1.2\"\nasn = {asn}\n\
             import = \"accept-all\"\nexport = \"accept-all\"\n"
        )
    };
    let peers = [
        "[bgp]\nconnect-retry = 1\n".to_owned(),
        peer("main", "", 65001),
        peer("blue", "vrf = \"blue\"\n", 65002),
        peer("red", "vrf = \"red\"\n", 65003),
    ];
    scene.configuration(true, &peers.concat())
}

/// A peer, which is called as its table.
fn shown(router: &Router, table: &str) -> Result<Value> {
    let vrf = ["--vrf", table];
    let vrf = if table == "main" { &[][..] } else { &vrf };
    let shown = router.show(&[&["bgp", "neighbors", table], vrf].concat())?;
    Ok(shown["10.0.1.2"].clone())
}

fn until_up(router: &Router, table: &str) -> Result<()> {
    wait::until(table, LIMIT, || {
        let shown = shown(router, table).map_err(|error| format!("{error:#}"))?;
        if shown["bgpState"] == "Established" { Ok(()) } else { Err(shown.to_string()) }
    })
    .with_context(|| router.log_tail())
}

/// For as long as whoever may would have come up: two are stopped, and the third is not.
fn ensure_stopped(router: &Router) -> Result<()> {
    router.wait_running()?;
    until_up(router, "red")?;
    let begin = Instant::now();
    while begin.elapsed() < TRIES {
        for (table, text) in [("main", Some("back at 5")), ("blue", None)] {
            let shown = shown(router, table)?;
            ensure!(shown["admin_state"] == "stopped" && shown["bgpState"] == "Idle (stopped)", "{shown}");
            ensure!(shown["admin_text"].as_str() == text, "{shown}");
        }
        thread::sleep(Duration::from_millis(200));
    }
    ensure!(shown(router, "red")?["admin_state"] == "up");
    Ok(())
}

/// Another `bgp`, or another manager.
fn kill(router: &Router, name: &str) -> Result<()> {
    let before = router.pid(name)?;
    router.kill(name)?;
    wait::until(name, LIMIT, || match router.pid(name) {
        Ok(now) if now != before => Ok(()),
        now => Err(format!("{now:?}")),
    })
}

#[test]
fn a_stopped_peer_is_stopped_after_deaths_and_an_upgrade_until_it_is_started() -> Result<()> {
    let scene = Scene::new()?;
    let bird = |table, asn| scene.bird(table, asn, &["20.0.0.0/24"]);
    let _birds: [Bird; 3] = [bird("main", 65001)?, bird("blue", 65002)?, bird("red", 65003)?];
    let router = Router::start(&scene.host, &configuration(&scene))?;
    ["main", "blue", "red"].into_iter().try_for_each(|table| until_up(&router, table))?;

    router.cli(&["peer", "stop", "main", "--text", "back at 5"])?;
    router.cli(&["peer", "stop", "blue", "--vrf", "blue"])?;
    ensure_stopped(&router)?;
    for name in ["bgp", "manager"] {
        kill(&router, name)?;
        ensure_stopped(&router).with_context(|| format!("after a death of {name}"))?;
    }
    // All at once: the next manager says of those that it starts that they do not run yet.
    let names = ["manager", "bgp", "rib", "fea", "transport"];
    let pids = names.into_iter().map(|name| router.pid(name)).collect::<Result<Vec<_>>>()?;
    pids.into_iter().try_for_each(|pid| kill_process(pid, Signal::KILL))?;
    ensure_stopped(&router).context("after a death of all but the keeper")?;

    let new = router.directory().join("new");
    fs::copy(binary()?, &new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    fs::OpenOptions::new().append(true).open(&new)?.write_all(b"\n")?;
    router
        .cli(&["upgrade", "--binary", new.to_str().context("a path")?])
        .with_context(|| router.log_tail())?;
    ensure_stopped(&router).context("after an upgrade")?;

    // Only the operator starts it again, and that outlives a death as well.
    router.cli(&["peer", "start", "main"])?;
    until_up(&router, "main")?;
    kill(&router, "bgp")?;
    until_up(&router, "main")?;
    ensure!(shown(&router, "main")?["admin_state"] == "up");

    // Who is taken out of the configuration comes back as anybody else.
    let all = configuration(&scene);
    let (without, _) = all.split_once("[[bgp.peer]]\nname = \"blue\"").context("blue")?;
    router.reload_with_files(without, &Files::new())?;
    router.reload_with_files(&all, &Files::new())?;
    until_up(&router, "blue")?;
    router.stop()
}
