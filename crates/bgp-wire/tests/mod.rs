//! What the crate offers, used as its callers use it.

mod canonical;
mod corpora;
mod edit;
mod encode;
mod hex;
mod nlri;
mod open;
mod reactions;
mod real_messages;
mod two_octet_as;
mod update;
