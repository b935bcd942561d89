//! After a death: who is waited for, and whom the next process would wait for.

use std::time::Duration;

use holdfast_bgp_session::StopReason;

use super::{END_OF_RIB, GUEST, PEER, Scene};
use crate::{location::Location, roster::Present, sessions::Stale};

const KEY: Location = Location::Address(PEER);

/// A scene after a death; these had routes then.
fn after_death(before: &[Location]) -> (Scene, Present) {
    let mut scene = Scene::new();
    let mut present = Present::create("peers").expect("memory");
    before.iter().for_each(|location| assert_ne!(present.enter(location), 0));
    let next = left(&present);
    let configured = |location: &Location| match location {
        Location::Address(address) if *address == PEER => Some(false),
        Location::Address(address) if *address == GUEST => Some(true),
        _ => None,
    };
    scene.speaker.sessions.set_present(present, true, configured);
    (scene, next)
}

/// The same memory, as the keeper has it.
fn left(present: &Present) -> Present {
    Present::recover(present.descriptor().expect("a copy")).expect("memory").expect("readable")
}

/// Whose routes are here, as the next process would find it.
fn peers(kept: &Present) -> Vec<Location> {
    let mut peers: Vec<_> = left(kept).peers().cloned().collect();
    peers.sort();
    peers
}

#[tokio::test]
async fn a_peer_that_was_down_is_waited_for_by_nobody() {
    let (mut scene, _) = after_death(&[]);
    assert_eq!(scene.speaker.stale(scene.now), Some(Stale::Goes));
}

#[tokio::test]
async fn without_knowing_who_was_there_all_who_are_configured_are_waited_for() {
    let mut scene = Scene::new();
    assert_eq!(scene.speaker.stale(scene.now), Some(Stale::Stays));
}

#[tokio::test]
async fn stale_routes_of_who_was_there_stay_until_its_end_of_rib() {
    let (mut scene, kept) = after_death(&["192.0.2.9".parse().expect("a place"), KEY]);
    assert_eq!(peers(&kept), [KEY], "one that is not configured is forgotten");
    // Aggregates (0) stay with it: it may have contributed.
    let stays = Some(Stale::StaysOf(vec![2, 0]));
    assert_eq!(scene.speaker.stale(scene.now), stays);
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    assert_eq!(scene.speaker.stale(scene.now), stays);
    assert_eq!(scene.slot().source, 2, "it is called as before");
    scene.says(&mut line, &END_OF_RIB).await;
    scene.speaker.drain_pipeline(scene.now);
    assert_eq!(scene.speaker.stale(scene.now), Some(Stale::Goes));
    assert_eq!(peers(&kept), [KEY], "it has routes here");
}

#[tokio::test]
async fn one_that_fails_before_its_end_of_rib_is_waited_for_on_by_the_next_process_too() {
    let (mut scene, kept) = after_death(&[KEY]);
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    let key = line.key;
    drop(line);
    scene.reads(key).await;
    assert_eq!(scene.speaker.stale(scene.now), Some(Stale::StaysOf(vec![1, 0])));
    assert_eq!(peers(&kept), [KEY]);
}

#[tokio::test]
async fn nobody_is_waited_for_longer_than_the_time_for_it_nor_where_the_operator_keeps_it_down() {
    let (mut scene, kept) = after_death(&[KEY]);
    let over = scene.now + Duration::from_secs(120);
    assert_ne!(scene.speaker.stale(over - Duration::from_millis(1)), Some(Stale::Goes));
    assert_eq!(scene.speaker.stale(over), Some(Stale::Goes));
    assert_eq!(peers(&kept), []);

    let (mut scene, kept) = after_death(&[KEY]);
    scene.speaker.stop_peer(scene.peer, "", scene.now);
    assert_eq!(scene.speaker.stale(scene.now), Some(Stale::Goes));
    assert_eq!(peers(&kept), []);

    let (mut scene, kept) = after_death(&[KEY]);
    scene.speaker.remove_peer(scene.peer, StopReason::PeerDeconfigured, scene.now);
    assert_eq!(scene.speaker.stale(scene.now), Some(Stale::Goes));
    assert_eq!(peers(&kept), []);
}

#[tokio::test]
async fn a_guest_that_was_there_is_waited_for_before_it_has_come() {
    let guest = Location::Address(GUEST);
    let (mut scene, kept) = after_death(std::slice::from_ref(&guest));
    let stays = Some(Stale::StaysOf(vec![1, 0]));
    assert_eq!(scene.speaker.stale(scene.now), stays);
    let mut line = scene.guest().await;
    scene.establish(&mut line).await;
    assert_eq!(scene.speaker.stale(scene.now), stays);
    scene.says(&mut line, &END_OF_RIB).await;
    scene.speaker.drain_pipeline(scene.now);
    assert_eq!(scene.speaker.stale(scene.now), Some(Stale::Goes));
    assert_eq!(peers(&kept), [guest]);
}

#[tokio::test]
async fn who_has_routes_is_noted_for_the_next_process_while_the_session_is_up() {
    let (mut scene, kept) = after_death(&[]);
    let mut line = scene.connect(scene.peer).await;
    assert_eq!(peers(&kept), []);
    scene.establish(&mut line).await;
    let mut guest = scene.guest().await;
    scene.establish(&mut guest).await;
    assert_eq!(peers(&kept), [KEY, Location::Address(GUEST)]);
    let key = line.key;
    drop(line);
    scene.reads(key).await;
    assert_eq!(peers(&kept), [Location::Address(GUEST)]);
}
