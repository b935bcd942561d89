//! The seam for further stages, between ImportPolicy and Decision.
//!
//! A [`Stage`] sees every batch of changes that import policy lets pass, on its way to the decision, and may
//! hold routes back. It stores what it needs itself; the routes stay in the table. Stages are called once per
//! batch, so what is behind the `dyn` costs nothing per route. Without stages nothing of this is done at all.
//!
//! Changes follow the rules of all seams (`seam.rs`): a route is added once, then replaced or deleted, and
//! `old` is what was said last. [`crate::CheckStage`] verifies that.

use holdfast_types::{Family, Prefix};

use crate::{PeerIndex, core::Core, path::Path, path::SetId};

/// Stands for the attributes of a route after import policy: equal numbers are equal attributes (a hash of 64 bits).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SetNumber(pub u64);

/// The route of one peer to one prefix is another.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RouteChange {
    /// Where it leads.
    pub prefix: Prefix,
    /// Before; `None` if the peer had none, or import policy refused it.
    pub old: Option<SetNumber>,
    /// From now on; `None` if it is withdrawn, or refused.
    pub new: Option<SetNumber>,
    /// To be set by the stage: the route is kept, but takes no part in the decision until it is released.
    pub suppress: bool,
}

impl RouteChange {
    /// `None` if nothing changes for a stage, as there was nothing and is nothing that passes import policy.
    pub(crate) fn new(core: &Core, prefix: Prefix, old: Option<SetId>, new: Option<SetId>) -> Option<Self> {
        let number = |set| SetNumber(core.sets.fingerprint(set));
        let (old, new) = (old.map(number), new.map(number));
        (old.is_some() || new.is_some()).then_some(Self { prefix, old, new, suppress: false })
    }
}

/// Changes of one UPDATE, or one change of import policy's mind.
#[derive(Debug)]
pub struct Batch<'a> {
    /// Who sent it.
    pub peer: PeerIndex,
    /// Of which family.
    pub family: Family,
    /// In the order of the UPDATE.
    pub changes: &'a mut [RouteChange],
}

/// A route that a stage lets go: it takes part in the decision again.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Release {
    /// Whose.
    pub peer: PeerIndex,
    /// Where it leads.
    pub prefix: Prefix,
}

/// A stage between ImportPolicy and Decision.
pub trait Stage: std::fmt::Debug {
    /// A batch passes.
    fn push(&mut self, batch: &mut Batch<'_>);

    /// A session has ended: all routes of the peer are deleted, without a batch.
    fn peer_down(&mut self, peer: PeerIndex);

    /// Background work: up to `budget` routes to let go. Returns whether there is more.
    fn work(&mut self, budget: usize, released: &mut Vec<Release>) -> bool {
        let _ = (budget, released);
        false
    }

    /// What it is and does, for the operator.
    fn describe(&self) -> String;
}

/// Shows the stages a change that no UPDATE made; returns whether the route is held back.
pub(crate) fn push_one(
    stages: &mut [Box<dyn Stage>],
    core: &mut Core,
    peer: PeerIndex,
    prefix: Prefix,
    old: Path,
    new: Path,
) -> bool {
    let (was, is) = (core.imported(prefix, old), core.imported(prefix, new));
    let Some(change) = RouteChange::new(core, prefix, was, is) else { return false };
    let mut changes = [change];
    for stage in stages {
        let family = match prefix {
            Prefix::V4(_) => Family::IPV4_UNICAST,
            Prefix::V6(_) => Family::IPV6_UNICAST,
        };
        stage.push(&mut Batch { peer, family, changes: &mut changes });
    }
    changes[0].suppress
}
