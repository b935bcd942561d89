//! Configured by the manager: which files, which collectors.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use holdfast_api::monitor::v1::{Collector, Configuration, Dump, Empty, MonitorServer};
use holdfast_process::{Boot, Resolver, metrics::Metric, spawn_task};
use holdfast_xrl::{CallContext, XrlError};
use tokio::{sync::oneshot, task::AbortHandle};
use tracing::warn;

use crate::{
    dump,
    file::{Counts, Output, Unfinished},
    station::{self, Own},
};

static WRITTEN: Metric = Metric::counter("holdfast_monitor_mrt_octets", "Octets written into dumps");
static DROPPED: Metric =
    Metric::counter("holdfast_monitor_mrt_dropped", "Pieces of dumps that the disk did not take");

/// How long the disk may take at the end.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Serves `monitor.v1`.
#[derive(Clone)]
pub(crate) struct Monitor {
    resolver: Resolver,
    running: Rc<RefCell<Vec<Running>>>,
}

/// Something that goes on until it is no longer wanted.
struct Running {
    wanted: Wanted,
    counts: Arc<Counts>,
    task: AbortHandle,
    /// Comes when what was to be written is on disk, after the task has ended.
    written: Option<oneshot::Receiver<()>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Wanted {
    Dump(Own, Dump),
    Collector(Own, Collector),
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Monitor {
    pub(crate) fn new(boot: &Boot) -> Self {
        let running: Rc<RefCell<Vec<Running>>> = Rc::default();
        let counted = Rc::clone(&running);
        boot.metrics.register(move |sheet| {
            sheet.declare(&WRITTEN);
            sheet.declare(&DROPPED);
            for running in &*counted.borrow() {
                if let Wanted::Dump(_, dump) = &running.wanted {
                    let labels = [("file", dump.file.as_str())];
                    sheet.add(&WRITTEN, &labels, running.counts.written.load(Ordering::Relaxed));
                    sheet.add(&DROPPED, &labels, running.counts.dropped.load(Ordering::Relaxed));
                }
            }
        });
        Self { resolver: boot.resolver.clone(), running }
    }

    fn start(&self, wanted: Wanted) -> Result<Running, XrlError> {
        let counts = Arc::new(Counts::default());
        let resolver = self.resolver.clone();
        let (task, written) = match wanted.clone() {
            Wanted::Dump(own, dump) => {
                let unfinished = if dump.table { Unfinished::Remove } else { Unfinished::Finish };
                let started = Output::new(Arc::clone(&counts), unfinished);
                let (output, written) = started.map_err(|error| XrlError::internal(error.to_string()))?;
                (spawn_task(dump::run(resolver, own, dump, output)), Some(written))
            }
            Wanted::Collector(own, collector) => (spawn_task(station::run(resolver, own, collector)), None),
        };
        Ok(Running { wanted, counts, task: task.abort_handle(), written })
    }

    /// Ends everything; files get their names, but tables that are not whole.
    pub(crate) async fn stop(&self) {
        let mut running = std::mem::take(&mut *self.running.borrow_mut());
        let written: Vec<_> = running.iter_mut().filter_map(|running| running.written.take()).collect();
        drop(running);
        let all = async {
            for written in written {
                let _ = written.await;
            }
        };
        if tokio::time::timeout(LAST_WORDS, all).await.is_err() {
            warn!(event = "mrt-failed", "the disk did not take the last of the dumps in time");
        }
    }
}

impl MonitorServer for Monitor {
    async fn configure(&self, _: &CallContext, request: Configuration) -> Result<Empty, XrlError> {
        let own = Own { router_id: request.router_id, asn: request.asn };
        let dumps = request.dumps.into_iter().map(|dump| Wanted::Dump(own, dump));
        let collectors = request.collectors.into_iter().map(|collector| Wanted::Collector(own, collector));
        let wanted: Vec<_> = dumps.chain(collectors).collect();
        self.running.borrow_mut().retain(|running| wanted.contains(&running.wanted));
        for wanted in wanted {
            let runs = self.running.borrow().iter().any(|running| running.wanted == wanted);
            if !runs {
                let started = self.start(wanted)?;
                self.running.borrow_mut().push(started);
            }
        }
        Ok(Empty {})
    }
}
