//! Routes of a peer whose session has ended and who is to come back: how long they stay (RFC 4724 section 4.2).
//!
//! ```text
//!  session ends ──> Away ──restart timer──> forgotten
//!                    │
//!                  session up, F bit set ──> Back ──End-of-RIB, or stale timer──> forgotten
//! ```

use std::time::{Duration, Instant};

use holdfast_types::Family;

use crate::{DownReason, Negotiated, PeerConfig, config::Graceful};

/// The families of which routes stay, each until then. A time after the end of time is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retention(Vec<(Family, Option<Instant>)>);

impl Retention {
    /// The session has ended: what stays of it. What stayed of an earlier one does not any more (RFC 4724 section 4.2).
    pub(crate) fn begin(
        &mut self,
        config: &PeerConfig,
        agreed: &Negotiated,
        reason: &DownReason,
        now: Instant,
    ) -> Vec<Family> {
        self.0.clear();
        let Some(theirs) = agreed.graceful_restart.as_ref() else { return Vec::new() };
        if config.graceful_restart == Graceful::Off || !survives(agreed, reason) {
            return Vec::new();
        }
        let common = theirs.families.iter().map(|entry| entry.family);
        let common: Vec<_> = common.filter(|family| agreed.families.contains(family)).collect();
        self.0 = common.iter().map(|family| (*family, now.checked_add(theirs.time))).collect();
        common
    }

    /// The peer is back: what does not stay, as it has not kept its forwarding state.
    pub(crate) fn peer_is_back(&mut self, agreed: &Negotiated, stale: Duration, now: Instant) -> Vec<Family> {
        let preserved = |family: Family| {
            let theirs = agreed.graceful_restart.as_ref();
            let entry = theirs.and_then(|theirs| theirs.families.iter().find(|entry| entry.family == family));
            agreed.families.contains(&family) && entry.is_some_and(|entry| entry.forwarding)
        };
        let gone = self.0.extract_if(.., |(family, _)| !preserved(*family));
        let gone = gone.map(|(family, _)| family).collect();
        self.0.iter_mut().for_each(|(_, until)| *until = now.checked_add(stale));
        gone
    }

    /// The peer has sent everything of a family; whether something of it had stayed.
    pub(crate) fn end_of_rib(&mut self, family: Family) -> bool {
        let before = self.0.len();
        self.0.retain(|(kept, _)| *kept != family);
        self.0.len() < before
    }

    /// The next time at which something does not stay any more.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|(_, until)| *until).min()
    }

    /// What has stayed for too long.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Family> {
        let over = self.0.extract_if(.., |(_, until)| until.is_some_and(|until| until <= now));
        over.map(|(family, _)| family).collect()
    }

    /// Nothing stays.
    pub(crate) fn end(&mut self) {
        self.0.clear();
    }

    /// The families of which something stays.
    pub(crate) fn families(&self) -> impl Iterator<Item = Family> {
        self.0.iter().map(|(family, _)| *family)
    }
}

/// Whether the end of the session says that the peer forwards on. With RFC 8538 a NOTIFICATION is no more than a broken
/// connection, unless it is a hard reset; what is stopped here is meant to be over.
fn survives(agreed: &Negotiated, reason: &DownReason) -> bool {
    let notified = agreed.survives_notifications();
    match reason {
        DownReason::Lost(_) | DownReason::Replaced => true,
        DownReason::Received(notification) => notified && !notification.is_hard_reset(),
        DownReason::Sent(_) => notified,
        DownReason::Stopped(reason) => notified && !reason.is_final(),
    }
}
