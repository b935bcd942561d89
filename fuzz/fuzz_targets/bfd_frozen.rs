#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    holdfast_bfd::fuzzing::frozen(data, std::time::Instant::now());
});
