//! Sources of routes: one for each session of a peer, and ourselves. A session that may send several paths of a prefix
//! has as many as it uses ([`PathIdTable`](crate::places::PathIdTable)).

use std::{collections::BTreeMap, net::IpAddr};

use holdfast_types::{Asn, RouterId};

use crate::{
    PeerIndex, PeerKind,
    class::ClassId,
    path::{Epoch, Epochs, Path, SourceId},
};

/// Paths of one prefix that a session may have. Further ones are dropped ([`crate::DropReason::TooManyPaths`]).
pub const MOST_PATHS: usize = u64::BITS as usize;

/// Path identifiers of a session: one for each of its places.
const OF_SESSION: u32 = MOST_PATHS as u32;

/// Paths of one source in one family.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteCounts {
    /// In the table.
    pub received: u64,
    /// Of those, passed by import policy and free of loops.
    pub accepted: u64,
    /// Of those, chosen as best.
    pub best: u64,
}

impl std::ops::AddAssign for RouteCounts {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.accepted += other.accepted;
        self.best += other.best;
    }
}

/// What the decision asks about the sender of a path.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// `None` for ourselves.
    pub(crate) peer: Option<PeerIndex>,
    pub(crate) kind: PeerKind,
    /// Our client as a route reflector.
    pub(crate) client: bool,
    pub(crate) asn: Asn,
    pub(crate) router_id: u32,
    pub(crate) address: IpAddr,
    /// Where that is, if it is link-local: several peers may have the same.
    pub(crate) interface: u32,
    /// Classes of its sets: next hop in NEXT_HOP, and in MP_REACH_NLRI.
    pub(crate) classes: [ClassId; 2],
    /// Which of its session's it is; 0 for the first.
    pub(crate) place: u8,
    /// Under which its paths are announced where several of a prefix are (RFC 7911). No other source has it; in another
    /// process its session has the same.
    pub(crate) identifier: u32,
    pub(crate) life: Life,
    /// The RIB is told what to do when the next hops of its best paths are gone.
    pub(crate) is_protected: bool,
    /// The walk over the table that moves its paths to sets of its present classes, after a change of
    /// import policy.
    pub(crate) moving: u64,
    pub(crate) counts: [RouteCounts; 2],
    /// By family, the epoch of paths that arrive, and those before it.
    pub(crate) epochs: [SourceEpochs; 2],
    /// The walk over the table that sweeps paths of epochs, while others of the family stay.
    pub(crate) sweeping: u64,
    /// No other source has it, not even one that gets this one's number; given by [`Sources::add`].
    pub(crate) serial: u64,
}

/// What refreshes (RFC 7313) have made of a source's paths in one family.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct SourceEpochs {
    /// That of paths that arrive.
    pub(crate) current: Epoch,
    /// A refresh is under way: paths of these have not been announced again in it.
    pub(crate) stale: Epochs,
    /// Paths of these are swept while others stay.
    pub(crate) swept: Epochs,
}

impl SourceEpochs {
    /// All paths are stale from now on; those that become so in a refresh within another, too. Where no epoch is left,
    /// as sweeps are under way, what was announced since the last time counts as announced again.
    fn begin_refresh(&mut self) {
        let mut used = self.stale | self.swept;
        used.insert(self.current);
        if let Some(next) = used.free() {
            self.stale.insert(self.current);
            self.current = next;
        }
    }

    /// Stale paths are swept from now on; whether there may be any.
    fn end_refresh(&mut self) -> bool {
        let stale = std::mem::take(&mut self.stale);
        self.swept = self.swept | stale;
        !stale.is_empty()
    }
}

/// What becomes of a source.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Life {
    /// Its session is up.
    Alive,
    /// Its session has ended, and its paths stay for now (RFC 4724), but for families that are swept.
    Stale,
    /// Its paths count no more and are being swept.
    Dead,
    /// It has no paths; readers of the log may still meet its number.
    Swept,
    /// Its number is free.
    Buried,
}

impl Source {
    /// Whether its paths take part in the decision.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.life <= Life::Stale
    }

    /// Whether its session is up.
    pub(crate) fn is_alive(&self) -> bool {
        self.life == Life::Alive
    }

    /// Whether all its paths in a family are to go.
    pub(crate) fn goes(&self, family: usize) -> bool {
        !self.counts() || self.epochs[family].swept == Epochs::ALL
    }

    /// Whether a path of it is to go.
    #[inline]
    pub(crate) fn drops(&self, family: usize, path: Path) -> bool {
        !self.counts() || self.epochs[family].swept.has(path.epoch())
    }

    fn paths(&self) -> u64 {
        self.counts.iter().map(|counts| counts.received).sum()
    }
}

/// All sources.
#[derive(Debug)]
pub(crate) struct Sources {
    list: Vec<Source>,
    free: Vec<SourceId>,
    dead: usize,
    /// Sources that there ever were.
    added: u64,
    /// How many sources have identifiers of those that begin with this one.
    identifiers: BTreeMap<u32, u32>,
    /// Where the next session looks for some that nobody has. Those that were free last come last.
    next_identifier: u32,
    /// There may be some that are protected.
    pub(crate) protecting: bool,
}

impl Sources {
    pub(crate) fn new(asn: Asn, router_id: RouterId) -> Self {
        let ourselves = Source {
            peer: None,
            kind: PeerKind::Ibgp,
            client: false,
            asn,
            router_id: router_id.bits(),
            address: IpAddr::from([0, 0, 0, 0]),
            interface: 0,
            classes: [ClassId::OURS; 2],
            place: 0,
            identifier: 0,
            life: Life::Alive,
            is_protected: false,
            moving: 0,
            counts: Default::default(),
            epochs: Default::default(),
            sweeping: 0,
            serial: 0,
        };
        // 0 is none, as some receivers take it for that.
        let ours = (1..).take(SourceId::OURS).map(|identifier| Source { identifier, ..ourselves.clone() });
        Self {
            list: ours.collect(),
            free: Vec::new(),
            dead: 0,
            added: 0,
            identifiers: BTreeMap::new(),
            next_identifier: OF_SESSION,
            protecting: false,
        }
    }

    /// The first identifier of a session that begins: that which it had in another process, if nobody has it here.
    pub(crate) fn first_identifier(&mut self, before: u32) -> u32 {
        let is_first = before != 0 && before.is_multiple_of(OF_SESSION);
        if is_first && !self.identifiers.contains_key(&before) {
            return before;
        }
        // There are fewer sources than identifiers.
        loop {
            let first = self.next_identifier;
            self.next_identifier = first.checked_add(OF_SESSION).unwrap_or(OF_SESSION);
            if !self.identifiers.contains_key(&first) {
                return first;
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: SourceId) -> &Source {
        &self.list[id.index()]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: SourceId) -> &mut Source {
        &mut self.list[id.index()]
    }

    /// Whether beside a best path of this source another is marked that would be best without its next hop.
    #[inline]
    pub(crate) fn protects(&self, path: Path) -> bool {
        self.protecting && path.is_some() && self.get(path.source).is_protected
    }

    /// `None` when all 65,536 are taken: then those that died have to be swept first.
    pub(crate) fn add(&mut self, source: Source) -> Option<SourceId> {
        self.added += 1;
        let source = Source { serial: self.added, ..source };
        let first = source.identifier - u32::from(source.place);
        let id = match self.free.pop() {
            Some(id) => {
                self.list[id.index()] = source;
                id
            }
            None => {
                let id = SourceId(u16::try_from(self.list.len()).ok()?);
                self.list.push(source);
                id
            }
        };
        *self.identifiers.entry(first).or_default() += 1;
        Some(id)
    }

    /// How many more there may be.
    pub(crate) fn room(&self) -> usize {
        self.free.len() + (usize::from(u16::MAX) + 1 - self.list.len())
    }

    /// Its session has ended, but paths of some families stay until [`Self::sweep`].
    pub(crate) fn keep(&mut self, id: SourceId, families: [bool; 2]) {
        let source = self.get_mut(id);
        source.life = Life::Stale;
        for (epochs, _) in source.epochs.iter_mut().zip(families).filter(|(_, kept)| !kept) {
            epochs.swept = Epochs::ALL;
        }
    }

    /// The peer begins to announce everything of a family again: what it has announced so far is stale.
    pub(crate) fn begin_refresh(&mut self, id: SourceId, family: usize) {
        self.get_mut(id).epochs[family].begin_refresh();
    }

    /// It has done so: what is still stale is swept by this walk; whether there may be any.
    pub(crate) fn end_refresh(&mut self, id: SourceId, family: usize, walk: u64) -> bool {
        let source = self.get_mut(id);
        let sweeps = source.epochs[family].end_refresh();
        if sweeps {
            source.sweeping = walk;
        }
        sweeps
    }

    /// A walk has ended: of sources that live, the epochs that it has swept may be used again.
    pub(crate) fn end_sweeps(&mut self, walk: u64) {
        for source in self.list.iter_mut().filter(|source| source.is_alive() && source.sweeping <= walk) {
            source.epochs.iter_mut().for_each(|epochs| epochs.swept = Epochs::default());
        }
    }

    /// Paths of one more family of a source that was [kept](Self::keep) are swept; whether any family is left.
    pub(crate) fn sweep(&mut self, id: SourceId, family: usize) -> bool {
        let source = self.get_mut(id);
        source.epochs[family].swept = Epochs::ALL;
        let left = source.epochs.iter().any(|epochs| epochs.swept != Epochs::ALL);
        if !left {
            self.kill(id);
        }
        left
    }

    /// Its paths count no more, and are swept from now on.
    pub(crate) fn kill(&mut self, id: SourceId) {
        self.get_mut(id).life = Life::Dead;
        self.dead += 1;
    }

    /// Whether any is dead and may still have paths.
    pub(crate) fn any_dead(&self) -> bool {
        self.dead > 0
    }

    /// The dead that have no paths left; each is named once.
    pub(crate) fn take_swept(&mut self) -> Vec<SourceId> {
        let mut swept = Vec::new();
        for (number, source) in self.list.iter_mut().enumerate() {
            if source.life == Life::Dead && source.paths() == 0 {
                source.life = Life::Swept;
                swept.push(SourceId(number as u16));
            }
        }
        self.dead -= swept.len();
        swept
    }

    /// Gives the number back, when no reader of the log can meet it any more.
    pub(crate) fn bury(&mut self, id: SourceId) -> [ClassId; 2] {
        self.free.push(id);
        let source = self.get_mut(id);
        source.life = Life::Buried;
        let (first, classes) = (source.identifier - u32::from(source.place), source.classes);
        if let Some(sources) = self.identifiers.get_mut(&first) {
            *sources -= 1;
            if *sources == 0 {
                self.identifiers.remove(&first);
            }
        }
        classes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Source> {
        self.list.iter()
    }
}
