//! How two peers find each other, and stay together.

use std::{cell::Cell, time::Duration};

use holdfast_bgp_session::{Input, Output, PeerAsn, PeerConfig, Role, SessionRules, State, Timer};
use holdfast_bgp_wire::MessageType;
use holdfast_types::Asn;

use crate::tests::session::{
    solo::{DIALLED, OUR_ASN, PEER_ASN, Solo, config, config_of, passive, ruled},
    world::World,
};

/// AS 65001 with router 1, and AS 65002 with router 2.
pub(crate) fn pair() -> [PeerConfig; 2] {
    [config(), config_of(PEER_ASN, 2, OUR_ASN)]
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Latencies between 1 and `most` milliseconds, different at each call.
fn latency(seed: u64, most: u64) -> impl FnMut() -> Duration {
    let state = Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    move || {
        let next = state.get() ^ (state.get() << 13);
        let next = next ^ (next >> 7);
        state.set(next ^ (next << 17));
        Duration::from_millis(1 + state.get() % most)
    }
}

#[test]
fn two_active_peers_end_with_one_connection_whatever_the_network_does() {
    for seed in 0..300 {
        let most = if seed % 2 == 0 { 20 } else { 400 };
        let mut world = World::with_latency(pair(), seed, latency(seed, most));
        world.input(0, Input::Start);
        world.run(Duration::from_millis(seed % 50));
        world.input(1, Input::Start);
        world.run(secs(30));
        assert_eq!(world.states(), [State::Established; 2], "seed {seed}");
        assert_eq!(world.live_wires(), 1, "seed {seed}");
        world.run(secs(600));
        for who in 0..2 {
            assert_eq!(world.peers[who].history().established, 1, "never up in vain, seed {seed}");
            assert!(world.downs(who).is_empty(), "it lasts, seed {seed}");
        }
    }
}

#[test]
fn when_both_dial_at_once_the_connection_of_the_higher_router_id_is_kept() {
    let world = World::up(pair());
    assert_eq!(world.peers[0].connection().map(|(_, role)| role), Some(Role::Incoming));
    assert_eq!(world.peers[1].connection().map(|(_, role)| role), Some(Role::Outgoing));
    assert!(world.downs(0).is_empty() && world.downs(1).is_empty());
}

#[test]
fn when_both_have_the_same_router_id_the_connection_of_the_higher_as_is_kept() {
    for (ours, kept) in [(Asn(65001), Role::Incoming), (Asn(70000), Role::Outgoing)] {
        let [mut a, mut b] = pair();
        (a.local_asn, a.router_id, b.peer_asn) = (ours, b.router_id, PeerAsn::Any);
        let world = World::up([a, b]);
        assert_eq!(world.peers[0].connection().map(|(_, role)| role), Some(kept), "AS {ours}");
    }
}

#[test]
fn a_passive_peer_never_dials_and_is_found() {
    let [a, b] = pair();
    let world = World::up([a, ruled(b, passive)]);
    assert!(world.times(1, |output| matches!(output, Output::Connect(_))).is_empty());
    assert_eq!(world.live_wires(), 1);
}

#[test]
fn two_passive_peers_wait_for_ever_without_a_timer() {
    let mut world = World::new(pair().map(|config| ruled(config, passive)));
    world.input(0, Input::Start);
    world.input(1, Input::Start);
    world.run(secs(86_400));
    assert_eq!(world.states(), [State::Active; 2]);
    assert!(world.peers.iter().all(|peer| peer.poll_timeout().is_none()));
}

#[test]
fn an_idle_session_lasts_for_days_on_keepalives() {
    let mut world = World::up(pair());
    world.run(secs(2 * 86_400));
    assert_eq!(world.states(), [State::Established; 2]);
    for peer in &world.peers {
        // Every 30 s, less up to a quarter: 26.25 s on average.
        let sent = peer.counters().sent.of(MessageType::KeepAlive);
        assert!((6400..=6800).contains(&sent), "{sent}");
        assert_eq!(peer.history().established, 1);
    }
}

#[test]
fn keepalives_are_jittered_and_never_more_than_a_third_of_the_hold_time_apart() {
    let mut world = World::up(pair());
    world.run(secs(3600));
    let times = world.times(0, |output| matches!(output, Output::Send(_, wire) if wire.len() == 19));
    let gaps: Vec<Duration> = times.windows(2).skip(1).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (Duration::from_millis(22_500)..=secs(30)).contains(gap)), "{gaps:?}");
    assert!(gaps.windows(2).any(|pair| pair[0] != pair[1]));
}

#[test]
fn the_shortest_hold_time_sends_a_keepalive_each_second_and_no_faster() {
    let mut world = World::up(pair().map(|config| PeerConfig { hold_time: 3, ..config }));
    world.run(secs(100));
    let times = world.times(0, |output| matches!(output, Output::Send(_, wire) if wire.len() == 19));
    assert!(times.windows(2).skip(1).all(|pair| pair[1] - pair[0] == secs(1)));
    assert_eq!(world.states(), [State::Established; 2]);
}

#[test]
fn the_smaller_hold_time_counts_on_both_sides() {
    let [a, b] = pair();
    let world = World::up([a, PeerConfig { hold_time: 30, ..b }]);
    for peer in &world.peers {
        let negotiated = peer.negotiated().expect("up");
        assert_eq!((negotiated.hold_time, negotiated.keepalive), (secs(30), secs(10)));
    }
}

#[test]
fn a_hold_time_of_zero_on_one_side_stops_all_timers_of_both() {
    let [a, b] = pair();
    let mut world = World::up([a, PeerConfig { hold_time: 0, ..b }]);
    assert!(world.peers.iter().all(|peer| peer.poll_timeout().is_none()));
    world.cut = true;
    world.run(secs(86_400));
    assert_eq!(world.states(), [State::Established; 2]);
}

#[test]
fn a_peer_that_refuses_connections_is_dialled_at_jittered_intervals_until_it_listens() {
    let [a, b] = pair();
    let mut world = World::new([a, ruled(b, passive)]);
    world.deaf[1] = true;
    world.input(0, Input::Start);
    world.input(1, Input::Start);
    world.run(secs(100));
    assert_eq!(world.states(), [State::Active; 2]);
    let dials = world.times(0, |output| matches!(output, Output::Connect(_)));
    assert!((20..=27).contains(&dials.len()), "{dials:?}");
    assert!(dials.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_millis(3750)));
    world.deaf[1] = false;
    world.run(secs(6));
    assert_eq!(world.states(), [State::Established; 2]);
}

#[test]
fn a_sign_of_life_ends_the_wait_between_two_attempts_and_nothing_else() {
    let [a, b] = pair();
    let mut world = World::new([a, ruled(b, passive)]);
    let dials = |world: &World| world.times(0, |output| matches!(output, Output::Connect(_))).len();
    world.input(0, Input::Heard);
    assert_eq!(dials(&world), 0, "it is stopped");
    world.deaf[1] = true;
    world.input(0, Input::Start);
    world.input(1, Input::Start);
    world.run(secs(1));
    assert_eq!((dials(&world), world.states()), (1, [State::Active; 2]));
    world.deaf[1] = false;
    world.input(0, Input::Heard);
    assert_eq!(dials(&world), 2);
    world.input(0, Input::Heard);
    assert_eq!(dials(&world), 2, "it is under way");
    world.run(secs(1));
    assert_eq!(world.states(), [State::Established; 2]);
    world.input(0, Input::Heard);
    assert_eq!(dials(&world), 2);
}

#[test]
fn dialling_that_is_not_answered_is_given_up_and_begun_anew() {
    let mut solo = Solo::in_state(State::Connect);
    let outputs = solo.fire(Timer::ConnectRetry).expect("it runs");
    let next = holdfast_bgp_session::ConnId(DIALLED.0 + 1);
    assert!(matches!(&outputs[..], [Output::Close(old), Output::Log(_), Output::Connect(new)]
        if *old == DIALLED && *new == next));
    assert!(solo.feed(Input::Connected(DIALLED)).is_empty(), "the old one came too late");
    assert_eq!(solo.feed(Input::Connected(next)).len(), 1);
}

#[test]
fn what_no_open_says_changes_while_the_session_is_up_and_while_it_waits() {
    let other = |passive, seconds| SessionRules { passive, connect_retry: secs(seconds), ..config().rules };
    let mut solo = Solo::in_state(State::Established);
    solo.peer.change_rules(other(true, 60), solo.now);
    assert_eq!((solo.peer.state(), solo.peer.poll_output()), (State::Established, None));
    assert!(solo.peer.config().rules.passive);

    // Who waits, and may dial, does so at once; who may not any more stops waiting.
    let mut solo = Solo::in_state(State::Active);
    solo.peer.change_rules(other(true, 60), solo.now);
    assert_eq!((solo.peer.poll_output(), solo.peer.deadline(Timer::ConnectRetry)), (None, None));
    solo.peer.change_rules(other(false, 60), solo.now);
    assert_eq!(solo.peer.state(), State::Connect);
    assert!(solo.peer.deadline(Timer::ConnectRetry).is_some_and(|due| due - solo.now >= secs(45)));

    // A stopped one stays so.
    let mut idle = Solo::new(PeerConfig { rules: other(true, 5), ..config() });
    idle.peer.change_rules(other(false, 5), idle.now);
    assert_eq!((idle.peer.state(), idle.peer.poll_output()), (State::Idle, None));
}
