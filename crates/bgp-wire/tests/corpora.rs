//! The fuzz targets over their corpora and some ten thousand mutations of them: what a fuzzer has once found stays
//! found, on any machine.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use holdfast_bgp_wire::fuzzing::TARGETS;

#[test]
fn corpora_and_their_mutations_break_no_promise() {
    for (name, run) in TARGETS {
        replay::replay(name, 40_000, run);
    }
}
