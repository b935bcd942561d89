//! Several paths of one session to one prefix (RFC 7911).
//!
//! A path record has no room for a path identifier. So a session that may send several paths of a prefix has several
//! sources, its *places*; the first is that of any session. Which identifier is at which place of a prefix is kept
//! here. Identifiers may be as many as there are paths in all: a source for each would be too many.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, hash_map::Entry};
use holdfast_bgp_wire::{
    nlri::{self, Identified},
    update::Identifiers,
};
use holdfast_types::{Family, IpPrefix, Prefix};
use smallvec::SmallVec;

use crate::{
    DropReason, Drops, PeerIndex, Pipeline,
    core::Core,
    path::{SetId, SourceId},
    peer_in::{Arrival, Concerned},
    source::Source,
    stage::Stages,
    table::Table,
};

/// Paths of one prefix that a session may have. Further ones are dropped ([`crate::DropReason::TooManyPaths`]).
pub const MOST_PATHS: usize = u64::BITS as usize;

/// So many numbers of sources are for sessions, and not for further paths of one.
const RESERVED: usize = 8192;

/// The places of a session.
#[derive(Debug)]
pub(crate) struct Places {
    /// Where its prefixes have identifiers.
    pub(crate) families: Identifiers,
    /// By place; the first is the session's own. More are added as they are needed.
    sources: Vec<SourceId>,
    taken: HashMap<Prefix, Taken, FixedState>,
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
    fn find(&self, identifier: u32) -> Option<usize> {
        let at = |place: &usize| self.identifiers[*place] == identifier;
        (0..self.identifiers.len()).filter(|place| self.places & 1 << place != 0).find(at)
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

impl Places {
    pub(crate) fn new(families: Identifiers, source: SourceId, seed: u64) -> Self {
        let taken = HashMap::with_hasher(FixedState::with_seed(seed));
        Self { families, sources: vec![source], taken }
    }

    /// The sources of all its places.
    pub(crate) fn sources(&self) -> &[SourceId] {
        &self.sources
    }

    /// The identifier under which the path of a place came.
    pub(crate) fn identifier(&self, prefix: Prefix, place: u8) -> Option<u32> {
        let taken = self.taken.get(&prefix).filter(|taken| taken.places & 1 << place != 0)?;
        taken.identifiers.get(usize::from(place)).copied()
    }

    /// The source of a path that is announced: as before, or at the first free place; else why there is none.
    fn announced(
        &mut self,
        core: &mut Core,
        identifier: u32,
        prefix: Prefix,
    ) -> Result<SourceId, DropReason> {
        let taken = self.taken.entry(prefix).or_default();
        let place = match taken.find(identifier) {
            Some(place) => place,
            None => {
                let place = taken.take(identifier).ok_or(DropReason::TooManyPaths)?;
                if place == self.sources.len() {
                    let Some(source) = another(core, self.sources[0], place as u8) else {
                        self.withdrawn(identifier, prefix);
                        return Err(DropReason::NoPlace);
                    };
                    self.sources.push(source);
                }
                place
            }
        };
        Ok(self.sources[place])
    }

    /// The source of a path that is withdrawn; `None` if there was none.
    fn withdrawn(&mut self, identifier: u32, prefix: Prefix) -> Option<SourceId> {
        let Entry::Occupied(mut taken) = self.taken.entry(prefix) else { return None };
        let place = taken.get().find(identifier)?;
        taken.get_mut().places &= !(1 << place);
        if taken.get().places == 0 {
            taken.remove();
        }
        self.sources.get(place).copied()
    }

    /// The paths of one list in an UPDATE, those of a source together. `refuse` is shown those for which there is no
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
        sorted.sort_by_key(|(source, _)| *source);
        sorted
    }
}

/// Another source for the session of this one, if that leaves numbers for further sessions.
fn another(core: &mut Core, first: SourceId, place: u8) -> Option<SourceId> {
    if core.sources.room() <= RESERVED {
        return None;
    }
    let source = Source { place, counts: Default::default(), ..core.sources.get(first).clone() };
    let classes = source.classes;
    let added = core.sources.add(source)?;
    classes.into_iter().for_each(|class| core.classes.retain(class));
    Some(added)
}

impl Pipeline {
    /// What [`Pipeline::arrive`] does, for a session whose prefixes have path identifiers in some family.
    pub(crate) fn arrive_identified(
        &mut self,
        index: PeerIndex,
        mut places: Box<Places>,
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
        places: &mut Places,
        (family, nlri): (Family, &[u8]),
        set: Option<SetId>,
    ) {
        if !places.families.of(family) {
            return self.arrive_mp(places.sources[0], family, nlri, set);
        }
        let Some(peer) = self.peers[index.index()].as_mut() else { return };
        let (core, stages) = (&mut self.core, &mut self.stages);
        match family {
            Family::IPV4_UNICAST => arrive(&mut self.v4, core, stages, places, nlri, set, &mut peer.drops),
            _ => arrive(&mut self.v6, core, stages, places, nlri, set, &mut peer.drops),
        }
    }
}

fn arrive<P: IpPrefix>(
    table: &mut Table<P>,
    core: &mut Core,
    stages: &mut Stages,
    places: &mut Places,
    nlri: &[u8],
    set: Option<SetId>,
    drops: &mut Drops,
) {
    let mut paths = Vec::new();
    // Checked when the UPDATE was split.
    let _ = nlri::read_identified(nlri, &mut paths);
    let refuse = |prefix, reason| drops.add(reason, Concerned::one(prefix));
    let sorted = places.sort::<P>(core, &paths, set.is_some(), refuse);
    let mut prefixes = Vec::with_capacity(sorted.len());
    for of_source in sorted.chunk_by(|a, b| a.0 == b.0) {
        prefixes.clear();
        prefixes.extend(of_source.iter().map(|(_, prefix)| *prefix));
        table.arrive(core, stages, of_source[0].0, &prefixes, set);
    }
}
