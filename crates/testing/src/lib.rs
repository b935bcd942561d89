//! What the tests of several crates have in common.

pub mod addresses;

use proptest::test_runner::{Config, FileFailurePersistence};

/// The variable that raises the number of cases of every property test.
pub const CASES: &str = "PROPTEST_CASES";

/// How a property test is run: so many cases, or as many as [`CASES`] says if those are more. The seed of a case that
/// fails is kept beside the source file, with the ending `.seeds`; seeds there are tried first.
///
/// # Panics
/// [`CASES`] is no number.
pub fn cases(count: u32) -> Config {
    let raised = std::env::var(CASES).ok().map(|text| {
        text.parse().unwrap_or_else(|error| panic!("{CASES} is a number of cases, not {text:?}: {error}"))
    });
    of(count.max(raised.unwrap_or(0)))
}

fn of(cases: u32) -> Config {
    Config {
        cases,
        // Where many values are refused, their number grows with that of the cases.
        max_global_rejects: cases.saturating_mul(50).max(1024),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("seeds"))),
        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, fs};

    use proptest::test_runner::{TestCaseError, TestRunner};

    use super::of;

    /// Runs a property that holds for numbers below 1000; how many it was asked of, and whether it held.
    fn run(source: &str, cases: u32) -> (u32, bool) {
        let asked = Cell::new(0);
        let leaked: &'static str = Box::leak(source.to_owned().into_boxed_str());
        let mut runner = TestRunner::new(proptest::test_runner::Config {
            source_file: Some(leaked),
            max_shrink_iters: 0,
            ..of(cases)
        });
        let held = runner.run(&(0..u32::MAX), |number| {
            asked.set(asked.get() + 1);
            if number < 1000 { Ok(()) } else { Err(TestCaseError::fail("too large")) }
        });
        (asked.get(), held.is_ok())
    }

    #[test]
    fn a_seed_that_failed_is_kept_beside_the_source_and_is_tried_first() {
        let folder = tempfile::tempdir().expect("a place");
        let source = folder.path().join("model.rs");
        fs::write(&source, "").expect("a file");
        let source = source.to_str().expect("text");
        assert!(!run(source, 10).1);
        let seeds = folder.path().join("model.seeds");
        let kept = fs::read_to_string(&seeds).expect("seeds are kept");
        assert!(kept.lines().any(|line| line.starts_with("cc ")), "{kept}");
        assert_eq!(run(source, 0), (1, false), "no case but the one that was kept");
    }
}
