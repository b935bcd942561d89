//! The fuzz target over its corpus and mutations of it: what a fuzzer has once found stays found.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::cell::Cell;

#[test]
fn the_corpus_of_packets_breaks_no_promise() {
    let (good, signed) = (Cell::new(0), Cell::new(0));
    replay::replay("bfd_packets", 20_000, |octets| {
        let (is_read, is_signed) = holdfast_bfd_wire::fuzzing::packets(octets);
        good.set(good.get() + usize::from(is_read));
        signed.set(signed.get() + usize::from(is_signed));
    });
    assert!(good.get() > 3000 && signed.get() >= 4, "{} {}", good.get(), signed.get());
}
