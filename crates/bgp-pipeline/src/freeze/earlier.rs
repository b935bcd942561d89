//! Records of the builds before, of which a router that is upgraded may have some: each of one set.
//!
//! ```text
//!  1 version
//!  1 where the prefixes are: 0 in an NLRI field, 1 in MP_REACH_NLRI; 2 more where they have path identifiers, and 4 more
//!    where the place of the paths follows
//!  2 octets of attributes, and these in canonical form
//!  1 the place, if there is one
//!    the NLRI field of an UPDATE (IPv4), or the value of MP_REACH_NLRI
//! ```

use std::net::Ipv4Addr;

use holdfast_bgp_wire::{Attributes, MpReach, nlri, update::Rules};
use holdfast_types::{Family, Ipv4Prefix};

use super::{acquire, entry::is_ascending};
use crate::{
    PeerIndex, Pipeline,
    core::Core,
    journal::format::Unreadable,
    peer_in::{Arrival, Origin, gateway, mp_gateway},
    source::MOST_PATHS,
};

/// The form of these records.
pub(super) const VERSION: u8 = 1;
/// Prefixes have path identifiers.
const IDENTIFIED: u8 = 2;
/// It is said at which of the session's places the paths are.
const PLACED: u8 = 4;

impl Pipeline {
    pub(super) fn thaw_earlier(&mut self, index: PeerIndex, record: &[u8]) -> Result<(), Unreadable> {
        let Some(peer) = self.peers.get_mut(index.index()).and_then(Option::as_mut) else { return Ok(()) };
        let Some(session) = &mut peer.session else { return Ok(()) };
        let (source, places) = (session.source, session.places.take());
        let mut origin = Origin { source, facts: &session.facts, drops: &mut peer.drops };
        let read = read(&mut self.core, record, &mut origin);
        let Ok((mut arrival, place)) = read else {
            session.places = places;
            return Err(Unreadable);
        };
        arrival.retain_families(&mut self.core, &session.facts, &mut peer.drops);
        match places {
            None => self.arrive(source, &arrival),
            Some(mut places) => {
                if let Some(place) = place {
                    places.put_arriving(&mut self.core, &arrival, place);
                }
                self.arrive_identified(index, places, &arrival);
            }
        }
        arrival.release(&mut self.core);
        self.trim_if_long();
        Ok(())
    }
}

/// Reads a record; with one user of its set, as [`Reader::read`](crate::peer_in::Reader::read) does. And at which place its
/// paths are.
fn read<'a>(
    core: &mut Core,
    record: &'a [u8],
    origin: &mut Origin<'_>,
) -> Result<(Arrival<'a>, Option<u8>), Unreadable> {
    let [classic, multiprotocol] = core.sources.get(origin.source).classes;
    let Some(rules) = core.classes.get(classic).rules else { return Ok(Default::default()) };
    let Record { attributes, place, routes } = Record::read(record, &rules).ok_or(Unreadable)?;
    let mut arrival = Arrival::default();
    match routes {
        Routes::Nlri(nlri, next_hop) => {
            let gateway = gateway(next_hop.into(), origin.facts);
            let set = acquire(core, (classic, &rules), attributes, gateway, origin);
            arrival.nlri = (nlri, set);
        }
        Routes::Reach(reach) => {
            let set =
                acquire(core, (multiprotocol, &rules), attributes, mp_gateway(reach, origin.facts), origin);
            arrival.reach = Some((reach, set));
        }
    }
    Ok((arrival, place))
}

/// A record in its parts, as sound as those of an UPDATE.
struct Record<'a> {
    attributes: &'a [u8],
    place: Option<u8>,
    routes: Routes<'a>,
}

enum Routes<'a> {
    /// With their next hop.
    Nlri(&'a [u8], Ipv4Addr),
    Reach(MpReach<'a>),
}

impl<'a> Record<'a> {
    fn read(record: &'a [u8], rules: &Rules) -> Option<Self> {
        let (&[version, kind, high, low], rest) = record.split_first_chunk()?;
        let (attributes, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
        if version != VERSION || !is_ascending(attributes) {
            return None;
        }
        let identified = kind & IDENTIFIED != 0;
        let (place, routes) = match kind & PLACED {
            0 => (None, rest),
            _ => rest.split_first().map(|(place, routes)| (Some(*place), routes))?,
        };
        if place.is_some_and(|place| !identified || usize::from(place) >= MOST_PATHS) {
            return None;
        }
        let routes = match kind & !(IDENTIFIED | PLACED) {
            0 if identified == rules.identifiers.of(Family::IPV4_UNICAST)
                && has_prefixes(routes, identified) =>
            {
                Routes::Nlri(routes, Attributes(attributes).next_hop()?)
            }
            1 => {
                let reach = MpReach::parse(routes, rules).ok().filter(is_frozen)?;
                (identified == rules.identifiers.of(reach.family)).then_some(Routes::Reach(reach))?
            }
            _ => return None,
        };
        Some(Self { attributes, place, routes })
    }
}

/// Whether the list can be read, and has something.
fn has_prefixes(nlri: &[u8], identified: bool) -> bool {
    let count = match identified {
        true => nlri::count_identified::<Ipv4Prefix>(nlri),
        false => nlri::count::<Ipv4Prefix>(nlri),
    };
    count.is_ok_and(|count| count > 0)
}

/// Whether it has a next hop and a prefix.
fn is_frozen(reach: &MpReach<'_>) -> bool {
    reach.next_hop.is_some() && !reach.nlri.is_empty()
}
