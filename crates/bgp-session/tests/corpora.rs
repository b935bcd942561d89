//! The fuzz target over its corpus and mutations of it.

#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn frozen_sessions_break_no_promise() {
    replay::replay("frozen_session", 20_000, holdfast_bgp_session::fuzzing::frozen);
}
