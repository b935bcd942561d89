//! One version of RIP in one table: the engine, its sockets, its time.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    convert::Infallible,
    hash::{BuildHasher, RandomState},
    io,
    net::{IpAddr, SocketAddr, SocketAddrV6},
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_process::{Boot, spawn_task};
use holdfast_rip::{
    Candidate, Datagram, Event, InterfaceAddress, Metric, Policy, Refused, Rip, Settings, Transmit,
};
use holdfast_routing::{Datagrams, Link, Links, Origin, Plain, Route, first_sequence};
use holdfast_types::Prefix;
use tokio::{sync::Notify, task::AbortHandle, time::sleep};
use tracing::{debug, info, warn};

use crate::{
    section::{Filters, Interface, NAME, OfTable},
    version::Version,
};

/// Datagrams that are received, or sent, before others have their turn.
const TURN: usize = 32;
/// Octets of the longest datagram: the MTU may change.
const LONGEST: usize = 65535;
/// Pause before a datagram is sent again for which there was no room, and how often that is tried.
const ROOM: (Duration, u32) = (Duration::from_millis(10), 100);
/// Pause before a socket is opened again that could not be, or has failed.
const RETRY: Duration = Duration::from_secs(1);

/// How far sending has come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Sent {
    Everything,
    Some,
    /// The kernel has no room now.
    NoRoom,
}

/// The filters of the interfaces, by number.
#[derive(Debug, Default)]
pub(crate) struct Policies(BTreeMap<u32, Filters>);

/// What stands between a table and the neighbours of one version.
pub(crate) struct Speaker<P: Version> {
    boot: Rc<Boot>,
    origin: Rc<Origin>,
    engine: RefCell<Rip<P, Policies>>,
    ports: RefCell<BTreeMap<u32, Port<P>>>,
    /// A datagram for which there was no room, and how often it was tried.
    unsent: RefCell<Option<(Transmit<P>, u32)>>,
    /// Something has changed that the engine has to be asked about.
    bell: Notify,
    /// The farewell is sent.
    has_left: Notify,
    /// Routes are being refused since the last change of the configuration.
    is_refusing: Cell<bool>,
    /// Redistributed routes have found no room.
    has_left_out: Cell<bool>,
}

/// An interface where the version is spoken.
struct Port<P: Version> {
    wanted: Wanted<P>,
    slot: Rc<Slot>,
    task: AbortHandle,
}

/// The place of a socket.
#[derive(Default)]
struct Slot {
    /// As long as there is one.
    socket: RefCell<Option<Rc<Datagrams>>>,
    /// Another one is to take its place.
    again: Notify,
}

/// All that the engine is told of an interface.
#[derive(Clone, PartialEq)]
struct Wanted<P: Version> {
    interface: Interface,
    addresses: Vec<InterfaceAddress<P>>,
    mtu: u32,
}

impl<P: Version> Drop for Port<P> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<P: Version> Speaker<P> {
    pub(crate) fn new(boot: Rc<Boot>, origin: Rc<Origin>, timers: Settings) -> Rc<Self> {
        let settings = Settings {
            seed: RandomState::new().hash_one(P::PORT),
            first_sequence: first_sequence(),
            ..timers
        };
        Rc::new(Self {
            boot,
            origin,
            engine: RefCell::new(Rip::with_policy(settings, Instant::now(), Policies::default())),
            ports: RefCell::default(),
            unsent: RefCell::default(),
            bell: Notify::new(),
            has_left: Notify::new(),
            is_refusing: Cell::new(false),
            has_left_out: Cell::new(false),
        })
    }

    /// Speaks on the interfaces that are configured and there, and on no others.
    pub(crate) fn follow(self: &Rc<Self>, of_table: &OfTable, links: &Links) {
        let now = Instant::now();
        self.is_refusing.set(false);
        let mut engine = self.engine.borrow_mut();
        engine.set_timers(of_table.timers);
        let speaks = of_table.families.contains(&P::FAMILY);
        let usable = links.values().filter(|link| speaks && link.is_up);
        let mut wanted = BTreeMap::new();
        let mut filters = BTreeMap::new();
        for link in usable {
            let named = of_table.interfaces.iter().find(|(interface, _)| interface.name == link.name);
            let Some((interface, of_interface)) = named else { continue };
            let Some(found) = Wanted::of(interface, link) else { continue };
            wanted.insert(link.index, found);
            filters.insert(link.index, of_interface.clone());
        }
        engine.policy_mut().0 = filters;
        let mut ports = self.ports.borrow_mut();
        ports.retain(|index, port| {
            let stays = wanted.contains_key(index);
            if !stays && engine.remove_interface(now, *index) {
                info!(
                    event = "interface-left",
                    interface = port.wanted.interface.name,
                    version = P::VERSION_NAME,
                    "left"
                );
            }
            stays
        });
        for (index, wanted) in wanted {
            match ports.get_mut(&index) {
                Some(port) if port.wanted == wanted => {}
                Some(port) => {
                    port.wanted = wanted;
                    if port.slot.socket.borrow().is_some() {
                        engine.set_interface(now, index, port.wanted.engine());
                    }
                }
                None => drop(ports.insert(index, self.open(index, wanted))),
            }
        }
        drop(engine);
        self.bell.notify_one();
    }

    fn open(self: &Rc<Self>, index: u32, wanted: Wanted<P>) -> Port<P> {
        let slot: Rc<Slot> = Rc::default();
        let (speaker, place, name) = (Rc::clone(self), Rc::clone(&slot), wanted.interface.name.clone());
        let task = spawn_task(async move { speaker.listen(index, &name, &place).await }).abort_handle();
        Port { wanted, slot, task }
    }

    /// Opens all sockets again: their interfaces may be others, where those that there are have joined no group.
    pub(crate) fn open_again(&self) {
        self.ports.borrow().values().for_each(|port| port.slot.again.notify_one());
    }

    /// Opens the socket of an interface, and takes in what comes, for ever.
    async fn listen(&self, index: u32, name: &str, slot: &Slot) {
        let mut said = String::new();
        loop {
            let error = match Datagrams::open(&self.boot, name, P::PORT, P::IS_IPV6).await {
                Ok(socket) => {
                    let socket = Rc::new(socket);
                    slot.socket.replace(Some(Rc::clone(&socket)));
                    self.is_open(index, name);
                    let failed = tokio::select! {
                        failed = self.take_in(index, &socket) => Some(failed),
                        () = slot.again.notified() => None,
                    };
                    // Before there is another one: it leaves its group by the number of the interface, and with it the
                    // other one would.
                    slot.socket.replace(None);
                    let Some(failed) = failed else { continue };
                    failed.to_string()
                }
                Err(error) => error.to_string(),
            };
            if error != said {
                warn!(event = "interface-failed", interface = name, version = P::VERSION_NAME, "{error}");
                said = error;
            }
            sleep(RETRY).await;
        }
    }

    fn is_open(&self, index: u32, name: &str) {
        let ports = self.ports.borrow();
        let Some(port) = ports.get(&index) else { return };
        self.engine.borrow_mut().set_interface(Instant::now(), index, port.wanted.engine());
        info!(event = "interface-joined", interface = name, version = P::VERSION_NAME, "spoken there");
        self.bell.notify_one();
    }

    /// What ended it.
    async fn take_in(&self, interface: u32, socket: &Datagrams) -> io::Error {
        let mut buffer = vec![0; LONGEST];
        loop {
            if let Err(error) = socket.readable().await {
                return error;
            }
            for _ in 0..TURN {
                match socket.receive(&mut buffer) {
                    Ok(Some(received)) => self.receive(interface, received, &buffer[..received.octets]),
                    Ok(None) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return error,
                }
            }
            self.bell.notify_one();
            // Whoever sends without a pause keeps nobody else waiting.
            tokio::task::yield_now().await;
        }
    }

    fn receive(&self, interface: u32, received: holdfast_routing::Datagram, octets: &[u8]) {
        let Some(source) = P::address(received.source.ip()) else { return };
        let datagram = Datagram {
            interface,
            source,
            port: received.source.port(),
            hop_limit: received.hop_limit.unwrap_or(u8::MAX),
            multicast: received.is_multicast,
            octets,
        };
        if let Err(error) = self.engine.borrow_mut().receive(Instant::now(), &datagram) {
            debug!(interface, %source, "discarded: {error}");
        }
    }

    /// Does what is due, for ever.
    pub(crate) async fn run(&self) -> Infallible {
        loop {
            self.engine.borrow_mut().advance(Instant::now());
            let sent = self.send();
            self.tell();
            let next = self.engine.borrow().next_deadline();
            match sent {
                Sent::Everything if self.engine.borrow().has_left() => self.has_left.notify_one(),
                Sent::Everything => {}
                Sent::Some => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Sent::NoRoom => {
                    sleep(ROOM.0).await;
                    continue;
                }
            }
            tokio::select! {
                () = self.bell.notified() => {}
                () = until(next) => {}
            }
        }
    }

    /// Sends some of what is to be sent. Where the kernel has no room the datagram waits, and those behind it.
    fn send(&self) -> Sent {
        for _ in 0..TURN {
            let waiting = self.unsent.take();
            let next = waiting.or_else(|| self.engine.borrow_mut().poll_transmit().map(|next| (next, 0)));
            let Some((transmit, tried)) = next else { return Sent::Everything };
            let ports = self.ports.borrow();
            let socket = ports.get(&transmit.interface).and_then(|port| port.slot.socket.borrow().clone());
            let to = address(transmit.destination.into(), transmit.port, transmit.interface);
            let Some(socket) = socket else { continue };
            let sent = match transmit.source {
                Some(source) => socket.send_from(&transmit.octets, transmit.interface, source.into(), to),
                None => socket.send(&transmit.octets, to),
            };
            match sent {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && tried < ROOM.1 => {
                    self.unsent.replace(Some((transmit, tried + 1)));
                    return Sent::NoRoom;
                }
                Err(error) => debug!(interface = transmit.interface, %to, "not sent: {error}"),
            }
        }
        Sent::Some
    }

    /// Tells the RIB what has changed.
    fn tell(&self) {
        let mut engine = self.engine.borrow_mut();
        while let Some(event) = engine.poll_event() {
            match event {
                Event::Route { prefix, next_hop, interface, metric, tag, .. } => {
                    let (metric, tag) = (metric.get().into(), tag.into());
                    let gateway = Some(next_hop.into());
                    self.origin.announce(prefix.into(), Route { gateway, interface, metric, tag });
                }
                Event::Gone { prefix } => self.origin.withdraw(prefix.into()),
                Event::TableFull => {
                    warn!(
                        event = "table-full",
                        version = P::VERSION_NAME,
                        "the table is full: further routes are ignored"
                    );
                }
            }
        }
    }

    /// Whether neighbours have had the time to say what they know.
    pub(crate) fn is_synchronised(&self) -> bool {
        let is_open = |port: &Port<P>| port.slot.socket.borrow().is_some();
        self.ports.borrow().values().all(is_open) && self.engine.borrow().is_synchronised(Instant::now())
    }

    /// Advertises a route of another protocol, if it is of this version and RIP may.
    pub(crate) fn redistribute(&self, prefix: Prefix, metric: Metric, tag: u32) {
        let Some(prefix) = P::prefix(prefix) else { return };
        let (now, mut engine) = (Instant::now(), self.engine.borrow_mut());
        let tag = u16::try_from(tag).unwrap_or(0);
        match engine.redistribute(now, prefix, metric, tag) {
            Ok(()) | Err(Refused::Destination) => {}
            Err(error @ Refused::Full) => {
                self.has_left_out.set(true);
                engine.withdraw_redistributed(now, prefix);
                if !self.is_refusing.replace(true) {
                    warn!(event = "redistribution-refused", %prefix, "routes are not redistributed: {error}");
                }
            }
        }
        self.bell.notify_one();
    }

    /// Whether there is room for such routes that have found none. They are to be said again then: what is not there is not
    /// remembered.
    pub(crate) fn has_room_again(&self) -> bool {
        let has_room = self.has_left_out.get() && !self.engine.borrow().is_full();
        if has_room {
            self.has_left_out.set(false);
        }
        has_room
    }

    /// Takes such a route back.
    pub(crate) fn withdraw(&self, prefix: Prefix) {
        let Some(prefix) = P::prefix(prefix) else { return };
        self.engine.borrow_mut().withdraw_redistributed(Instant::now(), prefix);
        self.bell.notify_one();
    }

    /// Tells neighbours that nothing is reachable this way any more; returns when all of it is sent, by [`Speaker::run`].
    pub(crate) async fn say_farewell(&self) {
        self.engine.borrow_mut().withdraw_all(Instant::now());
        self.bell.notify_one();
        self.has_left.notified().await;
    }

    /// Closes its sockets.
    pub(crate) fn leave(&self) {
        self.ports.borrow_mut().clear();
    }

    /// What operators look at.
    pub(crate) fn engine(&self) -> std::cell::Ref<'_, Rip<P, Policies>> {
        self.engine.borrow()
    }

    /// The name of an interface where the version is spoken.
    pub(crate) fn interface(&self, index: u32) -> String {
        let ports = self.ports.borrow();
        ports.get(&index).map_or_else(|| index.to_string(), |port| port.wanted.interface.name.clone())
    }
}

impl<P: Version> Wanted<P> {
    /// `None`: the interface has no address of this version.
    fn of(interface: &Interface, link: &Link) -> Option<Self> {
        let addresses = link.addresses.iter().filter_map(|own| P::own(*own));
        let addresses: Vec<_> = addresses.collect();
        // Neighbours of RIPng are known by their link-local addresses, and so are we.
        let speaks = |own: &InterfaceAddress<P>| !P::LINK_LOCAL || P::is_link_local(own.address);
        let can = addresses.iter().any(speaks);
        can.then(|| Self { interface: interface.clone(), addresses, mtu: link.mtu })
    }

    fn engine(&self) -> holdfast_rip::Interface<P> {
        let credentials = self.interface.credentials();
        holdfast_rip::Interface {
            cost: self.interface.cost(),
            passive: self.interface.passive,
            split_horizon: self.interface.split_horizon(),
            mtu: self.mtu,
            // Checked when the section came.
            authentication: P::credentials(credentials.unwrap_or_default()),
            ..holdfast_rip::Interface::new(self.addresses.clone())
        }
    }
}

/// A policy judges RIP's own routes as it does those of other protocols.
fn judge<P: Version>(
    policy: Option<&holdfast_policy::Program>,
    prefix: P::Prefix,
    route: &mut Candidate,
) -> bool {
    let (Some(policy), Ok(protocol)) = (policy, NAME.parse()) else { return policy.is_none() };
    let plain = Plain::new(prefix.into(), protocol, route.metric.get().into(), route.tag.into());
    let Some(accepted) = plain.under(policy) else { return false };
    let metric = accepted.metric.map_or(Some(route.metric), Metric::new);
    let (Some(metric), Ok(tag)) = (metric, u16::try_from(accepted.tag)) else { return false };
    (route.metric, route.tag) = (metric, tag);
    true
}

impl<P: Version> Policy<P> for Policies {
    fn import(&mut self, interface: u32, prefix: P::Prefix, route: &mut Candidate) -> bool {
        let filters = self.0.get(&interface);
        judge::<P>(filters.and_then(|filters| filters.import.as_ref()), prefix, route)
    }

    fn export(&mut self, interface: u32, prefix: P::Prefix, route: &mut Candidate) -> bool {
        let filters = self.0.get(&interface);
        judge::<P>(filters.and_then(|filters| filters.export.as_ref()), prefix, route)
    }
}

fn address(address: IpAddr, port: u16, interface: u32) -> SocketAddr {
    match address {
        IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, interface).into(),
        address => (address, port).into(),
    }
}

async fn until(next: Option<Instant>) {
    match next {
        Some(next) => tokio::time::sleep_until(next.into()).await,
        None => std::future::pending().await,
    }
}
