//! The fuzz target over its corpus and mutations of it.

#[path = "../../../../fuzz/replay.rs"]
mod replay;

use std::cell::Cell;

#[test]
fn whatever_pathsec_answers_signed_routes_are_verified_in_the_end() {
    let taken = Cell::new(0);
    replay::replay("pathsec_replies", 3000, |octets| {
        taken.set(taken.get() + crate::fuzzing::pathsec_replies(octets));
    });
    assert!(taken.get() > 5000, "{}", taken.get());
}
