//! The forwarding engine abstraction: the only process that speaks to the kernel's tables
