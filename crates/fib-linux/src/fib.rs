//! The backend `linux`.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use holdfast_fib::{Fib, FibError, Handle, NextHops, Report, RouteChange};
use holdfast_types::{Afi, Prefix};

use crate::{
    comparison::Comparison,
    fights::Fights,
    message::kind,
    mirror::{Mirror, State},
    objects::{Defined, ObjectIds, Objects},
    request::{MESSAGES_MAX, Requests},
    rewriting::Unsettled,
    route::{self, Ownership},
    socket::socket,
    sync::{Leftover, RouteDump},
    watch::Watch,
    writes::Write,
};

/// A table of the kernel, and what other programs do to it. Routes in other tables are not seen, whoever has made them.
pub struct LinuxFib {
    pub(crate) ours: Ownership,
    pub(crate) requests: Requests,
    pub(crate) dump: RouteDump,
    pub(crate) watch: Watch,
    pub(crate) objects: Objects,
    pub(crate) mirror: Mirror,
    pub(crate) sync: Option<Sync>,
    pub(crate) comparison: Option<Comparison>,
    /// IPv6 routes that were written or deleted.
    pub(crate) ipv6_written: u64,
    pub(crate) unsettled: Unsettled,
    pub(crate) fights: Fights,
    /// Routes in our name that nobody wants, with their metric.
    pub(crate) strays: Vec<(Prefix, u32)>,
    pub(crate) report: Report,
    pub(crate) loss: Option<String>,
    /// An object may be gone, or be another one: compare before the next change.
    pub(crate) objects_doubtful: bool,
    /// The table may have changed without a word.
    pub(crate) table_doubtful: bool,
}

pub(crate) struct Sync {
    pub(crate) leftover: Leftover,
    pub(crate) phase: Phase,
}

pub(crate) enum Phase {
    Dump,
    /// Between the dump and the end of the sync.
    Apply,
    Delete,
}

impl LinuxFib {
    /// A table in the network namespace of the calling thread.
    ///
    /// # Errors
    /// When no netlink socket can be had, as without CAP_NET_ADMIN.
    pub fn open(ours: Ownership) -> io::Result<Self> {
        Self::over([socket()?, socket()?, socket()?], ours)
    }

    /// Over sockets that nobody has used, all of one namespace, in which the table is.
    ///
    /// # Errors
    /// When the kernel does not take their options.
    pub fn over([requests, dump, watch]: [OwnedFd; 3], ours: Ownership) -> io::Result<Self> {
        Ok(Self {
            ours,
            requests: Requests::over(requests)?,
            dump: RouteDump::new(Requests::over(dump)?, ours),
            watch: Watch::over(watch, ours)?,
            objects: Objects::new(ObjectIds::of(ours.table)),
            mirror: Mirror::new(),
            sync: None,
            comparison: None,
            ipv6_written: 0,
            unsettled: Unsettled::default(),
            fights: Fights::default(),
            strays: Vec::new(),
            report: Report::default(),
            loss: None,
            objects_doubtful: false,
            table_doubtful: false,
        })
    }

    fn note(&mut self, handle: Handle, defined: Defined) {
        if let Some(error) = defined.refused {
            self.report.refuse(format!("next hops {}", handle.0), error);
        }
        self.report.refused.set_handle(handle, self.objects.why_refused(handle));
        if defined.compared {
            self.note_refused();
        }
        self.settle_objects();
    }

    /// Notes which handles the kernel has nothing for, after a comparison with it.
    fn note_refused(&mut self) {
        self.objects.refused().for_each(|(handle, refused)| self.report.refused.set_handle(handle, refused));
    }

    /// What has become of objects is known: the routes that depend on it are to be written again.
    fn settle_objects(&mut self) {
        for (handle, fate) in self.objects.take_rewrites() {
            self.mirror.tally.slots.retire(handle, fate);
        }
        self.report.counters.next_hops = self.objects.len() as u64;
    }

    /// Compares the objects with the kernel's.
    pub(crate) fn compare_objects(&mut self) -> io::Result<()> {
        self.objects.compare(&mut self.requests)?;
        self.note_refused();
        self.settle_objects();
        Ok(())
    }

    /// Puts the objects back in step with the kernel's. What is still refused has been reported before.
    pub(crate) fn repair_objects(&mut self) -> io::Result<()> {
        self.objects_doubtful = false;
        self.objects.compare(&mut self.requests)?;
        self.report.repairs.next_hops += self.objects.retry(&mut self.requests)?;
        self.note_refused();
        self.settle_objects();
        Ok(())
    }

    fn finish_dump(&mut self) -> Result<(), FibError> {
        while self.sync.as_ref().is_some_and(|sync| matches!(sync.phase, Phase::Dump)) {
            self.work(usize::MAX)?;
        }
        Ok(())
    }

    fn delete_some(&mut self, budget: usize) -> io::Result<bool> {
        let Some(sync) = &mut self.sync else { return Ok(false) };
        let some = sync.leftover.take_some(budget.clamp(1, MESSAGES_MAX));
        if some.is_empty() {
            self.sync = None;
            self.objects.tidy(&mut self.requests)?;
            self.note_refused();
            self.settle_objects();
            return Ok(false);
        }
        self.carry_out(some.into_iter().map(Write::delete).collect())?;
        Ok(true)
    }

    /// A slice of what there is to do; whether there is more.
    fn work_some(&mut self, budget: usize) -> io::Result<bool> {
        if self.objects_doubtful {
            self.repair_objects()?;
            return Ok(true);
        }
        let sync = self.sync.as_mut().map(|sync| (&sync.phase, &mut sync.leftover));
        let more = match sync {
            Some((Phase::Dump, leftover)) => {
                let more = self.dump.work(leftover, budget)?;
                if let (Some(sync), false) = (&mut self.sync, more) {
                    sync.phase = Phase::Apply;
                }
                more
            }
            Some((Phase::Delete, _)) => self.delete_some(budget)?,
            Some((Phase::Apply, _)) | None => false,
        };
        let more = more || self.rewrite_some(budget)? || self.compare_some(budget)?;
        Ok(more)
    }

    fn clear_all(&mut self) -> io::Result<()> {
        self.forget();
        self.sync = None;
        self.objects.clear(&mut self.requests)?;
        for afi in [Afi::IPV4, Afi::IPV6] {
            let header = route::dump_header(afi, self.ours.table);
            let mut routes = self.requests.dump_all(kind::GET_ROUTE, &header, route::parse)?;
            routes.retain(|route| route.table == self.ours.table);
            for routes in routes.chunks(MESSAGES_MAX) {
                let writes = routes.iter().map(|route| Write::delete((route.prefix, route.priority)));
                self.carry_out(writes.collect())?;
            }
        }
        self.report.refused.clear();
        Ok(())
    }

    /// Nothing is wanted any more, or all of it will be said again.
    fn forget(&mut self) {
        self.mirror = Mirror::new();
        self.comparison = None;
        self.unsettled = Unsettled::default();
        self.strays.clear();
        self.report.refused.clear();
    }

    /// Counts the routes that the kernel has.
    fn recount<T>(&mut self, done: io::Result<T>) -> Result<T, FibError> {
        let leftover = self.sync.as_ref().map_or(0, |sync| sync.leftover.len() as u64);
        let present = self.mirror.count(State::Installed) + self.mirror.count(State::Outdated);
        self.report.counters.routes = leftover + present;
        self.report.counters.next_hops = self.objects.len() as u64;
        done.map_err(|error| FibError(format!("netlink: {error}")))
    }
}

impl Fib for LinuxFib {
    fn name(&self) -> &'static str {
        "linux"
    }

    fn define(&mut self, handle: Handle, next_hops: &NextHops) -> Result<(), FibError> {
        let defined = self.objects.define(&mut self.requests, handle, next_hops);
        let defined = self.recount(defined)?;
        self.note(handle, defined);
        Ok(())
    }

    fn undefine(&mut self, handle: Handle) -> Result<(), FibError> {
        let in_sync = self.sync.is_some();
        let done = self.objects.undefine(&mut self.requests, handle, in_sync);
        self.report.refused.set_handle(handle, None);
        self.settle_objects();
        self.recount(done)
    }

    fn apply(&mut self, changes: &[RouteChange]) -> Result<(), FibError> {
        self.finish_dump()?;
        let done = changes.chunks(MESSAGES_MAX).try_for_each(|some| self.apply_some(some));
        self.recount(done)
    }

    fn sync_begin(&mut self) -> Result<(), FibError> {
        self.loss = None;
        self.forget();
        let begun = self.objects.begin_sync(&mut self.requests).and_then(|()| self.dump.begin());
        self.sync = Some(Sync { leftover: Leftover::new(self.ours.metric), phase: Phase::Dump });
        self.recount(begun)
    }

    fn sync_end(&mut self) -> Result<(), FibError> {
        self.finish_dump()?;
        if let Some(sync) = &mut self.sync {
            sync.phase = Phase::Delete;
        }
        Ok(())
    }

    fn work(&mut self, budget: usize) -> Result<bool, FibError> {
        let more = self.work_some(budget);
        self.recount(more)
    }

    fn interface_changed(&mut self, index: u32, usable: bool) -> Result<(), FibError> {
        let done = match usable {
            // What was refused may pass now.
            true => self.repair_objects(),
            // The kernel has deleted what leads there without a word.
            false if self.objects.leads_through(index) => self.compare_objects(),
            false => Ok(()),
        };
        self.recount(done)
    }

    fn interfaces_unknown(&mut self) -> Result<(), FibError> {
        let done = self.repair_objects();
        self.recount(done)
    }

    fn watched(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn hear(&mut self, now: Instant) -> Result<bool, FibError> {
        let more = self.hear_some(now);
        self.recount(more)
    }

    fn next_due(&self) -> Option<Instant> {
        self.fights.next_due()
    }

    fn has_work(&self) -> bool {
        let in_sync = self.sync.as_ref().is_some_and(|sync| !matches!(sync.phase, Phase::Apply));
        in_sync || self.objects_doubtful || self.comparison.is_some() || self.has_unsettled()
    }

    fn compare_begin(&mut self) -> Result<(), FibError> {
        let begun = self.begin_comparison();
        self.recount(begun)
    }

    fn is_comparing(&self) -> bool {
        self.comparison.is_some()
    }

    fn take_is_doubtful(&mut self) -> bool {
        std::mem::take(&mut self.table_doubtful)
    }

    fn take_loss(&mut self) -> Option<String> {
        self.loss.take()
    }

    fn clear(&mut self) -> Result<(), FibError> {
        let done = self.clear_all();
        self.recount(done)
    }

    fn report(&self) -> &Report {
        &self.report
    }
}
