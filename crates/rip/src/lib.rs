//! RIP.
