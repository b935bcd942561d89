//! The tasks that feed a speaker: sockets, timers, background work. Those of all speakers are on one thread.
//!
//! ```text
//!  accept (1, crate::door) ─┐
//!  dial   (1 per attempt)  ─┤            ┌─> write (1 per connection)
//!  read   (1 per connection)┼─> Speaker ─┤
//!  timer  (1)              ─┤            └─> rib (1, crate::rib)
//!  work   (1)              ─┤
//!  ready  (1)              ─┤
//!  redistribute (1)        ─┤
//!  verify (1, crate::signatures) ─┤
//!  sign   (1, crate::signing)   ─┤
//!  sleep  (1, crate::sleep)     ─┘
//! ```

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::PeerIndex;
use holdfast_nsr::Relief;
use holdfast_process::{heap::note_freed, spawn_task};
use tokio::{
    sync::{MutexGuard, Notify},
    time::{sleep_until, timeout},
};

use crate::{
    bgp::{Bgp, PACE, TURN},
    connection::Key,
    context::Context,
    door::{dial, part},
    fairness::PATIENCE,
    protection::ROOM,
    signatures::verify,
    signing::sign,
    sleep,
    speaker::{Read, Speaker, Write},
    stream::{LINGER, Stream},
};

/// Routes that a slice of background work looks at: 0.05 ms with the encoding that it causes, 0.2 ms in one of a
/// thousand slices. Up to 1,024 cost as much for each route, but delay others longer.
const SLICE: usize = 256;
/// How long a read waits for the rib's word on new next hops; it is there in less than a millisecond.
const ANSWER: Duration = Duration::from_millis(5);
/// A read that took longer lets everything else have its turn before the next one, whoever reads.
const LONG: Duration = Duration::from_micros(200);

impl Bgp {
    /// Starts the tasks of a connection that the speaker has taken.
    pub(crate) fn serve(self: &Rc<Self>, key: Key) {
        self.serve_reader(key);
        self.serve_writer(key);
    }

    /// Starts the task that reads.
    pub(crate) fn serve_reader(self: &Rc<Self>, key: Key) {
        let mut speaker = self.speaker.borrow_mut();
        let Some(connection) = speaker.sessions.connection_mut(key) else { return };
        let reader = spawn_task(read(Rc::clone(self), key, Rc::clone(&connection.stream)));
        connection.own(reader.abort_handle());
    }

    /// Starts the task that writes.
    pub(crate) fn serve_writer(self: &Rc<Self>, key: Key) {
        let speaker = self.speaker.borrow();
        let Some(connection) = speaker.sessions.connection(key) else { return };
        let (stream, wake) = (Rc::clone(&connection.stream), Rc::clone(&connection.wake));
        connection.wake.notify_one();
        // The writer ends by itself: it is what drops a connection that says goodbye.
        spawn_task(write(Rc::clone(self), key, stream, wake));
    }
}

/// Starts the tasks of a speaker that it has all its life.
pub(crate) fn start(speaker: Speaker, surroundings: Context) -> Rc<Bgp> {
    let bgp = Bgp::new(speaker, surroundings, dial);
    bgp.spawn_for_life(timer(Rc::clone(&bgp)));
    bgp.spawn_for_life(work(Rc::clone(&bgp)));
    bgp.spawn_for_life(ready(Rc::clone(&bgp)));
    bgp.spawn_for_life(verify(Rc::clone(&bgp)));
    bgp.spawn_for_life(sign(Rc::clone(&bgp)));
    bgp.spawn_for_life(sleep::follow(Rc::clone(&bgp)));
    bgp
}

async fn timer(bgp: Rc<Bgp>) {
    loop {
        let next = bgp.speaker.borrow().sessions.next_deadline();
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
            let held = speaker.pipeline.attribute_memory();
            let more = speaker.pipeline.work(SLICE);
            note_freed(held.saturating_sub(speaker.pipeline.attribute_memory()));
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
    let waited = since.get_or_insert_with(Instant::now).elapsed();
    let relief = bgp
        .with(|speaker, _| speaker.protection.relieve((&speaker.sessions, &speaker.pipeline), key.0, waited));
    match relief {
        Relief::Wait => _ = timeout(PATIENCE, freed).await,
        Relief::Walk => {
            bgp.freeze.notify_one();
            let _ = timeout(ROOM, freed).await;
        }
        Relief::GiveUp(session) => bgp.with(|speaker, _| {
            let full = session.and_then(|id| speaker.sessions.key_of(id)).unwrap_or(key);
            speaker.give_up_protection(full);
        }),
    }
}

/// The right to read. Comes to who sends much when those who are told of changes have come near, and to who has `more` than one
/// read takes also when new next hops are resolved: what a peer sends faster than that waits in its socket, where it costs
/// nothing. A rib that hangs slows the reading down, but sessions live.
async fn reading(bgp: &Bgp, peer: PeerIndex, more: bool) -> MutexGuard<'_, ()> {
    let start = Instant::now();
    // Nobody is ended for those who cannot be.
    let counts = !bgp.speaker.borrow().sessions.exchanges_tables(peer, start);
    loop {
        let turn = bgp.surroundings.turns.to_read(counts).await;
        let waited = start.elapsed();
        let asking = more && waited < ANSWER && bgp.speaker.borrow().pipeline.awaits_next_hops();
        if !asking && (waited >= PATIENCE || !bgp.speaker.borrow().is_to_wait(peer, Instant::now())) {
            return turn;
        }
        drop(turn);
        tokio::time::sleep(PACE).await;
    }
}

impl Bgp {
    /// The writer notices that its connection is gone, or that it is to say goodbye.
    fn wake_closed(&self, key: Key) {
        if let Some(connection) = self.speaker.borrow().sessions.connection(key) {
            connection.wake.notify_one();
        }
        self.closed.notify_one();
    }
}

async fn write(bgp: Rc<Bgp>, key: Key, stream: Rc<Stream>, wake: Rc<Notify>) {
    loop {
        // Whatever it was woken for: others have their turn between two attempts. With hundreds of writers that are woken at
        // once, sockets and timers are looked at between any two of them.
        let turn = bgp.surroundings.turns.writing.lock().await;
        tokio::task::yield_now().await;
        let written = bgp.with_peer(key.0, "writing", |speaker, now| transmit(speaker, key, now));
        drop(turn);
        match written {
            Write::Idle => wake.notified().await,
            Write::Yield => {}
            Write::Blocked => {
                let closing =
                    bgp.speaker.borrow().sessions.connection(key).is_none_or(|connection| connection.closing);
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
                let carried =
                    bgp.speaker.borrow().sessions.connection(key).map(|it| (it.said.number, it.verdict));
                let (number, code) = carried.unwrap_or_default();
                // Apart from what each connection has room for all its life: this is ten times as large.
                let _ = timeout(LINGER, Box::pin(part(&bgp, &stream, number, code))).await;
                break;
            }
            Write::Gone => break,
        }
    }
    bgp.with(|speaker, _| speaker.drop_connection(key));
    bgp.closed.notify_one();
}

/// Sends to a connection until the turn is over.
fn transmit(speaker: &mut Speaker, key: Key, now: Instant) -> Write {
    speaker.transmit(key, now, &|| now.elapsed() >= TURN)
}

/// Sends what is queued on a connection that is being closed.
async fn flush(bgp: &Rc<Bgp>, key: Key, stream: &Stream) {
    while bgp.with(|speaker, now| transmit(speaker, key, now)) == Write::Blocked {
        if stream.writable().await.is_err() {
            break;
        }
    }
}
