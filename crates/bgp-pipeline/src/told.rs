//! What the peers of one group have been told, read from the journal: where their next process goes on from.

use hashbrown::{HashMap, hash_map, hash_map::Entry};
use holdfast_bgp_wire::nlri::Identified;
use holdfast_types::{HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix};
use smallvec::SmallVec;

use crate::journal::format::{self, Announced, Item, OURS_AGAIN, PeerNumber, Recorder, Scope, Unreadable};

/// What is known of a route, and who besides the source was not told.
pub(crate) type Known = (Announced, SmallVec<[PeerNumber; 2]>);

/// What the paths of a prefix were announced with, by their identifiers.
type Paths = SmallVec<[(u32, Announced); 2]>;

/// One family's part of [`AdjRibOutSnapshot`]. A route is a prefix, with the path identifier under which it was announced:
/// 0 for none.
#[derive(Clone, Debug)]
pub(crate) struct ToldFamily<P> {
    /// Announced without identifiers.
    routes: HashMap<P, Announced, HashKey>,
    /// Announced with them; never without a path.
    paths: HashMap<P, Paths, HashKey>,
    /// Those of our own that are not there yet: they are withdrawn when it is known that they do not come.
    awaited: HashMap<Identified<P>, Announced, HashKey>,
    /// Further peers that have not been told: between two chunks, when the source of a route changes.
    also_except: HashMap<Identified<P>, SmallVec<[PeerNumber; 2]>, HashKey>,
    /// End-of-RIB was sent.
    pub(crate) end_of_rib: bool,
}

impl<P: IpPrefix> ToldFamily<P> {
    fn new(key: HashKey) -> Self {
        Self {
            routes: HashMap::with_hasher(key),
            paths: HashMap::with_hasher(key),
            awaited: HashMap::with_hasher(key),
            also_except: HashMap::with_hasher(key),
            end_of_rib: false,
        }
    }

    fn len(&self) -> usize {
        self.routes.len() + self.paths.values().map(SmallVec::len).sum::<usize>()
    }

    fn get(&self, route: Identified<P>) -> Option<&Announced> {
        if route.identifier == 0 {
            return self.routes.get(&route.prefix);
        }
        let paths = self.paths.get(&route.prefix)?;
        paths.iter().find(|(identifier, _)| *identifier == route.identifier).map(|(_, told)| told)
    }

    fn insert(&mut self, route: Identified<P>, told: Announced) {
        if route.identifier == 0 {
            self.routes.insert(route.prefix, told);
            return;
        }
        let paths = self.paths.entry(route.prefix).or_default();
        match paths.iter_mut().find(|(identifier, _)| *identifier == route.identifier) {
            Some((_, known)) => *known = told,
            None => paths.push((route.identifier, told)),
        }
    }

    fn remove(&mut self, route: Identified<P>) -> Option<Announced> {
        if route.identifier == 0 {
            return self.routes.remove(&route.prefix);
        }
        let Entry::Occupied(mut paths) = self.paths.entry(route.prefix) else { return None };
        let at = paths.get().iter().position(|(identifier, _)| *identifier == route.identifier)?;
        let (_, told) = paths.get_mut().swap_remove(at);
        if paths.get().is_empty() {
            paths.remove();
        }
        Some(told)
    }

    /// With those besides the source that were not told.
    fn known(&mut self, route: Identified<P>, told: Announced) -> Known {
        (told, self.also_except.remove(&route).unwrap_or_default())
    }

    /// Takes out what is known of a route.
    pub(crate) fn take(&mut self, route: Identified<P>) -> Option<Known> {
        let told = self.remove(route).or_else(|| self.awaited.remove(&route))?;
        Some(self.known(route, told))
    }

    /// Takes out all paths of a prefix that were announced with identifiers, but for our own if those are awaited.
    pub(crate) fn take_rest(&mut self, prefix: P, ours_are_awaited: bool) -> Vec<(Identified<P>, Known)> {
        let mut taken = Vec::new();
        for (identifier, told) in self.paths.remove(&prefix).unwrap_or_default() {
            let route = Identified { identifier, prefix };
            self.take_or_await(route, told, ours_are_awaited, &mut taken);
        }
        taken
    }

    fn take_or_await(
        &mut self,
        route: Identified<P>,
        told: Announced,
        ours_are_awaited: bool,
        taken: &mut Vec<(Identified<P>, Known)>,
    ) {
        if ours_are_awaited && told.source == OURS_AGAIN {
            self.awaited.insert(route, told);
        } else {
            taken.push((route, self.known(route, told)));
        }
    }

    /// Whether there is something that the walk has not met.
    pub(crate) fn is_left(&self) -> bool {
        !self.routes.is_empty() || !self.paths.is_empty()
    }

    /// Takes out what is left of some prefixes, but for routes of our own if those are awaited.
    pub(crate) fn take_some(&mut self, most: usize, ours_are_awaited: bool) -> Vec<(Identified<P>, Known)> {
        let mut taken = Vec::new();
        let some: Vec<P> = self.routes.keys().take(most).copied().collect();
        for prefix in some {
            let Some(told) = self.routes.remove(&prefix) else { continue };
            self.take_or_await(Identified { identifier: 0, prefix }, told, ours_are_awaited, &mut taken);
        }
        let some: Vec<P> = self.paths.keys().take(most).copied().collect();
        taken.extend(some.into_iter().flat_map(|prefix| self.take_rest(prefix, ours_are_awaited)));
        if !self.is_left() {
            self.routes.shrink_to_fit();
            self.paths.shrink_to_fit();
        }
        taken
    }

    /// Whether there are routes of our own that may still come.
    pub(crate) fn awaits(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// They do not come.
    pub(crate) fn await_no_more(&mut self) {
        let key = *self.awaited.hasher();
        let awaited = std::mem::replace(&mut self.awaited, HashMap::with_hasher(key));
        awaited.into_iter().for_each(|(route, told)| self.insert(route, told));
    }

    fn withdrawn(&mut self, whom: Scope, routes: impl Iterator<Item = Identified<P>>) {
        for route in routes {
            match whom {
                Scope::All => {
                    self.remove(route);
                    self.also_except.remove(&route);
                }
                Scope::Only(peer) => self.except(route, peer),
            }
        }
    }

    fn except(&mut self, route: Identified<P>, peer: PeerNumber) {
        if self.get(route).is_some_and(|told| told.source != peer) {
            self.also_except.entry(route).or_default().push(peer);
        }
    }

    fn announced(&mut self, told: Announced, identifier: u32, prefixes: Vec<P>) {
        let route = |prefix| Identified { identifier, prefix };
        if !self.also_except.is_empty() {
            prefixes.iter().for_each(|prefix| drop(self.also_except.remove(&route(*prefix))));
        }
        match identifier {
            0 => self.routes.extend(prefixes.into_iter().map(|prefix| (prefix, told))),
            _ => prefixes.into_iter().for_each(|prefix| self.insert(route(prefix), told)),
        }
    }
}

fn plain<P>(prefixes: Vec<P>) -> impl Iterator<Item = Identified<P>> {
    prefixes.into_iter().map(|prefix| Identified { identifier: 0, prefix })
}

/// What the members of a group have been told, up to one entry of the journal.
#[derive(Clone, Debug)]
pub struct AdjRibOutSnapshot {
    pub(crate) v4: ToldFamily<Ipv4Prefix>,
    pub(crate) v6: ToldFamily<Ipv6Prefix>,
}

impl AdjRibOutSnapshot {
    /// Nothing. `key` is that of its hashes: prefixes come from the network.
    pub fn new(key: HashKey) -> Self {
        Self { v4: ToldFamily::new(key), v6: ToldFamily::new(key) }
    }

    /// Takes in the next entry. They come oldest first.
    ///
    /// # Errors
    /// It is damaged; what was told is not known then.
    pub fn entry(&mut self, entry: &[u8]) -> Result<(), Unreadable> {
        let (whom, items) = format::read(entry)?;
        for item in items {
            match item? {
                Item::Withdrawn4(prefixes) => self.v4.withdrawn(whom, plain(prefixes)),
                Item::Withdrawn6(prefixes) => self.v6.withdrawn(whom, plain(prefixes)),
                Item::PathsWithdrawn4(paths) => self.v4.withdrawn(whom, paths.into_iter()),
                Item::PathsWithdrawn6(paths) => self.v6.withdrawn(whom, paths.into_iter()),
                Item::Announced4(..) | Item::Announced6(..) if whom != Scope::All => return Err(Unreadable),
                Item::Announced4(told, identifier, prefixes) => {
                    self.v4.announced(told, identifier, prefixes);
                }
                Item::Announced6(told, identifier, prefixes) => {
                    self.v6.announced(told, identifier, prefixes);
                }
                Item::EndOfRib(0) => self.v4.end_of_rib = true,
                Item::EndOfRib(_) => self.v6.end_of_rib = true,
            }
        }
        Ok(())
    }

    /// Routes announced: of a prefix, as many as it has paths.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether nothing was announced.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes it as few entries, which say the same as all those that were taken in.
    pub fn rewrite(self) -> Rewrite {
        Rewrite { v4: RewriteFamily::new(self.v4), v6: RewriteFamily::new(self.v6) }
    }
}

/// Entries that say what a [`AdjRibOutSnapshot`] knows, made in slices.
#[derive(Debug)]
pub struct Rewrite {
    v4: RewriteFamily<Ipv4Prefix>,
    v6: RewriteFamily<Ipv6Prefix>,
}

impl Rewrite {
    /// One slice; `None` when all is written. What it appends to `entries` are whole entries, in order.
    pub fn work(&mut self, entries: &mut Vec<Vec<u8>>) -> Option<()> {
        self.v4.work(entries).or_else(|| self.v6.work(entries))
    }
}

/// Routes that are sorted at once, and looked at in one slice.
const SLICE: usize = 4096;
/// So that there are few in each.
const BUCKETS: usize = 256;
/// Prefixes in one item of an entry.
const MOST_TOGETHER: usize = 1024;
/// Octets after which an entry ends.
const LONG_ENTRY: usize = 16 << 10;

#[derive(Debug)]
struct RewriteFamily<P> {
    routes: hash_map::IntoIter<P, Announced>,
    paths: hash_map::IntoIter<P, Paths>,
    /// By hash: routes that were announced together stand together.
    buckets: Vec<Vec<(Identified<P>, Announced)>>,
    also_except: HashMap<Identified<P>, SmallVec<[PeerNumber; 2]>, HashKey>,
    end_of_rib: bool,
}

impl<P: IpPrefix> RewriteFamily<P> {
    fn new(told: ToldFamily<P>) -> Self {
        let buckets = if told.is_left() { BUCKETS } else { 0 };
        Self {
            routes: told.routes.into_iter(),
            paths: told.paths.into_iter(),
            buckets: vec![Vec::new(); buckets],
            also_except: told.also_except,
            end_of_rib: told.end_of_rib,
        }
    }

    fn work(&mut self, entries: &mut Vec<Vec<u8>>) -> Option<()> {
        if self.routes.len() > 0 || self.paths.len() > 0 {
            for (prefix, announced) in self.routes.by_ref().take(SLICE) {
                let route = Identified { identifier: 0, prefix };
                self.buckets[announced.hash as usize % BUCKETS].push((route, announced));
            }
            for (prefix, paths) in self.paths.by_ref().take(SLICE) {
                for (identifier, announced) in paths {
                    let route = Identified { identifier, prefix };
                    self.buckets[announced.hash as usize % BUCKETS].push((route, announced));
                }
            }
            return Some(());
        }
        if let Some(mut bucket) = self.buckets.pop() {
            bucket.sort_unstable_by_key(|(route, told)| (told.source, told.hash, route.identifier));
            write_announced(&bucket, entries);
            return Some(());
        }
        let except = self.also_except.drain();
        for (route, peer) in
            except.flat_map(|(route, peers)| peers.into_iter().map(move |peer| (route, peer)))
        {
            let mut recorder = Recorder::default();
            match route.identifier {
                0 => recorder.withdrawn([route.prefix].into_iter()),
                _ => recorder.paths_withdrawn([route].into_iter()),
            }
            entries.push(format::entry(Scope::Only(peer), &recorder.items));
        }
        if std::mem::take(&mut self.end_of_rib) {
            let mut recorder = Recorder::default();
            recorder.end_of_rib::<P>();
            entries.push(format::entry(Scope::All, &recorder.items));
        }
        None
    }
}

/// Routes that were announced together stand together.
fn write_announced<P: IpPrefix>(routes: &[(Identified<P>, Announced)], entries: &mut Vec<Vec<u8>>) {
    let mut recorder = Recorder::default();
    let are_alike = |(a, told): &(Identified<P>, Announced), (b, other): &(Identified<P>, Announced)| {
        (a.identifier, told) == (b.identifier, other)
    };
    let parts = routes.chunk_by(are_alike).flat_map(|part| part.chunks(MOST_TOGETHER));
    for part in parts {
        let (route, told) = part[0];
        recorder.announced(told, route.identifier, part.iter().map(|(route, _)| route.prefix));
        let is_last = part.as_ptr_range().end == routes.as_ptr_range().end;
        if is_last || recorder.items.len() > LONG_ENTRY {
            entries.push(format::entry(Scope::All, &recorder.items));
            recorder.items.clear();
        }
    }
}
