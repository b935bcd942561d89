//! Every property test takes its number of cases from `holdfast_testing::cases`: one variable raises them all, and seeds that
//! failed are kept.

use std::{fs, path::Path};

use crate::sources;

/// How a property test begins. In two parts, so that this file has none.
const BEGIN: &str = concat!("propt", "est!");

/// How many property tests of a source have no configuration from `holdfast_testing`.
fn faults(text: &str) -> usize {
    let blocks = text.split(BEGIN).skip(1);
    blocks
        .filter(|block| !block.lines().take(4).any(|line| line.contains("holdfast_testing::cases(")))
        .count()
}

#[test]
fn every_property_test_can_be_given_more_cases_and_keeps_its_seeds() {
    let (mut files, mut blocks) = (Vec::new(), 0);
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut files);
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        blocks += text.matches(BEGIN).count();
        assert_eq!(faults(&text), 0, "{}: give it holdfast_testing::cases", file.display());
        let runs_its_own =
            text.contains(concat!("Test", "Runner::new")) && !file.ends_with("testing/src/lib.rs");
        assert!(!runs_its_own, "{}: cases are run by the macro alone", file.display());
    }
    assert!(blocks > 30, "{blocks} found");
}

#[test]
fn a_block_with_a_number_of_its_own_is_seen() {
    assert_eq!(faults(&format!("{BEGIN} {{\n    #![proptest_config(ProptestConfig::with_cases(64))]\n")), 1);
    assert_eq!(faults(&format!("{BEGIN}(|(x in 0..9u8)| {{}})")), 1);
    assert_eq!(faults(&format!("{BEGIN} {{\n    #![proptest_config(holdfast_testing::cases(64))]\n")), 0);
}
