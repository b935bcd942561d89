//! Peers come, go and are configured; what of that makes of their routes and of what they are told.

use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_policy::Program;

use super::{Peer, Pipeline, classes::classes};
use crate::{
    DecisionRules, PeerConfig, PeerIndex,
    class::{Class, ClassId, Policy},
    export::rules::Export,
    next_hop::NextHopId,
    path::SetId,
    rewriter::{Receiver, Slot},
    sets::Owner,
};

impl Pipeline {
    /// Adds a peer; its session is down.
    pub fn add_peer(&mut self, config: PeerConfig) -> PeerIndex {
        let (stale, drops) = Default::default();
        let peer = Some(Peer { config, session: None, stale, drops, is_protected: false });
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

    /// Whether the RIB is told, beside the next hops of a best path from this peer, of a backup: the next hop that would be
    /// chosen if those were gone. Of routes that are there already it is told as [`Self::work`] comes by.
    ///
    /// Cost: while any peer is protected, a path that comes or goes beside a best path of such a peer has all paths of its
    /// prefix compared, twice.
    pub fn set_protected(&mut self, index: PeerIndex, is_protected: bool) {
        let Some(peer) = self.peers.get_mut(index.index()).and_then(Option::as_mut) else { return };
        if std::mem::replace(&mut peer.is_protected, is_protected) == is_protected {
            return;
        }
        let sessions = peer.session.iter().flat_map(super::Session::sources);
        let sources: Vec<_> = sessions.chain(&peer.stale).copied().collect();
        self.core.sources.protecting = self.peers.iter().flatten().any(|peer| peer.is_protected);
        let mut has_paths = false;
        for source in sources {
            let source = self.core.sources.get_mut(source);
            source.is_protected = is_protected;
            has_paths |= source.counts.iter().any(|counts| counts.received > 0);
        }
        if has_paths {
            self.background.want_decision();
        }
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
        self.block_walks();
    }

    /// Whether each path of a prefix is to be told of, and how many in order, follows from the groups there are.
    pub(crate) fn count_paths(&mut self) {
        self.core.mosts = self.streams.mosts();
        self.v4.rib.rank_for(self.core.mosts[0]);
        self.v6.rib.rank_for(self.core.mosts[1]);
    }

    /// There may be more who ask about sets: groups of peers, and the RIB's policy.
    pub(crate) fn make_room(&mut self) {
        self.count_paths();
        let asking = self.streams.groups() + usize::from(self.rib_policy.is_some());
        self.core.sets.make_room(asking);
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
            self.core.sources.protecting = self.peers.iter().flatten().any(|peer| peer.is_protected);
            self.stages.peer_removed(index);
            self.core.signatures.peer_removed(index);
        }
    }

    /// What decides what the peer is told; `None` while its session is down.
    pub(crate) fn export(&mut self, index: PeerIndex) -> Option<Export> {
        let peer = self.peers.get(index.index())?.as_ref()?;
        let session = peer.session.as_ref()?;
        let mut export = Export::new(index, &peer.config, &session.facts, &session.orf, &self.core.speaker);
        let originates_default = peer.config.paths.default_originate;
        let receiver = Receiver { asn: peer.config.asn, kind: peer.config.kind };
        export.offered = self.core.rewriters.are_in(Slot::BeforeExport).then_some(receiver);
        if let Some(signing) = &mut export.signing {
            signing.signers.clone_from(&self.core.signing.signers);
        }
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
}

/// A policy compiled again that decides as before is the old one: nothing has to be evaluated again.
fn keep_if_equal(old: &Option<Program>, new: &mut Option<Program>) {
    if old == new {
        new.clone_from(old);
    }
}
