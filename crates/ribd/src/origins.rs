//! Origins as processes: which connection speaks for an origin, and what its handles mean.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    rc::Rc,
    time::Instant,
};

use holdfast_api::{
    rib::v1::{AddOriginRequest, ToldRequest},
    routes::v1::RouteBatch,
};
use holdfast_process::{PROTOCOL, spawn_task};
use holdfast_rib::{Awaited, CONNECTED, NexthopSetId, OriginConfig, OriginId, Rib, RouteAction};
use holdfast_xrl::{CallContext, Channel, XrlError};
use tracing::info;

use crate::{
    router::Router,
    statics::STATIC,
    wire::{self, Rows, Run, invalid},
};

/// The origin that is a process of the router.
const BGP: &str = "bgp";

/// Most handles of an origin: far more than a router has neighbours.
const MAX_HANDLES: usize = 1 << 20;
/// Most next hops of a routing protocol, which may be anybody's: whenever one of them changes, all are looked at. Those of
/// a batch count beside those that it has.
const MAX_NEXT_HOPS: usize = 16_384;
/// Most routes of a routing protocol in a table: as many as the whole Internet has. Each costs memory here, in `fea` and in the
/// kernel.
const MAX_ROUTES_OF_PROTOCOL: u64 = 1 << 20;
/// Most routes of a batch, which is carried out in one turn.
const MAX_ROUTES: usize = 16_384;

/// Where an origin's routes come from now.
struct Speaker {
    origin: OriginId,
    channel: Channel,
    /// Its handles.
    handles: HashMap<u32, NexthopSetId>,
    /// Its batches say the distance of their routes. Those of somebody else's protocol do not: there the configuration
    /// has the word.
    says_distance: bool,
}

/// The processes that are origins, by the number of the origin.
#[derive(Default)]
pub(crate) struct Origins {
    speakers: BTreeMap<u32, Speaker>,
}

impl Origins {
    /// The speaker for an origin, if it is at the other end of this call.
    fn speaker(&mut self, cx: &CallContext, origin: u32) -> Result<&mut Speaker, XrlError> {
        let speaker = self.speakers.get_mut(&origin);
        let mine = speaker.filter(|speaker| speaker.channel.id() == cx.channel().id());
        mine.ok_or_else(|| XrlError::denied(format!("you have not registered as origin {origin}")))
    }
}

/// Registers the caller as an origin, until its channel closes.
pub(crate) fn add(router: &Rc<Router>, cx: &CallContext, request: AddOriginRequest) -> Result<u32, XrlError> {
    let AddOriginRequest { name, distance, external } = request;
    if name.is_empty() || name == CONNECTED || name == STATIC {
        return Err(invalid(format!("`{name}` is no name for an origin")));
    }
    if !may_speak_for(cx, &name) {
        return Err(XrlError::denied(format!("you may not bring routes in the name of {name:?}")));
    }
    let distance = match router.distances.borrow().get(&name) {
        Some(&configured) => configured,
        None => u8::try_from(distance).map_err(|_| invalid("a distance is at most 255"))?,
    };
    let config = if external { OriginConfig::external(distance) } else { OriginConfig::internal(distance) };
    let origin = router.change(|rib| rib.add_origin(&name, config, Instant::now())).map_err(invalid)?;
    info!(event = "origin-registered", origin = name, instance = cx.peer().instance, "origin registered");
    let says_distance = cx.peer().role != PROTOCOL;
    let speaker = Speaker { origin, channel: cx.channel().clone(), handles: HashMap::new(), says_distance };
    let before = router.origins.borrow_mut().speakers.insert(origin.number(), speaker);
    // Who registers again on the same channel is being watched already.
    let is_watched = before.as_ref().is_some_and(|before| before.channel.id() == cx.channel().id());
    release(router, before);
    if !is_watched {
        end_with_channel(router, cx, origin);
    }
    Ok(origin.number())
}

/// A protocol speaks in its own name only.
fn may_speak_for(cx: &CallContext, name: &str) -> bool {
    let peer = cx.peer();
    peer.role != PROTOCOL || peer.classes.iter().any(|class| class == name)
}

fn end_with_channel(router: &Rc<Router>, cx: &CallContext, origin: OriginId) {
    let (router, channel) = (Rc::clone(router), cx.channel().clone());
    spawn_task(async move {
        channel.closed().await;
        let mut origins = router.origins.borrow_mut();
        // Another process may speak for it already.
        let ended = origins.speakers.get(&origin.number());
        let ended = ended.filter(|speaker| speaker.channel.id() == channel.id());
        if ended.is_none() {
            return;
        }
        let speaker = origins.speakers.remove(&origin.number());
        drop(origins);
        let name = router.change(|rib| {
            rib.origin_died(origin, Instant::now());
            rib.origin_name(origin).to_owned()
        });
        release(&router, speaker);
        info!(event = "origin-gone", origin = name, "origin gone: its routes are stale");
        if !router.readiness.borrow().expects(&name) {
            router.change(|rib| rib.retain_origins(|other| other != name, Instant::now()));
        }
    });
}

/// Ends the connections of protocols that are not configured any more, and withdraws their routes. They do not come back:
/// the manager lets in who is configured. `bgp` is a process of the router, which the manager ends: only then its routes go.
pub(crate) fn close_all_but(router: &Router, configured: &[String]) {
    let ours = [CONNECTED, STATIC];
    let origins = router.origins.borrow();
    let name_of = |speaker: &Speaker| router.quietly(|rib| rib.origin_name(speaker.origin).to_owned());
    let has_bgp = origins.speakers.values().any(|speaker| name_of(speaker) == BGP);
    let stays = |name: &str| {
        ours.contains(&name) || name == BGP && has_bgp || configured.iter().any(|other| other == name)
    };
    let over = origins.speakers.values().filter(|speaker| !stays(&name_of(speaker)));
    // Collected first: what ends with the channel is not ours to know.
    let over: Vec<Channel> = over.map(|speaker| speaker.channel.clone()).collect();
    drop(origins);
    over.iter().for_each(Channel::close);
    router.change(|rib| rib.retain_origins(stays, Instant::now()));
}

fn release(router: &Router, speaker: Option<Speaker>) {
    let handles = speaker.into_iter().flat_map(|speaker| speaker.handles.into_values());
    router.change(|rib| handles.for_each(|id| rib.release_nexthops(id)));
}

/// Takes a batch of changes from an origin.
pub(crate) fn routes(
    router: &Router,
    cx: &CallContext,
    origin: u32,
    batch: &RouteBatch,
) -> Result<(), XrlError> {
    let mut origins = router.origins.borrow_mut();
    let speaker = origins.speaker(cx, origin)?;
    if batch.lengths.len() > MAX_ROUTES {
        return Err(invalid(format!("a batch has {MAX_ROUTES} routes at most, not {}", batch.lengths.len())));
    }
    router.change(|rib| {
        // Who is full may still withdraw.
        let has_room = speaker.says_distance || rib.routes_by(speaker.origin) < MAX_ROUTES_OF_PROTOCOL;
        if !has_room && batch.next_hops.iter().any(|handle| *handle != 0) {
            return Err(XrlError::failed_precondition(format!(
                "a protocol has {MAX_ROUTES_OF_PROTOCOL} routes at most"
            )));
        }
        define(rib, speaker, batch)?;
        match batch.afi {
            1 => change::<4>(rib, speaker, batch)?,
            2 => change::<16>(rib, speaker, batch)?,
            afi => return Err(invalid(format!("unknown address family {afi}"))),
        }
        let undefined = batch.undefine.iter().filter_map(|handle| speaker.handles.remove(handle));
        undefined.for_each(|id| rib.release_nexthops(id));
        router.finished.add(batch.lengths.len() as u64);
        Ok(())
    })
}

fn define(rib: &mut Rib, speaker: &mut Speaker, batch: &RouteBatch) -> Result<(), XrlError> {
    let more: usize = batch.define.iter().map(|set| set.members.len().max(1) + set.backups.len()).sum();
    if !speaker.says_distance && more > 0 && rib.nexthops_of(speaker.origin) + more > MAX_NEXT_HOPS {
        return Err(invalid(format!("a protocol has {MAX_NEXT_HOPS} next hops at most")));
    }
    let mut changes = Vec::new();
    for set in &batch.define {
        let nexthops = wire::defined(set)?;
        match speaker.handles.get(&set.handle) {
            Some(&id) => changes.push((id, nexthops)),
            None if set.handle == 0 => return Err(invalid("handle 0 cannot be defined")),
            None if speaker.handles.len() == MAX_HANDLES => return Err(invalid("too many handles")),
            None => drop(speaker.handles.insert(set.handle, rib.nexthops(speaker.origin, nexthops))),
        }
    }
    rib.change_nexthops(changes);
    Ok(())
}

fn change<const WIDTH: usize>(rib: &mut Rib, speaker: &Speaker, batch: &RouteBatch) -> Result<(), XrlError>
where
    IpAddr: From<[u8; WIDTH]>,
{
    let rows = Rows::<WIDTH>::of(batch)?;
    let actions = rows.runs().map(|(run, _)| action(speaker, run, batch.tag));
    let actions: Vec<_> = actions.collect::<Result<_, _>>()?;
    let changes = actions.into_iter().zip(rows.runs().map(|(_, prefixes)| prefixes));
    rib.origin_routes(speaker.origin, changes).map_err(invalid)
}

fn action(speaker: &Speaker, run: Run, tag: u32) -> Result<RouteAction, XrlError> {
    let Run { handle, metric, distance, source } = run;
    let distance = distance.filter(|_| speaker.says_distance);
    match (handle, speaker.handles.get(&handle)) {
        (0, _) => Ok(RouteAction::Withdraw),
        (_, Some(&nexthops)) => Ok(RouteAction::Announce { nexthops, metric, distance, tag, source }),
        (_, None) => Err(invalid(format!("handle {handle} is not defined"))),
    }
}

/// The origin has announced everything it has.
pub(crate) fn end_of_sync(router: &Router, cx: &CallContext, origin: u32) -> Result<(), XrlError> {
    let origin = router.origins.borrow_mut().speaker(cx, origin)?.origin;
    router.change(|rib| rib.origin_end_of_sync(origin)).map_err(invalid)
}

/// The same, but some may bring again what an earlier life had of them.
pub(crate) fn told(router: &Router, cx: &CallContext, request: ToldRequest) -> Result<(), XrlError> {
    let ToldRequest { origin, awaited, everybody } = request;
    let origin = router.origins.borrow_mut().speaker(cx, origin)?.origin;
    let awaited = if everybody { Awaited::Everybody } else { Awaited::These(awaited) };
    router.change(|rib| rib.origin_told(origin, awaited)).map_err(invalid)
}
