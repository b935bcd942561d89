//! What is changed under sessions that stay, besides the configuration of a peer.

use std::net::{Ipv4Addr, Ipv6Addr};

use holdfast_bgp_wire::update::AsSets;

use crate::{PeerIndex, own_next_hop::OwnNextHops, pipeline::Pipeline};

impl Pipeline {
    /// Whether paths with an AS_SET are taken. Those that are there and are taken no more go as [`Self::work`] comes by; those
    /// that were refused are not here: whoever changes it asks the peers for everything again.
    pub fn set_as_sets(&mut self, as_sets: AsSets) {
        self.core.speaker.as_sets = as_sets;
        for index in (0..self.peers.len()).map(|number| PeerIndex(number as u16)) {
            if let Some(config) = self.peers[index.index()].as_ref().map(|peer| peer.config.clone()) {
                self.configure_peer(index, config);
            }
        }
    }

    /// Other addresses of ours as next hop for the routes to a peer, which is told everything again with them.
    pub fn change_next_hops(&mut self, index: PeerIndex, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) {
        let Some(session) = self.session_mut(index) else { return };
        (session.facts.next_hop_v4, session.facts.next_hop_v6) = (v4, v6);
        let (own, families) = (OwnNextHops::new(&session.facts), session.facts.families.clone());
        if let Some(member) = &mut self.members[index.index()] {
            self.streams.change_own(index, member, own);
        }
        self.change_export(index);
        families.into_iter().for_each(|family| self.announce_again(index, family));
    }
}
