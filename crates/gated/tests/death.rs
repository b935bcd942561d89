//! The gate dies.

use std::{cell::RefCell, net::Shutdown, rc::Rc, thread};

use holdfast_gate::{SlotState, kept::KEPT};
use holdfast_gated::{Attachment, Missing, Post, Settings, Sockets, Station, try_out};
use holdfast_sys::memory::SharedMemory;
use holdfast_types::HashKey;

use crate::tests::world::{
    LIMIT, MOMENT, PORT, QUEUE, World, connection, has_ended, read, unacknowledged, unread, until, write,
};

/// A post in the namespace of the calling thread.
fn post(kept: SharedMemory, port: u16) -> Result<Post, Missing> {
    let settings = Settings { queue: QUEUE, ports: vec![port], vrf: 0 };
    Post::open(settings, Sockets::open().expect("netlink"), kept, HashKey::new([1, 2]))
}

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
    assert!(has_ended(&their_open, LIMIT));
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
        let memory = SharedMemory::create("flows", KEPT).expect("memory");
        post(memory, 1).map(drop).expect_err("it is taken").to_string()
    });
    assert!(refused.contains("another program reads it"), "{refused}");
}

/// A router has died with its gate, and the next one begins while the queue is still somebody's. Of the sockets that the dead one
/// has left nothing is heard, not even that they go.
#[test]
fn what_a_dead_router_has_left_goes_without_a_word() {
    let mut world = World::new(4);
    let gate = world.gate();
    let listener = world.listen("10.0.0.1");
    let (ours, theirs) = world.session(&listener);
    world.claim(0, &ours, (0, 0));
    write(&ours, 100);
    let memory = SharedMemory::create("flows", KEPT).expect("memory");
    let again = memory.descriptor().try_clone_to_owned().expect("a copy");
    // It lives: its sockets are not touched.
    world.router.inside(move || post(memory, PORT).map(drop).expect_err("the queue is taken"));
    ours.peer_addr().expect("it is connected");
    gate.end(false);
    drop((ours, listener));
    let _post = world.router.inside(move || {
        let memory = SharedMemory::from_descriptor(again).expect("memory");
        let post = post(memory, PORT).expect("the queue is free");
        assert_eq!(post.flows().len(), 0, "none of them is known");
        let list = std::process::Command::new("ss").args(["-tanH", "state", "connected"]).output();
        let list = String::from_utf8(list.expect("ss").stdout).expect("text");
        assert!(!list.contains(&format!(":{PORT} ")), "{list}");
        post
    });
    thread::sleep(MOMENT);
    assert!(!has_ended(&theirs, MOMENT), "the peer has heard nothing");
    assert_eq!(unread(&theirs), 0);
}

#[test]
fn a_gate_that_is_closed_while_it_is_tried_out_lacks_nothing() {
    let world = World::new(4);
    let [marks, replicator, gate] = world.attached();
    world.router.inside(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let memory = SharedMemory::create("flows", KEPT).expect("memory");
        let mut closed = post(memory, PORT).expect("the queue is free");
        closed.set_closed(true).expect("the kernel takes it");
        let (station, closed) = (Station::default(), RefCell::new(closed));
        station.attach(Rc::new(Attachment::new(marks, replicator, gate).expect("marks")));
        assert!(runtime.block_on(try_out(&station, &closed)).is_ok());
    });
}

#[test]
fn a_gate_that_dies_while_nothing_comes_in_is_followed_by_one_that_lets_nothing_in() {
    let world = World::new(4);
    let memory = SharedMemory::create("flows", KEPT).expect("memory");
    let copy = || memory.descriptor().try_clone_to_owned().expect("a copy");
    let shows_input = || {
        let list = std::process::Command::new("nft").args(["list", "ruleset"]).output();
        String::from_utf8(list.expect("nft").stdout).expect("text").contains("hook input")
    };
    for (close, is_closed) in
        [(None, false), (Some(true), true), (None, true), (Some(false), false), (None, false)]
    {
        let kept = copy();
        let seen = world.router.inside(move || {
            let memory = SharedMemory::from_descriptor(kept).expect("memory");
            let mut post = post(memory, PORT).expect("the queue is free");
            close.iter().for_each(|close| post.set_closed(*close).expect("the kernel takes it"));
            shows_input()
        });
        assert_eq!(seen, is_closed, "{close:?}");
    }
}
