//! What the crate offers, used as its callers use it.

mod custody;
mod opener;
mod packets;
mod ports;
mod restored;
