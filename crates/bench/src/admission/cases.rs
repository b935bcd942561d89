//! What is done to a server, of which library, and from where.

use std::net::Ipv4Addr;

use clap::ValueEnum;
use serde::Serialize;

/// Where clients come from, and the server is.
pub(super) const PEER: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Where strangers come from, whom nobody knows.
pub(super) const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// What is done to the server.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Strangers begin, and get no answer; an operation is an attempt.
    Ignore,
    /// Somebody begins who is no peer, and is told so.
    Refuse,
    /// Somebody begins, and has to prove the address; nobody does.
    Retry,
    /// Clients prove their address, and are refused then; an operation is both.
    RetryRefuse,
    /// Somebody asks for a protocol (ALPN) that there is not, and is refused.
    Alpn,
    /// Clients are let in, both sides prove who they are, 64 octets go there and back.
    Open,
    /// Over one connection 64 octets go there and back; an operation is once.
    Echo,
    /// Datagrams without any meaning; an operation is one.
    Garbage,
    /// As `open`, with 100 ClientHellos of strangers to each.
    Spam,
    /// Clients send 1 MiB and get it back, one after the other, under 10,000 ClientHellos of strangers a second.
    Transfer,
}

/// Which library.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Backend {
    Noq,
    S2n,
}

impl Backend {
    /// Whether there is such a verdict before any state.
    pub(super) fn has(self, mode: Mode) -> bool {
        match (self, mode) {
            (Self::Noq, _) => true,
            // It shows nothing of a ClientHello, and whoever has a token is let in or ignored.
            (Self::S2n, Mode::Alpn | Mode::RetryRefuse) => false,
            (Self::S2n, _) => true,
        }
    }
}
