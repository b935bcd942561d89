//! What it costs to turn somebody away, and who is served meanwhile.
//!
//! The server is a process of its own, and counts its own CPU time: an echo service on the transport API with the stages of
//! admission that a mode needs, or the same on the bare library ([`server`], [`bare_noq`],
//! [`bare_s2n`]). Clients and the attacker are
//! here ([`clients`], [`attacker`]), and what they cost does not count. Runs of both alternate, so that what else the machine
//! does meets both; figures are medians.
//!
//! What a session of a whole router loses in such a flood is another command ([`session`]).

mod attacker;
mod bare_noq;
mod bare_s2n;
mod cases;
mod clients;
pub(crate) mod server;
pub(crate) mod session;

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;

use attacker::Ammunition;
use cases::{Backend, Mode, PEER, STRANGER};
use clients::{Clients, Outcome};
use server::Finished;

/// Until the server has taken out of its socket what was sent.
const SETTLE: Duration = Duration::from_millis(300);

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these modes.
    #[arg(long, value_delimiter = ',')]
    modes: Vec<Mode>,
    /// Only these libraries.
    #[arg(long, value_delimiter = ',')]
    backends: Vec<Backend>,
    /// Attempts in modes of attackers.
    #[arg(long, default_value_t = 5000)]
    attempts: u32,
    /// Connections in modes with clients; transfers are half as many, echoes ten times as many.
    #[arg(long, default_value_t = 200)]
    completions: u32,
    /// Runs of each; figures are medians.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// An object of JSON for each mode and library, a line each, instead of the table.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Operations of a run.
    fn count(&self, mode: Mode) -> u32 {
        match mode {
            Mode::Ignore | Mode::Refuse | Mode::Retry | Mode::Alpn | Mode::Garbage => self.attempts,
            Mode::Open | Mode::RetryRefuse | Mode::Spam => self.completions,
            Mode::Echo => 10 * self.completions,
            Mode::Transfer => self.completions.div_ceil(2),
        }
    }
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Row {
    mode: Mode,
    backend: Backend,
    /// Operations for a second of the server's CPU.
    ops_per_cpu_s: f64,
    /// Of the library without the transport API.
    bare_ops_per_cpu_s: f64,
    ratio_to_bare: f64,
    /// Clients that wanted something of the server, over all runs on the transport API.
    asked: u32,
    /// Those of them that got it.
    served: u32,
    /// Datagrams of attackers, over the same runs.
    attacks: u64,
    /// How many came in a second, while there was an attack.
    attacks_per_s: f64,
    runs: usize,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(
        arguments.runs > 0 && arguments.attempts > 0 && arguments.completions > 0,
        "nothing is to be done"
    );
    let chosen =
        |modes: &[Mode]| if modes.is_empty() { Mode::value_variants().to_vec() } else { modes.to_vec() };
    let backends = match arguments.backends.is_empty() {
        true => Backend::value_variants().to_vec(),
        false => arguments.backends.clone(),
    };
    let mut bench = Bench::new()?;
    if !arguments.json {
        println!(
            "{:12} {:8} {:>10} {:>10} {:>7} {:>13}",
            "mode", "library", "ops/CPU-s", "bare", "ratio", "served"
        );
    }
    for mode in chosen(&arguments.modes) {
        for &backend in backends.iter().filter(|backend| backend.has(mode)) {
            let row = bench.row(mode, backend, arguments)?;
            if arguments.json {
                println!("{}", serde_json::to_string(&row)?);
            } else {
                row.print();
            }
        }
    }
    Ok(())
}

impl Row {
    fn print(&self) {
        let served = match self.asked {
            0 => String::new(),
            asked => format!("{} of {asked}", self.served),
        };
        println!(
            "{:12} {:8} {:>10.0} {:>10.0} {:>7.2} {served:>13}",
            name(self.mode),
            name(self.backend),
            self.ops_per_cpu_s,
            self.bare_ops_per_cpu_s,
            self.ratio_to_bare,
        );
    }
}

/// As on the command line.
pub(crate) fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// All that a run needs, made once.
struct Bench {
    clients: Clients,
    hellos: Ammunition,
    garbage: Ammunition,
}

/// One run.
struct Measured {
    ops_per_cpu_s: f64,
    outcome: Outcome,
}

impl Bench {
    fn new() -> Result<Self> {
        let clients = Clients::new()?;
        let hellos = clients.hellos()?;
        Ok(Self { clients, hellos, garbage: Ammunition::garbage() })
    }

    fn row(&mut self, mode: Mode, backend: Backend, arguments: &Arguments) -> Result<Row> {
        let (mut ours, mut bare, mut total) = (Vec::new(), Vec::new(), Outcome::default());
        for _ in 0..arguments.runs {
            let measured = self.measure(mode, backend, true, arguments.count(mode))?;
            bare.push(measured.ops_per_cpu_s);
            let measured = self.measure(mode, backend, false, arguments.count(mode))?;
            ours.push(measured.ops_per_cpu_s);
            total.add(&measured.outcome);
        }
        let (ops_per_cpu_s, bare_ops_per_cpu_s) = (median(ours), median(bare));
        Ok(Row {
            mode,
            backend,
            ops_per_cpu_s,
            bare_ops_per_cpu_s,
            ratio_to_bare: ops_per_cpu_s / bare_ops_per_cpu_s,
            asked: total.asked,
            served: total.served,
            attacks: total.attacks,
            attacks_per_s: total.attacks_per_s(),
            runs: arguments.runs,
        })
    }

    fn measure(&mut self, mode: Mode, backend: Backend, bare: bool, count: u32) -> Result<Measured> {
        let server = Server::start(&self.clients, mode, backend, bare, count)?;
        let to = server.address;
        let outcome = match mode {
            Mode::Ignore => self.hellos.fire(STRANGER, to, count),
            Mode::Refuse | Mode::Retry | Mode::Alpn => self.hellos.fire(PEER, to, count),
            Mode::Garbage => self.garbage.fire(PEER, to, count),
            Mode::RetryRefuse => self.clients.refused(to, count),
            Mode::Open => self.clients.open(to, count),
            Mode::Echo => self.clients.echo(to, count),
            Mode::Spam => self.clients.open_among(to, count, &self.hellos),
            Mode::Transfer => self.clients.transfer_under(to, count, &self.hellos),
        }?;
        std::thread::sleep(SETTLE);
        let finished = server.finish()?;
        let operations = match mode {
            Mode::Ignore | Mode::Refuse | Mode::Retry | Mode::Alpn => finished.attempts,
            // Nobody counts what has no meaning, and what clients have had they know best.
            Mode::Garbage => outcome.attacks,
            Mode::RetryRefuse | Mode::Open | Mode::Echo | Mode::Spam | Mode::Transfer => {
                outcome.served.into()
            }
        };
        ensure!(operations > 0, "{}: nothing has reached the server", name(mode));
        let cpu = Duration::from_micros(finished.cpu_us);
        Ok(Measured { ops_per_cpu_s: operations as f64 / cpu.as_secs_f64(), outcome })
    }
}

pub(crate) fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    let middle = of.len() / 2;
    if of.len() % 2 == 1 { of[middle] } else { (of[middle - 1] + of[middle]) / 2.0 }
}

/// The process that is measured.
struct Server {
    process: Child,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    fn start(clients: &Clients, mode: Mode, backend: Backend, bare: bool, count: u32) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("admission-server");
        command.args(["--mode", &name(mode), "--backend", &name(backend)]);
        command.args(bare.then_some("--bare"));
        // What is asked for is what it ends after; attempts may be lost, and then it ends when it is told.
        match mode {
            Mode::Ignore | Mode::Refuse | Mode::Retry | Mode::Alpn => {
                command.args(["--attempts", &count.to_string()]);
            }
            Mode::Open | Mode::Spam | Mode::Transfer => {
                command.args(["--completions", &count.to_string()]);
            }
            Mode::RetryRefuse | Mode::Echo | Mode::Garbage => {}
        }
        command.envs(clients.server_environment());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().context("it has an output")?;
        let mut server = Self { process, output: BufReader::new(output), address: (PEER, 0).into() };
        server.address = server.line()?.parse().context("where the server is")?;
        Ok(server)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the server has ended: {}", self.process.wait()?);
        Ok(line.trim_end().to_owned())
    }

    /// What it says when it has ended, of itself or as its input has.
    fn finish(mut self) -> Result<Finished> {
        drop(self.process.stdin.take());
        let finished = serde_json::from_str(&self.line()?).context("what the server has counted")?;
        let status = self.process.wait()?;
        ensure!(status.success(), "the server has ended: {status}");
        Ok(finished)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended, unless something has failed here.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
