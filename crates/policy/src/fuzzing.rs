//! The body of a fuzz target, also run by a test over its corpus.

use crate::{Library, ReceiveError};

/// Any text is policies, or all that is wrong with it can be said.
pub fn library(text: &str) {
    match Library::receive(text, 1) {
        Ok(_) => {}
        Err(ReceiveError::Wrong(errors)) => {
            assert!(!errors.is_empty(), "refused without a reason");
            errors.iter().for_each(|error| assert!(!error.to_string().is_empty()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
