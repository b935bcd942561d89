//! One peer, fed by hand.

use std::time::{Duration, Instant};

use holdfast_bgp_session::{
    ConnId, Disposition, GracefulRestart, Input, Output, Peer, PeerAsn, PeerBfd, PeerConfig, SessionRules,
    State, Timer,
};
use holdfast_bgp_wire::{
    Capability, GracefulFamily, HEADER_LEN, MAX_LEN, MessageType, Notification, Open, next_message,
};
use holdfast_types::{Asn, Family, RouterId};

/// The first connection we dial.
pub(crate) const DIALLED: ConnId = ConnId::FIRST_DIALLED;
/// A connection of the peer.
pub(crate) const ACCEPTED: ConnId = ConnId(1);

pub(crate) const OUR_ASN: Asn = Asn(65001);
pub(crate) const PEER_ASN: Asn = Asn(65002);

pub(crate) fn router_id(bits: u32) -> RouterId {
    RouterId::new(bits).expect("not zero")
}

/// AS 65001, router 0.0.0.1, for a peer of AS 65002.
pub(crate) fn config() -> PeerConfig {
    config_of(OUR_ASN, 1, PEER_ASN)
}

/// A router that does nothing about restarts.
pub(crate) fn config_of(asn: Asn, router: u32, peer: Asn) -> PeerConfig {
    let config = PeerConfig::new(asn, router_id(router), PeerAsn::Exact(peer));
    ruled(config, |rules| rules.graceful_restart = GracefulRestart::Off)
}

/// The same with other rules.
pub(crate) fn ruled(mut config: PeerConfig, rule: impl FnOnce(&mut SessionRules)) -> PeerConfig {
    rule(&mut config.rules);
    config
}

pub(crate) fn passive(rules: &mut SessionRules) {
    rules.passive = true;
}

/// What the peer's OPEN says: AS 65002, router 0.0.0.2, IPv4 unicast.
pub(crate) fn peer_open() -> Open {
    let capabilities =
        vec![Capability::Multiprotocol(Family::IPV4_UNICAST), Capability::FourOctetAs(PEER_ASN)];
    Open { asn: PEER_ASN, hold_time: 90, router_id: router_id(2), capabilities }
}

/// As [`peer_open`], of a peer that can restart gracefully.
pub(crate) fn graceful_open() -> Open {
    let mut open = peer_open();
    open.capabilities.push(Capability::GracefulRestart {
        restarting: false,
        notification: false,
        time: 120,
        families: vec![GracefulFamily { family: Family::IPV4_UNICAST, forwarding: true }],
    });
    open
}

/// The same with BFD, which the session has to wait for.
pub(crate) fn strict(config: PeerConfig) -> PeerConfig {
    PeerConfig { bfd: Some(PeerBfd { strict: true, ..PeerBfd::default() }), ..config }
}

/// As [`peer_open`], of a peer that waits for BFD, too.
pub(crate) fn strict_open() -> Open {
    let mut open = peer_open();
    open.capabilities.push(Capability::BfdStrictMode);
    open
}

pub(crate) struct Solo {
    pub(crate) peer: Peer,
    pub(crate) now: Instant,
    pub(crate) disposition: Disposition,
}

impl Solo {
    pub(crate) fn new(config: PeerConfig) -> Self {
        let now = Instant::now();
        Self { peer: Peer::new(config, 1, now), now, disposition: Disposition::Done }
    }

    /// A peer in this state, on [`DIALLED`] where there is a connection; in Active as a passive one is.
    pub(crate) fn in_state(state: State) -> Self {
        let mut solo = Self::new(ruled(config(), |rules| rules.passive = state == State::Active));
        solo.advance_to(state);
        solo
    }

    /// A peer in Idle after a failure.
    pub(crate) fn held() -> Self {
        let mut solo = Self::in_state(State::OpenConfirm);
        solo.feed(Input::Closed(DIALLED, None));
        assert_eq!(solo.peer.state(), State::Idle);
        solo
    }

    /// A peer in OpenSent, with both OPENs exchanged, that waits for BFD.
    pub(crate) fn awaiting_bfd() -> Self {
        let mut solo = Self::new(strict(config()));
        solo.advance_to(State::OpenSent);
        solo.feed_open(DIALLED, &strict_open());
        assert!(solo.peer.state() == State::OpenSent && solo.peer.awaits_bfd());
        solo
    }

    /// Another configuration of BFD.
    pub(crate) fn change_bfd(&mut self, bfd: Option<PeerBfd>) -> Vec<Output> {
        self.peer.change_bfd(bfd, self.now);
        self.disposition = Disposition::Done;
        std::iter::from_fn(|| self.peer.poll_output()).collect()
    }

    pub(crate) fn advance_to(&mut self, state: State) {
        if state >= State::Connect {
            self.feed(Input::Start);
        }
        if state >= State::OpenSent {
            self.feed(Input::Connected(DIALLED));
        }
        if state >= State::OpenConfirm {
            self.feed_open(DIALLED, &peer_open());
        }
        if state >= State::Established {
            self.feed(Input::Message(DIALLED, MessageType::KeepAlive, &[]));
        }
        assert_eq!(self.peer.state(), state);
    }

    pub(crate) fn feed(&mut self, input: Input<'_>) -> Vec<Output> {
        self.disposition = self.peer.handle(input, self.now);
        std::iter::from_fn(|| self.peer.poll_output()).collect()
    }

    pub(crate) fn feed_open(&mut self, id: ConnId, open: &Open) -> Vec<Output> {
        self.feed(Input::Message(id, MessageType::Open, &open.encode()[HEADER_LEN..]))
    }

    pub(crate) fn feed_notification(&mut self, id: ConnId, notification: &Notification) -> Vec<Output> {
        self.feed(Input::Message(id, MessageType::Notification, &notification.encode()[HEADER_LEN..]))
    }

    pub(crate) fn feed_keepalive(&mut self, id: ConnId) -> Vec<Output> {
        self.feed(Input::Message(id, MessageType::KeepAlive, &[]))
    }

    /// Lets time pass until a timer is due, and says so; `None` if it does not run.
    pub(crate) fn fire(&mut self, timer: Timer) -> Option<Vec<Output>> {
        self.now = self.now.max(self.peer.deadline(timer)?);
        Some(self.feed(Input::Timeout))
    }

    /// Lets time pass, each timer at its time.
    pub(crate) fn pass(&mut self, time: Duration) -> Vec<Output> {
        let (until, mut outputs) = (self.now + time, Vec::new());
        while let Some(at) = self.peer.poll_timeout().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            outputs.extend(self.feed(Input::Timeout));
        }
        self.now = until;
        outputs
    }
}

/// The message, if the output sends one.
pub(crate) fn sent(output: &Output) -> Option<(ConnId, MessageType, &[u8])> {
    let Output::Send(id, wire) = output else { return None };
    let message = next_message(wire, MAX_LEN).expect("a sound header").expect("a whole message");
    assert_eq!(message.wire.len(), wire.len(), "one message in one output");
    Some((*id, message.kind, message.body))
}

/// The OPEN among the outputs.
pub(crate) fn sent_open(outputs: &[Output]) -> Open {
    let of_type =
        |(_, kind, body)| (kind == MessageType::Open).then(|| Open::parse(body).expect("a good OPEN"));
    outputs.iter().filter_map(sent).find_map(of_type).expect("an OPEN")
}

/// The NOTIFICATION among the outputs, which must be followed by the close of its connection.
pub(crate) fn sent_notification(outputs: &[Output]) -> Notification {
    let position = outputs.iter().position(|o| matches!(sent(o), Some((_, MessageType::Notification, _))));
    let position = position.expect("a NOTIFICATION");
    let (id, _, body) = sent(&outputs[position]).expect("a message");
    assert_eq!(outputs.get(position + 1), Some(&Output::Close(id)), "a NOTIFICATION is the last word");
    Notification::parse(body).expect("a NOTIFICATION")
}
