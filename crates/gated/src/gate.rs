//! The gate of the whole router: a post for the default table and for each VRF with a network namespace, and what the keeper has
//! for the next life of this process.

use std::{cell::RefCell, collections::BTreeMap, os::fd::OwnedFd, rc::Rc, time::Duration};

use holdfast_api::{
    gate::v1::{GateStatus, QueueStatus},
    keeper::v1::{Empty, KeeperClient, OnDeath, PutRequest, SocketKind, SocketRequest},
};
use holdfast_gate::kept::KEPT;
use holdfast_process::{hash_key, kept, spawn_task};
use holdfast_sys::{clock, memory::SharedMemory};
use holdfast_xrl::{XrlError, scoped};
use tokio::{task::AbortHandle, time::sleep};
use tracing::{error, info};

use crate::{
    orders::{Orders, Vrf},
    post::{Missing, Post, Settings, Sockets},
    station::{Attachment, Station},
    trial,
};

const MARKS: &str = "marks";
const REPLICATOR: &str = "bell-replicator";
const GATE: &str = "bell-gate";
const FLOWS: &str = "flows";
/// How often the gate tries to stand where it cannot: a standby waits for the queue of a router that has died.
const RETRY: Duration = Duration::from_millis(100);

/// The gate of the router.
pub(crate) struct Gate {
    keeper: KeeperClient,
    station: Rc<Station>,
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
    /// By number of the VRF: its name, and what serves its post.
    served: RefCell<BTreeMap<u32, (String, AbortHandle)>>,
    /// By number of the VRF.
    missing: RefCell<BTreeMap<u32, String>>,
    /// What tries again.
    retrying: RefCell<Option<AbortHandle>>,
}

impl Gate {
    pub(crate) fn new(keeper: KeeperClient) -> Rc<Self> {
        Rc::new(Self {
            keeper,
            station: Rc::default(),
            changing: tokio::sync::Mutex::default(),
            served: RefCell::default(),
            missing: RefCell::default(),
            retrying: RefCell::default(),
        })
    }

    /// Goes on where the process before stood.
    ///
    /// # Errors
    /// As the keeper says.
    pub(crate) async fn recover(self: &Rc<Self>) -> Result<(), XrlError> {
        let list = self.keeper.list(Empty {}).await?.kept;
        let Some(marks) = list.iter().find(|kept| kept.key == MARKS) else { return Ok(()) };
        let Some(orders) = marks.note.as_deref().and_then(Orders::of_note) else { return Ok(()) };
        let mut descriptors = Vec::new();
        for key in [MARKS, REPLICATOR, GATE] {
            descriptors.extend(kept::find(&self.keeper, key).await?);
        }
        let Ok(descriptors) = <[OwnedFd; 3]>::try_from(descriptors) else { return Ok(()) };
        self.attach(orders, descriptors).await
    }

    /// Takes marks and bells, and stands where it is ordered. Whoever gives up waiting for that leaves nothing half done.
    pub(crate) async fn attach(
        self: &Rc<Self>,
        orders: Orders,
        descriptors: [OwnedFd; 3],
    ) -> Result<(), XrlError> {
        let this = Rc::clone(self);
        let attached = spawn_task(async move { this.take_orders(orders, descriptors).await });
        // One whose task has panicked has ended the process.
        attached.await.unwrap_or_else(|error| Err(XrlError::internal(error.to_string())))
    }

    async fn take_orders(self: &Rc<Self>, orders: Orders, descriptors: [OwnedFd; 3]) -> Result<(), XrlError> {
        let _one = self.changing.lock().await;
        let mut copies = Vec::new();
        for descriptor in &descriptors {
            copies.push(descriptor.try_clone().map_err(|error| XrlError::internal(error.to_string()))?);
        }
        let [marks, replicator, gate] = descriptors;
        let attachment = Attachment::new(marks, replicator, gate)
            .map_err(|error| XrlError::invalid_argument(format!("the marks: {error}")))?;
        let attachment = Rc::new(attachment);
        // The note is the last that the keeper hears: it says that all three are there.
        for (key, copy) in [MARKS, REPLICATOR, GATE].into_iter().zip(copies).rev() {
            let note = if key == MARKS { orders.note() } else { String::new() };
            self.put(key.to_owned(), copy, note).await?;
        }
        let station = Rc::clone(&self.station);
        station.attach(Rc::clone(&attachment));
        spawn_task(async move {
            if let Err(error) = station.hear(attachment).await {
                error!(event = "gate-bell-lost", "the bell: {error}");
            }
        });
        self.stand(&orders).await;
        self.retry(orders);
        Ok(())
    }

    /// Tries again, as long as there is a place without a post: whoever has the queue may give it back.
    fn retry(self: &Rc<Self>, orders: Orders) {
        let this = Rc::clone(self);
        let task = spawn_task(async move {
            let default = Vrf::default();
            let lacks = |vrf: &&Vrf| this.post(vrf.number).is_none();
            loop {
                if !orders.all(&default).any(|vrf| lacks(&vrf)) {
                    return;
                }
                sleep(RETRY).await;
                let _one = this.changing.lock().await;
                for vrf in orders.all(&default).filter(lacks) {
                    this.place(&orders, vrf).await;
                }
            }
        });
        if let Some(before) = self.retrying.replace(Some(task.abort_handle())) {
            before.abort();
        }
    }

    async fn put(&self, key: String, descriptor: OwnedFd, note: String) -> Result<(), XrlError> {
        let request = PutRequest { key, on_death: OnDeath::Keep.into(), hold_milliseconds: 0, note };
        self.keeper.put(request, vec![descriptor]).await.map(|_| ())
    }

    async fn stand(self: &Rc<Self>, orders: &Orders) {
        let default = Vrf::default();
        let all: Vec<_> = orders.all(&default).collect();
        let is_there =
            |number: u32, name: &str| all.iter().any(|vrf| vrf.number == number && vrf.name == name);
        let gone: Vec<_> = {
            let served = self.served.borrow();
            served
                .iter()
                .filter(|(number, (name, _))| !is_there(**number, name))
                .map(|(number, _)| *number)
                .collect()
        };
        for number in gone {
            self.leave(number);
        }
        self.missing.borrow_mut().retain(|number, _| all.iter().any(|vrf| vrf.number == *number));
        for vrf in all {
            self.place(orders, vrf).await;
        }
    }

    /// Stands at one place, and says what is missing if that has changed.
    async fn place(self: &Rc<Self>, orders: &Orders, vrf: &Vrf) {
        let outcome = match self.post(vrf.number) {
            Some(post) if post.borrow().settings().queue == orders.queue => {
                post.borrow_mut().set_ports(&orders.ports).map_err(|missing| missing.to_string())
            }
            _ => {
                self.end(vrf.number);
                self.begin(orders, vrf).await
            }
        };
        let place = if vrf.name.is_empty() { String::new() } else { format!("VRF {}: ", vrf.name) };
        let missing = outcome.err().map(|missing| format!("{place}{missing}"));
        let mut all = self.missing.borrow_mut();
        if let Some(missing) = missing.as_ref().filter(|missing| all.get(&vrf.number) != Some(missing)) {
            error!(event = "gate-missing", vrf = vrf.name, "{missing}");
        }
        match missing {
            Some(missing) => drop(all.insert(vrf.number, missing)),
            None => drop(all.remove(&vrf.number)),
        }
    }

    fn post(&self, vrf: u32) -> Option<Rc<RefCell<Post>>> {
        self.station.posts().into_iter().find(|post| post.borrow().settings().vrf == vrf)
    }

    async fn begin(self: &Rc<Self>, orders: &Orders, vrf: &Vrf) -> Result<(), String> {
        let sockets = if vrf.netns.is_empty() {
            Sockets::open()
        } else {
            let mut sockets = Vec::new();
            for kind in [SocketKind::NetlinkNetfilter; 3].into_iter().chain([SocketKind::NetlinkSockDiag]) {
                let request = SocketRequest { netns: vrf.netns.clone(), kind: kind.into(), protocol: 0 };
                let (_, made) = self.keeper.socket(request).await.map_err(|error| error.to_string())?;
                sockets.extend(made);
            }
            let sockets =
                <[OwnedFd; 4]>::try_from(sockets).map_err(|_| "the keeper sent no socket".to_owned())?;
            Sockets::over(sockets)
        };
        let kept = self.memory(vrf).await.map_err(|error| error.to_string())?;
        let settings = Settings { queue: orders.queue, ports: orders.ports.clone(), vrf: vrf.number };
        let post = sockets.and_then(|sockets| Post::open(settings, sockets, kept, hash_key()));
        let post = Rc::new(RefCell::new(post.map_err(|missing| missing.to_string())?));
        self.station.add(Rc::clone(&post));
        // While nothing comes in nothing leaves, and the process before has tried it.
        let is_tried = vrf.number == 0 && !post.borrow().is_closed();
        let trial: Result<(), Missing> =
            if is_tried { trial::try_out(&self.station, &post).await } else { Ok(()) };
        info!(event = "gate-stands", vrf = vrf.name, queue = orders.queue, "the gate stands at its ports");
        let station = Rc::clone(&self.station);
        // The process cannot do without: whoever is started next reads the queue again.
        let task = spawn_task(async move {
            if station.serve(post).await.is_err() {
                std::process::abort();
            }
        });
        self.served.borrow_mut().insert(vrf.number, (vrf.name.clone(), task.abort_handle()));
        trial.map_err(|missing| missing.to_string())
    }

    /// The memory of a post's connections, which outlives this process.
    async fn memory(&self, vrf: &Vrf) -> Result<SharedMemory, XrlError> {
        let key = scoped(FLOWS, Some(vrf.name.as_str()).filter(|name| !name.is_empty()));
        let left =
            kept::find(&self.keeper, &key).await?.and_then(|left| SharedMemory::from_descriptor(left).ok());
        if let Some(memory) = left.filter(|memory| memory.octets().len() == KEPT) {
            return Ok(memory);
        }
        let failed = |error: std::io::Error| XrlError::internal(format!("memory for connections: {error}"));
        let memory = SharedMemory::create("holdfast-gate", KEPT).map_err(failed)?;
        let copy = memory.descriptor().try_clone_to_owned().map_err(failed)?;
        kept::put(&self.keeper, key, copy, None).await?;
        Ok(memory)
    }

    fn end(&self, vrf: u32) {
        if let Some((_, task)) = self.served.borrow_mut().remove(&vrf) {
            task.abort();
        }
        self.station.remove(vrf);
    }

    /// Stands there no more: everything leaves.
    fn leave(&self, vrf: u32) {
        if let Some(post) = self.post(vrf) {
            post.borrow_mut().open_up();
        }
        let name = self.served.borrow().get(&vrf).map(|(name, _)| name.clone());
        self.end(vrf);
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            kept::forget(&self.keeper, scoped(FLOWS, Some(&name)));
        }
    }

    /// Whether segments reach the router from now on, at all posts.
    ///
    /// # Errors
    /// The kernel does not take our tables, at one of them; or the gate is to be closed, and does not stand everywhere: another
    /// router may be there still.
    pub(crate) fn set_closed(&self, is_closed: bool) -> Result<(), XrlError> {
        if is_closed && (self.station.posts().is_empty() || !self.missing.borrow().is_empty()) {
            return Err(XrlError::unavailable("the gate does not stand everywhere"));
        }
        let set = |post: Rc<RefCell<Post>>| {
            // Connections that were made again are known by their slots, and what destroyed sockets have said is dropped.
            while self.station.turn(&post).map_err(|error| error.to_string())?.more {}
            post.borrow_mut().set_closed(is_closed).map_err(|missing| missing.to_string())
        };
        self.station.posts().into_iter().map(set).fold(Ok(()), Result::and).map_err(XrlError::unavailable)
    }

    /// An orderly end of the router: everything leaves.
    pub(crate) fn open_up(&self) {
        self.station.posts().iter().for_each(|post| post.borrow_mut().open_up());
    }

    pub(crate) fn status(&self) -> GateStatus {
        let now = clock::since_boot();
        let (milliseconds, nanoseconds) = (now.as_millis(), now.as_nanos());
        let attachment = self.station.attachment();
        let lease = attachment.as_ref().is_some_and(|attachment| {
            attachment.with_marks(|marks| marks.is_some_and(|marks| u128::from(marks.lease()) > nanoseconds))
        });
        let served = self.served.borrow();
        let queue = |post: &Rc<RefCell<Post>>| {
            let post = post.borrow();
            let (counts, tally) = post.counted();
            let waits =
                |since: u64| u64::try_from(milliseconds.saturating_sub(since.into())).unwrap_or(u64::MAX);
            QueueStatus {
                vrf: served.get(&post.settings().vrf).map(|(name, _)| name.clone()).unwrap_or_default(),
                queue: post.settings().queue.into(),
                tables: post.has_tables(),
                held: post.flows().held() as u64,
                oldest_held_milliseconds: post.flows().oldest_held().map_or(0, waits),
                flows: post.flows().len() as u64,
                accepted: counts.accepted,
                delayed: counts.held,
                unknown: counts.unknown,
                closed: counts.closed,
                no_lease: counts.no_lease,
                superseded: counts.superseded,
                bound: counts.bound,
                unreadable: tally.unreadable,
                lost: tally.lost,
                overruns: tally.overruns,
                gaps: tally.gaps,
            }
        };
        GateStatus {
            attached: attachment.is_some(),
            lease,
            queues: self.station.posts().iter().map(queue).collect(),
            missing: self.missing.borrow().values().cloned().collect(),
        }
    }
}
