//! What comes in: UPDATEs, and what the RIB says of next hops.

use std::net::IpAddr;

use holdfast_bgp_wire::{
    Notification, nlri,
    update::{self, FamilySet},
};
use holdfast_types::{Family, Prefix};

use super::{Pipeline, Session};
use crate::{
    Event, PeerIndex, Reachability,
    core::family_index,
    next_hop::Concerned,
    path::{SetId, SourceId},
    peer_in::{self, Arrival, Drops, UpdatePart, WHOLE},
    rewriter::Slot,
};

impl Pipeline {
    /// Takes the body of an UPDATE.
    ///
    /// # Errors
    /// The session must end with this NOTIFICATION. What is wrong but harmless (RFC 7606) is counted instead:
    /// [`Self::drops`].
    pub fn update(&mut self, index: PeerIndex, body: &[u8]) -> Result<(), Notification> {
        let mut next = self.update_part(index, body, UpdatePart::default())?;
        while let Some(part) = next {
            next = self.update_part(index, body, part)?;
        }
        Ok(())
    }

    /// Takes a part of the body of an UPDATE, so that everything else has its turn between the parts of a long one; the
    /// next part, if there is one. The first is [`UpdatePart::default`].
    ///
    /// # Errors
    /// As those of [`Self::update`].
    pub fn update_part(
        &mut self,
        index: PeerIndex,
        body: &[u8],
        part: UpdatePart,
    ) -> Result<Option<UpdatePart>, Notification> {
        let Some(peer) = self.peers.get_mut(index.index()).and_then(Option::as_mut) else { return Ok(None) };
        let Some(session) = &mut peer.session else { return Ok(None) };
        let identified = session.facts.identifiers_received.of(Family::IPV4_UNICAST);
        let sections = if identified { update::sections_identified(body)? } else { update::sections(body)? };
        if let Some(family) = sections.end_of_rib() {
            if let Some(at) = family_index(family)
                && !std::mem::replace(&mut session.end_of_rib[at], true)
            {
                self.events.push_back(Event::EndOfRib { peer: index, family });
            }
            return Ok(None);
        }
        let source = session.source;
        let stale = if peer.stale.is_empty() { None } else { Some(peer.stale.clone()) };
        let identifiers = session.facts.identifiers_received;
        // What is wrong with it was counted with its first part.
        let mut counted;
        let drops = match part.is_first() {
            true => &mut peer.drops,
            false => {
                counted = Drops::default();
                &mut counted
            }
        };
        let mut origin = peer_in::Origin { source, facts: &session.facts, drops: &mut *drops };
        let read = self.reader.read(&mut self.core, sections, &mut origin);
        let mut arrival = read.inspect_err(|_| self.core.asked = None)?;
        arrival.retain_families(&mut self.core, &session.facts, drops);
        if peer.config.paths.role.is_some() {
            arrival.count_leaks(&self.core, identifiers, drops);
        }
        // One that is short is taken in at once.
        let next = if body.len() > WHOLE { arrival.keep_part(part, identifiers) } else { None };
        if self.core.rewriters.are_in(Slot::BeforeImport) {
            arrival.rewrite(&mut self.core);
        }
        if self.core.signatures.is_used {
            self.core.signatures.earlier.clone_from(&peer.stale);
        }
        match session.places.take() {
            None => self.arrive(source, &arrival),
            Some(places) => self.arrive_identified(index, places, &arrival),
        }
        if let Some(stale) = stale {
            self.replace_stale(&stale, identifiers, &arrival);
        }
        arrival.release(&mut self.core);
        self.core.asked = None;
        self.core.signatures.earlier.clear();
        self.trim_if_long();
        Ok(next)
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
    fn replace_stale(&mut self, stale: &[SourceId], identifiers: FamilySet, arrival: &Arrival<'_>) {
        for bytes in [arrival.withdrawn, arrival.nlri.0] {
            self.remove_of(stale, identifiers, Family::IPV4_UNICAST, bytes);
        }
        let unreach = arrival.unreach.map(|unreach| (unreach.family, unreach.nlri));
        let reach = arrival.reach.map(|(reach, _)| (reach.family, reach.nlri));
        for (family, bytes) in unreach.into_iter().chain(reach) {
            self.remove_of(stale, identifiers, family, bytes);
        }
    }

    fn remove_of(&mut self, sources: &[SourceId], identifiers: FamilySet, family: Family, bytes: &[u8]) {
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
}
