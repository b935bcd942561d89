//! Aggregates (RFC 4271 section 9.2.2.2): routes of our own that are there as long as best routes lie inside them.
//!
//! What lies inside an aggregate is counted, by ORIGIN, along the log of changes of the best routes: each call that has
//! changed something reads on to the log's end before it returns, so the counts are never behind and no reader can be
//! lost. Only an aggregate that is new, or that counts by another policy, has a walk over its part of the table.
//!
//! An aggregate is a route of a source of its own, so it counts for the aggregates around it. Its path is empty: with no
//! AS_SET (RFC 9774) the numbers behind it are left out, which ATOMIC_AGGREGATE says.
//!
//! Which routes are not announced because of a `summary-only` aggregate depends on configuration and on whether its
//! policy accepts the aggregate ([`crate::summary`]), not on whether anything lies inside. The peers' exports change when
//! new aggregates have been counted, or when a policy has given another answer; aggregates go when all peers have been
//! told what lay inside: nobody is left without both.

pub(crate) mod list;

use std::net::Ipv4Addr;

use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_policy::{Program, Protocol};
use holdfast_types::IpPrefix;

use self::list::{AggregateConfig, AggregateView, Aggregates, Counting};
use crate::{
    Pipeline,
    class::{Class, ClassId, Policy},
    core::Core,
    next_hop::NextHopId,
    path::{SetId, SourceId},
    sets::Owner,
    stage::Stages,
    summary::Summaries,
    table::Table,
};

impl<P: IpPrefix> Table<P> {
    /// Counts what the log says, and has the routes of aggregates be what follows from that.
    fn aggregate(&mut self, core: &mut Core, stages: &mut Stages) {
        loop {
            let Aggregates { list, position, touched, .. } = &mut self.aggregates;
            for change in self.rib.log.read(*position, usize::MAX).filter(|change| !change.is_each()) {
                list.for_each_around(change.prefix, |around, aggregate| {
                    if !aggregate.counting.has_passed(change.prefix) {
                        return;
                    }
                    let was = aggregate.contribution(core, change.prefix, change.old);
                    let is = aggregate.contribution(core, change.prefix, change.new);
                    if was != is {
                        aggregate.count(was, is);
                        touched.push(around);
                    }
                });
            }
            *position = self.rib.log.end();
            if touched.is_empty() {
                return;
            }
            self.put_aggregates(core, stages);
        }
    }

    /// What it logs is of aggregates alone, and counts for those around them.
    fn put_aggregates(&mut self, core: &mut Core, stages: &mut Stages) {
        let mut touched = std::mem::take(&mut self.aggregates.touched);
        touched.sort_unstable();
        touched.dedup();
        for prefix in touched.drain(..) {
            let Aggregates { list, retired, is_answered_anew, .. } = &mut self.aggregates;
            let Some(aggregate) = list.get_mut(prefix) else { continue };
            if aggregate.counting != Counting::Done {
                continue;
            }
            let origin = aggregate.origin();
            let was = std::mem::replace(&mut aggregate.made, origin);
            let is_outdated = std::mem::take(&mut aggregate.is_outdated) && was.is_some();
            if was == origin && !is_outdated {
                continue;
            }
            let made = origin.and_then(|origin| core.aggregate_set(origin, aggregate.config.policy.as_ref()));
            let set = made.filter(|set| core.effective(prefix.into(), *set).is_some());
            let is_refused = set.is_none() && (origin.is_some() || aggregate.is_refused);
            let had_answered = std::mem::replace(&mut aggregate.is_refused, is_refused);
            *is_answered_anew |= aggregate.config.summary_only && had_answered != is_refused;
            let told = std::mem::replace(&mut aggregate.told, origin.filter(|_| set.is_some()));
            match (origin, set, told) {
                // Refused from now on: what lies inside is announced first.
                (Some(_), None, Some(told)) => retired.push((prefix, told)),
                (Some(_), None, None) => {}
                (_, set, _) => {
                    retired.retain(|(gone, _)| *gone != prefix);
                    self.arrive(core, stages, SourceId::AGGREGATED, &[prefix], set);
                }
            }
            made.into_iter().for_each(|set| core.sets.release(set));
        }
        self.aggregates.touched = touched;
    }

    /// Counts up to `budget` prefixes that are there.
    fn count_slice(&mut self, core: &mut Core, mut budget: usize) {
        let Self { rib, aggregates, .. } = self;
        for (prefix, aggregate) in aggregates.list.iter_mut() {
            let Counting::After(mut after) = aggregate.counting else { continue };
            if budget == 0 {
                return;
            }
            let inside = rib.table.iter_from(after.unwrap_or(prefix), false);
            let inside = inside.take_while(|(inside, _)| prefix.contains(*inside)).take(budget);
            let mut counted = 0;
            for (inside, word) in inside {
                let is = aggregate.contribution(core, inside, rib.lists.best(word));
                aggregate.count(None, is);
                (after, counted) = (Some(inside), counted + 1);
            }
            aggregate.counting = if counted < budget { Counting::Done } else { Counting::After(after) };
            budget -= counted;
            aggregates.touched.push(prefix);
        }
    }

    /// The last of those that are not to be there any more.
    fn withdraw_retired(&mut self, core: &mut Core, stages: &mut Stages) {
        for (prefix, _) in std::mem::take(&mut self.aggregates.retired) {
            self.arrive(core, stages, SourceId::AGGREGATED, &[prefix], None);
        }
    }
}

impl Core {
    /// The set of an aggregate, with one more user. `None` when there is no room for it.
    fn aggregate_set(&mut self, origin: Origin, policy: Option<&Program>) -> Option<SetId> {
        let speaker = Ipv4Addr::from_bits(self.speaker.router_id.bits());
        let aggregator = Some((self.speaker.outer_asn(), speaker));
        let bytes = AttributesBuilder { aggregator, ..AttributesBuilder::new(origin) }.build();
        let ours = self.classes.get(ClassId::OURS).clone();
        let import = policy.map_or(Policy::AcceptAll, |program| Policy::Program(program.clone()));
        let class = self.classes.acquire(&Class { protocol: Protocol::Bgp, import, ..ours })?;
        let set = self.acquire(Owner::OURS, class, NextHopId::LOCAL, &bytes);
        self.classes.release(class);
        set
    }
}

/// What the pipeline keeps of aggregates besides its tables.
#[derive(Debug, Default)]
pub(crate) struct Aggregation {
    /// There are aggregates, or were until now.
    is_on: bool,
    /// Exports have to become what is configured, and what policies say of that, when everything has been counted.
    is_changing: bool,
    /// What exports have.
    pub(crate) summaries: Option<Summaries>,
}

impl Pipeline {
    /// Makes these the aggregates, each prefix once. New ones are announced, and what lies inside is not any more, as
    /// [`Self::work`] comes by; of those that go, what lay inside is announced first.
    pub fn set_aggregates(&mut self, wanted: &[AggregateConfig]) {
        let ends = self.ends();
        self.v4.aggregates.configure(wanted, ends[0]);
        self.v6.aggregates.configure(wanted, ends[1]);
        self.aggregation.is_on = self.has_aggregates();
        self.aggregation.is_changing = self.aggregation.is_on || self.aggregation.summaries.is_some();
        if self.v4.rib.table.is_empty() && self.v6.rib.table.is_empty() {
            // Whoever comes up now is told nothing twice.
            self.count_aggregates(1);
        }
    }

    /// How the aggregates stand, in address order.
    pub fn aggregates(&self) -> Vec<AggregateView> {
        self.v4.aggregates.views().chain(self.v6.aggregates.views()).collect()
    }

    /// Whether routes of aggregates, or which routes they keep back, are still to change.
    pub(crate) fn is_aggregating(&self) -> bool {
        self.aggregation.is_changing || self.has_retired_aggregates()
    }

    /// Takes in what has been logged; called after every change of the tables.
    #[inline]
    pub(crate) fn aggregate(&mut self) {
        if self.aggregation.is_on {
            self.aggregate_changes();
        }
    }

    #[cold]
    fn aggregate_changes(&mut self) {
        self.v4.aggregate(&mut self.core, &mut self.stages);
        self.v6.aggregate(&mut self.core, &mut self.stages);
        let v4 = std::mem::take(&mut self.v4.aggregates.is_answered_anew);
        let v6 = std::mem::take(&mut self.v6.aggregates.is_answered_anew);
        self.aggregation.is_changing |= v4 || v6;
    }

    /// A slice of what [`Self::set_aggregates`], or another answer of a policy, leaves to do; whether there is more.
    pub(crate) fn count_aggregates(&mut self, budget: usize) -> bool {
        if !self.aggregation.is_changing {
            return false;
        }
        self.v4.count_slice(&mut self.core, budget);
        self.v6.count_slice(&mut self.core, budget);
        self.aggregate_changes();
        if self.v4.aggregates.is_counting() || self.v6.aggregates.is_counting() {
            return true;
        }
        self.aggregation.is_changing = false;
        let summaries = Summaries::new(self.v4.aggregates.summaries(), self.v6.aggregates.summaries());
        if self.aggregation.summaries != summaries {
            self.aggregation.summaries = summaries;
            self.change_exports();
        }
        self.aggregation.is_on = self.has_aggregates();
        false
    }

    /// Whether [`Self::count_aggregates`] has something to do.
    pub(crate) fn has_aggregates_to_count(&self) -> bool {
        self.aggregation.is_changing
    }

    fn has_aggregates(&self) -> bool {
        let is_any_configured = !self.v4.aggregates.list.is_empty() || !self.v6.aggregates.list.is_empty();
        is_any_configured || self.has_retired_aggregates()
    }

    /// Takes back aggregates that are not configured any more, or refused. Whether it has to wait for peers, which are to be told of
    /// what lay inside first.
    pub(crate) fn retire_aggregates(&mut self) -> bool {
        if self.aggregation.is_changing || !self.has_retired_aggregates() {
            return false;
        }
        if self.is_telling_changes() {
            return true;
        }
        self.v4.withdraw_retired(&mut self.core, &mut self.stages);
        self.v6.withdraw_retired(&mut self.core, &mut self.stages);
        self.aggregate_changes();
        self.aggregation.is_on = self.has_aggregates();
        false
    }

    fn has_retired_aggregates(&self) -> bool {
        !self.v4.aggregates.retired.is_empty() || !self.v6.aggregates.retired.is_empty()
    }
}
