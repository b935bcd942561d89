//! Whether anything leaves a router that its store does not have: judged between the two, and at the peers.
//!
//! A [`proxy`] stands between the router and redis-server, and notes what the store has confirmed in a [`book`]. A capture
//! at each peer has the segments that arrived; the [`judge`] compares both. [`scene`] starts all of it.

pub mod book;
pub mod judge;
pub mod proxy;
pub mod scene;
pub mod stock;
