//! Two peers over a simulated network, in virtual time.

use std::time::{Duration, Instant};

use holdfast_bgp_session::{ConnId, DownReason, Input, Output, Peer, PeerConfig, State};
use holdfast_bgp_wire::next_message;

/// A transport connection: who dialled, what each end calls it and whether that end still has it.
struct Wire {
    ids: [Option<ConnId>; 2],
    /// Deliveries to each end are in order.
    last: [Instant; 2],
}

/// What is on its way to one end of a wire.
enum Delivery {
    Accepted,
    Connected,
    Refused,
    Data(Vec<u8>),
    End,
}

struct Event {
    at: Instant,
    wire: usize,
    to: usize,
    what: Delivery,
}

pub(crate) struct World {
    pub(crate) now: Instant,
    born: Instant,
    pub(crate) peers: [Peer; 2],
    /// All outputs with the time since the start.
    pub(crate) outputs: [Vec<(Duration, Output)>; 2],
    wires: Vec<Wire>,
    events: Vec<Event>,
    /// Nothing arrives any more.
    pub(crate) cut: bool,
    /// What this one sends stays in its buffer.
    pub(crate) stalled: [bool; 2],
    /// This one has no listening socket.
    pub(crate) deaf: [bool; 2],
    latency: Box<dyn FnMut() -> Duration>,
}

impl World {
    /// With one millisecond from end to end.
    pub(crate) fn new(configs: [PeerConfig; 2]) -> Self {
        Self::with_latency(configs, 1, || Duration::from_millis(1))
    }

    pub(crate) fn with_latency(
        configs: [PeerConfig; 2],
        seed: u64,
        latency: impl FnMut() -> Duration + 'static,
    ) -> Self {
        let now = Instant::now();
        let [a, b] = configs;
        Self {
            now,
            born: now,
            peers: [Peer::new(a, seed, now), Peer::new(b, seed ^ u64::MAX, now)],
            outputs: [Vec::new(), Vec::new()],
            wires: Vec::new(),
            events: Vec::new(),
            cut: false,
            stalled: [false; 2],
            deaf: [false; 2],
            latency: Box::new(latency),
        }
    }

    /// Both started at once, and run for ten seconds.
    pub(crate) fn up(configs: [PeerConfig; 2]) -> Self {
        let mut world = Self::new(configs);
        world.input(0, Input::Start);
        world.input(1, Input::Start);
        world.run(Duration::from_secs(10));
        assert_eq!(world.states(), [State::Established; 2]);
        world
    }

    pub(crate) fn states(&self) -> [State; 2] {
        [self.peers[0].state(), self.peers[1].state()]
    }

    /// Connections that at least one end still has.
    pub(crate) fn live_wires(&self) -> usize {
        self.wires.iter().filter(|wire| wire.ids.iter().any(Option::is_some)).count()
    }

    pub(crate) fn input(&mut self, who: usize, input: Input<'_>) {
        self.peers[who].handle(input, self.now);
        while let Some(output) = self.peers[who].poll_output() {
            self.perform(who, &output);
            self.outputs[who].push((self.now - self.born, output));
        }
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.next().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            self.step();
        }
        self.now = until;
    }

    fn next(&self) -> Option<Instant> {
        let events = self.events.iter().map(|event| event.at);
        events.chain(self.peers.iter().filter_map(Peer::poll_timeout)).min()
    }

    fn step(&mut self) {
        for who in 0..2 {
            if self.peers[who].poll_timeout().is_some_and(|at| at <= self.now) {
                self.input(who, Input::Timeout);
            }
        }
        let due = self.events.iter().enumerate().filter(|(_, event)| event.at <= self.now);
        if let Some((index, _)) = due.min_by_key(|(_, event)| event.at) {
            let event = self.events.remove(index);
            if !self.cut {
                self.deliver(event);
            }
        }
    }

    fn deliver(&mut self, event: Event) {
        let Event { wire, to, what, .. } = event;
        if matches!(what, Delivery::Accepted) {
            let id = ConnId(u32::try_from(wire).expect("few wires"));
            self.wires[wire].ids[to] = Some(id);
            return self.input(to, Input::Accepted(id));
        }
        let Some(id) = self.wires[wire].ids[to] else { return };
        match what {
            Delivery::Accepted => unreachable!("dealt with above"),
            Delivery::Connected => self.input(to, Input::Connected(id)),
            Delivery::Refused => {
                self.wires[wire].ids[to] = None;
                self.input(to, Input::ConnectFailed(id, "connection refused"));
            }
            Delivery::Data(bytes) => self.receive(to, id, &bytes),
            Delivery::End => {
                self.wires[wire].ids[to] = None;
                self.input(to, Input::Closed(id, None));
            }
        }
    }

    fn receive(&mut self, to: usize, id: ConnId, bytes: &[u8]) {
        let message = next_message(bytes, self.peers[to].max_received(id)).expect("sound").expect("whole");
        self.input(to, Input::Message(id, message.kind, message.body));
    }

    fn perform(&mut self, who: usize, output: &Output) {
        match output {
            Output::Connect(id) => self.dial(who, *id),
            Output::Send(id, bytes) => self.send(who, *id, bytes),
            Output::Close(id) => self.close(who, *id),
            Output::Established(..)
            | Output::Down { .. }
            | Output::LongLived(_)
            | Output::Forget(_)
            | Output::MarkStale(_)
            | Output::Sweep(_)
            | Output::Log(_) => {}
        }
    }

    fn dial(&mut self, who: usize, id: ConnId) {
        let mut ids = [None; 2];
        ids[who] = Some(id);
        self.wires.push(Wire { ids, last: [self.now; 2] });
        let wire = self.wires.len() - 1;
        if self.deaf[1 - who] {
            return self.post(wire, who, Delivery::Refused, 2);
        }
        self.post(wire, who, Delivery::Connected, 2);
        self.post(wire, 1 - who, Delivery::Accepted, 3);
    }

    fn send(&mut self, who: usize, id: ConnId, bytes: &[u8]) {
        let wire = self.wire_of(who, id);
        if !self.stalled[who] {
            self.post(wire, 1 - who, Delivery::Data(bytes.to_vec()), 1);
            self.peers[who].handle(Input::Sent(id), self.now);
        }
    }

    fn close(&mut self, who: usize, id: ConnId) {
        let wire = self.wire_of(who, id);
        self.wires[wire].ids[who] = None;
        self.post(wire, 1 - who, Delivery::End, 1);
    }

    fn wire_of(&self, who: usize, id: ConnId) -> usize {
        self.wires.iter().position(|wire| wire.ids[who] == Some(id)).expect("a connection of this peer")
    }

    fn post(&mut self, wire: usize, to: usize, what: Delivery, trips: u32) {
        let travel: Duration = (0..trips).map(|_| (self.latency)()).sum();
        let at = self.wires[wire].last[to].max(self.now + travel);
        self.wires[wire].last[to] = at;
        self.events.push(Event { at, wire, to, what });
    }

    /// When and why the session went down.
    pub(crate) fn downs(&self, who: usize) -> Vec<(Duration, &DownReason)> {
        let downs = self.outputs[who].iter().filter_map(|(at, output)| match output {
            Output::Down { reason, .. } => Some((*at, reason)),
            _ => None,
        });
        downs.collect()
    }

    /// When something was asked for.
    pub(crate) fn times(&self, who: usize, of: impl Fn(&Output) -> bool) -> Vec<Duration> {
        self.outputs[who].iter().filter(|(_, output)| of(output)).map(|(at, _)| *at).collect()
    }
}
