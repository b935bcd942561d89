#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_path_validation::fuzzing::path(data));
