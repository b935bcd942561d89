//! The gate dies.

use std::{net::Shutdown, thread};

use holdfast_gate::SlotState;

use crate::tests::world::{MOMENT, World, connection, has_ended, read, unacknowledged, unread, until, write};

#[test]
fn while_no_gate_is_there_nothing_leaves_and_the_next_one_goes_on() {
    let mut world = World::new(4);
    let gate = world.gate();
    let listener = world.listen("10.0.0.1");
    let (ours, theirs) = world.session(&listener);
    let claim = world.claim(0, &ours, (0, 0));
    let (open, their_open) = world.session(&listener);
    write(&theirs, 100);
    world.wait("it is held", |marks| marks.wanted(claim) == Some((100, 0)));
    gate.end(false);
    world.change(|marks| marks.set_watermarks(claim, 1000, 1000));
    write(&ours, 200);
    write(&open, 200);
    open.shutdown(Shutdown::Write).expect("a session");
    thread::sleep(MOMENT);
    assert_eq!((unread(&theirs), unacknowledged(&theirs), unread(&their_open)), (0, 100, 0));
    let _gate = world.gate();
    until("all is sent again", || unread(&theirs) == 200 && unacknowledged(&theirs) == 0);
    until("that of the open one, too", || unread(&their_open) == 200);
    read(&their_open, 200);
    assert!(has_ended(&their_open, 10 * MOMENT));
    // The next gate knows where the session began.
    write(&theirs, 2000);
    world.wait("it is held", |marks| marks.wanted(claim).is_some_and(|wanted| wanted.0 == 2100));
    assert_eq!(unacknowledged(&theirs), 2000);
    world.change(|marks| marks.set_watermarks(claim, 2100, 1000));
    until("it leaves", || unacknowledged(&theirs) == 0);
}

#[test]
fn what_is_older_than_the_first_gate_passes() {
    let mut world = World::new(4);
    let listener = world.listen("10.0.0.1");
    let (ours, theirs) = world.session(&listener);
    let _gate = world.gate();
    let claim =
        world.change(|marks| marks.claim(0, &connection(&ours), SlotState::Gated, (0, 0))).expect("free");
    world.wait("the gate says so", |marks| marks.gating(claim) == holdfast_gate::Gating::Older);
    write(&ours, 1000);
    until("it passes", || unread(&theirs) == 1000);
}

#[test]
fn a_second_reader_of_the_queue_is_told_what_is_wrong() {
    let world = World::new(4);
    let _gate = world.gate();
    let refused = world.router.inside(|| {
        let settings = holdfast_gated::Settings { queue: crate::tests::world::QUEUE, ports: vec![1], vrf: 0 };
        let kept =
            holdfast_sys::memory::SharedMemory::create("flows", holdfast_gate::kept::KEPT).expect("memory");
        let sockets = holdfast_gated::Sockets::open().expect("netlink");
        let key = holdfast_types::HashKey::new([1, 2]);
        holdfast_gated::Post::open(settings, sockets, kept, key)
            .map(drop)
            .expect_err("it is taken")
            .to_string()
    });
    assert!(refused.contains("another program reads it"), "{refused}");
}
