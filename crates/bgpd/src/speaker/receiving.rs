//! From octets received to messages, and to who takes them in.

use std::{cell::Cell, io, rc::Rc, time::Instant};

use holdfast_bgp_pipeline::{Drops, PeerIndex, UpdatePart};
use holdfast_bgp_session::{Disposition, Input};
use holdfast_bgp_wire::{MessageType, Notification, next_message};

use super::{Read, Speaker};
use crate::{
    connection::{Key, READ, Received},
    nonstop::ReplicationLog,
};

/// What became of messages that were there.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Taken {
    /// Every whole one was taken in.
    All,
    /// The turn was over before.
    Some,
    /// The connection has ended.
    Gone,
}

thread_local! {
    /// Octets being taken in. The speakers of all VRFs are on this thread, and one of them reads at a time.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Speaker {
    /// Reads once from a connection and takes in every whole message, one of them at least, until the turn is over. What is left
    /// then comes first in the next turn.
    pub(crate) fn receive(&mut self, key: Key, now: Instant, is_over: &dyn Fn() -> bool) -> Read {
        let Some(connection) = self.sessions.connection_mut(key) else { return Read::Gone };
        if connection.closing {
            return Read::Gone;
        }
        self.reporter.points.reading();
        let mut buffer = BUFFER.take();
        let outcome = match connection.read(&mut buffer) {
            Received::Octets(count) => {
                connection.last_read = now;
                if let Some(slot) = self.sessions.slot_mut(key.0) {
                    slot.cost.read(count as u64, now);
                }
                match self.messages(key, &buffer, now, is_over) {
                    Taken::All if count < READ => Read::Wait,
                    Taken::All | Taken::Some => Read::More,
                    Taken::Gone => Read::Gone,
                }
            }
            Received::Left => match self.messages(key, &buffer, now, is_over) {
                Taken::All | Taken::Some => Read::More,
                Taken::Gone => Read::Gone,
            },
            Received::Full => Read::Full,
            Received::Failed(Some(error)) if error.kind() == io::ErrorKind::WouldBlock => Read::Wait,
            Received::Failed(error) => {
                self.lost(key, error.map(|error| error.kind()), now);
                Read::Gone
            }
        };
        BUFFER.set(buffer);
        outcome
    }

    /// Takes in some of what the process before has received; whether there is more.
    pub(crate) fn replay(&mut self, key: Key, now: Instant, is_over: &dyn Fn() -> bool) -> bool {
        let Some(connection) = self.sessions.connection(key) else { return false };
        self.reporter.points.replaying();
        let mut buffer = BUFFER.take();
        // A whole message is among them, if there is one.
        connection.unparsed(&mut buffer, 2 * READ);
        let was_full = buffer.len() == 2 * READ;
        let taken = self.messages(key, &buffer, now, is_over);
        BUFFER.set(buffer);
        match taken {
            Taken::All => was_full,
            Taken::Some => true,
            Taken::Gone => false,
        }
    }

    /// Takes in whole messages, of a long UPDATE a part at a time. If processing them ends this process, the log says whose they were.
    fn messages(&mut self, key: Key, bytes: &[u8], now: Instant, is_over: &dyn Fn() -> bool) -> Taken {
        let held = self.sessions.connection(key).and_then(|connection| connection.held.as_ref());
        let processing = held.map(|held| (Rc::clone(&held.log), held.id));
        if let Some((log, id)) = &processing {
            let start = held.map_or(0, |held| held.parsed);
            log.log.borrow_mut().enter(*id, start);
        }
        let log = processing.as_ref().map(|(log, _)| &**log);
        let taken = self.take_messages(key, bytes, log, now, is_over);
        if let Some((log, _)) = processing {
            log.log.borrow_mut().leave();
        }
        match taken {
            Taken::All | Taken::Some => self.check_octets(key.0, now),
            Taken::Gone => {}
        }
        taken
    }

    fn take_messages(
        &mut self,
        key: Key,
        all: &[u8],
        log: Option<&ReplicationLog>,
        now: Instant,
        is_over: &dyn Fn() -> bool,
    ) -> Taken {
        let (index, id) = key;
        let mut bytes = all;
        let held = self.sessions.connection(key).and_then(|connection| connection.held.as_ref());
        let (start, counted) = held.map_or((0, 0), |held| (held.parsed, held.progress.counted));
        let mut begun = self.sessions.connection_mut(key).and_then(|connection| connection.begun.take());
        let taken = loop {
            let Some(slot) = self.sessions.slot_mut(index) else { return Taken::Gone };
            match next_message(bytes, slot.session.max_received(id)) {
                Ok(Some(message)) => {
                    let at = start + (all.len() - bytes.len()) as u64;
                    if let Some(log) = log {
                        log.log.borrow_mut().advance(at);
                    }
                    let rest = &bytes[message.wire.len()..];
                    self.protection.taking_in(rest.len(), at);
                    let is_delivered = begun.is_some() || {
                        if !self.reporter.watchers.is_empty() {
                            let again = slot.is_replaying();
                            self.reporter.watchers.received(key.0, message.kind, message.wire, again);
                        }
                        let input = match at < counted {
                            true => Input::Replayed(id, message.kind, message.body),
                            false => Input::Message(id, message.kind, message.body),
                        };
                        slot.session.handle(input, now) == Disposition::Deliver
                    };
                    let part = begun.take().unwrap_or_default();
                    if is_delivered {
                        match self.deliver(key, message.kind, message.body, part, now) {
                            Ok(next) => begun = next,
                            Err(refused) => _ = self.input(index, Input::UpdateRefused(id, refused), now),
                        }
                    }
                    bytes = if begun.is_some() { bytes } else { rest };
                    if message.kind == MessageType::Open
                        && let Some(connection) = self.sessions.connection_mut(key)
                    {
                        connection.received_open = message.wire.to_vec();
                    }
                    if message.kind == MessageType::Update {
                        self.check_limits(index, now);
                    }
                    self.drain(index, now);
                    self.finished.add(message.wire.len() as u64);
                    if self.protection.has_begun(key) {
                        // What is left was received before the connection was in the log.
                        return self.hold_and_go_on(key, bytes, now, is_over);
                    }
                }
                Ok(None) => break Taken::All,
                Err(error) => {
                    self.input(index, Input::FramingError(id, error), now);
                    return Taken::Gone;
                }
            }
            if self.sessions.connection(key).is_none_or(|connection| connection.closing) {
                return Taken::Gone;
            }
            if !bytes.is_empty() && is_over() {
                break Taken::Some;
            }
        };
        if let Some(connection) = self.sessions.connection_mut(key) {
            connection.taken_in(all.len() - bytes.len(), bytes);
            connection.is_behind = taken == Taken::Some;
            connection.begun = begun;
        }
        taken
    }

    fn hold_and_go_on(&mut self, key: Key, rest: &[u8], now: Instant, is_over: &dyn Fn() -> bool) -> Taken {
        let Some(connection) = self.sessions.connection_mut(key) else { return Taken::Gone };
        connection.hold(rest);
        self.take_messages(key, rest, None, now, is_over)
    }

    /// Takes in a message, or a part of it; the next part, if there is one.
    fn deliver(
        &mut self,
        key: Key,
        kind: MessageType,
        body: &[u8],
        part: UpdatePart,
        now: Instant,
    ) -> Result<Option<UpdatePart>, Notification> {
        match kind {
            MessageType::Update => {
                if let Some(slot) = self.sessions.slot_mut(key.0) {
                    slot.last_update = Some(now);
                }
                if let Some(poison) = self.poison {
                    poison.act(body, self.finished);
                }
                if part == UpdatePart::default() {
                    let negotiated = self.sessions.slot(key.0).and_then(|slot| slot.session.negotiated());
                    self.reporter.points.update(body, || {
                        negotiated.iter().flat_map(|both| &both.identifiers_received).copied().collect()
                    });
                }
                let before = self.drops(key.0);
                let taken = self.pipeline.update_part(key.0, body, part);
                let new = self.drops(key.0) - before;
                if new > 0
                    && let (Some(drops), Some(slot)) = (self.pipeline.drops(key.0), self.sessions.slot(key.0))
                {
                    self.reporter.dropped(slot, drops, new, body, now);
                }
                taken
            }
            MessageType::RouteRefresh => self.route_refresh(key, body, now).map(|()| None),
            MessageType::Open | MessageType::Notification | MessageType::KeepAlive => Ok(None),
        }
    }

    /// Things that were wrong in a peer's UPDATEs so far.
    fn drops(&self, index: PeerIndex) -> u64 {
        self.pipeline.drops(index).map_or(0, Drops::total)
    }
}
