//! A reader's place in one family: a position in the log, and a walk over the table besides.
//!
//! Who has to be given the table (a new peer, after a refresh, a change of policy, or a loss) walks it in
//! address order. Changes go first, so that the table is as the reader knows it when the walk goes on; what
//! a change means for a prefix that the walk has not reached depends on what the receivers have of it.

use holdfast_types::IpPrefix;

use crate::{
    Limits,
    adj_rib_out::{Audience, Before, Marks, Outgoing, Side},
    core::Core,
    fanout::Change,
    path::{Mosts, Path, SourceId},
    table::Table,
    told::ToldFamily,
};

/// Why the table is walked for a stream, and so what its members have of prefixes that the walk has not
/// reached yet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum WalkKind {
    /// New members: they have nothing, and get End-of-RIB after it.
    Dump,
    /// A refresh (RFC 2918): they have everything.
    Refresh,
    /// Another export policy: they have what the previous one let pass.
    Policy,
    /// They were too far behind: nobody knows.
    Lost,
    /// Their sessions go on after another process: what that one has told them is known, see [`Cursor::told`].
    Resume,
}

/// A walk over one table, in address order.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Walk<P> {
    pub(crate) kind: WalkKind,
    /// The last prefix done.
    pub(crate) after: Option<P>,
    /// How many are done.
    pub(crate) done: u64,
    /// For [`WalkKind::Lost`]: still at the prefixes that were withdrawn meanwhile.
    withdrawing: bool,
}

impl<P: IpPrefix> Walk<P> {
    pub(crate) fn new(kind: WalkKind) -> Self {
        Self { kind, after: None, done: 0, withdrawing: kind == WalkKind::Lost }
    }

    /// The last prefix done.
    pub(crate) fn after(&self) -> Option<P> {
        self.after
    }

    /// Everything up to this prefix is done.
    pub(crate) fn advance(&mut self, prefix: P) {
        self.after = Some(prefix);
    }

    /// Whether the walk has passed the prefix.
    pub(crate) fn has_done(&self, prefix: P) -> bool {
        !self.withdrawing && self.after.is_some_and(|after| prefix <= after)
    }
}

/// Where a stream is in one family.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<P> {
    /// The next change to read.
    pub(crate) position: u64,
    /// The table is read besides.
    pub(crate) walk: Option<Walk<P>>,
    /// Changes it had not read are gone.
    pub(crate) lost: bool,
    /// From [`WalkKind::Resume`] on: what an earlier process has told the members, without what walks have met.
    pub(crate) told: Option<Box<ToldFamily<P>>>,
}

impl<P: IpPrefix> Cursor<P> {
    pub(crate) fn new(position: u64) -> Self {
        Self { position, walk: None, lost: false, told: None }
    }

    /// Starts a walk, or from the start again. Two reasons at once, and what the members have is too
    /// tangled to say.
    pub(crate) fn start_walk(&mut self, kind: WalkKind) {
        let kind = match self.walk {
            None => kind,
            // They have nothing yet.
            Some(Walk { kind: WalkKind::Dump, after: None, .. }) => WalkKind::Dump,
            Some(_) => WalkKind::Lost,
        };
        self.walk = Some(Walk::new(kind));
    }

    /// Starts the walk of sessions that go on after another process.
    pub(crate) fn resume(&mut self, told: ToldFamily<P>) {
        self.told = Some(Box::new(told));
        self.walk = Some(Walk::new(WalkKind::Resume));
    }

    /// Whether changes are gone that it has not made up for.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost || self.walk.is_some_and(|walk| walk.withdrawing)
    }

    /// Whether its members have been told nothing of what comes after this prefix, in address order.
    fn knows_nothing_after(&self, after: Option<P>) -> bool {
        self.walk.is_some_and(|walk| walk.kind == WalkKind::Dump && walk.after <= after)
    }

    /// Whether this cursor's walk may find changes that have to be told at the other.
    pub(crate) fn tells(&self, other: &Self) -> bool {
        self.walk.is_some_and(|walk| !other.knows_nothing_after(walk.after))
    }

    /// Whether nothing is left to read.
    pub(crate) fn is_at_end(&self, end: u64) -> bool {
        !self.lost && self.walk.is_none() && self.position == end
    }
}

/// What is needed to encode.
pub(crate) struct Encoding<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) marks: &'a mut Marks,
    pub(crate) limits: Limits,
    /// By family, what is read by other streams of the changes that a walk finds, for those that are sent several paths.
    pub(crate) others: [Mosts; 2],
}

/// What became of an attempt to encode more.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Advance {
    /// Nothing is left to do.
    Idle,
    /// Some changes or prefixes were done.
    Some,
    /// The last of a walk after which the members have everything: they are told so.
    Synced,
}

impl<P: IpPrefix> Table<P> {
    /// One window for one cursor: changes first, so that the table is as the cursor knows it when a walk
    /// goes on.
    pub(crate) fn advance(
        &mut self,
        cursor: &mut Cursor<P>,
        audience: &Audience<'_>,
        encoding: &mut Encoding<'_>,
        out: &mut Outgoing,
    ) -> Advance {
        self.window.begin(encoding.core, encoding.marks, audience);
        if cursor.lost {
            (cursor.position, cursor.lost) = (self.rib.log.start(), false);
            cursor.walk = Some(Walk::new(WalkKind::Lost));
        }
        let advance = if cursor.position < self.rib.log.end() {
            self.read_log(cursor, audience, encoding);
            Advance::Some
        } else {
            match cursor.walk {
                None => return Advance::Idle,
                Some(walk) if walk.withdrawing => self.withdraw_gone(walk, cursor, audience, encoding),
                Some(walk) => self.walk(walk, cursor, audience, encoding),
            }
        };
        self.window.encode(encoding.core, audience, out);
        if advance == Advance::Synced {
            out.end_of_rib::<P>();
        }
        advance
    }

    fn read_log(&mut self, cursor: &mut Cursor<P>, audience: &Audience<'_>, encoding: &mut Encoding<'_>) {
        let Encoding { core, marks, limits, .. } = encoding;
        let changes = self.rib.log.read(cursor.position, limits.window);
        let each = audience.current.export.paths::<P>() != 0;
        let is_mixed = each || self.rib.log.is_mixed(cursor.position);
        cursor.position += changes.len() as u64;
        let merged = self.window.merge(changes, is_mixed.then_some(each));
        for change in &merged {
            let prefix = change.prefix;
            let pending = cursor.walk.filter(|walk| !walk.has_done(prefix)).map(|walk| walk.kind);
            let side = if pending == Some(WalkKind::Policy) { Side::Previous } else { Side::Current };
            let (old, new) = (audience.select::<P>(side, change.old), audience.select::<P>(side, change.new));
            match pending {
                // The walk will come by.
                Some(WalkKind::Dump | WalkKind::Resume) => continue,
                // Also where none of these paths is told now: they may have been.
                Some(WalkKind::Lost) => {
                    if !audience.passes(core, prefix, new) {
                        self.window.withdraw(core, audience, new.source, prefix);
                    }
                    continue;
                }
                Some(WalkKind::Policy | WalkKind::Refresh) | None if old.same_route(new) => continue,
                Some(WalkKind::Policy | WalkKind::Refresh) | None => {}
            }
            // A walk has come by while it was not there: only now is what was told of it compared.
            if let Some(told) = cursor.told.as_mut().and_then(|told| told.take(prefix)) {
                audience.read(core, prefix, Before::Unknown, new);
                self.window.resume(core, marks, audience, prefix, Some(told), new);
                continue;
            }
            let before = Before::Path(old, side);
            audience.read(core, prefix, before, new);
            self.window.add(core, marks, audience, prefix, before, (new, side));
        }
        self.window.recycle(merged);
    }

    /// The prefixes that were withdrawn while nobody looked.
    fn withdraw_gone(
        &mut self,
        walk: Walk<P>,
        cursor: &mut Cursor<P>,
        audience: &Audience<'_>,
        encoding: &Encoding<'_>,
    ) -> Advance {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = walk.after.map_or(Unbounded, Excluded);
        let mut last = None;
        self.window.tally.restarted = walk.after.is_none();
        if audience.current.export.paths::<P>() != 0 {
            last = self.withdraw_gone_paths(walk.after, audience, encoding);
        } else {
            for &prefix in self.gone.range((from, Unbounded)).take(encoding.limits.window) {
                last = Some(prefix);
                if !self.rib.best(prefix).is_some() {
                    self.window.withdraw(encoding.core, audience, SourceId::LOCAL, prefix);
                }
            }
        }
        cursor.walk = Some(match last {
            Some(_) => Walk { after: last, ..walk },
            None => Walk { after: None, withdrawing: false, ..walk },
        });
        Advance::Some
    }

    /// The same where several paths are told; returns the last prefix. The walk comes by those that are back.
    fn withdraw_gone_paths(
        &mut self,
        after: Option<P>,
        audience: &Audience<'_>,
        encoding: &Encoding<'_>,
    ) -> Option<P> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, |after| Excluded((after, SourceId::LAST)));
        let mut last = None;
        for (count, &(prefix, source)) in self.gone_paths.range((from, Unbounded)).enumerate() {
            // All of a prefix at once: that is where the walk goes on.
            if count >= encoding.limits.window && last != Some(prefix) {
                break;
            }
            last = Some(prefix);
            if self.rib.path_of(prefix, source).standing() == 0 {
                self.window.withdraw(encoding.core, audience, source, prefix);
            }
        }
        last
    }

    /// The prefixes that an earlier process has announced, and that are not there any more.
    fn withdraw_left(&mut self, cursor: &mut Cursor<P>, audience: &Audience<'_>, encoding: &Encoding<'_>) {
        let Some(told) = &mut cursor.told else { return };
        for (prefix, known) in told.take_some(encoding.limits.window) {
            self.window.withdraw_known(audience, &known, prefix);
        }
    }

    fn walk(
        &mut self,
        walk: Walk<P>,
        cursor: &mut Cursor<P>,
        audience: &Audience<'_>,
        encoding: &mut Encoding<'_>,
    ) -> Advance {
        let (last, done) = match audience.current.export.paths::<P>() {
            0 => self.walk_best(walk, cursor, audience, encoding),
            _ => self.walk_each(walk, cursor, audience, encoding),
        };
        match last {
            Some(_) => {
                cursor.walk = Some(Walk { after: last, done: walk.done + done as u64, ..walk });
                Advance::Some
            }
            None if cursor.told.as_mut().is_some_and(|told| told.is_left()) => {
                self.withdraw_left(cursor, audience, encoding);
                Advance::Some
            }
            None => {
                cursor.walk = None;
                let had_end_of_rib = cursor.told.take().is_some_and(|told| told.end_of_rib);
                match walk.kind {
                    WalkKind::Resume if !had_end_of_rib => Advance::Synced,
                    WalkKind::Resume => Advance::Some,
                    WalkKind::Dump | WalkKind::Lost => Advance::Synced,
                    WalkKind::Refresh | WalkKind::Policy => Advance::Some,
                }
            }
        }
    }

    /// A page of the walk, each path of it; the last prefix, and how many there were.
    fn walk_each(
        &mut self,
        walk: Walk<P>,
        cursor: &mut Cursor<P>,
        audience: &Audience<'_>,
        encoding: &mut Encoding<'_>,
    ) -> (Option<P>, usize) {
        let Encoding { core, marks, limits, others } = encoding;
        let Self { rib, window, .. } = self;
        let page = rib.page_of_each(core, walk.after, limits.window, others[usize::from(P::WIDTH != 32)]);
        // All had been read: what was logged now is of the page.
        cursor.position = rib.log.end();
        for Change { prefix, old, new } in page.paths {
            let before = match walk.kind {
                WalkKind::Dump => Before::Path(old.absent(), Side::Current),
                WalkKind::Refresh => Before::Path(audience.select::<P>(Side::Current, old), Side::Current),
                WalkKind::Policy => Before::Path(audience.select::<P>(Side::Previous, old), Side::Previous),
                WalkKind::Lost | WalkKind::Resume => Before::Unknown,
            };
            let new = audience.select::<P>(Side::Current, new);
            audience.read(core, prefix, before, new);
            window.add(core, marks, audience, prefix, before, (new, Side::Current));
        }
        (page.last, page.prefixes)
    }

    /// The same of the best paths.
    fn walk_best(
        &mut self,
        walk: Walk<P>,
        cursor: &mut Cursor<P>,
        audience: &Audience<'_>,
        encoding: &mut Encoding<'_>,
    ) -> (Option<P>, usize) {
        let Encoding { core, marks, limits, .. } = encoding;
        let Self { rib, window, .. } = self;
        let page = rib.page(walk.after, limits.window);
        window.tally.restarted = walk.kind == WalkKind::Resume && walk.after.is_none();
        for &(prefix, best) in &page {
            let told = cursor.told.as_mut().and_then(|told| told.take(prefix));
            let before = match walk.kind {
                WalkKind::Dump => Before::Path(Path::NONE, Side::Current),
                WalkKind::Refresh => Before::Path(best, Side::Current),
                WalkKind::Policy => Before::Path(best, Side::Previous),
                WalkKind::Lost => Before::Unknown,
                WalkKind::Resume => {
                    audience.read(core, prefix, Before::Unknown, best);
                    window.resume(core, marks, audience, prefix, told, best);
                    continue;
                }
            };
            audience.read(core, prefix, before, best);
            window.add(core, marks, audience, prefix, before, (best, Side::Current));
        }
        (page.last().map(|(prefix, _)| *prefix), page.len())
    }
}
