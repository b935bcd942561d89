//! The gate dies, and the next one knows what the one before did.

use holdfast_gate::{Flows, Gating, SlotState, kept};

use crate::tests::scene::{ROOM, Scene, connection, key};

fn keep(scene: &mut Scene, memory: &mut [u8]) {
    scene.flows.take_changed(|number, record| kept::write(memory, number, record.as_ref()));
}

/// The next process: what was held is lost with the queue.
fn restart(scene: &mut Scene, memory: &[u8]) {
    scene.flows = Flows::new(0, ROOM, key());
    scene.flows.restore(kept::read(memory));
    scene.flows.add_older(connection(1));
}

fn memory() -> Vec<u8> {
    let mut memory = vec![0; kept::KEPT];
    kept::begin(&mut memory);
    memory
}

#[test]
fn a_gated_connection_stays_one_also_far_into_its_stream() {
    let (mut scene, mut memory) = (Scene::new(), memory());
    scene.accept(1, u32::MAX, 5);
    let far = 7_u64 << 30;
    let claim = scene.claim(0, 1, SlotState::Gated, (far, far));
    scene.release();
    keep(&mut scene, &mut memory);
    restart(&mut scene, &memory);
    scene.take();
    scene.send(1, "A", far as u32, 6_u32.wrapping_add(far as u32), 0);
    scene.send(1, "A", far as u32, 7_u32.wrapping_add(far as u32), 0);
    assert_eq!(scene.take(), "+1");
    assert_eq!(
        (scene.marks().wanted(claim), scene.marks().gating(claim)),
        (Some((far + 1, far)), Gating::Able)
    );
}

#[test]
fn a_use_that_ended_meanwhile_gates_nothing_and_one_of_other_marks_closes() {
    for other_marks in [false, true] {
        let (mut scene, mut memory) = (Scene::new(), memory());
        scene.accept(1, 0, 0);
        let claim = scene.claim(0, 1, SlotState::Gated, (0, 0));
        scene.release();
        keep(&mut scene, &mut memory);
        restart(&mut scene, &memory);
        scene.take();
        if other_marks {
            scene.other_marks();
            scene.flows.look_at_slots(None, true, &mut Vec::new());
        } else {
            scene.marks().free(claim);
        }
        scene.send(1, "A", 1, 50, 10);
        assert_eq!(scene.take(), if other_marks { "-1" } else { "+1" });
        let claim = scene.claim(0, 1, SlotState::Gated, (49, 0));
        scene.send(1, "A", 1, 50, 0);
        assert_eq!((scene.take().as_str(), scene.marks().gating(claim)), ("+2", Gating::Able));
    }
}

#[test]
fn without_marks_what_was_gated_is_closed() {
    let (mut scene, mut memory) = (Scene::new(), memory());
    scene.accept(1, 0, 0);
    scene.accept(2, 0, 0);
    scene.claim(0, 1, SlotState::Gated, (0, 0));
    scene.release();
    keep(&mut scene, &mut memory);
    restart(&mut scene, &memory);
    let mut verdicts = Vec::new();
    for (packet, number) in [(10, 1), (11, 2)] {
        let segment = holdfast_gate::Segment::made(connection(number), "A", 1, 1, 5, 0);
        scene.flows.segment(packet, &segment, None, true, 0, &mut verdicts);
    }
    use holdfast_gate::nfnetlink::Verdict;
    assert_eq!(verdicts, [(10, Verdict::Drop), (11, Verdict::Accept)]);
}

#[test]
fn a_spent_use_stays_spent() {
    let (mut scene, mut memory) = (Scene::new(), memory());
    scene.accept(1, 0, 0);
    let claim = scene.claim(0, 1, SlotState::Gated, (100, 100));
    scene.release();
    scene.accept(1, 7, 7);
    keep(&mut scene, &mut memory);
    restart(&mut scene, &memory);
    scene.take();
    scene.send(1, "A", 8, 9, 0);
    assert_eq!((scene.take().as_str(), scene.marks().gating(claim)), ("+2", Gating::Unseen));
}

#[test]
fn that_a_connection_was_reset_is_known_to_the_next_process() {
    let (mut scene, mut memory) = (Scene::new(), memory());
    scene.accept(1, 0, 0);
    keep(&mut scene, &mut memory);
    assert_eq!(kept::read(&memory).count(), 1);
    scene.send(1, "RA", 1, 1, 0);
    keep(&mut scene, &mut memory);
    let records: Vec<_> = kept::read(&memory).collect();
    assert!(records.len() == 1 && records[0].1.finished, "it makes room first: {records:?}");
}

/// What another router has begun is gated from its first segment on, before and behind a wrap of its numbers.
#[test]
fn a_connection_of_another_router_is_gated_at_once() {
    for (marks, is_known) in [((0, 0), false), ((20, 10), false), ((5 << 32, 7 << 32), true)] {
        let (mut scene, mut memory) = (Scene::new(), memory());
        let before = is_known.then(|| {
            // Of the same addresses, and something of it waits.
            scene.accept(1, 1, 2);
            let before = scene.claim(1, 1, SlotState::Gated, (0, 0));
            scene.send(1, "A", 2, 50, 10);
            before
        });
        let numbers = (u32::MAX - 5, u32::MAX - 7);
        let claim = scene.marks().claim_restored(0, &connection(1), SlotState::Gated, marks, numbers);
        let claim = claim.expect("a free slot");
        assert!(before.is_none_or(|before| scene.marks().free(before)));
        scene.release();
        assert_eq!(scene.take(), if is_known { "+0 -1" } else { "" });
        assert_eq!(scene.marks().gating(claim), Gating::Able);
        let [ack, seq] = [(numbers.1, marks.0), (numbers.0, marks.1)]
            .map(|(number, mark): (u32, u64)| number.wrapping_add(1).wrapping_add(mark as u32));
        let first = scene.send(1, "A", seq, ack, 0);
        assert_eq!(scene.take(), format!("+{first}"), "what is replicated is acknowledged again");
        let [data, more] = [
            scene.send(1, "A", seq, ack, 10),
            scene.send(1, "A", seq.wrapping_add(10), ack.wrapping_add(7), 0),
        ];
        assert_eq!(scene.marks().wanted(claim), Some((marks.0 + 7, marks.1 + 10)));
        scene.marks().set_watermarks(claim, marks.0, marks.1 + 10);
        keep(&mut scene, &mut memory);
        scene.release();
        assert_eq!(scene.take(), format!("+{data}"));
        scene.marks().set_watermarks(claim, marks.0 + 7, marks.1 + 10);
        scene.release();
        assert_eq!(scene.take(), format!("+{more}"));
        // The next process knows it as well.
        restart(&mut scene, &memory);
        scene.send(1, "A", seq.wrapping_add(10), ack.wrapping_add(8), 0);
        assert_eq!(
            (scene.take().as_str(), scene.marks().wanted(claim)),
            ("", Some((marks.0 + 8, marks.1 + 10)))
        );
    }
}
