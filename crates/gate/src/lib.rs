//! Which TCP segments of the router may leave. Pure: no clock, no files, no sockets.
//!
//! Start with [`Marks`], the memory that `replicator` and `gate` share.

mod flows;
pub mod kept;
mod marks;
pub mod nfnetlink;
mod segment;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_gate;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use flows::{Counts, Flows, MOST_ACKS, MOST_FLOWS, MOST_HELD_OF_FLOW, Verdicts};
pub use kept::Record;
pub use marks::{
    BadMarks, Claim, Connection, Gating, HEADER_WORDS, MOST_SLOTS, Marks, SLOT_WORDS, Side, SlotState, View,
};
pub use segment::{COPIED, Segment, Unreadable};
