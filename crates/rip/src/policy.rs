//! What the operator has to say about each route.

use crate::{Metric, Protocol};

/// What a policy may change.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The distance; of a received route with the cost of the interface.
    pub metric: Metric,
    /// The Route Tag.
    pub tag: u16,
}

/// Decides on routes that neighbours tell and are told. It is not asked about those that are unreachable.
pub trait Policy<P: Protocol> {
    /// Whether a route that was received over an interface is used. One that was used and is refused later is lost, as if the
    /// neighbour had said that it is unreachable.
    fn import(&mut self, interface: u32, prefix: P::Prefix, route: &mut Candidate) -> bool {
        let _ = (interface, prefix, route);
        true
    }

    /// Whether a route is told over an interface. Who knows it already forgets it when it is no longer repeated.
    fn export(&mut self, interface: u32, prefix: P::Prefix, route: &mut Candidate) -> bool {
        let _ = (interface, prefix, route);
        true
    }
}

/// The policy without any rule.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct AcceptAll;

impl<P: Protocol> Policy<P> for AcceptAll {}
