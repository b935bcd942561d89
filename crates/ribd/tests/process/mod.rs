//! The process between an origin, a manager and a forwarding engine that are played by the test.

mod bfd;
mod vrf;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::pending,
    pin::pin,
    rc::Rc,
    time::Duration,
};

use holdfast_api::{
    fea::v1 as fea,
    keeper::v1::KeeperClient,
    rib::v1 as rib,
    routes::v1::{NextHop, NextHopKind, NextHopSet, RouteBatch},
};
use holdfast_process::Boot;
use holdfast_xrl::{
    CallContext, Channel, Client, ErrorKind, Finder, Link, Node, PeerIdentity, ReplySink, ReplyStream,
    Resolver, XrlError,
};
use tokio::{
    sync::{Notify, Semaphore, mpsc},
    task::{LocalSet, spawn_local, yield_now},
    time::{sleep, timeout},
};

/// A forwarding engine with one interface that notes what it is told.
struct Engine {
    routes: RefCell<BTreeMap<(Vec<u8>, u8), u32>>,
    handles: RefCell<BTreeMap<u32, NextHopSet>>,
    syncs: RefCell<(u32, u32)>,
    /// Nothing is applied while the test holds this.
    gate: Semaphore,
    /// It forwards nothing.
    discards: Cell<bool>,
    /// It may have lost routes.
    losses: Notify,
    /// What it says next of routes that it does not have. `None`: it knows no such method.
    refusals: RefCell<Option<mpsc::UnboundedReceiver<fea::RefusalEvent>>>,
}

impl Default for Engine {
    fn default() -> Self {
        let (routes, handles, syncs) = Default::default();
        let (discards, losses, refusals) = Default::default();
        Self { routes, handles, syncs, gate: Semaphore::new(1), discards, losses, refusals }
    }
}

impl Engine {
    fn count(&self) -> usize {
        self.routes.borrow().len()
    }
}

impl fea::FeaServer for Engine {
    async fn configure(&self, _: &CallContext, _: fea::Configuration) -> Result<fea::Empty, XrlError> {
        Ok(fea::Empty {})
    }

    async fn interfaces(
        &self,
        _: &CallContext,
        _: fea::Empty,
        mut replies: ReplySink<fea::InterfaceEvent>,
    ) -> Result<(), XrlError> {
        let address = fea::Address { address: vec![10, 0, 0, 254], length: 24, ..fea::Address::default() };
        let interface = fea::Interface {
            index: 3,
            name: "eth0".into(),
            up: true,
            running: true,
            addresses: vec![address],
            ..Default::default()
        };
        replies.send(fea::InterfaceEvent { interface: Some(interface), ..Default::default() }).await?;
        replies.send(fea::InterfaceEvent { synced: true, ..Default::default() }).await?;
        pending().await
    }

    async fn sync_begin(&self, _: &CallContext, _: fea::Empty) -> Result<fea::SyncBeginReply, XrlError> {
        self.routes.borrow_mut().clear();
        self.handles.borrow_mut().clear();
        self.syncs.borrow_mut().0 += 1;
        Ok(fea::SyncBeginReply { discards: self.discards.get() })
    }

    async fn apply(&self, _: &CallContext, batch: RouteBatch) -> Result<fea::Empty, XrlError> {
        let _open = self.gate.acquire().await.expect("never closed");
        let defined = batch.define.into_iter().map(|set| (set.handle, set));
        self.handles.borrow_mut().extend(defined);
        let size = if batch.afi == 1 { 4 } else { 16 };
        let runs = batch.runs.iter().zip(&batch.next_hops);
        let handles = runs.flat_map(|(&routes, &handle)| std::iter::repeat_n(handle, routes as usize));
        let rows = batch.addresses.chunks_exact(size).zip(&batch.lengths);
        for ((address, &length), handle) in rows.zip(handles) {
            let key = (address.to_vec(), length);
            match handle {
                0 => drop(self.routes.borrow_mut().remove(&key)),
                handle => {
                    assert!(self.handles.borrow().contains_key(&handle));
                    self.routes.borrow_mut().insert(key, handle);
                }
            }
        }
        Ok(fea::Empty {})
    }

    /// Nothing waits for the gate here.
    async fn define_at_once(&self, _: &CallContext, batch: RouteBatch) -> Result<fea::Empty, XrlError> {
        let defined = batch.define.into_iter().map(|set| (set.handle, set));
        self.handles.borrow_mut().extend(defined);
        Ok(fea::Empty {})
    }

    async fn sync_end(&self, _: &CallContext, _: fea::Empty) -> Result<fea::Empty, XrlError> {
        self.syncs.borrow_mut().1 += 1;
        Ok(fea::Empty {})
    }

    async fn losses(
        &self,
        _: &CallContext,
        _: fea::Empty,
        mut replies: ReplySink<fea::Loss>,
    ) -> Result<(), XrlError> {
        loop {
            self.losses.notified().await;
            replies.send(fea::Loss { reason: "the test says so".into() }).await?;
        }
    }

    async fn refusals(
        &self,
        _: &CallContext,
        _: fea::Empty,
        mut replies: ReplySink<fea::RefusalEvent>,
    ) -> Result<(), XrlError> {
        let said = self.refusals.take();
        let mut said = said.ok_or_else(|| XrlError::not_found("an engine of before"))?;
        while let Some(refusals) = said.recv().await {
            replies.send(refusals).await?;
        }
        pending().await
    }

    async fn show_interfaces(
        &self,
        _: &CallContext,
        _: fea::Empty,
    ) -> Result<fea::ShowInterfacesReply, XrlError> {
        Ok(fea::ShowInterfacesReply::default())
    }

    async fn show_status(&self, _: &CallContext, _: fea::Empty) -> Result<fea::Status, XrlError> {
        Ok(fea::Status::default())
    }

    async fn compare(&self, _: &CallContext, _: fea::Empty) -> Result<fea::Repairs, XrlError> {
        Ok(fea::Repairs::default())
    }

    async fn shutdown(&self, _: &CallContext, _: fea::ShutdownRequest) -> Result<fea::Empty, XrlError> {
        Ok(fea::Empty {})
    }
}

async fn join(finder: &Finder, node: &Node) -> Resolver {
    let (near, far) = Link::pair();
    finder.attach_link(far, PeerIdentity::new(node.class()));
    node.join_link(near).await.expect("joined")
}

async fn start_rib(finder: &Finder) {
    let node = Node::named("rib", "rib-1");
    // No keeper: the test itself takes the process to the Finder.
    let keeper = KeeperClient::new(Channel::over(Link::pair().0));
    let boot = Boot::new(node, keeper);
    let resolver = boot.resolver.clone();
    spawn_local(holdfast_ribd::run(boot));
    yield_now().await;
    let (near, far) = Link::pair();
    finder.attach_link(far, PeerIdentity::new("rib"));
    resolver.rejoin_link(near).await.expect("joined");
}

async fn start_engine(finder: &Finder, name: &str) -> (Node, Rc<Engine>) {
    engine_on(finder, Node::named("fea", name)).await
}

async fn engine_on(finder: &Finder, node: Node) -> (Node, Rc<Engine>) {
    let engine = Rc::<Engine>::default();
    node.serve(fea::FeaDispatcher(Rc::clone(&engine)));
    // The node holds its channel to the Finder.
    let _ = join(finder, &node).await;
    (node, engine)
}

fn caller(finder: &Finder, role: &str) -> Resolver {
    let (near, far) = Link::pair();
    finder.attach_link(far, PeerIdentity::new(role));
    Resolver::over(Channel::over(near))
}

/// A configuration with a `bgp` in it.
async fn configure(finder: &Finder, statics: Vec<rib::StaticRoute>) {
    let resolver = caller(finder, "manager");
    let manager: rib::RibClient = resolver.client("rib").await.expect("resolved");
    let expected_origins = vec!["bgp".to_owned()];
    let configuration = rib::Configuration { statics, expected_origins, ..Default::default() };
    manager.configure(configuration).await.expect("configured");
}

/// The same for a protocol of somebody else.
async fn configure_igp(finder: &Finder) {
    let resolver = caller(finder, "manager");
    let manager: rib::RibClient = resolver.client("rib").await.expect("resolved");
    let distances = [("igp".to_owned(), 120)].into_iter().collect();
    let configuration =
        rib::Configuration { expected_origins: vec!["igp".to_owned()], distances, ..Default::default() };
    manager.configure(configuration).await.expect("configured");
}

fn static_route(prefix: &str) -> rib::StaticRoute {
    let gateway = NextHop { gateway: vec![10, 0, 0, 1], ..Default::default() };
    rib::StaticRoute { prefix: prefix.into(), next_hops: vec![gateway], ..Default::default() }
}

/// An origin that lives as a process of class bgp.
struct Origin {
    node: Node,
    _resolver: Resolver,
    rib: rib::RibClient,
    number: u32,
}

impl Origin {
    async fn start(finder: &Finder, instance: &str) -> Self {
        let node = Node::named("bgp", instance);
        let resolver = join(finder, &node).await;
        let rib: rib::RibClient = resolver.wait_for("rib").await.expect("resolved");
        let request = rib::AddOriginRequest { name: "bgp".into(), distance: 20, external: true };
        let number = rib.add_origin(request).await.expect("registered").origin;
        Self { node, _resolver: resolver, rib, number }
    }

    async fn announce(&self, routes: u8) -> Result<rib::Empty, XrlError> {
        let gateway = NextHop { gateway: vec![10, 0, 0, 9], ..Default::default() };
        let mut batch = RouteBatch {
            afi: 1,
            define: vec![NextHopSet { handle: 1, kind: 0, members: vec![gateway], backups: Vec::new() }],
            runs: vec![routes.into()],
            next_hops: vec![1],
            ..Default::default()
        };
        for number in 0..routes {
            batch.addresses.extend([20, number, 0, 0]);
            batch.lengths.push(16);
        }
        self.rib.routes(rib::OriginRoutes { origin: self.number, batch: Some(batch) }).await
    }

    async fn end_of_sync(&self) {
        self.rib.end_of_sync(rib::EndOfSyncRequest { origin: self.number }).await.expect("alive");
    }

    fn die(self) {
        self.node.close();
        self.rib.channel().close();
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn run(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, story);
}

#[test]
fn routes_reach_the_engine_and_survive_the_deaths_around_them() {
    run(async {
        let finder = Finder::new();
        start_rib(&finder).await;
        let (node, engine) = start_engine(&finder, "fea-1").await;
        configure(&finder, vec![static_route("192.0.2.0/24"), static_route("198.51.100.0/24")]).await;
        until("the static routes are installed", || engine.count() == 2).await;
        assert_eq!(*engine.syncs.borrow(), (1, 0), "bgp is expected, though it is not there yet");
        let bgp = Origin::start(&finder, "bgp-1").await;
        bgp.announce(100).await.expect("taken");
        until("all routes installed", || engine.count() == 102).await;
        assert_eq!(*engine.syncs.borrow(), (1, 0), "bgp has not said that this is all");
        bgp.end_of_sync().await;
        until("the sync has ended", || engine.syncs.borrow().1 == 1).await;

        node.close();
        let (_node, engine) = start_engine(&finder, "fea-2").await;
        until("the new engine has everything", || engine.syncs.borrow().1 == 1).await;
        assert_eq!(engine.count(), 102);

        bgp.die();
        let bgp = Origin::start(&finder, "bgp-2").await;
        bgp.announce(60).await.expect("taken");
        assert_eq!(engine.count(), 102, "what the dead left stays");
        bgp.end_of_sync().await;
        until("what was not repeated is gone", || engine.count() == 62).await;
        configure(&finder, vec![static_route("192.0.2.0/24")]).await;
        until("the static route is gone", || engine.count() == 61).await;
        assert_eq!(*engine.syncs.borrow(), (1, 1), "all that needed no new sync");
    });
}

#[test]
fn an_engine_that_forwards_nothing_is_told_nothing_until_it_does() {
    run(async {
        let finder = Finder::new();
        start_rib(&finder).await;
        let (_node, engine) = start_engine(&finder, "fea-1").await;
        engine.discards.set(true);
        configure(&finder, vec![static_route("192.0.2.0/24")]).await;
        let bgp = Origin::start(&finder, "bgp-1").await;
        bgp.announce(100).await.expect("taken");
        bgp.end_of_sync().await;
        let resolver = caller(&finder, "operator");
        let operator: rib::RibClient = resolver.client("rib").await.expect("resolved");
        let status = operator.show_status(rib::Empty {}).await.expect("alive");
        assert_eq!((status.pending, status.fea_synced), (0, true));
        let address = rib::RegisterRequest { address: vec![20, 7, 0, 1] };
        let found = operator.lookup(address.clone()).await.expect("alive").routes;
        assert_eq!((found[0].selected, found[0].installed), (true, false));
        assert_eq!((engine.count(), *engine.syncs.borrow()), (0, (1, 0)));

        engine.discards.set(false);
        engine.losses.notify_one();
        until("it has everything", || engine.count() == 101 && *engine.syncs.borrow() == (2, 1)).await;
        assert!(operator.lookup(address).await.expect("alive").routes[0].installed);
    });
}

#[test]
fn news_while_the_engine_is_busy_cancels_nothing() {
    run(async {
        let finder = Finder::new();
        start_rib(&finder).await;
        let (_node, engine) = start_engine(&finder, "fea-1").await;
        configure(&finder, vec![static_route("192.0.2.0/24")]).await;
        until("the static route is installed", || engine.count() == 1).await;
        let bgp = Origin::start(&finder, "bgp-1").await;
        let busy = engine.gate.acquire().await.expect("never closed");
        bgp.announce(100).await.expect("taken");
        for number in 0..10 {
            let address = vec![192, 0, 2, number];
            bgp.rib.register(rib::RegisterRequest { address }).await.expect("an answer");
        }
        drop(busy);
        until("all routes installed", || engine.count() == 101).await;
    });
}

#[test]
fn interest_is_answered_and_withdrawn() {
    run(async {
        let finder = Finder::new();
        start_rib(&finder).await;
        let (_node, engine) = start_engine(&finder, "fea-1").await;
        configure(&finder, vec![static_route("192.0.2.0/24")]).await;
        let bgp = Origin::start(&finder, "bgp-1").await;
        until("the static route is installed", || engine.count() == 1).await;
        let mut invalidations = bgp.rib.invalidations(rib::Empty {});
        let ask = || bgp.rib.register(rib::RegisterRequest { address: vec![192, 0, 2, 7] });
        let answer = ask().await.expect("an answer");
        assert_eq!((answer.range.as_str(), answer.route.as_str()), ("192.0.2.0/24", "192.0.2.0/24"));
        assert!(answer.reachable && !answer.connected);
        assert_eq!(
            (&*answer.next_hops[0].gateway, answer.next_hops[0].interface_index),
            (&[10, 0, 0, 1][..], 3)
        );
        configure(&finder, vec![]).await;
        let invalidation = invalidations.next().await.expect("alive").expect("an invalidation");
        assert_eq!(invalidation.range, "192.0.2.0/24");
        assert!(!ask().await.expect("an answer").reachable);
    });
}

#[test]
fn redistribution_begins_with_what_is_there() {
    run(async {
        let finder = Finder::new();
        start_rib(&finder).await;
        let (_node, engine) = start_engine(&finder, "fea-1").await;
        configure(&finder, vec![static_route("192.0.2.0/24")]).await;
        until("the static route is installed", || engine.count() == 1).await;
        let resolver = caller(&finder, "operator");
        let operator: rib::RibClient = resolver.client("rib").await.expect("resolved");
        let request = rib::RedistributeRequest { origins: vec!["static".into()], afi: 1 };
        let mut stream = operator.redistribute(request);
        let first = stream.next().await.expect("alive").expect("the dump");
        let batch = first.batch.expect("a route");
        assert_eq!((first.origin.as_str(), first.synced), ("static", false));
        assert!(stream.next().await.expect("alive").expect("the end").synced);
        assert_eq!(
            (batch.addresses, batch.lengths, batch.distances),
            (vec![192, 0, 2, 0], vec![24], vec![1])
        );
        assert_eq!(batch.define[0].members[0].gateway, [10, 0, 0, 1]);
        configure(&finder, vec![]).await;
        let change = stream.next().await.expect("alive").expect("a change").batch.expect("a route");
        assert_eq!(change.next_hops, [0]);
    });
}

#[test]
fn redistribution_is_complete_when_the_wanted_origins_are() {
    run(async {
        let finder = Finder::new();
        start_rib(&finder).await;
        let (_node, engine) = start_engine(&finder, "fea-1").await;
        configure(&finder, vec![static_route("192.0.2.0/24")]).await;
        until("the static route is installed", || engine.count() == 1).await;
        let resolver = caller(&finder, "operator");
        let operator: rib::RibClient = resolver.client("rib").await.expect("resolved");
        let origins = vec!["static".into(), "bgp".into()];
        let mut stream = operator.redistribute(rib::RedistributeRequest { origins, afi: 0 });
        let first = stream.next().await.expect("alive").expect("the dump");
        assert_eq!((first.origin.as_str(), first.synced), ("static", false));
        let bgp = Origin::start(&finder, "bgp-1").await;
        bgp.announce(1).await.expect("taken");
        let second = stream.next().await.expect("alive").expect("a change");
        assert_eq!((second.origin.as_str(), second.synced), ("bgp", false), "bgp has not said all");
        bgp.end_of_sync().await;
        assert!(stream.next().await.expect("alive").expect("the end").synced);
    });
}

#[test]
fn a_protocol_of_somebody_else_speaks_in_its_own_name_only() {
    run(async {
        let finder = Finder::new();
        start_rib(&finder).await;
        let (near, far) = Link::pair();
        let identity =
            PeerIdentity { role: "protocol".into(), classes: vec!["igp".into()], ..PeerIdentity::default() };
        finder.attach_link(far, identity);
        let resolver = Resolver::over(Channel::over(near));
        let rib: rib::RibClient = resolver.client("rib").await.expect("resolved");
        let add = |name: &str| {
            rib.add_origin(rib::AddOriginRequest { name: name.into(), distance: 5, external: false })
        };
        let mut registers = pin!(add("igp"));
        let a_while = async {
            for _ in 0..100 {
                yield_now().await;
            }
        };
        tokio::select! {
            biased;
            answer = &mut registers => panic!("nobody knows its distance yet: {answer:?}"),
            () = a_while => {}
        }
        configure_igp(&finder).await;
        let origin = registers.await.expect("its own name").origin;
        let batch = RouteBatch {
            afi: 1,
            define: vec![NextHopSet {
                handle: 1,
                kind: NextHopKind::Blackhole.into(),
                members: Vec::new(),
                backups: Vec::new(),
            }],
            addresses: vec![20, 0, 0, 0],
            lengths: vec![8],
            runs: vec![1],
            next_hops: vec![1],
            distances: vec![0],
            ..Default::default()
        };
        rib.routes(rib::OriginRoutes { origin, batch: Some(batch) }).await.expect("a route");
        let found = rib.lookup(rib::RegisterRequest { address: vec![20, 0, 0, 1] }).await.expect("found");
        assert_eq!(found.routes[0].distance, 120, "its distance is not its own to choose");
        let error = add("bgp").await.expect_err("another's name");
        assert_eq!(error.kind(), ErrorKind::Denied);
        let error = rib.configure(rib::Configuration::default()).await.expect_err("the manager's business");
        assert_eq!(error.kind(), ErrorKind::Denied);
    });
}

#[test]
fn a_protocol_of_somebody_else_cannot_keep_the_table_busy() {
    run(async {
        let finder = Finder::new();
        start_rib(&finder).await;
        let (near, far) = Link::pair();
        finder
            .attach_link(far, PeerIdentity { classes: vec!["igp".into()], ..PeerIdentity::new("protocol") });
        let resolver = Resolver::over(Channel::over(near));
        let rib: rib::RibClient = resolver.client("rib").await.expect("resolved");
        configure_igp(&finder).await;
        let request = rib::AddOriginRequest { name: "igp".into(), distance: 120, external: false };
        let origin = rib.add_origin(request).await.expect("its own name").origin;
        let tell = |batch| rib.routes(rib::OriginRoutes { origin, batch: Some(batch) });
        let sets = |sets: u32, network: u8| {
            let set = |handle: u32| {
                let [_, _, high, low] = handle.to_be_bytes();
                let gateway = NextHop { gateway: vec![10, network, high, low], ..Default::default() };
                NextHopSet { handle, kind: 0, members: vec![gateway], backups: Vec::new() }
            };
            RouteBatch { afi: 1, define: (1..=sets).map(set).collect(), ..Default::default() }
        };
        // Work in proportion to their square would take minutes.
        tell(sets(8000, 1)).await.expect("far more than it has neighbours");
        tell(sets(8000, 2)).await.expect("all of them lead elsewhere");
        let error = tell(sets(8385, 3)).await.expect_err("too many next hops");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let undefine = RouteBatch { afi: 1, undefine: (1..=8000).collect(), ..Default::default() };
        tell(undefine).await.expect("they are given up");
        tell(sets(16_000, 4)).await.expect("there is room again");

        let routes = |first: usize, routes: usize, handle: u32| RouteBatch {
            afi: 1,
            addresses: (first..first + routes)
                .flat_map(|route| (0x1400_0000 + route as u32).to_be_bytes())
                .collect(),
            lengths: vec![32; routes],
            runs: vec![routes as u32],
            next_hops: vec![handle],
            ..Default::default()
        };
        let error = tell(routes(0, 16_385, 1)).await.expect_err("too many routes");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        for batch in 0..64 {
            tell(routes(batch * 16_384, 16_384, 1)).await.expect("as many as a batch has");
        }
        let error = tell(routes(1 << 20, 1, 1)).await.expect_err("the table is full");
        assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
        tell(routes(7, 1, 0)).await.expect("it may withdraw");
        tell(routes(1 << 20, 1, 1)).await.expect("there is room for one");

        // Who is let in waits: nobody has said yet that everything is known.
        let is_refused = async |subscription: &mut ReplyStream<rib::Redistributed>| {
            timeout(Duration::from_millis(200), subscription.next()).await.is_ok_and(|reply| reply.is_err())
        };
        let subscribe = || rib.redistribute(rib::RedistributeRequest::default());
        let mut subscribed: Vec<_> = (0..4).map(|_| subscribe()).collect();
        for subscription in &mut subscribed {
            assert!(!is_refused(subscription).await);
        }
        assert!(is_refused(&mut subscribe()).await, "others have to have some, too");
        subscribed.pop();
        // Its end is noticed after the next call has been.
        sleep(Duration::from_millis(100)).await;
        assert!(!is_refused(&mut subscribe()).await, "there is room again");
    });
}

#[test]
fn a_protocol_that_is_not_configured_any_more_is_cut_off() {
    run(async {
        let finder = Finder::new();
        start_rib(&finder).await;
        let resolver = caller(&finder, "manager");
        let manager: rib::RibClient = resolver.client("rib").await.expect("resolved");
        let (near, far) = Link::pair();
        let igp = PeerIdentity { classes: vec!["igp".into()], ..PeerIdentity::new("protocol") };
        finder.attach_link(far, igp);
        let theirs = Resolver::over(Channel::over(near));
        let rib: rib::RibClient = theirs.client("rib").await.expect("resolved");
        configure_igp(&finder).await;
        let request = rib::AddOriginRequest { name: "igp".into(), distance: 120, external: false };
        rib.add_origin(request).await.expect("its own name");
        let bgp = Origin::start(&finder, "bgp-1").await;
        let configure = |origins: &[&str]| {
            let expected_origins = origins.iter().map(|name| (*name).to_owned()).collect();
            manager.configure(rib::Configuration { expected_origins, ..Default::default() })
        };
        let alive = async || {
            let status = manager.show_status(rib::Empty {}).await.expect("alive");
            let alive = status.origins.into_iter().filter(|origin| origin.alive);
            alive.map(|origin| origin.name).collect::<Vec<_>>()
        };
        configure(&["bgp", "igp"]).await.expect("configured");
        assert!(!rib.channel().is_closed() && alive().await.contains(&"igp".into()));
        configure(&["bgp"]).await.expect("configured");
        until("its connection is closed", || rib.channel().is_closed()).await;
        assert!(!alive().await.contains(&"igp".into()));
        configure(&[]).await.expect("configured");
        assert!(bgp.announce(1).await.is_ok(), "it is not for the rib to end bgp");
    });
}

#[test]
fn what_an_origin_may_not_do_is_refused() {
    run(async {
        let finder = Finder::new();
        start_rib(&finder).await;
        let bgp = Origin::start(&finder, "bgp-1").await;
        let batch = RouteBatch {
            afi: 1,
            addresses: vec![20, 0, 0, 0],
            lengths: vec![8],
            runs: vec![1],
            next_hops: vec![5],
            ..Default::default()
        };
        let send = |origin, batch| bgp.rib.routes(rib::OriginRoutes { origin, batch: Some(batch) });
        let undefined = send(bgp.number, batch.clone()).await.expect_err("handle 5 is not defined");
        assert_eq!(undefined.kind(), ErrorKind::InvalidArgument);
        let foreign = send(0, RouteBatch { next_hops: vec![0], ..batch }).await.expect_err("not its origin");
        assert_eq!(foreign.kind(), ErrorKind::Denied);
        for name in ["", "connected", "static"] {
            let request = rib::AddOriginRequest { name: name.into(), distance: 1, external: false };
            let error = bgp.rib.add_origin(request).await.expect_err("reserved");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
        assert!(bgp.announce(1).await.is_ok());
    });
}

#[test]
fn a_route_that_the_kernel_refuses_is_shown_as_rejected_until_that_is_over() {
    run(async {
        let finder = Finder::new();
        start_rib(&finder).await;
        let node = Node::named("fea", "fea-1");
        let (say, said) = mpsc::unbounded_channel();
        let engine = Rc::new(Engine { refusals: RefCell::new(Some(said)), ..Engine::default() });
        node.serve(fea::FeaDispatcher(Rc::clone(&engine)));
        let _ = join(&finder, &node).await;
        configure(&finder, vec![static_route("192.0.2.0/24")]).await;
        let bgp = Origin::start(&finder, "bgp-1").await;
        bgp.announce(2).await.expect("taken");
        bgp.end_of_sync().await;
        until("all routes installed", || engine.count() == 3 && engine.syncs.borrow().1 == 1).await;
        let resolver = caller(&finder, "operator");
        let operator: rib::RibClient = resolver.client("rib").await.expect("resolved");
        let until_shown = async |address: [u8; 4], wanted: (bool, bool)| {
            let look = async || {
                let address = rib::RegisterRequest { address: address.to_vec() };
                let found = operator.lookup(address).await.expect("alive").routes;
                (found[0].installed, found[0].rejected)
            };
            for _ in 0..1000 {
                if look().await == wanted {
                    return;
                }
                sleep(Duration::from_millis(5)).await;
            }
            panic!("{address:?} is never shown as {wanted:?}");
        };
        let handle = engine.routes.borrow()[&(vec![192, 0, 2, 0], 24)];
        let routes = vec!["20.1.0.0/16".into(), "no prefix".into()];
        say.send(fea::RefusalEvent { next_hops: vec![handle], routes, ..Default::default() }).expect("heard");
        until_shown([192, 0, 2, 1], (false, true)).await;
        until_shown([20, 1, 0, 1], (false, true)).await;
        until_shown([20, 0, 0, 1], (true, false)).await;
        let over = fea::RefusalEvent {
            next_hops_over: vec![handle],
            routes_over: vec!["20.1.0.0/16".into()],
            ..Default::default()
        };
        say.send(over).expect("heard");
        until_shown([192, 0, 2, 1], (true, false)).await;
        until_shown([20, 1, 0, 1], (true, false)).await;
        assert_eq!(*engine.syncs.borrow(), (1, 1));

        // The next engine has not said so.
        say.send(fea::RefusalEvent { routes: vec!["20.1.0.0/16".into()], ..Default::default() })
            .expect("heard");
        until_shown([20, 1, 0, 1], (false, true)).await;
        node.close();
        let (_node, next) = start_engine(&finder, "fea-2").await;
        until("the next engine has everything", || next.syncs.borrow().1 == 1).await;
        until_shown([20, 1, 0, 1], (true, false)).await;
    });
}
