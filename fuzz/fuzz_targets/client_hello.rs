#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_tls_wire::fuzzing::client_hello(data));
