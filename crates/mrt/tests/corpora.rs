//! The fuzz target over its corpus: what a fuzzer has once found stays found.

use std::{fs, path::Path};

use holdfast_mrt::fuzzing;

#[test]
fn the_corpus_of_dumps_breaks_no_promise() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/mrt_dump");
    let mut good = 0;
    for entry in fs::read_dir(folder).expect("there is a corpus") {
        good += fuzzing::dump(&fs::read(entry.expect("an entry").path()).expect("a readable file"));
    }
    assert!(good > 0, "not one record of the corpus can be read");
}
