#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    holdfast_rip_wire::fuzzing::messages(data);
});
