//! Routes of other protocols that we originate, and the policy between us and the RIB.

use std::net::Ipv4Addr;

use holdfast_bgp_pipeline::{
    ForeignRoute, NextHopMode, NoRoom, OriginateAttributes, PathState, PeerConfig, Pipeline, RibRun, Step,
};
use holdfast_bgp_wire::{Attributes, Origin, edit::AttributesBuilder};
use holdfast_policy::{
    Action, Condition, Library, MedAction, Outcome, Policy, PolicySource, Program, Protocol, Term,
};
use holdfast_types::Asn;

use crate::tests::pipeline::speaker::{Sink, announcement, checked, ebgp, facts, prefix, settle, speaker};

const P: &str = "203.0.113.0/24";
const Q: &str = "198.51.100.0/24";

fn program(terms: Vec<(Vec<Condition>, Vec<Action>, Outcome)>) -> Program {
    let term = |(number, (from, then, outcome)): (usize, (_, _, _))| Term {
        name: number.to_string(),
        from,
        then,
        outcome,
    };
    let terms = terms.into_iter().enumerate().map(term).collect();
    let policies = vec![Policy { name: "test".into(), first: vec![], terms, last: None }];
    let library = Library::compile(&PolicySource { policies, ..PolicySource::default() }, 1).expect("sound");
    library.get("test").expect("it is there").clone()
}

fn static_route(tag: u32, policy: Program) -> ForeignRoute {
    ForeignRoute { protocol: Protocol::Static, tag, metric: 30, policy }
}

fn pipeline() -> Pipeline {
    checked(speaker(NextHopMode::AlwaysReachable))
}

fn received() -> Vec<u8> {
    AttributesBuilder {
        as_path: vec![Asn(65101)],
        next_hop: Some(Ipv4Addr::new(192, 0, 2, 1)),
        ..AttributesBuilder::new(Origin::Igp)
    }
    .build()
}

#[test]
fn a_foreign_route_gets_what_its_policy_says_and_keeps_its_tag_and_protocol() {
    let mut pipeline = pipeline();
    let tagged = program(vec![(
        vec![Condition::Tag(vec![42]), Condition::Protocol(vec![Protocol::Static])],
        vec![],
        Outcome::Accept,
    )]);
    let to = pipeline.add_peer(PeerConfig { export: Some(tagged), ..ebgp(1) });
    pipeline.peer_up(to, facts(1)).expect("room");
    let policy = program(vec![(
        vec![Condition::Med(30..=30)],
        vec![Action::AddCommunities(vec!["65000:7".parse().expect("a community")])],
        Outcome::Accept,
    )]);
    pipeline
        .redistribute(&[prefix(P), prefix("2001:db8::/32")], &static_route(42, policy.clone()))
        .expect("room");
    pipeline.redistribute(&[prefix(Q)], &static_route(43, policy)).expect("room");
    let mut sinks = [(to, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    let held = &sinks[0].1.routes[&prefix(P)];
    let attributes = Attributes(&held.attributes);
    assert_eq!(attributes.origin(), Some(Origin::Incomplete));
    assert_eq!((attributes.med(), held.path()), (Some(30), "65000".into()));
    assert_eq!(attributes.communities().collect::<Vec<_>>(), [65000 << 16 | 7]);
    assert_eq!(sinks[0].1.routes.len(), 2, "one for each family: the other tag is not asked for");
    let view = &pipeline.explain(prefix(P))[0];
    assert_eq!((view.is_redistributed, view.tag, view.peer), (true, 42, None));
    pipeline.withdraw_redistributed(&[prefix(P), prefix(Q)]);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 1);
}

#[test]
fn what_is_said_again_alike_is_no_change() {
    let mut pipeline = pipeline();
    let to = pipeline.add_peer(ebgp(1));
    pipeline.peer_up(to, facts(1)).expect("room");
    let route = static_route(42, Program::accept_all());
    let mut sinks = [(to, Sink::default())];
    pipeline.redistribute(&[prefix(P)], &route).expect("room");
    settle(&mut pipeline, &mut sinks);
    let before = sinks[0].1.messages;
    pipeline.redistribute(&[prefix(P)], &route).expect("room");
    settle(&mut pipeline, &mut sinks);
    assert_eq!((before, sinks[0].1.messages), (3, 3), "the route and two ends");
}

#[test]
fn networks_come_before_foreign_routes_and_those_before_received_ones() {
    let mut pipeline = pipeline();
    let from = pipeline.add_peer(ebgp(1));
    pipeline.peer_up(from, facts(1)).expect("room");
    pipeline.update(from, &announcement(&received(), &[prefix(P)])).expect("taken");
    let route = static_route(0, Program::accept_all());
    pipeline.redistribute(&[prefix(P)], &route).expect("room");
    pipeline.originate(prefix(P), &OriginateAttributes::default());
    let order = |pipeline: &mut Pipeline| {
        let views = pipeline.explain(prefix(P));
        views.iter().map(|view| (view.peer.is_some(), view.is_redistributed)).collect::<Vec<_>>()
    };
    assert_eq!(order(&mut pipeline)[0], (false, false), "the network");
    let views = pipeline.explain(prefix(P));
    assert!(views[1..].iter().all(|view| view.state == PathState::Lost(Step::LocalRoute)));
    pipeline.withdraw_origin(prefix(P));
    assert_eq!(order(&mut pipeline), [(false, true), (true, false)]);
    // A policy that refuses it leaves the prefix to others, also when it was there under another one.
    let refused = static_route(0, program(vec![(vec![], vec![], Outcome::Reject)]));
    pipeline.redistribute(&[prefix(P)], &refused).expect("room");
    assert_eq!(order(&mut pipeline), [(true, false), (false, true)]);
    assert!(matches!(pipeline.explain(prefix(P))[1].state, PathState::Rejected { .. }));
}

#[test]
fn a_walk_leaves_foreign_routes_and_their_policy_alone() {
    let mut pipeline = pipeline();
    let from = pipeline.add_peer(ebgp(1));
    pipeline.peer_up(from, facts(1)).expect("room");
    let by_tag = program(vec![(vec![Condition::Tag(vec![1])], vec![], Outcome::Accept)]);
    pipeline.redistribute(&[prefix(P)], &static_route(1, by_tag.clone())).expect("room");
    pipeline.redistribute(&[prefix(Q)], &static_route(2, by_tag)).expect("room");
    pipeline.update(from, &announcement(&received(), &[prefix(Q)])).expect("taken");
    pipeline.peer_down(from);
    while pipeline.work(100) {}
    let states = [P, Q].map(|text| pipeline.explain(prefix(text))[0].state.clone());
    assert_eq!(states[0], PathState::Best);
    assert!(matches!(states[1], PathState::Rejected { .. }));
}

#[test]
fn of_too_many_tags_the_last_find_no_room_and_the_first_stay() {
    let mut pipeline = pipeline();
    let policy = Program::accept_all();
    let mut given = 0;
    let refused = (1..10_000).find(|tag| {
        given = *tag;
        let route = static_route(*tag, policy.clone());
        let first = prefix(&format!("10.{}.{}.0/24", tag >> 8, tag & 255));
        pipeline.redistribute(&[first], &route) == Err(NoRoom)
    });
    assert!(refused.is_some_and(|tag| tag > 4000), "{refused:?}");
    assert!(pipeline.explain(prefix(&format!("10.{}.{}.0/24", given >> 8, given & 255))).is_empty());
    assert!(!pipeline.explain(prefix("10.0.1.0/24")).is_empty());
    pipeline.redistribute(&[prefix(P)], &static_route(1, policy)).expect("a tag that is in use");
}

#[test]
fn the_rib_is_given_what_its_policy_lets_pass_with_tag_and_metric_and_nothing_of_ours() {
    let mut pipeline = pipeline();
    let (from, to) = (pipeline.add_peer(ebgp(1)), pipeline.add_peer(ebgp(2)));
    for (peer, n) in [(from, 1), (to, 2)] {
        pipeline.peer_up(peer, facts(n)).expect("room");
    }
    let wanted = Condition::Community(vec!["65101:1".parse().expect("a pattern")]);
    let labels = vec![Action::Tag(9), Action::Med(MedAction::Set(70))];
    pipeline.set_rib_policy(Some(program(vec![(vec![wanted], labels, Outcome::Accept)])));
    let with = |community: u32| {
        let mut builder = AttributesBuilder::new(Origin::Igp);
        builder.as_path = vec![Asn(65101)];
        builder.next_hop = Some(Ipv4Addr::new(192, 0, 2, 1));
        builder.communities = vec![65101 << 16 | community];
        builder.build()
    };
    pipeline
        .update(from, &announcement(&with(1), &[prefix("10.1.0.0/16"), prefix("10.3.0.0/16")]))
        .expect("taken");
    pipeline.update(from, &announcement(&with(2), &[prefix("10.2.0.0/16")])).expect("taken");
    pipeline.redistribute(&[prefix(P)], &static_route(0, Program::accept_all())).expect("room");
    pipeline.rib_resync();
    let runs = |pipeline: &mut Pipeline| {
        let changes = std::iter::from_fn(|| pipeline.pull_rib(10)).flat_map(|part| part.runs);
        changes.map(|run| (run.routes, run.next_hops != 0, run.tag, run.metric)).collect::<Vec<_>>()
    };
    assert_eq!(runs(&mut pipeline), [(2, true, 9, 70)]);
    let mut sinks = [(to, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 4, "peers are told all");
    // A route that is refused from now on is withdrawn, and one that is let pass comes.
    pipeline.update(from, &announcement(&with(2), &[prefix("10.1.0.0/16")])).expect("taken");
    pipeline.update(from, &announcement(&with(1), &[prefix("10.2.0.0/16")])).expect("taken");
    assert_eq!(runs(&mut pipeline), [(1, false, 0, 0), (1, true, 9, 70)]);
    pipeline.set_rib_policy(None);
    pipeline.rib_resync();
    let all =
        std::iter::from_fn(|| pipeline.pull_rib(10)).flat_map(|part| part.runs).collect::<Vec<RibRun>>();
    assert_eq!(all.iter().map(|run| run.routes).sum::<u32>(), 3, "all but our own");
}
