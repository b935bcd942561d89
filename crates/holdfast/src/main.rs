//! The holdfast binary: `holdfast run`, the operator's commands, and every process of the router.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use holdfast_config::schema::LogFormat;
use holdfast_process::CapabilitySet;

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
}

/// Processes of a running router: started by its keeper, never by hand.
#[derive(Subcommand)]
enum Process {
    #[command(hide = true)]
    Manager {
        #[arg(long)]
        config: PathBuf,
    },
    #[command(hide = true)]
    Fea,
    #[command(hide = true)]
    Rib,
    #[command(hide = true)]
    Bgp,
}

fn main() -> ExitCode {
    match CommandLine::parse().command {
        Command::Run(run) => run.run(),
        Command::Operator(command) => command.run(),
        Command::Process(process) => process.run(),
    }
}

impl Run {
    fn run(self) -> ExitCode {
        let config = match holdfast_manager::read_configuration(&self.config) {
            Ok(config) => config,
            Err(text) => {
                eprintln!("{text}");
                return ExitCode::FAILURE;
            }
        };
        let options = holdfast_keeper::Options {
            configuration: self.config,
            runtime_directory: self.runtime_dir,
            log_level: config.log.level.name().into(),
            log_format: match config.log.format {
                LogFormat::Text => "text".into(),
                LogFormat::Json => "json".into(),
            },
        };
        drop(config);
        match holdfast_keeper::run(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("holdfast: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

impl Process {
    fn run(self) -> ExitCode {
        let none = CapabilitySet::empty();
        match self {
            // Opens the router's sockets when no fea runs.
            Self::Manager { config } => {
                let keep = CapabilitySet::NET_BIND_SERVICE;
                holdfast_process::run("manager", keep, |boot| holdfast_manager::run(boot, config))
            }
            Self::Fea => holdfast_process::run("fea", holdfast_fea::CAPABILITIES, holdfast_fea::run),
            Self::Rib => holdfast_process::run("rib", none, holdfast_ribd::run),
            Self::Bgp => holdfast_process::run("bgp", none, holdfast_bgpd::run),
        }
    }
}
