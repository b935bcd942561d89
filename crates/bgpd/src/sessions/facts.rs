//! What the pipeline has to know of a session.

use std::net::{IpAddr, SocketAddr};

use holdfast_bgp_pipeline::{PeerKind, Secured, SessionFacts, SignedFor};
use holdfast_bgp_session::Negotiated;
use holdfast_bgpsec_wire::{Ingress, Session};
use holdfast_types::Family;

use super::Sessions;
use crate::{config::Settings, connection::Key};

impl Sessions {
    /// What the pipeline has to know of a session that has come up over this connection.
    pub(crate) fn facts(
        &self,
        key: Key,
        negotiated: &Negotiated,
        settings: &Settings,
    ) -> Option<SessionFacts> {
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
            bgpsec_received: self.secured(key, negotiated, settings),
            bgpsec_sent: (!negotiated.bgpsec_sent.is_empty()).then(|| SignedFor {
                families: negotiated.bgpsec_sent.iter().copied().collect(),
                target: negotiated.asn,
            }),
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

    /// What the peer may send of BGPsec_PATH, by both OPENs and the configuration.
    fn secured(&self, key: Key, negotiated: &Negotiated, settings: &Settings) -> Option<Secured> {
        if negotiated.bgpsec_received.is_empty() {
            return None;
        }
        let neighbor = &self.slot(key.0)?.neighbor;
        let bgpsec = &neighbor.source.bgpsec;
        let own = neighbor.local_asn(settings);
        let confederation = settings.confederation.as_ref().map(|confederation| confederation.id);
        let session = match neighbor.kind(settings, negotiated.asn) {
            PeerKind::Ebgp => Session::External,
            PeerKind::Ibgp => Session::Internal,
            PeerKind::ConfedEbgp => Session::Confederation,
        };
        let other = [settings.asn, confederation.unwrap_or(settings.asn)].into_iter().find(|asn| *asn != own);
        let ingress = Ingress {
            session,
            own_other: other,
            pcount_zero: bgpsec.pcount_zero,
            most_hops: bgpsec.most_hops.into(),
            most_pcount: bgpsec.most_pcount.into(),
            repeated_prefix: bgpsec.repeated_prefix,
            ..Ingress::external(negotiated.asn, own)
        };
        Some(Secured { families: negotiated.bgpsec_received.iter().copied().collect(), ingress })
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
