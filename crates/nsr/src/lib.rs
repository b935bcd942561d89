//! The replication log: what a session needs to outlive its process, in memory that does. Pure: no clock, no
//! files, no sockets. It names no protocol: octets, offsets and records are all it knows.
//!
//! Start with [`Log`] and, beside it, [`Reader`]; then `store.rs` (the order in which changes become visible) and `recover.rs`. When a snapshot is
//! worth its octets is decided by [`Pacing`], which knows no log. [`Signatures`] are beside it, in a memory of their own:
//! what a router has signed, so that the next process need not sign it again.
//!
//! ```text
//!             ┌───────────────────────── a session ─────────────────────────┐
//!  socket ──> │ incoming octets   record   snapshot     outgoing octets ────│──> socket
//!             │   trimmed by the snapshot               and `passed` ──┐    │
//!             └────────────────────────────────────────────────────────│────┘
//!                      entries, shared by all sessions:  e1 <── e2 <── e3 <── e4
//! ```
//!
//! # What holds after a death
//! Each call is done or not done, wherever the process died, and so is every change that the documentation calls
//! atomic. What is *not* in the log is what the kernel knows better: how much it handed over of what came in
//! ([`Log::set_received`]) and how much it took of what goes out ([`Log::set_sent`]). The driver tells both after
//! [`Log::recover`], before it uses the streams.
//!
//! Only the death of the process is survived, not that of the kernel: no change needs a write to a disk. What is to
//! outlive the kernel, a [`Reader`] in another process copies elsewhere while the log is written. Memory that was damaged is refused ([`Unreadable`]) where that can be seen, and never makes
//! the log read or write out of its bounds.
//!
//! # How that is proved
//! Every change goes through [`Memory::write`], except octets received into [`Log::room`]. A memory of
//! `tests/crash` lets the process die before, after and in the middle of each, and a model of kernel and peers says
//! whether anything was lost, doubled or reordered.
//!
//! # Bounds
//! The memory given at the start is all there is, in equal blocks; who needs another block and finds none gets
//! [`Full`], and nothing has changed. Receiving finds none first ([`Log::room`]). No call does work that grows with the number of sessions or blocks, apart from
//! [`Log::create`], [`Log::recover`], [`Log::collect`] and [`Log::usage`]. A session that says little has a page
//! of its cell, and one each for what comes in, what goes out and its snapshot.

#[doc(hidden)]
pub mod fuzzing;

mod cell;
mod entries;
mod error;
mod layout;
mod log;
mod memory;
mod pacing;
mod reader;
mod recover;
mod signatures;
mod snapshot;
mod store;
mod stream;
mod suspects;
mod usage;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_nsr;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use entries::EntryId;
pub use error::{Full, Inconsistent, TooSmall, Unreadable};
pub use log::{Log, SessionId};
pub use memory::{Memory, Shared};
pub use pacing::{Holding, Pacing, Relief, Standing, Walk};
pub use reader::{Changed, EntryNumber, Reader, View};
pub use signatures::{MOST_LOOKED_AT, MOST_NOTED, SignatureName, Signatures};
pub use usage::{SessionUsage, Usage};
