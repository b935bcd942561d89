//! What the pipeline has to know of a session.

use std::net::{IpAddr, SocketAddr};

use holdfast_bgp_pipeline::SessionFacts;
use holdfast_bgp_session::Negotiated;
use holdfast_types::Family;

use super::Sessions;
use crate::connection::Key;

impl Sessions {
    /// What the pipeline has to know of a session that has come up over this connection.
    pub(crate) fn facts(&self, key: Key, negotiated: &Negotiated) -> Option<SessionFacts> {
        let (slot, connection) = (self.slot(key.0)?, self.connection(key)?);
        let local = connection.local.ip();
        let link_local = match local {
            IpAddr::V6(local) if local.is_unicast_link_local() => Some(local),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        };
        let facts = SessionFacts {
            families: negotiated.families.clone(),
            four_octet_as: negotiated.four_octet_as,
            max_message_len: negotiated.max_sent,
            extended_next_hop: negotiated.extended_next_hop.contains(&Family::IPV4_UNICAST),
            enhanced_refresh: negotiated.enhanced_refresh,
            orf_received: negotiated.orf_received.clone(),
            long_lived: negotiated.long_lived.is_some(),
            identifiers_received: negotiated.identifiers_received.iter().copied().collect(),
            identifiers_sent: negotiated.identifiers_sent.iter().copied().collect(),
            router_id: negotiated.router_id,
            peer_address: connection.remote.ip(),
            next_hop_v4: slot.neighbor.next_hop_v4(local),
            next_hop_v6: slot.neighbor.next_hop_v6(local),
            link_local,
            interface: match connection.remote {
                SocketAddr::V6(remote) => remote.scope_id(),
                SocketAddr::V4(_) => 0,
            },
            number: slot.number,
            first_identifier: 0,
        };
        Some(facts)
    }
}

/// Whether routes of a family can be announced with an address of ours.
pub(crate) fn has_next_hop(facts: &SessionFacts, family: Family) -> bool {
    let has_v6 = facts.next_hop_v6.is_some() || facts.link_local.is_some();
    match family {
        Family::IPV4_UNICAST => facts.next_hop_v4.is_some() || facts.extended_next_hop && has_v6,
        _ => has_v6,
    }
}
