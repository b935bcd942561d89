//! A stage and observer that verifies what stages owe each other.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Instant,
};

use holdfast_types::Prefix;

use crate::{
    PeerIndex,
    seam::{Observer, Old, RouteEvent, RouteNumber, Seam, StreamKey},
    stage::{Batch, Stage},
};

/// Verifies the contract between stages; for tests, as it holds every route again at every seam.
///
/// It watches all seams as an [`Observer`]; as a plugged-in [`Stage`] it sees what such a stage sees.
///
/// # Panics
/// At the first violation, with seam, lane and change.
#[derive(Debug, Default)]
pub struct CheckStage {
    held: HashMap<(Seam, StreamKey), BTreeMap<Prefix, RouteNumber>>,
}

impl CheckStage {
    /// How many routes have passed a seam and were not deleted.
    pub fn held(&self, seam: Seam) -> usize {
        self.held.iter().filter(|((at, _), _)| *at == seam).map(|(_, held)| held.len()).sum()
    }
}

impl Observer for CheckStage {
    fn pass(&mut self, passage: &RouteEvent) {
        let held = self.held.entry((passage.seam, passage.lane)).or_default();
        let before = match passage.new {
            Some(new) => held.insert(passage.prefix, new),
            None => held.remove(&passage.prefix),
        };
        let kept = matches!(passage.old, Old::Unknown) || passage.old == Old::Is(before);
        assert!(kept, "contract between stages: {passage:?} follows {before:?}");
    }

    fn fork(&mut self, from: StreamKey, to: StreamKey) {
        let held = self
            .held
            .iter()
            .filter_map(|((seam, lane), held)| Some(((*seam, lane.moved(from, to)?), held.clone())));
        let held: Vec<_> = held.collect();
        self.held.extend(held);
    }

    fn join(&mut self, lane: StreamKey, into: StreamKey) {
        let lanes = self.held.keys().filter_map(|(seam, at)| Some((*seam, at.moved(lane, into)?)));
        let lanes = lanes.chain(self.held.keys().filter(|(_, at)| at.moved(into, into).is_some()).copied());
        for (seam, other) in lanes.collect::<BTreeSet<_>>() {
            let lane = other.moved(into, lane).unwrap_or(lane);
            let held = self.held.remove(&(seam, lane)).unwrap_or_default();
            let other = self.held.entry((seam, other)).or_default();
            assert_eq!(held, *other, "contract between stages: {lane:?} joins {into:?} at {seam:?}");
        }
    }

    fn end(&mut self, lane: StreamKey) {
        self.held.retain(|(_, other), _| other.moved(lane, lane).is_none());
    }
}

impl StreamKey {
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
            self.pass(&RouteEvent {
                seam: Seam::ImportToSlot,
                lane: StreamKey::Peer(batch.peer.0, batch.path),
                prefix: change.prefix,
                old: Old::Is(change.old.map(|set| RouteNumber(set.0))),
                new: change.new.map(|set| RouteNumber(set.0)),
            });
        }
    }

    fn peer_down(&mut self, peer: PeerIndex) {
        self.held.retain(|(_, lane), _| !matches!(lane, StreamKey::Peer(of, _) if *of == peer.0));
    }

    fn holds(&self, _: Instant, _: PeerIndex, _: Prefix) -> Option<Cow<'static, str>> {
        None
    }

    fn describe(&self) -> String {
        format!("check: {} routes", self.held(Seam::ImportToSlot))
    }
}
