//! Paths and what is thought of them, beside a second opinion.

mod common;
mod independent;
mod negatives;
mod suites;
mod tables;
mod verdicts;
