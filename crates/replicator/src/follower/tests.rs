//! A follower with a store that does what a test says, and a clock by value.

use std::{cell::RefCell, rc::Rc};

use holdfast_api::stored::v1 as stored;
use holdfast_nsr::SessionId;
use holdfast_restore::Names;
use holdfast_store::{Batch, Claim, Operation, redis::Keys};
use prost::Message;

use super::*;
use crate::{
    link::Servers,
    scene::{Script, Scripted},
    way::{Open, Place},
};

const SESSION: Followed = (0, SessionId(7));

struct World {
    script: Rc<RefCell<Script>>,
    follower: Follower,
    now: Instant,
    generation: u64,
    sequence: u64,
    /// Ways that were opened.
    opened: u32,
}

impl World {
    fn new() -> Self {
        Self::following(Follows::Routes)
    }

    fn following(follows: Follows) -> Self {
        let now = Instant::now();
        let (generation, sequence, opened) = Default::default();
        Self {
            script: Script::new(),
            follower: Follower::new(follows, now),
            now,
            generation,
            sequence,
            opened,
        }
    }

    /// The other router says something to the store.
    fn asks(&self, request: Request) -> Answer {
        let mut contents = self.script.borrow().store.contents().clone();
        let answer = contents.answer(&request);
        let script = &mut *self.script.borrow_mut();
        script.store.cut();
        script.store.ask(request).expect("room");
        script.store.work_all();
        assert_eq!(script.store.take(), Some(Ok(answer.clone())));
        answer
    }

    fn writes(&mut self, operations: impl IntoIterator<Item = Operation>) {
        let mut batch = Batch::new(77, 1, self.generation, self.sequence + 1);
        operations.into_iter().for_each(|operation| batch.push(operation).expect("room"));
        let Answer::Applied(applied) = self.asks(Request::Batch(batch)) else { panic!("it is not the next") };
        self.sequence = applied.sequence;
    }

    /// The other router has a new generation with one session, whose peer has said this.
    fn begins(&mut self, octets: &[u8]) {
        self.generation += 1;
        let claim =
            Claim { incarnation: 77, is_empty: self.generation == 1, epoch: 1, generation: self.generation };
        let Answer::Claimed(claimed) = self.asks(Request::Claim(claim)) else { panic!("it is not granted") };
        self.sequence = claimed.sequence;
        let (names, id) = (Names::new(0), SESSION.1);
        let log = stored::Log { formats: 8, key: vec![3; 16], vrf: String::new() };
        let put = |name, value: Vec<u8>| Operation::Put { name, value };
        self.writes([
            put(names.log(), log.encode_to_vec()),
            put(names.session(id), stored::Session::default().encode_to_vec()),
            put(names.record(id), Vec::new()),
            Operation::Append { name: names.incoming(id), at: 0, octets: octets.to_vec() },
            Operation::Adopt,
        ]);
    }

    /// Turns until nothing comes of it any more, at the same time.
    fn turns(&mut self) -> Vec<Order> {
        let mut orders = Vec::new();
        for _ in 0..50 {
            let (script, opened, now) = (Rc::clone(&self.script), &mut self.opened, self.now);
            let open = || {
                *opened += 1;
                let (servers, keys) = (Servers::default(), Keys::new("r").expect("a name"));
                let kind = holdfast_api::replicator::v1::Kind::Redis;
                Scripted(script).open(&Place { kind, servers: &servers, keys: &keys, files: &[] })
            };
            orders.extend(self.follower.turn(now, open, |_| true));
        }
        orders
    }

    fn turns_after(&mut self, pause: Duration) -> Vec<Order> {
        self.now += pause;
        self.turns()
    }

    /// What was read becomes sessions.
    fn makes(&mut self, orders: Vec<Order>) {
        let [Order::Make(objects)] = &orders[..] else { panic!("{orders:?}") };
        assert_eq!(objects.sessions().collect::<Vec<_>>(), [SESSION]);
        self.follower.made(objects, &BTreeSet::from([SESSION]), self.now);
    }
}

fn put(orders: &[Order]) -> Vec<&[u8]> {
    let octets = |order: &'_ Order| match order {
        Order::Put(session, octets) if *session == SESSION => octets.clone().leak() as &[u8],
        other => panic!("{other:?}"),
    };
    orders.iter().map(octets).collect()
}

#[test]
fn what_is_said_after_it_was_read_is_put_in_and_another_generation_is_read_anew() {
    let mut world = World::new();
    assert!(world.turns().is_empty());
    assert_eq!(world.follower.word(), "waiting", "there is nothing yet");
    world.begins(b"before");
    let orders = world.turns_after(RETRY);
    assert_eq!(world.follower.word(), "reading");
    world.makes(orders);
    assert_eq!(world.follower.word(), "following");
    let name = Names::new(0).incoming(SESSION.1);
    world.writes([Operation::Append { name, at: 6, octets: b"after".to_vec() }]);
    assert_eq!(put(&world.turns_after(ROUND)), [b"after"]);
    assert!(world.turns_after(ROUND).is_empty(), "once");
    world.begins(b"anew");
    assert!(world.turns_after(LOOK).is_empty(), "not too soon");
    assert_eq!(world.follower.word(), "waiting");
    let orders = world.turns_after(ANEW);
    world.makes(orders);
}

/// The other router is configured so.
fn configures(number: u64) -> [Operation; 2] {
    [
        Operation::Put { name: Names::configuration(), value: vec![number as u8; 30] },
        Operation::Put { name: Names::configuration_serial(), value: number.to_le_bytes().to_vec() },
    ]
}

fn configured(orders: &[Order]) -> Vec<u8> {
    let number = |order: &Order| match order {
        Order::Configure(octets) => octets[0],
        other => panic!("{other:?}"),
    };
    orders.iter().map(number).collect()
}

#[test]
fn a_configuration_is_told_once_with_routes_and_without() {
    for (follows, round) in [(Follows::Routes, ROUND), (Follows::Configuration, SLOW_ROUND)] {
        let mut world = World::following(follows);
        world.begins(b"x");
        let orders = world.turns();
        match follows {
            Follows::Routes => world.makes(orders),
            Follows::Configuration => assert!(orders.is_empty(), "no session is followed"),
        }
        assert!(world.turns_after(round).is_empty(), "there is none");
        world.writes(configures(5));
        assert_eq!(configured(&world.turns_after(round)), [5]);
        assert!(world.turns_after(round).is_empty(), "once");
        world.writes(configures(6));
        assert_eq!(configured(&world.turns_after(round)), [6]);
        // Another generation counts, and has another one.
        world.begins(b"anew");
        world.writes(configures(7));
        if follows == Follows::Configuration {
            // As its writer does. Who follows routes asks for each session, and sees that those are gone.
            world.writes([Operation::Discard { generation: 1 }]);
        }
        let mut told = Vec::new();
        let pauses = match follows {
            Follows::Routes => [LOOK, ANEW, round, round],
            Follows::Configuration => [round; 4],
        };
        for pause in pauses {
            let orders = world.turns_after(pause);
            match &orders[..] {
                [Order::Make(_)] => world.makes(orders),
                orders => told.extend(configured(orders)),
            }
        }
        assert_eq!(told, [7]);
        world.turns_after(LOOK);
        assert_eq!(world.follower.word(), "following");
    }
}

#[test]
fn a_store_that_says_nothing_is_connected_to_anew_and_one_that_is_away_later() {
    let mut world = World::new();
    world.script.borrow_mut().answers = Some(0);
    assert!(world.turns().is_empty());
    assert_eq!(world.opened, 1);
    world.turns_after(SILENCE / 2);
    assert_eq!(world.opened, 1);
    world.turns_after(SILENCE);
    world.script.borrow_mut().is_down = true;
    world.turns_after(RETRY);
    assert_eq!(world.opened, 2, "it was silent");
    world.turns_after(RETRY / 2);
    assert_eq!(world.opened, 2, "nobody listens");
    world.script.borrow_mut().is_down = false;
    world.script.borrow_mut().answers = None;
    world.begins(b"x");
    let orders = world.turns_after(RETRY);
    assert_eq!(world.opened, 3);
    world.makes(orders);
}

#[test]
fn sessions_that_do_not_fit_are_tried_again_a_few_times() {
    let mut world = World::new();
    world.begins(b"x");
    for attempt in 0..=ATTEMPTS {
        let orders = world.turns_after(4 * ANEW);
        let [Order::Make(objects)] = &orders[..] else { panic!("{attempt}: {orders:?}") };
        world.follower.made(objects, &BTreeSet::new(), world.now);
    }
    assert_eq!(world.follower.word(), "following");
    assert!(world.turns_after(4 * ANEW).is_empty());
}

#[test]
fn a_store_that_is_lost_while_sessions_are_made_is_read_again() {
    let mut world = World::new();
    world.begins(b"x");
    let orders = world.turns_after(RETRY);
    world.follower.lost("it has gone", world.now);
    world.makes(orders);
    assert_eq!(world.opened, 1);
    let orders = world.turns_after(ROUND);
    assert_eq!(world.opened, 2, "not as if it were followed");
    world.makes(orders);
    // After a long pause the store is not taken for silent.
    world.follower.anew(world.now);
    let orders = world.turns_after(2 * SILENCE);
    assert_eq!(world.opened, 2);
    world.makes(orders);
}

#[test]
fn sessions_that_come_and_go_all_the_time_have_all_read_anew_less_and_less_often() {
    const SECOND: Duration = Duration::from_secs(1);
    let mut world = World::new();
    world.begins(b"x");
    let orders = world.turns_after(RETRY);
    world.makes(orders);
    let (names, mut read_at, mut pauses, mut number) = (Names::new(0), world.now, Vec::new(), 100);
    let mut flap = |world: &mut World| {
        let [gone, new] = [number, number + 1].map(|number| names.session(SessionId(number)));
        number += 1;
        world.writes([Operation::Remove { name: gone }, Operation::Put { name: new, value: Vec::new() }]);
        for order in world.turns_after(SECOND) {
            let Order::Make(objects) = order else { continue };
            pauses.push((world.now - read_at).as_secs());
            read_at = world.now;
            let sessions = objects.sessions().collect();
            world.follower.made(&objects, &sessions, world.now);
            // One that has nothing to follow is not followed.
            world.follower.attempts = 0;
        }
        pauses.clone()
    };
    let pauses = (0..400).map(|_| flap(&mut world)).find(|pauses| pauses.len() == 7).expect("seven times");
    for (pause, least) in pauses.iter().zip([5, 10, 20, 40, 60, 60, 60]) {
        assert!((least..least + 4).contains(pause), "{pauses:?}");
    }
    // A calm time is forgiven.
    world.turns_after(3 * MOST_ANEW);
    let pauses = (0..80).map(|_| flap(&mut world)).find(|pauses| pauses.len() == 9).expect("twice more");
    assert!((10..14).contains(&pauses[8]), "{pauses:?}");
}
