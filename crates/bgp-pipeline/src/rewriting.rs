//! Sets pass the slots for stages that rewrite ([`rewriter`](crate::rewriter)).

use holdfast_types::Asn;

use crate::{
    class::{Class, ClassId},
    core::Core,
    next_hop::Gateway,
    path::SetId,
    rewriter::{Made, Offered, Receiver, Slot},
    sets::Asker,
};

/// What a slot makes of a set.
enum Passed {
    AsItIs,
    /// As this one, which has one more user.
    As(SetId),
    Refused,
}

impl Core {
    /// What counts as received of a set that has just arrived, in the place of its one user; `None`: nothing.
    pub(crate) fn before_import(&mut self, set: SetId) -> Option<SetId> {
        let passed = self.pass_slot(Slot::BeforeImport, set, self.sender(set), None);
        let now = match passed {
            Passed::AsItIs => return Some(set),
            Passed::As(now) => Some(now),
            Passed::Refused => None,
        };
        self.sets.release(set);
        now
    }

    /// What passes behind import policy, which has made `derived` of a set as received: with one user more than the
    /// received set, unless it is that. `derived` comes with one, unless it is.
    pub(crate) fn after_import(&mut self, set: SetId, derived: SetId) -> Option<SetId> {
        if !self.is_rewritten(set) {
            return Some(derived);
        }
        let now = match self.pass_slot(Slot::AfterImport, derived, self.sender(set), None) {
            Passed::AsItIs => return Some(derived),
            Passed::As(now) => Some(now),
            Passed::Refused => None,
        };
        if derived != set {
            self.sets.release(derived);
        }
        now
    }

    /// Whether a received set passes a slot behind import policy; routes of our own do not.
    #[inline]
    pub(crate) fn is_rewritten(&self, set: SetId) -> bool {
        self.rewriters.are_in(Slot::AfterImport) && self.classes.get(self.sets.class(set)).rules.is_some()
    }

    /// What is offered to export policies for this kind of receiver in the place of a set after import; `None`: nothing.
    pub(crate) fn before_export(&mut self, set: SetId, receiver: Receiver) -> Option<SetId> {
        self.offered(Slot::BeforeExport, set, Asker::Receiver(receiver), Some(receiver))
    }

    /// The same for the RIB's.
    #[inline]
    pub(crate) fn before_rib(&mut self, set: SetId) -> Option<SetId> {
        match self.rewriters.are_in(Slot::BeforeRib) {
            true => self.offered(Slot::BeforeRib, set, Asker::Rib, None),
            false => Some(set),
        }
    }

    fn offered(&mut self, slot: Slot, set: SetId, asker: Asker, to: Option<Receiver>) -> Option<SetId> {
        if let Some(known) = self.sets.offered(set, asker) {
            return known;
        }
        let passed = self.pass_slot(slot, set, None, to);
        let (now, is_other) = match passed {
            Passed::AsItIs => (Some(set), false),
            Passed::As(now) => (Some(now), true),
            Passed::Refused => (None, false),
        };
        let is_kept = self.sets.keep_offered(set, asker, now);
        if is_other && !is_kept {
            // It stays until all readers have passed what is under way.
            now.into_iter().for_each(|now| self.sets.release(now));
        }
        now
    }

    fn sender(&self, set: SetId) -> Option<Asn> {
        Some(self.classes.get(self.sets.class(set)).peer_asn)
    }

    fn pass_slot(
        &mut self,
        slot: Slot,
        set: SetId,
        sender: Option<Asn>,
        receiver: Option<Receiver>,
    ) -> Passed {
        let Self { rewriters, sets, classes, next_hops, .. } = self;
        let next_hop = next_hops.gateway(sets.next_hop(set)).map(|gateway| gateway.address);
        let (attributes, tag) = (sets.attributes(set), classes.get(sets.class(set)).tag);
        let replacement = match rewriters.ask(Offered { slot, sender, receiver, attributes, next_hop, tag }) {
            Made::Unchanged => return Passed::AsItIs,
            Made::Refused => return Passed::Refused,
            Made::Replaced(replacement) => replacement,
        };
        let Some(class) = self.class_behind(slot, set, replacement.tag) else { return Passed::Refused };
        let hop = match replacement.next_hop {
            Some(address) => self.next_hops.acquire(Gateway { address, interface: 0 }),
            None => self.next_hops.retain(self.sets.next_hop(set)),
        };
        let now = self.acquire(self.sets.owner(set), class, hop, &replacement.attributes);
        self.classes.release(class);
        self.next_hops.release(hop);
        match now {
            Some(now) if now == set => {
                self.sets.release(now);
                Passed::AsItIs
            }
            Some(now) => Passed::As(now),
            None => Passed::Refused,
        }
    }

    /// The class of what a slot makes of a set, with one more user: before import its own. Behind the decision one that no
    /// set in the table has, so that no two sets keep each other.
    fn class_behind(&mut self, slot: Slot, set: SetId, tag: Option<u32>) -> Option<ClassId> {
        let id = self.sets.class(set);
        if slot == Slot::BeforeImport {
            self.classes.retain(id);
            return Some(id);
        }
        let (from, ours) = (self.classes.get(id), self.classes.get(ClassId::OURS));
        let class = Class {
            protocol: from.protocol,
            tag: tag.unwrap_or(from.tag),
            weight: from.weight,
            states: from.states,
            offered: matches!(slot, Slot::BeforeExport | Slot::BeforeRib),
            ..ours.clone()
        };
        if class == *ours {
            self.classes.retain(ClassId::OURS);
            return Some(ClassId::OURS);
        }
        self.classes.acquire(&class)
    }
}
