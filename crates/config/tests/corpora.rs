//! The fuzz target over its corpus and mutations of it.

#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn any_text_is_read_or_refused_with_reasons() {
    replay::replay("configuration", 3000, |bytes| {
        holdfast_config::fuzzing::configuration(&String::from_utf8_lossy(bytes));
    });
}
