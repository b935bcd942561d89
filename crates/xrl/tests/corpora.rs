//! The fuzz targets over their corpora and mutations of them: what a fuzzer has once found stays found.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use holdfast_xrl::fuzzing;
use replay::replay;

#[test]
fn the_corpora_break_no_promise() {
    replay("xrl_frames", 5000, fuzzing::frames);
    replay("xrl_error", 5000, fuzzing::error);
    replay("xrl_text", 5000, |bytes| fuzzing::xrl(&String::from_utf8_lossy(bytes)));
}
