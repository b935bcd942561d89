//! Stages plugged in from outside: what they are shown, and what they may do.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::{
    AdjRibOutSnapshot, Batch, Cause, CheckStage, JournalEntry, PathState, PeerIndex, Pipeline, Release, Stage,
};
use holdfast_policy::Program;
use holdfast_types::{HashKey, Prefix};

use crate::tests::pipeline::{
    behaviour::{always, attributes, up},
    speaker::{Sink, announcement, checked, ebgp, facts, prefix, settle, withdrawal},
};

/// Holds every new route back for a while.
#[derive(Debug)]
struct Hold {
    time: Duration,
    held: BTreeMap<(PeerIndex, Prefix), Instant>,
    /// Causes of batches, with the AS paths that were announced.
    seen: Vec<(Cause, Option<String>)>,
    removed: Vec<PeerIndex>,
}

impl Hold {
    fn new(seconds: u64) -> Rc<RefCell<Self>> {
        let time = Duration::from_secs(seconds);
        Rc::new(RefCell::new(Self { time, held: BTreeMap::new(), seen: Vec::new(), removed: Vec::new() }))
    }
}

impl Stage for Hold {
    fn push(&mut self, batch: &mut Batch<'_>) {
        let path = batch.attributes.map(|attributes| attributes.as_path().to_string());
        self.seen.push((batch.cause, path));
        for change in batch.changes.iter_mut() {
            let key = (batch.peer, change.prefix);
            match (change.old, change.new) {
                (None, Some(_)) => _ = self.held.insert(key, batch.now + self.time),
                (_, None) => _ = self.held.remove(&key),
                (Some(_), Some(_)) => {}
            }
            change.suppress |= self.held.contains_key(&key);
        }
    }

    fn peer_down(&mut self, peer: PeerIndex) {
        self.held.retain(|(other, _), _| *other != peer);
    }

    fn peer_removed(&mut self, peer: PeerIndex) {
        self.removed.push(peer);
    }

    fn work(&mut self, now: Instant, budget: usize, released: &mut Vec<Release>) -> bool {
        let due = |(&(peer, prefix), &at): (&(PeerIndex, Prefix), &Instant)| {
            (at <= now).then_some(Release { peer, prefix })
        };
        let gone: Vec<_> = self.held.iter().filter_map(due).take(budget).collect();
        gone.iter().for_each(|route| _ = self.held.remove(&(route.peer, route.prefix)));
        let more = gone.len() == budget;
        released.extend(gone);
        more
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.held.values().min().copied()
    }

    fn holds(&self, now: Instant, peer: PeerIndex, prefix: Prefix) -> Option<Cow<'static, str>> {
        let left = self.held.get(&(peer, prefix))?.saturating_duration_since(now);
        Some(format!("held for {} s", left.as_secs()).into())
    }

    fn describe(&self) -> String {
        format!("hold: {} routes", self.held.len())
    }
}

/// What the first path to a prefix is.
fn state(pipeline: &mut Pipeline, prefix: Prefix) -> PathState {
    pipeline.explain(prefix)[0].state.clone()
}

fn held(text: &'static str) -> PathState {
    PathState::Suppressed(text.into())
}

#[test]
fn a_stage_of_ones_own_may_hold_routes_back_and_let_them_go() {
    let (mut pipeline, start, hold) = (checked(always()), Instant::now(), Hold::new(10));
    pipeline.add_stage(Box::new(CheckStage::default()), start);
    pipeline.add_stage(Box::new(hold.clone()), start);
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let mut sinks = [(to, Sink::default())];
    let routes: Vec<_> = (0..3).map(|n| prefix(&format!("10.{n}.0.0/16"))).collect();
    pipeline.update(from, &announcement(&attributes(1, &[]), &routes)).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!((sinks[0].1.routes.len(), pipeline.describe_stages()[1].as_str()), (0, "hold: 3 routes"));
    assert_eq!(state(&mut pipeline, routes[0]), held("held for 10 s"));
    assert_eq!(pipeline.poll_timeout(), Some(start + Duration::from_secs(10)));

    pipeline.set_now(start + Duration::from_secs(4));
    assert_eq!(state(&mut pipeline, routes[0]), held("held for 6 s"));
    // Another change of a route that is held back.
    pipeline.update(from, &announcement(&attributes(1, &[7]), &routes[..1])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!((sinks[0].1.routes.len(), state(&mut pipeline, routes[0])), (0, held("held for 6 s")));

    pipeline.set_now(start + Duration::from_secs(10));
    assert!(pipeline.work(2), "there is a third");
    settle(&mut pipeline, &mut sinks);
    assert_eq!((sinks[0].1.routes.len(), pipeline.poll_timeout()), (3, None));
    let seen = [(Cause::Update, Some("65101".to_owned())), (Cause::Update, Some("65101".to_owned()))];
    assert_eq!(hold.borrow().seen, seen);
}

#[test]
fn a_route_goes_on_when_no_stage_holds_it_back_any_more() {
    let (mut pipeline, start) = (checked(always()), Instant::now());
    pipeline.add_stage(Box::new(Hold::new(5)), start);
    pipeline.add_stage(Box::new(Hold::new(10)), start);
    let from = up(&mut pipeline, 1);
    let route = prefix("10.0.0.0/8");
    pipeline.update(from, &announcement(&attributes(1, &[]), &[route])).expect("taken");
    pipeline.set_now(start + Duration::from_secs(5));
    settle(&mut pipeline, &mut []);
    assert_eq!(state(&mut pipeline, route), held("held for 5 s"), "by the second");
    pipeline.set_now(start + Duration::from_secs(10));
    settle(&mut pipeline, &mut []);
    assert_eq!(state(&mut pipeline, route), PathState::Best);
}

#[test]
fn stages_know_why_routes_change_and_whose_they_are() {
    let (mut pipeline, hold) = (checked(always()), Hold::new(10));
    pipeline.add_stage(Box::new(hold.clone()), Instant::now());
    let peer = pipeline.add_peer(ebgp(1));
    pipeline.peer_resumed(peer, facts(1)).expect("room");
    let route = prefix("10.0.0.0/8");
    let announced = announcement(&attributes(1, &[]), &[route]);
    pipeline.update(peer, &announced).expect("taken");
    pipeline.resume(&[peer], AdjRibOutSnapshot::new(HashKey::new([1, 2])), JournalEntry::NONE);
    pipeline.update(peer, &withdrawal(route)).expect("taken");
    pipeline.update(peer, &announced).expect("taken");
    pipeline.configure_peer(peer, holdfast_bgp_pipeline::PeerConfig { import: None, ..ebgp(1) });
    settle(&mut pipeline, &mut []);
    let other = Some(Program::accept_all());
    pipeline.configure_peer(peer, holdfast_bgp_pipeline::PeerConfig { import: other, ..ebgp(1) });
    settle(&mut pipeline, &mut []);
    let announced = || Some("65101".to_owned());
    let seen = [
        (Cause::Replay, announced()),
        (Cause::Update, None),
        (Cause::Update, announced()),
        (Cause::Policy, None),
        (Cause::Policy, announced()),
    ];
    assert_eq!(hold.borrow().seen, seen);
    pipeline.remove_peer(peer);
    assert_eq!((hold.borrow().held.len(), &hold.borrow().removed[..]), (0, &[peer][..]));
}
