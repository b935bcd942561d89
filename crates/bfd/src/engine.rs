//! The sessions of one table.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    net::IpAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bfd_wire::{Diagnostic, Malformed, Octets, Received, State};
use holdfast_types::HashKey;

use crate::{Frozen, Hops, Path, Profile, Session, random::Random};

/// Packets that would be due within this time of each other may leave together.
const TOGETHER: Duration = Duration::from_millis(5);

/// Names a session until it has ended.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(u32);

/// There are as many sessions as there may be.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there are {0} sessions, and no more are allowed")]
pub struct TooMany(pub usize);

/// A datagram as it came in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// What is behind the UDP header.
    pub octets: &'a [u8],
    /// Who sent it.
    pub source: IpAddr,
    /// Where it was sent to, if that is known.
    pub destination: Option<IpAddr>,
    /// By which interface it came, if that is known.
    pub interface: Option<u32>,
    /// Its TTL or hop limit, if that is known.
    pub ttl: Option<u8>,
    /// Of the port where it arrived.
    pub hops: Hops,
}

/// Why a packet was discarded.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rejected {
    /// It is no packet.
    #[error("malformed: {0}")]
    Malformed(#[from] Malformed),
    /// No session has this discriminator, or this neighbour.
    #[error("no session")]
    NoSession,
    /// It comes from further away than the session allows (RFC 5881 section 5), or by another interface.
    #[error("from elsewhere")]
    Misdirected,
    /// Its authentication is missing, wrong, or not expected.
    #[error("not authentic")]
    Unauthentic,
}

/// A packet to be sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Whose it is.
    pub session: SessionId,
    /// Which way it goes.
    pub path: Path,
    /// What is behind the UDP header.
    pub octets: Octets,
}

/// Something has changed that others want to know.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Whose state it is.
    pub session: SessionId,
    /// Its state at the last change.
    pub was: State,
    /// It was Up, and went Down for another reason than an operator's wish, since the last change.
    pub has_failed: bool,
    /// It has ended: this name means nothing any more.
    pub has_ended: bool,
}

/// What others are told of a session.
type Told = (State, State, Diagnostic, Diagnostic, [bool; 2]);

#[derive(Debug)]
struct Slot {
    session: Session,
    /// When it is looked at, or earlier than it has to be.
    wake: Option<Instant>,
    is_in_outbox: bool,
    told: Told,
    /// A change that nobody has been told yet.
    change: Option<Change>,
}

/// Sessions, at most so many.
#[derive(Debug)]
pub struct Engine {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    most: usize,
    by_discriminator: HashMap<u32, SessionId, HashKey>,
    by_remote: HashMap<(IpAddr, Hops), Vec<SessionId>, HashKey>,
    wakes: BTreeSet<(Instant, SessionId)>,
    /// Sessions that have something to send, each once.
    outbox: VecDeque<SessionId>,
    /// Sessions that have changed, each once.
    changed: VecDeque<SessionId>,
    random: Random,
}

impl Engine {
    /// An engine without sessions. The key is for its hashes, and for numbers that nobody can guess.
    pub fn new(key: HashKey, most: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            most,
            by_discriminator: HashMap::with_hasher(key),
            by_remote: HashMap::with_hasher(key),
            wakes: BTreeSet::new(),
            outbox: VecDeque::new(),
            changed: VecDeque::new(),
            random: Random::new(key),
        }
    }

    /// Allows so many sessions from now on. Those that there are stay.
    pub fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Opens a session, or gives the one that there is on this path.
    ///
    /// # Errors
    /// There are too many.
    pub fn open(&mut self, now: Instant, path: Path, profile: Rc<Profile>) -> Result<SessionId, TooMany> {
        if let Some(id) = self.find(&path) {
            self.with(now, id, |session| {
                session.reopen(now);
                session.set_profile(now, profile);
            });
            return Ok(id);
        }
        let discriminator = self.new_discriminator();
        let sequence = self.random.word();
        self.add(now, Session::new(now, path, profile, discriminator, sequence))
    }

    /// Goes on with a session of the process before, which was in the state that the octets say.
    ///
    /// # Errors
    /// The octets themselves, if they are no session, or one that cannot be: its path or its discriminator is in use, or there
    /// are too many.
    pub fn thaw(&mut self, now: Instant, frozen: &Frozen, profile: Rc<Profile>) -> Result<SessionId, Frozen> {
        let thawed = frozen.thaw().ok_or(*frozen)?;
        let is_taken = self.by_discriminator.contains_key(&thawed.discriminator);
        if is_taken || self.find(&thawed.path).is_some() {
            return Err(*frozen);
        }
        let mut session = Session::new(now, thawed.path, Rc::clone(&profile), thawed.discriminator, 0);
        (session.state, session.diagnostic, session.remote) =
            (thawed.state, thawed.diagnostic, thawed.remote);
        session.has_failed = thawed.has_failed;
        (session.timing, session.sequence) = (thawed.timing, thawed.sequence);
        session.resume(now);
        let id = self.add(now, session).map_err(|_| *frozen)?;
        self.with(now, id, |session| session.set_profile(now, profile));
        Ok(id)
    }

    fn add(&mut self, now: Instant, session: Session) -> Result<SessionId, TooMany> {
        if self.len() >= self.most {
            return Err(TooMany(self.most));
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // As many as there may be, at most.
            (self.slots.len() - 1) as u32
        });
        let id = SessionId(number);
        self.by_discriminator.insert(session.discriminator, id);
        self.by_remote.entry((session.path.remote, session.path.hops)).or_default().push(id);
        let told = told(&session);
        self.slots[number as usize] =
            Some(Slot { session, wake: None, is_in_outbox: false, told, change: None });
        self.settle(now, id);
        Ok(id)
    }

    /// Ends a session: the neighbour is told AdminDown for its detection time.
    pub fn close(&mut self, now: Instant, id: SessionId) {
        self.with(now, id, |session| session.close(now));
    }

    /// The interface or the address of a session is gone: it is Down at once.
    pub fn path_down(&mut self, now: Instant, id: SessionId) {
        self.with(now, id, |session| session.path_down(now));
    }

    /// Gives a session other settings. It stays as it is, and the neighbour is asked to confirm other intervals.
    pub fn set_profile(&mut self, now: Instant, id: SessionId, profile: Rc<Profile>) {
        self.with(now, id, |session| session.set_profile(now, profile));
    }

    /// Begins a session anew, as if an operator had held it down for a moment.
    pub fn restart(&mut self, now: Instant, id: SessionId) {
        self.with(now, id, |session| session.restart(now));
    }

    /// Each session that may send sends now, since packets of before may not have left.
    pub fn send_again(&mut self, now: Instant) {
        let ids: Vec<_> = self.sessions().map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.with(now, id, Session::send_again));
    }

    /// Counts from nothing again.
    pub fn clear_counters(&mut self) {
        self.slots.iter_mut().flatten().for_each(|slot| slot.session.counters = Default::default());
    }

    /// Takes a datagram in.
    ///
    /// # Errors
    /// Why it is discarded.
    pub fn receive(&mut self, now: Instant, datagram: &Datagram<'_>) -> Result<SessionId, Rejected> {
        let received = Received::read(datagram.octets)?;
        let id = self.session_of(datagram, received.packet.your_discriminator).ok_or(Rejected::NoSession)?;
        let slot = self.slot_mut(id).ok_or(Rejected::NoSession)?;
        let Session { path, profile, .. } = &slot.session;
        let is_near = datagram.ttl.is_some_and(|ttl| ttl >= profile.least_ttl(path.hops));
        if !is_near || path.hops != datagram.hops || !path.fits(datagram.destination, datagram.interface) {
            slot.session.counters.misdirected += 1;
            return Err(Rejected::Misdirected);
        }
        if !slot.session.believes(now, &received) {
            return Err(Rejected::Unauthentic);
        }
        slot.session.receive(now, &received.packet);
        self.settle(now, id);
        Ok(id)
    }

    /// The session of our discriminator alone, if the neighbour knows it: its address may change (RFC 5881 section 6).
    fn session_of(&self, datagram: &Datagram<'_>, your_discriminator: u32) -> Option<SessionId> {
        if your_discriminator != 0 {
            return self.by_discriminator.get(&your_discriminator).copied();
        }
        let candidates = self.by_remote.get(&(datagram.source, datagram.hops))?;
        let fits = |id: &&SessionId| {
            let session = self.session(**id);
            session.is_some_and(|session| session.path.fits(datagram.destination, datagram.interface))
        };
        candidates.iter().find(fits).copied()
    }

    /// Does what is due. With it leave packets that are due in a moment: fewer moments cost less.
    pub fn advance(&mut self, now: Instant) {
        if self.next_deadline().is_none_or(|next| next > now) {
            return;
        }
        let mut early = Vec::new();
        while let Some(&(wake, id)) = self.wakes.first()
            && wake <= now + TOGETHER
        {
            self.wakes.pop_first();
            let Some(slot) = self.slot_mut(id) else { continue };
            slot.wake = None;
            slot.session.advance(now);
            if wake > now {
                early.push(id);
            } else {
                self.settle(now, id);
            }
        }
        early.into_iter().for_each(|id| self.settle(now, id));
    }

    /// When [`Self::advance`] is due. It may be a little early, and find nothing to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.wakes.first().map(|(wake, _)| *wake)
    }

    /// The next packet that is to be sent now.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        loop {
            let session = *self.outbox.front()?;
            let Self { slots, random, .. } = self;
            let slot = slots.get_mut(session.0 as usize).and_then(Option::as_mut);
            if let Some(slot) = slot
                && let Some(octets) = slot.session.transmit(now, random)
            {
                let path = slot.session.path;
                return Some(Transmit { session, path, octets });
            }
            self.outbox.pop_front();
            if let Some(slot) = self.slot_mut(session) {
                slot.is_in_outbox = false;
            }
            self.settle(now, session);
        }
    }

    /// The next session that has changed.
    pub fn poll_change(&mut self) -> Option<Change> {
        while let Some(id) = self.changed.pop_front() {
            let Some(change) = self.slot_mut(id).and_then(|slot| slot.change.take()) else { continue };
            if change.has_ended {
                self.remove(id);
            }
            return Some(change);
        }
        None
    }

    /// The session of this name.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.slots.get(id.0 as usize)?.as_ref().map(|slot| &slot.session)
    }

    /// The session on this path.
    pub fn find(&self, path: &Path) -> Option<SessionId> {
        let candidates = self.by_remote.get(&(path.remote, path.hops))?;
        candidates.iter().find(|id| self.session(**id).is_some_and(|session| session.path == *path)).copied()
    }

    /// All sessions.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        let named = self.slots.iter().enumerate();
        named.filter_map(|(number, slot)| Some((SessionId(number as u32), &slot.as_ref()?.session)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_discriminator.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slot_mut(&mut self, id: SessionId) -> Option<&mut Slot> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    fn with(&mut self, now: Instant, id: SessionId, act: impl FnOnce(&mut Session)) {
        if let Some(slot) = self.slot_mut(id) {
            act(&mut slot.session);
            self.settle(now, id);
        }
    }

    /// Looks what follows from what has happened to a session.
    fn settle(&mut self, now: Instant, id: SessionId) {
        let Self { slots, wakes, outbox, changed, .. } = self;
        let Some(slot) = slots.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let session = &slot.session;
        if session.is_ready(now) && !std::mem::replace(&mut slot.is_in_outbox, true) {
            outbox.push_back(id);
        }
        let has_ended = session.ends.is_some_and(|ends| ends <= now);
        let new = told(session);
        if new != slot.told || has_ended {
            let failed = slot.told.0 == State::Up && session.has_failed;
            let was = std::mem::replace(&mut slot.told, new).0;
            let none = Change { session: id, was, has_failed: false, has_ended: false };
            if slot.change.is_none() {
                changed.push_back(id);
            }
            let change = slot.change.get_or_insert(none);
            change.has_failed |= failed;
            change.has_ended |= has_ended;
        }
        // A later deadline is found when the earlier one has come: packets move it all the time.
        let deadline = slot.session.deadline(now).filter(|_| !has_ended);
        if let Some(deadline) = deadline
            && slot.wake.is_none_or(|wake| deadline < wake)
        {
            if let Some(wake) = slot.wake.replace(deadline) {
                wakes.remove(&(wake, id));
            }
            wakes.insert((deadline, id));
        }
    }

    fn remove(&mut self, id: SessionId) {
        let Some(slot) = self.slots.get_mut(id.0 as usize).and_then(Option::take) else { return };
        self.free.push(id.0);
        if let Some(wake) = slot.wake {
            self.wakes.remove(&(wake, id));
        }
        if slot.is_in_outbox {
            self.outbox.retain(|other| *other != id);
        }
        self.by_discriminator.remove(&slot.session.discriminator);
        let key = (slot.session.path.remote, slot.session.path.hops);
        if let Some(others) = self.by_remote.get_mut(&key) {
            others.retain(|other| *other != id);
            if others.is_empty() {
                self.by_remote.remove(&key);
            }
        }
    }

    /// One that no session has, and nobody can guess (section 6.8.1).
    fn new_discriminator(&mut self) -> u32 {
        loop {
            let drawn = self.random.word();
            if drawn != 0 && !self.by_discriminator.contains_key(&drawn) {
                return drawn;
            }
        }
    }
}

fn told(session: &Session) -> Told {
    let Session { state, diagnostic, remote, has_failed, .. } = session;
    let bits = [remote.control_plane_independent, *has_failed];
    (*state, remote.state, *diagnostic, remote.diagnostic, bits)
}
