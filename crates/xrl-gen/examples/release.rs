//! Writes the interfaces as they are now to a file, to be committed with a release:
//! `cargo run -p holdfast-xrl-gen --example release -- api api/released/0.1.0/interfaces.fds`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use holdfast_xrl_gen::compat;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (api, file) = (arguments.next(), arguments.next());
    let (api, file) = api.zip(file).context("usage: release API-FOLDER FILE")?;
    std::fs::create_dir_all(file.parent().context("a file in a folder")?)?;
    Ok(std::fs::write(file, compat::snapshot(&api)?)?)
}
