//! The process as `bgp` and `rpki` see it, over channels of XRL.

mod batches;
mod common;
mod corpora;
mod keys;
mod signers;
mod signing;
mod verdicts;
