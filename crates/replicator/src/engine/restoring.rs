//! The engine's side of sessions that another router has had: when they are read from the store, and what became of them.

use std::time::{Duration, Instant};

use holdfast_api::replicator::v1::Kind;
use holdfast_restore::{Objects, Reading};
use holdfast_store::{Answer, Failure, Refused};
use holdfast_sys::clock;
use tracing::{error, info, warn};

use super::{Engine, random};
use crate::{
    lease::Lease,
    protection::Protection,
    table::Table,
    writer::{Phase, Writer},
};

/// A router that is nobody's standby waits no longer for a store that does not answer: its sessions begin anew.
const PATIENCE: Duration = Duration::from_secs(5);

/// A standby that takes over waits no longer for its manager to take the configuration of the other router.
pub(super) const ADOPTING: Duration = Duration::from_secs(2);

/// How far the sessions of another router are on their way here.
#[derive(Debug)]
pub(super) enum Restoring {
    /// It is not known whether there are any.
    Undecided,
    /// They are in the store, if there are any: `bgp` of this router has none of its own.
    Wanted,
    /// They are read.
    Reading(Box<Reading>),
    /// They have been: logs and sockets are to be made of them.
    Read(Objects, Instant),
    /// They are being made.
    Making,
    /// The sessions are here, or there are none.
    Over,
}

/// Whose the service addresses are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// This router's: it has the sessions, as far as there are some.
    Ours,
    /// Those of a router in the same network namespace: they stay there.
    Beside,
    /// Those of a router in another network namespace: here there are none.
    Elsewhere,
    /// It is not known: nothing changes.
    Undecided,
}

/// What a standby follows in the store.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Follows {
    /// How the router with the sessions is configured.
    Configuration,
    /// That, and what its peers say.
    Routes,
}

/// Whose standby this router is.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Standing {
    /// It was started as one.
    pub(super) is_standby: bool,
    /// It has seen another router have the lease.
    has_seen: bool,
    /// The operator says that the other router is dead.
    is_confirmed: bool,
}

impl Standing {
    fn standby() -> Self {
        Self { is_standby: true, ..Self::default() }
    }

    /// Whether it may have the lease if that is free.
    pub(super) fn may_take(self) -> bool {
        !self.is_standby || self.has_seen || self.is_confirmed
    }

    pub(super) fn sees_another(&mut self) {
        self.has_seen = true;
    }
}

/// Why a router is not to take over, or not to become a standby.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotNow {
    #[error("this router has the sessions already")]
    Primary,
    #[error("another router has the lease still: it ends within 3 s of the death of that router")]
    Held,
    #[error("this router has not lost its sessions to another one")]
    NotFenced,
    #[error("the file of the lease cannot be written")]
    File,
    #[error(
        "this router is a standby, and has its configuration from the router with the sessions: commit there"
    )]
    Bound,
}

impl Engine {
    /// How the router was started.
    pub(crate) fn set_standby(&mut self, is_standby: bool) {
        self.standing.is_standby = is_standby;
    }

    /// What the router is to its sessions, for people.
    pub(crate) fn role(&self) -> &'static str {
        match (&self.lease, self.protection, &self.restoring) {
            (_, Protection::Fenced, _) => "fenced",
            (None, _, _) => "standby",
            (Some(_), _, Restoring::Over) => "primary",
            (Some(_), _, _) => "restoring",
        }
    }

    /// Whether `bgp` may begin: this router has the lease, and the sessions of the one before are here.
    pub(crate) fn is_ready(&self) -> bool {
        self.lease.is_some() && matches!(self.restoring, Restoring::Over) && !self.has_stand_ins
    }

    /// Whose the service addresses are.
    pub(crate) fn owner(&self) -> Owner {
        let is_fenced = self.protection == Protection::Fenced;
        match &self.lease {
            // While sessions are made, `remaking` says when addresses come.
            Some(_) if !is_fenced && !matches!(self.restoring, Restoring::Over) => Owner::Undecided,
            Some(_) if !is_fenced => Owner::Ours,
            // The store has had a router of a later epoch, which does not share the file.
            Some(lease) if !lease.is_taken() => Owner::Elsewhere,
            Some(_) => self.last_owner().unwrap_or(Owner::Elsewhere),
            None if self.is_held_elsewhere() => self.last_owner().unwrap_or(Owner::Undecided),
            None => Owner::Undecided,
        }
    }

    /// By the file of the lease, as far as it names namespaces.
    pub(super) fn last_owner(&self) -> Option<Owner> {
        let there = self.files.first().and_then(|file| Lease::namespace(file).ok())?;
        let is_known = there != 0 && self.namespace != 0;
        is_known.then_some(if there == self.namespace { Owner::Beside } else { Owner::Elsewhere })
    }

    fn is_held_elsewhere(&self) -> bool {
        let held = self.files.first().map(|file| Lease::is_held(file, clock::since_boot));
        held.is_some_and(|held| held.unwrap_or(false))
    }

    /// Until when service addresses may be put on interfaces and announced: CLOCK_BOOTTIME in nanoseconds, 0: they may not.
    pub(crate) fn addresses_until(&self) -> u64 {
        if self.protection == Protection::Fenced { 0 } else { self.lease_until() }
    }

    /// What it follows in the store meanwhile: routes only where no gate of another router stands, which has them in the same
    /// table of the kernel.
    pub(crate) fn follows(&self) -> Option<Follows> {
        let waits = self.standing.is_standby && self.lease.is_none() && self.protection != Protection::Fenced;
        let has_routes = self.configuration.preheated && self.is_complete && self.gate_stands;
        // Another kind of store cannot be read beside its writer.
        match self.configuration.kind() {
            Kind::Redis if waits && has_routes => Some(Follows::Routes),
            Kind::Redis if waits => Some(Follows::Configuration),
            Kind::Redis | Kind::File | Kind::Memory | Kind::Unspecified => None,
        }
    }

    /// The operator says that the router that had the sessions is dead.
    ///
    /// # Errors
    /// [`NotNow`]: it is not.
    pub(crate) fn confirm_dead(&mut self) -> Result<(), NotNow> {
        if self.lease.is_some() || self.protection == Protection::Fenced {
            return Err(NotNow::Primary);
        }
        self.standing.is_confirmed = true;
        self.take_lease(Instant::now());
        self.lease.is_some().then_some(()).ok_or(NotNow::Held)
    }

    /// A router that has lost its sessions to another one waits for them from now on.
    ///
    /// # Errors
    /// [`NotNow`]: it has not lost them, or the file of the lease cannot be written.
    pub(crate) fn reset(&mut self) -> Result<(), NotNow> {
        if self.protection != Protection::Fenced {
            return Err(NotNow::NotFenced);
        }
        if let Some(file) = self.files.first() {
            Lease::readmit(file).map_err(|_| NotNow::File)?;
        }
        // Its slots stay closed: what its old sockets have still to say says nothing of sessions that others have. They are swept
        // when the sessions are here again.
        self.tables.iter_mut().for_each(Table::forget);
        self.is_swept = false;
        (self.lease, self.tag_before) = (None, None);
        self.writer = Writer::new(0, random());
        self.protection = Protection::Beginning;
        (self.standing, self.restoring) = (Standing::standby(), Restoring::Undecided);
        (self.has_raised, self.has_said_lease, self.sessions_restored) = (false, false, (0, 0));
        // What the router before this one had is older than what runs here.
        self.sharing.hear(None);
        Ok(())
    }

    /// Finds out whether there is something to restore, and reads it. Whether a store of this host has answered already.
    pub(super) fn restore(&mut self, now: Instant) -> bool {
        if matches!(self.restoring, Restoring::Undecided) {
            if !self.is_complete {
                return false;
            }
            let has_log = || self.kept.keys().any(|key| key.split('@').next() == Some("log"));
            if !self.has_stand_ins && has_log() {
                // `bgp` of this router has sessions, or could have.
                self.restoring = Restoring::Over;
                return false;
            }
            // Once: the log of stand-ins may be told of for a while after they have gone.
            self.restoring = Restoring::Wanted;
        }
        if matches!(self.restoring, Restoring::Wanted) {
            self.begin_reading();
        }
        let since = *self.heard_at.get_or_insert(now);
        let mut has_asked = false;
        if let Restoring::Reading(reading) = &mut self.restoring
            && let Some(way) = &mut self.way
        {
            while let Some(request) = reading.ask() {
                way.ask(&request);
                has_asked = true;
            }
        }
        let is_reading =
            matches!(self.restoring, Restoring::Undecided | Restoring::Wanted | Restoring::Reading(_));
        let limit = self.store_timeout();
        let limit = if self.standing.is_standby { limit } else { limit.min(PATIENCE) };
        if is_reading && now.duration_since(since) >= limit {
            error!(
                event = "sessions-not-restored",
                "the store cannot be read in time: all sessions begin anew"
            );
            self.restoring = Restoring::Over;
        }
        has_asked
    }

    fn begin_reading(&mut self) {
        // Before anything is written the store is claimed: whoever had it writes no more.
        if self.writer.phase() == Phase::Copying {
            self.heard.0 = 0;
            self.restoring = match self.writer.counted_before() {
                Some(generation) => Restoring::Reading(Box::new(Reading::new(generation))),
                None => {
                    if self.standing.is_standby {
                        warn!(
                            event = "sessions-not-restored",
                            "the store has nothing: all sessions begin anew"
                        );
                    }
                    Restoring::Over
                }
            };
        }
    }

    /// Takes an answer that is one to the reader. `Err`: it is the writer's.
    pub(super) fn read(
        &mut self,
        answer: Result<Answer, Failure>,
        now: Instant,
    ) -> Result<(), Result<Answer, Failure>> {
        let (Phase::Copying, Restoring::Reading(reading)) = (self.writer.phase(), &mut self.restoring) else {
            return Err(answer);
        };
        // Nothing was written, so there is no other answer.
        let answer = match answer {
            Ok(answer) => answer,
            // In the place of an object: that is missing.
            Err(Failure::OtherData) if reading.awaits_range() => Answer::Refused(Refused::NotThere),
            Err(failure @ Failure::OtherData) => {
                error!(event = "sessions-not-restored", "the store cannot be read: {failure}");
                self.restoring = Restoring::Over;
                return Ok(());
            }
            Err(failure) => return Err(Err(failure)),
        };
        self.heard.0 += 1;
        if self.heard.0 > self.heard.1 {
            // What was read already is no progress: whoever ends each connection at the same place is waited for no longer.
            self.heard.1 = self.heard.0;
            self.heard_at = Some(now);
        }
        if let Err(damaged) = reading.answered(answer) {
            error!(event = "sessions-not-restored", "the store cannot be read: {damaged}");
            self.restoring = Restoring::Over;
            return Ok(());
        }
        let read = std::mem::replace(&mut self.restoring, Restoring::Making);
        self.restoring = match read {
            Restoring::Reading(reading) => match reading.finish_if_over() {
                Ok(objects) => {
                    self.sharing.hear(objects.configuration());
                    Restoring::Read(objects, now)
                }
                Err(reading) => Restoring::Reading(reading),
            },
            other => other,
        };
        Ok(())
    }

    /// The way to the store has ended: what was not read is read again.
    pub(super) fn read_again(&mut self) {
        if matches!(self.restoring, Restoring::Reading(_)) {
            self.restoring = Restoring::Wanted;
        }
    }

    /// What was read, once: whoever takes it says what has become of it. A standby is configured before as the other router was.
    pub(crate) fn take_read(&mut self, now: Instant) -> Option<Objects> {
        let Restoring::Read(_, since) = &self.restoring else { return None };
        if self.next_shared().is_some() && now.duration_since(*since) < ADOPTING {
            return None;
        }
        match std::mem::replace(&mut self.restoring, Restoring::Making) {
            Restoring::Read(objects, _) => Some(objects),
            _ => None,
        }
    }

    /// The gate stands everywhere: whoever had the queue is dead.
    pub(crate) fn gate_stands_now(&mut self) {
        self.gate_stands = true;
        self.missing.clear();
    }

    /// Sessions are made that the store has. What it does not have waits from now on. What an attempt before has made is no more.
    pub(crate) fn remakes(&mut self) {
        self.free_all();
        // By a log that this router has had before, sessions of the same numbers would get slots, and lose them with that log.
        self.tables.iter_mut().for_each(Table::forget);
        self.protection = Protection::Waiting;
    }

    /// So many sessions are here, and so many could not be made again. Their slots say what the store has of them.
    pub(crate) fn restored(&mut self, here: u32, not: u32) {
        self.sessions_restored = (here, not);
        self.has_news = true;
        self.restoring = Restoring::Over;
        if here > 0 {
            info!(
                event = "sessions-restored",
                sessions = here,
                lost = not,
                "sessions of another router go on"
            );
        } else if not > 0 {
            warn!(event = "sessions-restored", sessions = here, lost = not, "no session goes on");
        }
    }

    /// Says that this process is well. Another router may have the lease by now: then nothing is said any more, for good.
    pub(super) fn renew_lease(&mut self) {
        let is_held = self.lease.as_mut().is_none_or(|lease| lease.renew(clock::since_boot()));
        if let Some(lease) = self.lease.as_ref().filter(|_| is_held) {
            lease.set_configuration(self.sharing.runs());
        }
        if !is_held && self.protection != Protection::Fenced {
            error!(event = "fenced", "another router has the lease: nothing leaves this one any more");
            self.writer.give_up();
            self.way = None;
            self.protection = Protection::Fenced;
        }
    }

    /// This router has lost its sessions before the process began: it is no other than if this one had seen it.
    pub(super) fn begin_fenced(&mut self) {
        error!(
            event = "fenced",
            "another router has had the sessions since: this one waits for the operator"
        );
        self.writer.give_up();
        self.protection = Protection::Fenced;
        self.publish();
    }

    /// Until when the gate may let something leave.
    pub(super) fn lease_until(&self) -> u64 {
        self.lease.as_ref().map_or(0, Lease::until)
    }
}
