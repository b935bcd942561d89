//! The engine with a store that does what a test says, a real log, and a clock by value.

use std::{cell::RefCell, fs::File, io::Write, net::TcpStream, os::fd::AsRawFd, rc::Rc};

use holdfast_api::replicator::v1::{Kind, Server, Table as TableOf};
use holdfast_gate::{Gating, View};
use holdfast_nsr::{Log, SessionId};
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
    assert!(Lease::take(&other, None, clock::since_boot).expect("a file").is_some());
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
    let again = Lease::take(&world.lease, None, clock::since_boot).expect("a file");
    assert_eq!(again.map(|lease| lease.epoch()), Some(42), "it stays so");
    assert!(!world.engine.raise_epoch(50), "two routers do not outbid each other");
}

/// Another router with an empty keeper and the same lease and store.
fn next_router(world: &World) -> Engine {
    let mut engine = Engine::new(Box::new(Scripted(Rc::clone(&world.script))), marks(None).expect("memory"));
    engine.configure(world.configuration.clone(), b"", vec![world.lease_of_another().into()]);
    engine.is_complete = true;
    engine
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
    let objects = next.take_read(world.now).expect("all is read");
    assert_eq!(objects.tables().expect("whole")[0].sessions.len(), 1);
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
    world.session(0);
    world.settle();
    world.engine.lease.as_mut().expect("held").release();
    let mut next = next_router(&world);
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
