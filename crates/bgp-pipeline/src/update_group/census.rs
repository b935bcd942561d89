//! What there is of streams and groups, counted as they come and go: nobody looks through all of them for it.

use std::{collections::HashMap, rc::Rc};

use holdfast_types::Asn;

use crate::{
    PeerIndex,
    class::PolicyKey,
    export::{Group, rules::Export},
    path::PathCounts,
};

/// Counts of the streams there are.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// The groups, by their [`Kin`]: most often each is alone.
    groups: HashMap<Kin, Vec<(Rc<Group>, usize)>>,
    len: usize,
    mosts: [Counts; 2],
}

/// What equal [`Export`]s have in common: the only receiver, the AS that the policy may ask about, and the policy.
type Kin = (Option<PeerIndex>, Asn, PolicyKey);

/// By the bit of [`PathCounts`], how many streams have it.
type Counts = [u32; u32::BITS as usize];

impl Census {
    /// A stream of a group is there from now on, or has become another: by family, what its members are sent of a prefix.
    pub(super) fn enter(&mut self, of: &Rc<Group>, mosts: [PathCounts; 2]) {
        let alike = self.groups.entry(kin(&of.export)).or_default();
        match alike.iter_mut().find(|(group, _)| Rc::ptr_eq(group, of)) {
            Some((_, streams)) => *streams += 1,
            None => {
                alike.push((Rc::clone(of), 1));
                self.len += 1;
            }
        }
        self.count(mosts, |count| *count += 1);
    }

    /// It is there no more, or is about to become another.
    pub(super) fn leave(&mut self, of: &Rc<Group>, mosts: [PathCounts; 2]) {
        let kin = kin(&of.export);
        if let Some(alike) = self.groups.get_mut(&kin)
            && let Some(at) = alike.iter().position(|(group, _)| Rc::ptr_eq(group, of))
        {
            alike[at].1 -= 1;
            if alike[at].1 == 0 {
                alike.swap_remove(at);
                self.len -= 1;
            }
            if alike.is_empty() {
                self.groups.remove(&kin);
            }
        }
        self.count(mosts, |count| *count -= 1);
    }

    fn count(&mut self, mosts: [PathCounts; 2], change: impl Fn(&mut u32)) {
        for (counts, mosts) in self.mosts.iter_mut().zip(mosts) {
            mosts.bits().for_each(|bit| change(&mut counts[bit]));
        }
    }

    /// The group with this export, if there is one.
    pub(super) fn group(&self, export: &Export) -> Option<Rc<Group>> {
        let alike = self.groups.get(&kin(export))?;
        alike.iter().find(|(group, _)| group.export == *export).map(|(group, _)| Rc::clone(group))
    }

    /// How many streams a group has.
    pub(super) fn streams_of(&self, group: &Rc<Group>) -> usize {
        let alike = self.groups.get(&kin(&group.export)).into_iter().flatten();
        alike.filter(|(other, _)| Rc::ptr_eq(other, group)).map(|(_, streams)| *streams).sum()
    }

    /// How many groups there are.
    pub(super) fn groups(&self) -> usize {
        self.len
    }

    /// By family, what groups are sent that are sent several paths of a prefix.
    pub(super) fn mosts(&self) -> [PathCounts; 2] {
        let set = |counts: &Counts| {
            let bits = counts.iter().enumerate().filter(|(_, count)| **count > 0);
            PathCounts::of_bits(bits.map(|(bit, _)| bit))
        };
        [set(&self.mosts[0]), set(&self.mosts[1])]
    }
}

fn kin(export: &Export) -> Kin {
    (export.viewer.map(|viewer| viewer.peer), export.receiver, export.policy_key())
}
