//! The RPKI-to-Router protocol (RFC 6810, RFC 8210, draft-ietf-sidrops-8210bis-27) without any input or output: octets
//! and time come in, octets and differences go out.
//!
//! - [`Client`]: a router's session with one cache. It takes data over as a whole, at End of Data, and says what changed;
//! - [`Caches`]: the sessions with all caches. Of what those say that are preferred and have data, less and plus local
//!   exceptions, it makes what is published, and says what changed of that;
//! - [`Exceptions`]: SLURM files (RFC 8416);
//! - [`Cache`] and [`Connection`]: the other half, with a bounded history.
//!
//! No sockets, no clock, no files. Bounds: [`ClientConfig::limit`], [`CacheConfig`], [`holdfast_rtr_wire::LONGEST`].
//!
//! ```
//! use std::time::Instant;
//! use holdfast_rtr::{CacheId, Caches, ClientConfig, Input, Output};
//!
//! let mut caches = Caches::default();
//! caches.insert(CacheId(1), 10, ClientConfig::default(), Instant::now());
//! caches.handle_timeout(Instant::now());
//! while let Some((cache, output)) = caches.poll_output() {
//!     match output {
//!         Output::Connect => println!("dial {cache:?}; later: Input::Connected, or Input::Closed"),
//!         Output::Send(octets) => drop(octets), // write them
//!         Output::Close => {} // when they are written; nothing more of that connection may come in
//!         Output::Event(event) => println!("{cache:?}: {event}"),
//!     }
//! }
//! caches.handle(CacheId(1), Input::Connected, Instant::now()); // it asks
//! assert!(caches.poll_timeout().is_some()); // then: handle_timeout
//! assert!(caches.poll_delta().is_none()); // nothing is published before a cache has said all
//! ```

mod answer;
mod cache;
mod caches;
mod client;
mod connection;
mod dataset;
mod delta;
mod fault;
mod filter;
pub mod fuzzing;
mod key;
mod view;
mod walk;

pub mod slurm;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_rtr;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use cache::{Cache, CacheConfig};
pub use caches::{CacheId, Caches};
pub use client::{Client, ClientConfig, Event, Input, Output, Phase, Times};
pub use connection::{Connection, Reply};
pub use dataset::{Counts, Dataset};
pub use delta::Delta;
pub use fault::Fault;
pub use slurm::{Exceptions, SlurmError};
