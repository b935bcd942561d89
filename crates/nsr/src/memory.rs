//! The memory a log lives in.

use std::{
    ops::Range,
    sync::atomic::{Ordering, fence},
};

/// Memory that outlives the process: a mapped memfd, or a `Vec` in tests.
///
/// The log reads and writes it only between these calls, and is the only one that does.
pub trait Memory {
    /// All of it.
    fn octets(&self) -> &[u8];

    /// All of it, to be changed.
    fn octets_mut(&mut self) -> &mut [u8];

    /// These octets are not needed: their pages may be given back. They read as anything afterwards.
    fn release(&mut self, range: Range<usize>);

    /// Writes octets at a place inside the memory.
    ///
    /// Every change the log makes goes through here, whatever is received into [`Log::room`](crate::Log::room)
    /// apart, so that a memory of a test sees them all and can die in the middle of one. Up to eight octets that do
    /// not cross a multiple of eight are written by one store: no death leaves a part of them.
    #[inline]
    fn write(&mut self, at: usize, octets: &[u8]) {
        self.octets_mut()[at..at + octets.len()].copy_from_slice(octets);
    }

    /// What was written before is seen by a reader that sees anything of what is written afterwards.
    #[inline]
    fn barrier(&mut self, order: Ordering) {
        fence(order);
    }
}

/// Memory that another process writes while this one reads.
pub trait Shared {
    /// Octets of it.
    fn len(&self) -> usize;

    /// Whether there is nothing of it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The word at a multiple of eight inside the memory, in one piece.
    fn load(&self, at: usize) -> u64;

    /// Octets at any place inside the memory, each as it was at some time while they were copied.
    fn copy(&self, at: usize, into: &mut [u8]);

    /// What was read before is older than what is read afterwards.
    #[inline]
    fn barrier(&self) {
        fence(Ordering::Acquire);
    }
}

impl Memory for Vec<u8> {
    #[inline]
    fn octets(&self) -> &[u8] {
        self
    }

    #[inline]
    fn octets_mut(&mut self) -> &mut [u8] {
        self
    }

    fn release(&mut self, _: Range<usize>) {}
}
