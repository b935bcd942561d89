//! BFD and the session (RFC 5882, RFC 9384, draft-ietf-idr-bgp-bfd-strict-mode).

use std::{io, time::Duration};

use holdfast_bgp_session::{
    Bfd, DownReason, GracefulRestart, Input, Output, PeerBfd, PeerConfig, SessionEvent, State, Timer,
};
use holdfast_bgp_wire::{Capability, CeaseSubcode, Notification, Open};
use holdfast_types::Family;

use crate::tests::session::{
    solo::{
        DIALLED, OUR_ASN, PEER_ASN, Solo, config, config_of, graceful_open, peer_open, ruled,
        sent_notification, sent_open, strict, strict_open,
    },
    world::World,
};

const DOWN: Bfd = Bfd::Down { independent: false };
const FORWARDING_IS_LOST: Bfd = Bfd::Down { independent: true };

fn cease() -> Notification {
    Notification::cease(CeaseSubcode::BfdDown)
}

fn is_down(output: &Output) -> bool {
    matches!(output, Output::Down { reason: DownReason::BfdDown, retained } if retained.is_empty())
}

fn established(config: PeerConfig, open: &Open) -> Solo {
    let mut solo = Solo::new(config);
    solo.advance_to(State::OpenSent);
    solo.feed_open(DIALLED, open);
    solo.feed_keepalive(DIALLED);
    assert_eq!(solo.peer.state(), State::Established);
    solo
}

/// A peer whose routes stay when it restarts, and after a NOTIFICATION, too.
fn graceful() -> Solo {
    let config = ruled(config(), |rules| rules.graceful_restart = GracefulRestart::Helper);
    let mut open = graceful_open();
    for capability in &mut open.capabilities {
        if let Capability::GracefulRestart { notification, .. } = capability {
            *notification = true;
        }
    }
    established(config, &open)
}

#[test]
fn only_what_was_up_and_is_down_ends_a_session() {
    for harmless in [
        vec![DOWN, DOWN, FORWARDING_IS_LOST],
        vec![Bfd::Up, Bfd::AdminDown, DOWN],
        vec![Bfd::Up, Bfd::Unknown, DOWN],
        vec![Bfd::AdminDown, DOWN],
    ] {
        let mut solo = established(config(), &peer_open());
        for bfd in &harmless {
            assert_eq!(solo.feed(Input::Bfd(*bfd)), [], "{harmless:?}");
        }
        assert_eq!(solo.peer.state(), State::Established);
    }
    let mut solo = established(config(), &peer_open());
    solo.feed(Input::Bfd(Bfd::Up));
    let outputs = solo.feed(Input::Bfd(DOWN));
    assert_eq!(sent_notification(&outputs), cease());
    assert!(outputs.iter().any(is_down), "{outputs:?}");
    let history = solo.peer.history();
    assert_eq!(history.last_down.as_ref().map(|down| down.1.to_string()).as_deref(), Some("BFD is down"));
    // Not faster than after any other failure.
    assert_eq!((solo.peer.state(), solo.peer.failures()), (State::Idle, 1));
    assert!(solo.peer.deadline(Timer::IdleHold).is_some_and(|at| at > solo.now + Duration::from_millis(500)));
    assert_eq!(solo.feed(Input::Bfd(Bfd::Up)), []);
}

#[test]
fn routes_of_a_session_that_bfd_has_ended_do_not_stay() {
    let mut solo = graceful();
    solo.feed(Input::Bfd(Bfd::Up));
    let outputs = solo.feed(Input::Bfd(DOWN));
    assert_eq!(sent_notification(&outputs), cease().hard_reset(), "nor are ours to stay there");
    assert!(outputs.iter().any(is_down), "{outputs:?}");
    assert_eq!(solo.peer.retained().count(), 0);
}

#[test]
fn while_the_peer_restarts_bfd_counts_if_it_goes_on_without_the_control_plane() {
    for (bfd, stays) in [(DOWN, true), (FORWARDING_IS_LOST, false)] {
        let mut solo = graceful();
        solo.feed(Input::Bfd(Bfd::Up));
        solo.feed(Input::Closed(DIALLED, Some(io::ErrorKind::ConnectionReset)));
        assert_eq!(solo.peer.retained().collect::<Vec<_>>(), [Family::IPV4_UNICAST]);
        let forgets = solo.feed(Input::Bfd(bfd)).contains(&Output::Forget(Family::IPV4_UNICAST));
        assert_eq!((solo.peer.retained().count() == 1, forgets), (stays, !stays));
    }
}

#[test]
fn a_session_waits_if_both_ends_say_so() {
    for (ours, theirs, waits) in [
        (strict(config()), strict_open(), true),
        (strict(config()), peer_open(), false),
        (config(), strict_open(), false),
        (PeerConfig { capabilities: false, ..strict(config()) }, strict_open(), false),
    ] {
        let offers = ours.capabilities && ours.bfd.is_some();
        let mut solo = Solo::new(ours);
        solo.feed(Input::Start);
        let open = sent_open(&solo.feed(Input::Connected(DIALLED)));
        assert_eq!(open.capabilities.contains(&Capability::BfdStrictMode), offers);
        let outputs = solo.feed_open(DIALLED, &theirs);
        let says = outputs.iter().any(|output| matches!(output, Output::Log(SessionEvent::AwaitsBfd(_))));
        assert_eq!((solo.peer.awaits_bfd(), says), (waits, waits));
        assert_eq!(solo.peer.state() == State::OpenSent, waits);
    }
}

#[test]
fn who_is_up_already_is_not_waited_for_and_who_fails_then_ends_what_comes_up() {
    for bfd in [Bfd::Up, Bfd::AdminDown] {
        let mut solo = Solo::new(strict(config()));
        solo.feed(Input::Bfd(bfd));
        solo.advance_to(State::OpenSent);
        solo.feed_open(DIALLED, &strict_open());
        assert_eq!(solo.peer.state(), State::OpenConfirm);
        let outputs = solo.feed(Input::Bfd(DOWN));
        if bfd == Bfd::Up {
            assert_eq!(sent_notification(&outputs), cease());
        } else {
            assert_eq!((outputs, solo.peer.state()), (Vec::new(), State::OpenConfirm));
        }
    }
}

#[test]
fn the_hold_time_bounds_the_wait_and_a_timer_of_its_own_where_there_is_none() {
    let mut solo = Solo::awaiting_bfd();
    let hold = solo.peer.deadline(Timer::Hold).expect("it runs");
    assert_eq!((hold - solo.now, solo.peer.deadline(Timer::BfdHold)), (Duration::from_secs(90), None));
    solo.now += Duration::from_secs(10);
    solo.feed_keepalive(DIALLED);
    assert_eq!(solo.peer.deadline(Timer::Hold), Some(solo.now + Duration::from_secs(90)));
    assert_eq!(
        sent_notification(&solo.fire(Timer::Hold).expect("it runs")),
        Notification::hold_timer_expired()
    );

    let mut solo = Solo::new(PeerConfig { hold_time: 0, ..strict(config()) });
    solo.advance_to(State::OpenSent);
    solo.feed_open(DIALLED, &strict_open());
    let deadline = solo.peer.deadline(Timer::BfdHold).expect("it runs");
    assert_eq!((deadline - solo.now, solo.peer.deadline(Timer::Hold)), (Duration::from_secs(30), None));
    assert_eq!(sent_notification(&solo.fire(Timer::BfdHold).expect("it runs")), cease());
    assert_eq!((solo.peer.state(), solo.peer.failures()), (State::Idle, 1));

    let mut solo = Solo::new(PeerConfig { hold_time: 0, ..strict(config()) });
    solo.advance_to(State::OpenSent);
    solo.feed_open(DIALLED, &strict_open());
    solo.feed(Input::Bfd(Bfd::Up));
    assert_eq!((solo.peer.state(), solo.peer.deadline(Timer::BfdHold)), (State::OpenConfirm, None));
}

#[test]
fn a_session_that_is_up_stays_whatever_is_configured_of_bfd() {
    let mut solo = established(strict(config()), &peer_open());
    solo.feed(Input::Bfd(Bfd::Up));
    for bfd in [Some(PeerBfd::default()), None, strict(config()).bfd] {
        assert_eq!(solo.change_bfd(bfd), []);
        assert_eq!(solo.peer.state(), State::Established);
    }
    assert_eq!(solo.peer.bfd(), Bfd::Unknown, "what was said of another BFD session does not count");
    assert_eq!(solo.feed(Input::Bfd(DOWN)), []);
}

#[test]
fn two_strict_peers_come_up_with_bfd_and_go_down_with_it() {
    let configs = [config_of(OUR_ASN, 1, PEER_ASN), config_of(PEER_ASN, 2, OUR_ASN)].map(strict);
    let mut world = World::new(configs);
    world.input(0, Input::Start);
    world.input(1, Input::Start);
    world.run(Duration::from_secs(10));
    assert_eq!(world.states(), [State::OpenSent; 2]);
    assert_eq!(world.live_wires(), 1, "collisions are resolved before BFD is up");
    world.input(0, Input::Bfd(Bfd::Up));
    world.run(Duration::from_secs(1));
    assert_eq!(world.states(), [State::OpenConfirm, State::OpenSent]);
    world.input(1, Input::Bfd(Bfd::Up));
    world.run(Duration::from_secs(1));
    assert_eq!(world.states(), [State::Established; 2]);
    world.cut = true;
    world.input(0, Input::Bfd(DOWN));
    world.input(1, Input::Bfd(DOWN));
    assert_eq!(world.states(), [State::Idle; 2]);
}
