//! `holdfast lab`: the laboratory is a program of its own, so that nothing of it is in the router's.

use std::{ffi::OsString, os::unix::process::CommandExt, process::Command, process::ExitCode};

const PROGRAM: &str = "holdfast-lab";
/// Names the router that the laboratory tests, if it is not the one beside it.
const ROUTER: &str = "HOLDFAST_BIN";

/// Becomes the laboratory; returns only if it is not there.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let own = std::env::current_exe().ok();
    let beside = own.as_ref().map(|own| own.with_file_name(PROGRAM)).filter(|path| path.exists());
    let mut command = Command::new(beside.unwrap_or_else(|| PROGRAM.into()));
    if let Some(own) = own
        && std::env::var_os(ROUTER).is_none()
    {
        command.env(ROUTER, own);
    }
    let error = command.args(arguments).exec();
    eprintln!(
        "holdfast: {PROGRAM} cannot be executed ({error}): it is neither beside this program nor in the PATH; \
         in the source tree, build it with `cargo build --release -p holdfast-lab`"
    );
    ExitCode::FAILURE
}
