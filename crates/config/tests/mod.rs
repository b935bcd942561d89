//! What the crate offers, used as its callers use it.

mod bfd;
mod corpora;
mod descriptors;
mod faults;
mod nonstop;

use holdfast_config::{Config, Diagnostics, ProcessKeys, Schema};

/// A router of a few processes.
fn schema() -> Schema {
    Schema::new(["rib", "bgp"].map(|name| ProcessKeys {
        name,
        does: "does something",
        section: None,
        routing: None,
    }))
}

fn parse(text: &str, file: &str) -> Result<Config, Diagnostics> {
    holdfast_config::parse(text, file, schema())
}
