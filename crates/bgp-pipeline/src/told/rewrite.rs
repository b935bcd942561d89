//! What was told, written as few entries of the journal.

use holdfast_bgp_wire::nlri::Identified;
use holdfast_types::{IpPrefix, Ipv4Prefix, Ipv6Prefix};

use super::{AdjRibOutSnapshot, ToldFamily};
use crate::journal::format::{self, Announced, PeerNumber, Recorder, Scope};

/// Entries that say what a [`AdjRibOutSnapshot`] knows, made in slices.
#[derive(Debug)]
pub struct Rewrite {
    v4: RewriteFamily<Ipv4Prefix>,
    v6: RewriteFamily<Ipv6Prefix>,
}

impl Rewrite {
    pub(super) fn new(AdjRibOutSnapshot { v4, v6 }: AdjRibOutSnapshot) -> Self {
        Self { v4: RewriteFamily::new(v4), v6: RewriteFamily::new(v6) }
    }

    /// One slice; `None` when all is written. What it appends to `entries` are whole entries, in order.
    pub fn work(&mut self, entries: &mut Vec<Vec<u8>>) -> Option<()> {
        self.v4.work(entries).or_else(|| self.v6.work(entries))
    }
}

/// So that there are few in each, which are sorted at once.
const BUCKETS: usize = 256;
/// Prefixes in one item of an entry.
const MOST_TOGETHER: usize = 1024;
/// Octets after which an entry ends.
const LONG_ENTRY: usize = 16 << 10;

#[derive(Debug)]
struct RewriteFamily<P> {
    told: ToldFamily<P>,
    /// By hash, in address order: routes that were announced together are to stand together.
    buckets: Vec<Vec<(Identified<P>, Announced)>>,
    also_except: Vec<(Identified<P>, PeerNumber)>,
}

impl<P: IpPrefix> RewriteFamily<P> {
    fn new(told: ToldFamily<P>) -> Self {
        let buckets = if told.is_left() { BUCKETS } else { 0 };
        Self { told, buckets: vec![Vec::new(); buckets], also_except: Vec::new() }
    }

    fn work(&mut self, entries: &mut Vec<Vec<u8>>) -> Option<()> {
        if self.told.is_left() {
            if self.told.prepare() {
                self.deal();
            }
            return Some(());
        }
        if let Some(mut bucket) = self.buckets.pop() {
            bucket.sort_by_key(|(route, told)| (told.source, told.hash, route.identifier));
            write_announced(&bucket, entries);
            return Some(());
        }
        for (route, peer) in self.also_except.drain(..) {
            let mut recorder = Recorder::default();
            match route.identifier {
                0 => recorder.withdrawn([route.prefix].into_iter()),
                _ => recorder.paths_withdrawn([route].into_iter()),
            }
            entries.push(format::entry(Scope::Only(peer), &recorder.items));
        }
        if std::mem::take(&mut self.told.end_of_rib) {
            let mut recorder = Recorder::default();
            recorder.end_of_rib::<P>();
            entries.push(format::entry(Scope::All, &recorder.items));
        }
        None
    }

    fn deal(&mut self) {
        let Self { told, buckets, also_except } = self;
        told.pass(None, false, |route, (announced, except)| {
            buckets[announced.hash as usize % BUCKETS].push((route, *announced));
            also_except.extend(except.iter().map(|peer| (route, *peer)));
        });
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
