//! The sessions of a table, and for whom they are. Decides; [`crate::table`] sends and receives.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::bfd::v1::{SessionState, State as ApiState};
use holdfast_bfd::{Change, Diagnostic, Engine, Path, Profile, Session, SessionId, State, TooMany};
use holdfast_routing::Links;
use tokio::sync::Notify;

use crate::{
    kept::{Kept, Left},
    paths::{Neighbor, Route, route},
    section::Profiles,
};

/// How long a session is kept for a client that has died, or for clients of the process before.
const PATIENCE: Duration = Duration::from_secs(120);
const SECOND: Duration = Duration::from_secs(1);
/// Changes of a session that are written to the log in a second.
const MOST_LINES: u32 = 10;
/// States that wait for a client that does not read; then the last one counts.
const MOST_WAITING: usize = 16;

/// Somebody who is told the states of a session.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    waiting: RefCell<VecDeque<SessionState>>,
    bell: Notify,
}

impl Follower {
    fn tell(&self, state: SessionState) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= MOST_WAITING {
            waiting.pop_back();
        }
        waiting.push_back(state);
        self.bell.notify_one();
    }

    /// The next state; waits for it.
    pub(crate) async fn next(&self) -> SessionState {
        loop {
            if let Some(state) = self.waiting.borrow_mut().pop_front() {
                return state;
            }
            self.bell.notified().await;
        }
    }
}

/// A neighbour that somebody wants to know of.
#[derive(Debug, Default)]
struct Wanted {
    /// With the profile that each names.
    followers: Vec<(Rc<Follower>, String)>,
    session: Option<SessionId>,
    /// Nobody follows it: its clients have died, and may come back until then.
    until: Option<Instant>,
}

/// What a session is for.
#[derive(Debug, Default)]
struct Use {
    neighbors: Vec<Neighbor>,
    /// The name of its profile.
    profile: String,
    /// Since when so many of its changes were written to the log.
    written: Option<(Instant, u32)>,
    /// It is of the process before, and nobody has asked for it: it is kept until then.
    until: Option<Instant>,
}

/// The sessions of a table.
pub(crate) struct Sessions {
    pub(crate) engine: Engine,
    pub(crate) kept: Kept,
    profiles: Profiles,
    wanted: BTreeMap<Neighbor, Wanted>,
    uses: BTreeMap<SessionId, Use>,
    links: Option<Links>,
    /// Before that nobody's patience ends.
    patience: Option<Instant>,
    /// Of sessions that have been begun, until somebody has [taken](Self::new_paths) them.
    new_paths: Vec<Path>,
}

impl Sessions {
    /// Those of the process before go on.
    pub(crate) fn new(now: Instant, engine: Engine, kept: Kept, left: Vec<Left>, profiles: Profiles) -> Self {
        let (wanted, uses, new_paths) = Default::default();
        let (links, patience) = Default::default();
        let mut sessions = Self { engine, kept, profiles, wanted, uses, links, patience, new_paths };
        left.into_iter().for_each(|left| sessions.take_over(now, left));
        sessions
    }

    fn take_over(&mut self, now: Instant, left: Left) {
        let profile = self.profile(&left.profile);
        match self.engine.thaw(now, &left.frozen, profile) {
            Ok(id) => {
                self.kept.adopt(&left, id);
                self.new_paths.extend(left.frozen.path());
                let until = self.be_patient(now);
                self.uses.insert(id, Use { profile: left.profile, until, ..Use::default() });
            }
            Err(_) => self.kept.drop_left(&left),
        }
    }

    /// A profile that a client has named when it was there.
    fn profile(&self, name: &str) -> Rc<Profile> {
        self.profiles.named(name).unwrap_or_default()
    }

    pub(crate) fn has_profile(&self, name: &str) -> bool {
        self.profiles.named(name).is_some()
    }

    /// Whether there is anything that somebody could want to know.
    pub(crate) fn is_idle(&self) -> bool {
        self.wanted.is_empty() && self.engine.is_empty()
    }

    /// The next time at which [`Self::advance`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        [self.patience, self.engine.next_deadline()].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.engine.advance(now);
        if self.patience.is_some_and(|until| until <= now) {
            self.lose_patience(now);
        }
    }

    /// Ends sessions that nobody has come back for.
    fn lose_patience(&mut self, now: Instant) {
        let is_over = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        let over = self.wanted.iter().filter(|(_, wanted)| is_over(wanted.until));
        let over: Vec<_> = over.map(|(neighbor, _)| neighbor.clone()).collect();
        over.iter().for_each(|neighbor| self.forget(now, neighbor));
        let over = self.uses.iter().filter(|(_, of)| is_over(of.until));
        let over: Vec<_> = over.map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.release(now, id));
        let wanted = self.wanted.values().filter_map(|wanted| wanted.until);
        self.patience = wanted.chain(self.uses.values().filter_map(|of| of.until)).min();
    }

    /// When a patience ends that begins now.
    fn be_patient(&mut self, now: Instant) -> Option<Instant> {
        let until = now + PATIENCE;
        self.patience = Some(self.patience.map_or(until, |earliest| earliest.min(until)));
        Some(until)
    }

    /// Takes other profiles.
    pub(crate) fn configure(&mut self, now: Instant, profiles: Profiles, most: usize) {
        self.profiles = profiles;
        self.engine.set_most(most);
        let ids: Vec<_> = self.uses.keys().copied().collect();
        ids.into_iter().for_each(|id| self.choose_profile(now, id));
        self.find_paths(now);
    }

    /// The interfaces are others.
    pub(crate) fn set_links(&mut self, now: Instant, links: &Links) {
        self.links = Some(links.clone());
        self.find_paths(now);
    }

    fn find_paths(&mut self, now: Instant) {
        let neighbors: Vec<_> = self.wanted.keys().cloned().collect();
        neighbors.iter().for_each(|neighbor| self.find_path(now, neighbor));
    }

    /// Tells somebody the states of the session to a neighbour, from now on.
    pub(crate) fn follow(&mut self, now: Instant, neighbor: &Neighbor, profile: String) -> Rc<Follower> {
        let follower = Rc::new(Follower::default());
        let wanted = self.wanted.entry(neighbor.clone()).or_default();
        wanted.until = None;
        wanted.followers.push((Rc::clone(&follower), profile));
        let before = wanted.session;
        self.find_path(now, neighbor);
        if let Some(id) = self.wanted.get(neighbor).and_then(|wanted| wanted.session) {
            self.choose_profile(now, id);
            // Of another session all were told when it was begun.
            if before == Some(id) {
                self.engine.session(id).iter().for_each(|session| follower.tell(said(now, session)));
            }
        }
        follower
    }

    /// Somebody follows no more: on purpose, or because it has died.
    pub(crate) fn unfollow(
        &mut self,
        now: Instant,
        neighbor: &Neighbor,
        follower: &Rc<Follower>,
        has_died: bool,
    ) {
        let until = self.be_patient(now);
        let Some(wanted) = self.wanted.get_mut(neighbor) else { return };
        wanted.followers.retain(|(other, _)| !Rc::ptr_eq(other, follower));
        if wanted.followers.is_empty() {
            match has_died {
                true => wanted.until = until,
                false => self.forget(now, neighbor),
            }
        } else if let Some(id) = wanted.session {
            self.choose_profile(now, id);
        }
    }

    fn forget(&mut self, now: Instant, neighbor: &Neighbor) {
        self.detach(now, neighbor);
        self.wanted.remove(neighbor);
    }

    /// The session of a neighbour is not for it any more.
    fn detach(&mut self, now: Instant, neighbor: &Neighbor) {
        let Some(id) = self.wanted.get_mut(neighbor).and_then(|wanted| wanted.session.take()) else { return };
        let Some(of) = self.uses.get_mut(&id) else { return };
        of.neighbors.retain(|other| other != neighbor);
        if of.neighbors.is_empty() {
            self.release(now, id);
        } else {
            self.choose_profile(now, id);
        }
    }

    fn release(&mut self, now: Instant, id: SessionId) {
        self.uses.remove(&id);
        self.engine.close(now, id);
    }

    /// Has a neighbour's session take the way that its interfaces say. Nothing is decided as long as they are not known.
    fn find_path(&mut self, now: Instant, neighbor: &Neighbor) {
        let Some(links) = &self.links else { return };
        let route = route(neighbor, links);
        let current = self.wanted.get(neighbor).and_then(|wanted| wanted.session);
        match (route, current) {
            (Route::Path(path), _) => drop(self.attach(now, neighbor, path)),
            (Route::Down(path), _) => {
                if let Ok(id) = self.attach(now, neighbor, path) {
                    self.engine.path_down(now, id);
                }
            }
            (Route::Nowhere, Some(id)) => self.engine.path_down(now, id),
            (Route::Nowhere, None) => self.tell(neighbor, nowhere()),
        }
    }

    /// Gives a neighbour the session on this path.
    fn attach(&mut self, now: Instant, neighbor: &Neighbor, path: Path) -> Result<SessionId, TooMany> {
        let current = self.wanted.get(neighbor).and_then(|wanted| wanted.session);
        let is_same = |id: &SessionId| self.engine.session(*id).is_some_and(|session| session.path() == path);
        if let Some(id) = current.filter(is_same) {
            return Ok(id);
        }
        self.detach(now, neighbor);
        let (name, profile) = self.wish(std::slice::from_ref(neighbor));
        let opened = self.engine.open(now, path, profile);
        let Ok(id) = opened else {
            self.tell(neighbor, nowhere());
            return opened;
        };
        self.new_paths.push(path);
        let of = self.uses.entry(id).or_default();
        if of.neighbors.is_empty() {
            of.profile = name;
        }
        of.until = None;
        of.neighbors.push(neighbor.clone());
        self.wanted.entry(neighbor.clone()).or_default().session = Some(id);
        self.choose_profile(now, id);
        if let Some(session) = self.engine.session(id) {
            let said = said(now, session);
            self.tell(neighbor, said);
        }
        Ok(id)
    }

    /// Of the profiles that followers name, the one that finds a failure first.
    fn wish(&self, neighbors: &[Neighbor]) -> (String, Rc<Profile>) {
        let followers = neighbors.iter().filter_map(|neighbor| self.wanted.get(neighbor));
        let names = followers.flat_map(|wanted| wanted.followers.iter().map(|(_, name)| name.as_str()));
        let profiles = names.map(|name| (name.to_owned(), self.profile(name)));
        profiles
            .min_by_key(|(_, profile)| profile.detection_time())
            .unwrap_or_else(|| (String::new(), self.profile("")))
    }

    fn choose_profile(&mut self, now: Instant, id: SessionId) {
        let Some(of) = self.uses.get(&id) else { return };
        let is_followed = |neighbor: &Neighbor| {
            self.wanted.get(neighbor).is_some_and(|wanted| !wanted.followers.is_empty())
        };
        let (name, profile) = if of.neighbors.iter().any(is_followed) {
            self.wish(&of.neighbors)
        } else {
            (of.profile.clone(), self.profile(&of.profile))
        };
        let differs = self.engine.session(id).is_some_and(|session| *session.profile() != profile);
        if differs {
            self.engine.set_profile(now, id, profile);
        }
        if let Some(of) = self.uses.get_mut(&id)
            && of.profile != name
        {
            self.kept.rename(id, &name);
            of.profile = name;
        }
    }

    fn tell(&self, neighbor: &Neighbor, state: SessionState) {
        let followers = self.wanted.get(neighbor).into_iter().flat_map(|wanted| &wanted.followers);
        followers.for_each(|(follower, _)| follower.tell(state));
    }

    /// Whether another change of a session is written to the log: a neighbour does not choose how long that becomes.
    pub(crate) fn may_write(&mut self, now: Instant, id: SessionId) -> bool {
        let Some(of) = self.uses.get_mut(&id) else { return true };
        let (since, lines) = of.written.unwrap_or((now, 0));
        let is_over = now.saturating_duration_since(since) >= SECOND;
        let (since, lines) = if is_over { (now, 0) } else { (since, lines) };
        of.written = Some((since, lines + 1));
        lines < MOST_LINES
    }

    /// Tells who follows what has changed in a session.
    pub(crate) fn take(&mut self, now: Instant, change: &Change) {
        let id = change.session;
        if change.has_ended {
            self.kept.forget(id);
            return;
        }
        self.keep(id);
        let Some(session) = self.engine.session(id) else { return };
        let state = said(now, session);
        let neighbors = self.uses.get(&id).into_iter().flat_map(|of| &of.neighbors);
        neighbors.for_each(|neighbor| {
            // A failure that is over already is told all the same.
            if change.has_failed && session.state() != State::Down {
                self.tell(neighbor, failed(&state));
            }
            self.tell(neighbor, state);
        });
    }

    /// The paths of sessions that have been begun since the last call: a passive one is to hear before it sends.
    pub(crate) fn new_paths(&mut self) -> Vec<Path> {
        std::mem::take(&mut self.new_paths)
    }

    /// Writes down what the next process needs of a session.
    pub(crate) fn keep(&mut self, id: SessionId) {
        let Some(session) = self.engine.session(id) else { return };
        let profile = self.uses.get(&id).map_or("", |of| &of.profile);
        self.kept.keep(id, session.freeze(), profile);
    }

    /// The name of a session's profile.
    pub(crate) fn profile_of(&self, id: SessionId) -> &str {
        self.uses.get(&id).map_or("", |of| &of.profile)
    }

    /// The name of an interface.
    pub(crate) fn interface(&self, index: Option<u32>) -> &str {
        let link = index.and_then(|index| self.links.as_ref()?.get(&index));
        link.map_or("", |link| &link.name)
    }

    /// For each neighbour, by address and interface, whether all sessions to it have failed.
    pub(crate) fn neighbors(&self) -> BTreeMap<(IpAddr, u32), bool> {
        let mut neighbors = BTreeMap::new();
        for (id, session) in self.engine.sessions() {
            if self.uses.contains_key(&id) {
                let key = (session.path().remote, session.path().interface.unwrap_or(0));
                *neighbors.entry(key).or_insert(true) &= session.has_failed();
            }
        }
        neighbors
    }

    /// Neighbours are told AdminDown.
    pub(crate) fn close_all(&mut self, now: Instant) {
        let ids: Vec<_> = self.engine.sessions().map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.engine.close(now, id));
    }

    /// Begins all sessions anew; how many.
    pub(crate) fn restart_all(&mut self, now: Instant) -> usize {
        let ids: Vec<_> = self.uses.keys().copied().collect();
        ids.iter().for_each(|id| self.engine.restart(now, *id));
        ids.len()
    }
}

fn api(state: State) -> i32 {
    match state {
        State::AdminDown => ApiState::AdminDown,
        State::Down => ApiState::Down,
        State::Init => ApiState::Init,
        State::Up => ApiState::Up,
    }
    .into()
}

/// A session as a client sees it.
fn said(now: Instant, session: &Session) -> SessionState {
    SessionState {
        state: api(session.state()),
        remote_state: api(session.remote_state()),
        diagnostic: session.diagnostic().bits().into(),
        remote_diagnostic: session.remote_diagnostic().bits().into(),
        remote_control_plane_independent: session.is_remote_control_plane_independent(),
        since_milliseconds: now.saturating_duration_since(session.since()).as_millis() as u64,
        detection_microseconds: session.detection_time().as_micros() as u64,
    }
}

/// A session that was Down for a moment.
fn failed(now: &SessionState) -> SessionState {
    let diagnostic = Diagnostic::NEIGHBOR_SIGNALED_DOWN.bits().into();
    SessionState { state: api(State::Down), remote_state: api(State::Down), diagnostic, ..*now }
}

/// No session, since no interface leads to the neighbour, or there are too many.
fn nowhere() -> SessionState {
    let diagnostic = Diagnostic::PATH_DOWN.bits().into();
    SessionState { state: api(State::Down), remote_state: api(State::Down), diagnostic, ..Default::default() }
}
