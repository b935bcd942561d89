//! Going on after another process: what peers were told is known from the journal, and only differences are sent.

use std::{cell::RefCell, net::Ipv4Addr, rc::Rc};

use holdfast_bgp_pipeline::{
    AdjRibOutSnapshot, ForeignRoute, Journal, JournalEntry, NextHopMode, PathRules, PeerConfig, PeerIndex,
    Pipeline, SessionFacts, Unreadable,
};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_policy::{Program, Protocol};
use holdfast_types::{Asn, Family, HashKey, Prefix};

use crate::tests::pipeline::speaker::{
    Sink, announcement, checked, ebgp, facts, prefix, settle, speaker, withdrawal,
};

/// A journal in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries(Rc<RefCell<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    entries: Vec<(JournalEntry, Vec<u8>)>,
    /// There is no room for more.
    full: bool,
}

impl Journal for Entries {
    fn append(&mut self, previous: JournalEntry, entry: &[u8]) -> JournalEntry {
        assert_ne!(previous, JournalEntry::LOST);
        let mut kept = self.0.borrow_mut();
        if kept.full {
            return JournalEntry::LOST;
        }
        kept.entries.push((previous, entry.to_vec()));
        JournalEntry(kept.entries.len() as u64)
    }

    fn key(&self) -> [u8; 16] {
        *b"of this journal."
    }
}

impl Entries {
    /// What was told up to an entry.
    pub(crate) fn told(&self, to: JournalEntry) -> AdjRibOutSnapshot {
        let kept = self.0.borrow();
        let (mut at, mut list) = (to, Vec::new());
        while at != JournalEntry::NONE {
            let (previous, entry) = &kept.entries[at.0 as usize - 1];
            list.push(entry);
            at = *previous;
        }
        let mut told = AdjRibOutSnapshot::new(HashKey::new([1, 2]));
        list.into_iter().rev().for_each(|entry| told.entry(entry).expect("readable"));
        told
    }

    /// The same, by way of entries that were written anew.
    pub(crate) fn rewritten(&self, to: JournalEntry) -> AdjRibOutSnapshot {
        let (mut rewrite, mut entries) = (self.told(to).rewrite(), Vec::new());
        while rewrite.work(&mut entries).is_some() {}
        let mut told = AdjRibOutSnapshot::new(HashKey::new([1, 2]));
        entries.iter().for_each(|entry| told.entry(entry).expect("readable"));
        told
    }
}

struct Router {
    pipeline: Pipeline,
    sinks: Vec<(PeerIndex, Sink)>,
    journal: Entries,
    /// Nobody watches between the stages: what is the same is found out in a shorter way then.
    unwatched: bool,
    /// Each peer has a view of its own.
    has_views: bool,
}

fn pipeline(unwatched: bool) -> Pipeline {
    let config = speaker(NextHopMode::AlwaysReachable);
    if unwatched { Pipeline::new(config) } else { checked(config) }
}

/// Each peer is on a link of its own.
fn link(n: u8) -> SessionFacts {
    SessionFacts { next_hop_v4: Some(Ipv4Addr::new(10, 9, n, 1)), number: u32::from(n) + 1, ..facts(n) }
}

/// Peers may send the same attributes.
fn peer(n: u8) -> PeerConfig {
    peer_with(n, false)
}

fn peer_with(n: u8, own_view: bool) -> PeerConfig {
    PeerConfig { paths: PathRules { enforce_first_as: false, own_view, ..PathRules::default() }, ..ebgp(n) }
}

fn attributes(n: u8, community: u32) -> Vec<u8> {
    AttributesBuilder {
        as_path: vec![Asn(65100 + u32::from(n))],
        next_hop: Some(Ipv4Addr::new(10, 0, n, 2)),
        communities: vec![community],
        ..AttributesBuilder::new(Origin::Igp)
    }
    .build()
}

impl Router {
    fn new(peers: u8) -> Self {
        Self::watched(peers, true)
    }

    fn watched(peers: u8, watched: bool) -> Self {
        Self::with_views(peers, watched, false)
    }

    fn with_views(peers: u8, watched: bool, has_views: bool) -> Self {
        let journal = Entries::default();
        let mut pipeline = pipeline(!watched);
        pipeline.keep_journal(Box::new(journal.clone()));
        let mut sinks = Vec::new();
        for n in 0..peers {
            let index = pipeline.add_peer(peer_with(n, has_views));
            pipeline.peer_up(index, link(n)).expect("room");
            sinks.push((index, Sink::default()));
        }
        Self { pipeline, sinks, journal, unwatched: !watched, has_views }
    }

    fn announce(&mut self, n: u8, community: u32, routes: &[Prefix]) {
        self.announce_like(n, n, community, routes);
    }

    /// What a peer announces is as if another had sent it.
    fn announce_like(&mut self, n: u8, other: u8, community: u32, routes: &[Prefix]) {
        let index = self.sinks[usize::from(n)].0;
        for route in routes {
            let body = announcement(&attributes(other, community), &[*route]);
            self.pipeline.update(index, &body).expect("taken");
        }
    }

    fn down(&mut self, n: u8) {
        let (index, sink) = &mut self.sinks[usize::from(n)];
        self.pipeline.peer_down(*index);
        *sink = Sink::default();
    }

    fn up_anew(&mut self, n: u8) {
        self.down(n);
        self.pipeline.peer_up(self.sinks[usize::from(n)].0, link(n)).expect("room");
    }

    fn routes(&self) -> Vec<usize> {
        self.sinks.iter().map(|(_, sink)| sink.routes.len()).collect()
    }

    fn settle(&mut self) {
        settle(&mut self.pipeline, &mut self.sinks);
    }

    fn messages(&self) -> Vec<usize> {
        self.sinks.iter().map(|(_, sink)| sink.messages).collect()
    }

    /// Another process, which receives again what `received` does.
    fn restart(&mut self, received: impl Fn(&mut Self)) {
        let places: Vec<_> =
            self.sinks.iter().map(|(index, _)| self.pipeline.journal_place(*index)).collect();
        let journal = self.journal.clone();
        self.pipeline = pipeline(self.unwatched);
        self.pipeline.keep_journal(Box::new(journal));
        for n in 0..self.sinks.len() as u8 {
            let index = self.pipeline.add_peer(peer_with(n, self.has_views));
            self.pipeline.peer_resumed(index, link(n)).expect("room");
        }
        received(self);
        for (place, n) in places.into_iter().zip(0..) {
            let index = self.sinks[n as usize].0;
            self.pipeline.resume(&[index], self.journal.told(place), place);
        }
    }
}

fn routes(from: u8, count: u8) -> Vec<Prefix> {
    let both = |n| [prefix(&format!("10.{from}.{n}.0/24")), prefix(&format!("2001:db8:{from}:{n}::/64"))];
    (0..count).flat_map(both).collect()
}

#[test]
fn where_nothing_has_changed_nothing_is_sent_whoever_the_source_is() {
    WAYS.into_iter().for_each(nothing_is_sent_where_nothing_has_changed);
}

/// Whether somebody watches between the stages, and whether peers have views of their own: what was told is compared in
/// another way.
const WAYS: [(bool, bool); 4] = [(true, false), (false, false), (true, true), (false, true)];

fn nothing_is_sent_where_nothing_has_changed((watched, has_views): (bool, bool)) {
    let mut router = Router::with_views(3, watched, has_views);
    let received = |router: &mut Router| {
        router.announce(0, 1, &routes(0, 30));
        router.announce(1, 1, &routes(1, 30));
    };
    received(&mut router);
    router.settle();
    let before = router.messages();
    assert_eq!(router.sinks[2].1.routes.len(), 120);
    for _ in 0..2 {
        router.restart(received);
        router.settle();
        assert_eq!(router.messages(), before);
        let counts = |n: usize| router.pipeline.counts(router.sinks[n].0, Family::IPV4_UNICAST);
        assert_eq!([0, 1, 2].map(|n| counts(n).announced), [30, 30, 60]);
        assert!(counts(2).end_of_rib_sent);
    }
    // The groups of the new process are as good as those of the old.
    router.announce(0, 2, &routes(0, 1));
    router.settle();
    assert_eq!(router.messages(), [before[0], before[1] + 2, before[2] + 2]);
}

#[test]
fn a_journal_that_begins_late_knows_the_sessions_that_come_up_from_then_on() {
    let (journal, mut pipeline) = (Entries::default(), checked(speaker(NextHopMode::AlwaysReachable)));
    let mut sinks = Vec::new();
    for n in 0..2 {
        let index = pipeline.add_peer(peer(n));
        pipeline.peer_up(index, link(n)).expect("room");
        sinks.push((index, Sink::default()));
    }
    let mut router = Router { pipeline, sinks, journal, unwatched: false, has_views: false };
    router.announce(0, 1, &routes(0, 5));
    router.settle();
    router.pipeline.keep_journal(Box::new(router.journal.clone()));
    router.announce(0, 2, &routes(0, 2));
    router.settle();
    let place = |router: &Router, n: usize| router.pipeline.journal_place(router.sinks[n].0);
    assert_eq!(place(&router, 1), JournalEntry::LOST, "what it was told before is not known");
    router.up_anew(1);
    router.settle();
    router.announce(0, 3, &routes(0, 1));
    router.settle();
    assert_ne!(place(&router, 1), JournalEntry::LOST);
    assert_eq!((router.routes(), router.journal.told(place(&router, 1)).count()), (vec![0, 10], 10));
}

#[test]
fn routes_of_other_protocols_that_are_late_are_withdrawn_only_when_it_is_known_that_they_do_not_come() {
    let mut router = Router::new(2);
    let ours = ["203.0.113.0/24", "198.51.100.0/24", "2001:db8:ff::/48"].map(prefix);
    let redistribute = |router: &mut Router, routes: &[Prefix]| {
        let policy = Program::accept_all();
        let route = ForeignRoute { protocol: Protocol::Static, tag: 0, metric: 0, policy };
        router.pipeline.redistribute(routes, &route).expect("room");
    };
    redistribute(&mut router, &ours);
    router.announce(0, 1, &routes(0, 10));
    router.settle();
    assert_eq!(router.routes(), [3, 23]);
    // A second death finds in the journal what the first one found.
    for count in [9, 8] {
        router.restart(|router| {
            router.pipeline.await_ours(true);
            router.announce(0, 1, &routes(0, count));
        });
        router.settle();
        assert_eq!(router.routes(), [3, 3 + 2 * usize::from(count)], "what peers had is withdrawn at once");
    }
    let before = router.messages();
    redistribute(&mut router, &ours[1..]);
    router.settle();
    assert_eq!(router.messages(), before, "they are as they were");
    // Who comes up meanwhile has no history in common with those.
    let index = router.pipeline.add_peer(peer(2));
    router.pipeline.peer_up(index, link(2)).expect("room");
    router.sinks.push((index, Sink::default()));
    router.settle();
    router.pipeline.await_ours(false);
    router.settle();
    assert_eq!(router.routes(), [2, 18, 18]);
    assert!(router.sinks.iter().all(|(_, sink)| sink.idle_withdrawals == 0));
    router.announce(0, 2, &routes(0, 1));
    router.settle();
    assert_eq!(router.routes(), [2, 18, 18], "and nobody is forgotten");
}

#[test]
fn who_asks_for_everything_while_our_own_routes_are_late_is_told_of_them_as_well() {
    let mut router = Router::new(2);
    let ours = ["203.0.113.0/24", "198.51.100.0/24", "2001:db8:ff::/48"].map(prefix);
    let redistribute = |router: &mut Router, routes: &[Prefix]| {
        let policy = Program::accept_all();
        let route = ForeignRoute { protocol: Protocol::Static, tag: 0, metric: 0, policy };
        router.pipeline.redistribute(routes, &route).expect("room");
    };
    redistribute(&mut router, &ours);
    router.announce(0, 1, &routes(0, 3));
    router.settle();
    router.restart(|router| {
        router.pipeline.await_ours(true);
        router.announce(0, 1, &routes(0, 3));
    });
    router.settle();
    for family in Family::ALL {
        let (peer, sink) = &mut router.sinks[1];
        sink.ask(family);
        router.pipeline.route_refresh(*peer, family);
    }
    router.settle();
    let peer = router.sinks[1].0;
    assert!(router.pipeline.is_announcing_again(peer), "the whole table is not known");
    redistribute(&mut router, &ours[1..]);
    router.settle();
    assert!(router.pipeline.is_announcing_again(peer));
    router.pipeline.await_ours(false);
    router.settle();
    let (peer, sink) = &router.sinks[1];
    assert!(sink.is_answered() && !router.pipeline.is_announcing_again(*peer), "{sink:?}");
    assert_eq!((router.routes(), sink.idle_withdrawals), (vec![2, 8], 0));
}

#[test]
fn changes_during_the_absence_are_sent_once() {
    let mut router = Router::new(2);
    router.announce(0, 1, &routes(0, 30));
    router.settle();
    let before = router.messages()[1];
    router.restart(|router| {
        router.announce(0, 1, &routes(0, 30));
        router.announce(0, 2, &routes(0, 1));
        let index = router.sinks[0].0;
        router.pipeline.update(index, &withdrawal(routes(0, 30)[2])).expect("taken");
    });
    router.settle();
    let sink = &router.sinks[1].1;
    assert_eq!((sink.messages - before, sink.routes.len(), sink.idle_withdrawals), (3, 59, 0));
}

#[test]
fn differences_among_many_routes_that_are_alike_are_found_in_both_ways() {
    for (watched, has_views) in WAYS {
        let mut router = Router::with_views(3, watched, has_views);
        // Attributes that many routes have, in turn.
        let received = |router: &mut Router| {
            for (at, route) in routes(0, 200).iter().enumerate() {
                router.announce(0, at as u32 % 3, &[*route]);
            }
            router.announce(1, 1, &routes(1, 30));
        };
        received(&mut router);
        router.settle();
        let before = router.messages();
        for turn in 0..2 {
            let changed = &routes(0, 200)[40 * turn..][..4];
            router.restart(|router| {
                received(router);
                let index = router.sinks[0].0;
                router.pipeline.update(index, &withdrawal(changed[0])).expect("taken");
                router.announce(0, 9, &changed[1..2]);
                // The same, of another.
                router.pipeline.update(index, &withdrawal(changed[2])).expect("taken");
                let community = (40 * turn as u32 + 2) % 3;
                router.announce_like(1, 0, community, &changed[2..3]);
            });
            router.settle();
            // One is gone, and one comes from another. A view passes over paths with the AS of the peer.
            let first = if has_views { 60 } else { 61 };
            assert_eq!(router.routes(), [first, 398, 459]);
            received(&mut router);
            let index = router.sinks[1].0;
            router.pipeline.update(index, &withdrawal(changed[2])).expect("taken");
            router.settle();
        }
        assert!(router.messages()[2] > before[2]);
        assert!(router.sinks.iter().all(|(_, sink)| sink.idle_withdrawals == 0));
    }
}

#[test]
fn the_journal_names_the_present_source_also_of_what_need_not_be_sent() {
    let mut router = Router::new(3);
    router.announce(0, 1, &routes(0, 1));
    router.settle();
    router.restart(|router| {
        router.down(0);
        router.announce_like(1, 0, 1, &routes(0, 1));
    });
    router.settle();
    router.up_anew(0);
    router.settle();
    assert_eq!(router.routes(), [2, 0, 2]);
    router.restart(|_| {});
    router.settle();
    assert_eq!(router.routes(), [0; 3]);
}

#[test]
fn who_was_told_half_is_told_the_rest_and_its_end_of_rib() {
    let mut router = Router::new(1);
    let received = |router: &mut Router| router.announce(0, 1, &routes(0, 100));
    received(&mut router);
    router.settle();
    let index = router.pipeline.add_peer(peer(1));
    router.pipeline.peer_up(index, link(1)).expect("room");
    router.sinks.push((index, Sink::default()));
    let first = router.pipeline.pull(index).expect("routes");
    router.sinks[1].1.take(&first);
    assert!(router.sinks[1].1.end_of_rib.is_empty());
    let had = router.sinks[1].1.routes.len();
    assert!(had > 0 && had < 200);
    router.restart(received);
    router.settle();
    let sink = &router.sinks[1].1;
    assert_eq!((sink.routes.len(), sink.end_of_rib.len()), (200, 2));
}

#[test]
fn who_needs_no_history_any_more_has_none_and_others_go_on_with_theirs() {
    let mut router = Router::with_views(3, true, true);
    router.announce(0, 1, &routes(0, 3));
    router.settle();
    let entries = |router: &Router| router.journal.0.borrow().entries.len();
    let (peer, before) = (router.sinks[1].0, entries(&router));
    assert!(router.pipeline.end_history(peer));
    assert!(!router.pipeline.end_history(peer), "it has ended");
    assert_eq!(router.pipeline.journal_place(peer), JournalEntry::LOST);
    router.announce(0, 2, &routes(0, 1));
    router.settle();
    let other = router.sinks[2].0;
    assert_eq!(router.routes(), [0, 6, 6]);
    // IPv4 and IPv6, for one of two.
    assert_eq!(entries(&router) - before, 2);
    assert_eq!(router.journal.told(router.pipeline.journal_place(other)).count(), 6);
    // Who is told the same as others keeps what they have in common.
    let mut router = Router::new(3);
    router.announce(0, 1, &routes(0, 3));
    router.settle();
    assert!(!router.pipeline.end_history(router.sinks[1].0));
    assert_ne!(router.pipeline.journal_place(router.sinks[2].0), JournalEntry::LOST);
}

#[test]
fn a_refresh_that_was_asked_for_meanwhile_is_answered_whole() {
    let mut router = Router::new(2);
    let received = |router: &mut Router| router.announce(0, 1, &routes(0, 30));
    received(&mut router);
    router.settle();
    router.sinks[1].1.routes.clear();
    router.restart(|router| {
        received(router);
        Family::ALL.into_iter().for_each(|family| router.pipeline.route_refresh(router.sinks[1].0, family));
    });
    router.settle();
    assert_eq!(router.sinks[1].1.routes.len(), 60);
}

#[test]
fn without_room_for_the_journal_peers_are_told_all_the_same() {
    let mut router = Router::new(2);
    router.journal.0.borrow_mut().full = true;
    router.announce(0, 1, &routes(0, 30));
    router.settle();
    assert_eq!(router.sinks[1].1.routes.len(), 60);
    assert_eq!(router.pipeline.journal_place(router.sinks[1].0), JournalEntry::LOST);
}

#[test]
fn damaged_entries_are_errors() {
    let mut router = Router::new(2);
    router.announce(0, 1, &routes(0, 3));
    router.settle();
    let entries: Vec<Vec<u8>> =
        router.journal.0.borrow().entries.iter().map(|(_, entry)| entry.clone()).collect();
    for entry in entries {
        for end in 0..entry.len() {
            // What is cut between two items is readable, and nothing else.
            let _: Result<(), Unreadable> = AdjRibOutSnapshot::new(HashKey::new([1, 2])).entry(&entry[..end]);
        }
        let cut = &entry[..entry.len() - 1];
        assert!(
            AdjRibOutSnapshot::new(HashKey::new([1, 2])).entry(cut).is_err() || entry.len() < 3,
            "{entry:?}"
        );
        assert_eq!(AdjRibOutSnapshot::new(HashKey::new([1, 2])).entry(&[9]), Err(Unreadable));
    }
}
