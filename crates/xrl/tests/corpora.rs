//! The fuzz targets over their corpora: what a fuzzer has once found stays found.

use std::{fs, path::Path};

use holdfast_xrl::fuzzing;

fn replay(target: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries: Vec<_> = fs::read_dir(folder).expect("there is a corpus").collect();
    assert!(!entries.is_empty(), "no corpus for {target}");
    for entry in entries {
        run(&fs::read(entry.expect("an entry").path()).expect("a readable file"));
    }
}

#[test]
fn the_corpora_break_no_promise() {
    replay("xrl_frames", fuzzing::frames);
    replay("xrl_error", fuzzing::error);
    replay("xrl_text", |bytes| fuzzing::xrl(&String::from_utf8_lossy(bytes)));
}
