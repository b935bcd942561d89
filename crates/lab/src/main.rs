//! `holdfast-lab demo`: the main job on a machine that has nothing but this source tree.
//! `holdfast-lab drill process`: the death of bgp, judged by a stock router and on the wire.
//! `holdfast-lab drill bgpsec`: deaths of all that verifies signed paths, judged in the same way.
//! `holdfast-lab drill bfd`: deaths, hangs and upgrades of bfd, judged by stock routers.
//! `holdfast-lab drill store`, `drill gate`: failures of a store and of the gate, judged by captures at stock routers.
//! `holdfast-lab drill keeper`, `drill container`: deaths of a whole router or its host, under sessions that go on.
//! `holdfast-lab drill members`: a route server with hundreds of members, judged by them.
//! `holdfast-lab scale`: a big configuration, on the standard output.

mod demo;
mod interruption;

use std::{fmt::Display, process::ExitCode};

use clap::{Parser, Subcommand};
use holdfast_lab::{
    drill::{
        self, Options, bfd, bgpsec, members,
        replication::{self, Kind},
        standby,
    },
    scale::Scale,
};
use serde::Serialize;

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
    /// Failures made on purpose, judged from outside.
    #[command(subcommand)]
    Drill(Drill),
    /// Prefix sets, policies and peers, many of them, as a configuration.
    Scale {
        /// Peers.
        #[arg(long, default_value_t = Scale::default().peers)]
        peers: u32,
        /// Entries of prefix sets.
        #[arg(long, default_value_t = Scale::default().prefixes)]
        prefixes: u32,
        /// Every so many-th peer gets an MD5 key; 0 for none.
        #[arg(long, default_value_t = Scale::default().md5_every)]
        md5_every: u32,
    },
}

#[derive(Subcommand)]
enum Drill {
    /// The death of bgp, under sessions with a stock router that must not notice.
    Process(Options),
    /// Deaths of bgp, pathsec, rpki and the cache, under signed routes that keep their states and signatures.
    Bgpsec(bgpsec::Options),
    /// Deaths, hangs and upgrades of bfd, under sessions with stock routers that must not notice.
    Bfd(bfd::Options),
    /// Deaths, reloads and upgrades of a route server with hundreds of members, none of whom may lose a session or a route.
    Members(members::Options),
    /// Failures of a store: nothing leaves that it does not have, and no peer notices.
    Store(replication::Options),
    /// Failures of what holds segments, and ends of connections whose segments are held.
    Gate(replication::Options),
    /// Deaths of all processes of a router: the next one on the same host goes on with the sessions.
    Keeper(standby::Options),
    /// Deaths of a router's host: another host goes on with the sessions.
    Container(standby::Options),
}

fn main() -> ExitCode {
    match CommandLine::parse().command {
        Command::Demo { routes } => demo(routes),
        Command::Drill(Drill::Process(options)) => {
            drill(options.json, || drill::process(&options), |report| report.ok)
        }
        Command::Drill(Drill::Bgpsec(options)) => {
            drill(options.json, || bgpsec::bgpsec(&options), |report| report.ok)
        }
        Command::Drill(Drill::Bfd(options)) => drill(options.json, || bfd::bfd(&options), |report| report.ok),
        Command::Drill(Drill::Members(options)) => {
            drill(options.json, || members::members(&options), |report| report.ok)
        }
        Command::Drill(Drill::Store(options)) => replicated(Kind::Store, &options),
        Command::Drill(Drill::Gate(options)) => replicated(Kind::Gate, &options),
        Command::Drill(Drill::Keeper(options)) => taken_over(standby::Kind::Keeper, &options),
        Command::Drill(Drill::Container(options)) => taken_over(standby::Kind::Container, &options),
        Command::Scale { peers, prefixes, md5_every } => {
            println!("[router]\nid = \"10.0.0.1\"\nasn = 65000\n\n[bgp]");
            print!("{}", Scale { peers, prefixes, md5_every }.configuration());
            ExitCode::SUCCESS
        }
    }
}

fn replicated(kind: Kind, options: &replication::Options) -> ExitCode {
    drill(options.json, || replication::replication(kind, options), |report| report.ok)
}

fn taken_over(kind: standby::Kind, options: &standby::Options) -> ExitCode {
    match (options.dut, kind) {
        (None, _) => drill(options.json, || standby::standby(kind, options), |report| report.ok),
        (Some(dut), standby::Kind::Keeper) => {
            drill(options.json, || standby::dut::dut(dut, options), |report| report.ok)
        }
        (Some(_), standby::Kind::Container) => {
            println!("drill: FAILED: nobody goes on in another host with the sessions of a stock router");
            ExitCode::FAILURE
        }
    }
}

fn demo(routes: usize) -> ExitCode {
    interruption::clean_up("demo");
    let result = demo::run(routes);
    interruption::stay();
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

fn drill<R: Display + Serialize>(
    as_json: bool,
    run: impl FnOnce() -> anyhow::Result<R>,
    is_ok: impl FnOnce(&R) -> bool,
) -> ExitCode {
    interruption::clean_up("drill");
    let result = run();
    interruption::stay();
    let report = match result {
        Ok(report) => report,
        Err(error) => {
            println!("drill: FAILED: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    println!("{report}");
    if as_json {
        println!("{}", serde_json::json!(report));
    }
    if is_ok(&report) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
