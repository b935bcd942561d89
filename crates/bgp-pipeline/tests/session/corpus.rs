//! The fuzz target `session` over its corpus, mutations of it, and the rows of the table in any order.

use crate::tests::session::{
    replay::{Lcg, replay},
    sequence::session,
    signed::signed_session,
    table::rows,
};

/// A step of a sequence.
fn step(kind: u8, octets: &[u8]) -> Vec<u8> {
    [&[kind][..], &(octets.len() as u16).to_be_bytes(), octets].concat()
}

#[test]
fn sequences_break_no_promise() {
    // Fewer than of other targets, because each is a router.
    replay("session", 3000, session);
}

#[test]
fn signed_paths_and_verdicts_in_any_order_break_no_promise() {
    let said = std::cell::Cell::new(0);
    replay("signed_session", 3000, |octets| said.set(said.get() + signed_session(octets)));
    assert!(said.get() > 500, "{}", said.get());
}

#[test]
fn entries_of_the_journal_break_no_promise() {
    replay("told", 20_000, holdfast_bgp_pipeline::fuzzing::told);
}

#[test]
fn rows_of_the_table_in_any_order_break_no_promise() {
    let mut random = Lcg(2);
    let rows = rows();
    for _ in 0..300 {
        // Any peer: what is good for one is strange from another.
        let mut sequence = vec![[0, 1, 2, 8, 12, 16, 64, 128, 129][random.below(9)]];
        for _ in 0..random.below(12) {
            let row = &rows[random.below(rows.len())];
            let octets = match random.below(6) {
                0 => step(random.below(8) as u8, &[0]),
                1 => step(5, &[]),
                _ => step(0, &row.body),
            };
            sequence.extend(octets);
        }
        session(&sequence);
    }
}
