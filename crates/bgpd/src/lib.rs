//! The bgp process
