//! Paths and what is thought of them, beside a second opinion.

mod common;
mod corpora;
mod independent;
mod negatives;
mod suites;
mod tables;
mod verdicts;
