//! The fuzz target over its corpus and mutations of it.

#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn any_text_is_compiled_or_refused_with_reasons() {
    replay::replay("policies", 10_000, |bytes| {
        holdfast_policy::fuzzing::library(&String::from_utf8_lossy(bytes));
    });
}
