//! All state: the sessions with the caches, their connections, and what was published lately.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::rpki::v1::{CacheConfiguration, Configuration};
use holdfast_process::{Refusal, Resolver, spawn_task};
use holdfast_rtr::{CacheId, Caches, ClientConfig, Counts, Event, Exceptions, Fault, Input, Output};
use holdfast_rtr_wire::Version;
use holdfast_xrl::XrlError;
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
    time::sleep_until,
};
use tracing::{debug, info, warn};

use crate::{
    connection::{self, Outbox},
    log::Log,
    readiness::Readiness,
};

/// The process's state; one thread.
pub(crate) struct Rpki {
    pub(crate) resolver: Resolver,
    pub(crate) state: RefCell<State>,
    /// What waits for time may have changed.
    wake: Notify,
    /// The newest epoch.
    pub(crate) epoch: watch::Sender<u64>,
}

/// What is known.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) caches: Caches,
    pub(crate) known: BTreeMap<CacheId, Known>,
    pub(crate) log: Log,
    /// How much is published; of ASPAs the caches know.
    pub(crate) counts: Counts,
    /// None before the first configuration.
    readiness: Option<Readiness>,
    exceptions: Exceptions,
    /// Caches and connections so far: each has a number of its own.
    numbers: u64,
}

/// What is known of a cache besides its session.
pub(crate) struct Known {
    pub(crate) configuration: CacheConfiguration,
    connection: Option<Connection>,
    /// Who it has proven to be on this connection.
    pub(crate) proof: String,
    /// What went wrong last.
    pub(crate) error: String,
    /// Sessions that were lost.
    pub(crate) losses: u64,
    said: Said,
}

/// What the log has said last of a cache: the same is not said again.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Said {
    #[default]
    Nothing,
    Synced,
    Lost,
}

/// Dropped, it ends at once.
struct Connection {
    number: u64,
    outbox: Rc<Outbox>,
    task: Option<AbortHandle>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.iter().for_each(AbortHandle::abort);
    }
}

/// Reads a configuration: the exceptions of its files, and how each cache is asked.
fn read(request: &Configuration) -> Result<(Exceptions, Vec<ClientConfig>), Refusal> {
    let texts = request.exceptions.iter().map(|file| (file.file.as_str(), file.text.as_str()));
    let exceptions = Exceptions::parse(texts);
    let exceptions = exceptions.map_err(|error| Refusal::of("rpki.exceptions", error.to_string()))?;
    let config = |cache: &CacheConfiguration| {
        client_config(cache).map_err(|why| Refusal::of(format!("rpki.cache.{}", cache.name), why))
    };
    let configs = request.caches.iter().map(config).collect::<Result<_, _>>()?;
    Ok((exceptions, configs))
}

/// Whether a configuration could take effect.
pub(crate) fn check(request: &Configuration) -> Result<(), Refusal> {
    read(request).map(drop)
}

impl Rpki {
    /// Nothing is known before it is configured.
    pub(crate) fn new(resolver: Resolver) -> Rc<Self> {
        let (state, wake) = Default::default();
        Rc::new(Self { resolver, state, wake, epoch: watch::Sender::new(0) })
    }

    /// Replaces caches and local exceptions.
    ///
    /// # Errors
    /// `InvalidArgument`; then nothing has changed.
    pub(crate) fn configure(self: &Rc<Self>, request: Configuration) -> Result<(), XrlError> {
        let (exceptions, configs) =
            read(&request).map_err(|refusal| XrlError::invalid_argument(refusal.reason))?;
        let now = Instant::now();
        let mut state = self.state.borrow_mut();
        let stays = |known: &Known| request.caches.iter().any(|cache| is_same(cache, &known.configuration));
        let gone: Vec<CacheId> =
            state.known.iter().filter(|(_, known)| !stays(known)).map(|(id, _)| *id).collect();
        // The others are there before those that go: what both say holds all the time.
        for (cache, config) in request.caches.into_iter().zip(configs) {
            state.have(cache, config, now);
        }
        for id in &gone {
            state.known.remove(id);
        }
        state.caches.retire(gone);
        if state.exceptions != exceptions {
            state.exceptions = exceptions.clone();
            state.caches.set_exceptions(exceptions);
        }
        state.readiness.get_or_insert(Readiness::Waiting(now));
        info!(event = "rpki-configured", caches = state.known.len(), "caches configured");
        drop(state);
        self.follow(now);
        Ok(())
    }

    /// The connection is there.
    pub(crate) fn connected(self: &Rc<Self>, id: CacheId, number: u64, proof: String) {
        self.input(id, number, Input::Connected, |known| known.proof = proof);
    }

    /// It has brought octets.
    pub(crate) fn received(self: &Rc<Self>, id: CacheId, number: u64, octets: &[u8]) {
        self.input(id, number, Input::Received(octets), |_| {});
    }

    /// It has ended, or did not come about.
    pub(crate) fn closed(self: &Rc<Self>, id: CacheId, number: u64, reason: String) {
        self.input(id, number, Input::Closed, |known| {
            // Its task ends by itself.
            known.connection.take().iter_mut().for_each(|connection| drop(connection.task.take()));
            known.error = reason;
        });
    }

    /// The same, of its connection of this number.
    fn input(self: &Rc<Self>, id: CacheId, number: u64, input: Input<'_>, note: impl FnOnce(&mut Known)) {
        let mut state = self.state.borrow_mut();
        let known = state.known.get_mut(&id);
        let is_its = |known: &&mut Known| known.connection.as_ref().is_some_and(|it| it.number == number);
        let Some(known) = known.filter(is_its) else { return };
        note(known);
        drop(state);
        self.handle(id, input);
    }

    /// Something has happened to the session with a cache.
    pub(crate) fn handle(self: &Rc<Self>, id: CacheId, input: Input<'_>) {
        let now = Instant::now();
        self.state.borrow_mut().caches.handle(id, input, now);
        self.follow(now);
    }

    /// Does what the sessions want done, and publishes what has changed.
    pub(crate) fn follow(self: &Rc<Self>, now: Instant) {
        let mut state = self.state.borrow_mut();
        let mut expired = None;
        while let Some((id, output)) = state.caches.poll_output() {
            match output {
                Output::Connect => self.connect(&mut state, id),
                Output::Send(octets) => {
                    let connection = state.known.get(&id).and_then(|known| known.connection.as_ref());
                    connection.iter().for_each(|connection| connection.outbox.send(&octets));
                }
                Output::Close => state.close(id),
                Output::Event(event) => {
                    expired = expired.or(matches!(event, Event::Expired).then_some(now));
                    state.note(id, event);
                }
            }
        }
        let was_ready = state.is_ready();
        state.look(now);
        let expires = state.caches.expires();
        while let Some(delta) = state.caches.poll_delta() {
            let State { counts, log, .. } = &mut *state;
            count(counts, delta.announced.counts(), delta.withdrawn.counts());
            // Who watches begins with all.
            if was_ready {
                log.push(delta, expires, expired);
            }
        }
        let is_first = !was_ready && state.is_ready();
        if is_first || was_ready && state.log.expires() != expires {
            // As before, but until another time: a cache has confirmed it, or is configured otherwise.
            state.log.push(holdfast_rtr::Delta::default(), expires, expired);
        }
        self.epoch.send_if_modified(|epoch| std::mem::replace(epoch, state.log.epoch()) != state.log.epoch());
        self.wake.notify_one();
    }

    fn connect(self: &Rc<Self>, state: &mut State, id: CacheId) {
        let number = state.number();
        let Some(known) = state.known.get_mut(&id) else { return };
        let outbox = Rc::new(Outbox::default());
        let peer = known.configuration.peer.clone();
        let task = connection::live(Rc::clone(self), (id, number), peer, Rc::clone(&outbox));
        let task = Some(spawn_task(task).abort_handle());
        known.proof.clear();
        known.connection = Some(Connection { number, outbox, task });
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A cache from now on, or another configuration of one that stays.
    fn have(&mut self, configuration: CacheConfiguration, config: ClientConfig, now: Instant) {
        let known = self.known.iter_mut().find(|(_, known)| is_same(&known.configuration, &configuration));
        let preference = configuration.preference;
        match known {
            Some((_, known)) if known.configuration == configuration => {}
            Some((id, known)) => {
                known.configuration = configuration;
                self.caches.insert(*id, preference, config, now);
            }
            None => {
                let id = CacheId(self.number() as u32);
                let (connection, proof, error, losses, said) = Default::default();
                self.known.insert(id, Known { configuration, connection, proof, error, losses, said });
                self.caches.insert(id, preference, config, now);
            }
        }
    }

    /// What is still to be written is written; what it brings is nobody's any more.
    fn close(&mut self, id: CacheId) {
        let connection = self.known.get_mut(&id).and_then(|known| known.connection.take());
        if let Some(mut connection) = connection {
            connection.task.take();
            connection.outbox.close();
        }
    }

    fn note(&mut self, id: CacheId, event: Event) {
        let Some(known) = self.known.get_mut(&id) else { return };
        let cache = &known.configuration.name;
        match &event {
            Event::Updated { .. } => match std::mem::replace(&mut known.said, Said::Synced) {
                Said::Synced => debug!(event = "cache-synced", cache, "{event}"),
                Said::Nothing | Said::Lost => info!(event = "cache-synced", cache, "{event}"),
            },
            Event::NoData => info!(event = "cache-empty", cache, "{event}"),
            Event::Expired => {
                warn!(
                    event = "cache-expired",
                    cache, "its data are not used any more: nothing was heard for too long"
                );
            }
            Event::Lost(fault) => {
                // Of a connection that ended its task knows more.
                if *fault != Fault::Closed {
                    known.error = fault.to_string();
                }
                known.losses += 1;
                if std::mem::replace(&mut known.said, Said::Lost) != Said::Lost {
                    let error = &known.error;
                    warn!(
                        event = "cache-lost",
                        cache, "no session with the cache: {error}; its data hold until they expire"
                    );
                }
            }
        }
    }

    fn look(&mut self, now: Instant) {
        let asserts = self.asserts();
        let Self { readiness, caches, .. } = self;
        readiness.iter_mut().for_each(|readiness| readiness.look(caches, asserts, now));
    }

    /// Whether there is something to publish that no cache says.
    fn asserts(&self) -> bool {
        self.exceptions.assertions().counts() != Counts::default()
    }

    fn is_ready(&self) -> bool {
        self.readiness.is_some_and(Readiness::is_ready)
    }

    /// When something is to be done that nothing but time brings about.
    fn deadline(&self) -> Option<Instant> {
        let readiness = self.readiness.and_then(|readiness| readiness.deadline(&self.caches, self.asserts()));
        self.caches.poll_timeout().into_iter().chain(readiness).min()
    }
}

/// Whether it is the same cache, however it is used.
fn is_same(cache: &CacheConfiguration, other: &CacheConfiguration) -> bool {
    (&cache.name, &cache.endpoint) == (&other.name, &other.endpoint)
}

fn client_config(told: &CacheConfiguration) -> Result<ClientConfig, String> {
    let seconds = |seconds: u32| (seconds != 0).then(|| Duration::from_secs(seconds.into()));
    let version = u8::try_from(told.version).ok().and_then(Version::from_octet);
    Ok(ClientConfig {
        version: version
            .ok_or_else(|| format!("cache `{}`: there is no version {}", told.name, told.version))?,
        refresh: seconds(told.refresh_seconds),
        retry: seconds(told.retry_seconds),
        expire: seconds(told.expire_seconds),
        ..ClientConfig::default()
    })
}

fn count(counts: &mut Counts, announced: Counts, withdrawn: Counts) {
    let changed =
        |count: &mut usize, more: usize, fewer: usize| *count = (*count + more).saturating_sub(fewer);
    changed(&mut counts.ipv4, announced.ipv4, withdrawn.ipv4);
    changed(&mut counts.ipv6, announced.ipv6, withdrawn.ipv6);
    changed(&mut counts.router_keys, announced.router_keys, withdrawn.router_keys);
}

/// Hands in that time has passed, for ever.
pub(crate) async fn keep_time(rpki: Rc<Rpki>) {
    loop {
        let deadline = rpki.state.borrow().deadline();
        let due = async {
            match deadline {
                Some(deadline) => sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {
                let now = Instant::now();
                rpki.state.borrow_mut().caches.handle_timeout(now);
                rpki.follow(now);
            }
            () = rpki.wake.notified() => {}
        }
    }
}
