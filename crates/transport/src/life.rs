//! Signs of life of the other end, whichever library carries the connection.

use std::time::Duration;

/// Over a connection on which nothing is said, something is sent so often: an end that has forgotten it answers with a
/// reset (RFC 9000 section 10.3), to what it hears and to nothing else.
const MOST_SILENCE: Duration = Duration::from_secs(5);
/// How long the other end may take to answer. It is not dead because it is busy.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);
/// Nobody waits for longer.
const MOST_PATIENCE: Duration = Duration::from_secs(5);
/// The longest an acknowledgement is held back, unless it is said (`max_ack_delay` of RFC 9000 section 18.2).
const ACK_DELAY: Duration = Duration::from_millis(25);

/// Pause before something is sent only to be heard, over a connection that ends after this time of silence.
pub(crate) fn keep_alive(idle: Duration) -> Duration {
    // A protocol that is silent for longer (a hold time of zero) keeps its connection.
    (idle / 3).min(MOST_SILENCE)
}

/// How long an answer is waited for before the other end is taken for gone: three probe timeouts (RFC 9002 section 6.2.1),
/// with the variance of a first sample, within bounds.
pub(crate) fn patience(smoothed_rtt: Duration) -> Duration {
    let probe_timeout = 3 * smoothed_rtt.min(MOST_PATIENCE) + ACK_DELAY;
    (3 * probe_timeout).clamp(LEAST_PATIENCE, MOST_PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_far_away_has_longer_to_answer() {
        let after = |milliseconds| patience(Duration::from_millis(milliseconds)).as_millis();
        assert_eq!([after(0), after(40), after(100), after(300)], [500, 500, 975, 2775]);
        assert_eq!(patience(Duration::MAX), MOST_PATIENCE);
    }

    #[test]
    fn a_silent_connection_is_kept_within_its_own_idle_time() {
        let after = |seconds| keep_alive(Duration::from_secs(seconds)).as_secs();
        assert_eq!([after(3), after(9), after(90), after(86_400)], [1, 3, 5, 5]);
    }
}
