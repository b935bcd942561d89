//! RIPv2 (RFC 2453) and RIPng (RFC 2080) without any input or output: datagrams and time come in, datagrams and routes go
//! out.
//!
//! [`Rip`] is one router: `Rip<Ripv2>` for IPv4, `Rip<Ripng>` for IPv6. The caller
//! - names the interfaces ([`Rip::set_interface`], [`Rip::remove_interface`]), whose networks are told at once, and routes of
//!   other protocols ([`Rip::redistribute`]);
//! - hands over each datagram that comes ([`Rip::receive`]);
//! - then sends what [`Rip::poll_transmit`] gives, takes what [`Rip::poll_event`] tells, and calls [`Rip::advance`] at
//!   [`Rip::next_deadline`], which is in the past when a change is to be told at once. Changes of all calls before are told
//!   together. A long update is given in parts: a few datagrams, then a deadline.
//!
//! The router asks its neighbours for their tables when an interface comes up. It keeps the best route to each destination,
//! tells all of them every 30 seconds and changes at once, splits horizons with poisoned reverse, and forgets what its
//! neighbours do not repeat. There is no hold-down.
//!
//! No sockets, no clock, no random numbers but those of a seed. Bounds: [`Settings::max_routes`],
//! [`Settings::max_neighbours`]; datagrams are made one at a time when they are polled, so that a table of any size waits as a
//! cursor.
//!
//! ```
//! use std::time::Instant;
//! use holdfast_rip::{Interface, InterfaceAddress, Rip, Ripv2, Settings};
//!
//! let now = Instant::now();
//! let mut rip = Rip::<Ripv2>::new(Settings::default(), now);
//! let address = InterfaceAddress { address: "192.0.2.1".parse()?, network: "192.0.2.0/24".parse()? };
//! rip.set_interface(now, 1, Interface::new(vec![address]));
//! let asks = rip.poll_transmit().expect("a request for the whole table");
//! assert_eq!((asks.destination.to_string(), asks.port), ("224.0.0.9".to_owned(), 520));
//! assert!(rip.next_deadline().is_some()); // then: advance
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod engine;
mod interface;
mod neighbour;
mod policy;
mod random;
mod receive;
mod route;
mod send;
mod settings;
mod show;
mod table;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_rip;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use engine::{Event, Refused, Rip};
pub use holdfast_rip_wire::{Metric, Protocol, Ripng, Ripv2};
pub use interface::{Counters, Interface, InterfaceAddress, MOST_SOURCES, SplitHorizon};
pub use neighbour::Neighbour;
pub use policy::{AcceptAll, Candidate, Policy};
pub use receive::{Datagram, Rejected};
pub use route::Origin;
pub use send::Transmit;
pub use settings::Settings;
pub use show::{ShownInterface, ShownNeighbour, ShownRoute, Source};
