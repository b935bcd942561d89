//! Keys and sequence numbers (RFC 5880 sections 6.7.3 and 6.7.4).

use holdfast_bfd::{Algorithm, Key, Profile, Rejected, State, UsedKey};
use holdfast_bfd_wire::{Authentication, Received};

use crate::tests::pair::{Pair, ms, profile};

fn used(id: u8, algorithm: Algorithm, secret: &str, send: bool) -> UsedKey {
    UsedKey { key: Key::new(id, algorithm, secret.as_bytes()).expect("a key"), send, accept: true }
}

fn with(keys: Vec<UsedKey>) -> Profile {
    Profile { keys, ..profile(50, 50, 3) }
}

const ALL: [Algorithm; 4] = [
    Algorithm::KeyedMd5,
    Algorithm::MeticulousKeyedMd5,
    Algorithm::KeyedSha1,
    Algorithm::MeticulousKeyedSha1,
];

#[test]
fn neighbours_with_the_same_key_come_up_and_others_do_not() {
    for algorithm in ALL {
        let right = || with(vec![used(1, algorithm, "secret", true)]);
        let mut pair = Pair::up([right(), right()]);
        pair.run(ms(5000));
        assert!(pair.rejected.iter().all(Vec::is_empty));
        let wrong = [
            with(vec![used(1, algorithm, "other", true)]),
            with(vec![used(2, algorithm, "secret", true)]),
            with(Vec::new()),
        ];
        for wrong in wrong {
            let mut pair = Pair::new([right(), wrong]);
            pair.run(ms(3000));
            assert_eq!(pair.states(), [State::Down; 2]);
            assert!(pair.rejected.iter().flatten().all(|rejected| *rejected == Rejected::Unauthentic));
            assert_eq!(pair.session(0).counters().unauthentic, pair.rejected[0].len() as u64);
        }
    }
}

#[test]
fn a_key_is_replaced_while_the_session_is_up() {
    let old = |send| used(1, Algorithm::KeyedSha1, "old", send);
    let new = |send| used(2, Algorithm::MeticulousKeyedSha1, "new", send);
    let mut pair = Pair::up([with(vec![old(true)]), with(vec![old(true)])]);
    let steps = [vec![old(true), new(false)], vec![old(false), new(true)], vec![new(true)]];
    for keys in steps {
        for end in 0..2 {
            pair.set(end, with(keys.clone()));
            pair.run(ms(120));
        }
    }
    assert_eq!(pair.states(), [State::Up; 2]);
    assert!(pair.changes.iter().flatten().all(|(.., change)| !change.has_failed));
}

#[test]
fn a_packet_that_is_repeated_or_from_far_ahead_is_not_believed() {
    for (algorithm, repeats) in [(Algorithm::MeticulousKeyedSha1, false), (Algorithm::KeyedSha1, true)] {
        let right = || with(vec![used(1, algorithm, "secret", true)]);
        let mut pair = Pair::up([right(), right()]);
        let early = pair.sent[1][pair.sent[1].len() - 12].1;
        let last = pair.sent[1].last().expect("packets").1;
        assert_eq!(pair.hand(0, early.as_slice()).err(), Some(Rejected::Unauthentic));
        assert_eq!(pair.hand(0, last.as_slice()).is_ok(), repeats, "{algorithm:?}");
        // Ten packets were lost, which are more than three times Detect Mult.
        let (received, key) = (Received::read(last.as_slice()).expect("a packet"), &right().keys[0].key);
        let Some(Authentication::Digest { sequence, .. }) = received.authentication else { panic!("signed") };
        let ahead = received.packet.write(Some((key, sequence.wrapping_add(10))));
        assert_eq!(pair.hand(0, ahead.as_slice()).err(), Some(Rejected::Unauthentic));
        let within = received.packet.write(Some((key, sequence.wrapping_add(9))));
        assert!(pair.hand(0, within.as_slice()).is_ok());
    }
}

#[test]
fn a_neighbour_that_begins_anew_is_believed_after_twice_the_detection_time() {
    let right = || with(vec![used(1, Algorithm::MeticulousKeyedSha1, "secret", true)]);
    let mut pair = Pair::up([right(), right()]);
    let mut other = Pair::new([right(), right()]);
    // Another life of the second end, which knows no numbers.
    std::mem::swap(&mut pair.engines[1], &mut other.engines[1]);
    pair.ids[1] = other.ids[1];
    let begin = pair.now;
    while pair.states() != [State::Up; 2] {
        pair.run(ms(10));
        assert!(pair.now - begin < ms(3000), "{:?}", pair.states());
    }
    assert!(!pair.rejected[0].is_empty(), "at first its numbers are wrong");
}
