//! What policies change, in the octets that peers are sent; and when a change of one has reached all routes.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU32, Ordering},
};

use holdfast_bgp_pipeline::{
    Direction, Event, NextHopMode, PathState, PeerConfig, PeerIndex, Pipeline, Progress, Reachability, Step,
};
use holdfast_bgp_wire::{Attributes, Origin, edit::AttributesBuilder};
use holdfast_policy::{
    Action, Condition, Library, MedAction, Outcome, Policy, PolicySource, Prepend, PrependAs, Program, Term,
};
use holdfast_types::Asn;

use crate::tests::pipeline::speaker::{
    Sink, address, announcement, checked, ebgp, facts, ibgp, prefix, settle, speaker,
};

fn source(terms: Vec<Term>) -> PolicySource {
    let policy = Policy { name: "p".into(), first: vec![], terms, last: None };
    PolicySource { policies: vec![policy], ..PolicySource::default() }
}

/// Each is another compilation.
pub(crate) fn program(terms: Vec<Term>) -> Program {
    static GENERATION: AtomicU32 = AtomicU32::new(1);
    let generation = GENERATION.fetch_add(1, Ordering::Relaxed);
    Library::compile(&source(terms), generation).expect("compiles").get("p").expect("is there").clone()
}

pub(crate) fn changing(actions: Vec<Action>) -> Program {
    program(vec![Term { name: "all".into(), from: vec![], then: actions, outcome: Outcome::Accept }])
}

fn attributes(path: &[u32], from: u8) -> Vec<u8> {
    AttributesBuilder {
        as_path: path.iter().map(|asn| Asn(*asn)).collect(),
        next_hop: Some(address(from)),
        ..AttributesBuilder::new(Origin::Igp)
    }
    .build()
}

fn up(pipeline: &mut Pipeline, n: u8, config: PeerConfig) -> PeerIndex {
    let peer = pipeline.add_peer(config);
    pipeline.peer_up(peer, facts(n)).expect("room");
    peer
}

/// What an external peer is told of a route of another one, after these policies.
fn announced(import: Vec<Action>, export: Vec<Action>) -> Vec<u8> {
    let mut pipeline = checked(speaker(NextHopMode::Resolved));
    let from = up(&mut pipeline, 1, PeerConfig { import: Some(changing(import)), ..ebgp(1) });
    let to = up(&mut pipeline, 2, PeerConfig { export: Some(changing(export)), ..ebgp(2) });
    let asn = ebgp(1).asn.0;
    pipeline
        .update(from, &announcement(&attributes(&[asn, 7], 1), &[prefix("203.0.113.0/24")]))
        .expect("taken");
    pipeline.next_hop(IpAddr::V4(address(1)), Reachability::Reachable { metric: 35 });
    let mut sinks = [(to, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    sinks[0].1.routes[&prefix("203.0.113.0/24")].attributes.clone()
}

#[test]
fn extended_communities_are_set_on_import_and_removed_on_export() {
    let add = |text: &str| Action::AddCommunities(vec![text.parse().expect("a community")]);
    let remove = |text: &str| Action::RemoveCommunities(vec![text.parse().expect("a pattern")]);
    let bytes = announced(vec![add("rt:65000:1"), add("soo:65000:2")], vec![remove("rt:65000:*")]);
    let left: Vec<_> = Attributes(&bytes).ext_communities().map(u64::from_be_bytes).collect();
    assert_eq!(left, [0x0003_fde8_0000_0002]);
}

#[test]
fn the_nearest_as_is_repeated_on_both_ways() {
    let last = |count| vec![Action::Prepend(Prepend { asn: PrependAs::Last, count })];
    let path = |bytes: &[u8]| Attributes(bytes).as_path().to_string();
    let asn = ebgp(1).asn;
    assert_eq!(path(&announced(last(1), vec![])), format!("65000 {asn} {asn} 7"));
    assert_eq!(path(&announced(vec![], last(2))), format!("65000 {asn} {asn} {asn} 7"));
}

#[test]
fn the_med_may_be_the_metric_of_the_way_to_the_next_hop() {
    let med = |import: &[MedAction], export: &[MedAction]| {
        let actions = |list: &[MedAction]| list.iter().copied().map(Action::Med).collect();
        Attributes(&announced(actions(import), actions(export))).med()
    };
    assert_eq!(med(&[], &[]), None);
    assert_eq!(med(&[], &[MedAction::Metric]), Some(35));
    assert_eq!(med(&[], &[MedAction::Metric, MedAction::Add(5)]), Some(40));
    assert_eq!(med(&[MedAction::Set(9)], &[MedAction::Subtract(2)]), Some(7));
    assert_eq!(med(&[MedAction::Metric], &[]), None, "on import it changes nothing");
}

#[test]
fn the_heavier_route_is_best_before_everything_else() {
    let mut pipeline = checked(speaker(NextHopMode::AlwaysReachable));
    let heavy = PeerConfig { import: Some(changing(vec![Action::Weight(1)])), ..ebgp(1) };
    let heavy = up(&mut pipeline, 1, heavy);
    let light = PeerConfig { import: Some(changing(vec![Action::LocalPreference(500)])), ..ebgp(2) };
    let light = up(&mut pipeline, 2, light);
    let route = prefix("203.0.113.0/24");
    for (peer, n) in [(light, 2), (heavy, 1)] {
        let bytes = attributes(&[ebgp(n).asn.0, 7], n);
        pipeline.update(peer, &announcement(&bytes, &[route])).expect("taken");
    }
    let paths = pipeline.explain(route);
    assert_eq!((paths[0].peer, paths[0].weight), (Some(heavy), 1));
    assert_eq!((paths[1].weight, &paths[1].state), (0, &PathState::Lost(Step::Weight)));
    pipeline.originate(route, &holdfast_bgp_pipeline::OriginateAttributes::default());
    assert_eq!(pipeline.explain(route)[0].peer, None, "our own routes weigh more");
    let config = PeerConfig { import: Some(changing(vec![Action::Weight(40_000)])), ..ebgp(1) };
    pipeline.configure_peer(heavy, config);
    while pipeline.work(100) || pipeline.is_waiting() {}
    let paths = pipeline.explain(route);
    assert_eq!((paths[0].peer, &paths[1].state), (Some(heavy), &PathState::Lost(Step::Weight)));
}

/// Directions of which it was said that their policy has reached all routes.
fn applied(pipeline: &mut Pipeline, of: PeerIndex) -> Vec<Direction> {
    let event = std::iter::from_fn(|| pipeline.poll_event());
    event
        .filter_map(|event| match event {
            Event::PolicyApplied { peer, direction } if peer == of => Some(direction),
            _ => None,
        })
        .collect()
}

#[test]
fn the_end_of_a_change_is_told_and_its_progress_can_be_asked() {
    let mut pipeline = checked(speaker(NextHopMode::AlwaysReachable));
    let all = |weight| Some(changing(vec![Action::Weight(weight)]));
    let from = up(&mut pipeline, 1, PeerConfig { import: all(1), ..ebgp(1) });
    let bytes = attributes(&[ebgp(1).asn.0, 7], 1);
    let routes: Vec<_> = (0..100).map(|n| prefix(&format!("10.{n}.0.0/16"))).collect();
    routes.chunks(50).for_each(|routes| pipeline.update(from, &announcement(&bytes, routes)).expect("taken"));
    assert_eq!(pipeline.policy_progress(from, Direction::Import), None);
    pipeline.configure_peer(from, PeerConfig { import: all(2), ..ebgp(1) });
    let progress = |done| Some(Progress { done, total: 100 });
    assert_eq!(pipeline.policy_progress(from, Direction::Import), progress(0));
    // The peer reads nothing, which holds a walk up for a while.
    let mut slice = || {
        pipeline.work(30);
        pipeline.policy_progress(from, Direction::Import).expect("under way")
    };
    let seen = (0..1000).map(|_| slice()).find(|seen| seen.done > 0).expect("it goes on");
    assert!((1..100).contains(&seen.done) && seen.percent() < 100, "{seen:?}");
    assert_eq!(applied(&mut pipeline, from), []);
    while pipeline.work(30) || pipeline.is_waiting() {}
    assert_eq!(pipeline.policy_progress(from, Direction::Import), None);
    assert_eq!(applied(&mut pipeline, from), [Direction::Import]);

    let mut sinks = [(up(&mut pipeline, 2, ibgp(2)), Sink { internal: true, ..Sink::default() })];
    settle(&mut pipeline, &mut sinks);
    let to = sinks[0].0;
    assert_eq!(pipeline.policy_progress(to, Direction::Export), None, "a first table is no change of policy");
    pipeline.configure_peer(
        to,
        PeerConfig { export: Some(changing(vec![Action::LocalPreference(3)])), ..ibgp(2) },
    );
    assert_eq!(pipeline.policy_progress(to, Direction::Export), progress(0));
    settle(&mut pipeline, &mut sinks);
    assert_eq!(pipeline.policy_progress(to, Direction::Export), None);
    assert_eq!(applied(&mut pipeline, to), [Direction::Export]);
}

#[test]
fn a_policy_is_traced_on_routes_that_are_there() {
    let mut pipeline = checked(speaker(NextHopMode::AlwaysReachable));
    let from = up(&mut pipeline, 1, ebgp(1));
    let to = up(&mut pipeline, 2, ebgp(2));
    let route = prefix("203.0.113.0/24");
    let bytes = attributes(&[ebgp(1).asn.0, 7], 1);
    pipeline.update(from, &announcement(&bytes, &[route])).expect("taken");
    let to_second = Condition::PeerAs(vec![ebgp(2).asn.into()]);
    let terms =
        vec![Term { name: "to".into(), from: vec![to_second], then: vec![], outcome: Outcome::Accept }];
    let (program, source) = (program(terms.clone()), source(terms));
    let traces = pipeline.trace_import(route, None, &program, &source);
    assert_eq!((traces.len(), traces[0].0, traces[0].1.accepted), (1, Some(from), false));
    assert!(
        traces[0].1.places[0].failed.as_ref().is_some_and(|failed| failed.found == ebgp(1).asn.to_string())
    );
    assert!(pipeline.trace_import(route, Some(to), &program, &source).is_empty());
    let (sender, trace) = pipeline.trace_export(route, to, &program, &source).expect("a best route");
    assert_eq!((sender, trace.accepted, trace.decided_by.as_str()), (Some(from), true, "to"));
    assert!(pipeline.trace_export(prefix("192.0.2.0/24"), to, &program, &source).is_none());
}
