//! The interfaces against every release: a process of an older build may call one of a newer build.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use holdfast_xrl_gen::compat;

#[test]
fn everything_that_was_released_is_still_there() -> Result<()> {
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../api");
    let present = compat::snapshot(&api)?;
    let mut releases = 0;
    for entry in fs::read_dir(api.join("released"))? {
        let file = entry?.path().join("interfaces.fds");
        let released = fs::read(&file).with_context(|| file.display().to_string())?;
        let broken = compat::breaking(&released, &present)?;
        ensure!(broken.is_empty(), "since {}:\n{}", file.display(), broken.join("\n"));
        releases += 1;
    }
    ensure!(releases > 0, "no release to compare with");
    Ok(())
}
