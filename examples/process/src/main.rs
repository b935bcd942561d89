//! A router with one process more, `echo`: it has a section of the configuration, and answers `holdfast show echo`.
//!
//! `echo run -c router.toml` and everything else is as with `holdfast`.

mod echo;

use std::process::ExitCode;

use holdfast::{Additions, Runnable};

fn main() -> ExitCode {
    let processes = vec![Runnable::new(&echo::PROCESS, echo::run)];
    holdfast::main_with(Additions { processes, ..Additions::default() })
}
