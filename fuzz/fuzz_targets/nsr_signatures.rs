#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_nsr::fuzzing::damage_signatures(data));
