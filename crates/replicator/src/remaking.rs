//! What the store has of another router becomes what a dead `bgp` of this one would have left: logs and sockets at the keeper.
//!
//! ```text
//!  gate.Close ── fea.Assume ── rebuild, fea.Restore, slots ── keeper.PutOf ── gate.Open ── fea.Announce ── fea.Release
//! ```
//! Until a socket is released it says nothing, and until the gate is open nothing reaches it: a segment in between would have the
//! kernel refuse what is left to set, or end the connection. What cannot be made again is left out: that session begins
//! anew.

use std::{
    ops::Range,
    os::fd::OwnedFd,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use holdfast_api::{
    bgp::v1::HeldSession,
    gate::v1::{Empty as GateEmpty, GateClient},
    keeper::v1::{DropOfRequest, OnDeath, PutOfRequest, PutRequest},
    socket::v1::{Empty as SocketEmpty, RestoreRequest, SocketClient},
    stored::v1::Socket,
};
use holdfast_gate::{Connection, SlotState};
use holdfast_nsr::{Log, Memory, SessionId};
use holdfast_process::formats::NSR_LOGS;
use holdfast_restore::{Objects, Restored, Table, rebuild};
use holdfast_sys::{memory::SharedMemory, repair};
use holdfast_types::address;
use holdfast_xrl::{XrlError, scoped};
use prost::Message;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, error, warn};

use crate::tasks::{OWNER, RETRY, Tasks};

/// How long each of the other processes may take for its part.
const LIMIT: Duration = Duration::from_secs(3);
/// How often sockets are tried again whose connections a dead process has still, and the pause in between.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);
/// For how long sessions that are here wait for a process that hangs: it is started anew meanwhile.
const MOST_INSISTED: Duration = Duration::from_secs(20);
/// Sessions that lack something in the store, and are named one by one.
const MOST_NAMED: usize = 100;
/// Between two attempts to close the gate.
const GATE_PAUSE: Duration = Duration::from_millis(100);
/// Between two looks whether a log that was put is here.
const STEP: Duration = Duration::from_millis(1);
/// Timestamps are ahead of those that the peer has seen, in milliseconds, also where the clock of the next router is behind by
/// less, or was set back: the peer drops older ones (PAWS, RFC 7323 section 5.3).
const AHEAD: u32 = 600_000;
/// A socket whose session has agreed on no hold time is kept for so long.
const WITHOUT_HOLD_TIME: Duration = Duration::from_secs(90);
/// Sockets that are released with one call.
const MANY: usize = 32;

/// The memory of a log that is made here.
#[derive(Debug)]
pub(crate) struct Mapped(pub(crate) SharedMemory);

impl Memory for Mapped {
    fn octets(&self) -> &[u8] {
        self.0.octets()
    }

    fn octets_mut(&mut self) -> &mut [u8] {
        self.0.octets_mut()
    }

    fn release(&mut self, range: Range<usize>) {
        self.0.release(range);
    }
}

/// A session that is here again.
struct Made {
    vrf: String,
    id: SessionId,
    socket: OwnedFd,
    hold: Duration,
    connection: Connection,
    /// Initial sequence numbers that the socket would have begun with.
    numbers: (u32, u32),
    unacknowledged: u64,
}

/// A table that is.
struct MadeTable {
    vrf: String,
    log: OwnedFd,
    sessions: Vec<Made>,
    not: u32,
}

impl Tasks {
    /// Puts the sessions of another router into the place of those of a dead `bgp`. How many, and how many cannot be.
    pub(crate) async fn remake(&self, objects: Objects) -> (u32, u32) {
        let (tables, damaged) = objects.tables();
        for missing in &damaged {
            error!(event = "sessions-not-restored", "a table cannot be gone on with: {missing}");
        }
        drop(objects);
        let lost = tables.iter().flat_map(|table| table.lost.iter().map(move |lost| (table, lost)));
        for (table, (id, damaged)) in lost.take(MOST_NAMED) {
            warn!(event = "session-not-restored", vrf = table.vrf, session = id.0, "the store: {damaged}");
        }
        let lost = tables.iter().map(|table| table.lost.len()).sum::<usize>();
        if lost > MOST_NAMED {
            warn!(event = "session-not-restored", "{} more lack something in the store", lost - MOST_NAMED);
        }
        let sessions = lost + tables.iter().map(|table| table.sessions.len()).sum::<usize>();
        match self.remake_all(tables).await {
            Ok(outcome) => outcome,
            Err(error) => {
                error!(event = "sessions-not-restored", "{}", error.message());
                (0, u32::try_from(sessions).unwrap_or(u32::MAX))
            }
        }
    }

    async fn remake_all(&self, tables: Vec<Table>) -> Result<(u32, u32), XrlError> {
        self.gate_closed().await?;
        self.assume_addresses().await;
        let made = self.remake_behind(tables).await;
        // Whatever came of it, what is here now hears its peers. What was put at the keeper is of no use without.
        insist(|| self.open_gate()).await?;
        self.announce_addresses().await;
        let made = made?;
        let mut here = 0;
        for table in &made {
            for part in table.sessions.chunks(MANY) {
                here += part.len();
                insist(|| self.release(&table.vrf, part)).await?;
            }
        }
        for table in &made {
            if let Err(error) = self.wait_for_log(&table.vrf, &table.log).await {
                debug!("the log of {:?}: {}", table.vrf, error.message());
            }
        }
        let not = made.iter().map(|table| table.not).sum();
        Ok((u32::try_from(here).unwrap_or(u32::MAX), not))
    }

    /// Has packets come here whose routes are in the kernel already, while sessions are still to be made: nothing of them comes in.
    pub(crate) async fn forward(&self) {
        // There may be no session to be made: then nobody else opens the gate.
        self.has_finished.set(false);
        match self.gate_closed().await {
            Ok(()) => {
                self.assume_addresses().await;
                self.announce_addresses().await;
            }
            Err(error) => debug!("the gate: {}", error.message()),
        }
    }

    /// Until the log that was put is the one that is copied: a store that is written before would lose its sessions.
    async fn wait_for_log(&self, vrf: &str, log: &OwnedFd) -> Result<(), XrlError> {
        within("keeper", async {
            while !self.engine.borrow().copies(vrf, log) {
                self.fetch().await?;
                sleep(STEP).await;
            }
            Ok(())
        })
        .await
    }

    async fn gate_closed(&self) -> Result<(), XrlError> {
        let mut attempts = 0;
        // It does not stand everywhere while a dead router has its queue.
        while let Err(error) = self.close_gate().await {
            attempts += 1;
            if attempts == ATTEMPTS {
                return Err(error);
            }
            sleep(GATE_PAUSE).await;
        }
        self.engine.borrow_mut().gate_stands_now();
        Ok(())
    }

    async fn close_gate(&self) -> Result<(), XrlError> {
        within("gate", async {
            let gate: GateClient = self.resolver.wait_for("gate").await?;
            gate.close(GateEmpty {}).await.map(drop)
        })
        .await
    }

    async fn open_gate(&self) -> Result<(), XrlError> {
        within("gate", async {
            let gate: GateClient = self.resolver.wait_for("gate").await?;
            gate.open(GateEmpty {}).await.map(drop)
        })
        .await
    }

    /// What has to be done while no segment reaches this router.
    async fn remake_behind(&self, tables: Vec<Table>) -> Result<Vec<MadeTable>, XrlError> {
        insist(async || within("bgp", self.stand_ins_are_gone()).await).await?;
        let drop_of = || self.keeper.drop_of(DropOfRequest { owner: OWNER.into(), end: false });
        insist(async || within("keeper", drop_of()).await).await?;
        self.engine.borrow_mut().remakes();
        let configured = self.engine.borrow().configuration.tables.clone();
        // For all sessions together: those that can be made do not wait for many that cannot.
        let (mut made, mut attempts) = (Vec::new(), ATTEMPTS);
        for table in tables {
            let Some(number) = configured.iter().position(|one| one.vrf == table.vrf) else {
                warn!(event = "sessions-not-restored", vrf = table.vrf, "the table is not configured here");
                continue;
            };
            let number = if table.vrf.is_empty() { 0 } else { number as u32 + 1 };
            made.push(self.remake_table(&table, number, &mut attempts).await?);
        }
        for table in &made {
            for one in &table.sessions {
                let key = format!("session-{}", one.id.0);
                insist(|| self.put(&key, &one.vrf, &one.socket, Some(one.hold))).await?;
            }
        }
        // Without a log the sockets are nobody's: whoever dies here begins again.
        for table in &made {
            insist(|| self.put("log", &table.vrf, &table.log, None)).await?;
        }
        Ok(made)
    }

    /// A log with the sessions of a table, the descriptor of its memory, and what has become of the sessions.
    pub(crate) fn log(&self, table: &Table) -> Result<(Log<Mapped>, OwnedFd, Vec<Restored>), XrlError> {
        let vrf = &table.vrf;
        let failed =
            |error: &dyn std::fmt::Display| XrlError::internal(format!("the log of {vrf:?}: {error}"));
        if !NSR_LOGS.map(u64::from).contains(&table.formats) {
            return Err(failed(&"another build has written it, in a format that this one does not know"));
        }
        let octets = self.engine.borrow().configuration.log_octets;
        let octets = usize::try_from(octets).map_err(|error| failed(&error))?;
        let memory = SharedMemory::create("holdfast-log", octets).map_err(|error| failed(&error))?;
        let copy = memory.descriptor().try_clone_to_owned().map_err(|error| failed(&error))?;
        let mut log =
            Log::create(Mapped(memory), table.formats, table.key).map_err(|error| failed(&error))?;
        let restored = rebuild(table, &mut log).map_err(|error| failed(&error))?;
        Ok((log, copy, restored))
    }

    async fn remake_table(
        &self,
        table: &Table,
        number: u32,
        attempts: &mut u32,
    ) -> Result<MadeTable, XrlError> {
        let (mut log, copy, restored) = self.log(table)?;
        let fea: SocketClient = within("fea", self.resolver.wait_for(&class("fea", &table.vrf))).await?;
        let (mut sessions, mut not) = (Vec::new(), u32::try_from(table.lost.len()).unwrap_or(u32::MAX));
        for one in restored {
            match self.remake_session(&fea, (&table.vrf, number), &log, &one, attempts).await {
                Ok(made) => {
                    // At once: by its slot the gate knows that it is ours.
                    if self.claim(&made) {
                        sessions.push(made);
                    } else {
                        not += 1;
                        log.close(one.id);
                    }
                }
                Err(error) => {
                    not += 1;
                    let session = one.was.0;
                    warn!(event = "session-not-restored", vrf = table.vrf, session, "{}", error.message());
                    log.close(one.id);
                }
            }
        }
        Ok(MadeTable { vrf: table.vrf.clone(), log: copy, sessions, not })
    }

    async fn remake_session(
        &self,
        fea: &SocketClient,
        (vrf, number): (&str, u32),
        log: &Log<Mapped>,
        restored: &Restored,
        attempts: &mut u32,
    ) -> Result<Made, XrlError> {
        let missing = || XrlError::not_found("the store does not say how its connection is made again");
        let socket = restored.socket.as_ref().ok_or_else(missing)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let request = request(socket, restored, u64::try_from(now).unwrap_or(u64::MAX));
        let ends = (
            end(&request.local_address, request.local_port),
            end(&request.remote_address, request.remote_port),
        );
        let (Some(local), Some(remote)) = ends else { return Err(missing()) };
        let hold = hold_time(log.record(restored.id));
        let descriptor = loop {
            match within("fea", fea.restore(request.clone())).await {
                Ok((_, descriptors)) => break descriptors.into_iter().next().ok_or_else(missing)?,
                // Processes that died a moment ago may have it still, with all that they had in memory.
                Err(error) if *attempts > 0 => {
                    *attempts -= 1;
                    debug!("session {}: {}", restored.was.0, error.message());
                    self.close_gate().await?;
                    sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        };
        let again = log.unsent(restored.id).flatten().copied().collect::<Vec<_>>();
        repair::send_again(&descriptor, &again).map_err(|error| XrlError::internal(error.to_string()))?;
        // Behind the SYN is where a socket begins.
        let numbers = (request.send.wrapping_sub(1), request.receive.wrapping_sub(1));
        let unacknowledged = restored.unacknowledged.end - restored.unacknowledged.start;
        let connection = Connection::new(local, remote, number);
        let (vrf, id) = (vrf.to_owned(), restored.id);
        Ok(Made { vrf, id, socket: descriptor, hold, connection, numbers, unacknowledged })
    }

    /// Of what the store has everything may leave: the peer's octets that are acknowledged, and those that are sent again.
    /// Whether it has a slot.
    fn claim(&self, made: &Made) -> bool {
        let mut engine = self.engine.borrow_mut();
        let Some(marks) = engine.marks() else { return false };
        let claimed = marks.free_slot().and_then(|slot| {
            let watermarks = (0, made.unacknowledged);
            marks.claim_restored(slot, &made.connection, SlotState::Gated, watermarks, made.numbers)
        });
        if claimed.is_none() {
            warn!(event = "session-not-restored", session = made.id.0, "there are too many sessions");
        }
        claimed.is_some()
    }

    pub(crate) async fn put(
        &self,
        key: &str,
        vrf: &str,
        descriptor: &OwnedFd,
        hold: Option<Duration>,
    ) -> Result<(), XrlError> {
        let copy = descriptor.try_clone().map_err(|error| XrlError::internal(error.to_string()))?;
        let hold_milliseconds = hold.map_or(0, |hold| u64::try_from(hold.as_millis()).unwrap_or(u64::MAX));
        let key = class(key, vrf);
        let put = PutRequest { key, on_death: OnDeath::Keep.into(), hold_milliseconds, note: String::new() };
        let request = PutOfRequest { owner: OWNER.into(), put: Some(put) };
        within("keeper", self.keeper.put_of(request, vec![copy])).await.map(drop)
    }

    async fn release(&self, vrf: &str, sessions: &[Made]) -> Result<(), XrlError> {
        let copies = sessions.iter().map(|one| one.socket.try_clone()).collect::<Result<Vec<_>, _>>();
        self.release_sockets(vrf, copies.map_err(|error| XrlError::internal(error.to_string()))?).await
    }

    async fn release_sockets(&self, vrf: &str, sockets: Vec<OwnedFd>) -> Result<(), XrlError> {
        within("fea", async {
            let fea: SocketClient = self.resolver.wait_for(&class("fea", vrf)).await?;
            fea.release(SocketEmpty {}, sockets).await.map(drop)
        })
        .await
    }

    /// Ends what a process before may have begun: the gate is opened, and sockets that wait for it are released.
    ///
    /// # Errors
    /// Somebody does not answer.
    pub(crate) async fn finish_remaking(&self) -> Result<(), XrlError> {
        let unreleased: Vec<_> = {
            let engine = self.engine.borrow();
            engine.tables.iter().map(|table| (table.vrf.clone(), table.unreleased())).collect()
        };
        self.open_gate().await?;
        for (vrf, sockets) in unreleased {
            let mut sockets = sockets.into_iter().peekable();
            while sockets.peek().is_some() {
                self.release_sockets(&vrf, sockets.by_ref().take(MANY).collect()).await?;
            }
        }
        Ok(())
    }
}

/// How long the descriptor of a session is kept while nobody has it.
pub(crate) fn hold_time(record: &[u8]) -> Duration {
    let hold = HeldSession::decode(record).ok().map(|held| held.hold_seconds);
    let hold = hold.filter(|seconds| *seconds > 0);
    hold.map_or(WITHOUT_HOLD_TIME, |seconds| Duration::from_secs(seconds.into()))
}

/// A call to a process that is not waited for without end: it may be hung.
pub(crate) async fn within<T>(
    process: &str,
    call: impl IntoFuture<Output = Result<T, XrlError>>,
) -> Result<T, XrlError> {
    let late = |_| Err(XrlError::timeout(format!("the process {process} does not answer")));
    timeout(LIMIT, call.into_future()).await.unwrap_or_else(late)
}

/// Sessions are on their way, and lack this only: it is tried again, as whoever hangs is started anew.
async fn insist<T>(call: impl AsyncFn() -> Result<T, XrlError>) -> Result<T, XrlError> {
    let began = Instant::now();
    loop {
        match call().await {
            Err(error) if began.elapsed() < MOST_INSISTED => {
                warn!(event = "sessions-wait", "sessions are not here yet: {}", error.message());
                sleep(RETRY).await;
            }
            outcome => return outcome,
        }
    }
}

fn class(name: &str, vrf: &str) -> String {
    scoped(name, Some(vrf).filter(|vrf| !vrf.is_empty()))
}

fn end(octets: &[u8], port: u32) -> Option<std::net::SocketAddr> {
    Some((address(octets)?, u16::try_from(port).ok()?).into())
}

/// The socket goes on at these offsets: sequence numbers are those of offset 0, and count octets.
fn request(socket: &Socket, restored: &Restored, unix_milliseconds: u64) -> RestoreRequest {
    let passed = unix_milliseconds.saturating_sub(socket.unix_milliseconds);
    let ahead = |timestamp: u32| timestamp.wrapping_add(passed as u32).wrapping_add(AHEAD);
    RestoreRequest {
        local_address: socket.local_address.clone(),
        local_port: socket.local_port,
        remote_address: socket.remote_address.clone(),
        remote_port: socket.remote_port,
        send: socket.sent_zero.wrapping_add(restored.unacknowledged.start as u32),
        receive: socket.received_zero.wrapping_add(restored.received as u32),
        segment: socket.segment,
        selective: socket.selective,
        scale_theirs: socket.scale_theirs,
        scale_ours: socket.scale_ours,
        timestamp: socket.timestamp.map(ahead),
        window: socket.window,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_hangs_is_waited_for_until_another_one_is_there_and_not_for_ever() {
        let calls = Cell::new(0);
        let hangs_twice = async || {
            calls.set(calls.get() + 1);
            let hangs = calls.get() <= 2;
            within("gate", async { if hangs { std::future::pending().await } else { Ok(7) } }).await
        };
        assert_eq!((insist(hangs_twice).await.ok(), calls.get()), (Some(7), 3));
        let began = Instant::now();
        let hangs = async || within::<()>("gate", std::future::pending()).await;
        let error = insist(hangs).await.expect_err("it hangs for ever");
        assert_eq!(error.message(), "the process gate does not answer");
        let took = began.elapsed();
        assert!(took >= MOST_INSISTED && took <= MOST_INSISTED + LIMIT + RETRY, "{took:?}");
    }

    #[test]
    fn timestamps_are_ahead_whatever_a_clock_says_and_wrap() {
        const MINUTE: u64 = 60_000;
        let restored =
            Restored { was: SessionId(1), id: SessionId(1), received: 7, socket: None, unacknowledged: 5..9 };
        // What passed, how far the clock of the next router is behind, and where the timestamps are.
        for (passed, behind, first) in
            [(0, 0, 1), (60 * MINUTE, 9 * MINUTE, 1), (MINUTE, 5 * MINUTE, 1), (60 * MINUTE, 0, u32::MAX - 5)]
        {
            let (written, sent_zero, received_zero) = (1 << 40, u32::MAX, 3);
            let socket = Socket {
                timestamp: Some(first),
                unix_milliseconds: written,
                sent_zero,
                received_zero,
                ..Socket::default()
            };
            let request = request(&socket, &restored, written + passed - behind);
            let seen = first.wrapping_add(passed as u32);
            let ahead = request.timestamp.expect("one").wrapping_sub(seen);
            assert!((1..1 << 30).contains(&ahead), "{passed} {behind}: {ahead}");
            assert_eq!((request.send, request.receive), (4, 10));
        }
    }
}
