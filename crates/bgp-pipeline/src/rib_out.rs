//! What the RIB is told: a reader of the same change logs, in columns.
//!
//! The number of a next hop serves as the handle of the RIB's next-hop set; several paths share a set with a
//! number of its own. A set of attributes, and with it a next hop, is given up only when every reader has
//! passed the last route that used it, so a handle that is given up is unused in the RIB too.

use std::collections::HashMap;

use holdfast_types::{Family, IpPrefix, Prefix};
use smallvec::SmallVec;

use crate::{
    PeerIndex, PeerKind,
    core::Core,
    cursor::Cursor,
    fanout::Change,
    loc_rib::LocRib,
    next_hop::{Gateway, NextHopId},
    path::{Flags, Path, SetId, SourceId},
    rib_policy::{self, Labels, RibPolicy},
    seam::{Old, RouteNumber, Seam, StreamKey},
    table::Table,
};

/// Consecutive routes of which the RIB is told the same.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RibRun {
    /// How many.
    pub routes: u32,
    /// Handle of their next hops; 0 withdraws them.
    pub next_hops: u32,
    /// Whether they were learned inside our AS, which decides the administrative distance.
    pub internal: bool,
    /// The tag they carry, for the policies of others; 0 is none.
    pub tag: u32,
    /// The metric that the RIB's policy gives them.
    pub metric: u32,
    /// The peer whose path is the best; `None` where it is ours, and for withdrawals.
    pub peer: Option<PeerIndex>,
}

impl RibRun {
    /// The withdrawal of a route.
    const WITHDRAWAL: Self = Self { routes: 1, next_hops: 0, internal: false, tag: 0, metric: 0, peer: None };
}

/// Where the routes of a handle lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RibNextHops {
    /// Names them; never 0.
    pub handle: u32,
    /// Those that share the traffic. Without one packets are dropped.
    pub gateways: Vec<Gateway>,
    /// The one that would be chosen if these were gone, where the peer of the best path is protected
    /// ([`Pipeline::set_protected`](crate::Pipeline::set_protected)).
    pub backup: Option<Gateway>,
}

/// Changes for the RIB, of one family. Addresses and lengths have a row for each route.
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
    /// Handles that routes here use first, with their next hops.
    pub define: Vec<RibNextHops>,
    /// Network addresses, 4 or 16 octets each.
    pub addresses: Vec<u8>,
    /// Prefix lengths.
    pub lengths: Vec<u8>,
    /// What is said of them, run by run.
    pub runs: Vec<RibRun>,
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
            runs: Vec::new(),
        }
    }

    fn reserve<P: IpPrefix>(&mut self, routes: usize) {
        self.addresses.reserve_exact(routes * octets::<P>());
        self.lengths.reserve_exact(routes);
    }

    /// Routes changed.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether no route changes.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Adds a route, of which `said` is a run of one.
    fn push<P: IpPrefix>(&mut self, prefix: P, said: RibRun) {
        self.addresses.extend_from_slice(&prefix.bits().to_be_bytes()[..octets::<P>()]);
        self.lengths.push(prefix.length());
        match self.runs.last_mut() {
            Some(run) if (RibRun { routes: 1, ..*run }) == said => run.routes += 1,
            _ => self.runs.push(said),
        }
    }
}

/// Octets of an address.
const fn octets<P: IpPrefix>() -> usize {
    P::WIDTH as usize / 8
}

/// Handles from here on name several next hops, or one with a backup.
const SHARED: u32 = 1 << 31;
/// More handles of several next hops than this, and than twice those of the last complete table, and the table is told
/// again: handles stay defined as long as their next hops are known, and peers choose how these are combined.
const MOST_SHARED: usize = 16_384;

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
    shared: HashMap<Shared, u32>,
    /// How many `shared` had at the end of the last complete table.
    shared_when_complete: usize,
    free: Vec<u32>,
}

/// Next hops that have no number together: sorted, and what would be chosen without them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shared {
    hops: SmallVec<[NextHopId; 2]>,
    backup: Option<NextHopId>,
}

impl Shared {
    fn has(&self, hop: NextHopId) -> bool {
        self.hops.contains(&hop) || self.backup == Some(hop)
    }
}

impl<P4: IpPrefix, P6: IpPrefix> RibOut<P4, P6> {
    /// A RIB that knows nothing: it is given everything.
    pub(crate) fn new(ends: [u64; 2]) -> Self {
        Self {
            v4: Cursor::dump(ends[0]),
            v6: Cursor::dump(ends[1]),
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
        telling: &mut Telling<'_>,
        tables: (&mut Table<P4>, &mut Table<P6>),
        max: usize,
    ) -> Option<RibChanges> {
        let ends = [tables.0.rib.log.end(), tables.1.rib.log.end()];
        if self.v4.lost || self.v6.lost || self.handles.are_too_many(self.incomplete) {
            *self = Self::new(ends);
            telling.core.seams.end(StreamKey::Rib);
        }
        if !self.is_pending(ends) {
            return None;
        }
        let mut changes = if self.v4.is_at_end(ends[0]) {
            let mut changes = RibChanges::new(P6::UNICAST);
            self.start(telling.core, &mut changes);
            tables.1.changes_for_rib(telling, &mut self.v6, &mut self.handles, max, &mut changes);
            changes
        } else {
            let mut changes = RibChanges::new(P4::UNICAST);
            self.start(telling.core, &mut changes);
            tables.0.changes_for_rib(telling, &mut self.v4, &mut self.handles, max, &mut changes);
            changes
        };
        changes.complete = self.incomplete && self.v4.walk.is_none() && self.v6.walk.is_none();
        self.incomplete &= !changes.complete;
        if changes.complete {
            self.handles.shared_when_complete = self.handles.shared.len();
        }
        Some(changes)
    }

    fn start(&mut self, core: &mut Core, changes: &mut RibChanges) {
        changes.restart = std::mem::take(&mut self.restart);
        changes.undefine = self.handles.give_up(&core.next_hops.take_forgotten());
    }
}

impl Handles {
    /// Whether most handles of several next hops are of routes that have changed since. While a table is told all are of use.
    fn are_too_many(&self, incomplete: bool) -> bool {
        !incomplete && self.shared.len() > MOST_SHARED.max(2 * self.shared_when_complete)
    }

    fn give_up(&mut self, forgotten: &[NextHopId]) -> Vec<u32> {
        let mut given_up = Vec::new();
        for hop in forgotten {
            let defined = self.defined.get_mut(hop.0 as usize).is_some_and(std::mem::take);
            given_up.extend(defined.then_some(hop.0));
        }
        while self.defined.last().is_some_and(|is_defined| !is_defined) {
            self.defined.pop();
        }
        if self.defined.len() < self.defined.capacity() / 4 {
            self.defined.shrink_to(2 * self.defined.len());
        }
        self.shared.retain(|shared, handle| {
            let stays = !forgotten.iter().any(|hop| shared.has(*hop));
            if !stays {
                given_up.push(*handle);
                self.free.push(*handle);
            }
            stays
        });
        given_up
    }

    /// The handle of these next hops (sorted), defined if it is new.
    fn handle(
        &mut self,
        core: &Core,
        hops: &[NextHopId],
        backup: Option<NextHopId>,
        changes: &mut RibChanges,
    ) -> u32 {
        let (handle, new) = match (hops, backup) {
            ([hop], None) => (hop.0, self.define(*hop)),
            _ => self.share(Shared { hops: hops.into(), backup }),
        };
        if new {
            let gateway = |hop: NextHopId| core.next_hops.gateway(hop);
            let gateways = hops.iter().filter_map(|hop| gateway(*hop)).collect();
            changes.define.push(RibNextHops { handle, gateways, backup: backup.and_then(gateway) });
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

    fn share(&mut self, shared: Shared) -> (u32, bool) {
        if let Some(handle) = self.shared.get(&shared) {
            return (*handle, false);
        }
        let handle = self.free.pop().unwrap_or(SHARED | self.shared.len() as u32);
        self.shared.insert(shared, handle);
        (handle, true)
    }
}

/// What decides about what the RIB is told.
pub(crate) struct Telling<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) policy: Option<&'a mut RibPolicy>,
}

impl Telling<'_> {
    /// The tag and metric of a route whose set after import policy is `set`; `None` if the RIB is not told of it.
    fn judge(&mut self, prefix: Prefix, best: Path, set: SetId) -> Option<Labels> {
        match &mut self.policy {
            Some(policy) => policy.judge(self.core, prefix, best, set),
            None => Some(Labels { tag: rib_policy::tag(self.core, set), metric: 0 }),
        }
    }

    /// Whether the same is said of all prefixes with this set as received.
    fn is_for_all(&mut self, prefix: Prefix, received: SetId) -> bool {
        self.policy.as_ref().is_none_or(|policy| policy.is_for_all())
            && self.core.effective_for_all(prefix, received).is_some()
    }
}

/// What the RIB was last told, for the routes of the same set and source that follow; `None`: not to have it.
type Said = Option<((SetId, SourceId), Option<RibRun>)>;

impl<P: IpPrefix> Table<P> {
    fn changes_for_rib(
        &mut self,
        telling: &mut Telling<'_>,
        cursor: &mut Cursor<P>,
        handles: &mut Handles,
        max: usize,
        changes: &mut RibChanges,
    ) {
        let mut teller = Teller { rib: &self.rib, telling, handles, changes, said: None };
        if cursor.position < self.rib.log.end() {
            let read = self.rib.log.read(cursor.position, max);
            let is_mixed = self.rib.log.is_mixed(cursor.position);
            cursor.position += read.len() as u64;
            teller.changes.reserve::<P>(read.len());
            for change in read {
                if is_mixed && change.is_each() {
                    continue;
                }
                if cursor.walk.is_none_or(|walk| walk.has_done(change.prefix)) {
                    teller.say(change);
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
            teller.say(Change { prefix, old: Path::NONE, new });
        }
    }
}

/// Puts changes into words.
struct Teller<'a, 'b, P> {
    rib: &'a LocRib<P>,
    telling: &'a mut Telling<'b>,
    handles: &'a mut Handles,
    changes: &'a mut RibChanges,
    said: Said,
}

impl<P: IpPrefix> Teller<'_, '_, P> {
    fn say(&mut self, change: Change<P>) {
        let theirs = |path: Path| path.is_some() && path.source.is_for_rib();
        let (prefix, new) = (change.prefix, change.new);
        if self.telling.core.seams.are_watched() {
            let [old, new] = [change.old, new].map(|path| if theirs(path) { path } else { Path::NONE });
            self.pass(prefix, old, new);
        }
        let route = if theirs(new) { self.route(prefix, new) } else { None };
        match route {
            Some(route) => self.changes.push(prefix, route),
            None if theirs(change.old) => self.changes.push(prefix, RibRun::WITHDRAWAL),
            None => {}
        }
    }

    /// Shows a change at the seams before and behind what is between the best paths and the RIB.
    #[cold]
    fn pass(&mut self, prefix: P, old: Path, new: Path) {
        let mut told = |path: Path| {
            let effective = path.is_some().then(|| self.telling.core.effective(prefix.into(), path.set));
            let set = self.telling.core.before_rib(effective.flatten()?)?;
            self.telling.judge(prefix.into(), path, set).map(|_| RouteNumber::new(path.source, set))
        };
        let behind = (Old::Is(told(old)), told(new));
        let (was, is) = (Old::Is(RouteNumber::of(old)), RouteNumber::of(new));
        self.telling.core.seams.pass(Seam::FanoutToRib, StreamKey::Rib, prefix, was, is);
        self.telling.core.seams.pass(Seam::SlotToRib, StreamKey::Rib, prefix, behind.0, behind.1);
    }

    /// What the RIB is told of a best path; `None` if import policy or the RIB's own refuses it.
    fn route(&mut self, prefix: P, best: Path) -> Option<RibRun> {
        let of = (best.set, best.source);
        if let Some((_, route)) = self.said.filter(|(said, _)| *said == of) {
            return route;
        }
        let several = self.telling.core.speaker.max_paths > 1;
        let route = self.judge(prefix, best, several);
        // What other paths there are is of each prefix.
        let others_count = several || self.telling.core.sources.protects(best);
        let is_for_all = !others_count && self.telling.is_for_all(prefix.into(), best.set);
        self.said = is_for_all.then_some((of, route));
        route
    }

    fn judge(&mut self, prefix: P, best: Path, several: bool) -> Option<RibRun> {
        let effective = self.telling.core.effective(prefix.into(), best.set)?;
        let set = self.telling.core.before_rib(effective)?;
        let Labels { tag, metric } = self.telling.judge(prefix.into(), best, set)?;
        let backup = match self.telling.core.sources.protects(best) {
            true => self.backup(prefix),
            false => None,
        };
        let handle = if several {
            let hops = self.shared_next_hops(prefix, best);
            self.handles.handle(self.telling.core, &hops, backup, self.changes)
        } else {
            let core = &*self.telling.core;
            self.handles.handle(core, &[next_hop(core, best, set)], backup, self.changes)
        };
        let source = self.telling.core.sources.get(best.source);
        let (internal, peer) = (source.kind != PeerKind::Ebgp, source.peer);
        Some(RibRun { routes: 1, next_hops: handle, internal, tag, metric, peer })
    }

    /// Where packets go if the next hops in use are gone; `None`: there is no other path, or the RIB is not to have it.
    #[cold]
    fn backup(&mut self, prefix: P) -> Option<NextHopId> {
        let paths = self.rib.paths(prefix);
        let path = *paths.iter().find(|path| path.flags.has(Flags::BACKUP) && !path.source.is_ours())?;
        let effective = self.telling.core.effective(prefix.into(), path.set)?;
        let set = self.telling.core.before_rib(effective)?;
        self.telling.judge(prefix.into(), path, set)?;
        Some(next_hop(self.telling.core, path, set)).filter(|hop| *hop != NextHopId::DISCARD)
    }

    /// The next hops that share the prefix's traffic.
    fn shared_next_hops(&mut self, prefix: P, best: Path) -> Vec<NextHopId> {
        let core = &mut *self.telling.core;
        let shares = |path: &Path| path.flags.has(Flags::MULTIPATH) && !path.source.is_ours();
        let mut paths = vec![best];
        paths.extend(self.rib.paths(prefix).iter().filter(|path| shares(path)));
        let hop = |path: &Path| {
            let effective = core.effective(prefix.into(), path.set)?;
            let set = core.before_rib(effective)?;
            Some(next_hop(core, *path, set))
        };
        let mut hops: Vec<NextHopId> = paths.iter().filter_map(hop).collect();
        // Dropping packets is not shared: what the best path does counts.
        match hops.first() {
            Some(&NextHopId::DISCARD) => hops.truncate(1),
            Some(_) | None => hops.retain(|hop| *hop != NextHopId::DISCARD),
        }
        hops.sort_unstable();
        hops.dedup();
        hops
    }
}

/// Where packets go by a path whose set after import policy is `set`. What reaches an aggregate and none of its
/// contributors is dropped (RFC 4632 section 5.1).
fn next_hop(core: &Core, path: Path, set: SetId) -> NextHopId {
    if path.source == SourceId::AGGREGATED { NextHopId::DISCARD } else { core.sets.next_hop(set) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_hops_that_were_combined_in_too_many_ways_begin_the_table_again_unless_it_needs_them_all() {
        let mut handles = Handles::default();
        let share = |handles: &mut Handles, number: usize| {
            let hops = [2 + number as u32 / 1000, 5000 + number as u32 % 1000].map(NextHopId);
            handles.share(Shared { hops: hops.into(), backup: None })
        };
        for number in 0..=MOST_SHARED {
            assert!(!handles.are_too_many(false), "{number}");
            assert!(share(&mut handles, number).1);
        }
        assert!(handles.are_too_many(false) && !handles.are_too_many(true), "not while a table is told");
        handles.shared_when_complete = handles.shared.len();
        assert!(!handles.are_too_many(false), "a table that needs so many is told once");
    }
}
