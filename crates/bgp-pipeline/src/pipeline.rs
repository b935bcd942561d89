//! The whole pipeline, as its driver sees it.

use std::{cell::RefCell, collections::VecDeque, net::IpAddr, rc::Rc, time::Instant};

use holdfast_bgp_wire::{
    Notification, Origin,
    edit::AttributesBuilder,
    nlri,
    update::{self, Identifiers, PeerKind as WireKind, Rules},
};
use holdfast_policy::{Program, Protocol};
use holdfast_types::{Family, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    DecisionRules, Direction, Event, Observer, PeerConfig, PeerIndex, PeerKind, Reachability, RibChanges,
    SessionFacts, SpeakerConfig, Stage,
    adj_rib_out::SetIndex,
    aggregate::Aggregation,
    background::Background,
    class::{Class, ClassId, Ingress, Policy},
    core::{Core, family_index},
    cursor::Encoding,
    export::rules::Export,
    journal::{Journal, JournalEntry},
    next_hop::{Concerned, NextHopId},
    orf::Orf,
    own_next_hop::OwnNextHops,
    path::{SetId, SourceId},
    peer_in::{self, Arrival, Drops, Reader},
    places::PathIdTable,
    rib_out::{RibOut, Telling},
    rib_policy::RibPolicy,
    seam::{Seams, StreamKey},
    sets::Owner,
    source::{Life, Source},
    stage::Stages,
    table::Table,
    told::AdjRibOutSnapshot,
    update_group::{Streams, chunk::Messages, member::Member},
    validity::{Rule, States},
};

/// A configured peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) config: PeerConfig,
    pub(crate) session: Option<Session>,
    /// What an earlier session has left while the peer is expected back (RFC 4724).
    pub(crate) stale: Vec<SourceId>,
    pub(crate) drops: Drops,
}

/// Its session, while that is up.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) source: SourceId,
    /// If it may send several paths of a prefix.
    pub(crate) places: Option<Box<PathIdTable>>,
    pub(crate) facts: SessionFacts,
    pub(crate) end_of_rib: [bool; 2],
    pub(crate) announced: [bool; 2],
    /// What the driver last said of the socket.
    pub(crate) unacknowledged: usize,
    /// How often in a row it held up background work without making progress.
    pub(crate) patience: u32,
    /// Families asked for again while the session was not yet told anything by this process.
    refresh: [bool; 2],
    /// By family, what the peer wants to be told, where it may say so.
    pub(crate) orf: [Option<Box<Orf>>; 2],
}

impl Session {
    /// All its sources.
    pub(crate) fn sources(&self) -> &[SourceId] {
        self.places.as_ref().map_or(std::slice::from_ref(&self.source), |places| places.sources())
    }
}

/// There are as many sessions, dead ones not yet swept included, as can be told apart: 65,532, less what sessions use for
/// several paths of one prefix, which is never all but 8,192.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too many sessions at once: routes of earlier ones are still being swept")]
pub struct TooManySessions;

/// Routes of our own: what they carry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginateAttributes {
    /// ORIGIN.
    pub origin: Origin,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// COMMUNITIES.
    pub communities: Vec<u32>,
    /// LARGE_COMMUNITIES.
    pub large_communities: Vec<(u32, u32, u32)>,
    /// Where the route comes from; export policies may ask.
    pub protocol: Protocol,
    /// The tag it carries between protocols; 0 is none.
    pub tag: u32,
}

impl Default for OriginateAttributes {
    fn default() -> Self {
        Self {
            origin: Origin::Igp,
            med: None,
            communities: Vec::new(),
            large_communities: Vec::new(),
            protocol: Protocol::Static,
            tag: 0,
        }
    }
}

/// From UPDATEs in to UPDATEs out. See the crate's page for the stages.
///
/// Owned by one thread; every call is short: work that grows with the table is done by [`Self::work`].
#[derive(Debug)]
pub struct Pipeline {
    pub(crate) core: Core,
    pub(crate) v4: Table<Ipv4Prefix>,
    pub(crate) v6: Table<Ipv6Prefix>,
    pub(crate) peers: Vec<Option<Peer>>,
    pub(crate) members: Vec<Option<Member>>,
    pub(crate) streams: Streams,
    pub(crate) rib: Option<RibOut<Ipv4Prefix, Ipv6Prefix>>,
    pub(crate) rib_policy: Option<RibPolicy>,
    pub(crate) stages: Stages,
    pub(crate) events: VecDeque<Event>,
    pub(crate) background: Background,
    pub(crate) marks: SetIndex,
    pub(crate) aggregation: Aggregation,
    /// That of the default route, from the first peer on that gets one.
    default_set: Option<SetId>,
    reader: Reader,
    prefixes_v4: Vec<Ipv4Prefix>,
    prefixes_v6: Vec<Ipv6Prefix>,
}

impl Pipeline {
    /// A speaker without peers.
    pub fn new(speaker: SpeakerConfig) -> Self {
        Self {
            v4: Table::new(0, speaker.hash_key),
            v6: Table::new(1, speaker.hash_key),
            core: Core::new(speaker),
            peers: Vec::new(),
            members: Vec::new(),
            streams: Streams::new(),
            rib: None,
            rib_policy: None,
            stages: Stages::default(),
            events: VecDeque::new(),
            background: Background::default(),
            marks: SetIndex::default(),
            aggregation: Aggregation::default(),
            default_set: None,
            reader: Reader::default(),
            prefixes_v4: Vec::new(),
            prefixes_v6: Vec::new(),
        }
    }

    /// Plugs a stage in between ImportPolicy and Decision, after those already there. Only before the first
    /// session: a stage must have seen every route from the start.
    pub fn add_stage(&mut self, stage: Box<dyn Stage>, now: Instant) {
        self.stages.add(stage, now);
    }

    /// Tells the stages what time it is; to be called before whatever happens then.
    pub fn set_now(&mut self, now: Instant) {
        self.stages.set_now(now);
    }

    /// Has an observer see every change between stages: for tests, which give it a [`crate::CheckStage`]. Only
    /// before the first session.
    pub fn observe(&mut self, observer: Rc<RefCell<dyn Observer>>) {
        self.core.seams = Seams::new(observer);
        self.streams.seams = self.core.seams.clone();
    }

    /// What the plugged-in stages say of themselves.
    pub fn describe_stages(&self) -> Vec<String> {
        self.stages.iter().map(Stage::describe).collect()
    }

    // Peers and sessions.

    /// Adds a peer; its session is down.
    pub fn add_peer(&mut self, config: PeerConfig) -> PeerIndex {
        let peer = Some(Peer { config, session: None, stale: Vec::new(), drops: Drops::default() });
        match self.peers.iter().position(Option::is_none) {
            Some(free) => {
                self.peers[free] = peer;
                PeerIndex(free as u16)
            }
            None => {
                self.peers.push(peer);
                self.members.push(None);
                PeerIndex(self.peers.len() as u16 - 1)
            }
        }
    }

    /// Another configuration. Changed policies take effect at once for new routes, and for those that are
    /// there as [`Self::work`] and [`Self::pull`] come by. Name, address, AS and kind have to stay: for
    /// those the session has to end first.
    pub fn configure_peer(&mut self, index: PeerIndex, mut config: PeerConfig) {
        let Some(peer) = self.peers.get_mut(index.index()).and_then(Option::as_mut) else { return };
        keep_if_equal(&peer.config.import, &mut config.import);
        keep_if_equal(&peer.config.export, &mut config.export);
        peer.config = config;
        // Of what stayed of an earlier session: its policy. The rest of what was configured then was part of its reading.
        let import = Policy::of(peer.config.import.as_ref(), peer.config.kind);
        for stale in peer.stale.clone() {
            let classes = self.core.sources.get(stale).classes.map(|id| self.core.classes.get(id).clone());
            self.change_import(stale, &classes.map(|class| Class { import: import.clone(), ..class }));
        }
        let Some(peer) = self.peers.get(index.index()).and_then(Option::as_ref) else { return };
        let Some(session) = &peer.session else { return };
        let sources = session.sources().to_vec();
        let classes = classes(&peer.config, &session.facts, &self.core);
        sources.into_iter().for_each(|source| self.change_import(source, &classes));
        self.change_export(index);
    }

    pub(crate) fn change_import(&mut self, source: SourceId, classes: &[Class; 2]) {
        let old = self.core.sources.get(source).classes;
        if old.iter().zip(classes).all(|(old, new)| self.core.classes.get(*old) == new) {
            return;
        }
        let Some(new) = self.acquire_classes(classes) else { return };
        old.into_iter().for_each(|class| self.core.classes.release(class));
        let moving = self.core.walk + 1;
        let source = self.core.sources.get_mut(source);
        (source.classes, source.moving) = (new, moving);
        self.background.want_walk();
    }

    /// All exports are to become what is configured.
    pub(crate) fn change_exports(&mut self) {
        (0..self.peers.len()).for_each(|number| self.change_export(PeerIndex(number as u16)));
    }

    pub(crate) fn change_export(&mut self, index: PeerIndex) {
        let Some(export) = self.export(index) else { return };
        let ends = self.ends();
        let Some(member) = &mut self.members[index.index()] else { return };
        if self.streams.get(member.stream).is_some_and(|stream| stream.group.export == export) {
            return;
        }
        let group = self.streams.group(export);
        self.streams.change_group(index, member, &group, ends);
        self.make_room();
    }

    /// Whether each path of a prefix is to be told of, and how many in order, follows from the groups there are.
    pub(crate) fn count_paths(&mut self) {
        self.core.mosts = self.streams.mosts();
    }

    /// There may be more who ask about sets: groups of peers, and the RIB's policy.
    pub(crate) fn make_room(&mut self) {
        self.count_paths();
        let asking = self.streams.groups() + usize::from(self.rib_policy.is_some());
        self.core.sets.exported.make_room(asking);
    }

    /// Other rules for the decision: at once for what changes, and for the rest as [`Self::work`] comes by.
    pub fn set_decision(&mut self, rules: DecisionRules) {
        if self.core.speaker.decision != rules {
            self.core.speaker.decision = rules;
            self.background.want_decision();
        }
    }

    /// Forgets a peer, its session ended first. The index may be given out again.
    pub fn remove_peer(&mut self, index: PeerIndex) {
        self.peer_down(index);
        if let Some(peer) = self.peers.get_mut(index.index()) {
            *peer = None;
            self.stages.peer_removed(index);
        }
    }

    /// The session is established. The peer is given the table as [`Self::pull`] is called.
    ///
    /// # Errors
    /// Tens of thousands of sessions have ended faster than they could be swept.
    pub fn peer_up(&mut self, index: PeerIndex, facts: SessionFacts) -> Result<(), TooManySessions> {
        let own = OwnNextHops::new(&facts);
        self.peer_resumed(index, facts)?;
        self.stages.set_replaying(index, false);
        if let Some(export) = self.export(index) {
            let group = self.streams.group(export);
            self.members[index.index()] = Some(self.streams.join(index, &group, own, self.ends()));
            self.make_room();
        }
        Ok(())
    }

    /// What decides what the peer is told; `None` while its session is down.
    pub(crate) fn export(&mut self, index: PeerIndex) -> Option<Export> {
        let peer = self.peers.get(index.index())?.as_ref()?;
        let session = peer.session.as_ref()?;
        let mut export = Export::new(index, &peer.config, &session.facts, &session.orf, &self.core.speaker);
        let originates_default = peer.config.paths.default_originate;
        export.summaries.clone_from(&self.aggregation.summaries);
        export.default_route = if originates_default { self.default_set() } else { None };
        Some(export)
    }

    /// The set of the default route that some peers are told of. It stays.
    fn default_set(&mut self) -> Option<SetId> {
        if self.default_set.is_none() {
            let bytes = AttributesBuilder::new(Origin::Igp).build();
            self.default_set = self.core.acquire(Owner::OURS, ClassId::OURS, NextHopId::LOCAL, &bytes);
        }
        self.default_set
    }

    /// A session that another process has had goes on. Like [`Self::peer_up`], but the peer is told nothing until
    /// [`Self::resume`] says what it was told.
    ///
    /// # Errors
    /// As [`Self::peer_up`].
    pub fn peer_resumed(&mut self, index: PeerIndex, facts: SessionFacts) -> Result<(), TooManySessions> {
        self.end_session(index, [false; 2]);
        let Some(peer) = self.peers.get(index.index()).and_then(Option::as_ref) else { return Ok(()) };
        self.stages.set_replaying(index, true);
        let (kind, asn, client) = (peer.config.kind, peer.config.asn, peer.config.paths.reflector_client);
        let classes = classes(&peer.config, &facts, &self.core);
        let classes = self.acquire_classes(&classes).ok_or(TooManySessions)?;
        let source = Source {
            peer: Some(index),
            kind,
            client,
            asn,
            router_id: facts.router_id.bits(),
            address: facts.peer_address,
            interface: facts.interface,
            classes,
            place: 0,
            identifier: self.core.sources.first_identifier(facts.first_identifier),
            life: Life::Alive,
            moving: 0,
            counts: Default::default(),
            epochs: Default::default(),
            sweeping: 0,
            serial: 0,
        };
        let source = self.core.sources.add(source).ok_or(TooManySessions)?;
        self.streams.name(index, facts.number);
        let several = (facts.identifiers_received != Identifiers::NONE).then(|| {
            Box::new(PathIdTable::new(facts.identifiers_received, source, self.core.speaker.hash_key))
        });
        let orf = Family::ALL.map(|family| facts.orf_received.contains(&family).then(Box::default));
        let session = Session {
            source,
            places: several,
            facts,
            end_of_rib: [false; 2],
            announced: [false; 2],
            unacknowledged: 0,
            patience: 0,
            refresh: [false; 2],
            orf,
        };
        if let Some(peer) = &mut self.peers[index.index()] {
            peer.session = Some(session);
        }
        Ok(())
    }

    /// Sessions that [`Self::peer_resumed`] has announced are told again what changes: `told` is what all of them have
    /// been told up to `passed`. To be called when the table is what it will be: what is missing in it is withdrawn.
    pub fn resume(&mut self, peers: &[PeerIndex], told: AdjRibOutSnapshot, passed: JournalEntry) {
        while self.apply_filters() {}
        let mut groups: Vec<(Export, Vec<_>)> = Vec::new();
        for &index in peers {
            let (Some(export), Some(session)) = (self.export(index), self.session_mut(index)) else {
                continue;
            };
            session.announced = [told.v4.end_of_rib, told.v6.end_of_rib];
            let peer = (index, OwnNextHops::new(&session.facts));
            match groups.iter_mut().find(|(other, _)| *other == export) {
                Some((_, peers)) => peers.push(peer),
                None => groups.push((export, vec![peer])),
            }
        }
        // Most often there is one group, and `told` is large.
        let mut told = Some(told);
        while let Some((export, peers)) = groups.pop() {
            let of_group = if groups.is_empty() { told.take() } else { told.clone() };
            let Some(of_group) = of_group else { break };
            let (group, ends) = (self.streams.group(export), self.ends());
            for (index, member) in self.streams.resume(&peers, &group, (of_group, passed), ends) {
                self.members[index.index()] = Some(member);
            }
            self.make_room();
            for (index, ..) in peers {
                self.stages.set_replaying(index, false);
                let Some(session) = self.session_mut(index) else { continue };
                let asked = std::mem::take(&mut session.refresh);
                let families = Family::ALL.into_iter().zip(asked).filter(|(_, asked)| *asked);
                families.for_each(|(family, _)| self.announce_again(index, family));
            }
        }
    }

    /// Whether routes of other protocols, and aggregates, that peers were told of before may still come. They are not
    /// withdrawn before this ends.
    pub fn await_ours(&mut self, are_awaited: bool) {
        self.core.ours_are_awaited = are_awaited;
        if !are_awaited {
            self.streams.await_ours_no_more();
        }
    }

    /// Keeps a journal of what peers are told, from now on. Only before the first session.
    pub fn keep_journal(&mut self, journal: Box<dyn Journal>) {
        self.streams.keep_journal(journal);
    }

    /// The first of the path identifiers under which the routes of a session are announced to peers that are sent several
    /// paths of a prefix. A process that goes on with the session gives it the same
    /// ([`SessionFacts::first_identifier`]); 0 while it is not up.
    pub fn first_identifier(&self, index: PeerIndex) -> u32 {
        let peer = self.peers.get(index.index()).and_then(Option::as_ref);
        let session = peer.and_then(|peer| peer.session.as_ref());
        session.map_or(0, |session| self.core.sources.get(session.source).identifier)
    }

    /// Whether the peer is told what changes: not yet if its session is that of another process.
    pub fn is_told(&self, index: PeerIndex) -> bool {
        self.members.get(index.index()).is_some_and(Option::is_some)
    }

    /// The journal's last entry that is about what the peer has pulled.
    pub fn journal_place(&self, index: PeerIndex) -> JournalEntry {
        let member = self.members.get(index.index()).and_then(Option::as_ref);
        member.map_or(JournalEntry::NONE, |member| member.passed)
    }

    /// Entries that will be asked for besides those that members [are at](Self::journal_place).
    pub fn journal_heads(&self) -> impl Iterator<Item = JournalEntry> {
        self.streams.heads()
    }

    fn acquire_classes(&mut self, classes: &[Class; 2]) -> Option<[ClassId; 2]> {
        let first = self.core.classes.acquire(&classes[0])?;
        let second = self.core.classes.acquire(&classes[1]);
        if second.is_none() {
            self.core.classes.release(first);
        }
        Some([first, second?])
    }

    /// The session has ended. Its routes take part in no decision from now on, and go as [`Self::work`] comes
    /// by; the peer may come up again at once.
    pub fn peer_down(&mut self, index: PeerIndex) {
        self.peer_away(index, &[]);
    }

    /// The session has ended, and the peer is expected back (RFC 4724 section 4.2): its routes in these families stay
    /// until [`Self::forget_stale`], and are replaced or withdrawn by what a new session brings. Others go as with
    /// [`Self::peer_down`], as does what stayed of an earlier session.
    pub fn peer_away(&mut self, index: PeerIndex, retained: &[Family]) {
        let peer = self.peers.get(index.index()).and_then(Option::as_ref);
        let was_up = peer.is_some_and(|peer| peer.session.is_some());
        self.end_session(index, Family::ALL.map(|family| retained.contains(&family)));
        if !was_up {
            // There was no room for the session that has ended: what stayed before it came may be there still.
            let gone = Family::ALL.into_iter().filter(|family| !retained.contains(family));
            gone.for_each(|family| self.forget_stale(index, family));
        }
    }

    /// What stays of an earlier session in a family is to go.
    pub fn forget_stale(&mut self, index: PeerIndex, family: Family) {
        let Some(peer) = self.peers.get_mut(index.index()).and_then(Option::as_mut) else { return };
        let Some(family) = family_index(family).filter(|_| !peer.stale.is_empty()) else { return };
        peer.stale.retain(|source| self.core.sources.sweep(*source, family));
        self.background.want_walk();
    }

    /// What stays of an earlier session in a family stays on as the last resort, and is told only to peers that know what
    /// that is (RFC 9494 section 4.3); so does what stays of other families. Routes with NO_LLGR are not used any more.
    pub fn keep_long(&mut self, index: PeerIndex, family: Family) {
        let Some(peer) = self.peers.get(index.index()).and_then(Option::as_ref) else { return };
        let Some(family) = family_index(family) else { return };
        for source in peer.stale.clone() {
            let source_now = self.core.sources.get(source);
            if !source_now.goes(family) {
                let classes = source_now.classes.map(|id| self.core.classes.get(id).clone());
                self.change_import(source, &classes.map(|class| Class { long_lived: true, ..class }));
            }
        }
    }

    /// The peer begins to announce everything of a family again (RFC 7313 section 4): what it does not is swept by
    /// [`Self::end_refresh`]. May come again before that: what was announced in between has to be announced once more.
    pub fn begin_refresh(&mut self, index: PeerIndex, family: Family) {
        let (Some(session), Some(family)) = (self.session(index), family_index(family)) else { return };
        for source in session.sources().to_vec() {
            self.core.sources.begin_refresh(source, family);
        }
    }

    /// The peer has announced everything of a family again: what was not among that goes.
    pub fn end_refresh(&mut self, index: PeerIndex, family: Family) {
        let (Some(session), Some(family)) = (self.session(index), family_index(family)) else { return };
        let (sources, walk) = (session.sources().to_vec(), self.core.walk + 1);
        let mut sweeps = false;
        for source in sources {
            sweeps |= self.core.sources.end_refresh(source, family, walk);
        }
        if sweeps {
            self.background.want_walk();
        }
    }

    /// Ends what there is of a session; of these families what it brought stays. When none is up, what stays of an
    /// earlier one is left alone if nothing is said to stay: a session begins.
    fn end_session(&mut self, index: PeerIndex, retained: [bool; 2]) {
        let Some(peer) = self.peers.get_mut(index.index()).and_then(Option::as_mut) else { return };
        if let Some(session) = peer.session.take() {
            // RFC 4724 section 4.2: of two restarts in a row only the last session's routes stay.
            peer.stale.drain(..).for_each(|earlier| self.core.sources.kill(earlier));
            for &source in session.sources() {
                if retained.contains(&true) {
                    self.core.sources.keep(source, retained);
                    peer.stale.push(source);
                } else {
                    self.core.sources.kill(source);
                }
            }
            if let Some(places) = session.places {
                self.background.remains.add(*places);
            }
            self.background.want_walk();
            self.stages.peer_down(index);
        }
        if let Some(member) = self.members[index.index()].take() {
            self.streams.leave(index, &member);
            self.count_paths();
        }
    }

    // In.

    /// Takes the body of an UPDATE.
    ///
    /// # Errors
    /// The session must end with this NOTIFICATION. What is wrong but harmless (RFC 7606) is counted instead:
    /// [`Self::drops`].
    pub fn update(&mut self, index: PeerIndex, body: &[u8]) -> Result<(), Notification> {
        let Some(peer) = self.peers.get_mut(index.index()).and_then(Option::as_mut) else { return Ok(()) };
        let Some(session) = &mut peer.session else { return Ok(()) };
        let identified = session.facts.identifiers_received.of(Family::IPV4_UNICAST);
        let sections = if identified { update::sections_identified(body)? } else { update::sections(body)? };
        if let Some(family) = sections.end_of_rib() {
            if let Some(at) = family_index(family)
                && !std::mem::replace(&mut session.end_of_rib[at], true)
            {
                self.events.push_back(Event::EndOfRib { peer: index, family });
            }
            return Ok(());
        }
        let source = session.source;
        let stale = if peer.stale.is_empty() { None } else { Some(peer.stale.clone()) };
        let identifiers = session.facts.identifiers_received;
        let mut origin = peer_in::Origin { source, facts: &session.facts, drops: &mut peer.drops };
        let mut arrival = self.reader.read(&mut self.core, sections, &mut origin)?;
        arrival.retain_families(&mut self.core, &session.facts, &mut peer.drops);
        if peer.config.paths.role.is_some() {
            arrival.count_leaks(&self.core, identifiers, &mut peer.drops);
        }
        match session.places.take() {
            None => self.arrive(source, &arrival),
            Some(places) => self.arrive_identified(index, places, &arrival),
        }
        if let Some(stale) = stale {
            self.replace_stale(&stale, identifiers, &arrival);
        }
        arrival.release(&mut self.core);
        self.trim_if_long();
        Ok(())
    }

    /// Withdrawals first: a prefix in both places is announced (RFC 4271 section 4.3 leaves that open,
    /// RFC 7606 section 5.2 decides).
    pub(crate) fn arrive(&mut self, source: SourceId, arrival: &Arrival<'_>) {
        self.arrive_v4(source, arrival.withdrawn, None);
        if let Some(unreach) = arrival.unreach {
            self.arrive_mp(source, unreach.family, unreach.nlri, None);
        }
        self.arrive_v4(source, arrival.nlri.0, arrival.nlri.1);
        if let Some((reach, set)) = arrival.reach {
            self.arrive_mp(source, reach.family, reach.nlri, set);
        }
    }

    /// What an UPDATE says of a prefix holds in the place of what stayed of the peer's earlier session: of all its paths
    /// where there were several, as identifiers may be others now.
    fn replace_stale(&mut self, stale: &[SourceId], identifiers: Identifiers, arrival: &Arrival<'_>) {
        for bytes in [arrival.withdrawn, arrival.nlri.0] {
            self.remove_of(stale, identifiers, Family::IPV4_UNICAST, bytes);
        }
        let unreach = arrival.unreach.map(|unreach| (unreach.family, unreach.nlri));
        let reach = arrival.reach.map(|(reach, _)| (reach.family, reach.nlri));
        for (family, bytes) in unreach.into_iter().chain(reach) {
            self.remove_of(stale, identifiers, family, bytes);
        }
    }

    fn remove_of(&mut self, sources: &[SourceId], identifiers: Identifiers, family: Family, bytes: &[u8]) {
        // Checked when the UPDATE was split.
        if family == Family::IPV4_UNICAST {
            self.prefixes_v4.clear();
            let _ = nlri::read_either(bytes, identifiers.of(family), &mut self.prefixes_v4);
            for source in sources {
                self.v4.rib.remove(&mut self.core, &self.prefixes_v4, *source);
            }
        } else {
            self.prefixes_v6.clear();
            let _ = nlri::read_either(bytes, identifiers.of(family), &mut self.prefixes_v6);
            for source in sources {
                self.v6.rib.remove(&mut self.core, &self.prefixes_v6, *source);
            }
        }
    }

    pub(crate) fn arrive_mp(&mut self, source: SourceId, family: Family, bytes: &[u8], set: Option<SetId>) {
        if family == Family::IPV4_UNICAST {
            return self.arrive_v4(source, bytes, set);
        }
        self.prefixes_v6.clear();
        // Checked when the UPDATE was split.
        let _ = nlri::read(bytes, &mut self.prefixes_v6);
        self.v6.arrive(&mut self.core, &mut self.stages, source, &self.prefixes_v6, set);
    }

    fn arrive_v4(&mut self, source: SourceId, bytes: &[u8], set: Option<SetId>) {
        if bytes.is_empty() {
            return;
        }
        self.prefixes_v4.clear();
        // Checked when the UPDATE was split.
        let _ = nlri::read(bytes, &mut self.prefixes_v4);
        self.v4.arrive(&mut self.core, &mut self.stages, source, &self.prefixes_v4, set);
    }

    /// Adds or replaces a route of our own: a configured network, or one of another protocol. It beats all
    /// received ones.
    pub fn originate(&mut self, prefix: Prefix, attributes: &OriginateAttributes) {
        let bytes = AttributesBuilder {
            med: attributes.med,
            communities: attributes.communities.clone(),
            large_communities: attributes.large_communities.clone(),
            ..AttributesBuilder::new(attributes.origin)
        }
        .build();
        let ours = self.core.classes.get(ClassId::OURS).clone();
        let class = Class { protocol: attributes.protocol, tag: attributes.tag, ..ours };
        let Some(class) = self.core.classes.acquire(&class) else { return };
        let set = self.core.acquire(Owner::OURS, class, NextHopId::LOCAL, &bytes);
        self.core.classes.release(class);
        self.arrive_local(prefix, set);
        set.into_iter().for_each(|set| self.core.sets.release(set));
        self.trim_if_long();
    }

    /// Takes a route of our own back.
    pub fn withdraw_origin(&mut self, prefix: Prefix) {
        self.arrive_local(prefix, None);
        self.trim_if_long();
    }

    fn arrive_local(&mut self, prefix: Prefix, set: Option<SetId>) {
        let (core, stages) = (&mut self.core, &mut self.stages);
        match prefix {
            Prefix::V4(prefix) => self.v4.arrive(core, stages, SourceId::LOCAL, &[prefix], set),
            Prefix::V6(prefix) => self.v6.arrive(core, stages, SourceId::LOCAL, &[prefix], set),
        }
    }

    /// What the RIB says of a next hop. The prefixes that use it are decided again: at once where they are few and
    /// waited for this, else by [`Self::work`], in a walk over the tables that serves all changes up to its start.
    pub fn next_hop(&mut self, address: IpAddr, reachability: Reachability) {
        match self.core.next_hops.answer(address, reachability, self.core.walk + 1) {
            Concerned::Nobody => {}
            Concerned::Anybody => self.background.want_next_hops(),
            Concerned::Prefixes(prefixes) => {
                for prefix in prefixes {
                    let (core, stages) = (&mut self.core, &mut self.stages);
                    match prefix {
                        Prefix::V4(prefix) => self.v4.rib.decide_again(core, stages, prefix),
                        Prefix::V6(prefix) => self.v6.rib.decide_again(core, stages, prefix),
                    }
                }
                self.free_swept_places();
                self.trim_if_long();
            }
        }
    }

    pub(crate) fn set_suppressed(&mut self, index: PeerIndex, prefix: Prefix, on: bool) {
        let Some(peer) = self.peers.get(index.index()).and_then(Option::as_ref) else { return };
        for &source in peer.session.iter().flat_map(Session::sources) {
            match prefix {
                Prefix::V4(prefix) => self.v4.rib.suppress(&mut self.core, prefix, source, on),
                Prefix::V6(prefix) => self.v6.rib.suppress(&mut self.core, prefix, source, on),
            }
        }
    }

    // Out.

    /// The next messages for a peer's socket, some ten thousand octets most often. Encodes at most one window of changes, so the call is short; `None` while [`Self::pending`] stays true
    /// means that what was encoded is for others: call again, now or in the next round.
    pub fn pull(&mut self, index: PeerIndex) -> Option<Messages> {
        let limits = self.core.speaker.limits;
        let (core, marks) = (&mut self.core, &mut self.marks);
        let mut encoding = Encoding { limits, core, marks, others: Default::default() };
        let tables = (&mut self.v4, &mut self.v6);
        let messages = self.streams.pull(index, &mut self.members, tables, &mut encoding);
        for (peers, family) in std::mem::take(&mut self.streams.ended) {
            peers.iter().for_each(|peer| self.report_announced(peer, family));
        }
        if !self.streams.applied.is_empty() {
            // What was sent before is of no interest any more.
            self.count_paths();
        }
        for peers in std::mem::take(&mut self.streams.applied) {
            let applied = |peer| Event::PolicyApplied { peer, direction: Direction::Export };
            self.events.extend(peers.iter().map(applied));
        }
        if messages.is_none() {
            self.streams.rest(index, self.ends(), &mut self.members);
        } else if let Some(session) = self.session_mut(index) {
            session.patience = 0;
        }
        messages
    }

    fn report_announced(&mut self, peer: PeerIndex, at: usize) {
        let Some(session) = self.session_mut(peer) else { return };
        if !std::mem::replace(&mut session.announced[at], true) {
            self.events.push_back(Event::Announced { peer, family: Family::ALL[at] });
        }
    }

    /// Whether [`Self::pull`] is to be called for the peer. It may still come to nothing: what is encoded
    /// for others, because it came from this peer, has to be passed too.
    pub fn pending(&self, index: PeerIndex) -> bool {
        let member = self.members.get(index.index()).and_then(Option::as_ref);
        member.is_some_and(|member| self.streams.is_pending(member, self.ends()))
    }

    /// The next peer that has become [`Self::pending`]. A peer is named once, then not again until a
    /// [`Self::pull`] for it has come to nothing. While nothing happens a call costs the same however many
    /// peers there are.
    pub fn poll_ready(&mut self) -> Option<PeerIndex> {
        self.streams.poll_ready(self.ends(), &mut self.members)
    }

    /// Bytes encoded for the peer and not pulled yet.
    pub fn queued(&self, index: PeerIndex) -> usize {
        let member = self.members.get(index.index()).and_then(Option::as_ref);
        member.map_or(0, |member| self.streams.queued(index, member))
    }

    /// How many bytes of the peer's socket are not acknowledged. Background work waits while there are more
    /// than [`crate::Limits::unacknowledged`]; a peer that makes no progress is soon waited for no longer.
    pub fn set_paced(&mut self, index: PeerIndex, unacknowledged: usize) {
        let Some(session) = self.session_mut(index) else { return };
        if session.unacknowledged != unacknowledged {
            (session.unacknowledged, session.patience) = (unacknowledged, 0);
        }
    }

    /// The peer asks for a family, or asks once more (RFC 2918): see [`Self::announce_again`]. What it has said of filters
    /// takes effect first.
    pub fn route_refresh(&mut self, index: PeerIndex, family: Family) {
        self.apply_orf(index, family);
        self.announce_again(index, family);
    }

    /// The peer is given everything of a family once more. Where the session knows of that, the
    /// answer is enclosed in BoRR and EoRR (RFC 7313). While the table is walked for the peer anyway, it comes after that.
    pub fn announce_again(&mut self, index: PeerIndex, family: Family) {
        let is_enclosed = self.session(index).is_some_and(|session| session.facts.enhanced_refresh);
        let member = self.members.get_mut(index.index()).and_then(Option::as_mut);
        match (member, family_index(family)) {
            (Some(member), Some(family)) => self.streams.refresh(index, member, family, is_enclosed),
            (None, Some(family)) => {
                self.session_mut(index).iter_mut().for_each(|session| session.refresh[family] = true);
            }
            (_, None) => {}
        }
    }

    /// Starts telling the RIB, from the whole table on: it is new, or has lost everything. Next hops that are
    /// registered stay so here; [`Self::registered_next_hops`] names them for a new RIB.
    pub fn rib_resync(&mut self) {
        self.core.next_hops.remember_forgotten(true);
        self.core.seams.end(StreamKey::Rib);
        self.rib = Some(RibOut::new(self.ends()));
    }

    /// Another policy for what the RIB is given of the best routes; `None`: all of them, with their tags. Whoever
    /// changes it while there is a RIB calls [`Self::rib_resync`] next.
    pub fn set_rib_policy(&mut self, program: Option<Program>) {
        self.rib_policy = program.map(|program| RibPolicy::new(program, self.streams.next_number()));
        self.make_room();
    }

    /// There is no RIB any more: nothing is kept for it.
    pub fn rib_detach(&mut self) {
        self.core.next_hops.remember_forgotten(false);
        self.core.seams.end(StreamKey::Rib);
        self.rib = None;
    }

    /// Whether [`Self::pull_rib`] has something.
    pub fn rib_pending(&self) -> bool {
        self.rib.as_ref().is_some_and(|rib| rib.is_pending(self.ends()))
    }

    /// Up to `max` changed routes for the RIB.
    pub fn pull_rib(&mut self, max: usize) -> Option<RibChanges> {
        let rib = self.rib.as_mut()?;
        let mut telling = Telling { core: &mut self.core, policy: self.rib_policy.as_mut() };
        rib.pull(&mut telling, (&mut self.v4, &mut self.v6), max)
    }

    /// The addresses that the RIB has been asked to watch.
    pub fn registered_next_hops(&self) -> impl Iterator<Item = IpAddr> {
        self.core.next_hops.registered()
    }

    /// What the driver has to do or may report.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| self.core.next_hops.poll_event())
    }

    pub(crate) fn session(&self, index: PeerIndex) -> Option<&Session> {
        self.peers.get(index.index())?.as_ref()?.session.as_ref()
    }

    pub(crate) fn session_mut(&mut self, index: PeerIndex) -> Option<&mut Session> {
        self.peers.get_mut(index.index())?.as_mut()?.session.as_mut()
    }
}

/// A policy compiled again that decides as before is the old one: nothing has to be evaluated again.
fn keep_if_equal(old: &Option<Program>, new: &mut Option<Program>) {
    if old == new {
        new.clone_from(old);
    }
}

/// The classes of a session: for NEXT_HOP and for MP_REACH_NLRI.
fn classes(config: &PeerConfig, facts: &SessionFacts, core: &Core) -> [Class; 2] {
    let rules = Rules {
        kind: match config.kind {
            PeerKind::Ebgp => WireKind::Ebgp,
            PeerKind::Ibgp if core.speaker.confederation.is_some() => WireKind::ConfedIbgp,
            PeerKind::Ibgp => WireKind::Ibgp,
            PeerKind::ConfedEbgp => WireKind::ConfedEbgp,
        },
        four_octet_as: facts.four_octet_as,
        as_sets: core.speaker.as_sets,
        extended_next_hop: facts.extended_next_hop,
        identifiers: facts.identifiers_received,
    };
    let (paths, external) = (&config.paths, config.kind == PeerKind::Ebgp);
    let ingress = Ingress {
        allow_own_asn: paths.allow_own_asn,
        local_asn: paths.local_asn.map(|local| local.asn),
        prepend: paths.local_asn.filter(|local| local.on_import).map(|local| local.asn),
        role: paths.role.filter(|_| external),
        external,
        graceful_shutdown: paths.graceful_shutdown,
        blackhole: paths.blackhole,
        validation: Rule::new(config, core.authorizations.is_some()),
    };
    [false, true].map(|multiprotocol| Class {
        rules: Some(rules),
        multiprotocol,
        peer_asn: config.asn,
        enforce_first_as: config.enforce_first_as && external,
        ingress,
        protocol: Protocol::Bgp,
        tag: 0,
        weight: 0,
        long_lived: false,
        states: ingress.validation.map(|_| States::default()),
        import: Policy::of(config.import.as_ref(), config.kind),
    })
}
