//! The routes of one peer, as an operator or a looking glass asks for them, a page at a time.
//!
//! Nothing of this is stored by peer: the table is walked, and what a peer is told is found out again, as it is when
//! routes are announced.

use std::rc::Rc;

use holdfast_bgp_wire::{
    NextHop, UpdateEncoder,
    nlri::{Identified, Nlri},
};
use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    Gateway, PeerIndex, Pipeline,
    core::{Core, family_index},
    export::{
        Group,
        rules::{Export, Withheld},
    },
    own_next_hop::OwnNextHops,
    path::{Path, SourceId},
    rewrite::{self, export::ExportedNextHop},
    show::{PATHS_A_PREFIX, PathState, PathView},
    stage::Stages,
    table::Table,
    update_group::stream::Stream,
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
    /// The best routes that it is told, or those of its own view, as it is told them, when all that waits has been sent.
    Advertised,
    /// The best routes that it is not told, and why; with a view of its own it may be told others in their place.
    Withheld,
}

impl NeighborView {
    fn is_of_what_it_sent(self) -> bool {
        match self {
            Self::Received | Self::Accepted | Self::Filtered => true,
            Self::Advertised | Self::Withheld => false,
        }
    }
}

/// The session whose routes are shown: where it ends, another one's do not go on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ShownSession {
    index: PeerIndex,
    source: SourceId,
    serial: u64,
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
struct Receiver {
    index: PeerIndex,
    group: Rc<Group>,
    own: OwnNextHops,
    /// What it is told, with AS numbers as they are shown.
    shown: Export,
}

impl Pipeline {
    /// Whose routes [`Self::neighbor_routes`] shows: those of the peer's session; of what it has sent, also what an
    /// earlier session has left while the peer is expected back (RFC 4724). `None` if there is neither.
    pub fn shown_session(&self, index: PeerIndex, view: NeighborView) -> Option<ShownSession> {
        let peer = self.peers.get(index.index())?.as_ref()?;
        let left = if view.is_of_what_it_sent() { peer.stale.first().copied() } else { None };
        let source = peer.session.as_ref().map(|session| session.source).or(left)?;
        Some(ShownSession { index, source, serial: self.core.sources.get(source).serial })
    }

    /// Some of a peer's routes: of up to `limit` prefixes after one (or from the first) in address order. The table may
    /// change between pages; `None` when the session is not the one any more.
    pub fn neighbor_routes(
        &mut self,
        shown: ShownSession,
        view: NeighborView,
        family: Family,
        after: Option<Prefix>,
        limit: usize,
    ) -> Option<NeighborPage> {
        let index = shown.index;
        self.shown_session(index, view).filter(|present| *present == shown)?;
        let nothing = NeighborPage { next: None, routes: Vec::new() };
        let receiver = match view.is_of_what_it_sent() {
            true => None,
            // A session that goes on after another process is told nothing yet.
            false => match self.receiver(index) {
                Some(receiver) => Some(receiver),
                None => return Some(nothing),
            },
        };
        let sources = match self.session(index) {
            Some(session) => session.sources().to_vec(),
            None => self.stale_sources(index),
        };
        let (core, stages) = (&mut self.core, &self.stages);
        let member = self.members.get(index.index()).and_then(Option::as_ref);
        let stream = member.and_then(|member| self.streams.get(member.stream));
        let asked = (view, &*sources, receiver.as_ref().zip(stream));
        let mut page = match family_index(family) {
            Some(0) => {
                self.v4.neighbor_page(core, stages, asked, after.and_then(Ipv4Prefix::from_prefix), limit)
            }
            Some(_) => {
                self.v6.neighbor_page(core, stages, asked, after.and_then(Ipv6Prefix::from_prefix), limit)
            }
            None => nothing,
        };
        // What was found out for those who only look is not kept until the group is told something.
        if let Some(receiver) = receiver {
            receiver.group.begin_window();
        }
        // What it is told has identifiers of ours.
        if view != NeighborView::Advertised {
            let routes = page.routes.iter_mut();
            routes.for_each(|(prefix, shown)| self.identify(*prefix, std::slice::from_mut(shown)));
        }
        Some(page)
    }

    fn stale_sources(&self, index: PeerIndex) -> Vec<SourceId> {
        let peer = self.peers.get(index.index()).and_then(Option::as_ref);
        peer.map(|peer| peer.stale.clone()).unwrap_or_default()
    }

    fn receiver(&self, index: PeerIndex) -> Option<Receiver> {
        let own = OwnNextHops::new(&self.session(index)?.facts);
        let member = self.members.get(index.index())?.as_ref()?;
        let group = Rc::clone(&self.streams.get(member.stream)?.group);
        let shown = group.export.clone().with_four_octet_as();
        Some(Receiver { index, group, own, shown })
    }
}

impl<P: IpPrefix> Table<P> {
    /// The page ends early where prefixes have many paths: those are what takes time.
    fn neighbor_page(
        &mut self,
        core: &mut Core,
        stages: &Stages,
        (view, sources, asked): (NeighborView, &[SourceId], Option<(&Receiver, &Stream)>),
        after: Option<P>,
        limit: usize,
    ) -> NeighborPage {
        let (receiver, page) = (asked.map(|(receiver, _)| receiver), self.rib.page(after, limit));
        let last = page.last().filter(|_| page.len() == limit).map(|(prefix, _)| (*prefix).into());
        let (mut routes, mut left) = (Vec::new(), limit * PATHS_A_PREFIX);
        let default = receiver.and_then(Receiver::default_route::<P>).filter(|_| after.is_none());
        let own = default.and_then(|path| {
            let prefix = P::from_bits(0, 0);
            Some((prefix.into(), told_or_not(core, stages, prefix, path, (view, asked?))?))
        });
        routes.extend(own);
        for (prefix, best) in page {
            let shown = match asked {
                None => self.received(core, stages, prefix, (view, sources), &mut left),
                Some((receiver, stream)) => {
                    let export = &receiver.group.export;
                    let mut paths = match export.reads_each(usize::from(P::WIDTH != 32)) {
                        true => self.rib.paths(prefix),
                        false => vec![best],
                    };
                    left = left.saturating_sub(paths.len().saturating_sub(1));
                    match receiver.default_route::<P>() {
                        // Said already, or why the one of the table is not told.
                        Some(_) if prefix.length() == 0 => paths = vec![best],
                        Some(_) | None => receiver.group.select(core, prefix, &mut paths),
                    }
                    let is_chosen = || paths.iter().any(|path| path.source == best.source);
                    if export.viewer.is_some() && view == NeighborView::Withheld && !is_chosen() {
                        paths.insert(0, best);
                    }
                    let shown = paths.into_iter().filter_map(|path| {
                        told_or_not(core, stages, prefix, path, (view, (receiver, stream)))
                    });
                    shown.collect()
                }
            };
            routes.extend(shown.into_iter().map(|shown| (prefix.into(), shown)));
            if left == 0 {
                return NeighborPage { next: Some(prefix.into()), routes };
            }
        }
        NeighborPage { next: last, routes }
    }

    /// What these sources have sent for a prefix, if it belongs into the view. Only to say why a path has lost are the
    /// others looked at.
    fn received(
        &mut self,
        core: &mut Core,
        stages: &Stages,
        prefix: P,
        (view, sources): (NeighborView, &[SourceId]),
        left: &mut usize,
    ) -> Vec<PathView> {
        let (mut views, mut decided) = (Vec::new(), None);
        for &source in sources {
            let path = self.rib.path_of(prefix, source);
            if !path.is_some() {
                continue;
            }
            let accepted = core.imported(prefix.into(), path).is_some();
            if let (NeighborView::Accepted, false) | (NeighborView::Filtered, true) = (view, accepted) {
                continue;
            }
            let lost = if !accepted || path.is_best() {
                None
            } else {
                let (paths, lost) = decided.get_or_insert_with(|| {
                    let paths = self.rib.paths(prefix);
                    *left = left.saturating_sub(paths.len());
                    let lost = core.lost(prefix.into(), &paths);
                    (paths, lost)
                });
                let at = paths.iter().position(|other| other.source == source);
                at.and_then(|at| lost[at])
            };
            let shown = core.view(stages, prefix.into(), path, lost);
            let accepted = view == NeighborView::Accepted;
            views.push(if accepted { shown } else { core.as_received(path, shown) });
        }
        views
    }
}

/// A path that a peer is told of, if export policy lets it pass: if it belongs into the view of what it is told or not.
fn told_or_not<P: IpPrefix>(
    core: &mut Core,
    stages: &Stages,
    prefix: P,
    path: Path,
    (view, (receiver, stream)): (NeighborView, (&Receiver, &Stream)),
) -> Option<PathView> {
    if !path.is_some() {
        return None;
    }
    let told = receiver.told(core, prefix, path);
    // Only who has signed a path knows how long it is.
    let told = told.and_then(|told| match stream.is_too_long(core, prefix.into(), path) {
        true => Err(Withheld::TooLong),
        false => Ok(told),
    });
    match (view, told) {
        (NeighborView::Withheld, Err(why)) => {
            let shown = core.view(stages, prefix.into(), path, None);
            Some(PathView { state: PathState::Withheld(why), ..shown })
        }
        (NeighborView::Advertised, Ok((bytes, next_hop))) => {
            let shown = core.view(stages, prefix.into(), path, None);
            let identifier =
                receiver.is_told_several::<P>().then(|| core.sources.get(path.source).identifier);
            Some(PathView { bytes, next_hop, identifier, ..shown })
        }
        _ => None,
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

impl Receiver {
    fn is_told_several<P: IpPrefix>(&self) -> bool {
        self.group.export.paths::<P>() != 0
    }

    /// The default route of our own that it is told of, whatever the table has.
    fn default_route<P: IpPrefix>(&self) -> Option<Path> {
        let export = &self.group.export;
        let set = export.default_route.filter(|_| export.families[usize::from(P::WIDTH != 32)]);
        set.map(Path::default_route)
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
        let is_replaced = prefix.length() == 0 && best.source != SourceId::DEFAULT;
        if is_replaced && self.default_route::<P>().is_some() {
            return Err(Withheld::OwnDefault);
        }
        let Some(judged) = self.group.judge(core, prefix, best) else {
            return Err(self.group.refusal(core, prefix.into(), best));
        };
        let ipv4 = P::WIDTH == 32;
        let edits = self.group.edits(judged.outcome);
        let named = rewrite::export::next_hop(core, &self.shown, ipv4, judged, &edits);
        let next_hop = match named {
            Some(ExportedNextHop::Ourselves) => self.own.get(ipv4),
            Some(ExportedNextHop::Other(next_hop)) => Some(next_hop),
            None => None,
        };
        let next_hop = next_hop.ok_or(Withheld::NoNextHop)?;
        let address = match next_hop {
            NextHop::V4(address) => Some(address),
            NextHop::V6 { .. } => None,
        };
        let write = |export: &Export| {
            let mut bytes = Vec::new();
            rewrite::export::attributes(core, export, judged, &edits, address, &mut bytes);
            bytes
        };
        let export = &self.group.export;
        let bytes = write(&self.shown);
        let sent = if export.four_octet_as { &bytes } else { &write(export) };
        let encoder = UpdateEncoder::new(export.max_message_len);
        let (out, none) = (&mut Vec::new(), [] as [P; 0]);
        let octets = match self.is_told_several::<P>() {
            false => prefix.octets(),
            true => Identified { identifier: 0, prefix }.octets(),
        };
        let fits = match next_hop {
            NextHop::V4(_) => encoder.announce_short(octets, sent, [] as [Ipv4Prefix; 0], out),
            NextHop::V6 { .. } => encoder.announce_mp_short(octets, sent, next_hop, none, out),
        };
        fits.map_err(|_| Withheld::TooLong)?;
        Ok((bytes, Some(Gateway { address: NextHop::address(next_hop), interface: 0 })))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use holdfast_bgp_wire::{HEADER_LEN, MAX_LEN, Origin, edit::AttributesBuilder};
    use holdfast_policy::{Action, Library, Outcome, Policy, PolicySource, Program, Term};
    use holdfast_types::{Asn, HashKey, RouterId};

    use super::*;
    use crate::{
        FamilySet, NextHopMode, PathRules, PeerConfig, PeerKind, SendPaths, SessionFacts, SpeakerConfig,
    };

    fn up(pipeline: &mut Pipeline, n: u8, export: Program) -> PeerIndex {
        let address = Ipv4Addr::new(10, 0, n, 2);
        let peer = pipeline.add_peer(PeerConfig {
            name: n.to_string(),
            address: IpAddr::V4(address),
            asn: Asn(65100 + u32::from(n)),
            kind: PeerKind::Ebgp,
            import: Some(Program::accept_all()),
            export: Some(export),
            paths: PathRules { enforce_first_as: false, ..PathRules::default() },
            send_paths: SendPaths::All,
        });
        let facts = SessionFacts {
            families: Family::ALL.to_vec(),
            four_octet_as: true,
            max_message_len: MAX_LEN,
            extended_next_hop: false,
            enhanced_refresh: false,
            orf_received: Vec::new(),
            long_lived: false,
            router_id: RouterId::new(u32::from(n)).expect("not 0"),
            peer_address: IpAddr::V4(address),
            next_hop_v4: Some(Ipv4Addr::new(10, 0, n, 1)),
            next_hop_v6: None,
            link_local: None,
            interface: 0,
            number: 0,
            first_identifier: 0,
            bgpsec_received: None,
            bgpsec_sent: None,
            identifiers_received: FamilySet::NONE,
            identifiers_sent: FamilySet::NONE,
        };
        pipeline.peer_up(peer, facts).expect("room");
        peer
    }

    /// A policy that takes from each of many routes something else, which is not kept for those who look.
    #[test]
    fn a_walk_leaves_nothing_behind() {
        const ROUTES: u32 = 600;
        let remove = Action::RemoveCommunities(vec!["65000:*".parse().expect("a pattern")]);
        let term = Term { name: "all".into(), from: vec![], then: vec![remove], outcome: Outcome::Accept };
        let policy = Policy { name: "p".into(), first: vec![], terms: vec![term], last: None };
        let source = PolicySource { policies: vec![policy], ..PolicySource::default() };
        let export = Library::compile(&source, 1).expect("compiles").get("p").expect("is there").clone();
        let speaker = SpeakerConfig::new(Asn(65000), RouterId::new(1).expect("not 0"), HashKey::new([42, 0]));
        let next_hops = NextHopMode::AlwaysReachable;
        let mut pipeline = Pipeline::new(SpeakerConfig { next_hops, ..speaker });
        let (from, to) = (up(&mut pipeline, 1, export.clone()), up(&mut pipeline, 2, export));
        for n in 0..ROUTES {
            let attributes = AttributesBuilder {
                as_path: vec![Asn(65101)],
                next_hop: Some(Ipv4Addr::new(10, 0, 1, 2)),
                communities: vec![65000 << 16 | n],
                ..AttributesBuilder::new(Origin::Igp)
            };
            let route = Ipv4Prefix::new(Ipv4Addr::from_bits(0x0b00_0000 | n << 8), 24).expect("a prefix");
            let mut update = Vec::new();
            let sent = UpdateEncoder::new(MAX_LEN).announce(&attributes.build(), [route], &mut update);
            assert_eq!(sent, Ok(1));
            pipeline.update(from, &update.split_off(HEADER_LEN)).expect("taken");
        }
        let view = NeighborView::Advertised;
        let session = pipeline.shown_session(to, view).expect("it is up");
        let page = pipeline.neighbor_routes(session, view, Family::IPV4_UNICAST, None, ROUTES as usize);
        assert_eq!(page.map(|page| page.routes.len()), Some(ROUTES as usize));
        let group = pipeline.receiver(to).expect("it is up").group;
        assert!(group.outcomes() <= usize::from(u8::MAX), "{}", group.outcomes());
    }
}
