//! The routing information base: merges the routes of all origins, resolves next hops, answers who asks how an
//! address is reached, redistributes, and says what to install. No sockets, no clock: time comes in, what is to be
//! told to others is fetched.
//!
//! Start with [`Rib`], then `resolve.rs` (recursion) and `log.rs` (how readers follow the table).
//!
//! ```text
//!  connected ─┐
//!  static ────┼─> internal table ─┐        resolution, registrations (ranges)
//!  IGP ───────┘     by distance   ├─ merge ─────> winner of a prefix, worked out when asked for
//!  BGP ───────────> external table┘                    ^
//!                                                      │ look up what holds now
//!            changed prefixes ──> log ──┬── cursor of the forwarding engine ──> FibBatch
//!                                       └── cursor of each subscriber ────────> RedistBatch
//! ```
//!
//! The stages of the paper (Handley et al. 2005, section 5.2) are all there, but they share storage. An origin's
//! table is the rows in which it has a path; the merge is a comparison when a row is read; ExtInt is the pair of
//! tables and the resolution kept with each set of next hops. A row is four bytes: what an origin says of a prefix
//! (next hops, metric, distance, tag) is stored once for all prefixes of which it says the same.
//!
//! # What follows when
//! After each input, winners, resolutions and registered answers are right. A next hop that leads elsewhere is one
//! message to the forwarding engine. Only *telling* readers about all routes of a next hop that became usable or
//! unusable takes a walk, in slices ([`Rib::work`]). An interface that changes costs one lookup for every next hop
//! in use; a neighbour that fails costs a look at every set of next hops; everything else costs only what depends on it.
//!
//! # Bounds
//! The log holds [`RibConfig::log_capacity`] changes; a reader that is further behind starts over, and
//! [`Rib::is_congested`] tells the driver to make origins wait before that happens. Origins, subscriptions,
//! registrations, members of a set, depth and number of lookups have fixed limits (the constants of this crate).
//! The other memory is proportional to routes and sets of next hops that origins have announced.

mod background;
mod family;
mod fib;
mod interface;
mod log;
mod neighbors;
mod nexthop;
mod nexthops;
mod origin;
mod outputs;
mod path;
mod reader;
mod redist;
mod register;
mod rejected;
mod resolve;
mod rib;
mod settle;
mod show;
mod store;
mod tables;
mod tracker;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_rib;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use fib::FibBatch;
pub use interface::{Interface, InterfaceAddress};
pub use neighbors::Neighbor;
pub use nexthop::{InterfaceRef, MAX_MEMBERS, Nexthop, NexthopSet, Nexthops, Resolution, ResolvedNexthop};
pub use nexthops::NexthopSetId;
pub use origin::{OriginConfig, OriginError, OriginId, OriginKind};
pub use redist::{RedistBatch, RedistFilter, RedistRoute, SubscriptionId, TooManySubscriptions};
pub use register::{Answer, ClientId, MAX_REGISTRATIONS, Route};
pub use rejected::{MAX_REJECTED, Reason, Rejections};
pub use resolve::{MAX_DEPTH, MAX_LOOKUPS};
pub use rib::{Awaited, CONNECTED, MAX_ORIGINS, MAX_SUBSCRIPTIONS, Rib, RibConfig, RibError, RouteAction};
pub use show::{OriginStatus, ShownRoute, Status};
