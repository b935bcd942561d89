//! Where no `fea` runs, the manager opens the sockets: a service for each table, found as `socket`, or as `socket@NAME`.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use holdfast_api::socket::v1::{SocketClient, SocketDispatcher};
use holdfast_config::{
    Config,
    schema::{Vrf, VrfPlace},
    whereabouts::site,
};
use holdfast_process::{Boot, Checks, Prepared, serve_preparation};
use holdfast_sockets::{FdStore, Place, SocketService};
use holdfast_xrl::{Finder, Link, Node, PeerIdentity, XrlError};

use crate::birth::MANAGER;

/// The class of whoever opens sockets.
const SOCKETS: &str = "socket";
/// The class of the node for the default table, which comes and goes while the manager's own stays.
const OPENER: &str = "opener";

/// The tables that have one, VRFs with where they are.
pub(crate) struct Doors {
    boot: Rc<Boot>,
    finder: Finder,
    default: RefCell<Option<Node>>,
    open: RefCell<BTreeMap<String, (VrfPlace, Boot)>>,
}

impl Doors {
    /// None yet; `boot` is the manager's.
    pub(crate) fn new(boot: Rc<Boot>, finder: Finder) -> Self {
        Self { boot, finder, default: RefCell::default(), open: RefCell::default() }
    }

    /// Has one for each table of the configuration; those that stay keep their listeners. None where a `fea` runs.
    ///
    /// # Errors
    /// As the keeper says, which has the listeners of those that are gone.
    pub(crate) async fn follow(&self, config: &Config) -> Result<(), XrlError> {
        if config.rib.enabled {
            return self.close().await;
        }
        if self.default.borrow().is_none() {
            let node = self.begin_default().await?;
            self.default.replace(Some(node));
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
        FdStore::keep_vrfs(&self.boot.keeper, stays).await?;
        for vrf in &config.vrfs {
            let begin = || (vrf.place.clone(), self.begin(vrf));
            self.open.borrow_mut().entry(vrf.name.clone()).or_insert_with(begin);
        }
        Ok(())
    }

    /// Leaves it to a `fea`, for which the addresses have to be free.
    async fn close(&self) -> Result<(), XrlError> {
        let Some(node) = self.default.take() else { return Ok(()) };
        node.end();
        self.open.take();
        FdStore::keep_none(&self.boot.keeper).await
    }

    async fn begin_default(&self) -> Result<Node, XrlError> {
        let node = Node::new(OPENER);
        let custody = FdStore::new(self.boot.keeper.clone(), None);
        serve(&node, SocketService::new(Place::Here, Some(custody)));
        let (near, far) = Link::pair();
        let identity = PeerIdentity::new(MANAGER).class(SOCKETS).class(OPENER).pid(std::process::id());
        self.finder.attach_link(near, identity);
        node.resolver().rejoin_link(far).await?;
        Ok(node)
    }

    fn begin(&self, vrf: &Vrf) -> Boot {
        let boot = self.boot.instance(&vrf.name);
        let place = match &vrf.place {
            VrfPlace::Device { name, .. } => Place::Device(name.clone()),
            VrfPlace::Netns { name, .. } => Place::namespace(name.clone(), boot.keeper.clone()),
        };
        let custody = FdStore::new(boot.keeper.clone(), boot.vrf.clone());
        serve(&boot.node, SocketService::new(place, Some(custody)));
        boot.join();
        boot
    }
}

fn serve(node: &Node, sockets: SocketService) {
    let sockets = Rc::new(sockets);
    let tried = Rc::clone(&sockets);
    let checks = Checks::default().tried::<SocketClient, _>(move |configuration| {
        let sockets = Rc::clone(&tried);
        async move { Ok(sockets.try_out(configuration).await?) }
    });
    serve_preparation(node, checks, Prepared::default());
    node.serve(SocketDispatcher(sockets));
}
