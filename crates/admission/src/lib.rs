//! Stages that decide, before any state is kept, whether an attempt to connect is let in: from the cheapest to the
//! dearest, each once.
//!
//! An [`Attempt`] is what is known of it, without allocation; a [`Stage`] gives a [`Verdict`], or lets the next one decide.
//! The same stages stand before TCP, TLS and QUIC; what a verdict costs there, and which there are, is the listener's to
//! say (docs/manual/admission.md has the table). No sockets and no clock: time comes in.
//!
//! | stage | decides by | turns away with |
//! |---|---|---|
//! | [`Sources`] | the address: sets of prefixes, configured peers | ignore |
//! | [`Shed`] | how many there are of unproven address | ignore |
//! | [`Retry`] | load, and how many there are of one address, as long as nothing proves it | retry |
//! | [`ByAddress`] | how many there are of the proven address | refuse |
//! | [`Peers`] | the peer: is there one, is it up | refuse |
//! | [`ByHello`] | the ClientHello: protocols, server | refuse; accepts what has priority |
//! | [`Handshakes`] | how many handshakes are under way | ignore, or refuse once the address is proven |
//!
//! [`Numbers::stages`] makes these; one of one's own may stand anywhere between them (`examples/own_stage.rs`). A [`Chain`]
//! asks them in order and counts; a [`RefusalLog`] says which refusals are worth a line.

use std::{net::IpAddr, net::SocketAddr, time::Instant};

use holdfast_tls_wire::Peek;

mod bucket;
mod by_address;
mod by_hello;
mod chain;
mod handshakes;
mod numbers;
mod peers;
mod per_address;
mod prefix_table;
mod pressure;
mod refusal_log;
mod retry;
mod shed;
mod sources;

pub use bucket::{Bucket, Rate};
pub use by_address::ByAddress;
pub use by_hello::ByHello;
pub use chain::{Chain, Counters, Decision};
pub use handshakes::Handshakes;
pub use numbers::Numbers;
pub use peers::{PeerState, Peers};
pub use per_address::MOST_ADDRESSES;
use per_address::PerAddress;
pub use prefix_table::PrefixTable;
pub use pressure::Pressure;
pub use refusal_log::RefusalLog;
pub use retry::{Retry, RetryPolicy};
pub use shed::Shed;
pub use sources::Sources;

/// What proves that an attempt comes from its address.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AddressProof {
    /// Nothing: the source may be forged.
    None,
    /// A token of a Retry, or of an earlier connection (RFC 9000 section 8.1). Which of both, QUIC libraries do not say.
    Token,
    /// TCP's handshake.
    Handshake,
}

/// What the first flight says of itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Hello<'a> {
    /// It was read.
    Known {
        /// Protocols that it offers, in their order, as in the extension (RFC 7301 section 3.1): each behind its length.
        alpn: &'a [u8],
        /// The server that it asks for, if it names one.
        server_name: Option<&'a str>,
    },
    /// Only a part of it is here. It is no reason to refuse.
    Incomplete,
    /// It cannot be looked at here. It is no reason to refuse either.
    Unsupported,
}

/// What a look has shown. Who sends what is malformed is told so by TLS, not here: that it cannot be read does not make
/// it cheaper to refuse.
impl<'a, E> From<Result<Peek<'a>, E>> for Hello<'a> {
    fn from(peek: Result<Peek<'a>, E>) -> Self {
        match peek {
            Ok(Peek::Known(hello)) => Self::Known { alpn: hello.alpn(), server_name: hello.server_name() },
            Ok(Peek::Incomplete) => Self::Incomplete,
            Ok(Peek::Other) | Err(_) => Self::Unsupported,
        }
    }
}

/// How much there is to do.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Handshakes under way.
    pub handshakes: usize,
    /// Connections that are established.
    pub connections: usize,
}

/// An attempt to connect, before there is anything of it.
pub trait Attempt {
    /// Where it comes from.
    fn remote(&self) -> SocketAddr;
    /// Where it goes to, if the listener knows.
    fn local(&self) -> Option<IpAddr>;
    /// What proves that it comes from there.
    fn proof(&self) -> AddressProof;
    /// Whether the sender can be asked to prove its address first.
    fn can_retry(&self) -> bool;
    /// Whether its first flight is still to come, and can be waited for ([`Verdict::Wait`]).
    fn awaits_hello(&self) -> bool {
        false
    }
    /// What it says. Looking costs something: asked for once, and by late stages.
    fn hello(&mut self) -> Hello<'_>;
    /// How much there is to do at the listener.
    fn load(&self) -> Load;
}

/// What becomes of an attempt.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No answer at all: for who may have forged the address.
    Ignore,
    /// It is told that it is not wanted (a reset, CONNECTION_REFUSED).
    Refuse(&'static str),
    /// It is to prove its address first (RFC 9000 section 8.1.2). Where that is not possible, a [`Chain`] goes on.
    Retry,
    /// Its first flight is to come first; then the stage of this name, which says so of itself, is asked again
    /// ([`Chain::resume`]). Where it cannot be waited for ([`Attempt::awaits_hello`]), a [`Chain`] goes on.
    Wait(&'static str),
    /// It is let in, no later stage is asked.
    Accept,
    /// The next stage decides; after the last one it is let in.
    Next,
}

/// One point at which an attempt may be turned away.
pub trait Stage {
    /// As in `show listeners`.
    fn name(&self) -> &'static str;
    /// Decides. Takes microseconds at most: it stands before every packet of an attacker.
    fn judge(&mut self, attempt: &mut dyn Attempt, now: Instant) -> Verdict;
}
