//! Service addresses: put on their interfaces, and again when somebody removes them; announced to neighbours.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use holdfast_api::{
    address::v1::{
        AddressServer, AnnounceRequest, AssumeReply, AssumeRequest, Empty, ResignRequest,
        ServiceAddress as ApiAddress,
    },
    keeper::v1::KeeperClient,
};
use holdfast_fib_linux::{AddressWriter, Interface, InterfaceAddress};
use holdfast_process::spawn_task;
use holdfast_sockets::Place;
use holdfast_sys::{clock, frame};
use holdfast_xrl::{CallContext, XrlError};
use tokio::{
    task::AbortHandle,
    time::{sleep, timeout},
};
use tracing::{info, warn};

use crate::{
    announcing::{Mac, frames},
    interfaces::Interfaces,
    kernel,
};

/// When neighbours are told, from the moment on in which an address is there. A frame may be lost, and a switch may learn late.
const TOLD_AFTER: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(500),
    Duration::from_secs(1),
];
/// Between two times that addresses are put back: somebody else may remove them all the time.
const PACE: Duration = Duration::from_millis(100);
/// How long the kernel may take to tell of an address that was put.
const KNOWN: Duration = Duration::from_millis(200);
/// Addresses of a table at most.
const MOST: usize = 256;
/// Octets of the name of an interface at most (IFNAMSIZ).
const LONGEST_NAME: usize = 15;

/// An address, and where it belongs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ServiceAddress {
    interface: String,
    address: InterfaceAddress,
}

/// Those of a table.
pub(crate) struct Addresses {
    place: Place,
    interfaces: Rc<Interfaces>,
    /// Who opens the socket for frames.
    keeper: KeeperClient,
    wanted: RefCell<BTreeSet<ServiceAddress>>,
    /// Afterwards none is put or announced: CLOCK_BOOTTIME. The router may have been stopped, and others have them since.
    until: Cell<Duration>,
    announcing: RefCell<Option<AbortHandle>>,
}

/// Serves `address.v1`.
pub(crate) struct AddressService(pub(crate) Rc<Addresses>);

impl AddressServer for AddressService {
    async fn assume(&self, _: &CallContext, request: AssumeRequest) -> Result<AssumeReply, XrlError> {
        let wanted = read(request.addresses)?;
        self.0.until.set(Duration::from_nanos(request.until));
        let before = self.0.wanted.replace(wanted.clone());
        let left = before.difference(&wanted).cloned().collect();
        self.0.remove(&left).await?;
        let outcome = self.0.put().await?;
        Ok(AssumeReply { missing: outcome.missing, added: outcome.any })
    }

    async fn announce(&self, _: &CallContext, request: AnnounceRequest) -> Result<Empty, XrlError> {
        self.0.until.set(Duration::from_nanos(request.until));
        self.0.announce();
        Ok(Empty {})
    }

    async fn resign(&self, _: &CallContext, request: ResignRequest) -> Result<Empty, XrlError> {
        let resigned = read(request.addresses)?;
        self.0.wanted.borrow_mut().retain(|one| !resigned.contains(one));
        if self.0.wanted.borrow().is_empty()
            && let Some(task) = self.0.announcing.take()
        {
            task.abort();
        }
        if !request.stay {
            self.0.remove(&resigned).await?;
        }
        Ok(Empty {})
    }
}

/// What has become of addresses.
#[derive(Debug, Default)]
struct Put {
    /// Whether some were put that were not there.
    any: bool,
    missing: Vec<String>,
}

impl Addresses {
    /// None yet, at this place, on these interfaces.
    pub(crate) fn new(place: Place, interfaces: Rc<Interfaces>, keeper: KeeperClient) -> Self {
        Self {
            place,
            interfaces,
            keeper,
            wanted: RefCell::default(),
            until: Cell::default(),
            announcing: RefCell::default(),
        }
    }

    /// Puts addresses back that somebody else has removed, and those whose interface was not there, for ever.
    pub(crate) async fn keep(self: Rc<Self>) {
        let (mut versions, mut said) = (self.interfaces.versions(), Vec::new());
        while versions.changed().await.is_ok() {
            if self.wanted.borrow().is_empty() {
                continue;
            }
            let missing = match self.put().await {
                Ok(Put { any, missing }) => {
                    if any {
                        warn!(
                            event = "service-address-back",
                            "service addresses were not there: they are again"
                        );
                        self.announce();
                    }
                    missing
                }
                Err(error) => vec![error.message().to_owned()],
            };
            if missing != said {
                for what in &missing {
                    warn!(event = "service-address-missing", "{what}");
                }
                said = missing;
            }
            sleep(PACE).await;
        }
    }

    /// The end in order: no address stays.
    pub(crate) async fn resign_all(&self) -> Result<(), XrlError> {
        let wanted = self.wanted.take();
        self.remove(&wanted).await
    }

    /// Whether the router may have them still, as far as it has said.
    fn may(&self) -> bool {
        clock::since_boot() < self.until.get()
    }

    /// Those of the wanted that are not where they belong.
    fn lacking(&self) -> Vec<ServiceAddress> {
        let (wanted, interfaces) = (self.wanted.borrow(), self.by_name());
        let is_there = |one: &ServiceAddress| {
            let known = interfaces.get(&one.interface);
            known.is_some_and(|known| known.addresses.iter().any(|own| own.address == one.address.address))
        };
        wanted.iter().filter(|one| !is_there(one)).cloned().collect()
    }

    /// Puts what is wanted where it is not yet.
    async fn put(&self) -> Result<Put, XrlError> {
        if self.lacking().is_empty() || !self.may() {
            return Ok(Put::default());
        }
        let (mut outcome, mut writer) = (Put::default(), self.writer().await?);
        // Others may have resigned some meanwhile, and the time may be over.
        let lacking = if self.may() { self.lacking() } else { Vec::new() };
        let interfaces = self.by_name();
        for ServiceAddress { interface, address } in lacking {
            let put = match interfaces.get(&interface) {
                None => Err(format!("there is no interface {interface}")),
                Some(known) => writer.put(known.index, address).map_err(|error| error.to_string()),
            };
            match put {
                // What is known of the interface may be older.
                Ok(false) => {}
                Ok(true) => {
                    let (own, length) = (address.address, address.length);
                    info!(event = "service-address", interface, "{own}/{length} is here");
                    outcome.any = true;
                }
                Err(why) => outcome.missing.push(format!("{}: {why}", address.address)),
            }
        }
        if outcome.any {
            self.until_known().await;
        }
        Ok(outcome)
    }

    /// Waits until the kernel has told of what was put. An IPv6 address is one of its own only then: before, the kernel may send
    /// from it, and forwards what comes for it.
    async fn until_known(&self) {
        let mut versions = self.interfaces.versions();
        let known = async {
            let are_there = || {
                let interfaces = self.by_name();
                let is_late = |one: &ServiceAddress| interfaces.contains_key(&one.interface);
                !self.lacking().iter().any(is_late)
            };
            while !are_there() && versions.changed().await.is_ok() {}
        };
        // Another one may be refused, or be removed meanwhile.
        let _ = timeout(KNOWN, known).await;
    }

    async fn remove(&self, resigned: &BTreeSet<ServiceAddress>) -> Result<(), XrlError> {
        if resigned.is_empty() {
            return Ok(());
        }
        let (mut writer, interfaces) = (self.writer().await?, self.by_name());
        let mut failed = Ok(());
        // Some may be wanted again meanwhile.
        let resigned = resigned.difference(&self.wanted.borrow()).cloned().collect::<Vec<_>>();
        for ServiceAddress { interface, address } in &resigned {
            let Some(known) = interfaces.get(interface) else { continue };
            let was_there = known.addresses.iter().any(|own| own.address == address.address);
            match writer.remove(known.index, *address) {
                Ok(()) if was_there => {
                    info!(event = "service-address-gone", interface, "{} is here no more", address.address);
                }
                Ok(()) => {}
                Err(error) => failed = Err(XrlError::unavailable(format!("{}: {error}", address.address))),
            }
        }
        failed
    }

    /// Tells neighbours of all that are there, a few times. Who was being told of them is told from the beginning.
    fn announce(self: &Rc<Self>) {
        let this = Rc::clone(self);
        let task = spawn_task(async move {
            let mut said = String::new();
            for pause in TOLD_AFTER {
                sleep(pause).await;
                if let Err(error) = this.announce_once().await
                    && said != error
                {
                    warn!(event = "service-address-unannounced", "neighbours are not told: {error}");
                    said = error;
                }
            }
        });
        if let Some(before) = self.announcing.replace(Some(task.abort_handle())) {
            before.abort();
        }
    }

    async fn announce_once(&self) -> Result<(), String> {
        let socket = self.place.frames(&self.keeper).await.map_err(|error| error.message().to_owned())?;
        if !self.may() {
            return Ok(());
        }
        let (interfaces, wanted) = (self.by_name(), self.wanted.borrow().clone());
        let mut failed = Ok(());
        for ServiceAddress { interface, address } in &wanted {
            let Some(known) = interfaces.get(interface) else { continue };
            // An interface without hardware addresses has no neighbours who ask for them.
            let Ok(mac) = Mac::try_from(known.mac.as_slice()) else { continue };
            for octets in frames(address.address, mac) {
                if let Err(error) = frame::send(&socket, known.index, &octets) {
                    failed = Err(format!("{interface}: {error}"));
                }
            }
        }
        failed
    }

    async fn writer(&self) -> Result<AddressWriter, XrlError> {
        let socket = kernel::one(&self.place).await?;
        AddressWriter::over(socket).map_err(|error| XrlError::unavailable(format!("netlink: {error}")))
    }

    fn by_name(&self) -> BTreeMap<String, Interface> {
        let shown = self.interfaces.shown().into_values();
        shown.map(|interface| (interface.name.clone(), interface)).collect()
    }
}

fn read(addresses: Vec<ApiAddress>) -> Result<BTreeSet<ServiceAddress>, XrlError> {
    if addresses.len() > MOST {
        return Err(XrlError::invalid_argument(format!("more than {MOST} addresses")));
    }
    let one = |ApiAddress { address, length, interface }: ApiAddress| {
        let address = holdfast_types::address(&address)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = u8::try_from(length).ok().filter(|length| *length <= most)?;
        let is_name = (1..=LONGEST_NAME).contains(&interface.len());
        is_name.then_some(ServiceAddress { interface, address: InterfaceAddress::new(address, length) })
    };
    let read = addresses.into_iter().map(one).collect::<Option<_>>();
    read.ok_or_else(|| XrlError::invalid_argument("an address, its length or its interface makes no sense"))
}
