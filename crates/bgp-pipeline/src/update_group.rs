//! Update groups: who is told what, and how far each has come.
//!
//! Peers with an equal [`Export`] are a [`Group`]: they are sent the same bytes but for our own address as next
//! hop, which is put into the copies of those on other links. A *stream* is a position of a group in the change logs with
//! the messages encoded from there; all members that keep up share one. A member with a position of its
//! own has a stream of its own: a new one that is given the table first, one that asked for a refresh, one
//! that reads too slowly. When it has caught up it joins the others again.
//!
//! Encoding is driven by the receivers: messages are made when a member's socket takes them, so what a slow
//! peer has not read costs a number.

use std::{
    collections::{BTreeSet, VecDeque},
    ops::{Deref, Range},
    rc::Rc,
};

use bytes::{Bytes, BytesMut};
use holdfast_bgp_wire::HEADER_LEN;
use holdfast_types::{Ipv4Prefix, Ipv6Prefix};

use crate::{
    PeerIndex,
    adj_rib_out::{Audience, Outgoing, Run, Tally, Target},
    cursor::{Advance, Cursor, Encoding, WalkKind},
    export::{Export, Group},
    own_next_hop::OwnNextHops,
    peer_set::PeerSet,
    seam::{Lane, Seams},
    table::Table,
    verdicts::GroupNumber,
};

/// The number of a stream.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct StreamId(pub(crate) u32);

impl StreamId {
    fn lane(self) -> Lane {
        Lane::Group(self.0)
    }
}

/// Encoded messages for the members it is meant for.
#[derive(Clone, Debug)]
struct Chunk {
    bytes: Bytes,
    messages: u64,
    target: Target,
    /// Where we stand as next hop, ascending; shared with the other chunks of its window.
    own_next_hops: Rc<[u32]>,
    /// Where it starts in the window.
    start: usize,
    /// It is about IPv4 routes.
    ipv4: bool,
    /// Members that have not passed it.
    readers: usize,
}

/// Whole messages for a peer's socket.
#[derive(Clone, Debug)]
pub struct Messages {
    /// One behind the other.
    pub bytes: Bytes,
    /// How many.
    pub count: u64,
}

impl Deref for Messages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A position of a group, and those who share it.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) group: Rc<Group>,
    /// The group before a change of policy, while the walk for that is under way.
    previous: Rc<Group>,
    /// Messages are encoded with these; members that have others get copies.
    own: OwnNextHops,
    pub(crate) members: PeerSet,
    pub(crate) v4: Cursor<Ipv4Prefix>,
    pub(crate) v6: Cursor<Ipv6Prefix>,
    queue: VecDeque<Chunk>,
    /// The number of the queue's first chunk.
    first: u64,
    queued: usize,
    /// Another stream of the same export may be there to be joined.
    joins: bool,
    /// Prefixes announced to the group.
    announced: [i64; 2],
}

/// Where a member is in its stream's queue.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) stream: StreamId,
    own: OwnNextHops,
    chunk: u64,
    /// Octets of that chunk that it has pulled, and messages.
    offset: usize,
    messages: u64,
    /// Prefixes not announced to it because it is where they come from.
    withheld: [i64; 2],
    call: Call,
}

/// How a member is called to pull. Whoever was named is not named again until it was given nothing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Call {
    /// It has pulled all there was.
    Quiet,
    /// To be named.
    Queued,
    /// Named.
    Pulling,
}

/// Dumps that came to their end: to be reported for all members.
pub(crate) type Ended = (PeerSet, usize);

/// All streams.
#[derive(Debug)]
pub(crate) struct Streams {
    slots: Vec<Option<Stream>>,
    next_group: GroupNumber,
    outgoing: Outgoing,
    pub(crate) ended: Vec<Ended>,
    /// Members to be named by [`Self::poll_ready`], each once.
    ready: VecDeque<PeerIndex>,
    pub(crate) seams: Seams,
    /// Where the logs ended when all members were looked at last; `None`: look again.
    looked_at: Option<[u64; 2]>,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            next_group: GroupNumber::FIRST,
            outgoing: Outgoing::default(),
            ended: Vec::new(),
            ready: VecDeque::new(),
            seams: Seams::default(),
            looked_at: None,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamId, &Stream)> {
        let numbered = self.slots.iter().enumerate();
        numbered.filter_map(|(number, slot)| Some((StreamId(number as u32), slot.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.slots.iter_mut().flatten()
    }

    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    fn add(&mut self, stream: Stream) -> StreamId {
        let free = self.slots.iter().position(Option::is_none);
        let number = free.unwrap_or(self.slots.len());
        match free {
            Some(number) => self.slots[number] = Some(stream),
            None => self.slots.push(Some(stream)),
        }
        StreamId(number as u32)
    }

    /// The group with this export.
    pub(crate) fn group(&mut self, export: Export) -> Rc<Group> {
        let known = self.iter().find(|(_, stream)| stream.group.export == export);
        if let Some((_, stream)) = known {
            return Rc::clone(&stream.group);
        }
        let number = self.next_group;
        self.next_group = number.next();
        Rc::new(Group::new(export, number))
    }

    /// How many groups there are.
    pub(crate) fn groups(&self) -> usize {
        let numbers: BTreeSet<_> = self.iter().map(|(_, stream)| stream.group.number).collect();
        numbers.len()
    }

    /// A new session: it is given the whole table. Members that start together share the walk.
    pub(crate) fn join(
        &mut self,
        peer: PeerIndex,
        group: &Rc<Group>,
        own: OwnNextHops,
        ends: [u64; 2],
    ) -> Member {
        let waiting = self.iter().find(|(_, stream)| stream.awaits_dump(group, ends)).map(|(id, _)| id);
        let id = waiting.unwrap_or_else(|| self.add(Stream::new(Rc::clone(group), own, ends)));
        if let Some(stream) = self.get_mut(id) {
            stream.members.insert(peer);
        }
        self.looked_at = None;
        Member { stream: id, own, chunk: 0, offset: 0, messages: 0, withheld: [0; 2], call: Call::Quiet }
    }

    /// The member is gone.
    pub(crate) fn leave(&mut self, peer: PeerIndex, member: &Member) {
        self.ready.retain(|other| *other != peer);
        self.part(peer, member);
    }

    /// The member is in its stream no more.
    fn part(&mut self, peer: PeerIndex, member: &Member) {
        let Some(stream) = self.get_mut(member.stream) else { return };
        stream.pass(member.chunk, u64::MAX);
        stream.members.remove(peer);
        if stream.members.len() == 0 {
            self.slots[member.stream.0 as usize] = None;
            self.seams.end(member.stream.lane());
        }
    }

    /// Gives the member a stream of its own, at the place where it is.
    pub(crate) fn split(&mut self, peer: PeerIndex, member: &mut Member) {
        let Some(stream) = self.get_mut(member.stream) else { return };
        if stream.members.len() == 1 {
            return;
        }
        let skip = (member.chunk - stream.first) as usize;
        let queue: VecDeque<Chunk> =
            stream.queue.iter().skip(skip).map(|chunk| Chunk { readers: 1, ..chunk.clone() }).collect();
        let own = Stream {
            group: Rc::clone(&stream.group),
            previous: Rc::clone(&stream.previous),
            members: PeerSet::from_iter([peer]),
            first: member.chunk,
            queued: queue.iter().map(|chunk| chunk.bytes.len()).sum(),
            queue,
            joins: true,
            announced: stream.announced,
            ..*stream
        };
        let shared = member.stream;
        self.part(peer, member);
        member.stream = self.add(own);
        self.seams.fork(shared.lane(), member.stream.lane());
    }

    /// The whole table again for one member and family (RFC 2918).
    pub(crate) fn refresh(&mut self, peer: PeerIndex, member: &mut Member, family: usize) {
        self.split(peer, member);
        self.looked_at = None;
        if let Some(stream) = self.get_mut(member.stream) {
            stream.start_walk(family, WalkKind::Refresh);
        }
    }

    /// Another export for one member, with the same families: what that changes is announced.
    pub(crate) fn change_group(&mut self, peer: PeerIndex, member: &mut Member, group: &Rc<Group>) {
        self.split(peer, member);
        self.looked_at = None;
        if let Some(stream) = self.get_mut(member.stream) {
            stream.previous = std::mem::replace(&mut stream.group, Rc::clone(group));
            stream.joins = true;
            stream.start_walk(0, WalkKind::Policy);
            stream.start_walk(1, WalkKind::Policy);
        }
    }

    /// Joins a stream that has nothing left with another of its group at the same place.
    fn merge(&mut self, id: StreamId, ends: [u64; 2], members: &mut [Option<Member>]) {
        let Some(stream) = self.get(id).filter(|stream| stream.joins && stream.is_idle(ends)) else { return };
        let same = |other: &Stream| Rc::ptr_eq(&other.group, &stream.group);
        let mut group = self.iter().filter(|(other, stream)| *other != id && same(stream)).peekable();
        let alone = group.peek().is_none();
        let into = group.find(|(_, stream)| stream.is_at_end(ends)).map(|(id, _)| id);
        drop(group);
        match into {
            Some(into) => self.join_streams(id, into, members),
            None => {
                if let Some(stream) = self.get_mut(id) {
                    stream.joins = !alone;
                }
            }
        }
    }

    fn join_streams(&mut self, id: StreamId, into: StreamId, members: &mut [Option<Member>]) {
        let Some(from) = self.slots[id.0 as usize].take() else { return };
        self.seams.join(id.lane(), into.lane());
        let Some(stream) = self.get_mut(into) else { return };
        for peer in from.members.iter() {
            stream.members.insert(peer);
            if let Some(member) = &mut members[peer.index()] {
                (member.stream, member.chunk) = (into, stream.end());
                (member.offset, member.messages) = (0, 0);
            }
        }
    }

    /// The next messages for a member, at most `max` bytes unless a single one is longer. Encodes at most one
    /// window, which may come to nothing for this member.
    pub(crate) fn pull(
        &mut self,
        peer: PeerIndex,
        max: usize,
        members: &mut [Option<Member>],
        tables: (&mut Table<Ipv4Prefix>, &mut Table<Ipv6Prefix>),
        encoding: &mut Encoding<'_>,
    ) -> Option<Messages> {
        let ends = [tables.0.rib.log.end(), tables.1.rib.log.end()];
        let member = members[peer.index()].as_mut()?;
        let id = member.stream;
        let stream = self.get_mut(id)?;
        if let Some(messages) = stream.take(peer, member, max) {
            self.merge(id, ends, members);
            return Some(messages);
        }
        if stream.is_at_end(ends) {
            self.merge(id, ends, members);
            return None;
        }
        if stream.queued > encoding.limits.shared_bytes {
            self.split_laggards(id, members);
        }
        let mut outgoing = std::mem::take(&mut self.outgoing);
        let stream = self.get_mut(id)?;
        let ended = stream.fill(id.lane(), tables, encoding, &mut outgoing, members);
        let messages = members[peer.index()].as_mut().and_then(|member| stream.take(peer, member, max));
        self.outgoing = outgoing;
        self.ended.extend(ended);
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
        stream.is_some_and(|stream| !stream.is_at_end(ends) || member.chunk < stream.end())
    }

    /// Bytes encoded and not yet pulled by the member.
    pub(crate) fn queued(&self, peer: PeerIndex, member: &Member) -> usize {
        let Some(stream) = self.get(member.stream) else { return 0 };
        let unread = stream.unread(member).filter(|chunk| chunk.target.includes(peer));
        unread.map(|chunk| chunk.bytes.len()).sum::<usize>().saturating_sub(member.offset)
    }

    /// Prefixes the member has been told of.
    pub(crate) fn announced(&self, member: &Member, family: usize) -> u64 {
        let of_group = self.get(member.stream).map_or(0, |stream| stream.announced[family]);
        u64::try_from(of_group - member.withheld[family]).unwrap_or(0)
    }

    /// Routes left out because their attributes fit no message, counted since the start.
    pub(crate) fn too_long(&self) -> u64 {
        self.outgoing.too_long
    }

    pub(crate) fn memory(&self) -> usize {
        let queued: usize = self.iter().map(|(_, stream)| stream.queued).sum();
        queued + self.outgoing.bytes.capacity()
    }
}

impl Stream {
    fn new(group: Rc<Group>, own: OwnNextHops, ends: [u64; 2]) -> Self {
        let mut stream = Self {
            previous: Rc::clone(&group),
            group,
            own,
            members: PeerSet::default(),
            v4: Cursor::new(ends[0]),
            v6: Cursor::new(ends[1]),
            queue: VecDeque::new(),
            first: 0,
            queued: 0,
            joins: true,
            announced: [0; 2],
        };
        stream.start_walk(0, WalkKind::Dump);
        stream.start_walk(1, WalkKind::Dump);
        stream
    }

    fn start_walk(&mut self, family: usize, kind: WalkKind) {
        if !self.group.export.families[family] {
            return;
        }
        match family {
            0 => self.v4.start_walk(kind),
            _ => self.v6.start_walk(kind),
        }
    }

    /// Whether it is a dump for this group that has not begun.
    fn awaits_dump(&self, group: &Rc<Group>, ends: [u64; 2]) -> bool {
        fn untouched<P>(cursor: &Cursor<P>, wanted: bool, end: u64) -> bool {
            let waiting =
                cursor.walk.as_ref().is_some_and(|walk| walk.kind == WalkKind::Dump && walk.after.is_none());
            cursor.position == end && !cursor.lost && waiting == wanted
        }
        let families = group.export.families;
        Rc::ptr_eq(&self.group, group)
            && (self.first, self.queue.len()) == (0, 0)
            && untouched(&self.v4, families[0], ends[0])
            && untouched(&self.v6, families[1], ends[1])
    }

    fn end(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    fn is_at_end(&self, ends: [u64; 2]) -> bool {
        let [v4, v6] = self.group.export.families;
        (!v4 || self.v4.is_at_end(ends[0])) && (!v6 || self.v6.is_at_end(ends[1]))
    }

    /// Changes not read, of both families.
    pub(crate) fn backlog(&self, ends: [u64; 2]) -> u64 {
        let [v4, v6] = self.group.export.families;
        let behind = |wanted: bool, end: u64, at: u64| if wanted { end - at } else { 0 };
        behind(v4, ends[0], self.v4.position) + behind(v6, ends[1], self.v6.position)
    }

    fn is_idle(&self, ends: [u64; 2]) -> bool {
        self.queue.is_empty() && self.is_at_end(ends)
    }

    fn unread(&self, member: &Member) -> impl Iterator<Item = &Chunk> {
        self.queue.iter().skip((member.chunk - self.first) as usize)
    }

    /// One reader has passed the chunks in this range.
    fn pass(&mut self, from: u64, to: u64) {
        let skip = (from - self.first) as usize;
        let count = (to - from) as usize;
        self.queue.iter_mut().skip(skip).take(count).for_each(|chunk| chunk.readers -= 1);
        while self.queue.front().is_some_and(|chunk| chunk.readers == 0) {
            self.first += 1;
            self.queued -= self.queue.pop_front().map_or(0, |chunk| chunk.bytes.len());
        }
    }

    /// The member's next messages out of the queue.
    fn take(&mut self, peer: PeerIndex, member: &mut Member, max: usize) -> Option<Messages> {
        while member.chunk < self.end() {
            let chunk = &self.queue[(member.chunk - self.first) as usize];
            let taken = chunk.target.includes(peer).then(|| {
                let (length, count) = whole_messages(&chunk.bytes[member.offset..], max)
                    .unwrap_or((chunk.bytes.len() - member.offset, chunk.messages - member.messages));
                let part = member.offset..member.offset + length;
                (member.offset, member.messages) = (part.end, member.messages + count);
                Messages { bytes: chunk.part(part, &self.own, &member.own), count }
            });
            if taken.is_none() || member.offset == chunk.bytes.len() {
                (member.chunk, member.offset, member.messages) = (member.chunk + 1, 0, 0);
                self.pass(member.chunk - 1, member.chunk);
            }
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    /// Encodes one window; returns whom a walk has ended for.
    fn fill(
        &mut self,
        lane: Lane,
        tables: (&mut Table<Ipv4Prefix>, &mut Table<Ipv6Prefix>),
        encoding: &mut Encoding<'_>,
        out: &mut Outgoing,
        members: &mut [Option<Member>],
    ) -> Option<Ended> {
        out.clear();
        let [with_v4, with_v6] = self.group.export.families;
        let (current, previous) = (&*self.group, &*self.previous);
        let audience = Audience { current, previous, own: &self.own, members: &self.members, lane };
        let (mut family, mut advance) = (0, Advance::Idle);
        if with_v4 {
            advance = tables.0.advance(&mut self.v4, &audience, encoding, out);
        }
        if with_v6 && advance == Advance::Idle {
            (family, advance) = (1, tables.1.advance(&mut self.v6, &audience, encoding, out));
        }
        self.count(
            family,
            if family == 0 { &mut tables.0.window.tally } else { &mut tables.1.window.tally },
            members,
        );
        self.enqueue(family == 0, out);
        (advance == Advance::Synced).then(|| (self.members.clone(), family))
    }

    fn count(&mut self, family: usize, tally: &mut Tally, members: &mut [Option<Member>]) {
        if tally.restarted {
            self.announced[family] = 0;
            for peer in self.members.iter() {
                members[peer.index()].iter_mut().for_each(|member| member.withheld[family] = 0);
            }
        }
        self.announced[family] += tally.announced;
        for (peer, count) in tally.take_withheld() {
            if let Some(member) = &mut members[peer.index()] {
                member.withheld[family] += count;
            }
        }
    }

    fn enqueue(&mut self, ipv4: bool, out: &Outgoing) {
        let bytes = Bytes::copy_from_slice(&out.bytes);
        let own_next_hops: Rc<[u32]> = Rc::from(&*out.own_next_hops);
        let mut start = 0;
        for &Run { target, end, messages } in &out.runs {
            self.queued += end - start;
            self.queue.push_back(Chunk {
                bytes: bytes.slice(start..end),
                messages,
                target,
                own_next_hops: Rc::clone(&own_next_hops),
                start,
                ipv4,
                readers: self.members.len(),
            });
            start = end;
        }
    }
}

impl Chunk {
    /// Some of its messages: the shared bytes for who has the addresses that they were encoded with, else a copy
    /// with the member's own.
    fn part(&self, range: Range<usize>, shared: &OwnNextHops, own: &OwnNextHops) -> Bytes {
        let bytes = self.bytes.slice(range.clone());
        let Some(next_hop) = own.get(self.ipv4).filter(|own| Some(*own) != shared.get(self.ipv4)) else {
            return bytes;
        };
        let (from, to) = (self.start + range.start, self.start + range.end);
        let first = self.own_next_hops.partition_point(|at| (*at as usize) < from);
        let places = self.own_next_hops[first..].iter().map(|at| *at as usize).take_while(|at| *at < to);
        let mut copy = BytesMut::from(&*bytes);
        for at in places {
            next_hop.put(&mut copy[at - from..]);
        }
        copy.freeze()
    }
}

/// How many bytes of the front are whole messages within `max`, at least one message; and how many those are. `None`
/// if that is everything.
fn whole_messages(bytes: &[u8], max: usize) -> Option<(usize, u64)> {
    if bytes.len() <= max {
        return None;
    }
    let (mut end, mut count) = (0, 0);
    while let Some(&[high, low]) = bytes.get(end + HEADER_LEN - 3..end + HEADER_LEN - 1) {
        let next = end + usize::from(u16::from_be_bytes([high, low]));
        if next > max && end > 0 {
            break;
        }
        (end, count) = (next, count + 1);
    }
    Some((end, count))
}
