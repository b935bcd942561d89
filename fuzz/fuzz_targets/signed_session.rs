#![no_main]

#[allow(dead_code, reason = "tests of the crate use it, too")]
#[path = "../../crates/bgp-pipeline/tests/session/router.rs"]
mod router;
#[path = "../../crates/bgp-pipeline/tests/session/sequence.rs"]
mod sequence;
#[path = "../../crates/bgp-pipeline/tests/session/signed.rs"]
mod signed;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    signed::signed_session(data);
});
