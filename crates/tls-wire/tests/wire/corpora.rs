//! The fuzz targets over their corpora and mutations of them: what a fuzzer has once found stays found.

#[path = "../../../../fuzz/replay.rs"]
mod replay;

use holdfast_tls_wire::fuzzing;

#[test]
fn corpora_and_their_mutations_break_no_promise() {
    replay::replay("client_hello", 20_000, fuzzing::client_hello);
    replay::replay("initial_packet", 20_000, fuzzing::initial_packet);
}
