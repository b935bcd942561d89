//! Rules of RFC 5880 that no other test has: docs/musts/rfc5880.toml names them.

use std::{collections::HashSet, time::Instant};

use holdfast_bfd::{
    Algorithm, Diagnostic, Engine, Hops, Key, Path, Profile, Rejected, Session, State, UsedKey,
};
use holdfast_bfd_wire::{Authentication, Flags, Packet, Received};
use holdfast_types::HashKey;

use crate::tests::pair::{Pair, ms, path, profile};

fn fast() -> Profile {
    profile(50, 50, 3)
}

impl Pair {
    /// What an end has sent last.
    fn said(&self, end: usize) -> Packet {
        Received::read(self.sent[end].last().expect("packets").1.as_slice()).expect("a packet").packet
    }

    /// Hands a packet of the second end to the first one, which then says what it has to say.
    fn say(&mut self, packet: Packet) -> Result<(), Rejected> {
        self.hand(0, packet.write(None).as_slice())?;
        self.settle();
        Ok(())
    }

    /// A pair of which only the first end lives, in this state.
    fn alone(state: State) -> Self {
        let mut pair = Self::new([fast(), fast()]);
        pair.arrives = [false; 2];
        let heard: &[State] = match state {
            State::Down => &[],
            State::AdminDown => &[State::AdminDown],
            State::Init => &[State::Down],
            State::Up => &[State::Init],
        };
        pair.settle();
        for &state in heard {
            let packet = pair.neighbour_says(state);
            pair.say(packet).expect("believed");
        }
        if state == State::AdminDown {
            pair.engines[0].close(pair.now, pair.ids[0]);
        }
        assert_eq!(pair.session(0).state(), state);
        pair
    }

    fn neighbour_says(&self, state: State) -> Packet {
        let (my_discriminator, your_discriminator) = (7, self.session(0).discriminator());
        Packet { state, my_discriminator, your_discriminator, ..Packet::default() }
    }
}

const ALL: [State; 4] = [State::AdminDown, State::Down, State::Init, State::Up];

#[test]
fn the_first_packet_says_what_a_session_is_at_first() {
    let mut pair = Pair::new([profile(50, 50, 0), fast()]);
    pair.arrives = [false; 2];
    pair.settle();
    let first = Packet {
        detect_multiplier: 1,
        my_discriminator: pair.session(0).discriminator(),
        desired_min_tx: 1_000_000,
        required_min_rx: 50_000,
        flags: Flags { control_plane_independent: true, ..Flags::default() },
        ..Packet::default()
    };
    assert_eq!(pair.said(0), first);
    let session = pair.session(0);
    assert_eq!((session.state(), session.remote_state()), (State::Down, State::Down));
    assert_eq!((session.remote_discriminator(), session.diagnostic()), (0, Diagnostic::NONE));
    assert!(!session.is_demand_active() && session.remote_intervals()[1] <= ms(1));
}

#[test]
fn no_two_sessions_have_the_same_discriminator() {
    let (now, most) = (Instant::now(), 150_000_u32);
    let mut engine = Engine::new(HashKey::new([1, 2]), most as usize);
    for number in 0..most {
        let path =
            Path { interface: None, hops: Hops::Multiple, remote: number.to_be_bytes().into(), ..path(0) };
        engine.open(now, path, Profile::default().into()).expect("room");
    }
    // Of so many random numbers some would be the same.
    let all: HashSet<_> = engine.sessions().map(|(_, session)| session.discriminator()).collect();
    assert!(all.len() == most as usize && !all.contains(&0), "{}", all.len());
}

#[test]
fn each_state_goes_on_as_the_rfc_draws_it() {
    for (number, state) in ALL.into_iter().enumerate() {
        // For AdminDown, Down, Init and Up of the neighbour.
        let expected = match state {
            State::AdminDown => [State::AdminDown; 4],
            State::Down => [State::Down, State::Init, State::Up, State::Down],
            State::Init => [State::Down, State::Init, State::Up, State::Up],
            State::Up => [State::Down, State::Down, State::Up, State::Up],
        };
        for (heard, expected) in ALL.into_iter().zip(expected) {
            let mut pair = Pair::alone(state);
            let packet = pair.neighbour_says(heard);
            pair.say(packet).expect("believed");
            assert_eq!(pair.session(0).state(), expected, "{state} hears {heard}");
            assert_eq!(pair.session(0).remote_state(), heard, "{number}");
            if expected == State::Down && state != State::Down {
                assert_eq!(pair.said(0).diagnostic, Diagnostic::NEIGHBOR_SIGNALED_DOWN);
            }
        }
    }
}

#[test]
fn a_question_is_answered_at_once_in_each_state() {
    for state in ALL {
        for demand in [false, true] {
            let mut pair = Pair::alone(state);
            pair.settle();
            let before = pair.sent[0].len();
            let mut packet =
                pair.neighbour_says(if state == State::Up { State::Up } else { State::AdminDown });
            packet.flags = Flags { poll: true, demand, ..Flags::default() };
            pair.say(packet).expect("believed");
            let answers = pair.sent[0][before..].iter().map(|(at, octets)| {
                let flags = Received::read(octets.as_slice()).expect("a packet").packet.flags;
                (*at, flags.is_final, flags.poll && flags.is_final)
            });
            let answers: Vec<_> = answers.filter(|(_, is_final, _)| *is_final).collect();
            assert_eq!(answers, [(pair.now, true, false)], "{state} {demand}");
        }
    }
}

#[test]
fn a_poll_takes_the_place_of_periodic_packets_and_adds_none() {
    let mut pair = Pair::up([fast(), fast()]);
    pair.set(0, profile(60, 50, 3));
    let begin = pair.now;
    // What would answer it is lost, and then another change is to be asked about.
    pair.arrives[0] = false;
    pair.run(ms(1));
    pair.set(0, profile(70, 50, 3));
    pair.arrives[0] = true;
    pair.run(ms(1000));
    assert_eq!(pair.session(0).transmit_interval(), ms(70));
    let is_final = |octets: &[u8]| octets[1] & 0x10 != 0;
    let sent = pair.sent[0].iter().filter(|(at, octets)| *at > begin + ms(1) && !is_final(octets.as_slice()));
    let times: Vec<_> = sent.map(|(at, _)| *at).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= ms(37)), "no packet comes between");
}

#[test]
fn a_change_while_the_session_is_not_up_is_confirmed_too() {
    for state in [State::Down, State::Init] {
        let mut pair = Pair::alone(state);
        let packet = pair.neighbour_says(State::AdminDown);
        let packet = if state == State::Down { packet } else { pair.neighbour_says(State::Down) };
        pair.say(packet).expect("believed");
        pair.set(0, profile(50, 90, 3));
        pair.settle();
        let said = pair.said(0);
        assert_eq!((said.required_min_rx, said.flags.poll, said.state), (90_000, true, state));
        let answer = Packet { flags: Flags { is_final: true, ..Flags::default() }, ..packet };
        pair.say(answer).expect("believed");
        pair.run(ms(1000));
        assert!(!pair.said(0).flags.poll, "it is confirmed");
    }
    let mut pair = Pair::alone(State::Down);
    pair.set(0, profile(50, 90, 3));
    pair.settle();
    assert_eq!((pair.said(0).required_min_rx, pair.said(0).flags.poll), (90_000, false), "nobody is there");
}

#[test]
fn whatever_changes_is_confirmed_by_a_neighbour_in_demand_mode() {
    let demand = Flags { demand: true, ..Flags::default() };
    let up = || {
        let mut pair = Pair::alone(State::Up);
        let packet = Packet { flags: demand, ..pair.neighbour_says(State::Up) };
        let settled = Packet { flags: Flags { is_final: true, ..demand }, ..packet };
        pair.say(settled).expect("believed");
        pair.say(packet).expect("believed");
        assert!(!pair.said(0).flags.is_final && pair.session(0).is_demand_active());
        (pair, packet)
    };
    let (mut pair, _) = up();
    pair.set(0, profile(50, 50, 7));
    pair.settle();
    assert_eq!((pair.said(0).detect_multiplier, pair.said(0).flags.poll), (7, true));
    let (mut pair, packet) = up();
    pair.say(Packet { my_discriminator: 8, ..packet }).expect("believed");
    assert_eq!((pair.said(0).your_discriminator, pair.said(0).flags.poll), (8, true));
    // The slowest neighbour comes up in Demand mode: no interval changes, but the state does.
    let mut pair = Pair::alone(State::Init);
    pair.set(0, profile(1000, 50, 3));
    let packet = Packet { flags: demand, ..pair.neighbour_says(State::Up) };
    pair.say(packet).expect("believed");
    assert_eq!((pair.said(0).state, pair.said(0).flags.poll), (State::Up, true));
}

#[test]
fn without_demand_mode_periodic_packets_begin_again() {
    let mut pair = Pair::alone(State::Up);
    let mut packet = pair.neighbour_says(State::Up);
    (packet.desired_min_tx, packet.required_min_rx) = (50_000, 50_000);
    packet.flags = Flags { demand: true, is_final: true, ..Flags::default() };
    pair.say(packet).expect("believed");
    let begin = pair.now;
    pair.run(ms(140));
    assert!(pair.gaps(0, begin + ms(1)).is_empty());
    packet.flags = Flags::default();
    pair.say(packet).expect("believed");
    let begin = pair.now;
    pair.run(ms(140));
    assert!(!pair.gaps(0, begin).is_empty());
}

#[test]
fn a_session_that_is_down_is_remembered_for_the_detection_time() {
    let mut pair = Pair::up([fast(), fast()]);
    pair.arrives = [false; 2];
    let packet = Packet { desired_min_tx: 1_000_000, ..pair.neighbour_says(State::Down) };
    pair.say(packet).expect("believed");
    assert_eq!((pair.session(0).state(), pair.session(0).detection_time()), (State::Down, ms(3000)));
    pair.run(ms(2999));
    assert_eq!(pair.session(0).remote_discriminator(), 7);
    assert_eq!(pair.said(0).your_discriminator, 7);
    pair.run(ms(1));
    assert_eq!((pair.session(0).remote_discriminator(), pair.session(0).state()), (0, State::Down));
}

#[test]
fn sequence_numbers_begin_anywhere_and_each_is_one_more() {
    let signed = || {
        let key = Key::new(1, Algorithm::MeticulousKeyedSha1, b"secret").expect("a key");
        Profile { keys: vec![UsedKey { key, send: true, accept: true }], ..fast() }
    };
    let pair = Pair::up([signed(), signed()]);
    let numbers = |end: usize| {
        let sections =
            pair.sent[end].iter().map(|(_, octets)| Received::read(octets.as_slice()).expect("it"));
        let numbers = sections.filter_map(|received| match received.authentication? {
            Authentication::Digest { sequence, .. } => Some(sequence),
            Authentication::Foreign => None,
        });
        numbers.collect::<Vec<_>>()
    };
    let (first, second) = (numbers(0), numbers(1));
    assert!(first.len() == pair.sent[0].len() && first[0] != second[0] && first[0] != 0);
    assert!(first.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)));
}

#[test]
fn a_packet_that_is_discarded_leaves_nothing() {
    let mut pair = Pair::alone(State::Up);
    let before = (pair.session(0).freeze(), pair.sent[0].len());
    let asks = Packet { flags: Flags { poll: true, ..Flags::default() }, ..pair.neighbour_says(State::Down) };
    let signed = asks.write(Some((&Key::new(1, Algorithm::KeyedSha1, b"s").expect("a key"), 1)));
    assert_eq!(pair.hand(0, signed.as_slice()).err(), Some(Rejected::Unauthentic), "no key is configured");
    pair.settle();
    assert_eq!((pair.session(0).freeze(), pair.sent[0].len()), before);
    assert_eq!(pair.engines[0].session(pair.ids[0]).map(Session::state), Some(State::Up));
}

#[test]
fn packets_over_one_hop_and_over_several_go_to_ports_of_their_own() {
    assert_eq!([Hops::Single, Hops::Multiple].map(Hops::port), [3784, 4784]);
}
