//! Peers that live on, a store, and one host after the other.

use std::collections::VecDeque;

use holdfast_api::bgp::v1::HeldSession;
use holdfast_nsr::Log;
use holdfast_restore::{Reading as StoreReading, Restored, Table, rebuild};
use holdfast_store::{Answer, Claim, Failure, MOST_OCTETS, Request, memory};
use prost::Message;

use crate::{
    scene::Both,
    tests::whole::{
        Act, PEERS,
        app::{Told, messages},
        host::{Host, Packet, Socket},
    },
    writer::Phase,
};

const BLOCK: usize = 4096;
const MEMORY: usize = 63 * BLOCK + 60 * 276;
const FORMATS: u64 = 8;
const KEY: [u8; 16] = [7; 16];
/// Octets that a peer sends ahead of what was acknowledged.
const WINDOW: u64 = 3000;

/// A stock router.
#[derive(Clone, Debug)]
struct Peer {
    /// The offset behind what it has said, and behind what of it was acknowledged.
    said: u64,
    acknowledged: u64,
    /// What came to it, from where on.
    begin: u64,
    got: Vec<u8>,
}

impl Peer {
    fn end(&self) -> u64 {
        self.begin + self.got.len() as u64
    }
}

pub(super) struct World {
    peers: Vec<Peer>,
    host: Host,
    store: memory::Memory,
    epoch: u64,
    /// Where the streams of the peers began.
    begin: Told,
    /// Of each session the most that whoever took over would have found in the store: received, sent.
    stored: Vec<(u64, u64)>,
    /// The store has lost something: the epoch of the writer then, and how many losses it had noticed.
    lost: Option<(u64, u64)>,
}

/// The table in a store, as a standby reads it.
fn table(store: &memory::Memory) -> Option<Table> {
    let mut contents = store.contents().clone();
    let counts = contents.state()?.counts?;
    let (mut reading, mut asked) = (StoreReading::new(counts), VecDeque::<Request>::new());
    loop {
        asked.extend(std::iter::from_fn(|| reading.ask()));
        let Some(request) = asked.pop_front() else { break };
        reading.answered(contents.answer(&request)).expect("the store is whole");
    }
    let objects = reading.finish().expect("all is read");
    let (mut tables, damaged) = objects.tables();
    assert!(damaged.is_empty(), "after any batch it can be gone on with: {damaged:?}");
    assert!(tables.len() <= 1);
    tables.pop()
}

/// Which peer a session is of.
fn peer_of(record: &[u8]) -> usize {
    HeldSession::decode(record).expect("a record").number as usize
}

impl World {
    pub(super) fn new(begins: [(u64, u64, u32, u32); PEERS]) -> Self {
        let (memory, reading) = Both::new(MEMORY);
        let mut log = Log::create_with_blocks(memory, FORMATS, KEY, BLOCK).expect("room");
        let (mut ids, mut sockets, mut peers) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (received, sent, irs, iss)) in begins.into_iter().enumerate() {
            let held = HeldSession {
                number: number as u32,
                received_origin: received,
                sent_origin: sent,
                ..HeldSession::default()
            };
            ids.push(log.open(received, sent, &held.encode_to_vec()).expect("room"));
            sockets.push(Socket::new(received, sent, irs, iss));
            peers.push(Peer { said: received, acknowledged: received, begin: sent, got: Vec::new() });
        }
        let begin = begins.map(|(received, ..)| received);
        let host = Host::new((log, reading), ids, sockets, 1, begin);
        let stored = begins.map(|(received, sent, ..)| (received, sent)).to_vec();
        let store = memory::Memory::new(1 << 30);
        let mut world = Self { peers, host, store, epoch: 1, begin, stored, lost: None };
        world.host.connect(&mut world.store);
        world.settle();
        world
    }

    pub(super) fn act(&mut self, act: Act) {
        match act {
            Act::Say(peer, count) => {
                let one = &mut self.peers[peer];
                one.said = (one.said + count).min(one.acknowledged + WINDOW);
            }
            Act::Arrive(peer, count) => self.arrive(peer, count),
            Act::Read(peer, count, is_said) => {
                self.host.read(peer, count, is_said);
                if !is_said {
                    self.host.kill_app();
                }
            }
            Act::Process(peer, count, most) => {
                if let Some(app) = &mut self.host.app {
                    app.process(peer, count, most.unwrap_or(PEERS));
                }
                if most.is_some() {
                    self.host.kill_app();
                }
            }
            Act::Write(peer, count, is_said) => {
                self.host.write(peer, count, is_said);
                if !is_said {
                    self.host.kill_app();
                }
            }
            Act::Look(peer) => self.host.look(peer),
            Act::Snapshot(peer, padding) => {
                self.host.app.iter_mut().for_each(|app| app.snapshot(peer, padding));
            }
            Act::Fold(peer) => {
                let begin = self.begin;
                self.host.app.iter_mut().for_each(|app| app.fold(peer, begin));
            }
            Act::Revive => self.host.revive_app(self.begin),
            Act::Transmit(peer, again) => self.host.transmit(peer, again),
            Act::Acknowledge(peer) => self.host.acknowledge(peer, self.peers[peer].end()),
            Act::Release => self.host.release(),
            Act::Replicate(room) => self.host.replicate(&mut self.store, room, None),
            Act::Peek(peer) => self.host.replicate(&mut self.store, MOST_OCTETS, Some(peer)),
            Act::Work => self.work(),
            Act::Take => {
                self.host.take(&mut self.store);
                self.notice();
            }
            Act::Cut => self.host.connect(&mut self.store),
            Act::LoseAll => {
                self.store.lose_everything();
                self.lose();
            }
            Act::LoseLast(count) => {
                if self.store.lose_last(count) > 0 {
                    self.lose();
                }
            }
            Act::Fail(fails) => self.store.fail(fails.then_some(Failure::OutOfMemory)),
            Act::KillGate => self.host.kill_gate(),
            Act::KillReplicator => {
                self.epoch += 1;
                self.host.kill_replicator(&mut self.store, self.epoch);
                self.host.connect(&mut self.store);
            }
            Act::TakeOver { late, dies } => self.take_over(late, dies),
        }
        self.deliver();
    }

    fn lose(&mut self) {
        self.lost = Some((self.host.writer.epoch(), self.host.writer.losses()));
    }

    /// Whoever has written everything anew has lost nothing any more.
    fn notice(&mut self) {
        let writer = &self.host.writer;
        let is_anew = |(epoch, losses)| (writer.epoch(), writer.losses()) > (epoch, losses);
        if writer.phase() == Phase::Whole && self.lost.is_some_and(is_anew) {
            self.lost = None;
        }
    }

    /// What the peer has said comes to the host.
    fn arrive(&mut self, peer: usize, count: u64) {
        let (one, socket) = (&self.peers[peer], &mut self.host.sockets[peer]);
        assert!(socket.come >= one.acknowledged, "nobody has what was acknowledged");
        socket.come = (socket.come + count).min(one.said);
    }

    fn work(&mut self) {
        if !self.store.work() {
            return;
        }
        let Some(table) = table(&self.store) else { return };
        for session in &table.sessions {
            let end = |(at, octets): &(u64, Vec<u8>)| at + octets.len() as u64;
            let of = &mut self.stored[peer_of(&session.record)];
            *of = (of.0.max(end(&session.incoming)), of.1.max(end(&session.outgoing)));
        }
    }

    /// What has left arrives at the peers.
    fn deliver(&mut self) {
        for Packet { to, acknowledges, start, octets } in std::mem::take(&mut self.host.left) {
            assert!(self.host.lease, "without a lease nothing leaves");
            let (received, sent) = self.stored[to];
            assert!(
                acknowledges <= received,
                "acknowledged is what the store has: {acknowledges} {received}"
            );
            let end = start + octets.len() as u64;
            assert!(octets.is_empty() || end <= sent, "sent is what the store has: {end} {sent}");
            let peer = &mut self.peers[to];
            assert!(acknowledges <= peer.said, "nobody acknowledges what was not said");
            peer.acknowledged = peer.acknowledged.max(acknowledges);
            // What is missing before it comes again.
            let Some(known) = peer.end().checked_sub(start) else { continue };
            let known = usize::try_from(known).expect("few").min(octets.len());
            let first = usize::try_from(start.saturating_sub(peer.begin)).expect("few");
            assert!(
                start >= peer.begin && peer.got[first..first + known] == octets[..known],
                "the same octets"
            );
            peer.got.extend(&octets[known..]);
        }
    }

    /// The host dies, and another one goes on with what is in the store. `late`: requests of the dead one arrive after the claim
    /// of the other one, and not before. `dies`: the first that takes over dies as well, before it has said anything.
    fn take_over(&mut self, late: bool, dies: bool) {
        if self.lost.is_some() || self.store.contents().state().is_none_or(|state| state.counts.is_none()) {
            // There is nobody left who has the sessions.
            return;
        }
        self.store.fail(None);
        if late {
            self.store.cut();
        }
        while !late && self.store.contents().state().is_some() {
            let before = self.store.contents().state();
            self.work();
            if self.store.contents().state() == before {
                break;
            }
        }
        self.store.cut();
        // It wakes up when its lease is over.
        self.host.lease = false;
        (0..PEERS).for_each(|peer| self.host.transmit(peer, true));
        self.host.release();
        self.deliver();
        for _ in 0..=usize::from(dies) {
            self.epoch += 1;
            self.claim();
            self.late();
            let found = table(&self.store).expect("one counts");
            self.host = self.restore(&found);
        }
        self.host.connect(&mut self.store);
    }

    /// The standby claims the store, with a generation of its own.
    fn claim(&mut self) {
        let state = self.store.contents().state().expect("written");
        let full = state.generations.len() == holdfast_store::MOST_GENERATIONS;
        let other = state.generations.iter().rfind(|generation| Some(**generation) != state.counts);
        let generation = other.copied().filter(|_| full).unwrap_or(state.last + 1);
        let claim = Claim { incarnation: state.incarnation, is_empty: false, epoch: self.epoch, generation };
        self.store.ask(Request::Claim(claim)).expect("room");
        assert!(self.store.work());
        assert!(matches!(self.store.take(), Some(Ok(Answer::Claimed(_)))));
    }

    /// What the one before has sent comes too late.
    fn late(&mut self) {
        let before = self.store.contents().clone();
        let requests: Vec<Request> = self.host.writer.again().cloned().collect();
        for request in requests {
            self.store.ask(request).expect("room");
            assert!(self.store.work());
            let answer = self.store.take().expect("answered");
            assert!(matches!(answer, Ok(Answer::Refused(_))), "{answer:?}");
        }
        assert!(*self.store.contents() == before, "it has no effect");
    }

    fn restore(&self, table: &Table) -> Host {
        let (memory, reading) = Both::new(MEMORY);
        let mut log = Log::create_with_blocks(memory, table.formats, table.key, BLOCK).expect("room");
        let restored = rebuild(table, &mut log).expect("what was in a log fits into one");
        assert_eq!(restored.len(), PEERS, "no session is lost");
        let mut of_peers: Vec<Option<&Restored>> = vec![None; PEERS];
        for one in &restored {
            of_peers[peer_of(log.record(one.id))] = Some(one);
        }
        let of_peers = of_peers.into_iter().map(|one| one.expect("one of each"));
        let (mut ids, mut sockets) = (Vec::new(), Vec::new());
        for (peer, one) in of_peers.enumerate() {
            let known = &self.peers[peer];
            assert!(one.received >= known.acknowledged, "what was acknowledged is there");
            assert!(one.received <= known.said);
            assert!(one.unacknowledged.start <= known.end(), "what the peer may lack is there");
            assert!(one.unacknowledged.end >= known.end(), "what the peer has is known");
            ids.push(one.id);
            sockets.push(self.host.sockets[peer].elsewhere(one.received, one.unacknowledged.start));
        }
        let host = Host::new((log, reading), ids, sockets, self.epoch, self.begin);
        // Nobody was told what nobody is known to have said.
        let app = host.app.as_ref().expect("alive");
        for to in 0..PEERS {
            for (who, told) in app.told(to).iter().enumerate() {
                assert!(*told <= host.sockets[who].come, "{told} of {who} was told to {to}");
            }
        }
        host
    }

    /// All goes well for so long that everything comes to its end.
    pub(super) fn settle(&mut self) {
        self.store.fail(None);
        self.host.revive_app(self.begin);
        for _ in 0..300 {
            for peer in 0..PEERS {
                for act in [
                    Act::Arrive(peer, WINDOW),
                    Act::Read(peer, WINDOW, true),
                    Act::Process(peer, WINDOW, None),
                    Act::Snapshot(peer, 0),
                    Act::Write(peer, MOST_OCTETS, true),
                    Act::Transmit(peer, true),
                    Act::Transmit(peer, false),
                    Act::Acknowledge(peer),
                    Act::Look(peer),
                ] {
                    self.act(act);
                }
            }
            for act in [
                Act::Fold(0),
                Act::Replicate(MOST_OCTETS),
                Act::Work,
                Act::Take,
                Act::Work,
                Act::Take,
                Act::Release,
            ] {
                self.act(act);
            }
            if self.is_settled() {
                self.lost = None;
                return;
            }
        }
        let Host { writer, trouble, .. } = &self.host;
        panic!("something is stuck: {:?} {trouble:?} {:?}", writer.phase(), self.peers);
    }

    fn is_settled(&self) -> bool {
        self.host.writer.phase() == Phase::Whole
            && (0..PEERS).all(|peer| self.peers[peer].said == self.peers[peer].acknowledged)
            && (0..PEERS).all(|peer| self.told(peer) == self.all(peer))
    }

    /// What there is to be told to a peer.
    fn all(&self, peer: usize) -> Told {
        let mut all = std::array::from_fn(|who| self.peers[who].said);
        all[peer] = self.begin[peer];
        all
    }

    /// What a peer was told; nothing of it twice, and nothing before its time.
    fn told(&self, peer: usize) -> Told {
        let mut told = self.begin;
        for (who, from, to) in messages(&self.peers[peer].got) {
            assert!(from == told[who] && from < to, "lost, doubled or reordered");
            assert!(to <= self.peers[who].said);
            told[who] = to;
        }
        told
    }

    pub(super) fn check(&self) {
        for peer in 0..PEERS {
            let _ = self.told(peer);
        }
    }
}
