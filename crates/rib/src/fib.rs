//! What goes to the forwarding engine: next hops by handle, and routes that name handles.
//!
//! A next hop that comes to lead elsewhere is one message, however many routes use it. The engine's place in the
//! table is a [`Reader`]: when it is slow nothing grows, when it is new, or so slow that the log is gone, it gets the
//! whole table between `begin` and `end`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdfast_types::Prefix;

use crate::{
    nexthop::Resolution,
    nexthops::NexthopSetId,
    reader::{Progress, Reader},
    rejected::Rejected,
    store::Store,
};

/// Handles given up and not yet told. Past this the engine starts over, which voids them all.
const MAX_RELEASED: usize = 65_536;

/// Batches of which it is known how far they go, until the engine has carried them out. Older ones count as carried out.
pub(crate) const MAX_UNACKNOWLEDGED: usize = 64;

/// Messages for the forwarding engine, to be carried out in the order of the fields.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FibBatch {
    /// All handles are void, and what follows until `end` is the whole table; routes that it does not name go then.
    pub begin: bool,
    /// Where a handle leads, from now on, for all routes that use it. Never [`Resolution::Unresolved`].
    pub define: Vec<(u32, Resolution)>,
    /// Routes with the handle of their next hops; `None` removes the route, if there is one.
    pub routes: Vec<(Prefix, Option<u32>)>,
    /// Handles that no route uses any more.
    pub undefine: Vec<u32>,
    /// The table that began is complete.
    pub end: bool,
}

impl FibBatch {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A handle that lost its set, and how far the engine has to have read before no route of its can name it.
#[derive(Debug)]
struct Released {
    handle: u32,
    positions: (u64, u64),
}

/// How far the engine has carried out what it was given.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    /// `None`: nothing since the engine came.
    progress: Option<Progress>,
    /// The numbers of batches that are under way, and how far the table is with each.
    under_way: VecDeque<(u64, Progress)>,
    /// Of the last batch.
    number: u64,
}

impl Acknowledged {
    /// The reader has made a batch that ends there, or has nothing to say up to there.
    fn read(&mut self, progress: Progress, is_batch: bool) {
        self.number += u64::from(is_batch);
        match self.under_way.back_mut() {
            None if !is_batch => self.progress = Some(progress),
            Some((_, last)) if !is_batch => *last = progress,
            _ => self.under_way.push_back((self.number, progress)),
        }
        if self.under_way.len() > MAX_UNACKNOWLEDGED {
            self.pop();
        }
    }

    fn pop(&mut self) {
        self.progress = self.under_way.pop_front().map(|(_, progress)| progress).or(self.progress);
    }

    /// All batches up to this one are carried out.
    fn acknowledge(&mut self, number: u64) {
        while self.under_way.front().is_some_and(|(first, _)| *first <= number) {
            self.pop();
        }
    }

    /// The engine has nothing yet.
    fn begin(&mut self) {
        *self = Self { number: self.number, ..Self::default() };
    }
}

#[derive(Debug, Default)]
pub(crate) struct Fib {
    /// `None` when there is no engine, or one that wants no routes.
    pub(crate) reader: Option<Reader>,
    /// There is an engine, and it wants no routes.
    pub(crate) discards: bool,
    /// The end of a sync has to wait: not everything is known yet.
    pub(crate) is_held: bool,
    /// How far the engine has come with what was sent.
    pub(crate) acknowledged: Acknowledged,
    /// What the engine does not have though it was sent it.
    pub(crate) rejected: Rejected,
    /// Sets that lead elsewhere since their definition was sent.
    changed: Vec<NexthopSetId>,
    /// Of these, the ones that are not to wait for batches that are under way.
    hurried: BTreeSet<NexthopSetId>,
    released: VecDeque<Released>,
    /// Counts handles; one is used again only after 2^32 others.
    last_handle: u32,
}

impl Fib {
    pub(crate) fn is_synced(&self) -> bool {
        self.discards || self.reader.as_ref().is_some_and(|reader| reader.is_synced)
    }

    /// How far it is carried out what the engine was given; `None`: not at all.
    pub(crate) fn progress(&self) -> Option<Progress> {
        self.acknowledged.progress.filter(|_| self.reader.is_some())
    }

    /// The reader has made a batch, or has nothing to say.
    pub(crate) fn note_read(&mut self, is_batch: bool) {
        if let Some(reader) = &self.reader {
            self.acknowledged.read(reader.progress(), is_batch);
        }
    }

    /// The number of the last batch.
    pub(crate) fn number(&self) -> u64 {
        self.acknowledged.number
    }

    pub(crate) fn acknowledge(&mut self, number: u64) {
        self.acknowledged.acknowledge(number);
    }

    /// Another engine, or the same from the beginning.
    pub(crate) fn begin(&mut self) {
        self.acknowledged.begin();
    }

    /// Positions in the logs up to which the engine has carried them out, as far as it is known.
    pub(crate) fn positions(&self) -> Option<(u64, u64)> {
        let (v4, v6) = self.reader.as_ref()?.positions();
        let (known_v4, known_v6) = self.progress().map_or((v4, v6), |progress| progress.positions());
        Some((v4.min(known_v4), v6.min(known_v6)))
    }

    /// Whether handles given up wait in such number that it is better to start over.
    pub(crate) fn is_overrun(&self) -> bool {
        self.released.len() > MAX_RELEASED
    }

    /// A sync begins: no handle means anything any more.
    pub(crate) fn forget_handles(&mut self, store: &mut Store) {
        for set in store.sets.iter_mut() {
            (set.fib_handle, set.fib_changed) = (None, false);
        }
        self.changed.clear();
        self.hurried.clear();
        self.released.clear();
    }

    /// The set leads elsewhere.
    pub(crate) fn set_changed(&mut self, store: &mut Store, id: NexthopSetId) {
        if let Some(set) = store.sets.get_mut(id).filter(|set| set.fib_handle.is_some())
            && !std::mem::replace(&mut set.fib_changed, true)
        {
            self.changed.push(id);
        }
    }

    /// That is not to wait.
    pub(crate) fn hurry(&mut self, store: &Store, id: NexthopSetId) {
        if store.sets.get(id).is_some_and(|set| set.fib_handle.is_some()) {
            self.hurried.insert(id);
        }
    }

    /// Where handles lead that are not to wait. Before a sync begins they are those of an earlier one.
    pub(crate) fn take_hurried(&mut self, store: &Store) -> BTreeMap<u32, Resolution> {
        let has_begun = self.reader.as_ref().is_some_and(Reader::has_begun);
        let hurried = std::mem::take(&mut self.hurried).into_iter().filter(|_| has_begun);
        let sets = hurried.filter_map(|id| store.sets.get(id));
        let usable = sets.filter(|set| set.resolution.is_usable());
        usable.filter_map(|set| Some((set.fib_handle?, set.forwarding().clone()))).collect()
    }

    /// The set that had this handle is gone; changes up to `positions` may still concern routes that name it.
    pub(crate) fn release(&mut self, handle: u32, positions: (u64, u64)) {
        if self.reader.is_some() {
            self.released.push_back(Released { handle, positions });
        }
    }

    /// Defines again what has changed. A set that leads nowhere keeps its old definition until its routes are gone.
    pub(crate) fn define_changed(&mut self, store: &mut Store, batch: &mut FibBatch) {
        for id in self.changed.drain(..) {
            let Some(set) = store.sets.get_mut(id) else { continue };
            set.fib_changed = false;
            if let Some(handle) = set.fib_handle.filter(|_| set.resolution.is_usable()) {
                batch.define.push((handle, set.forwarding().clone()));
            }
        }
    }

    /// The handle of a set, defined in this batch if it was not before.
    pub(crate) fn handle(
        &mut self,
        store: &mut Store,
        id: NexthopSetId,
        batch: &mut FibBatch,
    ) -> Option<u32> {
        let set = store.sets.get_mut(id)?;
        if set.fib_handle.is_none() {
            self.last_handle = self.last_handle.checked_add(1).unwrap_or(1);
            set.fib_handle = Some(self.last_handle);
            batch.define.push((self.last_handle, set.forwarding().clone()));
        }
        set.fib_handle
    }

    /// Gives up the handles that the engine cannot meet any more.
    pub(crate) fn undefine(&mut self, batch: &mut FibBatch) {
        let Some((v4, v6)) = self.reader.as_ref().filter(|r| r.is_synced).map(Reader::positions) else {
            return;
        };
        while let Some(released) = self.released.front() {
            if released.positions.0 > v4 || released.positions.1 > v6 {
                return;
            }
            batch.undefine.push(released.handle);
            self.released.pop_front();
        }
    }
}
