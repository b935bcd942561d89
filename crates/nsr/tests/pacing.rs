//! Loads of every kind, decided upon by [`Pacing`] and carried out by numbers: what is written for snapshots is paid for.

use std::collections::BTreeMap;

use holdfast_nsr::{Holding, Pacing, Relief, SessionId, Standing, Walk};
use proptest::{collection::vec, prelude::*};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A session, and the routes that it has brought.
#[derive(Clone, Debug, Default)]
struct Session {
    /// Octets that its routes take in a snapshot.
    table: u64,
    incoming: u64,
    snapshot: u64,
    received: u64,
    written: u64,
    /// What takeovers have allowed it beside.
    allowed: u64,
    /// Received since an attempt to make a snapshot began.
    since_attempt: u64,
    attempt: Option<Attempt>,
}

/// To make a snapshot.
#[derive(Clone, Debug, Default)]
struct Attempt {
    written: u64,
    /// What is left to be written.
    left: u64,
    /// Received since it began.
    since: u64,
}

/// A log as numbers.
struct World {
    size: u64,
    sessions: BTreeMap<SessionId, Session>,
    pacing: Pacing,
    /// Whose snapshots are being made.
    walk: Vec<SessionId>,
    /// What is left of what the walk is expected to take.
    held_back: u64,
    /// Octets of all snapshots that held, at each walk.
    walked: u64,
    walks: u32,
    looks: u64,
    given_up: Vec<SessionId>,
    received: u64,
    allowed: u64,
    /// What is expected of a snapshot of so many octets.
    expected: fn(u64) -> u64,
}

impl World {
    fn new(size: u64) -> Self {
        Self {
            size,
            sessions: BTreeMap::new(),
            pacing: Pacing::new(size),
            walk: Vec::new(),
            held_back: 0,
            walked: 0,
            walks: 0,
            looks: 0,
            given_up: Vec::new(),
            received: 0,
            allowed: 0,
            expected: |octets| octets,
        }
    }

    fn used(&self) -> u64 {
        let held = |session: &Session| {
            session.incoming + session.snapshot + session.attempt.as_ref().map_or(0, |it| it.written)
        };
        self.sessions.values().map(held).sum()
    }

    fn room(&self) -> u64 {
        (self.size - self.used()).saturating_sub(self.size / 16)
    }

    fn holdings(&self) -> Vec<Holding> {
        let holding = |(id, session): (&SessionId, &Session)| Holding {
            id: *id,
            incoming: session.incoming,
            snapshot: session.snapshot,
            expected: (self.expected)(session.table),
            held: session.incoming + session.snapshot,
            standing: Standing::Ready,
        };
        self.sessions.iter().map(holding).collect()
    }

    /// Receives octets for a session, of which `new` are routes that it did not have; each takes `long` octets in a
    /// snapshot. Whether it is protected still.
    fn receive(&mut self, id: SessionId, octets: u64, new: u64, long: u64) -> bool {
        if self.given_up.contains(&id) {
            return false;
        }
        while self.used() + octets + self.held_back > self.size - self.size / 8 {
            match self.pacing.relieve(&self.holdings(), self.room()) {
                Relief::Wait => assert!(self.write(), "a walk is under way"),
                Relief::Walk => assert!(self.look(), "a walk helps"),
                Relief::GiveUp(victim) => {
                    let victim = victim.expect("there is one");
                    let most = self.holdings().iter().map(|holding| holding.held).max();
                    let held = self.sessions.remove(&victim).map(|it| it.incoming + it.snapshot);
                    assert_eq!(held, most, "who fills the log loses its protection");
                    self.pacing.closed(victim);
                    self.given_up.push(victim);
                    if victim == id {
                        return false;
                    }
                }
            }
        }
        let session = self.sessions.entry(id).or_default();
        session.incoming += octets;
        session.received += octets;
        session.since_attempt += octets;
        session.table += new * long;
        session.attempt.iter_mut().for_each(|attempt| attempt.since += octets);
        self.received += octets;
        self.pacing.received(id, octets);
        if self.pacing.is_due() {
            self.look();
            assert!(!self.pacing.is_due(), "not before more is received");
        }
        self.check();
        true
    }

    fn look(&mut self) -> bool {
        self.looks += 1;
        let Some(Walk { sessions, octets }) = self.pacing.begin(&self.holdings(), self.room()) else {
            return false;
        };
        assert!(octets <= self.room() && !sessions.is_empty());
        self.walks += 1;
        self.walked += self.sessions.values().map(|session| session.snapshot).sum::<u64>();
        self.held_back = octets;
        for id in &sessions {
            let session = self.sessions.get_mut(id).expect("protected");
            assert!(session.since_attempt > 0, "nothing is new since the last one");
            session.since_attempt = 0;
            session.attempt = Some(Attempt { left: session.table, ..Attempt::default() });
        }
        self.walk = sessions;
        true
    }

    /// A slice of a walk. Whether there was one under way.
    fn write(&mut self) -> bool {
        if self.walk.is_empty() {
            return false;
        }
        let room = self.room();
        self.walk.retain(|id| {
            let Some(session) = self.sessions.get_mut(id) else { return false };
            let Some(Attempt { written, left, since }) = &mut session.attempt else { return false };
            let record = (*left).min(self.size / 128);
            if record == 0 {
                (session.snapshot, session.incoming) = (*written, *since);
                session.attempt = None;
                self.pacing.committed(*id, session.snapshot);
                return false;
            }
            let finds_room = record <= room;
            if !finds_room || !self.pacing.pay(*id, record) {
                self.pacing.abandoned(*id, !finds_room);
                session.attempt = None;
                return false;
            }
            (*written, *left) = (*written + record, *left - record);
            session.written += record;
            self.held_back = self.held_back.saturating_sub(record);
            true
        });
        if self.walk.is_empty() {
            self.pacing.end();
            self.held_back = 0;
        }
        true
    }

    fn die(&mut self) {
        self.walk.clear();
        (self.held_back, self.pacing) = (0, Pacing::new(self.size));
        for (id, session) in &mut self.sessions {
            // What the attempt has covered, if there was one, is as good as new.
            (session.attempt, session.since_attempt) = (None, session.incoming);
            session.allowed += session.incoming + session.snapshot;
            self.allowed += session.incoming + session.snapshot;
            self.pacing.recovered(*id, session.incoming, session.snapshot);
        }
    }

    fn check(&self) {
        assert!(self.used() <= self.size);
        for session in self.sessions.values() {
            let Session { received, written, allowed, .. } = session;
            assert!(*written <= 2 * received + allowed, "{written} written of {received} received");
        }
        // Looking and walking cost something, too.
        let step = (self.size / 64).clamp(64 * KIB, 4 * MIB);
        assert!(self.looks <= self.received / step + u64::from(self.walks) + 50, "{} looks", self.looks);
        assert!(self.walked <= 16 * (self.received + self.allowed), "{} walked over", self.walked);
    }

    fn rest(&mut self) {
        while self.write() {}
        self.check();
    }
}

const ONE: SessionId = SessionId(1);

/// A table that comes once is as long in a snapshot: none is made until as much as half of it, and 16 MiB, has changed.
#[test]
fn a_load_makes_no_snapshot_and_its_changes_make_one() {
    let mut world = World::new(1024 * MIB);
    let mut feed = |octets: u64, new: u64| {
        for _ in 0..octets / 4096 {
            world.receive(ONE, 4096, new, 1);
            world.write();
        }
        world.rest();
        (world.walks, world.given_up.len())
    };
    assert_eq!(feed(100 * MIB, 4096), (0, 0));
    assert_eq!(feed(45 * MIB, 0), (0, 0));
    assert_eq!(feed(10 * MIB, 0), (1, 0));
    assert_eq!(feed(95 * MIB, 0), (1, 0), "the next replaces as much as the snapshot has");
    assert_eq!(feed(10 * MIB, 0), (2, 0));
}

/// What is expected is a guess: a walk for a snapshot that is longer is made once.
#[test]
fn a_guess_that_was_too_low_is_corrected_by_what_was_written() {
    let mut world = World::new(1024 * MIB);
    world.expected = |table| table / 4;
    for _ in 0..400 * MIB / 4096 {
        world.receive(ONE, 4096, 4096, 1);
        world.write();
    }
    world.rest();
    assert_eq!((world.walks, world.given_up.len()), (1, 0));
}

#[test]
fn a_table_that_comes_while_a_snapshot_is_made_keeps_the_next_one_from_nobody() {
    let mut pacing = Pacing::new(1024 * MIB);
    let mut after = |incoming: u64, snapshot: u64, expected: u64| {
        pacing.received(ONE, 100 * MIB);
        let holding =
            Holding { id: ONE, incoming, snapshot, expected, held: incoming, standing: Standing::Ready };
        let walk = pacing.begin(&[holding], 900 * MIB);
        pacing.committed(ONE, 50 * MIB);
        pacing.end();
        walk.map(|walk| walk.sessions)
    };
    assert_eq!(after(100 * MIB, 0, 1), Some(vec![ONE]), "all was withdrawn, and comes again meanwhile");
    assert_eq!(after(600 * MIB, 50 * MIB, 50 * MIB), Some(vec![ONE]));
}

#[test]
fn a_session_whose_history_is_unread_gives_up_nothing() {
    let mut pacing = Pacing::new(MIB);
    let holding = |id, held, standing| Holding {
        id: SessionId(id),
        incoming: 0,
        snapshot: 0,
        expected: 0,
        held,
        standing,
    };
    let told = |held| holding(1, held, Standing::Ready);
    let unread = [holding(2, 9, Standing::Unread), holding(3, 5, Standing::Unread)];
    let all = [told(1), unread[0], unread[1]];
    assert_eq!(pacing.relieve(&all, 0), Relief::GiveUp(Some(SessionId(1))), "however little it holds");
    assert_eq!(pacing.relieve(&unread, 0), Relief::Wait, "one of them may be the next");
    assert_eq!(pacing.relieve(&[], 0), Relief::GiveUp(None));
}

#[test]
fn a_table_of_half_the_log_costs_no_more_than_twice_its_octets() {
    let mut world = World::new(960 * MIB);
    for _ in 0..9_000 {
        world.receive(ONE, 60_000, 60_000, 1);
        world.write();
    }
    world.rest();
    let (received, written) = world.pacing.totals();
    assert!(written <= 2 * received, "{written} of {received}");
    assert!(world.walks <= 7, "{} walks", world.walks);
    assert!(world.given_up.is_empty(), "it fits");
}

#[test]
fn a_log_that_is_too_small_ends_one_protection_and_the_others_go_on() {
    let mut world = World::new(8 * MIB);
    let quiet = SessionId(2);
    for _ in 0..100 {
        world.receive(quiet, 1000, 1000, 1);
    }
    while world.receive(ONE, 30_000, 30_000, 1) {
        world.write();
    }
    world.rest();
    let (walks, written) = (world.walks, world.pacing.totals().1);
    for _ in 0..1000 {
        assert!(!world.receive(ONE, 30_000, 30_000, 1), "it is not in the log any more");
    }
    assert_eq!((world.walks, world.pacing.totals().1, &world.given_up[..]), (walks, written, &[ONE][..]));
    assert!(world.receive(quiet, 1000, 0, 1), "the other one is protected");
}

#[test]
fn tables_of_a_third_of_the_log_are_protected_for_good() {
    // They grow in one go and then change for ever, in messages of every size.
    for (sessions, octets) in [(1, 19), (1, 4096), (1, 60_000), (4, 4096), (30, 4096)] {
        let mut world = World::new(64 * MIB);
        let full = 64 * MIB / 3;
        let mut feed = |most: u64, new: bool| {
            for i in 0..most / octets {
                // Some say more than others.
                let id = SessionId((i % sessions * (i / 7 % sessions) % sessions) as u32);
                let new = if new { octets } else { 0 };
                assert!(world.receive(id, octets, new, 1), "{sessions} after {} octets", world.received);
                world.write();
            }
        };
        feed(full, true);
        feed(40 * full, false);
        assert!(
            world.walks > 20 && world.given_up.is_empty(),
            "{} walks: there was much to be covered",
            world.walks
        );
    }
}

#[test]
fn what_was_received_over_many_lives_is_covered_once() {
    let mut world = World::new(1024 * MIB);
    for _ in 0..20 {
        for _ in 0..250 {
            world.receive(ONE, 4000, 0, 1);
        }
        world.sessions.get_mut(&ONE).expect("protected").table = MIB;
        world.rest();
        world.die();
    }
    assert!((1..=2).contains(&world.walks), "{} walks for 20 MB in 20 lives", world.walks);
}

/// What happens to a log.
#[derive(Clone, Debug)]
enum Act {
    /// A session receives so often so many octets: how many in a hundred are new, and how many they take in a snapshot.
    Feed { session: u32, times: u64, octets: u64, new: u64, long: u64 },
    /// Slices of a walk.
    Write(u8),
    /// The process dies.
    Die,
}

fn act() -> impl Strategy<Value = Act> {
    let octets = prop_oneof![Just(19_u64), 23..4096_u64, 4096..65_535_u64];
    let long = prop_oneof![5 => Just(1_u64), 1 => 2..20_u64];
    let new = prop_oneof![Just(0_u64), Just(100_u64), 0..100_u64];
    let feed = (0..4_u32, 1..300_u64, octets, new, long)
        .prop_map(|(session, times, octets, new, long)| Act::Feed { session, times, octets, new, long });
    prop_oneof![20 => feed, 10 => any::<u8>().prop_map(Act::Write), 1 => Just(Act::Die)]
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    /// Over any load, at any fill, what is written for snapshots is at most twice what was received, and one snapshot
    /// for each takeover; the rest is asserted at each step.
    #[test]
    fn snapshots_are_paid_for(size in prop_oneof![512 * KIB..2 * MIB, 2 * MIB..64 * MIB], acts in vec(act(), 1..200)) {
        let mut world = World::new(size);
        for act in acts {
            match act {
                Act::Feed { session, times, octets, new, long } => {
                    for _ in 0..times {
                        world.receive(SessionId(session), octets, octets * new / 100, long);
                        world.write();
                    }
                }
                Act::Write(slices) => (0..slices).for_each(|_| _ = world.write()),
                Act::Die => world.die(),
            }
        }
        world.rest();
    }
}
