//! The fuzz target over its corpus and mutations of it.

#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn damaged_logs_break_no_promise() {
    replay::replay("nsr_damage", 3000, holdfast_nsr::fuzzing::damage);
}
