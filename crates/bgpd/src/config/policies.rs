//! The policies that the manager sends, compiled beside the event loop where they are many.

use std::sync::Arc;

use holdfast_api::bgp::v1 as api;
use holdfast_policy::{Library, PolicySource, PrefixRanges, PrefixSet, Program, ReceiveError};
use holdfast_xrl::XrlError;
use prost::Message;

use super::Configuration;

/// A message that is longer, in octets, is read by another thread: a turn of the event loop has to be short.
const LONG: usize = 64 << 10;

/// The policies of the last message, compiled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policies(Arc<Compiled>);

#[derive(Debug, Default)]
struct Compiled {
    source: Source,
    library: Option<Library>,
    generation: u32,
}

/// The policies of a message, as they came.
#[derive(PartialEq, Eq, Debug, Default)]
struct Source {
    json: String,
    prefix_sets: Vec<api::PrefixSet>,
}

impl Source {
    fn take(message: &mut api::Configuration) -> Self {
        Self {
            json: std::mem::take(&mut message.policies),
            prefix_sets: std::mem::take(&mut message.prefix_sets),
        }
    }

    fn read(&self) -> Result<PolicySource, XrlError> {
        let mut source = match self.json.as_str() {
            "" => PolicySource::default(),
            json => {
                PolicySource::receive(json).map_err(|error| XrlError::invalid_argument(error.to_string()))?
            }
        };
        for api::PrefixSet { name, entries } in &self.prefix_sets {
            let prefixes = PrefixRanges::from_octets(entries.to_vec())
                .ok_or_else(|| XrlError::invalid_argument(format!("prefix set {name}: no entries")))?;
            source.prefix_sets.push(PrefixSet { name: name.clone(), prefixes });
        }
        Ok(source)
    }
}

impl Policies {
    /// A policy, with the source of all.
    pub(crate) fn get(&self, name: &str) -> Result<(Program, PolicySource), XrlError> {
        let program = self.0.library.as_ref().and_then(|library| library.get(name)).cloned();
        let program = program.ok_or_else(|| XrlError::not_found(format!("there is no policy `{name}`")))?;
        Ok((program, self.0.source.read()?))
    }

    /// Those of a message, which are taken out of it. They are compiled unless they are the same as now, or as those that were
    /// prepared.
    fn next(&self, message: &mut api::Configuration, prepared: Option<Self>) -> Result<Self, XrlError> {
        let source = Source::take(message);
        if self.0.library.is_some() && self.0.source == source {
            return Ok(self.clone());
        }
        let generation = self.0.generation + 1;
        let fits = |prepared: &Self| prepared.0.generation == generation && prepared.0.source == source;
        if let Some(prepared) = prepared.filter(fits) {
            return Ok(prepared);
        }
        let read = source.read()?;
        let library = match &self.0.library {
            Some(before) => Library::compile_after(&read, generation, before),
            None => Library::compile(&read, generation),
        };
        let library =
            library.map_err(|wrong| XrlError::invalid_argument(ReceiveError::Wrong(wrong).to_string()))?;
        Ok(Self(Arc::new(Compiled { source, library: Some(library), generation })))
    }

    /// Whether these are others.
    pub(crate) fn differ_from(&self, other: &Self) -> bool {
        !Arc::ptr_eq(&self.0, &other.0)
    }

    /// Reads a message that follows the one with these policies, while others are answered if it is long. What comes back has
    /// the policies of the message.
    pub(crate) async fn read(
        self,
        message: api::Configuration,
        prepared: Option<Self>,
    ) -> Result<(Configuration, Self), XrlError> {
        if !is_long(&message) {
            return self.read_at_once(message, prepared);
        }
        let read = tokio::task::spawn_blocking(move || self.read_at_once(message, prepared));
        read.await.map_err(|error| XrlError::internal(error.to_string()))?
    }

    /// The same in one turn.
    pub(crate) fn read_at_once(
        self,
        mut message: api::Configuration,
        prepared: Option<Self>,
    ) -> Result<(Configuration, Self), XrlError> {
        let policies = self.next(&mut message, prepared)?;
        let library = policies.0.library.as_ref().ok_or_else(|| XrlError::internal("no policies"))?;
        Ok((Configuration::read_with(message, library)?, policies))
    }
}

/// Whether reading takes so long that others are answered meanwhile.
fn is_long(message: &api::Configuration) -> bool {
    message.encoded_len() > LONG
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use holdfast_policy::{Condition, Outcome, Policy, Term};

    use super::*;

    fn source(prefix: &str) -> PolicySource {
        let set = PrefixSet {
            name: "s".into(),
            prefixes: [prefix.parse().expect("a range")].into_iter().collect(),
        };
        let term =
            |name: &str, from| Term { name: name.into(), from, then: vec![], outcome: Outcome::Accept };
        let policy = |name: &str, from| Policy {
            name: name.into(),
            first: vec![],
            terms: vec![term("t", from)],
            last: None,
        };
        let policies =
            vec![policy("p", vec![Condition::PrefixSet(vec!["s".into()])]), policy("always", vec![])];
        PolicySource { prefix_sets: vec![set], policies, ..PolicySource::default() }
    }

    fn message(source: &PolicySource) -> api::Configuration {
        let policies = serde_json::to_string(source).expect("JSON");
        api::Configuration { router_id: 1, policies, ..api::Configuration::default() }
    }

    /// The same with the prefix sets beside the policies.
    fn beside(source: &PolicySource) -> api::Configuration {
        let sets = source.prefix_sets.iter().map(|set| api::PrefixSet {
            name: set.name.clone(),
            entries: set.prefixes.octets().to_vec().into(),
        });
        let others = PolicySource { prefix_sets: Vec::new(), ..source.clone() };
        api::Configuration { prefix_sets: sets.collect(), ..message(&others) }
    }

    fn read(before: &Policies, message: api::Configuration, prepared: Option<Policies>) -> Policies {
        before.clone().read_at_once(message, prepared).expect("a configuration").1
    }

    fn program(policies: &Policies, name: &str) -> Program {
        policies.get(name).expect("a policy").0
    }

    #[test]
    fn prefix_sets_beside_the_policies_are_as_those_within() {
        let first = source("10.0.0.0/8 le 24");
        let (within, out) = (
            read(&Policies::default(), message(&first), None),
            read(&Policies::default(), beside(&first), None),
        );
        assert_eq!(program(&within, "p"), program(&out, "p"));
        assert_eq!(out.get("p").expect("a policy").1, first);
        let other = read(&out, beside(&source("10.0.0.0/8")), None);
        assert_ne!(program(&out, "p"), program(&other, "p"));
        assert_eq!(program(&out, "always").id(), program(&other, "always").id(), "it stays one program");
        let garbage = api::PrefixSet { name: "s".into(), entries: vec![24, 24].into() };
        let garbage = api::Configuration { prefix_sets: vec![garbage], ..beside(&first) };
        Policies::default().read_at_once(garbage, None).expect_err("half an entry");
    }

    #[test]
    fn what_was_prepared_is_taken_for_the_same_and_as_long_as_nothing_else_has_come() {
        let (first, second, third) = (source("10.0.0.0/8"), source("10.1.0.0/16"), source("10.2.0.0/16"));
        let now = read(&Policies::default(), beside(&first), None);
        assert!(!read(&now, beside(&first), None).differ_from(&now));
        let prepared = read(&now, beside(&second), None);
        assert!(prepared.differ_from(&now));
        assert!(!read(&now, beside(&second), Some(prepared.clone())).differ_from(&prepared));
        let other = read(&now, beside(&third), Some(prepared.clone()));
        assert!(other.differ_from(&prepared) && program(&other, "p") != program(&prepared, "p"));
        // Its programs were compared with those of before.
        assert!(read(&other, beside(&second), Some(prepared.clone())).differ_from(&prepared));
    }

    #[tokio::test]
    async fn a_long_message_is_read_while_others_are_answered() {
        let short = message(&source("10.0.0.0/8"));
        let vrfs = vec!["x".repeat(LONG)];
        let long = api::Configuration { vrfs, ..short.clone() };
        let is_read_at_once = |message| {
            let mut reading = pin!(Policies::default().read(message, None));
            matches!(reading.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(_)))
        };
        assert!(!is_long(&short) && is_read_at_once(short));
        // Another thread may have read it before the first look.
        assert!(is_long(&long));
        let (read, _) = Policies::default().read(long.clone(), None).await.expect("a configuration");
        assert_eq!(read.vrfs, long.vrfs);
    }
}
