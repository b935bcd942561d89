//! What the kernel offers and std does not: options of sockets, privileges, memory that outlives a process.
//!
//! The only crate of the router with `unsafe`: each use wraps one system call that has no safe wrapper in rustix, and
//! takes values that make every call valid. Nothing here decides anything. [`tcp`], [`pair`], [`netlink`], [`filter`] and
//! [`bind_to_device`] are for whoever opens or uses sockets, [`icmp`] for whoever looks for neighbours, [`packet`] for whoever sends
//! and receives for protocols, [`process`] for the first lines of a process,
//! [`mod@frame`] for whoever tells neighbours of an address, [`clock`] for who has a lease, [`open_tap`] for whoever is the wire between hosts of a laboratory, [`repair`] for who makes connections again elsewhere, [`memory`] for what the next one finds, [`heap`] for what the allocator holds, [`blocks`] for who looks for what is dear, [`file`](mod@file) for whoever opens what somebody has named.

// The workspace denies it; this crate is the exception (see above).
#![allow(unsafe_code)]

pub mod blocks;
pub mod clock;
pub mod file;
pub mod filter;
pub mod frame;
pub mod heap;
pub mod icmp;
pub mod memory;
pub mod netlink;
mod option;
pub mod packet;
pub mod pair;
pub mod process;
pub mod repair;
mod tap;
pub mod tcp;

pub use option::{bind_to_device, bound_to, kernel_drops, netns_cookie, priority, set_priority};
pub use rustix::thread::CapabilitySet;
pub use tap::open_tap;
