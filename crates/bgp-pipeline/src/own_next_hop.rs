//! Ourselves as next hop: our address differs from link to link, the rest of a message does not.

use holdfast_bgp_wire::NextHop;

use crate::SessionFacts;

/// Ourselves as next hop on the link to one peer, by family. IPv4 routes over a link without IPv4 go by RFC 8950.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct OwnNextHops([Option<NextHop>; 2]);

impl OwnNextHops {
    pub(crate) fn new(facts: &SessionFacts) -> Self {
        let v6 = match (facts.next_hop_v6, facts.link_local) {
            (Some(global), link_local) => Some(NextHop::V6 { global, link_local }),
            // On a link without global addresses; in the place of one, as others send it.
            (None, Some(link_local)) => Some(NextHop::V6 { global: link_local, link_local: None }),
            (None, None) => None,
        };
        let v4 = facts.next_hop_v4.map(NextHop::V4);
        Self([v4.or(v6.filter(|_| facts.extended_next_hop)), v6])
    }

    pub(crate) fn get(&self, ipv4: bool) -> Option<NextHop> {
        self.0[usize::from(!ipv4)]
    }

    /// How long they are on the wire: peers for which that is equal can be sent the same messages, but for the
    /// address itself.
    pub(crate) fn octets(&self) -> [Option<u8>; 2] {
        self.0.map(|next_hop| next_hop.map(NextHop::octets))
    }
}
