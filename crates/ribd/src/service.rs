//! The methods of `rib.v1`.

use std::{collections::HashMap, net::IpAddr, rc::Rc};

use holdfast_api::{
    rib::v1::{
        AddOriginReply, AddOriginRequest, Configuration, Empty, EndOfSyncRequest, Invalidation, OriginRoutes,
        OriginStatus, RedistributeRequest, Redistributed, RegisterRequest, Resolution, RibServer,
        ShowRoutesRequest, ShownRoute, ShownRoutes, Status, ToldRequest,
    },
    routes::v1::RouteBatch,
};
use holdfast_process::{PROTOCOL, profile::routes_of};
use holdfast_rib::{MAX_SUBSCRIPTIONS, RedistBatch, RedistFilter, Rib, SubscriptionId};
use holdfast_types::{Family, Prefix};
use holdfast_xrl::{CallContext, PeerIdentity, ReplySink, XrlError};

use crate::{
    origins, readiness,
    router::Router,
    statics,
    vrfs::Vrfs,
    wire::{self, invalid},
};

/// Prefixes in one message of `ShowRoutes`.
const PAGE: usize = 256;
/// Routes in one message of `Redistribute`.
const BATCH: usize = 1024;

/// Serves `rib.v1`.
pub(crate) struct Server {
    router: Rc<Router>,
    /// Those of the process, if the table is the default one.
    vrfs: Option<Vrfs>,
}

impl Server {
    pub(crate) fn new(router: Rc<Router>, vrfs: Option<Vrfs>) -> Self {
        Self { router, vrfs }
    }
}

impl RibServer for Server {
    async fn configure(&self, _: &CallContext, request: Configuration) -> Result<Empty, XrlError> {
        statics::configure(&self.router, &request)?;
        match &self.vrfs {
            Some(vrfs) => vrfs.follow(&request.vrfs).await,
            None if request.vrfs.is_empty() => {}
            None => return Err(invalid("a VRF has no VRFs")),
        }
        Ok(Empty {})
    }

    async fn add_origin(
        &self,
        cx: &CallContext,
        request: AddOriginRequest,
    ) -> Result<AddOriginReply, XrlError> {
        if cx.peer().role == PROTOCOL {
            // Its routes are kept with the distance that is configured, which nobody knows before.
            let mut bell = self.router.bell();
            while !self.router.readiness.borrow().is_configured() {
                bell.rings().await;
            }
        }
        let is_known = self.router.distances.borrow().contains_key(&request.name);
        if self.vrfs.is_none() && cx.peer().role == PROTOCOL && !is_known {
            return Err(XrlError::denied(format!("{:?} is not configured in this VRF", request.name)));
        }
        Ok(AddOriginReply { origin: origins::add(&self.router, cx, request)? })
    }

    async fn routes(&self, cx: &CallContext, request: OriginRoutes) -> Result<Empty, XrlError> {
        let mut bell = self.router.bell();
        let batch = request.batch.unwrap_or_default();
        self.router.arriving.pass(|| routes_of(&batch));
        origins::routes(&self.router, cx, request.origin, &batch)?;
        // The origin sends no more than its window while it waits for this.
        while self.router.quietly(|rib| rib.is_congested()) {
            bell.rings().await;
        }
        Ok(Empty {})
    }

    async fn end_of_sync(&self, cx: &CallContext, request: EndOfSyncRequest) -> Result<Empty, XrlError> {
        origins::end_of_sync(&self.router, cx, request.origin)?;
        Ok(Empty {})
    }

    async fn told(&self, cx: &CallContext, request: ToldRequest) -> Result<Empty, XrlError> {
        origins::told(&self.router, cx, request)?;
        Ok(Empty {})
    }

    async fn register(&self, cx: &CallContext, request: RegisterRequest) -> Result<Resolution, XrlError> {
        let address = wire::address(&request.address)?;
        let client = self.router.client(cx.channel());
        let answer = self.router.change(|rib| rib.register_interest(client, address)).map_err(invalid)?;
        let mut resolution = Resolution { range: answer.range.to_string(), ..Resolution::default() };
        if let Some(route) = answer.route {
            resolution.reachable = true;
            resolution.metric = route.metric;
            resolution.route = route.prefix.to_string();
            resolution.connected = route.is_connected();
            resolution.next_hops = wire::resolved(&route.nexthops).1;
        }
        Ok(resolution)
    }

    async fn unregister(&self, cx: &CallContext, request: RegisterRequest) -> Result<Empty, XrlError> {
        let address = wire::address(&request.address)?;
        let client = self.router.client(cx.channel());
        self.router.change(|rib| rib.unregister_interest(client, address));
        Ok(Empty {})
    }

    async fn invalidations(
        &self,
        cx: &CallContext,
        _: Empty,
        mut replies: ReplySink<Invalidation>,
    ) -> Result<(), XrlError> {
        let client = self.router.client(cx.channel());
        let mut bell = self.router.bell();
        loop {
            while let Some(range) = self.router.quietly(|rib| rib.poll_invalidation(client)) {
                replies.send(Invalidation { range: range.to_string() }).await?;
            }
            bell.rings().await;
        }
    }

    async fn redistribute(
        &self,
        cx: &CallContext,
        request: RedistributeRequest,
        mut replies: ReplySink<Redistributed>,
    ) -> Result<(), XrlError> {
        let filter = RedistFilter { origins: request.origins, family: family(request.afi)? };
        let wanted = filter.origins.clone();
        let subscription = Subscription::new(&self.router, cx.peer(), filter)?;
        let (mut bell, mut has_begun, mut handles) = (self.router.bell(), false, Handles::default());
        // Everything has been said, but not yet that it has.
        let mut is_complete = false;
        loop {
            loop {
                replies.ready().await?;
                let batch = self.router.quietly(|rib| rib.poll_redist(subscription.id, BATCH));
                let Some(batch) = batch else { break };
                if batch.begin && std::mem::replace(&mut has_begun, true) {
                    return Err(XrlError::unavailable("you fell behind the changes: ask again"));
                }
                replies.send_all(self.router.quietly(|rib| redistributed(rib, &mut handles, &batch))).await?;
                is_complete |= batch.synced;
            }
            if is_complete && readiness::is_complete(&self.router, &wanted) {
                replies.send(Redistributed { synced: true, ..Redistributed::default() }).await?;
                is_complete = false;
            }
            bell.rings().await;
        }
    }

    async fn lookup(&self, _: &CallContext, request: RegisterRequest) -> Result<ShownRoutes, XrlError> {
        let address = wire::address(&request.address)?;
        Ok(self.router.quietly(|rib| looked_up(rib, address)))
    }

    async fn show_routes(
        &self,
        _: &CallContext,
        request: ShowRoutesRequest,
        mut replies: ReplySink<ShownRoutes>,
    ) -> Result<(), XrlError> {
        if !request.origin.is_empty() {
            self.router.quietly(|rib| known(rib, &request.origin))?;
        }
        if !request.destination.is_empty() {
            let found = self.router.quietly(|rib| destination(rib, &request.destination))?;
            return replies.send(found).await;
        }
        let mut after = None;
        loop {
            // Rows are made for who takes them: a reader may have many answers that it does not read.
            replies.ready().await?;
            let (page, last) = self.router.quietly(|rib| page(rib, after, &request));
            if last.is_none() {
                return Ok(());
            }
            after = last;
            if !page.routes.is_empty() {
                replies.send(page).await?;
            }
        }
    }

    async fn show_status(&self, _: &CallContext, _: Empty) -> Result<Status, XrlError> {
        let status = self.router.quietly(|rib| rib.status());
        let origin = |origin: holdfast_rib::OriginStatus| OriginStatus {
            name: origin.name.into(),
            routes: origin.routes,
            alive: origin.alive,
            synced: origin.synced,
            told: origin.told,
        };
        Ok(Status {
            origins: status.origins.into_iter().map(origin).collect(),
            ipv4_prefixes: status.ipv4_prefixes,
            ipv6_prefixes: status.ipv6_prefixes,
            pending: status.pending + self.router.in_flight.get() as u64,
            fea_synced: status.fib_synced,
            memory_bytes: status.memory as u64,
            rejected_incomplete: status.rejected_incomplete,
        })
    }
}

/// Whether routes can be from there; a slip would otherwise look like an empty table.
fn known(rib: &Rib, origin: &str) -> Result<(), XrlError> {
    if rib.origin_named(origin).is_some() {
        return Ok(());
    }
    let names: Vec<_> = rib.status().origins.into_iter().map(|origin| origin.name.to_owned()).collect();
    Err(XrlError::not_found(format!(
        "no protocol {origin:?} has routes here; there are {}",
        names.join(", ")
    )))
}

/// 0 is both.
fn family(afi: u32) -> Result<Option<Family>, XrlError> {
    match afi {
        0 => Ok(None),
        1 => Ok(Some(Family::IPV4_UNICAST)),
        2 => Ok(Some(Family::IPV6_UNICAST)),
        _ => Err(invalid(format!("unknown address family {afi}"))),
    }
}

/// Subscriptions of one routing protocol, which may be anybody's.
const MOST_OF_PROTOCOL: usize = 4;
/// Those of all routing protocols together: the others are for processes of the router.
const MOST_OF_PROTOCOLS: usize = MAX_SUBSCRIPTIONS - 8;

/// Ends with the call.
struct Subscription {
    router: Rc<Router>,
    id: SubscriptionId,
    /// The routing protocol whose it is.
    protocol: Option<String>,
}

impl Subscription {
    fn new(router: &Rc<Router>, peer: &PeerIdentity, filter: RedistFilter) -> Result<Self, XrlError> {
        let protocol = (peer.role == PROTOCOL).then(|| peer.classes.first().cloned().unwrap_or_default());
        if let Some(protocol) = &protocol {
            let subscribers = router.subscribers.borrow();
            let own = subscribers.iter().filter(|other| *other == protocol).count();
            if own >= MOST_OF_PROTOCOL || subscribers.len() >= MOST_OF_PROTOCOLS {
                let bound = format!("{MOST_OF_PROTOCOL}, and all together {MOST_OF_PROTOCOLS}");
                return Err(XrlError::unavailable(format!("a protocol has {bound} subscriptions to routes")));
            }
        }
        let id = router.change(|rib| rib.redist_subscribe(filter));
        let id = id.map_err(|error| XrlError::unavailable(error.to_string()))?;
        router.subscribers.borrow_mut().extend(protocol.clone());
        Ok(Self { router: Rc::clone(router), id, protocol })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut subscribers = self.router.subscribers.borrow_mut();
        let place = subscribers.iter().position(|other| Some(other) == self.protocol.as_ref());
        place.into_iter().for_each(|place| drop(subscribers.swap_remove(place)));
        drop(subscribers);
        self.router.change(|rib| rib.redist_unsubscribe(self.id));
    }
}

/// Handles for a subscriber: new ones for each message, so that nothing has to be remembered.
#[derive(Default)]
struct Handles {
    last: u32,
}

impl Handles {
    fn next(&mut self) -> u32 {
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.last
    }
}

/// One message per run of changes of a family, origin and tag.
fn redistributed(rib: &Rib, handles: &mut Handles, batch: &RedistBatch) -> Vec<Redistributed> {
    let mut messages = Vec::new();
    let key = |change: &(Prefix, Option<_>)| {
        let of = |route: holdfast_rib::RedistRoute| (route.origin, route.tag);
        (wire::afi(change.0), change.1.map(of))
    };
    for run in batch.changes.chunk_by(|a, b| key(a) == key(b)) {
        let (afi, of) = key(&run[0]);
        let tag = of.map_or(0, |(_, tag)| tag);
        let origin = of.map(|(origin, _)| rib.origin_name(origin).to_owned()).unwrap_or_default();
        let mut out = RouteBatch { afi, tag, ..RouteBatch::default() };
        let mut defined = HashMap::new();
        for &(prefix, route) in run {
            let handle = route.map_or(0, |route| {
                // Routes with one handle are one run: they have the other columns in common.
                *defined.entry((route.nexthops, route.metric, route.distance)).or_insert_with(|| {
                    let handle = handles.next();
                    let set = rib.nexthop_set(route.nexthops).map(wire::given).unwrap_or_default();
                    out.define.push(wire::next_hop_set(handle, set));
                    handle
                })
            });
            if wire::push(&mut out, prefix, handle) {
                out.metrics.push(route.map_or(0, |route| route.metric));
                out.distances.push(route.map_or(0, |route| route.distance));
            }
        }
        out.undefine = defined.into_values().collect();
        messages.push(Redistributed { batch: Some(out), synced: false, origin });
    }
    messages
}

fn looked_up(rib: &Rib, address: IpAddr) -> ShownRoutes {
    ShownRoutes { routes: rib.lookup(address).iter().map(|route| shown(rib, route)).collect() }
}

/// The routes of a prefix, or the longest match of an address.
fn destination(rib: &Rib, text: &str) -> Result<ShownRoutes, XrlError> {
    if let Ok(address) = text.parse() {
        return Ok(looked_up(rib, address));
    }
    let prefix: Prefix = text.parse().map_err(invalid)?;
    Ok(ShownRoutes { routes: rib.routes_of(prefix).iter().map(|route| shown(rib, route)).collect() })
}

/// The wanted routes of the next prefixes, and the last of these; `None` at the end.
fn page(rib: &Rib, after: Option<Prefix>, request: &ShowRoutesRequest) -> (ShownRoutes, Option<Prefix>) {
    let routes = rib.routes_after(after, PAGE);
    let last = routes.last().map(|route| route.prefix);
    let wanted = routes.iter().filter(|route| {
        (request.afi == 0 || wire::afi(route.prefix) == request.afi)
            && (request.origin.is_empty() || rib.origin_name(route.origin) == request.origin)
    });
    (ShownRoutes { routes: wanted.map(|route| shown(rib, route)).collect() }, last)
}

fn shown(rib: &Rib, route: &holdfast_rib::ShownRoute) -> ShownRoute {
    let (kind, next_hops) = wire::given(&route.nexthops);
    let mut resolved = wire::resolved(&route.resolution).1;
    for member in &mut resolved {
        let interface = rib.interfaces().find(|interface| interface.index == member.interface_index);
        member.interface = interface.map(|interface| interface.name.to_string()).unwrap_or_default();
    }
    ShownRoute {
        prefix: route.prefix.to_string(),
        origin: rib.origin_name(route.origin).to_owned(),
        distance: route.distance.into(),
        metric: route.metric,
        selected: route.selected,
        installed: route.installed,
        stale: route.stale,
        kind: kind.into(),
        next_hops,
        resolved,
        tag: route.tag,
        rejected: route.rejected.is_some(),
        rejected_reason: route.rejected.as_deref().unwrap_or_default().to_owned(),
        requested: route.requested,
    }
}
