//! The sessions of one table, with their sockets and their time.

use std::{
    cell::{Cell, Ref, RefCell},
    convert::Infallible,
    io,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bfd::{Change, Datagram, Engine, Hops, Rejected, State};
use holdfast_process::{Boot, hash_key, spawn_task};
use holdfast_routing::{Port, follow};
use holdfast_xrl::XrlError;
use tokio::{
    sync::{Notify, watch},
    task::{AbortHandle, yield_now},
    time::sleep,
};
use tracing::{Instrument, debug, info, warn};

use crate::{
    custody::Custody,
    kept::{Kept, Left},
    metrics,
    paths::Neighbor,
    section::Profiles,
    sockets::{self, Name, Purpose, Sockets},
    wanted::{Follower, Sessions},
};

/// Datagrams that are received before others have their turn.
const TURN: usize = 64;
/// Pause after a turn in which no packet belonged to a session. A process in real time that is flooded would leave no
/// processor time to others.
const STRANGERS: Duration = Duration::from_millis(1);
/// Octets of the longest datagram that is looked at: packets have 52, and what is behind them is not read.
const LONGEST: usize = 256;
/// Pause before a socket is opened again that could not be, or has failed.
const RETRY: Duration = Duration::from_secs(1);

/// What came of a turn of a socket.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Took {
    /// All that had come.
    All,
    /// As many as a turn takes, packets of sessions among them.
    Some,
    /// As many as a turn takes, and none of a session.
    Strangers,
}

/// Packets that were discarded, by reason.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Discarded {
    pub(crate) malformed: u64,
    pub(crate) no_session: u64,
    pub(crate) misdirected: u64,
    pub(crate) unauthentic: u64,
    /// Ours, which the kernel has not taken.
    pub(crate) unsent: u64,
}

impl Discarded {
    fn count(&mut self, rejected: Rejected) {
        *match rejected {
            Rejected::Malformed(_) => &mut self.malformed,
            Rejected::NoSession => &mut self.no_session,
            Rejected::Misdirected => &mut self.misdirected,
            Rejected::Unauthentic => &mut self.unauthentic,
        } += 1;
    }
}

/// A table, until it is dropped.
pub(crate) struct Table {
    inner: Rc<Inner>,
    life: AbortHandle,
}

pub(crate) struct Inner {
    boot: Rc<Boot>,
    custody: Custody,
    sessions: RefCell<Sessions>,
    sockets: Rc<Sockets>,
    discarded: Cell<Discarded>,
    /// Something may be due earlier than before.
    bell: Notify,
    /// What the timer waits for.
    armed: Cell<Option<Instant>>,
    /// A neighbour has failed, or works again.
    neighbors: watch::Sender<()>,
}

impl Drop for Table {
    fn drop(&mut self) {
        self.life.abort();
    }
}

impl Table {
    /// The table of `boot`, with the sessions that the process before has left.
    pub(crate) fn begin(
        boot: Rc<Boot>,
        custody: Custody,
        (kept, left): (Kept, Vec<Left>),
        (profiles, most): (Profiles, usize),
    ) -> Self {
        let (now, engine) = (Instant::now(), Engine::new(hash_key(), most));
        if !left.is_empty() {
            info!(event = "bfd-sessions-kept", sessions = left.len(), "sessions of the process before go on");
        }
        let inner = Rc::new(Inner {
            custody,
            sessions: RefCell::new(Sessions::new(now, engine, kept, left, profiles)),
            sockets: Rc::default(),
            discarded: Cell::default(),
            bell: Notify::new(),
            armed: Cell::default(),
            neighbors: watch::Sender::new(()),
            boot,
        });
        metrics::register(&inner.boot.metrics, &inner);
        inner.pump(now);
        let (life, span) = (Rc::clone(&inner), inner.boot.span());
        let life = spawn_task(async move { life.live().await }.instrument(span)).abort_handle();
        Self { inner, life }
    }

    pub(crate) fn inner(&self) -> &Rc<Inner> {
        &self.inner
    }
}

impl Inner {
    /// Its sessions.
    pub(crate) fn sessions(&self) -> Ref<'_, Sessions> {
        self.sessions.borrow()
    }

    /// What was discarded, without what the kernel has dropped.
    pub(crate) fn discarded(&self) -> Discarded {
        self.discarded.get()
    }

    /// What the kernel has dropped since sockets received faster than this process.
    pub(crate) fn dropped(&self) -> u64 {
        self.sockets.dropped()
    }

    /// Rings when a neighbour has failed, or works again, or is gone.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.neighbors.subscribe()
    }

    /// Takes other profiles.
    pub(crate) fn configure(self: &Rc<Self>, profiles: Profiles, most: usize) {
        self.act(|sessions, now| sessions.configure(now, profiles, most));
    }

    /// Somebody follows a session to a neighbour.
    ///
    /// # Errors
    /// There is no such profile.
    pub(crate) fn follow(
        self: &Rc<Self>,
        neighbor: &Neighbor,
        profile: String,
    ) -> Result<Rc<Follower>, XrlError> {
        if !self.sessions.borrow().has_profile(&profile) {
            return Err(XrlError::invalid_argument(format!("there is no profile `{profile}`")));
        }
        Ok(self.act(|sessions, now| sessions.follow(now, neighbor, profile)))
    }

    /// Somebody follows no more.
    pub(crate) fn unfollow(self: &Rc<Self>, neighbor: &Neighbor, follower: &Rc<Follower>, has_died: bool) {
        self.act(|sessions, now| sessions.unfollow(now, neighbor, follower, has_died));
    }

    /// Changes the sessions, and does what follows.
    pub(crate) fn act<T>(self: &Rc<Self>, act: impl FnOnce(&mut Sessions, Instant) -> T) -> T {
        let now = Instant::now();
        let result = act(&mut self.sessions.borrow_mut(), now);
        self.pump(now);
        result
    }

    async fn live(self: &Rc<Self>) -> Infallible {
        let links = follow(&self.boot, |links, _| self.act(|sessions, now| sessions.set_links(now, links)));
        tokio::select! {
            never = links => never,
            never = self.keep_time() => never,
        }
    }

    async fn keep_time(self: &Rc<Self>) -> Infallible {
        loop {
            let next = self.sessions.borrow().next_deadline();
            self.armed.set(next);
            tokio::select! {
                () = self.bell.notified() => {}
                () = until(next) => self.act(Sessions::advance),
            }
        }
    }

    /// Sends what is to be sent, and tells what has changed.
    fn pump(self: &Rc<Self>, now: Instant) {
        let mut sessions = self.sessions.borrow_mut();
        let mut has_changed = false;
        for path in sessions.new_paths() {
            sockets::needed(path)
                .into_iter()
                .filter(|name| !self.sockets.has(*name))
                .for_each(|name| self.open(name));
        }
        loop {
            while let Some(change) = sessions.engine.poll_change() {
                if sessions.may_write(now, change.session) {
                    self.report(&sessions, &change);
                }
                sessions.take(now, &change);
                has_changed = true;
            }
            let Some(transmit) = sessions.engine.poll_transmit(now) else { break };
            // Before it is sent: no sequence number is used twice.
            sessions.keep(transmit.session);
            if let Err(error) = self.sockets.send(transmit.octets.as_slice(), transmit.path) {
                self.discard(|discarded| discarded.unsent += 1);
                debug!(remote = %transmit.path.remote, "not sent: {error}");
            }
        }
        let next = sessions.next_deadline();
        drop(sessions);
        if has_changed {
            self.neighbors.send_replace(());
        }
        // Of a later one nobody need know before.
        if next.is_some_and(|next| self.armed.get().is_none_or(|armed| next < armed)) {
            self.bell.notify_one();
        }
    }

    fn report(&self, sessions: &Sessions, change: &Change) {
        let Some(session) = sessions.engine.session(change.session) else { return };
        let (path, state) = (session.path(), session.state());
        let interface = sessions.interface(path.interface);
        let (remote, diagnostic) = (path.remote, session.diagnostic());
        match state {
            State::Up if change.was != State::Up => {
                info!(event = "bfd-up", %remote, interface, "the session to {remote} is Up");
            }
            State::Down | State::Init if change.has_failed => warn!(
                event = "bfd-down", %remote, interface, %diagnostic,
                "the session to {remote} is Down: {diagnostic}"
            ),
            State::AdminDown | State::Down | State::Init | State::Up => {
                debug!(%remote, interface, "the session to {remote} is {state}: {diagnostic}");
            }
        }
    }

    fn discard(&self, count: impl FnOnce(&mut Discarded)) {
        let mut discarded = self.discarded.get();
        count(&mut discarded);
        self.discarded.set(discarded);
    }

    /// Counts what was discarded from nothing.
    pub(crate) fn clear_counters(&self) {
        self.discarded.take();
        self.sessions.borrow_mut().engine.clear_counters();
    }

    fn open(self: &Rc<Self>, name: Name) {
        let (inner, span) = (Rc::downgrade(self), self.boot.span());
        let (boot, custody) = (Rc::clone(&self.boot), self.custody.clone());
        let mut said = String::new();
        let task = async move {
            loop {
                let opened = sockets::open(&boot, &custody, name).await;
                let Some(inner) = inner.upgrade() else { return };
                match opened {
                    Ok(port) => {
                        let port = Rc::new(port);
                        inner.sockets.set(name, Some(Rc::clone(&port)));
                        said.clear();
                        if name.0 == Purpose::Send {
                            inner.act(|sessions, now| sessions.engine.send_again(now));
                        }
                        let error = inner.receive_from(name, &port).await;
                        warn!(event = "socket-failed", socket = sockets::word(name), "{error}");
                        inner.sockets.set(name, None);
                    }
                    Err(error) => {
                        let error = error.to_string();
                        if said != error {
                            warn!(event = "socket-failed", socket = sockets::word(name), "{error}");
                            said = error;
                        }
                    }
                }
                drop(inner);
                sleep(RETRY).await;
            }
        };
        self.sockets.begin(name, spawn_task(task.instrument(span)).abort_handle());
    }

    /// Takes packets in until the socket fails.
    async fn receive_from(self: &Rc<Self>, name: Name, port: &Port) -> io::Error {
        let Purpose::Receive(hops) = name.0 else { return std::future::pending().await };
        let mut octets = [0; LONGEST];
        loop {
            if let Err(error) = port.readable().await {
                return error;
            }
            match self.receive_some(hops, port, &mut octets) {
                Ok(Took::All) => {}
                // Whoever sends without a pause keeps nobody else waiting.
                Ok(Took::Some) => yield_now().await,
                Ok(Took::Strangers) => sleep(STRANGERS).await,
                Err(error) => return error,
            }
        }
    }

    fn receive_some(self: &Rc<Self>, hops: Hops, port: &Port, octets: &mut [u8]) -> io::Result<Took> {
        let mut took = Took::Strangers;
        for _ in 0..TURN {
            let received = match port.receive(octets) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Took::All),
                Err(error) => return Err(error),
            };
            let Some(source) = received.source else { continue };
            let datagram = Datagram {
                octets: octets.get(..received.octets).unwrap_or_default(),
                source: source.ip(),
                destination: received.destination,
                interface: received.interface,
                ttl: received.hops,
                hops,
            };
            if self.receive(&datagram) {
                took = Took::Some;
            }
        }
        Ok(took)
    }

    /// Whether it was a packet of a session.
    fn receive(self: &Rc<Self>, datagram: &Datagram<'_>) -> bool {
        let now = Instant::now();
        let mut sessions = self.sessions.borrow_mut();
        match sessions.engine.receive(now, datagram) {
            Ok(id) => {
                sessions.keep(id);
                drop(sessions);
                self.pump(now);
                true
            }
            Err(rejected) => {
                self.discard(|discarded| discarded.count(rejected));
                debug!(source = %datagram.source, "discarded: {rejected}");
                false
            }
        }
    }
}

async fn until(next: Option<Instant>) {
    match next {
        Some(next) => tokio::time::sleep_until(next.into()).await,
        None => std::future::pending().await,
    }
}
