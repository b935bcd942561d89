//! Next hops as an origin gives them, and as they are once resolved.

use std::net::IpAddr;

use smallvec::SmallVec;

/// Most members of a set, before and after resolution. Further ones are left out.
pub const MAX_MEMBERS: usize = 64;

/// Names an interface. A name may belong to an interface that does not exist yet: the route begins to work when
/// it appears.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum InterfaceRef {
    /// The kernel's number.
    Index(u32),
    /// The name.
    Name(Box<str>),
}

/// One way out: a gateway, an interface, or both. With neither it is never usable.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Nexthop {
    /// The neighbour to forward to. Without an interface it is resolved through internal routes.
    pub gateway: Option<IpAddr>,
    /// The interface to leave by. A gateway that has one is a neighbour there and needs no resolution.
    pub interface: Option<InterfaceRef>,
    /// Share of the traffic among the members; 0 counts as 1.
    pub weight: u8,
}

impl Nexthop {
    /// A neighbour or a distant router.
    pub fn via(gateway: IpAddr) -> Self {
        Self { gateway: Some(gateway), interface: None, weight: 1 }
    }

    /// Everything in the prefix is reached on this interface directly.
    pub fn on(interface: InterfaceRef) -> Self {
        Self { gateway: None, interface: Some(interface), weight: 1 }
    }
}

/// What an origin wants done with the packets of a route.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NexthopSet {
    /// Forward, sharing the load among the members that are usable.
    Forward(Vec<Nexthop>),
    /// Drop silently.
    Blackhole,
    /// Drop and answer with ICMP unreachable.
    Unreachable,
}

impl NexthopSet {
    /// A set of one gateway.
    pub fn via(gateway: IpAddr) -> Self {
        Self::Forward(vec![Nexthop::via(gateway)])
    }

    /// How many it shares its routes among, at least one.
    pub(crate) fn members(&self) -> usize {
        match self {
            Self::Forward(members) => members.len().max(1),
            Self::Blackhole | Self::Unreachable => 1,
        }
    }

    pub(crate) fn as_slice(&self) -> &[Nexthop] {
        match self {
            Self::Forward(members) => members,
            Self::Blackhole | Self::Unreachable => &[],
        }
    }
}

/// A set of next hops, and what is done while none of its members works.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Nexthops {
    /// What is done.
    pub set: NexthopSet,
    /// The ways that are taken instead while all neighbours that the set leads to have failed
    /// ([`Rib::neighbors_failed`](crate::Rib::neighbors_failed)). None: the set stays as it is.
    pub backups: Vec<Nexthop>,
}

impl From<NexthopSet> for Nexthops {
    fn from(set: NexthopSet) -> Self {
        Self { set, backups: Vec::new() }
    }
}

impl Nexthops {
    pub(crate) fn truncate(&mut self) {
        if let NexthopSet::Forward(members) = &mut self.set {
            members.truncate(MAX_MEMBERS);
        }
        self.backups.truncate(MAX_MEMBERS);
    }
}

/// One resolved way out.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct ResolvedNexthop {
    /// The neighbour; `None` when the destination itself is the neighbour.
    pub gateway: Option<IpAddr>,
    /// The kernel's number of the interface.
    pub interface: u32,
    /// Share of the traffic, at least 1.
    pub weight: u8,
}

/// What became of a set of next hops.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Resolution {
    /// Leads nowhere now: routes that use it are not forwarded.
    #[default]
    Unresolved,
    /// Drop silently.
    Blackhole,
    /// Drop and answer with ICMP unreachable.
    Unreachable,
    /// Forward to these, at least one.
    Forward(SmallVec<[ResolvedNexthop; 1]>),
}

impl Resolution {
    /// Whether a route with these next hops can win.
    pub fn is_usable(&self) -> bool {
        *self != Self::Unresolved
    }

    /// The members, if it forwards.
    pub fn members(&self) -> &[ResolvedNexthop] {
        match self {
            Self::Forward(members) => members,
            Self::Unresolved | Self::Blackhole | Self::Unreachable => &[],
        }
    }

    /// Adds what another member of the same set resolves to. Any forwarding beats dropping.
    pub(crate) fn join(&mut self, other: Self) {
        match (self, other) {
            (_, Self::Unresolved) => {}
            (Self::Forward(members), Self::Forward(more)) => {
                more.into_iter().for_each(|member| add_member(members, member));
            }
            (this, other) if matches!(other, Self::Forward(_)) || !this.is_usable() => *this = other,
            _ => {}
        }
    }

    /// The same seen from a route whose next hop `gateway` was looked up: a neighbour that had no address gets
    /// that of the gateway, shares multiply.
    pub(crate) fn through(mut self, gateway: IpAddr, weight: u8) -> Self {
        if let Self::Forward(members) = &mut self {
            for member in members {
                member.gateway.get_or_insert(gateway);
                member.weight = member.weight.saturating_mul(weight.max(1));
            }
        }
        self
    }
}

/// Two members that are the same way out share one place.
fn add_member(members: &mut SmallVec<[ResolvedNexthop; 1]>, new: ResolvedNexthop) {
    let same = |m: &&mut ResolvedNexthop| (m.gateway, m.interface) == (new.gateway, new.interface);
    if let Some(member) = members.iter_mut().find(same) {
        member.weight = member.weight.saturating_add(new.weight);
    } else if members.len() < MAX_MEMBERS {
        members.push(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward(members: &[(u32, u8)]) -> Resolution {
        let member = |&(interface, weight)| ResolvedNexthop { gateway: None, interface, weight };
        Resolution::Forward(members.iter().map(member).collect())
    }

    #[test]
    fn joining_keeps_what_forwards_and_adds_equal_ways_up() {
        let mut joined = Resolution::Unresolved;
        for part in [Resolution::Blackhole, Resolution::Unreachable] {
            joined.join(part);
            assert_eq!(joined, Resolution::Blackhole, "the first way to drop stays");
        }
        joined.join(forward(&[(1, 1)]));
        joined.join(forward(&[(2, 1), (1, 254)]));
        joined.join(forward(&[(1, 9)]));
        joined.join(Resolution::Unresolved);
        assert_eq!(joined, forward(&[(1, 255), (2, 1)]));
    }

    #[test]
    fn a_set_never_grows_past_its_limit() {
        let mut joined = Resolution::Unresolved;
        (0..100).for_each(|interface| joined.join(forward(&[(interface, 1)])));
        assert_eq!(joined.members().len(), MAX_MEMBERS);
    }
}
