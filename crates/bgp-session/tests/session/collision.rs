//! A second connection in each state (RFC 4271 section 6.8).

use holdfast_bgp_session::{ConnId, DownReason, Input, Output, Role, State};
use holdfast_bgp_wire::{CeaseSubcode, Notification, Open};

use crate::tests::session::solo::{
    ACCEPTED, DIALLED, Solo, graceful_open, peer_open, router_id, sent_notification,
};

/// Ours is 0.0.0.1 and the peer's 0.0.0.2, so that what it dialled is to be kept; with 0.0.0.1 as well,
/// its higher AS number says the same.
fn open_of(bits: u32) -> Open {
    Open { router_id: router_id(bits), ..peer_open() }
}

/// A peer whose own BGP Identifier is higher than that of [`peer_open`].
fn superior(state: State) -> Solo {
    let config =
        holdfast_bgp_session::PeerConfig { router_id: router_id(9), ..crate::tests::session::solo::config() };
    let mut solo = Solo::new(config);
    solo.advance_to(state);
    solo
}

fn closed(outputs: &[Output]) -> Vec<ConnId> {
    let close = |output: &Output| match output {
        Output::Close(id) => Some(*id),
        _ => None,
    };
    outputs.iter().filter_map(close).collect()
}

fn collision() -> Notification {
    Notification::cease(CeaseSubcode::ConnectionCollisionResolution)
}

#[test]
fn while_we_dial_the_peers_connection_comes_up_and_dialling_stops() {
    let mut solo = Solo::in_state(State::Connect);
    solo.feed(Input::Accepted(ACCEPTED));
    assert_eq!(solo.peer.state(), State::OpenSent);
    assert_eq!(closed(&solo.feed_open(ACCEPTED, &peer_open())), [DIALLED]);
    assert!(solo.feed(Input::Connected(DIALLED)).is_empty(), "too late");
    solo.feed_keepalive(ACCEPTED);
    assert_eq!(solo.peer.connection(), Some((ACCEPTED, Role::Incoming)));
}

#[test]
fn with_both_in_open_sent_the_first_open_decides_only_for_the_connection_that_we_dialled() {
    let rows = [
        (Solo::in_state(State::OpenSent), DIALLED, vec![]),
        (Solo::in_state(State::OpenSent), ACCEPTED, vec![]),
        (superior(State::OpenSent), DIALLED, vec![]),
        (superior(State::OpenSent), ACCEPTED, vec![ACCEPTED]),
    ];
    for (mut solo, first, lost) in rows {
        solo.feed(Input::Accepted(ACCEPTED));
        assert_eq!(closed(&solo.feed_open(first, &peer_open())), lost);
    }
}

#[test]
fn with_one_in_open_confirm_the_identifiers_decide() {
    let rows = [
        (Solo::in_state(State::OpenSent), DIALLED, ACCEPTED, DIALLED),
        (Solo::in_state(State::OpenSent), ACCEPTED, DIALLED, DIALLED),
        (superior(State::OpenSent), DIALLED, ACCEPTED, ACCEPTED),
    ];
    for (mut solo, first, second, lost) in rows {
        solo.feed(Input::Accepted(ACCEPTED));
        solo.feed_open(first, &peer_open());
        let outputs = solo.feed_open(second, &peer_open());
        assert_eq!(closed(&outputs), [lost], "first {first:?}");
        assert_eq!(sent_notification(&outputs), collision());
        assert_eq!(solo.peer.state(), State::OpenConfirm);
    }
}

#[test]
fn with_equal_identifiers_the_higher_as_decides() {
    let mut solo = Solo::in_state(State::OpenSent);
    solo.feed(Input::Accepted(ACCEPTED));
    solo.feed_open(DIALLED, &open_of(1));
    assert_eq!(closed(&solo.feed_open(ACCEPTED, &open_of(1))), [DIALLED]);
}

#[test]
fn an_established_session_is_kept_whatever_the_identifiers_say() {
    let mut solo = Solo::in_state(State::Established);
    assert_eq!(closed(&solo.feed(Input::Accepted(ACCEPTED))), []);
    let outputs = solo.feed_open(ACCEPTED, &peer_open());
    assert_eq!((closed(&outputs), sent_notification(&outputs)), (vec![ACCEPTED], collision()));
    assert_eq!(solo.peer.connection(), Some((DIALLED, Role::Outgoing)));
}

#[test]
fn a_second_connection_that_has_not_spoken_goes_when_the_first_is_established() {
    let mut solo = Solo::in_state(State::OpenConfirm);
    solo.feed(Input::Accepted(ACCEPTED));
    let outputs = solo.feed_keepalive(DIALLED);
    assert_eq!(closed(&outputs), [ACCEPTED]);
    assert_eq!(solo.peer.state(), State::Established);
}

#[test]
fn a_gracefully_restarted_peer_replaces_its_session_once_it_confirms_the_new_one() {
    let mut solo = Solo::in_state(State::OpenSent);
    solo.feed_open(DIALLED, &graceful_open());
    solo.feed_keepalive(DIALLED);
    solo.feed(Input::Accepted(ACCEPTED));
    assert_eq!(closed(&solo.feed_open(ACCEPTED, &graceful_open())), []);
    let outputs = solo.feed_keepalive(ACCEPTED);
    let down = outputs.iter().position(|o| matches!(o, Output::Down { reason: DownReason::Replaced, .. }));
    let up = outputs.iter().position(|o| matches!(o, Output::Established(ACCEPTED, _)));
    assert!(down.expect("down") < up.expect("up"), "{outputs:?}");
    assert_eq!(closed(&outputs), [DIALLED]);
}

#[test]
fn a_connection_that_crossed_the_session_of_a_graceful_peer_does_it_no_harm() {
    let mut solo = Solo::in_state(State::OpenSent);
    solo.feed_open(DIALLED, &graceful_open());
    solo.feed_keepalive(DIALLED);
    solo.feed(Input::Accepted(ACCEPTED));
    solo.feed_open(ACCEPTED, &graceful_open());
    solo.feed_notification(ACCEPTED, &collision());
    assert_eq!(solo.peer.state(), State::Established);
    assert_eq!(solo.peer.history().last_down, None);
}

#[test]
fn a_newer_connection_of_the_peer_supersedes_its_earlier_one() {
    let mut solo = Solo::in_state(State::Active);
    solo.feed(Input::Accepted(ACCEPTED));
    let outputs = solo.feed(Input::Accepted(ConnId(2)));
    assert_eq!((closed(&outputs), sent_notification(&outputs)), (vec![ACCEPTED], collision()));
    assert_eq!(solo.peer.connection(), Some((ConnId(2), Role::Incoming)));
}

#[test]
fn a_failure_on_one_connection_leaves_the_other_alone() {
    let mut solo = Solo::in_state(State::OpenSent);
    solo.feed(Input::Accepted(ACCEPTED));
    solo.feed_keepalive(DIALLED);
    assert_eq!((solo.peer.state(), solo.peer.failures()), (State::OpenSent, 0));
    assert_eq!(solo.peer.connection(), Some((ACCEPTED, Role::Incoming)));
    solo.feed_keepalive(ACCEPTED);
    assert_eq!((solo.peer.state(), solo.peer.failures()), (State::Idle, 1));
}

#[test]
fn a_connection_whose_number_is_taken_or_ours_to_give_is_ignored() {
    let mut solo = Solo::in_state(State::Active);
    solo.feed(Input::Accepted(ACCEPTED));
    for id in [ACCEPTED, DIALLED] {
        assert_eq!(solo.feed(Input::Accepted(id)), []);
        assert_eq!(solo.peer.connection(), Some((ACCEPTED, Role::Incoming)));
    }
}
