//! Where no `fea` runs, the manager opens the sockets of VRFs: a service for each, found as `socket@NAME`.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use holdfast_api::socket::v1::SocketDispatcher;
use holdfast_config::{
    Config,
    schema::{Vrf, VrfPlace},
};
use holdfast_process::Boot;
use holdfast_sockets::{Custody, Place, SocketService};
use holdfast_xrl::XrlError;

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
    ///
    /// # Errors
    /// As the keeper says, which has the listeners of those that are gone.
    pub(crate) async fn follow(&self, config: &Config) -> Result<(), XrlError> {
        if config.rib.enabled {
            return Ok(());
        }
        let stays = |name: &String, place: &VrfPlace| {
            config.vrfs.iter().any(|vrf| vrf.name == *name && site(&vrf.place) == site(place))
        };
        let gone: Vec<String> = self
            .open
            .borrow_mut()
            .extract_if(.., |name, (place, _)| !stays(name, place))
            .map(|(name, _)| name)
            .collect();
        let is_wanted = |name: &str| config.vrfs.iter().any(|vrf| vrf.name == name);
        let stays = |name: &str| is_wanted(name) && !gone.iter().any(|gone| gone == name);
        Custody::keep_vrfs(&self.boot.keeper, stays).await?;
        for vrf in &config.vrfs {
            let begin = || (vrf.place.clone(), self.begin(vrf));
            self.open.borrow_mut().entry(vrf.name.clone()).or_insert_with(begin);
        }
        Ok(())
    }

    fn begin(&self, vrf: &Vrf) -> Boot {
        let boot = self.boot.instance(&vrf.name);
        let place = match &vrf.place {
            VrfPlace::Device { name, .. } => Place::Device(name.clone()),
            VrfPlace::Netns { name, .. } => Place::namespace(name.clone(), boot.keeper.clone()),
        };
        let custody = Custody::new(boot.keeper.clone(), boot.vrf.clone());
        boot.node.serve(SocketDispatcher::new(SocketService::new(place, Some(custody))));
        boot.join();
        boot
    }
}

/// Where a VRF is: with another table it is still there.
pub(crate) fn site(place: &VrfPlace) -> (&str, bool) {
    match place {
        VrfPlace::Device { name, .. } => (name, true),
        VrfPlace::Netns { name, .. } => (name, false),
    }
}
