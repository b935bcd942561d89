#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    holdfast_bfd_wire::fuzzing::packets(data);
});
