//! The table as it is, for those who keep a copy of it elsewhere: collectors, dumps.

use std::net::IpAddr;

use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    PeerIndex, Pipeline,
    core::{Core, family_index},
    path::Path,
    table::Table,
};

/// What is dumped of each path.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DumpView {
    /// All, as received.
    Received,
    /// The best, after import policy.
    Best,
}

/// A path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DumpedPath {
    /// Who sent it; `None` for our own routes.
    pub peer: Option<PeerIndex>,
    /// Attributes in canonical bytes: four-octet AS numbers, no MP_REACH_NLRI. Where there is BGPsec_PATH, there is no AS_PATH
    /// that it stands for.
    pub bytes: Vec<u8>,
    /// As received, or as import policy has set it; `None` for our own routes.
    pub next_hop: Option<IpAddr>,
    /// In [`DumpView::Received`], the path identifier under which it came (RFC 7911), if under one.
    pub identifier: Option<u32>,
}

/// A part of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DumpPage {
    /// Where to go on; `None` at the end of the table.
    pub next: Option<Prefix>,
    /// In address order; prefixes without a path in this view are left out.
    pub prefixes: Vec<(Prefix, Vec<DumpedPath>)>,
}

impl Pipeline {
    /// The paths of `limit` prefixes after one (or from the first).
    pub fn dump(&mut self, family: Family, view: DumpView, after: Option<Prefix>, limit: usize) -> DumpPage {
        let (core, peers) = (&mut self.core, &*self.peers);
        let identify = |prefix: Prefix, path: Path, dumped: &mut DumpedPath, core: &Core| {
            let peer = dumped.peer.and_then(|peer| peers.get(peer.index())?.as_ref());
            let places = peer.and_then(|peer| peer.session.as_ref()?.places.as_ref());
            let place = core.sources.get(path.source).place;
            dumped.identifier = places.and_then(|places| places.identifier(prefix, place));
        };
        match family_index(family) {
            Some(0) => self.v4.dump(core, view, after.and_then(Ipv4Prefix::from_prefix), limit, identify),
            Some(_) => self.v6.dump(core, view, after.and_then(Ipv6Prefix::from_prefix), limit, identify),
            None => DumpPage { next: None, prefixes: Vec::new() },
        }
    }

    /// The best path to a prefix, if there is one.
    pub fn best(&mut self, prefix: Prefix) -> Option<DumpedPath> {
        let best = match prefix {
            Prefix::V4(prefix) => self.v4.rib.best(prefix),
            Prefix::V6(prefix) => self.v6.rib.best(prefix),
        };
        self.core.dumped(prefix, best, DumpView::Best)
    }
}

impl<P: IpPrefix> Table<P> {
    fn dump(
        &self,
        core: &mut Core,
        view: DumpView,
        after: Option<P>,
        limit: usize,
        identify: impl Fn(Prefix, Path, &mut DumpedPath, &Core),
    ) -> DumpPage {
        let page = self.rib.page(after, limit);
        let next = page.last().filter(|_| page.len() == limit).map(|(prefix, _)| (*prefix).into());
        let mut prefixes = Vec::with_capacity(page.len());
        for (prefix, best) in page {
            let paths = match view {
                DumpView::Received => self.rib.paths(prefix),
                DumpView::Best => vec![best],
            };
            let dumped = |path: Path| {
                let mut dumped = core.dumped(prefix.into(), path, view)?;
                if view == DumpView::Received {
                    identify(prefix.into(), path, &mut dumped, core);
                }
                Some(dumped)
            };
            let paths: Vec<_> = paths.into_iter().filter_map(dumped).collect();
            if !paths.is_empty() {
                prefixes.push((prefix.into(), paths));
            }
        }
        DumpPage { next, prefixes }
    }
}

impl Core {
    fn dumped(&mut self, prefix: Prefix, path: Path, view: DumpView) -> Option<DumpedPath> {
        if !path.is_some() || !self.sources.get(path.source).is_alive() {
            return None;
        }
        let set = match view {
            DumpView::Received => path.set,
            DumpView::Best => self.imported(prefix, path)?,
        };
        Some(DumpedPath {
            peer: self.sources.get(path.source).peer,
            bytes: self.attributes_as_received(set),
            next_hop: self.next_hops.gateway(self.sets.next_hop(set)).map(|gateway| gateway.address),
            identifier: None,
        })
    }
}
