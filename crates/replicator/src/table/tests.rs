//! A table with a real log and real sockets.

use std::{io::Write, sync::atomic::AtomicU64};

use holdfast_nsr::Log;
use holdfast_store::Batch;

use super::*;
use crate::{draft::Draft, remaking::Mapped, scene};

fn words() -> Vec<AtomicU64> {
    let words: Vec<_> = (0..Marks::octets(4) / 8).map(|_| AtomicU64::new(0)).collect();
    Marks::create(&words).expect("room");
    words
}

/// A table with a log.
fn table(vrf: &str, port: u16) -> (Table, Log<Mapped>, OwnedFd) {
    let (log, descriptor) = scene::log();
    let mut table = Table::new(vrf, 0, port);
    assert!(table.take("log", 1, descriptor.try_clone().expect("a copy")), "it is another log");
    (table, log, descriptor)
}

fn copy(table: &mut Table) {
    let mut draft = Draft::new(Batch::new(1, 1, 1, 1));
    while table.copier().expect("a log").fill(&mut draft) == crate::copier::Filled::Full {}
}

#[test]
fn keys_of_the_keeper_belong_to_their_table() {
    let (default, red) = (Table::new("", 0, 179), Table::new("red", 1, 179));
    for (key, is_default, is_red) in [
        ("log", true, false),
        ("log@red", false, true),
        ("session-7", true, false),
        ("session-7@red", false, true),
        ("session-7@blue", false, false),
        ("session-x", false, false),
        ("peers", false, false),
    ] {
        assert_eq!((default.owns(key), red.owns(key)), (is_default, is_red), "{key}");
    }
}

#[test]
fn descriptors_are_wanted_until_they_are_here_and_when_they_are_others() {
    let (mut table, _log, descriptor) = table("", 179);
    table.noted("log".into(), 1);
    assert_eq!(table.wanted(), []);
    // Another keeper counts anew: it is the same log.
    table.noted("log".into(), 9);
    assert_eq!(table.wanted(), [("log".into(), 9)]);
    assert!(!table.take("log", 9, descriptor));
    let (ours, _peer, _) = scene::sockets();
    table.noted("session-1".into(), 2);
    assert_eq!(table.wanted(), [("session-1".into(), 2)]);
    table.take("session-1", 2, ours.into());
    assert_eq!(table.wanted(), []);
    table.noted("session-1".into(), 0);
    assert!(table.sockets.is_empty());
    // What is no log is said, and not asked for again.
    let (file, _) = scene::file("no-log");
    table.noted("log".into(), 10);
    assert!(table.take("log", 10, file.into()));
    assert!(table.trouble.is_some() && table.wanted().is_empty());
}

#[test]
fn the_gate_counts_from_behind_the_syn_of_whoever_dialled() {
    // The socket of a connection that was made again counts no SYN, whoever has dialled.
    for (is_dialled, origins, syn) in
        [(false, (0, 0), 0), (true, (0, 0), 1), (false, ((1 << 32) + 5, 7), 0), (true, ((1 << 32) + 5, 7), 0)]
    {
        let (ours, _peer, port) = scene::sockets();
        let (mut table, mut log, _) = table("", if is_dialled { port + 1 } else { port });
        let id = scene::open(&mut log, origins.0, origins.1);
        table.take(&format!("session-{}", id.0), 1, ours.into());
        let words = words();
        let marks = Marks::open(&words).expect("marks");
        table.gate(&marks, SlotState::Gated);
        scene::receive(&mut log, id, 30);
        log.push(id, &[1; 20], None).expect("room");
        copy(&mut table);
        let mark = table.copier().expect("a log").mark(id).expect("copied");
        assert_eq!((mark.received, mark.sent), (origins.0 + 30, origins.1 + 20));
        table.confirmed(mark, &marks);
        let view = marks.view(0).expect("a slot");
        assert_eq!((view.received, view.sent), (30, 20 - syn));
    }
}

#[test]
fn a_slot_says_what_may_leave_as_soon_as_the_gate_can_hold_it() {
    let (ours, _peer, port) = scene::sockets();
    let (mut table, mut log, _) = table("", port);
    let id = scene::open(&mut log, 0, 0);
    let words = words();
    let marks = Marks::open(&words).expect("marks");
    table.gate(&marks, SlotState::Gated);
    assert_eq!(table.sessions(&marks)[0].lacks, Some(Unprotected::NoSocket));
    table.take(&format!("session-{}", id.0), 1, ours.into());
    table.gate(&marks, SlotState::Gated);
    let claim = marks.view(0).expect("a slot").claim;
    let lacks = |table: &Table, gating| {
        marks.set_gating(claim, gating);
        table.sessions(&marks)[0].lacks
    };
    assert_eq!(lacks(&table, Gating::Unseen), Some(Unprotected::Unseen));
    assert_eq!(lacks(&table, Gating::Older), Some(Unprotected::Older));
    assert_eq!(lacks(&table, Gating::Able), Some(Unprotected::NotCopied));
    table.gate(&marks, SlotState::Gated);
    assert_eq!(marks.view(0).expect("a slot").state, SlotState::Open, "the store does not have it");
    for (gating, state) in [
        (Gating::Older, SlotState::Closed),
        (Gating::Older, SlotState::Open),
        (Gating::Able, SlotState::Closed),
        (Gating::Able, SlotState::Open),
    ] {
        marks.set_gating(claim, gating);
        table.gate(&marks, state);
        assert_eq!(marks.view(0).expect("a slot").state, state, "whoever is to say nothing says nothing");
    }
    copy(&mut table);
    let mark = table.copier().expect("a log").mark(id).expect("copied");
    table.confirmed(mark, &marks);
    for state in [SlotState::Gated, SlotState::Closed, SlotState::Open, SlotState::Gated] {
        assert!(table.gate(&marks, state), "it has changed");
        assert_eq!(marks.view(0).expect("a slot").state, state);
        assert!(!table.gate(&marks, state));
    }
    // The store has nothing of it any more: what was gated waits.
    table.restart();
    table.gate(&marks, SlotState::Gated);
    assert_eq!(marks.view(0).expect("a slot").state, SlotState::Gated);
    log.close(id);
    assert!(table.gate(&marks, SlotState::Gated));
    assert_eq!(marks.view(0), None, "it has ended");
}

#[test]
fn a_slot_of_the_process_before_is_taken_up() {
    let (ours, _peer, port) = scene::sockets();
    let (mut table, mut log, _) = table("", port);
    let id = scene::open(&mut log, 0, 0);
    let descriptor: OwnedFd = ours.into();
    let words = words();
    let marks = Marks::open(&words).expect("marks");
    let connection = connection(&descriptor, 0).expect("a connection");
    let before = marks.claim(2, &connection, SlotState::Gated, (40, 50)).expect("free");
    marks.set_gating(before, Gating::Able);
    table.take(&format!("session-{}", id.0), 1, descriptor);
    table.gate(&marks, SlotState::Open);
    assert!(table.has_slot(before) && marks.view(0).is_none());
    assert_eq!(marks.view(2).map(|view| view.received), Some(40), "watermarks never fall");
    table.free_slots(&marks);
    assert_eq!(marks.view(2), None);
}

#[test]
fn what_nobody_reads_is_seen_in_the_socket() {
    let (ours, mut peer, port) = scene::sockets();
    let (mut table, mut log, _) = table("", port);
    let id = scene::open(&mut log, 500, 0);
    table.take(&format!("session-{}", id.0), 1, ours.into());
    let words = words();
    let marks = Marks::open(&words).expect("marks");
    table.gate(&marks, SlotState::Gated);
    copy(&mut table);
    peer.write_all(b"in the socket").expect("room");
    assert_eq!(table.peek(&marks), [], "the gate waits for nothing");
    let claim = marks.view(0).expect("a slot").claim;
    marks.set_wanted(claim, 13, 0);
    assert_eq!(table.peek(&marks), [(id, 500, b"in the socket".to_vec())]);
    // The part that the store has is passed over.
    let mut draft = Draft::new(Batch::new(1, 1, 1, 1));
    assert!(table.copier().expect("a log").peeked(&mut draft, id, 500, b"in the"));
    assert_eq!(table.peek(&marks), [(id, 506, b" socket".to_vec())]);
}

#[test]
fn a_session_that_the_door_carries_is_not_copied() {
    let (mut table, mut log, _) = table("", 179);
    let id = scene::open(&mut log, 0, 0);
    let (pair, _) = std::os::unix::net::UnixStream::pair().expect("a pair");
    table.take(&format!("session-{}", id.0), 1, pair.into());
    copy(&mut table);
    assert_eq!(table.copier().expect("a log").mark(id), None);
    let words = words();
    let marks = Marks::open(&words).expect("marks");
    table.gate(&marks, SlotState::Gated);
    assert_eq!(table.sessions(&marks)[0].lacks, Some(Unprotected::Carried));
}
