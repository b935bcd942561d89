//! A mark moves only when the store has it, whatever the store and the connection do.

use holdfast_nsr::SessionId;
use holdfast_store::{Claim, Name, Page, memory::Memory};
use proptest::prelude::*;

use super::*;

#[derive(Copy, Clone, Debug)]
enum Act {
    /// The writer makes a batch, if it may.
    Send,
    /// The store does what is oldest.
    Work,
    /// An answer arrives.
    Take,
    Cut,
    LoseAll,
    LoseLast(usize),
    Fail(bool),
    Room(bool),
    Probe,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        10 => Just(Act::Send),
        12 => Just(Act::Work),
        12 => Just(Act::Take),
        1 => Just(Act::Cut),
        1 => Just(Act::LoseAll),
        1 => (1..20_usize).prop_map(Act::LoseLast),
        1 => any::<bool>().prop_map(Act::Fail),
        1 => any::<bool>().prop_map(Act::Room),
        2 => Just(Act::Probe),
    ]
}

struct World {
    store: Memory,
    writer: Writer,
    /// What has happened, as a number that grows; the store is to have it.
    number: u64,
    /// The copier: what is in batches of this generation.
    copied: u64,
    confirmed: u64,
    has_lost: bool,
}

const NAME: &[u8] = b"number";

impl World {
    fn new() -> Self {
        let writer = Writer::new(5, 77);
        Self { store: Memory::new(1 << 20), writer, number: 0, copied: 0, confirmed: 0, has_lost: false }
    }

    fn ask(&mut self, request: Option<Request>) {
        request.into_iter().for_each(|request| self.store.ask(request).expect("room"));
    }

    fn connect(&mut self) {
        self.store.cut();
        self.writer.disconnected();
        let request = self.writer.connected();
        self.ask(request);
    }

    fn in_store(&self, generation: u64) -> Option<u64> {
        let page = self.store.contents().page(generation, &Name::new(NAME).expect("short"), 0);
        let Ok(Page::Value(value)) = page else { return None };
        Some(u64::from_le_bytes(value[..8].try_into().expect("eight octets")))
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Send => {
                self.number += 1;
                let Some(mut batch) = self.writer.begin() else { return };
                self.copied = self.number;
                let value = [&self.number.to_le_bytes()[..], &[0; 3000]].concat();
                batch.push(Operation::Put { name: Name::new(NAME).expect("short"), value }).expect("room");
                let mark = Mark { id: SessionId(1), received: self.number, sent: 0 };
                // A copy may take several batches.
                let is_whole = self.number.is_multiple_of(3);
                let request = self.writer.send(batch, vec![(0, mark)], is_whole, Instant::now()).cloned();
                self.ask(request);
                assert!(self.writer.waiting() <= MOST_BATCHES);
            }
            Act::Work => drop(self.store.work()),
            Act::Take => {
                if let Some(answer) = self.store.take() {
                    self.answered(answer);
                }
            }
            Act::Cut => self.connect(),
            Act::LoseAll => {
                self.has_lost = true;
                self.store.lose_everything();
            }
            Act::LoseLast(count) => {
                self.has_lost = true;
                self.store.lose_last(count);
            }
            Act::Fail(fails) => self.store.fail(fails.then_some(Failure::OutOfMemory)),
            Act::Probe => {
                let request = self.writer.probe(Instant::now());
                self.ask(request);
            }
            Act::Room(has_room) => self.store.set_room(if has_room { 1 << 20 } else { 100 }),
        }
    }

    fn answered(&mut self, answer: Result<Answer, Failure>) {
        let was_asking = self.writer.phase() == Phase::Asking;
        match self.writer.answered(answer) {
            Outcome::Send(request) => self.ask(Some(request)),
            Outcome::Confirmed(marks) => {
                // Only what counts moves a mark. (The store may have lost it since it answered.)
                let state = self.store.contents().state();
                let counts = state.is_some_and(|state| state.counts == Some(self.writer.generation()));
                assert!(marks.is_empty() || counts || self.has_lost, "{marks:?}");
                for (_, mark) in marks {
                    self.confirmed = self.confirmed.max(mark.received);
                }
                if was_asking {
                    let again: Vec<_> = self.writer.again().cloned().collect();
                    again.into_iter().for_each(|request| self.ask(Some(request)));
                }
            }
            Outcome::Restart => self.copied = 0,
            Outcome::Reconnect(_) => self.connect(),
            Outcome::Fenced | Outcome::Overtaken(_) => panic!("there is no other writer"),
        }
    }

    fn settle(&mut self) {
        self.store.fail(None);
        self.store.set_room(1 << 20);
        for _ in 0..400 {
            self.store.work_all();
            while let Some(answer) = self.store.take() {
                self.answered(answer);
                self.store.work_all();
            }
            if self.writer.phase() == Phase::Whole && self.writer.waiting() == 0 {
                break;
            }
            match self.writer.phase() {
                Phase::Down => self.connect(),
                Phase::Copying => self.act(Act::Send),
                _ => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(500))]

    #[test]
    fn a_mark_moves_when_the_store_has_it(acts in prop::collection::vec(act(), 1..200)) {
        let mut world = World::new();
        world.connect();
        for act in acts {
            let before = world.confirmed;
            let is_loss = matches!(act, Act::LoseAll | Act::LoseLast(_));
            world.act(act);
            if world.confirmed > before && !is_loss {
                // Answers may be older than a loss: then the writer learns of it with the next.
                let has = world.in_store(world.writer.generation());
                let lost = has.is_none_or(|has| has < world.confirmed);
                prop_assert!(!lost || world.store.contents().state().is_none_or(|state| state.sequence < world.writer.sequence
                    || state.writing != world.writer.generation()), "{has:?} {}", world.confirmed);
            }
        }
        world.settle();
        prop_assert_eq!(world.writer.phase(), Phase::Whole);
        world.act(Act::Send);
        world.settle();
        let state = world.store.contents().state().expect("written");
        prop_assert_eq!(state.counts, Some(world.writer.generation()));
        prop_assert_eq!(world.in_store(world.writer.generation()), Some(world.number));
        prop_assert_eq!(world.confirmed, world.number);
    }

    #[test]
    fn whoever_is_fenced_changes_nothing_any_more(before in 0..20_usize, late in 0..20_usize) {
        let mut world = World::new();
        world.connect();
        world.settle();
        (0..before).for_each(|_| world.act(Act::Send));
        world.settle();
        (0..late).for_each(|_| world.act(Act::Send));
        // A standby claims the store before these arrive.
        let state = world.store.contents().state().expect("written");
        let mut copy = world.store.clone();
        let claim = Claim {
            incarnation: state.incarnation,
            is_empty: false,
            epoch: state.epoch + 1,
            generation: state.writing,
        };
        copy.cut();
        copy.ask(Request::Claim(claim)).expect("room");
        copy.work();
        prop_assert!(matches!(copy.take(), Some(Ok(Answer::Claimed(_)))));
        let held = copy.contents().clone();
        for request in world.writer.again() {
            copy.ask(request.clone()).expect("room");
        }
        copy.work_all();
        prop_assert!(copy.contents() == &held, "late batches have no effect");
        while let Some(answer) = copy.take() {
            prop_assert_eq!(world.writer.answered(answer), Outcome::Fenced);
            prop_assert_eq!(world.writer.phase(), Phase::Fenced);
        }
        if late > 0 {
            world.writer.disconnected();
            prop_assert_eq!(world.writer.connected(), None);
            prop_assert!(world.writer.begin().is_none());
        }
    }
}

#[test]
fn an_idle_writer_notices_that_the_store_was_emptied() {
    let mut world = World::new();
    world.connect();
    world.settle();
    world.act(Act::Probe);
    world.settle();
    assert_eq!((world.writer.phase(), world.writer.losses()), (Phase::Whole, 0));
    world.act(Act::LoseAll);
    world.act(Act::Probe);
    assert!(world.writer.oldest().is_some(), "it waits for an answer");
    world.store.work_all();
    let answer = world.store.take().expect("an answer");
    world.answered(answer);
    world.settle();
    assert_eq!((world.writer.phase(), world.writer.losses()), (Phase::Whole, 1));
}

#[test]
fn writers_that_die_before_their_generation_counts_leave_none_behind() {
    let mut world = World::new();
    let generations = |world: &World| world.store.contents().state().expect("written").generations;
    for has_written in [true, false] {
        for epoch in 0..20 {
            world.writer = Writer::new(world.writer.epoch() + 1, epoch);
            world.connect();
            // As far as the claim, and a first batch or not.
            while world.writer.phase() != Phase::Copying {
                world.store.work();
                let answer = world.store.take().expect("an answer");
                world.answered(answer);
            }
            if has_written {
                world.number = 3 * epoch + 1;
                world.act(Act::Send);
                world.store.work_all();
                assert!(generations(&world).len() <= 2, "{:?}", generations(&world));
            }
        }
    }
    world.writer = Writer::new(world.writer.epoch() + 1, 0);
    world.connect();
    world.settle();
    assert_eq!((world.writer.phase(), generations(&world).len()), (Phase::Whole, 1));
}
