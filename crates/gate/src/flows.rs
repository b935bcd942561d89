//! The connections of one queue, and which of their segments may leave.
//!
//! Every segment that the queue hands over is [decided](Flows::segment) at once or held; what is held is looked at again when
//! watermarks have moved ([`Flows::release`]). The verdicts of each connection come in the order of its segments.
//!
//! | connection | SYN | data, ACK | FIN | RST |
//! |---|---|---|---|---|
//! | unknown: no SYN was seen, and it is not older than the gate | begins one | dropped | dropped | dropped |
//! | unknown, and all sessions are here ([`Marks::is_whole`]) | begins one | dropped | dropped | passes |
//! | any, without a lease, while another router has the sessions ([`Marks::is_fenced`]) | dropped | dropped | dropped | dropped |
//! | unknown, without a lease | dropped | dropped | dropped | dropped |
//! | open, without a slot, or older than the gate | passes | passes | passes | passes; the first to make room |
//! | gated | passes | leaves when the watermarks cover it | held until it is open | dropped |
//! | gated, without a lease | passes | dropped | dropped | dropped |
//! | closed | dropped | dropped | dropped | dropped |
//!
//! Where all sessions are here the kernel's RST tells a peer that its connection is no more, as any host's does: the peer would
//! wait for the end of its hold time. Before, that connection may be one that is still to be made again.
//!
//! # What is not held
//! - Pure ACKs: of a run of those that may leave only the last does, and a run of those that may not is thinned out
//!   at [`MOST_ACKS`]. The oldest and the newest stay: the peer hears of each advance of the watermark, and of the newest window.
//! - A retransmission of what is held, unless it acknowledges more than anything before it. The kernel would put the
//!   same octets into the queue again with every time-out.
//!
//! # Bounds
//! [`MOST_FLOWS`] connections, [`MOST_HELD_OF_FLOW`] segments of each, and as many of all as the queue has room for.

mod flow;
mod slots;
mod table;

use std::collections::VecDeque;

use hashbrown::HashMap;
use holdfast_types::HashKey;

use self::flow::{Beginning, Flow, Held, is_held_already, is_same, may_leave, thin};
use crate::{Claim, Connection, Marks, Record, Segment, nfnetlink::Verdict};

/// Most connections of a queue. Finished ones, then those of which nothing but a SYN was seen, then the newest that are open, make
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
            self.begin(connection, Beginning::Older);
        }
    }

    /// Whether a connection is known.
    pub fn knows(&self, connection: &Connection) -> bool {
        self.index.contains_key(connection)
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
        if !lease && marks.is_some_and(Marks::is_fenced) {
            self.counts.closed += 1;
            verdicts.push((packet, Verdict::Drop));
            return;
        }
        let connection = Connection { vrf: self.vrf, ..segment.connection };
        let known = self.index.get(&connection).copied();
        if segment.is_syn() && !segment.is_rst() {
            self.syn(packet, segment, (connection, known), (marks, lease), verdicts);
            return;
        }
        let Some(number) = known else {
            if segment.is_rst() && lease && marks.is_some_and(Marks::is_whole) {
                self.counts.accepted += 1;
                verdicts.push((packet, Verdict::Accept));
            } else {
                self.counts.unknown += 1;
                verdicts.push((packet, Verdict::Drop));
            }
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
                } else if self.begin(connection, beginning) {
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
        let (before, is_reset) = (flow.beginning, segment.is_rst());
        // The numbers of a reset are those of the segment that it answers: anybody's.
        let offsets = if is_reset { None } else { flow.offsets(segment) };
        let goes_on = flow.finished && segment.payload > 0 && !segment.is_fin();
        let has_learned = flow.beginning != before || goes_on || (flow.handshake && !is_reset);
        (flow.handshake, flow.finished) = (flow.handshake && is_reset, flow.finished && !goes_on);
        if has_learned {
            self.change(number);
        }
        match gate {
            Gate::Open => {
                self.counts.accepted += 1;
                verdicts.push((packet, Verdict::Accept));
                // After a reset the connection may go on: the kernel answers a wrong segment of a handshake so.
                let ends = segment.is_fin() || segment.is_rst();
                self.pass(number, offsets.map(|(ack, _, end)| (ack, end)), ends);
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
}
