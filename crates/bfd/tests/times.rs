//! Intervals, jitter, Poll Sequences, Demand mode (RFC 5880 sections 6.5, 6.6, 6.8.2 to 6.8.7).

use std::time::Duration;

use holdfast_bfd::{Profile, State};

use crate::tests::pair::{Pair, ms, profile};

const POLL: u8 = 0x20;
const FINAL: u8 = 0x10;
const DEMAND: u8 = 0x02;

#[test]
fn while_a_session_is_not_up_a_packet_is_sent_each_second_and_then_at_the_slower_interval() {
    let mut pair = Pair::new([profile(50, 50, 3), profile(50, 200, 3)]);
    pair.arrives = [false; 2];
    let begin = pair.now;
    pair.run(ms(20_000));
    let slow = pair.gaps(0, begin);
    assert!(slow.iter().all(|gap| (ms(750)..=ms(1000)).contains(gap)), "{slow:?}");
    pair.arrives = [true; 2];
    pair.run(ms(2000));
    let up = pair.now;
    pair.run(ms(10_000));
    let (fast, slow) = (pair.gaps(1, up), pair.gaps(0, up));
    assert!(fast.iter().all(|gap| (ms(37)..=ms(50)).contains(gap)), "{fast:?}");
    assert!(slow.iter().all(|gap| (ms(150)..=ms(200)).contains(gap)), "the neighbour wants no more");
    let average = slow.iter().sum::<Duration>() / slow.len() as u32;
    assert!((ms(165)..=ms(190)).contains(&average), "{average:?}");
}

#[test]
fn with_a_multiplier_of_one_packets_come_after_ninety_percent_of_the_interval() {
    let mut pair = Pair::up([profile(100, 100, 1), profile(100, 100, 1)]);
    let begin = pair.now;
    pair.run(ms(10_000));
    assert!(pair.gaps(0, begin).iter().all(|gap| (ms(75)..=ms(90)).contains(gap)));
    assert_eq!(pair.states(), [State::Up; 2]);
}

#[test]
fn other_intervals_are_confirmed_before_they_would_make_the_neighbour_wait_longer() {
    let mut pair = Pair::up([profile(50, 50, 3), profile(50, 50, 3)]);
    pair.set(0, profile(400, 50, 3));
    let before = pair.session(0).transmit_interval();
    assert_eq!(before, ms(50), "the neighbour has not confirmed it");
    // The question is lost.
    pair.arrives[1] = false;
    pair.settle();
    assert_eq!(pair.session(0).transmit_interval(), ms(50));
    pair.arrives[1] = true;
    pair.run(ms(100));
    assert_eq!((pair.session(0).transmit_interval(), pair.session(1).detection_time()), (ms(400), ms(1200)));
    let asked = pair.sent[0].iter().filter(|(_, octets)| octets.as_slice()[1] & POLL != 0).count();
    let answered = pair.sent[1].iter().filter(|(_, octets)| octets.as_slice()[1] & FINAL != 0).count();
    assert!(asked >= 2 && answered >= 1, "{asked} {answered}");
    pair.run(ms(10_000));
    assert_eq!(pair.states(), [State::Up; 2]);
    assert!(pair.changes.iter().flatten().all(|(.., change)| !change.has_failed));
}

#[test]
fn a_shorter_detection_time_begins_when_the_neighbour_sends_more_often() {
    let mut pair = Pair::up([profile(50, 1000, 3), profile(50, 50, 3)]);
    assert_eq!(pair.session(0).detection_time(), ms(3000));
    pair.set(0, profile(50, 50, 3));
    assert_eq!(pair.session(0).detection_time(), ms(3000));
    pair.run(ms(50));
    assert_eq!(pair.session(0).detection_time(), ms(150));
    pair.run(ms(5000));
    assert!(pair.changes.iter().flatten().all(|(.., change)| !change.has_failed));
}

#[test]
fn no_packet_has_both_poll_and_final() {
    let mut pair = Pair::up([profile(50, 50, 3), profile(60, 60, 3)]);
    for round in 0..50 {
        pair.set(round % 2, profile(50 + round as u64, 60, 3));
        pair.set(1 - round % 2, profile(70 - round as u64, 50, 3));
        pair.run(ms(30));
    }
    let both = |octets: &[u8]| octets[1] & (POLL | FINAL) == POLL | FINAL;
    assert!(!pair.sent.iter().flatten().any(|(_, octets)| both(octets.as_slice())));
    assert_eq!(pair.states(), [State::Up; 2]);
}

#[test]
fn a_neighbour_in_demand_mode_gets_no_periodic_packets_but_answers() {
    let mut pair = Pair::up([profile(50, 50, 3), profile(50, 50, 3)]);
    // What the neighbour sent last, with D.
    let mut octets = pair.sent[1].last().expect("packets").1.as_slice().to_vec();
    octets[1] = octets[1] & !FINAL | DEMAND;
    pair.arrives = [false; 2];
    pair.hand(0, &octets).expect("taken");
    assert!(pair.session(0).is_demand_active());
    let begin = pair.now;
    for _ in 0..20 {
        pair.run(ms(40));
        pair.hand(0, &octets).expect("taken");
    }
    let periodic = pair.sent[0].iter().filter(|(at, _)| *at > begin).count();
    assert_eq!(periodic, 0);
    octets[1] |= POLL;
    pair.hand(0, &octets).expect("taken");
    pair.settle();
    let (at, last) = pair.sent[0].last().expect("an answer");
    assert_eq!((*at, last.as_slice()[1] & (POLL | FINAL)), (pair.now, FINAL));
    // A change of our intervals is confirmed by it all the same.
    pair.set(0, profile(500, 50, 3));
    pair.settle();
    assert!(pair.sent[0].last().is_some_and(|(_, octets)| octets.as_slice()[1] & POLL != 0));
}

#[test]
fn a_neighbour_that_wants_no_packets_gets_none_periodically() {
    let mut pair = Pair::up([profile(50, 50, 3), profile(50, 50, 3)]);
    let mut octets = pair.sent[1].last().expect("packets").1.as_slice().to_vec();
    octets[16..20].fill(0);
    pair.arrives = [false; 2];
    let begin = pair.now;
    for _ in 0..20 {
        pair.hand(0, &octets).expect("taken");
        pair.run(ms(40));
    }
    assert!(pair.sent[0].iter().filter(|(at, _)| *at > begin).count() == 0);
    // It is away: nobody knows what it wants now.
    pair.run(ms(3000));
    assert!(pair.sent[0].iter().any(|(at, _)| *at > begin + ms(1500)));
}

#[test]
fn a_quicker_neighbour_is_served_at_once() {
    let mut pair =
        Pair::up([profile(50, 50, 3), Profile { receive_interval: ms(2000), ..profile(50, 50, 3) }]);
    pair.run(ms(500));
    pair.set(1, profile(50, 50, 3));
    let begin = pair.now;
    pair.run(ms(200));
    let first = pair.sent[0].iter().find(|(at, octets)| *at >= begin && octets.as_slice()[1] & FINAL == 0);
    assert!(first.is_some_and(|(at, _)| *at - begin <= ms(50)), "it does not wait for the old interval");
}

#[test]
fn packets_of_many_sessions_leave_together_and_none_too_early() {
    let now = std::time::Instant::now();
    let mut engine = holdfast_bfd::Engine::new(holdfast_types::HashKey::new([5, 6]), 64);
    let path = |number: u8| holdfast_bfd::Path {
        remote: std::net::IpAddr::from([192, 0, 2, number]),
        ..crate::tests::pair::path(0)
    };
    for number in 0..64 {
        engine.open(now, path(number), Profile::default().into()).expect("room");
    }
    let (mut now, end) = (now, now + ms(60_000));
    let (mut wakes, mut sent) = (0, std::collections::BTreeMap::<_, Vec<_>>::new());
    while now < end {
        engine.advance(now);
        wakes += 1;
        while let Some(transmit) = engine.poll_transmit(now) {
            sent.entry(transmit.session).or_default().push(now);
        }
        now = engine.next_deadline().expect("always").max(now);
    }
    let packets: usize = sent.values().map(Vec::len).sum();
    assert!(packets > 64 * 60 && wakes < packets, "{wakes} times for {packets} packets");
    let gaps = sent.values().flat_map(|times| times.windows(2).map(|pair| pair[1] - pair[0]));
    assert!(gaps.into_iter().all(|gap| (ms(750)..=ms(1000)).contains(&gap)));
}
