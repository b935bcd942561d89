//! The fuzz target over its corpus and mutations of it: what a fuzzer has once found stays found.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::cell::Cell;

#[test]
fn the_corpus_of_messages_breaks_no_promise() {
    let good = Cell::new(0);
    replay::replay("rip_messages", 50_000, |octets| {
        good.set(good.get() + holdfast_rip_wire::fuzzing::messages(octets));
    });
    assert!(good.get() > 10_000, "{}", good.get());
}
