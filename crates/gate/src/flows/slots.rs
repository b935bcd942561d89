//! What the marks say of connections, and what they are told of them.

use super::{
    ELSEWHERE, Flows, Gate, Verdicts,
    flow::{Beginning, Flow, Held, near, told},
};
use crate::{Claim, Connection, Gating, Marks, SlotState};

impl Flows {
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
        let known = match is_news {
            None => known,
            Some(beginning) => self.begin_restored(view.connection, known, beginning, marks, verdicts),
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
            None => drop(self.begin(connection, beginning)),
        }
        let number = self.index.get(&connection).copied()?;
        let flow = self.flow_mut(number)?;
        // As of one that the process before has known: what was seen is what the watermarks say.
        (flow.is_restored, flow.claim) = (true, None);
        Some(number)
    }

    /// A connection that ends or begins anew leaves its slot, which stays for the one before.
    pub(super) fn leave_slot(&mut self, number: u32, claim: Option<Claim>, marks: Option<&Marks<'_>>) {
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

    pub(super) fn gate(&self, number: u32, marks: Option<&Marks<'_>>, lease: bool) -> Gate {
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
}
