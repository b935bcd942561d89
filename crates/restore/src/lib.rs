//! What the store of a router holds of its replication logs, and the way back: from the objects of a store to a log that is gone
//! on with, and to what the socket of each session needs. Pure: no clock, no files, no sockets.
//!
//! ```text
//!  store ── answers ──> Reading ──> Objects ──> Table ──> rebuild ──> nsr::Log, and a Restored for each session
//!        <── requests ──┘
//! ```
//! The writer of the store before has to be fenced first: whoever restores claims the store with a higher epoch, and then reads
//! the generation that counts. It changes no more, until the one that was claimed is adopted.
//!
//! [`Names`] says what the objects are called, for the writer as well.

mod following;
mod names;
mod reading;
mod rebuild;
mod table;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_restore;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use following::{Followed, Following, News};
pub use names::Names;
pub use reading::{MOST_ASKED, Objects, Reading};
pub use rebuild::{NotRebuilt, Restored, rebuild};
pub use table::{Damaged, Entry, Session, Table};
