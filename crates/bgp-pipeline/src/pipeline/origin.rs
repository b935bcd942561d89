//! Routes of our own.

use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_policy::Protocol;
use holdfast_types::Prefix;

use super::Pipeline;
use crate::{
    class::{Class, ClassId},
    next_hop::NextHopId,
    path::{SetId, SourceId},
    sets::Owner,
};

/// Routes of our own: what they carry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginateAttributes {
    /// ORIGIN.
    pub origin: Origin,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// COMMUNITIES.
    pub communities: Vec<u32>,
    /// LARGE_COMMUNITIES.
    pub large_communities: Vec<(u32, u32, u32)>,
    /// Where the route comes from; export policies may ask.
    pub protocol: Protocol,
    /// The tag it carries between protocols; 0 is none.
    pub tag: u32,
}

impl Default for OriginateAttributes {
    fn default() -> Self {
        Self {
            origin: Origin::Igp,
            med: None,
            communities: Vec::new(),
            large_communities: Vec::new(),
            protocol: Protocol::Static,
            tag: 0,
        }
    }
}

impl Pipeline {
    /// Adds or replaces a route of our own: a configured network, or one of another protocol. It beats all
    /// received ones.
    pub fn originate(&mut self, prefix: Prefix, attributes: &OriginateAttributes) {
        let bytes = AttributesBuilder {
            med: attributes.med,
            communities: attributes.communities.clone(),
            large_communities: attributes.large_communities.clone(),
            ..AttributesBuilder::new(attributes.origin)
        }
        .build();
        let ours = self.core.classes.get(ClassId::OURS).clone();
        let class = Class { protocol: attributes.protocol, tag: attributes.tag, ..ours };
        let Some(class) = self.core.classes.acquire(&class) else { return };
        let set = self.core.acquire(Owner::OURS, class, NextHopId::LOCAL, &bytes);
        self.core.classes.release(class);
        self.arrive_local(prefix, set);
        set.into_iter().for_each(|set| self.core.sets.release(set));
        self.trim_if_long();
    }

    /// Takes a route of our own back.
    pub fn withdraw_origin(&mut self, prefix: Prefix) {
        self.arrive_local(prefix, None);
        self.trim_if_long();
    }

    fn arrive_local(&mut self, prefix: Prefix, set: Option<SetId>) {
        let (core, stages) = (&mut self.core, &mut self.stages);
        match prefix {
            Prefix::V4(prefix) => self.v4.arrive(core, stages, SourceId::LOCAL, &[prefix], set),
            Prefix::V6(prefix) => self.v6.arrive(core, stages, SourceId::LOCAL, &[prefix], set),
        }
    }
}
