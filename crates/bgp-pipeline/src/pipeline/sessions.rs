//! Sessions come up, go on after another process, and end; what of an earlier one stays (RFC 4724, RFC 7313, RFC 9494).

use holdfast_bgp_wire::update::FamilySet;
use holdfast_types::Family;

use super::{Pipeline, Session, TooManySessions, classes::classes};
use crate::{
    PeerIndex, SessionFacts,
    class::Class,
    core::family_index,
    export::rules::Export,
    journal::{Journal, JournalEntry},
    own_next_hop::OwnNextHops,
    places::PathIdTable,
    source::{Life, Source},
    told::AdjRibOutSnapshot,
};

impl Pipeline {
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
            self.block_walks();
        }
        Ok(())
    }

    /// A session that another process has had goes on. Like [`Self::peer_up`], but the peer is told nothing until
    /// [`Self::resume`] says what it was told.
    ///
    /// # Errors
    /// As [`Self::peer_up`].
    pub fn peer_resumed(&mut self, index: PeerIndex, facts: SessionFacts) -> Result<(), TooManySessions> {
        self.end_session(index, [false; 2]);
        let Some(peer) = self.peers.get(index.index()).and_then(Option::as_ref) else { return Ok(()) };
        let is_protected = peer.is_protected;
        self.stages.set_replaying(index, true);
        let (kind, asn, client) =
            (peer.config.kind, peer.config.asn, peer.config.paths.route_reflector_client);
        self.core.signatures.is_used |= facts.bgpsec_received.is_some();
        self.core.signing.is_used |= facts.bgpsec_sent.is_some();
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
            is_protected,
            moving: 0,
            counts: Default::default(),
            epochs: Default::default(),
            sweeping: 0,
            serial: 0,
        };
        let source = self.core.sources.add(source).ok_or(TooManySessions)?;
        self.streams.name(index, facts.number);
        let several = (facts.identifiers_received != FamilySet::NONE).then(|| {
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
            is_too_long_told: false,
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
            self.block_walks();
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

    /// Keeps a journal of what peers are told, from now on. What the sessions that are up have been told is not in it.
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

    /// The peer's session will not be gone on with by another process: what it is told is in the journal no more, unless
    /// others are told the same. Whether a history ends with that.
    pub fn end_history(&mut self, index: PeerIndex) -> bool {
        let member = self.members.get_mut(index.index()).and_then(Option::as_mut);
        member.is_some_and(|member| self.streams.end_history(member))
    }

    /// Entries that will be asked for besides those that members [are at](Self::journal_place).
    pub fn journal_heads(&self) -> impl Iterator<Item = JournalEntry> {
        self.streams.heads()
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
}
