//! ROUTE-REFRESH both ways: tables asked for again, where an answer begins and ends (RFC 7313), and outbound route
//! filters (RFC 5291).

use std::{rc::Rc, time::Instant};

use bytes::Bytes;
use holdfast_bgp_pipeline::PeerIndex;
use holdfast_bgp_session::Input;
use holdfast_bgp_wire::{
    MessageType, Notification, OrfEntry, OrfMessage, RouteRefresh, WhenToRefresh, update::AsSets,
};
use holdfast_types::{Family, Prefix};
use tracing::{debug, info};

use super::Speaker;
use crate::{connection::Key, sessions::slot::Slot};

impl Slot {
    /// Whether the peer may send filters: what it has said of them is known only from what was received.
    pub(crate) fn takes_filters(&self) -> bool {
        self.session.negotiated().is_some_and(|negotiated| !negotiated.orf_received.is_empty())
    }
}

impl Speaker {
    /// Takes in a ROUTE-REFRESH. A family that was not negotiated is ignored (RFC 2918 section 4), as is a subtype that
    /// nobody knows (RFC 7313 section 5).
    ///
    /// # Errors
    /// The session must end with this NOTIFICATION.
    pub(super) fn route_refresh(&mut self, key: Key, body: &[u8], now: Instant) -> Result<(), Notification> {
        let index = key.0;
        if OrfMessage::is_one(body) && self.sessions.slot(index).is_some_and(Slot::takes_filters) {
            let message = OrfMessage::parse(body)?;
            self.take_filter(index, &message, now);
            return Ok(());
        }
        let RouteRefresh { family, subtype } = RouteRefresh::parse(body)?;
        match subtype {
            RouteRefresh::REQUEST if self.has_answered(key) => self.pipeline.apply_orf(index, family),
            RouteRefresh::REQUEST => self.pipeline.route_refresh(index, family),
            RouteRefresh::BORR => _ = self.input(index, Input::BeginRefresh(family), now),
            RouteRefresh::EORR => _ = self.input(index, Input::EndRefresh(family), now),
            _ => {
                if let Some(slot) = self.sessions.slot(index) {
                    debug!(peer = slot.neighbor.name, subtype, "a ROUTE-REFRESH of no known subtype");
                }
            }
        }
        Ok(())
    }

    /// Notes a request; whether the process before has answered it.
    fn has_answered(&mut self, key: Key) -> bool {
        let connection = self.sessions.connection_mut(key);
        connection.is_some_and(|connection| self.protection.has_answered(connection))
    }

    fn take_filter(&mut self, index: PeerIndex, message: &OrfMessage, now: Instant) {
        let outcome = self.pipeline.take_orf(index, message);
        if let Some(slot) = self.sessions.slot(index) {
            let at_once = message.when == WhenToRefresh::Immediate;
            self.reporter.filter(slot, message.family, outcome, at_once, now);
        }
    }

    /// The peer begins to announce a family again.
    pub(super) fn mark_stale(&mut self, index: PeerIndex, family: Family) {
        self.pipeline.begin_refresh(index, family);
        if let Some(slot) = self.sessions.slot(index) {
            debug!(peer = slot.neighbor.name, %family, "the peer begins to announce everything again");
        }
    }

    /// It has announced it, or has had its time.
    pub(super) fn sweep(&mut self, index: PeerIndex, family: Family) {
        self.pipeline.end_refresh(index, family);
        if let Some(slot) = self.sessions.slot(index) {
            debug!(peer = slot.neighbor.name, %family, "what the peer has not announced again goes");
        }
    }

    /// The operator has a peer told everything again.
    pub(crate) fn announce_again(&mut self, index: PeerIndex, now: Instant) {
        let Some(slot) = self.sessions.slot(index) else { return };
        for &family in &slot.neighbor.source.families {
            self.pipeline.announce_again(index, family);
        }
        let Some((key, connection)) = self.sessions.session_connection(index) else { return };
        Rc::clone(&connection.wake).notify_one();
        if let Some(held) = self.sessions.connection_mut(key).and_then(|connection| connection.held.as_mut())
        {
            (held.refreshing, held.progress.announcing) = (true, true);
            self.update_record(index, now);
        }
    }

    /// The operator has a peer asked for everything again; whether it can be: its session is up, and it answers.
    pub(crate) fn ask_again(&mut self, index: PeerIndex) -> bool {
        let negotiated = self.sessions.slot(index).and_then(|slot| slot.session.negotiated());
        let Some(negotiated) = negotiated.filter(|negotiated| negotiated.route_refresh) else { return false };
        for family in negotiated.families.clone() {
            self.send_refresh(index, RouteRefresh::request(family).encode());
        }
        true
    }

    /// Whether paths with an AS_SET are taken.
    pub(crate) fn change_as_sets(&mut self, as_sets: AsSets, now: Instant) {
        if self.settings.as_sets == as_sets {
            return;
        }
        self.settings.as_sets = as_sets;
        self.pipeline.set_as_sets(as_sets);
        for index in self.sessions.indexes() {
            if let Some(slot) = self.sessions.slot_mut(index) {
                slot.as_sets = as_sets;
            }
            self.ask_for_as_sets(index, now);
            self.update_record(index, now);
        }
    }

    /// Those that were refused are not kept: a peer is asked for its routes again where they are taken now.
    pub(super) fn ask_for_as_sets(&mut self, index: PeerIndex, now: Instant) {
        let is_up = self.sessions.session_connection(index).is_some();
        if is_up
            && self.settings.as_sets == AsSets::Accept
            && !self.ask_again(index)
            && let Some(slot) = self.sessions.slot(index)
        {
            self.reporter.no_refresh(slot, now);
        }
    }

    /// Tells a peer which prefixes we want, as configured, in the families in which it takes that (RFC 5291 section 6).
    /// It sends nothing before; of a family that we say nothing of everything is wanted.
    pub(crate) fn send_filters(&mut self, index: PeerIndex) {
        let Some(slot) = self.sessions.slot(index) else { return };
        let Some(negotiated) = slot.session.negotiated() else { return };
        let families = &negotiated.orf_sent;
        let messages = families.iter().flat_map(|family| {
            let is_of = |entry: &&OrfEntry| match entry.prefix {
                Prefix::V4(_) => *family == Family::IPV4_UNICAST,
                Prefix::V6(_) => *family == Family::IPV6_UNICAST,
            };
            let entries: Vec<OrfEntry> = slot.neighbor.orf.iter().filter(is_of).copied().collect();
            OrfMessage::replacing(*family, &entries, negotiated.max_sent)
        });
        let messages: Vec<_> = messages.map(|message| message.encode()).collect();
        if !messages.is_empty() {
            let (peer, entries) = (&slot.neighbor.name, slot.neighbor.orf.len());
            info!(event = "orf-sent", peer, entries, "the peer is told which prefixes are wanted");
        }
        messages.into_iter().for_each(|message| self.send_refresh(index, message));
    }

    fn send_refresh(&mut self, index: PeerIndex, message: Vec<u8>) {
        let Some((key, _)) = self.sessions.session_connection(index) else { return };
        if let Some((slot, connection)) = self.sessions.both_mut(key) {
            slot.session.count_sent(MessageType::RouteRefresh, 1);
            connection.queue(Bytes::from(message), None);
            connection.count(&slot.session.counters().sent);
            connection.wake.notify_one();
        }
    }
}
