//! The backend `linux`.

use std::{collections::HashMap, io, os::fd::OwnedFd};

use holdfast_fib::{Fib, FibError, Handle, NextHops, Report, RouteChange, TableId};
use holdfast_types::{Afi, Prefix};
use rustix::io::Errno;

use crate::{
    message::{Batch, kind},
    objects::{Defined, ObjectIds, Objects},
    request::{MESSAGES_MAX, Refusal, Requests},
    route::{self, Expect, Target},
    socket::socket,
    sync::{Leftover, RouteDump},
};

/// A table of the kernel. Remembers next hops, and no route outside of a sync. Routes in other tables are not seen,
/// whoever made them.
pub struct LinuxFib {
    table: TableId,
    requests: Requests,
    dump: RouteDump,
    objects: Objects,
    sync: Option<Sync>,
    /// What most routes of the last write were, and most of the next will be.
    expect: Expect,
    report: Report,
    loss: Option<String>,
    /// The kernel said that an object is gone: compare before the next change.
    suspicious: bool,
}

struct Sync {
    leftover: Leftover,
    phase: Phase,
}

enum Phase {
    Dump,
    /// Between the dump and the end of the sync.
    Apply,
    Delete,
}

/// A request about one route.
#[derive(Copy, Clone, Debug)]
struct Write {
    prefix: Prefix,
    action: Action,
}

#[derive(Copy, Clone, Debug)]
enum Action {
    Put(Target, Expect),
    Delete { priority: u32 },
}

impl LinuxFib {
    /// A table in the network namespace of the calling thread.
    ///
    /// # Errors
    /// When no netlink socket can be had, as without CAP_NET_ADMIN.
    pub fn open(table: TableId, ids: ObjectIds) -> io::Result<Self> {
        Self::over([socket()?, socket()?], table, ids)
    }

    /// Over sockets that nobody has used, both of one namespace, in which the table is.
    ///
    /// # Errors
    /// When the kernel does not take their options.
    pub fn over([requests, dump]: [OwnedFd; 2], table: TableId, ids: ObjectIds) -> io::Result<Self> {
        Ok(Self {
            table,
            requests: Requests::over(requests)?,
            dump: RouteDump::new(Requests::over(dump)?, table),
            objects: Objects::new(ids),
            sync: None,
            expect: Expect::Absent,
            report: Report::default(),
            loss: None,
            suspicious: false,
        })
    }

    fn note(&mut self, handle: Handle, defined: Defined) {
        if let Some(error) = defined.refused {
            self.report.refuse(format!("next hops {}", handle.0), error);
        }
        if let Some(loss) = defined.loss {
            self.loss = Some(loss);
        }
        self.report.refused.set_handle(handle, self.objects.is_refused(handle));
        if defined.compared {
            self.note_refused();
        }
        self.report.counters.next_hops = self.objects.len() as u64;
    }

    /// Notes which handles the kernel has nothing for, after a comparison with it.
    fn note_refused(&mut self) {
        self.objects.refused().for_each(|(handle, refused)| self.report.refused.set_handle(handle, refused));
    }

    /// Puts the objects back in step with the kernel's. What is still refused has been reported before.
    fn repair(&mut self) -> io::Result<()> {
        self.suspicious = false;
        self.objects.compare(&mut self.requests)?;
        if let Some(loss) = self.objects.retry(&mut self.requests)? {
            self.loss = Some(loss);
        }
        self.note_refused();
        Ok(())
    }

    fn finish_dump(&mut self) -> Result<(), FibError> {
        while self.sync.as_ref().is_some_and(|sync| matches!(sync.phase, Phase::Dump)) {
            self.work(usize::MAX)?;
        }
        Ok(())
    }

    fn apply_some(&mut self, changes: &[RouteChange]) -> io::Result<()> {
        let writes: Vec<Write> = changes.iter().filter_map(|change| self.plan(*change)).collect();
        let again = self.write(&writes)?;
        self.learn(&writes, again.len());
        let last = self.write(&again)?;
        for write in last {
            self.report.refuse_route(write.prefix, "another program changes the same route".into());
        }
        if self.suspicious {
            self.repair()?;
        }
        if self.report.refused.take_is_drained() {
            self.loss = Some("more routes were refused than are remembered".into());
        }
        Ok(())
    }

    /// What has to be written for the change, if anything.
    fn plan(&mut self, change: RouteChange) -> Option<Write> {
        let prefix = change.prefix;
        let Some(handle) = change.next_hops else {
            if let Some(sync) = &mut self.sync {
                sync.leftover.take(prefix);
            }
            return Some(Write { prefix, action: Action::Delete { priority: route::PRIORITY } });
        };
        let target = match self.objects.target(handle) {
            Ok(target) => target,
            // All routes of the handle are.
            Err(reason) if self.objects.is_refused(handle) => {
                self.report.refuse(prefix.to_string(), reason);
                return None;
            }
            Err(reason) => {
                self.report.refuse_route(prefix, reason);
                return None;
            }
        };
        let expect = match self.sync.as_mut().map(|sync| sync.leftover.take(prefix)) {
            Some(Some(before)) if before == target => {
                self.report.counters.kept += 1;
                self.report.refused.settle(prefix);
                return None;
            }
            Some(Some(_)) => Expect::Present,
            Some(None) | None => self.expect,
        };
        Some(Write { prefix, action: Action::Put(target, expect) })
    }

    /// Writes, counts, and returns what has to be written again because the expectation was wrong.
    fn write(&mut self, writes: &[Write]) -> io::Result<Vec<Write>> {
        let table = self.table;
        let mut batch = Batch::new();
        let mut sequences = None;
        for write in writes {
            let sequence = self.requests.next_sequence();
            sequences.get_or_insert(sequence);
            match write.action {
                Action::Put(target, expect) => {
                    route::write(&mut batch, sequence, table, write.prefix, target, expect);
                }
                Action::Delete { priority } => {
                    route::delete(&mut batch, sequence, table, write.prefix, priority);
                }
            }
        }
        let Some(first) = sequences else { return Ok(Vec::new()) };
        let mut refused = Vec::new();
        self.requests.exchange(&mut batch, |sequence, refusal| {
            refused.push((sequence.wrapping_sub(first) as usize, refusal));
        })?;
        self.count(writes, &refused);
        Ok(self.sort_out(writes, refused))
    }

    /// Counts what was done.
    fn count(&mut self, writes: &[Write], refused: &[(usize, Refusal)]) {
        let Report { counters, refused: known, .. } = &mut self.report;
        let mut refused = refused.iter().map(|(index, _)| *index).peekable();
        for (index, write) in writes.iter().enumerate() {
            if refused.next_if_eq(&index).is_some() {
                continue;
            }
            known.settle(write.prefix);
            match write.action {
                Action::Put(_, expect) => {
                    counters.added += 1;
                    counters.routes += u64::from(expect == Expect::Absent);
                }
                Action::Delete { .. } => {
                    counters.deleted += 1;
                    counters.routes = counters.routes.saturating_sub(1);
                }
            }
        }
    }

    /// Refusals that are none (gone already), that are a wrong expectation (returned), and real ones.
    fn sort_out(&mut self, writes: &[Write], refused: Vec<(usize, Refusal)>) -> Vec<Write> {
        let mut again = Vec::new();
        for (index, refusal) in refused {
            let Some(write) = writes.get(index) else { continue };
            match (write.action, refusal.errno) {
                (Action::Delete { .. }, Errno::SRCH | Errno::NOENT) => {
                    self.report.refused.settle(write.prefix);
                }
                (Action::Put(target, expect @ Expect::Absent), Errno::EXIST)
                | (Action::Put(target, expect @ Expect::Present), Errno::NOENT) => {
                    again.push((index, Write { action: Action::Put(target, expect.other()), ..*write }));
                }
                (Action::Put(Target::Group(_), _), Errno::INVAL) => {
                    self.suspicious = true;
                    self.report.refuse_route(write.prefix, refusal.to_string());
                }
                (Action::Put(..), _) => self.report.refuse_route(write.prefix, refusal.to_string()),
                (Action::Delete { .. }, _) => {
                    self.report.refuse(write.prefix.to_string(), refusal.to_string());
                }
            }
        }
        without_superseded(writes, again)
    }

    /// Expects of the next routes what most of these were.
    fn learn(&mut self, writes: &[Write], wrong: usize) {
        let puts = writes
            .iter()
            .filter(|write| matches!(write.action, Action::Put(_, expect) if expect == self.expect));
        if wrong * 2 > puts.count() {
            self.expect = self.expect.other();
        }
    }

    fn delete_some(&mut self, budget: usize) -> io::Result<bool> {
        let Some(sync) = &mut self.sync else { return Ok(false) };
        let some = sync.leftover.take_some(budget.clamp(1, MESSAGES_MAX));
        if some.is_empty() {
            self.sync = None;
            self.objects.end_sync(&mut self.requests)?;
            self.note_refused();
            return Ok(false);
        }
        let writes = some.into_iter().map(delete_write);
        self.write(&writes.collect::<Vec<_>>())?;
        Ok(true)
    }

    fn work_some(&mut self, budget: usize) -> io::Result<bool> {
        let Some(sync) = &mut self.sync else { return Ok(false) };
        match &mut sync.phase {
            Phase::Dump => {
                let more = self.dump.work(&mut sync.leftover, budget)?;
                if !more {
                    sync.phase = Phase::Apply;
                    self.report.counters.routes = sync.leftover.len() as u64;
                }
                Ok(more)
            }
            Phase::Apply => Ok(false),
            Phase::Delete => self.delete_some(budget),
        }
    }

    fn clear_all(&mut self) -> io::Result<()> {
        self.sync = None;
        self.objects.clear(&mut self.requests)?;
        for afi in [Afi::IPV4, Afi::IPV6] {
            let header = route::dump_header(afi, self.table);
            let mut routes = self.requests.dump_all(kind::GET_ROUTE, &header, route::parse)?;
            routes.retain(|route| route.table == self.table);
            for routes in routes.chunks(MESSAGES_MAX) {
                let writes = routes.iter().map(|route| delete_write((route.prefix, route.priority)));
                self.write(&writes.collect::<Vec<_>>())?;
            }
        }
        self.report.counters.routes = 0;
        self.report.counters.next_hops = 0;
        self.report.refused.clear();
        Ok(())
    }
}

fn delete_write((prefix, priority): (Prefix, u32)) -> Write {
    Write { prefix, action: Action::Delete { priority } }
}

/// A route that a later write of the same batch changes as well must not be written after it.
fn without_superseded(writes: &[Write], again: Vec<(usize, Write)>) -> Vec<Write> {
    if again.is_empty() {
        return Vec::new();
    }
    let last: HashMap<Prefix, usize> =
        writes.iter().enumerate().map(|(index, write)| (write.prefix, index)).collect();
    let latest = again.into_iter().filter(|(index, write)| last.get(&write.prefix) == Some(index));
    latest.map(|(_, write)| write).collect()
}

fn failed(error: io::Error) -> FibError {
    FibError(format!("netlink: {error}"))
}

impl Fib for LinuxFib {
    fn name(&self) -> &'static str {
        "linux"
    }

    fn define(&mut self, handle: Handle, next_hops: &NextHops) -> Result<(), FibError> {
        let defined = self.objects.define(&mut self.requests, handle, next_hops).map_err(failed)?;
        self.note(handle, defined);
        Ok(())
    }

    fn undefine(&mut self, handle: Handle) -> Result<(), FibError> {
        let in_sync = self.sync.is_some();
        self.objects.undefine(&mut self.requests, handle, in_sync).map_err(failed)?;
        self.report.refused.set_handle(handle, false);
        self.report.counters.next_hops = self.objects.len() as u64;
        Ok(())
    }

    fn apply(&mut self, changes: &[RouteChange]) -> Result<(), FibError> {
        self.finish_dump()?;
        changes.chunks(MESSAGES_MAX).try_for_each(|some| self.apply_some(some)).map_err(failed)
    }

    fn sync_begin(&mut self) -> Result<(), FibError> {
        self.loss = None;
        self.objects.begin_sync(&mut self.requests).map_err(failed)?;
        self.report.refused.clear();
        self.dump.begin().map_err(failed)?;
        self.sync = Some(Sync { leftover: Leftover::default(), phase: Phase::Dump });
        Ok(())
    }

    fn sync_end(&mut self) -> Result<(), FibError> {
        self.finish_dump()?;
        if let Some(sync) = &mut self.sync {
            sync.phase = Phase::Delete;
        }
        Ok(())
    }

    fn work(&mut self, budget: usize) -> Result<bool, FibError> {
        self.work_some(budget).map_err(failed)
    }

    fn interface_changed(&mut self, index: u32, usable: bool) -> Result<(), FibError> {
        if usable {
            // What was refused may pass now.
            return self.repair().map_err(failed);
        }
        if self.objects.leads_through(index) {
            // The kernel has deleted that without a word.
            self.objects.compare(&mut self.requests).map_err(failed)?;
            self.note_refused();
        }
        Ok(())
    }

    fn interfaces_unknown(&mut self) -> Result<(), FibError> {
        self.repair().map_err(failed)
    }

    fn take_loss(&mut self) -> Option<String> {
        self.loss.take()
    }

    fn clear(&mut self) -> Result<(), FibError> {
        self.clear_all().map_err(failed)
    }

    fn report(&self) -> &Report {
        &self.report
    }
}
