//! Several routers with one lease: who has it, what is read of the one before, and how each is configured.

use holdfast_gate::Connection;

use super::*;
use crate::engine::restoring::ADOPTING;

/// Another router with an empty keeper and the same lease and store.
fn next_router(world: &World) -> Engine {
    let mut engine = Engine::new(Box::new(Scripted(Rc::clone(&world.script))), marks(None).expect("memory"));
    engine.configure(world.configuration.clone(), b"", vec![world.lease_of_another().into()]);
    engine.is_complete = true;
    engine
}

/// A router with a session has died, and this is the next one.
fn after_a_death(world: &mut World) -> Engine {
    world.session(0);
    world.settle();
    world.engine.lease.as_mut().expect("held").release();
    next_router(world)
}

fn turns(engine: &mut Engine, now: Instant) {
    while engine.turn(now) {}
}

#[test]
fn a_router_without_a_log_reads_what_the_one_before_has_left_and_writes_nothing_until_that_is_made() {
    let mut world = World::new(&[""]);
    world.session(0);
    world.settle();
    let before = world.script.borrow().store.contents().state().expect("a state");
    let mut next = next_router(&world);
    turns(&mut next, world.now);
    assert_eq!((next.role(), next.is_ready()), ("standby", false), "the other one lives");
    world.engine.lease.as_mut().expect("held").release();
    turns(&mut next, world.now);
    assert_eq!((next.role(), next.is_ready()), ("restoring", false));
    let is_whole = |engine: &mut Engine| engine.marks().expect("marks").is_whole();
    assert!(is_whole(&mut world.engine) && !is_whole(&mut next));
    let objects = next.take_read(world.now).expect("all is read");
    assert_eq!(objects.tables().0[0].sessions.len(), 1);
    assert!(next.take_read(world.now).is_none(), "once");
    turns(&mut next, world.now);
    let state = world.script.borrow().store.contents().state().expect("a state");
    assert_eq!(state.counts, before.counts, "what the one before has left still counts");
    assert!(state.epoch > before.epoch, "and that one writes no more");
    world.after(600);
    world.after(1);
    assert_eq!((world.engine.role(), world.has_lease()), ("fenced", false));
    next.remakes();
    assert_eq!(next.protection, Protection::Waiting);
    next.restored(1, 0);
    assert_eq!((next.role(), next.is_ready()), ("primary", true));
    turns(&mut next, world.now);
    assert_eq!(next.writer.phase(), Phase::Whole);
    assert!(is_whole(&mut next));
}

#[test]
fn where_nothing_is_left_and_where_the_store_is_silent_sessions_begin() {
    let world = World::new(&[""]);
    let mut first = next_router(&world);
    turns(&mut first, world.now);
    assert!(first.is_ready(), "an empty store has nothing");
    drop(first);
    world.script.borrow_mut().is_down = true;
    let mut next = next_router(&world);
    for (milliseconds, ready) in [(0, false), (2999, false), (3000, true)] {
        turns(&mut next, world.now + Duration::from_millis(milliseconds));
        assert_eq!(next.is_ready(), ready, "{milliseconds}");
    }
}

#[test]
fn a_way_that_ends_while_it_is_read_is_read_again() {
    let mut world = World::new(&[""]);
    let mut next = after_a_death(&mut world);
    // The state, the claim, and a part of the list.
    world.answers(Some(3));
    turns(&mut next, world.now);
    assert!(next.take_read(world.now).is_none());
    next.reconnect(None, world.now);
    world.answers(None);
    turns(&mut next, world.now);
    assert!(next.take_read(world.now).is_some());
}

#[test]
fn a_way_that_ends_at_the_same_place_again_and_again_is_given_up() {
    let mut world = World::new(&[""]);
    let mut next = after_a_death(&mut world);
    // What an attempt has read that others had not is progress.
    for (milliseconds, answers, ready) in
        [(0, 3, false), (2000, 4, false), (3000, 4, false), (4900, 3, false), (5000, 4, true)]
    {
        world.answers(Some(answers));
        let now = world.now + Duration::from_millis(milliseconds);
        next.reconnect(None, now);
        turns(&mut next, now);
        assert_eq!(next.is_ready(), ready, "{milliseconds}");
        assert!(next.take_read(now).is_none());
    }
}

#[test]
fn what_the_keeper_had_of_stand_ins_is_no_log_of_this_router() {
    for answers in [0, 1, 3] {
        let mut world = World::new(&[""]);
        world.session(0);
        world.settle();
        let mut standby = next_router(&world);
        standby.set_standby(true);
        standby.kept("log", 7);
        standby.has_stand_ins = true;
        turns(&mut standby, world.now);
        world.engine.lease.as_mut().expect("held").release();
        // The store answers late, and the keeper has not said yet that the log is gone.
        world.answers(Some(answers));
        turns(&mut standby, world.now);
        standby.has_stand_ins = false;
        turns(&mut standby, world.now);
        assert_eq!((standby.role(), standby.is_ready()), ("restoring", false));
        if answers == 3 {
            standby.reconnect(None, world.now);
        }
        world.answers(None);
        turns(&mut standby, world.now);
        let read = standby.take_read(world.now).expect("all is read");
        assert_eq!(read.tables().0[0].sessions.len(), 1);
    }
}

#[test]
fn a_standby_takes_what_another_router_has_had() {
    let mut world = World::new(&[""]);
    let mut standby = next_router(&world);
    standby.set_standby(true);
    turns(&mut standby, world.now);
    assert_eq!(standby.role(), "standby", "nobody has had it");
    assert_eq!(standby.reset(), Err(NotNow::NotFenced));
    world.session(0);
    world.settle();
    turns(&mut standby, world.now);
    assert_eq!(standby.role(), "standby");
    assert_eq!(world.engine.confirm_dead(), Err(NotNow::Primary));
    world.engine.lease.as_mut().expect("held").release();
    turns(&mut standby, world.now);
    assert_eq!(standby.role(), "restoring");
    world.after(600);
    world.after(1);
    assert_eq!((world.engine.role(), world.has_lease()), ("fenced", false));
    world.engine.reset().expect("it is");
    let states: Vec<_> = world.views().iter().map(|view| view.state).collect();
    assert_eq!((world.engine.role(), &states[..]), ("standby", &[SlotState::Closed][..]));
}

/// Sockets of sessions come before their log: whatever this router has had before, the slots that they were given stay theirs.
#[test]
fn sessions_that_come_back_to_a_router_keep_the_slots_they_were_made_with() {
    let mut world = World::new(&[""]);
    let id = world.session(0);
    world.settle();
    let mut other = next_router(&world);
    world.engine.lease.as_mut().expect("held").release();
    turns(&mut other, world.now);
    world.after(600);
    world.after(1);
    world.engine.reset().expect("it has lost them");
    // The log stays mapped, if it was not forgotten: the keeper says only that it has none.
    let session = format!("session-{}", id.0);
    for key in ["log", &session] {
        world.engine.kept(key, 0);
    }
    world.after(1);
    assert_eq!(world.engine.role(), "standby");
    drop(other.take_read(world.now));
    other.lease.as_mut().expect("held").release();
    world.after(1);
    drop(world.engine.take_read(world.now).expect("all is read"));
    world.engine.remakes();
    assert_eq!(world.states(), []);

    let (ours, _peer, _) = scene::sockets();
    let ends = (ours.local_addr().expect("an end"), ours.peer_addr().expect("an end"));
    let connection = Connection::new(ends.0, ends.1, 0);
    let marks = world.engine.marks().expect("marks");
    let claim = marks.claim_restored(0, &connection, SlotState::Gated, (0, 0), (7, 8)).expect("free");
    world.give(&session, 8, ours.into());
    world.after(1);
    let (mut log, descriptor) = scene::log();
    assert_eq!(scene::open(&mut log, 0, 0), id, "the same number");
    world.give("log", 9, descriptor);
    world.engine.restored(1, 0);
    world.after(1);
    world.gate();
    world.after(1);
    let views: Vec<_> = world.views().iter().map(|view| (view.claim, view.restored, view.state)).collect();
    assert_eq!(views, [(claim, Some((7, 8)), SlotState::Gated)]);
    assert_eq!((world.engine.protection, world.engine.count()), (Protection::Full, (1, 0)));
}

#[test]
fn the_lease_of_a_router_that_is_stopped_is_taken_where_the_gate_can_stand() {
    for (namespace, gate_stands, may) in
        [(7, false, false), (7, true, true), (8, false, true), (0, false, true)]
    {
        let mut world = World::new(&[""]);
        world.engine.namespace = 7;
        world.after(1);
        let mut next = next_router(&world);
        (next.namespace, next.gate_stands) = (namespace, gate_stands);
        assert!(next.may_take_by_time(), "it is no standby");
        next.set_standby(true);
        assert_eq!(next.may_take_by_time(), may, "{namespace} {gate_stands}");
    }
}

fn shared(number: u64) -> stored::Configuration {
    stored::Configuration { number, sealed: vec![number as u8; 4], serial: 10 * number }
}

#[test]
fn a_configuration_is_in_the_store_and_at_the_standby_before_it_takes_effect() {
    let mut world = World::new(&[""]);
    let mut standby = next_router(&world);
    standby.set_standby(true);
    standby.sharing.set_running(shared(4));
    world.session(0);
    world.engine.sharing.set_running(shared(5));
    world.settle();
    turns(&mut standby, world.now);
    assert!(world.engine.has_stored());
    assert_eq!(world.engine.standby_takes(5, 50), None, "it has not said so");
    // As its follower does.
    standby.sharing.hear(Some(shared(5)));
    assert_eq!(standby.next_shared().map(|next| next.number), Some(5));
    assert_eq!(standby.offer(shared(4)), Err(NotNow::Bound), "it has no say");
    standby.sharing.set_running(shared(5));
    turns(&mut standby, world.now);
    assert_eq!((standby.next_shared(), world.engine.standby_takes(5, 50)), (None, Some(true)));
    world.engine.offer(shared(6)).expect("it has the sessions");
    assert!(!world.engine.has_stored());
    world.settle();
    assert!(world.engine.has_stored());
    standby.sharing.hear(Some(shared(6)));
    standby.sharing.refuse(60);
    turns(&mut standby, world.now);
    assert_eq!((standby.next_shared(), world.engine.standby_takes(6, 60)), (None, Some(false)));
    let alone = World::new(&[""]);
    assert_eq!(alone.engine.standby_takes(7, 70), Some(true), "nobody waits there");
}

#[test]
fn a_router_that_has_lost_the_sessions_waits_for_nobody_and_takes_nothing_that_is_older() {
    let mut world = World::new(&[""]);
    world.session(0);
    world.engine.sharing.set_running(shared(5));
    world.settle();
    let mut next = next_router(&world);
    next.set_standby(true);
    next.sharing.set_running(shared(5));
    turns(&mut next, world.now);
    world.engine.lease.as_mut().expect("held").release();
    turns(&mut next, world.now);
    assert!(next.take_read(world.now).is_some());
    world.after(600);
    world.after(1);
    assert_eq!(world.engine.role(), "fenced");
    world.engine.offer(shared(9)).expect("nobody says otherwise");
    assert!(world.engine.has_stored() && world.engine.standby_takes(9, 90) == Some(true));
    next.remakes();
    next.restored(1, 0);
    next.offer(shared(6)).expect("it has the sessions");
    next.sharing.set_running(shared(6));
    turns(&mut next, world.now);
    // The next one has lost them, too, to a third one.
    next.begin_fenced();
    assert_eq!((next.role(), next.next_shared()), ("fenced", None));
    next.reset().expect("it is");
    assert_eq!(next.next_shared(), None, "what the first one had");
}

#[test]
fn another_configuration_is_logged_when_it_lasts() {
    let mut world = World::new(&[""]);
    let mut standby = next_router(&world);
    standby.set_standby(true);
    // Without a key nothing is shared.
    standby.sharing.set_running(stored::Configuration { number: 4, ..Default::default() });
    world.engine.sharing.set_running(stored::Configuration { number: 5, ..Default::default() });
    world.settle();
    for (seconds, has_said) in [(1, false), (3, false), (5, false), (6, true), (7, true)] {
        turns(&mut standby, world.now + Duration::from_secs(seconds));
        assert_eq!(standby.has_said_other, has_said, "{seconds}");
    }
    standby.sharing.set_running(stored::Configuration { number: 5, ..Default::default() });
    turns(&mut standby, world.now + Duration::from_secs(8));
    assert!(!standby.has_said_other);
}

#[test]
fn a_standby_that_takes_over_is_configured_as_the_other_router_was_before_sessions_are_made() {
    for (is_standby, patience) in [(true, ADOPTING), (false, Duration::ZERO)] {
        let mut world = World::new(&[""]);
        world.session(0);
        world.engine.sharing.set_running(shared(5));
        world.settle();
        let mut next = next_router(&world);
        next.set_standby(is_standby);
        next.sharing.set_running(shared(4));
        turns(&mut next, world.now);
        world.engine.lease.as_mut().expect("held").release();
        turns(&mut next, world.now);
        assert_eq!(next.role(), "restoring");
        assert_eq!(next.next_shared().map(|next| next.number), is_standby.then_some(5));
        let early = world.now + patience.saturating_sub(Duration::from_millis(1));
        assert_eq!(next.take_read(early).is_none(), is_standby, "a router that starts goes by its own file");
        if is_standby {
            // Whoever does not take it in time is not waited for.
            assert!(next.take_read(world.now + ADOPTING).is_some());
        }
        next.remakes();
        next.restored(1, 0);
        turns(&mut next, world.now);
        assert_eq!(next.next_shared(), None, "it has the sessions");
        assert!(next.has_stored());
    }
}

#[test]
fn service_addresses_are_of_whoever_has_the_lease_and_stay_in_the_namespace_of_that_router() {
    for (namespace, owner) in [(7, Owner::Beside), (8, Owner::Elsewhere), (0, Owner::Elsewhere)] {
        let mut world = World::new(&[""]);
        world.engine.namespace = 7;
        world.session(0);
        world.settle();
        assert_eq!(world.engine.owner(), Owner::Ours);
        assert_eq!(world.engine.addresses_until(), world.engine.lease_until());
        let mut next = next_router(&world);
        next.namespace = namespace;
        turns(&mut next, world.now);
        let beside = if namespace == 0 { Owner::Undecided } else { owner };
        assert_eq!(next.owner(), beside, "the other one lives");
        world.engine.lease.as_mut().expect("held").release();
        turns(&mut next, world.now);
        assert_eq!((next.role(), next.owner()), ("restoring", Owner::Undecided));
        drop(next.take_read(world.now));
        world.after(600);
        world.after(1);
        assert_eq!((world.engine.role(), world.engine.owner()), ("fenced", owner));
        assert_eq!(world.engine.addresses_until(), 0, "nothing is put or announced any more");
        next.remakes();
        next.restored(1, 0);
        assert_eq!(next.owner(), Owner::Ours);
        // The process of the router that was fenced begins anew.
        let mut again = next_router(&world);
        again.namespace = 7;
        turns(&mut again, world.now);
        assert_eq!(
            (again.role(), again.owner()),
            ("standby", if namespace == 0 { Owner::Undecided } else { owner })
        );
    }
}

#[test]
fn the_next_process_of_a_router_that_has_lost_the_lease_waits_for_the_operator() {
    let mut world = World::new(&[""]);
    world.session(0);
    world.settle();
    let tag = world.engine.lease_file().expect("held").1;
    world.engine.lease.as_mut().expect("held").release();
    let mut next = next_router(&world);
    turns(&mut next, world.now);
    assert_eq!(next.role(), "restoring");
    // The process before has not seen it: it was killed while it was stopped.
    let mut after = next_router(&world);
    after.tag_before = Some(tag);
    turns(&mut after, world.now);
    assert_eq!((after.role(), after.is_ready()), ("fenced", false));
    drop(next);
    turns(&mut after, world.now);
    assert_eq!((after.role(), after.lease.is_none()), ("fenced", true), "also when the lease is free");
    after.reset().expect("it has lost them");
    assert_eq!(after.role(), "standby");
}

#[test]
fn whom_the_store_has_fenced_stays_so_in_its_next_life() {
    let mut world = World::new(&[""]);
    world.session(0);
    world.settle();
    world.engine.lease.as_mut().expect("held").give_up();
    let mut next = next_router(&world);
    turns(&mut next, world.now);
    assert_eq!(next.role(), "fenced");
    next.reset().expect("it has lost them");
    turns(&mut next, world.now);
    assert_eq!(next.role(), "standby", "nobody has the lease, and nobody is known to be dead");
}
