//! Numbers that nobody outside can guess.

use std::hash::{BuildHasher, RandomState};

/// Another one each time.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(())
}
