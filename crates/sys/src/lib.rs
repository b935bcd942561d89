//! What the kernel offers and std does not: options of TCP sockets, privileges, memory that outlives a process.
//!
//! The only crate with `unsafe`: each use wraps one system call that has no safe wrapper in rustix, and
//! takes values that make every call valid. Nothing here decides anything. [`tcp`] is for whoever opens
//! sockets, [`process`] for the first lines of a process, [`memory`] for what the next one finds.

// The workspace denies it; this crate is the exception (see above).
#![allow(unsafe_code)]

pub mod memory;
pub mod process;
pub mod tcp;

pub use rustix::thread::CapabilitySet;
