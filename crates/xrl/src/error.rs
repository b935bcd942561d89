//! Why a call failed.

use std::fmt;

/// What kind of failure it was: what a program decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such target, method, object.
    NotFound,
    /// The caller's role or key does not allow it.
    Denied,
    /// The request makes no sense, whatever the state.
    InvalidArgument,
    /// The request makes sense, but not in the present state.
    FailedPrecondition,
    /// Not now; trying again later may help.
    Unavailable,
    /// The channel closed before the answer came: the call may or may not have been carried out.
    Disconnected,
    /// The caller lost interest.
    Cancelled,
    /// The caller's patience ended.
    Timeout,
    /// The receiver's own fault.
    Internal,
}

impl ErrorKind {
    const ALL: [(Self, u8, &'static str); 9] = [
        (Self::NotFound, 1, "not found"),
        (Self::Denied, 2, "denied"),
        (Self::InvalidArgument, 3, "invalid argument"),
        (Self::FailedPrecondition, 4, "failed precondition"),
        (Self::Unavailable, 5, "unavailable"),
        (Self::Disconnected, 6, "disconnected"),
        (Self::Cancelled, 7, "cancelled"),
        (Self::Timeout, 8, "timeout"),
        (Self::Internal, 9, "internal error"),
    ];

    fn row(self) -> (u8, &'static str) {
        Self::ALL.iter().find(|row| row.0 == self).map_or((9, "internal error"), |row| (row.1, row.2))
    }

    fn from_code(code: u8) -> Self {
        Self::ALL.iter().find(|row| row.1 == code).map_or(Self::Internal, |row| row.0)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().1)
    }
}

/// A failed call: a kind for programs and a text for people. Travels on the wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct XrlError {
    kind: ErrorKind,
    message: String,
}

/// Longer texts are cut on the wire.
const MAX_TEXT: usize = 4096;

macro_rules! constructors {
    ($($name:ident => $kind:ident,)*) => {
        $(#[doc = concat!("An error of the kind [`", stringify!($kind), "`](ErrorKind::", stringify!($kind), ").")]
        pub fn $name(message: impl Into<String>) -> Self {
            Self::new(ErrorKind::$kind, message)
        })*
    };
}

impl XrlError {
    /// An error of this kind; the message says what was tried and what to do, without the name of the kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    constructors! {
        not_found => NotFound,
        denied => Denied,
        invalid_argument => InvalidArgument,
        failed_precondition => FailedPrecondition,
        unavailable => Unavailable,
        disconnected => Disconnected,
        cancelled => Cancelled,
        timeout => Timeout,
        internal => Internal,
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The text.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Body of an error frame: one octet of kind, then the text in UTF-8.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let end = self.message.floor_char_boundary(MAX_TEXT);
        let mut body = vec![self.kind.row().0];
        body.extend_from_slice(&self.message.as_bytes()[..end]);
        body
    }

    /// Reads the body of an error frame; any bytes are an error of some kind.
    pub(crate) fn decode(body: &[u8]) -> Self {
        let (code, text) = body.split_first().map_or((9, &[][..]), |(code, text)| (*code, text));
        let text = &text[..text.len().min(MAX_TEXT)];
        Self::new(ErrorKind::from_code(code), String::from_utf8_lossy(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_wire() {
        for (kind, ..) in ErrorKind::ALL {
            let error = XrlError::new(kind, "prefix ü");
            assert_eq!(XrlError::decode(&error.encode()), error);
        }
    }

    proptest::proptest! {
        #![proptest_config(holdfast_testing::cases(256))]

        #[test]
        fn any_bytes_are_an_error_of_some_kind(bytes in proptest::prelude::any::<Vec<u8>>()) {
            crate::fuzzing::error(&bytes);
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let error = XrlError::internal("ü".repeat(MAX_TEXT));
        let back = XrlError::decode(&error.encode());
        assert_eq!(back.message(), "ü".repeat(MAX_TEXT / 2));
    }
}
