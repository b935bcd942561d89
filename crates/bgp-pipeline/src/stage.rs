//! The seam for further stages, between ImportPolicy and Decision.
//!
//! A [`Stage`] sees every batch of changes that import policy lets pass, on its way to the decision, and may
//! hold routes back. It stores what it needs itself; the routes stay in the table. Stages are called once per
//! batch, so what is behind the `dyn` costs nothing per route. Without stages nothing of this is done at all.
//!
//! Changes follow the rules of all seams (`seam.rs`): a route is added once, then replaced or deleted, and
//! `old` is what was said last. [`crate::CheckStage`] verifies that. All stages see all changes: also of routes
//! that another one holds back.

use std::{borrow::Cow, cell::RefCell, rc::Rc, time::Instant};

use holdfast_bgp_wire::Attributes;
use holdfast_types::{Family, Prefix};

use crate::{PeerIndex, core::Core, path::Path, path::SetId, peer_set::PeerSet};

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
    /// To be set by the stage: the route is kept, but takes no part in the decision until it is released. To be set
    /// again with each change for as long as it is to be held back.
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

/// Why routes change.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The peer has said so just now.
    Update,
    /// It has said so to the process before this one.
    Replay,
    /// Import policy is another.
    Policy,
    /// It is gone: the peer has announced everything again, and not this (RFC 7313).
    Refresh,
}

/// Changes of one UPDATE, or one change of import policy's mind.
#[derive(Debug)]
pub struct Batch<'a> {
    /// When.
    pub now: Instant,
    /// Why.
    pub cause: Cause,
    /// Who sent it.
    pub peer: PeerIndex,
    /// Of which family.
    pub family: Family,
    /// Which of the peer's paths to each prefix; always 0 where it sends one only.
    pub path: u8,
    /// What all announced routes of the batch have in common, as received; `None` if none is announced.
    pub attributes: Option<Attributes<'a>>,
    /// In the order of the UPDATE.
    pub changes: &'a mut [RouteChange],
}

/// A route that a stage lets go, with all paths of the peer to its prefix: it takes part in the decision again, unless another stage holds it back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Release {
    /// Whose.
    pub peer: PeerIndex,
    /// Where it leads.
    pub prefix: Prefix,
}

/// A stage between ImportPolicy and Decision.
pub trait Stage: std::fmt::Debug {
    /// What it is called where the operator is told of it: the name of its type, unless it has another.
    fn name(&self) -> &'static str {
        let path = std::any::type_name::<Self>();
        path.rsplit("::").next().unwrap_or(path)
    }

    /// A batch passes.
    fn push(&mut self, batch: &mut Batch<'_>);

    /// A session has ended: all routes of the peer are deleted, without a batch. It may come up again.
    fn peer_down(&mut self, peer: PeerIndex);

    /// A peer, its session ended before, is not configured any more: the next one to be called this is another.
    fn peer_removed(&mut self, peer: PeerIndex) {
        let _ = peer;
    }

    /// Background work: up to `budget` routes to let go. Returns whether there is more.
    fn work(&mut self, now: Instant, budget: usize, released: &mut Vec<Release>) -> bool {
        let _ = (now, budget, released);
        false
    }

    /// When [`Self::work`] has something to do next without anything else happening.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Why a route that the peer has is held back, for the operator; `None` if it is not.
    fn holds(&self, now: Instant, peer: PeerIndex, prefix: Prefix) -> Option<Cow<'static, str>>;

    /// What it is and does, for the operator.
    fn describe(&self) -> String;
}

/// A stage that somebody else keeps a hand on, to ask and to set it. Nobody may hold a borrow while the pipeline is
/// called.
impl<S: Stage> Stage for Rc<RefCell<S>> {
    fn name(&self) -> &'static str {
        self.borrow().name()
    }

    fn push(&mut self, batch: &mut Batch<'_>) {
        self.borrow_mut().push(batch);
    }

    fn peer_down(&mut self, peer: PeerIndex) {
        self.borrow_mut().peer_down(peer);
    }

    fn peer_removed(&mut self, peer: PeerIndex) {
        self.borrow_mut().peer_removed(peer);
    }

    fn work(&mut self, now: Instant, budget: usize, released: &mut Vec<Release>) -> bool {
        self.borrow_mut().work(now, budget, released)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.borrow().poll_timeout()
    }

    fn holds(&self, now: Instant, peer: PeerIndex, prefix: Prefix) -> Option<Cow<'static, str>> {
        self.borrow().holds(now, peer, prefix)
    }

    fn describe(&self) -> String {
        self.borrow().describe()
    }
}

/// What routes of one peer change by.
#[derive(Copy, Clone)]
pub(crate) struct Occasion {
    pub(crate) cause: Cause,
    pub(crate) peer: PeerIndex,
    pub(crate) family: Family,
    pub(crate) path: u8,
}

/// The plugged-in stages, and what time it is for them.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    list: Vec<Box<dyn Stage>>,
    /// Known as soon as there is a stage.
    now: Option<Instant>,
    /// Sessions whose UPDATEs another process has had before.
    replaying: PeerSet,
}

impl Stages {
    pub(crate) fn add(&mut self, stage: Box<dyn Stage>, now: Instant) {
        self.now = Some(now);
        self.list.push(stage);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Stage> {
        self.list.iter().map(AsRef::as_ref)
    }

    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// Whether what the peer sends from here on was sent to another process.
    pub(crate) fn set_replaying(&mut self, peer: PeerIndex, replaying: bool) {
        match replaying {
            true => self.replaying.insert(peer),
            false => self.replaying.remove(peer),
        }
    }

    /// Why a peer's routes change when an UPDATE changes them.
    pub(crate) fn cause_of_update(&self, peer: PeerIndex) -> Cause {
        if self.replaying.contains(peer) { Cause::Replay } else { Cause::Update }
    }

    pub(crate) fn push(
        &mut self,
        occasion: Occasion,
        attributes: Option<Attributes<'_>>,
        changes: &mut [RouteChange],
    ) {
        let Some(now) = self.now else { return };
        let Occasion { cause, peer, family, path } = occasion;
        for stage in &mut self.list {
            stage.push(&mut Batch { now, cause, peer, family, path, attributes, changes });
        }
    }

    /// Shows the stages a change that no UPDATE made; returns whether the route is held back.
    pub(crate) fn push_one(
        &mut self,
        core: &mut Core,
        (cause, peer): (Cause, PeerIndex),
        prefix: Prefix,
        old: Path,
        new: Path,
    ) -> bool {
        let (was, is) = (core.imported(prefix, old), core.imported(prefix, new));
        let Some(change) = RouteChange::new(core, prefix, was, is) else { return false };
        let family = match prefix {
            Prefix::V4(_) => Family::IPV4_UNICAST,
            Prefix::V6(_) => Family::IPV6_UNICAST,
        };
        let attributes = is.map(|_| Attributes(core.sets.bytes(new.set)));
        let mut changes = [change];
        let path = core.sources.get(old.source).place;
        self.push(Occasion { cause, peer, family, path }, attributes, &mut changes);
        changes[0].suppress
    }

    pub(crate) fn peer_down(&mut self, peer: PeerIndex) {
        self.set_replaying(peer, false);
        self.list.iter_mut().for_each(|stage| stage.peer_down(peer));
    }

    pub(crate) fn peer_removed(&mut self, peer: PeerIndex) {
        self.list.iter_mut().for_each(|stage| stage.peer_removed(peer));
    }

    /// Up to `budget` routes of each stage that no stage holds back any more; whether there are more.
    pub(crate) fn work(&mut self, budget: usize, released: &mut Vec<Release>) -> bool {
        let Some(now) = self.now else { return false };
        let mut more = false;
        for stage in &mut self.list {
            more |= stage.work(now, budget, released);
        }
        released.retain(|route| self.holds(route.peer, route.prefix).is_none());
        more
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.list.iter().filter_map(|stage| stage.poll_timeout()).min()
    }

    /// Why a route is held back; `None` if it is not.
    pub(crate) fn holds(&self, peer: PeerIndex, prefix: Prefix) -> Option<Cow<'static, str>> {
        let now = self.now?;
        self.list.iter().find_map(|stage| stage.holds(now, peer, prefix))
    }
}
