//! The fuzz targets over their corpora and mutations of them: what a fuzzer has once found stays found.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::cell::Cell;

use holdfast_store::file::End;

#[test]
fn the_corpus_of_replies_breaks_no_promise() {
    let (whole, broken) = (Cell::new(0), Cell::new(0));
    replay::replay("store_replies", 20_000, |octets| {
        let (replies, is_broken) = holdfast_store::fuzzing::replies(octets);
        whole.set(whole.get() + replies);
        broken.set(broken.get() + usize::from(is_broken));
    });
    assert!(whole.get() > 10_000 && broken.get() > 3000, "{} {}", whole.get(), broken.get());
}

#[test]
fn the_corpus_of_files_breaks_no_promise() {
    let ends = [const { Cell::new(0) }; 3];
    replay::replay("store_file", 5000, |octets| {
        if let Some(end) = holdfast_store::fuzzing::file(octets) {
            let of_it = &ends[end as usize];
            of_it.set(of_it.get() + 1);
        }
    });
    let [whole, torn, damaged] = [End::Whole, End::Torn, End::Damaged].map(|end| ends[end as usize].get());
    assert!(whole > 100 && torn > 300 && damaged > 300, "{whole} {torn} {damaged}");
}
