//! The store of replicated sessions: what it holds, and how one is talked to. Pure: no clock, no files, no sockets.
//!
//! A writer sends [`Request`]s, and gets an [`Answer`] for each, in order. [`Contents`] says what each of them means. All
//! stores do the same:
//! - [`redis`] encodes requests as commands and reads the replies. Its scripts do on the server what [`Contents`] does here.
//! - [`file`] writes down the requests that [`Contents`] has granted, and reads them again after a death.
//! - [`memory`] is a store with faults, for tests.
//!
//! # Who may write
//! A writer reads the [`State`], then claims the store ([`Claim`]) with an *epoch*. A claim with a lower epoch than the
//! store's is refused; an equal or a higher one takes over. From then on the writer before is refused, for the epoch or for
//! the sequence of its batches: a claim skips [`JUMP`] numbers, so no batch that is still on its way fits.
//!
//! # What was lost
//! The *incarnation* is a random number that the first writer gives to an empty store. A store that answers with another
//! one, or with none, has lost what it held ([`Refused::Lost`]). A store that has lost its last batches only, as a promoted
//! replica may, refuses the next one for its sequence and names a lower one than it had confirmed ([`Refused::Sequence`]).
//!
//! # Generations
//! A *generation* is a whole copy of the state. A writer that writes everything anew claims a new generation, writes it
//! beside the old one, and then lets it count with [`Operation::Adopt`]. A death before leaves the old one whole. What no
//! longer counts is freed by [`Operation::Discard`].
//!
//! # Bounds
//! A batch has at most [`MOST_OPERATIONS`] operations and [`MOST_OCTETS`] octets, and frees at most [`MOST_FREED`] chunks
//! one by one. A store has at most [`MOST_GENERATIONS`] generations. A reader gets pages.
//!
//! ```
//! use holdfast_store::{Batch, Claim, Contents, Name, Operation};
//!
//! let mut contents = Contents::new(1 << 20);
//! let claim = Claim { incarnation: 77, is_empty: true, epoch: 1, generation: 1 };
//! let first = contents.claim(&claim)?.sequence + 1;
//! let name = Name::new(b"s/3/in")?;
//! let mut batch = Batch::new(77, 1, 1, first);
//! batch.push(Operation::Append { name, at: 1000, octets: b"octets".to_vec() })?;
//! batch.push(Operation::Adopt)?;
//! assert_eq!(contents.apply(&batch)?.sequence, first);
//! assert!(contents.apply(&batch).is_err()); // a doubled one
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod contents;
mod failure;
pub mod file;
#[doc(hidden)]
pub mod fuzzing;
pub mod memory;
mod name;
mod object;
pub mod redis;
mod request;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_store;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use batch::{Batch, Malformed, NoRoom, Operation};
pub use contents::Contents;
pub use failure::Failure;
pub use name::{BadName, LONGEST_NAME, Name};
pub use object::{Described, Description, Page};
pub use request::{Answer, Applied, Claim, Claimed, Cursor, Kind, Listed, Refused, Request, State};

/// Octets of a batch at most, as [`Batch::octets`] counts them.
pub const MOST_OCTETS: usize = 1 << 20;

/// Operations of a batch at most.
pub const MOST_OPERATIONS: usize = 1024;

/// Generations that a store has at the same time at most.
pub const MOST_GENERATIONS: usize = 8;

/// Chunks that one batch frees one by one at most: of 16 MiB or more. Redis does nothing else meanwhile.
pub const MOST_FREED: u64 = 4096;

/// Offsets, sequences and generations end here: numbers of the scripts are exact so far. A session of 100 Gbit/s takes
/// eight days to get there, one of BGP does not.
pub const MOST_NUMBER: u64 = 1 << 53;

/// Chunks are merged up to so many octets: a range of small appends has few chunks all the same.
pub const MERGED: usize = 4096;

/// What an object counts for besides its name and what is in it, and a chunk besides its octets: about what a store needs
/// to find it.
pub const PIECE: u64 = 64;

/// Sequence numbers that a claim skips. More than batches of one writer can be on their way.
pub const JUMP: u64 = 1 << 20;

/// Objects that a page of a list has at most, where the store can choose. (Redis may give more: those of a small hash.)
pub const LISTED: usize = 256;

/// Values that are asked for at once at most.
pub const MOST_VALUES: usize = 256;

/// Octets of a page of an object at most, besides one chunk.
pub const MOST_PAGE: usize = 1 << 20;
