//! The tables of VRFs: an instance of this process each, under a class of its own.

use std::{collections::BTreeMap, rc::Rc};

use holdfast_process::{Boot, spawn_task};
use tokio::{sync::Mutex, task::JoinHandle};
use tracing::{Instrument, info};

use crate::table;

/// The VRFs that there are.
pub(crate) struct Vrfs {
    boot: Rc<Boot>,
    running: Mutex<BTreeMap<String, JoinHandle<()>>>,
}

impl Vrfs {
    /// None yet; `boot` is that of the process.
    pub(crate) fn new(boot: Rc<Boot>) -> Self {
        Self { boot, running: Mutex::default() }
    }

    /// These are the VRFs from now on: new ones begin with an empty table, and wait for a configuration of their own;
    /// those that are no more have left the Finder when this returns. All others go on.
    pub(crate) async fn follow(&self, wanted: &[String]) {
        let mut running = self.running.lock().await;
        let gone: Vec<_> = running.extract_if(.., |vrf, _| !wanted.contains(vrf)).collect();
        // All before anything is waited for: who calls may give up in between.
        gone.iter().for_each(|(_, task)| task.abort());
        for (vrf, task) in gone {
            // It ends by that, and only by that.
            let _ = task.await;
            info!(event = "vrf-removed", vrf, "VRF removed");
        }
        for vrf in wanted {
            running.entry(vrf.clone()).or_insert_with(|| begin(&self.boot, vrf));
        }
    }
}

/// The instance lives as long as its task.
fn begin(boot: &Boot, vrf: &str) -> JoinHandle<()> {
    let boot = boot.instance(vrf);
    let span = boot.span();
    span.in_scope(|| info!(event = "vrf-added", vrf, "VRF added"));
    let life = async move { match table(&boot, None).await {} };
    spawn_task(life.instrument(span))
}
