//! Service addresses: `fea` has them while this router has the sessions, and no longer.

use std::{
    collections::BTreeMap,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::{
    address::v1::{
        AddressClient, AnnounceRequest, AssumeReply, AssumeRequest, ResignRequest,
        ServiceAddress as ApiAddress,
    },
    replicator::v1::ServiceAddress,
};
use holdfast_process::spawn_task;
use holdfast_xrl::{Lifecycle, XrlError, scoped};
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::{
    engine::Owner,
    remaking::within,
    tasks::{RETRY, Tasks},
};

/// Before a Finder that does not answer is asked again.
const WATCH_RETRY: Duration = Duration::from_secs(1);
/// So often `fea` is told that the lease goes on: well within its term.
const REFRESH: Duration = Duration::from_secs(1);

/// What `fea` has been told.
#[derive(Clone, Default, Debug)]
pub(crate) struct Told {
    /// Whose they are, and since when it knows. `None`: it has not been told, and may have been by a process before this one.
    owner: Option<(Owner, Instant)>,
    addresses: Vec<ServiceAddress>,
    /// What is not here yet, for people.
    pub(crate) missing: Vec<String>,
}

impl Told {
    /// Whether they are to be here.
    pub(crate) fn are_ours(&self) -> bool {
        self.is(Owner::Ours)
    }

    fn is(&self, owner: Owner) -> bool {
        self.owner.is_some_and(|(told, _)| told == owner)
    }

    /// Whether it has to be told this.
    fn differs(&self, owner: Owner, addresses: &[ServiceAddress], now: Instant) -> bool {
        let is_old = |at: Instant| owner == Owner::Ours && now.duration_since(at) >= REFRESH;
        let is_news = self.addresses != addresses || !self.is(owner);
        owner != Owner::Undecided && (is_news || self.owner.is_some_and(|(_, at)| is_old(at)))
    }
}

/// By VRF; the default table is the first.
fn by_vrf(addresses: &[ServiceAddress]) -> BTreeMap<String, Vec<ApiAddress>> {
    let mut tables: BTreeMap<String, Vec<ApiAddress>> = BTreeMap::new();
    for ServiceAddress { vrf, address, length, interface } in addresses.iter().cloned() {
        tables.entry(vrf).or_default().push(ApiAddress { address, length, interface });
    }
    tables
}

impl Tasks {
    /// Tells `fea` what has changed, and that nothing has; not while it is being told.
    pub(crate) fn judge_addresses(self: &Rc<Self>, now: Instant) {
        let (owner, addresses) = {
            let (engine, told) = (self.engine.borrow(), self.told.borrow());
            let addresses = &engine.configuration.service_addresses;
            if self.is_telling.get() || (addresses.is_empty() && told.addresses.is_empty()) {
                return;
            }
            let owner = engine.owner();
            if !told.differs(owner, addresses, now) {
                return;
            }
            (owner, addresses.clone())
        };
        self.is_telling.set(true);
        let (this, before) = (Rc::clone(self), self.told.borrow().clone());
        spawn_task(async move {
            let told = match owner {
                Owner::Ours => this.keep_addresses(&before, &addresses).await,
                Owner::Beside | Owner::Elsewhere | Owner::Undecided => {
                    let all = [before.addresses, addresses.clone()].concat();
                    this.resign_addresses(&all, owner != Owner::Elsewhere).await.map(|()| Vec::new())
                }
            };
            match told {
                Ok(missing) => {
                    this.told.replace(Told { owner: Some((owner, now)), addresses, missing });
                }
                Err(error) => {
                    debug!("fea: {}", error.message());
                    sleep(RETRY).await;
                }
            }
            this.is_telling.set(false);
            this.wake();
        });
    }

    /// They are this router's, and those before were. Neighbors are told of what is new.
    async fn keep_addresses(
        &self,
        before: &Told,
        addresses: &[ServiceAddress],
    ) -> Result<Vec<String>, XrlError> {
        let (mut missing, is_new) = (Vec::new(), !before.are_ours() || before.addresses != addresses);
        let (now, mut failed) = (by_vrf(addresses), Ok(()));
        for vrf in by_vrf(&before.addresses).into_keys().filter(|vrf| !now.contains_key(vrf)) {
            // A VRF that is configured no more has taken its addresses along, and nobody answers there.
            let told = self.assume(&vrf, Vec::new()).await.map(drop);
            if vrf.is_empty() || self.engine.borrow().vrfs().contains_key(&vrf) {
                failed = failed.and(told);
            }
        }
        for (vrf, addresses) in now {
            match self.assume(&vrf, addresses).await {
                Ok(reply) => {
                    missing.extend(reply.missing);
                    if is_new || reply.added {
                        failed = failed.and(self.announce(&vrf).await);
                    }
                }
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed.map(|()| missing)
    }

    /// They are not this router's.
    async fn resign_addresses(&self, addresses: &[ServiceAddress], stay: bool) -> Result<(), XrlError> {
        let mut failed = Ok(());
        for (vrf, addresses) in by_vrf(addresses) {
            let resigned = async {
                let fea: AddressClient = self.resolver.wait_for(&class(&vrf)).await?;
                fea.resign(ResignRequest { addresses, stay }).await
            };
            failed = failed.and(within("fea", resigned).await.map(drop));
        }
        failed
    }

    async fn assume(&self, vrf: &str, addresses: Vec<ApiAddress>) -> Result<AssumeReply, XrlError> {
        within("fea", async {
            let fea: AddressClient = self.resolver.wait_for(&class(vrf)).await?;
            let until = self.engine.borrow().addresses_until();
            fea.assume(AssumeRequest { addresses, until }).await
        })
        .await
    }

    async fn announce(&self, vrf: &str) -> Result<(), XrlError> {
        within("fea", async {
            let fea: AddressClient = self.resolver.wait_for(&class(vrf)).await?;
            let until = self.engine.borrow().addresses_until();
            fea.announce(AnnounceRequest { until }).await.map(drop)
        })
        .await
    }

    /// Has `fea` put them on their interfaces, before sockets are made that have them. Nobody is told yet.
    pub(crate) async fn assume_addresses(&self) {
        let addresses = self.engine.borrow().configuration.service_addresses.clone();
        for (vrf, addresses) in by_vrf(&addresses) {
            match self.assume(&vrf, addresses).await {
                Ok(reply) => {
                    for what in reply.missing {
                        warn!(event = "service-address-missing", vrf, "{what}");
                    }
                }
                Err(error) => warn!(event = "service-address-missing", vrf, "{}", error.message()),
            }
        }
    }

    /// Has neighbors told, at once.
    pub(crate) async fn announce_addresses(&self) {
        let addresses = self.engine.borrow().configuration.service_addresses.clone();
        for vrf in by_vrf(&addresses).into_keys() {
            if let Err(error) = self.announce(&vrf).await {
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
                    self.told.borrow_mut().owner = None;
                    self.wake();
                }
            }
            sleep(WATCH_RETRY).await;
        }
    }
}

fn class(vrf: &str) -> String {
    scoped("fea", Some(vrf).filter(|vrf| !vrf.is_empty()))
}
