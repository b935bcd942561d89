//! When a snapshot is worth its octets: a decision, without a log and without a clock.
//!
//! A snapshot takes the place of octets received, so it is paid from what they have earned: each octet received lets
//! two octets of snapshots be written for its session ([`Pacing::received`], [`Pacing::pay`]). Over any load at most
//! twice as many octets are written as were received, and beside that one snapshot for each session taken over. Where a snapshot is cut off, as
//! its session has not earned that much or the log has no room, it has to earn, or find, more before the next attempt.
//!
//! A walk over the tables takes snapshots of several sessions at once, and costs something for each route, whoever has
//! brought it. So a walk begins when what was received since the last snapshots is as much as these hold, or when the
//! snapshots would soon find no room; and only if it makes the log shorter ([`Pacing::begin`]). A table that has come
//! once is as long in a snapshot as it was on the wire: it stays as it was received, until much of it is replaced.

use std::collections::BTreeMap;

use crate::SessionId;

/// Octets that each octet received lets be written.
const EARNS: u64 = 2;
/// Octets received below which a session needs no snapshot.
const SHORT: u64 = 64 << 10;
/// Octets received before a walk, in a log that has room for 16 times as many.
const LONG: u64 = 16 << 20;
/// A walk makes the log shorter by one in so many octets of all snapshots.
const WORTH: u64 = 4;
/// And by one in so many of those that it writes.
const WORTH_OF_WRITING: u64 = 2;
/// Of a full log a walk has to take the place of one in so many octets.
const WORTH_OF_FULL: u64 = 16;
/// The ratio of what is as long as expected.
const ONE: u64 = 256;
/// A guess is corrected by this factor at most: a session that brings or withdraws a table while its snapshot is made says
/// nothing of the next one.
const MOST: u64 = 4;

/// What a session holds in the log, in octets.
#[derive(Copy, Clone, Debug)]
pub struct Holding {
    /// The session.
    pub id: SessionId,
    /// Octets received that its snapshot does not cover.
    pub incoming: u64,
    /// Its snapshot.
    pub snapshot: u64,
    /// What a snapshot would take if it were made now: a guess.
    pub expected: u64,
    /// All that it takes.
    pub held: u64,
    /// What can be done about it.
    pub standing: Standing,
}

/// Whether a snapshot of a session can be made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It can.
    Ready,
    /// Not now: what it has received would not be said by it.
    Busy,
    /// What the process before has received is being replayed: a session that loses its protection now is lost.
    Replaying,
    /// It was replayed, and what the peer was told has not been read: a session that loses its protection now is lost.
    Unread,
}

/// Of whom snapshots are to be made, in one walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// The sessions.
    pub sessions: Vec<SessionId>,
    /// Octets that their snapshots are expected to take.
    pub octets: u64,
}

/// What helps when a log has no room for what comes in.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Relief {
    /// To wait: a walk is under way, or a replay, or nobody could do without protection until histories are read.
    Wait,
    /// A walk: [`Pacing::begin`] will begin one.
    Walk,
    /// To end the protection of this session, which fills the log. `None`: there is none.
    GiveUp(Option<SessionId>),
}

/// Accounts of the sessions, and when it is time for a walk.
#[derive(Debug)]
pub struct Pacing {
    /// Octets that the log has room for.
    size: u64,
    accounts: BTreeMap<SessionId, Account>,
    received: u64,
    written: u64,
    /// The sessions are looked at when so much was received.
    look_at: u64,
    walking: bool,
    /// The log is full: a walk is of use sooner.
    pressed: bool,
}

/// What a session has earned.
#[derive(Debug)]
struct Account {
    /// Octets that may still be written for it.
    credit: u64,
    /// Received since its last snapshot was begun.
    fresh: u64,
    /// What was expected of the snapshot that is being made, or that was made last.
    expected: u64,
    /// How long its last snapshot was, in 256ths of what was expected.
    ratio: u64,
    /// The next snapshot is taken for as long as this: the last ones were cut off.
    least: u64,
    /// Octets written of the one that is being made.
    writing: u64,
}

impl Default for Account {
    fn default() -> Self {
        Self { credit: 0, fresh: 0, expected: 0, ratio: ONE, least: 0, writing: 0 }
    }
}

/// A session that can pay for a snapshot.
struct Candidate {
    id: SessionId,
    incoming: u64,
    snapshot: u64,
    /// As long as it is expected to be.
    likely: u64,
    /// As long as it will be if the routes are mostly those that it has.
    least: u64,
}

impl Pacing {
    /// For a log that has room for so many octets.
    pub fn new(size: u64) -> Self {
        Self {
            size,
            accounts: BTreeMap::new(),
            received: 0,
            written: 0,
            look_at: 0,
            walking: false,
            pressed: false,
        }
    }

    /// A session of the process before. It may have one snapshot for what that had received.
    pub fn recovered(&mut self, id: SessionId, incoming: u64, snapshot: u64) {
        let (credit, fresh) = (incoming + snapshot, incoming);
        self.accounts.insert(id, Account { credit, fresh, ..Account::default() });
    }

    /// A session is not in the log any more.
    pub fn closed(&mut self, id: SessionId) {
        self.accounts.remove(&id);
    }

    /// So much was received for a session.
    #[inline]
    pub fn received(&mut self, id: SessionId, octets: u64) {
        self.received += octets;
        let account = self.accounts.entry(id).or_default();
        // Who has earned more than the log holds gains nothing by it.
        account.credit = (account.credit + EARNS * octets).min(EARNS * self.size);
        account.fresh += octets;
    }

    /// Octets received, and octets written for snapshots, since this began.
    pub fn totals(&self) -> (u64, u64) {
        (self.received, self.written)
    }

    /// Whether it is time for [`Self::begin`]. Never again before more was received, whatever comes of that.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.received >= self.look_at && !self.walking
    }

    /// The walk that is to be made now, if one is worth it; [`Self::end`] must follow. `room` octets are free for
    /// snapshots.
    pub fn begin(&mut self, sessions: &[Holding], room: u64) -> Option<Walk> {
        if self.walking {
            return None;
        }
        self.look_at = self.received + self.step();
        let pressed = std::mem::take(&mut self.pressed);
        let walk = self.choose(sessions, room, pressed)?;
        for Holding { id, expected, .. } in sessions {
            self.accounts.entry(*id).or_default().expected = *expected;
        }
        for id in &walk.sessions {
            let account = self.accounts.entry(*id).or_default();
            (account.fresh, account.writing) = (0, 0);
        }
        self.walking = true;
        Some(walk)
    }

    /// Whether a record of so many octets may be written for a session; then it is paid for. If not, the snapshot is to
    /// be [given up](Self::abandoned).
    #[inline]
    pub fn pay(&mut self, id: SessionId, octets: u64) -> bool {
        let Some(account) = self.accounts.get_mut(&id) else { return false };
        let Some(left) = account.credit.checked_sub(octets) else { return false };
        account.credit = left;
        account.writing += octets;
        self.written += octets;
        true
    }

    /// A snapshot of so many octets holds.
    pub fn committed(&mut self, id: SessionId, octets: u64) {
        let Some(account) = self.accounts.get_mut(&id) else { return };
        let ratio = octets.saturating_mul(ONE) / account.expected.max(1);
        account.ratio = ratio.clamp(ONE / MOST, ONE * MOST);
        account.least = 0;
    }

    /// A snapshot was given up: there was no room for it, or the session had not earned that much.
    pub fn abandoned(&mut self, id: SessionId, for_room: bool) {
        let Some(account) = self.accounts.get_mut(&id) else { return };
        let more = if for_room { account.writing / 4 } else { account.writing };
        account.least = account.writing + more.max(SHORT);
    }

    /// The walk is over.
    pub fn end(&mut self) {
        self.walking = false;
    }

    /// What helps when there is no room for what comes in.
    pub fn relieve(&mut self, sessions: &[Holding], room: u64) -> Relief {
        if self.walking || sessions.iter().any(|session| session.standing == Standing::Replaying) {
            return Relief::Wait;
        }
        if self.choose(sessions, room, true).is_some() {
            self.pressed = true;
            return Relief::Walk;
        }
        let others = sessions.iter().filter(|session| session.standing != Standing::Unread);
        match others.max_by_key(|session| session.held) {
            None if !sessions.is_empty() => Relief::Wait,
            other => Relief::GiveUp(other.map(|session| session.id)),
        }
    }

    fn choose(&self, sessions: &[Holding], room: u64, pressed: bool) -> Option<Walk> {
        let snapshots: u64 = sessions.iter().map(|session| session.snapshot).sum();
        let tail: u64 = sessions.iter().map(|session| session.incoming).sum();
        // What may come in before the next look, and during a walk.
        let margin = 2 * self.step();
        let (mut left, mut covered, mut gain, mut is_short) = (room, 0, 0, false);
        let mut chosen = Vec::new();
        for Candidate { id, incoming, snapshot, likely, least } in self.candidates(sessions) {
            let takes = match (likely <= left, least <= left) {
                (true, _) => {
                    is_short |= likely + margin > left;
                    likely
                }
                // As long as it is expected to be it will not fit, now or later. If that is too much by half it does: that
                // is tried.
                (false, true) if pressed || least.midpoint(likely) + margin > left => {
                    is_short = true;
                    least.midpoint(likely).min(left)
                }
                (false, _) => continue,
            };
            left -= takes;
            covered += incoming;
            gain += (incoming + snapshot).saturating_sub(takes);
            chosen.push(id);
        }
        let written = room - left;
        let is_worth = match (pressed, is_short) {
            (true, _) => covered >= self.size / WORTH_OF_FULL,
            (false, true) => gain >= self.long().max(snapshots / WORTH),
            (false, false) => {
                tail >= self.long().max(snapshots)
                    && gain >= self.long().max(snapshots / WORTH).max(written / WORTH_OF_WRITING)
            }
        };
        (is_worth && covered > 0).then_some(Walk { sessions: chosen, octets: written })
    }

    /// Those that have received enough to pay for a snapshot, who has received most first.
    fn candidates(&self, sessions: &[Holding]) -> Vec<Candidate> {
        let candidate = |session: &Holding| {
            let account = self.accounts.get(&session.id)?;
            let least = session.snapshot.max(account.least);
            let likely = (session.expected.saturating_mul(account.ratio) / ONE).max(account.least);
            let is_one = session.standing == Standing::Ready
                && account.fresh.min(session.incoming) >= SHORT
                && account.credit >= likely;
            let &Holding { id, incoming, snapshot, .. } = session;
            is_one.then_some(Candidate { id, incoming, snapshot, likely, least })
        };
        let mut candidates: Vec<_> = sessions.iter().filter_map(candidate).collect();
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.incoming));
        candidates
    }

    /// Octets received before a walk, where the snapshots hold less.
    fn long(&self) -> u64 {
        (self.size / 16).clamp(SHORT, LONG)
    }

    /// Octets received between two looks at the sessions.
    fn step(&self) -> u64 {
        (self.size / 64).clamp(SHORT, LONG / 4)
    }
}
