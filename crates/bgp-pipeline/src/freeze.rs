//! Routes on their way to another process: as they were received, in records.
//!
//! A walk over the tables, in slices, writes for each session which routes it has brought; another process takes the
//! records in as if they were UPDATEs, but need not check them. What was decided is not written: it is decided again.

mod earlier;
mod entry;

use std::collections::HashMap;

use holdfast_bgp_wire::{Attributes, nlri::Identified, update::Rules};
use holdfast_policy::PathSecurity;
use holdfast_types::{HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix};
use smallvec::SmallVec;

use self::entry::{Definition, Entries, Entry, Header, Identity, Writer};
use crate::{
    DropReason, PeerIndex, Pipeline,
    class::ClassId,
    core::{Core, refuses},
    journal::format::Unreadable,
    next_hop::Gateway,
    orf,
    path::{Path, SetId},
    peer_in::{Concerned, Origin, gateway},
    pipeline::{Peer, Session},
    places,
    sets::Owner,
    stage::Stages,
    table::{AHEAD, Table},
};

/// A walk over the tables that writes what some sessions have brought.
#[derive(Debug)]
pub struct Freezing {
    place: Option<Place>,
    /// By number of the peer; `None`: not of this walk.
    sessions: Vec<Option<Writer>>,
    defined: Defined,
}

/// Where the walk goes on: after this prefix.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Place {
    Ipv4(Option<Ipv4Prefix>),
    Ipv6(Option<Ipv6Prefix>),
}

impl Freezing {
    /// A session is not of this walk any more.
    fn leave(&mut self, peer: PeerIndex) {
        self.sessions[peer.index()] = None;
    }

    fn write_out(&mut self, sink: &mut dyn FnMut(PeerIndex, &[u8]) -> bool) {
        for number in 0..self.sessions.len() {
            let peer = PeerIndex(number as u16);
            if let Some(writer) = &mut self.sessions[number]
                && !writer.write_out(|record| sink(peer, record))
            {
                self.leave(peer);
            }
        }
    }
}

/// Which sets the records of a walk define: each once for each session.
#[derive(Debug)]
struct Defined {
    /// A bit for each set that the session has in its records which brought it first.
    by_owner: Vec<u64>,
    /// Further sessions with it, in order.
    by_others: HashMap<SetId, SmallVec<[PeerIndex; 4]>, HashKey>,
}

impl Defined {
    /// Whether this is the first time for this session.
    #[inline]
    fn add(&mut self, core: &Core, set: SetId, peer: PeerIndex) -> bool {
        if core.sets.owner(set) != Owner::of(Some(peer)) {
            let sessions = self.by_others.entry(set).or_default();
            let place = sessions.binary_search(&peer);
            if let Err(at) = place {
                sessions.insert(at, peer);
            }
            return place.is_err();
        }
        let (word, bit) = (set.index() / 64, 1 << (set.index() % 64));
        if self.by_owner.len() <= word {
            self.by_owner.resize(core.sets.numbers() / 64 + 1, 0);
        }
        let is_new = self.by_owner[word] & bit == 0;
        self.by_owner[word] |= bit;
        is_new
    }

    /// The number is that of another set now.
    fn forget(&mut self, set: SetId) {
        if let Some(word) = self.by_owner.get_mut(set.index() / 64) {
            *word &= !(1 << (set.index() % 64));
        }
        self.by_others.remove(&set);
    }

    fn forget_all(&mut self) {
        self.by_owner.fill(0);
        self.by_others.clear();
    }
}

impl Pipeline {
    /// Begins a walk that writes what these sessions have brought. One at a time.
    pub fn freeze(&mut self, sessions: impl IntoIterator<Item = PeerIndex>) -> Freezing {
        self.core.sets.watch_births(true);
        let mut writers: Vec<Option<Writer>> = Vec::new();
        for peer in sessions {
            if writers.len() <= peer.index() {
                writers.resize_with(peer.index() + 1, || None);
            }
            let session = self.session(peer);
            let is_secured = session.is_some_and(|session| session.facts.bgpsec_received.is_some());
            writers[peer.index()] = Some(Writer::new(is_secured));
        }
        let by_others = HashMap::with_hasher(self.core.sets.key());
        let defined = Defined { by_owner: Vec::new(), by_others };
        Freezing { place: Some(Place::Ipv4(None)), sessions: writers, defined }
    }

    /// A slice of the walk: hands records of a few thousand octets to `sink`, which says whether the session is still
    /// to be written. Returns whether there is more: not so when no session is. `budget` counts the paths that are looked at, 0.1 us each.
    ///
    /// Routes that come, change or go between slices may or may not be in the records: whoever takes them in has to be
    /// given all UPDATEs since the beginning of the walk afterwards.
    pub fn freeze_routes(
        &mut self,
        walk: &mut Freezing,
        budget: usize,
        sink: &mut dyn FnMut(PeerIndex, &[u8]) -> bool,
    ) -> bool {
        match self.core.sets.take_births() {
            Some(sets) => sets.for_each(|set| walk.defined.forget(set)),
            None => walk.defined.forget_all(),
        }
        walk.place = match walk.place {
            Some(Place::Ipv4(after)) => {
                let next = self.v4.freeze(&self.core, &self.peers, after, budget, walk, sink);
                if next.is_none() {
                    // Records are of one family.
                    walk.write_out(sink);
                }
                Some(next.map_or(Place::Ipv6(None), |next| Place::Ipv4(Some(next))))
            }
            Some(Place::Ipv6(after)) => {
                let next = self.v6.freeze(&self.core, &self.peers, after, budget, walk, sink);
                next.map(|next| Place::Ipv6(Some(next)))
            }
            None => None,
        };
        if walk.place.is_none() {
            walk.write_out(sink);
        }
        if walk.sessions.iter().all(Option::is_none) {
            walk.place = None;
        }
        if walk.place.is_none() {
            self.core.sets.watch_births(false);
        }
        walk.place.is_some()
    }

    /// Takes in a record that [`Self::freeze_routes`] or [`Self::freeze_orf`] has written, here or in another process, for a session that is
    /// up; `sets` is empty before the first record of a session. What follows is as for an UPDATE: import policy, next hops, decision. Routes whose next hop is our own
    /// address by now are withdrawn, and those of families that are not negotiated any more ignored; [`Self::drops`]
    /// counts both.
    ///
    /// # Errors
    /// It is no such record; nothing of it is taken.
    pub fn thaw_routes(
        &mut self,
        index: PeerIndex,
        record: &[u8],
        sets: &mut ThawedSets,
    ) -> Result<(), Unreadable> {
        let (&version, rest) = record.split_first().ok_or(Unreadable)?;
        match version {
            orf::RECORD => self.thaw_orf(index, rest),
            earlier::VERSION => self.thaw_earlier(index, record),
            entry::VERSION => {
                let thawed = self.thaw_entries(index, rest, sets);
                self.trim_if_long();
                thawed
            }
            _ => Err(Unreadable),
        }
    }

    /// The last record of a session was taken in, or the session has ended: gives back up to `budget` of its sets.
    /// Returns whether there are more.
    pub fn thawed(&mut self, sets: &mut ThawedSets, budget: usize) -> bool {
        for _ in 0..budget {
            match sets.held.pop() {
                Some(set) => self.core.sets.release(set),
                None => break,
            }
        }
        !sets.held.is_empty()
    }

    fn thaw_entries(
        &mut self,
        index: PeerIndex,
        record: &[u8],
        sets: &mut ThawedSets,
    ) -> Result<(), Unreadable> {
        let (header, entries) = Header::read(record).ok_or(Unreadable)?;
        let Some(peer) = self.peers.get_mut(index.index()).and_then(Option::as_mut) else { return Ok(()) };
        let (core, stages) = (&mut self.core, &mut self.stages);
        match header.is_ipv6 {
            false => self.v4.thaw(core, stages, peer, (header, entries), sets),
            true => self.v6.thaw(core, stages, peer, (header, entries), sets),
        }
    }
}

impl<P: IpPrefix> Table<P> {
    fn thaw(
        &mut self,
        core: &mut Core,
        stages: &mut Stages,
        peer: &mut Peer,
        (header, octets): (Header, &[u8]),
        sets: &mut ThawedSets,
    ) -> Result<(), Unreadable> {
        let entries: Option<Vec<Entry<'_, P>>> = Entries::new(header, octets).collect();
        let entries = entries.filter(|entries| have_sets(entries, sets)).ok_or(Unreadable)?;
        let Some(session) = &mut peer.session else { return Ok(()) };
        let source = session.source;
        let Some(rules) = core.classes.get(core.sources.get(source).classes[0]).rules else { return Ok(()) };
        if header.is_identified != rules.identifiers.of(P::UNICAST)
            || header.is_secured != rules.bgpsec.is_some()
        {
            return Err(Unreadable);
        }
        if !session.facts.families.contains(&P::UNICAST) {
            peer.drops.add(DropReason::Family(P::UNICAST), Concerned::default());
            return Ok(());
        }
        let (mut prefixes, mut identifiers, mut runs) = (Vec::new(), Vec::new(), Vec::<Run>::new());
        for Entry { prefix, identifier, set } in entries {
            if let Some(named) = set {
                if let Some(definition) = named.definition {
                    let mut origin = Origin { source, facts: &session.facts, drops: &mut peer.drops };
                    let set = define(core, &rules, definition, &mut origin);
                    sets.define(named.number, Thawed { set, signatures: definition.signatures });
                }
                if let Some(Thawed { set, signatures }) = sets.get(named.number) {
                    runs.push(Run { set, signatures, place: named.place, end: 0 });
                }
            }
            prefixes.push(prefix);
            identifiers.push(identifier);
            if let Some(run) = runs.last_mut() {
                run.end = prefixes.len();
            }
        }
        let mut start = 0;
        let mut fetched = 0;
        for Run { set, signatures, place, end } in runs {
            core.signatures.thawing = signatures;
            if fetched < end {
                fetched = (end + AHEAD).min(prefixes.len());
                self.rib.table.prefetch(&prefixes[start..fetched]);
            }
            match &mut session.places {
                Some(places) if header.is_identified => {
                    let paths: Vec<Identified<P>> = prefixes[start..end]
                        .iter()
                        .zip(&identifiers[start..end])
                        .map(|(&prefix, &identifier)| Identified { identifier, prefix })
                        .collect();
                    places.put_all(core, &paths, place);
                    places::arrive(self, core, stages, places, &paths, set, &mut peer.drops);
                }
                Some(_) | None => self.arrive(core, stages, source, &prefixes[start..end], set),
            }
            start = end;
        }
        core.signatures.thawing = PathSecurity::Unverified;
        Ok(())
    }
}

/// Routes that follow each other with the same set, at the same place of their session: up to this one.
#[derive(Copy, Clone, Debug)]
struct Run {
    /// `None`: they are withdrawn.
    set: Option<SetId>,
    signatures: PathSecurity,
    place: u8,
    end: usize,
}

/// The set, with one more user; `None`: its routes are withdrawn.
fn define(
    core: &mut Core,
    rules: &Rules,
    definition: Definition<'_>,
    origin: &mut Origin<'_>,
) -> Option<SetId> {
    let [classic, multiprotocol] = core.sources.get(origin.source).classes;
    let (class, address) = match definition.next_hop {
        None => (classic, Attributes(definition.attributes).next_hop()?.into()),
        Some(address) => (multiprotocol, address),
    };
    acquire(core, (class, rules), definition.attributes, gateway(address, origin.facts), origin)
}

/// Sets that the records of a session have defined, by the numbers that these have for them. Each is held until
/// [`Pipeline::thawed`] gives it back.
#[derive(Debug)]
pub struct ThawedSets {
    by_number: HashMap<u32, Thawed, HashKey>,
    held: Vec<SetId>,
}

/// A set, and what is known of the signatures of all its routes.
#[derive(Copy, Clone, Debug)]
struct Thawed {
    /// `None`: its routes are not taken.
    set: Option<SetId>,
    signatures: PathSecurity,
}

impl ThawedSets {
    /// None; `key` is that of the numbers' hashes.
    pub fn new(key: HashKey) -> Self {
        Self { by_number: HashMap::with_hasher(key), held: Vec::new() }
    }

    fn define(&mut self, number: u32, thawed: Thawed) {
        self.held.extend(thawed.set);
        self.by_number.insert(number, thawed);
    }

    /// `None`: it was not defined.
    fn get(&self, number: u32) -> Option<Thawed> {
        self.by_number.get(&number).copied()
    }
}

/// Whether the sets of all entries are defined, before or among these.
fn have_sets<P>(entries: &[Entry<'_, P>], sets: &ThawedSets) -> bool {
    let mut defined = Vec::new();
    entries.iter().filter_map(|entry| entry.set).all(|named| {
        if named.definition.is_some() {
            defined.push(named.number);
        }
        named.definition.is_some() || sets.get(named.number).is_some() || defined.contains(&named.number)
    })
}

impl<P: IpPrefix> Table<P> {
    fn freeze(
        &self,
        core: &Core,
        peers: &[Option<Peer>],
        after: Option<P>,
        budget: usize,
        walk: &mut Freezing,
        sink: &mut dyn FnMut(PeerIndex, &[u8]) -> bool,
    ) -> Option<P> {
        let mut looked_at = 0;
        self.rib.table.scan(after, |prefix, word| {
            self.rib.lists.for_each(word, |path| {
                looked_at += 1;
                let source = core.sources.get(path.source);
                if let Some(peer) = source.peer
                    && source.is_alive()
                    && !source.drops(self.rib.family, path)
                    && let Some(Some(writer)) = walk.sessions.get_mut(peer.index())
                {
                    let session = peers[peer.index()].as_ref().and_then(|peer| peer.session.as_ref());
                    if let Some(session) = session {
                        write(core, (prefix, path), (peer, session), writer, &mut walk.defined);
                    }
                    if writer.is_long() && !writer.write_out(|record| sink(peer, record)) {
                        walk.leave(peer);
                    }
                }
            });
            looked_at < budget
        })
    }
}

/// Writes one path, unless it is of a set that no session brought.
#[inline]
fn write<P: IpPrefix>(
    core: &Core,
    (prefix, path): (P, Path),
    (peer, session): (PeerIndex, &Session),
    writer: &mut Writer,
    defined: &mut Defined,
) {
    // What waits for its verdict is what the peer has announced last.
    let next = if core.signatures.is_used { core.signatures.next(path.source, prefix.into()) } else { None };
    let set = next.unwrap_or(path.set);
    let definition = match defined.add(core, set, peer) {
        false => None,
        true => match definition(core, set) {
            Some(definition) => Some(definition),
            None => return defined.forget(set),
        },
    };
    let places = session.places.as_ref().filter(|places| places.families.of(P::UNICAST));
    let identity = places.map(|places| {
        let place = core.sources.get(path.source).place;
        Identity { identifier: places.identifier(prefix.into(), place).unwrap_or_default(), place }
    });
    writer.push(prefix, identity, set, definition);
}

fn definition(core: &Core, set: SetId) -> Option<Definition<'_>> {
    let gateway = core.next_hops.gateway(core.sets.next_hop(set))?;
    let class = core.classes.get(core.sets.class(set));
    Some(Definition {
        attributes: core.sets.bytes(set),
        next_hop: class.multiprotocol.then_some(gateway.address),
        signatures: class.states.unwrap_or_default().signatures,
    })
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
