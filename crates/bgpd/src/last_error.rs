//! Why a session is not up, in one line.

use holdfast_bgp_session::History;
use holdfast_bgp_wire::{CeaseSubcode, Notification};

/// Why the session is not up, as far as is known: what ended it, or what the last attempt failed with. Of two routers
/// that have told each other why, one often does not answer for a while: then what was told is added.
pub(crate) fn last_error(history: &History) -> String {
    let down = history.last_down.as_ref().map(|(at, _)| *at);
    let Some((failed, event)) = history.last_failed.as_ref().filter(|(at, _)| Some(*at) > down) else {
        return history.last_down.as_ref().map(|(_, reason)| reason.to_string()).unwrap_or_default();
    };
    let collision = Notification::cease(CeaseSubcode::ConnectionCollisionResolution);
    let told = [("sent", &history.last_sent), ("received", &history.last_received)];
    let told = told.into_iter().filter_map(|(how, noted)| Some((how, noted.as_ref()?)));
    let earlier = told
        .filter(|(_, noted)| noted.at < *failed && Some(noted.at) > down && noted.notification != collision);
    match earlier.max_by_key(|(_, noted)| noted.at) {
        Some((how, noted)) => format!("{event}; before that: {how} {}", noted.notification),
        None => event.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use holdfast_bgp_session::{DownReason, Noted, Role, SessionEvent, State};

    use super::*;

    #[test]
    fn the_last_failure_is_told_with_what_was_said_before_it() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let refused = |seconds| Some((at(seconds), SessionEvent::ConnectFailed("connection refused".into())));
        let mut history = History {
            state: State::Active,
            since: start,
            established: 0,
            last_sent: None,
            last_received: None,
            last_down: None,
            last_failed: None,
        };
        assert_eq!(last_error(&history), "");
        history.last_failed = refused(5);
        assert_eq!(last_error(&history), "connecting failed: connection refused");

        let bad_peer_as = Notification::bad_peer_as();
        history.last_sent = Some(Noted { at: at(6), notification: bad_peer_as.clone() });
        let sent = SessionEvent::OpenFailed(Role::Outgoing, DownReason::Sent(bad_peer_as));
        history.last_failed = Some((at(6), sent));
        assert_eq!(
            last_error(&history),
            "outgoing connection failed to come up: sent OPEN Message Error/Bad Peer AS"
        );
        history.last_failed = refused(7);
        assert_eq!(
            last_error(&history),
            "connecting failed: connection refused; before that: sent OPEN Message Error/Bad Peer AS"
        );

        history.last_down = Some((at(8), DownReason::Lost(None)));
        assert_eq!(last_error(&history), "connection closed by the peer");
        history.last_failed = refused(9);
        assert_eq!(
            last_error(&history),
            "connecting failed: connection refused",
            "a session was up in between"
        );
    }
}
