//! The state machine of RFC 5880 section 6.2.

use holdfast_bfd::{Diagnostic, Profile, State};

use crate::tests::pair::{Pair, ms, profile};

fn fast() -> Profile {
    profile(50, 50, 3)
}

#[test]
fn two_neighbours_come_up_at_once_and_each_change_is_told() {
    let mut pair = Pair::new([fast(), fast()]);
    pair.settle();
    assert_eq!(pair.states(), [State::Up; 2], "no interval has to pass");
    for end in 0..2 {
        let last = pair.changes[end].last().expect("changes");
        assert_eq!((last.1, last.2.has_failed), (State::Up, false));
    }
}

#[test]
fn a_neighbour_that_is_not_heard_is_down_after_the_detection_time() {
    let mut pair = Pair::up([fast(), fast()]);
    pair.arrives[0] = false;
    let begin = pair.now;
    pair.run(ms(200));
    let (at, state, change) = pair.changes[0].last().copied().expect("a change");
    let after = at - begin;
    assert!(state == State::Down && change.has_failed && after <= ms(150) && after > ms(100), "{after:?}");
    assert_eq!(pair.session(0).diagnostic(), Diagnostic::DETECTION_TIME_EXPIRED);
    // It says so, and the other end goes down, too.
    assert_eq!(pair.session(1).diagnostic(), Diagnostic::NEIGHBOR_SIGNALED_DOWN);
    assert!(pair.changes[1].iter().any(|(at, .., change)| change.has_failed && *at >= begin));
    pair.arrives[0] = true;
    pair.run(ms(1100));
    assert_eq!(pair.states(), [State::Up; 2]);
}

#[test]
fn an_end_that_is_closed_says_so_and_the_other_one_does_not_take_it_for_a_failure() {
    let mut pair = Pair::up([fast(), fast()]);
    let begin = pair.now;
    pair.engines[0].close(pair.now, pair.ids[0]);
    pair.run(ms(4000));
    let heard = pair.changes[1].iter().find(|(at, ..)| *at >= begin).copied().expect("a change");
    assert_eq!((heard.1, heard.2.has_failed), (State::Down, false));
    assert_eq!(pair.session(1).remote_state(), State::AdminDown);
    assert!(pair.engines[0].is_empty() && pair.changes[0].last().expect("a change").2.has_ended);
    let told = pair.sent[0].iter().filter(|(at, octets)| *at >= begin && octets.as_slice()[1] >> 6 == 0);
    assert!(told.count() >= 1);
}

#[test]
fn a_session_that_is_opened_again_while_it_ends_goes_on() {
    let mut pair = Pair::up([fast(), fast()]);
    pair.engines[0].close(pair.now, pair.ids[0]);
    pair.run(ms(20));
    let path = crate::tests::pair::path(0);
    let again = pair.engines[0].open(pair.now, path, fast().into()).expect("room");
    assert_eq!(again, pair.ids[0]);
    pair.run(ms(2000));
    assert_eq!(pair.states(), [State::Up; 2]);
}

#[test]
fn two_passive_ends_say_nothing_and_one_waits_for_the_other() {
    let passive = || Profile { passive: true, ..fast() };
    let mut pair = Pair::new([passive(), passive()]);
    pair.run(ms(5000));
    assert!(pair.sent.iter().all(Vec::is_empty), "{:?}", pair.sent);
    let pair = Pair::up([passive(), fast()]);
    assert!(pair.sent[0][0].0 >= pair.sent[1][0].0);
}

#[test]
fn a_path_that_is_known_to_be_down_is_told_at_once() {
    let mut pair = Pair::up([fast(), fast()]);
    pair.engines[0].path_down(pair.now, pair.ids[0]);
    assert_eq!((pair.states()[0], pair.session(0).diagnostic()), (State::Down, Diagnostic::PATH_DOWN));
    pair.settle();
    assert!(pair.changes[0].iter().any(|(.., change)| change.has_failed));
}

#[test]
fn there_are_no_more_sessions_than_allowed() {
    let mut pair = Pair::new([fast(), fast()]);
    pair.engines[0].set_most(1);
    let other = holdfast_bfd::Path { interface: Some(8), ..crate::tests::pair::path(0) };
    let refused = pair.engines[0].open(pair.now, other, fast().into());
    assert_eq!(refused, Err(holdfast_bfd::TooMany(1)));
    pair.engines[0].set_most(2);
    assert!(pair.engines[0].open(pair.now, other, fast().into()).is_ok());
}

#[test]
fn a_session_that_begins_anew_is_no_failure_at_either_end() {
    let mut pair = Pair::up([fast(), fast()]);
    let begin = pair.now;
    pair.engines[0].restart(pair.now, pair.ids[0]);
    pair.run(ms(2000));
    assert_eq!(pair.states(), [State::Up; 2]);
    let told = pair.sent[0].iter().filter(|(at, octets)| *at >= begin && octets.as_slice()[1] >> 6 == 0);
    assert_eq!(told.count(), 1, "AdminDown once");
    let since = pair.changes.iter().flatten().filter(|(at, ..)| *at >= begin);
    assert!(since.clone().count() > 2 && since.clone().all(|(.., change)| !change.has_failed));
}
