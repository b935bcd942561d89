//! The fuzz target over its corpus and mutations of it.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::cell::Cell;

#[test]
fn any_request_has_verdicts_or_is_refused() {
    let judged = Cell::new(0);
    replay::replay("pathsec_request", 20_000, |octets| {
        judged.set(judged.get() + crate::fuzzing::request(octets));
    });
    assert!(judged.get() > 1000, "{}", judged.get());
}
