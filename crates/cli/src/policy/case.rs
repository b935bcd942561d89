//! A route to try a policy on, and what is expected of that.

use std::{fs, path::Path};

use clap::{Args, ValueEnum};
use holdfast_config::Config;
use holdfast_policy::{Library, Trace};
use serde::Deserialize;

use super::route::{BadRoute, Sample};
use crate::Failure;

/// The file of `--cases`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cases {
    pub(super) case: Vec<Case>,
}

/// One route, one policy. What is not said of the route it does not have.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Case {
    /// What it is called in the answer.
    #[arg(long, value_name = "TEXT")]
    pub(super) name: Option<String>,
    /// The policy.
    #[arg(long, required_unless_present = "cases", value_name = "NAME")]
    policy: Option<String>,
    /// The route's prefix.
    #[arg(long, required_unless_present = "cases", value_name = "PREFIX")]
    prefix: Option<String>,
    /// AS path, nearest AS first, as in "65101 65102 {65103,65104}".
    #[arg(long, value_name = "PATH")]
    pub(super) as_path: Option<String>,
    /// A community of any kind; may be given several times.
    #[arg(long, value_name = "COMMUNITY")]
    pub(super) community: Vec<String>,
    /// MULTI_EXIT_DISC.
    #[arg(long, value_name = "NUMBER")]
    pub(super) med: Option<u32>,
    /// LOCAL_PREF; that of the configuration if left out.
    #[arg(long, value_name = "NUMBER")]
    pub(super) local_preference: Option<u32>,
    /// igp, egp or incomplete; igp if left out.
    #[arg(long, value_name = "ORIGIN")]
    pub(super) origin: Option<String>,
    /// Next hop.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) next_hop: Option<String>,
    /// AS of the peer, who sends on import and receives on export; the nearest of the path if left out.
    #[arg(long, value_name = "ASN")]
    pub(super) peer_as: Option<u32>,
    /// Who brought it; bgp if left out.
    #[arg(long, value_name = "NAME")]
    pub(super) protocol: Option<String>,
    /// Tag.
    #[arg(long, value_name = "NUMBER")]
    pub(super) tag: Option<u32>,
    /// Interface that it names.
    #[arg(long, value_name = "NAME")]
    pub(super) interface: Option<String>,
    /// Metric in the routing table.
    #[arg(long, value_name = "NUMBER")]
    pub(super) metric: Option<u32>,
    /// What is to become of it; the exit code is 1 if that is not so.
    #[arg(long, value_enum)]
    pub(super) expect: Option<Expect>,
    /// Which term is to decide, as `POLICY: TERM` in a policy that is applied.
    #[arg(long, value_name = "NAME")]
    pub(super) expect_term: Option<String>,
    /// A line that the result is to have, as in "local-preference 120"; may be given several times.
    #[arg(long, value_name = "LINE")]
    pub(super) expect_result: Vec<String>,
}

/// What a policy can decide.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Expect {
    /// It passes.
    Accept,
    /// It does not.
    Reject,
}

/// A case that was tried.
pub(super) struct Tried<'a> {
    pub(super) case: &'a Case,
    pub(super) trace: Trace,
    /// What is not as expected.
    pub(super) wrong: Vec<String>,
}

impl Cases {
    pub(super) fn one(case: Case) -> Self {
        Self { case: vec![case] }
    }

    pub(super) fn read(file: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(file);
        let text = text.map_err(|error| Failure::Unreadable { file: file.to_owned(), error })?;
        toml::from_str(&text).map_err(|error| Failure::NothingFound(format!("{}: {error}", file.display())))
    }
}

impl Case {
    pub(super) fn title(&self) -> &str {
        self.name.as_deref().unwrap_or(self.prefix())
    }

    pub(super) fn policy(&self) -> &str {
        self.policy.as_deref().unwrap_or_default()
    }

    pub(super) fn prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or_default()
    }

    pub(super) fn try_on(&self, config: &Config, library: &Library) -> Result<Tried<'_>, Failure> {
        let (name, program) = (self.policy(), library.get(self.policy()));
        let program = program.ok_or_else(|| Failure::NothingFound(format!("there is no policy `{name}`")))?;
        let default = config.bgp.as_ref().map_or(100, |bgp| bgp.local_preference);
        let route = Sample::read(self, default)
            .map_err(|BadRoute(text)| Failure::NothingFound(format!("{}: {text}", self.title())))?;
        let trace = program.trace(&route, &config.policy);
        let wrong = self.compare(&trace);
        Ok(Tried { case: self, trace, wrong })
    }

    fn compare(&self, trace: &Trace) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.expect.is_some_and(|expect| (expect == Expect::Accept) != trace.accepted) {
            let [expected, found] =
                if trace.accepted { ["refused", "accepted"] } else { ["accepted", "refused"] };
            wrong.push(format!("expected to be {expected}, and is {found}"));
        }
        if let Some(term) = self.expect_term.as_ref().filter(|term| **term != trace.decided_by) {
            wrong.push(format!("expected to be decided by `{term}`, and is by `{}`", trace.decided_by));
        }
        let missing = self.expect_result.iter().filter(|line| !trace.result.contains(line));
        wrong.extend(missing.map(|line| format!("expected `{line}` in the result")));
        wrong
    }
}
