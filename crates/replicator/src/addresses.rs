//! Service addresses: `fea` has them while this router has the sessions, and no longer.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use holdfast_api::{
    address::v1::{AddressClient, Addresses, Empty, ServiceAddress as ApiAddress},
    replicator::v1::ServiceAddress,
};
use holdfast_process::spawn_task;
use holdfast_xrl::{Lifecycle, XrlError, scoped};
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::{
    remaking::within,
    tasks::{RETRY, Tasks},
};

/// Before a Finder that does not answer is asked again.
const WATCH_RETRY: Duration = Duration::from_secs(1);

/// What `fea` has been told.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Told {
    /// They are to be here.
    pub(crate) holds: bool,
    addresses: Vec<ServiceAddress>,
    /// What is not here yet, for people.
    pub(crate) missing: Vec<String>,
}

impl Told {
    /// By VRF.
    fn by_table(&self) -> BTreeMap<String, Vec<ApiAddress>> {
        let mut tables: BTreeMap<String, Vec<ApiAddress>> = BTreeMap::new();
        for ServiceAddress { vrf, address, length, interface } in self.addresses.iter().cloned() {
            tables.entry(vrf).or_default().push(ApiAddress { address, length, interface });
        }
        tables
    }
}

impl Tasks {
    /// Tells `fea` what has changed, if somebody else does not.
    pub(crate) fn judge_addresses(self: &Rc<Self>) {
        let wanted = {
            let engine = self.engine.borrow();
            let addresses = engine.configuration.service_addresses.clone();
            Told { holds: engine.holds_addresses(), addresses, missing: Vec::new() }
        };
        let before = self.told.borrow().clone();
        if (before.holds, &before.addresses) == (wanted.holds, &wanted.addresses) || self.is_telling.get() {
            return;
        }
        // Whoever has none removes none: in the same namespace they may be another router's.
        if !before.holds && !wanted.holds {
            self.told.replace(wanted);
            return;
        }
        self.is_telling.set(true);
        let this = Rc::clone(self);
        spawn_task(async move {
            match this.tell_addresses(&before, &wanted).await {
                Ok(missing) => drop(this.told.replace(Told { missing, ..wanted })),
                Err(error) => {
                    debug!("fea: {}", error.message());
                    sleep(RETRY).await;
                }
            }
            this.is_telling.set(false);
            this.wake();
        });
    }

    async fn tell_addresses(&self, before: &Told, wanted: &Told) -> Result<Vec<String>, XrlError> {
        let (before, now) = (before.by_table(), wanted.by_table());
        let mut missing = Vec::new();
        for vrf in before.keys().chain(now.keys().filter(|vrf| !before.contains_key(*vrf))) {
            let fea: AddressClient = within(self.resolver.wait_for(&class(vrf))).await?;
            let of =
                |tables: &BTreeMap<String, Vec<ApiAddress>>| tables.get(vrf).cloned().unwrap_or_default();
            if wanted.holds {
                let addresses = Addresses { addresses: of(&now) };
                missing.extend(within(fea.assume(addresses)).await?.missing);
                within(fea.announce(Empty {})).await?;
            } else {
                within(fea.resign(Addresses { addresses: of(&before) })).await?;
            }
        }
        Ok(missing)
    }

    /// Has `fea` put them on their interfaces, before sockets are made that have them. Nobody is told yet.
    pub(crate) async fn assume_addresses(&self) {
        let addresses = self.engine.borrow().configuration.service_addresses.clone();
        for (vrf, addresses) in (Told { addresses, ..Told::default() }).by_table() {
            let assumed = async {
                let fea: AddressClient = within(self.resolver.wait_for(&class(&vrf))).await?;
                within(fea.assume(Addresses { addresses })).await
            };
            match assumed.await {
                Ok(reply) => {
                    for what in reply.missing {
                        warn!(event = "service-address-missing", vrf, "{what}");
                    }
                }
                Err(error) => warn!(event = "service-address-missing", vrf, "{}", error.message()),
            }
        }
    }

    /// Has neighbours told, at once.
    pub(crate) async fn announce_addresses(&self) {
        let addresses = self.engine.borrow().configuration.service_addresses.clone();
        for vrf in (Told { addresses, ..Told::default() }).by_table().into_keys() {
            let announced = async {
                let fea: AddressClient = within(self.resolver.wait_for(&class(&vrf))).await?;
                within(fea.announce(Empty {})).await
            };
            if let Err(error) = announced.await {
                debug!("fea: {}", error.message());
            }
        }
    }

    /// A `fea` that is born knows of none: it is told again. For ever.
    pub(crate) async fn follow_fea(self: Rc<Self>) {
        loop {
            let mut watch = self.resolver.watch("*");
            while let Ok(event) = watch.next().await {
                if let Lifecycle::Birth(instance) = event
                    && instance.class.split('@').next() == Some("fea")
                {
                    let holds = self.engine.borrow().holds_addresses();
                    let mut told = self.told.borrow_mut();
                    if told.holds && holds {
                        *told = Told { addresses: std::mem::take(&mut told.addresses), ..Told::default() };
                        drop(told);
                        self.wake();
                    }
                }
            }
            sleep(WATCH_RETRY).await;
        }
    }
}

fn class(vrf: &str) -> String {
    scoped("fea", Some(vrf).filter(|vrf| !vrf.is_empty()))
}
