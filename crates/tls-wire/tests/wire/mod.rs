//! First flights as libraries send them, as they must not be, in pieces and in any order.

mod build;
mod client_hello;
mod corpora;
mod initial;
mod records;
