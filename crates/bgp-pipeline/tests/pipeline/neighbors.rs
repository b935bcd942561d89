//! The routes of one peer, as they are shown.

use holdfast_bgp_pipeline::{
    NeighborView, PathState, PathView, PeerConfig, PeerIndex, Pipeline, SessionFacts, Step, Withheld,
};
use holdfast_bgp_wire::{
    HEADER_LEN, MAX_EXTENDED_LEN, MAX_LEN, Origin, UpdateEncoder, attributes::community,
    edit::AttributesBuilder,
};
use holdfast_types::{Family, Ipv4Prefix, Prefix};

use crate::tests::pipeline::{
    behaviour::{always, attributes, up},
    speaker::{Sink, address, announcement, checked, ebgp, facts, ibgp, prefix, settle},
};

const LIMIT: usize = 2;

/// All pages, joined.
fn shown(pipeline: &mut Pipeline, peer: PeerIndex, view: NeighborView) -> Vec<(Prefix, PathView)> {
    let (mut routes, mut after) = (Vec::new(), None);
    let Some(session) = pipeline.shown_session(peer, view) else { return routes };
    loop {
        let page = pipeline.neighbor_routes(session, view, Family::IPV4_UNICAST, after, LIMIT);
        let page = page.expect("the session goes on");
        routes.extend(page.routes);
        after = page.next;
        if after.is_none() {
            return routes;
        }
    }
}

#[test]
fn what_is_shown_as_told_is_what_was_sent() {
    let mut pipeline = checked(always());
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let prefixes = ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"].map(prefix);
    pipeline.update(from, &announcement(&attributes(1, &[]), &prefixes)).expect("taken");
    let secret = prefix("10.0.0.0/8");
    let hidden = attributes(1, &[community::NO_ADVERTISE]);
    pipeline.update(from, &announcement(&hidden, &[secret])).expect("taken");
    let mut sinks = [(to, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    let told = shown(&mut pipeline, to, NeighborView::Advertised);
    assert_eq!(told.len(), sinks[0].1.routes.len());
    for (prefix, view) in &told {
        let sent = &sinks[0].1.routes[prefix];
        assert_eq!(
            (&view.bytes, view.next_hop.map(|hop| hop.address)),
            (&sent.attributes, Some(sent.next_hop))
        );
    }
    let kept = shown(&mut pipeline, to, NeighborView::Withheld);
    assert_eq!(kept[0].0, secret);
    assert_eq!(kept[0].1.state, PathState::Withheld(Withheld::Community));
    let own = shown(&mut pipeline, from, NeighborView::Withheld);
    assert!(
        own.len() == 4 && own.iter().all(|(_, view)| view.state == PathState::Withheld(Withheld::Sender))
    );
}

#[test]
fn what_was_received_is_shown_as_it_came_with_what_became_of_it() {
    let mut pipeline = checked(always());
    let silent = pipeline.add_peer(PeerConfig { import: None, ..ebgp(1) });
    pipeline.peer_up(silent, facts(1)).expect("room");
    let open = up(&mut pipeline, 2);
    for (peer, n) in [(silent, 1), (open, 2)] {
        pipeline.update(peer, &announcement(&attributes(n, &[]), &[prefix("192.0.2.0/24")])).expect("taken");
    }
    pipeline.update(open, &announcement(&attributes(2, &[]), &[prefix("198.51.100.0/24")])).expect("taken");
    assert!(shown(&mut pipeline, silent, NeighborView::Accepted).is_empty());
    let refused = shown(&mut pipeline, silent, NeighborView::Filtered);
    assert_eq!((refused.len(), &refused[0].1.state), (1, &PathState::NoPolicy));
    assert_eq!(shown(&mut pipeline, silent, NeighborView::Received).len(), 1);
    assert_eq!(shown(&mut pipeline, open, NeighborView::Accepted).len(), 2);
    assert!(shown(&mut pipeline, open, NeighborView::Filtered).is_empty());
    pipeline.peer_down(open);
    assert!(shown(&mut pipeline, open, NeighborView::Received).is_empty(), "the session is down");
}

#[test]
fn why_a_route_is_kept_back_is_said() {
    let mut pipeline = checked(always());
    let inside = pipeline.add_peer(ibgp(1));
    pipeline.peer_up(inside, facts(1)).expect("room");
    let other = pipeline.add_peer(ibgp(2));
    pipeline.peer_up(other, facts(2)).expect("room");
    let silent = pipeline.add_peer(PeerConfig { export: None, ..ebgp(3) });
    pipeline.peer_up(silent, facts(3)).expect("room");
    let internal = AttributesBuilder { local_pref: Some(100), ..AttributesBuilder::new(Origin::Igp) };
    let internal = AttributesBuilder { next_hop: Some(address(9)), ..internal }.build();
    pipeline.update(inside, &announcement(&internal, &[prefix("192.0.2.0/24")])).expect("taken");
    let why = |pipeline: &mut Pipeline, peer| {
        let shown = shown(pipeline, peer, NeighborView::Withheld);
        shown.into_iter().map(|(_, view)| view.state).collect::<Vec<_>>()
    };
    assert_eq!(why(&mut pipeline, other), [PathState::Withheld(Withheld::Internal)]);
    assert_eq!(why(&mut pipeline, silent), [PathState::Withheld(Withheld::NoPolicy)]);
}

#[test]
fn a_page_does_not_go_on_with_another_session() {
    let mut pipeline = checked(always());
    let peer = up(&mut pipeline, 1);
    let prefixes = ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"].map(prefix);
    pipeline.update(peer, &announcement(&attributes(1, &[]), &prefixes)).expect("taken");
    let received = NeighborView::Received;
    let session = pipeline.shown_session(peer, received).expect("it is up");
    let page = |pipeline: &mut Pipeline, after| {
        pipeline.neighbor_routes(session, received, Family::IPV4_UNICAST, after, LIMIT)
    };
    let first = page(&mut pipeline, None).expect("it is up");
    assert!(first.routes.len() == 2 && first.next.is_some());
    pipeline.peer_down(peer);
    assert_eq!(page(&mut pipeline, first.next), None, "it has ended");
    // Swept, buried: its number is free again, and so is the peer's.
    settle(&mut pipeline, &mut []);
    pipeline.remove_peer(peer);
    let other = up(&mut pipeline, 2);
    assert_eq!(other, peer);
    assert_eq!(page(&mut pipeline, first.next), None, "that is another peer");
}

#[test]
fn a_page_ends_early_where_many_have_sent_the_same() {
    let mut pipeline = checked(always());
    let prefixes = ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"].map(prefix);
    // The last peer has the highest router id.
    let peers: Vec<_> = (1..=40).map(|n| up(&mut pipeline, n)).collect();
    for (peer, n) in peers.iter().zip(1..) {
        pipeline.update(*peer, &announcement(&attributes(n, &[]), &prefixes)).expect("taken");
    }
    let (first, last) = (peers[0], peers[39]);
    let page = |pipeline: &mut Pipeline, peer, view| {
        let session = pipeline.shown_session(peer, view).expect("it is up");
        let page = pipeline.neighbor_routes(session, view, Family::IPV4_UNICAST, None, LIMIT);
        page.expect("it is up").routes.len()
    };
    assert_eq!(page(&mut pipeline, first, NeighborView::Accepted), 2, "the best is known to be the best");
    assert_eq!(page(&mut pipeline, last, NeighborView::Accepted), 1);
    assert_eq!(page(&mut pipeline, last, NeighborView::Advertised), 2, "no other path is looked at");
    let lost = shown(&mut pipeline, last, NeighborView::Accepted);
    assert_eq!(lost.len(), 3);
    assert!(lost.iter().all(|(_, view)| view.state == PathState::Lost(Step::RouterId)), "{lost:?}");
    assert_eq!(pipeline.routes(Family::IPV4_UNICAST, None, LIMIT).len(), 1);
}

/// A message is filled to its last octet: of routes with the same attributes, those with shorter prefixes are announced where the
/// longer ones have no room.
#[test]
fn of_routes_with_long_attributes_those_are_announced_that_have_room() {
    let mut pipeline = checked(always());
    let from = pipeline.add_peer(ebgp(1));
    pipeline.peer_up(from, SessionFacts { max_message_len: MAX_EXTENDED_LEN, ..facts(1) }).expect("room");
    let to = up(&mut pipeline, 2);
    let mut sinks = [(to, Sink::default())];
    let prefixes = ["10.0.0.0/8", "192.0.2.0/24", "198.51.100.1/32"];
    let mut announce = |pipeline: &mut Pipeline, unknown: usize| {
        let mut attributes = attributes(1, &[]);
        // Optional, transitive, partial, of extended length.
        attributes.extend_from_slice(&[0xf0, 200]);
        attributes.extend_from_slice(&(unknown as u16).to_be_bytes());
        attributes.resize(attributes.len() + unknown, 7);
        let mut update = Vec::new();
        let prefixes = prefixes.map(|text| text.parse::<Ipv4Prefix>().expect("a prefix"));
        let sent = UpdateEncoder::new(MAX_EXTENDED_LEN).announce(&attributes, prefixes, &mut update);
        assert_eq!(sent, Ok(1));
        pipeline.update(from, &update.split_off(HEADER_LEN)).expect("taken");
        settle(pipeline, &mut sinks);
        let told: Vec<_> = shown(pipeline, to, NeighborView::Advertised);
        let mut told_prefixes: Vec<_> = told.iter().map(|(prefix, _)| *prefix).collect();
        told_prefixes.sort();
        let routes = &sinks[0].1.routes;
        assert_eq!(told_prefixes, routes.keys().copied().collect::<Vec<_>>(), "what is shown was sent");
        assert_eq!(shown(pipeline, to, NeighborView::Withheld).len(), prefixes.len() - told.len());
        assert_eq!(pipeline.counts(to, Family::IPV4_UNICAST).announced, told.len() as u64);
        (told.len(), told.first().map_or(0, |(_, view)| view.bytes.len()))
    };
    let (all, octets) = announce(&mut pipeline, 300);
    assert_eq!(all, 3);
    let others = octets - 300;
    // 2, 4 and 5 octets of prefixes.
    for (room, expected) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 3), (1, 0), (4, 2)] {
        let (told, _) = announce(&mut pipeline, MAX_LEN - 23 - room - others);
        assert_eq!(told, expected, "room for {room} octets");
        pipeline.route_refresh(to, Family::IPV4_UNICAST);
        assert_eq!(announce(&mut pipeline, MAX_LEN - 23 - room - others).0, expected, "and after a refresh");
    }
}

#[test]
fn what_fits_no_message_is_withheld_and_says_so() {
    let mut pipeline = checked(always());
    let from = pipeline.add_peer(ebgp(1));
    pipeline.peer_up(from, SessionFacts { max_message_len: MAX_EXTENDED_LEN, ..facts(1) }).expect("room");
    let to = up(&mut pipeline, 2);
    let long: Vec<u32> = (0..1100).collect();
    let mut update = Vec::new();
    let sent = UpdateEncoder::new(MAX_EXTENDED_LEN).announce(
        &attributes(1, &long),
        ["192.0.2.0/24".parse::<Ipv4Prefix>().expect("a prefix")],
        &mut update,
    );
    assert_eq!(sent, Ok(1));
    pipeline.update(from, &update.split_off(HEADER_LEN)).expect("taken");
    let mut sinks = [(to, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    assert!(sinks[0].1.routes.is_empty() && pipeline.too_long() == 1);
    assert!(shown(&mut pipeline, to, NeighborView::Advertised).is_empty());
    let kept = shown(&mut pipeline, to, NeighborView::Withheld);
    assert_eq!((kept.len(), &kept[0].1.state), (1, &PathState::Withheld(Withheld::TooLong)));
    let counted = |pipeline: &mut Pipeline| {
        let sent = pipeline.sent_to(prefix("192.0.2.0/24")).len();
        (sent, pipeline.counts(to, Family::IPV4_UNICAST).announced)
    };
    assert_eq!(counted(&mut pipeline), (0, 0));
    // Again, as the next process would be told, and in its place one that fits.
    pipeline.route_refresh(to, Family::IPV4_UNICAST);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(counted(&mut pipeline), (0, 0));
    let short = announcement(&attributes(1, &[7]), &[prefix("192.0.2.0/24")]);
    pipeline.update(from, &short).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!((counted(&mut pipeline), sinks[0].1.routes.len()), ((1, 1), 1));
}
