//! The routes of one peer, as an operator or a looking glass asks for them, a page at a time.
//!
//! Nothing of this is stored by peer: the table is walked, and what a peer is told is found out again, as it is when
//! routes are announced.

use std::fmt;

use holdfast_bgp_wire::NextHop;
use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    Gateway, PeerIndex, Pipeline,
    core::{Core, family_index},
    export::{Export, Group},
    own_next_hop::OwnNextHops,
    path::{Path, SourceId},
    rewrite::{self, ExportedNextHop},
    show::{PathState, PathView},
    stage::Stages,
    table::Table,
};

/// Which routes of a peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NeighborView {
    /// All that it has sent, as received.
    Received,
    /// Those that import policy took, as it made them.
    Accepted,
    /// Those that import policy refuses, or that are loops, as received.
    Filtered,
    /// The best routes that it is told, as it is told them.
    Advertised,
    /// The best routes that it is not told, and why.
    Withheld,
}

/// Why a best route is not told to a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Withheld {
    /// It came from there.
    Sender,
    /// From one internal peer to another (RFC 4271 section 9.2), neither of them a client (RFC 4456 section 6).
    Internal,
    /// NO_ADVERTISE, NO_EXPORT towards another AS (RFC 1997), or LLGR_STALE where that is not known (RFC 9494).
    Community,
    /// It is for customers only (RFC 9234 section 5).
    OnlyToCustomer,
    /// No export policy is configured (RFC 8212).
    NoPolicy,
    /// A term of the export policy refuses it.
    Rejected {
        /// The policy's name.
        policy: String,
        /// The term's name.
        term: String,
    },
    /// We have no address of our own to name as next hop.
    NoNextHop,
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sender => f.write_str("it came from this peer"),
            Self::Internal => f.write_str("from one internal peer to another"),
            Self::Community => f.write_str("a well-known community keeps it here"),
            Self::OnlyToCustomer => f.write_str("it is for customers only (RFC 9234)"),
            Self::NoPolicy => f.write_str("no export policy is configured (RFC 8212)"),
            Self::Rejected { policy, term } => write!(f, "refused by policy {policy}, term {term}"),
            Self::NoNextHop => f.write_str("no own address for the next hop"),
        }
    }
}

/// A part of a peer's routes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeighborPage {
    /// Where to go on; `None` at the end of the table.
    pub next: Option<Prefix>,
    /// In address order.
    pub routes: Vec<(Prefix, PathView)>,
}

/// What says which best routes a peer is told.
struct Receiver<'a> {
    index: PeerIndex,
    group: &'a Group,
    own: OwnNextHops,
    /// What it is told, with AS numbers as they are shown.
    shown: Export,
}

impl Pipeline {
    /// Some of a peer's routes: of `limit` prefixes after one (or from the first) in address order. Empty while the
    /// session is down; the table may change between pages.
    pub fn neighbor_routes(
        &mut self,
        index: PeerIndex,
        view: NeighborView,
        family: Family,
        after: Option<Prefix>,
        limit: usize,
    ) -> NeighborPage {
        let nothing = NeighborPage { next: None, routes: Vec::new() };
        let Some(session) = self.session(index) else { return nothing };
        let (sources, own) = (session.sources().to_vec(), OwnNextHops::new(&session.facts));
        let member = self.members.get(index.index()).and_then(Option::as_ref);
        let stream = member.and_then(|member| self.streams.get(member.stream));
        let receiver = stream.map(|stream| Receiver {
            index,
            group: &stream.group,
            own,
            shown: stream.group.export.clone().with_four_octet_as(),
        });
        let (core, stages) = (&mut self.core, &self.stages);
        let asked = (view, &*sources, receiver.as_ref());
        let mut page = match family_index(family) {
            Some(0) => {
                self.v4.neighbor_page(core, stages, asked, after.and_then(Ipv4Prefix::from_prefix), limit)
            }
            Some(_) => {
                self.v6.neighbor_page(core, stages, asked, after.and_then(Ipv6Prefix::from_prefix), limit)
            }
            None => nothing,
        };
        page.routes
            .iter_mut()
            .for_each(|(prefix, shown)| self.identify(*prefix, std::slice::from_mut(shown)));
        page
    }
}

impl<P: IpPrefix> Table<P> {
    fn neighbor_page(
        &mut self,
        core: &mut Core,
        stages: &Stages,
        (view, sources, receiver): (NeighborView, &[SourceId], Option<&Receiver<'_>>),
        after: Option<P>,
        limit: usize,
    ) -> NeighborPage {
        let page = self.rib.page(after, limit);
        let next = page.last().filter(|_| page.len() == limit).map(|(prefix, _)| (*prefix).into());
        let mut routes = Vec::new();
        for (prefix, best) in page {
            match view {
                NeighborView::Received | NeighborView::Accepted | NeighborView::Filtered => {
                    let shown = self.received(core, stages, prefix, sources, view);
                    routes.extend(shown.into_iter().map(|shown| (prefix.into(), shown)));
                }
                NeighborView::Advertised | NeighborView::Withheld => {
                    let Some(receiver) = receiver.filter(|receiver| receiver.wants::<P>() && best.is_some())
                    else {
                        continue;
                    };
                    // One path, or those that it is told of several.
                    let paths = self.rib.paths(prefix).into_iter().zip(self.explain(core, stages, prefix));
                    for (path, shown) in paths.filter(|(path, _)| receiver.group.tells::<P>(*path)) {
                        let shown = match (view, receiver.told(core, prefix, path)) {
                            (NeighborView::Advertised, Ok((bytes, next_hop))) => {
                                Some(PathView { bytes, next_hop, ..shown })
                            }
                            (NeighborView::Withheld, Err(why)) => {
                                Some(PathView { state: PathState::Withheld(why), ..shown })
                            }
                            _ => None,
                        };
                        routes.extend(shown.map(|shown| (prefix.into(), shown)));
                    }
                }
            }
        }
        NeighborPage { next, routes }
    }

    /// What these sources have sent for a prefix, if it belongs into the view.
    fn received(
        &mut self,
        core: &mut Core,
        stages: &Stages,
        prefix: P,
        sources: &[SourceId],
        view: NeighborView,
    ) -> Vec<PathView> {
        let paths = self.rib.paths(prefix);
        if !paths.iter().any(|path| sources.contains(&path.source)) {
            return Vec::new();
        }
        let views = self.explain(core, stages, prefix);
        let of_source = paths.into_iter().zip(views).filter(|(path, _)| sources.contains(&path.source));
        let shown = of_source.filter_map(|(path, shown)| {
            let accepted = core.imported(prefix.into(), path).is_some();
            match view {
                NeighborView::Accepted => accepted.then_some(shown),
                NeighborView::Filtered => (!accepted).then_some(shown),
                _ => Some(core.as_received(path, shown)),
            }
        });
        shown.collect()
    }
}

impl Core {
    fn as_received(&self, path: Path, shown: PathView) -> PathView {
        PathView {
            bytes: self.sets.bytes(path.set).to_vec(),
            local_pref: self.sets.preference(path.set).local_pref,
            next_hop: self.next_hops.gateway(self.sets.next_hop(path.set)),
            ..shown
        }
    }
}

impl Receiver<'_> {
    fn wants<P: IpPrefix>(&self) -> bool {
        self.group.export.families[usize::from(P::WIDTH != 32)]
    }

    /// The attributes and next hop that it is told, or why not.
    fn told<P: IpPrefix>(
        &self,
        core: &mut Core,
        prefix: P,
        best: Path,
    ) -> Result<(Vec<u8>, Option<Gateway>), Withheld> {
        if core.sources.get(best.source).peer == Some(self.index) {
            return Err(Withheld::Sender);
        }
        let Some(judged) = self.group.judge(core, prefix, best) else {
            return Err(self.group.refusal(core, prefix.into(), best));
        };
        let ipv4 = P::WIDTH == 32;
        let edits = self.group.edits(judged.outcome);
        let named = rewrite::exported_next_hop(core, &self.shown, ipv4, judged, &edits);
        let next_hop = match named {
            Some(ExportedNextHop::Ourselves) => self.own.get(ipv4),
            Some(ExportedNextHop::Other(next_hop)) => Some(next_hop),
            None => None,
        };
        let next_hop = next_hop.ok_or(Withheld::NoNextHop)?;
        let mut bytes = Vec::new();
        rewrite::export(core, &self.shown, judged, &edits, next_hop, &mut bytes);
        Ok((bytes, Some(Gateway { address: NextHop::address(next_hop), interface: 0 })))
    }
}
