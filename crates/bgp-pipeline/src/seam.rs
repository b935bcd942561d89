//! The seams between stages, and who looks at what passes there.
//!
//! Changes follow the rules of XORP's stages (section 5.1 of the paper): at each seam a route is added once,
//! then replaced or deleted, and what is said of the route before is what was said last. An [`Observer`]
//! sees every change at every seam; [`CheckStage`] is one that verifies those rules. The tests run with it.
//! Without an observer a seam costs the question whether there is one.
//!
//! A stage that hands on less than it was given (a filter) hands on a deletion where it stops a replacement,
//! so the rules hold behind it too.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    rc::Rc,
    time::Instant,
};

use holdfast_types::Prefix;

use crate::{
    PeerIndex,
    core::Core,
    path::{Path, SetId, SourceId},
    stage::{Batch, Stage},
};

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
}

impl Seam {
    /// All of them, upstream first.
    pub const ALL: [Self; 7] = [
        Self::PeerInToImport,
        Self::ImportToSlot,
        Self::SlotToDecision,
        Self::DecisionToFanout,
        Self::FanoutToExport,
        Self::ExportToAdjRibOut,
        Self::FanoutToRib,
    ];
}

/// At a seam, whose routes: of each lane a prefix has one at most.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
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
pub struct Passage {
    /// Where.
    pub seam: Seam,
    /// Whose.
    pub lane: Lane,
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
    fn pass(&mut self, passage: &Passage);

    /// A lane begins with all that another has.
    fn fork(&mut self, from: Lane, to: Lane);

    /// A lane ends because another has come to have the same.
    fn join(&mut self, lane: Lane, into: Lane);

    /// A lane ends, or starts from nothing.
    fn end(&mut self, lane: Lane);
}

/// The observer, if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seams(Option<Rc<RefCell<dyn Observer>>>);

impl Seams {
    pub(crate) fn new(observer: Rc<RefCell<dyn Observer>>) -> Self {
        Self(Some(observer))
    }

    /// Whether anybody looks.
    pub(crate) fn are_watched(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn pass(
        &self,
        seam: Seam,
        lane: Lane,
        prefix: impl Into<Prefix>,
        old: Old,
        new: Option<RouteNumber>,
    ) {
        if let Some(observer) = &self.0
            && (old, new) != (Old::Is(None), None)
        {
            observer.borrow_mut().pass(&Passage { seam, lane, prefix: prefix.into(), old, new });
        }
    }

    pub(crate) fn fork(&self, from: Lane, to: Lane) {
        self.0.iter().for_each(|observer| observer.borrow_mut().fork(from, to));
    }

    pub(crate) fn join(&self, lane: Lane, into: Lane) {
        self.0.iter().for_each(|observer| observer.borrow_mut().join(lane, into));
    }

    pub(crate) fn end(&self, lane: Lane) {
        self.0.iter().for_each(|observer| observer.borrow_mut().end(lane));
    }
}

impl Core {
    /// A source's path has become another (or none): passes the seams up to the decision.
    #[cold]
    pub(crate) fn pass_in(&mut self, prefix: Prefix, old: Path, new: Path) {
        let lane = Lane::Session(if new.is_some() { new.source.0 } else { old.source.0 });
        let (was, is) = (self.passing(prefix, old), self.passing(prefix, new));
        let seams = [Seam::PeerInToImport, Seam::ImportToSlot, Seam::SlotToDecision];
        for (seam, (was, is)) in seams.into_iter().zip(was.into_iter().zip(is)) {
            if was != is {
                self.seams.pass(seam, lane, prefix, Old::Is(was), is);
            }
        }
    }

    /// What a path is at the three seams before the decision.
    fn passing(&mut self, prefix: Prefix, path: Path) -> [Option<RouteNumber>; 3] {
        let number = |set| RouteNumber::new(path.source, set);
        let imported = self.imported(prefix, path).map(number);
        [RouteNumber::of(path), imported, imported.filter(|_| !path.is_suppressed())]
    }
}

/// Verifies the contract between stages; for tests, as it holds every route again at every seam.
///
/// It watches all seams as an [`Observer`]; as a plugged-in [`Stage`] it sees what such a stage sees.
///
/// # Panics
/// At the first violation, with seam, lane and change.
#[derive(Debug, Default)]
pub struct CheckStage {
    held: HashMap<(Seam, Lane), BTreeMap<Prefix, RouteNumber>>,
}

impl CheckStage {
    /// How many routes have passed a seam and were not deleted.
    pub fn held(&self, seam: Seam) -> usize {
        self.held.iter().filter(|((at, _), _)| *at == seam).map(|(_, held)| held.len()).sum()
    }
}

impl Observer for CheckStage {
    fn pass(&mut self, passage: &Passage) {
        let held = self.held.entry((passage.seam, passage.lane)).or_default();
        let before = match passage.new {
            Some(new) => held.insert(passage.prefix, new),
            None => held.remove(&passage.prefix),
        };
        let kept = matches!(passage.old, Old::Unknown) || passage.old == Old::Is(before);
        assert!(kept, "contract between stages: {passage:?} follows {before:?}");
    }

    fn fork(&mut self, from: Lane, to: Lane) {
        let held = self
            .held
            .iter()
            .filter_map(|((seam, lane), held)| Some(((*seam, lane.moved(from, to)?), held.clone())));
        let held: Vec<_> = held.collect();
        self.held.extend(held);
    }

    fn join(&mut self, lane: Lane, into: Lane) {
        let lanes = self.held.keys().filter_map(|(seam, at)| Some((*seam, at.moved(lane, into)?)));
        let lanes = lanes.chain(self.held.keys().filter(|(_, at)| at.moved(into, into).is_some()).copied());
        for (seam, other) in lanes.collect::<BTreeSet<_>>() {
            let lane = other.moved(into, lane).unwrap_or(lane);
            let held = self.held.remove(&(seam, lane)).unwrap_or_default();
            let other = self.held.entry((seam, other)).or_default();
            assert_eq!(held, *other, "contract between stages: {lane:?} joins {into:?} at {seam:?}");
        }
    }

    fn end(&mut self, lane: Lane) {
        self.held.retain(|(_, other), _| other.moved(lane, lane).is_none());
    }
}

impl Lane {
    /// What `to` has in the place of this lane, if this is `from` or one of its parts.
    fn moved(self, from: Self, to: Self) -> Option<Self> {
        match (self, from, to) {
            (Self::GroupPath(group, source), Self::Group(from), Self::Group(to)) if group == from => {
                Some(Self::GroupPath(to, source))
            }
            (lane, from, to) => (lane == from).then_some(to),
        }
    }
}

impl Stage for CheckStage {
    fn push(&mut self, batch: &mut Batch<'_>) {
        for change in batch.changes.iter() {
            self.pass(&Passage {
                seam: Seam::ImportToSlot,
                lane: Lane::Peer(batch.peer.0, batch.path),
                prefix: change.prefix,
                old: Old::Is(change.old.map(|set| RouteNumber(set.0))),
                new: change.new.map(|set| RouteNumber(set.0)),
            });
        }
    }

    fn peer_down(&mut self, peer: PeerIndex) {
        self.held.retain(|(_, lane), _| !matches!(lane, Lane::Peer(of, _) if *of == peer.0));
    }

    fn holds(&self, _: Instant, _: PeerIndex, _: Prefix) -> Option<Cow<'static, str>> {
        None
    }

    fn describe(&self) -> String {
        format!("check: {} routes", self.held(Seam::ImportToSlot))
    }
}
