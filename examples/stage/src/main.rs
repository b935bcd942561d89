//! A router that holds back what it hears of an AS for the first time: a route whose origin AS has never been seen is
//! no candidate for a while. A leak or a mistyped AS number is often withdrawn within minutes; whoever is new for good
//! waits once.
//!
//! `newcomers run -c router.toml` and everything else is as with `holdfast`. `HOLD_SECONDS` in the environment is how
//! long newcomers wait; 300 by default. For as long after its start the router learns who is there.

mod newcomers;

use std::{process::ExitCode, time::Duration};

use holdfast::Additions;
use holdfast_bgp_pipeline::Stage;

use crate::newcomers::Newcomers;

fn main() -> ExitCode {
    holdfast::main_with(Additions { stages: Some(stages), ..Additions::default() })
}

/// What is plugged into the pipeline of `bgp`, between ImportPolicy and Decision.
fn stages() -> Vec<Box<dyn Stage>> {
    let seconds = std::env::var("HOLD_SECONDS").ok().and_then(|text| text.parse().ok());
    vec![Box::new(Newcomers::new(Duration::from_secs(seconds.unwrap_or(300))))]
}
