//! The body of a fuzz target, also run by a test over its corpus.

use crate::Frozen;

/// A session as the process before wrote it down: read, written and read again it is the same, or it is refused.
pub fn frozen(bytes: &[u8]) {
    if let Ok(frozen) = Frozen::from_bytes(bytes) {
        let written = frozen.to_bytes();
        let again = Frozen::from_bytes(&written).expect("what we write");
        assert_eq!(again.to_bytes(), written);
    }
}
