//! `holdfast-vtysh`: a second name of the program, for tools that call FRR's `vtysh`.

use std::{io, path::PathBuf, process::ExitCode};

use clap::Parser;

use crate::{DEFAULT_RUNTIME_DIR, Failure, next_life, router, show::vtysh::Command};

/// Answers those of `vtysh`'s show commands that tools use, as FRR would; `json` at the end of a command gives JSON.
#[derive(Clone, Debug, Parser)]
#[command(name = "holdfast-vtysh", version)]
pub struct Vtysh {
    /// A command, as in "show bgp summary json"; may be given several times.
    #[arg(short, long, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Taken and ignored: there is one router.
    #[arg(short, long, value_name = "DAEMON")]
    daemon: Option<String>,
    /// The directory with the router's socket.
    #[arg(long = "vty_socket", value_name = "DIR", env = "HOLDFAST_RUNTIME_DIR", default_value = DEFAULT_RUNTIME_DIR)]
    directory: PathBuf,
}

impl Vtysh {
    /// Whether a program that was started by this name is meant to be it.
    pub fn is_name(program: &std::ffi::OsStr) -> bool {
        let name = std::path::Path::new(program).file_name();
        name.is_some_and(|name| name == "holdfast-vtysh" || name == "vtysh")
    }

    /// Carries the commands out, on standard output; stops at the first that fails, as `vtysh` does.
    pub fn run(self) -> ExitCode {
        let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
        let done = self.run_on(&mut out).and_then(|()| Ok(io::Write::flush(&mut out)?));
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                let _ = io::Write::flush(&mut out);
                failure.report(false)
            }
        }
    }

    /// The same, to `out`.
    ///
    /// # Errors
    /// A command is unknown, or its answer is missing.
    pub fn run_on(self, out: &mut dyn io::Write) -> Result<(), Failure> {
        // All are read before the first is carried out.
        let parse = |text: &String| Command::parse(text).ok_or_else(|| Failure::UnknownCommand(text.clone()));
        let commands = self.command.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        next_life::answers(out, |out| {
            let commands = commands.clone();
            router::with(&self.directory, async |router| {
                for command in commands {
                    command.run(&router, out).await?;
                }
                Ok(())
            })
        })
    }
}
