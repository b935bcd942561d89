//! Towards the rib: routes out, next hops in, both again from scratch whenever the rib is another one.

use std::{
    collections::{BTreeSet, VecDeque},
    net::IpAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::{
    rib::v1::{
        AddOriginRequest, Empty, EndOfSyncRequest, OriginRoutes, RegisterRequest, Resolution, RibClient,
        ToldRequest,
    },
    routes::v1::{NextHop, NextHopKind, NextHopSet, RouteBatch},
};
use holdfast_bgp_pipeline::{Event, Gateway, Reachability, RibChanges, RibNextHops, RibRun};
use holdfast_process::profile::routes_of;
use holdfast_types::{Family, Prefix, octets};
use holdfast_xrl::{ErrorKind, XrlError};
use tracing::{debug, info, warn};

use crate::{bgp::Bgp, config::ORIGIN, sessions::Stale, speaker::Speaker};

/// Routes in one batch.
const BATCH: usize = 4096;
/// Batches that the rib has not yet acknowledged.
pub(crate) const WINDOW: usize = 8;
/// Questions about next hops that the rib has not yet answered.
const QUESTIONS: usize = 256;
/// Pause between two attempts to talk to a rib.
const RETRY: Duration = Duration::from_millis(100);
/// How often it is looked whether all peers have sent what they have, after a start.
const SYNC_LOOK: Duration = Duration::from_millis(250);

/// `rib` answers about the next hops of a whole table sooner than this.
const ANSWERS: Duration = Duration::from_secs(1);

/// Addresses in whose reachability the pipeline is interested, and those still to be asked about.
#[derive(Debug)]
struct NextHops {
    wanted: BTreeSet<IpAddr>,
    ask: VecDeque<IpAddr>,
}

impl NextHops {
    /// Asks about all of them: the rib is new.
    fn new(wanted: impl Iterator<Item = IpAddr>) -> Self {
        let wanted: BTreeSet<_> = wanted.collect();
        Self { ask: wanted.iter().copied().collect(), wanted }
    }

    /// Asks again about those in a range whose answer has changed.
    fn invalidated(&mut self, range: Prefix) {
        self.ask.extend(self.wanted.iter().filter(|&&address| range.contains_address(address)));
    }

    fn take(&mut self, most: usize) -> Vec<IpAddr> {
        let count = most.min(self.ask.len());
        let wanted = &self.wanted;
        self.ask.drain(..count).filter(|address| wanted.contains(address)).collect()
    }
}

/// Keeps a rib informed for ever.
pub(crate) async fn run(bgp: Rc<Bgp>) {
    let mut said = String::new();
    loop {
        let error = serve(&bgp).await.to_string();
        bgp.speaker.borrow_mut().pipeline.rib_detach();
        if said != error {
            warn!(event = "rib-lost", "rib: {error}");
            said = error;
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The life of one rib; what ended it.
async fn serve(bgp: &Rc<Bgp>) -> XrlError {
    let client = match bgp.surroundings.client::<RibClient>("rib").await {
        Ok(client) => client,
        Err(error) => return error,
    };
    let next_hops = NextHops::new(bgp.speaker.borrow().pipeline.registered_next_hops());
    bgp.with(|speaker, _| while speaker.poll_next_hop().is_some() {});
    let next_hops = std::cell::RefCell::new(next_hops);
    let asked = tokio::sync::Notify::new();
    tokio::select! {
        error = tell(bgp, &client) => error,
        error = questions(bgp, &client, &next_hops, &asked) => error,
        error = invalidations(&client, &next_hops, &asked) => error,
    }
}

/// Waits for the answers of `rib` about next hops, for at most [`ANSWERS`]: between two answers a prefix of several paths has
/// fewer next hops than before and after, and `rib` would take next hops from the kernel that come back at once.
async fn answers(bgp: &Bgp) {
    let answered = async {
        while bgp.speaker.borrow().pipeline.awaits_next_hops() {
            bgp.answered.notified().await;
        }
    };
    // Time is up: `rib` has the rest when there are answers.
    let _ = tokio::time::timeout(ANSWERS, answered).await;
}

/// Begins with the whole table, as soon as it is there.
async fn tell(bgp: &Rc<Bgp>, client: &RibClient) -> XrlError {
    // What is replayed passes through states that were long ago: routes come and go that the rib has as they are. It is asked
    // about their next hops all the same: what comes after the answer need not be decided twice.
    while bgp.speaker.borrow().sessions.are_replaying() {
        bgp.replayed.notified().await;
    }
    answers(bgp).await;
    let origin = match register(bgp, client).await {
        Ok(origin) => origin,
        Err(error) => return error,
    };
    info!(event = "rib-registered", "registered at the rib");
    bgp.with(|speaker, _| speaker.pipeline.rib_resync());
    routes(bgp, client, origin).await
}

/// Begins anew as an origin: what the rib has of us is stale until the end of the sync.
async fn register(bgp: &Rc<Bgp>, client: &RibClient) -> Result<u32, XrlError> {
    let distance = bgp.speaker.borrow().settings.ebgp_distance;
    let request = AddOriginRequest { name: ORIGIN.into(), distance: distance.into(), external: true };
    Ok(client.add_origin(request).await?.origin)
}

/// Sends changes as they come; says when everything of this life has been sent.
async fn routes(bgp: &Rc<Bgp>, client: &RibClient, mut origin: u32) -> XrlError {
    let mut window = VecDeque::new();
    // The pipeline's first batch begins a whole table; a later one that does so means that the rib was too slow.
    let (mut begun, mut complete) = (false, false);
    // What was said of stale routes last.
    let mut said: Option<Stale> = None;
    loop {
        // Not `Bgp::with`: reading changes causes none, and would ring the bell waited for below.
        let changes = bgp.speaker.borrow_mut().pipeline.pull_rib(BATCH);
        if let Some(mut changes) = changes {
            if changes.restart && std::mem::replace(&mut begun, true) {
                warn!(
                    event = "rib-too-slow",
                    "rib reads too slowly, or next hops were combined in too many ways: rib is told everything again"
                );
                bgp.depths.restarts.set(bgp.depths.restarts.get() + 1);
                match register(bgp, client).await {
                    Ok(again) => origin = again,
                    Err(error) => return error,
                }
                (complete, said) = (false, None);
            }
            complete |= changes.complete;
            // By itself and before: a handle that is given up may be defined anew in the same changes.
            if !changes.undefine.is_empty() {
                let undefine = std::mem::take(&mut changes.undefine);
                let batch =
                    RouteBatch { afi: changes.family.afi.0.into(), undefine, ..RouteBatch::default() };
                window.push_back(client.routes(OriginRoutes { origin, batch: Some(batch) }));
            }
            for batch in encode(changes, &bgp.speaker.borrow()) {
                bgp.speaker.borrow().reporter.points.sent.pass(|| routes_of(&batch));
                window.push_back(client.routes(OriginRoutes { origin, batch: Some(batch) }));
            }
            bgp.depths.see_window(window.len());
            while window.len() >= WINDOW
                && let Some(first) = window.pop_front()
            {
                if let Err(error) = first.await {
                    return error;
                }
            }
            // Sessions have their turn between two batches.
            tokio::task::yield_now().await;
            continue;
        }
        while let Some(call) = window.pop_front() {
            if let Err(error) = call.await {
                return error;
            }
        }
        bgp.depths.see_window(0);
        if bgp.speaker.borrow().pipeline.rib_pending() {
            continue;
        }
        if said == Some(Stale::Goes) {
            bgp.rib.notified().await;
            continue;
        }
        let stale = if complete { stale(&mut bgp.speaker.borrow_mut()) } else { None };
        match stale.filter(|stale| said.as_ref() != Some(stale)) {
            Some(stale) => {
                if let Err(error) = say(bgp, client, origin, &stale, said.is_none()).await {
                    return error;
                }
                said = Some(stale);
            }
            None => drop(tokio::time::timeout(SYNC_LOOK, bgp.rib.notified()).await),
        }
    }
}

/// What is to become of stale routes, once all that this life knows is at the rib: a route whose next hop that has not
/// been asked about, say, would be missing, and what an earlier life had of it would be swept away.
fn stale(speaker: &mut Speaker) -> Option<Stale> {
    let stale = speaker.stale(Instant::now())?;
    speaker.pipeline.is_settled().then_some(stale)
}

async fn say(
    bgp: &Rc<Bgp>,
    client: &RibClient,
    origin: u32,
    stale: &Stale,
    is_first: bool,
) -> Result<(), XrlError> {
    let told = match stale {
        Stale::Goes => {
            client.end_of_sync(EndOfSyncRequest { origin }).await?;
            info!(event = "rib-synced", "all routes are at the rib");
            return Ok(());
        }
        Stale::Stays => ToldRequest { origin, everybody: true, awaited: Vec::new() },
        Stale::StaysOf(awaited) => ToldRequest { origin, everybody: false, awaited: awaited.clone() },
    };
    match client.told(told).await {
        // One of an earlier build waits for the end.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    if is_first {
        let peers = bgp.speaker.borrow().sessions.awaited();
        info!(
            event = "rib-told",
            peers, "all routes are at the rib, but those of {peers} peers that may come back"
        );
    }
    Ok(())
}

/// Batches in order, one for each row of runs that carry the same tag; definitions come with the first.
fn encode(changes: RibChanges, speaker: &Speaker) -> Vec<RouteBatch> {
    let settings = &speaker.settings;
    let source =
        |run: &RibRun| run.peer.and_then(|peer| speaker.sessions.slot(peer)).map_or(0, |slot| slot.source);
    let define = |RibNextHops { handle, gateways, backup }| NextHopSet {
        handle,
        kind: if gateways.is_empty() { NextHopKind::Blackhole } else { NextHopKind::Forward }.into(),
        members: gateways.into_iter().map(next_hop).collect(),
        backups: backup.into_iter().map(next_hop).collect(),
    };
    let distance = |run: &RibRun| if run.internal { settings.ibgp_distance } else { settings.ebgp_distance };
    let mut define: Vec<_> = changes.define.into_iter().map(define).collect();
    let (mut addresses, mut lengths) = (changes.addresses, changes.lengths);
    let width = if changes.family == Family::IPV4_UNICAST { 4 } else { 16 };
    let batch = |runs: &[RibRun]| {
        let routes = runs.iter().map(|run| run.routes as usize).sum();
        let rest = (addresses.split_off(routes * width), lengths.split_off(routes));
        let metrics = runs.iter().any(|run| run.metric != 0);
        let named = runs.iter().any(|run| source(run) != 0);
        RouteBatch {
            afi: changes.family.afi.0.into(),
            define: std::mem::take(&mut define),
            undefine: Vec::new(),
            runs: runs.iter().map(|run| run.routes).collect(),
            next_hops: runs.iter().map(|run| run.next_hops).collect(),
            distances: runs.iter().map(distance).collect(),
            addresses: std::mem::replace(&mut addresses, rest.0),
            lengths: std::mem::replace(&mut lengths, rest.1),
            metrics: runs.iter().filter(|_| metrics).map(|run| run.metric).collect(),
            tag: runs.first().map_or(0, |run| run.tag),
            sources: runs.iter().filter(|_| named).map(source).collect(),
        }
    };
    changes.runs.chunk_by(|a, b| a.tag == b.tag).map(batch).collect()
}

fn next_hop(gateway: Gateway) -> NextHop {
    NextHop { gateway: octets(gateway.address), interface_index: gateway.interface, ..NextHop::default() }
}

/// Asks about next hops, many at a time.
async fn questions(
    bgp: &Rc<Bgp>,
    client: &RibClient,
    next_hops: &std::cell::RefCell<NextHops>,
    asked: &tokio::sync::Notify,
) -> XrlError {
    loop {
        take_events(bgp, client, &mut next_hops.borrow_mut());
        let addresses = next_hops.borrow_mut().take(QUESTIONS);
        if addresses.is_empty() {
            tokio::select! { () = bgp.next_hops.notified() => {} () = asked.notified() => {} }
            continue;
        }
        let calls: Vec<_> = addresses
            .iter()
            .map(|&address| client.register(RegisterRequest { address: octets(address) }))
            .collect();
        for (address, call) in addresses.into_iter().zip(calls) {
            match call.await {
                Ok(resolution) => {
                    let reachability = judge(&resolution);
                    debug!(%address, ?reachability, range = resolution.range, "next hop");
                    bgp.with(|speaker, _| speaker.pipeline.next_hop(address, reachability));
                }
                Err(error) => return error,
            }
        }
    }
}

fn judge(resolution: &Resolution) -> Reachability {
    match resolution.reachable {
        true => Reachability::Reachable { metric: resolution.metric },
        false => Reachability::Unreachable,
    }
}

fn take_events(bgp: &Rc<Bgp>, client: &RibClient, next_hops: &mut NextHops) {
    while let Some(event) = bgp.speaker.borrow_mut().poll_next_hop() {
        match event {
            Event::RegisterNextHop(address) => {
                if next_hops.wanted.insert(address) {
                    next_hops.ask.push_back(address);
                }
            }
            Event::UnregisterNextHop(address) => {
                next_hops.wanted.remove(&address);
                client.unregister(RegisterRequest { address: octets(address) }).detach();
            }
            Event::EndOfRib { .. }
            | Event::Announced { .. }
            | Event::PolicyApplied { .. }
            | Event::BadAnswer { .. }
            | Event::RouteTooLong { .. }
            | Event::TooManyBadSignatures { .. }
            | Event::TooSlow { .. } => {}
        }
    }
}

/// Listens for ranges whose answer has changed.
async fn invalidations(
    client: &RibClient,
    next_hops: &std::cell::RefCell<NextHops>,
    asked: &tokio::sync::Notify,
) -> XrlError {
    let mut stream = client.invalidations(Empty {});
    loop {
        match stream.next().await {
            Ok(Some(invalidation)) => {
                if let Ok(range) = invalidation.range.parse() {
                    next_hops.borrow_mut().invalidated(range);
                    asked.notify_one();
                }
            }
            Ok(None) => return XrlError::unavailable("the rib ended its invalidations"),
            Err(error) => return error,
        }
    }
}
