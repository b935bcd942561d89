//! What does not change is sent with the same octets.
