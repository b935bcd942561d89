//! Two engines on a link, with a clock of their own.

use std::{
    collections::VecDeque,
    net::IpAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bfd::{
    Change, Datagram, Engine, Hops, Octets, Path, Profile, Rejected, Session, SessionId, State,
};
use holdfast_types::HashKey;

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) fn profile(transmit: u64, receive: u64, detect_multiplier: u8) -> Profile {
    Profile {
        transmit_interval: ms(transmit),
        receive_interval: ms(receive),
        detect_multiplier,
        ..Profile::default()
    }
}

/// The addresses of the two ends.
pub(crate) fn address(end: usize) -> IpAddr {
    IpAddr::from([192, 0, 2, 1 + end as u8])
}

/// The way from an end to the other one.
pub(crate) fn path(end: usize) -> Path {
    Path { remote: address(1 - end), local: None, interface: Some(7), hops: Hops::Single }
}

pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) engines: [Engine; 2],
    pub(crate) ids: [SessionId; 2],
    /// Whether packets to an end arrive.
    pub(crate) arrives: [bool; 2],
    /// What each end has sent, and when.
    pub(crate) sent: [Vec<(Instant, Octets)>; 2],
    pub(crate) changes: [Vec<(Instant, State, Change)>; 2],
    pub(crate) rejected: [Vec<Rejected>; 2],
}

impl Pair {
    pub(crate) fn new(profiles: [Profile; 2]) -> Self {
        let now = Instant::now();
        let mut engines = [1, 2].map(|seed| Engine::new(HashKey::new([seed, 9]), 16));
        let mut profiles = profiles.into_iter().map(Rc::new);
        let ids = [0, 1].map(|end| {
            let profile = profiles.next().expect("two");
            engines[end].open(now, path(end), profile).expect("room")
        });
        let (sent, changes, rejected) = Default::default();
        Self { now, engines, ids, arrives: [true; 2], sent, changes, rejected }
    }

    pub(crate) fn session(&self, end: usize) -> &Session {
        self.engines[end].session(self.ids[end]).expect("a session")
    }

    pub(crate) fn states(&self) -> [State; 2] {
        [0, 1].map(|end| self.session(end).state())
    }

    pub(crate) fn set(&mut self, end: usize, profile: Profile) {
        self.engines[end].set_profile(self.now, self.ids[end], Rc::new(profile));
    }

    /// Hands octets of the other end to an end.
    pub(crate) fn hand(&mut self, end: usize, octets: &[u8]) -> Result<SessionId, Rejected> {
        let datagram = Datagram {
            octets,
            source: address(1 - end),
            destination: Some(address(end)),
            interface: Some(7),
            ttl: Some(255),
            hops: Hops::Single,
        };
        let result = self.engines[end].receive(self.now, &datagram);
        self.rejected[end].extend(result.err());
        self.take_changes(end);
        result
    }

    pub(crate) fn take_changes(&mut self, end: usize) {
        while let Some(change) = self.engines[end].poll_change() {
            let state = self.engines[end].session(change.session).map_or(State::AdminDown, Session::state);
            self.changes[end].push((self.now, state, change));
        }
    }

    /// Everything that is due now, until nobody has anything to say.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100 {
            let mut waiting: VecDeque<(usize, Octets)> = VecDeque::new();
            for end in 0..2 {
                self.engines[end].advance(self.now);
                self.take_changes(end);
                while let Some(transmit) = self.engines[end].poll_transmit(self.now) {
                    self.sent[end].push((self.now, transmit.octets));
                    waiting.push_back((1 - end, transmit.octets));
                }
            }
            if waiting.is_empty() {
                return;
            }
            for (end, octets) in waiting {
                if self.arrives[end] {
                    // What comes of it is in `rejected`.
                    let _ = self.hand(end, octets.as_slice());
                }
            }
        }
        panic!("they never stop talking");
    }

    /// Lets this time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.settle();
            let next = self.engines.iter().filter_map(Engine::next_deadline).min();
            match next.filter(|next| *next <= end) {
                Some(next) => self.now = next.max(self.now),
                None => break,
            }
        }
        self.now = end;
        self.settle();
    }

    /// A pair that is Up, and has agreed on its intervals.
    pub(crate) fn up(profiles: [Profile; 2]) -> Self {
        let mut pair = Self::new(profiles);
        pair.run(ms(5000));
        assert_eq!(pair.states(), [State::Up; 2]);
        pair
    }

    /// The times between packets that an end sent since then.
    pub(crate) fn gaps(&self, end: usize, since: Instant) -> Vec<Duration> {
        let times: Vec<_> = self.sent[end].iter().map(|(at, _)| *at).filter(|at| *at >= since).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}
