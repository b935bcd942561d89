#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    holdfast_bgpd::fuzzing::pathsec_replies(data);
});
