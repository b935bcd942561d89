//! The fuzz target over its corpus and mutations of it: what a fuzzer has once found stays found.

#[path = "../../../../fuzz/replay.rs"]
mod replay;

use holdfast_path_validation::fuzzing;

#[test]
fn the_corpus_and_its_mutations_break_no_promise() {
    replay::replay("bgpsec_path", 20_000, fuzzing::path);
}
