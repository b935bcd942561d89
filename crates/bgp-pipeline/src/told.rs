//! What the peers of one group have been told, read from the journal: where their next process goes on from.

use hashbrown::{HashMap, hash_map};
use holdfast_types::{HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix};
use smallvec::SmallVec;

use crate::journal::{self, Item, OURS_AGAIN, PeerNumber, Recorder, Whom};

/// What is read is not what any version of this process has written.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot be read: it was damaged, or written by a later version")]
pub struct Unreadable;

/// What one prefix was announced with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Announced {
    /// Of the attributes as sent.
    pub(crate) hash: u64,
    /// The peer that it came from, which was not told; 0: none, or [`OURS_AGAIN`].
    pub(crate) source: PeerNumber,
}

/// What is known of a prefix, and who besides the source was not told.
pub(crate) type Known = (Announced, SmallVec<[PeerNumber; 2]>);

/// One family's part of [`Told`].
#[derive(Clone, Debug)]
pub(crate) struct ToldFamily<P> {
    routes: HashMap<P, Announced, HashKey>,
    /// Those of our own that are not there yet: they are withdrawn when it is known that they do not come.
    awaited: HashMap<P, Announced, HashKey>,
    /// Further peers that have not been told: between two chunks, when the source of a route changes.
    also_except: HashMap<P, SmallVec<[PeerNumber; 2]>, HashKey>,
    /// End-of-RIB was sent.
    pub(crate) end_of_rib: bool,
}

impl<P: IpPrefix> ToldFamily<P> {
    fn new(key: HashKey) -> Self {
        let [routes, awaited] = [(); 2].map(|()| HashMap::with_hasher(key));
        Self { routes, awaited, also_except: HashMap::with_hasher(key), end_of_rib: false }
    }

    /// Takes out what is known of a prefix, with those besides the source that were not told.
    pub(crate) fn take(&mut self, prefix: P) -> Option<Known> {
        let announced = self.routes.remove(&prefix).or_else(|| self.awaited.remove(&prefix))?;
        Some((announced, self.also_except.remove(&prefix).unwrap_or_default()))
    }

    /// Whether there is something that the walk has not met.
    pub(crate) fn is_left(&self) -> bool {
        !self.routes.is_empty()
    }

    /// Takes out some of what is left, but for routes of our own if those are awaited.
    pub(crate) fn take_some(&mut self, most: usize, ours_are_awaited: bool) -> Vec<(P, Known)> {
        let some: Vec<P> = self.routes.keys().take(most).copied().collect();
        let mut taken = Vec::new();
        for prefix in some {
            match self.routes.remove(&prefix) {
                Some(told) if ours_are_awaited && told.source == OURS_AGAIN => {
                    self.awaited.insert(prefix, told);
                }
                Some(told) => {
                    taken.push((prefix, (told, self.also_except.remove(&prefix).unwrap_or_default())));
                }
                None => {}
            }
        }
        if self.routes.is_empty() {
            self.routes.shrink_to_fit();
        }
        taken
    }

    /// Whether there are routes of our own that may still come.
    pub(crate) fn awaits(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// They do not come.
    pub(crate) fn await_no_more(&mut self) {
        self.routes.extend(self.awaited.drain());
        self.awaited.shrink_to_fit();
    }

    fn withdrawn(&mut self, whom: Whom, prefixes: Vec<P>) {
        for prefix in prefixes {
            match whom {
                Whom::All => {
                    self.routes.remove(&prefix);
                    self.also_except.remove(&prefix);
                }
                Whom::Only(peer) => self.except(prefix, peer),
            }
        }
    }

    fn except(&mut self, prefix: P, peer: PeerNumber) {
        if self.routes.get(&prefix).is_some_and(|told| told.source != peer) {
            self.also_except.entry(prefix).or_default().push(peer);
        }
    }

    fn announced(&mut self, told: Announced, prefixes: Vec<P>) {
        if !self.also_except.is_empty() {
            prefixes.iter().for_each(|prefix| drop(self.also_except.remove(prefix)));
        }
        self.routes.extend(prefixes.into_iter().map(|prefix| (prefix, told)));
    }
}

/// What the members of a group have been told, up to one entry of the journal.
#[derive(Clone, Debug)]
pub struct Told {
    pub(crate) v4: ToldFamily<Ipv4Prefix>,
    pub(crate) v6: ToldFamily<Ipv6Prefix>,
}

impl Told {
    /// Nothing. `key` is that of its hashes: prefixes come from the network.
    pub fn new(key: HashKey) -> Self {
        Self { v4: ToldFamily::new(key), v6: ToldFamily::new(key) }
    }

    /// Takes in the next entry. They come oldest first.
    ///
    /// # Errors
    /// It is damaged; what was told is not known then.
    pub fn entry(&mut self, entry: &[u8]) -> Result<(), Unreadable> {
        let (whom, items) = journal::read(entry)?;
        for item in items {
            match item? {
                Item::Withdrawn4(prefixes) => self.v4.withdrawn(whom, prefixes),
                Item::Withdrawn6(prefixes) => self.v6.withdrawn(whom, prefixes),
                Item::Announced4(..) | Item::Announced6(..) if whom != Whom::All => return Err(Unreadable),
                Item::Announced4(told, prefixes) => self.v4.announced(told, prefixes),
                Item::Announced6(told, prefixes) => self.v6.announced(told, prefixes),
                Item::EndOfRib(0) => self.v4.end_of_rib = true,
                Item::EndOfRib(_) => self.v6.end_of_rib = true,
            }
        }
        Ok(())
    }

    /// Prefixes announced.
    pub fn len(&self) -> usize {
        self.v4.routes.len() + self.v6.routes.len()
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

/// Entries that say what a [`Told`] knows, made in slices.
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
    /// By hash: routes that were announced together stand together.
    buckets: Vec<Vec<(P, Announced)>>,
    also_except: HashMap<P, SmallVec<[PeerNumber; 2]>, HashKey>,
    end_of_rib: bool,
}

impl<P: IpPrefix> RewriteFamily<P> {
    fn new(told: ToldFamily<P>) -> Self {
        let buckets = if told.routes.is_empty() { 0 } else { BUCKETS };
        Self {
            routes: told.routes.into_iter(),
            buckets: vec![Vec::new(); buckets],
            also_except: told.also_except,
            end_of_rib: told.end_of_rib,
        }
    }

    fn work(&mut self, entries: &mut Vec<Vec<u8>>) -> Option<()> {
        if self.routes.len() > 0 {
            for (prefix, announced) in self.routes.by_ref().take(SLICE) {
                self.buckets[announced.hash as usize % BUCKETS].push((prefix, announced));
            }
            return Some(());
        }
        if let Some(mut bucket) = self.buckets.pop() {
            bucket.sort_unstable_by_key(|(_, told)| (told.source, told.hash));
            write_announced(&bucket, entries);
            return Some(());
        }
        let except = self.also_except.drain();
        for (prefix, peer) in
            except.flat_map(|(prefix, peers)| peers.into_iter().map(move |peer| (prefix, peer)))
        {
            let mut recorder = Recorder::default();
            recorder.withdrawn([prefix].into_iter());
            entries.push(journal::entry(Whom::Only(peer), &recorder.items));
        }
        if std::mem::take(&mut self.end_of_rib) {
            let mut recorder = Recorder::default();
            recorder.end_of_rib::<P>();
            entries.push(journal::entry(Whom::All, &recorder.items));
        }
        None
    }
}

/// Routes that were announced together stand together.
fn write_announced<P: IpPrefix>(routes: &[(P, Announced)], entries: &mut Vec<Vec<u8>>) {
    let mut recorder = Recorder::default();
    let parts = routes.chunk_by(|(_, a), (_, b)| a == b).flat_map(|part| part.chunks(MOST_TOGETHER));
    for part in parts {
        let (_, told) = part[0];
        recorder.announced(told.source, told.hash, part.iter().map(|(prefix, _)| *prefix));
        let is_last = part.as_ptr_range().end == routes.as_ptr_range().end;
        if is_last || recorder.items.len() > LONG_ENTRY {
            entries.push(journal::entry(Whom::All, &recorder.items));
            recorder.items.clear();
        }
    }
}
