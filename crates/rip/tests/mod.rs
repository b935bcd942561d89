//! What the crate offers, used as its callers use it.

mod networks;
mod one;
mod pace;
mod parts;
mod random;
mod requests;
mod security;
mod several;
mod times;
