//! After a start where the kernel has kept our routes: who waits for whom.

use std::time::Duration;

use holdfast_bgp_pipeline::{Limits, OriginateAttributes, Pipeline, Pressure, SpeakerConfig};
use holdfast_bgp_session::State;
use holdfast_bgp_wire::{Capability, GracefulFamily, KEEPALIVE, MessageType, Open};
use holdfast_config::schema::GracefulRestart;
use holdfast_types::{Asn, Family, HashKey, RouterId};

use super::{END_OF_RIB, Line, Scene, configure_peers, limited, open};
use crate::{
    config::{Peers, Range},
    location::Location,
    roster::Stopped,
    show,
    speaker::Speaker,
};

/// A scene after a restart: the peer has been asked to help, or has not.
fn restarted(mode: GracefulRestart) -> Scene {
    let mut scene = Scene::new();
    let settings = scene.speaker.settings.clone();
    let speaker = SpeakerConfig {
        limits: Limits { log: 16, ..Limits::default() },
        ..settings.pipeline(HashKey::new([1, 0]))
    };
    let configured = scene.slot().neighbor.clone();
    let mut source = configured.source;
    source.session.graceful_restart = mode;
    source.session.restart_time = Duration::from_secs(120);
    let neighbor = super::as_told(&source);
    scene.speaker = Speaker::new(settings, Pipeline::new(speaker), super::stopped(), scene.now);
    scene.speaker.sessions.set_routes_kept(true);
    scene.peer = scene.speaker.add_peer(neighbor, false, 1, scene.now);
    scene
}

fn at(text: &str) -> Location {
    let Ok(location) = text.parse();
    location
}

/// The OPEN of a peer that takes part, and says whether it has restarted.
fn graceful(restarting: bool) -> Vec<u8> {
    let capabilities = vec![
        Capability::Multiprotocol(Family::IPV4_UNICAST),
        Capability::GracefulRestart {
            restarting,
            notification: false,
            time: 120,
            families: vec![GracefulFamily { family: Family::IPV4_UNICAST, forwarding: true }],
        },
    ];
    let router_id = RouterId::new(0x0a00_0002).expect("not 0");
    Open { asn: Asn(65_001), hold_time: 90, router_id, capabilities }.encode()
}

/// The peer comes up; it has heard OPEN and KEEPALIVE.
async fn up(scene: &mut Scene, open: &[u8]) -> Line {
    let mut line = scene.connect(scene.peer).await;
    scene.says(&mut line, &[open, &KEEPALIVE].concat()).await;
    assert_eq!(scene.state(scene.peer), Some(State::Established));
    let heard = scene.hears(&mut line).await;
    assert_eq!(heard, [MessageType::Open, MessageType::KeepAlive]);
    line
}

fn queued(scene: &mut Scene, line: &Line) -> u64 {
    scene.speaker.transmit(line.key, scene.now, &|| false);
    scene.slot().session.counters().sent.of(MessageType::Update)
}

#[tokio::test]
async fn who_was_asked_to_help_is_told_nothing_before_everybody_has_sent_theirs_and_holds_up_nobody() {
    let mut scene = restarted(GracefulRestart::Full);
    let mut line = up(&mut scene, &graceful(false)).await;
    for n in 0..32 {
        let route = format!("10.9.{n}.0/24").parse().expect("a prefix");
        let attributes = OriginateAttributes { med: Some(n), ..OriginateAttributes::default() };
        scene.speaker.pipeline.originate(route, &attributes);
    }
    assert!(!scene.speaker.write_ready(scene.now, &|| false));
    assert_eq!(queued(&mut scene, &line), 0);
    assert_eq!(scene.speaker.pressure(), Pressure::Low, "it is not the one to be waited for");
    scene.says(&mut line, &END_OF_RIB).await;
    scene.speaker.drain_pipeline(scene.now);
    assert!(queued(&mut scene, &line) > 0);
}

#[tokio::test]
async fn who_was_not_asked_to_help_is_told_at_once() {
    let mut scene = restarted(GracefulRestart::Helper);
    let line = up(&mut scene, &graceful(false)).await;
    scene.speaker.drain_pipeline(scene.now);
    assert!(queued(&mut scene, &line) > 0);
}

#[tokio::test]
async fn two_that_restart_do_not_wait_for_each_other() {
    let mut scene = restarted(GracefulRestart::Full);
    let line = up(&mut scene, &graceful(true)).await;
    scene.speaker.drain_pipeline(scene.now);
    assert!(!scene.is_synced(scene.now), "it has sent nothing");
    assert!(queued(&mut scene, &line) > 0);
}

#[tokio::test]
async fn nobody_waits_for_a_peer_that_the_operator_keeps_down() {
    let mut scene = restarted(GracefulRestart::Full);
    assert!(!scene.is_synced(scene.now));
    scene.speaker.stop_peer(scene.peer, "", scene.now);
    assert!(scene.is_synced(scene.now));
}

#[tokio::test]
async fn without_a_peer_a_restart_ends_when_its_time_is_over() {
    let mut scene = restarted(GracefulRestart::Full);
    scene.speaker.remove_peer(scene.peer, holdfast_bgp_session::StopReason::PeerDeconfigured, scene.now);
    scene.speaker.drain_pipeline(scene.now);
    assert!(scene.speaker.sessions.next_deadline().is_some());
    scene.speaker.drain_pipeline(scene.now + Duration::from_secs(120));
    assert_eq!(scene.speaker.sessions.next_deadline(), None);
}

#[tokio::test]
async fn a_guest_that_was_stopped_or_had_too_many_prefixes_is_not_let_in_again() {
    for stop in [true, false] {
        let mut scene = Scene::new();
        scene.range.limits = limited(&scene, 2).limits;
        let mut line = scene.guest().await;
        let guest = line.key.0;
        scene.establish(&mut line).await;
        match stop {
            true => scene.speaker.stop_peer(guest, "", scene.now),
            false => _ = scene.says(&mut line, &super::prefixes(3)).await,
        }
        assert_eq!(scene.state(guest), Some(State::Idle), "it is remembered (stopped: {stop})");
        let again = scene.connect(guest).await;
        assert!(scene.speaker.sessions.connection(again.key).is_some_and(|connection| connection.closing));
        scene.speaker.drop_connection(again.key);
        assert!(scene.speaker.start_peer(guest, scene.now));
        assert_eq!(scene.state(guest), None, "its next connection makes a new one");
    }
    // Without the operator, nothing is left of the others either.
    let mut scene = Scene::new();
    let mut line = scene.guest().await;
    scene.says(&mut line, &open()).await;
    drop(line.far);
    scene.reads(line.key).await;
    assert_eq!(scene.speaker.sessions.peers(), 1);
}

#[tokio::test]
async fn a_reload_that_needs_another_session_does_not_start_a_stopped_peer() {
    let mut scene = Scene::new();
    scene.speaker.stop_peer(scene.peer, "", scene.now);
    let mut wanted = super::configuration().peers;
    wanted.neighbors[0].source.hold_time = Duration::from_secs(30);
    configure_peers(&mut scene.speaker, &wanted, scene.now);
    let slot = scene.speaker.sessions.slots().map(|(_, slot)| slot).next().expect("a peer");
    assert_eq!(slot.neighbor.source.hold_time.as_secs(), 30);
    assert!(slot.stopped && slot.session.state() == State::Idle);
}

/// Another process with the memory that this one has left for it.
fn next(scene: &Scene) -> Stopped {
    let left = scene.speaker.sessions.stopped.descriptor().expect("a copy");
    Stopped::recover(left).expect("memory").expect("readable")
}

#[tokio::test]
async fn who_is_stopped_is_stopped_in_the_next_process() {
    let mut scene = Scene::new();
    let guest = scene.guest().await.key.0;
    scene.speaker.stop_peer(scene.peer, "back at 5", scene.now);
    scene.speaker.stop_peer(guest, "", scene.now);
    let configuration = super::configuration();
    let settings = configuration.settings.clone();
    let pipeline = Pipeline::new(settings.pipeline(HashKey::new([1, 0])));
    let mut later = Speaker::new(settings, pipeline, next(&scene), scene.now);
    crate::apply::stopped(&mut later, &configuration, scene.now);
    configure_peers(&mut later, &configuration.peers, scene.now);
    assert_eq!(later.sessions.peers(), 2, "the guest has its place again");
    assert!(later.sessions.slots().all(|(_, slot)| slot.stopped && slot.session.state() == State::Idle));
    assert_eq!(later.sessions.poll_effect(), None, "nobody dials");
    let texts =
        ["10.0.0.2", "10.0.1.9"].map(|place| later.sessions.stopped.noted(&at(place)).map(str::to_owned));
    assert_eq!(texts, [Some("back at 5".to_owned()), Some(String::new())]);

    let peer = later.sessions.peer_at(&at("10.0.0.2")).expect("a peer");
    assert!(later.start_peer(peer, scene.now));
    assert_ne!(later.sessions.slot(peer).expect("a peer").session.state(), State::Idle);
    assert_eq!(later.sessions.stopped.noted(&at("10.0.0.2")), None, "the operator has changed their mind");
}

#[tokio::test]
async fn a_peer_that_is_not_configured_any_more_is_not_stopped_when_it_comes_back() {
    let mut scene = Scene::new();
    let guest = scene.guest().await.key.0;
    scene.speaker.stop_peer(scene.peer, "", scene.now);
    scene.speaker.stop_peer(guest, "", scene.now);
    let mut configuration = super::configuration();
    let before = configuration.peers.clone();
    configuration.peers = Peers::default();
    let mut later = Speaker::new(
        configuration.settings.clone(),
        Pipeline::new(configuration.settings.pipeline(HashKey::new([1, 0]))),
        next(&scene),
        scene.now,
    );
    crate::apply::stopped(&mut later, &configuration, scene.now);
    assert_eq!(later.sessions.stopped.peers().count(), 0, "removed while no process was there");

    configure_peers(&mut scene.speaker, &configuration.peers, scene.now);
    assert_eq!(scene.speaker.sessions.stopped.peers().count(), 0, "removed by a reload");
    configure_peers(&mut scene.speaker, &before, scene.now);
    assert!(scene.speaker.sessions.slots().all(|(_, slot)| !slot.stopped));
}

#[tokio::test]
async fn what_peers_of_a_range_did_counts_on_when_they_are_gone() {
    // Without AS_PATH and NEXT_HOP, 10.0.0.0/8 is withdrawn.
    let bad = [&[255; 16][..], &[0, 29, 2, 0, 0, 0, 4], &[0x40, 1, 1, 0], &[8, 10]].concat();
    let mut scene = Scene::new();
    let mut range = super::configuration().peers.ranges.remove(0);
    let shown = |scene: &Scene, range: &Range| {
        let shown = show::range(&scene.speaker, range);
        let drops: u64 = shown.drops.iter().map(|drop| drop.count).sum();
        (shown.peers, shown.peers_seen, shown.connections_established, shown.connections_dropped, drops)
    };
    for n in 0..3 {
        let mut line = scene.guest().await;
        scene.establish(&mut line).await;
        scene.says(&mut line, &bad).await;
        assert_eq!(shown(&scene, &range), (1, n + 1, n + 1, n, n + 1), "while it is there");
        drop(line.far);
        scene.reads(line.key).await;
        assert_eq!(shown(&scene, &range), (0, n + 1, n + 1, n + 1, n + 1), "and when it is not");
    }
    let totals = show::range(&scene.speaker, &range);
    assert_eq!((totals.faults.len(), totals.last_error_of.as_str()), (3, "10.0.1.9"));
    assert!(totals.last_error.contains("closed"), "{}", totals.last_error);

    // They go with the range.
    configure_peers(&mut scene.speaker, &Peers::default(), scene.now);
    assert!(scene.speaker.sessions.ranges.is_empty());
    range.template.name = "others".into();
    assert_eq!(shown(&scene, &range), (0, 0, 0, 0, 0));
}
