//! What holds for all crates together, and tools of the binary.

mod circles;
mod clocks;
mod dependencies;
mod description;
mod events;
mod files;
mod hashers;
mod layers;
mod processes;
mod properties;
mod protocols;
mod reached;
mod reload;
mod sandbox;
mod spki_cache;
mod standby;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use holdfast_config::Schema;
use holdfast_process::Processes;

fn processes() -> Processes {
    holdfast::router().0
}

/// One for all tests: rows are told apart by where they are.
fn schema() -> Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| holdfast::router().1);
    *SCHEMA
}

/// The Rust sources in a folder and below.
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
