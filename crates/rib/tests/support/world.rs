//! The table with origins, clients, a kernel and subscribers around it, and the model beside it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{Duration, Instant},
};

use holdfast_rib::{
    Answer, Awaited, ClientId, Interface, InterfaceAddress, Neighbor, NexthopSet, NexthopSetId, Nexthops,
    OriginId, RedistFilter, Rib, RibConfig, RouteAction, SubscriptionId,
};
use holdfast_types::{Family, HashKey, Prefix};

use super::{
    CLIENTS, ORIGINS, SUBSCRIBERS, addresses, contents, interface_name,
    kernel::Kernel,
    model::{CONNECTED, Model, ModelRoute, Winner},
    origin_config, prefix,
};

#[derive(Debug)]
struct OriginSide {
    id: OriginId,
    alive: bool,
    life: u32,
    deadline: Option<Instant>,
    /// Its handles: the table's number and the model's.
    handles: BTreeMap<usize, (NexthopSetId, usize)>,
}

#[derive(Debug)]
struct Subscriber {
    id: SubscriptionId,
    routes: BTreeMap<Prefix, (usize, u32, NexthopSet)>,
    is_synced: bool,
}

pub(crate) struct World {
    pub(crate) rib: Rib,
    model: Model,
    origins: Vec<OriginSide>,
    now: Instant,
    /// What each client was told, and the addresses about which it has asked.
    caches: Vec<BTreeMap<Prefix, (Answer, BTreeSet<IpAddr>)>>,
    kernel: Option<Kernel>,
    held: bool,
    subscribers: [Option<Subscriber>; SUBSCRIBERS],
}

fn filter(subscriber: usize) -> RedistFilter {
    match subscriber {
        0 => RedistFilter::default(),
        1 => RedistFilter { origins: vec!["connected".into(), "static".into()], family: None },
        _ => RedistFilter { origins: vec!["ebgp".into()], family: Some(Family::IPV4_UNICAST) },
    }
}

fn is_wanted(subscriber: usize, prefix: Prefix, winner: &Winner) -> bool {
    match subscriber {
        0 => true,
        1 => winner.origin == CONNECTED || winner.origin == 0,
        _ => winner.origin == 2 && matches!(prefix, Prefix::V4(_)),
    }
}

/// Origins.
impl World {
    pub(crate) fn new(log_capacity: usize, via_default: bool) -> Self {
        let config = RibConfig {
            log_capacity,
            resolve_via_default: via_default,
            ..RibConfig::new(HashKey::new([7, 0]))
        };
        let mut rib = Rib::new(config);
        let now = Instant::now();
        let origins = (0..ORIGINS.len()).map(|origin| {
            let id = rib.add_origin(ORIGINS[origin].0, origin_config(origin), now).expect("room");
            OriginSide { id, alive: true, life: 0, deadline: None, handles: BTreeMap::new() }
        });
        Self {
            origins: origins.collect(),
            rib,
            model: Model { via_default, ..Model::default() },
            now,
            caches: vec![BTreeMap::new(); CLIENTS],
            kernel: None,
            held: false,
            subscribers: Default::default(),
        }
    }

    fn handle(&mut self, origin: usize, handle: usize) -> (NexthopSetId, usize) {
        let side = &mut self.origins[origin];
        *side.handles.entry(handle).or_insert_with(|| {
            self.model.handles.push(contents(handle));
            (self.rib.nexthops(side.id, contents(handle)), self.model.handles.len() - 1)
        })
    }

    pub(crate) fn announce(
        &mut self,
        origin: usize,
        text: &str,
        handle: usize,
        metric: u32,
        distance: Option<u8>,
        source: u32,
    ) {
        if !self.origins[origin].alive {
            return;
        }
        let (nexthops, handle) = self.handle(origin, handle);
        let side = &self.origins[origin];
        let action = RouteAction::Announce { nexthops, metric, distance, tag: 0, source };
        self.rib.origin_routes(side.id, [(action, [prefix(text)])]).expect("valid");
        let distance = distance.unwrap_or(ORIGINS[origin].2);
        self.model
            .routes
            .insert((prefix(text), origin), ModelRoute { handle, metric, distance, life: side.life, source });
    }

    pub(crate) fn withdraw(&mut self, origin: usize, text: &str) {
        let side = &self.origins[origin];
        let change = (RouteAction::Withdraw, [prefix(text)]);
        assert_eq!(self.rib.origin_routes(side.id, [change]).is_ok(), side.alive);
        if side.alive {
            self.model.routes.remove(&(prefix(text), origin));
        }
    }

    /// A stale route may share the set of a live handle: only without any is it clear what has to happen.
    pub(crate) fn redefine(&mut self, origin: usize, handle: usize, nexthops: Nexthops) {
        let side = &self.origins[origin];
        if let Some(&(id, handle)) = side.handles.get(&handle).filter(|_| side.deadline.is_none()) {
            self.finish_work();
            self.rib.change_nexthops([(id, nexthops.clone())]);
            self.model.handles[handle] = nexthops;
        }
    }

    /// Only a handle that no route of this life uses is undefined.
    pub(crate) fn undefine(&mut self, origin: usize, handle: usize) {
        let Some(&(id, number)) = self.origins[origin].handles.get(&handle) else { return };
        if !self.model.routes.values().any(|route| route.handle == number) {
            self.origins[origin].handles.remove(&handle);
            self.rib.release_nexthops(id);
        }
    }

    pub(crate) fn die(&mut self, origin: usize) {
        let side = &mut self.origins[origin];
        self.rib.origin_died(side.id, self.now);
        if std::mem::replace(&mut side.alive, false) {
            side.deadline.get_or_insert(self.now + Duration::from_secs(120));
        }
        for (id, _) in std::mem::take(&mut side.handles).into_values() {
            self.rib.release_nexthops(id);
        }
    }

    pub(crate) fn come_back(&mut self, origin: usize) {
        self.die(origin);
        let id = self.rib.add_origin(ORIGINS[origin].0, origin_config(origin), self.now);
        let side = &mut self.origins[origin];
        assert_eq!(id, Ok(side.id));
        (side.alive, side.life) = (true, side.life + 1);
    }

    pub(crate) fn end_of_sync(&mut self, origin: usize) {
        let side = &mut self.origins[origin];
        assert_eq!(self.rib.origin_end_of_sync(side.id).is_ok(), side.alive);
        if side.alive && side.deadline.take().is_some() {
            let life = side.life;
            self.forget_older(origin, life, &[]);
        }
    }

    /// The origin has said all, but waits for these sources.
    pub(crate) fn told(&mut self, origin: usize, awaited: &[u32]) {
        let side = &self.origins[origin];
        assert_eq!(self.rib.origin_told(side.id, Awaited::These(awaited.to_vec())).is_ok(), side.alive);
        if side.alive && side.deadline.is_some() {
            let life = side.life;
            self.forget_older(origin, life, awaited);
        }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.rib.handle_timeout(self.now);
        for origin in 0..ORIGINS.len() {
            let side = &mut self.origins[origin];
            if side.deadline.is_some_and(|deadline| deadline <= self.now) {
                side.deadline = None;
                let life = side.life + u32::from(!side.alive);
                self.forget_older(origin, life, &[]);
            }
        }
        let deadlines = self.origins.iter().filter_map(|side| side.deadline);
        assert_eq!(self.rib.poll_timeout(), deadlines.min());
    }

    fn forget_older(&mut self, origin: usize, life: u32, awaited: &[u32]) {
        let stays = |route: &ModelRoute| route.life >= life || awaited.contains(&route.source);
        self.model.routes.retain(|&(_, from), route| from != origin || stays(route));
    }
}

/// Interfaces and clients.
impl World {
    pub(crate) fn interface(&mut self, index: usize, up: bool, addresses: Vec<InterfaceAddress>) {
        let interface = Interface { index: index as u32 + 1, name: interface_name(index), up, addresses };
        self.model.interfaces.insert(interface.index, interface.clone());
        self.rib.interface_changed(interface);
    }

    pub(crate) fn interface_gone(&mut self, index: usize) {
        self.model.interfaces.remove(&(index as u32 + 1));
        self.rib.interface_gone(index as u32 + 1);
    }

    pub(crate) fn fail(&mut self, neighbor: Neighbor, failed: bool) {
        match failed {
            true => self.model.failed.insert(neighbor),
            false => self.model.failed.remove(&neighbor),
        };
        self.rib.neighbors_failed([(neighbor, failed)]);
        assert!(self.rib.failed_neighbors().eq(self.model.failed.iter().copied()));
    }

    pub(crate) fn register(&mut self, client: usize, address: IpAddr) {
        self.deliver_invalidations();
        let answer = self.rib.register_interest(ClientId(client as u32), address).expect("room");
        assert!(answer.range.contains_address(address));
        // Routes that kept ranges small may have gone: the client is told of those before it gets the answer.
        self.deliver_invalidations();
        let cache = &mut self.caches[client];
        let overlaps = |range: &Prefix| range.contains(answer.range) || answer.range.contains(*range);
        let others = cache.keys().filter(|range| **range != answer.range);
        assert_eq!(others.copied().find(overlaps), None, "ranges beside {}", answer.range);
        let (known, asked) = cache.entry(answer.range).or_insert((answer.clone(), BTreeSet::new()));
        assert_eq!(*known, answer, "an answer that holds");
        asked.insert(address);
    }

    pub(crate) fn unregister(&mut self, client: usize, address: IpAddr) {
        self.deliver_invalidations();
        self.rib.unregister_interest(ClientId(client as u32), address);
        self.caches[client].retain(|_, (_, asked)| {
            asked.remove(&address);
            !asked.is_empty()
        });
    }

    pub(crate) fn client_gone(&mut self, client: usize) {
        self.rib.client_gone(ClientId(client as u32));
        self.caches[client].clear();
    }

    fn deliver_invalidations(&mut self) {
        for (client, cache) in (0..).zip(&mut self.caches) {
            while let Some(range) = self.rib.poll_invalidation(ClientId(client)) {
                cache.remove(&range);
            }
        }
    }
}

/// Readers.
impl World {
    /// A kernel that has nothing of ours, or one that was there before and lost its connection.
    pub(crate) fn fib_attach(&mut self) {
        self.kernel.get_or_insert_default().forget();
        self.rib.fib_attach();
    }

    pub(crate) fn fib_detach(&mut self) {
        self.kernel = None;
        self.rib.fib_detach();
    }

    pub(crate) fn fib_poll(&mut self, max: usize) -> bool {
        let Some(batch) = self.rib.poll_fib(max) else { return false };
        let kernel = self.kernel.as_mut().expect("no batches without an engine");
        assert!(batch.routes.len() <= max);
        assert!(!(batch.end && self.held), "the sync has ended while held");
        let ends = batch.end;
        kernel.apply(batch);
        let number = self.rib.fib_batch();
        self.rib.fib_acknowledged(number);
        if ends {
            let table = kernel.table();
            let missing = self.model.installed().into_keys().find(|prefix| !table.contains_key(prefix));
            assert_eq!(missing, None, "the sync removed a route that stays");
        }
        true
    }

    /// What is not to wait for batches.
    pub(crate) fn fib_poll_at_once(&mut self) {
        let handles = self.rib.poll_fib_at_once();
        match &mut self.kernel {
            Some(kernel) => kernel.define(handles),
            None => assert!(handles.is_empty()),
        }
    }

    pub(crate) fn hold_sync(&mut self, held: bool) {
        self.held = held;
        self.rib.hold_fib_sync(held);
    }

    pub(crate) fn subscribe(&mut self, subscriber: usize) {
        self.unsubscribe(subscriber);
        let id = self.rib.redist_subscribe(filter(subscriber)).expect("room");
        self.subscribers[subscriber] = Some(Subscriber { id, routes: BTreeMap::new(), is_synced: false });
    }

    pub(crate) fn unsubscribe(&mut self, subscriber: usize) {
        if let Some(subscriber) = self.subscribers[subscriber].take() {
            self.rib.redist_unsubscribe(subscriber.id);
        }
    }

    pub(crate) fn redist_poll(&mut self, number: usize, max: usize) -> bool {
        let Some(subscriber) = &mut self.subscribers[number] else { return false };
        let Some(batch) = self.rib.poll_redist(subscriber.id, max) else { return false };
        assert!(batch.changes.len() <= max);
        if batch.begin {
            subscriber.routes.clear();
            subscriber.is_synced = false;
        }
        for (prefix, route) in batch.changes {
            match route {
                Some(route) => {
                    let origin = self.origins.iter().position(|side| side.id == route.origin);
                    let nexthops = self.rib.nexthop_set(route.nexthops).expect("valid").clone();
                    let content = (origin.unwrap_or(CONNECTED), route.metric, nexthops);
                    subscriber.routes.insert(prefix, content);
                }
                None => drop(subscriber.routes.remove(&prefix)),
            }
        }
        subscriber.is_synced |= batch.synced;
        true
    }

    fn finish_work(&mut self) {
        while !self.rib.is_idle() {
            if !self.rib.work(3) {
                self.fib_poll(5);
            }
        }
    }
}

/// Checks.
impl World {
    /// Lets everything come to rest and compares all that can be seen with the model.
    pub(crate) fn check(&mut self) {
        self.finish_work();
        self.deliver_invalidations();
        self.check_answers();
        self.check_table();
        self.check_lookups();
        self.check_kernel();
        (0..SUBSCRIBERS).for_each(|subscriber| self.check_subscriber(subscriber));
    }

    fn check_answers(&self) {
        for (range, (answer, _)) in self.caches.iter().flatten() {
            assert!(!self.model.is_overlaid(*range), "{range} is overlaid");
            let ends = [range.address()];
            for address in addresses().into_iter().chain(ends).filter(|a| range.contains_address(*a)) {
                let expected = self.model.evaluate(address);
                let route = answer.route.as_ref();
                let given = route.map(|route| (route.prefix, route.metric, route.nexthops.clone()));
                assert_eq!(given, expected, "{address} in {range}");
            }
        }
    }

    fn check_table(&self) {
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let page = self.rib.routes_after(after, 2);
            let Some(last) = page.last() else { break };
            after = Some(last.prefix);
            seen.extend(page);
        }
        let mut prefixes: Vec<_> = seen.iter().map(|route| route.prefix).collect();
        assert!(prefixes.is_sorted());
        prefixes.dedup();
        assert!(prefixes.into_iter().eq(self.model.prefixes()));
        let winners = self.model.winners();
        let table = self.kernel.as_ref().map(Kernel::table).unwrap_or_default();
        for route in seen.iter().filter(|route| route.selected) {
            let winner = &winners[&route.prefix];
            assert_eq!((&route.resolution, &route.nexthops), (&winner.forwarding, &winner.nexthops));
            assert_eq!(route.installed || route.requested, winner.origin != CONNECTED);
            assert!(!route.installed || table.contains_key(&route.prefix), "{route:?}: the kernel has none");
        }
        assert_eq!(seen.iter().filter(|route| route.selected).count(), winners.len());
        self.check_origins(&seen);
    }

    fn check_origins(&self, seen: &[holdfast_rib::ShownRoute]) {
        for status in self.rib.status().origins {
            let routes = seen.iter().filter(|route| route.origin == status.id).count();
            assert_eq!(status.routes, routes as u64, "{}", status.name);
            let Some(number) = self.origins.iter().position(|side| side.id == status.id) else { continue };
            let side = &self.origins[number];
            for route in seen.iter().filter(|route| route.origin == status.id) {
                let expected = &self.model.routes[&(route.prefix, number)];
                assert_eq!(route.stale, !side.alive || expected.life != side.life);
            }
        }
    }

    fn check_lookups(&self) {
        let winners = self.model.winners();
        for address in addresses() {
            let covering = winners.keys().filter(|prefix| prefix.contains_address(address));
            let longest = covering.max_by_key(|prefix| prefix.length()).copied();
            assert_eq!(self.rib.lookup(address).map(|route| route.prefix), longest, "{address}");
        }
    }

    fn check_kernel(&mut self) {
        while self.fib_poll(3) {}
        let Some(kernel) = &self.kernel else { return };
        assert!(kernel.is_synced || self.held);
        if kernel.is_synced {
            assert_eq!(kernel.table(), self.model.installed());
            let sets = self.rib.status().nexthop_sets;
            assert!(kernel.handles() as u64 <= sets, "handles are given back");
        }
        assert_eq!(self.rib.status().pending, 0);
    }

    fn check_subscriber(&mut self, number: usize) {
        while self.redist_poll(number, 3) {}
        let Some(subscriber) = &self.subscribers[number] else { return };
        let wanted = self.model.winners().into_iter().filter(|(p, winner)| is_wanted(number, *p, winner));
        let wanted: BTreeMap<_, _> =
            wanted.map(|(p, winner)| (p, (winner.origin, winner.metric, winner.nexthops))).collect();
        assert!(subscriber.is_synced);
        assert_eq!(subscriber.routes, wanted);
    }
}
