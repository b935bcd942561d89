//! Refreshes that say where they begin and end (RFC 7313), both ways.

use std::{cell::RefCell, rc::Rc, time::Instant};

use holdfast_bgp_pipeline::{CheckStage, FamilySet, PeerIndex, Pipeline, SessionFacts};
use holdfast_bgp_wire::RouteRefresh;
use holdfast_types::{Family, Prefix};

use crate::tests::pipeline::{
    behaviour::{always, attributes, up},
    speaker::{
        Sink, announcement, announcement_of, checked, ebgp, facts, prefix, settle, withdrawal, withdrawal_of,
    },
};

const V4: Family = Family::IPV4_UNICAST;
const V6: Family = Family::IPV6_UNICAST;

fn prefixes() -> [Prefix; 3] {
    ["203.0.113.0/26", "203.0.113.64/26", "203.0.113.128/26"].map(prefix)
}

fn announce(pipeline: &mut Pipeline, from: PeerIndex, communities: &[u32], routes: &[Prefix]) {
    pipeline.update(from, &announcement(&attributes(1, communities), routes)).expect("taken");
}

/// A peer with three routes of IPv4 and one of IPv6, and another that is told of them.
fn scene() -> (Pipeline, PeerIndex, [(PeerIndex, Sink); 1]) {
    let mut pipeline = checked(always());
    let (peer, other) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    announce(&mut pipeline, peer, &[], &prefixes());
    announce(&mut pipeline, peer, &[], &[prefix("2001:db8:1::/48")]);
    let mut sinks = [(other, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 4);
    (pipeline, peer, sinks)
}

#[test]
fn what_does_not_come_again_goes_at_the_end_and_of_the_rest_nobody_hears() {
    let (mut pipeline, peer, mut sinks) = scene();
    let [same, other, gone] = prefixes();
    pipeline.begin_refresh(peer, V4);
    let before = sinks[0].1.messages;
    announce(&mut pipeline, peer, &[], &[same]);
    settle(&mut pipeline, &mut sinks);
    let counts = pipeline.counts(peer, V4).routes;
    assert_eq!((counts.received, counts.best, sinks[0].1.messages), (3, 3, before), "stale routes are used");
    announce(&mut pipeline, peer, &[77], &[other]);
    pipeline.end_refresh(peer, V4);
    settle(&mut pipeline, &mut sinks);
    let counts = pipeline.counts(peer, V4).routes;
    assert_eq!((counts.received, counts.best), (2, 2));
    assert!(!sinks[0].1.routes.contains_key(&gone) && sinks[0].1.routes.len() == 3, "IPv6 stays");
    assert_eq!((sinks[0].1.messages - before, sinks[0].1.idle_withdrawals), (2, 0));
}

#[test]
fn an_end_sweeps_what_is_stale_then_and_not_what_comes_behind_it() {
    let (mut pipeline, peer, mut sinks) = scene();
    let [first, second, third] = prefixes();
    pipeline.begin_refresh(peer, V4);
    pipeline.end_refresh(peer, V4);
    // The walk has not come by: one is back before it, another is made stale anew and comes again.
    announce(&mut pipeline, peer, &[], &[first]);
    pipeline.begin_refresh(peer, V4);
    announce(&mut pipeline, peer, &[], &[second]);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(pipeline.counts(peer, V4).routes.received, 2, "the third is gone");
    assert!(pipeline.explain(third).is_empty() && !pipeline.explain(first).is_empty());
    pipeline.end_refresh(peer, V4);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(pipeline.counts(peer, V4).routes.received, 1, "the first was not in the second refresh");
    assert!(sinks[0].1.routes.contains_key(&second));
}

#[test]
fn a_refresh_within_a_refresh_begins_it_anew() {
    let (mut pipeline, peer, mut sinks) = scene();
    let [first, second, _] = prefixes();
    pipeline.begin_refresh(peer, V4);
    announce(&mut pipeline, peer, &[], &[first]);
    pipeline.begin_refresh(peer, V4);
    announce(&mut pipeline, peer, &[], &[second]);
    pipeline.end_refresh(peer, V4);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(pipeline.counts(peer, V4).routes.received, 1);
    // Again and again, without an end: what came since some beginning may stay, but nothing that came before all.
    for number in 0..100 {
        pipeline.begin_refresh(peer, V4);
        announce(&mut pipeline, peer, &[], &[first]);
        if number % 7 == 0 {
            announce(&mut pipeline, peer, &[number], &[second]);
        }
    }
    pipeline.end_refresh(peer, V4);
    settle(&mut pipeline, &mut sinks);
    assert!(sinks[0].1.routes.contains_key(&first));
    for _ in 0..20 {
        pipeline.begin_refresh(peer, V4);
        announce(&mut pipeline, peer, &[], &[first]);
        pipeline.end_refresh(peer, V4);
        settle(&mut pipeline, &mut sinks);
        assert_eq!(pipeline.counts(peer, V4).routes.received, 1, "epochs are free again after each walk");
    }
}

#[test]
fn a_session_that_ends_meanwhile_leaves_what_it_had() {
    let (mut pipeline, peer, mut sinks) = scene();
    let [same, ..] = prefixes();
    pipeline.begin_refresh(peer, V4);
    announce(&mut pipeline, peer, &[], &[same]);
    pipeline.peer_away(peer, &[V4]);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((pipeline.counts(peer, V4).stale, sinks[0].1.routes.len()), (3, 3));
    pipeline.peer_up(peer, facts(1)).expect("room");
    pipeline.end_refresh(peer, V4);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(pipeline.counts(peer, V4).stale, 3, "the refresh was of the session before");
    pipeline.peer_down(peer);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 0);
}

#[test]
fn stages_are_told_of_what_is_swept() {
    let mut pipeline = checked(always());
    // It verifies that each route is added once, and deleted once.
    let stage = Rc::new(RefCell::new(CheckStage::default()));
    pipeline.add_stage(Box::new(Rc::clone(&stage)), Instant::now());
    let (peer, other) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    // One of the routes has a rival: it is one of several in the table.
    pipeline.update(other, &announcement(&attributes(2, &[]), &prefixes()[..1])).expect("taken");
    announce(&mut pipeline, peer, &[], &prefixes());
    settle(&mut pipeline, &mut []);
    for _ in 0..2 {
        pipeline.begin_refresh(peer, V4);
        announce(&mut pipeline, peer, &[], &prefixes()[2..]);
        pipeline.end_refresh(peer, V4);
        settle(&mut pipeline, &mut []);
        announce(&mut pipeline, peer, &[], &prefixes());
    }
    assert_eq!(pipeline.counts(peer, V4).routes.received, 3);
}

#[test]
fn paths_that_are_swept_leave_their_places_to_others() {
    let mut pipeline = checked(always());
    let peer = pipeline.add_peer(ebgp(1));
    let identifiers_received: FamilySet = [V4].into_iter().collect();
    pipeline.peer_up(peer, SessionFacts { identifiers_received, ..facts(1) }).expect("room");
    let [to, ..] = prefixes();
    let path = |pipeline: &mut Pipeline, identifier| {
        let body = announcement_of(Some(identifier), &attributes(1, &[identifier]), &[to]);
        pipeline.update(peer, &body).expect("taken");
    };
    // More in all than a prefix has places for.
    for round in 0..40 {
        pipeline.begin_refresh(peer, V4);
        (0..3).for_each(|number| path(&mut pipeline, 3 * round + number));
        pipeline.end_refresh(peer, V4);
        settle(&mut pipeline, &mut []);
        assert_eq!(pipeline.explain(to).len(), 3, "in round {round}");
    }
    let identifiers: Vec<_> = pipeline.explain(to).iter().map(|path| path.identifier).collect();
    assert!((117..120).all(|identifier| identifiers.contains(&Some(identifier))), "{identifiers:?}");
    (117..120).for_each(|number| pipeline.update(peer, &withdrawal_of(Some(number), to)).expect("taken"));
    assert!(pipeline.explain(to).is_empty());
}

/// Two peers that are told: one that knows where refreshes begin and end, and one that does not.
fn told() -> (Pipeline, PeerIndex, [(PeerIndex, Sink); 2]) {
    let mut pipeline = checked(always());
    let from = up(&mut pipeline, 1);
    announce(&mut pipeline, from, &[], &prefixes());
    let knows = pipeline.add_peer(ebgp(2));
    pipeline.peer_up(knows, SessionFacts { enhanced_refresh: true, ..facts(2) }).expect("room");
    let plain = up(&mut pipeline, 3);
    (pipeline, from, [(knows, Sink::default()), (plain, Sink::default())])
}

fn subtypes(sink: &Sink, family: Family) -> Vec<u8> {
    let of_family = sink.refreshes.iter().filter(|(refresh, _)| refresh.family == family);
    of_family.map(|(refresh, _)| refresh.subtype).collect()
}

#[test]
fn an_answer_is_enclosed_for_who_knows_of_that() {
    let (mut pipeline, _, mut sinks) = told();
    settle(&mut pipeline, &mut sinks);
    let groups = pipeline.update_groups();
    for (peer, sink) in &mut sinks {
        sink.routes.clear();
        pipeline.route_refresh(*peer, V4);
    }
    settle(&mut pipeline, &mut sinks);
    assert!(sinks.iter().all(|(_, sink)| sink.routes.len() == 3));
    assert_eq!(subtypes(&sinks[0].1, V4), [RouteRefresh::BORR, RouteRefresh::EORR]);
    assert_eq!((subtypes(&sinks[0].1, V6), subtypes(&sinks[1].1, V4)), (vec![], vec![]));
    let places: Vec<_> = sinks[0].1.refreshes.iter().map(|(_, at)| *at).collect();
    assert!(places[0] + 1 < places[1], "the routes are between: {places:?}");
    assert_eq!((groups, pipeline.update_groups()), (1, 1), "they are of one group all the same");
}

#[test]
fn each_request_is_answered_whole_and_none_before_end_of_rib() {
    let (mut pipeline, from, mut sinks) = told();
    let peer = sinks[0].0;
    // A part of the first table has been told.
    let messages = pipeline.pull(peer).expect("the table");
    sinks[0].1.take(&messages);
    assert!(sinks[0].1.end_of_rib.is_empty());
    pipeline.route_refresh(peer, V4);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(subtypes(&sinks[0].1, V4), [RouteRefresh::BORR, RouteRefresh::EORR]);
    assert!(sinks[0].1.end_of_rib.contains(&V4));

    // Two at once, and a route that changes meanwhile.
    pipeline.route_refresh(peer, V4);
    pipeline.route_refresh(peer, V4);
    let messages = pipeline.pull(peer).expect("the first part");
    sinks[0].1.take(&messages);
    pipeline.update(from, &withdrawal(prefixes()[0])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    let [begin, end] = [RouteRefresh::BORR, RouteRefresh::EORR];
    assert_eq!(subtypes(&sinks[0].1, V4)[2..], [begin, end, begin, end]);
    assert_eq!((sinks[0].1.routes.len(), sinks[0].1.end_of_rib.len()), (2, 2));
}

#[test]
fn a_change_of_policy_does_not_leave_a_refresh_without_its_end() {
    let (mut pipeline, _, mut sinks) = told();
    settle(&mut pipeline, &mut sinks);
    let peer = sinks[0].0;
    pipeline.route_refresh(peer, V4);
    let messages = pipeline.pull(peer).expect("the beginning");
    sinks[0].1.take(&messages);
    pipeline.configure_peer(peer, holdfast_bgp_pipeline::PeerConfig { export: None, ..ebgp(2) });
    settle(&mut pipeline, &mut sinks);
    assert_eq!(subtypes(&sinks[0].1, V4), [RouteRefresh::BORR, RouteRefresh::EORR]);
    assert!(sinks[0].1.routes.is_empty());
}
