//! The seams between stages, and who looks at what passes there.
//!
//! Changes follow the rules of XORP's stages (section 5.1 of the paper): at each seam a route is added once,
//! then replaced or deleted, and what is said of the route before is what was said last. An [`Observer`]
//! sees every change at every seam; [`crate::CheckStage`] is one that verifies those rules. The tests run with it.
//! Without an observer a seam costs the question whether there is one.
//!
//! A stage that hands on less than it was given (a filter) hands on a deletion where it stops a replacement,
//! so the rules hold behind it too.

use std::{cell::RefCell, fmt, rc::Rc};

use holdfast_types::Prefix;

use crate::path::{Path, SetId, SourceId};

/// Where one stage hands changes to the next.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Seam {
    /// Attributes as received.
    PeerInToImport,
    /// After import policy; what it refuses does not pass.
    ImportToSlot,
    /// Without what a plugged-in stage holds back.
    SlotToDecision,
    /// The best paths.
    DecisionToFanout,
    /// The best paths as an update group reads them.
    FanoutToExport,
    /// What export policy lets pass.
    ExportToAdjRibOut,
    /// The best paths as the RIB reads them; those of our own do not pass, but for aggregates.
    FanoutToRib,
    /// What the RIB is told.
    SlotToRib,
}

impl Seam {
    /// All of them, upstream first.
    pub const ALL: [Self; 8] = [
        Self::PeerInToImport,
        Self::ImportToSlot,
        Self::SlotToDecision,
        Self::DecisionToFanout,
        Self::FanoutToExport,
        Self::ExportToAdjRibOut,
        Self::FanoutToRib,
        Self::SlotToRib,
    ];
}

/// At a seam, whose routes: of each lane a prefix has one at most.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StreamKey {
    /// Of one session (0: our own).
    Session(u16),
    /// Of one peer, whatever its session, which of its paths to a prefix: what plugged-in stages see.
    Peer(u16, u8),
    /// The best of all.
    LocRib,
    /// Those for a position of an update group.
    Group(u32),
    /// The same of one source, where a group is sent several paths of a prefix. Goes the ways of [`Self::Group`].
    GroupPath(u32, u16),
    /// Those for the RIB.
    Rib,
}

/// Stands for a route at a seam: equal numbers are the same attributes from the same session, as long as
/// somebody holds them.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RouteNumber(pub u64);

impl RouteNumber {
    pub(crate) fn new(source: SourceId, set: SetId) -> Self {
        Self(u64::from(source.0) << 32 | u64::from(set.0))
    }

    pub(crate) fn of(path: Path) -> Option<Self> {
        path.is_some().then(|| Self::new(path.source, path.set))
    }
}

/// What a change says of the route before.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Old {
    /// It was this one, or there was none.
    Is(Option<RouteNumber>),
    /// A reader that has lost its place does not know.
    Unknown,
}

/// A change on its way from one stage to the next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RouteEvent {
    /// Where.
    pub seam: Seam,
    /// Whose.
    pub lane: StreamKey,
    /// Where the route leads.
    pub prefix: Prefix,
    /// Before.
    pub old: Old,
    /// From now on; `None` if it is deleted.
    pub new: Option<RouteNumber>,
}

/// Sees what passes between stages, and must not call the pipeline.
pub trait Observer: fmt::Debug {
    /// A change passes.
    fn pass(&mut self, passage: &RouteEvent);

    /// A lane begins with all that another has.
    fn fork(&mut self, from: StreamKey, to: StreamKey);

    /// A lane ends because another has come to have the same.
    fn join(&mut self, lane: StreamKey, into: StreamKey);

    /// A lane ends, or starts from nothing.
    fn end(&mut self, lane: StreamKey);
}

/// Those who look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seams(Vec<Rc<RefCell<dyn Observer>>>);

impl Seams {
    pub(crate) fn add(&mut self, observer: Rc<RefCell<dyn Observer>>) {
        self.0.push(observer);
    }

    pub(crate) fn remove(&mut self, observer: &Rc<RefCell<dyn Observer>>) {
        self.0.retain(|other| !Rc::ptr_eq(other, observer));
    }

    /// Whether anybody looks.
    pub(crate) fn are_watched(&self) -> bool {
        !self.0.is_empty()
    }

    pub(crate) fn pass(
        &self,
        seam: Seam,
        lane: StreamKey,
        prefix: impl Into<Prefix>,
        old: Old,
        new: Option<RouteNumber>,
    ) {
        if self.are_watched() && (old, new) != (Old::Is(None), None) {
            let event = RouteEvent { seam, lane, prefix: prefix.into(), old, new };
            self.0.iter().for_each(|observer| observer.borrow_mut().pass(&event));
        }
    }

    pub(crate) fn fork(&self, from: StreamKey, to: StreamKey) {
        self.0.iter().for_each(|observer| observer.borrow_mut().fork(from, to));
    }

    pub(crate) fn join(&self, lane: StreamKey, into: StreamKey) {
        self.0.iter().for_each(|observer| observer.borrow_mut().join(lane, into));
    }

    pub(crate) fn end(&self, lane: StreamKey) {
        self.0.iter().for_each(|observer| observer.borrow_mut().end(lane));
    }
}
