//! The policy between BGP and the RIB: which best routes the RIB is given, and with what tag and metric.
//!
//! It stands behind import policy and decision, so a route that it keeps back is announced to peers all the same. What
//! it says of an attribute set is remembered beside the set, as that of export policies is.

use holdfast_policy::{Edits, Program, Verdict};
use holdfast_types::Prefix;

use crate::{
    core::Core,
    path::{Path, SetId},
    verdicts::GroupNumber,
};

/// What the RIB is told of a route for the policies of others.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Labels {
    pub(crate) tag: u32,
    pub(crate) metric: u32,
}

/// The answer that keeps a set back; all others are numbers of labels.
const REFUSED: u8 = u8::MAX;

/// A policy and what it has said.
#[derive(Debug)]
pub(crate) struct RibPolicy {
    program: Program,
    number: GroupNumber,
    /// By the number that is remembered beside sets; of more than these nothing is remembered.
    labels: Vec<Labels>,
    edits: Edits,
}

impl RibPolicy {
    /// `number` is nobody else's.
    pub(crate) fn new(program: Program, number: GroupNumber) -> Self {
        Self { program, number, labels: Vec::new(), edits: Edits::default() }
    }

    /// Whether what it says of a set holds for all prefixes and sources.
    pub(crate) fn is_for_all(&self) -> bool {
        !self.program.reads_prefix()
    }

    /// What the RIB is told of the best path of a prefix, whose set after import policy is `set`; `None`: nothing.
    pub(crate) fn judge(
        &mut self,
        core: &mut Core,
        prefix: Prefix,
        best: Path,
        set: SetId,
    ) -> Option<Labels> {
        if !self.is_for_all() {
            return self.evaluate(core, prefix, best, set);
        }
        match core.sets.exported.get(set, self.number) {
            Some(REFUSED) => return None,
            Some(known) => return self.labels.get(usize::from(known)).copied(),
            None => {}
        }
        let labels = self.evaluate(core, prefix, best, set);
        let answer = labels.map_or(Some(REFUSED), |labels| self.remember(labels));
        answer.into_iter().for_each(|answer| core.sets.exported.put(set, self.number, answer));
        labels
    }

    fn evaluate(&mut self, core: &Core, prefix: Prefix, best: Path, set: SetId) -> Option<Labels> {
        let sender = core.sources.get(best.source).asn;
        let route = core.route(prefix, set).to(sender);
        if self.program.evaluate(&route, &mut self.edits) != Verdict::Accept {
            return None;
        }
        // The way to the next hop is the RIB's own to know.
        let metric = self.edits.med.and_then(|edit| edit.value(None)).unwrap_or(0);
        Some(Labels { tag: self.edits.tag.unwrap_or(tag(core, set)), metric })
    }

    fn remember(&mut self, labels: Labels) -> Option<u8> {
        let known = self.labels.iter().position(|known| *known == labels);
        let number = known.or_else(|| {
            let has_room = self.labels.len() < usize::from(REFUSED);
            has_room.then(|| {
                self.labels.push(labels);
                self.labels.len() - 1
            })
        });
        number.and_then(|number| u8::try_from(number).ok())
    }
}

/// The tag that a set carries.
pub(crate) fn tag(core: &Core, set: SetId) -> u32 {
    core.classes.get(core.sets.class(set)).tag
}
