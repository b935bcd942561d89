//! The aggregates of one family: which there are, and what each has counted.

use holdfast_bgp_wire::Origin;
use holdfast_policy::Program;
use holdfast_types::{IpPrefix, Prefix};

use crate::{
    core::Core,
    enclosing::Enclosing,
    path::Path,
    summary::{Summary, contributes},
};

/// A configured aggregate.
#[derive(Clone, PartialEq, Debug)]
pub struct AggregateConfig {
    /// What is announced; best routes inside it, other than its own, contribute.
    pub prefix: Prefix,
    /// Peers are not told of routes that contribute.
    pub summary_only: bool,
    /// Which routes inside it contribute. `None`: all.
    pub contributors: Option<Program>,
    /// What becomes of its attributes, and whether it is there at all. `None`: as it is made.
    pub policy: Option<Program>,
}

/// How an aggregate stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AggregateView {
    /// Where it leads.
    pub prefix: Prefix,
    /// Peers are not told of routes that contribute.
    pub summary_only: bool,
    /// Best routes inside it that contribute, as far as they have been counted.
    pub contributors: u64,
    /// What is there is still being counted.
    pub is_counting: bool,
    /// The worst ORIGIN of the contributors, which it is announced with; `None` while there is no such route.
    pub origin: Option<Origin>,
}

/// By ORIGIN, how many routes contribute.
pub(super) type Contributors = [u64; 3];

/// One aggregate.
#[derive(Debug)]
pub(super) struct Aggregate<P> {
    pub(super) config: AggregateConfig,
    pub(super) contributors: Contributors,
    pub(super) counting: Counting<P>,
    /// The ORIGIN of the route that is in the table.
    pub(super) told: Option<Origin>,
    /// The ORIGIN of the route that was made last, whether its policy accepts it or not.
    pub(super) made: Option<Origin>,
    /// That route was made by another policy.
    pub(super) is_outdated: bool,
    /// The last route that was made could not be announced: policy refuses it, or there was no room. Stays while
    /// nothing contributes.
    pub(super) is_refused: bool,
}

/// How far the walk is that counts what is there.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Counting<P> {
    /// After this prefix; `None`: at the beginning.
    After(Option<P>),
    Done,
}

impl<P: IpPrefix> Counting<P> {
    /// Whether changes of this prefix count: the walk will not come by any more.
    pub(super) fn has_passed(self, prefix: P) -> bool {
        match self {
            Self::After(after) => after.is_some_and(|after| prefix <= after),
            Self::Done => true,
        }
    }
}

impl<P: IpPrefix> Aggregate<P> {
    fn new(config: AggregateConfig) -> Self {
        Self {
            config,
            contributors: [0; 3],
            counting: Counting::After(None),
            told: None,
            made: None,
            is_outdated: false,
            is_refused: false,
        }
    }

    /// The same with another configuration.
    fn reconfigured(self, config: AggregateConfig) -> Self {
        let is_other = self.config.policy != config.policy;
        let is_outdated = self.is_outdated || is_other;
        let is_refused = self.is_refused && !is_other;
        let Self { told, made, .. } = self;
        match self.config.contributors == config.contributors {
            true => Self { config, is_outdated, is_refused, ..self },
            false => Self { told, made, is_outdated, is_refused, ..Self::new(config) },
        }
    }

    /// The ORIGIN with which a best path contributes; `None`: it does not.
    pub(super) fn contribution(&self, core: &mut Core, prefix: P, best: Path) -> Option<Origin> {
        if !best.is_some() {
            return None;
        }
        let set = core.effective(prefix.into(), best.set)?;
        contributes(core, prefix.into(), (best.source, set), self.config.contributors.as_ref())
            .then(|| core.sets.attributes(set).origin().unwrap_or(Origin::Incomplete))
    }

    pub(super) fn count(&mut self, was: Option<Origin>, is: Option<Origin>) {
        if let Some(origin) = was {
            let count = &mut self.contributors[origin as usize];
            *count = count.saturating_sub(1);
        }
        if let Some(origin) = is {
            self.contributors[origin as usize] += 1;
        }
    }

    /// The worst of the contributors' (RFC 4271 section 9.2.2.2).
    pub(super) fn origin(&self) -> Option<Origin> {
        [Origin::Incomplete, Origin::Egp, Origin::Igp]
            .into_iter()
            .find(|origin| self.contributors[*origin as usize] > 0)
    }
}

/// Those of one family.
#[derive(Debug)]
pub(crate) struct Aggregates<P> {
    pub(super) list: Enclosing<P, Aggregate<P>>,
    /// Not configured any more, or refused by their policies, but announced until peers have been told what lay inside;
    /// with their ORIGINs.
    pub(super) retired: Vec<(P, Origin)>,
    /// A policy has given another answer: which routes are kept back may change.
    pub(super) is_answered_anew: bool,
    /// Up to where the log has been read.
    pub(super) position: u64,
    /// Those whose route may have to be another.
    pub(super) touched: Vec<P>,
}

impl<P> Default for Aggregates<P> {
    fn default() -> Self {
        Self {
            list: Enclosing::default(),
            retired: Vec::new(),
            is_answered_anew: false,
            position: 0,
            touched: Vec::new(),
        }
    }
}

impl<P: IpPrefix> Aggregates<P> {
    pub(super) fn configure(&mut self, wanted: &[AggregateConfig], end: u64) {
        let mut before = self.list.take();
        self.position = end;
        self.touched.clear();
        let wanted = wanted.iter().filter_map(|config| Some((P::from_prefix(config.prefix)?, config)));
        let wanted: Vec<_> = wanted.map(|(prefix, config)| (prefix, config.clone())).collect();
        let retired = &mut self.retired;
        let list = wanted.into_iter().map(|(prefix, config)| {
            let aggregate = match before.remove(&prefix) {
                Some(aggregate) => aggregate.reconfigured(config),
                None => {
                    let told = retired.extract_if(.., |(gone, _)| *gone == prefix).next();
                    let told = told.map(|(_, origin)| origin);
                    Aggregate { told, made: told, is_outdated: told.is_some(), ..Aggregate::new(config) }
                }
            };
            (prefix, aggregate)
        });
        self.list = list.collect();
        let gone = before.into_iter().filter_map(|(prefix, aggregate)| Some((prefix, aggregate.told?)));
        self.retired.extend(gone);
        // Their policies may be others.
        self.touched.extend(self.list.iter().map(|(prefix, _)| prefix));
    }

    pub(super) fn is_counting(&self) -> bool {
        self.list.iter().any(|(_, aggregate)| aggregate.counting != Counting::Done)
    }

    pub(super) fn summaries(&self) -> impl Iterator<Item = (P, Summary)> {
        let is_summary = |aggregate: &Aggregate<P>| aggregate.config.summary_only && !aggregate.is_refused;
        let summaries = self.list.iter().filter(move |(_, aggregate)| is_summary(aggregate));
        summaries
            .map(|(prefix, Aggregate { config, .. })| (prefix, Summary::new(config.contributors.clone())))
    }

    pub(super) fn views(&self) -> impl Iterator<Item = AggregateView> {
        self.list.iter().map(|(prefix, aggregate)| AggregateView {
            prefix: prefix.into(),
            summary_only: aggregate.config.summary_only,
            contributors: aggregate.contributors.iter().sum(),
            is_counting: aggregate.counting != Counting::Done,
            origin: aggregate.told,
        })
    }
}
