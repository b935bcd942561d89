//! What the crate offers, used as its callers use it.

mod backends;
mod carry;
mod listening;
mod memory;
mod nothing;
mod open;
mod quic;
#[cfg(feature = "quic-s2n")]
mod s2n;
