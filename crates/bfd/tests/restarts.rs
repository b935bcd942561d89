//! A session that outlives its process.

use std::rc::Rc;

use holdfast_bfd::{Algorithm, Engine, FROZEN, Frozen, Key, Profile, State, UsedKey};
use holdfast_types::HashKey;

use crate::tests::pair::{Pair, ms, profile};

impl Pair {
    /// The engine of an end dies, and another one goes on after this time with what was left.
    fn restart(&mut self, end: usize, after: u64) {
        let (frozen, profile) = (self.session(end).freeze(), Rc::clone(self.session(end).profile()));
        self.engines[end] = Engine::new(HashKey::new([77, self.sent[end].len() as u64]), 16);
        self.arrives[end] = false;
        self.run(ms(after));
        self.arrives[end] = true;
        self.ids[end] = self.engines[end].thaw(self.now, &frozen, profile).expect("a session");
    }

    fn failures(&self) -> usize {
        self.changes.iter().flatten().filter(|(.., change)| change.has_failed).count()
    }
}

#[test]
fn the_neighbour_hears_nothing_of_a_restart_within_the_detection_time() {
    let keys = vec![UsedKey {
        key: Key::new(3, Algorithm::MeticulousKeyedSha1, b"secret").expect("a key"),
        send: true,
        accept: true,
    }];
    for keys in [Vec::new(), keys] {
        let with = || Profile { keys: keys.clone(), ..profile(300, 300, 3) };
        let mut pair = Pair::up([with(), with()]);
        for round in 0..100 {
            pair.restart(round % 2, 200 + round as u64 % 5 * 100);
            pair.run(ms(700));
        }
        assert_eq!((pair.states(), pair.failures()), ([State::Up; 2], 0));
        assert!(pair.rejected.iter().all(Vec::is_empty), "sequence numbers go on");
    }
}

#[test]
fn a_poll_that_was_under_way_is_asked_again() {
    let mut pair = Pair::up([profile(100, 100, 5), profile(100, 100, 5)]);
    pair.arrives[1] = false;
    pair.set(0, profile(400, 50, 5));
    pair.settle();
    pair.arrives[1] = true;
    pair.restart(0, 50);
    pair.run(ms(500));
    assert_eq!(pair.session(0).transmit_interval(), ms(400));
    assert_eq!((pair.states(), pair.failures()), ([State::Up; 2], 0));
}

#[test]
fn a_session_is_as_it_was_and_octets_that_are_none_are_refused() {
    let pair = Pair::up([profile(50, 60, 3), profile(70, 80, 4)]);
    let mut engine = Engine::new(HashKey::new([1, 1]), 16);
    let frozen = pair.session(0).freeze();
    assert_eq!(frozen.path(), Some(pair.session(0).path()));
    let id = engine.thaw(pair.now, &frozen, Rc::clone(pair.session(0).profile())).expect("a session");
    assert_eq!(engine.session(id).expect("it").freeze(), frozen);
    assert!(engine.poll_transmit(pair.now).is_some(), "the neighbour has waited");
    // A second time, and what is no session.
    assert_eq!(engine.thaw(pair.now, &frozen, Rc::default()), Err(frozen));
    let none = Frozen([0; FROZEN]);
    assert_eq!(engine.thaw(pair.now, &none, Rc::default()), Err(none));
    for octet in 0..FROZEN {
        let mut wrong = frozen;
        wrong.0[octet] ^= 0xff;
        let mut engine = Engine::new(HashKey::new([1, 1]), 16);
        if let Ok(id) = engine.thaw(pair.now, &wrong, Rc::default()) {
            engine.advance(pair.now + ms(10_000));
            assert!(engine.session(id).is_some());
        }
    }
}
