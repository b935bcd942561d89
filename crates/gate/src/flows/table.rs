//! Which connections are known: beginning, end, and what happens at the bound.

use super::{
    FORGOTTEN_AT_ONCE, Flows, MOST_FLOWS, Verdicts,
    flow::{Beginning, Flow},
};
use crate::{Connection, Marks, nfnetlink::Verdict};

impl Flows {
    /// A new connection; false: there is no room.
    pub(super) fn begin(&mut self, connection: Connection, beginning: Beginning) -> bool {
        if self.index.len() >= MOST_FLOWS && !self.make_room() {
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
    pub(super) fn begin_anew(
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

    /// Forgets one that has no slot, and of which nothing is held.
    fn forget(&mut self, number: u32) {
        let Some(flow) = self.flows.get_mut(number as usize).and_then(Option::take) else { return };
        self.index.remove(&flow.connection);
        self.free.push(number);
        self.counts.forgotten += 1;
        if flow.is_holding {
            self.holding.retain(|other| *other != number);
        }
        if !flow.is_changed {
            self.changed.push(number);
        }
    }

    /// Forgets a connection that is finished, or of which nothing but a SYN was seen; if there is none, the newest that are
    /// open: whoever begins many does not end those that have lasted.
    fn make_room(&mut self) -> bool {
        while let Some((number, birth)) = self.expendable.pop_front() {
            let is_expendable = |flow: &&Flow| {
                flow.birth == birth
                    && (flow.finished || flow.handshake)
                    && !flow.bound
                    && flow.held.is_empty()
            };
            if self.flow(number).filter(is_expendable).is_some() {
                self.forget(number);
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
        open.sort_unstable_by_key(|(birth, _)| std::cmp::Reverse(*birth));
        open.truncate(FORGOTTEN_AT_ONCE);
        for (_, number) in &open {
            self.forget(*number);
        }
        !open.is_empty()
    }

    pub(super) fn expend(&mut self, number: u32, birth: u64) {
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

    pub(super) fn change(&mut self, number: u32) {
        if let Some(flow) = self.flow_mut(number)
            && !std::mem::replace(&mut flow.is_changed, true)
        {
            self.changed.push(number);
        }
    }

    pub(super) fn tell(&mut self, number: u32) {
        if let Some(flow) = self.flow_mut(number)
            && !std::mem::replace(&mut flow.is_told, true)
        {
            self.untold.push(number);
        }
    }

    #[inline]
    pub(super) fn flow(&self, number: u32) -> Option<&Flow> {
        self.flows.get(number as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn flow_mut(&mut self, number: u32) -> Option<&mut Flow> {
        self.flows.get_mut(number as usize)?.as_mut()
    }
}
