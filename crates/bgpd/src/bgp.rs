//! A speaker with the bells that wake its tasks: whoever does something with it does here what follows from that.

use std::{
    cell::RefCell,
    os::fd::AsFd,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::PeerIndex;
use holdfast_process::{metrics::turn, spawn_task};
use tokio::{
    sync::{Notify, Semaphore},
    task::AbortHandle,
};
use tracing::{Instrument, warn};

use crate::{
    bfd::Channels, config::Range, connection::Key, context::Context, depths::Depths, nonstop::Unprotected,
    redistribution::Redistribution, sessions::Effect, speaker::Speaker,
};

/// Connections asked for at a time: nearly as many calls as may be under way to the door, the rest is for others.
pub(crate) const MOST_DIALS: usize = 896;
/// Connections that are told at a time why they are not taken; others are closed without a word.
pub(crate) const MOST_REFUSALS: usize = 64;
/// How long the keeper holds the socket of a session without a hold time for the next process.
const NO_HOLD_TIME: Duration = Duration::from_secs(180);
/// Messages of one peer are taken in for so long, and then others are written to: the turn is another's after that. A
/// single message, or a window of what is sent, may take longer.
pub(crate) const TURN: Duration = Duration::from_millis(1);
/// Pause when reading or all background work waits for receivers.
pub(crate) const PACE: Duration = Duration::from_millis(1);

/// Starts a task that asks for a connection to a peer, by its configured name.
type Dial = fn(Rc<Bgp>, Key, String) -> AbortHandle;

/// A speaker with the bells that wake its tasks.
pub(crate) struct Bgp {
    pub(crate) speaker: RefCell<Speaker>,
    pub(crate) surroundings: Context,
    /// Starts the task that asks for a connection.
    dial: Dial,
    /// Tasks that end with the speaker.
    tasks: RefCell<Vec<AbortHandle>>,
    pub(crate) ranges: RefCell<Vec<Range>>,
    pub(crate) depths: Depths,
    /// To the process `bfd`.
    pub(crate) bfd: Channels,
    /// Turns of those who dial.
    pub(crate) dials: Semaphore,
    /// Places for connections that are told why they are not taken.
    pub(crate) refusals: Arc<Semaphore>,
    /// Deadlines have changed.
    pub(crate) timer: Notify,
    /// There is background work.
    pub(crate) work: Notify,
    /// There are more peers to write to than one turn is for.
    pub(crate) ready: Notify,
    /// There are signed paths to be verified.
    pub(crate) signatures: Notify,
    /// There are paths to be signed, or it is not known with which keys.
    pub(crate) signing: Notify,
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
    /// Histories have ended whose blocks are to be freed, or the pages of free blocks are to be given back.
    pub(crate) collect: Notify,
    /// What a session of the process before has received is in the tables again.
    pub(crate) replayed: Notify,
    /// Something was done while every next hop has its answer: the pipeline may have settled.
    pub(crate) answered: Notify,
    /// What other protocols have brought.
    pub(crate) redistribution: RefCell<Redistribution>,
    /// A telling of that is complete.
    pub(crate) redistributed: Notify,
}

impl Bgp {
    pub(crate) fn new(speaker: Speaker, surroundings: Context, dial: Dial) -> Rc<Self> {
        Rc::new(Self {
            speaker: RefCell::new(speaker),
            surroundings,
            dial,
            tasks: RefCell::default(),
            ranges: RefCell::default(),
            depths: Depths::default(),
            bfd: Channels::default(),
            dials: Semaphore::new(MOST_DIALS),
            refusals: Arc::new(Semaphore::new(MOST_REFUSALS)),
            timer: Notify::new(),
            work: Notify::new(),
            ready: Notify::new(),
            signatures: Notify::new(),
            signing: Notify::new(),
            rib: Notify::new(),
            next_hops: Notify::new(),
            closed: Notify::new(),
            freeze: Notify::new(),
            collect: Notify::new(),
            freed: Notify::new(),
            replayed: Notify::new(),
            answered: Notify::new(),
            redistribution: RefCell::new(Redistribution::new()),
            redistributed: Notify::new(),
        })
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
    pub(crate) fn with_peer<T>(
        self: &Rc<Self>,
        peer: PeerIndex,
        cause: &'static str,
        act: impl FnOnce(&mut Speaker, Instant) -> T,
    ) -> T {
        self.work.notify_one();
        let (result, took) = turn(cause, || self.act(act));
        let mut speaker = self.speaker.borrow_mut();
        if let Some(slot) = speaker.sessions.slot_mut(peer) {
            slot.cost.turn(cause, took);
        }
        let is_too_much =
            self.surroundings.turns.are_waited_for() && speaker.was_waited_for(peer, took, Instant::now());
        drop(speaker);
        if is_too_much {
            self.with(|speaker, now| speaker.stop_for_cost(peer, now));
        }
        result
    }

    /// [`Self::with`], for background work itself.
    pub(crate) fn settle<T>(
        self: &Rc<Self>,
        cause: &'static str,
        act: impl FnOnce(&mut Speaker, Instant) -> T,
    ) -> T {
        turn(cause, || self.act(act)).0
    }

    fn act<T>(self: &Rc<Self>, act: impl FnOnce(&mut Speaker, Instant) -> T) -> T {
        let now = Instant::now();
        let _named = self.surroundings.span.enter();
        let mut speaker = self.speaker.borrow_mut();
        let deadline = speaker.sessions.next_deadline();
        speaker.pipeline.set_now(now);
        let signing = speaker.pipeline.signing_timeout();
        speaker.watch_changes();
        let result = act(&mut speaker, now);
        speaker.drain_pipeline(now);
        speaker.note_changes();
        self.depths.see(&speaker);
        speaker.write_urgent(now);
        let writing = Instant::now();
        if speaker.write_ready(now, &|| writing.elapsed() >= TURN) {
            self.ready.notify_one();
        }
        speaker.drain_pipeline(now);
        while let Some(effect) = speaker.sessions.poll_effect() {
            match effect {
                Effect::Dial(key, peer) => {
                    speaker.sessions.dialing(key, (self.dial)(Rc::clone(self), key, peer));
                }
                Effect::Keep(key) => self.keep(&speaker, key),
                Effect::Follow(index) => {
                    let slot = speaker.sessions.slot_mut(index);
                    slot.and_then(|slot| slot.bfd.as_mut())
                        .into_iter()
                        .for_each(|it| self.follow_bfd(index, it));
                }
            }
        }
        if let Some(log) = &speaker.protection.log {
            while let Some(id) = log.poll_left() {
                // Otherwise the keeper's copy would hold the connection open.
                self.surroundings.custody.drop(id);
            }
            if log.pacing.borrow().is_due() {
                self.freeze.notify_one();
            }
            if log.wants_collecting() || log.log.borrow().is_warm() {
                self.collect.notify_one();
            }
        }
        if speaker.sessions.next_deadline() != deadline {
            self.timer.notify_one();
        }
        if speaker.pipeline.signing_timeout() != signing {
            self.work.notify_one();
        }
        if !speaker.pipeline.awaits_next_hops() {
            // A takeover waits for it, and so does what tells `rib`.
            self.answered.notify_waiters();
            self.answered.notify_one();
        }
        if speaker.pipeline.has_signatures_to_verify(now) {
            self.signatures.notify_one();
        }
        if speaker.pipeline.has_to_sign() {
            self.signing.notify_one();
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
        let Some(connection) = speaker.sessions.connection(key) else { return };
        let Some(held) = &connection.held else { return };
        let hold = speaker
            .sessions
            .slot(key.0)
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
                if !speaker.sessions.holds(key, id) {
                    // It ended before it was put.
                    return custody.drop(id);
                }
                let Some(connection) = speaker.sessions.connection_mut(key) else { return };
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
}
