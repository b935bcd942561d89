//! One index for prefixes: a trie of blocks over a paged pool.
//!
//! [`PrefixTable`] maps prefixes of one family to values of four or eight bytes. It serves the BGP
//! pipeline (path records) and the RIB (route handles). Beside the value a prefix of the Internet table
//! costs about 3 bytes. Long work is done in slices: a walk keeps nothing but the last prefix it saw
//! ([`PrefixTable::iter_from`], [`PrefixTable::retain`]), so the table may change while it is paused, and
//! no single operation copies or hashes more than a few kilobytes again, however large the table is.
//!
//! [`Pool`] is the memory below, of use to others for lists and byte strings of all sizes.
//!
//! The crate knows prefixes and numbers only: not what a value means, not what a route is.

mod block;
mod index;
mod place;
mod pool;
mod shard;
mod table;
mod walk;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_prefix_table;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use pool::{Handle, Pool};
pub use table::{PrefixTable, Value};
pub use walk::Iter;
