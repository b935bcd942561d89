#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    holdfast_rtr_wire::fuzzing::pdus(data);
});
