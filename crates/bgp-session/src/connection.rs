//! One transport connection: the states of RFC 4271 section 8.2.2 from Connect on.
//!
//! A function per state answers every event. What concerns the other connection or the peer as a
//! whole (collision, the session, back-off) is returned as a [`Step`] for [`Peer`](crate::Peer).

use std::{
    io,
    time::{Duration, Instant},
};

use holdfast_bgp_wire::{FsmState, KEEPALIVE, MAX_LEN, MessageType, Notification, Open};

use crate::{
    ConnId, DownReason, Negotiated, Output, PeerConfig, Role, State,
    jitter::Jitter,
    negotiation::Offer,
    outbox::Outbox,
    timer::{Timer, TimerTable},
};

/// RFC 4271 section 8.2.2: the "large value" of the hold timer while the peer's OPEN is awaited.
const OPEN_HOLD: Duration = Duration::from_secs(4 * 60);

/// RFC 4271 section 4.4: KEEPALIVEs are at least one second apart.
const MIN_KEEPALIVE: Duration = Duration::from_secs(1);

/// RFC 9687: the send hold time, where twice the hold time is not longer.
const MIN_DEFAULT_SEND_HOLD: Duration = Duration::from_secs(8 * 60);

/// What may happen to a connection.
pub(crate) enum Event<'a> {
    /// Event 16: what we dialled is there.
    Connected,
    /// Event 18: what we dialled could not be had.
    ConnectFailed(&'a str),
    /// Event 18: it ended.
    Lost(Option<io::ErrorKind>),
    /// Events 19, 22 and 24 to 27.
    Message(MessageType, &'a [u8]),
    /// Event 21.
    FramingError(Notification),
    /// Event 28.
    UpdateRefused(Notification),
    /// The transport made progress.
    Sent,
    /// Events 10, 11 and 29.
    Expired(Timer),
}

/// What follows for the peer.
pub(crate) enum Step {
    /// Nothing.
    Stay,
    /// Our OPEN is sent: dialling is over.
    OpenSent,
    /// The message goes to the pipeline.
    Deliver,
    /// The peer's OPEN is acceptable: collision is to be resolved, then [`Connection::confirm`].
    Opened(Negotiated),
    /// The peer confirmed: [`Connection::establish`].
    Confirmed(Negotiated),
    /// Dialling failed.
    ConnectFailed(String),
    /// The connection is to be ended.
    End(DownReason),
}

/// What a connection works with.
pub(crate) struct Context<'a> {
    pub(crate) config: &'a PeerConfig,
    pub(crate) jitter: &'a mut Jitter,
    pub(crate) out: &'a mut Outbox,
    pub(crate) now: Instant,
}

/// The state, with what it knows.
#[derive(Debug)]
pub(crate) enum Phase {
    Connect,
    OpenSent,
    /// OpenSentBfdUpPending of draft-ietf-idr-bgp-bfd-strict-mode section 8.1: both OPENs are good, and our KEEPALIVE
    /// waits for BFD. OpenSentConfirmedBfdUpPending once the peer's KEEPALIVE is there.
    AwaitsBfd {
        negotiated: Negotiated,
        confirmed: bool,
    },
    OpenConfirm(Negotiated),
    Established(Established),
}

/// A session that is up.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) negotiated: Negotiated,
    pub(crate) since: Instant,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) role: Role,
    /// Our OPEN goes without capabilities.
    pub(crate) plain: bool,
    pub(crate) link: Link,
    pub(crate) phase: Phase,
    /// The body of the peer's OPEN, once it is there.
    pub(crate) peer_open: Box<[u8]>,
}

impl Connection {
    fn new(id: ConnId, role: Role, plain: bool) -> Self {
        Self { role, plain, link: Link::new(id), phase: Phase::Connect, peer_open: Box::default() }
    }

    /// Asks for a connection to the peer.
    pub(crate) fn dial(id: ConnId, plain: bool, cx: &mut Context<'_>) -> Self {
        cx.out.push(Output::Connect(id));
        Self::new(id, Role::Outgoing, plain)
    }

    /// Takes a connection of the peer and sends our OPEN.
    pub(crate) fn accept(id: ConnId, plain: bool, cx: &mut Context<'_>) -> Self {
        let mut accepted = Self::new(id, Role::Incoming, plain);
        accepted.link.send_open(plain, cx);
        accepted.phase = Phase::OpenSent;
        accepted
    }

    /// A connection on which the session came up in another process. As if it came up now, the peer gets a KEEPALIVE,
    /// and all timers run anew: silence meanwhile was not its fault, nor is what we did not send.
    pub(crate) fn resume(
        id: ConnId,
        role: Role,
        plain: bool,
        (peer_open, negotiated): (Box<[u8]>, Negotiated),
        since: Instant,
        cx: &mut Context<'_>,
    ) -> Self {
        let mut resumed = Self { peer_open, ..Self::new(id, role, plain) };
        resumed.confirm(negotiated.clone(), cx);
        resumed.establish(negotiated, since, cx);
        resumed
    }

    pub(crate) fn state(&self) -> State {
        match self.phase {
            Phase::Connect => State::Connect,
            Phase::OpenSent | Phase::AwaitsBfd { .. } => State::OpenSent,
            Phase::OpenConfirm(_) => State::OpenConfirm,
            Phase::Established(_) => State::Established,
        }
    }

    /// The session, once it is up.
    pub(crate) fn established(&self) -> Option<&Established> {
        match &self.phase {
            Phase::Established(session) => Some(session),
            Phase::Connect | Phase::OpenSent | Phase::AwaitsBfd { .. } | Phase::OpenConfirm(_) => None,
        }
    }

    pub(crate) fn max_received(&self, config: &PeerConfig) -> usize {
        match &self.phase {
            Phase::Connect => MAX_LEN,
            Phase::OpenSent => Offer::new(config, self.plain).max_received(),
            Phase::AwaitsBfd { negotiated, .. } | Phase::OpenConfirm(negotiated) => negotiated.max_received,
            Phase::Established(session) => session.negotiated.max_received,
        }
    }

    pub(crate) fn handle(&mut self, event: Event<'_>, cx: &mut Context<'_>) -> Step {
        match &mut self.phase {
            Phase::Connect => self.in_connect(event, cx),
            Phase::OpenSent => {
                if let Event::Message(MessageType::Open, body) = event {
                    self.peer_open = body.into();
                }
                in_open_sent(self.plain, event, cx.config)
            }
            Phase::AwaitsBfd { negotiated, confirmed } => {
                awaiting_bfd(&mut self.link, negotiated, confirmed, event, cx)
            }
            Phase::OpenConfirm(negotiated) => in_open_confirm(&mut self.link, negotiated, event, cx),
            Phase::Established(session) => in_established(&mut self.link, &session.negotiated, event, cx),
        }
    }

    fn in_connect(&mut self, event: Event<'_>, cx: &mut Context<'_>) -> Step {
        match event {
            Event::Connected => {
                self.link.send_open(self.plain, cx);
                self.phase = Phase::OpenSent;
                Step::OpenSent
            }
            Event::ConnectFailed(why) => Step::ConnectFailed(why.to_owned()),
            Event::Lost(error) => {
                Step::ConnectFailed(error.unwrap_or(io::ErrorKind::ConnectionReset).to_string())
            }
            // Nothing can come over a connection that is not there, and none of its timers runs.
            Event::Message(..) | Event::FramingError(_) | Event::UpdateRefused(_) => Step::Stay,
            Event::Sent | Event::Expired(_) => Step::Stay,
        }
    }

    /// In OpenSent, the peer's OPEN is there, and BFD is not up. Without a hold time a timer of its own bounds that.
    pub(crate) fn await_bfd(&mut self, negotiated: Negotiated, cx: &mut Context<'_>) {
        self.link.restart_hold(&negotiated, cx);
        if let Some(bfd) = cx.config.bfd.as_ref().filter(|_| negotiated.hold_time.is_zero()) {
            self.link.timers.start(Timer::BfdHold, cx.now, bfd.strict_hold_time);
        }
        self.phase = Phase::AwaitsBfd { negotiated, confirmed: false };
    }

    /// It is waited for no more: what was agreed if the peer has confirmed already, and the session is up.
    pub(crate) fn end_awaiting_bfd(&mut self, cx: &mut Context<'_>) -> Option<Negotiated> {
        let Phase::AwaitsBfd { negotiated, confirmed } = &self.phase else { return None };
        let (negotiated, confirmed) = (negotiated.clone(), *confirmed);
        self.link.timers.stop(Timer::BfdHold);
        // The hold timer has run since the last message of the peer.
        self.link.send_keepalive(&negotiated, cx);
        self.phase = Phase::OpenConfirm(negotiated.clone());
        confirmed.then_some(negotiated)
    }

    pub(crate) fn awaits_bfd(&self) -> bool {
        matches!(self.phase, Phase::AwaitsBfd { .. })
    }

    /// Whether what has come up so far, or is up, ends when BFD fails.
    pub(crate) fn ends_with_bfd(&self) -> bool {
        match &self.phase {
            Phase::Connect | Phase::OpenSent => false,
            Phase::AwaitsBfd { negotiated, .. } | Phase::OpenConfirm(negotiated) => negotiated.bfd_strict,
            Phase::Established(_) => true,
        }
    }

    /// OpenSent to OpenConfirm.
    pub(crate) fn confirm(&mut self, negotiated: Negotiated, cx: &mut Context<'_>) {
        self.link.send_keepalive(&negotiated, cx);
        self.link.restart_hold(&negotiated, cx);
        self.phase = Phase::OpenConfirm(negotiated);
    }

    /// The hold timer of an established session begins anew.
    pub(crate) fn restart_hold(&mut self, cx: &mut Context<'_>) {
        if let Phase::Established(session) = &self.phase {
            self.link.restart_hold(&session.negotiated, cx);
        }
    }

    /// OpenConfirm to Established, where it has been `since` then.
    pub(crate) fn establish(&mut self, negotiated: Negotiated, since: Instant, cx: &mut Context<'_>) {
        self.link.restart_hold(&negotiated, cx);
        self.link.restart_send_hold(&negotiated, cx);
        self.phase = Phase::Established(Established { negotiated, since });
    }
}

fn in_open_sent(plain: bool, event: Event<'_>, config: &PeerConfig) -> Step {
    use MessageType::{KeepAlive, Notification as Notified, Open as Opening, RouteRefresh, Update};
    match event {
        Event::Message(Opening, body) => {
            let answer = Open::parse(body).and_then(|open| Offer::new(config, plain).negotiate(open));
            answer.map_or_else(ends_with, Step::Opened)
        }
        Event::Message(Notified, body) => notified(body),
        Event::Message(kind @ (KeepAlive | Update | RouteRefresh), _) => unexpected(FsmState::OpenSent, kind),
        Event::FramingError(error) => ends_with(error),
        Event::Lost(error) => Step::End(DownReason::Lost(error)),
        Event::ConnectFailed(_) => Step::End(DownReason::Lost(None)),
        Event::Expired(Timer::Hold) => ends_with(Notification::hold_timer_expired()),
        Event::Expired(
            Timer::Keepalive | Timer::SendHold | Timer::BfdHold | Timer::ConnectRetry | Timer::IdleHold,
        ) => Step::Stay,
        Event::Connected | Event::UpdateRefused(_) | Event::Sent => Step::Stay,
    }
}

fn awaiting_bfd(
    link: &mut Link,
    negotiated: &Negotiated,
    confirmed: &mut bool,
    event: Event<'_>,
    cx: &Context<'_>,
) -> Step {
    use MessageType::{KeepAlive, Notification as Notified, Open as Opening, RouteRefresh, Update};
    match event {
        // Section 8.5.6: BFD of the peer came up before ours.
        Event::Message(KeepAlive, _) => {
            link.restart_hold(negotiated, cx);
            *confirmed = true;
            Step::Stay
        }
        Event::Message(Notified, body) => notified(body),
        Event::Message(kind @ (Opening | Update | RouteRefresh), _) => unexpected(FsmState::OpenSent, kind),
        Event::FramingError(error) => ends_with(error),
        Event::Lost(error) => Step::End(DownReason::Lost(error)),
        Event::ConnectFailed(_) => Step::End(DownReason::Lost(None)),
        Event::Expired(Timer::Hold) => ends_with(Notification::hold_timer_expired()),
        Event::Expired(Timer::BfdHold) => Step::End(DownReason::BfdDown),
        Event::Expired(Timer::Keepalive | Timer::SendHold | Timer::ConnectRetry | Timer::IdleHold) => {
            Step::Stay
        }
        Event::Connected | Event::UpdateRefused(_) | Event::Sent => Step::Stay,
    }
}

fn in_open_confirm(link: &mut Link, negotiated: &Negotiated, event: Event<'_>, cx: &mut Context<'_>) -> Step {
    use MessageType::{KeepAlive, Notification as Notified, Open as Opening, RouteRefresh, Update};
    match event {
        Event::Message(KeepAlive, _) => Step::Confirmed(negotiated.clone()),
        Event::Message(Notified, body) => notified(body),
        Event::Message(kind @ (Opening | Update | RouteRefresh), _) => {
            unexpected(FsmState::OpenConfirm, kind)
        }
        Event::FramingError(error) => ends_with(error),
        Event::Lost(error) => Step::End(DownReason::Lost(error)),
        Event::ConnectFailed(_) => Step::End(DownReason::Lost(None)),
        Event::Expired(Timer::Hold) => ends_with(Notification::hold_timer_expired()),
        Event::Expired(Timer::Keepalive) => {
            link.send_keepalive(negotiated, cx);
            Step::Stay
        }
        Event::Expired(Timer::SendHold | Timer::BfdHold | Timer::ConnectRetry | Timer::IdleHold) => {
            Step::Stay
        }
        Event::Connected | Event::UpdateRefused(_) | Event::Sent => Step::Stay,
    }
}

fn in_established(link: &mut Link, negotiated: &Negotiated, event: Event<'_>, cx: &mut Context<'_>) -> Step {
    use MessageType::{KeepAlive, Notification as Notified, Open as Opening, RouteRefresh, Update};
    match event {
        Event::Message(KeepAlive, _) => {
            link.restart_hold(negotiated, cx);
            Step::Stay
        }
        Event::Message(Update | RouteRefresh, _) => {
            link.restart_hold(negotiated, cx);
            Step::Deliver
        }
        Event::Message(Notified, body) => notified(body),
        Event::Message(Opening, _) => unexpected(FsmState::Established, Opening),
        Event::FramingError(error) | Event::UpdateRefused(error) => ends_with(error),
        Event::Lost(error) => Step::End(DownReason::Lost(error)),
        Event::ConnectFailed(_) => Step::End(DownReason::Lost(None)),
        Event::Sent => {
            link.restart_send_hold(negotiated, cx);
            Step::Stay
        }
        Event::Expired(Timer::Hold) => ends_with(Notification::hold_timer_expired()),
        Event::Expired(Timer::SendHold) => ends_with(Notification::send_hold_timer_expired()),
        Event::Expired(Timer::Keepalive) => {
            link.send_keepalive(negotiated, cx);
            Step::Stay
        }
        Event::Expired(Timer::BfdHold | Timer::ConnectRetry | Timer::IdleHold) | Event::Connected => {
            Step::Stay
        }
    }
}

fn ends_with(error: Notification) -> Step {
    Step::End(DownReason::Sent(error))
}

/// Events 24 and 25. RFC 4271 section 8.2.2 would answer event 25 in OpenSent with a NOTIFICATION of
/// our own; section 6.4 knows no answer to one, and neither does any router.
fn notified(body: &[u8]) -> Step {
    let malformed = || Notification { code: 0, subcode: 0, data: body.to_vec() };
    Step::End(DownReason::Received(Notification::parse(body).unwrap_or_else(malformed)))
}

/// RFC 6608 section 4: the data is the type of the message.
fn unexpected(state: FsmState, kind: MessageType) -> Step {
    let error = Notification::fsm_error(state);
    ends_with(Notification { data: vec![kind as u8], ..error })
}

/// The connection as such: its name and its timers.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: ConnId,
    pub(crate) timers: TimerTable,
}

impl Link {
    fn new(id: ConnId) -> Self {
        Self { id, timers: TimerTable::default() }
    }

    fn send_open(&mut self, plain: bool, cx: &mut Context<'_>) {
        let open = Offer::new(cx.config, plain).open();
        cx.out.send(self.id, MessageType::Open, open.encode());
        self.timers.start(Timer::Hold, cx.now, OPEN_HOLD);
    }

    fn send_keepalive(&mut self, negotiated: &Negotiated, cx: &mut Context<'_>) {
        cx.out.send(self.id, MessageType::KeepAlive, KEEPALIVE.to_vec());
        if negotiated.hold_time.is_zero() {
            return self.timers.stop(Timer::Keepalive);
        }
        let after = cx.jitter.apply(negotiated.keepalive).max(MIN_KEEPALIVE);
        self.timers.start(Timer::Keepalive, cx.now, after);
    }

    fn restart_hold(&mut self, negotiated: &Negotiated, cx: &Context<'_>) {
        if negotiated.hold_time.is_zero() {
            return self.timers.stop(Timer::Hold);
        }
        self.timers.start(Timer::Hold, cx.now, negotiated.hold_time);
    }

    /// RFC 9687 section 3.3: without KEEPALIVEs silence means nothing.
    fn restart_send_hold(&mut self, negotiated: &Negotiated, cx: &Context<'_>) {
        let default = MIN_DEFAULT_SEND_HOLD.max(negotiated.hold_time * 2);
        let send_hold = cx.config.send_hold.unwrap_or(default);
        if !negotiated.hold_time.is_zero() && !send_hold.is_zero() {
            self.timers.start(Timer::SendHold, cx.now, send_hold.max(negotiated.hold_time));
        }
    }
}
