#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_xrl::fuzzing::error(data));
