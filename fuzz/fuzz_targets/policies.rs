#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    holdfast_policy::fuzzing::library(&String::from_utf8_lossy(data));
});
