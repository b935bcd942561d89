//! The holdfast binary: every process of the router and the command line.
fn main() {}
