//! Why there is no connection, or none any more, in words of the operator.

use holdfast_tls::{explain, rustls};
use noq::{ConnectError, ConnectionClose, ConnectionError, TransportErrorCode};
use rustls::AlertDescription;

use crate::{
    Closed, Failure,
    failure::{of_tls, said},
};

/// Codes of QUIC that stand for an alert of TLS: 0x100 and the alert (RFC 9001 section 4.8).
const CRYPTO_ERROR: u64 = 0x100;

/// Why an attempt came to nothing.
pub(super) fn failure(error: &ConnectionError) -> Failure {
    match error {
        ConnectionError::VersionMismatch => {
            Failure::Refused("the other end speaks no version of QUIC that we speak".into())
        }
        ConnectionError::TransportError(error) => match error.crypto.as_deref().and_then(within) {
            Some(reason) => of_tls(reason),
            None if error.code == TransportErrorCode::NO_VIABLE_PATH => {
                Failure::Unreachable("no path leads to the other end".into())
            }
            None => Failure::Refused(format!("the other end breaks the rules of QUIC: {error}")),
        },
        ConnectionError::ConnectionClosed(close) => match alert(close.error_code) {
            Some(alert) => of_tls(&rustls::Error::AlertReceived(alert)),
            None if close.error_code == TransportErrorCode::CONNECTION_REFUSED => {
                Failure::Refused("the other end does not let us in (CONNECTION_REFUSED)".into())
            }
            // What an application says before the handshake is done is not told (RFC 9000 section 10.2.3).
            None if matches!(
                close.error_code,
                TransportErrorCode::NO_ERROR | TransportErrorCode::APPLICATION_ERROR
            ) =>
            {
                Failure::GivenUp(given_up(close))
            }
            None => Failure::Refused(given_up(close)),
        },
        ConnectionError::ApplicationClosed(close) => {
            let (code, said) = (close.error_code, said(&close.reason));
            Failure::GivenUp(format!("the other end has closed the connection: {said} (code {code})"))
        }
        ConnectionError::Reset => Failure::Refused("the other end has reset the connection".into()),
        ConnectionError::TimedOut => Failure::TimedOut,
        ConnectionError::LocallyClosed => Failure::Unreachable("the connection was given up here".into()),
        ConnectionError::CidsExhausted => Failure::Unreachable("too many connections on one socket".into()),
    }
}

/// Why no attempt was made.
pub(super) fn not_tried(error: &ConnectError) -> Failure {
    match error {
        ConnectError::EndpointStopping => Failure::Unreachable("the UDP socket has failed".into()),
        error => Failure::Unsupported(error.to_string()),
    }
}

/// How a connection has ended.
pub(super) fn closed(error: &ConnectionError) -> Closed {
    match error {
        ConnectionError::LocallyClosed => Closed::Here,
        ConnectionError::ApplicationClosed(close) => {
            Closed::Peer(close.error_code.into(), said(&close.reason))
        }
        ConnectionError::TimedOut => Closed::TimedOut,
        ConnectionError::Reset => Closed::Reset,
        ConnectionError::ConnectionClosed(close) => match alert(close.error_code) {
            Some(alert) => Closed::Failed(explain(&rustls::Error::AlertReceived(alert))),
            None => Closed::Failed(given_up(close)),
        },
        ConnectionError::TransportError(error) => match error.crypto.as_deref().and_then(within) {
            Some(reason) => Closed::Failed(explain(reason)),
            None => Closed::Failed(format!("the other end breaks the rules of QUIC: {error}")),
        },
        error => Closed::Failed(error.to_string()),
    }
}

/// For a reason of QUIC itself.
fn given_up(close: &ConnectionClose) -> String {
    match said(&close.reason) {
        nothing if nothing.is_empty() => format!("the other end has given up: {}", close.error_code),
        said => format!("the other end has given up: {}: {said}", close.error_code),
    }
}

fn within<'a>(error: &'a (dyn std::error::Error + Send + Sync + 'static)) -> Option<&'a rustls::Error> {
    error.downcast_ref()
}

fn alert(code: TransportErrorCode) -> Option<AlertDescription> {
    let code = u64::from(code).checked_sub(CRYPTO_ERROR)?;
    u8::try_from(code).ok().map(AlertDescription::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_peer_says_cannot_forge_a_line_of_a_log() {
        let (error_code, reason) = (6_u32.into(), "Cease\nERROR all is lost".into());
        let error = ConnectionError::ApplicationClosed(noq::ApplicationClose { error_code, reason });
        assert_eq!(closed(&error), Closed::Peer(6, "Cease?ERROR all is lost".to_owned()));
        assert!(!failure(&error).to_string().contains('\n'), "{}", failure(&error));
    }

    #[test]
    fn only_codes_of_tls_are_alerts() {
        assert_eq!(alert(TransportErrorCode::CONNECTION_REFUSED), None);
        assert_eq!(alert(TransportErrorCode::crypto(42)), Some(AlertDescription::BadCertificate));
        assert_eq!(alert(TransportErrorCode::crypto(120)), Some(AlertDescription::NoApplicationProtocol));
        assert_eq!(alert(TransportErrorCode::PATH_UNSTABLE_OR_POOR), None);
    }
}
