//! Where no `fea` runs, the manager opens the sockets of VRFs: a service for each, found as `socket@NAME`.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use holdfast_api::socket::v1::SocketDispatcher;
use holdfast_config::{
    Config,
    schema::{Vrf, VrfPlace},
};
use holdfast_process::Boot;
use holdfast_sockets::{Place, SocketService};

use crate::reload::site;

/// The VRFs that have one, each with where it is.
pub(crate) struct Doors {
    boot: Rc<Boot>,
    open: RefCell<BTreeMap<String, (VrfPlace, Boot)>>,
}

impl Doors {
    /// None yet; `boot` is the manager's.
    pub(crate) fn new(boot: Rc<Boot>) -> Self {
        Self { boot, open: RefCell::default() }
    }

    /// Has one for each VRF of the configuration, where that is; those that stay keep their listeners.
    pub(crate) fn follow(&self, config: &Config) {
        if config.rib.enabled {
            return;
        }
        let stays = |name: &String, place: &VrfPlace| {
            config.vrfs.iter().any(|vrf| vrf.name == *name && site(&vrf.place) == site(place))
        };
        let mut open = self.open.borrow_mut();
        open.retain(|name, (place, _)| stays(name, place));
        for vrf in &config.vrfs {
            let begin = || (vrf.place.clone(), self.begin(vrf));
            open.entry(vrf.name.clone()).or_insert_with(begin);
        }
    }

    fn begin(&self, vrf: &Vrf) -> Boot {
        let boot = self.boot.instance(&vrf.name);
        let place = match &vrf.place {
            VrfPlace::Device { name, .. } => Place::Device(name.clone()),
            VrfPlace::Netns { name, .. } => Place::namespace(name.clone(), boot.keeper.clone()),
        };
        boot.node.serve(SocketDispatcher::new(SocketService::new(place)));
        boot.join();
        boot
    }
}
