//! The Linux forwarding tables through netlink: nexthop objects, routes, interfaces.
//!
//! [`LinuxFib`] is the backend `linux` of [`holdfast_fib::Fib`]; [`Monitor`] says which interfaces and
//! addresses there are and follows their changes. This is the only crate that names netlink; it knows
//! neither other processes nor where routes come from. Both types work over sockets, which belong to a network
//! namespace and stay in it ([`socket()`]); changes need CAP_NET_ADMIN there.
//!
//! # How routes lie in the kernel
//!
//! ```text
//!  route ── RTA_NH_ID ──> group, one per handle ──> nexthop, one per (gateway, interface)
//! ```
//!
//! A handle is always a *group* of nexthop objects, also with one member: the kernel lets the members of a
//! group be replaced in place, whatever their number, and all routes follow in that moment. Routes that
//! drop packets have a type (blackhole, unreachable) and no object, because a group cannot hold an IPv6
//! blackhole.
//!
//! A [`LinuxFib`] is one table; several may be in one namespace, in one process or in several. Objects have no table:
//! whose one is says its number ([`ObjectIds`]).
//!
//! Everything of ours carries [`PROTOCOL`]; routes have the metric [`METRIC`], so that a route of the
//! operator without a metric wins over ours and is never replaced by it.
//!
//! # What others do, and what the kernel does by itself
//!
//! When an interface goes down or loses its carrier, the kernel deletes its nexthop objects, takes them out
//! of groups, and deletes the groups that become empty with all their IPv4 routes, and says nothing about it
//! (measured on 6.18; of IPv6 routes it tells). The same follows when another program deletes an object, which the kernel
//! does tell. So [`LinuxFib`] compares its objects with the kernel's in both cases, makes again what it can, and writes the
//! routes of these objects again. Routes that others delete or replace are written again one by one. The mirror of what was
//! written says which those are: docs/design/kernel.md.
//!
//! # What a change of next hops costs
//!
//! Forwarding follows at once, but unless the sysctl `net.ipv4.nexthop_compat_mode` is 0 the kernel then walks
//! its whole IPv4 table to tell listeners of every route concerned, before it answers: 0.6 us a route of the
//! table (measured), so half a second for a full one; with 0, nothing. We leave the sysctl alone, because with
//! 0 `ip route` shows only the number of the object; a router whose interior changes often is better off with 0.

mod addresses;
mod claim;
mod comparison;
mod fib;
mod fights;
mod interface;
mod message;
mod mirror;
mod monitor;
mod nexthop;
mod objects;
mod reactions;
mod request;
mod rewriting;
mod route;
mod slots;
mod socket;
mod sync;
mod watch;
mod writes;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_fib_linux;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use addresses::AddressWriter;
pub use claim::{Claim, Question};
pub use fib::LinuxFib;
pub use interface::{Interface, InterfaceAddress};
pub use monitor::{Monitor, MonitorEvent};
pub use objects::ObjectIds;
pub use route::{METRIC, Ownership, PROTOCOL};
pub use socket::socket;
