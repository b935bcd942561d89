//! Which BFD session a peer has (RFC 5882 section 10.2).

use std::net::IpAddr;

use holdfast_bgp_pipeline::PeerIndex;
use holdfast_bgp_session::State;
use holdfast_config::schema::{BfdHops, PeerBfd};

use super::{Effect, Sessions};
use crate::{
    bfd::Wanted,
    config::{Neighbor, Settings},
    connection::Connection,
    location::Location,
};

impl Sessions {
    /// Somebody is to follow the BFD session of a peer.
    pub(crate) fn follow(&mut self, index: PeerIndex) {
        self.effects.push_back(Effect::Follow(index));
    }

    /// The BFD session that a peer is to have: none while it is kept down, or its address is not known.
    pub(crate) fn wanted_bfd(&self, index: PeerIndex, settings: &Settings) -> Option<Wanted> {
        let slot = self.slots.get(&index)?;
        let neighbor = &slot.neighbor;
        let bfd = neighbor.source.bfd.as_ref().filter(|_| !slot.is_kept_down())?;
        let connection = slot.session.connection().and_then(|(id, _)| self.connections.get(&(index, id)));
        let before = slot.bfd.as_ref().map(|following| &following.wanted);
        let remote = match &neighbor.location {
            Location::Address(address) => *address,
            Location::OnLink(address, _) => (*address).into(),
            // Who was there last, until there is another one.
            Location::Neighbor(_) => {
                connection.map(Connection::remote_address).or(before.map(|before| before.remote))?
            }
        };
        let hops = hops(neighbor, bfd, settings);
        let local = || connection.map(|connection| connection.local.ip().to_canonical());
        let is_up = slot.session.state() == State::Established;
        // A session over several hops is known by both addresses (RFC 5883 section 4), and those of BGP agree on both ends.
        let of_session = || {
            let kept = before.filter(|before| before.hops == hops && !is_up).and_then(|before| before.local);
            kept.or_else(local)
        };
        let local: Option<IpAddr> = match (neighbor.source.local_address, hops) {
            (Some(configured), _) => Some(configured),
            (None, BfdHops::Single) => None,
            (None, BfdHops::Automatic | BfdHops::Multiple) => Some(of_session()?),
        };
        let interface = neighbor.source.remote.interface().unwrap_or_default().into();
        Some(Wanted { remote, local, interface, hops, profile: bfd.profile.clone() })
    }
}

fn hops(neighbor: &Neighbor, bfd: &PeerBfd, settings: &Settings) -> BfdHops {
    let rules = &neighbor.source.rules;
    let ours = neighbor.local_asn(settings);
    let may_be_internal = ours == settings.asn && neighbor.asn.admits(ours, ours);
    let is_on_link = neighbor.source.remote.interface().is_some();
    match (bfd.hops, rules.multihop) {
        (said @ (BfdHops::Single | BfdHops::Multiple), _) => said,
        (BfdHops::Automatic, _) if is_on_link || rules.ttl_security => BfdHops::Single,
        (BfdHops::Automatic, Some(2..)) => BfdHops::Multiple,
        (BfdHops::Automatic, None) if may_be_internal => BfdHops::Automatic,
        (BfdHops::Automatic, Some(0 | 1) | None) => BfdHops::Single,
    }
}
