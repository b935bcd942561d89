//! The holdfast binary: `holdfast run`, the operator's commands, and every process of the router.
//!
//! A library, so that a program of somebody else's can be the same router with stages of its own
//! (`examples/stage`): the keeper starts every process from the program that it is itself.

mod lab;
mod pages;
mod processes;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory, Parser, Subcommand};
pub use holdfast_bgpd::MakeStages;
use holdfast_process::{Rights, formats::Formats};

use crate::processes::Parts;
pub use crate::processes::{Additions, Runnable, router};

/// A routing control plane for Linux.
#[derive(Parser)]
#[command(name = "holdfast", version, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum Command {
    /// Runs a router in the foreground; SIGTERM stops it in order.
    Run(Run),
    #[command(flatten)]
    Operator(holdfast_cli::Command),
    /// Speaks BGP as a script says, sound or not, and says where what comes back is not as expected.
    Speaker(holdfast_speaker::Speaker),
    /// Gives routers the keys, VRPs and ASPAs of a directory, over the RPKI-to-Router protocol.
    SpkiCache(holdfast_spki_cache::SpkiCache),
    /// Prints, as JSON, what this build reads, writes and speaks; `upgrade` asks for it.
    Formats,
    /// Writes the manual pages of all commands and of the configuration file.
    Man(pages::Man),
    /// Prints the completions of a shell.
    Completions(pages::Completions),
    /// Runs the laboratory: `holdfast-lab` with these arguments, from beside this program or the PATH.
    #[command(disable_help_flag = true)]
    Lab {
        /// As in `holdfast-lab --help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    #[command(flatten)]
    Process(Process),
}

#[derive(Args)]
struct Run {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// The directory for the operator's socket; made if missing.
    #[arg(long, value_name = "DIR", env = "HOLDFAST_RUNTIME_DIR", default_value = holdfast_cli::DEFAULT_RUNTIME_DIR)]
    runtime_dir: PathBuf,
    /// Wait for the sessions of the router that has them, and take them over when its lease ends.
    #[arg(long)]
    standby: bool,
}

/// What every router has: started by its keeper, never by hand.
#[derive(Subcommand)]
enum Process {
    /// Goes on where another build's keeper ended; `run` begins anew.
    #[command(hide = true)]
    Keeper {
        #[arg(long)]
        trial: bool,
    },
    #[command(hide = true)]
    Manager {
        #[arg(long)]
        config: PathBuf,
    },
    /// Becomes the program of a protocol.
    #[command(hide = true)]
    Outsider { name: String },
}

/// The program `holdfast`.
pub fn main() -> ExitCode {
    main_with(Additions::default())
}

/// The program `holdfast`, and what is added to its router.
pub fn main_with(additions: Additions) -> ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    if holdfast_cli::Vtysh::is_name(&name) {
        return holdfast_cli::Vtysh::parse().run();
    }
    let parts = match Parts::new(additions) {
        Ok(parts) => parts,
        Err(error) => return ended(Err(error.into())),
    };
    let parts = match parts.run() {
        Ok(code) => return code,
        Err(parts) => parts,
    };
    match command_line().command {
        Command::Run(run) => run.run(parts),
        Command::Operator(command) => command.run(parts.schema, &|verb, name| parts.commands(verb, name)),
        Command::Speaker(speaker) => speaker.run(),
        Command::SpkiCache(cache) => cache.run(),
        Command::Formats => formats(&parts),
        Command::Man(man) => {
            ended(man.write(CommandLine::command(), parts.schema).map_err(anyhow::Error::from))
        }
        Command::Completions(completions) => {
            completions.write(CommandLine::command());
            ExitCode::SUCCESS
        }
        Command::Lab { arguments } => lab::run(&arguments),
        Command::Process(process) => process.run(parts),
    }
}

/// What is asked for; ends the process if that cannot be understood. Exit codes of these commands are verdicts, so that a
/// command line that is wrong has another one than clap's 2.
fn command_line() -> CommandLine {
    const VERDICTS: [&str; 2] = ["bgpsec", "speaker"];
    let named =
        std::env::args_os().nth(1).and_then(|name| name.into_string().ok()).filter(|name| name.len() > 1);
    let is_verdict = named.is_some_and(|named| VERDICTS.iter().any(|name| name.starts_with(&named)));
    CommandLine::try_parse().unwrap_or_else(|error| {
        let wrong = is_verdict && error.use_stderr();
        // Where nobody reads, nothing can be said.
        let _ = error.print();
        std::process::exit(if wrong { holdfast_cli::WRONG_INPUT.into() } else { error.exit_code() })
    })
}

impl Run {
    fn run(self, parts: Parts) -> ExitCode {
        let config = match holdfast_manager::read_configuration(&self.config, parts.schema) {
            Ok(config) => config,
            Err(text) => {
                eprintln!("{text}");
                return ExitCode::FAILURE;
            }
        };
        if let Some(why) = no_standby(&config).filter(|_| self.standby) {
            eprintln!("holdfast: --standby: {why}");
            return ExitCode::FAILURE;
        }
        let options = holdfast_keeper::Options {
            configuration: self.config,
            runtime_directory: self.runtime_dir,
            log_filter: config.log.filter(),
            log_format: config.log.format.name().into(),
            sandbox: holdfast_manager::sandbox("manager", &config, &parts.processes),
            first_user: config.sandbox.first_user,
            standby: self.standby,
        };
        drop(config);
        ended(holdfast_keeper::run(options, parts.processes))
    }
}

/// Why no router of this configuration can wait for the sessions of another one.
fn no_standby(config: &holdfast_config::Config) -> Option<&'static str> {
    match &config.store {
        None => Some("there is no [nonstop.store] from which sessions could be taken over"),
        Some(store) if store.lease_directory.is_none() => {
            Some("[nonstop.store] needs `lease-directory`: without it every router has a lease of its own")
        }
        Some(_) => None,
    }
}

fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holdfast: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn formats(parts: &Parts) -> ExitCode {
    ended(Formats::own(&parts.processes).map_err(anyhow::Error::from).and_then(|formats| {
        println!("{}", serde_json::to_string(&formats)?);
        Ok(())
    }))
}

impl Process {
    fn run(self, parts: Parts) -> ExitCode {
        match self {
            Self::Outsider { name } => holdfast_process::become_outsider(&name),
            Self::Keeper { trial } => ended(holdfast_keeper::take_over(trial, parts.processes)),
            Self::Manager { config } => {
                let rights = Rights::manager(&config);
                holdfast_process::run("manager", rights, |boot| {
                    holdfast_manager::run(boot, parts.processes, parts.schema, config)
                })
            }
        }
    }
}
