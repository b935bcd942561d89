//! Several paths of one prefix on a session (RFC 7911), both ways.

use std::collections::BTreeMap;

use holdfast_bgp_pipeline::{
    Direction, DropReason, DumpView, Event, FamilySet, Limits, MOST_PATHS, NeighborView, NextHopMode,
    PeerConfig, PeerIndex, Pipeline, Reachability, SendPaths, SessionFacts, SpeakerConfig,
};
use holdfast_bgp_wire::Attributes;
use holdfast_types::{Family, Prefix};

use crate::tests::pipeline::behaviour::{always, attributes, up};
use crate::tests::pipeline::journal::Entries;
use crate::tests::pipeline::speaker::{
    Sink, advertised_to, announcement, announcement_of, checked, ebgp, facts, frozen, prefix, settle,
    speaker, thaw, withdrawal, withdrawal_of,
};

const P: &str = "203.0.113.0/24";
const Q: &str = "198.51.100.0/24";

fn all() -> FamilySet {
    Family::ALL.into_iter().collect()
}

/// A session whose prefixes have path identifiers.
fn sender(pipeline: &mut Pipeline, n: u8) -> PeerIndex {
    let peer = pipeline.add_peer(ebgp(n));
    pipeline.peer_up(peer, SessionFacts { identifiers_received: all(), ..facts(n) }).expect("room");
    peer
}

/// One that is sent several paths.
fn receiver(pipeline: &mut Pipeline, n: u8, send_paths: SendPaths) -> (PeerIndex, Sink) {
    let peer = pipeline.add_peer(PeerConfig { send_paths, ..ebgp(n) });
    pipeline.peer_up(peer, SessionFacts { identifiers_sent: all(), ..facts(n) }).expect("room");
    (peer, Sink { identifiers: all(), ..Sink::default() })
}

fn announce(pipeline: &mut Pipeline, from: PeerIndex, identifier: u32, communities: &[u32], to: &str) {
    let body = announcement_of(Some(identifier), &attributes(1, communities), &[prefix(to)]);
    pipeline.update(from, &body).expect("taken");
}

fn withdraw(pipeline: &mut Pipeline, from: PeerIndex, identifier: u32, to: &str) {
    pipeline.update(from, &withdrawal_of(Some(identifier), prefix(to))).expect("taken");
}

/// The paths to a prefix: identifier and first community, by identifier.
fn shown(pipeline: &mut Pipeline, to: &str) -> BTreeMap<Option<u32>, Option<u32>> {
    let paths = pipeline.explain(prefix(to));
    paths.iter().map(|path| (path.identifier, path.attributes().communities().next())).collect()
}

/// The first communities of what a receiver holds, sorted.
fn held(sink: &Sink, to: &str) -> Vec<Option<u32>> {
    let of_prefix = sink.paths.iter().filter(|((at, _), _)| *at == prefix(to));
    let mut held: Vec<_> =
        of_prefix.map(|(_, held)| Attributes(&held.attributes).communities().next()).collect();
    held.sort_unstable();
    held
}

#[test]
fn a_path_is_replaced_and_withdrawn_under_its_identifier_and_no_other() {
    let mut pipeline = checked(always());
    let from = sender(&mut pipeline, 1);
    announce(&mut pipeline, from, 0, &[1], P);
    announce(&mut pipeline, from, u32::MAX, &[2], P);
    announce(&mut pipeline, from, 7, &[3], Q);
    assert_eq!(pipeline.counts(from, Family::IPV4_UNICAST).routes.received, 3);
    announce(&mut pipeline, from, u32::MAX, &[4], P);
    let expected = BTreeMap::from([(Some(0), Some(1)), (Some(u32::MAX), Some(4))]);
    assert_eq!(shown(&mut pipeline, P), expected);
    withdraw(&mut pipeline, from, 5, P);
    withdraw(&mut pipeline, from, 0, P);
    assert_eq!(shown(&mut pipeline, P), BTreeMap::from([(Some(u32::MAX), Some(4))]));
    assert_eq!(shown(&mut pipeline, Q), BTreeMap::from([(Some(7), Some(3))]));
    let counts = pipeline.counts(from, Family::IPV4_UNICAST).routes;
    assert_eq!((counts.received, counts.accepted, counts.best), (2, 2, 2));
    let session = pipeline.shown_session(from, NeighborView::Received).expect("up");
    let page = pipeline.neighbor_routes(session, NeighborView::Received, Family::IPV4_UNICAST, None, 10);
    let page = page.expect("up");
    let identifiers: Vec<_> = page.routes.iter().map(|(_, path)| path.identifier).collect();
    assert_eq!(identifiers, [Some(7), Some(u32::MAX)]);
    let mut dumped = |view| {
        let page = pipeline.dump(Family::IPV4_UNICAST, view, None, 10);
        page.prefixes.iter().flat_map(|(_, paths)| paths).map(|path| path.identifier).collect::<Vec<_>>()
    };
    assert_eq!(dumped(DumpView::Received), [Some(7), Some(u32::MAX)]);
    assert_eq!(dumped(DumpView::Best), [None, None], "identifiers belong to a session");
}

#[test]
fn the_end_of_the_session_takes_all_its_paths_and_another_policy_reaches_each() {
    let mut pipeline = checked(always());
    let from = sender(&mut pipeline, 1);
    (0..5).for_each(|identifier| announce(&mut pipeline, from, identifier, &[identifier], P));
    pipeline.configure_peer(from, PeerConfig { import: None, ..ebgp(1) });
    settle(&mut pipeline, &mut []);
    let counts = pipeline.counts(from, Family::IPV4_UNICAST).routes;
    assert_eq!((counts.received, counts.accepted), (5, 0));
    pipeline.peer_down(from);
    settle(&mut pipeline, &mut []);
    while pipeline.work(1000) {}
    assert_eq!((pipeline.table_size(Family::IPV4_UNICAST), pipeline.attribute_sets()), ((0, 0), 0));
}

#[test]
fn paths_for_which_there_is_no_place_are_dropped_and_named() {
    let mut pipeline = checked(always());
    let from = sender(&mut pipeline, 1);
    let most = MOST_PATHS as u32;
    (0..most + 2).for_each(|identifier| announce(&mut pipeline, from, identifier, &[], P));
    assert_eq!(pipeline.counts(from, Family::IPV4_UNICAST).routes.received, u64::from(most));
    let drops = pipeline.drops(from).expect("a peer");
    assert_eq!(drops.counts(), [(DropReason::TooManyPaths, 2)]);
    assert_eq!(drops.last().next().and_then(|drop| drop.prefix), Some(prefix(P)));
    // One that goes makes room for another.
    withdraw(&mut pipeline, from, 3, P);
    announce(&mut pipeline, from, most, &[9], P);
    assert_eq!(shown(&mut pipeline, P).get(&Some(most)), Some(&Some(9)));
}

#[test]
fn who_takes_several_paths_is_told_each_and_a_plain_peer_what_it_always_was() {
    let mut pipeline = checked(always());
    let (one, two) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let (peer, sink) = receiver(&mut pipeline, 3, SendPaths::All);
    let plain = up(&mut pipeline, 4);
    let mut sinks = [(peer, sink), (plain, Sink::default())];
    pipeline.update(one, &announcement(&attributes(1, &[1]), &[prefix(P)])).expect("taken");
    pipeline.update(two, &announcement(&attributes(2, &[2]), &[prefix(P)])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1, P), [Some(1), Some(2)]);
    assert_eq!(sinks[1].1.routes.len(), 1);
    assert_eq!(pipeline.counts(peer, Family::IPV4_UNICAST).announced, 2);
    assert_eq!(advertised_to(&mut pipeline, prefix(P)), [two, peer, plain]);
    let session = pipeline.shown_session(peer, NeighborView::Advertised).expect("up");
    let told = pipeline.neighbor_routes(session, NeighborView::Advertised, Family::IPV4_UNICAST, None, 10);
    let told = told.expect("up");
    assert_eq!(told.routes.len(), 2);
    let shown = told.routes.iter().map(|(at, path)| (*at, path.identifier.expect("under an identifier")));
    let mut shown: Vec<_> = shown.collect();
    shown.sort_unstable();
    let mut sent: Vec<_> = sinks[0].1.paths.keys().copied().collect();
    sent.sort_unstable();
    assert_eq!(shown, sent, "shown as it is told them");
    let told = sinks[1].1.messages;
    pipeline.update(two, &announcement(&attributes(2, &[3]), &[prefix(P)])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1, P), [Some(1), Some(3)]);
    assert_eq!(sinks[1].1.messages, told, "the best is the same");
    // The sender of a path is not told of it, and the others lose one path each.
    pipeline.peer_down(one);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1, P), [Some(3)]);
    pipeline.update(two, &withdrawal(prefix(P))).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!((held(&sinks[0].1, P), sinks[1].1.routes.len()), (vec![], 0));
    assert_eq!((sinks[0].1.idle_withdrawals, sinks[1].1.idle_withdrawals), (0, 0));
}

#[test]
fn so_many_of_the_best_are_told_and_another_number_needs_no_new_session() {
    let mut pipeline = checked(always());
    let senders: Vec<PeerIndex> = (1..=4).map(|n| up(&mut pipeline, n)).collect();
    let (peer, sink) = receiver(&mut pipeline, 5, SendPaths::Best(2));
    let mut sinks = [(peer, sink)];
    for (n, from) in (1..).zip(&senders) {
        pipeline.update(*from, &announcement(&attributes(n, &[n.into()]), &[prefix(P)])).expect("taken");
    }
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1, P), [Some(1), Some(2)], "lower router ids come first");
    pipeline.update(senders[0], &withdrawal(prefix(P))).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1, P), [Some(2), Some(3)]);
    for (send_paths, expected) in [
        (SendPaths::Best(3), &[Some(2), Some(3), Some(4)][..]),
        (SendPaths::Best(1), &[Some(2)]),
        (SendPaths::All, &[Some(2), Some(3), Some(4)]),
    ] {
        pipeline.configure_peer(peer, PeerConfig { send_paths, ..ebgp(5) });
        settle(&mut pipeline, &mut sinks);
        assert_eq!(held(&sinks[0].1, P), expected, "{send_paths:?}");
    }
    assert_eq!(sinks[0].1.idle_withdrawals, 0);
}

#[test]
fn a_path_whose_next_hop_is_lost_is_withdrawn_and_comes_back_with_it() {
    let mut pipeline = checked(speaker(NextHopMode::Resolved));
    let (one, two) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let (peer, sink) = receiver(&mut pipeline, 3, SendPaths::All);
    let mut sinks = [(peer, sink)];
    let reach = |pipeline: &mut Pipeline, n: u8, reachability| {
        pipeline.next_hop(std::net::IpAddr::from([192, 0, 2, n]), reachability);
    };
    for (from, n) in [(one, 1), (two, 2)] {
        pipeline.update(from, &announcement(&attributes(n, &[n.into()]), &[prefix(P)])).expect("taken");
        reach(&mut pipeline, n, Reachability::Reachable { metric: 0 });
    }
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1, P), [Some(1), Some(2)]);
    reach(&mut pipeline, 2, Reachability::Unreachable);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1, P), [Some(1)]);
    reach(&mut pipeline, 2, Reachability::Reachable { metric: 5 });
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1, P), [Some(1), Some(2)]);
}

#[test]
fn paths_are_frozen_with_their_identifiers() {
    let mut pipeline = checked(always());
    let from = sender(&mut pipeline, 1);
    announce(&mut pipeline, from, 9, &[1], P);
    announce(&mut pipeline, from, 8, &[2], P);
    let v6: Prefix = prefix("2001:db8:1::/48");
    pipeline.update(from, &announcement_of(Some(4), &attributes(1, &[3]), &[v6])).expect("taken");
    let records = frozen(&mut pipeline, &[from], 100, |_| {});
    let records: Vec<&[u8]> = records.iter().map(|(_, record)| &**record).collect();
    let mut next = checked(always());
    let thawed = sender(&mut next, 1);
    thaw(&mut next, thawed, records.iter().copied()).expect("readable");
    for to in [P, "2001:db8:1::/48"] {
        assert_eq!(shown(&mut next, to), shown(&mut pipeline, to), "{to}");
    }
    let plain = up(&mut next, 2);
    assert!(thaw(&mut next, plain, records).is_err(), "a session without");
    assert_eq!(next.counts(plain, Family::IPV4_UNICAST).routes.received, 0);
}

#[test]
fn what_stayed_of_an_earlier_session_goes_as_the_next_one_speaks_of_its_prefix() {
    let mut pipeline = checked(always());
    let from = sender(&mut pipeline, 1);
    let (peer, sink) = receiver(&mut pipeline, 2, SendPaths::All);
    let mut sinks = [(peer, sink)];
    for (identifier, to) in [(1, P), (2, P), (1, Q), (2, Q)] {
        announce(&mut pipeline, from, identifier, &[identifier], to);
    }
    pipeline.peer_away(from, &[Family::IPV4_UNICAST]);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((held(&sinks[0].1, P).len(), held(&sinks[0].1, Q).len()), (2, 2), "they stay");
    pipeline.peer_up(from, SessionFacts { identifiers_received: all(), ..facts(1) }).expect("room");
    announce(&mut pipeline, from, 7, &[7], P);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((held(&sinks[0].1, P), held(&sinks[0].1, Q).len()), (vec![Some(7)], 2));
    assert_eq!(pipeline.counts(from, Family::IPV4_UNICAST).stale, 2);
    pipeline.forget_stale(from, Family::IPV4_UNICAST);
    pipeline.forget_stale(from, Family::IPV6_UNICAST);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((held(&sinks[0].1, P), held(&sinks[0].1, Q)), (vec![Some(7)], vec![]));
    pipeline.peer_down(from);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((held(&sinks[0].1, P), sinks[0].1.idle_withdrawals), (vec![], 0));
}

fn route(n: u8) -> String {
    format!("10.{n}.0.0/16")
}

/// So many changes are kept for readers, in windows of one.
fn short_log(log: usize) -> SpeakerConfig {
    let limits = Limits { log, window: 1, ..Limits::default() };
    SpeakerConfig { limits, ..always() }
}

/// Two peers have announced these prefixes.
fn announced_twice(pipeline: &mut Pipeline, prefixes: u8) -> [PeerIndex; 2] {
    [1, 2].map(|n| {
        let from = up(pipeline, n);
        for at in 0..prefixes {
            let body = announcement(&attributes(n, &[n.into()]), &[prefix(&route(at))]);
            pipeline.update(from, &body).expect("taken");
        }
        from
    })
}

#[test]
fn the_table_that_a_new_peer_is_given_costs_nobody_its_place() {
    let mut pipeline = checked(short_log(20));
    let from = announced_twice(&mut pipeline, 50);
    let mut sinks = Vec::from(from.map(|peer| (peer, Sink::default())));
    sinks.push((up(&mut pipeline, 3), Sink::default()));
    settle(&mut pipeline, &mut sinks);
    pipeline.rib_resync();
    while pipeline.pull_rib(100).is_some() {}
    // Three new ones at once, and then a fourth: none of them reads less than it can, all others read nothing.
    let new = [SendPaths::All, SendPaths::Best(1), SendPaths::Best(2)];
    let mut receivers: Vec<_> =
        (4..).zip(new).map(|(n, send_paths)| receiver(&mut pipeline, n, send_paths)).collect();
    settle(&mut pipeline, &mut receivers);
    receivers.push(receiver(&mut pipeline, 7, SendPaths::Best(3)));
    settle(&mut pipeline, &mut receivers);
    let told: Vec<_> = receivers.iter().map(|(_, sink)| sink.paths.len()).collect();
    assert_eq!(told, [100, 50, 100, 100]);
    assert!(pipeline.pull_rib(100).is_none(), "nothing has changed for the RIB");
    settle(&mut pipeline, &mut sinks);
    let ends: Vec<_> = sinks.iter().map(|(_, sink)| sink.end_of_rib.len()).collect();
    assert_eq!(ends, [Family::ALL.len(); 3], "nobody was given the table again");
}

#[test]
fn paths_that_change_places_out_of_sight_are_nobodys_concern() {
    let mut pipeline = checked(short_log(1000));
    let senders: Vec<PeerIndex> = (1..=9).map(|n| up(&mut pipeline, n)).collect();
    let (peer, sink) = receiver(&mut pipeline, 10, SendPaths::Best(8));
    let plain = up(&mut pipeline, 11);
    let mut sinks = [(peer, sink), (plain, Sink::default())];
    for (n, from) in (1..).zip(&senders) {
        pipeline.update(*from, &announcement(&attributes(n, &[n.into()]), &[prefix(P)])).expect("taken");
    }
    settle(&mut pipeline, &mut sinks);
    pipeline.update(senders[0], &withdrawal(prefix(P))).expect("taken");
    // The best is another, one path is gone, and one has come into sight.
    assert_eq!(windows(&mut pipeline, plain), 3);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1, P), (2..=9).map(Some).collect::<Vec<_>>());
}

/// How many changes a peer has to read.
fn windows(pipeline: &mut Pipeline, peer: PeerIndex) -> usize {
    let mut count = 0;
    while pipeline.pending(peer) {
        pipeline.pull(peer);
        count += 1;
    }
    count
}

#[test]
fn a_family_of_which_nobody_is_sent_several_paths_has_no_changes_of_each() {
    let mut pipeline = checked(short_log(1000));
    let v6 = prefix("2001:db8:1::/48");
    let [one, two] = [up(&mut pipeline, 1), up(&mut pipeline, 2)];
    let peer = pipeline.add_peer(ebgp(3));
    let identifiers_sent = [Family::IPV4_UNICAST].into_iter().collect();
    pipeline.peer_up(peer, SessionFacts { identifiers_sent, ..facts(3) }).expect("room");
    let plain = up(&mut pipeline, 4);
    let mut sinks = [(plain, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    for (n, from) in [(1, one), (2, two)] {
        pipeline.update(from, &announcement(&attributes(n, &[]), &[v6])).expect("taken");
    }
    assert_eq!(windows(&mut pipeline, plain), 1, "the second is not the best");
}

#[test]
fn nothing_is_told_of_each_path_when_the_only_peer_that_took_several_was_too_slow() {
    let limits = Limits { log: 10, withdrawn: 20, window: 1, shared_bytes: 0, ..Limits::default() };
    let mut pipeline = checked(SpeakerConfig { limits, ..always() });
    let [one, two] = [up(&mut pipeline, 1), up(&mut pipeline, 2)];
    let (slow, _) = receiver(&mut pipeline, 3, SendPaths::All);
    let plain = up(&mut pipeline, 4);
    let mut sinks = [(one, Sink::default()), (two, Sink::default()), (plain, Sink::default())];
    for n in 0..60 {
        let body = announcement(&attributes(1, &[]), &[prefix(&route(n))]);
        pipeline.update(one, &body).expect("taken");
        pipeline.update(one, &withdrawal(prefix(&route(n)))).expect("taken");
        settle(&mut pipeline, &mut sinks);
    }
    let events: Vec<_> = std::iter::from_fn(|| pipeline.poll_event()).collect();
    assert!(events.contains(&Event::TooSlow { peer: slow }));
    for (n, from) in [(1, one), (2, two)] {
        pipeline.update(from, &announcement(&attributes(n, &[]), &[prefix(P)])).expect("taken");
    }
    assert_eq!(windows(&mut pipeline, plain), 1);
}

#[test]
fn what_is_remembered_for_slow_peers_of_the_one_kind_ends_none_of_the_other() {
    let limits = Limits { log: 10, withdrawn: 60, shared_bytes: 0, ..Limits::default() };
    let mut pipeline = checked(SpeakerConfig { limits, ..always() });
    let from = announced_twice(&mut pipeline, 50);
    let (peer, sink) = receiver(&mut pipeline, 3, SendPaths::All);
    let slow = up(&mut pipeline, 4);
    let mut sinks = [(from[0], Sink::default()), (from[1], Sink::default()), (peer, sink)];
    settle(&mut pipeline, &mut [(slow, Sink::default())]);
    settle(&mut pipeline, &mut sinks);
    for at in 0..50 {
        for from in from {
            pipeline.update(from, &withdrawal(prefix(&route(at)))).expect("taken");
        }
        settle(&mut pipeline, &mut sinks);
    }
    let events: Vec<_> = std::iter::from_fn(|| pipeline.poll_event()).collect();
    assert!(!events.contains(&Event::TooSlow { peer: slow }), "50 prefixes are not too many");
    assert_eq!(sinks[2].1.paths.len(), 0);
}

#[test]
fn who_has_lost_its_place_is_told_what_has_gone_when_another_session_has_the_number_of_the_source() {
    let mut pipeline = checked(short_log(4));
    let [one, two] = announced_twice(&mut pipeline, 10);
    let mut sinks = [receiver(&mut pipeline, 3, SendPaths::All)];
    settle(&mut pipeline, &mut [(two, Sink::default())]);
    settle(&mut pipeline, &mut sinks);
    pipeline.peer_down(one);
    settle(&mut pipeline, &mut [(two, Sink::default())]);
    pipeline.work(1);
    // The number is free, and goes to this session, which brings paths to some of the prefixes.
    let next = up(&mut pipeline, 4);
    for at in 0..5 {
        let body = announcement(&attributes(4, &[4]), &[prefix(&route(at))]);
        pipeline.update(next, &body).expect("taken");
    }
    settle(&mut pipeline, &mut sinks);
    for at in 0..10 {
        let expected = if at < 5 { vec![Some(2), Some(4)] } else { vec![Some(2)] };
        assert_eq!(held(&sinks[0].1, &route(at)), expected, "{}", route(at));
    }
    assert_eq!(pipeline.counts(sinks[0].0, Family::IPV4_UNICAST).announced, 15);
}

#[test]
fn many_paths_of_many_sessions_leave_room_for_further_sessions() {
    let mut pipeline = Pipeline::new(always());
    let senders: Vec<_> = (0..900).map(|_| sender(&mut pipeline, 1)).collect();
    for (n, from) in senders.iter().enumerate() {
        let to = format!("10.{}.{}.0/24", n / 250, n % 250);
        for identifier in 0..MOST_PATHS as u32 {
            announce(&mut pipeline, *from, identifier, &[], &to);
        }
    }
    let drops = pipeline.drops(senders[899]).expect("a peer");
    assert_eq!(drops.counts(), [(DropReason::NoPlace, MOST_PATHS as u64 - 1)]);
    (0..8000).for_each(|_| _ = up(&mut pipeline, 2));
}

#[test]
fn a_change_of_import_policy_is_told_once_however_many_paths_a_session_has() {
    let mut pipeline = checked(always());
    let from = sender(&mut pipeline, 1);
    (0..5).for_each(|identifier| announce(&mut pipeline, from, identifier, &[identifier], P));
    pipeline.configure_peer(from, PeerConfig { import: None, ..ebgp(1) });
    settle(&mut pipeline, &mut []);
    let applied = Event::PolicyApplied { peer: from, direction: Direction::Import };
    let events = std::iter::from_fn(|| pipeline.poll_event());
    assert_eq!(events.filter(|event| *event == applied).count(), 1);
}

#[test]
fn a_page_of_the_table_is_as_long_as_its_paths_are_many() {
    let limits = Limits { window: 10, ..Limits::default() };
    let mut pipeline = checked(SpeakerConfig { limits, ..always() });
    let from = sender(&mut pipeline, 1);
    for at in 0..10 {
        (0..5).for_each(|identifier| announce(&mut pipeline, from, identifier, &[identifier], &route(at)));
    }
    let (peer, mut sink) = receiver(&mut pipeline, 2, SendPaths::All);
    while pipeline.pending(peer) {
        let before = sink.paths.len();
        pipeline.pull(peer).iter().for_each(|messages| sink.take(messages));
        assert!(sink.paths.len() - before <= 10);
    }
    assert_eq!(sink.paths.len(), 50);
}

#[test]
fn what_is_known_of_identifiers_is_counted_and_freed_by_and_by() {
    let mut pipeline = checked(always());
    let from = sender(&mut pipeline, 1);
    for net in 0..10 {
        let routes: Vec<Prefix> = (0..200).map(|n| prefix(&format!("10.{net}.{n}.0/24"))).collect();
        let body = announcement_of(Some(7), &attributes(1, &[]), &routes);
        pipeline.update(from, &body).expect("taken");
    }
    let up = pipeline.memory().tables;
    // A prefix and its identifier at the least.
    let known = 2000 * (size_of::<Prefix>() + size_of::<u32>());
    pipeline.peer_down(from);
    let down = pipeline.memory().tables;
    assert!(down + known > up, "{down} of {up}");
    settle(&mut pipeline, &mut []);
    let left = pipeline.memory().tables;
    assert!(left + known <= up, "{left} of {up}");
}

/// A session that brings several paths of each prefix, and who is told of them; both are in the journal.
struct Pair {
    pipeline: Pipeline,
    journal: Entries,
    from: PeerIndex,
    to: [(PeerIndex, Sink); 1],
}

impl Pair {
    fn facts(n: u8) -> SessionFacts {
        let of = |is: bool| if is { all() } else { FamilySet::NONE };
        let (identifiers_received, identifiers_sent) = (of(n == 1), of(n == 2));
        SessionFacts { identifiers_received, identifiers_sent, number: n.into(), ..facts(n) }
    }

    fn new() -> Self {
        let (mut pipeline, journal) = (checked(always()), Entries::default());
        pipeline.keep_journal(Box::new(journal.clone()));
        // Others had the numbers that sources begin with.
        for n in 5..9 {
            sender(&mut pipeline, n);
        }
        let [from, to] = [1, 2].map(|n| {
            let peer = pipeline.add_peer(ebgp(n));
            pipeline.peer_up(peer, Self::facts(n)).expect("room");
            peer
        });
        Self { pipeline, journal, from, to: [(to, Sink { identifiers: all(), ..Sink::default() })] }
    }

    fn settle(&mut self) {
        settle(&mut self.pipeline, &mut self.to);
    }

    /// Another process goes on, which may know the path identifiers; it has the routes from a snapshot.
    fn restart(&mut self, knows_identifiers: bool) {
        let records = frozen(&mut self.pipeline, &[self.from], 2, |_| {});
        let first_identifier = if knows_identifiers { self.pipeline.first_identifier(self.from) } else { 0 };
        let place = self.pipeline.journal_place(self.to[0].0);
        self.pipeline = checked(always());
        self.pipeline.keep_journal(Box::new(self.journal.clone()));
        [self.from, self.to[0].0] = [1, 2].map(|n| {
            let peer = self.pipeline.add_peer(ebgp(n));
            let first_identifier = if n == 1 { first_identifier } else { 0 };
            let facts = SessionFacts { first_identifier, ..Self::facts(n) };
            self.pipeline.peer_resumed(peer, facts).expect("room");
            peer
        });
        let records = records.iter().map(|(_, record)| &**record);
        thaw(&mut self.pipeline, self.from, records).expect("readable");
        self.pipeline.resume(&[self.to[0].0], self.journal.told(place), place);
    }
}

#[test]
fn a_receiver_of_several_paths_is_told_nothing_by_another_process_where_nothing_has_changed() {
    let mut pair = Pair::new();
    let prefixes = [P, Q, "0.0.0.0/0", "2001:db8:5::/48"];
    for to in prefixes {
        (0..6).for_each(|n| announce(&mut pair.pipeline, pair.from, 10 - n, &[n], to));
        // The first places are free: whoever comes next would be there.
        [10, 9].into_iter().for_each(|identifier| withdraw(&mut pair.pipeline, pair.from, identifier, to));
    }
    pair.settle();
    assert!(prefixes.iter().all(|to| held(&pair.to[0].1, to).len() == 4));
    let (messages, paths) = (pair.to[0].1.messages, pair.to[0].1.paths.clone());
    for _ in 0..2 {
        pair.restart(true);
        pair.settle();
        assert_eq!((pair.to[0].1.messages, &pair.to[0].1.paths), (messages, &paths));
        let announced = pair.pipeline.counts(pair.to[0].0, Family::IPV4_UNICAST).announced;
        assert_eq!(announced, 12);
    }
    // A path of a session that begins now is not under an identifier that somebody has.
    let other = up(&mut pair.pipeline, 3);
    pair.pipeline.update(other, &announcement(&attributes(3, &[9]), &[prefix(P)])).expect("taken");
    withdraw(&mut pair.pipeline, pair.from, 8, P);
    pair.settle();
    assert_eq!(held(&pair.to[0].1, P), [3, 4, 5, 9].map(Some));
    assert_eq!(pair.to[0].1.idle_withdrawals, 0);
}

#[test]
fn a_process_that_does_not_know_the_identifiers_leaves_no_path_under_an_old_one() {
    let mut pair = Pair::new();
    for to in [P, Q] {
        (0..3).for_each(|n| announce(&mut pair.pipeline, pair.from, n, &[n], to));
    }
    pair.settle();
    let before = pair.to[0].1.paths.clone();
    pair.restart(false);
    // What has changed meanwhile is told with it.
    withdraw(&mut pair.pipeline, pair.from, 0, P);
    pair.settle();
    let sink = &pair.to[0].1;
    assert_eq!((held(sink, P), held(sink, Q)), ([1, 2].map(Some).to_vec(), [0, 1, 2].map(Some).to_vec()));
    assert!(sink.paths.keys().all(|path| !before.contains_key(path)));
    assert_eq!(sink.idle_withdrawals, 0);
}
