//! Members pull what their group is sent, and are called to do so.

use holdfast_types::{Ipv4Prefix, Ipv6Prefix};

use super::{
    Streams,
    chunk::Messages,
    member::{Call, Member, StreamId},
};
use crate::{PeerIndex, cursor::Encoding, table::Table};

/// Changes encoded at once where each route is another message: half a millisecond.
const SIGNING_WINDOW: usize = 128;

/// Steps of export policies that a window may take: some milliseconds.
const WINDOW_STEPS: usize = 1 << 17;
/// Steps of export policies before it is asked whether the turn is over.
const STEPS: usize = 1 << 14;

impl Streams {
    /// The next messages for a member, one chunk. Encodes at most one window, which may come to nothing for this
    /// member.
    pub(crate) fn pull(
        &mut self,
        peer: PeerIndex,
        members: &mut [Option<Member>],
        tables: (&mut Table<Ipv4Prefix>, &mut Table<Ipv6Prefix>),
        encoding: &mut Encoding<'_>,
    ) -> Option<Messages> {
        let ends = [tables.0.rib.log.end(), tables.1.rib.log.end()];
        let member = members[peer.index()].as_mut()?;
        let id = member.stream;
        let stream = self.get_mut(id)?;
        if let Some(messages) = stream.take(peer, member) {
            self.merge(id, ends, members);
            return Some(messages);
        }
        if stream.rests(ends) {
            self.merge(id, ends, members);
            return None;
        }
        if stream.group.export.signing.is_some() {
            encoding.limits.window = encoding.limits.window.min(SIGNING_WINDOW);
        }
        let steps = stream.group.export.steps();
        encoding.limits.window = encoding.limits.window.min(WINDOW_STEPS / steps).max(1);
        encoding.step = encoding.step.min(STEPS / steps).max(1);
        if stream.queued > encoding.limits.shared_bytes {
            self.split_laggards(id, members);
        }
        let mut outgoing = std::mem::take(&mut self.outgoing);
        let mut ledger = self.ledger.take();
        if !(tables.0.rib.is_in_order() && tables.1.rib.is_in_order()) {
            encoding.others = self.others(id);
        }
        let Self { slots, census, .. } = self;
        let stream = slots[id.0 as usize].as_mut()?;
        let (ended, unfit) =
            stream.fill(id.lane(), tables, encoding, (&mut outgoing, ledger.as_mut()), members);
        let messages = members[peer.index()].as_mut().and_then(|member| stream.take(peer, member));
        let applied = stream.ends_change(census);
        (self.outgoing, self.ledger) = (outgoing, ledger);
        self.ended.extend(ended);
        self.unfit.extend(unfit);
        self.applied.extend(applied);
        self.merge(id, ends, members);
        messages
    }

    /// Members that have not read what others have, and hold memory for that, go on alone.
    fn split_laggards(&mut self, id: StreamId, members: &mut [Option<Member>]) {
        let Some(stream) = self.get(id) else { return };
        let end = stream.end();
        for peer in stream.members.clone().iter() {
            if let Some(member) = members[peer.index()].as_mut().filter(|member| member.chunk < end) {
                self.split(peer, member);
            }
        }
    }

    /// The next member that has become pending. Looks at members only if something was added since.
    pub(crate) fn poll_ready(&mut self, ends: [u64; 2], members: &mut [Option<Member>]) -> Option<PeerIndex> {
        if self.looked_at.replace(ends) != Some(ends) {
            for peer in self.slots.iter().flatten().flat_map(|stream| stream.members.iter()) {
                let Some(member) = &mut members[peer.index()] else { continue };
                if member.call == Call::Quiet && self.is_pending(member, ends) {
                    member.call = Call::Queued;
                    self.ready.push_back(peer);
                }
            }
        }
        while let Some(peer) = self.ready.pop_front() {
            let Some(member) = &mut members[peer.index()] else { continue };
            member.call = if self.is_pending(member, ends) { Call::Pulling } else { Call::Quiet };
            if member.call == Call::Pulling {
                return Some(peer);
            }
        }
        None
    }

    /// The member was given nothing: it is named again when there is something, which may be now.
    pub(crate) fn rest(&mut self, peer: PeerIndex, ends: [u64; 2], members: &mut [Option<Member>]) {
        let Some(member) = &mut members[peer.index()] else { return };
        if member.call == Call::Queued {
            return;
        }
        member.call = if self.is_pending(member, ends) { Call::Queued } else { Call::Quiet };
        if member.call == Call::Queued {
            self.ready.push_back(peer);
        }
    }

    /// Whether [`Self::pull`] has something to do for the member, if only to pass what is for others.
    pub(crate) fn is_pending(&self, member: &Member, ends: [u64; 2]) -> bool {
        let stream = self.get(member.stream);
        stream.is_some_and(|stream| !stream.rests(ends) || member.chunk < stream.end())
    }

    /// Bytes encoded and not yet pulled by the member.
    pub(crate) fn queued(&self, peer: PeerIndex, member: &Member) -> usize {
        let Some(stream) = self.get(member.stream) else { return 0 };
        let unread = stream.unread(member).filter(|chunk| chunk.target.includes(peer));
        unread.map(|chunk| chunk.bytes.len()).sum()
    }
}
