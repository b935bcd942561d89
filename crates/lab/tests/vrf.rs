//! Static routes in three tables, with a prefix that all have in common (see [`holdfast_lab::vrf`]).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    kernel::Monitor,
    netns::{Namespace, ip},
    router::Router,
    vrf::{Scene, TABLES},
    wait,
};

const LIMIT: Duration = Duration::from_secs(60);

/// A static route in each table to the neighbour there; all have one in common.
fn statics(vrfs: &[&str]) -> String {
    let route = |prefix: &str, vrf: &str| {
        let vrf = if vrf == "main" { String::new() } else { format!("vrf = \"{vrf}\"\n") };
        format!("[[static]]\nprefix = \"{prefix}\"\nnext-hop = \"10.0.1.2\"\n{vrf}")
    };
    vrfs.iter().map(|vrf| route("20.0.0.0/24", vrf) + &route(own(vrf), vrf)).collect()
}

fn own(vrf: &str) -> &'static str {
    match vrf {
        "blue" => "20.0.2.0/24",
        "red" => "20.0.3.0/24",
        _ => "20.0.1.0/24",
    }
}

const MAIN: (&str, &[&str]) = ("main", &["20.0.0.0/24", "20.0.1.0/24"]);
const BLUE: (&str, &[&str]) = ("blue", &["20.0.0.0/24", "20.0.2.0/24"]);
const RED: (&str, &[&str]) = ("red", &["20.0.0.0/24", "20.0.3.0/24"]);

/// How often a table was brought in step with the kernel so far.
fn syncs(router: &Router) -> usize {
    router.log().lines().filter(|line| line.contains("in step with the rib")).count()
}

fn until_synced(router: &Router, count: usize) -> Result<()> {
    wait::until("all tables are in step again", LIMIT, || {
        let now = syncs(router);
        if now >= count { Ok(()) } else { Err(format!("{now} of {count}")) }
    })
    .with_context(|| router.log_tail())
}

#[test]
fn tables_stay_apart_through_the_deaths_of_fea_and_rib() -> Result<()> {
    let scene = Scene::new()?;
    let text = scene.configuration(true, &statics(&TABLES));
    let router = Router::start(&scene.host, &text)?;
    scene.until_routes(&[MAIN, BLUE, RED]).with_context(|| router.log_tail())?;

    let (main, red) = (Monitor::start(&scene.host)?, Monitor::start(&scene.red)?);
    for process in ["fea", "rib", "fea"] {
        let before = syncs(&router);
        router.kill(process)?;
        until_synced(&router, before + 3).with_context(|| format!("after the death of {process}"))?;
        scene.until_routes(&[MAIN, BLUE, RED])?;
    }
    for monitor in [main, red] {
        let deleted = monitor.deletions()?;
        ensure!(deleted.is_empty(), "the kernel has lost {deleted:?}");
    }
    router.stop()?;
    scene.until_routes(&[("main", &[]), ("blue", &[]), ("red", &[])])
}

#[test]
fn a_reload_takes_a_vrf_out_and_brings_it_back_and_touches_no_other() -> Result<()> {
    let scene = Scene::new()?;
    let [with, without] =
        [true, false].map(|red| scene.configuration(red, &statics(&TABLES[..if red { 3 } else { 2 }])));
    let router = Router::start(&scene.host, &with)?;
    scene.until_routes(&[MAIN, BLUE, RED]).with_context(|| router.log_tail())?;
    let main = Monitor::start(&scene.host)?;
    for (text, red) in [(&without, ("red", &[][..])), (&with, RED)] {
        std::fs::write(router.configuration(), text)?;
        router.cli(&["reload"])?;
        scene.until_routes(&[red, MAIN, BLUE]).with_context(|| router.log_tail())?;
    }
    let changes = main.changes()?;
    ensure!(changes.deleted.is_empty() && changes.written.is_empty(), "touched: {changes:?}");
    Ok(())
}

#[test]
fn a_namespace_that_is_missing_holds_nobody_up() -> Result<()> {
    let scene = Scene::new()?;
    let text = scene.configuration(false, &statics(&["main", "blue", "late"]));
    let text = format!("{text}[[vrf]]\nname = \"late\"\nnetns = \"{}-late\"\n", scene.red.name());
    let router = Router::start(&scene.host, &text)?;
    scene.until_routes(&[MAIN, BLUE]).with_context(|| router.log_tail())?;
    wait::until("it is said", LIMIT, || {
        let log = router.log();
        if log.contains("/run/netns/") && log.contains("No such file") {
            Ok(())
        } else {
            Err(router.log_tail())
        }
    })?;
    router.stop()
}

#[test]
fn a_namespace_that_is_made_again_has_the_routes_from_then_on() -> Result<()> {
    let scene = Scene::new()?;
    let text =
        scene.configuration(true, "[[static]]\nvrf = \"red\"\nprefix = \"20.0.3.0/24\"\nblackhole = true\n");
    let router = Router::start(&scene.host, &text)?;
    let until_there = || {
        wait::until("the route of red", LIMIT, || {
            let shown =
                scene.red.ip(&["route", "show", "proto", "75"]).map_err(|error| format!("{error:#}"))?;
            if shown.contains("20.0.3.0/24") { Ok(()) } else { Err(shown) }
        })
        .with_context(|| router.log_tail())
    };
    until_there()?;
    for act in ["delete", "add"] {
        ip(&["netns", act, scene.red.name()])?;
    }
    until_there()?;
    router.stop()
}

/// As many as a router may have had connections for, when each was one of 1,024 of the manager.
#[test]
fn hundreds_of_tables_come_up_at_once() -> Result<()> {
    const VRFS: usize = 256;
    let host = Namespace::new("many")?;
    let vrf = |number| {
        format!("[[vrf]]\nname = \"v{number}\"\ndevice = \"l{number}\"\ntable = {}\n", 1000 + number)
    };
    let vrfs: String = (0..VRFS).map(vrf).collect();
    let text = format!("[router]\nid = \"10.0.1.1\"\nasn = 65000\n[fea]\nbackend = \"none\"\n{vrfs}[bgp]\n");
    let router = Router::start(&host, &text)?;
    router.wait_running()?;
    let log = router.log();
    ensure!(!log.contains("hung"), "killed: {}", router.log_tail());
    ensure!(log.matches("registered at the rib").count() == VRFS + 1, "{}", router.log_tail());
    router.stop()
}
