//! The tasks of the process: the loop, and those that follow the keeper and the gate.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    os::fd::OwnedFd,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::{
    bgp::v1::{BgpClient, ClearRequest},
    gate::v1::{AttachRequest, GateClient, Vrf},
    keeper::v1::{
        Empty as KeeperEmpty, GetOfRequest, GetRequest, KeeperClient, OfRequest, OnDeath, PutRequest,
    },
    stored::v1 as stored,
};
use holdfast_process::{Resolver, kept, spawn_task};
use holdfast_sys::netns_cookie;
use holdfast_xrl::XrlError;
use tokio::{
    net::UnixStream,
    sync::{Notify, watch},
    task::AbortHandle,
    time::{sleep, timeout},
};
use tracing::{debug, error, warn};

use crate::{
    addresses::Told,
    engine::{self, Engine},
    follower::Follower,
    lease::Lease,
    preheating::STAND_INS,
    stand_ins::StandIns,
    way::Ways,
};

/// The process whose log and sockets are copied.
pub(crate) const OWNER: &str = "bgp";
/// Descriptors asked for at a time.
const MANY: usize = 32;
/// The number of the gate's queue.
const QUEUE: u32 = 179;
/// For how long a configuration waits for the gate. What does not come about until then, comes later.
const ATTACH_LIMIT: Duration = Duration::from_secs(3);
/// For how long `bgp` may take to end its sessions.
const END_LIMIT: Duration = Duration::from_secs(3);
/// Between two attempts to follow the keeper, or to tell the gate.
pub(crate) const RETRY: Duration = Duration::from_millis(200);

/// For how long a configuration that is offered waits for the store, and then for the standby.
const STORED_LIMIT: Duration = Duration::from_secs(3);
const TAKEN_LIMIT: Duration = Duration::from_secs(5);
/// How often it is looked whether that is so.
const LOOK: Duration = Duration::from_millis(20);

/// The name of the marks at the keeper.
const MARKS: &str = "marks";
/// The name of the file of the lease there.
const LEASE: &str = "lease";

/// The engine, with what wakes it.
pub(crate) struct Tasks {
    pub(crate) engine: RefCell<Engine>,
    pub(crate) keeper: KeeperClient,
    pub(crate) resolver: Resolver,
    /// What comes here is the gate's ringing; what is written here wakes the gate, which has the other end.
    bell: UnixStream,
    gate_end: OwnedFd,
    /// The configuration, or the keeper, has said something.
    wake: Rc<Notify>,
    /// `bgp` may begin.
    ready: watch::Sender<bool>,
    /// The number of the configuration that this router is to take; 0: there is none.
    next: watch::Sender<u64>,
    /// The epoch of the lease that the keeper has the file of.
    kept_epoch: Cell<u64>,
    /// Follows the store while this router is a preheated standby.
    pub(crate) follower: RefCell<Option<Follower>>,
    pub(crate) stand_ins: RefCell<StandIns>,
    /// `bgp` may begin with them.
    pub(crate) do_stand_in: Cell<bool>,
    /// The task that makes them.
    pub(crate) standing_in: RefCell<Option<AbortHandle>>,
    /// They are on their way out, and when they are gone.
    pub(crate) is_making_way: Cell<bool>,
    pub(crate) way_made: Notify,
    /// What a process before may have begun is over.
    pub(crate) has_finished: Cell<bool>,
    /// What `fea` knows of service addresses, and whether it is being told.
    pub(crate) told: RefCell<Told>,
    pub(crate) is_telling: Cell<bool>,
}

impl Tasks {
    /// With what the process before has left at the keeper.
    ///
    /// # Errors
    /// There is no memory, or no descriptor, or the keeper does not answer.
    pub(crate) async fn begin(keeper: KeeperClient, resolver: Resolver) -> anyhow::Result<Rc<Self>> {
        let marks = engine::marks(kept::find(&keeper, MARKS).await?)?;
        let wake = Rc::new(Notify::new());
        let ways = Ways::new(resolver.clone(), Rc::clone(&wake));
        let mut engine = Engine::new(Box::new(ways), marks);
        // Of a router that became a standby later, only this is known.
        let kept = keeper.list(KeeperEmpty {}).await?.kept;
        engine.has_stand_ins = kept.iter().any(|kept| kept.key == STAND_INS);
        let lease = kept.iter().find(|kept| kept.key == LEASE);
        engine.tag_before = lease.and_then(|lease| lease.note.as_deref()?.parse().ok());
        engine.set_standby(keeper.role(KeeperEmpty {}).await?.standby || engine.has_stand_ins);
        kept::put(&keeper, MARKS.into(), engine.marks_descriptor()?, None).await?;
        let (bell, gate_end) = std::os::unix::net::UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        gate_end.set_nonblocking(true)?;
        // A kernel before Linux 5.14 does not say it.
        engine.namespace = netns_cookie(&bell).unwrap_or(0);
        let (bell, engine) = (UnixStream::from_std(bell)?, RefCell::new(engine));
        Ok(Rc::new(Self {
            engine,
            keeper,
            resolver,
            bell,
            gate_end: gate_end.into(),
            wake,
            ready: watch::Sender::new(false),
            next: watch::Sender::new(0),
            kept_epoch: Cell::new(0),
            follower: RefCell::default(),
            stand_ins: RefCell::default(),
            do_stand_in: Cell::new(false),
            standing_in: RefCell::default(),
            is_making_way: Cell::new(false),
            way_made: Notify::new(),
            has_finished: Cell::new(false),
            told: RefCell::default(),
            is_telling: Cell::new(false),
        }))
    }

    /// The file of the lease that the process before has had: its lock is the router's.
    ///
    /// # Errors
    /// As the keeper says.
    pub(crate) async fn kept_lease(&self) -> Result<Option<OwnedFd>, XrlError> {
        kept::find(&self.keeper, LEASE).await
    }

    /// Has the keeper keep the file of the lease: the lock goes with the last process of the router, and not with this one.
    fn keep_lease(self: &Rc<Self>) {
        let (epoch, file) = {
            let engine = self.engine.borrow();
            (engine.lease.as_ref().map_or(0, Lease::epoch), engine.lease_file())
        };
        if epoch == self.kept_epoch.replace(epoch) {
            return;
        }
        let this = Rc::clone(self);
        spawn_task(async move {
            let kept = match file {
                Some((file, tag)) => {
                    let (key, on_death, note) = (LEASE.into(), OnDeath::Keep.into(), tag.to_string());
                    let request = PutRequest { key, on_death, hold_milliseconds: 0, note };
                    this.keeper.put(request, vec![file]).await.map(drop)
                }
                None => this.keeper.drop(GetRequest { key: LEASE.into() }).await.map(drop),
            };
            if let Err(error) = kept {
                warn!(event = "lease-failed", "the keeper does not keep the lease: {}", error.message());
            }
        });
    }

    /// Nothing is left of a lease that this router has had: the next process does not know of it, either.
    ///
    /// # Errors
    /// As the keeper says.
    pub(crate) async fn forget_lease(&self) -> Result<(), XrlError> {
        self.kept_epoch.set(0);
        self.keeper.drop(GetRequest { key: LEASE.into() }).await.map(drop)
    }

    /// Whether `bgp` may begin, as soon as it may; no later than this.
    pub(crate) async fn is_ready(&self, limit: Duration) -> bool {
        let mut ready = self.ready.subscribe();
        let _ = timeout(limit, ready.wait_for(|ready| *ready)).await;
        *ready.borrow()
    }

    /// The configuration that this router is to take, as soon as there is one; no later than this.
    pub(crate) async fn next_shared(&self, limit: Duration) -> Option<stored::Configuration> {
        let mut next = self.next.subscribe();
        let _ = timeout(limit, next.wait_for(|next| *next != 0)).await;
        self.engine.borrow().next_shared().cloned()
    }

    /// What keeps the other routers from having a configuration that is about to take effect here, in words of the operator.
    ///
    /// # Errors
    /// `FailedPrecondition`: it must not take effect.
    pub(crate) async fn offer(&self, offered: stored::Configuration) -> Result<Vec<String>, XrlError> {
        let is_given = !offered.sealed.is_empty();
        let refused = |text: String| XrlError::failed_precondition(text);
        let (number, serial) = (offered.number, offered.serial);
        self.engine.borrow_mut().offer(offered).map_err(|error| refused(error.to_string()))?;
        self.wake();
        let stored = async {
            while !self.engine.borrow().has_stored() {
                sleep(LOOK).await;
            }
        };
        if timeout(STORED_LIMIT, stored).await.is_err() {
            return Ok(vec!["the store does not have it yet, and so no standby".to_owned()]);
        }
        if !is_given {
            // Whoever waits takes nothing that it cannot read.
            return Ok(Vec::new());
        }
        let taken = async {
            loop {
                let taken = self.engine.borrow().standby_takes(number, serial);
                match taken {
                    Some(taken) => return taken,
                    None => sleep(LOOK).await,
                }
            }
        };
        match timeout(TAKEN_LIMIT, taken).await {
            Ok(true) => Ok(Vec::new()),
            Ok(false) => {
                Err(refused("the standby cannot take it: see its log; nothing has changed".to_owned()))
            }
            Err(_) => Ok(vec!["the standby has not taken it yet".to_owned()]),
        }
    }

    /// Once, when the sessions are here: a process before may have died while it made them.
    fn finish(self: &Rc<Self>) {
        let may = {
            let engine = self.engine.borrow();
            engine.is_ready() && engine.is_complete && engine.wanted().is_empty()
        };
        if !may || self.has_finished.replace(true) {
            return;
        }
        let this = Rc::clone(self);
        spawn_task(async move {
            while let Err(error) = this.finish_remaking().await {
                debug!("what was made again: {}", error.message());
                sleep(RETRY).await;
            }
        });
    }

    /// Makes sessions of what was read of another router, if that is so.
    fn restore(self: &Rc<Self>) {
        let read = self.engine.borrow_mut().take_read(Instant::now());
        if let Some(objects) = read {
            let this = Rc::clone(self);
            spawn_task(async move {
                let (here, not) = this.remake(objects).await;
                this.engine.borrow_mut().restored(here, not);
                this.wake();
            });
        }
    }

    /// There is something to do.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Tells the gate where it stands, and waits for a while until it does. Other tables may want other descriptors.
    pub(crate) async fn configured(self: &Rc<Self>) {
        if let Err(error) = self.fetch().await {
            debug!("the keeper: {}", error.message());
        }
        self.wake();
        if timeout(ATTACH_LIMIT, self.attach()).await.is_err() {
            warn!(
                event = "gate-failed",
                "the process gate is not there: sessions that begin now are not protected"
            );
            let this = Rc::clone(self);
            spawn_task(async move { this.attach().await });
        }
    }

    /// Until the gate has been told once.
    async fn attach(&self) {
        loop {
            match self.try_attach().await {
                Ok(missing) => {
                    for what in &missing {
                        error!(event = "gate-failed", "sessions cannot be gated: {what}");
                    }
                    let mut engine = self.engine.borrow_mut();
                    engine.gate_stands = missing.is_empty();
                    engine.missing = missing;
                    return;
                }
                Err(error) => debug!("the gate: {}", error.message()),
            }
            sleep(RETRY).await;
        }
    }

    async fn try_attach(&self) -> Result<Vec<String>, XrlError> {
        let gate: GateClient = self.resolver.wait_for("gate").await?;
        let failed = |error: std::io::Error| XrlError::internal(error.to_string());
        let (request, marks) = {
            let engine = self.engine.borrow();
            let vrf = |(name, (number, netns))| Vrf { name, number, netns };
            let vrfs = engine.vrfs().into_iter().map(vrf).collect();
            let ports = engine.ports().into_iter().collect();
            (AttachRequest { ports, queue: QUEUE, vrfs }, engine.marks_descriptor().map_err(failed)?)
        };
        let ends = [(); 2].map(|()| self.gate_end.try_clone());
        let [rings, hears] = ends;
        let descriptors = vec![marks, rings.map_err(failed)?, hears.map_err(failed)?];
        Ok(gate.attach(request, descriptors).await?.missing)
    }

    /// The loop: turns, for ever.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            let now = Instant::now();
            let mut more = self.engine.borrow_mut().turn(now);
            self.keep_lease();
            more |= self.preheat(now);
            self.judge_addresses(now);
            self.finish();
            self.restore();
            let is_ready = self.engine.borrow().is_ready() || self.do_stand_in.get();
            self.ready.send_if_modified(|ready| std::mem::replace(ready, is_ready) != is_ready);
            let number = self.engine.borrow().next_shared().map_or(0, |next| next.number);
            self.next.send_if_modified(|next| std::mem::replace(next, number) != number);
            if self.engine.borrow_mut().must_end_sessions() {
                self.end_sessions();
            }
            if self.engine.borrow_mut().must_ring() {
                // Full: it rings already.
                let _ = self.bell.try_write(&1_u64.to_ne_bytes());
            }
            if more {
                tokio::task::yield_now().await;
                continue;
            }
            let pause = {
                let mut engine = self.engine.borrow_mut();
                engine.begin_sleep();
                engine.pause(Instant::now())
            };
            tokio::select! {
                biased;
                () = self.wake.notified() => {}
                _ = self.bell.readable() => {
                    // Whoever rings again is heard again.
                    while self.bell.try_read(&mut [0; 64]).is_ok_and(|count| count == 64) {}
                }
                () = sleep(pause) => {}
            }
            self.engine.borrow_mut().end_sleep();
        }
    }

    /// Has `bgp` end its sessions with a Cease. Whoever does not answer has their segments dropped a little later.
    fn end_sessions(self: &Rc<Self>) {
        let speakers = self.engine.borrow().speakers();
        for class in speakers {
            let this = Rc::clone(self);
            spawn_task(async move { this.end_sessions_of(&class).await });
        }
    }

    async fn end_sessions_of(&self, class: &str) {
        let text = "the store that protects this session is away";
        let request = ClearRequest { peer: "*".into(), text: text.into(), ..ClearRequest::default() };
        let ended = async {
            let bgp: BgpClient = self.resolver.wait_for(class).await?;
            bgp.clear(request).await
        };
        match timeout(END_LIMIT, ended).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => warn!(event = "sessions-not-ended", "bgp: {}", error.message()),
            Err(_) => warn!(event = "sessions-not-ended", "bgp does not answer"),
        }
    }

    /// Follows what the keeper has of `bgp`, for ever.
    pub(crate) async fn follow_keeper(self: Rc<Self>) {
        let mut known = BTreeSet::new();
        loop {
            if let Err(error) = self.follow(&mut known).await {
                debug!("the keeper: {}", error.message());
            }
            sleep(RETRY).await;
        }
    }

    async fn follow(&self, known: &mut BTreeSet<String>) -> Result<(), XrlError> {
        let mut changes = self.keeper.watch_kept(OfRequest { owner: OWNER.into() });
        let (mut seen, mut is_complete) = (BTreeSet::new(), false);
        while let Some(said) = changes.next().await? {
            for change in said.changes {
                if change.number == 0 {
                    known.remove(&change.key);
                } else {
                    seen.insert(change.key.clone());
                    known.insert(change.key.clone());
                }
                self.engine.borrow_mut().kept(&change.key, change.number);
            }
            if said.complete && !is_complete {
                is_complete = true;
                // What went while nobody was told.
                for key in known.difference(&seen) {
                    self.engine.borrow_mut().kept(key, 0);
                }
                known.retain(|key| seen.contains(key));
            }
            self.fetch().await?;
            self.engine.borrow_mut().is_complete |= is_complete;
        }
        Ok(())
    }

    /// Gets the descriptors that are wanted.
    pub(crate) async fn fetch(&self) -> Result<(), XrlError> {
        let wanted = self.engine.borrow().wanted();
        for part in wanted.chunks(MANY) {
            let keys = part.iter().map(|(key, _)| key.clone()).collect();
            let request = GetOfRequest { owner: OWNER.into(), keys };
            let (reply, descriptors) = self.keeper.get_of(request).await?;
            let found = part.iter().zip(reply.found).filter(|(_, found)| *found);
            for (((key, number), _), descriptor) in found.zip(descriptors) {
                self.engine.borrow_mut().take(key, *number, descriptor);
            }
        }
        self.wake();
        Ok(())
    }
}
