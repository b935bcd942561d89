//! Routes of a peer that is away stay until it has sent them again (RFC 4724 section 4.2).

use holdfast_bgp_pipeline::{PathState, PeerConfig, PeerIndex, Pipeline, SessionFacts, Step};
use holdfast_bgp_wire::{Attributes, Origin, attributes::community, edit::AttributesBuilder};
use holdfast_types::{Asn, Family, Prefix};

use crate::tests::pipeline::{
    behaviour::{always, attributes, up},
    speaker::{Sink, announcement, checked, ebgp, facts, prefix, settle, withdrawal},
};

const V4: Family = Family::IPV4_UNICAST;
const V6: Family = Family::IPV6_UNICAST;

const END_OF_RIB: [u8; 4] = [0; 4];

fn prefixes() -> [Prefix; 3] {
    ["203.0.113.0/26", "203.0.113.64/26", "203.0.113.128/26"].map(prefix)
}

/// A peer with three routes, and another that is told of them.
fn scene() -> (Pipeline, PeerIndex, [(PeerIndex, Sink); 1]) {
    let mut pipeline = checked(always());
    let (peer, other) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    pipeline.update(peer, &announcement(&attributes(1, &[]), &prefixes())).expect("taken");
    let mut sinks = [(other, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 3);
    (pipeline, peer, sinks)
}

#[test]
fn what_comes_again_is_told_to_nobody_and_what_does_not_goes_at_the_end() {
    let (mut pipeline, peer, mut sinks) = scene();
    let [same, other, gone] = prefixes();
    let before = sinks[0].1.messages;
    pipeline.peer_away(peer, &[V4]);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(pipeline.counts(peer, V4).stale, 3);
    let view = pipeline.explain(same).remove(0);
    assert_eq!((view.is_stale, view.state), (true, PathState::Best));

    pipeline.peer_up(peer, facts(1)).expect("room");
    pipeline.update(peer, &announcement(&attributes(1, &[]), &[same])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.messages, before, "nothing has happened for others");
    let counts = pipeline.counts(peer, V4);
    assert_eq!((counts.stale, counts.routes.received, counts.routes.best), (2, 1, 1));

    // Another route in the place of a stale one, and a withdrawal of one.
    pipeline.update(peer, &announcement(&attributes(1, &[77]), &[other])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!((pipeline.counts(peer, V4).stale, sinks[0].1.routes.len()), (1, 3));
    assert_eq!(pipeline.explain(other).len(), 1);

    pipeline.update(peer, &END_OF_RIB).expect("taken");
    pipeline.forget_stale(peer, V4);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((pipeline.counts(peer, V4).stale, sinks[0].1.routes.len()), (0, 2));
    assert!(!sinks[0].1.routes.contains_key(&gone));
}

#[test]
fn a_withdrawal_of_the_new_session_takes_the_old_route() {
    let (mut pipeline, peer, mut sinks) = scene();
    pipeline.peer_away(peer, &[V4]);
    pipeline.peer_up(peer, facts(1)).expect("room");
    pipeline.update(peer, &withdrawal(prefixes()[0])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!((sinks[0].1.routes.len(), pipeline.counts(peer, V4).stale), (2, 2));
}

#[test]
fn what_comes_again_worse_does_not_lose_to_what_stayed() {
    let (mut pipeline, peer, mut sinks) = scene();
    pipeline.peer_away(peer, &[V4]);
    pipeline.peer_up(peer, facts(1)).expect("room");
    let worse = AttributesBuilder {
        as_path: vec![Asn(65101); 3],
        next_hop: Some([192, 0, 2, 1].into()),
        ..AttributesBuilder::new(Origin::Igp)
    };
    pipeline.update(peer, &announcement(&worse.build(), &prefixes()[..1])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes[&prefixes()[0]].path(), "65000 65101 65101 65101");
}

#[test]
fn only_what_was_said_to_stay_stays_and_not_for_a_second_restart() {
    let (mut pipeline, peer, mut sinks) = scene();
    let six = prefix("2001:db8:1::/48");
    pipeline.update(peer, &announcement(&attributes(1, &[]), &[six])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    pipeline.peer_away(peer, &[V4]);
    settle(&mut pipeline, &mut sinks);
    assert!(!sinks[0].1.routes.contains_key(&six) && sinks[0].1.routes.len() == 3);
    assert_eq!(pipeline.counts(peer, V6).stale, 0);

    pipeline.peer_up(peer, facts(1)).expect("room");
    pipeline.update(peer, &announcement(&attributes(1, &[]), &prefixes()[..1])).expect("taken");
    pipeline.peer_away(peer, &[V4]);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 1, "what was not sent again before the second restart goes");
    pipeline.peer_up(peer, facts(1)).expect("room");
    pipeline.peer_down(peer);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((sinks[0].1.routes.len(), pipeline.table_size(V4)), (0, (0, 0)));
}

#[test]
fn the_last_resort_is_marked_loses_to_anything_and_is_told_to_those_who_know_it() {
    let (mut pipeline, peer, mut sinks) = scene();
    let [plain, other, never] = prefixes();
    pipeline.update(peer, &announcement(&attributes(1, &[community::NO_LLGR]), &[never])).expect("taken");
    let knows = pipeline.add_peer(ebgp(3));
    pipeline.peer_up(knows, SessionFacts { long_lived: true, ..facts(3) }).expect("room");
    let mut sinks = [(sinks[0].0, std::mem::take(&mut sinks[0].1)), (knows, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    pipeline.peer_away(peer, &[V4]);
    pipeline.keep_long(peer, V4);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 0, "it does not know");
    assert_eq!(sinks[1].1.routes.len(), 2);
    let marked = |sink: &Sink, prefix| {
        let told = Attributes(&sink.routes[&prefix].attributes).communities().collect::<Vec<_>>();
        told.contains(&community::LLGR_STALE)
    };
    assert!(marked(&sinks[1].1, plain) && marked(&sinks[1].1, other));
    assert!(matches!(pipeline.explain(never)[0].state, PathState::Rejected { .. } | PathState::NotStored));

    // A much longer path is better, as long as it is there.
    let rival = up(&mut pipeline, 4);
    let long = AttributesBuilder {
        as_path: vec![Asn(65104); 20],
        next_hop: Some([192, 0, 2, 4].into()),
        ..AttributesBuilder::new(Origin::Igp)
    };
    pipeline.update(rival, &announcement(&long.build(), &[plain])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert!(!marked(&sinks[1].1, plain) && sinks[0].1.routes.len() == 1);
    assert_eq!(pipeline.explain(plain)[1].state, PathState::Lost(Step::LongLivedStale));

    // The peer is back: what it sends is as good as ever.
    pipeline.peer_up(peer, facts(1)).expect("room");
    pipeline.update(peer, &announcement(&attributes(1, &[]), &[plain, other])).expect("taken");
    pipeline.forget_stale(peer, V4);
    settle(&mut pipeline, &mut sinks);
    assert!(!marked(&sinks[1].1, plain) && !marked(&sinks[1].1, other));
    assert_eq!(sinks[1].1.routes[&plain].path(), "65000 65101");
    assert_eq!(pipeline.counts(peer, V4).stale, 0);
}

#[test]
fn a_peer_that_is_removed_leaves_nothing() {
    let (mut pipeline, peer, mut sinks) = scene();
    pipeline.peer_away(peer, &[V4]);
    pipeline.remove_peer(peer);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((sinks[0].1.routes.len(), pipeline.table_size(V4)), (0, (0, 0)));
}

#[test]
fn what_stayed_goes_also_when_a_session_ends_for_which_there_was_no_room() {
    let (mut pipeline, peer, mut sinks) = scene();
    pipeline.peer_away(peer, &[V4]);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(pipeline.counts(peer, V4).stale, 3);
    pipeline.peer_away(peer, &[]);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((sinks[0].1.routes.len(), pipeline.counts(peer, V4).stale), (0, 0));
}

#[test]
fn a_family_that_does_not_stay_takes_part_in_no_decision_from_then_on() {
    let (mut pipeline, peer, mut sinks) = scene();
    let other = up(&mut pipeline, 3);
    let six = prefix("2001:db8:1::/48");
    pipeline.update(peer, &announcement(&attributes(1, &[]), &[six])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    pipeline.peer_away(peer, &[V4]);
    // Before any walk: a longer path, which would lose.
    let longer = AttributesBuilder {
        as_path: [65103, 65103, 65103].map(Asn).to_vec(),
        next_hop: Some([192, 0, 2, 1].into()),
        ..AttributesBuilder::new(Origin::Igp)
    };
    pipeline.update(other, &announcement(&longer.build(), &[six])).expect("taken");
    let states: Vec<_> =
        pipeline.explain(six).iter().map(|view| (view.is_stale, view.state.clone())).collect();
    assert!(states.contains(&(false, PathState::Best)), "{states:?}");
}

#[test]
fn a_policy_that_changes_while_the_peer_is_away_holds_for_what_stayed() {
    let (mut pipeline, peer, mut sinks) = scene();
    let import = Some(holdfast_policy::Program::reject_all());
    pipeline.peer_away(peer, &[V4]);
    settle(&mut pipeline, &mut sinks);
    pipeline.configure_peer(peer, PeerConfig { import: import.clone(), ..ebgp(1) });
    settle(&mut pipeline, &mut sinks);
    assert_eq!((sinks[0].1.routes.len(), pipeline.counts(peer, V4).stale), (0, 3));
    pipeline.configure_peer(peer, ebgp(1));
    pipeline.peer_up(peer, facts(1)).expect("room");
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 3);
    pipeline.configure_peer(peer, PeerConfig { import, ..ebgp(1) });
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 0, "also when it is back");
}
