//! Refreshes of what the peer announces (RFC 7313 section 4), and outbound route filters in OPEN (RFC 5291 section 5).

use std::time::Duration;

use holdfast_bgp_session::{Input, Orf, Output, PeerConfig, SessionEvent, State};
use holdfast_bgp_wire::{Capability, Open, OrfCapability};
use holdfast_types::Family;

use crate::tests::session::solo::{ACCEPTED, DIALLED, Solo, config, graceful_open, peer_open, ruled};

const V4: Family = Family::IPV4_UNICAST;
const V6: Family = Family::IPV6_UNICAST;

fn with(mut open: Open, capability: Capability) -> Open {
    open.capabilities.push(capability);
    open
}

fn session(config: PeerConfig, open: &Open) -> Solo {
    let mut solo = Solo::new(config);
    solo.advance_to(State::OpenSent);
    solo.feed_open(DIALLED, open);
    solo.feed_keepalive(DIALLED);
    assert_eq!(solo.peer.state(), State::Established);
    solo
}

fn enhanced() -> Solo {
    session(config(), &with(peer_open(), Capability::EnhancedRouteRefresh))
}

#[test]
fn a_refresh_marks_and_sweeps_and_an_end_without_a_beginning_is_ignored() {
    let mut solo = enhanced();
    assert_eq!(solo.feed(Input::EndRefresh(V4)), []);
    assert_eq!(solo.feed(Input::BeginRefresh(V4)), [Output::MarkStale(V4)]);
    assert_eq!(solo.peer.refreshing().collect::<Vec<_>>(), [V4]);
    assert_eq!(solo.feed(Input::BeginRefresh(V4)), [Output::MarkStale(V4)], "once more from the start");
    assert_eq!(solo.feed(Input::BeginRefresh(V6)), [], "no such family was agreed on");
    assert_eq!(solo.feed(Input::EndRefresh(V4)), [Output::Sweep(V4)]);
    assert_eq!(solo.feed(Input::EndRefresh(V4)), []);
    assert_eq!(solo.peer.refreshing().count(), 0);
}

#[test]
fn without_the_capability_nothing_of_it_is_done() {
    let mut solo = session(config(), &peer_open());
    assert_eq!(solo.feed(Input::BeginRefresh(V4)), []);
    let plain = PeerConfig { capabilities: false, ..config() };
    let mut solo = session(plain, &with(peer_open(), Capability::EnhancedRouteRefresh));
    assert_eq!(solo.feed(Input::BeginRefresh(V4)), [], "we have not offered it");
}

#[test]
fn a_refresh_that_does_not_end_is_not_waited_for_longer_than_for_end_of_rib() {
    let config = PeerConfig { send_hold: Some(Duration::ZERO), ..config() };
    let longest = config.rules.stale_time;
    let mut solo = session(config, &with(peer_open(), Capability::EnhancedRouteRefresh));
    solo.feed(Input::BeginRefresh(V4));
    // The later beginning counts.
    let keep = |solo: &mut Solo, time: Duration| {
        let mut outputs = Vec::new();
        for _ in 0..time.as_secs() {
            outputs.extend(solo.pass(Duration::from_secs(1)));
            outputs.extend(solo.feed_keepalive(DIALLED));
        }
        outputs.retain(|output| !matches!(output, Output::Send(..)));
        outputs
    };
    assert_eq!(keep(&mut solo, longest / 2), []);
    solo.feed(Input::BeginRefresh(V4));
    assert_eq!(keep(&mut solo, longest - Duration::from_secs(1)), []);
    let over = [Output::Log(SessionEvent::RefreshTooLong(V4)), Output::Sweep(V4)];
    assert_eq!(keep(&mut solo, Duration::from_secs(1)), over);
    assert_eq!(solo.feed(Input::EndRefresh(V4)), [], "it is over already");
}

#[test]
fn what_begins_before_end_of_rib_of_a_peer_that_sends_it_is_ignored() {
    let mut solo = session(config(), &with(graceful_open(), Capability::EnhancedRouteRefresh));
    let early = [Output::Log(SessionEvent::RefreshTooEarly(V4))];
    assert_eq!(solo.feed(Input::BeginRefresh(V4)), early);
    assert_eq!(solo.feed(Input::EndRefresh(V4)), []);
    solo.feed(Input::EndOfRib(V4));
    assert_eq!(solo.feed(Input::BeginRefresh(V4)), [Output::MarkStale(V4)]);
    // Another session: what was of this one is forgotten.
    solo.feed(Input::Closed(DIALLED, None));
    assert_eq!(solo.peer.refreshing().count(), 0);
    solo.feed(Input::Start);
    solo.feed(Input::Accepted(ACCEPTED));
    solo.feed_open(ACCEPTED, &with(graceful_open(), Capability::EnhancedRouteRefresh));
    solo.feed_keepalive(ACCEPTED);
    assert_eq!(solo.feed(Input::BeginRefresh(V4)), early);
}

#[test]
fn filters_go_where_one_would_send_them_and_the_other_takes_them() {
    let agreed = |orf, kind, mode| {
        let config = PeerConfig { families: vec![V4, V6], ..ruled(config(), |rules| rules.orf = orf) };
        let entry = OrfCapability { family: V4, kind, mode };
        let open = with(peer_open(), Capability::OutboundRouteFiltering(vec![entry]));
        let open = with(open, Capability::Multiprotocol(V6));
        let solo = session(config, &open);
        let agreed = solo.peer.negotiated().expect("a session");
        (agreed.orf_received.clone(), agreed.orf_sent.clone())
    };
    assert_eq!(agreed(Orf::Both, 64, 3), (vec![V4], vec![V4]));
    assert_eq!(agreed(Orf::Both, 64, 2), (vec![V4], vec![]));
    assert_eq!(agreed(Orf::Both, 64, 1), (vec![], vec![V4]));
    assert_eq!(agreed(Orf::Receive, 64, 3), (vec![V4], vec![]));
    assert_eq!(agreed(Orf::Send, 64, 3), (vec![], vec![V4]));
    assert_eq!(agreed(Orf::Off, 64, 3), (vec![], vec![]));
    assert_eq!(agreed(Orf::Both, 128, 3), (vec![], vec![]), "of another type");
}
