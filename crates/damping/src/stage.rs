//! The stage: whose routes are damped, what they have done, and when they are looked at again.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::{Batch, Cause, PeerIndex, Release, RouteChange, Stage};
use holdfast_types::{IpPrefix, Ipv4Prefix, Prefix};

use crate::{
    Flaps, Parameters,
    history::{History, penalty},
};

/// Routes that may have a history. Of more that flap at once the others are not damped.
pub const MOST_HISTORIES: usize = 1 << 18;

/// Tells a peer from one that had its index before, and from itself before its histories were cleared.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Life(u32);

/// A route of a life of a peer.
type Key = (Life, Prefix);

/// Where a list of flaps goes on.
#[derive(Copy, Clone, Debug)]
pub struct Cursor(Key);

/// Route-flap damping, to be plugged into the pipeline's slot. Damps the routes of no peer but of those it is told of.
///
/// What peers did before this process, or an operator by a change of policy, is no flap. Nor is the end of a session
/// (RFC 2439 section 4.8.5): what its routes did before stays known.
#[derive(Debug)]
pub struct Damping {
    parameters: Parameters,
    start: Instant,
    peers: BTreeMap<PeerIndex, Life>,
    lives: u32,
    histories: BTreeMap<Key, (PeerIndex, History)>,
    /// The reuse lists of RFC 2439 section 4.8.7, by number: each history is in one, under the time at which it may be
    /// used again or forgotten, rounded up.
    lists: BTreeSet<(u64, Key)>,
    /// Lives that are over, and whose histories are to go.
    over: VecDeque<Life>,
    /// Flaps for which there was no room.
    missed: u64,
}

impl Damping {
    /// Damping of nobody's routes yet. The parameters make sense ([`Parameters::check`]).
    pub fn new(parameters: Parameters, now: Instant) -> Self {
        Self {
            parameters,
            start: now,
            peers: BTreeMap::new(),
            lives: 0,
            histories: BTreeMap::new(),
            lists: BTreeSet::new(),
            over: VecDeque::new(),
            missed: 0,
        }
    }

    /// Whether a peer's routes are damped from now on. Those that are held back and are not to be any more are let go by
    /// [`Stage::work`].
    pub fn set_peer(&mut self, peer: PeerIndex, damped: bool) {
        match damped {
            true if !self.peers.contains_key(&peer) => self.begin(peer),
            true => {}
            false => self.end(peer),
        }
    }

    fn begin(&mut self, peer: PeerIndex) {
        self.lives += 1;
        self.peers.insert(peer, Life(self.lives));
    }

    fn end(&mut self, peer: PeerIndex) {
        self.over.extend(self.peers.remove(&peer));
    }

    /// Forgets what all routes have done; [`Stage::work`] lets those go that are held back.
    pub fn clear(&mut self) {
        for peer in self.peers.keys().copied().collect::<Vec<_>>() {
            self.end(peer);
            self.begin(peer);
        }
    }

    /// Forgets what the routes to one prefix have done; [`Stage::work`] lets those go that are held back. Returns whether
    /// there was something to forget.
    pub fn clear_prefix(&mut self, prefix: Prefix) -> bool {
        let keys = self.peers.values().map(|life| (*life, prefix)).collect::<Vec<_>>();
        let mut found = false;
        for key in keys {
            let Some((_, history)) = self.histories.get_mut(&key) else { continue };
            history.forgive();
            found = true;
            self.file(key, 0);
        }
        found
    }

    /// Up to `limit` routes that have flapped, after one or from the first, by peer and prefix; and where to go on.
    pub fn flaps(&self, now: Instant, after: Option<Cursor>, limit: usize) -> (Vec<Flaps>, Option<Cursor>) {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, |Cursor(key)| Excluded(key));
        let mut last = None;
        let page = self.histories.range((from, Unbounded)).take(limit).inspect(|(key, _)| last = Some(**key));
        let page: Vec<_> = page
            .filter(|((life, _), (peer, _))| self.peers.get(peer) == Some(life))
            .map(|((_, prefix), (peer, history))| history.flaps(*peer, *prefix, &self.parameters, now))
            .collect();
        (page, last.map(Cursor))
    }

    /// Flaps since the start that were not noted, because too many other routes have a history.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// A route changes; whether it is held back.
    fn pass(&mut self, now: Instant, cause: Cause, key: Key, peer: PeerIndex, change: &RouteChange) -> bool {
        let penalty = if cause == Cause::Update { penalty(change) } else { 0 };
        let room = self.histories.len() < MOST_HISTORIES;
        let history = match self.histories.entry(key) {
            Entry::Occupied(entry) => &mut entry.into_mut().1,
            Entry::Vacant(entry) if penalty > 0 && room => &mut entry.insert((peer, History::new(now))).1,
            Entry::Vacant(_) => {
                self.missed += u64::from(penalty > 0);
                return false;
            }
        };
        history.add(&self.parameters, now, penalty);
        history.judge(&self.parameters);
        let suppressed = history.suppressed;
        self.schedule(now, key);
        suppressed
    }

    /// Puts a history into the list of the time at which there is something to decide about it.
    fn schedule(&mut self, now: Instant, key: Key) {
        let Some((_, history)) = self.histories.get(&key) else { return };
        let due = history.due(&self.parameters).saturating_duration_since(self.start);
        let list = due.as_nanos().div_ceil(self.parameters.grain().as_nanos()) as u64;
        self.file(key, list.max(self.list_of(now) + 1));
    }

    fn file(&mut self, key: Key, list: u64) {
        let Some((_, history)) = self.histories.get_mut(&key) else { return };
        self.lists.remove(&(history.list, key));
        history.list = list;
        self.lists.insert((list, key));
    }

    /// The last list whose time has come.
    fn list_of(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.start);
        (since.as_nanos() / self.parameters.grain().as_nanos()) as u64
    }

    /// Decides about a history whose time has come (RFC 2439 section 4.8.7).
    fn look_again(&mut self, now: Instant, key: Key, released: &mut Vec<Release>) {
        let Some((peer, history)) = self.histories.get_mut(&key) else { return };
        let was_suppressed = history.suppressed;
        history.add(&self.parameters, now, 0);
        history.judge(&self.parameters);
        if was_suppressed && !history.suppressed {
            released.push(Release { peer: *peer, prefix: key.1 });
        }
        if history.is_over(&self.parameters) {
            self.remove(key);
        } else {
            self.schedule(now, key);
        }
    }

    fn remove(&mut self, key: Key) -> Option<(PeerIndex, History)> {
        let removed = self.histories.remove(&key)?;
        self.lists.remove(&(removed.1.list, key));
        Some(removed)
    }

    /// Takes away up to `budget` histories of lives that are over; how many are left of the budget.
    fn sweep(&mut self, budget: usize, released: &mut Vec<Release>) -> usize {
        let mut left = budget;
        while left > 0
            && let Some(&life) = self.over.front()
        {
            let first = (life, Ipv4Prefix::from_bits(0, 0).into());
            let next = self.histories.range(first..).next().map(|(key, _)| *key);
            match next.filter(|key| key.0 == life).and_then(|key| Some((key, self.remove(key)?))) {
                Some((key, (peer, history))) => {
                    left -= 1;
                    released.extend(history.suppressed.then_some(Release { peer, prefix: key.1 }));
                }
                None => _ = self.over.pop_front(),
            }
        }
        left
    }

    fn history(&self, peer: PeerIndex, prefix: Prefix) -> Option<&History> {
        let life = self.peers.get(&peer)?;
        self.histories.get(&(*life, prefix)).map(|(_, history)| history)
    }
}

impl Stage for Damping {
    fn push(&mut self, batch: &mut Batch<'_>) {
        let Some(&life) = self.peers.get(&batch.peer) else { return };
        for change in batch.changes.iter_mut() {
            change.suppress |= self.pass(batch.now, batch.cause, (life, change.prefix), batch.peer, change);
        }
    }

    fn peer_down(&mut self, _: PeerIndex) {}

    fn peer_removed(&mut self, peer: PeerIndex) {
        self.end(peer);
    }

    fn work(&mut self, now: Instant, budget: usize, released: &mut Vec<Release>) -> bool {
        let mut left = self.sweep(budget, released);
        let reached = self.list_of(now);
        while left > 0
            && let Some(&(list, key)) = self.lists.first()
            && list <= reached
        {
            left -= 1;
            self.look_again(now, key, released);
        }
        left == 0
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let (list, _) = self.lists.first()?;
        let nanoseconds = self.parameters.grain().as_nanos().saturating_mul(u128::from(*list));
        Some(self.start + Duration::from_nanos(u64::try_from(nanoseconds).ok()?))
    }

    fn holds(&self, now: Instant, peer: PeerIndex, prefix: Prefix) -> Option<Cow<'static, str>> {
        let history = self.history(peer, prefix).filter(|history| history.suppressed)?;
        let left = history.due(&self.parameters).saturating_duration_since(now);
        Some(format!("damped (reuse in {})", rough(left)).into())
    }

    fn describe(&self) -> String {
        let damped = self.histories.values().filter(|(_, history)| history.suppressed).count();
        format!("damping: {} routes have flapped, {damped} are held back", self.histories.len())
    }
}

/// As people say it.
fn rough(time: Duration) -> String {
    match time.as_secs_f64().ceil() as u64 {
        seconds @ ..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}
