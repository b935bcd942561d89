//! The BGP session of one configured peer (RFC 4271 section 8), without any input or output.
//!
//! A [`Peer`] owns the finite state machine of both its connections, the one we dial and the one the
//! peer dials: collision (section 6.8, RFC 6286), OPEN negotiation, every timer with jitter, the send
//! hold timer (RFC 9687) and the back-off between attempts. It opens no socket, reads no clock and
//! sees no route: what happened comes in through [`Peer::handle`], what is to be done is read from
//! [`Peer::poll_output`] until that returns `None`, and [`Peer::poll_timeout`] says when to come back
//! with [`Input::Timeout`]. The contents of UPDATE and ROUTE-REFRESH do not pass through here: a
//! [`Disposition`] tells the driver that the message in its hands belongs to the pipeline.
//!
//! A session that is up can go on in another process: [`Peer::freeze`] takes down what that needs, [`Peer::thaw`]
//! makes a peer of it.
//!
//! DelayOpen is left out: it was an earlier answer to collisions, which are resolved here.
//!
//! Begin with [`PeerConfig`], [`Input`] and [`Output`]:
//!
//! ```
//! use std::time::Instant;
//! use holdfast_bgp_session::{Input, Output, Peer, PeerAsn, PeerConfig, State};
//! use holdfast_types::{Asn, RouterId};
//!
//! let (us, them) = (Asn(65001), Asn(65002));
//! let router_id: RouterId = "192.0.2.1".parse()?;
//! let mut peer = Peer::new(PeerConfig::new(us, router_id, PeerAsn::Exact(them)), 7, Instant::now());
//!
//! peer.handle(Input::Start, Instant::now());
//! while let Some(output) = peer.poll_output() {
//!     match output {
//!         Output::Connect(id) => assert!(id.is_dialled()), // ... dial; later:
//!         Output::Send(id, message) => drop((id, message)), // queue it
//!         Output::Close(id) => drop(id), // flush what can be, close
//!         Output::Established(id, negotiated) => drop((id, negotiated)), // start the pipeline
//!         Output::Down { reason, .. } => drop(reason), // stop it
//!         Output::LongLived(family) => drop(family), // it is the last resort
//!         Output::Forget(family) => drop(family), // what stayed of the session before
//!         Output::MarkStale(family) => drop(family), // it is about to be announced again
//!         Output::Sweep(family) => drop(family), // what was not
//!         Output::Log(event) => println!("{event}"),
//!     }
//! }
//! assert_eq!(peer.state(), State::Connect);
//! assert!(peer.poll_timeout().is_some()); // then: Input::Timeout
//! # Ok::<(), holdfast_types::ParseRouterIdError>(())
//! ```

#[doc(hidden)]
pub mod fuzzing;

mod config;
mod connection;
mod facts;
mod frozen;
mod input;
mod jitter;
mod limit;
mod negotiation;
mod outbox;
mod output;
mod peer;
mod refresh;
mod retention;
mod timer;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_bgp_session;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use holdfast_config::schema::{
    AddPath, Bgpsec, BgpsecFamily, GracefulRestart, Orf, PeerBfd, SendPaths, SessionRules,
};

pub use config::{IdleHold, PeerAsn, PeerConfig};
pub use facts::{Counters, History, Messages, Noted, State};
pub use frozen::{Frozen, ThawError, Unreadable};
pub use input::{Bfd, ConnId, Disposition, Input, StopReason};
pub use limit::{Counted, Crossing, Level, LimitAction, LimitWatch, PrefixLimit};
pub use negotiation::{Negotiated, Restart};
pub use output::{DownReason, Output, Role, SessionEvent};
pub use peer::Peer;
pub use timer::Timer;
