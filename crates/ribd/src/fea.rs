//! Towards the forwarding engine: interfaces in, routes out, both from scratch whenever the engine is another one.

use std::{
    collections::{BTreeSet, VecDeque},
    convert::Infallible,
    future::pending,
    time::Duration,
};

use holdfast_api::{
    fea::v1::{Empty, FeaClient, Interface as FeaInterface, InterfaceEvent},
    routes::v1::RouteBatch,
};
use holdfast_process::{Boot, profile::routes_of};
use holdfast_rib::{FibBatch, Interface, InterfaceAddress, Rib};
use holdfast_xrl::{Call, ErrorKind, XrlError};
use tokio::{
    sync::Notify,
    time::{Instant, MissedTickBehavior, interval_at, sleep},
};
use tracing::{info, warn};

use crate::{router::Router, wire};

/// Routes in one batch.
pub(crate) const BATCH: usize = 4096;
/// Batches that the engine has not yet acknowledged.
pub(crate) const WINDOW: usize = 8;
/// Pause after which routes that the kernel refuses are offered again.
const OFFER_AGAIN: Duration = Duration::from_secs(30);
/// Pause between two attempts to talk to an engine.
const RETRY: Duration = Duration::from_millis(20);

/// Keeps the forwarding engine of the table informed for ever.
pub(crate) async fn feed(router: &Router, boot: &Boot) -> Infallible {
    let mut said = String::new();
    loop {
        let error = serve(router, boot).await;
        router.change(Rib::fib_detach);
        router.in_flight.set(0);
        let text = error.to_string();
        if said != text {
            warn!(event = "fea-lost", "fea: {text}");
            said = text;
        }
        sleep(RETRY).await;
    }
}

/// The life of one engine; what ended it.
async fn serve(router: &Router, boot: &Boot) -> XrlError {
    let client = match boot.resolver.wait_for::<FeaClient>(&boot.class("fea")).await {
        Ok(client) => client,
        Err(error) => return error,
    };
    let interfaces_known = Notify::new();
    tokio::select! {
        error = interfaces(router, &client, &interfaces_known) => error,
        error = losses(router, &client) => error,
        error = refusals(router, &client) => error,
        error = at_once(router, &client) => error,
        error = async {
            // Without interfaces every next hop would seem unreachable.
            interfaces_known.notified().await;
            routes(router, &client).await
        } => error,
    }
}

async fn interfaces(router: &Router, client: &FeaClient, known: &Notify) -> XrlError {
    let mut stream = client.interfaces(Empty {});
    let mut seen = BTreeSet::new();
    let mut is_synced = false;
    loop {
        let event = match stream.next().await {
            Ok(Some(event)) => event,
            Ok(None) => return XrlError::unavailable("the fea ended its interfaces"),
            Err(error) => return error,
        };
        let (was_synced, synced) = (is_synced, event.synced);
        is_synced |= synced;
        let index = interface_event(router, event);
        if was_synced {
            continue;
        }
        seen.extend(index);
        if synced {
            forget_unseen(router, &seen);
            router.readiness.borrow_mut().interfaces_known();
            router.ring();
            known.notify_one();
        }
    }
}

/// Returns the number of the interface if it exists.
fn interface_event(router: &Router, event: InterfaceEvent) -> Option<u32> {
    if event.gone != 0 {
        router.change(|rib| rib.interface_gone(event.gone));
    }
    let interface = event.interface.map(interface)?;
    let index = interface.index;
    router.change(|rib| rib.interface_changed(interface));
    Some(index)
}

/// Interfaces that went while no engine was there to say so.
fn forget_unseen(router: &Router, seen: &BTreeSet<u32>) {
    router.change(|rib| {
        let gone: Vec<u32> =
            rib.interfaces().map(|i| i.index).filter(|index| !seen.contains(index)).collect();
        gone.into_iter().for_each(|index| rib.interface_gone(index));
    });
}

fn interface(interface: FeaInterface) -> Interface {
    let address = |address: &holdfast_api::fea::v1::Address| {
        let length = u8::try_from(address.length).ok()?;
        // The network is that of the other end where there is one.
        let inside = if address.peer.is_empty() { &address.address } else { &address.peer };
        Some(InterfaceAddress { address: wire::address(inside).ok()?, length })
    };
    Interface {
        index: interface.index,
        up: interface.up && interface.running,
        addresses: interface.addresses.iter().filter_map(address).collect(),
        name: interface.name.into(),
    }
}

/// The kernel may have lost routes: it gets them all again.
async fn losses(router: &Router, client: &FeaClient) -> XrlError {
    let mut stream = client.losses(Empty {});
    loop {
        match stream.next().await {
            Ok(Some(loss)) => {
                info!(
                    event = "kernel-loss",
                    reason = loss.reason,
                    "the kernel may have lost routes: syncing"
                );
                router.lost.set(true);
                router.change(Rib::fib_attach);
            }
            Ok(None) => return XrlError::unavailable("the fea ended its losses"),
            Err(error) => return error,
        }
    }
}

/// What the kernel refuses is shown, and offered again from time to time: it may have been short of something. What follows
/// from interfaces the engine notices itself.
async fn refusals(router: &Router, client: &FeaClient) -> XrlError {
    router.change(Rib::fib_forget_rejected);
    let mut stream = client.refusals(Empty {});
    let mut was_incomplete = false;
    let mut again = interval_at(Instant::now() + OFFER_AGAIN, OFFER_AGAIN);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            said = stream.next() => match said {
                Ok(Some(refusals)) => {
                    router.change(|rib| rib.fib_rejects(wire::rejections(&refusals)));
                    let is_incomplete = router.quietly(|rib| rib.status().rejected_incomplete);
                    if is_incomplete && !was_incomplete {
                        let text = "more routes are refused by the kernel than are shown as rejected";
                        warn!(event = "rejected-incomplete", "{text}");
                    }
                    was_incomplete = is_incomplete;
                }
                Ok(None) => return XrlError::unavailable("the fea ended its refusals"),
                // An earlier build, which does not say.
                Err(error) if error.kind() == ErrorKind::NotFound => return pending().await,
                Err(error) => return error,
            },
            _ = again.tick() => {
                if router.quietly(Rib::fib_offer_again) {
                    router.ring();
                }
            }
        }
    }
}

/// Sets of next hops that lead elsewhere because neighbours have failed: the engine is told ahead of batches that are under
/// way, and once more in their order.
async fn at_once(router: &Router, client: &FeaClient) -> XrlError {
    let mut bell = router.bell();
    loop {
        let hurried = router.quietly(Rib::poll_fib_at_once);
        if hurried.is_empty() {
            bell.rings().await;
            continue;
        }
        let sets = hurried.iter();
        let define = sets.map(|(handle, resolution)| wire::next_hop_set(*handle, wire::resolved(resolution)));
        let batch = RouteBatch { afi: 1, define: define.collect(), ..RouteBatch::default() };
        match client.define_at_once(batch).await {
            Ok(Empty {}) => {}
            // An earlier build, which is told in order only.
            Err(error) if error.kind() == ErrorKind::NotFound => return pending().await,
            Err(error) => return error,
        }
    }
}

/// Batches that are under way, oldest first.
struct Window<'a> {
    router: &'a Router,
    calls: VecDeque<UnderWay>,
}

/// A call of a batch.
struct UnderWay {
    call: Call<Empty>,
    routes: usize,
    /// With it the engine has carried out all that the table gave up to the batch of this number.
    completes: Option<u64>,
}

impl Window<'_> {
    async fn push(&mut self, call: Call<Empty>, routes: usize) -> Result<(), XrlError> {
        self.router.in_flight.set(self.router.in_flight.get() + routes);
        self.router.depths.window.see(self.router.in_flight.get() as u64);
        self.calls.push_back(UnderWay { call, routes, completes: None });
        match self.calls.len() >= WINDOW {
            true => self.wait().await,
            false => Ok(()),
        }
    }

    /// Waits for the oldest. Whoever stops waiting loses nothing: a call that is dropped would be cancelled.
    async fn wait(&mut self) -> Result<(), XrlError> {
        if let Some(UnderWay { call, routes, completes }) = self.calls.front_mut() {
            call.await?;
            self.router.in_flight.set(self.router.in_flight.get().saturating_sub(*routes));
            self.router.finished.add(*routes as u64);
            if let Some(number) = *completes {
                self.router.quietly(|rib| rib.fib_acknowledged(number));
            }
            self.calls.pop_front();
        }
        Ok(())
    }

    /// All of the batch of this number is under way, or it was carried out at once.
    fn completes(&mut self, number: u64) {
        match self.calls.back_mut() {
            Some(last) => last.completes = Some(number),
            None => self.router.quietly(|rib| rib.fib_acknowledged(number)),
        }
    }

    async fn drain(&mut self) -> Result<(), XrlError> {
        while !self.calls.is_empty() {
            self.wait().await?;
        }
        Ok(())
    }
}

async fn routes(router: &Router, client: &FeaClient) -> XrlError {
    let mut bell = router.bell();
    let mut window = Window { router, calls: VecDeque::new() };
    router.change(Rib::fib_attach);
    loop {
        let polled = router.quietly(|rib| rib.poll_fib(BATCH).map(|batch| (batch, rib.fib_batch())));
        let sent = match polled {
            Some(batch) => {
                // Origins may have waited for this.
                router.ring();
                send(client, &mut window, batch).await
            }
            None => tokio::select! {
                () = bell.rings() => Ok(()),
                // So that errors are seen, and what is under way is counted right.
                done = window.wait(), if !window.calls.is_empty() => done,
            },
        };
        if let Err(error) = sent {
            return error;
        }
    }
}

async fn send(
    client: &FeaClient,
    window: &mut Window<'_>,
    (batch, number): (FibBatch, u64),
) -> Result<(), XrlError> {
    if batch.begin {
        window.drain().await?;
        window.router.lost.set(false);
        // A loss since then says that the engine is another one than that which answered.
        if client.sync_begin(Empty {}).await?.discards && !window.router.lost.get() {
            info!(event = "fea-wants-nothing", "the forwarding engine wants no routes");
            window.router.change(Rib::fib_discards);
            return Ok(());
        }
    }
    let end = batch.end;
    for batch in encode(batch) {
        let routes = batch.lengths.len();
        window.router.sent.pass(|| routes_of(&batch));
        window.push(client.apply(batch), routes).await?;
    }
    window.completes(number);
    if end {
        window.drain().await?;
        client.sync_end(Empty {}).await?;
        info!(event = "fea-synced", "the forwarding engine has everything");
    }
    Ok(())
}

/// One batch per run of routes of a family: definitions before the first, handles given up after the last.
fn encode(batch: FibBatch) -> Vec<RouteBatch> {
    let mut batches: Vec<RouteBatch> = Vec::new();
    for (prefix, handle) in batch.routes {
        if batches.last().is_none_or(|last| last.afi != wire::afi(prefix)) {
            batches.push(RouteBatch { afi: wire::afi(prefix), ..RouteBatch::default() });
        }
        if let Some(last) = batches.last_mut() {
            wire::push(last, prefix, handle.unwrap_or(0));
        }
    }
    if batches.is_empty() && !(batch.define.is_empty() && batch.undefine.is_empty()) {
        batches.push(RouteBatch { afi: 1, ..RouteBatch::default() });
    }
    if let Some(first) = batches.first_mut() {
        let sets = batch.define.iter();
        first.define = sets
            .map(|(handle, resolution)| wire::next_hop_set(*handle, wire::resolved(resolution)))
            .collect();
    }
    if let Some(last) = batches.last_mut() {
        last.undefine = batch.undefine;
    }
    batches
}

#[cfg(test)]
mod tests {
    use holdfast_rib::Resolution;

    use super::*;

    #[test]
    fn a_batch_of_both_families_is_split_with_its_definitions_in_front() {
        let route = |text: &str, handle| (text.parse().expect("prefix"), handle);
        let batch = FibBatch {
            define: vec![(1, Resolution::Blackhole)],
            routes: vec![
                route("10.0.0.0/8", Some(1)),
                route("11.0.0.0/8", None),
                route("2001:db8::/32", Some(1)),
            ],
            undefine: vec![7],
            ..FibBatch::default()
        };
        let batches = encode(batch);
        let shape: Vec<_> = batches.iter().map(|b| (b.afi, b.next_hops.clone(), b.define.len())).collect();
        assert_eq!(shape, [(1, vec![1, 0], 1), (2, vec![1], 0)]);
        assert_eq!((batches[0].undefine.len(), &batches[1].undefine), (0, &vec![7]));
    }

    #[test]
    fn a_next_hop_that_changes_is_a_batch_without_routes() {
        let batch = FibBatch { define: vec![(1, Resolution::Unreachable)], ..FibBatch::default() };
        let batches = encode(batch);
        assert_eq!((batches.len(), batches[0].define.len(), batches[0].lengths.len()), (1, 1, 0));
        assert!(encode(FibBatch { begin: true, ..FibBatch::default() }).is_empty());
    }
}
