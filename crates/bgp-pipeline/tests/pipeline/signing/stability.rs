//! What does not change is sent with the same octets.

use holdfast_bgp_pipeline::JournalEntry;

use super::*;
use crate::tests::pipeline::journal::Entries;

/// Routes of peer 1, of both families, and what they are signed over.
fn routes() -> Vec<(String, Vec<u8>)> {
    let names = (0..20).flat_map(|n| [format!("10.1.{n}.0/24"), format!("2001:db8:{n}::/48")]);
    names.map(|name| (name.clone(), from_peer(1, &name))).collect()
}

fn receive_all(router: &mut Router, from: PeerIndex) {
    routes().into_iter().for_each(|(route, path)| router.receive(from, &path, &route));
}

/// Has everything told again, and signed where that is asked; how many signatures that were.
fn told_again(router: &mut Router, peer: PeerIndex) -> u64 {
    let made = router.toy.made;
    Family::ALL.into_iter().for_each(|family| router.pipeline.route_refresh(peer, family));
    router.settle();
    router.toy.made - made
}

#[test]
fn what_has_not_changed_is_sent_with_the_same_octets() {
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    receive_all(&mut router, from);
    router.settle();
    let (before, made) = (router.sink(to).routes.clone(), router.toy.made);
    assert_eq!((before.len(), made), (40, 40));
    // A refresh.
    let messages = router.sink(to).messages;
    assert_eq!((told_again(&mut router, to), router.sink(to).messages), (0, messages + 40));
    assert_eq!(router.sink(to).routes, before);
    // A second peer of that AS.
    let second = router.up_as(5, PeerConfig { name: "second".into(), ..ebgp(2) });
    router.settle();
    assert_eq!(router.sink(second).routes, before);
    // The peer comes back.
    router.pipeline.peer_down(to);
    router.settle();
    router.session(to, secured(2, &ebgp(2), None));
    router.settle();
    assert_eq!(router.sink(to).routes, before);
    // The sender is away, and brings the same.
    router.pipeline.peer_away(from, &Family::ALL);
    router.session(from, secured(1, &ebgp(1), None));
    receive_all(&mut router, from);
    router.settle();
    Family::ALL.into_iter().for_each(|family| router.pipeline.forget_stale(from, family));
    router.settle();
    assert_eq!(router.sink(to).routes, before);
    // Or it is away for long.
    router.pipeline.peer_down(from);
    router.settle();
    assert_eq!(router.sink(to).routes.len(), 0);
    router.session(from, secured(1, &ebgp(1), None));
    receive_all(&mut router, from);
    router.settle();
    assert_eq!(router.sink(to).routes, before);
    assert_eq!(router.toy.made, made);
}

#[test]
fn another_path_and_back_is_signed_anew() {
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    for (behind, made) in [(7, 1), (8, 2), (7, 3)] {
        router.receive(from, &over(behind, 1, P), P);
        router.settle();
        assert_eq!((router.toy.made, router.has_good(to, P)), (made, true), "one is kept of each name");
        assert_eq!(router.held(to, P).path(), format!("65000 65101 {behind}"));
    }
}

#[test]
fn other_attributes_are_sent_with_the_same_signature() {
    let mut router = Router::new();
    let from = router.up(1);
    let to = router.up(2);
    router.receive(from, &from_peer(1, P), P);
    router.settle();
    let path = router.path(to, P);
    let communities = holdfast_policy::Action::AddCommunities(vec!["65000:1".parse().expect("a community")]);
    router.pipeline.configure_peer(to, PeerConfig { export: Some(changing(vec![communities])), ..ebgp(2) });
    router.settle();
    assert!(attribute(router.held(to, P), code::COMMUNITIES).is_some());
    assert_eq!((router.path(to, P), router.toy.made), (path, 1));
}

#[test]
fn another_key_has_every_route_told_once_more() {
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    receive_all(&mut router, from);
    router.settle();
    let messages = router.sink(to).messages;
    router.pipeline.set_signers([next_signer()]);
    router.settle();
    assert_eq!((router.toy.made, router.sink(to).messages), (80, messages + 40));
    for (route, _) in routes() {
        let path = router.path(to, &route).expect("signed");
        let path = Path::parse(&path).expect("sound");
        let newest = path.blocks().next().and_then(|block| block.signatures().next()).expect("ours");
        assert_eq!(newest.ski, next_signer().ski);
        assert!(router.has_good(to, &route));
    }
    // The same keys in another order, and twice, are the same.
    router.pipeline.set_signers([next_signer(), next_signer()]);
    router.settle();
    assert_eq!((router.toy.made, router.sink(to).messages), (80, messages + 40));
}

/// A router with a journal, and the next one that goes on with its sessions.
struct Life {
    router: Router,
    journal: Entries,
    peers: Vec<PeerIndex>,
}

impl Life {
    fn new(store: Store) -> Self {
        let (mut router, journal) = (Router::with(always(), store), Entries::default());
        router.pipeline.keep_journal(Box::new(journal.clone()));
        let peers = [1, 2, 3].map(|n| router.up(n)).to_vec();
        Self { router, journal, peers }
    }

    /// Another process with these keys; `received` says what is there then.
    fn next(&mut self, signers: &[Signer], received: impl Fn(&mut Router, PeerIndex)) {
        let places: Vec<JournalEntry> =
            self.peers.iter().map(|peer| self.router.pipeline.journal_place(*peer)).collect();
        let store = self.router.store.recovered();
        let mut next = Router::without_keys(always(), store);
        next.pipeline.keep_journal(Box::new(self.journal.clone()));
        for n in [1, 2, 3] {
            let peer = next.pipeline.add_peer(ebgp(n));
            next.pipeline.peer_resumed(peer, secured(n, &ebgp(n), None)).expect("room");
        }
        next.pipeline.set_signers(signers.iter().copied());
        received(&mut next, self.peers[0]);
        for (peer, place) in self.peers.iter().zip(places) {
            next.pipeline.resume(&[*peer], self.journal.told(place), place);
        }
        next.sinks = std::mem::take(&mut self.router.sinks);
        self.router = next;
        self.router.settle();
    }

    fn messages(&self) -> Vec<usize> {
        self.peers.iter().map(|peer| self.router.sink(*peer).messages).collect()
    }

    fn announced(&self) -> Vec<usize> {
        self.peers.iter().map(|peer| self.router.announced(*peer)).collect()
    }
}

#[test]
fn the_next_process_sends_nothing_where_nothing_has_changed() {
    let mut life = Life::new(Store::of(1000));
    receive_all(&mut life.router, life.peers[0]);
    life.router.pipeline.originate(prefix(P), &OriginateAttributes::default());
    life.router.settle();
    let (before, had) = (life.messages(), life.router.sink(life.peers[1]).routes.clone());
    assert_eq!(life.announced(), [1, 41, 41]);
    let received = |router: &mut Router, from| {
        receive_all(router, from);
        router.pipeline.originate(prefix(P), &OriginateAttributes::default());
    };
    for _ in 0..2 {
        life.next(&[signer(OUR_AS)], received);
        assert_eq!((life.messages(), life.announced()), (before.clone(), vec![1, 41, 41]));
        assert_eq!(life.router.toy.made, 0);
    }
    // What was kept is there for who asks.
    let to = life.peers[1];
    assert_eq!(told_again(&mut life.router, to), 0);
    assert_eq!(life.router.sink(to).routes, had);
}

#[test]
fn the_next_process_tells_what_has_changed_and_nothing_else() {
    let mut life = Life::new(Store::of(1000));
    receive_all(&mut life.router, life.peers[0]);
    life.router.settle();
    let before = life.messages();
    life.next(&[signer(OUR_AS)], |router, from| {
        receive_all(router, from);
        router.receive(from, &over(8, 1, "10.1.0.0/24"), "10.1.0.0/24");
        router.withdraw(from, "10.1.1.0/24");
    });
    assert_eq!(life.messages(), [before[0], before[1] + 2, before[2] + 2]);
    assert_eq!((life.router.toy.made, life.announced()), (2, vec![0, 39, 39]));
    assert!(life.router.has_good(life.peers[1], "10.1.0.0/24"));
    // Another key: every route once more.
    let before = life.messages();
    life.next(&[next_signer()], |router, from| {
        receive_all(router, from);
        router.receive(from, &over(8, 1, "10.1.0.0/24"), "10.1.0.0/24");
        router.withdraw(from, "10.1.1.0/24");
    });
    assert_eq!(life.messages(), [before[0], before[1] + 39, before[2] + 39]);
    assert_eq!((life.router.toy.made, life.announced()), (78, vec![0, 39, 39]));
    assert!(life.peers[1..].iter().all(|peer| life.router.has_good(*peer, "10.1.0.0/24")));
}

#[test]
fn what_went_out_without_signatures_follows_with_them_in_the_next_process() {
    let mut life = Life::new(Store::of(1000));
    life.router.pipeline.set_signers([]);
    receive_all(&mut life.router, life.peers[0]);
    life.router.settle();
    let [_, to, _] = life.peers[..] else { panic!("three peers") };
    assert_eq!(life.router.path(to, "10.1.0.0/24"), None);
    life.next(&[signer(OUR_AS)], receive_all);
    assert!(routes().iter().all(|(route, _)| life.router.has_good(to, route)));
    assert_eq!((life.router.toy.made, life.announced()), (80, vec![0, 40, 40]));
    assert_eq!(life.router.sink(to).idle_withdrawals, 0);
}

#[test]
fn a_store_with_room_for_few_loses_signatures_and_no_routes() {
    let mut router = Router::with(always(), Store::of(5));
    let (from, to) = (router.up(1), router.up(2));
    receive_all(&mut router, from);
    router.settle();
    assert!(routes().iter().all(|(route, _)| router.has_good(to, route)));
    assert_eq!((router.toy.made, router.pipeline.signing_counts().kept), (40, 5));
    // Whoever is told again may have others.
    let again = told_again(&mut router, to);
    assert!(again <= 35, "{again}");
    assert!(routes().iter().all(|(route, _)| router.has_good(to, route)));
    assert_eq!(router.pipeline.signing_counts().waiting, 0);
    // What is not used any more makes room.
    router.pipeline.peer_down(from);
    router.settle();
    let (route, _) = &routes()[1];
    let (other, _) = &routes()[39];
    let from = router.up(4);
    router.receive(from, &from_peer(4, route), route);
    router.receive(from, &from_peer(4, other), other);
    router.settle();
    assert!(router.has_good(to, other) && router.pipeline.signing_counts().kept >= 2);
}

#[test]
fn without_any_store_routes_are_signed_and_sent() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    pipeline.set_signers([signer(OUR_AS)]);
    let (sinks, toy, store) = (Vec::new(), Toy::default(), Store::default());
    let mut router = Router { pipeline, toy, store, sinks, confederation: None, now };
    let (from, to) = (router.up(1), router.up(2));
    receive_all(&mut router, from);
    router.settle();
    assert!(routes().iter().all(|(route, _)| router.has_good(to, route)));
    assert_eq!(router.toy.made, 40);
}

#[test]
fn other_keys_are_no_reason_to_send_again_what_is_not_signed() {
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    router.receive(from, &from_peer(1, P), P);
    let plain = announcement_by(1, &[Asn(7), asn(1)], prefix(OTHER));
    router.pipeline.update(from, &plain).expect("taken");
    router.settle();
    let (messages, path) = (router.sink(to).messages, router.path(to, P));
    router.pipeline.set_signers([next_signer()]);
    router.settle();
    assert_eq!(router.sink(to).messages, messages + 1);
    assert!(router.path(to, P) != path && router.path(to, OTHER).is_none());
}

#[test]
fn a_peer_without_signatures_is_not_told_that_a_neighbour_has_signed_anew() {
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    let plain = router.up_with(ebgp(3), facts(3));
    let mut path = from_peer(1, P);
    router.receive(from, &path, P);
    router.settle();
    let messages = [to, plain].map(|peer| router.sink(peer).messages);
    // The last octet is one of a signature.
    *path.last_mut().expect("octets") ^= 1;
    router.receive(from, &path, P);
    router.settle();
    assert_eq!([to, plain].map(|peer| router.sink(peer).messages), [messages[0] + 1, messages[1]]);
    let longer = signed_path(&[plain_segment(8), plain_segment(asn(1).0)], OUR_AS, prefix(P), &[1]);
    router.receive(from, &longer, P);
    router.settle();
    assert_eq!(router.sink(plain).messages, messages[1] + 1);
    assert_eq!(router.held(plain, P).path(), "65000 65101 8");
}
