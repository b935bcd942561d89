//! How sessions end, and how they come back.

use std::{io, time::Duration};

use holdfast_bgp_session::{
    ConnId, Counted, DownReason, IdleHold, Input, Output, PeerAsn, PeerConfig, Role, SessionEvent, State,
    StopReason, Timer,
};
use holdfast_bgp_wire::{CeaseSubcode, FsmState, MessageType, Notification};
use holdfast_types::{Asn, Family};

use crate::tests::session::{
    establishment::pair,
    solo::{ACCEPTED, DIALLED, Solo, config, passive, peer_open, ruled, sent_notification, sent_open},
    world::World,
};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_cut_line_ends_the_session_after_the_hold_time_and_heals() {
    let mut world = World::up(pair());
    world.cut = true;
    world.run(secs(91));
    let expired = DownReason::Sent(Notification::hold_timer_expired());
    for who in 0..2 {
        let downs = world.downs(who);
        let [(at, reason)] = downs[..] else { panic!("down once, not {downs:?}") };
        assert_eq!(*reason, expired);
        assert!((secs(70)..=secs(101)).contains(&at), "{at:?}");
    }
    world.cut = false;
    world.run(secs(15));
    assert_eq!(world.states(), [State::Established; 2]);
    assert_eq!(world.live_wires(), 1);
}

#[test]
fn updates_and_route_refreshes_keep_a_session_as_keepalives_do() {
    for kind in [MessageType::Update, MessageType::RouteRefresh] {
        let mut solo = Solo::in_state(State::Established);
        for _ in 0..3 {
            solo.pass(secs(80));
            solo.feed(Input::Message(DIALLED, kind, &[0; 4]));
        }
        assert_eq!(solo.peer.state(), State::Established, "{kind:?}");
    }
}

#[test]
fn a_peer_that_takes_nothing_is_given_up_when_the_send_hold_timer_expires() {
    let mut solo = Solo::in_state(State::Established);
    let mut outputs = Vec::new();
    for _ in 0..30 {
        assert_eq!(solo.peer.state(), State::Established);
        solo.feed_keepalive(DIALLED);
        outputs = solo.pass(secs(20));
        if solo.peer.state() != State::Established {
            break;
        }
    }
    assert_eq!(sent_notification(&outputs), Notification::send_hold_timer_expired());
    assert_eq!(solo.peer.deadline(Timer::SendHold), None);
}

#[test]
fn a_peer_that_takes_something_now_and_then_is_kept() {
    let mut solo = Solo::in_state(State::Established);
    for _ in 0..100 {
        solo.pass(secs(80));
        solo.feed_keepalive(DIALLED);
        solo.feed(Input::Sent(DIALLED));
    }
    assert_eq!(solo.peer.state(), State::Established);
}

#[test]
fn the_send_hold_time_can_be_set_but_not_below_the_hold_time() {
    for (set, expected) in [(None, Some(480)), (Some(120), Some(120)), (Some(5), Some(90)), (Some(0), None)] {
        let mut solo = Solo::new(PeerConfig { send_hold: set.map(secs), ..config() });
        solo.advance_to(State::Established);
        let deadline = solo.peer.deadline(Timer::SendHold);
        assert_eq!(deadline.map(|at| at - solo.now), expected.map(secs), "{set:?}");
    }
    let mut solo = Solo::new(PeerConfig { hold_time: 3600, ..config() });
    solo.advance_to(State::OpenSent);
    solo.feed_open(DIALLED, &holdfast_bgp_wire::Open { hold_time: 3600, ..peer_open() });
    solo.feed_keepalive(DIALLED);
    assert_eq!(solo.peer.deadline(Timer::SendHold).map(|at| at - solo.now), Some(secs(7200)));
}

#[test]
fn shutdown_tells_the_peer_why_and_lasts_until_start() {
    let mut world = World::up(pair());
    world.input(0, Input::Stop(StopReason::AdminShutdown("back at 5".into())));
    world.run(secs(600));
    assert_eq!(world.states()[0], State::Idle);
    let noted = world.peers[1].history().last_received.as_ref().expect("a NOTIFICATION");
    assert_eq!(noted.notification.text(), Some("back at 5"));
    assert_eq!(noted.notification.subcode, CeaseSubcode::AdministrativeShutdown as u8);
    assert_eq!(world.live_wires(), 0);
    world.input(0, Input::Start);
    world.run(secs(6));
    assert_eq!(world.states(), [State::Established; 2]);
}

#[test]
fn after_a_reset_both_are_back_within_seconds_whoever_dials() {
    for passive in [[false, false], [true, false], [false, true]] {
        let [mut a, mut b] = pair();
        [a.rules.passive, b.rules.passive] = passive;
        let mut world = World::up([a, b]);
        let at = world.now;
        world.input(0, Input::Stop(StopReason::AdminReset(String::new())));
        assert_eq!(world.states()[0], State::Idle);
        while world.states() != [State::Established; 2] {
            world.run(Duration::from_millis(100));
            assert!(world.now - at < secs(7), "passive {passive:?}");
        }
        assert_eq!([world.downs(0).len(), world.downs(1).len()], [1, 1]);
    }
}

#[test]
fn too_many_prefixes_stop_the_session_for_the_time_given_or_for_good() {
    let (family, counted) = (Family::IPV6_UNICAST, Counted::Received);
    let reason = |restart| StopReason::MaxPrefixes { family, counted, limit: 500, restart };
    let mut solo = Solo::in_state(State::Established);
    let told = sent_notification(&solo.feed(Input::Stop(reason(Some(secs(600))))));
    assert_eq!((told.code, told.subcode, told.data), (6, 1, vec![0, 2, 1, 0, 0, 1, 244]));
    solo.pass(secs(599));
    assert_eq!(solo.peer.state(), State::Idle);
    solo.pass(secs(1));
    assert_eq!(solo.peer.state(), State::Connect);

    let mut solo = Solo::in_state(State::Established);
    solo.feed(Input::Stop(reason(None)));
    assert_eq!((solo.peer.state(), solo.peer.poll_timeout()), (State::Idle, None));
}

#[test]
fn each_session_that_ends_by_what_the_peer_makes_us_keep_is_tried_after_a_longer_pause() {
    let mut solo = Solo::in_state(State::Established);
    for failures in 1..5 {
        // Long enough for any other failure to be forgiven.
        for _ in 0..10 {
            solo.pass(secs(20));
            let id = solo.peer.connection().expect("a connection").0;
            solo.feed_keepalive(id);
            solo.feed(Input::Sent(id));
        }
        let told = sent_notification(&solo.feed(Input::Stop(StopReason::MaxOctets { limit: 1 << 30 })));
        assert_eq!((told.code, told.subcode), (6, 8));
        assert_eq!(solo.peer.failures(), failures);
        solo.fire(Timer::IdleHold);
        let next = ConnId(DIALLED.0 + failures);
        solo.feed(Input::Connected(next));
        solo.feed_open(next, &peer_open());
        solo.feed_keepalive(next);
        assert_eq!(solo.peer.state(), State::Established);
    }
}

#[test]
fn attempts_that_keep_failing_are_held_back_longer_and_longer() {
    let [a, b] = pair();
    let mut world = World::new([a, PeerConfig { peer_asn: PeerAsn::Exact(Asn(7)), ..ruled(b, passive) }]);
    world.input(0, Input::Start);
    world.input(1, Input::Start);
    world.run(secs(3600));
    let dials = world.times(0, |output| matches!(output, Output::Connect(_)));
    let pauses: Vec<Duration> = dials.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (index, pause) in pauses.iter().enumerate() {
        let base = secs(60.min(1 << index.min(6)));
        let (least, most) = (base * 3 / 4, base + secs(6));
        assert!((least..=most).contains(pause), "pause {index} is {pause:?}");
    }
    assert!(pauses.len() > 50, "it goes on trying: {}", pauses.len());
    assert_eq!(
        world.peers[1].history().last_sent.as_ref().map(|n| n.notification.clone()),
        Some(Notification::bad_peer_as())
    );
}

#[test]
fn a_session_that_lasted_clears_the_count_of_failures_and_a_short_one_does_not() {
    for (lasted, failures) in [(secs(59), 2), (secs(60), 1)] {
        let mut solo = Solo::held();
        solo.fire(Timer::IdleHold);
        let second = ConnId(DIALLED.0 + 1);
        solo.feed(Input::Connected(second));
        solo.feed_open(second, &peer_open());
        solo.feed_keepalive(second);
        solo.pass(lasted);
        solo.feed(Input::Closed(second, None));
        assert_eq!(solo.peer.failures(), failures, "after {lasted:?}");
    }
}

#[test]
fn the_longest_pause_is_bounded_and_settings_of_zero_make_no_busy_loop() {
    let none = IdleHold { initial: Duration::ZERO, max: Duration::ZERO, forgiven_after: Duration::ZERO };
    let mut solo = Solo::new(PeerConfig {
        idle_hold: none,
        ..ruled(config(), |rules| rules.connect_retry = Duration::ZERO)
    });
    solo.feed(Input::Start);
    let dials = solo.pass(secs(60)).iter().filter(|output| matches!(output, Output::Connect(_))).count();
    assert!((59..=81).contains(&dials), "{dials}");
    let endless = IdleHold { initial: Duration::MAX, max: Duration::MAX, ..IdleHold::default() };
    let mut solo = Solo::new(PeerConfig {
        idle_hold: endless,
        ..ruled(config(), |rules| rules.connect_retry = Duration::MAX)
    });
    solo.advance_to(State::OpenConfirm);
    solo.feed(Input::Closed(DIALLED, None));
    assert_eq!(solo.peer.poll_timeout(), None, "after the end of time");
}

#[test]
fn start_ends_the_pause_at_once() {
    let mut solo = Solo::held();
    let refused = solo.feed(Input::Accepted(ACCEPTED));
    let cease = Notification::cease(CeaseSubcode::ConnectionRejected);
    assert_eq!(refused[..2], [Output::Send(ACCEPTED, cease.encode()), Output::Close(ACCEPTED)]);
    assert_eq!(refused[2], Output::Log(SessionEvent::Refused(CeaseSubcode::ConnectionRejected)));
    assert_eq!(solo.feed(Input::Start), [Output::Connect(ConnId(DIALLED.0 + 1))]);
    assert_eq!((solo.peer.failures(), solo.peer.deadline(Timer::IdleHold)), (0, None));
}

#[test]
fn a_peer_that_is_idle_and_says_so_is_asked_again_without_a_pause() {
    let mut solo = Solo::in_state(State::OpenSent);
    solo.feed_notification(DIALLED, &Notification::cease(CeaseSubcode::ConnectionRejected));
    assert_eq!((solo.peer.state(), solo.peer.failures()), (State::Active, 0));
    assert!(solo.peer.deadline(Timer::ConnectRetry).is_some());
}

#[test]
fn a_peer_that_is_shut_down_during_the_pause_stays_down() {
    for reason in [StopReason::AdminShutdown(String::new()), StopReason::PeerDeconfigured] {
        let mut solo = Solo::held();
        assert_eq!(solo.feed(Input::Stop(reason)), []);
        assert_eq!((solo.peer.state(), solo.peer.poll_timeout()), (State::Idle, None));
    }
}

#[test]
fn a_connection_lost_before_any_answer_is_no_failure() {
    let mut solo = Solo::in_state(State::OpenSent);
    let outputs = solo.feed(Input::Closed(DIALLED, None));
    let lost = SessionEvent::OpenFailed(Role::Outgoing, DownReason::Lost(None));
    assert_eq!(outputs, [Output::Log(lost)]);
    assert_eq!((solo.peer.state(), solo.peer.failures()), (State::Active, 0));
    assert!(solo.peer.deadline(Timer::ConnectRetry).is_some());
}

#[test]
fn an_unexpected_message_is_named_in_the_notification() {
    let all = [MessageType::Open, MessageType::Update, MessageType::KeepAlive, MessageType::RouteRefresh];
    let expected = [
        (State::OpenSent, FsmState::OpenSent, &all[1..]),
        (State::OpenConfirm, FsmState::OpenConfirm, &[all[0], all[1], all[3]][..]),
        (State::Established, FsmState::Established, &all[..1]),
    ];
    for (state, named, unexpected) in expected {
        for &kind in unexpected {
            let told = sent_notification(&Solo::in_state(state).feed(Input::Message(DIALLED, kind, &[0; 4])));
            let data = vec![kind as u8];
            assert_eq!(told, Notification { data, ..Notification::fsm_error(named) }, "{kind:?} in {state}");
        }
    }
}

#[test]
fn a_peer_without_capabilities_is_tried_without_and_forgotten_when_it_goes() {
    let mut solo = Solo::in_state(State::OpenSent);
    let plain = holdfast_bgp_wire::Open { capabilities: Vec::new(), ..peer_open() };
    // It had sent its own OPEN before it read ours.
    solo.feed_open(DIALLED, &plain);
    let outputs = solo.feed_notification(DIALLED, &Notification::unsupported_optional_parameter());
    assert!(outputs.contains(&Output::Log(SessionEvent::WithoutCapabilities)));

    let second = ConnId(DIALLED.0 + 1);
    solo.fire(Timer::IdleHold);
    let ours = sent_open(&solo.feed(Input::Connected(second)));
    assert_eq!(ours.capabilities, []);
    solo.feed_open(second, &plain);
    solo.feed_keepalive(second);
    let negotiated = solo.peer.negotiated().expect("up");
    assert_eq!(negotiated.families, [Family::IPV4_UNICAST]);
    assert!(!negotiated.four_octet_as && !negotiated.extended_message());

    solo.feed(Input::Closed(second, Some(io::ErrorKind::TimedOut)));
    solo.fire(Timer::IdleHold);
    let ours = sent_open(&solo.feed(Input::Connected(ConnId(second.0 + 1))));
    assert_ne!(ours.capabilities, []);
}

#[test]
fn a_peer_that_refuses_both_kinds_of_open_is_offered_them_in_turn() {
    let mut solo = Solo::in_state(State::OpenSent);
    let mut plain = Vec::new();
    for attempt in 0..4 {
        solo.feed_notification(ConnId(DIALLED.0 + attempt), &Notification::unsupported_optional_parameter());
        solo.fire(Timer::IdleHold);
        let ours = sent_open(&solo.feed(Input::Connected(ConnId(DIALLED.0 + attempt + 1))));
        plain.push(ours.capabilities.is_empty());
    }
    assert_eq!(plain, [true, false, true, false]);
}

#[test]
fn a_session_without_ipv4_is_never_tried_without_capabilities() {
    let mut solo = Solo::new(PeerConfig { families: vec![Family::IPV6_UNICAST], ..config() });
    solo.advance_to(State::OpenSent);
    solo.feed_notification(DIALLED, &Notification::unsupported_optional_parameter());
    solo.fire(Timer::IdleHold);
    let ours = sent_open(&solo.feed(Input::Connected(ConnId(DIALLED.0 + 1))));
    assert_ne!(ours.capabilities, []);
}

#[test]
fn what_happened_is_kept_with_its_time() {
    let mut solo = Solo::in_state(State::OpenSent);
    solo.pass(secs(2));
    solo.feed_open(DIALLED, &peer_open());
    solo.pass(secs(3));
    solo.feed_keepalive(DIALLED);
    let up = solo.now;
    solo.pass(secs(40));
    solo.feed_keepalive(DIALLED);
    assert_eq!((solo.peer.history().since, solo.peer.established_since()), (up, Some(up)));

    let error = Notification::hold_timer_expired();
    solo.feed_notification(DIALLED, &error);
    let history = solo.peer.history();
    assert_eq!((history.state, history.since, history.established), (State::Idle, solo.now, 1));
    assert_eq!(history.last_down, Some((solo.now, DownReason::Received(error))));
    assert_eq!(history.last_received.as_ref().map(|noted| noted.at), Some(solo.now));
}

#[test]
fn the_last_failed_attempt_is_kept_with_its_time() {
    let mut solo = Solo::new(config());
    solo.feed(Input::Start);
    solo.pass(secs(1));
    solo.feed(Input::ConnectFailed(DIALLED, "connection refused"));
    let refused = SessionEvent::ConnectFailed("connection refused".into());
    assert_eq!(solo.peer.history().last_failed, Some((solo.now, refused)));

    solo.fire(Timer::ConnectRetry);
    let (id, _) = solo.peer.connection().expect("it dials again");
    solo.feed(Input::Connected(id));
    solo.pass(secs(1));
    solo.feed(Input::Closed(id, None));
    let closed = SessionEvent::OpenFailed(Role::Outgoing, DownReason::Lost(None));
    assert_eq!(solo.peer.history().last_failed, Some((solo.now, closed)));
    assert_eq!(solo.peer.history().last_down, None, "it was never up");
}

#[test]
fn messages_are_counted_by_type_and_direction() {
    let mut solo = Solo::in_state(State::Established);
    solo.feed(Input::Message(DIALLED, MessageType::Update, &[0; 4]));
    solo.peer.count_sent(MessageType::Update, 3);
    let counted = |messages: &holdfast_bgp_session::Messages| {
        (
            messages.of(MessageType::Open),
            messages.of(MessageType::KeepAlive),
            messages.of(MessageType::Update),
        )
    };
    let counters = solo.peer.counters();
    assert_eq!((counted(&counters.received), counters.received.total()), ((1, 1, 1), 3));
    assert_eq!((counted(&counters.sent), counters.sent.total()), ((1, 1, 3), 5));
}

#[test]
fn the_operator_reads_why() {
    let cease = Notification::cease_with_text(CeaseSubcode::AdministrativeShutdown, "bye");
    let lines = [
        (DownReason::Received(cease), "received Cease/Administrative Shutdown: \"bye\""),
        (DownReason::Lost(None), "connection closed by the peer"),
        (DownReason::Lost(Some(io::ErrorKind::ConnectionReset)), "connection lost: connection reset"),
        (DownReason::Stopped(StopReason::AdminShutdown("bye".into())), "administrative shutdown: \"bye\""),
        (DownReason::Stopped(StopReason::AdminReset(String::new())), "administrative reset"),
    ];
    for (reason, line) in lines {
        assert_eq!(reason.to_string(), line);
    }
}
