//! What holds for all crates together, and tools of the binary.

mod clocks;
mod dependencies;
mod events;
mod layers;
mod properties;
mod spki_cache;
