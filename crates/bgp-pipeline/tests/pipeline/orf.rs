//! Outbound route filters (RFC 5291, RFC 5292): a peer is told what it wants.

use holdfast_bgp_pipeline::{
    NeighborView, OrfOutcome, PathState, PeerConfig, PeerIndex, Pipeline, SendPaths, SessionFacts, Withheld,
};
use holdfast_bgp_wire::{OrfChange, OrfEntry, OrfMessage, WhenToRefresh};
use holdfast_types::{Family, Prefix};

use crate::tests::pipeline::{
    behaviour::{always, attributes, up},
    speaker::{Sink, advertised_to, announcement, checked, ebgp, facts, prefix, settle, thaw, withdrawal},
};

const V4: Family = Family::IPV4_UNICAST;
const V6: Family = Family::IPV6_UNICAST;

fn prefixes() -> [Prefix; 3] {
    ["203.0.113.0/26", "203.0.113.64/26", "198.51.100.0/24"].map(prefix)
}

fn permit(sequence: u32, prefix: &str, max_length: u8) -> OrfEntry {
    let prefix = prefix.parse().expect("a prefix");
    OrfEntry { sequence, permit: true, prefix, min_length: 0, max_length }
}

fn message(when: WhenToRefresh, changes: &[OrfChange]) -> OrfMessage {
    OrfMessage { family: V4, when, changes: changes.to_vec() }
}

fn filtered(n: u8) -> SessionFacts {
    SessionFacts { orf_received: vec![V4], ..facts(n) }
}

/// Three routes of IPv4 and one of IPv6, and a peer that may say which of IPv4 it wants.
fn scene() -> (Pipeline, PeerIndex, PeerIndex, [(PeerIndex, Sink); 1]) {
    let mut pipeline = checked(always());
    let from = up(&mut pipeline, 1);
    let routes = [&prefixes()[..], &[prefix("2001:db8:1::/48")]].concat();
    for route in routes.chunks(3) {
        pipeline.update(from, &announcement(&attributes(1, &[]), route)).expect("taken");
    }
    let to = pipeline.add_peer(ebgp(2));
    pipeline.peer_up(to, filtered(2)).expect("room");
    let mut sinks = [(to, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    (pipeline, from, to, sinks)
}

fn held(sink: &Sink) -> Vec<Prefix> {
    sink.routes.keys().filter(|prefix| matches!(prefix, Prefix::V4(_))).copied().collect()
}

#[test]
fn nothing_is_told_before_the_peer_has_asked() {
    let (mut pipeline, from, to, mut sinks) = scene();
    assert_eq!((held(&sinks[0].1), &sinks[0].1.end_of_rib), (vec![], &vec![V6]));
    assert_eq!(pipeline.orf(to, V4), Some((0, false)));
    assert_eq!(pipeline.orf(to, V6), None);
    // What happens meanwhile is not told either, and not missed.
    pipeline.update(from, &withdrawal(prefixes()[0])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!(pipeline.take_orf(to, &message(WhenToRefresh::Defer, &[])), OrfOutcome::Taken(0));
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1), []);
    pipeline.route_refresh(to, V4);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((held(&sinks[0].1).len(), &sinks[0].1.end_of_rib), (2, &vec![V6, V4]));
    assert_eq!((pipeline.counts(to, V4).announced, sinks[0].1.idle_withdrawals), (2, 0));
}

#[test]
fn a_filter_is_in_force_from_the_first_route_on_and_changes_are_told_as_differences() {
    let (mut pipeline, from, to, mut sinks) = scene();
    let [first, second, third] = prefixes();
    let wide = OrfChange::Add(permit(5, "203.0.113.0/24", 32));
    pipeline.take_orf(to, &message(WhenToRefresh::Immediate, &[wide]));
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1), [first, second]);
    assert_eq!(pipeline.counts(to, V4).announced, 2);
    let before = sinks[0].1.messages;

    // Later: nothing happens; at once: only what differs is sent.
    let other =
        [OrfChange::Remove(permit(5, "203.0.113.0/24", 32)), OrfChange::Add(permit(6, "203.0.113.64/26", 0))];
    pipeline.take_orf(to, &message(WhenToRefresh::Defer, &other));
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.messages, before);
    let also = OrfChange::Add(permit(7, "198.51.100.0/24", 0));
    assert_eq!(pipeline.take_orf(to, &message(WhenToRefresh::Immediate, &[also])), OrfOutcome::Taken(2));
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1), [third, second]);
    assert_eq!((sinks[0].1.messages - before, sinks[0].1.idle_withdrawals), (2, 0));

    // A route that it does not want is nothing to it; one that it wants goes.
    pipeline.update(from, &withdrawal(first)).expect("taken");
    pipeline.update(from, &withdrawal(third)).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!((held(&sinks[0].1), sinks[0].1.idle_withdrawals), (vec![second], 0));

    pipeline.take_orf(to, &message(WhenToRefresh::Immediate, &[OrfChange::Unrecognized]));
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1), [second], "without a filter: all there is");
}

#[test]
fn routes_of_one_update_are_judged_one_by_one_and_shown_with_the_reason() {
    let (mut pipeline, from, to, mut sinks) = scene();
    pipeline
        .take_orf(to, &message(WhenToRefresh::Immediate, &[OrfChange::Add(permit(5, "203.0.113.64/26", 0))]));
    settle(&mut pipeline, &mut sinks);
    // With the same attributes, in one message.
    pipeline.update(from, &announcement(&attributes(1, &[9]), &prefixes())).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1), [prefixes()[1]]);
    assert_eq!(advertised_to(&mut pipeline, prefixes()[0]), []);
    let session = pipeline.shown_session(to, NeighborView::Withheld).expect("it is up");
    let page = pipeline.neighbor_routes(session, NeighborView::Withheld, V4, None, 100).expect("its routes");
    let reasons: Vec<_> = page.routes.iter().map(|(_, view)| view.state.clone()).collect();
    assert_eq!(reasons, [PathState::Withheld(Withheld::Unwanted), PathState::Withheld(Withheld::Unwanted)]);
}

#[test]
fn a_filter_that_is_changed_by_single_entries_is_made_once() {
    let (mut pipeline, _, to, mut sinks) = scene();
    let add = |sequence, prefix: &str| OrfChange::Add(permit(sequence, prefix, 0));
    pipeline.take_orf(to, &message(WhenToRefresh::Immediate, &[add(1, "192.0.2.0/24")]));
    settle(&mut pipeline, &mut sinks);
    let groups = pipeline.update_groups();
    let entries = prefixes().map(|prefix| prefix.to_string());
    for (prefix, sequence) in entries.iter().zip(2..) {
        pipeline.take_orf(to, &message(WhenToRefresh::Immediate, &[add(sequence, prefix)]));
        pipeline.route_refresh(to, V6);
        assert!(!pipeline.is_settled() && pipeline.update_groups() == groups, "not while more may come");
    }
    pipeline.work(0);
    assert!(pipeline.is_settled());
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1).len(), 3);
}

#[test]
fn a_path_that_goes_while_the_filter_changes_is_withdrawn_from_who_is_sent_several() {
    let (mut pipeline, from, _, _) = scene();
    let second = up(&mut pipeline, 4);
    pipeline.update(second, &announcement(&attributes(4, &[]), &prefixes())).expect("taken");
    let to = pipeline.add_peer(PeerConfig { send_paths: SendPaths::All, ..ebgp(5) });
    let identifiers = Family::ALL.into_iter().collect();
    pipeline.peer_up(to, SessionFacts { identifiers_sent: identifiers, ..filtered(5) }).expect("room");
    let mut sinks = [(to, Sink { identifiers, ..Sink::default() })];
    let all = OrfChange::Add(permit(5, "0.0.0.0/0", 32));
    pipeline.take_orf(to, &message(WhenToRefresh::Immediate, &[all]));
    settle(&mut pipeline, &mut sinks);
    let paths = |sink: &Sink| sink.paths.keys().filter(|(at, _)| matches!(at, Prefix::V4(_))).count();
    assert_eq!(paths(&sinks[0].1), 6);
    // The filter's walk comes by each prefix before that which sweeps what the session has left.
    pipeline.take_orf(to, &message(WhenToRefresh::Immediate, &[OrfChange::Add(permit(6, "10.0.0.0/8", 0))]));
    pipeline.peer_down(from);
    while !pipeline.pending(to) {
        pipeline.work(0);
    }
    while let Some(messages) = pipeline.pull(to) {
        sinks[0].1.take(&messages);
    }
    settle(&mut pipeline, &mut sinks);
    assert_eq!(paths(&sinks[0].1), 3);
}

#[test]
fn peers_that_want_the_same_are_of_one_group() {
    let (mut pipeline, _, to, mut sinks) = scene();
    let other = pipeline.add_peer(ebgp(3));
    pipeline.peer_up(other, filtered(3)).expect("room");
    let wanted = message(WhenToRefresh::Immediate, &[OrfChange::Add(permit(5, "203.0.113.0/24", 32))]);
    pipeline.take_orf(to, &wanted);
    assert_eq!(pipeline.update_groups(), 3, "the sender's own, and these");
    pipeline.take_orf(other, &wanted);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(pipeline.update_groups(), 2);
}

#[test]
fn a_filter_that_was_not_agreed_on_is_ignored() {
    let (mut pipeline, from, to, mut sinks) = scene();
    let of_v6 = OrfMessage { family: V6, ..message(WhenToRefresh::Immediate, &[]) };
    assert_eq!(pipeline.take_orf(to, &of_v6), OrfOutcome::Ignored);
    assert_eq!(pipeline.take_orf(from, &message(WhenToRefresh::Immediate, &[])), OrfOutcome::Ignored);
    settle(&mut pipeline, &mut sinks);
    assert!(sinks[0].1.routes.contains_key(&prefix("2001:db8:1::/48")));
}

#[test]
fn what_a_peer_has_said_goes_to_the_next_process() {
    let (mut pipeline, _, to, _) = scene();
    let entries: Vec<_> =
        (0..500).map(|number| OrfChange::Add(permit(number, "203.0.113.0/24", 32))).collect();
    let restored = |pipeline: &Pipeline| {
        let mut next = checked(always());
        let peer = next.add_peer(ebgp(2));
        next.peer_resumed(peer, filtered(2)).expect("room");
        thaw(&mut next, peer, pipeline.freeze_orf(to).iter().map(Vec::as_slice)).expect("readable");
        next.orf(peer, V4)
    };
    assert_eq!(restored(&pipeline), Some((0, false)));
    pipeline.take_orf(to, &message(WhenToRefresh::Defer, &entries));
    assert_eq!(restored(&pipeline), Some((500, false)));
    pipeline.route_refresh(to, V4);
    assert!(pipeline.freeze_orf(to).len() > 1);
    assert_eq!(restored(&pipeline), Some((500, true)));
    let mut next = checked(always());
    let peer = next.add_peer(ebgp(2));
    next.peer_resumed(peer, filtered(2)).expect("room");
    for record in [&[2][..], &[2, 1, 0, 1]] {
        assert!(thaw(&mut next, peer, [record]).is_err());
    }
}
