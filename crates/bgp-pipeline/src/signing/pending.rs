//! Announcements that are put off until they are signed, of one reader of the log.

use std::collections::VecDeque;

use hashbrown::HashMap;
use holdfast_bgp_wire::nlri::Identified;
use holdfast_types::{HashKey, IpPrefix};

use crate::{PeerIndex, path::SourceId};

/// Announcements of a reader that jobs were made for, at most. Beyond that walks wait, as long as somebody signs, and what the
/// log brings is looked at when there are fewer.
const MOST_ASKED: usize = 1024;

/// Who of the peers of a group has been told of a route, whatever of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Had {
    Nobody,
    All,
    Except(PeerIndex),
}

impl Had {
    /// All have, but for the one that is left with nothing, if there is one.
    pub(crate) fn all_but(peer: Option<PeerIndex>) -> Self {
        peer.map_or(Self::All, Self::Except)
    }

    /// Who was not, being where it came from.
    pub(crate) fn except(self) -> Option<PeerIndex> {
        match self {
            Self::Nobody | Self::All => None,
            Self::Except(peer) => Some(peer),
        }
    }
}

/// An announcement that is put off.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    /// Who has been told of the route before.
    pub(crate) had: Had,
    /// Whose path it is.
    pub(crate) source: SourceId,
    /// They have it with an AS_PATH meanwhile.
    pub(crate) is_plain: bool,
    /// How many walks had come to their end when it was put off.
    walk: u32,
    state: State,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// There is a job for what this stands for. Where it waits for keys, there is none, and it is 0.
    Asked(u64),
    /// It is to be looked at again, and has this place in the queue for that.
    Ready(u32),
    /// The same when there are fewer jobs.
    Later(u32),
}

/// Routes in the order in which they are looked at again. A place counts as long as the route names it.
type Queue<P> = VecDeque<(u32, Identified<P>)>;

/// Places that do not count, besides as many as there are routes.
const MOST_STALE: usize = 1024;

/// All that are put off.
#[derive(Clone, Debug)]
pub(crate) struct Pending<P> {
    routes: HashMap<Identified<P>, Waiting, HashKey>,
    ready: Queue<P>,
    later: Queue<P>,
    next: u32,
    asked: usize,
    /// Of those that are asked for, the ones that are told nothing meanwhile.
    awaited: usize,
    /// Others have made as many jobs as there may be.
    is_refused: bool,
    /// Walks that have come to their end.
    walks: u32,
    /// Of those that are told nothing meanwhile: all, and those that were put off before the last walk had come to its end.
    silent: usize,
    owed: usize,
}

/// What can be done of what is put off.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Outlook {
    /// Some can be looked at again.
    pub(crate) is_ready: bool,
    /// Walks have to wait.
    pub(crate) is_full: bool,
    /// What was put off before the last walk had come to its end is not all told.
    pub(crate) owes: bool,
}

impl<P: IpPrefix> Pending<P> {
    pub(crate) fn outlook(pending: Option<&Self>) -> Outlook {
        pending.map_or_else(Outlook::default, |pending| Outlook {
            is_ready: pending.is_ready(),
            is_full: pending.awaited >= MOST_ASKED,
            owes: pending.owed > 0,
        })
    }

    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            routes: HashMap::with_hasher(key),
            ready: VecDeque::new(),
            later: VecDeque::new(),
            next: 0,
            asked: 0,
            awaited: 0,
            is_refused: false,
            walks: 0,
            silent: 0,
            owed: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    fn is_ready(&self) -> bool {
        let may_ask = self.asked < MOST_ASKED / 2 && !self.is_refused;
        !self.ready.is_empty() || !self.later.is_empty() && may_ask
    }

    /// Whether a job may be made for one more.
    pub(crate) fn has_room(&self) -> bool {
        self.asked < MOST_ASKED
    }

    /// There are fewer jobs again.
    pub(crate) fn retry(&mut self) {
        self.is_refused = false;
    }

    /// Whether a route of a prefix is put off; then, whether the members have it with an AS_PATH meanwhile.
    pub(crate) fn waits(&self, prefix: P) -> Option<bool> {
        let of_it = |(route, waiting): (&Identified<P>, &Waiting)| {
            (route.prefix == prefix).then_some(waiting.is_plain)
        };
        match self.routes.get(&Identified { identifier: 0, prefix }) {
            Some(waiting) => Some(waiting.is_plain),
            // Few: somebody asks by hand, and only where several paths are told.
            None => self.routes.iter().find_map(of_it),
        }
    }

    /// Whether a route waits for a job of what `mark` stands for.
    pub(crate) fn awaits(&self, route: Identified<P>, mark: u64) -> bool {
        self.routes.get(&route).is_some_and(|waiting| waiting.state == State::Asked(mark))
    }

    /// Puts an announcement off; `asked`: there is a job of what this stands for, or it waits for keys (0). `before`: what was
    /// known of it when it was put off already.
    pub(crate) fn add(
        &mut self,
        route: Identified<P>,
        (had, source): (Had, SourceId),
        is_plain: bool,
        before: Option<Waiting>,
        asked: Option<u64>,
    ) {
        let walk = before.map_or(self.walks, |before| before.walk);
        let state = asked.map_or_else(|| State::Later(self.place()), State::Asked);
        let waiting = Waiting { had, source, is_plain, walk, state };
        self.count(&waiting, true);
        self.routes.insert(route, waiting);
        if let State::Later(place) = state {
            self.is_refused |= self.has_room();
            self.later.push_back((place, route));
            self.forget_stale();
        }
    }

    fn place(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// Otherwise a route that changes all the time would have more and more places.
    fn forget_stale(&mut self) {
        let Self { routes, ready, later, .. } = self;
        let state = |route: &Identified<P>| routes.get(route).map(|waiting| waiting.state);
        if ready.len() > routes.len() + MOST_STALE {
            ready.retain(|(place, route)| state(route) == Some(State::Ready(*place)));
        }
        if later.len() > routes.len() + MOST_STALE {
            later.retain(|(place, route)| state(route) == Some(State::Later(*place)));
        }
    }

    fn count(&mut self, waiting: &Waiting, is_added: bool) {
        let by = |count: &mut usize, counts: bool| match is_added {
            true => *count += usize::from(counts),
            false => *count -= usize::from(counts),
        };
        let is_asked = matches!(waiting.state, State::Asked(_));
        by(&mut self.asked, is_asked);
        by(&mut self.awaited, is_asked && !waiting.is_plain);
        by(&mut self.silent, !waiting.is_plain);
        by(&mut self.owed, !waiting.is_plain && waiting.walk != self.walks);
    }

    /// Takes an announcement out.
    pub(crate) fn take(&mut self, route: Identified<P>) -> Option<Waiting> {
        let waiting = self.routes.remove(&route)?;
        self.count(&waiting, false);
        Some(waiting)
    }

    /// It is to be looked at again.
    pub(crate) fn wake(&mut self, route: Identified<P>) {
        let place = self.place();
        let Some(waiting) = self.routes.get_mut(&route) else { return };
        let is_asked = matches!(waiting.state, State::Asked(_));
        self.asked -= usize::from(is_asked);
        self.awaited -= usize::from(is_asked && !waiting.is_plain);
        if !matches!(waiting.state, State::Ready(_)) {
            waiting.state = State::Ready(place);
            self.ready.push_back((place, route));
            self.forget_stale();
        }
    }

    /// All are.
    pub(crate) fn wake_all(&mut self) {
        let routes: Vec<_> = self.routes.keys().copied().collect();
        routes.into_iter().for_each(|route| self.wake(route));
    }

    /// Whether of some routes the members are told nothing until they are signed.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent > 0
    }

    /// The next one that is to be looked at again; it stays.
    pub(crate) fn poll(&mut self) -> Option<(Identified<P>, Waiting)> {
        loop {
            let (route, state) = match self.ready.pop_front() {
                Some((place, route)) => (route, State::Ready(place)),
                None if self.is_refused || !self.has_room() => return None,
                None => self.later.pop_front().map(|(place, route)| (route, State::Later(place)))?,
            };
            if let Some(waiting) = self.routes.get(&route).filter(|waiting| waiting.state == state) {
                return Some((route, *waiting));
            }
        }
    }

    /// A walk has come to its end; whether announcements were put off that come before the members are told so.
    pub(crate) fn end_walk(&mut self) -> bool {
        self.walks = self.walks.wrapping_add(1);
        self.owed = self.silent;
        self.owed > 0
    }

    pub(crate) fn memory(&self) -> usize {
        self.routes.allocation_size()
            + (self.ready.capacity() + self.later.capacity()) * size_of::<(u32, Identified<P>)>()
    }
}
