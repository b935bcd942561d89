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
    ops::Deref,
    rc::Rc,
};

use bytes::{Bytes, BytesMut};
use holdfast_bgp_wire::MessageType;
use holdfast_types::{Ipv4Prefix, Ipv6Prefix};

use crate::{
    PeerIndex,
    adj_rib_out::{Outgoing, Recipients, Run, Tally, Target},
    cursor::{Advance, Cursor, Encoding, WalkKind},
    export::{Group, rules::Export},
    journal::{
        AttributeHasher, Journal, JournalEntry, Names,
        format::{self, PeerNumber, Recorder, Scope},
    },
    own_next_hop::OwnNextHops,
    path::{Path, PathCounts, SetId},
    peer_set::PeerSet,
    seam::{Seams, StreamKey},
    table::Table,
    told::AdjRibOutSnapshot,
    verdicts::GroupNumber,
};

/// The number of a stream.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct StreamId(pub(crate) u32);

impl StreamId {
    fn lane(self) -> StreamKey {
        StreamKey::Group(self.0)
    }
}

/// Encoded messages for the members it is meant for.
#[derive(Clone, Debug)]
struct Chunk {
    bytes: Bytes,
    messages: u64,
    kind: MessageType,
    target: Target,
    /// Where we stand as next hop, ascending; shared with the other chunks of its window.
    own_next_hops: Rc<[u32]>,
    /// Where it starts in the window.
    start: usize,
    /// It is about IPv4 routes.
    ipv4: bool,
    /// What the journal says of it and of all before it.
    entry: JournalEntry,
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
    /// What they are: UPDATEs, or the ROUTE-REFRESH that encloses some (RFC 7313).
    pub kind: MessageType,
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
    /// Its members have not been told of everything that a change of policy changes.
    changing: bool,
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
    /// The journal's entry of the last chunk.
    head: JournalEntry,
    /// The set of a default route of our own that its members have been told of.
    default_route: Option<SetId>,
}

/// Where a member is in its stream's queue.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) stream: StreamId,
    own: OwnNextHops,
    chunk: u64,
    /// The journal's entry of the chunk before.
    pub(crate) passed: JournalEntry,
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
    /// Those whom a change of export policy has reached: to be reported.
    pub(crate) applied: Vec<PeerSet>,
    /// Members to be named by [`Self::poll_ready`], each once.
    ready: VecDeque<PeerIndex>,
    pub(crate) seams: Seams,
    /// Where the logs ended when all members were looked at last; `None`: look again.
    looked_at: Option<[u64; 2]>,
    ledger: Option<Ledger>,
}

/// What is needed to keep the journal.
#[derive(Debug)]
struct Ledger {
    journal: Box<dyn Journal>,
    hasher: AttributeHasher,
    names: Names,
    entry: Vec<u8>,
}

impl Ledger {
    /// Keeps what a run has announced.
    fn append(&mut self, previous: JournalEntry, target: Target, items: &[u8]) -> JournalEntry {
        if previous == JournalEntry::LOST {
            return previous;
        }
        let whom = match target {
            Target::All | Target::Except(_) | Target::Nobody => Scope::All,
            Target::Only(peer) => Scope::Only(self.names.number(peer)),
        };
        self.entry.clear();
        format::push_whom(&mut self.entry, whom);
        self.entry.extend_from_slice(items);
        self.journal.append(previous, &self.entry)
    }
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            next_group: GroupNumber::FIRST,
            outgoing: Outgoing::default(),
            ended: Vec::new(),
            applied: Vec::new(),
            ready: VecDeque::new(),
            seams: Seams::default(),
            looked_at: None,
            ledger: None,
        }
    }

    /// Keeps a journal from now on.
    pub(crate) fn keep_journal(&mut self, journal: Box<dyn Journal>) {
        let hasher = AttributeHasher::new(journal.key());
        self.outgoing.recorder = Some(Recorder::default());
        self.ledger = Some(Ledger { journal, hasher, names: Names::default(), entry: Vec::new() });
    }

    /// What the journal calls a peer from now on.
    pub(crate) fn name(&mut self, peer: PeerIndex, number: PeerNumber) {
        self.ledger.iter_mut().for_each(|ledger| ledger.names.name(peer, number));
    }

    /// The last entries of all streams: what is to be kept of the journal, besides what members have passed.
    pub(crate) fn heads(&self) -> impl Iterator<Item = JournalEntry> {
        let of_stream = |stream: &Stream| {
            let queued: Vec<_> = stream.queue.iter().map(|chunk| chunk.entry).collect();
            queued.into_iter().chain([stream.head])
        };
        self.slots.iter().flatten().flat_map(of_stream)
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
        Rc::new(Group::new(export, self.next_number()))
    }

    /// A number for one who asks about sets.
    pub(crate) fn next_number(&mut self) -> GroupNumber {
        let number = self.next_group;
        self.next_group = number.next();
        number
    }

    /// By family, what groups are sent that are sent several paths of a prefix.
    pub(crate) fn mosts(&self) -> [PathCounts; 2] {
        self.iter().fold(Default::default(), |mosts, (_, stream)| unite(mosts, stream.mosts()))
    }

    /// The same of those who have to be told what a walk of this stream finds.
    fn others(&self, id: StreamId) -> [PathCounts; 2] {
        let Some(stream) = self.get(id).filter(|stream| stream.reads_each()) else {
            return Default::default();
        };
        let others = self.iter().filter(|(other, _)| *other != id).map(|(_, other)| {
            let [v4, v6] = other.mosts();
            let told = |mosts, is_told| if is_told { mosts } else { PathCounts::default() };
            [told(v4, stream.v4.tells(&other.v4)), told(v6, stream.v6.tells(&other.v6))]
        });
        others.fold(Default::default(), unite)
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
        self.enter(peer, id, own)
    }

    fn enter(&mut self, peer: PeerIndex, id: StreamId, own: OwnNextHops) -> Member {
        let passed = self.get_mut(id).map_or(JournalEntry::NONE, |stream| {
            stream.members.insert(peer);
            stream.head
        });
        self.looked_at = None;
        Member { stream: id, own, chunk: 0, passed, withheld: [0; 2], call: Call::Quiet }
    }

    /// Sessions that go on after another process, all with what they were told up to the same entry.
    pub(crate) fn resume(
        &mut self,
        peers: &[(PeerIndex, OwnNextHops)],
        group: &Rc<Group>,
        (told, passed): (AdjRibOutSnapshot, JournalEntry),
        ends: [u64; 2],
    ) -> Vec<(PeerIndex, Member)> {
        let Some(&(_, own)) = peers.first() else { return Vec::new() };
        let mut stream = Stream::empty(Rc::clone(group), own, ends);
        stream.head = passed;
        let [v4, v6] = group.export.families;
        if v4 {
            stream.v4.resume(told.v4);
        }
        if v6 {
            stream.v6.resume(told.v6);
        }
        let id = self.add(stream);
        peers.iter().map(|&(peer, own)| (peer, self.enter(peer, id, own))).collect()
    }

    /// Routes of our own that have not come again do not come.
    pub(crate) fn await_ours_no_more(&mut self) {
        self.looked_at = None;
        for stream in self.slots.iter_mut().flatten() {
            stream.v4.await_no_more();
            stream.v6.await_no_more();
        }
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
            changing: stream.changing,
            members: PeerSet::from_iter([peer]),
            own: stream.own,
            v4: stream.v4.clone(),
            v6: stream.v6.clone(),
            first: member.chunk,
            queued: queue.iter().map(|chunk| chunk.bytes.len()).sum(),
            queue,
            joins: true,
            announced: stream.announced,
            head: stream.head,
            default_route: stream.default_route,
        };
        let shared = member.stream;
        self.part(peer, member);
        member.stream = self.add(own);
        self.seams.fork(shared.lane(), member.stream.lane());
    }

    /// The whole table again for one member and family (RFC 2918); whether it is told where that begins and ends.
    pub(crate) fn refresh(&mut self, peer: PeerIndex, member: &mut Member, family: usize, is_enclosed: bool) {
        self.split(peer, member);
        self.looked_at = None;
        let Some(stream) = self.get_mut(member.stream) else { return };
        match family {
            _ if !stream.group.export.families[family] => {}
            0 => stream.v4.refresh(is_enclosed),
            _ => stream.v6.refresh(is_enclosed),
        }
    }

    /// Another export for one member: what that changes is announced. Of the families that it had it has all; of one that
    /// it has only now, everything is.
    pub(crate) fn change_group(
        &mut self,
        peer: PeerIndex,
        member: &mut Member,
        group: &Rc<Group>,
        ends: [u64; 2],
    ) {
        self.split(peer, member);
        self.looked_at = None;
        if let Some(stream) = self.get_mut(member.stream) {
            stream.previous = std::mem::replace(&mut stream.group, Rc::clone(group));
            stream.default_route = stream.default_route.or(group.export.default_route);
            stream.joins = true;
            let is_filter = stream.previous.export.differs_only_in_filter(&group.export);
            let kind = if is_filter { WalkKind::Filter } else { WalkKind::Policy };
            let [had_v4, had_v6] = stream.previous.export.families;
            match had_v4 {
                true => stream.start_walk(0, kind),
                false if group.export.families[0] => stream.v4 = Cursor::dump(ends[0]),
                false => {}
            }
            match had_v6 {
                true => stream.start_walk(1, kind),
                false if group.export.families[1] => stream.v6 = Cursor::dump(ends[1]),
                false => {}
            }
            stream.changing = stream.v4.walk.is_some() || stream.v6.walk.is_some();
        }
    }

    /// Whether a member has not been told of everything that a change of policy changes.
    pub(crate) fn is_changing(&self, member: &Member) -> bool {
        self.get(member.stream).is_some_and(|stream| stream.changing)
    }

    /// Prefixes that the walk for a change of policy has behind it, where the tables have so many; `None` if there
    /// is none.
    pub(crate) fn policy_walked(&self, member: &Member, prefixes: [usize; 2]) -> Option<u64> {
        let stream = self.get(member.stream).filter(|stream| stream.changing)?;
        let [with_v4, with_v6] = stream.group.export.families;
        let done = |wanted: bool, walk: Option<u64>, all: usize| match walk {
            Some(done) if wanted => done,
            _ => all as u64,
        };
        let v4 = done(with_v4, stream.v4.walk.map(|walk| walk.done), prefixes[0]);
        Some(v4 + done(with_v6, stream.v6.walk.map(|walk| walk.done), prefixes[1]))
    }

    /// Joins a stream that has nothing left with another of its group at the same place.
    fn merge(&mut self, id: StreamId, ends: [u64; 2], members: &mut [Option<Member>]) {
        let joins = |stream: &&Stream| stream.joins && stream.is_idle(ends) && stream.is_whole();
        let Some(stream) = self.get(id).filter(joins) else { return };
        let same = |other: &Stream| Rc::ptr_eq(&other.group, &stream.group);
        let mut group = self.iter().filter(|(other, stream)| *other != id && same(stream)).peekable();
        let alone = group.peek().is_none();
        let into = group.find(|(_, stream)| stream.is_at_end(ends) && stream.is_whole()).map(|(id, _)| id);
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
        // Both are at the end, so both histories say the same; one that was lost says nothing.
        if stream.head == JournalEntry::LOST {
            stream.head = from.head;
        }
        stream.default_route = stream.default_route.or(from.default_route);
        for peer in from.members.iter() {
            stream.members.insert(peer);
            if let Some(member) = &mut members[peer.index()] {
                (member.stream, member.chunk, member.passed) = (into, stream.end(), stream.head);
            }
        }
    }

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
        if stream.is_at_end(ends) {
            self.merge(id, ends, members);
            return None;
        }
        if stream.queued > encoding.limits.shared_bytes {
            self.split_laggards(id, members);
        }
        let mut outgoing = std::mem::take(&mut self.outgoing);
        let mut ledger = self.ledger.take();
        encoding.others = self.others(id);
        let stream = self.get_mut(id)?;
        let ended = stream.fill(id.lane(), tables, encoding, (&mut outgoing, ledger.as_mut()), members);
        let messages = members[peer.index()].as_mut().and_then(|member| stream.take(peer, member));
        let applied = stream.ends_change();
        (self.outgoing, self.ledger) = (outgoing, ledger);
        self.ended.extend(ended);
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
        stream.is_some_and(|stream| !stream.is_at_end(ends) || member.chunk < stream.end())
    }

    /// Bytes encoded and not yet pulled by the member.
    pub(crate) fn queued(&self, peer: PeerIndex, member: &Member) -> usize {
        let Some(stream) = self.get(member.stream) else { return 0 };
        let unread = stream.unread(member).filter(|chunk| chunk.target.includes(peer));
        unread.map(|chunk| chunk.bytes.len()).sum()
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

/// Both, by family.
fn unite([v4, v6]: [PathCounts; 2], [more_v4, more_v6]: [PathCounts; 2]) -> [PathCounts; 2] {
    [v4 | more_v4, v6 | more_v6]
}

impl Stream {
    /// For members that have been told nothing.
    fn new(group: Rc<Group>, own: OwnNextHops, ends: [u64; 2]) -> Self {
        let mut stream = Self::empty(group, own, ends);
        stream.start_walk(0, WalkKind::Dump);
        stream.start_walk(1, WalkKind::Dump);
        stream
    }

    fn empty(group: Rc<Group>, own: OwnNextHops, ends: [u64; 2]) -> Self {
        Self {
            default_route: group.export.default_route,
            previous: Rc::clone(&group),
            changing: false,
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
            head: JournalEntry::NONE,
        }
    }

    /// Whether all paths of a prefix are read, in some family.
    fn reads_each(&self) -> bool {
        [0, 1].into_iter().any(|family| self.kind(family) == 1)
    }

    /// By family, what is sent if several paths of a prefix are, and whether there is a view; while a change of policy is
    /// under way, also before it.
    fn mosts(&self) -> [PathCounts; 2] {
        if self.group.export.viewer.is_some() {
            return self
                .group
                .export
                .families
                .map(|has| if has { PathCounts::VIEW } else { PathCounts::default() });
        }
        let now = self.group.export.paths.map(PathCounts::one);
        if self.changing { unite(now, self.previous.export.paths.map(PathCounts::one)) } else { now }
    }

    /// Whether it reads, of a family, changes of the best paths (0) or of each (1).
    pub(crate) fn kind(&self, family: usize) -> usize {
        usize::from(self.group.export.reads_each(family))
    }

    /// By family, whether it has lost its place.
    pub(crate) fn is_lost(&self) -> [bool; 2] {
        [self.v4.is_lost(), self.v6.is_lost()]
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

    /// The members if the last walk for a change of policy has just ended.
    fn ends_change(&mut self) -> Option<PeerSet> {
        let over = self.changing && self.v4.walk.is_none() && self.v6.walk.is_none();
        self.changing &= !over;
        over.then(|| self.members.clone())
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

    /// Whether its history says what its group is told, and nothing else.
    fn is_whole(&self) -> bool {
        self.v4.is_whole() && self.v6.is_whole()
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
    fn take(&mut self, peer: PeerIndex, member: &mut Member) -> Option<Messages> {
        while member.chunk < self.end() {
            let chunk = &self.queue[(member.chunk - self.first) as usize];
            let messages = chunk.target.includes(peer).then(|| chunk.messages(&self.own, &member.own));
            member.passed = chunk.entry;
            member.chunk += 1;
            self.pass(member.chunk - 1, member.chunk);
            if messages.is_some() {
                return messages;
            }
        }
        None
    }

    /// Encodes one window; returns whom a walk has ended for.
    fn fill(
        &mut self,
        lane: StreamKey,
        tables: (&mut Table<Ipv4Prefix>, &mut Table<Ipv6Prefix>),
        encoding: &mut Encoding<'_>,
        (out, ledger): (&mut Outgoing, Option<&mut Ledger>),
        members: &mut [Option<Member>],
    ) -> Option<Ended> {
        out.clear();
        let [with_v4, with_v6] = self.group.export.families;
        let (current, previous) = (&*self.group, &*self.previous);
        let journal = ledger.as_ref().map(|ledger| (&ledger.hasher, &ledger.names));
        let (own, members_of) = (&self.own, &self.members);
        let default_route = self.default_route.map(Path::default_route);
        let recipients =
            Recipients { current, previous, default_route, own, members: members_of, lane, journal };
        let (mut family, mut advance) = (0, Advance::Idle);
        if with_v4 {
            advance = tables.0.advance(&mut self.v4, &recipients, encoding, out);
        }
        if with_v6 && advance == Advance::Idle {
            (family, advance) = (1, tables.1.advance(&mut self.v6, &recipients, encoding, out));
        }
        self.count(
            family,
            if family == 0 { &mut tables.0.window.tally } else { &mut tables.1.window.tally },
            members,
        );
        self.enqueue(family == 0, out, ledger);
        let has_all = matches!(advance, Advance::Synced { end_of_rib: true, .. });
        has_all.then(|| (self.members.clone(), family))
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

    fn enqueue(&mut self, ipv4: bool, out: &Outgoing, mut ledger: Option<&mut Ledger>) {
        let bytes = Bytes::copy_from_slice(&out.bytes);
        let own_next_hops: Rc<[u32]> = Rc::from(&*out.own_next_hops);
        let (mut start, mut items_start) = (0, 0);
        for &Run { target, end, items_end, messages, kind } in &out.runs {
            if let (Some(ledger), Some(recorder)) = (&mut ledger, &out.recorder) {
                self.head = ledger.append(self.head, target, &recorder.items[items_start..items_end]);
            }
            self.queued += end - start;
            self.queue.push_back(Chunk {
                bytes: bytes.slice(start..end),
                messages,
                kind,
                target,
                own_next_hops: Rc::clone(&own_next_hops),
                start,
                ipv4,
                entry: self.head,
                readers: self.members.len(),
            });
            (start, items_start) = (end, items_end);
        }
    }
}

impl Chunk {
    /// The messages: the shared bytes for who has the addresses that they were encoded with, else a copy with the
    /// member's own.
    fn messages(&self, shared: &OwnNextHops, own: &OwnNextHops) -> Messages {
        let (bytes, count, kind) = (self.bytes.clone(), self.messages, self.kind);
        let Some(next_hop) = own.get(self.ipv4).filter(|own| Some(*own) != shared.get(self.ipv4)) else {
            return Messages { bytes, count, kind };
        };
        let end = self.start + bytes.len();
        let first = self.own_next_hops.partition_point(|at| (*at as usize) < self.start);
        let places = self.own_next_hops[first..].iter().map(|at| *at as usize).take_while(|at| *at < end);
        let mut copy = BytesMut::from(&*bytes);
        for at in places {
            next_hop.put(&mut copy[at - self.start..]);
        }
        Messages { bytes: copy.freeze(), count, kind }
    }
}
