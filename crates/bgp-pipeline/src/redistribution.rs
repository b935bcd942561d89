//! Routes of other protocols that we originate: they are stored and pass a policy like received ones.
//!
//! There is one source for all of them, as the RIB has one winner for a prefix. It stands behind configured networks and
//! before received routes, whatever those say of themselves.

use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_policy::{Program, Protocol};
use holdfast_types::{IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    Pipeline,
    class::{Class, ClassId, Policy},
    next_hop::NextHopId,
    path::{SetId, SourceId},
    sets::Owner,
};

/// Different combinations of protocol, tag and policy: each is looked for among all classes.
const MOST_CLASSES: usize = 4096;

/// What the RIB says of another protocol's route, beside its prefix.
#[derive(Clone, Debug)]
pub struct ForeignRoute {
    /// Who brought it.
    pub protocol: Protocol,
    /// The tag that it carries; 0 is none.
    pub tag: u32,
    /// Its metric, which becomes the MED unless it is 0.
    pub metric: u32,
    /// Says whether it becomes a route of ours, and what it then carries.
    pub policy: Program,
}

/// There are too many different tags, or too many attribute sets: the routes are not originated.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no room: there are too many different tags or attributes")]
pub struct NoRoom;

impl Pipeline {
    /// These prefixes have this route of another protocol, in place of any that they had. Its next hop is ourselves, its
    /// ORIGIN is INCOMPLETE unless the policy says otherwise.
    ///
    /// # Errors
    /// [`NoRoom`]; the prefixes then have no such route.
    pub fn redistribute(&mut self, prefixes: &[Prefix], route: &ForeignRoute) -> Result<(), NoRoom> {
        let set = self.foreign_set(route);
        self.arrive_foreign(prefixes, set);
        set.into_iter().for_each(|set| self.core.sets.release(set));
        set.map(|_| ()).ok_or(NoRoom)
    }

    /// These prefixes have no route of another protocol any more.
    pub fn withdraw_redistributed(&mut self, prefixes: &[Prefix]) {
        self.arrive_foreign(prefixes, None);
    }

    /// The set of such a route, with one more user.
    fn foreign_set(&mut self, route: &ForeignRoute) -> Option<SetId> {
        let med = (route.metric != 0).then_some(route.metric);
        let bytes = AttributesBuilder { med, ..AttributesBuilder::new(Origin::Incomplete) }.build();
        let ours = self.core.classes.get(ClassId::OURS).clone();
        let import = Policy::Program(route.policy.clone());
        let class = Class { protocol: route.protocol, tag: route.tag, import, ..ours };
        let class = self.core.classes.acquire_one_of(&class, MOST_CLASSES)?;
        let set = self.core.acquire(Owner::OURS, class, NextHopId::LOCAL, &bytes);
        self.core.classes.release(class);
        set
    }

    fn arrive_foreign(&mut self, prefixes: &[Prefix], set: Option<SetId>) {
        let (core, stages, source) = (&mut self.core, &mut self.stages, SourceId::REDISTRIBUTED);
        let v4: Vec<_> = prefixes.iter().copied().filter_map(Ipv4Prefix::from_prefix).collect();
        self.v4.arrive(core, stages, source, &v4, set);
        let v6: Vec<_> = prefixes.iter().copied().filter_map(Ipv6Prefix::from_prefix).collect();
        self.v6.arrive(core, stages, source, &v6, set);
        self.trim_if_long();
    }
}
