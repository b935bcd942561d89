//! How connections end, and the pause before the next attempt.

use std::time::{Duration, Instant};

use holdfast_bgp_wire::{CeaseSubcode, MessageType, Notification};
use holdfast_types::Family;

use super::{Activity, Peer};
use crate::{
    DownReason, Noted, Output, SessionEvent, StopReason, Timer,
    connection::{Connection, Established, Phase},
    input::AfterStop,
    refresh::Refreshes,
};

impl Peer {
    /// ManualStop or AutomaticStop (events 2 and 8).
    pub(super) fn stop(&mut self, reason: StopReason, now: Instant) {
        if self.activity == Activity::Stopped {
            return;
        }
        self.drop_dial();
        if reason.is_final() {
            self.forget_retained();
        }
        // The session last: attempts beside it end in the same order whatever place they have.
        for ends_session in [false, true] {
            for slot in 0..self.connections.len() {
                let is_session = self.connections[slot]
                    .as_ref()
                    .is_some_and(|connection| connection.established().is_some());
                if is_session == ends_session {
                    self.finish(slot, DownReason::Stopped(reason.clone()), now);
                }
            }
        }
        self.plain = !self.config.capabilities;
        match reason.after() {
            AfterStop::Stay => {
                self.failures = 0;
                self.rest(Activity::Stopped);
            }
            AfterStop::Restart => {
                self.failures = 0;
                let pause = self.pause_after(1);
                self.hold(pause, now);
            }
            // Event 8 is ignored in Idle.
            AfterStop::BackOff if self.activity == Activity::Held => {}
            AfterStop::BackOff => self.fail(now),
            AfterStop::RestartAfter(pause) => self.hold(pause, now),
        }
    }

    /// What stays of a session that has ended before goes.
    pub(super) fn forget_retained(&mut self) {
        for family in self.retention.families().collect::<Vec<_>>() {
            self.out.push(Output::Forget(family));
        }
        self.retention.end();
    }

    /// A connection ends by what came over it, or by a timer.
    pub(super) fn end(&mut self, slot: usize, reason: DownReason, now: Instant) {
        let knows_no_capabilities = is_unsupported_optional_parameter(&reason);
        let is_no_failure = matches!(reason, DownReason::Lost(_)) || is_rejected(&reason);
        let Some(ended) = self.finish(slot, reason, now) else { return };
        if knows_no_capabilities {
            self.change_capabilities(&ended);
        }
        if self.has_open_connection() {
            return;
        }
        match ended.phase {
            // RFC 4271 section 8.2.2: on to Active, and no failure is counted. A peer that is Idle says so, or just closes.
            Phase::OpenSent | Phase::AwaitsBfd { .. } if is_no_failure => self.restart_connect_retry(now),
            Phase::Connect
            | Phase::OpenSent
            | Phase::AwaitsBfd { .. }
            | Phase::OpenConfirm(_)
            | Phase::Established(_) => self.fail(now),
        }
    }

    /// RFC 5492 section 3: the next OPEN goes without capabilities; if that one was refused too, with them
    /// again. Only IPv4 unicast works without, no role can be told, and nothing of BGPsec is agreed on.
    fn change_capabilities(&mut self, refused: &Connection) {
        let has_to_tell_role = self.config.role.is_some() && self.config.rules.role_strict;
        let needed = has_to_tell_role || self.config.bgpsec.require_session;
        if self.config.capabilities && !needed && self.config.families.contains(&Family::IPV4_UNICAST) {
            self.plain = !refused.plain;
            if self.plain {
                self.out.log(SessionEvent::WithoutCapabilities);
            }
        }
    }

    /// Takes a connection away and tells what became of it.
    pub(super) fn finish(&mut self, slot: usize, reason: DownReason, now: Instant) -> Option<Connection> {
        let ended = self.retire(slot, &reason, now)?;
        match ended.established() {
            Some(session) => self.down(session, reason, now),
            None => self.failed(SessionEvent::OpenFailed(ended.role, reason), now),
        }
        Some(ended)
    }

    fn down(&mut self, session: &Established, reason: DownReason, now: Instant) {
        // Who ends it by what it sends does so again, however long that takes (DampPeerOscillations, RFC 4271 section 8.1).
        let is_excess =
            matches!(reason, DownReason::Stopped(StopReason::MaxOctets { .. } | StopReason::MaxCost { .. }));
        let lived = now.saturating_duration_since(session.since);
        if !is_excess && lived >= self.config.idle_hold.forgiven_after {
            self.failures = 0;
        }
        // The peer may come back with another software.
        self.plain = !self.config.capabilities;
        self.history.last_down = Some((now, reason.clone()));
        self.refreshes = Refreshes::default();
        let retained = self.retention.begin(&self.config, &session.negotiated, &reason, now);
        self.out.push(Output::Down { reason: reason.clone(), retained });
        self.out.log(SessionEvent::Down(reason));
    }

    /// Takes an open connection away: NOTIFICATION, if there is anyone to read it, then close.
    pub(super) fn retire(&mut self, slot: usize, reason: &DownReason, now: Instant) -> Option<Connection> {
        let ended = self.connections[slot].take()?;
        let id = ended.link.id;
        if let Some(notification) = farewell(reason, ended.established()) {
            self.out.send(id, MessageType::Notification, notification.encode());
            self.history.last_sent = Some(Noted { at: now, notification });
        }
        match reason {
            // The driver has released it.
            DownReason::Lost(_) => return Some(ended),
            // What ended the session before says more.
            DownReason::Received(_) if is_rejected(reason) => {}
            DownReason::Received(notification) => {
                self.history.last_received = Some(Noted { at: now, notification: notification.clone() });
            }
            DownReason::Stopped(_) | DownReason::Sent(_) | DownReason::BfdDown | DownReason::Replaced => {}
        }
        self.out.push(Output::Close(id));
        Some(ended)
    }

    /// Counts a failure and goes to Idle for a while.
    fn fail(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.drop_dial();
        let pause = self.pause_after(self.failures);
        self.hold(pause, now);
    }

    fn pause_after(&mut self, failures: u32) -> Duration {
        let pause = self.jitter.apply(self.config.idle_hold.pause(failures));
        if self.config.rules.passive { pause / 2 } else { pause }
    }

    fn hold(&mut self, pause: Duration, now: Instant) {
        self.rest(Activity::Held);
        self.timers.start(Timer::IdleHold, now, pause);
    }

    fn rest(&mut self, activity: Activity) {
        self.activity = activity;
        self.timers.stop(Timer::ConnectRetry);
        self.timers.stop(Timer::IdleHold);
    }
}

/// What the peer is told. What is meant to be over says so where a NOTIFICATION would not (RFC 8538 section 3).
fn farewell(reason: &DownReason, session: Option<&Established>) -> Option<Notification> {
    let stays = session.is_some_and(|session| session.negotiated.survives_notifications());
    match reason {
        DownReason::Stopped(reason) if stays && reason.is_final() => Some(reason.notification().hard_reset()),
        DownReason::Stopped(reason) => Some(reason.notification()),
        DownReason::Sent(notification) => Some(notification.clone()),
        // RFC 9384 section 3: its routes are not to stay, nor ours there.
        DownReason::BfdDown if stays => Some(Notification::cease(CeaseSubcode::BfdDown).hard_reset()),
        DownReason::BfdDown => Some(Notification::cease(CeaseSubcode::BfdDown)),
        DownReason::Replaced => Some(Notification::cease(CeaseSubcode::ConnectionCollisionResolution)),
        DownReason::Received(_) | DownReason::Lost(_) => None,
    }
}

/// The peer does not take a connection now (RFC 4486 section 4).
fn is_rejected(reason: &DownReason) -> bool {
    let rejected = CeaseSubcode::ConnectionRejected as u8;
    matches!(reason, DownReason::Received(Notification { code: 6, subcode, .. }) if *subcode == rejected)
}

fn is_unsupported_optional_parameter(reason: &DownReason) -> bool {
    matches!(reason, DownReason::Received(Notification { code: 2, subcode: 4, .. }))
}
