//! A store in a file: what was granted is appended, and read again by the next process.
//!
//! ```text
//! header: "hf-store" | format | 0              words of 32 bits, little endian, behind the name
//! record: octets of the body | checksum of them and of the body | body
//! body:   1 claim | 2 batch                    as they were granted
//!         4 batches of objects, 3 state        only at the beginning, in this order, where the file was written anew
//! ```
//! The caller keeps the [`Contents`] in memory, and has all effects:
//! - a new file gets the [`header()`], and each claim or batch that is granted is appended with [`append`], by one call of
//!   `write`, before it is done and the writer is told so ([`Contents::check`](crate::Contents::check));
//! - after a death it gives the file to a [`Recovery`], cuts it where [`Recovered::end`] says, and goes on;
//! - where [`is_worth_rewriting`] it writes what [`Rewrite`] gives into a second file, piece by piece, while the first one
//!   goes on. With the last piece the second file is the store.
//!
//! A file protects from the death of processes: what was written is with the kernel then, and needs no `fsync`. After the
//! death of a host it is of no use, so nothing here waits for a disk. One writer at a time: the caller locks the file.

mod codec;
mod crc;
mod recovery;
mod rewrite;

pub use recovery::{End, Recovered, Recovery, Unreadable};
pub use rewrite::{Rewrite, is_worth_rewriting};

use crate::{MOST_OCTETS, Request};

/// The format of the file.
pub const FORMAT: u32 = 2;

/// Octets of the header.
pub const HEADER: usize = 16;

/// Octets of the body of a record at most.
pub const MOST_RECORD: usize = MOST_OCTETS + 256;

/// Octets before the body of a record.
const BEFORE_BODY: usize = 8;

const MAGIC: &[u8; 8] = b"hf-store";

/// What a file begins with.
pub fn header() -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header
}

/// Writes the record of a request that was granted. Those that change nothing have none.
pub fn append(request: &Request, out: &mut Vec<u8>) {
    match request {
        Request::Claim(claim) => codec::record(out, |body| codec::claim(claim, body)),
        Request::Batch(batch) => codec::record(out, |body| codec::batch(codec::BATCH, batch, body)),
        Request::State | Request::List { .. } | Request::Page { .. } | Request::Values { .. } => {}
    }
}

/// Makes the checksums of all records right, for a fuzzer.
pub(crate) fn make_right(file: &mut [u8]) {
    let mut rest = file.get_mut(HEADER..).unwrap_or_default();
    while let Some((head, behind)) = std::mem::take(&mut rest).split_first_chunk_mut::<BEFORE_BODY>() {
        let [a, b, c, d, checksum @ ..] = head;
        let length = [*a, *b, *c, *d];
        let Some((body, behind)) = behind.split_at_mut_checked(u32::from_le_bytes(length) as usize) else {
            return;
        };
        *checksum = crc::crc(&length, body).to_le_bytes();
        rest = behind;
    }
}
