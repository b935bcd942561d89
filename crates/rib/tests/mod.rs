//! What the crate offers, used as its callers use it.

mod failures;
mod model;
mod stories;
mod support;
