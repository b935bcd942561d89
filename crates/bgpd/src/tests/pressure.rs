//! Who waits for those who are told of changes and are behind.

use std::time::Duration;

use holdfast_bgp_pipeline::{Limits, OriginateAttributes, PeerIndex, Pipeline, Pressure, SpeakerConfig};
use holdfast_bgp_wire::KEEPALIVE;
use holdfast_types::HashKey;

use super::{Scene, stopped};
use crate::speaker::Speaker;

const LOG: usize = 64;

/// A scene where the rib loses its place after [`LOG`] changes, and has read all that there are.
fn scene() -> Scene {
    let mut scene = Scene::new();
    let (settings, neighbor) = (scene.speaker.settings.clone(), scene.slot().neighbor.clone());
    let limits = Limits { log: LOG, ..Limits::default() };
    let config = SpeakerConfig { limits, ..settings.pipeline(HashKey::new([1, 0])) };
    scene.speaker = Speaker::new(settings, Pipeline::new(config), stopped(), scene.now);
    scene.peer = scene.speaker.add_peer(neighbor, false, 1, scene.now);
    scene.speaker.pipeline.rib_resync();
    while scene.speaker.pipeline.pull_rib(1000).is_some() {}
    scene
}

/// So many changes that the rib has not read.
fn changes(scene: &mut Scene, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let route = format!("10.9.{number}.0/24").parse().expect("a prefix");
        scene.speaker.pipeline.originate(route, &OriginateAttributes::default());
    }
}

#[tokio::test]
async fn who_sends_much_waits_for_the_rib_and_who_sends_little_does_not() {
    let mut scene = scene();
    let (mut much, mut little) = (scene.connect(scene.peer).await, scene.guest().await);
    let guest = little.key.0;
    scene.establish(&mut much).await;
    scene.establish(&mut little).await;
    let waits = |scene: &Scene, peer: PeerIndex| scene.speaker.is_to_wait(peer, scene.now);

    let flood = KEEPALIVE.repeat(1000);
    scene.says(&mut much, &flood).await;
    assert!(!waits(&scene, scene.peer), "nobody is behind");
    changes(&mut scene, 0..LOG / 2 + 1);
    assert_eq!(scene.speaker.pressure(), Pressure::High);
    assert!(waits(&scene, scene.peer));
    scene.says(&mut little, &KEEPALIVE.repeat(10)).await;
    assert!(!waits(&scene, guest));
    changes(&mut scene, LOG / 2 + 1..LOG * 3 / 4 + 1);
    assert_eq!(scene.speaker.pressure(), Pressure::Full);
    assert!(waits(&scene, guest), "the rib would lose its place");

    while scene.speaker.pipeline.pull_rib(1000).is_some() || scene.speaker.write_ready(scene.now, &|| false) {
    }
    assert!(!waits(&scene, scene.peer) && !waits(&scene, guest));
    changes(&mut scene, 100..100 + LOG / 2 + 1);
    scene.now += Duration::from_secs(1);
    assert!(!waits(&scene, scene.peer), "it sends no more");
}
