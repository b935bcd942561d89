//! `holdfast-lab demo`: the main job on a machine that has nothing but this source tree.

mod demo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "holdfast-lab", about = "Network namespaces as a laboratory for Holdfast")]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A router with a whole table, another one behind it; then the death of its bgp.
    Demo {
        /// IPv4 routes; IPv6 gets a fifth of that.
        #[arg(long, default_value_t = 1_000_000)]
        routes: usize,
    },
}

fn main() -> ExitCode {
    let Command::Demo { routes } = CommandLine::parse().command;
    demo::clean_up_when_interrupted();
    let result = demo::run(routes);
    demo::stay_if_interrupted();
    match result {
        Ok(()) => {
            println!("demo: ok");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("demo: FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}
