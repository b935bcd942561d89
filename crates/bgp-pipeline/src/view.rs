//! Views of their own: who may not have the best path of a prefix is told of the best that it may have (RFC 7947
//! section 2.3).
//!
//! What is told of a prefix follows from all its paths in their order, and from export policy. So who has a view reads,
//! with each event on a prefix, all paths as they stood before and as they stand now, and chooses twice: what differs is
//! what the receiver is told. Nothing is stored by view.

use holdfast_types::IpPrefix;
use smallvec::{SmallVec, smallvec};

use crate::{
    adj_rib_out::{Before, Recipients, Side, Window},
    core::Core,
    cursor::{Cursor, Encoding, Walk, WalkKind},
    export::Group,
    fanout::Change,
    loc_rib::Extent,
    path::{Path, SetId, SourceId},
    table::Table,
};

impl Group {
    /// What a view has of these paths of one prefix, the best first; left in `paths`, in the place of all.
    pub(crate) fn choose<P: IpPrefix>(&self, core: &mut Core, prefix: P, paths: &mut Vec<Path>) {
        if let Some(set) = self.export.default_route.filter(|_| prefix.length() == 0) {
            paths.clear();
            return paths.push(Path::default_route(set));
        }
        let viewer = self.export.viewer.map(|viewer| viewer.peer);
        let mut left = match self.export.paths::<P>() {
            0 => 1,
            Path::BEYOND => usize::MAX,
            most => most.into(),
        };
        paths.retain(|path| path.is_some() && path.standing() != 0);
        paths.sort_by_key(|path| (path.standing(), path.source));
        if paths.first().is_some_and(|best| self.is_summarised(core, prefix.into(), *best)) {
            return paths.clear();
        }
        paths.retain(|path| {
            let passes = left > 0
                && core.sources.get(path.source).peer != viewer
                && self.judge(core, prefix, *path).is_some();
            left -= usize::from(passes);
            passes
        });
    }
}

/// The choice on one prefix, with room for the next.
struct Choice<'a> {
    recipients: &'a Recipients<'a>,
    /// Several paths are told, each under its identifier.
    is_identified: bool,
    before: Vec<Path>,
    now: Vec<Path>,
}

impl<'a> Choice<'a> {
    fn new<P: IpPrefix>(recipients: &'a Recipients<'a>) -> Self {
        let is_identified = recipients.current.export.paths::<P>() != 0;
        Self { recipients, is_identified, before: Vec::new(), now: Vec::new() }
    }

    fn choose_before<P: IpPrefix>(&mut self, core: &mut Core, side: Side, paths: &[Change<P>]) {
        self.before.clear();
        self.before.extend(paths.iter().map(|change| change.old));
        let Some(first) = paths.first() else { return };
        self.recipients.group(side).choose(core, first.prefix, &mut self.before);
    }

    fn choose_now<P: IpPrefix>(&mut self, core: &mut Core, side: Side, paths: &[Change<P>]) {
        self.now.clear();
        self.now.extend(paths.iter().map(|change| change.new));
        let Some(first) = paths.first() else { return };
        self.recipients.group(side).choose(core, first.prefix, &mut self.now);
    }

    /// What is told now where one path is.
    fn only(&self) -> Path {
        first(&self.now)
    }

    fn is_chosen(&self, source: SourceId) -> bool {
        self.now.iter().any(|path| path.source == source)
    }

    /// Each route that was told, or is told now: before, and now.
    fn changes(&self) -> SmallVec<[(Path, Path); 1]> {
        if !self.is_identified {
            return smallvec![(first(&self.before), first(&self.now))];
        }
        let was = |source| self.before.iter().find(|old| old.source == source).copied();
        let told = self.now.iter().map(|new| (was(new.source).unwrap_or(new.absent()), *new));
        let gone = self.before.iter().filter(|old| !self.is_chosen(old.source));
        told.chain(gone.map(|old| (*old, old.absent()))).collect()
    }

    /// Each route that may have been told, as it is told now.
    fn whatever_was<P>(&self, paths: &[Change<P>]) -> SmallVec<[Path; 1]> {
        if !self.is_identified {
            return smallvec![self.only()];
        }
        let gone = paths.iter().map(|change| change.new).filter(|path| !self.is_chosen(path.source));
        self.now.iter().copied().chain(gone.map(Path::absent)).collect()
    }
}

fn first(paths: &[Path]) -> Path {
    paths.first().copied().unwrap_or(Path::NONE)
}

/// A route that the peer was told as the view has the route now. The next prefix with the same set and source, and the same place
/// in the journal, needs no other comparison.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Alike {
    set: SetId,
    source: SourceId,
    item: u32,
}

impl<P: IpPrefix> Cursor<P> {
    /// Whether a view has the best of these paths of a prefix, and its members were told of that as they are told now: most
    /// often nothing has changed, and the same as about the prefix before. Then what was told of it is taken out.
    #[inline]
    fn is_as_told(
        &mut self,
        window: &mut Window<P>,
        core: &mut Core,
        recipients: &Recipients<'_>,
        (prefix, paths): (P, &[Change<P>]),
        alike: &mut Option<Alike>,
    ) -> bool {
        let Some(told) = &mut self.told else { return false };
        let Some(item) = told.sole_item(prefix) else { return false };
        let standing = paths.iter().map(|change| change.new).filter(|path| path.standing() != 0);
        let Some(best) = standing.min_by_key(|path| (path.standing(), path.source)) else { return false };
        let this = Alike { set: best.set, source: best.source, item };
        if *alike == Some(this) {
            window.count_as_told(core, recipients, best.source);
            told.skip();
            return true;
        }
        let viewer = recipients.current.export.viewer.map(|viewer| viewer.peer);
        let is_as_told = core.sources.get(best.source).peer != viewer
            && told
                .sole(prefix)
                .is_some_and(|sole| window.is_as_told(core, recipients, (prefix, best), sole));
        if is_as_told {
            told.skip();
            *alike = Window::<P>::holds_for_set(core, best).then_some(this);
        }
        is_as_told
    }
}

impl<P: IpPrefix> Table<P> {
    /// A window of changes for a view.
    pub(crate) fn read_log_for_view(
        &mut self,
        cursor: &mut Cursor<P>,
        recipients: &Recipients<'_>,
        encoding: &mut Encoding<'_>,
    ) {
        let Encoding { core, marks, limits, .. } = encoding;
        let changes = self.rib.log.read_events(cursor.position, limits.window);
        cursor.position += changes.len() as u64;
        let mut merged = self.window.merge(changes, Some(true));
        merged.sort_by_key(|change| change.prefix);
        let mut choice = Choice::new::<P>(recipients);
        for paths in merged.chunk_by(|a, b| a.prefix == b.prefix) {
            let prefix = paths[0].prefix;
            let pending = cursor.walk.filter(|walk| !walk.has_done(prefix)).map(|walk| walk.kind);
            let side = match pending {
                // The walk will come by.
                Some(WalkKind::Dump | WalkKind::Resume) => continue,
                Some(WalkKind::Policy | WalkKind::Filter | WalkKind::Keys) => Side::Previous,
                Some(WalkKind::Refresh | WalkKind::Lost) | None => Side::Current,
            };
            if pending == Some(WalkKind::Lost) {
                // What is told of that which is there is for the walk to say: here some paths may be missing, of an event
                // that is not whole any more. A path that counts no more is no path: nobody is told that it is swept.
                let is_gone = |change: &&Change<P>| !change.new.is_some();
                let is_met = self.rib.paths(prefix).iter().any(|path| path.standing() != 0)
                    || prefix.length() == 0 && recipients.default_route.is_some();
                if choice.is_identified {
                    for gone in paths.iter().filter(is_gone) {
                        self.window.withdraw(core, recipients, gone.new.source, prefix);
                    }
                } else if !is_met && paths.iter().all(|change| is_gone(&change)) {
                    self.window.withdraw(core, recipients, SourceId::LOCAL, prefix);
                }
                continue;
            }
            choice.choose_now(core, side, paths);
            choice.choose_before(core, side, paths);
            for (old, new) in choice.changes() {
                // A walk has come by while it was not there: only now is what was told of it compared.
                let route = recipients.route(core, prefix, new.source);
                if let Some(told) = cursor.take_awaited(route) {
                    self.window.resume(core, marks, recipients, route, Some(told), new);
                    continue;
                }
                if old.same_route(new) {
                    continue;
                }
                let change = Change { prefix, old, new };
                self.window.add(core, marks, recipients, &[change], Before::Announced(side), side);
            }
        }
        self.window.recycle(merged);
    }

    /// A page of a walk for a view, of about `most` paths.
    pub(crate) fn walk_for_view(
        &mut self,
        walk: Walk<P>,
        cursor: &mut Cursor<P>,
        recipients: &Recipients<'_>,
        encoding: &mut Encoding<'_>,
        most: usize,
    ) -> Extent<P> {
        let Encoding { core, marks, others, .. } = encoding;
        let Self { rib, window, .. } = self;
        let others = others[usize::from(P::WIDTH != 32)];
        let page = rib.page_of_each(core, (walk.after, cursor.limit()), most, others);
        // All had been read: what was logged now is of the page.
        cursor.position = rib.log.end();
        window.tally.restarted |= walk.kind == WalkKind::Resume && walk.after.is_none();
        let mut choice = Choice::new::<P>(recipients);
        // What may have been told of it is another path besides.
        let default = recipients.default_route.filter(|_| walk.after.is_none()).map(Path::absent);
        let of_default = |path| Change { prefix: P::from_bits(0, 0), old: path, new: path };
        let first = page.behind(default.map(of_default));
        let keeps_hashes = !choice.is_identified && recipients.keep_hashes::<P>(core);
        let mut alike = None;
        for (prefix, paths) in page.by_prefix(&first) {
            if walk.kind == WalkKind::Resume && keeps_hashes && prefix.length() > 0 {
                cursor.pass(window, core, recipients, Some(prefix));
                if cursor.is_as_told(window, core, recipients, (prefix, paths), &mut alike) {
                    continue;
                }
            }
            choice.choose_now(core, Side::Current, paths);
            if walk.kind == WalkKind::Resume {
                let mut met = cursor.meet(window, core, recipients, prefix);
                for new in choice.whatever_was(paths) {
                    let route = recipients.route(core, prefix, new.source);
                    let told = cursor.take_told(&mut met, route);
                    window.resume(core, marks, recipients, route, told, new);
                }
                cursor.leave(window, core, recipients, (prefix, met));
                continue;
            }
            let sources = choice.whatever_was(paths).into_iter().map(|path| path.source);
            cursor.forget_met(window, core, recipients, (prefix, sources));
            let before = match walk.kind {
                WalkKind::Dump => {
                    choice.before.clear();
                    Before::Announced(Side::Current)
                }
                WalkKind::Refresh => {
                    choice.choose_before(core, Side::Current, paths);
                    Before::Asked
                }
                WalkKind::Policy | WalkKind::Filter | WalkKind::Keys => {
                    choice.choose_before(core, Side::Previous, paths);
                    Before::Announced(Side::Previous)
                }
                WalkKind::Lost | WalkKind::Resume => {
                    for new in choice.whatever_was(paths) {
                        let change = Change { prefix, old: new.absent(), new };
                        window.add(core, marks, recipients, &[change], Before::Unknown, Side::Current);
                    }
                    continue;
                }
            };
            for (old, new) in choice.changes() {
                if old.same_route(new) && !walk.kind.concerns(recipients, core, (prefix, new)) {
                    continue;
                }
                let change = Change { prefix, old, new };
                window.add(core, marks, recipients, &[change], before, Side::Current);
            }
        }
        page.extent()
    }
}
