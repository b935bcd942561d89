//! `holdfast policy`: what policies make of routes, of a file and in a running router.

mod case;
mod print;
mod route;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use holdfast_api::bgp::v1::{BgpClient, PolicyPlace, PolicyTrace, TracePolicyRequest};
use holdfast_config::{Config, Schema};
use holdfast_policy::{Decision, Failed, Library, Place, Trace};
use serde_json::json;

use crate::{
    Failure, Options,
    json::line,
    router::{self, Router, Table},
};
use case::{Case, Cases};

/// `holdfast policy`
#[derive(Clone, Debug, Subcommand)]
pub enum Policy {
    /// Evaluates policies of a file on routes that are described; no router is needed.
    Test(Box<Test>),
    /// Evaluates a policy of the running router on routes that it has.
    Trace(TraceRoute),
}

/// `holdfast policy test`
#[derive(Clone, Debug, Args)]
pub struct Test {
    /// The configuration with the policies.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// A TOML file with cases `[[case]]`: the same words as these options, and what is expected.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["policy", "prefix"])]
    cases: Option<PathBuf>,
    /// One case.
    #[command(flatten)]
    case: Case,
    /// Answer as JSON.
    #[arg(long)]
    json: bool,
}

/// `holdfast policy trace`
#[derive(Clone, Debug, Args)]
pub struct TraceRoute {
    /// How to answer.
    #[command(flatten)]
    pub(crate) options: Options,
    /// Where.
    #[command(flatten)]
    table: Table,
    /// The policy.
    policy: String,
    /// A prefix, or an address for the longest match.
    destination: String,
    /// Only the path received from this peer (name or address).
    #[arg(long, value_name = "PEER", conflicts_with = "export")]
    peer: Option<String>,
    /// Instead of received paths the best one, on its way to this peer (name or address).
    #[arg(long, value_name = "PEER")]
    export: Option<String>,
}

impl Policy {
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Self::Test(test) => test.json,
            Self::Trace(trace) => trace.options.json,
        }
    }

    pub(crate) fn run(self, schema: Schema, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Test(test) => test.run(schema, out),
            Self::Trace(trace) => {
                let directory = trace.options.runtime_dir.clone();
                router::with(&directory, async |router| {
                    let router = router.of(&trace.table);
                    trace.run(&router, out).await
                })
            }
        }
    }
}

impl Test {
    fn run(self, schema: Schema, out: &mut dyn Write) -> Result<(), Failure> {
        let config = read(&self.config, schema)?;
        let cases = match &self.cases {
            Some(file) => Cases::read(file)?,
            None => Cases::one(self.case),
        };
        let library = Library::compile(&config.policy, 0).map_err(|errors| {
            let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
            Failure::NothingFound(texts.join("; "))
        })?;
        let (mut failed, mut shown) = (0, Vec::new());
        for case in &cases.case {
            let tried = case.try_on(&config, &library)?;
            failed += usize::from(!tried.wrong.is_empty());
            match self.json {
                true => shown.push(print::tried_json(&tried)),
                false => print::tried(&tried, out)?,
            }
        }
        if self.json {
            line(out, &json!({ "cases": shown, "failed": failed }))?;
        }
        match failed {
            0 => Ok(()),
            failed => Err(Failure::NotAsExpected { failed, tried: cases.case.len() }),
        }
    }
}

/// The configuration, which has to be right in every part.
fn read(file: &Path, schema: Schema) -> Result<Config, Failure> {
    let text =
        fs::read_to_string(file).map_err(|error| Failure::Unreadable { file: file.to_owned(), error })?;
    holdfast_config::parse(&text, &file.display().to_string(), schema).map_err(Failure::Wrong)
}

impl TraceRoute {
    async fn run(self, router: &Router, out: &mut dyn Write) -> Result<(), Failure> {
        let bgp: BgpClient = router.client("bgp").await?;
        let request = TracePolicyRequest {
            policy: self.policy.clone(),
            destination: self.destination,
            peer: self.peer.unwrap_or_default(),
            export_peer: self.export.clone().unwrap_or_default(),
        };
        let reply = router::answer(bgp.trace_policy(request)).await?;
        let traces = reply.traces.into_iter().map(|trace| (trace.peer.clone(), from_api(trace)));
        if self.options.json {
            let traces: Vec<_> =
                traces.map(|(peer, trace)| json!({ "peer": peer, "trace": trace })).collect();
            let value = json!({ "policy": self.policy, "prefix": reply.prefix, "export": self.export, "paths": traces });
            return Ok(line(out, &value)?);
        }
        for (peer, trace) in traces {
            let to = self.export.as_ref().map(|to| format!(", to {to}")).unwrap_or_default();
            writeln!(out, "{} from {peer}{to}", reply.prefix)?;
            print::trace(&self.policy, &trace, out)?;
        }
        Ok(())
    }
}

fn from_api(trace: PolicyTrace) -> Trace {
    let PolicyTrace { accepted, decided_by, places, result, .. } = trace;
    Trace { accepted, decided_by, places: places.into_iter().map(place).collect(), result }
}

fn place(place: PolicyPlace) -> Place {
    let failed = Failed { condition: place.failed, found: place.found };
    Place {
        policy: place.policy,
        term: place.term,
        depth: place.depth,
        failed: Some(failed).filter(|failed| !failed.condition.is_empty()),
        changes: place.changes,
        decision: match place.decision.as_str() {
            "accept" => Some(Decision::Accept),
            "reject" => Some(Decision::Reject),
            _ => None,
        },
    }
}
