//! Questions about the pipeline that change nothing: counters, memory, routes.

use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    Drops, PathState, PathView, PeerConfig, PeerIndex, Pipeline, RouteCounts, Unsigned,
    adj_rib_out::goes_on,
    core::{Core, family_index},
    effort::Effort,
    fanout::Change,
    path::Path,
    sets::Owner,
    table::Table,
    update_group::{Streams, stream::Stream},
};

/// What a path takes in the tables: its word, and its share of what leads there.
const ROUTE_OCTETS: u64 = 16;
/// What a path takes in a snapshot, by family, and a set beside its attributes: measured.
const FROZEN_IPV4: u64 = 5;
const FROZEN_IPV6: u64 = 6;
const FROZEN_SET: u64 = 4;

/// What a peer has and gets, in one family.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FamilyCounts {
    /// Paths in the table.
    pub routes: RouteCounts,
    /// Prefixes announced to the peer.
    pub announced: u64,
    /// Paths of an earlier session that stay until the peer has sent everything (RFC 4724).
    pub stale: u64,
    /// It has sent its End-of-RIB.
    pub end_of_rib_received: bool,
    /// It was sent ours.
    pub end_of_rib_sent: bool,
}

/// Bytes held, by part.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Prefix tables, path lists, path identifiers as received, what is known of signatures, and change logs.
    pub tables: usize,
    /// Attribute sets and next hops.
    pub attributes: usize,
    /// Encoded messages and the room to make them.
    pub output: usize,
}

impl Memory {
    /// The sum.
    pub fn total(&self) -> usize {
        self.tables + self.attributes + self.output
    }
}

impl Pipeline {
    /// The work of this pipeline since its start.
    pub fn effort(&self) -> Effort {
        self.core.effort
    }

    /// Streams of sessions that go on after another process, of which is compared what they were told with what they are to
    /// be told now.
    pub fn resuming(&self) -> usize {
        self.streams.iter().filter(|(_, stream)| stream.resumes()).count()
    }

    /// Prefixes and paths of a family.
    pub fn table_size(&self, family: Family) -> (usize, u64) {
        let Some(at) = family_index(family) else { return (0, 0) };
        let prefixes = if at == 0 { self.v4.rib.table.len() } else { self.v6.rib.table.len() };
        (prefixes, self.core.sources.iter().map(|source| source.counts[at].received).sum())
    }

    /// Changes in the logs that some reader has not read, by family.
    pub fn log_lengths(&self) -> [usize; 2] {
        [self.v4.rib.log.len(), self.v6.rib.log.len()]
    }

    /// How many update groups there are.
    pub fn update_groups(&self) -> usize {
        self.streams.groups()
    }

    /// How far the logs of changed best routes have come, by family.
    pub fn changes_end(&self) -> [u64; 2] {
        [self.v4.rib.log.end(), self.v6.rib.log.end()]
    }

    /// The prefixes whose best route changed after [`changes_end`](Self::changes_end) said this, and whether there is
    /// one now. Changes that every reader has passed may be missing.
    pub fn changes_since(&self, ends: [u64; 2]) -> Vec<(Prefix, bool)> {
        let v4 = self.v4.rib.log.read(ends[0], usize::MAX).filter_map(told);
        v4.chain(self.v6.rib.log.read(ends[1], usize::MAX).filter_map(told)).collect()
    }

    /// Counters of a peer in one family; zero while its session is down, but for what stays of it.
    pub fn counts(&self, index: PeerIndex, family: Family) -> FamilyCounts {
        let Some(at) = family_index(family) else { return FamilyCounts::default() };
        let stale = self.peers.get(index.index()).and_then(Option::as_ref).map(|peer| &peer.stale);
        let stale =
            stale.into_iter().flatten().map(|source| self.core.sources.get(*source).counts[at].received);
        let stale = stale.sum();
        let Some(session) = self.session(index) else {
            return FamilyCounts { stale, ..FamilyCounts::default() };
        };
        let member = self.members[index.index()].as_ref();
        let mut routes = RouteCounts::default();
        session.sources().iter().for_each(|source| routes += self.core.sources.get(*source).counts[at]);
        FamilyCounts {
            routes,
            announced: member.map_or(0, |member| self.streams.announced(member, at)),
            stale,
            end_of_rib_received: session.end_of_rib[at],
            end_of_rib_sent: session.announced[at],
        }
    }

    /// Octets that are kept for a peer: its routes, and the attribute sets that it brought first and somebody uses still.
    pub fn kept_octets(&self, index: PeerIndex) -> u64 {
        let families = [Family::IPV4_UNICAST, Family::IPV6_UNICAST].map(|family| self.counts(index, family));
        let routes: u64 = families.iter().map(|counts| counts.routes.received + counts.stale).sum();
        self.core.sets.kept(Owner::of(Some(index))).octets() + routes * ROUTE_OCTETS
    }

    /// About as many octets as the records of [`freeze`](Self::freeze) would have for a session. Sets that others have
    /// brought before are not counted.
    pub fn frozen_octets(&self, index: PeerIndex) -> u64 {
        let routes = |family| self.counts(index, family).routes.received;
        let entries = [(Family::IPV4_UNICAST, FROZEN_IPV4), (Family::IPV6_UNICAST, FROZEN_IPV6)]
            .map(|(family, octets)| routes(family) * octets);
        let kept = self.core.sets.kept(Owner::of(Some(index)));
        entries.into_iter().sum::<u64>() + kept.attributes + kept.sets * FROZEN_SET
    }

    /// What was wrong in the peer's UPDATEs since it was added.
    pub fn drops(&self, index: PeerIndex) -> Option<&Drops> {
        self.peers.get(index.index())?.as_ref().map(|peer| &peer.drops)
    }

    /// The configuration of a peer.
    pub fn peer(&self, index: PeerIndex) -> Option<&PeerConfig> {
        self.peers.get(index.index())?.as_ref().map(|peer| &peer.config)
    }

    /// A number for the update group that encodes for the peer; `None` while its session is down.
    pub fn update_group(&self, index: PeerIndex) -> Option<u32> {
        self.members.get(index.index())?.as_ref().map(|member| member.stream.0)
    }

    /// Routes not sent because their attributes fit no message, counted since the start.
    pub fn too_long(&self) -> u64 {
        self.streams.too_long()
    }

    /// All paths to a prefix, the best first, and why each is or is not used. Empty if there is none.
    pub fn explain(&mut self, prefix: Prefix) -> Vec<PathView> {
        let mut paths = match prefix {
            Prefix::V4(prefix) => self.v4.explain(&mut self.core, &self.stages, prefix),
            Prefix::V6(prefix) => self.v6.explain(&mut self.core, &self.stages, prefix),
        };
        self.identify(prefix, &mut paths);
        paths
    }

    /// Adds their path identifiers.
    pub(crate) fn identify(&self, prefix: Prefix, paths: &mut [PathView]) {
        for path in paths.iter_mut().filter(|path| path.state != PathState::Stale) {
            let session = path.peer.and_then(|peer| self.session(peer));
            let places = session.and_then(|session| session.places.as_ref());
            path.identifier = places.and_then(|places| places.identifier(prefix, path.place));
        }
    }

    /// The most specific prefix in the table that contains this one (or an address).
    pub fn longest_match(&self, prefix: Prefix) -> Option<Prefix> {
        match prefix {
            Prefix::V4(prefix) => self.v4.rib.table.longest_match(prefix).map(|(found, _)| found.into()),
            Prefix::V6(prefix) => self.v6.rib.table.longest_match(prefix).map(|(found, _)| found.into()),
        }
    }

    /// Up to `limit` prefixes of a family after one (or from the first) in address order, with their paths; fewer where
    /// they have many. The last prefix is where to go on, until there is none; the table may change between.
    pub fn routes(
        &mut self,
        family: Family,
        after: Option<Prefix>,
        limit: usize,
    ) -> Vec<(Prefix, Vec<PathView>)> {
        let mut routes = match family_index(family) {
            Some(0) => {
                self.v4.show(&mut self.core, &self.stages, after.and_then(Ipv4Prefix::from_prefix), limit)
            }
            Some(_) => {
                self.v6.show(&mut self.core, &self.stages, after.and_then(Ipv6Prefix::from_prefix), limit)
            }
            None => Vec::new(),
        };
        routes.iter_mut().for_each(|(prefix, paths)| self.identify(*prefix, paths));
        routes
    }

    /// The peers that are told of the prefix's best path, or of others if they are sent several; and how.
    pub fn sent_to(&mut self, prefix: Prefix) -> Vec<SentTo> {
        let mut sent = match prefix {
            Prefix::V4(prefix) => sent(&self.v4, &mut self.core, &self.streams, prefix),
            Prefix::V6(prefix) => sent(&self.v6, &mut self.core, &self.streams, prefix),
        };
        sent.sort_by_key(|sent| sent.peer);
        sent.dedup_by_key(|sent| sent.peer);
        sent
    }

    /// Interned attribute sets.
    pub fn attribute_sets(&self) -> usize {
        self.core.sets.len()
    }

    /// Bytes held for attributes themselves; asking costs nothing.
    pub fn attribute_memory(&self) -> usize {
        self.core.sets.octets()
    }

    /// Bytes held, slack included.
    pub fn memory(&self) -> Memory {
        Memory {
            tables: self.v4.memory()
                + self.v6.memory()
                + self.memory_of_places()
                + self.core.signatures.memory()
                + self.core.signing.memory()
                + self.streams.pending_memory(),
            attributes: self.core.sets.memory() + self.core.next_hops.memory(),
            output: self.streams.memory() + self.marks.memory(),
        }
    }
}

/// A peer that is told of a route, and how.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SentTo {
    /// The peer.
    pub peer: PeerIndex,
    /// Whether with signatures.
    pub secured: SentSecured,
}

/// Whether a route goes to a peer with signatures (RFC 8205).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SentSecured {
    /// It does.
    Yes,
    /// It will, when it is signed; until then the peer has what it had.
    Waiting,
    /// It goes with an AS_PATH.
    No(Unsigned),
}

impl Pipeline {
    fn memory_of_places(&self) -> usize {
        let sessions = self.peers.iter().flatten().filter_map(|peer| peer.session.as_ref());
        let places = sessions.filter_map(|session| session.places.as_ref());
        places.map(|places| places.memory()).sum::<usize>() + self.background.remains.memory()
    }
}

fn told<P: IpPrefix>(change: Change<P>) -> Option<(Prefix, bool)> {
    (!change.is_each()).then(|| (change.prefix.into(), change.new.is_some()))
}

/// Who is told of some path to the prefix.
fn sent<P: IpPrefix>(table: &Table<P>, core: &mut Core, streams: &Streams, prefix: P) -> Vec<SentTo> {
    let mut sent = Vec::new();
    let paths = table.rib.paths(prefix);
    for (_, stream) in streams.iter() {
        let Stream { group, members, .. } = stream;
        let mut looked_at = paths.clone();
        match group.export.default_route.filter(|_| prefix.length() == 0) {
            Some(set) => looked_at = std::iter::once(Path::default_route(set)).collect(),
            None => group.select(core, prefix, &mut looked_at),
        }
        for path in looked_at {
            let from = core.sources.get(path.source).peer;
            if stream.is_too_long(core, prefix.into(), path) {
                continue;
            }
            let Some(judged) = group.judge(core, prefix, path) else { continue };
            let secured = match (goes_on::<P>(core, group, path, judged), stream.waits(prefix.into())) {
                (Err(why), _) => SentSecured::No(why),
                (Ok(()), Some(true)) => SentSecured::No(Unsigned::NoSigner),
                (Ok(()), Some(false)) => SentSecured::Waiting,
                (Ok(()), None) => SentSecured::Yes,
            };
            let told = members.iter().filter(|peer| Some(*peer) != from);
            sent.extend(told.map(|peer| SentTo { peer, secured }));
        }
    }
    sent
}
