//! The benchmarks run; what they measure is not judged here.

mod admission;
mod bgpsec;
