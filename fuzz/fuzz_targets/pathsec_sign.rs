#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    holdfast_pathsecd::fuzzing::sign_request(data);
});
