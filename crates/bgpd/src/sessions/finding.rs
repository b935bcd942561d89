//! Who somebody is, by name, address or interface.

use holdfast_bgp_pipeline::PeerIndex;

use super::{MOST_PEERS, MOST_PER_RANGE, Sessions};
use crate::location::Location;

impl Sessions {
    /// The configured or dynamic peer at a place.
    pub(crate) fn peer_at(&self, location: &Location) -> Option<PeerIndex> {
        self.locations.get(location).copied()
    }

    /// The peer that somebody at this place is: the one that is configured there, or as the neighbour on that interface.
    pub(crate) fn peer_of(&self, location: &Location) -> Option<PeerIndex> {
        let neighbor = || match location {
            Location::OnLink(_, interface) => self.peer_at(&Location::Neighbor(interface.clone())),
            Location::Address(_) | Location::Neighbor(_) => None,
        };
        self.peer_at(location).or_else(neighbor)
    }

    /// A peer by the name or address that an operator gave.
    pub(crate) fn peer_named(&self, text: &str) -> Option<PeerIndex> {
        let named = self.slots.iter().find(|(_, slot)| slot.neighbor.name == text).map(|(&index, _)| index);
        let Ok(location) = text.parse();
        named.or_else(|| self.peer_at(&location)).or_else(|| self.in_session_with(&location))
    }

    /// The peer without address whose session is with who is at this place.
    fn in_session_with(&self, location: &Location) -> Option<PeerIndex> {
        let Location::OnLink(address, interface) = location else { return None };
        let index = self.peer_at(&Location::Neighbor(interface.clone()))?;
        let (_, session) = self.session_connection(index)?;
        (session.remote_address() == *address).then_some(index)
    }

    /// Whether a listen range may have one more peer. Those that are saying goodbye count: they hold a connection.
    pub(crate) fn has_room(&self, range: &str) -> bool {
        self.slots.len() + self.leaving.len() < MOST_PEERS
            && self.leaving.len() < MOST_PER_RANGE
            && self.ranges.get(range).is_none_or(|members| members.present < MOST_PER_RANGE)
    }
}
