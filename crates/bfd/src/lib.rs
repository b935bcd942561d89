//! Bidirectional Forwarding Detection (RFC 5880, 5881, 5883) without any input or output: packets and time come in, packets
//! and states go out.
//!
//! [`Engine`] has the sessions of one table. The caller
//! - opens a session to a neighbour ([`Engine::open`]) and closes it ([`Engine::close`]);
//! - hands over each datagram that comes ([`Engine::receive`]), and calls [`Engine::advance`] at [`Engine::next_deadline`];
//! - then sends what [`Engine::poll_transmit`] gives, and takes what [`Engine::poll_change`] tells.
//!
//! A session outlives its process: [`Session::freeze`] says in a few octets all that the next process needs
//! ([`Engine::thaw`]). The neighbour hears nothing of it, if the next process is there within the detection time.
//!
//! Asynchronous mode only: a neighbour may use Demand mode, which is answered. Echo packets are neither sent nor asked for.
//!
//! ```
//! use std::{rc::Rc, time::Instant};
//! use holdfast_bfd::{Engine, Hops, Path, Profile};
//! use holdfast_types::HashKey;
//!
//! let now = Instant::now();
//! let mut engine = Engine::new(HashKey::new([1, 2]), 16);
//! let path = Path { remote: "192.0.2.1".parse()?, local: None, interface: Some(2), hops: Hops::Single };
//! engine.open(now, path, Rc::new(Profile::default()))?;
//! let asks = engine.poll_transmit(now).expect("a packet in state Down");
//! assert_eq!(asks.path, path);
//! assert_eq!(engine.poll_transmit(now), None);
//! assert!(engine.next_deadline().is_some()); // then: advance
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod authentication;
mod budget;
mod engine;
mod frozen;
pub mod fuzzing;
mod path;
mod profile;
mod random;
mod session;
mod timing;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_bfd;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use engine::{Change, Datagram, Engine, Rejected, SessionId, TooMany, Transmit};
pub use frozen::{FORMAT, FROZEN, Frozen};
pub use holdfast_bfd_wire::{Algorithm, BadKey, Diagnostic, Key, Malformed, Octets, State};
pub use path::{Hops, Path};
pub use profile::{Profile, UsedKey};
pub use session::{Counters, Session};
