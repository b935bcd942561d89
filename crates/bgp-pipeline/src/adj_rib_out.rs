//! The AdjRibOut stage: a window of changes becomes messages for one update group.
//!
//! Nothing is stored of what was announced: a change names the old path too, and whether that one was
//! announced is found out again. Changes of one prefix in a window are merged, keeping the first `old`;
//! prefixes announced with the same attributes share messages.
//!
//! A group that is sent several paths of a prefix (RFC 7911) has a route for each source, under the source's number.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use holdfast_bgp_wire::{NextHop, UpdateEncoder, encode, nlri::Identified};
use holdfast_types::{IpPrefix, Ipv4Prefix};

use crate::{
    PeerIndex,
    core::Core,
    export::{Group, Judged},
    fanout::Change,
    journal::{AttributeHasher, Names, PeerNumber, Recorder},
    own_next_hop::OwnNextHops,
    path::{Path, SetId, SourceId},
    peer_set::PeerSet,
    rewrite::{self, ExportedNextHop},
    seam::{Lane, Old, RouteNumber, Seam},
    told::{Announced, Known},
};

/// Whom some bytes are for. A route is not sent back to the peer it came from.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Target {
    All,
    Except(PeerIndex),
    Only(PeerIndex),
    /// Nothing is sent: it is for the journal.
    Nobody,
}

impl Target {
    pub(crate) fn includes(self, peer: PeerIndex) -> bool {
        match self {
            Self::All => true,
            Self::Except(other) => other != peer,
            Self::Only(other) => other == peer,
            Self::Nobody => false,
        }
    }
}

/// Octets after which messages for the same targets are another run: a member takes whole ones.
const LONG_RUN: usize = 64 << 10;

/// Messages for the same targets.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Run {
    pub(crate) target: Target,
    /// Where it ends.
    pub(crate) end: usize,
    /// Where what the journal says of it ends.
    pub(crate) items_end: usize,
    pub(crate) messages: u64,
}

/// Messages, in runs.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    pub(crate) runs: Vec<Run>,
    /// Where we stand as next hop: members on other links have another address there.
    pub(crate) own_next_hops: Vec<u32>,
    /// What the journal is to say of the runs, if there is one.
    pub(crate) recorder: Option<Recorder>,
    /// Messages behind the last run.
    messages: u64,
    /// Routes whose attributes fit no message of the session.
    pub(crate) too_long: u64,
}

impl Outgoing {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
        self.own_next_hops.clear();
        self.recorder.iter_mut().for_each(|recorder| recorder.items.clear());
    }

    pub(crate) fn end_of_rib<P: IpPrefix>(&mut self) {
        encode::end_of_rib(P::UNICAST, &mut self.bytes);
        self.recorder.iter_mut().for_each(Recorder::end_of_rib::<P>);
        self.messages += 1;
        self.close(Target::All);
    }

    /// The messages from `start` on name us as next hop.
    fn note_own_next_hops(&mut self, start: usize) {
        let places = encode::next_hops(&self.bytes[start..]).map(|at| (start + at) as u32);
        self.own_next_hops.extend(places);
    }

    /// Ends a run; joins it to the last if that has the same target and is not long.
    fn close(&mut self, target: Target) {
        let messages = std::mem::take(&mut self.messages);
        let end = self.bytes.len();
        let items_end = self.recorder.as_ref().map_or(0, |recorder| recorder.items.len());
        if messages == 0 && self.runs.last().map_or(0, |run| run.items_end) == items_end {
            return;
        }
        let start = self.runs.iter().nth_back(1).map_or(0, |before| before.end);
        match self.runs.last_mut() {
            Some(run) if run.target == target && end - start <= LONG_RUN => {
                (run.end, run.items_end) = (end, items_end);
                run.messages += messages;
            }
            Some(_) | None => self.runs.push(Run { target, end, items_end, messages }),
        }
    }
}

/// What was announced for a prefix before.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Before {
    /// What this export makes of the path (or none).
    Path(Path, Side),
    /// Nobody knows: withdraw what must not be there.
    Unknown,
}

/// Which of the group's two export policies: during a change of policy the table is walked, and what lies
/// before the walk was announced by the new one, what lies behind it by the old one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Current,
    Previous,
}

/// For whom a window is encoded.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Audience<'a> {
    pub(crate) current: &'a Group,
    pub(crate) previous: &'a Group,
    /// What messages are encoded with.
    pub(crate) own: &'a OwnNextHops,
    pub(crate) members: &'a PeerSet,
    /// The group's position, for who looks at the seams.
    pub(crate) lane: Lane,
    /// Of the journal, if there is one.
    pub(crate) journal: Option<(&'a AttributeHasher, &'a Names)>,
}

impl Audience<'_> {
    fn group(&self, side: Side) -> &Group {
        match side {
            Side::Current => self.current,
            Side::Previous => self.previous,
        }
    }

    /// Whether several paths of a prefix are told.
    fn tells_each<P: IpPrefix>(&self) -> bool {
        self.current.export.paths::<P>() != 0
    }

    /// The path if it is one of those that are told.
    #[inline]
    pub(crate) fn select<P: IpPrefix>(&self, side: Side, path: Path) -> Path {
        match self.group(side).export.paths::<P>() {
            0 => path,
            most => path.within(most),
        }
    }

    /// The lane of a path.
    fn lane<P: IpPrefix>(&self, source: SourceId) -> Lane {
        match self.lane {
            Lane::Group(group) if self.tells_each::<P>() => Lane::GroupPath(group, source.0),
            lane => lane,
        }
    }

    /// Whether the path would be announced.
    pub(crate) fn passes<P: IpPrefix>(&self, core: &mut Core, prefix: P, path: Path) -> bool {
        self.current.judge(core, prefix, path).is_some()
    }

    /// A best path comes out of the fanout for these.
    #[inline]
    pub(crate) fn read<P: IpPrefix>(&self, core: &Core, prefix: P, before: Before, new: Path) {
        if core.seams.are_watched() {
            self.pass(core, prefix, before, new);
        }
    }

    #[cold]
    fn pass<P: IpPrefix>(&self, core: &Core, prefix: P, before: Before, new: Path) {
        let old = match before {
            Before::Path(old, _) => Old::Is(RouteNumber::of(old)),
            Before::Unknown => Old::Unknown,
        };
        let lane = self.lane::<P>(new.source);
        core.seams.pass(Seam::FanoutToExport, lane, prefix, old, RouteNumber::of(new));
    }

    /// Whether nobody needs to know of routes that come from the one member: not even the journal, for those that may
    /// join it.
    fn is_alone_and_silent(&self) -> bool {
        self.members.len() == 1 && self.journal.is_none()
    }

    /// What the journal calls the peer that a source is; 0 if it is none.
    fn source_number(&self, core: &Core, source: SourceId) -> PeerNumber {
        let peer = || core.sources.get(source).peer;
        self.journal.and_then(|(_, names)| Some(names.number(peer()?))).unwrap_or(0)
    }

    /// The member that the journal calls so.
    fn named(&self, number: PeerNumber) -> Option<PeerIndex> {
        let (_, names) = self.journal.filter(|_| number != 0)?;
        names.peer(number).filter(|peer| self.members.contains(*peer))
    }

    /// The member that a source is.
    fn member(&self, core: &Core, source: SourceId) -> Option<PeerIndex> {
        core.sources.get(source).peer.filter(|peer| self.members.contains(*peer))
    }
}

/// How many prefixes are announced, counted on the way.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Counting starts again from nothing.
    pub(crate) restarted: bool,
    /// Change of what the group is told.
    pub(crate) announced: i64,
    /// Change of what single members are not told, being the sources; by number, for those in `touched`.
    withheld: Vec<i64>,
    touched: Vec<PeerIndex>,
}

impl Tally {
    #[inline]
    fn withhold(&mut self, peer: PeerIndex, by: i64) {
        if self.withheld.len() <= peer.index() {
            self.withheld.resize(peer.index() + 1, 0);
        }
        let count = &mut self.withheld[peer.index()];
        if *count == 0 {
            self.touched.push(peer);
        }
        *count += by;
    }

    /// A route is announced, but not to the member that it comes from.
    #[inline]
    fn announce(&mut self, source: Option<PeerIndex>) {
        self.announced += 1;
        if let Some(peer) = source {
            self.withhold(peer, 1);
        }
    }

    /// Takes what was counted of single members.
    pub(crate) fn take_withheld(&mut self) -> impl Iterator<Item = (PeerIndex, i64)> {
        let withheld = &mut self.withheld;
        self.touched.drain(..).map(|peer| (peer, std::mem::take(&mut withheld[peer.index()])))
    }

    fn restart(&mut self) {
        (self.restarted, self.announced) = (false, 0);
        self.take_withheld().for_each(drop);
    }
}

/// Routes of one window with the same attributes, told to the same members.
#[derive(Copy, Clone, Debug)]
struct Chain {
    /// The source as a member of the group, which is not told of its own routes.
    member: Option<PeerIndex>,
    /// What the journal calls the source.
    source: PeerNumber,
    /// Under which its routes are announced; `None`: without.
    identifier: Option<u32>,
    side: Side,
    judged: Judged,
    /// Of the attributes as sent, where that was asked for.
    hash: Option<u64>,
    /// First and last of its routes; `END` as long as it has none.
    first: u32,
    last: u32,
    /// Another chain of the same received set.
    next: u32,
}

/// Where a route belongs in a window.
#[derive(Copy, Clone, Debug)]
struct Place {
    chain: u32,
    /// That of the chain.
    member: Option<PeerIndex>,
}

/// The latest path of a window, if all paths with its set and source belong where it does.
#[derive(Copy, Clone, Debug)]
struct Latest {
    set: SetId,
    source: SourceId,
    side: Side,
    place: Place,
}

const END: u32 = u32::MAX;

/// For each attribute set its first chain in the present window. Shared by all groups and families: four
/// octets a set would do, but then it had to be cleared for each window.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    marks: Vec<(u32, u32)>,
    window: u32,
}

impl Marks {
    fn begin(&mut self, sets: usize) {
        if self.marks.len() < sets {
            self.marks.resize(sets, (0, 0));
        } else if self.marks.len() > 4 * sets {
            self.marks.truncate(sets);
            self.marks.shrink_to_fit();
        }
        self.window = self.window.wrapping_add(1);
        if self.window == 0 {
            self.marks.fill((0, 0));
            self.window = 1;
        }
    }

    #[inline]
    fn chain(&mut self, set: SetId) -> &mut u32 {
        let (window, chain) = &mut self.marks[set.index()];
        if *window != self.window {
            (*window, *chain) = (self.window, END);
        }
        chain
    }

    pub(crate) fn memory(&self) -> usize {
        self.marks.capacity() * size_of::<(u32, u32)>()
    }
}

/// Room for one window.
#[derive(Debug)]
pub(crate) struct Window<P> {
    merge: Merge<P>,
    chains: Vec<Chain>,
    latest: Option<Latest>,
    /// Announced prefixes, each with the place of the next in its chain.
    routes: Vec<(P, u32)>,
    withdrawn: Vec<P>,
    withdrawn_from: Vec<(Target, P)>,
    /// Withdrawn from each member that had them.
    forgotten: Vec<P>,
    /// Where several paths are told: the one under this identifier.
    withdrawn_paths: Vec<(Target, Identified<P>)>,
    attributes: Vec<u8>,
    pub(crate) tally: Tally,
}

impl<P: IpPrefix> Window<P> {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            merge: Merge::new(seed),
            chains: Vec::new(),
            latest: None,
            routes: Vec::new(),
            withdrawn: Vec::new(),
            withdrawn_from: Vec::new(),
            forgotten: Vec::new(),
            withdrawn_paths: Vec::new(),
            attributes: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Starts a window; what the one before left is dropped.
    pub(crate) fn begin(&mut self, core: &Core, marks: &mut Marks, audience: &Audience<'_>) {
        marks.begin(core.sets.numbers());
        audience.current.begin_window();
        audience.previous.begin_window();
        self.chains.clear();
        self.latest = None;
        self.routes.clear();
        self.withdrawn.clear();
        self.withdrawn_from.clear();
        self.forgotten.clear();
        self.withdrawn_paths.clear();
        self.tally.restart();
    }

    /// One change for each prefix, from the first `old` to the last `new`.
    ///
    /// `only`: there may be changes of both kinds, wanted are those of [each path](Change::is_each), or the others.
    pub(crate) fn merge(
        &mut self,
        changes: impl ExactSizeIterator<Item = Change<P>>,
        only: Option<bool>,
    ) -> Vec<Change<P>> {
        self.merge.run(changes, only)
    }

    /// Gives a merged list back, for its memory.
    pub(crate) fn recycle(&mut self, changes: Vec<Change<P>>) {
        self.merge.changes = changes;
    }

    /// One prefix: before and now.
    #[inline]
    pub(crate) fn add(
        &mut self,
        core: &mut Core,
        marks: &mut Marks,
        audience: &Audience<'_>,
        prefix: P,
        before: Before,
        (new, side): (Path, Side),
    ) {
        let (old, was) = match before {
            Before::Path(old, old_side) => (old, audience.group(old_side).judge(core, prefix, old)),
            Before::Unknown => (Path::NONE, None),
        };
        let now = self.place(core, marks, audience, prefix, (new, side));
        if core.seams.are_watched() {
            self.pass(core, audience, prefix, (before, was), (new, now));
        }
        match (was, now) {
            (None, None) if matches!(before, Before::Unknown) => {
                self.retire(audience, Target::All, new.source, prefix);
            }
            (None, None) => {}
            (None, Some(place)) => {
                self.announce(place, prefix);
                if let (Some(peer), Before::Unknown) = (place.member, before) {
                    self.retire(audience, Target::Only(peer), new.source, prefix);
                }
            }
            (Some(_), None) => match self.retract(core, audience, old) {
                Some(_) if audience.is_alone_and_silent() => {}
                Some(peer) => self.retire(audience, Target::Except(peer), old.source, prefix),
                None => self.retire(audience, Target::All, old.source, prefix),
            },
            (Some(was), Some(place)) if self.is_renewed(core, (before, was), (new, side), place) => {}
            (Some(_), Some(place)) => {
                let had_none = self.retract(core, audience, old);
                self.announce(place, prefix);
                if let Some(peer) = place.member.filter(|peer| had_none != Some(*peer)) {
                    self.retire(audience, Target::Only(peer), new.source, prefix);
                }
            }
        }
    }

    /// Whether a peer that was away has brought the same again: nobody needs to be told.
    #[inline]
    fn is_renewed(
        &self,
        core: &Core,
        (before, was): (Before, Judged),
        (new, side): (Path, Side),
        place: Place,
    ) -> bool {
        let Before::Path(old, old_side) = before else { return false };
        old.source != new.source
            && core.sources.get(old.source).peer == core.sources.get(new.source).peer
            && old_side == side
            && self.chains[place.chain as usize].judged == was
    }

    /// The prefix is withdrawn; where several paths are told, that of the source.
    #[inline]
    fn retire(&mut self, audience: &Audience<'_>, target: Target, source: SourceId, prefix: P) {
        match target {
            _ if audience.tells_each::<P>() => {
                let identifier = identifier(source);
                self.withdrawn_paths.push((target, Identified { identifier, prefix }));
            }
            Target::All => self.withdrawn.push(prefix),
            Target::Except(_) | Target::Only(_) | Target::Nobody => {
                self.withdrawn_from.push((target, prefix));
            }
        }
    }

    /// One prefix of sessions that go on after another process: what they were told, and what they are to be told now.
    pub(crate) fn resume(
        &mut self,
        core: &mut Core,
        marks: &mut Marks,
        audience: &Audience<'_>,
        prefix: P,
        told: Option<Known>,
        best: Path,
    ) {
        let now = self.place(core, marks, audience, prefix, (best, Side::Current));
        if core.seams.are_watched() {
            self.pass(core, audience, prefix, (Before::Unknown, None), (best, now));
        }
        let (told, place) = match (told, now) {
            (None, None) => return,
            (None, Some(place)) => return self.announce(place, prefix),
            (Some(told), None) => return self.withdraw_known(audience, &told, prefix),
            (Some(told), Some(place)) => (told, place),
        };
        let (Announced { hash, source }, also_except) = told;
        // The journal has to name the present source: one that it names beyond its session would count as not told
        // when it is up anew.
        let is_same = also_except.is_empty()
            && source == self.chains[place.chain as usize].source
            && self.hash(core, audience, place.chain) == Some(hash);
        if is_same {
            self.tally.announce(place.member);
            return;
        }
        self.announce(place, prefix);
        // The one that was not told, if it is among those who are told now.
        let except = audience.named(source);
        let had_it = |peer: &PeerIndex| {
            except != Some(*peer) && also_except.iter().all(|other| audience.named(*other) != Some(*peer))
        };
        if let Some(peer) = place.member.filter(had_it) {
            self.withdrawn_from.push((Target::Only(peer), prefix));
        }
    }

    /// A prefix that nobody may have any more, of which is known who was told.
    pub(crate) fn withdraw_known(&mut self, audience: &Audience<'_>, (told, also_except): &Known, prefix: P) {
        match audience.named(told.source) {
            _ if !also_except.is_empty() => {
                let except = also_except.iter().chain([&told.source]).filter_map(|who| audience.named(*who));
                let except = PeerSet::from_iter(except);
                let had_it = audience.members.iter().filter(|peer| !except.contains(*peer));
                self.withdrawn_from.extend(had_it.map(|peer| (Target::Only(peer), prefix)));
                // Those who join later do not have it either.
                self.forgotten.push(prefix);
            }
            None => self.withdrawn.push(prefix),
            Some(_) if audience.is_alone_and_silent() => {}
            Some(peer) => self.withdrawn_from.push((Target::Except(peer), prefix)),
        }
    }

    /// Stands for the attributes of a chain.
    fn hash(&mut self, core: &Core, audience: &Audience<'_>, chain: u32) -> Option<u64> {
        let chain = &mut self.chains[chain as usize];
        if chain.hash.is_none() {
            let (named, _) = attributes::<P>(core, audience, chain, &mut self.attributes)?;
            chain.hash = audience.journal.map(|(hasher, _)| hasher.hash(&self.attributes, named));
        }
        chain.hash
    }

    #[cold]
    fn pass(
        &self,
        core: &Core,
        audience: &Audience<'_>,
        prefix: P,
        (before, was): (Before, Option<Judged>),
        (new, now): (Path, Option<Place>),
    ) {
        let number = |path: Path, judged: Judged| RouteNumber::new(path.source, judged.set);
        let was = match before {
            Before::Path(old, _) => Old::Is(was.map(|judged| number(old, judged))),
            Before::Unknown => Old::Unknown,
        };
        let now = now.map(|place| number(new, self.chains[place.chain as usize].judged));
        core.seams.pass(Seam::ExportToAdjRibOut, audience.lane::<P>(new.source), prefix, was, now);
    }

    /// The path is not announced any more. Returns the member that was not told of it, being its source.
    #[inline]
    fn retract(&mut self, core: &Core, audience: &Audience<'_>, path: Path) -> Option<PeerIndex> {
        let member = audience.member(core, path.source);
        self.tally.announced -= 1;
        if let Some(peer) = member {
            self.tally.withhold(peer, -1);
        }
        member
    }

    /// The prefix is announced like the others of a chain.
    #[inline]
    fn announce(&mut self, place: Place, prefix: P) {
        self.tally.announce(place.member);
        let number = self.routes.len() as u32;
        self.routes.push((prefix, END));
        let chain = &mut self.chains[place.chain as usize];
        match self.routes.get_mut(chain.last as usize) {
            Some((_, next)) => *next = number,
            None => chain.first = number,
        }
        chain.last = number;
    }

    /// Where a path belongs; `None` if it is not announced. Often it is where the one before it belonged: they came
    /// in one UPDATE.
    #[inline]
    fn place(
        &mut self,
        core: &mut Core,
        marks: &mut Marks,
        audience: &Audience<'_>,
        prefix: P,
        (path, side): (Path, Side),
    ) -> Option<Place> {
        if !path.is_some() {
            return None;
        }
        match self.latest {
            Some(latest) if (latest.set, latest.source, latest.side) == (path.set, path.source, side) => {
                Some(latest.place)
            }
            Some(_) | None => self.find_place(core, marks, audience, prefix, (path, side)),
        }
    }

    fn find_place(
        &mut self,
        core: &mut Core,
        marks: &mut Marks,
        audience: &Audience<'_>,
        prefix: P,
        (path, side): (Path, Side),
    ) -> Option<Place> {
        let group = audience.group(side);
        let judged = group.judge(core, prefix, path)?;
        let member = audience.member(core, path.source);
        let source = audience.source_number(core, path.source);
        let identifier = audience.tells_each::<P>().then(|| identifier(path.source));
        let chain = self.chain(marks.chain(path.set), (member, source, identifier, side, judged));
        let place = Place { chain, member };
        self.latest =
            group.remembers(core, path).then_some(Latest { set: path.set, source: path.source, side, place });
        Some(place)
    }

    /// A prefix that nobody may have any more, whatever was announced; not counted. Where several paths are told, that
    /// of the source.
    pub(crate) fn withdraw(&mut self, core: &Core, audience: &Audience<'_>, source: SourceId, prefix: P) {
        for seam in [Seam::FanoutToExport, Seam::ExportToAdjRibOut] {
            core.seams.pass(seam, audience.lane::<P>(source), prefix, Old::Unknown, None);
        }
        self.retire(audience, Target::All, source, prefix);
    }

    /// The chain of routes that are announced in this way.
    fn chain(
        &mut self,
        head: &mut u32,
        (member, source, identifier, side, judged): (
            Option<PeerIndex>,
            PeerNumber,
            Option<u32>,
            Side,
            Judged,
        ),
    ) -> u32 {
        let mut at = *head;
        while let Some(chain) = self.chains.get(at as usize) {
            let known = (chain.member, chain.source, chain.identifier, chain.side, chain.judged);
            if known == (member, source, identifier, side, judged) {
                return at;
            }
            at = chain.next;
        }
        let number = self.chains.len() as u32;
        self.chains.push(Chain {
            member,
            source,
            identifier,
            side,
            judged,
            hash: None,
            first: END,
            last: END,
            next: *head,
        });
        *head = number;
        number
    }

    /// Encodes the window: withdrawals first, then each chain.
    pub(crate) fn encode(&mut self, core: &Core, audience: &Audience<'_>, out: &mut Outgoing) {
        let encoder = UpdateEncoder::new(audience.current.export.max_message_len);
        withdraw(encoder, self.withdrawn.iter().copied(), out);
        out.close(Target::All);
        self.withdrawn_from.sort_unstable();
        for part in self.withdrawn_from.chunk_by(|a, b| a.0 == b.0) {
            withdraw(encoder, part.iter().map(|(_, prefix)| *prefix), out);
            out.close(part[0].0);
        }
        if let Some(recorder) = out.recorder.as_mut().filter(|_| !self.forgotten.is_empty()) {
            recorder.withdrawn(self.forgotten.iter().copied());
            out.close(Target::Nobody);
        }
        self.withdrawn_paths.sort_unstable();
        for part in self.withdrawn_paths.chunk_by(|a, b| a.0 == b.0) {
            withdraw_paths(encoder, part.iter().map(|(_, path)| *path), out);
            out.close(part[0].0);
        }
        for chain in &self.chains {
            encode_chain(core, audience, encoder, chain, &self.routes, &mut self.attributes, out);
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.routes.capacity() * size_of::<(P, u32)>()
            + self.chains.capacity() * size_of::<Chain>()
            + self.merge.changes.capacity() * size_of::<Change<P>>()
    }
}

/// The attributes of a chain as they are sent, and with which next hop; `None` if there is no such address.
fn attributes<P: IpPrefix>(
    core: &Core,
    audience: &Audience<'_>,
    chain: &Chain,
    attributes: &mut Vec<u8>,
) -> Option<(ExportedNextHop, NextHop)> {
    let judged = chain.judged;
    let group = audience.group(chain.side);
    let (export, edits) = (&group.export, &*group.edits(judged.outcome));
    let named = rewrite::exported_next_hop(core, export, P::WIDTH == 32, judged, edits)?;
    let next_hop = match named {
        ExportedNextHop::Ourselves => audience.own.get(P::WIDTH == 32)?,
        ExportedNextHop::Other(next_hop) => next_hop,
    };
    attributes.clear();
    rewrite::export(core, export, judged, edits, next_hop, attributes);
    Some((named, next_hop))
}

/// Encodes the messages of one chain.
fn encode_chain<P: IpPrefix>(
    core: &Core,
    audience: &Audience<'_>,
    encoder: UpdateEncoder,
    chain: &Chain,
    routes: &[(P, u32)],
    bytes: &mut Vec<u8>,
    out: &mut Outgoing,
) {
    let nobody = chain.member.is_some() && audience.members.len() == 1;
    if chain.first == END || nobody && audience.journal.is_none() {
        return;
    }
    let routes = Routes { routes, next: chain.first };
    let start = out.bytes.len();
    let named = attributes::<P>(core, audience, chain, bytes).and_then(|(named, next_hop)| {
        let out_bytes = &mut out.bytes;
        let sent = match (next_hop, chain.identifier) {
            _ if nobody => Ok(0),
            (NextHop::V4(_), None) => encoder.announce(bytes, ipv4(routes.clone()), out_bytes),
            (NextHop::V6 { .. }, None) => encoder.announce_mp(bytes, next_hop, routes.clone(), out_bytes),
            (NextHop::V4(_), Some(identifier)) => {
                let paths = ipv4(routes.clone()).map(|prefix| Identified { identifier, prefix });
                encoder.announce(bytes, paths, out_bytes)
            }
            (NextHop::V6 { .. }, Some(identifier)) => {
                let paths = routes.clone().map(|prefix| Identified { identifier, prefix });
                encoder.announce_mp(bytes, next_hop, paths, out_bytes)
            }
        };
        out.messages += *sent.as_ref().unwrap_or(&0) as u64;
        sent.is_ok().then_some(named)
    });
    match named {
        Some(named) => {
            if named == ExportedNextHop::Ourselves && !nobody {
                out.note_own_next_hops(start);
            }
            if let (Some(recorder), Some((hasher, _))) = (&mut out.recorder, audience.journal) {
                let hash = chain.hash.unwrap_or_else(|| hasher.hash(bytes, named));
                recorder.announced(chain.source, hash, routes);
            }
        }
        None => {
            // What cannot be said must not leave the old route standing.
            out.too_long += routes.clone().count() as u64;
            match chain.identifier {
                None => withdraw(encoder, routes, out),
                Some(identifier) => {
                    let paths = routes.map(|prefix| Identified { identifier, prefix });
                    withdraw_paths(encoder, paths, out);
                }
            }
        }
    }
    out.close(chain.member.map_or(Target::All, Target::Except));
}

/// The prefixes of a chain.
#[derive(Clone)]
struct Routes<'a, P> {
    routes: &'a [(P, u32)],
    next: u32,
}

impl<P: Copy> Iterator for Routes<'_, P> {
    type Item = P;

    fn next(&mut self) -> Option<P> {
        let (prefix, next) = *self.routes.get(self.next as usize)?;
        self.next = next;
        Some(prefix)
    }
}

fn ipv4<P: IpPrefix>(prefixes: impl Iterator<Item = P>) -> impl Iterator<Item = Ipv4Prefix> {
    prefixes.filter_map(|prefix| Ipv4Prefix::from_prefix(prefix.into()))
}

fn withdraw<P: IpPrefix>(
    encoder: UpdateEncoder,
    prefixes: impl Iterator<Item = P> + Clone,
    out: &mut Outgoing,
) {
    if let Some(recorder) = &mut out.recorder
        && prefixes.clone().next().is_some()
    {
        recorder.withdrawn(prefixes.clone());
    }
    out.messages += if P::WIDTH == 32 {
        encoder.withdraw(ipv4(prefixes), &mut out.bytes)
    } else {
        encoder.withdraw_mp(prefixes, &mut out.bytes)
    } as u64;
}

/// The same for paths under identifiers, of which there is no journal.
fn withdraw_paths<P: IpPrefix>(
    encoder: UpdateEncoder,
    paths: impl Iterator<Item = Identified<P>>,
    out: &mut Outgoing,
) {
    out.messages += if P::WIDTH == 32 {
        let path = |Identified { identifier, prefix }: Identified<P>| {
            Some(Identified { identifier, prefix: Ipv4Prefix::from_prefix(prefix.into())? })
        };
        encoder.withdraw(paths.filter_map(path), &mut out.bytes)
    } else {
        encoder.withdraw_mp(paths, &mut out.bytes)
    } as u64;
}

/// The path identifier of a source's paths: 0 is none, as some receivers take it for that.
fn identifier(source: SourceId) -> u32 {
    u32::from(source.0) + 1
}

/// Finds changes of the same prefix within a window.
#[derive(Debug)]
struct Merge<P> {
    changes: Vec<Change<P>>,
    /// Open addressing, twice the window's size: place in `changes`, plus 1.
    slots: Vec<u32>,
    hasher: FixedState,
}

impl<P: IpPrefix> Merge<P> {
    fn new(seed: u64) -> Self {
        Self { changes: Vec::new(), slots: Vec::new(), hasher: FixedState::with_seed(seed) }
    }

    fn run(
        &mut self,
        changes: impl ExactSizeIterator<Item = Change<P>>,
        only: Option<bool>,
    ) -> Vec<Change<P>> {
        let mut merged = std::mem::take(&mut self.changes);
        merged.clear();
        merged.extend(changes);
        if let Some(each) = only {
            merged.retain(|change| change.is_each() == each);
        }
        if !are_distinct(&merged) {
            self.unite(&mut merged);
        }
        merged
    }

    fn unite(&mut self, changes: &mut Vec<Change<P>>) {
        self.slots.clear();
        self.slots.resize((2 * changes.len()).next_power_of_two(), 0);
        let mut kept = 0;
        for at in 0..changes.len() {
            let change = changes[at];
            match self.find(&changes[..kept], &change) {
                Ok(place) => changes[place].new = change.new,
                Err(slot) => {
                    changes[kept] = change;
                    kept += 1;
                    self.slots[slot] = kept as u32;
                }
            }
        }
        changes.truncate(kept);
    }

    /// Where a change of the same is among those before, or else the slot to note it in.
    fn find(&self, before: &[Change<P>], change: &Change<P>) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let source = change.is_each().then_some(change.new.source);
        let mut slot = self.hasher.hash_one((change.prefix, source)) as usize & mask;
        loop {
            match self.slots[slot] {
                0 => return Err(slot),
                place if before[place as usize - 1].concerns(change) => return Ok(place as usize - 1),
                _ => slot = (slot + 1) & mask,
            }
        }
    }
}

/// Whether no prefix is there twice, as far as that can be seen at once. The second change of a prefix starts from
/// what the first led to: so there is none where all are additions, or all are deletions. Walks over the table make
/// changes in address order.
fn are_distinct<P: IpPrefix>(changes: &[Change<P>]) -> bool {
    let Some(first) = changes.first() else { return true };
    let is_like_first = |change: &Change<P>| {
        (change.old.is_some(), change.new.is_some()) == (first.old.is_some(), first.new.is_some())
    };
    first.old.is_some() != first.new.is_some() && changes.iter().all(is_like_first)
        || changes.is_sorted_by(|a, b| a.prefix < b.prefix)
}
