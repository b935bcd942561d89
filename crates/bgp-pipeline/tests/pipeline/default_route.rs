//! A default route of our own for some peers, whatever the table has.

use holdfast_bgp_pipeline::{
    FamilySet, NeighborView, PathRules, PathState, PeerConfig, PeerIndex, Pipeline, SessionFacts, Withheld,
};
use holdfast_bgp_wire::{Attributes, Origin};
use holdfast_policy::Program;
use holdfast_types::{Family, Prefix};

use crate::tests::pipeline::{
    behaviour::{always, attributes, up},
    journal::Entries,
    speaker::{Sink, advertised_to, announcement, checked, ebgp, facts, prefix, settle, withdrawal},
};

const P: &str = "203.0.113.0/24";

fn defaults() -> [Prefix; 2] {
    ["0.0.0.0/0", "::/0"].map(prefix)
}

/// Refuses all, so that nothing but the default route is told.
fn config(n: u8, default_originate: bool) -> PeerConfig {
    let paths = PathRules { default_originate, ..PathRules::default() };
    PeerConfig { export: Some(Program::reject_all()), paths, ..ebgp(n) }
}

fn up_with(pipeline: &mut Pipeline, config: PeerConfig, facts: SessionFacts) -> (PeerIndex, Sink) {
    let identifiers = facts.identifiers_sent;
    let peer = pipeline.add_peer(config);
    pipeline.peer_up(peer, facts).expect("room");
    (peer, Sink { identifiers, ..Sink::default() })
}

fn held(sink: &Sink) -> Vec<Prefix> {
    sink.held().into_keys().collect()
}

#[test]
fn it_goes_to_the_peer_that_is_to_have_it_whatever_its_policy_and_the_table_say() {
    let mut pipeline = checked(always());
    let mut sinks = [
        up_with(&mut pipeline, config(1, true), facts(1)),
        up_with(&mut pipeline, ebgp(2), facts(2)),
        up_with(
            &mut pipeline,
            config(3, true),
            SessionFacts { families: vec![Family::IPV4_UNICAST], ..facts(3) },
        ),
    ];
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1), defaults());
    assert!(held(&sinks[1].1).is_empty());
    assert_eq!(held(&sinks[2].1), defaults()[..1], "by family of the session");
    let route = &sinks[0].1.routes[&defaults()[0]];
    assert_eq!((route.path(), Attributes(&route.attributes).origin()), ("65000".into(), Some(Origin::Igp)));
    assert_eq!(pipeline.counts(sinks[0].0, Family::IPV4_UNICAST).announced, 1);
    assert!(pipeline.explain(defaults()[0]).is_empty(), "it is in no table");
    // A default route of the table, coming and going, is nothing to them.
    let before = [0, 2].map(|n: usize| sinks[n].1.messages);
    let from = up(&mut pipeline, 4);
    pipeline.update(from, &announcement(&attributes(4, &[]), &[defaults()[0]])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[1].1.routes[&defaults()[0]].path(), "65000 65104");
    pipeline.update(from, &withdrawal(defaults()[0])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!([0, 2].map(|n: usize| sinks[n].1.messages), before);
    assert!(held(&sinks[1].1).is_empty());
    assert_eq!(sinks[1].1.idle_withdrawals, 0);
}

#[test]
fn it_comes_and_goes_with_the_configuration_and_with_a_refresh_again() {
    let mut pipeline = checked(always());
    let mut sinks = [up_with(&mut pipeline, ebgp(1), facts(1))];
    let from = up(&mut pipeline, 2);
    pipeline.update(from, &announcement(&attributes(2, &[]), &[defaults()[0], prefix(P)])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    let to = sinks[0].0;
    let path = |sinks: &[(PeerIndex, Sink); 1]| sinks[0].1.routes[&defaults()[0]].path();
    assert_eq!(path(&sinks), "65000 65102");
    let paths = PathRules { default_originate: true, ..PathRules::default() };
    pipeline.configure_peer(to, PeerConfig { paths, ..ebgp(1) });
    settle(&mut pipeline, &mut sinks);
    assert_eq!((path(&sinks), held(&sinks[0].1).len()), ("65000".into(), 3));
    let shown = |pipeline: &mut Pipeline, view| {
        let session = pipeline.shown_session(to, view).expect("it is up");
        let page = pipeline.neighbor_routes(session, view, Family::IPV4_UNICAST, None, 9);
        page.expect("the session goes on").routes
    };
    let told = shown(&mut pipeline, NeighborView::Advertised);
    assert_eq!(told.iter().map(|(prefix, _)| *prefix).collect::<Vec<_>>(), [defaults()[0], prefix(P)]);
    assert_eq!(told[0].1.bytes, sinks[0].1.routes[&defaults()[0]].attributes);
    let kept = shown(&mut pipeline, NeighborView::Withheld);
    assert_eq!(kept[0].1.state, PathState::Withheld(Withheld::OwnDefault));
    assert_eq!(advertised_to(&mut pipeline, defaults()[0]), [to]);
    let before = sinks[0].1.messages;
    pipeline.route_refresh(to, Family::IPV6_UNICAST);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.messages, before + 1, "the one of IPv6");
    pipeline.configure_peer(to, ebgp(1));
    settle(&mut pipeline, &mut sinks);
    assert_eq!((path(&sinks), held(&sinks[0].1).len()), ("65000 65102".into(), 2));
    assert_eq!(sinks[0].1.idle_withdrawals, 0);
}

#[test]
fn of_several_paths_to_the_default_it_is_the_only_one() {
    let mut pipeline = checked(always());
    let all: FamilySet = Family::ALL.into_iter().collect();
    let mut sinks = [up_with(&mut pipeline, ebgp(1), SessionFacts { identifiers_sent: all, ..facts(1) })];
    let senders = [2, 3].map(|n| up(&mut pipeline, n));
    for (from, n) in senders.into_iter().zip(2..) {
        pipeline.update(from, &announcement(&attributes(n, &[]), &[defaults()[0]])).expect("taken");
    }
    settle(&mut pipeline, &mut sinks);
    let of_default = |sink: &Sink| sink.held().get(&defaults()[0]).map_or(0, Vec::len);
    assert_eq!(of_default(&sinks[0].1), 2);
    let paths = PathRules { default_originate: true, ..PathRules::default() };
    pipeline.configure_peer(sinks[0].0, PeerConfig { paths, ..ebgp(1) });
    settle(&mut pipeline, &mut sinks);
    assert_eq!(of_default(&sinks[0].1), 1);
    pipeline.peer_down(senders[0]);
    settle(&mut pipeline, &mut sinks);
    pipeline.configure_peer(sinks[0].0, ebgp(1));
    settle(&mut pipeline, &mut sinks);
    assert_eq!(of_default(&sinks[0].1), 1, "the one that is left");
    assert_eq!(sinks[0].1.idle_withdrawals, 0);
}

/// What one process writes down and the next one reads.
fn start(journal: &Entries) -> Pipeline {
    let mut pipeline = checked(always());
    pipeline.keep_journal(Box::new(journal.clone()));
    pipeline
}

fn session() -> SessionFacts {
    SessionFacts { number: 1, ..facts(1) }
}

#[test]
fn the_process_that_comes_after_does_not_say_it_again() {
    let journal = Entries::default();
    let mut pipeline = start(&journal);
    let mut sinks = [up_with(&mut pipeline, config(1, true), session())];
    settle(&mut pipeline, &mut sinks);
    let (to, before) = (sinks[0].0, sinks[0].1.messages);
    let place = pipeline.journal_place(to);
    let mut pipeline = start(&journal);
    assert_eq!(pipeline.add_peer(config(1, true)), to);
    pipeline.peer_resumed(to, session()).expect("room");
    pipeline.resume(&[to], journal.told(place), place);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((sinks[0].1.messages, held(&sinks[0].1)), (before, defaults().to_vec()));
}

/// Seed ddf95dc9 of the model. The walk of the family without a route took the default route in front of it for its end, and
/// began anew.
#[test]
fn switched_on_after_a_takeover_it_is_counted_once_where_the_table_is_empty() {
    const P6: &str = "2001:db8:113::/48";
    let with_a_view = |default_originate| {
        let paths = PathRules { default_originate, own_view: true, ..PathRules::default() };
        PeerConfig { paths, ..ebgp(1) }
    };
    let journal = Entries::default();
    let mut pipeline = start(&journal);
    let mut sinks = [up_with(&mut pipeline, with_a_view(false), session())];
    let from = up(&mut pipeline, 2);
    pipeline.update(from, &announcement(&attributes(2, &[]), &[prefix(P6)])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1), [prefix(P6)]);
    let (to, place) = (sinks[0].0, pipeline.journal_place(sinks[0].0));

    let mut pipeline = start(&journal);
    assert_eq!(pipeline.add_peer(with_a_view(false)), to);
    pipeline.peer_resumed(to, session()).expect("room");
    pipeline.resume(&[to], journal.told(place), place);
    pipeline.configure_peer(to, with_a_view(true));
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1), defaults());
    let counted = Family::ALL.map(|family| pipeline.counts(to, family).announced);
    assert_eq!(counted, [1, 1]);
    assert_eq!(sinks[0].1.idle_withdrawals, 0);
}
