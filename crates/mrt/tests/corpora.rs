//! The fuzz target over its corpus and mutations of it: what a fuzzer has once found stays found.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::cell::Cell;

#[test]
fn the_corpus_of_dumps_breaks_no_promise() {
    let good = Cell::new(0);
    replay::replay("mrt_dump", 20_000, |bytes| good.set(good.get() + holdfast_mrt::fuzzing::dump(bytes)));
    assert!(good.get() > 0, "not one record of the corpus can be read");
}
