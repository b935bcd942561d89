//! Views of their own: who may not have the best path is told of the best that it may have (RFC 7947 section 2.3).

use std::net::Ipv4Addr;

use holdfast_bgp_pipeline::{
    FamilySet, Limits, NeighborView, PathRules, PathState, PeerConfig, PeerIndex, Pipeline, SendPaths,
    SessionFacts, SpeakerConfig, Withheld,
};
use holdfast_bgp_wire::{Origin, attributes::community::NO_EXPORT, edit::AttributesBuilder};
use holdfast_policy::{Condition, Library, Outcome, Policy, PolicySource, Program, Term};
use holdfast_types::{Asn, Family, Prefix};

use crate::tests::pipeline::behaviour::{always, up};
use crate::tests::pipeline::speaker::{
    Held, Sink, advertised_to, announcement, checked, ebgp, facts, prefix, settle, withdrawal,
};

const P: &str = "203.0.113.0/24";

/// Refuses what carries 65000:N.
fn all_but(n: u32) -> Program {
    let tagged = Condition::Community(vec![format!("65000:{n}").parse().expect("a pattern")]);
    let refuse = Term { name: "no".into(), from: vec![tagged], then: vec![], outcome: Outcome::Reject };
    let rest = Term { name: "rest".into(), from: vec![], then: vec![], outcome: Outcome::Accept };
    let policy = Policy { name: "p".into(), first: vec![], terms: vec![refuse, rest], last: None };
    let source = PolicySource { policies: vec![policy], ..PolicySource::default() };
    // Each is another compilation.
    Library::compile(&source, n).expect("sound").get("p").expect("is there").clone()
}

/// A client that may not have what carries 65000:N.
fn client(n: u8, refused: u32) -> PeerConfig {
    let paths = PathRules {
        route_server_client: true,
        own_view: true,
        enforce_first_as: false,
        ..PathRules::default()
    };
    PeerConfig { export: Some(all_but(refused)), paths, ..ebgp(n) }
}

fn joins(pipeline: &mut Pipeline, config: PeerConfig, n: u8) -> (PeerIndex, Sink) {
    let peer = pipeline.add_peer(config);
    pipeline.peer_up(peer, facts(n)).expect("room");
    (peer, Sink::default())
}

fn attributes(path: &[u32], communities: &[u32]) -> Vec<u8> {
    AttributesBuilder {
        as_path: path.iter().map(|asn| Asn(*asn)).collect(),
        next_hop: Some(Ipv4Addr::new(192, 0, 2, 1)),
        communities: communities.to_vec(),
        ..AttributesBuilder::new(Origin::Igp)
    }
    .build()
}

/// This path with 65000:N.
fn send(pipeline: &mut Pipeline, from: PeerIndex, path: &[u32], tag: u32) {
    let body = announcement(&attributes(path, &[65000 << 16 | tag]), &[prefix(P)]);
    pipeline.update(from, &body).expect("taken");
}

fn path_at(sink: &Sink, to: Prefix) -> Option<String> {
    sink.routes.get(&to).map(Held::path)
}

fn paths(sinks: &[(PeerIndex, Sink)]) -> Vec<Option<String>> {
    sinks.iter().map(|(_, sink)| path_at(sink, prefix(P))).collect()
}

fn some(path: &str) -> Option<String> {
    Some(path.to_owned())
}

#[test]
fn a_client_that_may_not_have_the_best_path_is_told_of_the_next() {
    let mut pipeline = checked(always());
    let (one, two, three) = (up(&mut pipeline, 1), up(&mut pipeline, 2), up(&mut pipeline, 3));
    let mut sinks = [joins(&mut pipeline, client(4, 1), 4), joins(&mut pipeline, client(5, 9), 5)];
    send(&mut pipeline, one, &[65101], 1);
    send(&mut pipeline, two, &[65102, 64001], 2);
    send(&mut pipeline, three, &[65103, 64001, 64002], 3);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(paths(&sinks), [some("65102 64001"), some("65101")]);
    // The path above gets worse, stays refused, and no word of it is said to who does not have it.
    let before = sinks[0].1.messages;
    send(&mut pipeline, one, &[65101, 64001], 1);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(
        (paths(&sinks), sinks[0].1.messages - before),
        (vec![some("65102 64001"), some("65101 64001")], 0)
    );
    pipeline.update(two, &withdrawal(prefix(P))).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!(paths(&sinks), [some("65103 64001 64002"), some("65101 64001")]);
    // What was refused is not any more: by what it carries, and by another policy.
    send(&mut pipeline, one, &[65101], 7);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(paths(&sinks), [some("65101"), some("65101")]);
    pipeline.configure_peer(sinks[0].0, client(4, 7));
    settle(&mut pipeline, &mut sinks);
    assert_eq!(paths(&sinks), [some("65103 64001 64002"), some("65101")]);
    pipeline.peer_down(three);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(paths(&sinks), [None, some("65101")]);
    pipeline.peer_down(one);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(paths(&sinks), [None, None]);
    assert!(sinks.iter().all(|(_, sink)| sink.idle_withdrawals == 0));
}

#[test]
fn its_own_paths_those_with_its_as_and_those_that_communities_keep_are_passed_over() {
    let mut pipeline = checked(always());
    let mut sinks = [joins(&mut pipeline, client(1, 9), 1), joins(&mut pipeline, client(2, 9), 2)];
    let (one, two) = (sinks[0].0, sinks[1].0);
    let others = [up(&mut pipeline, 3), up(&mut pipeline, 4), up(&mut pipeline, 5)];
    // Without its own AS, as of a route server: it is its own all the same.
    send(&mut pipeline, one, &[64001], 1);
    send(&mut pipeline, two, &[65102, 65101], 2);
    let kept = attributes(&[65103, 64001], &[NO_EXPORT]);
    pipeline.update(others[0], &announcement(&kept, &[prefix(P)])).expect("taken");
    send(&mut pipeline, others[1], &[65104, 64001, 64002, 64003], 4);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(paths(&sinks), [some("65104 64001 64002 64003"), some("64001")]);
    let shown = |pipeline: &mut Pipeline, peer, view| {
        let session = pipeline.shown_session(peer, view).expect("up");
        let page = pipeline.neighbor_routes(session, view, Family::IPV4_UNICAST, None, 10).expect("up");
        page.routes.into_iter().map(|(_, path)| path).collect::<Vec<_>>()
    };
    let told = shown(&mut pipeline, one, NeighborView::Advertised);
    assert_eq!(told.iter().map(|path| path.peer).collect::<Vec<_>>(), [Some(others[1])]);
    let kept = shown(&mut pipeline, one, NeighborView::Withheld);
    assert_eq!(
        kept.iter().map(|path| &path.state).collect::<Vec<_>>(),
        [&PathState::Withheld(Withheld::Sender)]
    );
    assert_eq!(advertised_to(&mut pipeline, prefix(P)), [one, two, others[0], others[1], others[2]]);
    pipeline.update(one, &withdrawal(prefix(P))).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!(paths(&sinks), [some("65104 64001 64002 64003"), some("65104 64001 64002 64003")]);
    let kept = shown(&mut pipeline, one, NeighborView::Withheld);
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].state, PathState::Withheld(Withheld::Loop));
}

#[test]
fn of_several_paths_as_many_as_may_be_told_are() {
    let mut pipeline = checked(always());
    let all: FamilySet = Family::ALL.into_iter().collect();
    let senders: Vec<PeerIndex> = (1..=4).map(|n| up(&mut pipeline, n)).collect();
    let config = PeerConfig { send_paths: SendPaths::Best(2), ..client(5, 1) };
    let peer = pipeline.add_peer(config.clone());
    pipeline.peer_up(peer, SessionFacts { identifiers_sent: all, ..facts(5) }).expect("room");
    let mut sinks = [(peer, Sink { identifiers: all, ..Sink::default() })];
    for (n, from) in (1..).zip(&senders) {
        send(&mut pipeline, *from, &[65100 + n], n);
    }
    settle(&mut pipeline, &mut sinks);
    let held = |sink: &Sink| {
        let mut held: Vec<String> = sink.paths.values().map(Held::path).collect();
        held.sort_unstable();
        held
    };
    assert_eq!(held(&sinks[0].1), ["65102", "65103"]);
    pipeline.configure_peer(peer, PeerConfig { export: Some(all_but(3)), ..config });
    settle(&mut pipeline, &mut sinks);
    assert_eq!(held(&sinks[0].1), ["65101", "65102"]);
    pipeline.update(senders[0], &withdrawal(prefix(P))).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!(
        (held(&sinks[0].1), sinks[0].1.idle_withdrawals),
        (vec!["65102".to_owned(), "65104".to_owned()], 0)
    );
}

#[test]
fn who_has_no_view_of_its_own_is_told_as_ever() {
    let mut pipeline = checked(always());
    let (one, two) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let shared = PeerConfig {
        export: Some(all_but(1)),
        paths: PathRules { route_server_client: true, ..PathRules::default() },
        ..ebgp(4)
    };
    let mut sinks = [joins(&mut pipeline, shared, 4), joins(&mut pipeline, client(5, 1), 5)];
    send(&mut pipeline, one, &[65101], 1);
    send(&mut pipeline, two, &[65102, 64001], 2);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(paths(&sinks), [None, some("65102 64001")]);
}

/// More than are put in order.
#[test]
fn however_many_paths_may_not_be_told_the_one_that_may_is_found() {
    let mut pipeline = checked(always());
    let senders: Vec<PeerIndex> = (1..=40).map(|n| up(&mut pipeline, n)).collect();
    let mut sinks = [joins(&mut pipeline, client(50, 1), 50)];
    for (n, from) in (1..).zip(&senders[..39]) {
        send(&mut pipeline, *from, &[65100 + n], 1);
    }
    settle(&mut pipeline, &mut sinks);
    assert_eq!(paths(&sinks), [None]);
    send(&mut pipeline, senders[39], &[65140, 64001], 2);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(paths(&sinks), [some("65140 64001")]);
    pipeline.peer_down(senders[39]);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((paths(&sinks), sinks[0].1.idle_withdrawals), (vec![None], 0));
}

/// The log is cut where another reader stands, at every place within an event: what is left of one says nothing of the
/// paths that are missing.
#[test]
fn a_view_that_has_lost_its_place_keeps_a_route_that_is_there() {
    for read in 0..8 {
        let limits = Limits { log: 12, window: 1, ..Limits::default() };
        let mut pipeline = checked(SpeakerConfig { limits, ..always() });
        let (one, two, three) = (up(&mut pipeline, 1), up(&mut pipeline, 2), up(&mut pipeline, 3));
        let mut sinks = [joins(&mut pipeline, client(4, 1), 4), (one, Sink::default())];
        send(&mut pipeline, one, &[65101, 64001, 64002, 64003], 7);
        send(&mut pipeline, two, &[65102, 64001, 64002], 1);
        send(&mut pipeline, three, &[65103], 1);
        settle(&mut pipeline, &mut sinks);
        assert_eq!(paths(&sinks)[0], some("65101 64001 64002 64003"));
        for n in 0..9 {
            while pipeline.pending(one) {
                pipeline.pull(one);
            }
            send(&mut pipeline, three, &[65103, 64010 + n], 1);
        }
        (0..read).for_each(|_| _ = pipeline.pull(one));
        pipeline.work(10);
        let [(client, sink), _] = &mut sinks;
        assert_eq!(sink.end_of_rib.len(), 2);
        while pipeline.pending(*client) {
            pipeline.pull(*client).iter().for_each(|messages| sink.take(messages));
            assert_eq!(path_at(sink, prefix(P)), some("65101 64001 64002 64003"), "{read}");
        }
    }
}
