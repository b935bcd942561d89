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

mod census;
pub(crate) mod chunk;
mod ledger;
pub(crate) mod member;
mod pulling;
pub(crate) mod stream;

use std::{collections::VecDeque, rc::Rc};

use self::{
    census::Census,
    chunk::Chunk,
    ledger::Ledger,
    member::{Call, Member, StreamId},
    stream::{Ended, Stream, Unfit, unite},
};
use crate::{
    PeerIndex,
    adj_rib_out::Outgoing,
    cursor::{Cursor, WalkKind},
    export::{Group, rules::Export},
    journal::{
        Journal, JournalEntry,
        format::{PeerNumber, Recorder},
    },
    own_next_hop::OwnNextHops,
    path::PathCounts,
    peer_set::PeerSet,
    seam::Seams,
    told::AdjRibOutSnapshot,
    verdicts::GroupNumber,
};

/// All streams.
#[derive(Debug)]
pub(crate) struct Streams {
    slots: Vec<Option<Stream>>,
    /// Places in `slots` that nobody has.
    free: Vec<u32>,
    /// Kept with each stream that comes, goes, or changes its group.
    census: Census,
    next_group: GroupNumber,
    outgoing: Outgoing,
    pub(crate) ended: Vec<Ended>,
    /// Routes that fit no message: to be reported.
    pub(crate) unfit: Vec<Unfit>,
    /// Those whom a change of export policy has reached: to be reported.
    pub(crate) applied: Vec<PeerSet>,
    /// Members to be named by [`Self::poll_ready`], each once.
    ready: VecDeque<PeerIndex>,
    pub(crate) seams: Seams,
    /// Where the logs ended when all members were looked at last; `None`: look again.
    looked_at: Option<[u64; 2]>,
    ledger: Option<Ledger>,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            census: Census::default(),
            next_group: GroupNumber::FIRST,
            outgoing: Outgoing::default(),
            ended: Vec::new(),
            unfit: Vec::new(),
            applied: Vec::new(),
            ready: VecDeque::new(),
            seams: Seams::default(),
            looked_at: None,
            ledger: None,
        }
    }

    /// Keeps a journal from now on. What has been announced is not in it, so that the history of those who have been told
    /// something is lost.
    pub(crate) fn keep_journal(&mut self, journal: Box<dyn Journal>) {
        self.iter_mut().for_each(Stream::lose_history);
        self.outgoing.recorder = Some(Recorder::default());
        self.ledger = Some(Ledger::new(journal));
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

    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    fn add(&mut self, stream: Stream) -> StreamId {
        self.census.enter(&stream.group, stream.mosts());
        match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = Some(stream);
                StreamId(number)
            }
            None => {
                self.slots.push(Some(stream));
                StreamId(self.slots.len() as u32 - 1)
            }
        }
    }

    fn take_out(&mut self, id: StreamId) -> Option<Stream> {
        let stream = self.slots.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        self.census.leave(&stream.group, stream.mosts());
        Some(stream)
    }

    /// Octets of what is put off.
    pub(crate) fn pending_memory(&self) -> usize {
        self.iter().map(|(_, stream)| stream.v4.pending_memory() + stream.v6.pending_memory()).sum()
    }

    /// Something can be done that could not be before.
    pub(crate) fn look_anew(&mut self) {
        self.looked_at = None;
    }

    /// The group with this export.
    pub(crate) fn group(&mut self, export: Export) -> Rc<Group> {
        if let Some(group) = self.census.group(&export) {
            return group;
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
        self.census.mosts()
    }

    /// The same of those who have to be told what a walk of this stream finds.
    fn others(&self, id: StreamId) -> [PathCounts; 2] {
        let Some(stream) = self.get(id).filter(|stream| stream.reads_each()) else {
            return Default::default();
        };
        if stream.v4.walk.is_none() && stream.v6.walk.is_none() {
            return Default::default();
        }
        let others = self.iter().filter(|(other, _)| *other != id).map(|(_, other)| {
            let [v4, v6] = other.mosts();
            let told = |mosts, is_told| if is_told { mosts } else { PathCounts::default() };
            [told(v4, stream.v4.tells(&other.v4)), told(v6, stream.v6.tells(&other.v6))]
        });
        others.fold(Default::default(), unite)
    }

    /// How many groups there are.
    pub(crate) fn groups(&self) -> usize {
        self.census.groups()
    }

    /// A new session: it is given the whole table. Members that start together share the walk.
    pub(crate) fn join(
        &mut self,
        peer: PeerIndex,
        group: &Rc<Group>,
        own: OwnNextHops,
        ends: [u64; 2],
    ) -> Member {
        let waiting = match self.census.streams_of(group) {
            0 => None,
            _ => self.iter().find(|(_, stream)| stream.awaits_dump(group, ends)).map(|(id, _)| id),
        };
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

    /// Ends the history of the member in the journal, unless other members of its stream have the same history. Returns whether
    /// there was a history to end.
    pub(crate) fn end_history(&mut self, member: &mut Member) -> bool {
        let Some(stream) = self.get_mut(member.stream) else { return false };
        let has_begun = ![JournalEntry::NONE, JournalEntry::LOST].contains(&stream.head);
        if !has_begun || stream.members.len() > 1 {
            return false;
        }
        member.passed = JournalEntry::LOST;
        stream.lose_history();
        true
    }

    /// The member is in its stream no more.
    fn part(&mut self, peer: PeerIndex, member: &Member) {
        let Some(stream) = self.get_mut(member.stream) else { return };
        stream.pass(member.chunk, u64::MAX);
        stream.members.remove(peer);
        if stream.members.len() == 0 {
            self.take_out(member.stream);
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
            v4: stream.v4.clone().forked(),
            v6: stream.v6.clone().forked(),
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

    /// Whether a member has not been told of everything that it has asked for; also during any other walk over the table.
    pub(crate) fn is_telling_all(&self, member: &Member) -> bool {
        let Some(stream) = self.get(member.stream) else { return false };
        let [v4, v6] = stream.group.export.families;
        v4 && stream.v4.is_telling_all() || v6 && stream.v6.is_telling_all() || member.chunk < stream.end()
    }

    /// Other addresses of ours as next hop for one member. What is queued for it keeps those before.
    pub(crate) fn change_own(&mut self, peer: PeerIndex, member: &mut Member, own: OwnNextHops) {
        self.split(peer, member);
        let before = std::mem::replace(&mut member.own, own);
        let Some(stream) = self.get_mut(member.stream) else { return };
        for chunk in &mut stream.queue {
            chunk.bytes = chunk.messages(&stream.own, &before).bytes;
        }
        stream.own = own;
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
        let Self { slots, census, .. } = self;
        if let Some(stream) = slots.get_mut(member.stream.0 as usize).and_then(Option::as_mut) {
            census.leave(&stream.group, stream.mosts());
            stream.previous = std::mem::replace(&mut stream.group, Rc::clone(group));
            stream.default_route = stream.default_route.or(group.export.default_route);
            stream.joins = true;
            let before = &stream.previous.export;
            let kind = match () {
                () if before.differs_only_in_filter(&group.export) => WalkKind::Filter,
                () if before.differs_only_in_keys(&group.export) => WalkKind::Keys,
                () => WalkKind::Policy,
            };
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
            census.enter(&stream.group, stream.mosts());
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
        let alone = self.census.streams_of(&stream.group) == 1;
        let same = |other: &Stream| Rc::ptr_eq(&other.group, &stream.group);
        let is_there = |other: &Stream| same(other) && other.is_at_end(ends) && other.is_whole();
        let into = match alone {
            true => None,
            false => self.iter().find(|(other, stream)| *other != id && is_there(stream)).map(|(id, _)| id),
        };
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
        let Some(from) = self.take_out(id) else { return };
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
