//! The fuzz targets over their corpora and mutations of them: what a fuzzer has once found stays found.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::cell::Cell;

use holdfast_rtr::fuzzing;

/// How often something came of it.
fn replayed(target: &str, mutations: usize, run: impl Fn(&[u8]) -> usize) -> usize {
    let count = Cell::new(0);
    replay::replay(target, mutations, |octets| count.set(count.get() + run(octets)));
    count.get()
}

#[test]
fn what_a_client_tells_adds_up_whatever_a_cache_says() {
    assert!(replayed("rtr_client", 10_000, fuzzing::client) > 1000);
}

#[test]
fn a_cache_has_an_answer_to_anything() {
    assert!(replayed("rtr_cache", 10_000, fuzzing::cache) > 1000);
}

#[test]
fn slurm_files_are_read_or_refused() {
    let good = replayed("slurm", 5_000, |text| usize::from(fuzzing::slurm(text)));
    assert!(good > 20, "{good}");
}
