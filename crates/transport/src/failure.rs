//! Errors of the kernel and of TLS, as failures in words of the operator.

use std::io;

use holdfast_tls::rustls::{self, AlertDescription};

use crate::Failure;

/// What the kernel says, without its number.
pub(crate) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

/// Characters of what a peer says that are shown.
const LONGEST_SAID: usize = 200;

/// What a peer says, as it can stand in a line of a log: it stays there, and is not endless.
pub(crate) fn said(octets: &[u8]) -> String {
    let text = String::from_utf8_lossy(octets);
    let mut safe = text.chars().map(|c| if c.is_control() { '?' } else { c });
    let mut said: String = safe.by_ref().take(LONGEST_SAID).collect();
    if safe.next().is_some() {
        said.push('…');
    }
    said
}

/// Of whoever wants a connection of TCP.
pub(crate) fn of_tcp(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::TimedOut => Failure::TimedOut,
        // It was there.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected => {
            Failure::Refused("the peer ends the TCP connection at once".to_owned())
        }
        _ => Failure::Unreachable(words(error)),
    }
}

/// The error of TLS within one of its stream, if it is one.
pub(crate) fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Of a handshake of TLS over TCP. `ended` is what it means that the peer ends TCP.
pub(crate) fn of_handshake(error: &io::Error, ended: fn(String) -> Failure) -> Failure {
    if let Some(error) = tls_error(error) {
        return of_tls(error);
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            ended("the peer has ended the TCP connection during the handshake of TLS".to_owned())
        }
        _ => of_tcp(error),
    }
}

/// Of TLS, over TCP or in QUIC.
pub(crate) fn of_tls(error: &rustls::Error) -> Failure {
    use rustls::Error;
    let text = holdfast_tls::explain(error);
    match error {
        Error::InvalidCertificate(_)
        | Error::InvalidCertRevocationList(_)
        | Error::NoCertificatesPresented
        | Error::UnsupportedNameType
        | Error::Other(_) => Failure::Untrusted(text),
        Error::AlertReceived(alert) if is_about_us(*alert) => Failure::Untrusted(text),
        _ => Failure::Refused(text),
    }
}

/// Whether with this alert the peer says that it does not believe us (RFC 8446 section 6.2).
pub(crate) fn is_about_us(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError
            | Alert::CertificateRequired
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_number_is_not_for_the_operator() {
        let refused = io::Error::from_raw_os_error(111);
        assert_eq!(words(&refused), "Connection refused");
        assert_eq!(of_tcp(&refused), Failure::Unreachable("Connection refused".to_owned()));
        assert_eq!(of_tcp(&io::Error::from_raw_os_error(110)), Failure::TimedOut);
        assert!(matches!(of_tcp(&io::Error::from_raw_os_error(104)), Failure::Refused(_)));
    }

    #[test]
    fn what_a_peer_says_stays_on_its_line() {
        assert_eq!(said("Cease\nERROR all is lost\u{1b}[2J".as_bytes()), "Cease?ERROR all is lost?[2J");
        assert_eq!(said(&[b'x'; 201]), format!("{}…", "x".repeat(200)));
        assert_eq!(said(&[b'x'; 200]), "x".repeat(200));
        assert_eq!(said(b"\xff"), "\u{fffd}");
    }

    #[test]
    fn who_does_not_believe_us_is_told_from_who_speaks_something_else() {
        let alert = |alert| of_tls(&rustls::Error::AlertReceived(alert));
        assert!(matches!(alert(AlertDescription::UnknownCA), Failure::Untrusted(_)));
        assert!(matches!(alert(AlertDescription::NoApplicationProtocol), Failure::Refused(_)));
        assert!(matches!(of_tls(&rustls::Error::NoCertificatesPresented), Failure::Untrusted(_)));
    }

    #[test]
    fn an_end_within_the_handshake_is_the_peers_doing() {
        let error = io::Error::from(io::ErrorKind::UnexpectedEof);
        let said = "the peer has ended the TCP connection during the handshake of TLS".to_owned();
        assert_eq!(of_handshake(&error, Failure::Refused), Failure::Refused(said.clone()));
        assert_eq!(of_handshake(&error, Failure::GivenUp), Failure::GivenUp(said));
    }
}
