//! The rib process
