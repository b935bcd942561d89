#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_bgp_pipeline::fuzzing::told(data));
