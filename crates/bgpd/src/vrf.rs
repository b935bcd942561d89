//! One speaker for each VRF beside that of the default table, all in this process and on its thread.
//!
//! Each is a component of its own: the Finder knows that of the VRF `blue` as `bgp@blue`, the others of the VRF are
//! `rib@blue` and `transport@blue` to it, and what the keeper holds for it has the VRF in its name. So nothing else in this
//! crate knows of VRFs.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use holdfast_process::{Boot, spawn_task};
use holdfast_xrl::XrlError;
use tokio::task::JoinHandle;
use tracing::info;

use crate::{
    context::{Context, Plugs},
    custody,
    fairness::Fairness,
    metrics,
    quarantine::Quarantine,
    service::{self, Server},
    validation::Validation,
};

/// The speakers of VRFs.
pub(crate) struct Vrfs {
    boot: Rc<Boot>,
    plugs: Plugs,
    turns: Rc<Fairness>,
    validation: Rc<Validation>,
    quarantine: Rc<Quarantine>,
    speakers: RefCell<BTreeMap<String, Vrf>>,
    /// It is known which there are: what earlier processes have left of others has been given back.
    known: Cell<bool>,
}

struct Vrf {
    server: Rc<Server>,
    /// Dropped, it takes the class of the VRF with it.
    boot: Boot,
}

impl Vrfs {
    /// None yet, for a process that was given this.
    pub(crate) fn new(
        boot: Rc<Boot>,
        plugs: Plugs,
        turns: Rc<Fairness>,
        validation: Rc<Validation>,
        quarantine: Rc<Quarantine>,
    ) -> Self {
        let (speakers, known) = (RefCell::default(), Cell::new(false));
        Self { boot, plugs, turns, validation, quarantine, speakers, known }
    }

    /// Has speakers for these VRFs, and no others; each waits for a configuration of its own. The names of the peers
    /// whose sessions end with those that go: they have been told, or have had their time.
    ///
    /// # Errors
    /// When the keeper does not say what it has.
    pub(crate) async fn follow(&self, wanted: &[String]) -> Result<Vec<String>, XrlError> {
        let gone: Vec<_> =
            self.speakers.borrow_mut().extract_if(.., |vrf, _| !wanted.contains(vrf)).collect();
        for vrf in wanted {
            self.speakers.borrow_mut().entry(vrf.clone()).or_insert_with(|| self.begin(vrf));
        }
        let ending: Vec<JoinHandle<Vec<String>>> = gone
            .into_iter()
            .map(|(vrf, Vrf { server, boot })| {
                info!(event = "vrf-removed", vrf, "VRF removed");
                drop(boot);
                spawn_task(async move { server.end().await })
            })
            .collect();
        let mut ended = Vec::new();
        for one in ending {
            ended.extend(one.await.unwrap_or_default());
        }
        if !self.known.get() {
            custody::drop_of_others(&self.boot.keeper, wanted).await?;
            self.known.set(true);
        }
        Ok(ended)
    }

    fn begin(&self, vrf: &str) -> Vrf {
        let boot = self.boot.instance(vrf);
        let surroundings = Context::new(&boot, &self.turns, &self.validation, &self.quarantine);
        let server = Rc::new(Server::new(surroundings, self.plugs, None));
        metrics::register(&boot.metrics, &server);
        service::serve(&boot.node, &server);
        boot.join();
        info!(event = "vrf-added", vrf, "VRF added");
        Vrf { server, boot }
    }

    /// All of them.
    pub(crate) fn servers(&self) -> Vec<Rc<Server>> {
        self.speakers.borrow().values().map(|vrf| Rc::clone(&vrf.server)).collect()
    }
}
