//! The engine with a store that does what a test says, a real log, and a clock by value.

mod routers;

use std::{cell::RefCell, fs::File, io::Write, net::TcpStream, os::fd::AsRawFd, rc::Rc};

use holdfast_api::replicator::v1::{Kind, Server, Table as TableOf};
use holdfast_gate::{Gating, View};
use holdfast_nsr::{Log, SessionId};
use holdfast_restore::Names;
use holdfast_store::{Answer, Claim, Description, Failure, MOST_OCTETS, Refused, Request};

use super::*;
use crate::{
    remaking::Mapped,
    scene::{self, Script, Scripted},
    writer::MOST_BATCHES,
};

/// A table of the test.
struct Of {
    vrf: &'static str,
    log: Log<Mapped>,
    descriptor: OwnedFd,
    sockets: Vec<TcpStream>,
    /// Descriptors at the keeper.
    count: u64,
}

struct World {
    engine: Engine,
    script: Rc<RefCell<Script>>,
    configuration: Configuration,
    lease: File,
    now: Instant,
    tables: Vec<Of>,
}

impl World {
    fn new(vrfs: &[&'static str]) -> Self {
        Self::with(vrfs, |_| ())
    }

    fn with(vrfs: &[&'static str], change: impl FnOnce(&mut Configuration)) -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (lease, _) = scene::file(&format!("engine-{number}"));
        let server = |at: &&str| Server { peer: format!("store-{at}"), address: (*at).to_owned() };
        let table = |vrf: &&str| TableOf { vrf: (*vrf).to_owned(), ..TableOf::default() };
        let mut configuration = Configuration {
            kind: Kind::Redis.into(),
            servers: ["a", "b"].iter().map(server).collect(),
            store_timeout_milliseconds: 3000,
            on_loss: OnLoss::Degrade.into(),
            router_id: 1,
            port: 179,
            tables: vrfs.iter().map(table).collect(),
            ..Configuration::default()
        };
        change(&mut configuration);
        let script = Script::new();
        let engine = Engine::new(Box::new(Scripted(Rc::clone(&script))), marks(None).expect("memory"));
        let mut world =
            Self { engine, script, configuration, lease, now: Instant::now(), tables: Vec::new() };
        world.configure();
        for vrf in vrfs {
            let (log, descriptor) = scene::log();
            let copy = descriptor.try_clone().expect("a copy");
            world.tables.push(Of { vrf, log, descriptor, sockets: Vec::new(), count: 1 });
            world.give(&key("log", vrf), 1, copy);
        }
        world.engine.is_complete = true;
        world
    }

    fn configure(&mut self) {
        let lease = self.lease.try_clone().expect("a copy");
        self.engine.configure(self.configuration.clone(), b"", vec![lease.into()]);
    }

    /// The file of the lease as another router has it: the lock of this one is not its own.
    fn lease_of_another(&self) -> File {
        let path = format!("/proc/self/fd/{}", self.lease.as_raw_fd());
        File::options().read(true).write(true).open(path).expect("another description")
    }

    /// The keeper has a descriptor.
    fn give(&mut self, key: &str, number: u64, descriptor: OwnedFd) {
        self.engine.kept(key, number);
        assert!(self.engine.wanted().contains(&(key.to_owned(), number)));
        self.engine.take(key, number, descriptor);
        assert!(self.engine.wanted().is_empty());
    }

    /// A session with its socket; its peer has said 100 octets, and was told 50.
    fn session(&mut self, table: usize) -> SessionId {
        let of = &mut self.tables[table];
        let id = scene::open(&mut of.log, 1000, 2000);
        scene::receive(&mut of.log, id, 100);
        of.log.push(id, &[1; 50], None).expect("room");
        let (ours, peer, _) = scene::sockets();
        of.sockets.push(peer);
        of.count += 1;
        let (key, number) = (key(&format!("session-{}", id.0), of.vrf), of.count);
        self.give(&key, number, ours.into());
        id
    }

    /// So many milliseconds later all that there is to do is done.
    fn after(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
        for _ in 0..100 {
            if !self.engine.turn(self.now) {
                assert!(self.engine.writer.waiting() <= MOST_BATCHES);
                return;
            }
        }
        panic!("it has always more to do");
    }

    /// The gate has seen all connections.
    fn gate(&mut self) {
        let marks = self.engine.marks().expect("marks");
        let views = (0..marks.slots() as u32).filter_map(|slot| marks.view(slot));
        views.for_each(|view| {
            marks.set_numbers(view.claim, 7, 8);
            marks.set_gating(view.claim, Gating::Able);
        });
    }

    /// Everything is copied and gated.
    fn settle(&mut self) {
        self.after(1);
        self.gate();
        self.after(1);
        self.after(100);
        assert_eq!((self.engine.protection, self.engine.writer.waiting()), (Protection::Full, 0));
    }

    fn views(&mut self) -> Vec<View> {
        let marks = self.engine.marks().expect("marks");
        (0..marks.slots() as u32).filter_map(|slot| marks.view(slot)).collect()
    }

    /// Whether the gate may let something of gated sessions leave, and others begin.
    fn has_lease(&mut self) -> bool {
        self.engine.marks().expect("marks").lease() != 0
    }

    fn states(&mut self) -> Vec<SlotState> {
        self.views().into_iter().map(|view| view.state).collect()
    }

    fn say(&mut self, table: usize, id: SessionId, octets: usize) {
        self.tables[table].log.push(id, &vec![1; octets], None).expect("room");
    }

    fn answers(&self, answers: Option<usize>) {
        self.script.borrow_mut().answers = answers;
    }

    /// How the names of objects in the generation that counts begin, and how many there are.
    fn objects(&self, begin: &str) -> usize {
        let script = self.script.borrow();
        let contents = script.store.contents();
        let counts = contents.state().and_then(|state| state.counts).expect("one counts");
        let listed = contents.list(counts, &Default::default());
        listed.objects.iter().filter(|object| object.name.as_slice().starts_with(begin.as_bytes())).count()
    }
}

fn key(name: &str, vrf: &str) -> String {
    if vrf.is_empty() { name.to_owned() } else { format!("{name}@{vrf}") }
}

#[test]
fn sessions_are_gated_when_the_store_has_them_and_the_gate_knows_them() {
    let mut world = World::new(&[""]);
    let id = world.session(0);
    world.after(1);
    assert_eq!((world.engine.writer.phase(), world.engine.protection), (Phase::Whole, Protection::Full));
    assert_eq!(world.states(), [SlotState::Open], "the gate has not seen it");
    world.gate();
    world.after(1);
    let view = world.views()[0];
    assert_eq!((view.state, view.received, view.sent), (SlotState::Gated, 100, 50));
    assert!(world.engine.must_ring() || !world.engine.has_news);
    scene::receive(&mut world.tables[0].log, id, 7);
    world.say(0, id, 9);
    world.after(1);
    let view = world.views()[0];
    assert_eq!((view.received, view.sent), (107, 59));
    assert_eq!(world.engine.count(), (1, 0));
    assert!(world.engine.marks().expect("marks").lease() > 0);
}

#[test]
fn no_mark_moves_before_the_generation_counts() {
    let mut world = World::new(&[""]);
    let id = world.session(0);
    for _ in 0..40 {
        world.say(0, id, 60_000);
    }
    // The state, the claim, and then one batch after the other.
    for answers in [1, 1, 1, 1] {
        world.answers(Some(answers));
        world.after(1);
        world.gate();
        assert_eq!((world.engine.protection, world.states()), (Protection::Beginning, vec![SlotState::Open]));
        assert_eq!((world.views()[0].received, world.views()[0].sent), (0, 0));
        let state = world.script.borrow().store.contents().state();
        assert!(state.is_none_or(|state| state.counts.is_none()), "it is not whole");
    }
    world.answers(None);
    world.settle();
    assert_eq!((world.views()[0].received, world.views()[0].sent), (100, 50 + 40 * 60_000));
}

/// Whoever takes over before the next batch would not know of it.
#[test]
fn a_generation_does_not_count_while_it_lacks_a_session_that_has_changed_meanwhile() {
    let mut world = World::new(&[""]);
    let ids = [world.session(0), world.session(0)];
    let snapshot = |world: &mut World, id, records: usize, octet| {
        let log = &mut world.tables[0].log;
        log.begin_snapshot(id);
        (0..records).for_each(|_| log.snapshot_record(id, &vec![octet; 3500]).expect("room"));
        log.commit_snapshot(id, 1100);
    };
    // More than the batches that are on their way.
    snapshot(&mut world, ids[0], 1250, 1);
    snapshot(&mut world, ids[1], 1, 2);
    for step in 0..100 {
        world.answers(Some(1));
        world.after(1);
        let script = world.script.borrow();
        let contents = script.store.contents();
        if let Some(counts) = contents.state().and_then(|state| state.counts) {
            let session = contents.values(counts, &[Names::new(0).session(ids[1])]);
            assert!(session[0].is_some(), "step {step}");
            return;
        }
        drop(script);
        // Twice: what the first one was in is used anew.
        (0..2).for_each(|_| snapshot(&mut world, ids[1], 1, step));
    }
    panic!("it never counts");
}

#[test]
fn four_batches_are_on_their_way_of_all_tables_and_no_more() {
    let mut world = World::new(&["", "red"]);
    let ids = [world.session(0), world.session(1)];
    world.settle();
    world.answers(Some(0));
    for _ in 0..10 {
        (0..2).for_each(|table| world.say(table, ids[table], 200_000));
        world.after(1);
    }
    assert_eq!(world.engine.writer.waiting(), MOST_BATCHES);
    let octets: usize = world
        .engine
        .writer
        .again()
        .map(|request| if let Request::Batch(batch) = request { batch.octets() } else { 0 })
        .sum();
    assert!((1 << 20..=MOST_BATCHES * MOST_OCTETS).contains(&octets), "{octets}");
    assert!(world.views().iter().all(|view| view.sent == 50), "none of it is confirmed");
    world.answers(None);
    world.after(1);
    world.after(1);
    assert!(world.views().iter().all(|view| view.sent == 2_000_050));
}

#[test]
fn a_store_that_has_lost_everything_gets_everything_anew_before_anything_leaves() {
    let mut world = World::new(&[""]);
    let id = world.session(0);
    world.settle();
    let before = world.objects("0/");
    world.script.borrow_mut().store.lose_everything();
    // Nothing is new: a question finds it out.
    world.after(500);
    world.after(1);
    assert_eq!(world.engine.trouble, Some(Trouble::Lost));
    world.say(0, id, 10);
    world.answers(Some(2));
    world.after(50);
    assert_eq!((world.engine.writer.phase(), world.engine.writer.losses()), (Phase::Copying, 1));
    assert_eq!((world.states(), world.views()[0].sent), (vec![SlotState::Gated], 50));
    world.answers(None);
    world.after(1);
    assert_eq!((world.engine.protection, &world.engine.trouble), (Protection::Full, &None));
    assert_eq!((world.objects("0/"), world.views()[0].sent, world.engine.gaps), (before, 60, 0));
}

#[test]
fn a_copy_that_is_begun_anew_has_what_was_acknowledged_and_nobody_has_read() {
    let mut world = World::new(&[""]);
    world.session(0);
    world.settle();
    // The log has the first hundred of them; the gate waits for the others.
    world.tables[0].sockets[0].write_all(&[7; 113]).expect("room");
    let claim = world.views()[0].claim;
    let wait = |world: &mut World, received, held| {
        let marks = world.engine.marks().expect("marks");
        marks.set_wanted(claim, received, 0);
        marks.set_held(held);
    };
    wait(&mut world, 113, 1);
    world.after(1);
    world.after(40);
    assert_eq!(world.views()[0].received, 113);
    wait(&mut world, 0, 0);
    world.script.borrow_mut().store.lose_everything();
    for milliseconds in [500, 1, 60, 1, 1] {
        world.after(milliseconds);
    }
    assert_eq!((world.engine.protection, world.engine.writer.losses()), (Protection::Full, 1));
    let script = world.script.borrow();
    let counts = script.store.contents().state().and_then(|state| state.counts).expect("one counts");
    let listed = script.store.contents().list(counts, &Default::default()).objects;
    let range = listed.iter().find(|object| object.name.as_slice() == b"0/s/1/in").expect("it is there");
    assert_eq!(range.description, Description::Range { start: 1000, end: 1113 });
}

#[test]
fn a_store_without_its_last_batches_gets_everything_anew() {
    let mut world = World::new(&[""]);
    let id = world.session(0);
    world.settle();
    world.say(0, id, 10);
    world.after(1);
    world.script.borrow_mut().store.lose_last(1);
    world.say(0, id, 10);
    world.after(1);
    world.after(60);
    assert_eq!((world.engine.protection, world.engine.writer.losses()), (Protection::Full, 1));
    assert_eq!(world.views()[0].sent, 70);
}

#[test]
fn a_store_that_says_nothing_is_left_for_the_next_and_what_was_on_its_way_is_sent_again() {
    let mut world = World::new(&[""]);
    let id = world.session(0);
    world.settle();
    assert_eq!(world.script.borrow().tried, ["a"]);
    world.answers(Some(0));
    world.say(0, id, 10);
    for _ in 0..14 {
        world.after(100);
    }
    assert_eq!((world.engine.protection, &world.engine.trouble), (Protection::Waiting, &None));
    for _ in 0..3 {
        world.after(100);
    }
    assert_eq!(world.engine.trouble, Some(Trouble::Silent));
    assert_eq!(world.script.borrow().tried, ["a", "b"], "the next server comes first");
    world.answers(None);
    world.after(1);
    assert_eq!((world.engine.protection, &world.engine.trouble), (Protection::Full, &None));
    assert_eq!((world.views()[0].sent, world.engine.writer.losses(), world.engine.gaps), (60, 0, 0));
}

#[test]
fn a_store_that_is_down_is_tried_less_and_less_often() {
    let mut world = World::new(&[""]);
    world.script.borrow_mut().is_down = true;
    world.session(0);
    for _ in 0..100 {
        world.after(100);
    }
    let tried = world.script.borrow().tried.len();
    assert!((10..=16).contains(&tried), "{tried} times in ten seconds");
    assert_eq!(world.engine.trouble, Some(Trouble::NoConnection));
    world.script.borrow_mut().is_down = false;
    world.after(1000);
    world.settle();
}

#[test]
fn a_store_that_is_away_for_too_long_is_done_without_or_sessions_end() {
    for (on_loss, protection, state) in [
        (OnLoss::Degrade, Protection::Degraded, SlotState::Open),
        (OnLoss::StepDown, Protection::SteppingDown, SlotState::Open),
    ] {
        let mut world = World::with(&[""], |configuration| configuration.on_loss = on_loss.into());
        let id = world.session(0);
        world.settle();
        world.answers(Some(0));
        world.say(0, id, 10);
        for _ in 0..30 {
            assert_eq!(world.states(), [SlotState::Gated]);
            world.after(100);
        }
        world.after(100);
        assert_eq!((world.engine.protection, world.states()), (protection, vec![state]));
        assert_eq!(world.engine.gaps, 1);
        let steps_down = protection == Protection::SteppingDown;
        assert_eq!([(); 2].map(|()| world.engine.must_end_sessions()), [steps_down, false]);
        assert_eq!(world.has_lease(), !steps_down, "no session begins");
        if steps_down {
            // `bgp` does not do as it is told.
            world.after(2900);
            assert_eq!(world.states(), [SlotState::Open]);
            world.after(100);
            let after = (world.engine.protection, world.states());
            assert_eq!(after, (Protection::SteppedDown, vec![SlotState::Closed]));
            world.after(1);
            assert!(!world.has_lease());
        }
        world.answers(None);
        world.after(1000);
        world.after(1);
        assert_eq!((world.engine.protection, world.states()), (Protection::Full, vec![SlotState::Gated]));
        assert_eq!((world.views()[0].sent, world.engine.gaps), (60, 1));
    }
}

#[test]
fn what_was_gated_waits_for_the_next_process() {
    let mut world = World::new(&[""]);
    let id = world.session(0);
    world.settle();
    let descriptor = world.engine.marks_descriptor().expect("a copy");
    world.say(0, id, 10);
    // The next process has another descriptor of the file, as the lock of this one goes with it.
    let again = marks(Some(descriptor)).expect("memory");
    world.engine = Engine::new(Box::new(Scripted(Rc::clone(&world.script))), again);
    assert_eq!((world.engine.protection, world.states()), (Protection::Waiting, vec![SlotState::Gated]));
    world.configure();
    world.answers(Some(0));
    world.after(1);
    assert_eq!((world.states(), world.views()[0].sent), (vec![SlotState::Gated], 50));
    world.answers(None);
    let descriptor = world.tables[0].descriptor.try_clone().expect("a copy");
    world.give("log", 2, descriptor);
    world.after(1);
    let counts =
        |world: &World| world.script.borrow().store.contents().state().and_then(|state| state.counts);
    assert_eq!(counts(&world), Some(1), "it is not known yet what was acknowledged");
    world.engine.is_complete = true;
    world.after(1);
    world.after(1);
    assert_eq!((world.engine.writer.epoch(), counts(&world)), (2, Some(2)));
    let state = world.script.borrow().store.contents().state().expect("written");
    assert_eq!((state.epoch, state.generations.len()), (2, 1), "the generation before is gone");
}

#[test]
fn whoever_is_fenced_lets_nothing_leave_any_more() {
    let mut world = World::new(&[""]);
    let id = world.session(0);
    world.settle();
    {
        let mut script = world.script.borrow_mut();
        let state = script.store.contents().state().expect("written");
        let claim = Claim {
            incarnation: state.incarnation,
            is_empty: false,
            epoch: state.epoch + 1,
            generation: state.last + 1,
        };
        script.store.ask(Request::Claim(claim)).expect("room");
        script.store.work_all();
        assert!(matches!(script.store.take(), Some(Ok(Answer::Claimed(_)))));
    }
    world.say(0, id, 10);
    world.after(1);
    world.after(1);
    assert_eq!((world.engine.protection, world.states()), (Protection::Fenced, vec![SlotState::Closed]));
    assert_eq!(world.engine.marks().expect("marks").lease(), 0);
    let tried = world.script.borrow().tried.len();
    for _ in 0..50 {
        world.after(100);
    }
    assert_eq!(world.script.borrow().tried.len(), tried, "it asks nothing any more");
    assert_eq!(world.engine.protection, Protection::Fenced);
}

#[test]
fn without_the_lease_nothing_is_asked() {
    let mut world = World::new(&[""]);
    let other = world.lease_of_another();
    assert!(Lease::take(&other, None, true, clock::since_boot).expect("a file").is_some());
    world.session(0);
    world.after(1);
    world.after(5000);
    assert!(world.engine.lease.is_none() && world.script.borrow().tried.is_empty());
    assert_eq!(world.engine.marks().expect("marks").lease(), 0);
    drop(other);
    world.settle();
    assert_eq!(world.engine.writer.epoch(), 2);
}

#[test]
fn a_store_that_refuses_says_why_until_it_takes_everything() {
    let mut world = World::new(&[""]);
    let id = world.session(0);
    world.settle();
    world.script.borrow_mut().store.set_room(10);
    world.say(0, id, 10_000);
    world.after(1);
    assert_eq!(world.engine.trouble, Some(Trouble::Refused(Refused::Full)));
    for _ in 0..10 {
        world.after(100);
    }
    assert_eq!((world.engine.protection, world.states()), (Protection::Waiting, vec![SlotState::Gated]));
    assert_eq!(world.engine.trouble, Some(Trouble::Refused(Refused::Full)));
    // It says what it has each time; that is no reason to ask it more often, or it alone.
    let before = world.script.borrow().tried.len();
    for _ in 0..10 {
        world.after(100);
    }
    let tried = world.script.borrow().tried[before..].to_vec();
    assert!(tried.len() <= 3, "{tried:?}");
    for _ in 0..8 {
        world.after(100);
    }
    let tried = world.script.borrow().tried.clone();
    assert!(["a", "b"].iter().all(|server| tried[1..].iter().any(|one| one == server)), "{tried:?}");
    world.script.borrow_mut().store.set_room(1 << 30);
    world.after(1000);
    world.after(1);
    assert_eq!((world.engine.protection, world.views()[0].sent), (Protection::Full, 10_050));
    assert_eq!(world.engine.writer.losses(), 0, "it had lost nothing");

    world.script.borrow_mut().store.fail(Some(Failure::OutOfMemory));
    world.say(0, id, 10);
    world.after(1);
    assert_eq!(world.engine.trouble, Some(Trouble::Failure(Failure::OutOfMemory)));
    world.script.borrow_mut().store.fail(None);
    world.after(1000);
    world.after(1);
    assert_eq!((world.views()[0].sent, &world.engine.trouble), (10_060, &None));
}

#[test]
fn sessions_of_a_vrf_that_goes_are_nobodys() {
    let mut world = World::new(&["", "red"]);
    let ids = [world.session(0), world.session(1)];
    world.settle();
    assert_eq!((world.states().len(), world.objects("0/s/") > 0, world.objects("2/s/") > 0), (2, true, true));
    world.tables[0].log.close(ids[0]);
    world.engine.kept("session-1", 0);
    world.after(1);
    world.after(100);
    world.after(100);
    assert_eq!((world.states().len(), world.objects("0/s/")), (1, 0), "it has ended");
    world.configuration.tables.pop();
    world.configure();
    world.after(1);
    // The log of the other table comes again from the keeper.
    let descriptor = world.tables[0].descriptor.try_clone().expect("a copy");
    world.engine.take("log", 1, descriptor);
    world.after(1);
    world.after(100);
    assert_eq!((world.states(), world.objects("2/")), (vec![], 0));
    assert_eq!(world.engine.protection, Protection::Full);
}

#[test]
fn another_log_is_copied_anew_under_the_names_of_the_one_before() {
    let mut world = World::new(&[""]);
    world.session(0);
    world.session(0);
    world.settle();
    let (log, descriptor) = scene::log();
    let copy = descriptor.try_clone().expect("a copy");
    world.tables[0] = Of { vrf: "", log, descriptor, sockets: Vec::new(), count: 1 };
    world.engine.kept("session-1", 0);
    world.engine.kept("session-2", 0);
    world.give("log", 2, copy);
    assert_eq!(world.states(), [], "their slots are free");
    world.session(0);
    world.settle();
    assert_eq!((world.states(), world.engine.writer.losses()), (vec![SlotState::Gated], 0));
    assert_eq!(world.objects("0/s/1"), 5, "session, record, socket and two ranges");
    assert_eq!(world.objects("0/s/2"), 0);
}

#[test]
fn what_is_sent_once_more_has_its_time_for_an_answer() {
    let mut world = World::new(&[""]);
    let id = world.session(0);
    world.settle();
    world.answers(Some(0));
    world.say(0, id, 10);
    for _ in 0..100 {
        world.after(100);
    }
    // It says what it has, and takes a while for the rest.
    world.answers(Some(1));
    world.after(1000);
    let tried = world.script.borrow().tried.len();
    for _ in 0..5 {
        world.after(100);
    }
    assert_eq!(world.script.borrow().tried.len(), tried, "the connection stays");
    world.answers(None);
    world.after(1);
    assert_eq!((world.engine.protection, world.views()[0].sent), (Protection::Full, 60));
}

/// The file of the lease went with a restart of the machine, and the store is as it was.
#[test]
fn a_lease_that_counts_anew_goes_on_behind_the_epoch_of_the_store() {
    let mut world = World::new(&[""]);
    let claim = Claim { incarnation: 9, is_empty: true, epoch: 40, generation: 1 };
    let mut script = world.script.borrow_mut();
    script.store.ask(Request::Claim(claim)).expect("room");
    while script.store.work() {}
    script.store.cut();
    drop(script);
    world.session(0);
    world.settle();
    assert_eq!((world.engine.protection, world.engine.writer.epoch()), (Protection::Full, 41));
    let again = Lease::take(&world.lease, None, true, clock::since_boot).expect("a file");
    assert_eq!(again.map(|lease| lease.epoch()), Some(42), "it stays so");
    assert!(!world.engine.raise_epoch(50), "two routers do not outbid each other");
}
