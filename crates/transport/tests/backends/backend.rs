//! Backends, as stories see them.

mod memory;
mod quic;
#[cfg(feature = "quic-s2n")]
mod s2n;
mod tcp;

pub(crate) use memory::Memory;
pub(crate) use quic::Quic;
#[cfg(feature = "quic-s2n")]
pub(crate) use s2n::S2n;
pub(crate) use tcp::{Tcp, Tls};

use std::{net::SocketAddr, rc::Rc, time::Duration};

use holdfast_transport::{Connection, Expected, Failure, Gate, Listener, LocalFuture, Protocol};

/// One that listens and dials.
pub(crate) trait Backend {
    fn protocol(&self) -> Protocol;

    fn abilities(&self) -> Abilities;

    /// Listens somewhere; a handshake may take so long.
    fn listen(&self, gate: Rc<dyn Gate>, handshake: Duration) -> Box<dyn Listener>;

    fn dial<'a>(
        &'a self,
        to: SocketAddr,
        expected: &'a Expected,
    ) -> LocalFuture<'a, Result<Connection, Failure>>;
}

/// What a backend can, and another cannot.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Abilities {
    /// Both ends prove who they are.
    pub(crate) proves: bool,
    /// The dialer returns only when the other end has judged it too.
    pub(crate) judged_when_dialed: bool,
    /// An end has a number and a text.
    pub(crate) says_why: bool,
    /// Who is ignored cannot tell that somebody is there.
    pub(crate) ignores: bool,
    /// An address can be proven before there is any state.
    pub(crate) retries: bool,
    /// Keys can be changed on the way.
    pub(crate) updates_keys: bool,
    /// It is QUIC: attempts are datagrams.
    pub(crate) datagrams: bool,
}
