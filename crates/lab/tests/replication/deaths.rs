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

#[test]
fn sessions_with_frr_outlive_all_processes_of_the_router() -> Result<()> {
    the_router_dies(stock::Kind::Frr, &[Special::Md5, Special::V6])
}

#[test]
fn sessions_with_bird_outlive_all_processes_of_the_router() -> Result<()> {
    the_router_dies(stock::Kind::Bird, &[Special::Waits, Special::Dials, Special::Md5])
}
