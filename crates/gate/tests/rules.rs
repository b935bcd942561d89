//! What leaves and what does not, one rule after the other.

use holdfast_gate::{Gating, SlotState};

use crate::tests::scene::Scene;

/// A gated connection that begins right before numbers wrap: nothing is replicated.
fn gated() -> (Scene, holdfast_gate::Claim) {
    let mut scene = Scene::new();
    scene.accept(1, u32::MAX - 3, u32::MAX - 1);
    let claim = scene.claim(0, 1, SlotState::Gated, (0, 0));
    scene.release();
    assert_eq!(scene.marks().gating(claim), Gating::Able);
    assert_eq!(scene.marks().numbers(claim), Some((u32::MAX - 3, u32::MAX - 1)));
    assert_eq!(scene.take(), "+0");
    (scene, claim)
}

/// Our numbers of the connection of [`gated`], by offset.
fn seq(offset: u32) -> u32 {
    (u32::MAX - 2).wrapping_add(offset)
}

fn ack(offset: u32) -> u32 {
    u32::MAX.wrapping_add(offset)
}

#[test]
fn an_ack_leaves_when_what_it_acknowledges_is_replicated() {
    let (mut scene, claim) = gated();
    scene.send(1, "A", seq(0), ack(0), 0);
    assert_eq!(scene.take(), "+1");
    scene.now = 70;
    scene.send(1, "A", seq(0), ack(10), 0);
    assert_eq!((scene.take().as_str(), scene.marks().wanted(claim)), ("", Some((10, 0))));
    assert_eq!(scene.marks().waits_since(claim), Some(70));
    scene.marks().set_watermarks(claim, 9, 0);
    scene.release();
    assert_eq!(scene.take(), "");
    scene.marks().set_watermarks(claim, 10, 0);
    scene.release();
    assert_eq!((scene.take().as_str(), scene.marks().wanted(claim)), ("+2", Some((0, 0))));
    assert_eq!((scene.marks().passed(claim), scene.marks().waits_since(claim)), (Some((10, 0)), None));
}

#[test]
fn data_leaves_when_it_is_replicated_to_its_end_and_in_order() {
    let (mut scene, claim) = gated();
    scene.send(1, "A", seq(0), ack(0), 10);
    scene.send(1, "A", seq(10), ack(5), 10);
    scene.send(1, "A", seq(20), ack(0), 0);
    assert_eq!((scene.take().as_str(), scene.marks().wanted(claim)), ("", Some((5, 20))));
    scene.marks().set_watermarks(claim, 0, 20);
    scene.release();
    assert_eq!(
        scene.take(),
        "+1",
        "the second acknowledges what is not replicated, and the third waits for it"
    );
    scene.marks().set_watermarks(claim, 5, 20);
    scene.release();
    assert_eq!(scene.take(), "+2 +3");
}

#[test]
fn an_ack_without_data_may_come_from_beyond_what_is_replicated() {
    let (mut scene, _) = gated();
    // Data was lost on its way into the queue.
    scene.send(1, "A", seq(500), ack(0), 0);
    assert_eq!(scene.take(), "+1");
}

#[test]
fn a_fin_waits_for_the_end_of_the_session_and_a_reset_never_leaves() {
    let (mut scene, claim) = gated();
    scene.send(1, "FA", seq(0), ack(0), 0);
    scene.send(1, "FA", seq(0), ack(0), 0);
    scene.send(1, "A", seq(1), ack(0), 0);
    scene.send(1, "RA", seq(1), ack(0), 0);
    assert_eq!(scene.take(), "-2 -4", "the FIN is held once");
    scene.marks().set_watermarks(claim, 1000, 1000);
    scene.release();
    assert_eq!(scene.take(), "");
    scene.marks().set_state(claim, SlotState::Open);
    scene.release();
    assert_eq!(scene.take(), "+1 +3");
    scene.send(1, "RA", seq(1), ack(0), 0);
    scene.send(1, "A", seq(1), ack(0), 0);
    assert_eq!(scene.take(), "+5 +6", "of an open one everything leaves");
}

/// The kernel answers a wrong segment of a handshake with a reset, and the connection comes up all the same.
#[test]
fn a_reset_does_not_end_what_goes_on() {
    for we_dial in [false, true] {
        let mut scene = Scene::new();
        match we_dial {
            true => drop(scene.send(1, "S", 100, 0, 0)),
            false => scene.accept(1, 100, 200),
        }
        // Numbers that somebody else has chosen.
        scene.send(1, "R", 77_777, 0, 0);
        scene.send(1, "RA", 88_888, 99_999, 0);
        scene.send(1, "A", 101, 201, 0);
        let claim = scene.claim(0, 1, SlotState::Gated, (0, 0));
        scene.release();
        scene.send(1, "A", 101, 201, 30);
        assert_eq!((scene.take().as_str(), scene.marks().wanted(claim)), ("+0 +1 +2 +3", Some((0, 30))));
        assert_eq!(scene.marks().numbers(claim), Some((100, 200)));
    }
}

#[test]
fn a_slot_that_is_freed_lets_everything_leave() {
    let (mut scene, claim) = gated();
    scene.send(1, "FA", seq(0), ack(70), 5);
    scene.marks().free(claim);
    scene.release();
    assert_eq!(scene.take(), "+1");
}

#[test]
fn of_a_closed_connection_nothing_leaves() {
    let (mut scene, claim) = gated();
    scene.send(1, "A", seq(0), ack(9), 0);
    scene.marks().set_state(claim, SlotState::Closed);
    scene.release();
    for flags in ["A", "FA", "R", "SA"] {
        scene.send(1, flags, if flags == "SA" { seq(0).wrapping_sub(1) } else { seq(0) }, ack(0), 0);
    }
    assert_eq!(scene.take(), "-1 -2 -3 -4 -5");
}

#[test]
fn without_a_lease_what_is_gated_is_dropped_and_nothing_begins() {
    let (mut scene, claim) = gated();
    scene.accept(2, 1000, 2000);
    scene.send(1, "A", seq(0), ack(9), 0);
    scene.lease = false;
    scene.marks().set_watermarks(claim, 100, 100);
    scene.release();
    assert_eq!(scene.take(), "+1 -2");
    scene.send(1, "A", seq(0), ack(0), 0);
    scene.send(2, "A", 1001, 2001, 100);
    assert_eq!(scene.take(), "-3 +4");
    scene.send(3, "S", 1, 0, 0);
    scene.accept(4, 1, 2);
    scene.accept(2, 1000, 2000);
    scene.accept(2, 7000, 8000);
    scene.send(2, "A", 1101, 2001, 100);
    assert_eq!((scene.take().as_str(), scene.flows.len()), ("-5 -6 +7 -8 +9", 2), "SYNs are sent again");
    scene.lease = true;
    scene.send(1, "A", seq(0), ack(9), 0);
    scene.send(3, "S", 1, 0, 0);
    assert_eq!((scene.take().as_str(), scene.flows.len()), ("+10 +11", 3));
}

#[test]
fn unknown_connections_are_dropped_and_block_nobody() {
    let (mut scene, claim) = gated();
    scene.send(1, "A", seq(0), ack(9), 0);
    scene.send(9, "R", 5, 0, 0);
    scene.send(9, "A", 5, 5, 10);
    assert_eq!(scene.take(), "-2 -3");
    scene.marks().set_watermarks(claim, 9, 0);
    scene.release();
    assert_eq!(scene.take(), "+1");
}

#[test]
fn a_peer_hears_that_its_connection_is_no_more_where_all_sessions_are_here() {
    let (mut scene, _) = gated();
    for (is_whole, lease, verdicts) in
        [(true, true, "+ - - -"), (true, false, "- - - -"), (false, true, "- - - -")]
    {
        scene.marks().set_whole(is_whole);
        scene.lease = lease;
        // Of a connection that is not known, and of one that is.
        for (number, flags) in [(9, "R"), (9, "F"), (9, "A"), (1, "R")] {
            scene.send(number, flags, 5, 0, 0);
        }
        let signs = scene.take().replace(|sign: char| sign.is_ascii_digit(), "");
        assert_eq!(signs, verdicts, "{is_whole} {lease}");
    }
}

#[test]
fn nothing_leaves_a_router_whose_sessions_another_one_has() {
    let (mut scene, _) = gated();
    scene.send(2, "S", 1, 0, 0);
    scene.accept(3, 100, 200);
    scene.take();
    let verdicts = |scene: &mut Scene| {
        // A session, a connection that begins, one without a slot, and what nobody knows.
        for (number, flags) in [(1, "A"), (1, "R"), (2, "S"), (3, "A"), (3, "F"), (4, "S"), (9, "R")] {
            scene.send(number, flags, 101, 201, 0);
        }
        scene.take().replace(|sign: char| sign.is_ascii_digit(), "")
    };
    scene.lease = false;
    scene.marks().set_fenced(true);
    assert_eq!(verdicts(&mut scene), "- - - - - - -");
    scene.marks().set_fenced(false);
    assert_eq!(verdicts(&mut scene).split(' ').nth(3), Some("+"));
}

#[test]
fn a_connection_that_is_older_than_the_gate_passes() {
    let mut scene = Scene::new();
    scene.flows.add_older(crate::tests::scene::connection(1));
    let claim = scene.claim(0, 1, SlotState::Gated, (0, 0));
    scene.send(1, "A", 5, 5, 10);
    assert_eq!((scene.take().as_str(), scene.marks().gating(claim)), ("+0", Gating::Older));
    scene.accept(1, 100, 100);
    let second = scene.marks().gating(claim);
    scene.send(1, "A", 101, 200, 10);
    assert_eq!(
        (scene.take().as_str(), second),
        ("+1 +2", Gating::Unseen),
        "it has begun anew, without a slot"
    );
}

#[test]
fn who_dials_learns_the_peers_number_from_the_first_ack() {
    let mut scene = Scene::new();
    scene.send(1, "S", 99, 0, 0);
    scene.send(1, "S", 99, 0, 0);
    scene.send(1, "A", 100, 501, 0);
    let claim = scene.claim(3, 1, SlotState::Gated, (0, 0));
    scene.send(1, "A", 100, 501, 0);
    scene.send(1, "A", 100, 502, 0);
    assert_eq!(scene.take(), "+0 +1 +2 +3");
    assert_eq!(scene.marks().wanted(claim), Some((1, 0)));
}

#[test]
fn a_connection_that_begins_anew_is_not_that_of_the_slot() {
    let (mut scene, claim) = gated();
    scene.marks().set_watermarks(claim, 1000, 1000);
    scene.send(1, "A", seq(0), ack(2000), 0);
    scene.accept(1, 7, 70);
    assert_eq!(scene.take(), "-1 +2");
    assert_eq!(scene.marks().gating(claim), Gating::Unseen);
    scene.marks().set_state(claim, SlotState::Closed);
    scene.send(1, "A", 8, 5000, 10);
    assert_eq!(scene.take(), "+3", "the slot speaks of the one before");
    scene.marks().free(claim);
    let claim = scene.claim(0, 1, SlotState::Gated, (0, 0));
    scene.send(1, "A", 8, 80, 0);
    assert_eq!((scene.take().as_str(), scene.marks().gating(claim)), ("", Gating::Able));
}

#[test]
fn of_acks_that_may_leave_the_last_does() {
    let (mut scene, claim) = gated();
    for offset in 1..=10 {
        scene.send(1, "A", seq(0), ack(offset), 0);
    }
    scene.marks().set_watermarks(claim, 7, 0);
    scene.release();
    assert_eq!(scene.take(), "-1 -2 -3 -4 -5 -6 +7");
    scene.marks().set_watermarks(claim, 10, 0);
    scene.release();
    assert_eq!(scene.take(), "-8 -9 +10");
}

#[test]
fn duplicates_leave_as_they_are_up_to_a_few() {
    let (mut scene, claim) = gated();
    for _ in 0..10 {
        scene.send(1, "A", seq(0), ack(5), 0);
    }
    scene.marks().set_watermarks(claim, 5, 0);
    scene.release();
    assert_eq!(scene.take(), "-4 -5 -6 -7 -8 -9 +1 +2 +3 +10");
}

#[test]
fn a_retransmission_of_what_is_held_does_not_double_it() {
    let (mut scene, claim) = gated();
    scene.send(1, "A", seq(0), ack(0), 100);
    scene.send(1, "A", seq(100), ack(0), 100);
    scene.send(1, "A", seq(0), ack(0), 100);
    scene.send(1, "A", seq(50), ack(0), 150);
    assert_eq!(scene.take(), "-3 -4");
    // It acknowledges more: the peer has to hear of it.
    scene.send(1, "A", seq(0), ack(40), 100);
    scene.send(1, "A", seq(0), ack(40), 100);
    assert_eq!(scene.take(), "-6");
    scene.marks().set_watermarks(claim, 0, 100);
    scene.release();
    assert_eq!(scene.take(), "+1");
    scene.marks().set_watermarks(claim, 40, 200);
    scene.release();
    assert_eq!(scene.take(), "+2 +5");
    scene.send(1, "A", seq(0), ack(40), 100);
    assert_eq!(scene.take(), "+7", "it is not held any more");
}

#[test]
fn a_slot_that_is_claimed_late_counts_from_the_beginning() {
    let mut scene = Scene::new();
    scene.accept(1, 0, 0);
    let total = 5_u64 << 30;
    for step in 0..=10 {
        let offset = (total / 10 * step) as u32;
        scene.send(1, "A", offset.wrapping_add(1), offset.wrapping_add(1), 0);
    }
    let claim = scene.claim(0, 1, SlotState::Gated, (total - 10, total - 10));
    scene.release();
    assert_eq!(scene.marks().passed(claim), Some((total, total)), "more than is replicated");
    scene.take();
    let next = (total as u32).wrapping_add(1);
    scene.send(1, "A", next, next, 0);
    assert_eq!((scene.take().as_str(), scene.marks().wanted(claim)), ("", Some((total, total))));
}
