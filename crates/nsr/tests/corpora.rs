//! The fuzz targets over their corpora and mutations of them.

#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn damaged_logs_break_no_promise() {
    replay::replay("nsr_damage", 3000, holdfast_nsr::fuzzing::damage);
}

#[test]
fn damaged_signatures_break_no_promise() {
    replay::replay("nsr_signatures", 3000, holdfast_nsr::fuzzing::damage_signatures);
}
