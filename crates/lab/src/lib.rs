//! The laboratory: network namespaces as hosts, real routers as peers, Holdfast under test, a plain BGP speaker.
//!
//! Development only; needs root. Start with [`netns::Namespace`] (a host), [`router::Router`] (Holdfast in it) and
//! [`peers`] (BIRD and FRR beside it). [`topology`] joins hosts, [`speaker`] plays feeders and sinks, [`table`]
//! makes the routes, [`attacks`] forges packets.

pub mod attacks;
pub mod bfd;
pub mod caches;
pub mod docker;
pub mod drill;
pub mod interop;
pub mod kernel;
pub mod keys;
pub mod members;
pub mod netns;
pub mod peers;
pub mod recipe;
pub mod redis;
pub mod replication;
pub mod router;
pub mod row;
pub mod scale;
pub mod shaper;
pub mod signed;
pub mod speaker;
pub mod table;
pub mod topology;
pub mod traffic;
pub mod vrf;
pub mod wait;
