//! ROUTE-REFRESH both ways: tables asked for again, where an answer begins and ends (RFC 7313), and outbound route
//! filters (RFC 5291).

use std::{rc::Rc, time::Instant};

use bytes::Bytes;
use holdfast_bgp_pipeline::{MOST_ORF_ENTRIES, OrfOutcome, PeerIndex};
use holdfast_bgp_session::Input;
use holdfast_bgp_wire::{MessageType, Notification, OrfEntry, OrfMessage, RouteRefresh, WhenToRefresh};
use holdfast_types::{Family, Prefix};
use tracing::{debug, info, warn};

use super::{Speaker, lines::About, slot::Slot};
use crate::connection::Key;

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
        if OrfMessage::is_one(body) && self.slots.get(&index).is_some_and(Slot::takes_filters) {
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
                if let Some(slot) = self.slots.get(&index) {
                    debug!(peer = slot.neighbor.name, subtype, "a ROUTE-REFRESH of no known subtype");
                }
            }
        }
        Ok(())
    }

    /// Notes a request; whether the process before has answered it.
    fn has_answered(&mut self, key: Key) -> bool {
        let held = self.connections.get_mut(&key).and_then(|connection| connection.held.as_mut());
        held.is_some_and(|held| {
            held.refreshing = true;
            self.unparsed.1 < held.progress.answered
        })
    }

    fn take_filter(&mut self, index: PeerIndex, message: &OrfMessage, now: Instant) {
        let outcome = self.pipeline.take_orf(index, message);
        let Some(slot) = self.slots.get(&index) else { return };
        let (peer, family, is_new) = (&slot.neighbor.name, message.family, !slot.is_replaying());
        match outcome {
            OrfOutcome::Taken(entries) => {
                let at_once = message.when == WhenToRefresh::Immediate;
                debug!(peer, %family, entries, at_once, "the peer's outbound route filter has changed");
            }
            OrfOutcome::Ignored => debug!(peer, %family, "a filter of a family that has none: ignored"),
            OrfOutcome::Unrecognized | OrfOutcome::TooMany
                if !is_new || !self.lines.may(About::Refreshes, &slot.neighbor.source.name, now) => {}
            OrfOutcome::Unrecognized => warn!(
                event = "orf-dropped",
                peer, %family,
                "the peer's outbound route filter has an entry that makes no sense: it is told everything"
            ),
            OrfOutcome::TooMany => warn!(
                event = "orf-dropped",
                peer, %family,
                "the peer's outbound route filter has more than {MOST_ORF_ENTRIES} entries: it is told everything"
            ),
        }
    }

    /// The peer begins to announce a family again.
    pub(super) fn mark_stale(&mut self, index: PeerIndex, family: Family) {
        self.pipeline.begin_refresh(index, family);
        if let Some(slot) = self.slots.get(&index) {
            debug!(peer = slot.neighbor.name, %family, "the peer begins to announce everything again");
        }
    }

    /// It has announced it, or has had its time.
    pub(super) fn sweep(&mut self, index: PeerIndex, family: Family) {
        self.pipeline.end_refresh(index, family);
        if let Some(slot) = self.slots.get(&index) {
            debug!(peer = slot.neighbor.name, %family, "what the peer has not announced again goes");
        }
    }

    /// The operator has a peer told everything again.
    pub(crate) fn announce_again(&mut self, index: PeerIndex, now: Instant) {
        let Some(slot) = self.slots.get(&index) else { return };
        for &family in &slot.neighbor.source.families {
            self.pipeline.announce_again(index, family);
        }
        let Some((key, connection)) = self.session_connection(index) else { return };
        Rc::clone(&connection.wake).notify_one();
        if let Some(held) = self.connections.get_mut(&key).and_then(|connection| connection.held.as_mut()) {
            (held.refreshing, held.progress.announcing) = (true, true);
            self.update_record(index, now);
        }
    }

    /// The operator has a peer asked for everything again; whether it can be: its session is up, and it answers.
    pub(crate) fn ask_again(&mut self, index: PeerIndex) -> bool {
        let negotiated = self.slots.get(&index).and_then(|slot| slot.session.negotiated());
        let Some(negotiated) = negotiated.filter(|negotiated| negotiated.route_refresh) else { return false };
        for family in negotiated.families.clone() {
            self.send_refresh(index, RouteRefresh::request(family).encode());
        }
        true
    }

    /// Tells a peer which prefixes we want, as configured, in the families in which it takes that (RFC 5291 section 6).
    /// It sends nothing before; of a family that we say nothing of everything is wanted.
    pub(crate) fn send_filters(&mut self, index: PeerIndex) {
        let Some(slot) = self.slots.get(&index) else { return };
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
        let Some((key, _)) = self.session_connection(index) else { return };
        if let (Some(connection), Some(slot)) = (self.connections.get_mut(&key), self.slots.get_mut(&index)) {
            slot.session.count_sent(MessageType::RouteRefresh, 1);
            connection.queue(Bytes::from(message), None);
            connection.count(&slot.session.counters().sent);
            connection.wake.notify_one();
        }
    }
}
