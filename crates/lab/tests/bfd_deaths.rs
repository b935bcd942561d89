//! Deaths, hangs and the upgrade of `bfd`, and deaths of who depends on it: by the counters of stock routers their sessions
//! stay Up ([`Scene`]). `holdfast-lab drill bfd` does it more often.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    bfd::scene::{Counts, Scene},
    wait,
};
use rustix::process::{Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(40);
/// From the 30th in a minute on each start waits.
const KILLS: usize = 40;

fn ensure_none(scene: &Scene, before: Counts, what: &str) -> Result<()> {
    let faults = scene.faults(before)?;
    ensure!(
        faults.is_empty(),
        "{what}: {faults:?}; silent for {:?}; {}",
        scene.longest_silence(),
        scene.router.log_tail()
    );
    Ok(())
}

#[test]
fn sessions_stay_up_while_bfd_is_killed_again_and_again() -> Result<()> {
    let scene = Scene::new(300)?;
    let before = scene.counts()?;
    let (mut slowest, mut silence) = (Duration::ZERO, Duration::ZERO);
    for number in 1..=KILLS {
        slowest = slowest.max(scene.replace_by(Signal::KILL)?);
        scene.until_packets()?;
        ensure_none(&scene, before, &format!("death {number}"))?;
        silence = silence.max(scene.longest_silence());
    }
    println!(
        "{KILLS} deaths; the next one after {slowest:?} at most, and nothing sent for {silence:?} at most"
    );
    // It is not forgotten what the session is for: whoever comes back is told that it is Up.
    let follower = scene.follow()?;
    follower.until("UP", LIMIT)?;
    ensure!(follower.states() == ["UP"], "{:?}", follower.said());
    scene.router.stop()
}

#[test]
fn sessions_stay_up_while_bfd_hangs() -> Result<()> {
    let scene = Scene::new(600)?;
    let before = scene.counts()?;
    for number in 1..=3 {
        let took = scene.replace_by(Signal::STOP)?;
        scene.until_packets()?;
        println!(
            "hang {number}: the next one after {took:?}, nothing sent for {:?}",
            scene.longest_silence()
        );
        ensure_none(&scene, before, &format!("hang {number}"))?;
        let process = &scene.router.show(&["processes"])?["bfd"];
        ensure!(process["last_end"] == "hung" && process["hung"] == number, "{process}");
    }
    scene.router.stop()
}

#[test]
fn deaths_of_others_and_an_upgrade_end_no_session() -> Result<()> {
    let scene = Scene::new(300)?;
    let before = scene.counts()?;
    for victim in ["fea", "manager", "bgp", "rib"] {
        let bfd = scene.router.pid("bfd")?;
        scene.until_protected()?;
        scene.router.kill(victim)?;
        scene.router.wait_running()?;
        scene.until_packets()?;
        ensure_none(&scene, before, victim)?;
        ensure!(scene.router.pid("bfd")? == bfd, "bfd went with {victim}: {}", scene.router.log_tail());
    }
    for is_back in [false, true] {
        scene.until_protected()?;
        scene.upgrade(is_back).with_context(|| scene.router.log_tail())?;
        scene.until_packets()?;
        ensure_none(&scene, before, "the upgrade")?;
        let shown = scene.router.show(&["processes"])?;
        ensure!(shown["bfd"]["lastExit"] == "upgrade", "{shown}");
    }
    scene.router.stop()
}

/// A process that dies with the manager waits for the next manager, and what that one has configured is all that it needs.
#[test]
fn sessions_stay_up_when_a_process_dies_with_the_manager_that_has_died_often() -> Result<()> {
    let scene = Scene::new(300)?;
    let before = scene.counts()?;
    for number in 1..=10 {
        scene.router.kill("manager")?;
        scene.router.wait_running().with_context(|| format!("death {number} of the manager"))?;
    }
    for victim in ["bfd", "bgp"] {
        scene.until_protected()?;
        let (begin, pid) = (Instant::now(), scene.router.pid(victim)?);
        for pid in [scene.router.pid("manager")?, pid] {
            kill_process(pid, Signal::KILL)?;
        }
        wait::until("another one", LIMIT, || match scene.router.pid(victim) {
            Ok(next) if next != pid => Ok(()),
            other => Err(format!("{other:?}")),
        })?;
        println!("{victim} and the manager: another one is known after {:?}", begin.elapsed());
        scene.until_packets()?;
        ensure_none(&scene, before, &format!("{victim} and the manager"))?;
    }
    scene.router.stop()
}
