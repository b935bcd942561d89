//! Routes of a peer whose session has ended and who is to come back: how long they stay (RFC 4724 section 4.2).
//!
//! ```text
//!  session ends ──> Away ──restart timer──> LongLived ──its timer──> forgotten
//!                    │                          │
//!                  session up, F bit set ──> Back ──End-of-RIB, or stale timer──> forgotten
//! ```
//! Without a time of RFC 9494 there is no LongLived: they are forgotten when the restart timer expires.

use std::{
    io,
    time::{Duration, Instant},
};

use holdfast_config::schema::GracefulRestart;
use holdfast_types::Family;

use crate::{DownReason, Negotiated, PeerConfig, timer::earlier};

/// The families of which routes stay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retention(Vec<Kept>);

#[derive(Clone, Debug)]
struct Kept {
    family: Family,
    /// The next timer; none that would expire after the end of time.
    until: Option<Instant>,
    /// How long they stay when the peer is away for too long.
    long_lived: Duration,
}

/// What a timer means for a family.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    /// Its routes are the last resort from now on (RFC 9494 section 4.3).
    LongLived,
    /// They go.
    Over,
}

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
        if config.rules.graceful_restart == GracefulRestart::Off || !survives(agreed, reason) {
            return Vec::new();
        }
        let kept = |family: &Family| {
            let long = agreed.long_lived.iter().flatten().find(|entry| entry.family == *family);
            let long = long.map_or(Duration::ZERO, |entry| Duration::from_secs(entry.time.into()));
            let long_lived = long.min(config.rules.long_lived_stale_time);
            // RFC 9494 section 4.2: of a family that only the newer capability names, the restart time is zero.
            let named = theirs.families.iter().any(|entry| entry.family == *family);
            // RFC 8538 section 4.1: the stale timer bounds what the peer asks for.
            let time = if named { theirs.time.min(config.rules.stale_time) } else { Duration::ZERO };
            let until = now.checked_add(time);
            (named || !long_lived.is_zero()).then_some(Kept { family: *family, until, long_lived })
        };
        self.0 = agreed.families.iter().filter_map(kept).collect();
        self.families().collect()
    }

    /// The peer is back: what does not stay, as it has not kept its forwarding state.
    pub(crate) fn peer_is_back(&mut self, agreed: &Negotiated, stale: Duration, now: Instant) -> Vec<Family> {
        let restart = agreed.graceful_restart.as_ref().map(|theirs| &theirs.families);
        let preserved = |family: Family| {
            let restart = restart.into_iter().flatten().find(|entry| entry.family == family);
            let long = agreed.long_lived.iter().flatten().find(|entry| entry.family == family);
            agreed.families.contains(&family)
                && (restart.is_some_and(|entry| entry.forwarding)
                    || long.is_some_and(|entry| entry.forwarding))
        };
        let gone = self.0.extract_if(.., |kept| !preserved(kept.family));
        let gone = gone.map(|kept| kept.family).collect();
        for kept in &mut self.0 {
            (kept.until, kept.long_lived) = (now.checked_add(stale), Duration::ZERO);
        }
        gone
    }

    /// The peer has sent everything of a family; whether something of it had stayed.
    pub(crate) fn end_of_rib(&mut self, family: Family) -> bool {
        let before = self.0.len();
        self.0.retain(|kept| kept.family != family);
        self.0.len() < before
    }

    /// The next time at which something does not stay any more, or not as it was.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|kept| kept.until).min()
    }

    /// What has stayed for too long.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<(Family, Expired)> {
        let is_due = |kept: &Kept| kept.until.is_some_and(|until| until <= now);
        let mut expired = Vec::new();
        for kept in self.0.iter_mut().filter(|kept| is_due(kept)) {
            match std::mem::take(&mut kept.long_lived) {
                Duration::ZERO => expired.push((kept.family, Expired::Over)),
                time => {
                    kept.until = now.checked_add(time);
                    expired.push((kept.family, Expired::LongLived));
                }
            }
        }
        self.0.retain(|kept| !is_due(kept));
        expired
    }

    /// So much time has passed that the clock did not count.
    pub(crate) fn bring_forward(&mut self, by: Duration, now: Instant) {
        let deadlines = self.0.iter_mut().filter_map(|kept| kept.until.as_mut());
        deadlines.for_each(|deadline| *deadline = earlier(*deadline, by, now));
    }

    /// Nothing stays.
    pub(crate) fn end(&mut self) {
        self.0.clear();
    }

    /// The families of which something stays.
    pub(crate) fn families(&self) -> impl Iterator<Item = Family> {
        self.0.iter().map(|kept| kept.family)
    }
}

/// Whether the end of the session says that the peer forwards on. With RFC 8538 a NOTIFICATION is no more than a broken
/// connection, unless it is a hard reset; what is stopped here is meant to be over. Over a link that is down nothing is forwarded.
fn survives(agreed: &Negotiated, reason: &DownReason) -> bool {
    let notified = agreed.survives_notifications();
    match reason {
        DownReason::Lost(Some(io::ErrorKind::NetworkDown)) => false,
        DownReason::Lost(_) | DownReason::Replaced => true,
        // RFC 5882 section 4.3: what is lost is forwarding.
        DownReason::BfdDown => false,
        DownReason::Received(notification) => notified && !notification.is_hard_reset(),
        DownReason::Sent(_) => notified,
        DownReason::Stopped(reason) => notified && !reason.is_final(),
    }
}
