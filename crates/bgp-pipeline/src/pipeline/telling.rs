//! What goes out: messages for peers, and routes for the RIB.

use std::net::IpAddr;

use holdfast_policy::Program;
use holdfast_types::Family;

use super::Pipeline;
use crate::{
    Direction, Event, PeerIndex, RibChanges,
    core::family_index,
    cursor::{Encoding, STEP},
    rib_out::{RibOut, Telling},
    rib_policy::RibPolicy,
    seam::StreamKey,
    update_group::chunk::Messages,
};

impl Pipeline {
    /// The next messages for a peer's socket, some ten thousand octets most often. Encodes at most one window of changes, so the call is short; `None` while [`Self::pending`] stays true
    /// means that what was encoded is for others: call again, now or in the next round.
    pub fn pull(&mut self, index: PeerIndex) -> Option<Messages> {
        self.pull_until(index, &|| false)
    }

    /// The same, with less of a walk where `is_over` says that the turn is: it is asked every few hundred paths.
    pub fn pull_until(&mut self, index: PeerIndex, is_over: &dyn Fn() -> bool) -> Option<Messages> {
        let limits = self.core.speaker.limits;
        let (core, marks) = (&mut self.core, &mut self.marks);
        let mut encoding = Encoding { limits, core, marks, step: STEP, is_over, others: Default::default() };
        let tables = (&mut self.v4, &mut self.v6);
        let messages = self.streams.pull(index, &mut self.members, tables, &mut encoding);
        for (peers, family) in std::mem::take(&mut self.streams.ended) {
            peers.iter().for_each(|peer| self.report_announced(peer, family));
        }
        for (peers, prefix) in std::mem::take(&mut self.streams.unfit) {
            for peer in peers.iter() {
                let session = self.session_mut(peer);
                if session.is_some_and(|session| !std::mem::replace(&mut session.is_too_long_told, true)) {
                    self.events.push_back(Event::RouteTooLong { peer, prefix });
                }
            }
        }
        if !self.streams.applied.is_empty() {
            // What was sent before is of no interest any more.
            self.count_paths();
        }
        for peers in std::mem::take(&mut self.streams.applied) {
            let applied = |peer| Event::PolicyApplied { peer, direction: Direction::Export };
            self.events.extend(peers.iter().map(applied));
        }
        self.block_walks();
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

    /// Units of work that [`Self::pull`] has finished so far: changes read and prefixes passed, each once for each reader. A walk
    /// that does not move on finishes nothing.
    pub fn finished(&self) -> u64 {
        self.core.finished
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

    /// Whether the peer has not been told of everything that [`Self::announce_again`] has promised: it waits for its turn, for
    /// signatures, or for routes of our own that may still come. Only when this is false a request counts as answered.
    pub fn is_announcing_again(&self, index: PeerIndex) -> bool {
        match self.members.get(index.index()).and_then(Option::as_ref) {
            Some(member) => self.streams.is_telling_all(member),
            None => self.session(index).is_some_and(|session| session.refresh.contains(&true)),
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
}
