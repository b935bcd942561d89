//! What must hold whatever happens: random events in any order, judged by a driver's bookkeeping.

use std::{collections::BTreeMap, time::Duration};

use holdfast_bgp_session::{
    Bfd, ConnId, Counted, Disposition, Input, Output, PeerConfig, State, StopReason, Timer,
};
use holdfast_bgp_wire::{Capability, HEADER_LEN, MessageType, Notification, Open};
use holdfast_types::Family;
use proptest::{collection::vec, prelude::*, sample::Index};

use crate::tests::session::solo::{
    Solo, config, graceful_open, peer_open, router_id, ruled, sent, strict, strict_open,
};

/// What may happen. An `Index` picks one of the connections.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Start,
    Stop(StopReason),
    Accepted,
    Connected(Index),
    ConnectFailed(Index),
    Closed(Index),
    Open(Index, Open),
    Message(Index, MessageType, Vec<u8>),
    FramingError(Index),
    UpdateRefused(Index),
    Sent(Index),
    Bfd(Bfd),
    /// An input for a connection that does not exist.
    Stale(u32, MessageType),
    Timeout,
    Pass(Duration),
    /// Until the next timer.
    Next,
}

fn any_kind() -> impl Strategy<Value = MessageType> {
    use MessageType::{KeepAlive, Notification, Open, RouteRefresh, Update};
    prop_oneof![Just(Open), Just(Update), Just(Notification), Just(KeepAlive), Just(RouteRefresh)]
}

fn any_stop() -> impl Strategy<Value = StopReason> {
    let max = |restart: Option<u64>| StopReason::MaxPrefixes {
        family: Family::IPV4_UNICAST,
        counted: Counted::Received,
        limit: 9,
        restart: restart.map(Duration::from_secs),
    };
    prop_oneof![
        Just(StopReason::AdminShutdown("bye".into())),
        Just(StopReason::AdminReset(String::new())),
        Just(StopReason::PeerDeconfigured),
        Just(StopReason::OtherConfigChange),
        Just(StopReason::OutOfResources),
        proptest::option::of(0_u64..100).prop_map(max),
    ]
}

fn any_bfd() -> impl Strategy<Value = Bfd> {
    let down = any::<bool>().prop_map(|independent| Bfd::Down { independent });
    prop_oneof![Just(Bfd::Unknown), Just(Bfd::AdminDown), down, Just(Bfd::Up)]
}

fn any_open() -> impl Strategy<Value = Open> {
    (prop_oneof![Just(peer_open()), Just(graceful_open()), Just(strict_open())], 1_u32..4)
        .prop_map(|(open, id)| Open { router_id: router_id(id), ..open })
}

pub(crate) fn any_op() -> impl Strategy<Value = Op> {
    let index = any::<Index>;
    prop_oneof![
        2 => Just(Op::Start),
        1 => any_stop().prop_map(Op::Stop),
        4 => Just(Op::Accepted),
        8 => index().prop_map(Op::Connected),
        1 => index().prop_map(Op::ConnectFailed),
        1 => index().prop_map(Op::Closed),
        12 => (index(), any_open()).prop_map(|(which, open)| Op::Open(which, open)),
        12 => index().prop_map(|which| Op::Message(which, MessageType::KeepAlive, Vec::new())),
        2 => (index(), any_kind(), vec(any::<u8>(), 0..40)).prop_map(|(i, kind, body)| Op::Message(i, kind, body)),
        1 => index().prop_map(Op::FramingError),
        1 => index().prop_map(Op::UpdateRefused),
        1 => index().prop_map(Op::Sent),
        3 => any_bfd().prop_map(Op::Bfd),
        1 => (any::<u32>(), any_kind()).prop_map(|(id, kind)| Op::Stale(id, kind)),
        1 => Just(Op::Timeout),
        3 => (0_u64..100_000).prop_map(|ms| Op::Pass(Duration::from_millis(ms))),
        6 => Just(Op::Next),
    ]
}

pub(crate) fn any_config() -> impl Strategy<Value = PeerConfig> {
    let times = prop_oneof![Just(0), Just(3), Just(90)];
    (any::<[bool; 2]>(), times, 1_u32..4).prop_map(|([passive, waits], hold_time, id)| {
        let config = if waits { strict(config()) } else { config() };
        PeerConfig { hold_time, router_id: router_id(id), ..ruled(config, |rules| rules.passive = passive) }
    })
}

/// What a driver knows of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    dialling: bool,
    notified: bool,
}

/// A peer with the bookkeeping of its driver, which judges every output.
pub(crate) struct Judge {
    pub(crate) solo: Solo,
    pub(crate) known: BTreeMap<ConnId, Known>,
    pub(crate) up: Option<ConnId>,
    pub(crate) sessions: u64,
    pub(crate) next_accepted: u32,
    /// All outputs.
    pub(crate) said: Vec<Output>,
}

/// One input causes no more than: two connections told, closed and logged, a session down and up.
const MOST_OUTPUTS: usize = 12;

impl Judge {
    pub(crate) fn new(config: PeerConfig) -> Self {
        let (solo, known) = (Solo::new(config), BTreeMap::new());
        Self { solo, known, up: None, sessions: 0, next_accepted: 0, said: Vec::new() }
    }

    fn pick(&self, which: Index) -> Option<ConnId> {
        (!self.known.is_empty()).then(|| *which.get(&self.known.keys().copied().collect::<Vec<_>>()))
    }

    pub(crate) fn apply(&mut self, op: Op) {
        match op {
            Op::Start => self.feed(Input::Start),
            Op::Stop(reason) => self.feed(Input::Stop(reason)),
            Op::Accepted => _ = self.accept(),
            Op::Connected(which) => self.with(which, Self::connected),
            Op::ConnectFailed(which) => self.with(which, |judge, id| {
                judge.known.remove(&id);
                judge.feed(Input::ConnectFailed(id, "connection refused"));
            }),
            Op::Closed(which) => self.with(which, Self::closed),
            Op::Open(which, open) => self.with(which, |judge, id| judge.open(id, &open)),
            Op::Message(which, kind, body) => self.with(which, |judge, id| judge.message(id, kind, &body)),
            Op::FramingError(which) => {
                let error = Notification::bad_message_type(9);
                self.with(which, |judge, id| judge.feed(Input::FramingError(id, error.clone())));
            }
            Op::UpdateRefused(which) => {
                let error = Notification { code: 3, subcode: 1, data: Vec::new() };
                self.with(which, |judge, id| judge.feed(Input::UpdateRefused(id, error.clone())));
            }
            Op::Sent(which) => self.with(which, |judge, id| judge.feed(Input::Sent(id))),
            Op::Bfd(bfd) => self.feed(Input::Bfd(bfd)),
            Op::Stale(id, kind) => self.stale(ConnId(id), kind),
            Op::Timeout => self.timeout(),
            Op::Pass(time) => self.pass(time),
            Op::Next => {
                let until = self.solo.peer.poll_timeout().unwrap_or(self.solo.now);
                self.pass(until.saturating_duration_since(self.solo.now));
            }
        }
    }

    fn with(&mut self, which: Index, act: impl Fn(&mut Self, ConnId)) {
        if let Some(id) = self.pick(which) {
            act(self, id);
        }
    }

    fn accept(&mut self) -> ConnId {
        let id = ConnId(self.next_accepted);
        self.next_accepted += 1;
        self.known.insert(id, Known { dialling: false, notified: false });
        self.feed(Input::Accepted(id));
        id
    }

    fn connected(&mut self, id: ConnId) {
        if let Some(known) = self.known.get_mut(&id).filter(|known| known.dialling) {
            known.dialling = false;
            self.feed(Input::Connected(id));
        }
    }

    pub(crate) fn closed(&mut self, id: ConnId) {
        self.known.remove(&id);
        self.feed(Input::Closed(id, None));
    }

    fn open(&mut self, id: ConnId, open: &Open) {
        self.message(id, MessageType::Open, &open.encode()[HEADER_LEN..]);
    }

    fn message(&mut self, id: ConnId, kind: MessageType, body: &[u8]) {
        let in_session = self.up == Some(id);
        self.feed(Input::Message(id, kind, body));
        let for_pipeline = matches!(kind, MessageType::Update | MessageType::RouteRefresh);
        let expected = if in_session && for_pipeline { Disposition::Deliver } else { Disposition::Done };
        assert_eq!(self.solo.disposition, expected);
    }

    fn stale(&mut self, id: ConnId, kind: MessageType) {
        if !self.known.contains_key(&id) {
            let before = (self.solo.peer.state(), self.solo.peer.poll_timeout());
            for input in [Input::Message(id, kind, &[]), Input::Closed(id, None), Input::Connected(id)] {
                assert_eq!(self.solo.feed(input), []);
            }
            assert_eq!(before, (self.solo.peer.state(), self.solo.peer.poll_timeout()));
        }
    }

    fn timeout(&mut self) {
        self.feed(Input::Timeout);
        let next = self.solo.peer.poll_timeout();
        assert!(next.is_none_or(|at| at > self.solo.now), "no timer is left due: a driver would spin");
    }

    fn pass(&mut self, time: Duration) {
        let until = self.solo.now + time;
        while let Some(at) = self.solo.peer.poll_timeout().filter(|at| *at <= until) {
            assert!(at >= self.solo.now, "no timer is due in the past");
            self.solo.now = at;
            self.timeout();
        }
        self.solo.now = until;
    }

    fn feed(&mut self, input: Input<'_>) {
        let outputs = self.solo.feed(input);
        assert!(outputs.len() <= MOST_OUTPUTS, "{outputs:?}");
        outputs.iter().for_each(|output| self.see(output));
        self.said.extend(outputs);
        self.check();
    }

    fn see(&mut self, output: &Output) {
        match output {
            Output::Connect(id) => {
                assert!(!self.solo.peer.config().rules.passive, "a passive peer never dials");
                let twice = self.known.insert(*id, Known { dialling: true, notified: false });
                assert!(id.is_dialled() && twice.is_none());
            }
            Output::Send(id, _) => {
                let known = self.known.get_mut(id).expect("sends on a connection that lives");
                assert!(!known.dialling && !known.notified, "nothing follows a NOTIFICATION");
                known.notified = matches!(sent(output), Some((_, MessageType::Notification, _)));
            }
            Output::Close(id) => {
                self.known.remove(id).expect("closes a connection that lives");
            }
            Output::Established(id, negotiated) => {
                assert_eq!(self.up.replace(*id), None, "never two Established");
                assert!(self.known.contains_key(id) && !negotiated.families.is_empty());
                self.sessions += 1;
            }
            Output::Down { .. } => {
                self.up.take().expect("Down once for each Established");
            }
            Output::LongLived(_) | Output::Forget(_) | Output::Log(_) => {}
            Output::MarkStale(_) | Output::Sweep(_) => assert!(self.up.is_some()),
        }
    }

    /// What the peer says of itself agrees with what it did.
    pub(crate) fn check(&self) {
        let peer = &self.solo.peer;
        let (state, dialled) = (peer.state(), self.known.keys().filter(|id| id.is_dialled()).count());
        assert!(self.known.len() <= 2 && dialled <= 1, "{:?}", self.known);
        assert!(self.known.values().all(|known| !known.notified), "a NOTIFICATION is followed by the close");
        assert_eq!(self.up.is_some(), state == State::Established);
        assert_eq!(self.up, self.up.and(peer.connection().map(|(id, _)| id)));
        assert_eq!(peer.negotiated().is_some(), self.up.is_some());
        assert_eq!(peer.history().established, self.sessions);
        let open = self.known.values().filter(|known| !known.dialling).count();
        match state {
            State::Idle | State::Active => assert!(self.known.is_empty()),
            State::Connect => assert_eq!((dialled, open), (1, 0)),
            State::OpenSent | State::OpenConfirm | State::Established => assert!(open > 0),
        }
        self.check_timers(state);
    }

    fn check_timers(&self, state: State) {
        let peer = &self.solo.peer;
        let runs = |timer| peer.deadline(timer).is_some();
        // Every OPEN of these tests that is accepted proposes 90 seconds.
        let timed = peer.config().hold_time != 0;
        let in_session = matches!(state, State::OpenConfirm | State::Established);
        // Another connection may be in OpenSent as well, and not have heard the peer's OPEN.
        if timed || !peer.awaits_bfd() {
            let holds = state == State::OpenSent || in_session && timed;
            assert_eq!(runs(Timer::Hold), holds, "hold timer in {state}");
        }
        assert!(!runs(Timer::BfdHold) || peer.awaits_bfd() && !timed);
        assert_eq!(runs(Timer::Keepalive), in_session && timed);
        assert_eq!(runs(Timer::SendHold), state == State::Established && timed);
        let dials = matches!(state, State::Connect | State::Active) && !peer.config().rules.passive;
        assert_eq!(runs(Timer::ConnectRetry), dials, "connect retry in {state}");
        assert!(!runs(Timer::IdleHold) || state == State::Idle);
    }

    /// Whatever was before: started again, with a peer that behaves, the session comes up.
    pub(crate) fn comes_up(&mut self) {
        while let Some(id) = self.known.keys().next().copied() {
            self.closed(id);
        }
        self.feed(Input::Start);
        let dialled = self.known.iter().find(|(_, known)| known.dialling).map(|(id, _)| *id);
        let id = match dialled {
            Some(id) => {
                self.connected(id);
                id
            }
            None => self.accept(),
        };
        self.open(id, &Open { router_id: router_id(77), ..peer_open() });
        self.message(id, MessageType::KeepAlive, &[]);
        assert_eq!(self.up, Some(id));
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(2000))]

    #[test]
    fn every_order_of_events_keeps_the_promises(config in any_config(), ops in vec(any_op(), 0..80)) {
        let mut judge = Judge::new(config);
        for op in ops {
            judge.apply(op);
        }
        judge.comes_up();
    }

    #[test]
    fn no_open_message_makes_it_stumble(body in vec(any::<u8>(), 0..80), id in 1_u32..4) {
        let mut judge = Judge::new(config());
        judge.apply(Op::Start);
        judge.connected(ConnId::FIRST_DIALLED);
        let mut open = Open { router_id: router_id(id), ..peer_open() };
        open.capabilities.push(Capability::Unknown { code: 77, value: body.clone() });
        let mut wire = open.encode().split_off(HEADER_LEN);
        for (place, flip) in body.iter().enumerate().take(3) {
            let at = usize::from(*flip) % wire.len();
            wire[at] ^= 1 << (place % 8);
        }
        // A hold time of zero is another machine: see the bookkeeping.
        prop_assume!(wire[3..5] != [0, 0]);
        judge.message(ConnId::FIRST_DIALLED, MessageType::Open, &wire);
    }
}
