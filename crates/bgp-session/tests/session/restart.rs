//! Graceful restart of the peer: what stays of its session, and until when (RFC 4724, RFC 8538).

use std::{io, time::Duration};

use holdfast_bgp_session::{
    DownReason, GracefulRestart, Input, Output, PeerConfig, SessionRules, State, StopReason,
};
use holdfast_bgp_wire::{Capability, CeaseSubcode, GracefulFamily, LongLivedFamily, Notification, Open};
use holdfast_types::Family;

use crate::tests::session::solo::{
    ACCEPTED, DIALLED, Solo, config, peer_open, ruled, sent_notification, sent_open,
};

const V4: Family = Family::IPV4_UNICAST;
const TIME: Duration = Duration::from_secs(120);

/// The OPEN of a peer that can restart, says whether it keeps routes after a NOTIFICATION, and has kept its own.
fn open(notification: bool, forwarding: bool) -> Open {
    let mut open = peer_open();
    let families = vec![GracefulFamily { family: V4, forwarding }];
    open.capabilities.push(Capability::GracefulRestart {
        restarting: false,
        notification,
        time: 120,
        families,
    });
    open
}

fn helper(notification: bool) -> Solo {
    let mut solo = Solo::new(ruled(config(), helping));
    solo.advance_to(State::OpenSent);
    solo.feed_open(DIALLED, &open(notification, true));
    solo.feed_keepalive(DIALLED);
    solo
}

/// The families that stay at the end of the session.
fn retained(outputs: &[Output]) -> &[Family] {
    fn of_down(output: &Output) -> Option<&[Family]> {
        match output {
            Output::Down { retained, .. } => Some(retained),
            _ => None,
        }
    }
    outputs.iter().find_map(of_down).expect("the session ends")
}

fn forgotten(outputs: &[Output]) -> usize {
    outputs.iter().filter(|output| **output == Output::Forget(V4)).count()
}

/// The peer comes back, on a connection of its own.
fn back(solo: &mut Solo, open: &Open) -> Vec<Output> {
    solo.feed(Input::Start);
    solo.feed(Input::Accepted(ACCEPTED));
    let mut outputs = solo.feed_open(ACCEPTED, open);
    outputs.extend(solo.feed_keepalive(ACCEPTED));
    assert_eq!(solo.peer.state(), State::Established);
    outputs
}

fn helping(rules: &mut SessionRules) {
    rules.graceful_restart = GracefulRestart::Helper;
}

fn full(rules: &mut SessionRules) {
    rules.graceful_restart = GracefulRestart::Full;
}

#[test]
fn routes_stay_for_the_restart_time() {
    let mut solo = helper(false);
    assert_eq!(retained(&solo.feed(Input::Closed(DIALLED, None))), [V4]);
    assert_eq!(forgotten(&solo.pass(TIME - Duration::from_millis(1))), 0);
    assert_eq!(forgotten(&solo.pass(Duration::from_millis(1))), 1);
    assert_eq!(solo.peer.retained().count(), 0);
}

#[test]
fn where_both_know_of_it_they_stay_longer_as_the_last_resort() {
    let long = Duration::from_secs(600);
    for (ours, theirs, stays) in [(1000, 600, true), (600, 5000, true), (0, 600, false), (600, 0, false)] {
        let long_lived = Duration::from_secs(ours);
        let mut solo = Solo::new(ruled(config(), |rules| {
            (rules.graceful_restart, rules.long_lived_stale_time) = (GracefulRestart::Helper, long_lived);
        }));
        solo.advance_to(State::OpenSent);
        let mut open = open(false, true);
        let entry = LongLivedFamily { family: V4, forwarding: true, time: theirs };
        open.capabilities.push(Capability::LongLivedGracefulRestart(vec![entry]));
        solo.feed_open(DIALLED, &open);
        solo.feed_keepalive(DIALLED);
        solo.feed(Input::Closed(DIALLED, None));
        let outputs = solo.pass(TIME);
        assert_eq!(outputs.contains(&Output::LongLived(V4)), stays, "{ours} {theirs}");
        assert_eq!(forgotten(&outputs), usize::from(!stays));
        if stays {
            assert_eq!(forgotten(&solo.pass(long - Duration::from_millis(1))), 0);
            assert_eq!(forgotten(&solo.pass(Duration::from_millis(1))), 1);
        }
    }
}

#[test]
fn routes_of_a_peer_that_is_back_wait_for_its_end_of_rib_and_not_for_ever() {
    for end_of_rib in [true, false] {
        let mut solo = helper(false);
        solo.feed(Input::Closed(DIALLED, None));
        assert_eq!(forgotten(&back(&mut solo, &open(false, true))), 0);
        match end_of_rib {
            true => assert_eq!(solo.feed(Input::EndOfRib(V4)), [Output::Forget(V4)]),
            false => {
                let mut outputs = Vec::new();
                for _ in 0..36 {
                    outputs.extend(solo.pass(Duration::from_secs(10)));
                    outputs.extend(solo.feed_keepalive(ACCEPTED));
                }
                assert_eq!(forgotten(&outputs), 1);
            }
        }
        assert!(solo.feed(Input::EndOfRib(V4)).is_empty(), "once");
    }
}

#[test]
fn a_peer_that_has_not_kept_forwarding_has_lost_its_routes() {
    for open in [open(false, false), peer_open()] {
        let mut solo = helper(false);
        solo.feed(Input::Closed(DIALLED, None));
        assert_eq!(forgotten(&back(&mut solo, &open)), 1);
    }
}

#[test]
fn after_a_notification_routes_stay_only_where_both_say_so_and_it_is_no_hard_reset() {
    let cease = Notification::cease(CeaseSubcode::OtherConfigurationChange);
    let table = [(false, false, 0), (true, false, 1), (true, true, 0)];
    for (notification, hard, count) in table {
        let mut solo = helper(notification);
        let told = if hard { cease.hard_reset() } else { cease.clone() };
        let outputs = solo.feed_notification(DIALLED, &told);
        assert_eq!(retained(&outputs).len(), count, "{notification} {hard}");
    }
    for (notification, count) in [(false, 0), (true, 1)] {
        let mut solo = helper(notification);
        let outputs = solo.pass(Duration::from_secs(90));
        assert_eq!(sent_notification(&outputs), Notification::hold_timer_expired());
        assert_eq!(retained(&outputs).len(), count);
    }
}

#[test]
fn what_the_operator_ends_is_over_on_both_sides() {
    let stop = StopReason::AdminShutdown("bye".into());
    let mut solo = helper(true);
    let outputs = solo.feed(Input::Stop(stop.clone()));
    assert!(retained(&outputs).is_empty());
    let told = sent_notification(&outputs);
    assert!(told.is_hard_reset());
    assert_eq!(
        told.inside_hard_reset().and_then(|inside| inside.text().map(str::to_owned)),
        Some("bye".into())
    );
    assert_eq!(told.to_string(), "Cease/Hard Reset: Cease/Administrative Shutdown: \"bye\"");

    let mut solo = helper(false);
    assert!(!sent_notification(&solo.feed(Input::Stop(stop.clone()))).is_hard_reset());

    // Also what stayed of a session that has ended before.
    let mut solo = helper(false);
    solo.feed(Input::Closed(DIALLED, None));
    assert_eq!(forgotten(&solo.feed(Input::Stop(stop))), 1);
}

#[test]
fn without_a_part_in_it_nothing_stays() {
    let mut solo = Solo::in_state(State::OpenSent);
    solo.feed_open(DIALLED, &open(true, true));
    solo.feed_keepalive(DIALLED);
    let outputs = solo.feed(Input::Closed(DIALLED, None));
    assert!(outputs.contains(&Output::Down { reason: DownReason::Lost(None), retained: vec![] }));
}

#[test]
fn who_restarts_says_so_until_it_is_over() {
    let ours = PeerConfig { restarting: true, forwarding: true, ..ruled(config(), full) };
    let mut solo = Solo::new(ours);
    solo.feed(Input::Start);
    let said = |restarting| Capability::GracefulRestart {
        restarting,
        notification: true,
        time: 120,
        families: vec![GracefulFamily { family: V4, forwarding: true }],
    };
    let first = sent_open(&solo.feed(Input::Connected(DIALLED)));
    assert!(first.capabilities.contains(&said(true)), "{first:?}");
    solo.peer.end_restarting();
    assert!(solo.peer.offered().contains(&said(false)));
}

#[test]
fn what_was_forwarded_in_a_session_is_forwarded_when_it_is_back() {
    let mut solo = Solo::new(ruled(config(), full));
    solo.advance_to(State::OpenSent);
    let forwards = |solo: &Solo| {
        solo.peer.offered().iter().any(|capability| match capability {
            Capability::GracefulRestart { families, .. } => families.iter().all(|family| family.forwarding),
            _ => false,
        })
    };
    assert!(!forwards(&solo));
    solo.feed_open(DIALLED, &open(false, true));
    solo.feed_keepalive(DIALLED);
    solo.feed(Input::Closed(DIALLED, None));
    assert!(forwards(&solo));
}

#[test]
fn the_stale_timer_bounds_what_the_peer_asks_for() {
    let stale_time = TIME / 2;
    let mut solo = Solo::new(ruled(config(), |rules| {
        (rules.graceful_restart, rules.stale_time) = (GracefulRestart::Helper, stale_time);
    }));
    solo.advance_to(State::OpenSent);
    solo.feed_open(DIALLED, &open(false, true));
    solo.feed_keepalive(DIALLED);
    solo.feed(Input::Closed(DIALLED, None));
    assert_eq!(forgotten(&solo.pass(stale_time)), 1);
}

#[test]
fn nothing_stays_of_a_session_whose_link_is_down() {
    let mut solo = helper(true);
    let outputs = solo.feed(Input::Closed(DIALLED, Some(io::ErrorKind::NetworkDown)));
    assert_eq!(retained(&outputs), [], "the link went first");
    let mut solo = helper(true);
    assert_eq!(retained(&solo.feed(Input::Closed(DIALLED, None))), [V4]);
    assert_eq!(forgotten(&solo.feed(Input::LinkDown)), 1, "the neighbor restarts, and the link goes");
    assert_eq!(solo.peer.retained().count(), 0);
    assert_eq!(solo.feed(Input::LinkDown), []);
}

/// The clock of the machine stands still while it sleeps; those of its neighbors do not.
#[test]
fn timers_go_on_while_the_machine_sleeps() {
    let mut solo = helper(false);
    let hold = solo.peer.negotiated().expect("established").hold_time;
    solo.feed(Input::Slept(hold / 2));
    assert_eq!(solo.peer.state(), State::Established, "less than the hold time");
    let outputs = solo.feed(Input::Slept(hold));
    let ends = |output: &Output| matches!(output, Output::Down { reason: DownReason::Sent(_), .. });
    assert!(outputs.iter().any(ends), "{outputs:?}");

    let mut solo = helper(false);
    solo.feed(Input::Closed(DIALLED, None));
    assert_eq!(
        forgotten(&solo.feed(Input::Slept(TIME))),
        1,
        "what the neighbor has left is not kept for longer"
    );
    // Longer than the clock has run.
    solo.feed(Input::Slept(Duration::from_secs(1 << 40)));
}
