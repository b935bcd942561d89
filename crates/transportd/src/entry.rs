//! One place where peers are expected: who may come in there, and what has become of those who came.

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::{Rc, Weak},
    time::Instant,
};

use holdfast_admission::{Attempt, Chain, Decision, Load, PeerState, Pressure, Verdict};
use holdfast_api::transport::v1 as api;
use holdfast_tls::{ALPN_QUIC, ALPN_TLS};
use holdfast_transport::{Expected, Failure, Gate, Outcome, Permit, Protocol, Stray};
use tokio::sync::Notify;
use tracing::{debug, warn};

use crate::{
    door::ConnectionBroker,
    peers::{Peer, Peers, Place, Source, octets, told},
    watched::Watched,
};

/// One place where peers are expected.
pub(crate) struct Entry {
    /// TCP, if it is a listener of TCP: TLS comes the same way.
    pub(crate) protocol: Protocol,
    pub(crate) address: SocketAddr,
    door: Weak<ConnectionBroker>,
    chain: RefCell<Chain>,
    pressure: RefCell<Option<Rc<Pressure>>>,
    socket: RefCell<Option<Watched>>,
    /// What the kernel has dropped at its sockets.
    dropped: Cell<u64>,
    tally: Rc<Tally>,
    /// Why it does not listen; empty: it does.
    fault: RefCell<String>,
    /// It lets nobody in any more.
    retires: Notify,
}

/// What has become of those who were let in: `passed` is the sum of the other four.
#[derive(Default)]
struct Tally {
    passed: Cell<u64>,
    under_way: Cell<u64>,
    let_in: Cell<u64>,
    refused: Cell<u64>,
    failed: Cell<u64>,
    /// Who is under way, or waited for.
    attended: Cell<usize>,
    /// Of what is no attempt.
    garbage: Cell<u64>,
    unknown_version: Cell<u64>,
    resets_sent: Cell<u64>,
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// Somebody who is attended to.
struct Visit {
    tally: Rc<Tally>,
    passed: Cell<bool>,
    outcome: Cell<Option<Outcome>>,
}

impl Permit for Visit {
    fn pass(&self) {
        if !self.passed.replace(true) {
            count(&self.tally.passed);
            count(&self.tally.under_way);
        }
    }

    fn settle(self: Box<Self>, outcome: Outcome) {
        self.outcome.set(Some(outcome));
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let Tally { under_way, let_in, refused, failed, attended, .. } = &*self.tally;
        attended.set(attended.get() - 1);
        if self.passed.get() {
            under_way.set(under_way.get() - 1);
            count(match self.outcome.get() {
                Some(Outcome::LetIn) => let_in,
                Some(Outcome::Refused) => refused,
                None => failed,
            });
        }
    }
}

impl Entry {
    /// One that does not listen yet.
    pub(crate) fn new(door: &Rc<ConnectionBroker>, protocol: Protocol, address: SocketAddr) -> Rc<Self> {
        Rc::new(Self {
            protocol,
            address,
            door: Rc::downgrade(door),
            chain: RefCell::default(),
            pressure: RefCell::default(),
            socket: RefCell::default(),
            dropped: Cell::default(),
            tally: Rc::default(),
            fault: RefCell::default(),
            retires: Notify::new(),
        })
    }

    /// Decides as is configured now, and counts on.
    pub(crate) fn admit_by(self: &Rc<Self>, door: &ConnectionBroker) {
        let admission = door.admission();
        let entry = Rc::downgrade(self);
        let state = move |attempt: &dyn Attempt| match entry.upgrade() {
            Some(entry) => entry.state(attempt.remote()),
            None => PeerState::Nobody,
        };
        let spoken = match self.protocol {
            Protocol::Quic | Protocol::QuicS2n => vec![ALPN_QUIC.to_vec()],
            Protocol::Tcp | Protocol::Tls | Protocol::Memory => vec![ALPN_TLS.to_vec()],
        };
        let known = admission.known.clone();
        let mut chain = Chain::new(admission.numbers.stages(&admission.pressure, known, spoken, state));
        chain.go_on_from(&self.chain.borrow());
        self.pressure.replace(Some(Rc::clone(&admission.pressure)));
        self.chain.replace(chain);
    }

    /// It listens with this socket from now on.
    pub(crate) fn listens(&self, socket: Watched) {
        self.count_drops();
        self.socket.replace(Some(socket));
        self.fault.borrow_mut().clear();
    }

    /// It lets go of its socket.
    pub(crate) fn listens_no_more(&self) {
        self.count_drops();
        self.socket.take();
    }

    /// It cannot listen. Whether that is news.
    pub(crate) fn fails(&self, fault: String) -> bool {
        self.listens_no_more();
        self.fault.replace(fault.clone()) != fault
    }

    /// Lets nobody in any more; whether it is a listener of datagrams, whose socket its connections go on to need.
    pub(crate) fn retire(&self) -> bool {
        let Some(socket) = self.socket.take().filter(|_| self.is_quic()) else { return false };
        if let Err(error) = socket.share() {
            warn!(event = "listen-failed", address = %self.address, "its port cannot be shared: {error}");
        }
        self.retires.notify_one();
        true
    }

    /// Waits for that.
    pub(crate) async fn retires(&self) {
        self.retires.notified().await;
    }

    /// Has the kernel drop datagrams as follows from these peers; `false`: it cannot, and nothing may be taken any more.
    pub(crate) fn filter(&self, peers: &Peers) -> bool {
        !self.is_quic() || self.socket.borrow().as_ref().is_none_or(|socket| socket.follow(peers).is_ok())
    }

    /// Whether it is a listener of datagrams.
    pub(crate) fn is_quic(&self) -> bool {
        matches!(self.protocol, Protocol::Quic | Protocol::QuicS2n)
    }

    fn count_drops(&self) {
        let dropped = self.socket.borrow().as_ref().map_or(0, Watched::dropped);
        self.dropped.set(self.dropped.get() + dropped);
    }

    /// Where somebody comes from.
    pub(crate) fn source(&self, remote: SocketAddr) -> Source {
        let socket = self.socket.borrow();
        Source::of(remote, |number| socket.as_ref()?.interface(number))
    }

    /// Who is expected from there.
    pub(crate) fn peer(&self, remote: SocketAddr) -> Option<Rc<Peer>> {
        self.door.upgrade()?.peers().from(&self.source(remote)).cloned()
    }

    fn state(&self, remote: SocketAddr) -> PeerState {
        match self.peer(remote) {
            None => PeerState::Nobody,
            Some(peer) if peer.disabled => PeerState::Disabled,
            Some(peer) if !self.serves(&peer) => PeerState::OtherTransport,
            Some(peer) if matches!(peer.place, Place::Range(_)) => PeerState::Guest,
            Some(_) => PeerState::Wanted,
        }
    }

    /// Whether a peer may come in here.
    fn serves(&self, peer: &Peer) -> bool {
        let is_tls = self.protocol == Protocol::Tcp && peer.may_use(Protocol::Tls);
        peer.may_use(self.protocol) || is_tls
    }

    /// Says who was turned away.
    fn decided(
        &self,
        Decision { verdict, stage }: Decision,
        protocol: Protocol,
        remote: SocketAddr,
        now: Instant,
    ) -> Verdict {
        let stage = stage.unwrap_or_default();
        match verdict {
            Verdict::Ignore => debug!(address = %remote, protocol = protocol.name(), stage, "ignored"),
            Verdict::Refuse(reason) => {
                if let Some(left_out) = self.door.upgrade().and_then(|door| door.refused(now)) {
                    let (address, protocol) = (self.source(remote), protocol.name());
                    let peer = self.peer(remote);
                    warn!(
                        event = "connection-refused",
                        peer = peer.as_ref().map(|peer| &*peer.name),
                        %address,
                        protocol,
                        stage,
                        left_out,
                        "connection refused: {reason}"
                    );
                }
            }
            Verdict::Retry | Verdict::Wait(_) | Verdict::Accept | Verdict::Next => {}
        }
        verdict
    }

    /// How much there is to do.
    pub(crate) fn load(&self) -> Load {
        let connections = self.door.upgrade().map_or(0, |door| door.carried.len());
        Load { handshakes: self.tally.attended.get(), connections }
    }

    /// For the operator.
    pub(crate) fn show(&self) -> api::Listener {
        let stage = |(name, counters): (&str, holdfast_admission::Counters)| api::Stage {
            name: name.to_owned(),
            seen: counters.seen,
            passed: counters.passed,
            ignored: counters.ignored,
            refused: counters.refused,
            retried: counters.retried,
            accepted: counters.accepted,
        };
        self.count_drops();
        let load = self.load();
        let pressure = self.pressure.borrow();
        api::Listener {
            protocol: told(self.protocol).into(),
            address: octets(self.address.ip()),
            port: self.address.port().into(),
            stages: self.chain.borrow().counters().map(stage).collect(),
            handshakes: u32::try_from(load.handshakes).unwrap_or(u32::MAX),
            established: self.tally.let_in.get(),
            failed: self.tally.failed.get(),
            passed: self.tally.passed.get(),
            under_way: self.tally.under_way.get(),
            refused_after_proof: self.tally.refused.get(),
            garbage: self.tally.garbage.get(),
            unknown_version: self.tally.unknown_version.get(),
            resets_sent: self.tally.resets_sent.get(),
            under_load: pressure.as_ref().is_some_and(|pressure| pressure.is_high(load, Instant::now())),
            fault: self.fault.borrow().clone(),
            opening: self.socket.borrow().is_none() && self.fault.borrow().is_empty(),
            kernel_drops: self.dropped.get(),
        }
    }
}

impl Gate for Entry {
    fn judge(&self, protocol: Protocol, attempt: &mut dyn Attempt, now: Instant) -> Verdict {
        let decision = self.chain.borrow_mut().decide(attempt, now);
        self.decided(decision, protocol, attempt.remote(), now)
    }

    fn resume(
        &self,
        protocol: Protocol,
        stage: &'static str,
        attempt: &mut dyn Attempt,
        now: Instant,
    ) -> Verdict {
        let decision = self.chain.borrow_mut().resume(stage, attempt, now);
        self.decided(decision, protocol, attempt.remote(), now)
    }

    fn expect(&self, protocol: Protocol, remote: SocketAddr) -> Option<Expected> {
        let peer = self.peer(remote)?;
        (!peer.disabled && peer.may_use(protocol)).then(|| peer.expected())
    }

    fn begin(&self, _protocol: Protocol) -> Box<dyn Permit> {
        let tally = Rc::clone(&self.tally);
        tally.attended.set(tally.attended.get() + 1);
        Box::new(Visit { tally, passed: Cell::new(false), outcome: Cell::new(None) })
    }

    fn stray(&self, _protocol: Protocol, stray: Stray) {
        count(match stray {
            Stray::Garbage => &self.tally.garbage,
            Stray::UnknownVersion => &self.tally.unknown_version,
            Stray::Reset => &self.tally.resets_sent,
        });
    }

    fn tells_version(&self, _protocol: Protocol, attempt: &mut dyn Attempt, now: Instant) -> bool {
        self.chain.borrow_mut().would_pass(attempt, now)
    }

    fn failed(&self, protocol: Protocol, remote: SocketAddr, failure: &Failure) {
        let (Some(door), Some(peer)) = (self.door.upgrade(), self.peer(remote)) else { return };
        if let Failure::GivenUp(reason) = failure {
            // Of two who dial each other one does, as soon as it has a session.
            return debug!(peer = peer.name, protocol = protocol.name(), "given up by the peer: {reason}");
        }
        if door.may_log(&peer.name) {
            let (peer, address, protocol) = (&peer.name, self.source(remote), protocol.name());
            warn!(event = "handshake-failed", peer, %address, protocol, "no connection: {failure}");
        }
    }
}
