//! From the pipeline to sockets, as far as these take it.

use std::{rc::Rc, time::Instant};

use holdfast_bgp_pipeline::{JournalEntry, PeerIndex, Pressure};
use holdfast_bgp_session::{Input, State};
use holdfast_bgp_wire::MessageType;
use holdfast_nsr::EntryId;

use super::{CHUNK, CHUNKS_PER_TURN, Speaker, WRITES_PER_TURN, Write};
use crate::{
    connection::{Key, Written},
    nonstop::Unprotected,
};

impl Speaker {
    /// Writes to peers for which the pipeline has something new, at once: a route does not wait for a task to be woken.
    /// Whoever has more than one write takes, or a full socket, is left to the task of its connection. Returns
    /// whether there are more peers than one turn is for, or the turn is over before.
    pub(crate) fn write_ready(&mut self, now: Instant, is_over: &dyn Fn() -> bool) -> bool {
        let mut first = None;
        for _ in 0..WRITES_PER_TURN {
            let Some(index) = self.pipeline.poll_ready() else { return false };
            let Some((key, connection)) = self.sessions.session_connection(index) else { continue };
            let wake = Rc::clone(&connection.wake);
            if self.transmit_chunks(key, 1, now, is_over) != Write::Idle {
                wake.notify_one();
            }
            // Windows may come to nothing for long, as where what was told is compared: who is named again waits.
            if first == Some(index) || is_over() {
                break;
            }
            first.get_or_insert(index);
        }
        true
    }

    /// Whether what a peer sends is to wait in its socket: the rib, or a peer that takes what it is sent, is far behind. Who
    /// sends little has not caused that, and waits only where the others would lose their place.
    pub(crate) fn is_to_wait(&self, peer: PeerIndex, now: Instant) -> bool {
        match self.pressure() {
            Pressure::Low => false,
            Pressure::High => self.sessions.slot(peer).is_some_and(|slot| slot.cost.allowance.is_spent(now)),
            Pressure::Full => true,
        }
    }

    /// How far the rib, or a peer that takes what it is sent, is behind.
    pub(crate) fn pressure(&self) -> Pressure {
        self.pipeline.pressure(|index| {
            // Who is behind because nothing is written to it is not waited for.
            let is_told = self.sessions.slot(index).is_some_and(|slot| !slot.defers());
            is_told
                && self
                    .sessions
                    .session_connection(index)
                    .is_some_and(|(_, connection)| connection.queued() == 0)
        })
    }

    /// Tells the pipeline how far the receivers have come, so that background work goes at their pace. Only those are
    /// asked for that something was written to since they had everything.
    pub(crate) fn pace(&mut self) {
        let mut peers = std::mem::take(&mut self.sessions.unacknowledged);
        peers.retain(|&index| {
            let Some((_, connection)) = self.sessions.session_connection(index) else { return false };
            let unacknowledged = connection.stream.unacknowledged();
            unacknowledged.iter().for_each(|octets| connection.acknowledged(*octets));
            let in_socket = unacknowledged.unwrap_or(0);
            let waiting = connection.queued() + in_socket as usize;
            self.pipeline.set_paced(index, waiting);
            waiting > 0
        });
        self.sessions.unacknowledged = peers;
    }

    /// Sends to a connection what is queued and what the pipeline has, as far as the socket takes it, until the turn is over.
    pub(crate) fn transmit(&mut self, key: Key, now: Instant, is_over: &dyn Fn() -> bool) -> Write {
        self.transmit_chunks(key, CHUNKS_PER_TURN, now, is_over)
    }

    fn transmit_chunks(
        &mut self,
        key: Key,
        chunks: usize,
        now: Instant,
        is_over: &dyn Fn() -> bool,
    ) -> Write {
        // What is queued already goes first: behind a full socket nothing is taken out of the pipeline.
        for pulled in 0..=chunks {
            if let Some(end) = self.write_queued(key, now) {
                return end;
            }
            if pulled > 0 && is_over() {
                break;
            }
            if !self.pull(key, now, is_over) {
                return Write::Idle;
            }
        }
        Write::Yield
    }

    /// Writes what is queued on a connection; `None` if that is all, and there may be more to come.
    fn write_queued(&mut self, key: Key, now: Instant) -> Option<Write> {
        let Some(connection) = self.sessions.connection_mut(key) else { return Some(Write::Gone) };
        match connection.write(now) {
            Ok((written, progress)) => {
                let closing = connection.closing;
                if progress {
                    self.sessions.unacknowledged.insert(key.0);
                    self.input(key.0, Input::Sent(key.1), now);
                }
                match written {
                    Written::Blocked => Some(Write::Blocked),
                    Written::All if closing => Some(Write::Finish),
                    Written::All => None,
                }
            }
            Err(error) => {
                self.lost(key, Some(error.kind()), now);
                Some(Write::Gone)
            }
        }
    }

    /// Has the messages that are queued on these connections written before those of all others.
    pub(crate) fn hurry(&mut self, connections: impl Iterator<Item = Key>) {
        self.urgent.extend(connections);
    }

    /// Writes at once what sessions have said themselves: a KEEPALIVE does not wait until hundreds of peers that are told
    /// routes have had their turns. A connection that is being closed is left to its task.
    pub(crate) fn write_urgent(&mut self, now: Instant) {
        while let Some(key) = self.urgent.pop() {
            if self.sessions.connection(key).is_some_and(|connection| !connection.closing) {
                self.write_queued(key, now);
            }
        }
    }

    /// Moves messages from the pipeline to the connection of an established session, as many as one write is for, or as
    /// there are before the turn is over.
    fn pull(&mut self, key: Key, now: Instant, is_over: &dyn Fn() -> bool) -> bool {
        let Some((slot, connection)) = self.sessions.both_mut(key) else { return false };
        let on_this = slot.session.connection().is_some_and(|(id, _)| id == key.1);
        if !on_this || slot.session.state() != State::Established || slot.defers() {
            return false;
        }
        let mut queued = connection.queued();
        let was_held = connection.held.is_some();
        while queued < CHUNK {
            let before = self.pipeline.finished();
            let messages = self.pipeline.pull_until(key.0, is_over);
            self.finished.add(self.pipeline.finished() - before);
            let place = self.pipeline.journal_place(key.0);
            if place == JournalEntry::LOST {
                connection.unprotect(Unprotected::LogFull);
            }
            let entry = EntryId::from_bits(place.0);
            if let Some(reason) = slot.judge_limits(key.0, &self.pipeline, &mut self.reporter, now) {
                // What was pulled is more than the peer may be told: it does not see it.
                self.stop_for_limit(key.0, reason, now);
                return true;
            }
            let Some(messages) = messages else {
                // A session that is being taken over has not come so far that anything could have been told.
                if place != JournalEntry::NONE {
                    connection.pass(entry);
                }
                break;
            };
            slot.session.count_sent(messages.kind, messages.count);
            if messages.kind == MessageType::Update && self.reporter.watchers.want_sent() {
                self.reporter.watchers.sent(key.0, &messages.bytes);
            }
            queued += messages.bytes.len();
            connection.queue(messages.bytes, Some(entry));
            connection.count(&slot.session.counters().sent);
            if is_over() {
                break;
            }
        }
        connection.most_queued.see(queued as u64);
        if was_held && connection.held.is_none() {
            self.has_left_log(key.0);
            return queued > 0;
        }
        if let Some(held) = &mut connection.held
            && held.refreshing
            && queued == 0
            && self.pipeline.is_told(key.0)
            && !self.pipeline.pending(key.0)
            && !self.pipeline.is_announcing_again(key.0)
        {
            held.refreshing = false;
            (held.progress.announcing, held.progress.answered) = (false, held.parsed);
            self.update_record(key.0, now);
        }
        queued > 0
    }
}
