//! The engine's side of the store: connecting, asking, what follows from answers, and what is written.

use std::time::{Duration, Instant};

use holdfast_api::replicator::v1::Kind;
use holdfast_gate::{Marks, SlotState};
use holdfast_store::{Answer, Failure, Request};
use tracing::{error, warn};

use super::Engine;
use crate::{
    copier::{Copier, Filled},
    draft::Draft,
    link::shortened,
    protection::Protection,
    table::Table,
    way::{Event, Place, Way},
    writer::{Outcome, Phase, TableMark, Trouble},
};

/// Batches that are made before others have their turn.
const BATCHES_A_TURN: usize = 4;
/// Between two attempts to reach the store: at first, and at most.
const RETRY: Duration = Duration::from_millis(50);
const MOST_RETRY: Duration = Duration::from_secs(1);
/// A store that has not answered for half of the time that sessions wait for it is connected to anew: at least after this
/// long, and at most.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);
const MOST_PATIENCE: Duration = Duration::from_secs(5);
/// How often a store that is sent nothing is asked whether it has what it had.
const PROBE: Duration = Duration::from_millis(500);
/// A session that the gate waits for, and that `bgp` has not read for so long, is looked at in its socket.
const UNREAD: Duration = Duration::from_millis(30);

impl Engine {
    /// Gives up a connection over which no answer comes.
    pub(super) fn lose_patience(&mut self, now: Instant) {
        match self.writer.phase() {
            Phase::Asking | Phase::Claiming => drop(self.asked_at.get_or_insert(now)),
            Phase::Down | Phase::Copying | Phase::Whole | Phase::Fenced => self.asked_at = None,
        }
        // A store of this host is never silent, only busy.
        // What was sent over the connection before has had its time there.
        let oldest = self.writer.oldest().map(|at| self.sent_again_at.map_or(at, |again| again.max(at)));
        let since = self.asked_at.or(oldest).filter(|_| self.server.is_some());
        let limit = (self.store_timeout() / 2).clamp(LEAST_PATIENCE, MOST_PATIENCE);
        if since.is_some_and(|since| now.duration_since(since) >= limit) {
            self.asked_at = None;
            self.reconnect(Some(Trouble::Silent), now);
        }
    }

    pub(super) fn probe(&mut self, now: Instant) {
        if self.probed_at.is_some_and(|at| now.duration_since(at) < PROBE) {
            return;
        }
        if let Some(request) = self.writer.probe(now) {
            self.probed_at = Some(now);
            self.ask(&request);
        }
    }

    /// Opens a way to the store where there is none, and it is time to.
    pub(super) fn connect(&mut self, now: Instant) {
        let is_time = self.retry_at.is_none_or(|at| at <= now);
        let kind = self.configuration.kind();
        let Some(keys) = self.keys.as_ref().filter(|_| kind != Kind::Unspecified) else { return };
        if self.way.is_some() || !is_time || self.writer.phase() == Phase::Fenced {
            return;
        }
        let files = self.files.get(1..).unwrap_or_default();
        match self.open.open(&Place { kind, servers: &self.servers, keys, files }) {
            Ok(way) => self.way = Some(way),
            Err(failure) => self.reconnect(Some(failure.into()), now),
        }
    }

    /// Begins a way to the store, for whoever follows it.
    pub(crate) fn open_way(&mut self) -> Result<Box<dyn Way>, Failure> {
        let files = self.files.get(1..).unwrap_or_default();
        let keys = self.keys.as_ref().ok_or(Failure::Unexpected)?;
        self.open.open(&Place { kind: self.configuration.kind(), servers: &self.servers, keys, files })
    }

    fn connected(&mut self, server: Option<String>) {
        self.server = server;
        let request = self.writer.connected();
        request.iter().for_each(|request| self.ask(request));
    }

    fn ask(&mut self, request: &Request) {
        if let Some(way) = &mut self.way {
            way.ask(request);
        }
    }

    /// The store is asked anew what it has, a little later each time. Another server is, where this one is silent, or has
    /// confirmed nothing since the last time: a replica takes nothing, however often it is asked.
    pub(super) fn reconnect(&mut self, trouble: Option<Trouble>, now: Instant) {
        if let Some(trouble) = trouble {
            if self.trouble.as_ref() != Some(&trouble) {
                let text = trouble.to_string();
                warn!(event = "store-failed", "{}", shortened(&text));
            }
            let is_of_no_use = self.retries > 0 || trouble == Trouble::Silent;
            if self.server.is_some() && is_of_no_use && !self.servers.peers.is_empty() {
                self.servers.peers.rotate_left(1);
            }
            self.trouble = Some(trouble);
            let pause = RETRY.saturating_mul(1 << self.retries.min(10)).min(MOST_RETRY);
            self.retry_at = Some(now + pause);
            self.retries += 1;
        } else {
            self.retry_at = None;
        }
        self.writer.disconnected();
        self.read_again();
        self.way = None;
        self.server = None;
    }

    /// Takes what has come of the store; whether there is more.
    pub(super) fn events(&mut self, now: Instant) -> bool {
        while let Some(event) = self.way.as_mut().and_then(|way| way.event()) {
            match event {
                Event::Connected(server) => self.connected(server),
                Event::Ended(why) => {
                    if self.server.is_some() || self.trouble.is_none() {
                        warn!(event = "store-lost", "no connection to the store: {}", shortened(&why));
                    }
                    self.reconnect(Some(Trouble::NoConnection), now);
                }
                Event::Answered(answer) => self.answered(answer, now),
            }
        }
        self.way.as_mut().is_some_and(|way| way.work())
    }

    fn answered(&mut self, answer: Result<Answer, Failure>, now: Instant) {
        let Err(answer) = self.read(answer, now) else { return };
        let before = self.writer.phase();
        match self.writer.answered(answer) {
            Outcome::Send(request) => self.ask(&request),
            Outcome::Confirmed(marks) => {
                self.confirmed(&marks);
                if before != Phase::Asking {
                    self.batches += 1;
                    (self.trouble, self.retries) = (None, 0);
                } else if let Some(way) = &mut self.way {
                    self.sent_again_at = Some(now);
                    // A store that says what it has may refuse to take more.
                    self.writer.again().for_each(|request| way.ask(request));
                }
            }
            Outcome::Restart => {
                self.whole.clear();
                self.sharing.restart();
                self.tables.iter_mut().for_each(Table::restart);
                if self.writer.has_lost() {
                    warn!(
                        event = "store-anew",
                        "everything is written anew: the store does not have what it had confirmed"
                    );
                }
            }
            Outcome::Reconnect(trouble) => self.reconnect(Some(trouble), now),
            Outcome::Overtaken(there) if self.raise_epoch(there) => self.reconnect(None, now),
            Outcome::Fenced | Outcome::Overtaken(_) => {
                self.writer.give_up();
                error!(
                    event = "fenced",
                    "another router has claimed the store: nothing leaves this one any more"
                );
                self.way = None;
                self.protection = Protection::Fenced;
            }
        }
    }

    fn confirmed(&mut self, confirmed: &[TableMark]) {
        let Ok(marks) = Marks::open(self.marks.words()) else { return };
        self.has_news |= !confirmed.is_empty();
        for (at, mark) in confirmed {
            if let Some(table) = self.tables.get_mut(*at) {
                table.confirmed(*mark, &marks);
            }
        }
    }

    /// Writes what the store lacks; whether there is more.
    pub(super) fn write(&mut self, now: Instant) -> bool {
        if !self.is_ready() {
            // What the store has of the router before is here first.
            return false;
        }
        for _ in 0..BATCHES_A_TURN {
            let Some(batch) = self.writer.begin() else { return false };
            let sequence = batch.sequence;
            let mut batch = Draft::new(batch);
            // First of all: what needs little room finds it.
            let has_configuration = self.sharing.fill(&mut batch, sequence);
            let mut is_full = self.peek(&mut batch, now) || !has_configuration;
            for (at, table) in self.tables.iter_mut().enumerate() {
                let Some(copier) = table.copier() else {
                    // Of a table without a log there is nothing to be had.
                    self.whole.insert(at);
                    continue;
                };
                match copier.fill(&mut batch) {
                    // One that changed meanwhile may have been left for the next time: then there is nothing of it yet.
                    Filled::All => {
                        if !self.whole.contains(&at) && copier.has_all() {
                            self.whole.insert(at);
                        }
                    }
                    Filled::Full => {
                        is_full = true;
                        break;
                    }
                }
            }
            let moved = self.tables.iter_mut().enumerate().flat_map(|(at, table)| {
                let moved = table.copier().map(Copier::take_moved).unwrap_or_default();
                moved.into_iter().map(move |mark| (at, mark))
            });
            let moved = moved.collect();
            let is_whole = !is_full && self.whole.len() == self.tables.len() && !self.is_behind();
            let octets = batch.octets() as u64;
            let batch = batch.into_batch();
            let Some(request) = self.writer.send(batch, moved, is_whole, now) else { return false };
            self.octets += octets;
            if let Some(way) = &mut self.way {
                way.ask(request);
            }
            // A store of this host has answered already.
            self.events(now);
            if !is_full {
                return false;
            }
        }
        true
    }

    /// Whether a copy that is begun anew lacks octets that were acknowledged, as far as that is known by now.
    fn is_behind(&mut self) -> bool {
        let may_lack = self.writer.phase() == Phase::Copying && self.protection.state() != SlotState::Open;
        if !may_lack {
            return false;
        }
        if !self.is_complete || !self.wanted().is_empty() {
            return true;
        }
        let Ok(marks) = Marks::open(self.marks.words()) else { return false };
        self.tables.iter().any(|table| table.is_behind(&marks))
    }

    /// Looks into sockets that `bgp` does not read, while the gate waits, or while a copy is begun anew. Whether the batch is full.
    fn peek(&mut self, batch: &mut Draft, now: Instant) -> bool {
        let Ok(marks) = Marks::open(self.marks.words()) else { return false };
        let is_anew = self.writer.phase() == Phase::Copying && self.protection.state() != SlotState::Open;
        if marks.held() == 0 && !is_anew {
            self.unread = None;
            return false;
        }
        let since = *self.unread.get_or_insert(now);
        if now.duration_since(since) < UNREAD && !is_anew {
            return false;
        }
        for table in &mut self.tables {
            for (id, from, octets) in table.peek(&marks) {
                let Some(copier) = table.copier() else { continue };
                if !copier.peeked(batch, id, from, &octets) {
                    return true;
                }
            }
        }
        false
    }
}
