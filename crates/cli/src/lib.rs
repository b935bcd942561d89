//! The operator's command line: everything but `holdfast run`.
//!
//! A command connects to the router's socket, which makes it a caller with the role `operator`, asks one or two
//! questions over XRL and writes the answers: as aligned text, or with `--json` under the key names of FRR where
//! FRR has the command. Large answers are written as they arrive and never held.
//!
//! [`Command`] is what the binary puts into its own command line. Exit codes: 0 done; 1 refused or nothing found;
//! 2 the command line is wrong; 3 no router answers; 4 `diff` has found differences. `bgpsec verify` has codes of its own.

mod bgpsec;
mod check;
mod clear;
mod configure;
mod diff;
mod failure;
mod host;
mod json;
mod keygen;
mod keys;
mod next_life;
mod peer;
mod policy;
mod profile;
mod router;
mod schema;
mod show;
mod takeover;
mod text;
mod upgrade;
mod vtysh;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_cli;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

use std::{io, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use holdfast_config::Schema;
use holdfast_xrl::text as xrl_text;

pub use failure::{Failure, WRONG_INPUT};
use router::{Router, Table};
pub use vtysh::Vtysh;

/// Where routers are unless the command says otherwise.
pub const DEFAULT_RUNTIME_DIR: &str = "/run/holdfast";

/// A command of the operator.
#[derive(Clone, Debug, Subcommand)]
#[command(infer_subcommands = true)]
pub enum Command {
    /// Checks a configuration file; reports every error with its place.
    Check(Check),
    /// Prints what a configuration may say: the JSON schema, for editors.
    Schema(schema::Schema),
    /// Shows the state of the router.
    #[command(
        infer_subcommands = true,
        after_help = "A process with a section of its own answers to its name: `holdfast show rip`. \
                      `holdfast show rip --help` lists its commands."
    )]
    Show {
        /// How to answer.
        #[command(flatten)]
        options: Options,
        /// What to show.
        #[command(subcommand)]
        what: show::What,
    },
    /// Resets sessions, and what processes have counted or learned.
    #[command(infer_subcommands = true)]
    Clear {
        /// How to answer.
        #[command(flatten)]
        options: Options,
        /// Where.
        #[command(flatten)]
        table: Table,
        /// What to clear.
        #[command(subcommand)]
        what: clear::Clear,
    },
    /// Stops peers, and starts them.
    #[command(infer_subcommands = true)]
    Peer {
        /// How to answer.
        #[command(flatten)]
        options: Options,
        /// Where.
        #[command(flatten)]
        table: Table,
        /// What to do.
        #[command(subcommand)]
        what: peer::Peer,
    },
    /// Has the router read its configuration file again; what has not changed is not touched. Every process says first
    /// whether it can run the file.
    Reload {
        /// How to answer.
        #[command(flatten)]
        options: Options,
        /// A process that is not asked whether it can run the file, and not waited for.
        #[arg(long, value_name = "PROCESS")]
        without: Vec<String>,
    },
    /// Records how long routes take from point to point.
    #[command(infer_subcommands = true)]
    Profile {
        /// How to answer.
        #[command(flatten)]
        options: Options,
        /// Where.
        #[command(flatten)]
        table: Table,
        /// What to do.
        #[command(subcommand)]
        what: profile::Profile,
    },
    /// Tries policies out.
    #[command(subcommand, infer_subcommands = true)]
    Policy(policy::Policy),
    /// Says what a reload of a configuration file would change, and which sessions would end.
    Diff(diff::Diff),
    /// Changes the configuration: candidate, commit, history, rollback.
    Configure(configure::Configure),
    /// Replaces the running router's binary, process by process; sessions and routes stay.
    Upgrade(upgrade::Upgrade),
    /// Says which router has the sessions, where routers cannot find it out.
    Takeover(takeover::Takeover),
    /// Makes and shows the keys and certificates that routers prove themselves with; no router is needed.
    Keys(keys::Keys),
    /// Makes keys of BGPsec routers, with requests and test certificates; no router is needed.
    Keygen(keygen::Keygen),
    /// Judges and signs BGPsec paths; no router is needed.
    Bgpsec(bgpsec::Bgpsec),
    /// Calls any method of any process, or lists and describes them.
    Call(Call),
}

/// `holdfast check`
#[derive(Clone, Debug, Args)]
pub struct Check {
    /// The file.
    #[arg(short, long, value_name = "FILE", required_unless_present = "descriptor")]
    config: Option<PathBuf>,
    /// A descriptor of a protocol, instead of a configuration file.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    descriptor: Option<PathBuf>,
    /// Also the settings of this host's kernel that the configuration needs otherwise.
    #[arg(long, conflicts_with = "descriptor")]
    host: bool,
    /// Errors as a JSON array.
    #[arg(long)]
    json: bool,
}

/// What commands to a router have in common.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The directory with the router's socket; or tcp://NAME@HOST:PORT, with the key in the file HOLDFAST_KEY_FILE.
    #[arg(long, visible_alias = "router", global = true, value_name = "DIR", env = "HOLDFAST_RUNTIME_DIR", default_value = DEFAULT_RUNTIME_DIR)]
    runtime_dir: PathBuf,
    /// Answer as JSON.
    #[arg(long, global = true)]
    json: bool,
}

/// `holdfast call`
#[derive(Clone, Debug, Args)]
#[group(id = "call_what", required = true, multiple = false, args = ["xrl", "list", "describe", "resolve"])]
pub struct Call {
    /// How to answer.
    #[command(flatten)]
    options: Options,
    /// The call, as in `finder://bgp/bgp.v1/Clear?peer:txt=transit-1`; `finder://` may be left out.
    xrl: Option<String>,
    /// List every method that can be called.
    #[arg(long)]
    list: bool,
    /// Describe the interfaces of a class, or one of them, as in `bgp/bgp.v1`.
    #[arg(long, value_name = "CLASS[/INTERFACE]")]
    describe: Option<String>,
    /// Show what a name resolves to.
    #[arg(long, value_name = "CLASS/INTERFACE")]
    resolve: Option<String>,
}

/// What is done with a process that has commands of its own.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Verb {
    /// `holdfast show NAME`
    Show,
    /// `holdfast clear NAME`
    Clear,
}

/// What a process of this build shows or clears: each command behind its name, and what that is.
pub type Commands<'a> = dyn Fn(Verb, &str) -> Vec<(String, String)> + 'a;

impl Command {
    /// Carries the command out, on standard output and standard error. `schema` is that of the routers of this build.
    pub fn run(mut self, schema: Schema, commands: &Commands<'_>) -> ExitCode {
        if let Err(error) = self.settle(schema, commands) {
            error.exit();
        }
        let json = self.wants_json();
        let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
        let done = self.run_on(schema, &mut out).and_then(|()| Ok(io::Write::flush(&mut out)?));
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                // What was written before the failure belongs before its message.
                let _ = io::Write::flush(&mut out);
                failure.report(json)
            }
        }
    }

    /// Takes options that stand behind the name of a process, which the command line does not know.
    ///
    /// # Errors
    /// Words that no process takes.
    fn settle(&mut self, schema: Schema, commands: &Commands<'_>) -> Result<(), clap::Error> {
        match self {
            Self::Show { options, what: show::What::Own(words) } => {
                show::own::settle(Verb::Show, words, schema, commands, options)
            }
            Self::Clear { options, what: clear::Clear::Own(words), .. } => {
                show::own::settle(Verb::Clear, words, schema, commands, options)
            }
            _ => Ok(()),
        }
    }

    fn wants_json(&self) -> bool {
        match self {
            Self::Check(check) => check.json,
            Self::Schema(_) => false,
            Self::Show { options, .. }
            | Self::Clear { options, .. }
            | Self::Peer { options, .. }
            | Self::Reload { options, .. }
            | Self::Profile { options, .. } => options.json,
            Self::Policy(policy) => policy.wants_json(),
            Self::Diff(diff) => diff.options.json,
            Self::Configure(configure) => configure.options.json,
            Self::Upgrade(upgrade) => upgrade.options.json,
            Self::Takeover(takeover) => takeover.options.json,
            Self::Keys(keys) => keys.wants_json(),
            Self::Keygen(keygen) => keygen.wants_json(),
            Self::Bgpsec(bgpsec) => bgpsec.wants_json(),
            Self::Call(call) => call.options.json,
        }
    }

    /// Carries the command out and writes the answer to `out`.
    ///
    /// # Errors
    /// Why there is no answer, or only a part of it.
    pub fn run_on(self, schema: Schema, out: &mut dyn io::Write) -> Result<(), Failure> {
        match self {
            Self::Check(Check { config, descriptor, host, json }) => {
                let checked = config.map(|file| check::check(&file, schema, host, json, out));
                checked.unwrap_or_else(|| check::descriptor(&descriptor.unwrap_or_default(), json, out))
            }
            Self::Schema(command) => command.run(schema, out),
            Self::Show { options, what } => next_life::answers(out, |out| {
                let what = what.clone();
                router::with(&options.runtime_dir, async |router| what.show(&router, options.json, out).await)
            }),
            Self::Clear { options, table, what } => router::with(&options.runtime_dir, async |router| {
                what.clear(&router.of(&table), options.json, out).await
            }),
            Self::Peer { options, table, what } => router::with(&options.runtime_dir, async |router| {
                what.run(&router.of(&table), options.json, out).await
            }),
            Self::Reload { options, without } => router::with(&options.runtime_dir, async |router| {
                reload(&router, without, options.json, out).await
            }),
            Self::Profile { options, table, what } => router::with(&options.runtime_dir, async |router| {
                what.run(&router.of(&table), options.json, out).await
            }),
            Self::Policy(policy) => policy.run(schema, out),
            Self::Diff(diff) => diff.run(schema, out),
            Self::Configure(configure) => configure.run(schema, out),
            Self::Upgrade(upgrade) => upgrade.run(out),
            Self::Takeover(takeover) => router::with(&takeover.options.runtime_dir.clone(), async |router| {
                takeover.run(&router, out).await
            }),
            Self::Keys(keys) => keys.run(out),
            Self::Keygen(keygen) => keygen.run(out),
            Self::Bgpsec(bgpsec) => bgpsec.run(out),
            Self::Call(call) => {
                router::with(&call.options.runtime_dir.clone(), async |router| call.call(&router, out).await)
            }
        }
    }
}

/// Each process may take 20 s.
const RELOAD: std::time::Duration = std::time::Duration::from_secs(100);

async fn reload(
    router: &Router,
    without: Vec<String>,
    json: bool,
    out: &mut dyn io::Write,
) -> Result<(), Failure> {
    use holdfast_api::manager::v1::{Empty, ManagerClient, ReloadReply, ReloadWithoutRequest};
    let manager: ManagerClient = router.client("manager").await?;
    let ReloadReply { changes, problems, notes } = match without.is_empty() {
        true => router::answer_within(RELOAD, manager.reload(Empty {})).await?,
        false => {
            let request = ReloadWithoutRequest { without };
            router::answer_within(RELOAD, manager.reload_without(request)).await?
        }
    };
    if json {
        json::line(out, &serde_json::json!({ "changes": changes, "problems": problems, "notes": notes }))?;
    } else if changes.is_empty() {
        writeln!(out, "nothing has changed")?;
    } else {
        changes.iter().try_for_each(|change| writeln!(out, "{change}"))?;
        notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Failure::NotTaken(problems.join("; "))),
    }
}

/// An output that keeps the error with which it ended: what writes the text form of calls tells no kind of error.
struct Output<'o> {
    out: &'o mut dyn io::Write,
    error: Option<io::Error>,
}

impl Output<'_> {
    fn keep<T>(&mut self, written: io::Result<T>) -> io::Result<T> {
        written.map_err(|error| {
            let same = io::Error::from(error.kind());
            self.error = Some(error);
            same
        })
    }
}

impl io::Write for Output<'_> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let written = self.out.write(octets);
        self.keep(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.keep(flushed)
    }
}

impl Call {
    async fn call(&self, router: &Router, out: &mut dyn io::Write) -> Result<(), Failure> {
        let mut out = Output { out, error: None };
        let done = self.ask(router, &mut out).await;
        out.error.map_or(done, |error| Err(Failure::Output(error)))
    }

    async fn ask(&self, router: &Router, out: &mut Output<'_>) -> Result<(), Failure> {
        let resolver = router.resolver();
        let format = if self.options.json { xrl_text::Format::Json } else { xrl_text::Format::Text };
        let done = match self {
            Self { describe: Some(target), .. } => xrl_text::describe(resolver, target, out).await,
            Self { resolve: Some(target), .. } => xrl_text::resolve(resolver, target, out).await,
            Self { xrl: Some(xrl), .. } => xrl_text::call(resolver, xrl, format, out).await,
            Self { .. } => xrl_text::list(resolver, out).await,
        };
        Ok(done?)
    }
}
