//! What is told of what happens: to the log, to those who watch, and to the profiling points.
//!
//! Each line about a peer has one method here, which knows how many there may be: a peer can have as many events as it
//! likes.

mod lines;
mod watching;

use std::{net::IpAddr, time::Instant};

use holdfast_bgp_pipeline::{
    DropReason, Dropped, Drops, MOST_ORF_ENTRIES, OrfOutcome, Pipeline, SessionFacts, TooManySessions,
    Violation,
};
use holdfast_bgp_session::{Crossing, Level, Negotiated, SessionEvent};
use holdfast_process::profile::Profile;
use holdfast_types::{Family, Prefix};
use tracing::{debug, error, info, warn};

use self::lines::{About, Lines};
use crate::{
    bfd::diagnostic,
    config::Neighbor,
    nonstop::Unprotected,
    points::Points,
    sessions::{facts::has_next_hop, slot::Slot},
    watch::Watchers,
};

/// Who is told what happens.
pub(crate) struct Reporter {
    /// Where it is noted that routes pass; to be set to those of the process.
    pub(crate) points: Points,
    pub(crate) watchers: Watchers,
    lines: Lines,
}

impl Reporter {
    pub(crate) fn new() -> Self {
        Self {
            points: Points::of(&Profile::default()),
            watchers: Watchers::default(),
            lines: Lines::default(),
        }
    }

    /// The pipeline is about to change.
    pub(crate) fn changing(&mut self, pipeline: &Pipeline) {
        self.points.changing(pipeline);
        self.watchers.changing(pipeline);
    }

    /// It has changed.
    pub(crate) fn changed(&mut self, pipeline: &mut Pipeline) {
        self.points.changed(pipeline);
        self.watchers.changed(pipeline);
    }

    // Connections.

    /// Whether a line may be written about connections of a peer or a range.
    pub(crate) fn may_log(&mut self, name: &str, now: Instant) -> bool {
        self.lines.may(About::Connections, name, now)
    }

    /// Somebody on the link of a neighbour without address is not the router that the session is with.
    pub(crate) fn another_router(&mut self, neighbor: &Neighbor, address: IpAddr, now: Instant) {
        if self.may_log(&neighbor.source.name, now) {
            let (peer, interface) = (&neighbor.name, neighbor.location.interface());
            warn!(
                event = "connection-refused",
                peer, %address, "the session is with another router on {interface}"
            );
        }
    }

    // Sessions.

    /// Whether a line may be written about a peer's session.
    fn may(&mut self, slot: &Slot, now: Instant) -> bool {
        self.may_of(&slot.neighbor, now)
    }

    fn may_of(&mut self, neighbor: &Neighbor, now: Instant) -> bool {
        self.lines.may(About::Sessions, &neighbor.source.name, now)
    }

    /// One line per change of adjacency, and one for what connecting fails with when that is something else than before; other
    /// attempts that failed are for debugging.
    pub(crate) fn session(&mut self, slot: &mut Slot, event: &SessionEvent, now: Instant) {
        let neighbor = &slot.neighbor;
        let (peer, address) = (neighbor.name.as_str(), &neighbor.location);
        match event {
            SessionEvent::ConnectFailed(why) if slot.failed == *why => {
                debug!(peer, %address, "{event}");
            }
            SessionEvent::ConnectTimedOut if slot.unanswered => debug!(peer, %address, "{event}"),
            _ if !self.lines.may(about(event), &neighbor.source.name, now) => {}
            SessionEvent::ConnectTimedOut => {
                info!(event = "connect-failed", peer, %address, "{event}");
                slot.unanswered = true;
            }
            SessionEvent::ConnectFailed(why) => {
                info!(event = "connect-failed", peer, %address, "{event}");
                slot.failed.clone_from(why);
            }
            SessionEvent::AwaitsBfd(_) => info!(event = "bfd-awaited", peer, %address, "{event}"),
            SessionEvent::Established(_) => info!(event = "session-up", peer, %address, "{event}"),
            SessionEvent::Down(_) => warn!(event = "session-down", peer, %address, "{event}"),
            SessionEvent::RefreshTooEarly(_) | SessionEvent::RefreshTooLong(_) => {
                warn!(event = "refresh-failed", peer, %address, "{event}");
            }
            SessionEvent::Refused(_) | SessionEvent::CollisionLost(_) => {
                info!(event = "connection-refused", peer, %address, "{event}");
            }
            SessionEvent::OpenFailed(..) | SessionEvent::WithoutCapabilities => {
                info!(event = "session-failed", peer, %address, "{event}");
            }
        }
    }

    /// BFD was up, and is down.
    pub(crate) fn bfd_down(&mut self, slot: &Slot, number: u32, now: Instant) {
        if self.may(slot, now) {
            let (peer, address) = (&slot.neighbor.name, &slot.neighbor.location);
            warn!(event = "peer-bfd-down", peer, %address, "BFD is down: {}", diagnostic(number));
        }
    }

    /// A session is down, and its routes are kept.
    pub(crate) fn routes_kept(&mut self, slot: &Slot, now: Instant) {
        if self.may(slot, now) {
            let peer = &slot.neighbor.name;
            info!(event = "routes-kept", peer, "its routes stay until it is back and has sent them again");
        }
    }

    pub(crate) fn out_of_sessions(&mut self, slot: &Slot, error: &TooManySessions, now: Instant) {
        if self.may(slot, now) {
            warn!(event = "too-many-sessions", peer = slot.neighbor.name, "{error}");
        }
    }

    /// A session has come up: in some family there may be no address of ours for the next hop.
    pub(crate) fn next_hops(&mut self, slot: &Slot, facts: &SessionFacts, now: Instant) {
        let missing = facts.families.iter().filter(|family| !has_next_hop(facts, **family));
        for family in missing.filter(|_| self.may(slot, now)) {
            let peer = &slot.neighbor.name;
            warn!(event = "no-next-hop", peer, %family, "no own address of this family for the next hop: \
                set next-hop-ipv4 or next-hop-ipv6; only routes that keep their next hop are announced");
        }
    }

    /// A peer cannot be asked for its routes again.
    pub(crate) fn no_refresh(&mut self, slot: &Slot, now: Instant) {
        if self.may(slot, now) {
            let peer = &slot.neighbor.name;
            warn!(
                event = "no-refresh",
                peer,
                "does not know route refresh: its paths with AS_SETs are taken when \
                it announces them again"
            );
        }
    }

    /// Messages of a peer waited here past its hold time, since `at`.
    pub(crate) fn late(&mut self, slot: &Slot, at: Instant, now: Instant) {
        if self.may(slot, now) {
            let (peer, late_ms) = (&slot.neighbor.name, now.saturating_duration_since(at).as_millis());
            warn!(event = "loop-late", peer, late_ms, "messages of the peer waited here past its hold time");
        }
    }

    pub(crate) fn too_slow(&mut self, slot: &Slot, now: Instant) {
        if self.may(slot, now) {
            warn!(
                event = "peer-too-slow",
                peer = slot.neighbor.name,
                "reads too slowly for what it missed to be remembered: resetting"
            );
        }
    }

    /// A session has come up; it is said if it lacks BGPsec that is configured (RFC 8205 section 2.2).
    pub(crate) fn bgpsec(&mut self, slot: &Slot, negotiated: &Negotiated, now: Instant) {
        if negotiated.lacks_bgpsec && self.may(slot, now) {
            warn!(
                event = "bgpsec-not-agreed",
                peer = slot.neighbor.name,
                "the peer does not agree on all of BGPsec that is configured: see `show bgp neighbors`"
            );
        }
    }

    /// So many signatures of a peer were bad that its others wait. Said once until it has been waited for.
    pub(crate) fn bad_signatures(&self, slot: &Slot) {
        warn!(
            event = "bgpsec-bad-signatures",
            peer = slot.neighbor.name,
            "too many bad signatures: further routes of the peer stay unverified for now"
        );
    }

    /// A route fits no message to a peer. Said once in a session.
    pub(crate) fn route_too_long(&self, slot: &Slot, prefix: Prefix) {
        let peer = &slot.neighbor.name;
        warn!(
            event = "route-too-long",
            peer,
            %prefix,
            "{prefix} fits no message to the peer and is withdrawn, as others may be: see `show bgp neighbors {peer} withheld-routes`"
        );
    }

    /// A session is not protected any more, for want of room.
    pub(crate) fn log_full(&self, slot: &Slot) {
        warn!(
            event = "protection-lost",
            peer = slot.neighbor.name,
            "session is no longer protected: {}",
            Unprotected::LogFull.text()
        );
    }

    // Stages.

    /// A stage that rewrites has answered with what is no route.
    pub(crate) fn bad_answer(
        &mut self,
        stage: &'static str,
        slot: holdfast_bgp_pipeline::Slot,
        now: Instant,
    ) {
        if self.lines.may(About::Stages, stage, now) {
            warn!(
                event = "stage-answer-bad",
                stage, %slot, "its answer cannot be a route's attributes: routes with them do not pass"
            );
        }
    }

    /// A change in the pipeline does not follow from those before it.
    pub(crate) fn violation(&mut self, violation: &Violation, now: Instant) {
        if self.lines.may(About::Stages, "consistency-check", now) {
            let prefix = violation.event.prefix;
            error!(event = "consistency-violated", %prefix, "a fault in this router, not of a peer: {violation}");
        }
    }

    // Limits.

    /// A count of prefixes is near its limit now, or above it.
    pub(crate) fn prefixes(&mut self, neighbor: &Neighbor, crossing: &Crossing, now: Instant) {
        if !self.may_of(neighbor, now) {
            return;
        }
        let Crossing { family, counted, count, limit, level } = *crossing;
        let peer = &neighbor.name;
        match level {
            Level::Fine => {}
            Level::Near => {
                warn!(event = "prefixes-near-limit", peer, %family, %counted, count, limit, "{counted} prefixes are near their limit");
            }
            Level::Over => {
                warn!(event = "prefixes-over-limit", peer, %family, %counted, count, limit, "{counted} prefixes are above their limit");
            }
        }
    }

    /// What is kept for a peer is.
    pub(crate) fn octets(&mut self, slot: &Slot, kept: u64, now: Instant) {
        if !self.may(slot, now) {
            return;
        }
        let (peer, limit) = (&slot.neighbor.name, slot.neighbor.source.rules.max_octets.octets());
        match slot.octets {
            Level::Fine => {}
            Level::Near => {
                warn!(
                    event = "octets-near-limit",
                    peer, kept, limit, "what is kept for it is near its limit"
                );
            }
            Level::Over => warn!(
                event = "octets-over-limit",
                peer, kept, limit, "what is kept for it is above its limit"
            ),
        }
    }

    /// What others wait for it is.
    pub(crate) fn cost(&mut self, slot: &Slot, percent: u32, now: Instant) {
        if !self.may(slot, now) {
            return;
        }
        let (peer, limit) = (&slot.neighbor.name, slot.neighbor.source.rules.max_cost.map_or(0, u32::from));
        match slot.cost_level {
            Level::Fine => {}
            Level::Near => warn!(
                event = "cost-near-limit",
                peer, percent, limit, "what others wait for it is near its limit"
            ),
            Level::Over => warn!(
                event = "cost-over-limit",
                peer, percent, limit, "what others wait for it is above its limit"
            ),
        }
    }

    // Messages.

    /// The last `new` of what was wrong in a peer's UPDATEs, with the whole of the UPDATE (RFC 7606 section 6). A peer can have
    /// that happen as often as it likes, so these lines are counted apart from its others.
    #[cold]
    pub(crate) fn dropped(&mut self, slot: &Slot, drops: &Drops, new: u64, body: &[u8], now: Instant) {
        let new = usize::try_from(new).unwrap_or(usize::MAX);
        for Dropped { prefix, routes, reason } in drops.last().rev().take(new).rev() {
            let peer = &slot.neighbor.name;
            let prefix = prefix.map(|prefix| prefix.to_string()).unwrap_or_default();
            if matches!(reason, DropReason::Discarded(_)) {
                debug!(peer, prefix, routes, "{reason}");
            } else if self.lines.may(About::Drops, &slot.neighbor.source.name, now) {
                let update = hex(body);
                warn!(event = "routes-dropped", peer, prefix, routes, update, "{reason}");
            }
        }
    }

    /// A peer has sent a filter of what it is to be told.
    pub(crate) fn filter(
        &mut self,
        slot: &Slot,
        family: Family,
        outcome: OrfOutcome,
        at_once: bool,
        now: Instant,
    ) {
        let (peer, is_new) = (&slot.neighbor.name, !slot.is_replaying());
        match outcome {
            OrfOutcome::Taken(entries) => {
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
}

fn about(event: &SessionEvent) -> About {
    match event {
        SessionEvent::Established(_) | SessionEvent::Down(_) => About::Sessions,
        SessionEvent::RefreshTooEarly(_) | SessionEvent::RefreshTooLong(_) => About::Refreshes,
        SessionEvent::ConnectFailed(_)
        | SessionEvent::ConnectTimedOut
        | SessionEvent::Refused(_)
        | SessionEvent::CollisionLost(_)
        | SessionEvent::OpenFailed(..)
        | SessionEvent::AwaitsBfd(_)
        | SessionEvent::WithoutCapabilities => About::Connections,
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
