//! What the crate offers, used as its callers use it.

mod corpora;
mod crash;
mod damage;
mod log;
mod pacing;
mod reading;
mod signatures;
