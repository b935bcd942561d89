//! A session that goes on in another process.

use std::time::{Duration, Instant};

use holdfast_bgp_session::{
    AddPath, Disposition, Frozen, GracefulRestart, Input, Messages, Orf, Output, Peer, PeerAsn, PeerConfig,
    Role, SendPaths, State, StopReason, ThawError, Timer, Unreadable,
};
use holdfast_bgp_wire::{Capability, KEEPALIVE, MessageType, Open};
use holdfast_types::{Asn, Family};
use proptest::{collection::vec, prelude::*};

use crate::tests::session::{
    invariants::{Judge, Op, any_config, any_op},
    solo::{DIALLED, PEER_ASN, Solo, config, passive, peer_open, ruled},
};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// In Established, with these OPENs.
fn up(config: PeerConfig, open: &Open) -> Solo {
    let mut solo = Solo::new(config);
    solo.advance_to(State::OpenSent);
    solo.feed_open(DIALLED, open);
    solo.feed_keepalive(DIALLED);
    assert_eq!(solo.peer.state(), State::Established);
    solo
}

/// The session by way of its octets.
fn frozen(solo: &Solo) -> Frozen {
    let frozen = solo.peer.freeze(solo.now).expect("a session");
    let read = Frozen::from_bytes(&frozen.to_bytes()).expect("readable");
    assert_eq!(read, frozen);
    read
}

/// In another process, some time later.
fn thawed(solo: &Solo, config: PeerConfig, later: Duration) -> Result<Solo, ThawError> {
    let now = solo.now + later;
    let peer = Peer::thaw(config, frozen(solo), 99, now)?;
    Ok(Solo { peer, now, disposition: solo.disposition })
}

#[test]
fn what_was_counted_after_freezing_is_known_and_replayed_messages_are_not_counted_again() {
    let solo = up(config(), &peer_open());
    let mut frozen = frozen(&solo);
    let before = *solo.peer.counters();
    // The other process sent two more KEEPALIVEs, and took in three UPDATEs; its successor takes two of them in again.
    let mut sent = before.sent.by_type();
    sent[3] += 2;
    let mut received = Messages::default();
    received.add(MessageType::Update, 3);
    frozen.count(sent, &received);
    // Numbers of an older process are no less than none.
    frozen.count([0; 5], &Messages::default());
    let mut peer = Peer::thaw(config(), frozen, 99, solo.now).expect("as agreed");
    while peer.poll_output().is_some() {}
    for _ in 0..2 {
        let replayed = Input::Replayed(DIALLED, MessageType::Update, &[0; 4]);
        assert_eq!(peer.handle(replayed, solo.now), Disposition::Deliver);
    }
    peer.handle(Input::Message(DIALLED, MessageType::Update, &[0; 4]), solo.now);
    let after = *peer.counters();
    let [open, _, notification, keepalives, refreshes] = before.received.by_type();
    assert_eq!(after.received.by_type(), [open, 4, notification, keepalives, refreshes]);
    sent[3] += 1;
    assert_eq!(after.sent.by_type(), sent, "its own KEEPALIVE too");
}

#[test]
fn only_a_session_that_is_up_can_be_frozen() {
    for state in [State::Idle, State::Connect, State::Active, State::OpenSent, State::OpenConfirm] {
        assert_eq!(Solo::in_state(state).peer.freeze(Instant::now()), None, "{state}");
    }
    assert!(Solo::in_state(State::Established).peer.freeze(Instant::now()).is_some());
}

#[test]
fn a_thawed_session_sends_a_keepalive_at_once_and_its_timers_begin_anew() {
    let mut solo = Solo::in_state(State::Established);
    solo.pass(secs(20));
    solo.feed(Input::Message(DIALLED, MessageType::Update, &[0; 4]));
    solo.peer.count_sent(MessageType::Update, 7);
    solo.pass(secs(60));
    let (before, since) = (*solo.peer.counters(), solo.peer.established_since());
    let mut thawed = thawed(&solo, config(), secs(3)).expect("as agreed");
    assert_eq!(
        (thawed.peer.state(), thawed.peer.connection()),
        (State::Established, Some((DIALLED, Role::Outgoing)))
    );
    assert_eq!(thawed.peer.negotiated(), solo.peer.negotiated());
    let mut after = *thawed.peer.counters();
    assert_eq!(after.sent.of(MessageType::KeepAlive), before.sent.of(MessageType::KeepAlive) + 1);
    after.sent = before.sent;
    assert_eq!(after, before, "messages are counted on");
    assert_eq!(thawed.peer.history().established, 1);
    // The time between the two processes is not known to either.
    let later = since.map(|since| since + secs(3));
    assert_eq!((thawed.peer.established_since(), Some(thawed.peer.history().since)), (later, later));
    let deadline = |timer| thawed.peer.deadline(timer).map(|at| at - thawed.now);
    assert_eq!((deadline(Timer::Hold), deadline(Timer::SendHold)), (Some(secs(90)), Some(secs(480))));
    assert!(deadline(Timer::Keepalive).is_some_and(|after| after <= secs(30)));
    assert_eq!((deadline(Timer::ConnectRetry), deadline(Timer::IdleHold)), (None, None));
    let outputs: Vec<Output> = std::iter::from_fn(|| thawed.peer.poll_output()).collect();
    assert_eq!(outputs, [Output::Send(DIALLED, KEEPALIVE.to_vec())]);
}

#[test]
fn a_session_without_a_hold_time_is_thawed_without_timers() {
    let untimed = PeerConfig { hold_time: 0, ..config() };
    let solo = up(untimed.clone(), &peer_open());
    let thawed = thawed(&solo, untimed, secs(1)).expect("as agreed");
    assert_eq!((thawed.peer.state(), thawed.peer.poll_timeout()), (State::Established, None));
}

#[test]
fn a_session_that_would_be_another_under_the_configuration_of_now_is_not_thawed() {
    let configured = PeerConfig {
        families: Family::ALL.to_vec(),
        extended_next_hop: true,
        add_path: AddPath { receive: true, send: None },
        peer_asn: PeerAsn::External,
        ..config()
    };
    let mut open = peer_open();
    open.capabilities.push(Capability::Multiprotocol(Family::IPV6_UNICAST));
    open.capabilities.push(Capability::ExtendedMessage);
    open.capabilities.push(Capability::AddPath(vec![(Family::IPV6_UNICAST, 3)]));
    open.capabilities
        .push(Capability::ExtendedNextHop(vec![(Family::IPV4_UNICAST, Family::IPV6_UNICAST.afi)]));
    let solo = up(configured.clone(), &open);
    let same = [
        configured.clone(),
        // Proposals that come to the same: the peer's hold time is 90 s.
        PeerConfig { hold_time: 180, ..configured.clone() },
        PeerConfig { peer_asn: PeerAsn::Exact(PEER_ASN), ..ruled(configured.clone(), passive) },
    ];
    for same in same {
        assert!(thawed(&solo, same.clone(), secs(1)).is_ok(), "{same:?}");
    }
    let other = [
        PeerConfig { local_asn: Asn(65009), ..configured.clone() },
        PeerConfig { router_id: crate::tests::session::solo::router_id(9), ..configured.clone() },
        PeerConfig { peer_asn: PeerAsn::Internal, ..configured.clone() },
        PeerConfig { hold_time: 30, ..configured.clone() },
        PeerConfig { families: vec![Family::IPV4_UNICAST], ..configured.clone() },
        PeerConfig { extended_message: false, ..configured.clone() },
        PeerConfig { extended_next_hop: false, ..configured.clone() },
        PeerConfig { add_path: AddPath::default(), ..configured.clone() },
        PeerConfig { add_path: AddPath { receive: true, send: Some(SendPaths::All) }, ..configured.clone() },
    ];
    for other in other {
        assert_eq!(thawed(&solo, other.clone(), secs(1)).err(), Some(ThawError::Changed), "{other:?}");
    }
}

#[test]
fn what_our_open_has_said_of_restarts_holds_whatever_is_configured_now() {
    let mode = |graceful_restart| ruled(config(), |rules| rules.graceful_restart = graceful_restart);
    let offers = |solo: &Solo| solo.peer.negotiated().is_some_and(|negotiated| negotiated.offered_retention);
    let solo = up(mode(GracefulRestart::Off), &peer_open());
    let helper =
        thawed(&solo, mode(GracefulRestart::Helper), secs(1)).expect("the peer is asked for nothing");
    assert!(!offers(&helper), "the peer does not know");
    let solo = up(mode(GracefulRestart::Helper), &peer_open());
    assert!(offers(&thawed(&solo, mode(GracefulRestart::Off), secs(1)).expect("it has heard")));
}

#[test]
fn a_session_without_capabilities_stays_so() {
    let plain = PeerConfig { capabilities: false, ..config() };
    let solo = up(plain, &peer_open());
    let thawed = thawed(&solo, config(), secs(1)).expect("our OPEN went without, whatever is configured");
    assert!(thawed.peer.negotiated().is_some_and(|negotiated| !negotiated.four_octet_as));
}

#[test]
fn a_thawed_session_ends_as_any_other() {
    let solo = Solo::in_state(State::Established);
    let mut thawed = thawed(&solo, config(), secs(1)).expect("as agreed");
    assert!(
        thawed
            .feed(Input::Stop(StopReason::OtherConfigChange))
            .iter()
            .any(|o| matches!(o, Output::Down { .. }))
    );
    assert!(matches!(thawed.fire(Timer::IdleHold).as_deref(), Some([Output::Connect(id)]) if *id > DIALLED));
}

#[test]
fn every_truncation_and_another_version_is_refused() {
    let bytes = frozen(&Solo::in_state(State::Established)).to_bytes();
    for len in 0..bytes.len() {
        assert_eq!(Frozen::from_bytes(&bytes[..len]), Err(Unreadable::Malformed), "{len} octets");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(Frozen::from_bytes(&longer), Err(Unreadable::Malformed));
    let newer = [&[3], &bytes[1..]].concat();
    assert_eq!(Frozen::from_bytes(&newer), Err(Unreadable::Version(3)));
}

/// The octets of the form before, of a session without filters.
fn first_form(bytes: &[u8]) -> Vec<u8> {
    const FIXED: usize = 3 + 4 * 4 + 2 + 2 * 8 + 4 + 80;
    let mut at = FIXED;
    for _ in 0..2 {
        at += 1 + 3 * usize::from(bytes[at]);
    }
    assert_eq!(bytes[at..at + 2], [0, 0], "no filters");
    [&[1, bytes[1]], &bytes[3..at], &bytes[at + 2..]].concat()
}

#[test]
fn a_session_of_the_form_before_goes_on_without_what_was_not_offered_then() {
    let mut solo = Solo::new(config());
    solo.advance_to(State::OpenSent);
    let mut open = peer_open();
    open.capabilities.push(Capability::EnhancedRouteRefresh);
    solo.feed_open(DIALLED, &open);
    solo.feed_keepalive(DIALLED);
    assert!(solo.peer.negotiated().is_some_and(|agreed| agreed.enhanced_refresh));
    let bytes = frozen(&solo).to_bytes();
    let read = |bytes: &[u8]| Frozen::from_bytes(bytes).expect("readable");
    let thaw = |frozen, config| Peer::thaw(config, frozen, 1, solo.now);
    let enhanced = |peer: Peer| peer.negotiated().map(|agreed| agreed.enhanced_refresh);
    assert_eq!(thaw(read(&bytes), config()).ok().and_then(enhanced), Some(true));
    let before = first_form(&bytes);
    assert_eq!(thaw(read(&before), config()).ok().and_then(enhanced), Some(false));
    for len in 0..before.len() {
        assert_eq!(Frozen::from_bytes(&before[..len]), Err(Unreadable::Malformed), "{len} octets");
    }
    // The peer has not agreed on filters with that OPEN, so they change nothing.
    assert!(thaw(read(&before), ruled(config(), |rules| rules.orf = Orf::Receive)).is_ok());
}

/// Not those that let time pass, which is counted anew.
fn is_timeless(op: &Op) -> bool {
    !matches!(op, Op::Timeout | Op::Pass(_) | Op::Next)
}

proptest! {
    #![proptest_config(holdfast_testing::cases(1000))]

    #[test]
    fn from_any_moment_on_a_thawed_session_does_what_the_frozen_one_would_have_done(
        config in any_config(),
        before in vec(any_op(), 0..40),
        within in vec(any_op(), 0..6),
        after in vec(any_op().prop_filter("time", is_timeless), 0..40),
        later in vec(any_op(), 0..40),
    ) {
        let mut original = Judge::new(config.clone());
        before.into_iter().for_each(|op| original.apply(op));
        original.comes_up();
        within.into_iter().for_each(|op| original.apply(op));
        if original.up.is_none() {
            original.comes_up();
        }
        // A connection that is not the session's dies with the process.
        for id in original.known.keys().copied().filter(|id| Some(*id) != original.up).collect::<Vec<_>>() {
            original.closed(id);
        }
        let mut thawed = Judge {
            solo: thawed(&original.solo, config.clone(), Duration::ZERO).expect("as agreed"),
            known: original.known.clone(),
            up: original.up,
            sessions: original.sessions,
            next_accepted: original.next_accepted,
            said: Vec::new(),
        };
        let keepalive = thawed.solo.peer.poll_output();
        prop_assert_eq!(keepalive, original.up.map(|id| Output::Send(id, KEEPALIVE.to_vec())));
        prop_assert_eq!(thawed.solo.peer.poll_output(), None);
        thawed.check();
        // The driver knows what BFD has said.
        thawed.apply(Op::Bfd(original.solo.peer.bfd()));
        prop_assert_eq!(&thawed.said, &[]);
        original.said.clear();
        for op in after {
            original.apply(op.clone());
            thawed.apply(op);
        }
        prop_assert_eq!(&original.said, &thawed.said);
        prop_assert_eq!(original.solo.peer.failures(), thawed.solo.peer.failures());
        prop_assert_eq!(original.solo.peer.counters().received, thawed.solo.peer.counters().received);
        later.into_iter().for_each(|op| thawed.apply(op));
        thawed.comes_up();
    }

    #[test]
    fn no_octets_make_it_stumble(bytes in vec(any::<u8>(), 0..300), places in vec((any::<u16>(), any::<u8>()), 0..8)) {
        let _ = Frozen::from_bytes(&bytes);
        let mut near = frozen(&Solo::in_state(State::Established)).to_bytes();
        for (at, value) in places {
            let at = usize::from(at) % near.len();
            near[at] = value;
        }
        if let Ok(read) = Frozen::from_bytes(&near) {
            // An earlier form is not written any more.
            prop_assert!(near[0] == 1 || read.to_bytes() == near);
            let _ = Peer::thaw(config(), read, 1, Instant::now());
        }
    }
}
