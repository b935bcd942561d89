//! A queue with its flows and marks, and the kernel's side of it: which packets wait, and what has left.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use holdfast_gate::{
    Claim, Connection, Flows, HEADER_WORDS, Marks, SLOT_WORDS, Segment, SlotState, nfnetlink::Verdict,
};
use holdfast_types::HashKey;

pub(crate) const SLOTS: usize = 8;
pub(crate) const ROOM: usize = 65_536;

pub(crate) fn key() -> HashKey {
    HashKey::new([1, 2])
}

pub(crate) fn words() -> Vec<AtomicU64> {
    (0..HEADER_WORDS + SLOTS * SLOT_WORDS).map(|_| AtomicU64::new(0)).collect()
}

pub(crate) fn connection(number: u16) -> Connection {
    Connection::new("10.0.0.1:179".parse().unwrap(), format!("10.0.0.2:{number}").parse().unwrap(), 0)
}

pub(crate) struct Scene {
    pub(crate) words: Vec<AtomicU64>,
    pub(crate) flows: Flows,
    pub(crate) lease: bool,
    pub(crate) now: u64,
    next: u32,
    waiting: BTreeMap<u32, Segment>,
    /// What has left and was dropped, in this order.
    pub(crate) verdicts: Vec<(u32, Verdict, Segment)>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let words = words();
        Marks::create(&words).expect("room");
        Self {
            words,
            flows: Flows::new(0, ROOM, key()),
            lease: true,
            now: 0,
            next: 0,
            waiting: BTreeMap::new(),
            verdicts: Vec::new(),
        }
    }

    pub(crate) fn marks(&self) -> Marks<'_> {
        Marks::open(&self.words).expect("marks")
    }

    /// The kernel has a segment for us; its number.
    pub(crate) fn segment(&mut self, segment: Segment) -> u32 {
        let id = self.next;
        self.next += 1;
        self.waiting.insert(id, segment);
        let mut verdicts = Vec::new();
        let marks = Marks::open(&self.words).expect("marks");
        self.flows.look_at_slots(Some(&marks), false, &mut verdicts);
        self.flows.segment(id, &segment, Some(&marks), self.lease, self.now, &mut verdicts);
        self.flows.tell_marks(Some(&marks));
        self.note(verdicts);
        id
    }

    pub(crate) fn send(&mut self, number: u16, flags: &str, seq: u32, ack: u32, payload: u32) -> u32 {
        self.segment(Segment::made(connection(number), flags, seq, ack, 500, payload))
    }

    /// SYN and SYN-ACK of a connection that the peer dials. Our numbers begin at `iss`, the peer's at `irs`.
    pub(crate) fn accept(&mut self, number: u16, iss: u32, irs: u32) {
        self.send(number, "SA", iss, irs.wrapping_add(1), 0);
    }

    pub(crate) fn claim(&self, slot: u32, number: u16, state: SlotState, marks: (u64, u64)) -> Claim {
        self.marks().claim(slot, &connection(number), state, marks).expect("a free slot")
    }

    /// The bell rings.
    pub(crate) fn release(&mut self) {
        let mut verdicts = Vec::new();
        let marks = Marks::open(&self.words).expect("marks");
        self.flows.look_at_slots(Some(&marks), false, &mut verdicts);
        let mut from = 0;
        while self.flows.release(Some(&marks), self.lease, &mut from, 1, &mut verdicts) {}
        self.flows.tell_marks(Some(&marks));
        self.note(verdicts);
    }

    pub(crate) fn note(&mut self, verdicts: Vec<(u32, Verdict)>) {
        for (id, verdict) in verdicts {
            let segment = self.waiting.remove(&id).expect("a packet has one verdict");
            self.verdicts.push((id, verdict, segment));
        }
    }

    /// Packets without a verdict.
    pub(crate) fn waiting(&self) -> Vec<u32> {
        self.waiting.keys().copied().collect()
    }

    /// Verdicts since the last call, as `+` and `-`, each with the number of its packet.
    pub(crate) fn take(&mut self) -> String {
        let told = |(id, verdict, _): &(u32, Verdict, Segment)| match verdict {
            Verdict::Accept => format!("+{id}"),
            Verdict::Drop => format!("-{id}"),
        };
        let text = self.verdicts.iter().map(told).collect::<Vec<_>>().join(" ");
        self.verdicts.clear();
        text
    }

    /// The memory of another replicator.
    pub(crate) fn other_marks(&mut self) {
        for word in &self.words {
            word.store(0, Ordering::Relaxed);
        }
        Marks::create(&self.words).expect("room");
    }
}
