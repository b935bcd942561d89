//! The tasks that feed a speaker: sockets, timers, background work. Those of all speakers are on one thread.
//!
//! ```text
//!  accept (1, crate::door) ─┐
//!  dial   (1 per attempt)  ─┤            ┌─> write (1 per connection)
//!  read   (1 per connection)┼─> Speaker ─┤
//!  timer  (1)              ─┤            └─> rib (1, crate::rib)
//!  work   (1)              ─┤
//!  ready  (1)              ─┤
//!  redistribute (1)        ─┘
//! ```

use std::{
    cell::{Cell, RefCell},
    hash::{BuildHasher, RandomState},
    io,
    os::fd::AsFd,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::PeerIndex;
use holdfast_nsr::Relief;
use holdfast_process::{metrics::turn, spawn_task};
use tokio::{
    sync::{Mutex, MutexGuard, Notify, Semaphore},
    task::AbortHandle,
    time::{sleep_until, timeout},
};
use tracing::{Instrument, warn};

use crate::{
    config::Range,
    connection::Key,
    door::{MOST_DIALS, MOST_REFUSALS, dial, part},
    metrics::Depths,
    nonstop::Unprotected,
    redistribute::Redistribution,
    speaker::{Effect, Read, Speaker, Write},
    stream::Stream,
    vrf::Surroundings,
};

/// How long a connection that says goodbye may take to take it.
pub(crate) const LINGER: Duration = Duration::from_secs(2);
/// Routes that a slice of background work looks at: 0.05 ms with the encoding that it causes, 0.2 ms in one of a
/// thousand slices. Up to 1,024 cost as much for each route, but delay others longer.
const SLICE: usize = 256;
/// Pause when reading or all background work waits for receivers.
pub(crate) const PACE: Duration = Duration::from_millis(1);
/// Longest wait of one read for receivers.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);
/// How long a read waits for the rib's word on new next hops; it is there in less than a millisecond.
const ANSWER: Duration = Duration::from_millis(5);
/// How long the keeper holds the socket of a session without a hold time for the next process.
const NO_HOLD_TIME: Duration = Duration::from_secs(180);
/// How long a read waits for room in the log before its session goes on without protection, whoever fills the log.
const ROOM: Duration = Duration::from_secs(10);
/// Messages of one peer are taken in for so long, then the turn is another's; a single message may take longer.
const TURN: Duration = Duration::from_millis(1);
/// A read that took longer lets everything else have its turn before the next one, whoever reads.
const LONG: Duration = Duration::from_micros(200);

/// Turns that all speakers of the process take: what one of them does at a time delays others no longer, however many
/// there are.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Held by the connection that reads.
    reading: Mutex<()>,
    /// How many wait for that whose wait counts.
    queue: Cell<usize>,
    /// Held by who writes to more peers than one turn is for.
    writing: Mutex<()>,
    /// Held by who does a slice of background work.
    working: Mutex<()>,
}

impl Turns {
    /// The right to read, in the order of asking. `counts`: whoever has others wait for it may be ended for this one.
    async fn to_read(&self, counts: bool) -> MutexGuard<'_, ()> {
        let _queued = counts.then(|| Queued::new(&self.queue));
        self.reading.lock().await
    }
}

/// Somebody who waits, also if the wait is given up.
struct Queued<'a>(&'a Cell<usize>);

impl<'a> Queued<'a> {
    fn new(queue: &'a Cell<usize>) -> Self {
        queue.set(queue.get() + 1);
        Self(queue)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// A speaker with the bells that wake its tasks.
pub(crate) struct Bgp {
    pub(crate) speaker: RefCell<Speaker>,
    pub(crate) surroundings: Surroundings,
    /// Tasks that end with the speaker.
    tasks: RefCell<Vec<AbortHandle>>,
    pub(crate) ranges: RefCell<Vec<Range>>,
    pub(crate) depths: Depths,
    /// Turns of those who dial.
    pub(crate) dials: Semaphore,
    /// Places for connections that are told why they are not taken.
    pub(crate) refusals: Arc<Semaphore>,
    /// Deadlines have changed.
    timer: Notify,
    /// There is background work.
    work: Notify,
    /// There are more peers to write to than one turn is for.
    ready: Notify,
    /// There are changes or next hops for the rib.
    pub(crate) rib: Notify,
    /// The pipeline's interest in next hops has changed.
    pub(crate) next_hops: Notify,
    /// A connection has ended.
    pub(crate) closed: Notify,
    /// The log is to be made shorter.
    pub(crate) freeze: Notify,
    /// It was tried.
    pub(crate) freed: Notify,
    /// Histories have ended whose blocks are to be freed.
    pub(crate) collect: Notify,
    /// What a session of the process before has received is in the tables again.
    pub(crate) replayed: Notify,
    /// What other protocols have brought.
    pub(crate) redistribution: RefCell<Redistribution>,
    /// A telling of that is complete.
    pub(crate) redistributed: Notify,
}

impl Bgp {
    pub(crate) fn new(speaker: Speaker, surroundings: Surroundings) -> Rc<Self> {
        let bgp = Rc::new(Self {
            speaker: RefCell::new(speaker),
            surroundings,
            tasks: RefCell::default(),
            ranges: RefCell::default(),
            depths: Depths::default(),
            dials: Semaphore::new(MOST_DIALS),
            refusals: Arc::new(Semaphore::new(MOST_REFUSALS)),
            timer: Notify::new(),
            work: Notify::new(),
            ready: Notify::new(),
            rib: Notify::new(),
            next_hops: Notify::new(),
            closed: Notify::new(),
            freeze: Notify::new(),
            collect: Notify::new(),
            freed: Notify::new(),
            replayed: Notify::new(),
            redistribution: RefCell::new(Redistribution::new()),
            redistributed: Notify::new(),
        });
        bgp.spawn_for_life(timer(Rc::clone(&bgp)));
        bgp.spawn_for_life(work(Rc::clone(&bgp)));
        bgp.spawn_for_life(ready(Rc::clone(&bgp)));
        bgp
    }

    /// Starts a task whose lines in the log name the VRF.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> AbortHandle {
        spawn_task(task.instrument(self.surroundings.span.clone())).abort_handle()
    }

    /// The same for one that [`end`](Self::end) ends.
    pub(crate) fn spawn_for_life(&self, task: impl Future<Output = ()> + 'static) {
        self.tasks.borrow_mut().push(self.spawn(task));
    }

    /// Ends the tasks that feed the speaker, which may then be forgotten.
    pub(crate) fn end(&self) {
        self.tasks.take().iter().for_each(AbortHandle::abort);
    }

    /// Peers that the door is asked to connect to.
    pub(crate) fn dialled(&self) -> usize {
        MOST_DIALS - self.dials.available_permits()
    }

    /// Does something with the speaker, then whatever follows from it.
    pub(crate) fn with<T>(self: &Rc<Self>, act: impl FnOnce(&mut Speaker, Instant) -> T) -> T {
        self.work.notify_one();
        self.settle("call", act)
    }

    /// The same for what a peer causes, which is counted as its cost.
    fn with_peer<T>(
        self: &Rc<Self>,
        peer: PeerIndex,
        cause: &'static str,
        act: impl FnOnce(&mut Speaker, Instant) -> T,
    ) -> T {
        self.work.notify_one();
        let (result, took) = turn(cause, || self.act(act));
        let mut speaker = self.speaker.borrow_mut();
        if let Some(slot) = speaker.slots.get_mut(&peer) {
            slot.cost.turn(cause, took);
        }
        let is_too_much =
            self.surroundings.turns.queue.get() > 0 && speaker.was_waited_for(peer, took, Instant::now());
        drop(speaker);
        if is_too_much {
            self.with(|speaker, now| speaker.stop_for_cost(peer, now));
        }
        result
    }

    /// [`Self::with`], for background work itself.
    fn settle<T>(self: &Rc<Self>, cause: &'static str, act: impl FnOnce(&mut Speaker, Instant) -> T) -> T {
        turn(cause, || self.act(act)).0
    }

    fn act<T>(self: &Rc<Self>, act: impl FnOnce(&mut Speaker, Instant) -> T) -> T {
        let now = Instant::now();
        let _named = self.surroundings.span.enter();
        let mut speaker = self.speaker.borrow_mut();
        let deadline = speaker.next_deadline();
        speaker.pipeline.set_now(now);
        speaker.watch_changes();
        let result = act(&mut speaker, now);
        speaker.drain_pipeline(now);
        speaker.note_changes();
        self.depths.see(&speaker);
        if speaker.write_ready(now) {
            self.ready.notify_one();
        }
        speaker.drain_pipeline(now);
        while let Some(effect) = speaker.poll_effect() {
            match effect {
                Effect::Dial(key, peer) => {
                    let task = spawn_task(dial(Rc::clone(self), key, peer));
                    speaker.dialing(key, task.abort_handle());
                }
                Effect::Keep(key) => self.keep(&speaker, key),
            }
        }
        if let Some(log) = &speaker.nonstop {
            while let Some(id) = log.poll_left() {
                // Otherwise the keeper's copy would hold the connection open.
                self.surroundings.custody.drop(id);
            }
            if log.pacing.borrow().is_due() {
                self.freeze.notify_one();
            }
            if log.wants_collecting() {
                self.collect.notify_one();
            }
        }
        if speaker.next_deadline() != deadline {
            self.timer.notify_one();
        }
        if speaker.pipeline.rib_pending() {
            self.rib.notify_one();
        }
        if speaker.has_next_hop_events() {
            self.next_hops.notify_one();
        }
        result
    }

    /// Puts the socket of a session that is in the log into custody: for the next process, as long as the peer waits.
    fn keep(self: &Rc<Self>, speaker: &Speaker, key: Key) {
        let Some(connection) = speaker.connection(key) else { return };
        let Some(held) = &connection.held else { return };
        let hold = speaker
            .slots
            .get(&key.0)
            .and_then(|slot| slot.session.negotiated())
            .map(|agreed| agreed.hold_time);
        let hold = hold.filter(|hold| !hold.is_zero()).unwrap_or(NO_HOLD_TIME);
        let (id, bgp) = (held.id, Rc::clone(self));
        let copy = connection.stream.as_fd().try_clone_to_owned();
        spawn_task(async move {
            let custody = &bgp.surroundings.custody;
            let kept = match copy {
                Ok(copy) => custody.put(id, copy, hold).await.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            bgp.with(|speaker, _| {
                if !speaker.holds(key, id) {
                    // It ended before it was put.
                    return custody.drop(id);
                }
                let Some(connection) = speaker.connection_mut(key) else { return };
                connection.held.iter_mut().for_each(|held| held.kept = kept.is_ok());
                if let Err(error) = kept {
                    warn!(
                        event = "protection-lost",
                        "a session's descriptor cannot be given to the keeper: {error}"
                    );
                    connection.unprotect(Unprotected::NoCustody);
                }
            });
        });
    }

    /// Starts the tasks of a connection that the speaker has taken.
    pub(crate) fn serve(self: &Rc<Self>, key: Key) {
        self.serve_reader(key);
        self.serve_writer(key);
    }

    /// Starts the task that reads.
    pub(crate) fn serve_reader(self: &Rc<Self>, key: Key) {
        let mut speaker = self.speaker.borrow_mut();
        let Some(connection) = speaker.connection_mut(key) else { return };
        let reader = spawn_task(read(Rc::clone(self), key, Rc::clone(&connection.stream)));
        connection.own(reader.abort_handle());
    }

    /// Starts the task that writes.
    pub(crate) fn serve_writer(self: &Rc<Self>, key: Key) {
        let speaker = self.speaker.borrow();
        let Some(connection) = speaker.connection(key) else { return };
        let (stream, wake) = (Rc::clone(&connection.stream), Rc::clone(&connection.wake));
        connection.wake.notify_one();
        // The writer ends by itself: it is what drops a connection that says goodbye.
        spawn_task(write(Rc::clone(self), key, stream, wake));
    }
}

/// A number that nobody outside can guess.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(())
}

async fn timer(bgp: Rc<Bgp>) {
    loop {
        let next = bgp.speaker.borrow().next_deadline();
        tokio::select! {
            () = until(next) => {
                bgp.work.notify_one();
                bgp.settle("timers", Speaker::expire);
            }
            () = bgp.timer.notified() => {}
        }
    }
}

/// Writes on where there were many peers to write to: between two turns everything else has its own.
async fn ready(bgp: Rc<Bgp>) {
    loop {
        bgp.ready.notified().await;
        let _turn = bgp.surroundings.turns.writing.lock().await;
        tokio::task::yield_now().await;
        bgp.settle("writing to many", |_, _| {});
    }
}

/// Background work in slices: between two slices everything else has its turn.
async fn work(bgp: Rc<Bgp>) {
    loop {
        let turn = bgp.surroundings.turns.working.lock().await;
        let (more, waiting, next) = bgp.settle("background work", |speaker, _| {
            // What a slice leads to is in the sockets already: only they say whether it is time for the next.
            if !speaker.pipeline.is_settled() {
                speaker.pace();
            }
            let more = speaker.pipeline.work(SLICE);
            (more, speaker.pipeline.is_waiting(), speaker.pipeline.poll_timeout())
        });
        if more {
            tokio::task::yield_now().await;
            continue;
        }
        drop(turn);
        match waiting {
            true => tokio::time::sleep(PACE).await,
            false => tokio::select! {
                () = bgp.work.notified() => {}
                () = until(next) => {}
            },
        }
    }
}

/// Sleeps until then; for ever without a time.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

async fn read(bgp: Rc<Bgp>, key: Key, stream: Rc<Stream>) {
    let (mut read, mut full) = (Read::Wait, None);
    while read == Read::More || stream.readable().await.is_ok() {
        let turn = reading(&bgp, key.0, read == Read::More).await;
        let start = Instant::now();
        read = bgp
            .with_peer(key.0, "reading", |speaker, now| speaker.receive(key, now, &|| now.elapsed() >= TURN));
        if read == Read::More || start.elapsed() > LONG {
            // Ten peers that send their tables must not make the operator wait for ten reads.
            tokio::task::yield_now().await;
        }
        drop(turn);
        match read {
            Read::Gone => break,
            Read::Full => make_room(&bgp, key, &mut full).await,
            Read::More | Read::Wait => full = None,
        }
    }
    bgp.wake_closed(key);
}

/// The log is full: what a peer sends waits in its socket until snapshots have made room. Where they would make none, the
/// session that fills the log goes on without protection; this one, where that takes too long.
async fn make_room(bgp: &Rc<Bgp>, key: Key, since: &mut Option<Instant>) {
    let freed = bgp.freed.notified();
    let relief = match since.get_or_insert_with(Instant::now).elapsed() < ROOM {
        true => bgp.with(|speaker, _| speaker.relieve()),
        false => Relief::GiveUp(None),
    };
    match relief {
        Relief::Wait => _ = timeout(PATIENCE, freed).await,
        Relief::Walk => {
            bgp.freeze.notify_one();
            let _ = timeout(ROOM, freed).await;
        }
        Relief::GiveUp(session) => bgp.with(|speaker, _| {
            let full = session.and_then(|id| speaker.key_of(id)).unwrap_or(key);
            speaker.give_up_protection(full);
        }),
    }
}

/// The right to read. Comes when those who are told of changes have come near, and to who has `more` than one read takes
/// also when new next hops are resolved: what a peer sends faster than that waits in its socket, where it costs nothing. A rib that hangs slows the reading down, but sessions live.
async fn reading(bgp: &Bgp, peer: PeerIndex, more: bool) -> MutexGuard<'_, ()> {
    let start = Instant::now();
    // Nobody is ended for those who cannot be.
    let counts = !bgp.speaker.borrow().exchanges_tables(peer, start);
    loop {
        let turn = bgp.surroundings.turns.to_read(counts).await;
        let waited = start.elapsed();
        let asking = more && waited < ANSWER && bgp.speaker.borrow().pipeline.awaits_next_hops();
        if !asking && (waited >= PATIENCE || !bgp.speaker.borrow().is_pressed()) {
            return turn;
        }
        drop(turn);
        tokio::time::sleep(PACE).await;
    }
}

impl Bgp {
    /// The writer notices that its connection is gone, or that it is to say goodbye.
    fn wake_closed(&self, key: Key) {
        if let Some(connection) = self.speaker.borrow().connection(key) {
            connection.wake.notify_one();
        }
        self.closed.notify_one();
    }
}

async fn write(bgp: Rc<Bgp>, key: Key, stream: Rc<Stream>, wake: Rc<Notify>) {
    loop {
        // Whatever it was woken for: others have their turn between two attempts.
        tokio::task::yield_now().await;
        match bgp.with_peer(key.0, "writing", |speaker, now| speaker.transmit(key, now)) {
            Write::Idle => wake.notified().await,
            Write::Yield => {}
            Write::Blocked => {
                let closing =
                    bgp.speaker.borrow().connection(key).is_none_or(|connection| connection.closing);
                if closing {
                    let _ = timeout(LINGER, stream.writable()).await;
                    if timeout(LINGER, flush(&bgp, key, &stream)).await.is_err() {
                        break;
                    }
                } else {
                    // Also woken when the session ends meanwhile.
                    tokio::select! { _ = stream.writable() => {} () = wake.notified() => {} }
                }
            }
            Write::Finish => {
                let carried = bgp.speaker.borrow().connection(key).map(|it| (it.said.number, it.verdict));
                let (number, code) = carried.unwrap_or_default();
                let _ = timeout(LINGER, part(&bgp, &stream, number, code)).await;
                break;
            }
            Write::Gone => break,
        }
    }
    bgp.with(|speaker, _| speaker.drop_connection(key));
    bgp.closed.notify_one();
}

/// Sends what is queued on a connection that is being closed.
async fn flush(bgp: &Rc<Bgp>, key: Key, stream: &Stream) {
    while bgp.with(|speaker, now| speaker.transmit(key, now)) == Write::Blocked {
        if stream.writable().await.is_err() {
            break;
        }
    }
}

/// Closes our direction and waits for the peer's: closing with unread bytes would reset the connection, and the
/// reset may overtake our NOTIFICATION.
pub(crate) async fn goodbye(stream: &Stream) {
    if rustix::net::shutdown(stream, rustix::net::Shutdown::Write).is_err() {
        return;
    }
    let mut ignored = [0; 4096];
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut ignored) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
