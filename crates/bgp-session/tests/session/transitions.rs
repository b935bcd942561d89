//! The whole machine as a table: each state, each event, what follows. `transitions.txt` is to be read
//! beside RFC 4271 section 8.2.2; the notes at its end say where we differ.

use std::{fmt::Write, io, time::Duration};

use holdfast_bgp_session::{Bfd, Disposition, Input, Output, PeerBfd, State, StopReason, Timer};
use holdfast_bgp_wire::{MessageType, Notification, Open};

use crate::tests::session::solo::{ACCEPTED, DIALLED, Solo, peer_open, router_id, sent};

/// A peer in some state.
type Setup = fn() -> Solo;

/// Idle is in the table twice: stopped, and held after a failure.
const STATES: [(&str, Setup); 9] = [
    ("Idle", || Solo::in_state(State::Idle)),
    ("Idle (held)", Solo::held),
    ("Connect", || Solo::in_state(State::Connect)),
    ("Active", || Solo::in_state(State::Active)),
    ("OpenSent", || Solo::in_state(State::OpenSent)),
    ("BfdPending", Solo::awaiting_bfd),
    ("BfdConfirm", || {
        let mut solo = Solo::awaiting_bfd();
        solo.feed_keepalive(DIALLED);
        solo
    }),
    ("OpenConfirm", || Solo::in_state(State::OpenConfirm)),
    ("Established", || Solo::in_state(State::Established)),
];

/// What happens to a peer; `None` if it cannot, because the timer does not run.
type Event = fn(&mut Solo) -> Option<Vec<Output>>;

/// The events of RFC 4271 section 8.1, RFC 9687 and draft-ietf-idr-bgp-bfd-strict-mode section 4 with their numbers.
const EVENTS: [(&str, Event); 28] = [
    ("1 ManualStart", |s| Some(s.feed(Input::Start))),
    ("2 ManualStop", |s| Some(s.feed(Input::Stop(StopReason::AdminShutdown(String::new()))))),
    ("8 AutomaticStop", |s| Some(s.feed(Input::Stop(StopReason::OutOfResources)))),
    ("9 ConnectRetryTimer_Expires", |s| s.fire(Timer::ConnectRetry)),
    ("10 HoldTimer_Expires", |s| s.fire(Timer::Hold)),
    ("11 KeepaliveTimer_Expires", |s| s.fire(Timer::Keepalive)),
    ("13 IdleHoldTimer_Expires", |s| s.fire(Timer::IdleHold)),
    ("16 Tcp_CR_Acked", |s| Some(s.feed(Input::Connected(DIALLED)))),
    ("17 TcpConnectionConfirmed", |s| Some(s.feed(Input::Accepted(ACCEPTED)))),
    ("18 TcpConnectionFails", |s| Some(s.feed(Input::Closed(DIALLED, Some(io::ErrorKind::ConnectionReset))))),
    ("19 BGPOpen", |s| Some(s.feed_open(DIALLED, &peer_open()))),
    ("21 BGPHeaderErr", |s| Some(s.feed(Input::FramingError(DIALLED, Notification::bad_message_type(9))))),
    ("22 BGPOpenMsgErr", |s| Some(s.feed(Input::Message(DIALLED, MessageType::Open, &[3; 10])))),
    ("23 OpenCollisionDump", open_on_the_peers_connection),
    ("24 NotifMsgVerErr", |s| {
        Some(s.feed_notification(DIALLED, &Notification::unsupported_version_number()))
    }),
    ("25 NotifMsg", |s| Some(s.feed_notification(DIALLED, &Notification::hold_timer_expired()))),
    ("26 KeepAliveMsg", |s| Some(s.feed_keepalive(DIALLED))),
    ("27 UpdateMsg", |s| Some(s.feed(Input::Message(DIALLED, MessageType::Update, &[0; 4])))),
    ("28 UpdateMsgErr", |s| {
        let error = Notification { code: 3, subcode: 1, data: Vec::new() };
        Some(s.feed(Input::UpdateRefused(DIALLED, error)))
    }),
    ("29 SendHoldTimer_Expires", nothing_can_be_sent),
    ("30 BfdAdminDown", |s| Some(s.feed(Input::Bfd(Bfd::AdminDown)))),
    ("31 BfdDown", bfd_fails),
    ("32 BfdUp", |s| Some(s.feed(Input::Bfd(Bfd::Up)))),
    ("33 BfdDisabled", |s| Some(s.change_bfd(None))),
    ("34 BfdHoldTimerExpires", |s| s.fire(Timer::BfdHold)),
    ("35 BfdStrictConfigChanged", |s| {
        let was_strict = s.peer.config().bfd.as_ref().is_some_and(|bfd| bfd.strict);
        Some(s.change_bfd(Some(PeerBfd { strict: !was_strict, ..PeerBfd::default() })))
    }),
    ("- a sign of life", |s| Some(s.feed(Input::Heard))),
    ("- ROUTE-REFRESH", |s| Some(s.feed(Input::Message(DIALLED, MessageType::RouteRefresh, &[0, 1, 0, 1])))),
];

/// The peer has the higher BGP Identifier, so its connection is the one to be preserved.
fn open_on_the_peers_connection(solo: &mut Solo) -> Option<Vec<Output>> {
    solo.feed(Input::Accepted(ACCEPTED));
    Some(solo.feed_open(ACCEPTED, &Open { router_id: router_id(9), ..peer_open() }))
}

/// It was up before, unless that is what is waited for.
fn bfd_fails(solo: &mut Solo) -> Option<Vec<Output>> {
    if !solo.peer.awaits_bfd() {
        solo.feed(Input::Bfd(Bfd::Up));
    }
    Some(solo.feed(Input::Bfd(Bfd::Down { independent: true })))
}

/// The peer lives, but takes nothing.
fn nothing_can_be_sent(solo: &mut Solo) -> Option<Vec<Output>> {
    let deadline = solo.peer.deadline(Timer::SendHold)?;
    while solo.now + Duration::from_secs(20) < deadline {
        solo.pass(Duration::from_secs(20));
        solo.feed_keepalive(DIALLED);
    }
    solo.fire(Timer::SendHold)
}

/// One output in a word or two.
fn word(output: &Output) -> Option<String> {
    let connection = |id: &_| if *id == ACCEPTED { " the peer's" } else { "" };
    Some(match output {
        Output::Connect(_) => "dial".into(),
        Output::Close(id) => format!("close{}", connection(id)),
        Output::Send(id, _) => {
            let (_, kind, body) = sent(output)?;
            let what = match kind {
                MessageType::Notification => format!("NOTIFICATION {}/{}", body[0], body[1]),
                MessageType::Open => "OPEN".into(),
                MessageType::KeepAlive => "KEEPALIVE".into(),
                MessageType::Update | MessageType::RouteRefresh => unreachable!("the session sends none"),
            };
            format!("{what}{}", connection(id).replace("the peer's", "on the peer's"))
        }
        Output::Established(..) => "up".into(),
        Output::Down { .. } => "down".into(),
        Output::LongLived(_) => "long-lived".into(),
        Output::Forget(_) => "forget".into(),
        Output::MarkStale(_) => "mark stale".into(),
        Output::Sweep(_) => "sweep".into(),
        Output::Log(_) => return None,
    })
}

fn row(state: &str, mut solo: Solo, name: &str, event: Event) -> String {
    let Some(outputs) = event(&mut solo) else {
        return format!("{state:<11}  {name:<27}  not running");
    };
    let mut words: Vec<String> = outputs.iter().filter_map(word).collect();
    if solo.disposition == Disposition::Deliver {
        words.push("to the pipeline".into());
    }
    let failures = solo.peer.failures();
    if failures > 0 {
        words.push(format!("counter {failures}"));
    }
    let row = format!("{state:<11}  {name:<27}  {:<11}  {}", solo.peer.state(), words.join(", "));
    row.trim_end().to_owned()
}

#[test]
fn every_state_answers_every_event_as_the_table_says() {
    let mut table = String::new();
    for (state, solo) in STATES {
        for (name, event) in EVENTS {
            writeln!(table, "{}", row(state, solo(), name, event)).expect("a string takes all");
        }
        table.push('\n');
    }
    let expected = include_str!("transitions.txt");
    let expected = expected.split_once("\n\n").expect("a heading").1;
    let expected = expected.split_once("Differences").expect("notes").0;
    for (ours, theirs) in table.lines().zip(expected.lines()) {
        assert_eq!(ours, theirs, "\nthe whole table is now:\n{table}");
    }
    assert_eq!(table, expected);
}
