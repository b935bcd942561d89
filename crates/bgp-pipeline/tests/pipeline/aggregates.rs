//! Aggregates: there as long as something lies inside, and what lies inside kept back.

use std::net::{IpAddr, Ipv4Addr};

use holdfast_bgp_pipeline::{
    AggregateConfig, NeighborView, OriginateAttributes, PathRules, PathState, PeerConfig, PeerIndex,
    Pipeline, Withheld,
};
use holdfast_bgp_wire::{Attributes, Origin, edit::AttributesBuilder};
use holdfast_policy::{Action, Condition, Library, Outcome, Policy, PolicySource, Program, Term};
use holdfast_types::{Asn, Family, Prefix};

use crate::tests::pipeline::{
    behaviour::{always, up},
    journal::Entries,
    speaker::{OUR_AS, Sink, advertised_to, announcement, checked, ebgp, facts, prefix, settle, withdrawal},
};

const A: &str = "10.0.0.0/8";

fn aggregate(text: &str, summary_only: bool) -> AggregateConfig {
    AggregateConfig { prefix: prefix(text), summary_only, contributors: None, policy: None }
}

fn attributes(peer: u8, origin: Origin, communities: &[u32]) -> Vec<u8> {
    AttributesBuilder {
        as_path: vec![Asn(65100 + u32::from(peer)), Asn(64999)],
        next_hop: Some(Ipv4Addr::new(192, 0, 2, peer)),
        communities: communities.to_vec(),
        ..AttributesBuilder::new(origin)
    }
    .build()
}

/// With peer 1, who sends, and peer 2, who is told.
struct Router {
    pipeline: Pipeline,
    from: PeerIndex,
    sinks: [(PeerIndex, Sink); 1],
}

impl Router {
    fn new(aggregates: &[AggregateConfig]) -> Self {
        let mut pipeline = checked(always());
        pipeline.set_aggregates(aggregates);
        pipeline.rib_resync();
        let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
        Self { pipeline, from, sinks: [(to, Sink::default())] }
    }

    fn announce(&mut self, origin: Origin, routes: &[&str]) {
        self.announce_with(&attributes(1, origin, &[]), routes);
    }

    fn announce_with(&mut self, attributes: &[u8], routes: &[&str]) {
        let routes: Vec<Prefix> = routes.iter().map(|text| prefix(text)).collect();
        self.pipeline.update(self.from, &announcement(attributes, &routes)).expect("taken");
    }

    fn withdraw(&mut self, route: &str) {
        self.pipeline.update(self.from, &withdrawal(prefix(route))).expect("taken");
    }

    fn settle(&mut self) {
        settle(&mut self.pipeline, &mut self.sinks);
    }

    /// What the peer is told of, at rest.
    fn told(&mut self) -> Vec<String> {
        self.settle();
        self.sinks[0].1.routes.keys().map(Prefix::to_string).collect()
    }

    /// By prefix, whether packets are dropped.
    fn rib(&mut self) -> Vec<(String, bool)> {
        let (mut told, mut dropping) = (std::collections::BTreeMap::new(), std::collections::HashSet::new());
        while let Some(changes) = self.pipeline.pull_rib(10) {
            dropping.extend(changes.define.iter().filter(|it| it.gateways.is_empty()).map(|it| it.handle));
            let mut routes = changes.addresses.chunks(4).zip(&changes.lengths);
            for run in &changes.runs {
                for (address, length) in routes.by_ref().take(run.routes as usize) {
                    let octets: [u8; 4] = address.try_into().expect("IPv4");
                    let route = Prefix::new(octets.into(), *length).expect("a prefix");
                    match run.next_hops {
                        0 => told.remove(&route),
                        handle => told.insert(route, dropping.contains(&handle)),
                    };
                }
            }
        }
        told.into_iter().map(|(route, is_dropping)| (route.to_string(), is_dropping)).collect()
    }
}

#[test]
fn it_is_announced_while_something_lies_inside_and_says_what_it_leaves_out() {
    let mut router = Router::new(&[aggregate(A, false)]);
    router.announce(Origin::Igp, &["192.0.2.0/24", A]);
    assert_eq!(router.told(), ["10.0.0.0/8", "192.0.2.0/24"]);
    assert_eq!(
        router.sinks[0].1.routes[&prefix(A)].path(),
        "65000 65101 64999",
        "its own prefix is not inside"
    );
    router.announce(Origin::Igp, &["10.1.0.0/16"]);
    assert_eq!(router.told(), ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24"]);
    let held = &router.sinks[0].1.routes[&prefix(A)];
    let attributes = Attributes(&held.attributes);
    assert_eq!(
        (held.path(), attributes.origin()),
        ("65000".into(), Some(Origin::Igp)),
        "better than the received"
    );
    assert!(attributes.atomic_aggregate());
    assert_eq!(attributes.aggregator(), Some((OUR_AS, Ipv4Addr::new(10, 0, 0, 1))));
    assert_eq!(held.next_hop, IpAddr::from([10, 0, 0, 1]), "ours, whatever those inside have");
    router.withdraw("10.1.0.0/16");
    router.told();
    assert_eq!(router.sinks[0].1.routes[&prefix(A)].path(), "65000 65101 64999");
    router.withdraw(A);
    assert_eq!(router.told(), ["192.0.2.0/24"]);
}

#[test]
fn its_origin_is_the_worst_of_those_inside_and_it_changes_for_nothing_else() {
    let mut router = Router::new(&[aggregate(A, false)]);
    router.announce(Origin::Igp, &["10.1.0.0/16", "10.2.0.0/16"]);
    router.told();
    let origin = |router: &mut Router| {
        router.settle();
        Attributes(&router.sinks[0].1.routes[&prefix(A)].attributes).origin()
    };
    router.announce(Origin::Incomplete, &["10.3.0.0/16"]);
    assert_eq!(origin(&mut router), Some(Origin::Incomplete));
    let view = &router.pipeline.aggregates()[0];
    assert_eq!((view.contributors, view.origin, view.is_counting), (3, Some(Origin::Incomplete), false));
    router.announce(Origin::Egp, &["10.3.0.0/16"]);
    assert_eq!(origin(&mut router), Some(Origin::Egp));
    router.withdraw("10.3.0.0/16");
    assert_eq!(origin(&mut router), Some(Origin::Igp));
    let before = router.sinks[0].1.messages;
    router.announce(Origin::Igp, &["10.4.0.0/16"]);
    router.withdraw("10.1.0.0/16");
    router.settle();
    assert_eq!(router.sinks[0].1.messages - before, 2, "one comes, one goes");
    assert_eq!(router.pipeline.aggregates()[0].contributors, 2);
}

#[test]
fn what_is_summarised_is_kept_back_from_peers_and_from_nobody_else() {
    let mut router = Router::new(&[aggregate(A, true)]);
    router.announce(Origin::Igp, &["10.1.0.0/16", "10.1.2.0/24", "192.0.2.0/24"]);
    router.pipeline.originate(prefix("10.9.0.0/16"), &OriginateAttributes::default());
    assert_eq!(router.told(), ["10.0.0.0/8", "192.0.2.0/24"]);
    let expected =
        [("10.0.0.0/8", true), ("10.1.0.0/16", false), ("10.1.2.0/24", false), ("192.0.2.0/24", false)];
    assert_eq!(router.rib(), expected.map(|(route, drops)| (route.to_owned(), drops)));
    assert_eq!(advertised_to(&mut router.pipeline, prefix("10.1.0.0/16")), []);
    let to = router.sinks[0].0;
    let session = router.pipeline.shown_session(to, NeighborView::Withheld).expect("it is up");
    let page =
        router.pipeline.neighbor_routes(session, NeighborView::Withheld, Family::IPV4_UNICAST, None, 9);
    let page = page.expect("the session goes on").routes;
    assert_eq!(page.len(), 3);
    assert!(page.iter().all(|(_, view)| view.state == PathState::Withheld(Withheld::Summarised)));
    assert!(router.pipeline.explain(prefix(A))[0].is_aggregate);
}

#[test]
fn an_aggregate_counts_for_those_around_it() {
    let mut router = Router::new(&[aggregate(A, true), aggregate("10.1.0.0/16", false)]);
    router.announce(Origin::Igp, &["10.1.2.0/24"]);
    assert_eq!(router.told(), [A]);
    let counts = |router: &Router| {
        router.pipeline.aggregates().iter().map(|view| view.contributors).collect::<Vec<_>>()
    };
    assert_eq!(counts(&router), [2, 1], "the route and the aggregate inside");
    router.withdraw("10.1.2.0/24");
    assert!(router.told().is_empty());
    assert_eq!(counts(&router), [0, 0]);
}

#[test]
fn networks_are_preferred_to_aggregates_of_the_same_prefix() {
    let mut router = Router::new(&[aggregate(A, false)]);
    router.announce(Origin::Igp, &["10.1.0.0/16"]);
    router.pipeline.originate(prefix(A), &OriginateAttributes::default());
    router.settle();
    assert!(!Attributes(&router.sinks[0].1.routes[&prefix(A)].attributes).atomic_aggregate());
    assert_eq!(router.rib(), [("10.1.0.0/16".to_owned(), false)], "nothing is dropped for it");
    router.pipeline.withdraw_origin(prefix(A));
    router.settle();
    assert!(Attributes(&router.sinks[0].1.routes[&prefix(A)].attributes).atomic_aggregate());
}

fn program(from: Vec<Condition>, then: Vec<Action>) -> Program {
    deciding(from, then, Outcome::Accept)
}

fn deciding(from: Vec<Condition>, then: Vec<Action>, outcome: Outcome) -> Program {
    compiled(vec![Term { name: "one".into(), from, then, outcome }])
}

fn compiled(terms: Vec<Term>) -> Program {
    let policies = vec![Policy { name: "test".into(), first: vec![], terms, last: None }];
    let library = Library::compile(&PolicySource { policies, ..PolicySource::default() }, 1).expect("sound");
    library.get("test").expect("it is there").clone()
}

fn tagged(value: &str) -> Program {
    program(vec![Condition::Community(vec![value.parse().expect("a pattern")])], vec![])
}

#[test]
fn policies_say_what_counts_and_what_the_aggregate_carries() {
    let add = vec![Action::AddCommunities(vec!["65000:7".parse().expect("a community")])];
    let config = AggregateConfig {
        contributors: Some(tagged("65000:1")),
        policy: Some(program(vec![], add)),
        ..aggregate(A, true)
    };
    let mut router = Router::new(std::slice::from_ref(&config));
    let counted = attributes(1, Origin::Igp, &[65000 << 16 | 1]);
    router.announce(Origin::Incomplete, &["10.1.0.0/16"]);
    assert_eq!(router.told(), ["10.1.0.0/16"]);
    router.announce_with(&counted, &["10.2.0.0/16"]);
    assert_eq!(router.told(), ["10.0.0.0/8", "10.1.0.0/16"]);
    let of_aggregate = |router: &Router| {
        let held = Attributes(&router.sinks[0].1.routes[&prefix(A)].attributes);
        (held.origin(), held.communities().collect::<Vec<_>>())
    };
    assert_eq!(of_aggregate(&router), (Some(Origin::Igp), vec![65000 << 16 | 7]));
    // Others count: those are counted first, and the aggregate is there all the time.
    let others = AggregateConfig { contributors: Some(tagged("65000:2")), ..config.clone() };
    router.pipeline.set_aggregates(std::slice::from_ref(&others));
    assert!(router.told().contains(&"10.2.0.0/16".to_owned()));
    assert_eq!(router.told(), ["10.1.0.0/16", "10.2.0.0/16"]);
    router.pipeline.set_aggregates(&[AggregateConfig { policy: None, ..config.clone() }]);
    assert_eq!(router.told(), ["10.0.0.0/8", "10.1.0.0/16"]);
    assert!(of_aggregate(&router).1.is_empty());
    router.pipeline.set_aggregates(std::slice::from_ref(&config));
    router.settle();
    assert_eq!(of_aggregate(&router).1, [65000 << 16 | 7]);
}

/// At every moment the peer has the aggregate or all that lies inside.
fn settle_covered(router: &mut Router, routes: &[String]) {
    for _ in 0..10_000 {
        let more = router.pipeline.work(7) || router.pipeline.is_waiting();
        let (to, sink) = &mut router.sinks[0];
        while let Some(messages) = router.pipeline.pull(*to) {
            sink.take(&messages);
            let has = |text: &str| sink.routes.contains_key(&prefix(text));
            assert!(has(A) || routes.iter().all(|route| has(route)));
        }
        if !more && !router.pipeline.pending(router.sinks[0].0) {
            return;
        }
    }
    panic!("never quiet");
}

#[test]
fn a_reload_leaves_no_moment_without_the_aggregate_and_what_lies_inside() {
    let mut router = Router::new(&[]);
    let routes: Vec<String> = (0..200).map(|n| format!("10.{n}.0.0/16")).collect();
    router.announce(Origin::Igp, &routes.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(router.told().len(), 200);
    router.pipeline.set_aggregates(&[aggregate(A, true)]);
    assert!(router.pipeline.work(10), "counted in slices");
    assert!(router.pipeline.aggregates()[0].is_counting && !router.pipeline.is_settled());
    // What the walk has behind it, and what lies before it.
    router.withdraw("10.0.0.0/16");
    router.withdraw("10.199.0.0/16");
    settle_covered(&mut router, &[]);
    assert_eq!(router.told(), [A]);
    assert_eq!(router.pipeline.aggregates()[0].contributors, 198);
    router.pipeline.set_aggregates(&[]);
    settle_covered(&mut router, &routes[1..199]);
    assert_eq!(router.told().len(), 198);
    assert!(!router.sinks[0].1.routes.contains_key(&prefix(A)));
    assert!(router.rib().iter().all(|(_, drops)| !drops));
    // It is wanted again before it has gone.
    router.pipeline.set_aggregates(&[aggregate(A, false)]);
    router.settle();
    router.pipeline.set_aggregates(&[]);
    router.pipeline.set_aggregates(&[aggregate(A, true)]);
    settle_covered(&mut router, &[]);
    assert_eq!(router.told(), [A]);
    router.withdraw(A);
    routes.iter().for_each(|route| router.withdraw(route));
    assert!(router.told().is_empty());
}

#[test]
fn what_lies_inside_is_announced_where_policy_refuses_the_aggregate() {
    let refuse = Some(deciding(vec![], vec![], Outcome::Reject));
    let refused = AggregateConfig { policy: refuse.clone(), ..aggregate(A, true) };
    let mut router = Router::new(std::slice::from_ref(&refused));
    router.announce(Origin::Igp, &["10.1.0.0/16"]);
    assert_eq!(router.told(), ["10.1.0.0/16"]);
    let view = router.pipeline.aggregates().remove(0);
    assert_eq!((view.contributors, view.origin), (1, None));
    assert_eq!(router.rib(), [("10.1.0.0/16".to_owned(), false)]);
    // It stays refused while nothing is there: what comes then is not kept back for a moment.
    router.withdraw("10.1.0.0/16");
    assert!(router.told().is_empty());
    let before = router.sinks[0].1.messages;
    router.announce(Origin::Igp, &["10.1.0.0/16", "10.2.0.0/16"]);
    assert_eq!(router.told().len(), 2);
    assert_eq!(router.sinks[0].1.messages - before, 1);
    // A reload that lets it pass, and one that does not any more.
    let inside = ["10.1.0.0/16", "10.2.0.0/16"].map(str::to_owned);
    router.pipeline.set_aggregates(&[aggregate(A, true)]);
    settle_covered(&mut router, &inside);
    assert_eq!(router.told(), [A]);
    router.pipeline.set_aggregates(std::slice::from_ref(&refused));
    settle_covered(&mut router, &inside);
    assert_eq!(router.told(), inside);
    assert!(router.rib().iter().all(|(_, drops)| !drops));
    // Again, with the last of it gone and back before the peer has been told.
    router.pipeline.set_aggregates(&[aggregate(A, true)]);
    router.settle();
    router.pipeline.set_aggregates(std::slice::from_ref(&refused));
    router.pipeline.work(10);
    inside.iter().for_each(|route| router.withdraw(route));
    router.pipeline.set_aggregates(&[]);
    assert!(router.told().is_empty());
    router.announce(Origin::Igp, &["10.1.0.0/16"]);
    assert_eq!(router.told(), ["10.1.0.0/16"]);
    assert!(router.pipeline.explain(prefix(A)).is_empty(), "nothing is left of it");
}

#[test]
fn the_answer_of_its_policy_may_depend_on_the_routes_inside() {
    let policy = Some(program(vec![Condition::Origin(vec![holdfast_policy::Origin::Igp])], vec![]));
    // One around it that counts it, and is refused in the same way.
    let around = AggregateConfig { policy: policy.clone(), ..aggregate("8.0.0.0/5", false) };
    let mut router = Router::new(&[around, AggregateConfig { policy, ..aggregate(A, true) }]);
    router.announce(Origin::Igp, &["10.1.0.0/16"]);
    assert_eq!(router.told(), ["8.0.0.0/5", A]);
    router.announce(Origin::Egp, &["10.2.0.0/16"]);
    settle_covered(&mut router, &["10.1.0.0/16".to_owned()]);
    assert_eq!(router.told(), ["10.1.0.0/16", "10.2.0.0/16"]);
    router.withdraw("10.2.0.0/16");
    assert_eq!(router.told(), ["8.0.0.0/5", A]);
}

#[test]
fn who_sent_a_route_is_known_though_import_policy_has_changed_it() {
    let mark = program(vec![], vec![Action::AddCommunities(vec!["65000:7".parse().expect("a community")])]);
    let sent_by = program(vec![Condition::PeerAs(vec![Asn(65101).into()])], vec![]);
    let summary = AggregateConfig { contributors: Some(sent_by), ..aggregate(A, true) };
    let mut router = Router::new(&[summary]);
    router.announce(Origin::Igp, &["10.1.0.0/16"]);
    router.pipeline.originate(prefix("10.9.0.0/16"), &OriginateAttributes::default());
    assert_eq!(router.told(), [A, "10.9.0.0/16"], "what is our own was sent by nobody");
    router.pipeline.configure_peer(router.from, PeerConfig { import: Some(mark), ..ebgp(1) });
    assert_eq!(router.told(), [A, "10.9.0.0/16"]);
    let three = up(&mut router.pipeline, 3);
    let of_another = announcement(&attributes(3, Origin::Igp, &[]), &[prefix("10.3.0.0/16")]);
    router.pipeline.update(three, &of_another).expect("taken");
    assert_eq!(router.told(), [A, "10.3.0.0/16", "10.9.0.0/16"]);
    router.withdraw("10.1.0.0/16");
    assert_eq!(router.told(), ["10.3.0.0/16", "10.9.0.0/16"]);
}

/// A view has all of a prefix or nothing: what counts is whether the best path does.
#[test]
fn in_a_view_paths_are_kept_back_with_the_best() {
    let summary = AggregateConfig { contributors: Some(tagged("65000:1")), ..aggregate(A, true) };
    let mut pipeline = checked(always());
    pipeline.set_aggregates(&[summary]);
    let from = [1, 2].map(|n| up(&mut pipeline, n));
    let paths = PathRules { own_view: true, ..PathRules::default() };
    // It may not have what carries 65000:8.
    let refuse = Term {
        name: "no".into(),
        from: vec![Condition::Community(vec!["65000:8".parse().expect("a pattern")])],
        then: vec![],
        outcome: Outcome::Reject,
    };
    let rest = Term { name: "rest".into(), from: vec![], then: vec![], outcome: Outcome::Accept };
    let client =
        pipeline.add_peer(PeerConfig { export: Some(compiled(vec![refuse, rest])), paths, ..ebgp(3) });
    pipeline.peer_up(client, facts(3)).expect("room");
    let mut sinks = [(client, Sink::default())];
    let mut told = |pipeline: &mut Pipeline, best: &[u32], other: &[u32]| {
        let prefixes = [prefix("10.1.0.0/16")];
        let longer = AttributesBuilder {
            as_path: vec![Asn(65102), Asn(64998), Asn(64999)],
            next_hop: Some(Ipv4Addr::new(192, 0, 2, 2)),
            communities: other.to_vec(),
            ..AttributesBuilder::new(Origin::Igp)
        };
        let sent = [attributes(1, Origin::Igp, best), longer.build()];
        for (from, sent) in from.iter().zip(sent) {
            pipeline.update(*from, &announcement(&sent, &prefixes)).expect("taken");
        }
        settle(pipeline, &mut sinks);
        sinks[0].1.routes.keys().map(Prefix::to_string).collect::<Vec<_>>()
    };
    let [counted, refused] = [65000 << 16 | 1, 65000 << 16 | 8];
    assert_eq!(told(&mut pipeline, &[refused], &[counted]), ["10.1.0.0/16"], "the other is not counted");
    assert_eq!(told(&mut pipeline, &[refused, counted], &[]), [A], "the aggregate stands for both");
    let session = pipeline.shown_session(client, NeighborView::Withheld).expect("it is up");
    let page = pipeline.neighbor_routes(session, NeighborView::Withheld, Family::IPV4_UNICAST, None, 9);
    let page = page.expect("the session goes on").routes;
    let states: Vec<_> = page.iter().map(|(_, view)| &view.state).collect();
    assert_eq!(states, [&PathState::Withheld(Withheld::Summarised)]);
    assert_eq!(told(&mut pipeline, &[refused], &[counted]), ["10.1.0.0/16"]);
}

#[test]
fn the_process_that_comes_after_says_nothing_again() {
    let journal = Entries::default();
    let aggregates = [aggregate(A, true), aggregate("10.0.0.0/16", false)];
    let start = || {
        let mut pipeline = checked(always());
        pipeline.keep_journal(Box::new(journal.clone()));
        pipeline.set_aggregates(&aggregates);
        pipeline
    };
    let receive = |pipeline: &mut Pipeline, from| {
        let routes = ["10.0.1.0/24", "10.1.0.0/16", "192.0.2.0/24"].map(prefix);
        pipeline.update(from, &announcement(&attributes(1, Origin::Egp, &[]), &routes)).expect("taken");
    };
    let number = |n| holdfast_bgp_pipeline::SessionFacts { number: n, ..facts(n as u8) };
    let mut pipeline = start();
    let (from, to) = (pipeline.add_peer(ebgp(1)), pipeline.add_peer(ebgp(2)));
    [(from, 1), (to, 2)].into_iter().for_each(|(peer, n)| pipeline.peer_up(peer, number(n)).expect("room"));
    receive(&mut pipeline, from);
    let mut sinks = [(to, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    let place = pipeline.journal_place(to);
    let (before, held) = (sinks[0].1.messages, sinks[0].1.routes.clone());
    assert_eq!(held.len(), 2);
    let mut pipeline = start();
    assert_eq!([pipeline.add_peer(ebgp(1)), pipeline.add_peer(ebgp(2))], [from, to]);
    [(from, 1), (to, 2)]
        .into_iter()
        .for_each(|(peer, n)| pipeline.peer_resumed(peer, number(n)).expect("room"));
    receive(&mut pipeline, from);
    while !pipeline.is_settled() {
        pipeline.work(100);
    }
    pipeline.resume(&[to], journal.told(place), place);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((sinks[0].1.messages, &sinks[0].1.routes), (before, &held));
    // And it goes on counting.
    for route in ["10.0.1.0/24", "10.1.0.0/16"] {
        pipeline.update(from, &withdrawal(prefix(route))).expect("taken");
    }
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 1);
}
