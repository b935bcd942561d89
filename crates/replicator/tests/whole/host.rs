//! A host: the kernel's sockets, the gate, the replicator and the router.

use std::{collections::BTreeMap, sync::atomic::AtomicU64, time::Instant};

use holdfast_gate::{Claim, Connection, Flows, Marks, Segment, SlotState, kept, nfnetlink::Verdict};
use holdfast_nsr::{Log, Reader, SessionId};
use holdfast_store::{Batch, MOST_OCTETS, Name, Operation, Request, memory};
use holdfast_types::HashKey;

use crate::{
    copier::{Copier, Filled},
    draft::Draft,
    scene::{Both, Reading},
    tests::whole::{
        PEERS,
        app::{App, Told},
        said,
    },
    writer::{Outcome, Phase, Trouble, Writer},
};

/// Octets of data in a segment at most.
const SEGMENT: u64 = 60;
/// Packets that the gate has room for.
const ROOM: usize = 4096;

/// A socket. Offsets are those of the streams, from the beginning of the connection.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    /// Where it begins to count.
    pub(super) received_origin: u64,
    pub(super) sent_origin: u64,
    /// Numbers of the octets before these.
    iss: u32,
    irs: u32,
    /// Behind what has come, and what the process has read of it.
    pub(super) come: u64,
    pub(super) read: u64,
    /// What the peer has not acknowledged, from this offset on, and how much was sent once.
    pub(super) acknowledged: u64,
    octets: Vec<u8>,
    sent: u64,
}

impl Socket {
    /// The numbers are those of the octets before the offsets.
    pub(super) fn new(received: u64, sent: u64, irs: u32, iss: u32) -> Self {
        Self {
            received_origin: received,
            sent_origin: sent,
            iss,
            irs,
            come: received,
            read: received,
            acknowledged: sent,
            octets: Vec::new(),
            sent,
        }
    }

    /// As a socket elsewhere that goes on from other offsets: numbers stay those of the connection.
    pub(super) fn elsewhere(&self, received: u64, sent: u64) -> Self {
        let irs = self.irs.wrapping_add(received.wrapping_sub(self.received_origin) as u32);
        let iss = self.iss.wrapping_add(sent.wrapping_sub(self.sent_origin) as u32);
        Self::new(received, sent, irs, iss)
    }

    fn written(&self) -> u64 {
        self.acknowledged + self.octets.len() as u64
    }
}

/// A segment that waits for its verdict, or has left.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) to: usize,
    pub(super) acknowledges: u64,
    pub(super) start: u64,
    pub(super) octets: Vec<u8>,
}

/// All of a host.
pub(super) struct Host {
    /// `None`: the process is dead.
    pub(super) app: Option<App>,
    memory: Option<Both>,
    reading: Reading,
    pub(super) ids: Vec<SessionId>,
    pub(super) sockets: Vec<Socket>,
    flows: Flows,
    kept: Vec<u8>,
    words: Vec<AtomicU64>,
    claims: Vec<Claim>,
    pub(super) lease: bool,
    packets: BTreeMap<u32, Packet>,
    count: u32,
    pub(super) left: Vec<Packet>,
    copier: Copier<Reading>,
    pub(super) writer: Writer,
    pub(super) is_whole: bool,
    /// Why the store was asked anew last.
    pub(super) trouble: Option<Trouble>,
}

fn connection(peer: usize) -> Connection {
    let remote = format!("10.0.0.2:{}", 1000 + peer).parse().expect("an address");
    Connection::new("10.0.0.1:179".parse().expect("an address"), remote, 0)
}

fn flows() -> Flows {
    Flows::new(0, ROOM, HashKey::new([1, 2]))
}

impl Host {
    /// Goes on with a log in this memory. What may leave is what the store has: of the octets that are sent again so many.
    pub(super) fn new(
        (log, reading): (Log<Both>, Reading),
        ids: Vec<SessionId>,
        sockets: Vec<Socket>,
        epoch: u64,
        begin: Told,
    ) -> Self {
        let words: Vec<_> = (0..Marks::octets(PEERS) / 8).map(|_| AtomicU64::new(0)).collect();
        let marks = Marks::create(&words).expect("room");
        let claims = sockets.iter().enumerate().map(|(peer, socket)| {
            let again = log.unacknowledged(ids[peer]);
            let (watermarks, numbers) = ((0, again.end - again.start), (socket.iss, socket.irs));
            let (slot, connection) = (peer as u32, connection(peer));
            let claim = marks.claim_restored(slot, &connection, SlotState::Gated, watermarks, numbers);
            claim.expect("a free slot")
        });
        let claims = claims.collect();
        let mut kept = vec![0; kept::KEPT];
        kept::begin(&mut kept);
        let copier = Copier::new(Reader::new(reading.clone()).expect("a log"), 0, "");
        Self {
            app: Some(App::new(log, ids.clone(), begin)),
            memory: None,
            reading,
            ids,
            sockets,
            flows: flows(),
            kept,
            words,
            claims,
            lease: true,
            packets: BTreeMap::new(),
            count: 0,
            left: Vec::new(),
            copier,
            writer: Writer::new(epoch, epoch),
            is_whole: false,
            trouble: None,
        }
    }

    /// The process reads; `is_said`: it lives long enough to say so.
    pub(super) fn read(&mut self, peer: usize, count: u64, is_said: bool) {
        let socket = &mut self.sockets[peer];
        let Some(app) = &mut self.app else { return };
        let end = socket.come.min(socket.read + count);
        if end > socket.read {
            socket.read += app.receive(peer, &said(peer, socket.read..end), is_said) as u64;
        }
    }

    /// The process writes; likewise.
    pub(super) fn write(&mut self, peer: usize, count: usize, is_said: bool) {
        let socket = &mut self.sockets[peer];
        let Some(app) = &mut self.app else { return };
        let unsent: Vec<u8> = app.log.unsent(self.ids[peer]).flatten().copied().take(count).collect();
        socket.octets.extend(&unsent);
        if is_said {
            app.log.sent(self.ids[peer], unsent.len());
        }
    }

    /// The process looks at how much was acknowledged.
    pub(super) fn look(&mut self, peer: usize) {
        let to = self.sockets[peer].acknowledged;
        if let Some(app) = &mut self.app {
            app.log.acknowledged(self.ids[peer], to);
        }
    }

    pub(super) fn kill_app(&mut self) {
        self.memory = self.app.take().map(|app| app.log.into_memory()).or(self.memory.take());
    }

    pub(super) fn revive_app(&mut self, begin: Told) {
        let Some(memory) = self.memory.take() else { return };
        let mut log = Log::recover(memory).expect("a log");
        for (id, socket) in self.ids.iter().zip(&self.sockets) {
            log.set_received(*id, socket.read).expect("as the kernel says");
            log.set_sent(*id, socket.written()).expect("as the kernel says");
        }
        self.app = Some(App::new(log, self.ids.clone(), begin));
    }

    /// The peer has acknowledged octets.
    pub(super) fn acknowledge(&mut self, peer: usize, to: u64) {
        let socket = &mut self.sockets[peer];
        // What this socket has not sent yet it takes for nothing.
        if let Some(new) = to.checked_sub(socket.acknowledged).filter(|_| to <= socket.sent) {
            socket.octets.drain(..usize::try_from(new).expect("few"));
            socket.acknowledged = to;
        }
    }

    /// The kernel sends a segment: what was not sent yet, or the oldest once more.
    pub(super) fn transmit(&mut self, peer: usize, again: bool) {
        let socket = &mut self.sockets[peer];
        let start = if again { socket.acknowledged } else { socket.sent };
        let end = socket.written().min(start + SEGMENT);
        socket.sent = socket.sent.max(end);
        let place = |offset: u64| (offset - socket.acknowledged) as usize;
        let octets = socket.octets[place(start)..place(end)].to_vec();
        let packet = Packet { to: peer, acknowledges: socket.come, start, octets };
        let number = |first: u32, origin: u64, offset: u64| {
            first.wrapping_add(1).wrapping_add(offset.wrapping_sub(origin) as u32)
        };
        let seq = number(socket.iss, socket.sent_origin, start);
        let ack = number(socket.irs, socket.received_origin, socket.come);
        let length = packet.octets.len() as u32;
        let segment = Segment::made(connection(peer), "A", seq, ack, 500, length);
        self.packets.insert(self.count, packet);
        let (marks, mut verdicts) = (Marks::open(&self.words).expect("marks"), Vec::new());
        self.flows.look_at_slots(Some(&marks), false, &mut verdicts);
        self.flows.segment(self.count, &segment, Some(&marks), self.lease, 0, &mut verdicts);
        self.count += 1;
        self.judged(verdicts);
    }

    /// What may leave by now leaves.
    pub(super) fn release(&mut self) {
        let (marks, mut verdicts) = (Marks::open(&self.words).expect("marks"), Vec::new());
        self.flows.look_at_slots(Some(&marks), false, &mut verdicts);
        let mut from = 0;
        while self.flows.release(Some(&marks), self.lease, &mut from, 1, &mut verdicts) {}
        self.judged(verdicts);
    }

    fn judged(&mut self, verdicts: Vec<(u32, Verdict)>) {
        for (number, verdict) in verdicts {
            let packet = self.packets.remove(&number).expect("one verdict each");
            if verdict == Verdict::Accept {
                self.left.push(packet);
            }
        }
    }

    pub(super) fn kill_gate(&mut self) {
        let kept = &mut self.kept;
        self.flows.take_changed(|number, record| kept::write(kept, number, record.as_ref()));
        let mut verdicts = Vec::new();
        self.flows.drop_held(&mut verdicts);
        self.judged(verdicts);
        self.flows = flows();
        self.flows.restore(kept::read(&self.kept));
    }

    /// The replicator begins anew, with another epoch.
    pub(super) fn kill_replicator(&mut self, store: &mut memory::Memory, epoch: u64) {
        store.cut();
        self.copier = Copier::new(Reader::new(self.reading.clone()).expect("a log"), 0, "");
        (self.writer, self.is_whole) = (Writer::new(epoch, epoch), false);
    }

    pub(super) fn connect(&mut self, store: &mut memory::Memory) {
        store.cut();
        self.writer.disconnected();
        let request = self.writer.connected();
        request.into_iter().for_each(|request| store.ask(request).expect("room"));
    }

    /// A batch is made, with so much room, and with what lies in a socket.
    pub(super) fn replicate(&mut self, store: &mut memory::Memory, room: usize, peeks: Option<usize>) {
        let Some(batch) = self.writer.begin() else { return };
        let mut draft = Draft::new(batch);
        if room < MOST_OCTETS {
            let value = vec![0; MOST_OCTETS - room - 1000];
            draft.push(Operation::Put { name: Name::new(b"other").expect("short"), value }).expect("room");
        }
        let is_anew = self.writer.phase() == Phase::Copying;
        for peer in 0..PEERS {
            if peeks == Some(peer) || (is_anew && self.is_behind(peer)) {
                let (id, socket) = (self.ids[peer], &self.sockets[peer]);
                self.copier.peeked(&mut draft, id, socket.read, &said(peer, socket.read..socket.come));
            }
        }
        let is_full = self.copier.fill(&mut draft) == Filled::Full;
        self.is_whole |= !is_full;
        let marks = self.copier.take_moved().into_iter().map(|mark| (0, mark)).collect();
        let batch: Batch = draft.into_batch();
        let is_behind = is_anew && (0..PEERS).any(|peer| self.is_behind(peer));
        let is_whole = self.is_whole && !is_full && !is_behind;
        if let Some(request) = self.writer.send(batch, marks, is_whole, Instant::now()) {
            store.ask(request.clone()).expect("room");
        }
    }

    /// As `Table::is_behind`.
    fn is_behind(&self, peer: usize) -> bool {
        let marks = Marks::open(&self.words).expect("marks");
        let (_, received, _) = marks.watermarks(self.claims[peer]).expect("in use");
        let least = self.sockets[peer].received_origin + received;
        self.copier.mark(self.ids[peer]).is_none_or(|mark| mark.received < least)
    }

    /// An answer of the store arrives.
    pub(super) fn take(&mut self, store: &mut memory::Memory) {
        let Some(answer) = store.take() else { return };
        let was_asking = self.writer.phase() == Phase::Asking;
        match self.writer.answered(answer) {
            Outcome::Send(request) => store.ask(request).expect("room"),
            Outcome::Confirmed(confirmed) => {
                let marks = Marks::open(&self.words).expect("marks");
                for (_, mark) in confirmed {
                    let peer = self.ids.iter().position(|id| *id == mark.id).expect("one of ours");
                    let socket = &self.sockets[peer];
                    let received = mark.received.saturating_sub(socket.received_origin);
                    let sent = mark.sent.saturating_sub(socket.sent_origin);
                    marks.set_watermarks(self.claims[peer], received, sent);
                }
                if was_asking {
                    let again: Vec<Request> = self.writer.again().cloned().collect();
                    again.into_iter().for_each(|request| store.ask(request).expect("room"));
                }
            }
            Outcome::Restart => {
                self.copier.restart();
                self.is_whole = false;
            }
            Outcome::Reconnect(trouble) => {
                self.trouble = Some(trouble);
                self.connect(store);
            }
            Outcome::Fenced | Outcome::Overtaken(_) => {
                self.writer.give_up();
                assert!(!self.lease, "nobody else has claimed the store");
            }
        }
    }
}
