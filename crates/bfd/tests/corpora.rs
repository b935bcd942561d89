//! The fuzz target over its corpus and mutations of it: what a fuzzer has once found stays found.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::{cell::Cell, time::Instant};

#[test]
fn the_corpus_of_frozen_sessions_breaks_no_promise() {
    let good = Cell::new(0);
    replay::replay("bfd_frozen", 20_000, |octets| {
        good.set(good.get() + u32::from(holdfast_bfd::fuzzing::frozen(octets, Instant::now())));
    });
    assert!(good.get() > 3000, "{}", good.get());
}
