//! The death of the whole router: whoever is started next goes on with its sessions, from the store alone.

use anyhow::{Result, ensure};
use holdfast_lab::{
    drill::{stock, time::now},
    replication::{
        scene::{LIMIT, Scene, Set},
        stock::Special,
    },
};

use super::SECOND;

/// A router dies three times under changes both ways, with all its processes, and is started again in the same place.
fn the_router_dies(peers: stock::Kind, specials: &[Special]) -> Result<()> {
    let mut scene = Scene::open(&Set { peers, specials, routes: 2000, ..Set::default() })?;
    scene.until_gated()?;
    let mut version = scene.churn(SECOND, 0)?;
    for round in 0..3 {
        scene.router.die()?;
        version += 1;
        scene.change(version)?;
        scene.announce(201 + round);
        scene.router.begin_again(&scene.host)?;
        version = scene.churn(SECOND, version)?;
    }
    scene.settle(version)?;
    scene.until_told(250)?;
    let shown = scene.until_protected("full", LIMIT)?;
    ensure!(shown.contains("restored:u32"), "{shown}");
    scene.ensure_replicated(&[(scene.gated, now())])?;
    scene.ensure_quiet()
}

/// Another router waits in the same place, and has the sessions as soon as the first one is dead.
#[test]
fn a_standby_has_the_sessions_of_a_dead_router() -> Result<()> {
    let lease = std::env::temp_dir().join(format!("holdfast-lab-lease-{}", std::process::id()));
    std::fs::create_dir_all(&lease)?;
    let more = format!("lease-directory = \"{}\"", lease.display());
    let set = Set { specials: &[Special::Waits, Special::V6], more: &more, routes: 2000, ..Set::default() };
    let mut scene = Scene::open(&set)?;
    scene.until_gated()?;
    let mut version = scene.churn(SECOND, 0)?;
    for round in 0..3 {
        let standby = scene.router.standby(&scene.host)?;
        version = scene.churn(SECOND / 2, version)?;
        scene.router.die()?;
        version += 1;
        scene.change(version)?;
        scene.announce(201 + round);
        standby.until_role("primary", LIMIT)?;
        scene.router = standby;
        version = scene.churn(SECOND, version)?;
    }
    scene.settle(version)?;
    scene.until_told(250)?;
    scene.until_protected("full", LIMIT)?;
    scene.ensure_replicated(&[(scene.gated, now())])?;
    scene.ensure_quiet()?;
    Ok(std::fs::remove_dir_all(lease)?)
}

#[test]
fn sessions_outlive_all_processes_of_the_router() -> Result<()> {
    the_router_dies(stock::Kind::Bird, &[Special::Waits, Special::Dials, Special::Md5, Special::V6])
}

#[test]
fn sessions_with_frr_outlive_all_processes_of_the_router() -> Result<()> {
    the_router_dies(stock::Kind::Frr, &[Special::Md5, Special::V6])
}
