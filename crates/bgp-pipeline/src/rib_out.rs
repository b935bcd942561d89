//! What the RIB is told: a reader of the same change logs, in columns.
//!
//! The number of a next hop serves as the handle of the RIB's next-hop set; several paths share a set with a
//! number of its own. A set of attributes, and with it a next hop, is given up only when every reader has
//! passed the last route that used it, so a handle that is given up is unused in the RIB too.

use std::collections::HashMap;

use holdfast_types::{Family, IpPrefix};

use crate::{
    core::Core,
    cursor::{Cursor, Walk, WalkKind},
    fanout::Change,
    next_hop::{Gateway, NextHopId},
    path::{Flags, Path, SourceId},
    seam::{Lane, Old, RouteNumber, Seam},
    table::Table,
};

/// Changes for the RIB, of one family. The columns have a row for each route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RibChanges {
    /// These are the first of a complete table: what was sent before and does not come again until
    /// `complete` is gone.
    pub restart: bool,
    /// The table that began with `restart` ends with these.
    pub complete: bool,
    /// Which family.
    pub family: Family,
    /// Handles given up: no route uses them any more.
    pub undefine: Vec<u32>,
    /// Handles that routes here use first, with their next hops. Never 0.
    pub define: Vec<(u32, Vec<Gateway>)>,
    /// Network addresses, 4 or 16 octets each.
    pub addresses: Vec<u8>,
    /// Prefix lengths.
    pub lengths: Vec<u8>,
    /// Handles; 0 withdraws the route.
    pub next_hops: Vec<u32>,
    /// MULTI_EXIT_DISC, 0 where there is none.
    pub metrics: Vec<u32>,
    /// Whether the route was learned inside our AS, which decides the administrative distance.
    pub internal: Vec<bool>,
}

impl RibChanges {
    fn new(family: Family) -> Self {
        Self {
            restart: false,
            complete: false,
            family,
            undefine: Vec::new(),
            define: Vec::new(),
            addresses: Vec::new(),
            lengths: Vec::new(),
            next_hops: Vec::new(),
            metrics: Vec::new(),
            internal: Vec::new(),
        }
    }

    /// Routes changed.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether no route changes.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    fn push<P: IpPrefix>(&mut self, prefix: P, handle: u32, metric: u32, internal: bool) {
        let octets = prefix.bits().to_be_bytes();
        self.addresses.extend_from_slice(&octets[..usize::from(P::WIDTH / 8)]);
        self.lengths.push(prefix.length());
        self.next_hops.push(handle);
        self.metrics.push(metric);
        self.internal.push(internal);
    }
}

/// Handles from here on name several next hops.
const SHARED: u32 = 1 << 31;

/// The RIB's place in the logs, and what it knows of next hops.
#[derive(Debug)]
pub(crate) struct RibOut<P4, P6> {
    pub(crate) v4: Cursor<P4>,
    pub(crate) v6: Cursor<P6>,
    handles: Handles,
    /// The first batch of a complete table is still to be sent.
    restart: bool,
    /// Its last batch is.
    incomplete: bool,
}

#[derive(Debug, Default)]
struct Handles {
    /// By number of the next hop.
    defined: Vec<bool>,
    shared: HashMap<Vec<NextHopId>, u32>,
    free: Vec<u32>,
}

impl<P4: IpPrefix, P6: IpPrefix> RibOut<P4, P6> {
    /// A RIB that knows nothing: it is given everything.
    pub(crate) fn new(ends: [u64; 2]) -> Self {
        Self {
            v4: dump(ends[0]),
            v6: dump(ends[1]),
            handles: Handles::default(),
            restart: true,
            incomplete: true,
        }
    }

    /// Whether [`Self::pull`] has something to say.
    pub(crate) fn is_pending(&self, ends: [u64; 2]) -> bool {
        !self.v4.is_at_end(ends[0]) || !self.v6.is_at_end(ends[1]) || self.incomplete
    }

    /// Changes not read, of both families.
    pub(crate) fn backlog(&self, ends: [u64; 2]) -> u64 {
        ends[0].saturating_sub(self.v4.position) + ends[1].saturating_sub(self.v6.position)
    }

    /// Up to `max` changed routes.
    pub(crate) fn pull(
        &mut self,
        core: &mut Core,
        tables: (&mut Table<P4>, &mut Table<P6>),
        max: usize,
    ) -> Option<RibChanges> {
        let ends = [tables.0.rib.log.end(), tables.1.rib.log.end()];
        if self.v4.lost || self.v6.lost {
            *self = Self::new(ends);
            core.seams.end(Lane::Rib);
        }
        if !self.is_pending(ends) {
            return None;
        }
        let mut changes = if self.v4.is_at_end(ends[0]) {
            let mut changes = RibChanges::new(P6::UNICAST);
            self.start(core, &mut changes);
            tables.1.changes_for_rib(core, &mut self.v6, &mut self.handles, max, &mut changes);
            changes
        } else {
            let mut changes = RibChanges::new(P4::UNICAST);
            self.start(core, &mut changes);
            tables.0.changes_for_rib(core, &mut self.v4, &mut self.handles, max, &mut changes);
            changes
        };
        changes.complete = self.incomplete && self.v4.walk.is_none() && self.v6.walk.is_none();
        self.incomplete &= !changes.complete;
        Some(changes)
    }

    fn start(&mut self, core: &mut Core, changes: &mut RibChanges) {
        changes.restart = std::mem::take(&mut self.restart);
        changes.undefine = self.handles.give_up(&core.next_hops.take_forgotten());
    }
}

fn dump<P: IpPrefix>(end: u64) -> Cursor<P> {
    Cursor { position: end, walk: Some(Walk::new(WalkKind::Dump)), lost: false }
}

impl Handles {
    fn give_up(&mut self, forgotten: &[NextHopId]) -> Vec<u32> {
        let mut given_up = Vec::new();
        for hop in forgotten {
            let defined = self.defined.get_mut(hop.0 as usize).is_some_and(std::mem::take);
            given_up.extend(defined.then_some(hop.0));
        }
        self.shared.retain(|members, handle| {
            let stays = !forgotten.iter().any(|hop| members.contains(hop));
            if !stays {
                given_up.push(*handle);
                self.free.push(*handle);
            }
            stays
        });
        given_up
    }

    /// The handle of these next hops (sorted), defined if it is new.
    fn handle(&mut self, core: &Core, hops: &[NextHopId], changes: &mut RibChanges) -> u32 {
        let (handle, new) = match hops {
            [hop] => (hop.0, self.define(*hop)),
            _ => self.share(hops),
        };
        if new {
            let gateways = hops.iter().filter_map(|hop| core.next_hops.gateway(*hop)).collect();
            changes.define.push((handle, gateways));
        }
        handle
    }

    fn define(&mut self, hop: NextHopId) -> bool {
        let at = hop.0 as usize;
        if at >= self.defined.len() {
            self.defined.resize(at + 1, false);
        }
        !std::mem::replace(&mut self.defined[at], true)
    }

    fn share(&mut self, hops: &[NextHopId]) -> (u32, bool) {
        if let Some(handle) = self.shared.get(hops) {
            return (*handle, false);
        }
        let handle = self.free.pop().unwrap_or(SHARED | self.shared.len() as u32);
        self.shared.insert(hops.to_vec(), handle);
        (handle, true)
    }
}

impl<P: IpPrefix> Table<P> {
    fn changes_for_rib(
        &mut self,
        core: &mut Core,
        cursor: &mut Cursor<P>,
        handles: &mut Handles,
        max: usize,
        changes: &mut RibChanges,
    ) {
        if cursor.position < self.rib.log.end() {
            let read = self.rib.log.read(cursor.position, max);
            cursor.position += read.len() as u64;
            // The newest state of a prefix is in the table: to say it once is enough.
            for change in self.window.merge(read) {
                if cursor.walk.is_none_or(|walk| walk.has_done(change.prefix)) {
                    self.say(core, handles, change, changes);
                }
            }
            return;
        }
        let Some(mut walk) = cursor.walk else { return };
        let visited = self.rib.page(walk.after(), max);
        cursor.walk = visited.last().map(|(prefix, _)| {
            walk.advance(*prefix);
            walk
        });
        for (prefix, new) in visited {
            self.say(core, handles, Change { prefix, old: Path::NONE, new }, changes);
        }
    }

    fn say(&mut self, core: &mut Core, handles: &mut Handles, change: Change<P>, changes: &mut RibChanges) {
        let theirs = |path: Path| path.is_some() && path.source != SourceId::LOCAL;
        let (prefix, new) = (change.prefix, change.new);
        let number = |path: Path| if theirs(path) { RouteNumber::of(path) } else { None };
        core.seams.pass(Seam::FanoutToRib, Lane::Rib, prefix, Old::Is(number(change.old)), number(new));
        if theirs(new)
            && let Some(set) = core.effective(prefix.into(), new.set)
        {
            let hops = self.next_hops(core, prefix, new);
            let handle = handles.handle(core, &hops, changes);
            let metric = core.sets.attributes(set).med().unwrap_or(0);
            let internal = core.sources.get(new.source).kind == crate::PeerKind::Ibgp;
            changes.push(prefix, handle, metric, internal);
        } else if theirs(change.old) {
            changes.push(prefix, 0, 0, false);
        }
    }

    /// The next hops that share the prefix's traffic.
    fn next_hops(&mut self, core: &mut Core, prefix: P, best: Path) -> Vec<NextHopId> {
        let mut paths = vec![best];
        if core.speaker.max_paths > 1 {
            let shares = |path: &Path| path.flags.has(Flags::MULTIPATH) && path.source != SourceId::LOCAL;
            paths.extend(self.rib.paths(prefix).iter().filter(|path| shares(path)));
        }
        let sets = paths.iter().filter_map(|path| core.effective(prefix.into(), path.set));
        let mut hops: Vec<NextHopId> =
            sets.collect::<Vec<_>>().iter().map(|set| core.sets.next_hop(*set)).collect();
        hops.sort_unstable();
        hops.dedup();
        hops
    }
}
