//! Routes on their way to another process: as they were received, in records.
//!
//! A walk over the tables, in slices, writes for each session which routes it has brought; another process takes the
//! records in as if they were UPDATEs, but need not check them. What was decided is not written: it is decided again.
//!
//! ```text
//!  1 version
//!  1 where the prefixes are: 0 in an NLRI field, 1 in MP_REACH_NLRI; 2 more where they have path identifiers, and 4 more
//!    where the place of the paths follows (records of earlier versions have none)
//!  2 octets of attributes, and these in canonical form
//!  1 the place, if there is one
//!    the NLRI field of an UPDATE (IPv4), or the value of MP_REACH_NLRI
//! ```

use std::net::Ipv4Addr;

use holdfast_bgp_wire::{
    Attributes, MpReach, NextHop,
    nlri::{self, Identified, Nlri as _},
    update::Rules,
};
use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix};

use crate::{
    DropReason, PeerIndex, Pipeline,
    class::ClassId,
    core::{Core, refuses},
    journal::format::Unreadable,
    next_hop::Gateway,
    orf,
    path::{Path, SetId, SourceId},
    peer_in::{Arrival, Concerned, Origin, gateway, mp_gateway},
    pipeline::Peer,
    sets::Owner,
    source::MOST_PATHS,
    table::Table,
};

/// The form of records of routes.
const VERSION: u8 = 1;
/// Prefixes have path identifiers.
const IDENTIFIED: u8 = 2;
/// It is said at which of the session's places the paths are: under which identifier they are announced depends on it.
const PLACED: u8 = 4;

/// Where a walk that freezes routes goes on; the beginning by default.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FreezePlace(Place);

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Place {
    /// After this prefix.
    Ipv4(Option<Ipv4Prefix>),
    Ipv6(Option<Ipv6Prefix>),
}

impl Default for Place {
    fn default() -> Self {
        Self::Ipv4(None)
    }
}

impl Pipeline {
    /// A slice of a walk over the tables: hands a record to `sink` for every attribute set of every wanted peer, with
    /// the prefixes of the slice that have it. Returns where to go on, `None` at the end. `budget` counts the paths
    /// that are looked at, 0.1 us each; the more, the more of them share a record.
    ///
    /// Routes that come, change or go between slices may or may not be in the records: whoever takes them in has to be
    /// given all UPDATEs since the beginning of the walk afterwards.
    pub fn freeze_routes(
        &self,
        from: FreezePlace,
        budget: usize,
        wanted: impl Fn(PeerIndex) -> bool,
        sink: &mut dyn FnMut(PeerIndex, &[u8]),
    ) -> Option<FreezePlace> {
        let next = match from.0 {
            Place::Ipv4(after) => {
                let next = self.v4.freeze(&self.core, &self.peers, after, budget, wanted, sink);
                Some(next.map_or(Place::Ipv6(None), |next| Place::Ipv4(Some(next))))
            }
            Place::Ipv6(after) => {
                let next = self.v6.freeze(&self.core, &self.peers, after, budget, wanted, sink);
                next.map(|next| Place::Ipv6(Some(next)))
            }
        };
        next.map(FreezePlace)
    }

    /// Takes in a record that [`Self::freeze_routes`] or [`Self::freeze_orf`] has written, here or in another process, for a session that is
    /// up. What follows is as for an UPDATE: import policy, next hops, decision. Routes whose next hop is our own
    /// address by now are withdrawn, and those of families that are not negotiated any more ignored; [`Self::drops`]
    /// counts both.
    ///
    /// # Errors
    /// It is no such record; nothing of it is taken.
    pub fn thaw_routes(&mut self, index: PeerIndex, record: &[u8]) -> Result<(), Unreadable> {
        if let Some((&orf::RECORD, record)) = record.split_first() {
            return self.thaw_orf(index, record);
        }
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

/// Routes of a slice that share a record: of one session, with one set.
struct Group {
    peer: PeerIndex,
    set: SetId,
    /// What tells groups apart: the path but for its flags.
    key: u64,
    /// Indices into [`Slice::prefixes`].
    first: u32,
    last: u32,
}

/// What a slice of the walk has found.
struct Slice<P> {
    groups: Vec<Group>,
    /// The group that was last found under each hash of a key. Of two under the same, one begins anew now and then:
    /// that costs a record.
    last: Vec<u32>,
    /// 64 less the bits of a hash.
    shift: u32,
    /// Each with the next of its group; the last has itself.
    prefixes: Vec<(P, u32)>,
}

/// Paths in a slice for which there is room from the start.
const EXPECTED: usize = 1 << 12;

impl<P: IpPrefix> Slice<P> {
    fn new(budget: usize) -> Self {
        let expected = budget.min(EXPECTED);
        // So many that most groups are alone.
        let hashes = 4 * budget.clamp(EXPECTED, 16 * EXPECTED).next_power_of_two();
        Self {
            groups: Vec::with_capacity(expected),
            last: vec![u32::MAX; hashes],
            shift: 64 - hashes.ilog2(),
            prefixes: Vec::with_capacity(expected),
        }
    }

    #[inline(always)]
    fn add(&mut self, prefix: P, path: Path, peer: PeerIndex) {
        let at = self.prefixes.len() as u32;
        self.prefixes.push((prefix, at));
        let key = u64::from(path.source.0) << 32 | u64::from(path.set.0);
        // The numbers are our own: nobody can choose them badly.
        let last = &mut self.last[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize];
        match self.groups.get_mut(*last as usize) {
            Some(group) if group.key == key => {
                self.prefixes[group.last as usize].1 = at;
                group.last = at;
            }
            Some(_) | None => {
                *last = self.groups.len() as u32;
                self.groups.push(Group { peer, set: path.set, key, first: at, last: at });
            }
        }
    }

    fn write(&self, core: &Core, peers: &[Option<Peer>], sink: &mut dyn FnMut(PeerIndex, &[u8])) {
        let mut record = Vec::new();
        for group in &self.groups {
            record.clear();
            let session = peers[group.peer.index()].as_ref().and_then(|peer| peer.session.as_ref());
            let places = session.and_then(|session| session.places.as_ref());
            let places = places.filter(|places| places.families.of(P::UNICAST));
            let place = core.sources.get(SourceId((group.key >> 32) as u16)).place;
            if !begin::<P>(core, group.set, places.map(|_| place), &mut record) {
                continue;
            }
            match places {
                None => self.prefixes_of(group).for_each(|prefix| prefix.push(&mut record)),
                Some(places) => self.prefixes_of(group).for_each(|prefix| {
                    let identifier = places.identifier(prefix.into(), place).unwrap_or_default();
                    Identified { identifier, prefix }.push(&mut record);
                }),
            }
            sink(group.peer, &record);
        }
    }

    fn prefixes_of(&self, group: &Group) -> impl Iterator<Item = P> {
        let mut at = Some(group.first);
        std::iter::from_fn(move || {
            let here = at?;
            let (prefix, next) = self.prefixes[here as usize];
            at = (next != here).then_some(next);
            Some(prefix)
        })
    }
}

impl<P: IpPrefix> Table<P> {
    fn freeze(
        &self,
        core: &Core,
        peers: &[Option<Peer>],
        after: Option<P>,
        budget: usize,
        wanted: impl Fn(PeerIndex) -> bool,
        sink: &mut dyn FnMut(PeerIndex, &[u8]),
    ) -> Option<P> {
        let (mut slice, mut looked_at) = (Slice::new(budget), 0);
        let next = self.rib.table.scan(after, |prefix, word| {
            self.rib.lists.for_each(word, |path| {
                looked_at += 1;
                let source = core.sources.get(path.source);
                if let Some(peer) = source.peer
                    && source.is_alive()
                    && !source.drops(self.rib.family, path)
                    && wanted(peer)
                {
                    slice.add(prefix, path, peer);
                }
            });
            looked_at < budget
        });
        slice.write(core, peers, sink);
        next
    }
}

/// Writes a record up to its prefixes; `false` for a set that no session brought.
fn begin<P: IpPrefix>(core: &Core, set: SetId, place: Option<u8>, record: &mut Vec<u8>) -> bool {
    let Some(gateway) = core.next_hops.gateway(core.sets.next_hop(set)) else { return false };
    let (attributes, multiprotocol) =
        (core.sets.bytes(set), core.classes.get(core.sets.class(set)).multiprotocol);
    // A set has at most 65,535 octets.
    let [high, low] = (attributes.len() as u16).to_be_bytes();
    let kind = u8::from(multiprotocol) | if place.is_some() { IDENTIFIED | PLACED } else { 0 };
    record.extend_from_slice(&[VERSION, kind, high, low]);
    record.extend_from_slice(attributes);
    record.extend(place);
    if multiprotocol {
        begin_reach::<P>(gateway, record);
    }
    true
}

/// The value of MP_REACH_NLRI up to its prefixes (RFC 4760 section 3), with the address that routes are resolved by.
fn begin_reach<P: IpPrefix>(gateway: Gateway, record: &mut Vec<u8>) {
    let next_hop = match gateway.address {
        std::net::IpAddr::V4(address) => NextHop::V4(address),
        std::net::IpAddr::V6(global) => NextHop::V6 { global, link_local: None },
    };
    let [high, low] = P::UNICAST.afi.0.to_be_bytes();
    record.extend_from_slice(&[high, low, P::UNICAST.safi.0, next_hop.octets()]);
    next_hop.push(record);
    // Reserved.
    record.push(0);
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

/// The set with these attributes, with one more user. Those of a class that are stored are such as its rules take: nothing
/// else is asked of them.
fn acquire(
    core: &mut Core,
    (class, rules): (ClassId, &Rules),
    attributes: &[u8],
    gateway: Option<Gateway>,
    origin: &mut Origin<'_>,
) -> Option<SetId> {
    let acquired = gateway.ok_or(DropReason::OwnNextHop).and_then(|gateway| {
        let hop = core.next_hops.acquire(gateway);
        let set = match core.sets.find(class, hop, attributes) {
            Ok(set) => Ok(Some(set)),
            // The process before may have taken what this one does not.
            Err(_) if refuses(rules, Attributes(attributes)) => Ok(None),
            Err(absent) => {
                let owner = Owner::of(core.sources.get(origin.source).peer);
                core.add(owner, absent, attributes).map(Some).ok_or(DropReason::Full)
            }
        };
        core.next_hops.release(hop);
        set
    });
    acquired.map_err(|reason| origin.drops.add(reason, Concerned::default())).ok().flatten()
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

/// Whether these are whole attributes, ordered as in canonical form.
fn is_ascending(attributes: &[u8]) -> bool {
    let (mut octets, mut last) = (0, None);
    let ascending = Attributes(attributes).iter().all(|attribute| {
        octets += attribute.wire.len();
        last.replace(attribute.code) < Some(attribute.code)
    });
    ascending && octets == attributes.len()
}
