//! What happens at each bound.

use holdfast_gate::{MOST_ACKS, MOST_FLOWS, MOST_HELD_OF_FLOW, SlotState};

use crate::tests::scene::Scene;

#[test]
fn a_run_of_acks_is_thinned_and_the_oldest_and_the_newest_stay() {
    let mut scene = Scene::new();
    scene.accept(1, 0, 0);
    let claim = scene.claim(0, 1, SlotState::Gated, (0, 0));
    for offset in 1..=10_000 {
        scene.send(1, "A", 1, 1 + offset, 0);
        assert!(scene.flows.held() <= MOST_ACKS);
        assert_eq!(scene.waiting().len(), scene.flows.held());
    }
    scene.take();
    let waiting = scene.waiting();
    assert_eq!((waiting[0], *waiting.last().unwrap()), (1, 10_000));
    scene.marks().set_watermarks(claim, 10_000, 0);
    scene.release();
    assert!(scene.take().ends_with("+10000"));
}

#[test]
fn so_many_segments_are_held_of_a_connection_and_not_more() {
    let mut scene = Scene::new();
    scene.accept(1, 0, 0);
    let claim = scene.claim(0, 1, SlotState::Gated, (0, 0));
    for number in 0..MOST_HELD_OF_FLOW as u32 + 5 {
        scene.send(1, "A", 1 + number * 10, 1, 10);
    }
    assert_eq!((scene.flows.held(), scene.flows.counts().bound), (MOST_HELD_OF_FLOW, 5));
    scene.marks().set_watermarks(claim, 0, 1 << 20);
    scene.release();
    assert_eq!(scene.flows.held(), 0);
}

#[test]
fn half_connections_make_room_before_whole_ones_and_gated_ones_never_do() {
    let mut scene = Scene::new();
    for number in 0..3 {
        scene.accept(number, 0, 0);
        scene.send(number, "A", 1, 1, 10);
    }
    scene.claim(0, 0, SlotState::Gated, (0, 10));
    for number in 3..18_000 {
        scene.accept(number, 0, 0);
        assert!(scene.flows.len() <= MOST_FLOWS);
    }
    scene.take();
    for number in 0..3 {
        scene.send(number, "A", 11, 1, 0);
    }
    assert!(!scene.take().contains('-'), "they are known");
    for number in 0..18_000 {
        scene.accept(number, 1, 1);
        scene.send(number, "A", 2, 2, 10);
    }
    assert!(scene.flows.len() <= MOST_FLOWS);
    scene.take();
    scene.send(17_999, "A", 12, 2, 0);
    assert!(scene.take().starts_with('+'), "the youngest is known");
}

#[test]
fn a_connection_that_has_ended_makes_room_first() {
    let mut scene = Scene::new();
    scene.accept(0, 0, 0);
    scene.send(0, "A", 1, 1, 10);
    scene.send(0, "FA", 11, 1, 0);
    for number in 1..MOST_FLOWS as u16 {
        scene.accept(number, 0, 0);
        scene.send(number, "A", 1, 1, 10);
    }
    scene.take();
    scene.accept(60_000, 0, 0);
    scene.send(0, "A", 12, 1, 0);
    scene.send(1, "A", 11, 1, 0);
    let told = scene.take();
    let verdicts: Vec<_> = told.split(' ').map(|verdict| &verdict[..1]).collect();
    assert_eq!(verdicts, ["+", "-", "+"]);
}
