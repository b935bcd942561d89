//! Every property test takes its number of cases from `holdfast_testing::cases`: one variable raises them all, and seeds that
//! failed are kept.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// How many property tests of a source have no configuration from `holdfast_testing`.
fn faults(text: &str) -> usize {
    let begin = concat!("proptest", "! {");
    let blocks = text.split(begin).skip(1);
    blocks
        .filter(|block| !block.lines().take(4).any(|line| line.contains("holdfast_testing::cases(")))
        .count()
}

#[test]
fn every_property_test_can_be_given_more_cases_and_keeps_its_seeds() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut files);
    let mut blocks = 0;
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        blocks += text.matches(concat!("proptest", "! {")).count();
        assert_eq!(faults(&text), 0, "{}: give it holdfast_testing::cases", file.display());
    }
    assert!(blocks > 30, "{blocks} found");
}

#[test]
fn a_block_with_a_number_of_its_own_is_seen() {
    let begin = concat!("proptest", "! {");
    assert_eq!(faults(&format!("{begin}\n    #![proptest_config(ProptestConfig::with_cases(64))]\n")), 1);
    assert_eq!(faults(&format!("{begin}\n    #![proptest_config(holdfast_testing::cases(64))]\n")), 0);
}
