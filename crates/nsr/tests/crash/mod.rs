//! The process dies at every step: nothing is lost, doubled or reordered, in either direction.
//!
//! A model of the kernel and of peers outlives a model of the process. Whenever a process has taken over, what it
//! finds is compared with what the peers have said and heard; in the end both sides agree, and no block is left.

mod chunk;
mod driver;
mod kernel;
pub(crate) mod memory;

use std::collections::BTreeMap;

use holdfast_nsr::{Log, Memory, SessionId};

use driver::Driver;
use kernel::Connection;
use memory::{Fuse, Keeper, Random, live};

/// All that outlives the process.
pub(crate) struct World {
    pub(crate) keeper: Keeper,
    pub(crate) fuse: Fuse,
    pub(crate) random: Random,
    /// Octets of the log.
    pub(crate) memory: usize,
    pub(crate) most_sessions: usize,
    pub(crate) connections: BTreeMap<u8, Connection>,
    next_connection: u8,
    /// The session and place that are certainly being processed.
    pub(crate) inside: Option<(SessionId, u32)>,
    suspects: BTreeMap<(SessionId, u32), u8>,
    pub(crate) given_up: usize,
}

impl World {
    fn new(seed: u64, blocks: usize) -> Self {
        Self {
            keeper: Keeper::default(),
            fuse: Fuse::new(seed),
            random: Random::new(!seed),
            memory: (3 + blocks) * 4096 + blocks * 276,
            most_sessions: 3,
            connections: BTreeMap::new(),
            next_connection: 0,
            inside: None,
            suspects: BTreeMap::new(),
            given_up: 0,
        }
    }

    pub(crate) fn connect(&mut self, incoming: u64, outgoing: u64) -> u8 {
        let number = self.next_connection;
        self.next_connection = number.wrapping_add(1);
        let connection = Connection::new(incoming, outgoing, u32::from(number) << 20);
        assert!(self.connections.insert(number, connection).is_none());
        number
    }

    pub(crate) fn disconnect(&mut self, connection: u8) {
        self.connections.remove(&connection);
    }

    /// A death counts against the place that was being processed, once, and against no other.
    pub(crate) fn check_suspicions<M: Memory>(&mut self, log: &Log<M>) {
        let before = std::mem::take(&mut self.suspects);
        for id in log.sessions() {
            let suspects = log.suspects(id).into_iter().filter(|suspect| suspect.deaths > 0);
            self.suspects.extend(suspects.map(|suspect| ((id, suspect.place), suspect.deaths)));
        }
        let is_new = |(place, deaths): &(&(SessionId, u32), &u8)| before.get(place) != Some(deaths);
        let counted: Vec<_> = self.suspects.iter().filter(is_new).collect();
        assert!(counted.len() <= 1, "{counted:?} after {before:?}");
        for (place, deaths) in &counted {
            assert_eq!(**deaths, before.get(place).copied().unwrap_or(0) + 1);
        }
        if let Some(inside) = self.inside.take() {
            assert!(counted.iter().any(|(place, _)| **place == inside), "{counted:?} and not {inside:?}");
        }
    }

    /// Changes whenever octets move.
    pub(crate) fn progress<M: Memory>(&self, log: &Log<M>) -> (u64, u64, usize, u64) {
        let consumed =
            self.connections.values().map(|connection| connection.consumed).fold(0, u64::wrapping_add);
        let written =
            self.connections.values().map(|connection| connection.written).fold(0, u64::wrapping_add);
        (consumed, written, self.connections.len(), log.usage().held.outgoing)
    }

    fn peers_send(&mut self) {
        let Self { connections, random, .. } = self;
        for connection in connections.values_mut() {
            if random.below(3) == 0 {
                (0..=random.below(3)).for_each(|_| connection.send(random));
            }
        }
    }

    /// A process, until it dies or has done so many things.
    fn live(&mut self, acts: usize) -> Option<Driver> {
        live(|| {
            let mut driver = Driver::start(self);
            for _ in 0..acts {
                self.peers_send();
                driver.act(self);
            }
            driver
        })
    }

    /// The last process: it does all that is left.
    fn finish(&mut self) {
        self.fuse.set(u64::MAX);
        let mut driver = self.live(0).expect("nothing kills it");
        driver.finish(self);
        driver.end(self);
        self.live(0).expect("nothing kills it").end(self);
    }
}

/// Dies at step `first` of a run, and at step `second` of the life after it (0: not again). Whether it lived to
/// see the end of both.
fn dies_twice(seed: u64, acts: usize, first: u64, second: u64) -> [bool; 2] {
    let mut world = World::new(seed, 40);
    world.fuse.set(first);
    if world.live(acts).is_some() {
        return [true, true];
    }
    world.fuse.set(if second == 0 { u64::MAX } else { second });
    let again = world.live(acts / 4).is_some();
    world.finish();
    [false, again]
}

#[test]
fn a_death_at_any_step_loses_nothing() {
    for seed in 0..4 {
        let steps = (1..).find(|step| dies_twice(seed, 250, *step, 0)[0]).expect("a run ends");
        assert!(steps > 400, "{steps} steps are too few to mean something");
    }
}

#[test]
fn a_death_at_any_step_of_recovery_loses_nothing() {
    for seed in 100..130 {
        let mut world = World::new(seed, 40);
        world.live(100);
        let steps = world.fuse.burnt();
        let first = 1 + world.random.next() % steps;
        let again = (1..).find(|step| dies_twice(seed, 100, first, *step)[1]).expect("a run ends");
        assert!(again > 5, "{again} steps are too few to mean something");
    }
}

#[test]
fn a_thousand_deaths_lose_nothing() {
    for seed in 1000..1060 {
        // From a log in which there is hardly room for anything to one that never fills.
        let blocks = 14 + seed as usize % 6 * 10;
        let given_up = dies_often(seed, blocks);
        assert!(given_up == 0 || blocks < 40, "{given_up} sessions found no room in {blocks} blocks");
    }
}

/// How many sessions found no room to the end.
fn dies_often(seed: u64, blocks: usize) -> usize {
    let mut world = World::new(seed, blocks);
    for death in 0..40 {
        let left = 1 + world.random.next() % [10, 100, 1000][death % 3];
        world.fuse.set(left);
        let acts = 20 + world.random.below(200);
        drop(world.live(acts));
    }
    world.finish();
    world.given_up
}
