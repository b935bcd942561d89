//! The connections of one queue, and which of their segments may leave.
//!
//! Every segment that the queue hands over is [decided](Flows::segment) at once or held; what is held is looked at again when
//! watermarks have moved ([`Flows::release`]). The verdicts of each connection come in the order of its segments.
//!
//! | connection | SYN | data, ACK | FIN | RST |
//! |---|---|---|---|---|
//! | unknown: no SYN was seen, and it is not older than the gate | begins one | dropped | dropped | dropped |
//! | unknown, without a lease | dropped | dropped | dropped | dropped |
//! | open, without a slot, or older than the gate | passes | passes | passes | passes, and ends it |
//! | gated | passes | leaves when the watermarks cover it | held until it is open | dropped |
//! | gated, without a lease | passes | dropped | dropped | dropped |
//! | closed | dropped | dropped | dropped | dropped |
//!
//! # What is not held
//! - Pure ACKs: of a run of those that may leave only the last does, and a run of those that may not is thinned out
//!   at [`MOST_ACKS`]. The oldest and the newest stay: the peer hears of each advance of the watermark, and of the newest window.
//! - A retransmission of what is held, unless it acknowledges more than anything before it. The kernel would put the
//!   same octets into the queue again with every time-out.
//!
//! # Bounds
//! [`MOST_FLOWS`] connections, [`MOST_HELD_OF_FLOW`] segments of each, and as many of all as the queue has room for.

use std::collections::VecDeque;

use hashbrown::HashMap;
use holdfast_types::HashKey;

use crate::{Claim, Connection, Gating, Marks, Record, Segment, SlotState, nfnetlink::Verdict};

/// Most connections of a queue. Finished ones, then those of which nothing but a SYN was seen, then the oldest that are open, make
/// room for others.
pub const MOST_FLOWS: usize = 16_384;
/// Most segments that are held of one connection.
pub const MOST_HELD_OF_FLOW: usize = 2048;
/// Most pure ACKs one behind the other that are held of a connection.
pub const MOST_ACKS: usize = 32;
/// Most duplicates of an ACK that are held: what a peer needs for a fast retransmission.
const MOST_DUPLICATES: usize = 4;
/// A use of a slot of marks that are not there any more.
const ELSEWHERE: Claim = Claim { slot: u32::MAX, generation: 0 };
/// How many connections are forgotten at once where all are open.
const FORGOTTEN_AT_ONCE: usize = 64;

/// What a queue has done. Counts of segments.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Left.
    pub accepted: u64,
    /// Were held before they had a verdict.
    pub held: u64,
    /// Dropped: of connections that are not known.
    pub unknown: u64,
    /// Dropped: RST of gated connections, and everything of closed ones.
    pub closed: u64,
    /// Dropped while the lease does not hold, or the fence had a gap: of gated connections, and SYNs of new ones.
    pub no_lease: u64,
    /// Dropped: a later one says the same.
    pub superseded: u64,
    /// Dropped: a bound was reached.
    pub bound: u64,
    /// Connections that were forgotten at the bound.
    pub forgotten: u64,
}

#[derive(Copy, Clone, Debug)]
struct Held {
    packet: u32,
    /// Offset that it acknowledges; `None`: it does not.
    ack: Option<i64>,
    /// Offsets of its data.
    start: i64,
    end: i64,
    window: u16,
    pure_ack: bool,
    fin: bool,
    /// When it came: CLOCK_BOOTTIME in milliseconds.
    since: u64,
}

/// What is known of where a connection begins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Beginning {
    /// Our SYN went out: the number of it.
    Half { iss: u32 },
    /// Both SYNs: their numbers.
    Whole { iss: u32, irs: u32 },
    /// It is older than the gate.
    Older,
}

#[derive(Debug)]
struct Flow {
    connection: Connection,
    /// Which of all flows it is: a number that no other has.
    birth: u64,
    beginning: Beginning,
    /// Nothing but SYNs was seen.
    handshake: bool,
    /// Our FIN has left.
    finished: bool,
    /// The use of a slot that was for this connection, if there was one; whether it still is.
    claim: Option<Claim>,
    bound: bool,
    held: VecDeque<Held>,
    /// Highest offsets that were seen, acknowledged and end of data: 64 bits are counted from here.
    seen: (i64, i64),
    /// Highest offsets that have left.
    passed: (i64, i64),
    /// Offsets of the data that is held: the lowest and the highest. `None`: to be looked for.
    range: Option<(i64, i64)>,
    /// It is of the process before: what was seen is not known.
    is_restored: bool,
    /// It is in `Flows::holding`.
    is_holding: bool,
    /// It is in `Flows::changed`.
    is_changed: bool,
    /// It is in `Flows::told`.
    is_told: bool,
}

impl Flow {
    fn new(connection: Connection, birth: u64, beginning: Beginning) -> Self {
        Self {
            connection,
            birth,
            beginning,
            handshake: beginning != Beginning::Older,
            finished: false,
            claim: None,
            bound: false,
            held: VecDeque::new(),
            seen: (0, 0),
            passed: (0, 0),
            range: None,
            is_restored: false,
            is_holding: false,
            is_changed: false,
            is_told: false,
        }
    }

    /// The segment by offsets; learns where the peer begins from the first one that acknowledges.
    fn offsets(&mut self, segment: &Segment) -> Option<(Option<i64>, i64, i64)> {
        let acknowledges = segment.acknowledges();
        let (iss, irs) = match self.beginning {
            Beginning::Older => return None,
            // The first ACK of who has dialed is that of the SYN-ACK: the peer may send no data before it.
            Beginning::Half { iss } if acknowledges => (iss, segment.ack.wrapping_sub(1)),
            // Nothing that does not acknowledge leaves but SYNs.
            Beginning::Half { .. } => return None,
            Beginning::Whole { iss, irs } => (iss, irs),
        };
        self.beginning = Beginning::Whole { iss, irs };
        let start = near(self.seen.1, segment.seq.wrapping_sub(iss).wrapping_sub(1));
        let ack = acknowledges.then(|| near(self.seen.0, segment.ack.wrapping_sub(irs).wrapping_sub(1)));
        Some((ack, start, start + i64::from(segment.payload)))
    }

    /// The lowest and the highest offset of the data that is held.
    fn data_held(&mut self) -> (i64, i64) {
        let (held, none) = (&self.held, (i64::MAX, i64::MIN));
        *self.range.get_or_insert_with(|| {
            let data = held.iter().filter(|held| held.end > held.start);
            data.fold(none, |(start, end), held| (start.min(held.start), end.max(held.end)))
        })
    }

    fn record(&self) -> Record {
        let (iss, irs, has_irs, older) = match self.beginning {
            Beginning::Half { iss } => (iss, 0, false, false),
            Beginning::Whole { iss, irs } => (iss, irs, true, false),
            Beginning::Older => (0, 0, false, true),
        };
        Record {
            connection: self.connection,
            iss,
            irs,
            has_irs,
            older,
            handshake: self.handshake,
            finished: self.finished,
            claim: self.claim,
            bound: self.bound,
        }
    }
}

/// The offset with these low 32 bits that is nearest to another one.
fn near(known: i64, low: u32) -> i64 {
    known + i64::from(low.wrapping_sub(known as u32).cast_signed())
}

/// Offsets below 0 are those of SYNs.
fn told(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0)
}

/// May it leave? The state of the slot and its watermarks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Gate {
    Open,
    Upto {
        received: u64,
        sent: u64,
    },
    /// Dropped: nothing leaves.
    Closed,
    /// Dropped: the lease does not hold.
    NoLease,
}

/// Verdicts that are to be told to the kernel, in this order.
pub type Verdicts = Vec<(u32, Verdict)>;

/// The connections of one queue. See the module's text.
#[derive(Debug)]
pub struct Flows {
    vrf: u32,
    room: usize,
    index: HashMap<Connection, u32, HashKey>,
    /// By number; that is also the number of their record.
    flows: Vec<Option<Flow>>,
    free: Vec<u32>,
    births: u64,
    /// Flows that may make room, oldest first; some are not there any more, or may not now.
    expendable: VecDeque<(u32, u64)>,
    /// Numbers of those that hold something, or did a moment ago.
    holding: Vec<u32>,
    held: usize,
    /// Numbers of those whose record is to be written.
    changed: Vec<u32>,
    /// Numbers of those of which the marks do not say yet what is held and what has passed.
    untold: Vec<u32>,
    /// Word 0 of each slot, as it was last looked at, and the flow that it is bound to.
    slots: Vec<(u64, Option<u32>)>,
    changes: Option<u64>,
    /// Some are of the process before, and no slot was looked at since.
    is_restored: bool,
    counts: Counts,
}

impl Flows {
    /// No connections yet, for the VRF with this number, and a queue with room for so many packets.
    pub fn new(vrf: u32, room: usize, key: HashKey) -> Self {
        Self {
            vrf,
            room,
            index: HashMap::with_hasher(key),
            flows: Vec::new(),
            free: Vec::new(),
            births: 0,
            expendable: VecDeque::new(),
            holding: Vec::new(),
            held: 0,
            changed: Vec::new(),
            untold: Vec::new(),
            slots: Vec::new(),
            changes: None,
            is_restored: false,
            counts: Counts::default(),
        }
    }

    /// The connections that the process before has known, each with the number of its record. Those whose slot had been
    /// looked at let nothing leave before the slot is looked at again.
    pub fn restore(&mut self, records: impl IntoIterator<Item = (u32, Record)>) {
        for (number, record) in records {
            let place = number as usize;
            if place >= MOST_FLOWS || self.index.contains_key(&record.connection) {
                continue;
            }
            if self.flows.len() <= place {
                self.flows.resize_with(place + 1, || None);
            }
            if self.flows[place].is_some() {
                continue;
            }
            let beginning = match (record.older, record.has_irs) {
                (true, _) => Beginning::Older,
                (false, true) => Beginning::Whole { iss: record.iss, irs: record.irs },
                (false, false) => Beginning::Half { iss: record.iss },
            };
            self.births += 1;
            let connection = Connection { vrf: self.vrf, ..record.connection };
            let mut flow = Flow::new(connection, self.births, beginning);
            (flow.handshake, flow.finished) = (record.handshake, record.finished);
            (flow.claim, flow.bound, flow.is_restored) = (record.claim, record.bound, true);
            self.index.insert(connection, number);
            self.flows[place] = Some(flow);
            self.expendable.push_back((number, self.births));
        }
        self.free = (0..self.flows.len() as u32)
            .rev()
            .filter(|number| self.flows[*number as usize].is_none())
            .collect();
        (self.changes, self.is_restored) = (None, true);
    }

    /// A connection that was there when the gate began: everything of it passes. One that is known stays as it is.
    pub fn add_older(&mut self, connection: Connection) {
        let connection = Connection { vrf: self.vrf, ..connection };
        if !self.index.contains_key(&connection) {
            self.begin(connection, Beginning::Older, &mut Vec::new());
        }
    }

    /// How many connections are known.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Segments that are held now.
    pub fn held(&self) -> usize {
        self.held
    }

    /// When the segment came that is held for longest: CLOCK_BOOTTIME in milliseconds.
    pub fn oldest_held(&self) -> Option<u64> {
        let first = |number: &u32| Some(self.flow(*number)?.held.front()?.since);
        self.holding.iter().filter_map(first).min()
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The records that changed since the last call: each with its number, or `None` for a connection that is
    /// known no more.
    pub fn take_changed(&mut self, mut each: impl FnMut(u32, Option<Record>)) {
        for number in std::mem::take(&mut self.changed) {
            let flow = self.flows.get_mut(number as usize).and_then(Option::as_mut);
            each(
                number,
                flow.map(|flow| {
                    flow.is_changed = false;
                    flow.record()
                }),
            );
        }
    }

    /// Looks at the slots that have changed. Without marks, what has had a slot lets nothing leave. To be called before
    /// the other calls that take marks whenever [`Marks::changes`] may be another, and when there are other marks: then with
    /// `anew`.
    pub fn look_at_slots(&mut self, marks: Option<&Marks<'_>>, anew: bool, verdicts: &mut Verdicts) {
        if anew {
            self.slots.clear();
            self.changes = None;
            // Whatever these marks say of a slot, it is not said of the use that was known.
            for number in 0..self.flows.len() as u32 {
                if let Some(flow) = self.flow_mut(number).filter(|flow| flow.claim.is_some()) {
                    flow.claim = if flow.bound { Some(ELSEWHERE) } else { None };
                    self.change(number);
                }
            }
        }
        let Some(marks) = marks else { return };
        let changes = marks.changes();
        if self.changes == Some(changes) {
            return;
        }
        self.slots.resize(marks.slots(), (0, None));
        // Before the slots are looked at: what changes meanwhile is looked at again.
        self.changes = Some(changes);
        for slot in 0..marks.slots() as u32 {
            let word = marks.state_word(slot).unwrap_or(0);
            if self.slots[slot as usize].0 != word {
                self.look_at_slot(marks, slot, word, verdicts);
            }
        }
        if std::mem::take(&mut self.is_restored) {
            self.leave_ended(marks);
        }
    }

    /// Of what the process before had bound, the uses may have ended since.
    fn leave_ended(&mut self, marks: &Marks<'_>) {
        for number in 0..self.flows.len() as u32 {
            let has_ended = |flow: &&mut Flow| {
                flow.bound
                    && flow.claim.is_some_and(|claim| claim != ELSEWHERE && marks.watermarks(claim).is_none())
            };
            if let Some(flow) = self.flow_mut(number).filter(has_ended) {
                flow.bound = false;
                self.change(number);
            }
        }
    }

    fn look_at_slot(&mut self, marks: &Marks<'_>, slot: u32, word: u64, verdicts: &mut Verdicts) {
        let view = marks.view(slot);
        let (_, bound) = self.slots[slot as usize];
        // Of a slot that is being changed the word is not taken note of: it is looked at again.
        let noted = if view.is_some() || word & 0xff == 0 { word } else { 0 };
        if view.is_none() && word & 0xff != 0 {
            self.changes = None;
        }
        let bound_flow = bound.and_then(|number| self.flow(number));
        let same = bound_flow.is_some_and(|flow| flow.bound && flow.claim == view.map(|view| view.claim));
        if same {
            self.slots[slot as usize].0 = noted;
            return;
        }
        if let Some(number) = bound {
            let of_slot = |flow: &&mut Flow| flow.claim.is_some_and(|claim| claim.slot == slot);
            if let Some(flow) = self.flow_mut(number).filter(of_slot) {
                // The use has ended: nobody gates the connection any more.
                flow.bound = false;
                self.change(number);
            }
        }
        self.slots[slot as usize] = (noted, None);
        let Some(view) = view.filter(|view| view.connection.vrf == self.vrf) else { return };
        let restored = view.restored.map(|(iss, irs)| Beginning::Whole { iss, irs });
        let known = self.index.get(&view.connection).copied();
        let is_news = restored.filter(|beginning| {
            known.and_then(|number| self.flow(number)).is_none_or(|flow| flow.beginning != *beginning)
        });
        let known = match (known, is_news) {
            (Some(number), None) => Some(number),
            (None, None) => None,
            (_, Some(beginning)) => self.begin_restored(view.connection, known, beginning, marks, verdicts),
        };
        let Some(number) = known else { return };
        let Some(flow) = self.flow_mut(number) else { return };
        // The use was for a connection of the same addresses before this one.
        if flow.claim == Some(view.claim) && !flow.bound {
            return;
        }
        (flow.claim, flow.bound, flow.handshake) = (Some(view.claim), true, false);
        // Watermarks have 64 bits, segments 32.
        let [received, sent] =
            [view.received, view.sent].map(|mark| i64::try_from(mark).unwrap_or(i64::MAX >> 1));
        if std::mem::take(&mut flow.is_restored) {
            (flow.seen, flow.passed) = ((received, sent), (received, sent));
        } else {
            flow.seen = (near(received, flow.seen.0 as u32), near(sent, flow.seen.1 as u32));
            flow.passed = (near(received, flow.passed.0 as u32), near(sent, flow.passed.1 as u32));
        }
        flow.range = None;
        for held in &mut flow.held {
            let start = near(sent, held.start as u32);
            (held.start, held.end) = (start, start + (held.end - held.start));
            held.ack = held.ack.map(|ack| near(received, ack as u32));
        }
        let gating = if flow.beginning == Beginning::Older { Gating::Older } else { Gating::Able };
        let passed = (told(flow.passed.0), told(flow.passed.1));
        marks.set_passed(view.claim, passed.0, passed.1);
        // Last: from now on the connection is held to its watermarks.
        marks.set_gating(view.claim, gating);
        self.slots[slot as usize].1 = Some(number);
        self.change(number);
        self.tell(number);
    }

    /// A connection that another router has begun. One of the same addresses that was known before is no more.
    fn begin_restored(
        &mut self,
        connection: Connection,
        known: Option<u32>,
        beginning: Beginning,
        marks: &Marks<'_>,
        verdicts: &mut Verdicts,
    ) -> Option<u32> {
        match known {
            Some(number) => self.begin_anew(number, beginning, Some(marks), verdicts),
            None => drop(self.begin(connection, beginning, verdicts)),
        }
        let number = self.index.get(&connection).copied()?;
        let flow = self.flow_mut(number)?;
        // As of one that the process before has known: what was seen is what the watermarks say.
        (flow.is_restored, flow.claim) = (true, None);
        Some(number)
    }

    /// A connection that ends or begins anew leaves its slot, which stays for the one before.
    fn leave_slot(&mut self, number: u32, claim: Option<Claim>, marks: Option<&Marks<'_>>) {
        let Some(claim) = claim else { return };
        if let Some(entry) = self.slots.get_mut(claim.slot as usize).filter(|entry| entry.1 == Some(number)) {
            entry.1 = None;
            if let Some(marks) = marks {
                marks.set_gating(claim, Gating::Unseen);
                marks.set_wanted(claim, 0, 0);
                marks.set_waits_since(claim, None);
            }
        }
    }

    /// Decides about a segment, or holds it. `now` is CLOCK_BOOTTIME in milliseconds. `lease`: gated connections may let
    /// something leave, and others may begin.
    pub fn segment(
        &mut self,
        packet: u32,
        segment: &Segment,
        marks: Option<&Marks<'_>>,
        lease: bool,
        now: u64,
        verdicts: &mut Verdicts,
    ) {
        let connection = Connection { vrf: self.vrf, ..segment.connection };
        let known = self.index.get(&connection).copied();
        if segment.is_syn() && !segment.is_rst() {
            self.syn(packet, segment, (connection, known), (marks, lease), verdicts);
            return;
        }
        let Some(number) = known else {
            self.counts.unknown += 1;
            verdicts.push((packet, Verdict::Drop));
            return;
        };
        // What may leave by now goes first.
        if self.flow(number).is_some_and(|flow| !flow.held.is_empty()) {
            self.release_flow(number, marks, lease, verdicts);
        }
        self.decide(number, packet, segment, marks, lease, now, verdicts);
    }

    fn syn(
        &mut self,
        packet: u32,
        segment: &Segment,
        (connection, known): (Connection, Option<u32>),
        (marks, lease): (Option<&Marks<'_>>, bool),
        verdicts: &mut Verdicts,
    ) {
        let beginning = if segment.acknowledges() {
            Beginning::Whole { iss: segment.seq, irs: segment.ack.wrapping_sub(1) }
        } else {
            Beginning::Half { iss: segment.seq }
        };
        let again = known.and_then(|number| Some((number, self.flow(number)?)));
        let verdict = match again {
            // A retransmission: of the same beginning, or by who has learned the other half since.
            Some((number, flow)) if is_same(flow.beginning, beginning) => {
                if self.gate(number, marks, true) == Gate::Closed { Verdict::Drop } else { Verdict::Accept }
            }
            // Whoever has the sessions now would be disturbed by ours.
            _ if !lease => {
                self.counts.no_lease += 1;
                verdicts.push((packet, Verdict::Drop));
                return;
            }
            _ => {
                if let Some(number) = known {
                    self.begin_anew(number, beginning, marks, verdicts);
                    Verdict::Accept
                } else if self.begin(connection, beginning, verdicts) {
                    Verdict::Accept
                } else {
                    self.counts.bound += 1;
                    verdicts.push((packet, Verdict::Drop));
                    return;
                }
            }
        };
        match verdict {
            Verdict::Accept => self.counts.accepted += 1,
            Verdict::Drop => self.counts.closed += 1,
        }
        verdicts.push((packet, verdict));
    }

    #[expect(clippy::too_many_arguments, reason = "one call, which is made for each segment")]
    fn decide(
        &mut self,
        number: u32,
        packet: u32,
        segment: &Segment,
        marks: Option<&Marks<'_>>,
        lease: bool,
        now: u64,
        verdicts: &mut Verdicts,
    ) {
        let gate = self.gate(number, marks, lease);
        let Some(flow) = self.flows.get_mut(number as usize).and_then(Option::as_mut) else { return };
        let before = flow.beginning;
        let offsets = flow.offsets(segment);
        let has_learned = flow.beginning != before || flow.handshake;
        flow.handshake = false;
        if has_learned {
            self.change(number);
        }
        match gate {
            Gate::Open => {
                self.counts.accepted += 1;
                verdicts.push((packet, Verdict::Accept));
                self.pass(number, offsets.map(|(ack, _, end)| (ack, end)), segment.is_fin());
                if segment.is_rst() {
                    self.end(number, marks, verdicts);
                }
                return;
            }
            Gate::Closed => self.counts.closed += 1,
            Gate::NoLease => self.counts.no_lease += 1,
            Gate::Upto { .. } if segment.is_rst() => self.counts.closed += 1,
            Gate::Upto { received, sent } => {
                // What has no offsets is older than the gate, and open.
                if let Some((ack, start, end)) = offsets {
                    let held = Held {
                        packet,
                        ack,
                        start,
                        end,
                        window: segment.window,
                        pure_ack: segment.is_pure_ack(),
                        fin: segment.is_fin(),
                        since: now,
                    };
                    self.leave_or_hold(number, held, (received, sent), verdicts);
                    return;
                }
                self.counts.unknown += 1;
            }
        }
        verdicts.push((packet, Verdict::Drop));
    }

    fn leave_or_hold(&mut self, number: u32, new: Held, marks: (u64, u64), verdicts: &mut Verdicts) {
        let Some(flow) = self.flows.get_mut(number as usize).and_then(Option::as_mut) else { return };
        if flow.held.is_empty() && may_leave(&new, Some(marks)) {
            self.counts.accepted += 1;
            verdicts.push((new.packet, Verdict::Accept));
            self.pass(number, Some((new.ack, new.end)), false);
            return;
        }
        let drop = |verdicts: &mut Verdicts, packet| verdicts.push((packet, Verdict::Drop));
        if is_held_already(flow, &new) {
            self.counts.superseded += 1;
            drop(verdicts, new.packet);
            return;
        }
        let acks = flow.held.iter().rev().take_while(|held| held.pure_ack).count();
        if new.pure_ack && acks > 0 {
            let same = |held: &Held| held.ack == new.ack;
            let duplicates = flow.held.iter().rev().take(acks).take_while(|held| same(held)).count();
            if duplicates >= MOST_DUPLICATES {
                // The newest has the newest window, and knows best what is missing.
                if let Some(last) = flow.held.pop_back() {
                    self.held -= 1;
                    self.counts.superseded += 1;
                    drop(verdicts, last.packet);
                }
            } else if acks >= MOST_ACKS {
                let thinned = thin(&mut flow.held, acks, verdicts);
                self.held -= thinned;
                self.counts.superseded += thinned as u64;
            }
        }
        if flow.held.len() >= MOST_HELD_OF_FLOW || self.held >= self.room {
            self.counts.bound += 1;
            drop(verdicts, new.packet);
            return;
        }
        flow.seen = (new.ack.unwrap_or(flow.seen.0).max(flow.seen.0), new.end.max(flow.seen.1));
        if new.end > new.start {
            let (start, end) = flow.data_held();
            flow.range = Some((start.min(new.start), end.max(new.end)));
        }
        flow.held.push_back(new);
        self.held += 1;
        self.counts.held += 1;
        if !std::mem::replace(&mut flow.is_holding, true) {
            self.holding.push(number);
        }
        self.tell(number);
    }

    /// What may leave of what is held leaves, and what must not be held any more is dropped. `budget` bounds the
    /// connections that are looked at; true: there are more.
    pub fn release(
        &mut self,
        marks: Option<&Marks<'_>>,
        lease: bool,
        from: &mut usize,
        budget: usize,
        verdicts: &mut Verdicts,
    ) -> bool {
        let mut looked_at = 0;
        while let Some(number) = self.holding.get(*from).copied() {
            if looked_at == budget {
                return true;
            }
            looked_at += 1;
            self.release_flow(number, marks, lease, verdicts);
            let still = self.flow(number).is_some_and(|flow| !flow.held.is_empty());
            if still {
                *from += 1;
            } else {
                self.holding.swap_remove(*from);
                if let Some(flow) = self.flow_mut(number) {
                    flow.is_holding = false;
                }
            }
        }
        *from = 0;
        false
    }

    /// Drops everything that is held: the kernel may have done so already, and does not say which.
    pub fn drop_held(&mut self, verdicts: &mut Verdicts) {
        for number in std::mem::take(&mut self.holding) {
            let Some(flow) = self.flows.get_mut(number as usize).and_then(Option::as_mut) else { continue };
            flow.is_holding = false;
            self.held -= flow.held.len();
            self.counts.no_lease += flow.held.len() as u64;
            flow.range = None;
            verdicts.extend(flow.held.drain(..).map(|held| (held.packet, Verdict::Drop)));
            self.tell(number);
        }
    }

    /// Says in the marks what is held, and what has left: of the connections for which that has changed.
    /// True: something is held that was not when this was last called, and somebody is to be told.
    pub fn tell_marks(&mut self, marks: Option<&Marks<'_>>) -> bool {
        let mut is_news = false;
        for number in std::mem::take(&mut self.untold) {
            let Some(flow) = self.flow_mut(number) else { continue };
            flow.is_told = false;
            let (Some(claim), true) = (flow.claim, flow.bound) else { continue };
            let highest = |of: fn(&Held) -> i64| flow.held.iter().map(of).max().map_or(0, told);
            let wanted = (highest(|held| held.ack.unwrap_or(0)), highest(|held| held.end));
            let passed = (told(flow.passed.0), told(flow.passed.1));
            let beginning = flow.beginning;
            let (holds, since) = (!flow.held.is_empty(), flow.held.front().map(|held| held.since));
            if let Some(marks) = marks {
                let before = marks.wanted(claim);
                marks.set_wanted(claim, wanted.0, wanted.1);
                marks.set_passed(claim, passed.0, passed.1);
                marks.set_waits_since(claim, since);
                if let Beginning::Whole { iss, irs } = beginning {
                    marks.set_numbers(claim, iss, irs);
                }
                is_news |= holds && before.is_none_or(|before| before.0 < wanted.0 || before.1 < wanted.1);
            }
        }
        is_news
    }

    fn gate(&self, number: u32, marks: Option<&Marks<'_>>, lease: bool) -> Gate {
        let Some(flow) = self.flow(number) else { return Gate::Closed };
        let (Some(claim), true) = (flow.claim, flow.bound) else { return Gate::Open };
        // It was gated, and nobody says how far.
        let is_looked_at = self.slots.get(claim.slot as usize).is_some_and(|slot| slot.1 == Some(number));
        let Some(marks) = marks.filter(|_| is_looked_at) else { return Gate::Closed };
        match marks.watermarks(claim) {
            // The use has ended since the slots were looked at. That is seen the next time, and all waits until then.
            None => Gate::Upto { received: 0, sent: 0 },
            Some((SlotState::Closed | SlotState::Free, ..)) => Gate::Closed,
            Some((SlotState::Open, ..)) => Gate::Open,
            Some((SlotState::Gated, ..)) if flow.beginning == Beginning::Older => Gate::Open,
            Some((SlotState::Gated, ..)) if !lease => Gate::NoLease,
            Some((SlotState::Gated, received, sent)) => Gate::Upto { received, sent },
        }
    }

    fn release_flow(&mut self, number: u32, marks: Option<&Marks<'_>>, lease: bool, verdicts: &mut Verdicts) {
        let gate = self.gate(number, marks, lease);
        let Some(flow) = self.flows.get_mut(number as usize).and_then(Option::as_mut) else { return };
        if flow.held.is_empty() {
            return;
        }
        let upto = match gate {
            Gate::Open => None,
            Gate::Upto { received, sent } => Some((received, sent)),
            Gate::Closed | Gate::NoLease => {
                let dropped = flow.held.len();
                self.held -= dropped;
                match gate {
                    Gate::NoLease => self.counts.no_lease += dropped as u64,
                    _ => self.counts.closed += dropped as u64,
                }
                flow.range = None;
                verdicts.extend(flow.held.drain(..).map(|held| (held.packet, Verdict::Drop)));
                self.tell(number);
                return;
            }
        };
        let mut passed = None;
        flow.range = None;
        while let Some(first) = flow.held.front().copied().filter(|held| may_leave(held, upto)) {
            flow.held.pop_front();
            self.held -= 1;
            let is_said_by = |next: &Held| {
                next.pure_ack
                    && may_leave(next, upto)
                    && (next.ack > first.ack || next.window != first.window)
            };
            if first.pure_ack && flow.held.front().is_some_and(is_said_by) {
                self.counts.superseded += 1;
                verdicts.push((first.packet, Verdict::Drop));
                continue;
            }
            self.counts.accepted += 1;
            verdicts.push((first.packet, Verdict::Accept));
            let (ack, end, fin) = passed.unwrap_or((None, i64::MIN, false));
            passed = Some((first.ack.max(ack), first.end.max(end), first.fin || fin));
        }
        if let Some((ack, end, fin)) = passed {
            self.pass(number, Some((ack, end)), fin);
        }
    }

    /// Something of it has left.
    fn pass(&mut self, number: u32, offsets: Option<(Option<i64>, i64)>, fin: bool) {
        let Some(flow) = self.flow_mut(number) else { return };
        if let Some((ack, end)) = offsets {
            flow.seen = (ack.unwrap_or(flow.seen.0).max(flow.seen.0), end.max(flow.seen.1));
            flow.passed = (ack.unwrap_or(flow.passed.0).max(flow.passed.0), end.max(flow.passed.1));
        }
        let has_finished = fin && !std::mem::replace(&mut flow.finished, true);
        let (is_bound, birth) = (flow.bound, flow.birth);
        if has_finished {
            self.expend(number, birth);
            self.change(number);
        }
        if is_bound {
            self.tell(number);
        }
    }

    /// A new connection; false: there is no room.
    fn begin(&mut self, connection: Connection, beginning: Beginning, verdicts: &mut Verdicts) -> bool {
        if self.index.len() >= MOST_FLOWS && !self.make_room(verdicts) {
            return false;
        }
        self.births += 1;
        let flow = Flow::new(connection, self.births, beginning);
        let number = self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            (self.flows.len() - 1) as u32
        });
        self.flows[number as usize] = Some(flow);
        self.index.insert(connection, number);
        self.expend(number, self.births);
        self.change(number);
        true
    }

    /// Another connection between the same sockets' addresses.
    fn begin_anew(
        &mut self,
        number: u32,
        beginning: Beginning,
        marks: Option<&Marks<'_>>,
        verdicts: &mut Verdicts,
    ) {
        self.births += 1;
        let birth = self.births;
        let Some(flow) = self.flows.get_mut(number as usize).and_then(Option::as_mut) else { return };
        self.held -= flow.held.len();
        self.counts.closed += flow.held.len() as u64;
        flow.range = None;
        verdicts.extend(flow.held.drain(..).map(|held| (held.packet, Verdict::Drop)));
        let claim = flow.claim;
        let before = std::mem::replace(flow, Flow::new(flow.connection, birth, beginning));
        // The use of the slot is for the one before, and stays so.
        (flow.claim, flow.bound) = (claim, false);
        (flow.is_holding, flow.is_changed, flow.is_told) =
            (before.is_holding, before.is_changed, before.is_told);
        self.leave_slot(number, claim.filter(|_| before.bound), marks);
        self.expend(number, birth);
        self.change(number);
    }

    fn end(&mut self, number: u32, marks: Option<&Marks<'_>>, verdicts: &mut Verdicts) {
        let Some(flow) = self.flows.get_mut(number as usize).and_then(Option::take) else { return };
        self.index.remove(&flow.connection);
        self.free.push(number);
        self.held -= flow.held.len();
        self.counts.closed += flow.held.len() as u64;
        verdicts.extend(flow.held.iter().map(|held| (held.packet, Verdict::Drop)));
        if flow.is_holding {
            self.holding.retain(|other| *other != number);
        }
        self.leave_slot(number, flow.claim.filter(|_| flow.bound), marks);
        if !flow.is_changed {
            self.changed.push(number);
        }
    }

    /// Forgets a connection that is finished, or of which nothing but a SYN was seen; if there is none, the oldest that are open.
    fn make_room(&mut self, verdicts: &mut Verdicts) -> bool {
        while let Some((number, birth)) = self.expendable.pop_front() {
            let is_expendable = |flow: &&Flow| {
                flow.birth == birth
                    && (flow.finished || flow.handshake)
                    && !flow.bound
                    && flow.held.is_empty()
            };
            if self.flow(number).filter(is_expendable).is_some() {
                self.counts.forgotten += 1;
                self.end(number, None, verdicts);
                return true;
            }
        }
        let mut open: Vec<_> = self
            .flows
            .iter()
            .enumerate()
            .filter_map(|(number, flow)| {
                let flow = flow.as_ref().filter(|flow| !flow.bound && flow.held.is_empty())?;
                Some((flow.birth, number as u32))
            })
            .collect();
        open.sort_unstable();
        open.truncate(FORGOTTEN_AT_ONCE);
        for (_, number) in &open {
            self.counts.forgotten += 1;
            self.end(*number, None, verdicts);
        }
        !open.is_empty()
    }

    fn expend(&mut self, number: u32, birth: u64) {
        if self.expendable.len() >= 2 * MOST_FLOWS {
            let flows = &self.flows;
            self.expendable.retain(|(number, birth)| {
                let flow = flows.get(*number as usize).and_then(Option::as_ref);
                flow.is_some_and(|flow| flow.birth == *birth && (flow.finished || flow.handshake))
            });
            // One that is finished may be in it twice.
            self.expendable.truncate(2 * MOST_FLOWS - 1);
        }
        self.expendable.push_back((number, birth));
    }

    fn change(&mut self, number: u32) {
        if let Some(flow) = self.flow_mut(number)
            && !std::mem::replace(&mut flow.is_changed, true)
        {
            self.changed.push(number);
        }
    }

    fn tell(&mut self, number: u32) {
        if let Some(flow) = self.flow_mut(number)
            && !std::mem::replace(&mut flow.is_told, true)
        {
            self.untold.push(number);
        }
    }

    #[inline]
    fn flow(&self, number: u32) -> Option<&Flow> {
        self.flows.get(number as usize)?.as_ref()
    }

    #[inline]
    fn flow_mut(&mut self, number: u32) -> Option<&mut Flow> {
        self.flows.get_mut(number as usize)?.as_mut()
    }
}

/// Whether it may leave: `None`, everything may.
#[inline]
fn may_leave(held: &Held, upto: Option<(u64, u64)>) -> bool {
    let Some((received, sent)) = upto else { return true };
    // Offsets below 0 are those of SYNs.
    let covers =
        |mark: u64, offset: i64| u64::try_from(offset).is_ok_and(|offset| offset <= mark) || offset < 0;
    let has_data = held.end > held.start;
    !held.fin && held.ack.is_none_or(|ack| covers(received, ack)) && (!has_data || covers(sent, held.end))
}

/// A retransmission of what is held, which acknowledges nothing new.
fn is_held_already(flow: &mut Flow, new: &Held) -> bool {
    let is_news = new.ack.is_some_and(|ack| ack > flow.seen.0);
    if is_news || (new.end == new.start && !new.fin) {
        return false;
    }
    if new.fin {
        return flow.held.iter().any(|held| held.fin && held.end == new.end);
    }
    let (start, end) = flow.data_held();
    new.start >= start && new.end <= end
}

/// Drops every second of the last `acks`, but not the last; how many.
fn thin(held: &mut VecDeque<Held>, acks: usize, verdicts: &mut Verdicts) -> usize {
    let first = held.len() - acks;
    let last = held.len() - 1;
    let mut place = 0;
    let before = held.len();
    held.retain(|one| {
        let goes = place >= first && place < last && (place - first) % 2 == 1;
        place += 1;
        if goes {
            verdicts.push((one.packet, Verdict::Drop));
        }
        !goes
    });
    before - held.len()
}

/// Whether a SYN is that of a connection that is known.
fn is_same(known: Beginning, syn: Beginning) -> bool {
    match (known, syn) {
        (Beginning::Half { iss } | Beginning::Whole { iss, .. }, Beginning::Half { iss: again }) => {
            iss == again
        }
        (Beginning::Whole { .. }, Beginning::Whole { .. }) => known == syn,
        (Beginning::Half { .. } | Beginning::Older, _) | (Beginning::Whole { .. }, Beginning::Older) => false,
    }
}
