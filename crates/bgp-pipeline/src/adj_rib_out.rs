//! The AdjRibOut stage: a window of changes becomes messages for one update group.
//!
//! Nothing is stored of what was announced: a change names the old path too, and whether that one was
//! announced is found out again. Changes of one prefix in a window are merged, keeping the first `old`;
//! prefixes announced with the same attributes share messages.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use holdfast_bgp_wire::{UpdateEncoder, encode};
use holdfast_policy::Edits;
use holdfast_types::{IpPrefix, Ipv4Prefix};

use crate::{
    PeerIndex,
    core::Core,
    export::Export,
    fanout::Change,
    path::{Path, SetId, SourceId},
    rewrite,
    seam::{Lane, Old, RouteNumber, Seam},
    sets::Verdict,
};

/// Whom some bytes are for. A route is not sent back to the peer it came from.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Target {
    All,
    Except(PeerIndex),
    Only(PeerIndex),
}

impl Target {
    pub(crate) fn includes(self, peer: PeerIndex) -> bool {
        match self {
            Self::All => true,
            Self::Except(other) => other != peer,
            Self::Only(other) => other == peer,
        }
    }
}

/// Messages, in runs for the same targets.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    /// Where each run ends.
    pub(crate) runs: Vec<(usize, Target)>,
    /// Routes whose attributes fit no message of the session.
    pub(crate) too_long: u64,
}

impl Outgoing {
    pub(crate) fn end_of_rib<P: IpPrefix>(&mut self) {
        encode::end_of_rib(P::UNICAST, &mut self.bytes);
        self.close(Target::All);
    }

    /// Ends a run; joins it to the last if that has the same target.
    fn close(&mut self, target: Target) {
        let end = self.bytes.len();
        match self.runs.last_mut() {
            Some((last, same)) if *same == target => *last = end,
            Some((last, _)) if *last == end => {}
            _ if end == 0 => {}
            _ => self.runs.push((end, target)),
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
    pub(crate) current: &'a Export,
    pub(crate) previous: &'a Export,
    pub(crate) members: &'a [PeerIndex],
    /// The group's position, for who looks at the seams.
    pub(crate) lane: Lane,
}

impl Audience<'_> {
    fn export(&self, side: Side) -> &Export {
        match side {
            Side::Current => self.current,
            Side::Previous => self.previous,
        }
    }

    /// A best path comes out of the fanout for these.
    pub(crate) fn read<P: IpPrefix>(&self, core: &Core, prefix: P, before: Before, new: Path) {
        if core.seams.are_watched() {
            let old = match before {
                Before::Path(old, _) => Old::Is(RouteNumber::of(old)),
                Before::Unknown => Old::Unknown,
            };
            core.seams.pass(Seam::FanoutToExport, self.lane, prefix, old, RouteNumber::of(new));
        }
    }

    /// The member that a source is.
    fn member(&self, core: &Core, source: SourceId) -> Option<PeerIndex> {
        core.sources.get(source).peer.filter(|peer| self.members.contains(peer))
    }
}

/// How many prefixes are announced, counted on the way.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Counting starts again from nothing.
    pub(crate) restarted: bool,
    /// Change of what the group is told.
    pub(crate) announced: i64,
    /// Change of what single members are not told, being the sources.
    pub(crate) withheld: Vec<(PeerIndex, i64)>,
}

impl Tally {
    fn withhold(&mut self, peer: PeerIndex, by: i64) {
        match self.withheld.iter_mut().find(|(other, _)| *other == peer) {
            Some((_, count)) => *count += by,
            None => self.withheld.push((peer, by)),
        }
    }
}

/// Routes of one window with the same attributes from the same source.
#[derive(Debug)]
struct Chain {
    source: SourceId,
    /// The source as a member of the group, which is not told of its own routes.
    member: Option<PeerIndex>,
    side: Side,
    /// After import policy; `None` if export policy refuses it.
    set: Option<SetId>,
    edits: Option<Box<Edits>>,
    /// First and last of its routes; `END` when it has none.
    first: u32,
    last: u32,
    /// Another chain of the same received set.
    next: u32,
}

impl Chain {
    fn number(&self) -> Option<RouteNumber> {
        self.set.map(|set| RouteNumber::new(self.source, set))
    }
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
    /// Announced prefixes, each with the place of the next in its chain.
    routes: Vec<(P, u32)>,
    withdrawn: Vec<P>,
    withdrawn_from: Vec<(Target, P)>,
    edits: Edits,
    attributes: Vec<u8>,
    scratch: Vec<u8>,
    pub(crate) tally: Tally,
}

impl<P: IpPrefix> Window<P> {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            merge: Merge::new(seed),
            chains: Vec::new(),
            routes: Vec::new(),
            withdrawn: Vec::new(),
            withdrawn_from: Vec::new(),
            edits: Edits::default(),
            attributes: Vec::new(),
            scratch: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Starts a window; what the one before left is dropped.
    pub(crate) fn begin(&mut self, core: &Core, marks: &mut Marks) {
        marks.begin(core.sets.numbers());
        self.chains.clear();
        self.routes.clear();
        self.withdrawn.clear();
        self.withdrawn_from.clear();
        (self.tally.restarted, self.tally.announced) = (false, 0);
        self.tally.withheld.clear();
    }

    /// The changes with one for each prefix, without those that lead back to where they started.
    pub(crate) fn merge(&mut self, changes: impl ExactSizeIterator<Item = Change<P>>) -> Vec<Change<P>> {
        let mut merged = self.merge.run(changes);
        merged.retain(|change| !change.old.same_route(change.new));
        merged
    }

    /// One change for each prefix, from the first `old` to the last `new`.
    pub(crate) fn latest(&mut self, changes: impl ExactSizeIterator<Item = Change<P>>) -> Vec<Change<P>> {
        self.merge.run(changes)
    }

    /// Gives a merged list back, for its memory.
    pub(crate) fn recycle(&mut self, changes: Vec<Change<P>>) {
        self.merge.changes = changes;
    }

    /// One prefix: before and now.
    pub(crate) fn add(
        &mut self,
        core: &mut Core,
        marks: &mut Marks,
        audience: &Audience<'_>,
        prefix: P,
        before: Before,
        (new, side): (Path, Side),
    ) {
        let chain = self.chain(core, marks, audience, prefix, new, side);
        let old_chain = match before {
            Before::Path(old, old_side) => self.chain(core, marks, audience, prefix, old, old_side),
            Before::Unknown => None,
        };
        if core.seams.are_watched() {
            let number = |chain: u32| self.chains[chain as usize].number();
            let old = match before {
                Before::Path(..) => Old::Is(old_chain.and_then(number)),
                Before::Unknown => Old::Unknown,
            };
            core.seams.pass(Seam::ExportToAdjRibOut, audience.lane, prefix, old, chain.and_then(number));
        }
        let was_announced = old_chain.is_some();
        let old_member = old_chain.and_then(|chain| self.chains[chain as usize].member);
        self.tally.announced -= i64::from(was_announced);
        if let Some(peer) = old_member {
            self.tally.withhold(peer, -1);
        }
        let Some(chain) = chain else {
            match (before, old_member) {
                (Before::Unknown, _) => self.withdrawn.push(prefix),
                (Before::Path(..), Some(_)) if audience.members.len() == 1 => {}
                (Before::Path(..), Some(peer)) => self.withdrawn_from.push((Target::Except(peer), prefix)),
                (Before::Path(..), None) if was_announced => self.withdrawn.push(prefix),
                (Before::Path(..), None) => {}
            }
            return;
        };
        self.tally.announced += 1;
        self.append(chain, prefix);
        if let Some(peer) = self.chains[chain as usize].member {
            self.tally.withhold(peer, 1);
            let had_it = was_announced && old_member != Some(peer);
            if had_it || matches!(before, Before::Unknown) {
                self.withdrawn_from.push((Target::Only(peer), prefix));
            }
        }
    }

    /// A prefix that nobody may have any more, whatever was announced; not counted.
    pub(crate) fn withdraw(&mut self, core: &Core, audience: &Audience<'_>, prefix: P) {
        for seam in [Seam::FanoutToExport, Seam::ExportToAdjRibOut] {
            core.seams.pass(seam, audience.lane, prefix, Old::Unknown, None);
        }
        self.withdrawn.push(prefix);
    }

    /// Whether the path would be announced.
    pub(crate) fn passes(
        &mut self,
        core: &mut Core,
        marks: &mut Marks,
        audience: &Audience<'_>,
        prefix: P,
        path: Path,
    ) -> bool {
        self.chain(core, marks, audience, prefix, path, Side::Current).is_some()
    }

    /// The chain that the path belongs to; `None` if it is not announced.
    fn chain(
        &mut self,
        core: &mut Core,
        marks: &mut Marks,
        audience: &Audience<'_>,
        prefix: P,
        path: Path,
        side: Side,
    ) -> Option<u32> {
        if !path.is_some() {
            return None;
        }
        let export = audience.export(side);
        let head = marks.chain(path.set);
        let fixed = !export.reads_prefix() && core.sets.verdict(path.set) != Verdict::PerRoute;
        if fixed
            && let Some(found) = self.find(*head, |chain| (chain.source, chain.side) == (path.source, side))
        {
            return self.chains[found as usize].set.map(|_| found);
        }
        let mut edits = std::mem::take(&mut self.edits);
        let set = export.passes(core, prefix.into(), path, &mut edits);
        let wanted = (!edits.is_empty()).then_some(&edits);
        let found = self.find(*head, |chain| {
            (chain.source, chain.side, chain.set) == (path.source, side, set)
                && chain.edits.as_deref() == wanted
        });
        let found = found.unwrap_or_else(|| {
            let edits = wanted.map(|edits| Box::new(edits.clone()));
            let (source, member) = (path.source, audience.member(core, path.source));
            let chain = Chain { source, member, side, set, edits, first: END, last: END, next: *head };
            self.chains.push(chain);
            *head = self.chains.len() as u32 - 1;
            *head
        });
        self.edits = edits;
        set.map(|_| found)
    }

    fn find(&self, mut at: u32, same: impl Fn(&Chain) -> bool) -> Option<u32> {
        while let Some(chain) = self.chains.get(at as usize) {
            if same(chain) {
                return Some(at);
            }
            at = chain.next;
        }
        None
    }

    fn append(&mut self, chain: u32, prefix: P) {
        let place = self.routes.len() as u32;
        self.routes.push((prefix, END));
        let chain = &mut self.chains[chain as usize];
        match self.routes.get_mut(chain.last as usize) {
            Some((_, next)) => *next = place,
            None => chain.first = place,
        }
        chain.last = place;
    }

    /// Encodes the window: withdrawals first, then each chain.
    pub(crate) fn encode(&mut self, core: &Core, audience: &Audience<'_>, out: &mut Outgoing) {
        let encoder = UpdateEncoder::new(audience.current.max_message_len);
        withdraw(encoder, self.withdrawn.iter().copied(), out);
        out.close(Target::All);
        self.withdrawn_from.sort_unstable();
        for part in self.withdrawn_from.chunk_by(|a, b| a.0 == b.0) {
            withdraw(encoder, part.iter().map(|(_, prefix)| *prefix), out);
            out.close(part[0].0);
        }
        for at in 0..self.chains.len() {
            if self.chains[at].first != END {
                self.announce(core, audience, encoder, at, out);
            }
        }
    }

    fn announce(
        &mut self,
        core: &Core,
        audience: &Audience<'_>,
        encoder: UpdateEncoder,
        at: usize,
        out: &mut Outgoing,
    ) {
        let chain = &self.chains[at];
        let Some(set) = chain.set else { return };
        let member = chain.member;
        if member.is_some() && audience.members.len() == 1 {
            return;
        }
        let (export, edits) = (audience.export(chain.side), chain.edits.as_deref());
        let routes = Routes { routes: &self.routes, next: chain.first };
        let sent =
            rewrite::exported_next_hop(core, export, P::WIDTH == 32, set, edits).is_some_and(|next_hop| {
                self.attributes.clear();
                rewrite::export(core, export, set, edits, next_hop, &mut self.scratch, &mut self.attributes);
                let sent = if matches!(next_hop, holdfast_bgp_wire::NextHop::V4(_)) {
                    encoder.announce(&self.attributes, ipv4(routes.clone()), &mut out.bytes)
                } else {
                    encoder.announce_mp(&self.attributes, next_hop, routes.clone(), &mut out.bytes)
                };
                sent.is_ok()
            });
        if !sent {
            // What cannot be said must not leave the old route standing.
            out.too_long += routes.clone().count() as u64;
            withdraw(encoder, routes, out);
        }
        out.close(member.map_or(Target::All, Target::Except));
    }

    pub(crate) fn memory(&self) -> usize {
        self.routes.capacity() * size_of::<(P, u32)>()
            + self.chains.capacity() * size_of::<Chain>()
            + self.merge.changes.capacity() * size_of::<Change<P>>()
    }
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

fn withdraw<P: IpPrefix>(encoder: UpdateEncoder, prefixes: impl Iterator<Item = P>, out: &mut Outgoing) {
    if P::WIDTH == 32 {
        encoder.withdraw(ipv4(prefixes), &mut out.bytes);
    } else {
        encoder.withdraw_mp(prefixes, &mut out.bytes);
    }
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

    fn run(&mut self, changes: impl ExactSizeIterator<Item = Change<P>>) -> Vec<Change<P>> {
        let mut merged = std::mem::take(&mut self.changes);
        merged.clear();
        if changes.len() < 2 {
            merged.extend(changes);
        } else {
            self.slots.clear();
            self.slots.resize((2 * changes.len()).next_power_of_two(), 0);
            changes.for_each(|change| self.insert(&mut merged, change));
        }
        merged
    }

    fn insert(&mut self, merged: &mut Vec<Change<P>>, change: Change<P>) {
        let mask = self.slots.len() - 1;
        let mut at = self.hasher.hash_one(change.prefix) as usize & mask;
        loop {
            match self.slots[at] {
                0 => {
                    merged.push(change);
                    self.slots[at] = merged.len() as u32;
                    return;
                }
                place if merged[place as usize - 1].prefix == change.prefix => {
                    merged[place as usize - 1].new = change.new;
                    return;
                }
                _ => at = (at + 1) & mask,
            }
        }
    }
}
