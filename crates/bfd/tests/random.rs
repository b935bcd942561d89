//! Two neighbours on a link that loses, repeats and reorders packets, while profiles change, processes die and time jumps.

use std::{
    collections::BTreeMap,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bfd::{
    Algorithm, Datagram, Diagnostic, Engine, Hops, Key, Octets, Profile, Session, SessionId, State, UsedKey,
};
use holdfast_bfd_wire::Received;
use holdfast_types::HashKey;
use proptest::prelude::*;

use crate::tests::pair::{address, ms, path, profile};

#[derive(Clone, Debug)]
enum Op {
    /// Time passes on a link that loses and repeats so many of 100 packets, and delivers each within so many milliseconds.
    Run {
        time: u64,
        lost: u64,
        twice: u64,
        delay: u64,
    },
    /// Nobody has the processor for so long.
    Jump(u64),
    Configure(usize, (u64, u64, u8)),
    /// A process dies; the next one is there after so many milliseconds.
    Restart(usize, u64),
    Close(usize),
    Open(usize),
    PathDown(usize),
    /// An operator's command.
    Begin(usize),
}

fn times() -> impl Strategy<Value = (u64, u64, u8)> {
    (20_u64..=500, 20_u64..=500, 1_u8..=5)
}

fn ops() -> impl Strategy<Value = Op> {
    let run = (1_u64..2000, 0_u64..60, 0_u64..30, 0_u64..200);
    prop_oneof![
        8 => run.prop_map(|(time, lost, twice, delay)| Op::Run { time, lost, twice, delay }),
        1 => (1_u64..3000).prop_map(Op::Jump),
        3 => (0_usize..2, times()).prop_map(|(end, times)| Op::Configure(end, times)),
        2 => (0_usize..2, 0_u64..1500).prop_map(|(end, after)| Op::Restart(end, after)),
        1 => (0_usize..2).prop_map(Op::Close),
        2 => (0_usize..2).prop_map(Op::Open),
        1 => (0_usize..2).prop_map(Op::PathDown),
        1 => (0_usize..2).prop_map(Op::Begin),
    ]
}

struct World {
    now: Instant,
    engines: [Engine; 2],
    ids: [Option<SessionId>; 2],
    profiles: [Profile; 2],
    /// When a packet of the neighbour was believed last, or the process began.
    heard: [Option<Instant>; 2],
    /// Packets on the way, with whom they are for.
    flight: BTreeMap<(Instant, u64), (usize, Octets)>,
    lost: u64,
    twice: u64,
    delay: u64,
    drawn: u64,
    /// When each end has sent packets without F.
    sent: [Vec<Instant>; 2],
}

impl World {
    fn new(seed: u64, profiles: [Profile; 2]) -> Self {
        let engines = [1, 2].map(|end| Engine::new(HashKey::new([seed, end]), 4));
        let mut world = Self {
            now: Instant::now(),
            engines,
            ids: [None; 2],
            profiles,
            heard: [None; 2],
            flight: BTreeMap::new(),
            lost: 0,
            twice: 0,
            delay: 1,
            drawn: seed,
            sent: Default::default(),
        };
        [0, 1].into_iter().for_each(|end| world.open(end));
        world
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.drawn =
            self.drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.drawn >> 33) % bound
    }

    fn session(&self, end: usize) -> Option<&Session> {
        self.engines[end].session(self.ids[end]?)
    }

    fn state(&self, end: usize) -> State {
        self.session(end).map_or(State::AdminDown, Session::state)
    }

    /// Does something at an end. A failure is told if it was Up and is not any more, unless that was wanted.
    fn act<T>(&mut self, end: usize, is_wanted: bool, act: impl FnOnce(&mut Engine, Instant) -> T) -> T {
        let before = self.state(end);
        let result = act(&mut self.engines[end], self.now);
        let has_failed = before == State::Up && self.state(end) != State::Up && !is_wanted;
        let mut told = false;
        while let Some(change) = self.engines[end].poll_change() {
            told |= change.has_failed;
            if change.has_ended && self.ids[end] == Some(change.session) {
                self.ids[end] = None;
            }
        }
        assert_eq!(told, has_failed, "from {before} to {}", self.state(end));
        result
    }

    fn open(&mut self, end: usize) {
        let profile = Rc::new(self.profiles[end].clone());
        let id = self.act(end, false, |engine, now| engine.open(now, path(end), profile)).expect("room");
        self.ids[end] = Some(id);
    }

    /// When the session has not heard anything for the detection time.
    fn expiry(&self, end: usize) -> Option<Instant> {
        let session = self.session(end).filter(|session| session.state() >= State::Init)?;
        Some(self.heard[end].expect("it was heard") + session.detection_time())
    }

    fn advance(&mut self, end: usize) {
        let expiry = self.expiry(end);
        self.act(end, false, Engine::advance);
        let (now, found) = (self.now, self.session(end).map(Session::diagnostic));
        match self.expiry(end) {
            Some(later) => assert!(now < later, "a failure is found late"),
            None if expiry.is_some() && found == Some(Diagnostic::DETECTION_TIME_EXPIRED) => {
                assert!(expiry.is_some_and(|expiry| now >= expiry), "a failure is found that is none");
            }
            None => (),
        }
    }

    fn deliver(&mut self, end: usize, octets: Octets) {
        let received = Received::read(octets.as_slice()).expect("a packet");
        let datagram = Datagram {
            octets: octets.as_slice(),
            source: address(1 - end),
            destination: Some(address(end)),
            interface: Some(7),
            ttl: Some(255),
            hops: Hops::Single,
        };
        let is_wanted = received.packet.state == State::AdminDown;
        let result = self.act(end, is_wanted, |engine, now| engine.receive(now, &datagram));
        if result.is_ok() {
            self.heard[end] = Some(self.now);
        }
    }

    fn send(&mut self, end: usize) {
        while let Some(transmit) = self.engines[end].poll_transmit(self.now) {
            let flags = Received::read(transmit.octets.as_slice()).expect("a packet").packet.flags;
            assert!(!(flags.poll && flags.is_final));
            if !flags.is_final {
                self.sent[end].push(self.now);
            }
            let copies = u64::from(self.below(100) >= self.lost) + u64::from(self.below(100) < self.twice);
            for _ in 0..copies {
                let delay = Duration::from_micros(1000 * self.below(self.delay + 1));
                let number = self.drawn;
                self.flight.insert((self.now + delay, number), (1 - end, transmit.octets));
            }
        }
    }

    /// Everything that is due now.
    fn settle(&mut self) {
        for _ in 0..100 {
            for end in 0..2 {
                self.advance(end);
                self.send(end);
            }
            let Some(arrives) = self.flight.first_entry().filter(|entry| entry.key().0 <= self.now) else {
                return;
            };
            let (end, octets) = arrives.remove();
            self.deliver(end, octets);
            self.send(end);
        }
        panic!("they never stop talking");
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.settle();
            let deadlines = self.engines.iter().filter_map(Engine::next_deadline);
            let next = deadlines.chain(self.flight.keys().next().map(|(at, _)| *at)).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = next.max(self.now);
        }
        self.now = end;
        self.settle();
    }

    fn restart(&mut self, end: usize, after: u64) {
        let frozen = self.session(end).map(Session::freeze);
        let seed = self.below(u64::MAX);
        (self.engines[end], self.ids[end]) = (Engine::new(HashKey::new([seed, 5]), 4), None);
        self.run(ms(after));
        let Some(frozen) = frozen else { return };
        let profile = Rc::new(self.profiles[end].clone());
        match self.act(end, false, |engine, now| engine.thaw(now, &frozen, profile)) {
            Ok(id) => (self.ids[end], self.heard[end]) = (Some(id), Some(self.now)),
            Err(_) => self.open(end),
        }
    }

    fn perform(&mut self, op: &Op) {
        match *op {
            Op::Run { time, lost, twice, delay } => {
                (self.lost, self.twice, self.delay) = (lost, twice, delay);
                self.run(ms(time));
            }
            Op::Jump(time) => self.now += ms(time),
            Op::Configure(end, (transmit, receive, multiplier)) => {
                let Profile { passive, keys, .. } = self.profiles[end].clone();
                self.profiles[end] = Profile { passive, keys, ..profile(transmit, receive, multiplier) };
                if let Some(id) = self.ids[end] {
                    let profile = Rc::new(self.profiles[end].clone());
                    self.act(end, false, |engine, now| engine.set_profile(now, id, profile));
                }
            }
            Op::Restart(end, after) => self.restart(end, after),
            Op::Open(end) => self.open(end),
            Op::Close(end) | Op::PathDown(end) | Op::Begin(end) => {
                let Some(id) = self.ids[end] else { return };
                let is_wanted = !matches!(op, Op::PathDown(_));
                self.act(end, is_wanted, |engine, now| match op {
                    Op::Close(_) => engine.close(now, id),
                    Op::Begin(_) => engine.restart(now, id),
                    _ => engine.path_down(now, id),
                });
            }
        }
    }

    /// Nothing is lost any more, and nothing happens: both are Up within this time, and agree.
    fn recover(&mut self, within: Duration) {
        (self.lost, self.twice, self.delay) = (0, 0, 0);
        [0, 1].into_iter().for_each(|end| self.open(end));
        self.run(within);
        assert_eq!([0, 1].map(|end| self.state(end)), [State::Up; 2]);
        self.run(ms(3000));
        let begin = self.now;
        self.run(ms(5000));
        for end in 0..2 {
            let (own, other) = (&self.profiles[end], &self.profiles[1 - end]);
            let interval = own.transmit_interval.max(other.receive_interval);
            let detection = own.receive_interval.max(other.transmit_interval);
            let session = self.session(end).expect("a session");
            assert_eq!(session.transmit_interval(), interval);
            assert_eq!(session.detection_time(), detection * u32::from(other.detect_multiplier));
            assert!(
                session.state() == State::Up && self.now - session.since() >= ms(8000),
                "it has stayed Up"
            );
            let most = if own.detect_multiplier == 1 { interval * 9 / 10 } else { interval };
            let times: Vec<_> = self.sent[end].iter().filter(|at| **at >= begin).collect();
            let gaps: Vec<_> = times.windows(2).map(|pair| *pair[1] - *pair[0]).collect();
            // Parts of a microsecond are cut off.
            let least = interval * 3 / 4 - Duration::from_micros(1);
            assert!(gaps.len() >= 8 && gaps.iter().all(|gap| (least..=most).contains(gap)), "{gaps:?}");
        }
    }
}

fn keys(which: usize) -> Vec<UsedKey> {
    let algorithm = [Algorithm::KeyedSha1, Algorithm::MeticulousKeyedSha1].get(which);
    let key = algorithm.map(|algorithm| Key::new(1, *algorithm, b"secret").expect("a key"));
    key.into_iter().map(|key| UsedKey { key, send: true, accept: true }).collect()
}

proptest! {
    #![proptest_config(holdfast_testing::cases(200))]

    #[test]
    fn whatever_happens_both_are_up_when_it_has_stopped(
        seed: u64, which in 0_usize..4, passive in prop::bool::weighted(0.2), first in times(), second in times(),
        ops in prop::collection::vec(ops(), 0..25),
    ) {
        let with = |(transmit, receive, multiplier), passive| Profile {
            keys: keys(which), passive, ..profile(transmit, receive, multiplier)
        };
        let mut world = World::new(seed, [with(first, passive), with(second, false)]);
        ops.iter().for_each(|op| world.perform(op));
        // Sequence numbers are forgotten after twice the detection time, and the neighbour of a passive end after all of it.
        let within = if passive || which < 2 { ms(25_000) } else { ms(3000) };
        world.recover(within);
    }
}
