#![no_main]

#[allow(dead_code, reason = "tests of the crate use it, too")]
#[path = "../../crates/bgp-pipeline/tests/session/router.rs"]
mod router;
#[path = "../../crates/bgp-pipeline/tests/session/sequence.rs"]
mod sequence;

libfuzzer_sys::fuzz_target!(|data: &[u8]| sequence::session(data));
