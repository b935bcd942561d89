//! A reader's place in one family: a position in the log, and a walk over the table besides.
//!
//! Who has to be given the table (a new peer, after a refresh, a change of policy, or a loss) walks it in
//! address order. Changes go first, so that the table is as the reader knows it when the walk goes on; what
//! a change means for a prefix that the walk has not reached depends on what the receivers have of it.

mod walk;

use holdfast_bgp_wire::{RouteRefresh, nlri::Identified};
use holdfast_types::IpPrefix;

pub(crate) use self::walk::{Walk, WalkKind};
use crate::{
    Limits,
    adj_rib_out::{Before, Outgoing, Recipients, SetIndex, Side, TooLong, Window},
    core::Core,
    fanout::Change,
    loc_rib::Extent,
    path::{Path, PathCounts, SourceId},
    signing::{Outlook, Pending},
    table::Table,
    told::{Known, Routes, ToldFamily},
};

/// Prefixes of which what is compared is touched ahead of that, so that cache misses overlap.
const AHEAD: usize = 64;
/// Prefixes, or paths where each is read, of a walk before it is asked whether the turn is over; fewer where a policy
/// takes long.
pub(crate) const STEP: usize = 256;

/// How far members have been told of a refresh (RFC 7313).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Enclosure {
    #[default]
    None,
    /// BoRR goes out before the first route.
    Begins,
    /// It has. EoRR follows the walk, also if that has become another: what that tells is more.
    Begun,
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
    /// A refresh that was asked for during a walk, and follows it; whether it is enclosed in BoRR and EoRR.
    refresh: Option<bool>,
    /// What of those the members are to be told, or have been.
    enclosure: Enclosure,
    /// From [`WalkKind::Resume`] on: what an earlier process has told the members, without what walks have met.
    pub(crate) told: Option<Box<ToldFamily<P>>>,
    /// Announcements that wait for signatures.
    pub(crate) pending: Option<Box<Pending<P>>>,
    /// Routes that the members are not told of, because they fit no message.
    pub(crate) too_long: Option<Box<TooLong<P>>>,
    /// What the members are told of a walk that has ended, when they have been told of all that it has put off: End-of-RIB, and
    /// EoRR.
    owed: Option<(bool, bool)>,
    /// Walks wait for keys, or for the rate at which routes are signed again.
    blocked: bool,
}

impl<P: IpPrefix> Cursor<P> {
    pub(crate) fn new(position: u64) -> Self {
        Self {
            position,
            walk: None,
            lost: false,
            refresh: None,
            enclosure: Enclosure::None,
            told: None,
            pending: None,
            too_long: None,
            owed: None,
            blocked: false,
        }
    }

    /// A reader that has been told nothing, and is to be given the table.
    pub(crate) fn dump(position: u64) -> Self {
        Self { walk: Some(Walk::new(WalkKind::Dump)), ..Self::new(position) }
    }

    /// Has the table told once more: now, or when a walk that is under way has ended. To be cut short by another would
    /// leave the receiver with the end of a refresh that was none. It also waits until routes of our own that an earlier
    /// process has told have come again or are withdrawn: till then the table is not all that the receiver is to have.
    pub(crate) fn refresh(&mut self, is_enclosed: bool) {
        match self.walk {
            None if !self.lost && self.told.is_none() => self.start_refresh(is_enclosed),
            // They get the table, and not a word before its End-of-RIB (RFC 7313 section 4).
            Some(Walk { kind: WalkKind::Dump, after: None, .. }) => {}
            None | Some(_) => self.refresh = Some(is_enclosed),
        }
    }

    fn start_refresh(&mut self, is_enclosed: bool) {
        self.walk = Some(Walk::new(WalkKind::Refresh));
        self.enclosure = if is_enclosed { Enclosure::Begins } else { Enclosure::None };
    }

    /// A walk has ended; whether a refresh has with it, which the members are told.
    fn end_walk(&mut self) -> bool {
        self.walk = None;
        let has_ended = std::mem::take(&mut self.enclosure) == Enclosure::Begun;
        self.start_waiting_refresh();
        has_ended
    }

    /// Starts the refresh that was asked for, if nothing is left that it waits for.
    fn start_waiting_refresh(&mut self) {
        if self.walk.is_none()
            && self.told.is_none()
            && let Some(is_enclosed) = self.refresh.take()
        {
            self.start_refresh(is_enclosed);
        }
    }

    /// Whether something is still to be told of everything that the members have asked for, or are told anyway.
    pub(crate) fn is_telling_all(&self) -> bool {
        let is_silent = self.pending.as_ref().is_some_and(|pending| pending.is_silent());
        self.walk.is_some() || self.lost || self.refresh.is_some() || self.owed.is_some() || is_silent
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
        self.postpone_refresh();
        self.walk = Some(Walk::new(kind));
    }

    /// A refresh that waits for the end of another follows the walk that takes its place. That one does not wait: what has been
    /// put off is told when it comes by.
    fn postpone_refresh(&mut self) {
        if self.enclosure == Enclosure::Begins && self.owed.is_some() {
            (self.enclosure, self.refresh) = (Enclosure::None, Some(true));
        }
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

    /// Whether nothing is left to read or to be signed.
    pub(crate) fn is_at_end(&self, end: u64) -> bool {
        self.walk.is_none() && self.pending.is_none() && self.owed.is_none() && self.rests(end)
    }

    /// Whether nothing can be done at the moment: what is left waits for signatures.
    pub(crate) fn rests(&self, end: u64) -> bool {
        let is_walking = self.walk.is_some() && !self.is_blocked();
        !self.lost && !is_walking && self.position == end && !self.has_missed() && !self.is_ready()
    }

    /// Whether announcements that were put off can be looked at again, or all of a walk have been told.
    fn is_ready(&self) -> bool {
        let Outlook { is_ready, owes, .. } = Pending::outlook(self.pending.as_deref());
        is_ready || self.owed.is_some() && !owes
    }

    /// Whether walks wait until something is signed.
    fn is_blocked(&self) -> bool {
        // The members are told of the end of a refresh before the next one begins.
        let is_early = self.enclosure == Enclosure::Begins && self.owed.is_some();
        self.blocked || is_early || Pending::outlook(self.pending.as_deref()).is_full
    }

    /// Whether walks wait for keys, or for the rate at which routes are signed again; whether that is new.
    pub(crate) fn block(&mut self, blocked: bool) -> bool {
        std::mem::replace(&mut self.blocked, blocked) != blocked
    }

    /// Whether a route of a prefix waits to be signed; then, whether it was announced with an AS_PATH meanwhile.
    pub(crate) fn waits(&self, prefix: P) -> Option<bool> {
        self.pending.as_ref()?.waits(prefix)
    }

    pub(crate) fn pending_memory(&self) -> usize {
        let too_long = self.too_long.as_ref().map_or(0, |too_long| too_long.memory());
        self.pending.as_ref().map_or(0, |pending| pending.memory()) + too_long
    }

    /// Whether the members are not told of a route, as it fits no message.
    pub(crate) fn is_too_long(&self, route: Identified<P>) -> bool {
        self.too_long.as_ref().is_some_and(|too_long| too_long.has(route))
    }

    /// Units of finished work since the cursor was at this position, with this walk: changes that were read, and prefixes that
    /// were passed. A walk that stands where it stood has finished nothing, however often it has looked at a page.
    fn finished_since(&self, position: u64, walk: Option<Walk<P>>) -> u64 {
        let read = self.position.saturating_sub(position);
        let passed = match (walk, self.walk) {
            (Some(before), Some(now)) if now.after > before.after => {
                now.done.saturating_sub(before.done).max(1)
            }
            _ => 0,
        };
        read + passed
    }

    /// How many prefixes the walk under way has done.
    fn walked(&self) -> u64 {
        self.walk.map_or(0, |walk| walk.done)
    }

    /// Whether a route waits for a job of what `mark` stands for.
    pub(crate) fn awaits(&self, route: Identified<P>, mark: u64) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.awaits(route, mark))
    }

    /// A signature has come.
    pub(crate) fn wake(&mut self, route: Identified<P>) {
        self.pending.iter_mut().for_each(|pending| pending.wake(route));
    }

    /// More jobs may be made again.
    pub(crate) fn retry(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.retry());
    }

    /// All that waits is looked at again.
    pub(crate) fn wake_all(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.wake_all());
    }

    /// Of a reader that was split off: jobs are those of the other one.
    pub(crate) fn forked(mut self) -> Self {
        self.wake_all();
        self
    }

    /// Whether routes of our own that were told have not come again, and are to be withdrawn.
    fn has_missed(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.has_missed())
    }

    /// Whether the members have what follows from the table and nothing else.
    pub(crate) fn is_whole(&self) -> bool {
        self.told.is_none()
    }

    /// The walk comes by a prefix: takes out what an earlier process has told the members of it. What was told of those
    /// before and is still there is withdrawn.
    pub(crate) fn meet(
        &mut self,
        window: &mut Window<P>,
        core: &Core,
        recipients: &Recipients<'_>,
        prefix: P,
    ) -> Routes {
        self.pass(window, core, recipients, Some(prefix));
        self.told.as_mut().map(|told| told.take(prefix)).unwrap_or_default()
    }

    /// What was told of prefixes before this one (`None`: of all that are in order) is withdrawn, but for our own routes that
    /// may still come.
    #[inline]
    pub(crate) fn pass(
        &mut self,
        window: &mut Window<P>,
        core: &Core,
        recipients: &Recipients<'_>,
        before: Option<P>,
    ) {
        let Some(told) = &mut self.told else { return };
        told.pass(before, core.ours_are_awaited, |route, known| {
            window.withdraw_known(recipients, known, route);
        });
    }

    /// The same for what is left of what [`Self::meet`] has taken out.
    pub(crate) fn leave(
        &mut self,
        window: &mut Window<P>,
        core: &Core,
        recipients: &Recipients<'_>,
        (prefix, rest): (P, Routes),
    ) {
        let Some(told) = &mut self.told else { return };
        told.leave(prefix, rest, core.ours_are_awaited, |route, known| {
            window.withdraw_known(recipients, known, route);
        });
    }

    /// What was told of a route: among those that were met of its prefix, or awaited.
    pub(crate) fn take_told(&mut self, met: &mut Routes, route: Identified<P>) -> Option<Known> {
        let at = met.iter().position(|(identifier, _)| *identifier == route.identifier);
        at.map(|at| met.swap_remove(at).1).or_else(|| self.take_awaited(route))
    }

    /// Takes out what was told of a route of our own that was awaited.
    pub(crate) fn take_awaited(&mut self, route: Identified<P>) -> Option<Known> {
        self.told.as_mut()?.take_awaited(route)
    }

    /// The walk tells a prefix whatever was told of it, which is forgotten, but for paths that are not there.
    pub(crate) fn forget_met(
        &mut self,
        window: &mut Window<P>,
        core: &Core,
        recipients: &Recipients<'_>,
        (prefix, sources): (P, impl Iterator<Item = SourceId>),
    ) {
        if self.told.is_none() {
            return;
        }
        let mut met = self.meet(window, core, recipients, prefix);
        for source in sources {
            self.take_told(&mut met, recipients.route(core, prefix, source));
        }
        self.leave(window, core, recipients, (prefix, met));
    }

    /// Routes of our own that have not come again do not come.
    pub(crate) fn await_no_more(&mut self) {
        self.told.iter_mut().for_each(|told| told.await_no_more());
        self.forget_told();
    }

    /// Up to which prefix a page may go that is compared with what was told; `None`: up to any.
    pub(crate) fn limit(&self) -> Option<P> {
        self.told.as_ref()?.limit()
    }

    /// What was told is not needed any more when nothing of it is left.
    fn forget_told(&mut self) {
        self.told = self.told.take().filter(|told| told.is_left() || told.awaits());
        self.start_waiting_refresh();
    }
}

/// What is needed to encode.
pub(crate) struct Encoding<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) marks: &'a mut SetIndex,
    pub(crate) limits: Limits,
    /// Prefixes, or paths where each is read, of a walk before `is_over` is asked.
    pub(crate) step: usize,
    /// Whether the turn is over: a window ends early then, and the walk continues in the next turn.
    pub(crate) is_over: &'a dyn Fn() -> bool,
    /// By family, what is read by other streams of the changes that a walk finds, for those that are sent several paths.
    pub(crate) others: [PathCounts; 2],
}

/// What became of an attempt to encode more.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Advance {
    /// Nothing is left to do.
    Idle,
    /// Some changes or prefixes were done.
    Some,
    /// The last of a walk after which the members have everything: they are told so.
    Synced {
        /// By End-of-RIB.
        end_of_rib: bool,
        /// By EoRR.
        refresh: bool,
    },
}

impl<P: IpPrefix> Table<P> {
    /// One window for one cursor: changes first, so that the table is as the cursor knows it when a walk
    /// goes on.
    pub(crate) fn advance(
        &mut self,
        cursor: &mut Cursor<P>,
        recipients: &Recipients<'_>,
        encoding: &mut Encoding<'_>,
        out: &mut Outgoing,
    ) -> Advance {
        self.window.begin(encoding.core, encoding.marks, recipients);
        if cursor.lost {
            (cursor.position, cursor.lost) = (self.rib.log.start(), false);
            cursor.postpone_refresh();
            cursor.walk = Some(Walk::new(WalkKind::Lost));
        }
        if cursor.enclosure == Enclosure::Begins && cursor.owed.is_none() {
            cursor.enclosure = Enclosure::Begun;
            out.refresh::<P>(RouteRefresh::BORR);
        }
        self.window.lend((cursor.pending.take(), cursor.too_long.take()));
        let (walked, asked) = (cursor.walked(), encoding.core.signing.jobs.asked());
        let (position, walk) = (cursor.position, cursor.walk);
        let advance = self.advance_once(cursor, recipients, encoding);
        encoding.core.finished += cursor.finished_since(position, walk);
        self.window.encode(encoding.core, recipients, out);
        recipients.current.end_window();
        recipients.previous.end_window();
        (cursor.pending, cursor.too_long) = self.window.give_back();
        let has_walked = cursor.walked() != walked;
        let [now, before] = [recipients.current, recipients.previous].map(|group| &group.export);
        if has_walked && now.has_other_keys(before) {
            encoding.core.signing.spend(asked);
        }
        match advance {
            Advance::Synced { end_of_rib, refresh } => {
                if end_of_rib {
                    out.end_of_rib::<P>();
                }
                if refresh {
                    out.refresh::<P>(RouteRefresh::EORR);
                }
            }
            Advance::Idle | Advance::Some => {}
        }
        advance
    }

    fn advance_once(
        &mut self,
        cursor: &mut Cursor<P>,
        recipients: &Recipients<'_>,
        encoding: &mut Encoding<'_>,
    ) -> Advance {
        if cursor.position < self.rib.log.end() {
            match recipients.current.export.viewer {
                None => self.read_log(cursor, recipients, encoding),
                Some(_) => self.read_log_for_view(cursor, recipients, encoding),
            }
            return Advance::Some;
        }
        let waiting = self.window.waiting();
        if waiting.is_ready {
            self.look_again(cursor, recipients, encoding);
            return Advance::Some;
        }
        if let Some((end_of_rib, refresh)) = cursor.owed.take_if(|_| !waiting.owes) {
            return Advance::Synced { end_of_rib, refresh };
        }
        match cursor.walk {
            None if cursor.has_missed() => {
                self.withdraw_missed(cursor, recipients, encoding);
                cursor.forget_told();
                Advance::Some
            }
            None => Advance::Idle,
            // The members are told of the end of a refresh before the next one begins.
            Some(_) if cursor.blocked || waiting.is_full || cursor.enclosure == Enclosure::Begins => {
                Advance::Idle
            }
            Some(walk) if walk.withdrawing => self.withdraw_gone(walk, cursor, recipients, encoding),
            Some(walk) => match self.walk(walk, cursor, recipients, encoding) {
                Advance::Synced { end_of_rib, refresh } if self.window.end_walk() => {
                    let (owes_end, owes_refresh) = cursor.owed.unwrap_or_default();
                    cursor.owed = Some((owes_end || end_of_rib, owes_refresh || refresh));
                    Advance::Some
                }
                advance => advance,
            },
        }
    }

    /// Announcements that were put off and are ready.
    fn look_again(&mut self, cursor: &Cursor<P>, recipients: &Recipients<'_>, encoding: &mut Encoding<'_>) {
        let Encoding { core, marks, limits, .. } = encoding;
        for _ in 0..limits.window {
            let Some((route, source)) = self.window.poll_waiting() else { break };
            let side = match cursor.walk.filter(|walk| !walk.has_done(route.prefix)).map(|walk| walk.kind) {
                // The walk will come by.
                Some(WalkKind::Dump | WalkKind::Resume | WalkKind::Lost) => continue,
                Some(WalkKind::Policy | WalkKind::Filter | WalkKind::Keys) => Side::Previous,
                Some(WalkKind::Refresh) | None => Side::Current,
            };
            let path = self.present(core, recipients, side, (route.prefix, source));
            self.window.look_again(core, marks, recipients, route, (path, side));
        }
    }

    /// What is told of a prefix now; where several paths are, that of a source.
    fn present(
        &self,
        core: &mut Core,
        recipients: &Recipients<'_>,
        side: Side,
        (prefix, source): (P, SourceId),
    ) -> Path {
        let group = recipients.group(side);
        match (group.export.viewer, group.export.paths::<P>()) {
            (Some(_), most) => {
                let mut paths = self.rib.paths(prefix).to_vec();
                group.choose(core, prefix, &mut paths);
                let chosen = paths.into_iter().find(|path| most == 0 || path.source == source);
                chosen.unwrap_or(Path { source, ..Path::NONE })
            }
            (None, 0) => recipients.select(side, prefix, self.rib.best(prefix)),
            (None, _) if source == SourceId::DEFAULT => {
                recipients.select(side, prefix, recipients.default_route.unwrap_or(Path::NONE))
            }
            (None, _) => recipients.select(side, prefix, self.rib.path_of(prefix, source)),
        }
    }

    fn read_log(&mut self, cursor: &mut Cursor<P>, recipients: &Recipients<'_>, encoding: &mut Encoding<'_>) {
        let Encoding { core, marks, limits, .. } = encoding;
        let changes = self.rib.log.read(cursor.position, limits.window);
        let each = recipients.current.export.paths::<P>() != 0;
        let is_mixed = each || self.rib.log.is_mixed(cursor.position);
        cursor.position += changes.len() as u64;
        let mut merged = self.window.merge(changes, is_mixed.then_some(each));
        if cursor.walk.is_some() || cursor.told.is_some() {
            self.read_beside_walk(&mut merged, cursor, recipients, (core, marks));
        } else {
            if each || recipients.default_route.is_some() {
                merged.iter_mut().for_each(|change| *change = recipients.select_both(Side::Current, *change));
            }
            let (before, now) = (Before::Announced(Side::Current), Side::Current);
            for alike in merged.chunk_by(Change::is_like).filter(|alike| !alike[0].is_none()) {
                self.window.add(core, marks, recipients, alike, before, now);
            }
        }
        self.window.recycle(merged);
    }

    /// What changes mean while a walk is under way, or what one has found is still compared with what was told.
    fn read_beside_walk(
        &mut self,
        changes: &mut [Change<P>],
        cursor: &mut Cursor<P>,
        recipients: &Recipients<'_>,
        (core, marks): (&mut Core, &mut SetIndex),
    ) {
        for change in changes {
            let prefix = change.prefix;
            let pending = cursor.walk.filter(|walk| !walk.has_done(prefix)).map(|walk| walk.kind);
            let side = match pending {
                Some(WalkKind::Policy | WalkKind::Filter | WalkKind::Keys) => Side::Previous,
                Some(WalkKind::Dump | WalkKind::Refresh | WalkKind::Lost | WalkKind::Resume) | None => {
                    Side::Current
                }
            };
            *change = recipients.select_both(side, *change);
            match pending {
                // The walk will come by.
                Some(WalkKind::Dump | WalkKind::Resume) => continue,
                // Also where none of these paths is told now: they may have been.
                Some(WalkKind::Lost) => {
                    if !recipients.passes(core, prefix, change.new) {
                        self.window.withdraw(core, recipients, change.new.source, prefix);
                    }
                    continue;
                }
                Some(WalkKind::Policy | WalkKind::Filter | WalkKind::Keys | WalkKind::Refresh) | None
                    if change.is_none() =>
                {
                    continue;
                }
                Some(WalkKind::Policy | WalkKind::Filter | WalkKind::Keys | WalkKind::Refresh) | None => {}
            }
            // A walk has come by while it was not there: only now is what was told of it compared.
            let route = recipients.route(core, prefix, change.new.source);
            if let Some(told) = cursor.take_awaited(route) {
                self.window.resume(core, marks, recipients, route, Some(told), change.new);
                continue;
            }
            self.window.add(
                core,
                marks,
                recipients,
                std::slice::from_ref(change),
                Before::Announced(side),
                side,
            );
        }
    }

    /// The prefixes that were withdrawn while nobody looked.
    fn withdraw_gone(
        &mut self,
        walk: Walk<P>,
        cursor: &mut Cursor<P>,
        recipients: &Recipients<'_>,
        encoding: &Encoding<'_>,
    ) -> Advance {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = walk.after.map_or(Unbounded, Excluded);
        let mut last = None;
        self.window.tally.restarted = walk.after.is_none();
        if walk.after.is_none() {
            self.window.forget_too_long();
        }
        if recipients.current.export.reads_each(usize::from(P::WIDTH != 32)) {
            last = self.withdraw_gone_paths(walk.after, recipients, encoding);
        } else {
            for &prefix in self.gone.range((from, Unbounded)).take(encoding.limits.window) {
                last = Some(prefix);
                let best = self.rib.best(prefix);
                if !recipients.select(Side::Current, prefix, best).is_some() {
                    self.window.withdraw(encoding.core, recipients, SourceId::LOCAL, prefix);
                }
            }
        }
        cursor.walk = Some(match last {
            Some(_) => Walk { after: last, ..walk },
            None => Walk { after: None, withdrawing: false, ..walk },
        });
        Advance::Some
    }

    /// The same where several paths are read; returns the last prefix. The walk comes by those that are back.
    fn withdraw_gone_paths(
        &mut self,
        after: Option<P>,
        recipients: &Recipients<'_>,
        encoding: &Encoding<'_>,
    ) -> Option<P> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, |after| Excluded((after, SourceId::LAST, u32::MAX)));
        let mut last = None;
        for (count, &(prefix, source, identifier)) in self.gone_paths.range((from, Unbounded)).enumerate() {
            let is_next = last != Some(prefix);
            // All of a prefix at once: that is where the walk goes on.
            if count >= encoding.limits.window && is_next {
                break;
            }
            last = Some(prefix);
            let is_gone = match recipients.current.export.paths::<P>() {
                // A best path of a session that has ended is no path any more, and its removal is told to nobody.
                0 => {
                    is_next && {
                        let standing = self.rib.paths(prefix).into_iter().find(|path| path.standing() != 0);
                        !recipients.select(Side::Current, prefix, standing.unwrap_or(Path::NONE)).is_some()
                    }
                }
                // A path of another source that has the number now is not the one that was told.
                _ => {
                    let is_buried = encoding.core.sources.get(source).identifier != identifier;
                    is_buried || self.rib.path_of(prefix, source).standing() == 0
                }
            };
            if is_gone {
                let told = Identified { identifier, prefix };
                self.window.withdraw_told(encoding.core, recipients, source, told);
            }
        }
        last
    }

    /// Routes of our own that an earlier process has announced, and that do not come any more.
    fn withdraw_missed(
        &mut self,
        cursor: &mut Cursor<P>,
        recipients: &Recipients<'_>,
        encoding: &Encoding<'_>,
    ) {
        let Some(told) = &mut cursor.told else { return };
        for (route, known) in told.take_missed(encoding.limits.window) {
            self.window.withdraw_known(recipients, &known, route);
        }
    }

    fn walk(
        &mut self,
        walk: Walk<P>,
        cursor: &mut Cursor<P>,
        recipients: &Recipients<'_>,
        encoding: &mut Encoding<'_>,
    ) -> Advance {
        if cursor.told.as_mut().is_some_and(|told| !told.prepare()) {
            return Advance::Some;
        }
        let (mut walk, mut done) = (walk, 0);
        loop {
            let most = encoding.step.min(encoding.limits.window.saturating_sub(done));
            let page = self.walk_step(walk, cursor, recipients, encoding, most.max(1));
            // A default route alone is a page, too: the walk goes on after it.
            let default =
                recipients.default_route.filter(|_| walk.after.is_none()).map(|_| P::from_bits(0, 0));
            let Some(last) = page.last.or(default) else { break };
            done += page.prefixes.max(page.paths);
            walk = Walk { after: Some(last), done: walk.done + page.prefixes as u64, ..walk };
            cursor.walk = Some(walk);
            if done >= encoding.limits.window || (encoding.is_over)() {
                return Advance::Some;
            }
        }
        if done > 0 {
            return Advance::Some;
        }
        self.end_of_pages(walk, cursor, recipients, encoding)
    }

    /// A page of so many prefixes, or paths where each is read.
    fn walk_step(
        &mut self,
        walk: Walk<P>,
        cursor: &mut Cursor<P>,
        recipients: &Recipients<'_>,
        encoding: &mut Encoding<'_>,
        most: usize,
    ) -> Extent<P> {
        let export = &recipients.current.export;
        match (export.viewer, export.paths::<P>()) {
            (Some(_), _) => self.walk_for_view(walk, cursor, recipients, encoding, most),
            (None, 0) => self.walk_best(walk, cursor, recipients, encoding, most),
            (None, _) => self.walk_each(walk, cursor, recipients, encoding, most),
        }
    }

    /// The walk finds nothing more, as far as what was told is in order.
    fn end_of_pages(
        &mut self,
        walk: Walk<P>,
        cursor: &mut Cursor<P>,
        recipients: &Recipients<'_>,
        encoding: &mut Encoding<'_>,
    ) -> Advance {
        match cursor.told.as_ref().is_some_and(|told| told.is_left()) {
            // What is in order was told of prefixes that are not there; the walk goes on behind them.
            true => {
                let after = cursor.limit().or(walk.after);
                cursor.pass(&mut self.window, encoding.core, recipients, None);
                cursor.walk = Some(Walk { after, ..walk });
                Advance::Some
            }
            false => {
                let refresh = cursor.end_walk();
                let had_end_of_rib = cursor.told.as_ref().is_some_and(|told| told.end_of_rib);
                cursor.forget_told();
                let end_of_rib = match walk.kind {
                    WalkKind::Resume => !had_end_of_rib,
                    WalkKind::Dump | WalkKind::Lost => true,
                    WalkKind::Refresh | WalkKind::Policy | WalkKind::Filter | WalkKind::Keys => false,
                };
                match end_of_rib || refresh {
                    true => Advance::Synced { end_of_rib, refresh },
                    false => Advance::Some,
                }
            }
        }
    }

    /// A page of the walk, each path of it.
    fn walk_each(
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
        let default = recipients.default_route.filter(|_| walk.after.is_none());
        let default = default.map(|path| Change { prefix: P::from_bits(0, 0), old: path, new: path });
        let first = page.behind(default);
        if walk.kind == WalkKind::Resume {
            window.tally.restarted |= walk.after.is_none();
            for (prefix, paths) in page.by_prefix(&first) {
                let mut met = cursor.meet(window, core, recipients, prefix);
                for &Change { new, .. } in paths {
                    let route = recipients.route(core, prefix, new.source);
                    let told = cursor.take_told(&mut met, route);
                    let new = recipients.select(Side::Current, prefix, new);
                    window.resume(core, marks, recipients, route, told, new);
                }
                cursor.leave(window, core, recipients, (prefix, met));
            }
            return page.extent();
        }
        for (prefix, paths) in page.by_prefix(&first) {
            let sources = paths.iter().map(|change| change.new.source);
            cursor.forget_met(window, core, recipients, (prefix, sources));
        }
        for Change { prefix, old, new } in default.into_iter().chain(page.paths.iter().copied()) {
            let (before, old) = match walk.kind {
                WalkKind::Dump => (Before::Announced(Side::Current), old.absent()),
                WalkKind::Refresh => (Before::Asked, recipients.select(Side::Current, prefix, old)),
                // What the page itself has found is told to nobody else, and later to nobody at all.
                kind if old == new && !kind.concerns(recipients, core, (prefix, new)) => continue,
                WalkKind::Policy | WalkKind::Filter | WalkKind::Keys => {
                    (Before::Announced(Side::Previous), recipients.select(Side::Previous, prefix, old))
                }
                WalkKind::Lost | WalkKind::Resume => (Before::Unknown, old),
            };
            let change = Change { prefix, old, new: recipients.select(Side::Current, prefix, new) };
            window.add(core, marks, recipients, &[change], before, Side::Current);
        }
        page.extent()
    }

    /// The same of the best paths.
    fn walk_best(
        &mut self,
        walk: Walk<P>,
        cursor: &mut Cursor<P>,
        recipients: &Recipients<'_>,
        encoding: &mut Encoding<'_>,
        most: usize,
    ) -> Extent<P> {
        let Encoding { core, marks, .. } = encoding;
        let Self { rib, window, .. } = self;
        let mut page = rib.page_up_to(cursor.limit(), walk.after, most);
        let default = P::from_bits(0, 0);
        let is_missing = page.first().is_none_or(|(first, _)| *first != default);
        if walk.after.is_none() && is_missing && recipients.default_route.is_some() {
            page.insert(0, (default, Path::NONE));
        }
        window.tally.restarted |= walk.kind == WalkKind::Resume && walk.after.is_none();
        let last = page.last().map(|(prefix, _)| *prefix);
        let end = Extent { last, prefixes: page.len(), paths: page.len() };
        let route = |prefix| Identified { identifier: 0, prefix };
        let select = |side, (prefix, best)| recipients.select(side, prefix, best);
        let before = match walk.kind {
            WalkKind::Dump => Before::Announced(Side::Current),
            WalkKind::Refresh => Before::Asked,
            WalkKind::Policy | WalkKind::Filter | WalkKind::Keys => Before::Announced(Side::Previous),
            WalkKind::Lost => Before::Unknown,
            WalkKind::Resume => {
                let keep_hashes = recipients.keep_hashes::<P>(core);
                for (at, &(prefix, best)) in page.iter().enumerate() {
                    if at.is_multiple_of(AHEAD) {
                        let sets = page[at..].iter().take(AHEAD).map(|(_, best)| best.set);
                        sets.for_each(|set| core.sets.hashes.touch(set, recipients.current.number));
                        cursor.told.iter().for_each(|told| told.touch(AHEAD));
                    }
                    let best = select(Side::Current, (prefix, best));
                    cursor.pass(window, core, recipients, Some(prefix));
                    if keep_hashes
                        && let Some(told) = &mut cursor.told
                        && let Some(sole) = told.sole(prefix)
                        && window.is_as_told(core, recipients, (prefix, best), sole)
                    {
                        told.skip();
                        continue;
                    }
                    let mut met = cursor.meet(window, core, recipients, prefix);
                    let told = cursor.take_told(&mut met, route(prefix));
                    window.resume(core, marks, recipients, route(prefix), told, best);
                    cursor.leave(window, core, recipients, (prefix, met));
                }
                return end;
            }
        };
        for (prefix, best) in &page {
            cursor.forget_met(window, core, recipients, (*prefix, std::iter::once(best.source)));
        }
        let found = |(prefix, best)| {
            let old = match walk.kind {
                WalkKind::Refresh => select(Side::Current, (prefix, best)),
                WalkKind::Policy | WalkKind::Filter | WalkKind::Keys => {
                    select(Side::Previous, (prefix, best))
                }
                WalkKind::Dump | WalkKind::Lost | WalkKind::Resume => Path::NONE,
            };
            Change { prefix, old, new: select(Side::Current, (prefix, best)) }
        };
        page.retain(|&(prefix, best)| {
            walk.kind.concerns(recipients, core, (prefix, recipients.select(Side::Current, prefix, best)))
        });
        let changes: Vec<_> = page.into_iter().map(found).collect();
        for alike in changes.chunk_by(Change::is_like) {
            window.add(core, marks, recipients, alike, before, Side::Current);
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::Ipv4Prefix;

    use super::*;

    #[test]
    fn a_walk_that_looks_at_one_page_for_ever_finishes_nothing() {
        let page = |last: u32| Some(Ipv4Prefix::from_bits(u128::from(last) << 8, 24));
        let mut cursor = Cursor::dump(10);
        let start = cursor.walk;
        let at = |after, done| Some(Walk { after, done, ..Walk::new(WalkKind::Dump) });
        cursor.walk = at(page(100), 100);
        assert_eq!(cursor.finished_since(10, start), 100);
        // The same page once more, and another one before it.
        for (after, done) in [(page(100), 200), (page(50), 300)] {
            cursor.walk = at(after, done);
            assert_eq!(cursor.finished_since(10, at(page(100), 100)), 0);
        }
        cursor.walk = None;
        cursor.position = 17;
        assert_eq!((cursor.finished_since(10, None), cursor.finished_since(17, None)), (7, 0));
        assert_eq!(cursor.finished_since(20, None), 0, "a position is never given back");
    }
}
