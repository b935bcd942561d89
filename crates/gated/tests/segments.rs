//! What the peer sees of a gated session.

use std::{net::Shutdown, thread};

use holdfast_gate::SlotState;

use crate::tests::world::{
    LIMIT, MOMENT, PORT, World, has_ended, read, run, unacknowledged, unread, until, write,
};

#[test]
fn an_ack_is_held_until_the_watermark_moves() {
    for address in ["10.0.0.1", "[fd00::1]"] {
        let mut world = World::new(4);
        let gate = world.gate();
        let listener = world.listen(address);
        let (ours, theirs) = world.session(&listener);
        let claim = world.claim(0, &ours, (0, 0));
        write(&theirs, 1000);
        until("it has come", || unread(&ours) == 1000);
        read(&ours, 1000);
        world.wait("the gate says what waits", |marks| marks.wanted(claim) == Some((1000, 0)));
        thread::sleep(MOMENT);
        assert_eq!(unacknowledged(&theirs), 1000);
        world.change(|marks| marks.set_watermarks(claim, 999, 0));
        thread::sleep(MOMENT);
        assert_eq!(unacknowledged(&theirs), 1000);
        world.change(|marks| marks.set_watermarks(claim, 1000, 0));
        until("it leaves", || unacknowledged(&theirs) == 0);
        // What else has waited goes behind that.
        world.wait("nothing is held", |marks| marks.held() == 0);
        let report = gate.end(true);
        assert!(report.counts.held >= 1 && report.tally.unreadable == 0, "{report:?}");
    }
}

#[test]
fn data_is_held_until_the_watermark_moves_and_a_fin_until_the_session_is_open() {
    let mut world = World::new(4);
    let _gate = world.gate();
    let listener = world.listen("10.0.0.1");
    let (ours, theirs) = world.session(&listener);
    let claim = world.claim(2, &ours, (0, 0));
    write(&ours, 5000);
    world.wait("the gate says what waits", |marks| marks.wanted(claim) == Some((0, 5000)));
    thread::sleep(MOMENT);
    assert_eq!(unread(&theirs), 0);
    world.change(|marks| marks.set_watermarks(claim, 0, 5000));
    until("it leaves", || unread(&theirs) == 5000);
    read(&theirs, 5000);
    ours.shutdown(Shutdown::Write).expect("a session");
    world.change(|marks| marks.set_watermarks(claim, 1 << 20, 1 << 20));
    assert!(!has_ended(&theirs, 2 * MOMENT));
    world.change(|marks| marks.set_state(claim, SlotState::Open));
    assert!(has_ended(&theirs, LIMIT));
}

#[test]
fn a_reset_does_not_leave_and_nothing_of_a_stranger_blocks_others() {
    let mut world = World::new(4);
    let _gate = world.gate();
    let listener = world.listen("10.0.0.1");
    let (ours, theirs) = world.session(&listener);
    let claim = world.claim(0, &ours, (0, 0));
    let (other, their_other) = world.session(&listener);
    let other_claim = world.claim(1, &other, (0, 0));
    write(&theirs, 100);
    world.wait("it is held", |marks| marks.wanted(claim) == Some((100, 0)));
    // Octets that nobody has read make a reset of the end.
    write(&their_other, 100);
    until("it has come", || unread(&other) == 100);
    drop(other);
    assert!(!has_ended(&their_other, MOMENT));
    // Nobody listens there any more: the answer would be a reset of a connection that nobody knows.
    drop(listener);
    let address = format!("10.0.0.1:{PORT}").parse().expect("an address");
    let refused = world.peers.inside(move || std::net::TcpStream::connect_timeout(&address, MOMENT));
    assert_eq!(refused.expect_err("nobody answers").kind(), std::io::ErrorKind::TimedOut);
    world.change(|marks| marks.set_watermarks(claim, 100, 0));
    until("it leaves", || unacknowledged(&theirs) == 0);
    world.change(|marks| marks.free(other_claim));
}

#[test]
fn without_a_lease_nothing_leaves_and_with_one_again_the_session_goes_on() {
    let mut world = World::new(4);
    let _gate = world.gate();
    let listener = world.listen("10.0.0.1");
    let (ours, theirs) = world.session(&listener);
    let (open, their_open) = world.session(&listener);
    let claim = world.claim(0, &ours, (0, 0));
    world.change(|marks| marks.set_watermarks(claim, 1 << 20, 1 << 20));
    world.end_lease();
    write(&theirs, 1000);
    write(&ours, 1000);
    write(&open, 1000);
    until("what is open passes", || unread(&their_open) == 1000);
    thread::sleep(MOMENT);
    assert_eq!((unacknowledged(&theirs), unread(&theirs)), (1000, 0));
    world.renew_lease();
    until("retransmissions go on", || unread(&theirs) == 1000 && unacknowledged(&theirs) == 0);
}

#[test]
fn tables_that_are_flushed_are_in_place_again() {
    let mut world = World::new(4);
    let gate = world.gate();
    let listener = world.listen("10.0.0.1");
    let (ours, theirs) = world.session(&listener);
    let claim = world.claim(0, &ours, (0, 0));
    let has_table = |world: &World| {
        let arguments = ["netns", "exec", &world.router.0, "nft", "list", "table", "ip6", "holdfast-gate"];
        std::process::Command::new("ip").args(arguments).output().expect("it runs").status.success()
    };
    let chain = |world: &World| {
        let list = ["-s", "list", "chain", "ip", "holdfast-gate", "output"];
        let inside = ["netns", "exec", &world.router.0, "nft"];
        let listed = std::process::Command::new("ip").args(inside).args(list).output().expect("it runs");
        String::from_utf8(listed.stdout).expect("text")
    };
    assert!(has_table(&world));
    let before = chain(&world);
    for what in [
        &["flush", "ruleset"][..],
        &["delete", "table", "ip", "holdfast-gate"],
        &["flush", "chain", "ip", "holdfast-gate", "output"],
    ] {
        world.router.exec(&[&["nft"], what].concat());
        until("the tables are in place again", || has_table(&world) && chain(&world) == before);
    }
    write(&theirs, 1000);
    world.wait("it is held as before", |marks| marks.wanted(claim) == Some((1000, 0)));
    assert_eq!(unacknowledged(&theirs), 1000);
    world.change(|marks| marks.set_watermarks(claim, 1000, 0));
    until("it leaves", || unacknowledged(&theirs) == 0);
    let report = gate.end(true);
    // What one command removes may be told in parts.
    assert!(report.tally.gaps >= 3, "{report:?}");
    assert!(!has_table(&world), "an orderly end removes it");
    run("ip", &["netns", "exec", &world.router.0, "nft", "list", "ruleset"]);
}

#[test]
fn the_chains_of_others_may_go_and_the_session_goes_on() {
    let mut world = World::new(4);
    let _gate = world.gate();
    let listener = world.listen("10.0.0.1");
    let (ours, theirs) = world.session(&listener);
    let claim = world.claim(0, &ours, (0, 0));
    world
        .router
        .exec(&["nft", "add table ip other; add chain ip other c { type filter hook output priority 0; }"]);
    write(&ours, 3000);
    world.wait("it is held", |marks| marks.wanted(claim) == Some((0, 3000)));
    // The kernel drops what waits in any queue of the namespace.
    world.router.exec(&["nft", "delete table ip other"]);
    world.change(|marks| marks.set_watermarks(claim, 0, 3000));
    until("it is sent again, and leaves", || unread(&theirs) == 3000);
}

#[test]
fn what_the_queue_lets_go_late_is_dropped_behind_it() {
    let mut world = World::new(4);
    let gate = world.gate();
    let listener = world.listen("10.0.0.1");
    let (ours, theirs) = world.session(&listener);
    let claim = world.claim(0, &ours, (0, 0));
    world.change(|marks| marks.set_watermarks(claim, 1 << 20, 1 << 20));
    write(&ours, 1000);
    until("it passes", || unread(&theirs) == 1000);
    let passes = |world: &World| {
        let arguments =
            ["netns", "exec", &world.router.0, "nft", "list", "set", "ip", "holdfast-gate", "pass"];
        let output = std::process::Command::new("ip").args(arguments).output().expect("it runs");
        String::from_utf8(output.stdout).expect("text").contains("expires")
    };
    assert!(passes(&world), "as long as the lease holds");
    // As if its time were over, and the verdict came after that.
    for family in ["ip", "ip6"] {
        world.router.exec(&["nft", "flush", "set", family, "holdfast-gate", "pass"]);
    }
    write(&ours, 1000);
    thread::sleep(MOMENT);
    assert_eq!(unread(&theirs), 1000, "the gate has let it go, and the fence has not");
    gate.end(false);
    let _next = world.gate();
    until("a retransmission passes: another gate opens the fence", || unread(&theirs) == 2000);
}
