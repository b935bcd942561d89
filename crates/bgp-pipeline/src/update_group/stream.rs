//! A position of a group in the change logs, with the messages encoded from there.

use std::{collections::VecDeque, rc::Rc};

use bytes::Bytes;
use holdfast_bgp_wire::nlri::Identified;
use holdfast_types::{Ipv4Prefix, Ipv6Prefix, Prefix};

use super::{
    census::Census,
    chunk::{Chunk, Messages},
    ledger::Ledger,
    member::Member,
};
use crate::{
    PeerIndex,
    adj_rib_out::{Outgoing, Recipients, Run, Tally},
    core::Core,
    cursor::{Advance, Cursor, Encoding, WalkKind},
    export::Group,
    journal::JournalEntry,
    own_next_hop::OwnNextHops,
    path::{Path, PathCounts, SetId},
    peer_set::PeerSet,
    seam::StreamKey,
    table::Table,
};

/// A position of a group, and those who share it.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) group: Rc<Group>,
    /// The group before a change of policy, while the walk for that is under way.
    pub(super) previous: Rc<Group>,
    /// Its members have not been told of everything that a change of policy changes.
    pub(super) changing: bool,
    /// Messages are encoded with these; members that have others get copies.
    pub(super) own: OwnNextHops,
    pub(crate) members: PeerSet,
    pub(crate) v4: Cursor<Ipv4Prefix>,
    pub(crate) v6: Cursor<Ipv6Prefix>,
    pub(super) queue: VecDeque<Chunk>,
    /// The number of the queue's first chunk.
    pub(super) first: u64,
    pub(super) queued: usize,
    /// Another stream of the same export may be there to be joined.
    pub(super) joins: bool,
    /// Prefixes announced to the group.
    pub(super) announced: [i64; 2],
    /// The journal's entry of the last chunk.
    pub(super) head: JournalEntry,
    /// The set of a default route of our own that its members have been told of.
    pub(super) default_route: Option<SetId>,
}

/// Dumps that came to their end: to be reported for all members.
pub(crate) type Ended = (PeerSet, usize);

/// Members that a route fits no message for, and such a route.
pub(crate) type Unfit = (PeerSet, Prefix);

impl Stream {
    /// For members that have been told nothing.
    pub(super) fn new(group: Rc<Group>, own: OwnNextHops, ends: [u64; 2]) -> Self {
        let mut stream = Self::empty(group, own, ends);
        stream.start_walk(0, WalkKind::Dump);
        stream.start_walk(1, WalkKind::Dump);
        stream
    }

    pub(super) fn empty(group: Rc<Group>, own: OwnNextHops, ends: [u64; 2]) -> Self {
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

    /// The journal has no entries of this stream any more.
    pub(super) fn lose_history(&mut self) {
        self.head = JournalEntry::LOST;
        self.queue.iter_mut().for_each(|chunk| chunk.entry = JournalEntry::LOST);
    }

    /// Whether all paths of a prefix are read, in some family.
    pub(super) fn reads_each(&self) -> bool {
        [0, 1].into_iter().any(|family| self.kind(family) == 1)
    }

    /// By family, what is sent if several paths of a prefix are, and whether there is a view; while a change of policy is
    /// under way, also before it.
    pub(super) fn mosts(&self) -> [PathCounts; 2] {
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

    pub(super) fn start_walk(&mut self, family: usize, kind: WalkKind) {
        if !self.group.export.families[family] {
            return;
        }
        match family {
            0 => self.v4.start_walk(kind),
            _ => self.v6.start_walk(kind),
        }
    }

    /// Whether what was told by another process is being compared.
    pub(crate) fn resumes(&self) -> bool {
        let kinds = [self.v4.walk.map(|walk| walk.kind), self.v6.walk.map(|walk| walk.kind)];
        kinds.contains(&Some(WalkKind::Resume))
    }

    /// The members if the last walk for a change of policy has just ended.
    pub(super) fn ends_change(&mut self, census: &mut Census) -> Option<PeerSet> {
        let over = self.changing && self.v4.walk.is_none() && self.v6.walk.is_none();
        if over {
            census.leave(&self.group, self.mosts());
            self.changing = false;
            census.enter(&self.group, self.mosts());
        }
        over.then(|| self.members.clone())
    }

    /// Whether it is a dump for this group that has not begun.
    pub(super) fn awaits_dump(&self, group: &Rc<Group>, ends: [u64; 2]) -> bool {
        fn untouched<P>(cursor: &Cursor<P>, wanted: bool, end: u64) -> bool {
            let waiting =
                cursor.walk.as_ref().is_some_and(|walk| walk.kind == WalkKind::Dump && walk.after.is_none());
            cursor.position == end && !cursor.lost && waiting == wanted
        }
        let families = group.export.families;
        Rc::ptr_eq(&self.group, group)
            && self.head == JournalEntry::NONE
            && (self.first, self.queue.len()) == (0, 0)
            && untouched(&self.v4, families[0], ends[0])
            && untouched(&self.v6, families[1], ends[1])
    }

    pub(super) fn end(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    pub(super) fn is_at_end(&self, ends: [u64; 2]) -> bool {
        let [v4, v6] = self.group.export.families;
        (!v4 || self.v4.is_at_end(ends[0])) && (!v6 || self.v6.is_at_end(ends[1]))
    }

    /// Whether nothing can be done for it at the moment.
    pub(super) fn rests(&self, ends: [u64; 2]) -> bool {
        let [v4, v6] = self.group.export.families;
        (!v4 || self.v4.rests(ends[0])) && (!v6 || self.v6.rests(ends[1]))
    }

    /// Whether its walk is for other keys, and nothing else: routes are signed again at a rate.
    pub(crate) fn is_signed_again(&self) -> bool {
        self.changing && self.group.export.has_other_keys(&self.previous.export)
    }

    /// Whether a route of a prefix waits to be signed; then, whether it was announced with an AS_PATH meanwhile.
    pub(crate) fn waits(&self, prefix: Prefix) -> Option<bool> {
        match prefix {
            Prefix::V4(prefix) => self.v4.waits(prefix),
            Prefix::V6(prefix) => self.v6.waits(prefix),
        }
    }

    /// Whether its members are not told of a path, as it fits no message.
    pub(crate) fn is_too_long(&self, core: &Core, prefix: Prefix, path: Path) -> bool {
        let is_identified = |family: usize| self.group.export.paths[family] != 0;
        let identifier =
            |family| if is_identified(family) { core.sources.get(path.source).identifier } else { 0 };
        match prefix {
            Prefix::V4(prefix) => self.v4.is_too_long(Identified { identifier: identifier(0), prefix }),
            Prefix::V6(prefix) => self.v6.is_too_long(Identified { identifier: identifier(1), prefix }),
        }
    }

    /// Whether walks wait from now on; whether that is new.
    pub(crate) fn block(&mut self, blocked: bool) -> bool {
        self.v4.block(blocked) | self.v6.block(blocked)
    }

    /// More jobs may be made again.
    pub(crate) fn retry(&mut self) {
        self.v4.retry();
        self.v6.retry();
    }

    /// All that waits for signatures is looked at again.
    pub(crate) fn wake_all(&mut self) {
        self.v4.wake_all();
        self.v6.wake_all();
    }

    /// Whether its history says what its group is told, and nothing else.
    pub(super) fn is_whole(&self) -> bool {
        self.v4.is_whole() && self.v6.is_whole()
    }

    /// Changes not read, of both families.
    pub(crate) fn backlog(&self, ends: [u64; 2]) -> u64 {
        let [v4, v6] = self.group.export.families;
        let behind = |wanted: bool, end: u64, at: u64| if wanted { end - at } else { 0 };
        behind(v4, ends[0], self.v4.position) + behind(v6, ends[1], self.v6.position)
    }

    pub(super) fn is_idle(&self, ends: [u64; 2]) -> bool {
        self.queue.is_empty() && self.is_at_end(ends)
    }

    pub(super) fn unread(&self, member: &Member) -> impl Iterator<Item = &Chunk> {
        self.queue.iter().skip((member.chunk - self.first) as usize)
    }

    /// One reader has passed the chunks in this range.
    pub(super) fn pass(&mut self, from: u64, to: u64) {
        let skip = (from - self.first) as usize;
        let count = (to - from) as usize;
        self.queue.iter_mut().skip(skip).take(count).for_each(|chunk| chunk.readers -= 1);
        while self.queue.front().is_some_and(|chunk| chunk.readers == 0) {
            self.first += 1;
            self.queued -= self.queue.pop_front().map_or(0, |chunk| chunk.bytes.len());
        }
    }

    /// The member's next messages out of the queue.
    pub(super) fn take(&mut self, peer: PeerIndex, member: &mut Member) -> Option<Messages> {
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
    pub(super) fn fill(
        &mut self,
        lane: StreamKey,
        tables: (&mut Table<Ipv4Prefix>, &mut Table<Ipv6Prefix>),
        encoding: &mut Encoding<'_>,
        (out, ledger): (&mut Outgoing, Option<&mut Ledger>),
        members: &mut [Option<Member>],
    ) -> (Option<Ended>, Option<Unfit>) {
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
        let tally = if family == 0 { &mut tables.0.window.tally } else { &mut tables.1.window.tally };
        let unfit = tally.too_long.take().map(|prefix| (self.members.clone(), prefix));
        self.count(family, tally, members);
        self.enqueue(family == 0, out, ledger);
        let has_all = matches!(advance, Advance::Synced { end_of_rib: true, .. });
        (has_all.then(|| (self.members.clone(), family)), unfit)
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

/// Both, by family.
pub(super) fn unite([v4, v6]: [PathCounts; 2], [more_v4, more_v6]: [PathCounts; 2]) -> [PathCounts; 2] {
    [v4 | more_v4, v6 | more_v6]
}
