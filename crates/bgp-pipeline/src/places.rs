//! Several paths of one session to one prefix (RFC 7911).
//!
//! A path record has no room for a path identifier. So a session that may send several paths of a prefix has several
//! sources, its *places*; the first is that of any session. Which identifier is at which place of a prefix is kept
//! here. FamilySet may be as many as there are paths in all: a source for each would be too many.

use std::hash::BuildHasher;

use hashbrown::{HashMap, hash_map::Entry};
use holdfast_bgp_wire::{
    nlri::{self, Identified},
    update::FamilySet,
};
use holdfast_types::{Family, HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};
use smallvec::SmallVec;

use crate::{
    DropReason, Drops, PeerIndex, Pipeline,
    core::Core,
    path::{SetId, SourceId},
    peer_in::{Arrival, Concerned},
    source::{MOST_PATHS, Source},
    stage::Stages,
    table::Table,
};

/// So many numbers of sources are for sessions, and not for further paths of one.
const RESERVED: usize = 8192;

/// Maps in which a session's prefixes are: each grows, and is freed, on its own, so that nothing waits until all of them
/// are hashed again. With a million prefixes the longest pause is for 4,000.
const SHARDS: usize = 256;

/// The places of a session.
#[derive(Debug)]
pub(crate) struct PathIdTable {
    /// Where its prefixes have identifiers.
    pub(crate) families: FamilySet,
    /// By place; the first is the session's own. More are added as they are needed.
    sources: Vec<SourceId>,
    key: HashKey,
    /// [`SHARDS`] of them.
    shards: Vec<Shard>,
}

/// Some of the prefixes.
#[derive(Debug)]
struct Shard {
    taken: HashMap<Prefix, Taken, HashKey>,
    /// Octets of identifiers that have no room in `taken`.
    beside: usize,
}

impl Shard {
    fn new(key: HashKey) -> Self {
        Self { taken: HashMap::with_hasher(key), beside: 0 }
    }

    /// The place of a path, the one that it has or the first that is free; `None` if there is none.
    fn announced(&mut self, identifier: u32, prefix: Prefix) -> Option<usize> {
        let taken = self.taken.entry(prefix).or_default();
        if let Some(place) = taken.find(identifier) {
            return Some(place);
        }
        let before = taken.beside();
        let place = taken.take(identifier);
        self.beside += taken.beside() - before;
        place
    }

    /// Takes this place for a path, unless it has one or somebody is there.
    fn put(&mut self, identifier: u32, prefix: Prefix, place: usize) {
        let taken = self.taken.entry(prefix).or_default();
        let before = taken.beside();
        taken.put(identifier, place);
        self.beside += taken.beside() - before;
    }

    /// The place that a path had.
    fn withdrawn(&mut self, identifier: u32, prefix: Prefix) -> Option<usize> {
        let place = self.taken.get(&prefix)?.find(identifier)?;
        self.free(prefix, place);
        Some(place)
    }

    /// The path at a place is gone.
    fn free(&mut self, prefix: Prefix, place: usize) {
        let Entry::Occupied(mut taken) = self.taken.entry(prefix) else { return };
        taken.get_mut().places &= !(1 << place);
        if taken.get().places == 0 {
            self.beside -= taken.get().beside();
            taken.remove();
        }
    }

    fn memory(&self) -> usize {
        self.taken.allocation_size() + self.beside
    }
}

/// Which places a prefix has paths at, and under which identifiers those came.
#[derive(Debug, Default)]
struct Taken {
    /// A bit for each.
    places: u64,
    /// By place; without meaning where there is no path.
    identifiers: SmallVec<[u32; 4]>,
}

impl Taken {
    /// Octets of its identifiers, if they are not in the record itself.
    fn beside(&self) -> usize {
        if self.identifiers.spilled() { self.identifiers.capacity() * size_of::<u32>() } else { 0 }
    }

    fn find(&self, identifier: u32) -> Option<usize> {
        let at = |place: &usize| self.identifiers[*place] == identifier;
        (0..self.identifiers.len()).filter(|place| self.places & 1 << place != 0).find(at)
    }

    /// This one, if it is free and the path has none.
    fn put(&mut self, identifier: u32, place: usize) {
        if self.places & 1 << place != 0 || self.find(identifier).is_some() {
            return;
        }
        self.places |= 1 << place;
        if self.identifiers.len() <= place {
            self.identifiers.resize(place + 1, 0);
        }
        self.identifiers[place] = identifier;
    }

    /// The first that is free.
    fn take(&mut self, identifier: u32) -> Option<usize> {
        let place = self.places.trailing_ones() as usize;
        if place == MOST_PATHS {
            return None;
        }
        self.places |= 1 << place;
        match self.identifiers.get_mut(place) {
            Some(at) => *at = identifier,
            None => self.identifiers.push(identifier),
        }
        Some(place)
    }
}

impl PathIdTable {
    pub(crate) fn new(families: FamilySet, source: SourceId, key: HashKey) -> Self {
        let shards = std::iter::repeat_with(|| Shard::new(key)).take(SHARDS).collect();
        Self { families, sources: vec![source], key, shards }
    }

    /// Mixed once more: the maps use the hash itself, and would find their buckets by bits that are equal in a shard.
    fn shard(&self, prefix: Prefix) -> usize {
        let mixed = self.key.hash_one(prefix).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (u64::BITS - SHARDS.ilog2())) as usize
    }

    pub(crate) fn memory(&self) -> usize {
        SHARDS * size_of::<Shard>() + self.shards.iter().map(Shard::memory).sum::<usize>()
    }

    /// The sources of all its places.
    pub(crate) fn sources(&self) -> &[SourceId] {
        &self.sources
    }

    /// The identifier under which the path of a place came.
    pub(crate) fn identifier(&self, prefix: Prefix, place: u8) -> Option<u32> {
        let shard = &self.shards[self.shard(prefix)];
        let taken = shard.taken.get(&prefix).filter(|taken| taken.places & 1 << place != 0)?;
        taken.identifiers.get(usize::from(place)).copied()
    }

    /// The source of a path that is announced: as before, or at the first free place; else why there is none.
    fn announced(
        &mut self,
        core: &mut Core,
        identifier: u32,
        prefix: Prefix,
    ) -> Result<SourceId, DropReason> {
        let shard = self.shard(prefix);
        let place = self.shards[shard].announced(identifier, prefix).ok_or(DropReason::TooManyPaths)?;
        if place == self.sources.len() {
            let Some(source) = another(core, self.sources[0], place as u8) else {
                self.shards[shard].withdrawn(identifier, prefix);
                return Err(DropReason::NoPlace);
            };
            self.sources.push(source);
        }
        Ok(self.sources[place])
    }

    /// The paths that arrive are at this place, where they were in another process.
    pub(crate) fn put_arriving(&mut self, core: &mut Core, arrival: &Arrival<'_>, place: u8) {
        let ipv4 = (Family::IPV4_UNICAST, arrival.nlri.0);
        let lists = [Some(ipv4), arrival.reach.as_ref().map(|(reach, _)| (reach.family, reach.nlri))];
        let families = self.families;
        for (family, nlri) in lists.into_iter().flatten().filter(|(family, _)| families.of(*family)) {
            match family {
                Family::IPV4_UNICAST => self.put_list::<Ipv4Prefix>(core, nlri, place),
                _ => self.put_list::<Ipv6Prefix>(core, nlri, place),
            }
        }
    }

    fn put_list<P: IpPrefix>(&mut self, core: &mut Core, nlri: &[u8], place: u8) {
        let mut paths: Vec<Identified<P>> = Vec::new();
        // Checked when the record was read.
        let _ = nlri::read_identified(nlri, &mut paths);
        self.put_all(core, &paths, place);
    }

    /// These paths are at this place, where they were in another process.
    pub(crate) fn put_all<P: IpPrefix>(&mut self, core: &mut Core, paths: &[Identified<P>], place: u8) {
        for &Identified { identifier, prefix } in paths {
            self.put(core, identifier, prefix.into(), place);
        }
    }

    fn put(&mut self, core: &mut Core, identifier: u32, prefix: Prefix, place: u8) {
        while self.sources.len() <= place.into() {
            let Some(source) = another(core, self.sources[0], self.sources.len() as u8) else { return };
            self.sources.push(source);
        }
        let shard = self.shard(prefix);
        self.shards[shard].put(identifier, prefix, place.into());
    }

    /// The source of a path that is withdrawn; `None` if there was none.
    fn withdrawn(&mut self, identifier: u32, prefix: Prefix) -> Option<SourceId> {
        let shard = self.shard(prefix);
        let place = self.shards[shard].withdrawn(identifier, prefix)?;
        self.sources.get(place).copied()
    }

    /// The path at this place of a prefix is gone.
    fn free(&mut self, prefix: Prefix, place: u8) {
        let shard = self.shard(prefix);
        self.shards[shard].free(prefix, place.into());
    }

    /// The paths of one list in an UPDATE, each once and those of a source together. `refuse` is shown those for which there is no
    /// place, and why.
    pub(crate) fn sort<P: IpPrefix>(
        &mut self,
        core: &mut Core,
        paths: &[Identified<P>],
        are_announced: bool,
        mut refuse: impl FnMut(Prefix, DropReason),
    ) -> Vec<(SourceId, P)> {
        let mut sorted = Vec::with_capacity(paths.len());
        for &Identified { identifier, prefix } in paths {
            if !are_announced {
                sorted.extend(self.withdrawn(identifier, prefix.into()).map(|source| (source, prefix)));
                continue;
            }
            match self.announced(core, identifier, prefix.into()) {
                Ok(source) => sorted.push((source, prefix)),
                Err(reason) => refuse(prefix.into(), reason),
            }
        }
        sorted.sort_unstable();
        sorted.dedup();
        sorted
    }
}

/// What is left of the places of sessions that have ended, on its way out.
#[derive(Debug, Default)]
pub(crate) struct Remains(Vec<Shard>);

impl Remains {
    pub(crate) fn add(&mut self, places: PathIdTable) {
        self.0.extend(places.shards.into_iter().filter(|shard| shard.memory() != 0));
    }

    /// Frees some: `budget` counts prefixes, and may be exceeded by those of one shard. Whether there are more.
    pub(crate) fn free(&mut self, budget: usize) -> bool {
        let mut freed = 0;
        while freed < budget.max(1)
            && let Some(shard) = self.0.pop()
        {
            freed += shard.taken.len();
        }
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
        !self.0.is_empty()
    }

    pub(crate) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<Shard>() + self.0.iter().map(Shard::memory).sum::<usize>()
    }
}

/// Another source for the session of this one, if that leaves numbers for further sessions.
fn another(core: &mut Core, first: SourceId, place: u8) -> Option<SourceId> {
    if core.sources.room() <= RESERVED {
        return None;
    }
    let own = core.sources.get(first).clone();
    let identifier = own.identifier + u32::from(place);
    let source = Source { place, identifier, counts: Default::default(), ..own };
    let classes = source.classes;
    let added = core.sources.add(source)?;
    classes.into_iter().for_each(|class| core.classes.retain(class));
    Some(added)
}

impl Pipeline {
    /// Paths that a walk has swept have left their places.
    pub(crate) fn free_swept_places(&mut self) {
        let mut swept = std::mem::take(&mut self.core.swept);
        for (index, prefix, place) in swept.drain(..) {
            let places = self.session_mut(index).and_then(|session| session.places.as_mut());
            places.into_iter().for_each(|places| places.free(prefix, place));
        }
        self.core.swept = swept;
    }

    /// What [`Pipeline::arrive`] does, for a session whose prefixes have path identifiers in some family.
    pub(crate) fn arrive_identified(
        &mut self,
        index: PeerIndex,
        mut places: Box<PathIdTable>,
        arrival: &Arrival<'_>,
    ) {
        let ipv4 = Family::IPV4_UNICAST;
        self.arrive_list(index, &mut places, (ipv4, arrival.withdrawn), None);
        if let Some(unreach) = arrival.unreach {
            self.arrive_list(index, &mut places, (unreach.family, unreach.nlri), None);
        }
        self.arrive_list(index, &mut places, (ipv4, arrival.nlri.0), arrival.nlri.1);
        if let Some((reach, set)) = arrival.reach {
            self.arrive_list(index, &mut places, (reach.family, reach.nlri), set);
        }
        if let Some(session) = self.session_mut(index) {
            session.places = Some(places);
        }
    }

    fn arrive_list(
        &mut self,
        index: PeerIndex,
        places: &mut PathIdTable,
        (family, nlri): (Family, &[u8]),
        set: Option<SetId>,
    ) {
        if !places.families.of(family) {
            return self.arrive_mp(places.sources[0], family, nlri, set);
        }
        let Some(peer) = self.peers[index.index()].as_mut() else { return };
        let (core, stages) = (&mut self.core, &mut self.stages);
        match family {
            Family::IPV4_UNICAST => {
                arrive(&mut self.v4, core, stages, places, &read(nlri), set, &mut peer.drops);
            }
            _ => arrive(&mut self.v6, core, stages, places, &read(nlri), set, &mut peer.drops),
        }
    }
}

fn read<P: IpPrefix>(nlri: &[u8]) -> Vec<Identified<P>> {
    let mut paths = Vec::new();
    // Checked when the UPDATE was split.
    let _ = nlri::read_identified(nlri, &mut paths);
    paths
}

/// Paths of one session arrive with this set, or without one are withdrawn.
pub(crate) fn arrive<P: IpPrefix>(
    table: &mut Table<P>,
    core: &mut Core,
    stages: &mut Stages,
    places: &mut PathIdTable,
    paths: &[Identified<P>],
    set: Option<SetId>,
    drops: &mut Drops,
) {
    let refuse = |prefix, reason| drops.add(reason, Concerned::one(prefix));
    let sorted = places.sort::<P>(core, paths, set.is_some(), refuse);
    let has_several = sorted.first().map(|path| path.0) != sorted.last().map(|path| path.0);
    if has_several {
        table.rib.gather();
    }
    let mut prefixes = Vec::with_capacity(sorted.len());
    for of_source in sorted.chunk_by(|a, b| a.0 == b.0) {
        prefixes.clear();
        prefixes.extend(of_source.iter().map(|(_, prefix)| *prefix));
        table.arrive(core, stages, of_source[0].0, &prefixes, set);
    }
    if has_several {
        table.rib.settle(core);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{Asn, RouterId};

    use super::*;
    use crate::SpeakerConfig;

    const PREFIXES: u32 = 20_000;

    fn core() -> Core {
        Core::new(SpeakerConfig::new(Asn(65_500), RouterId::new(1).expect("not zero"), HashKey::new([7, 0])))
    }

    fn prefix(n: u32) -> Prefix {
        Ipv4Prefix::from_bits(u128::from(n) << (96 + 8), 24).into()
    }

    /// Of a session with so many paths to each prefix.
    fn filled(core: &mut Core, paths: u32) -> PathIdTable {
        let families = Family::ALL.into_iter().collect();
        let mut places = PathIdTable::new(families, SourceId::LOCAL, HashKey::new([7, 0]));
        for (n, identifier) in (0..PREFIXES).flat_map(|n| (0..paths).map(move |identifier| (n, identifier))) {
            places.announced(core, identifier, prefix(n)).expect("room");
        }
        places
    }

    #[test]
    fn what_they_hold_is_counted_and_given_back_with_the_paths() {
        let mut core = core();
        let empty = filled(&mut core, 0).memory();
        let (few, mut many) = (filled(&mut core, 4), filled(&mut core, 6));
        assert!(few.memory() - empty >= PREFIXES as usize * size_of::<(Prefix, Taken)>());
        // Six identifiers are not in the record any more.
        assert_eq!(many.memory() - few.memory(), PREFIXES as usize * 8 * size_of::<u32>());
        for (n, identifier) in (0..PREFIXES).flat_map(|n| (0..6).map(move |identifier| (n, identifier))) {
            assert!(many.withdrawn(identifier, prefix(n)).is_some());
        }
        assert_eq!(many.shards.iter().map(|shard| shard.beside).sum::<usize>(), 0);
    }

    #[test]
    fn they_are_freed_in_slices() {
        let mut core = core();
        let mut remains = Remains::default();
        remains.add(filled(&mut core, 1));
        remains.add(filled(&mut core, 0));
        let (mut slices, mut before) = (1, remains.memory());
        while remains.free(500) {
            // 500, and one shard: of 78 on average.
            let freed = before - remains.memory();
            assert!(freed < 1000 * 2 * size_of::<(Prefix, Taken)>(), "{freed} octets at once");
            (slices, before) = (slices + 1, remains.memory());
        }
        assert!(slices >= 20_000 / 700, "{slices} slices");
        assert_eq!(remains.memory(), 0);
    }
}
