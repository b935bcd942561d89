//! What another configuration does to a router of all processes, as far as the configurations tell.

mod differences;
mod fixtures;
mod messages;
mod sessions;
