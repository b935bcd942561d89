//! VRFs: another door each, found under a class of its own ("transport@blue").

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use holdfast_api::transport::v1::TransportDispatcher;
use holdfast_process::Boot;
use tracing::info;

use crate::{
    door::{self, ConnectionBroker},
    metrics, retired,
    service::DoorService,
    shared::Shared,
};

/// The doors of VRFs.
pub(crate) struct Vrfs {
    boot: Rc<Boot>,
    shared: Rc<Shared>,
    doors: RefCell<BTreeMap<String, Vrf>>,
}

/// Dropped, it leaves the Finder and listens no more. Connections that are carried for it go on until who has them ends
/// them.
struct Vrf {
    door: Rc<ConnectionBroker>,
    boot: Boot,
}

impl Drop for Vrf {
    fn drop(&mut self) {
        self.door.close();
    }
}

impl Vrfs {
    /// None yet, for a process that was given this.
    pub(crate) fn new(boot: Rc<Boot>, shared: Rc<Shared>) -> Self {
        Self { boot, shared, doors: RefCell::default() }
    }

    /// Has doors for these VRFs, and no others; each waits for a configuration of its own.
    pub(crate) fn follow(&self, wanted: &[String]) {
        let mut doors = self.doors.borrow_mut();
        doors.extract_if(.., |vrf, _| !wanted.contains(vrf)).for_each(|(vrf, door)| {
            info!(event = "vrf-removed", vrf, "VRF removed");
            drop(door);
        });
        for vrf in wanted {
            doors.entry(vrf.clone()).or_insert_with(|| self.begin(vrf));
        }
    }

    /// Has all of them let nobody in any more; under which names they are found from now on.
    pub(crate) fn retire(&self) -> Vec<Boot> {
        self.doors.take().values().map(|vrf| retired::leave(&vrf.boot, &vrf.door)).collect()
    }

    fn begin(&self, vrf: &str) -> Vrf {
        let boot = self.boot.instance(vrf);
        let door = ConnectionBroker::open(&boot, Rc::clone(&self.shared));
        metrics::register(&boot.metrics, &door);
        door::serve_checks(&boot.node);
        boot.node.serve(TransportDispatcher::new(DoorService::of_vrf(Rc::clone(&door))));
        boot.join();
        info!(event = "vrf-added", vrf, "VRF added");
        Vrf { door, boot }
    }
}
