//! Routes of one window that share messages.

use std::ops::Range;

use holdfast_bgp_wire::{
    Attributes, NextHop, UpdateEncoder,
    attribute::code,
    encode::AttributesTooLong,
    nlri::{Identified, Nlri},
};
use holdfast_types::{IpPrefix, Ipv4Prefix};

use super::{
    outgoing::{Outgoing, Target, ipv4, withdraw, withdraw_paths},
    recipients::{Recipients, Side},
};
use crate::{
    PeerIndex,
    core::Core,
    export::rules::ExportDecision,
    journal::format::{self, PeerNumber},
    path::SetId,
    rewrite::{self, export::ExportedNextHop},
};

/// Routes of one window with the same attributes, told to the same members.
#[derive(Copy, Clone, Debug)]
pub(super) struct Chain {
    /// The source as a member of the group, which is not told of its own routes.
    pub(super) member: Option<PeerIndex>,
    /// What the journal calls the source.
    pub(super) source: PeerNumber,
    /// Under which its routes are announced; `None`: without.
    pub(super) identifier: Option<u32>,
    pub(super) side: Side,
    pub(super) judged: ExportDecision,
    /// How the set of the table came here, if its routes may be sent with signatures.
    pub(super) signable: Option<Signable>,
    /// They start in our AS and stay there: with neither AS_PATH nor BGPsec_PATH (RFC 8205 section 4.1).
    pub(super) stays_inside: bool,
    /// Of the attributes as sent, where that was asked for and they have no signatures.
    pub(super) hash: Option<u64>,
    /// First and last [`Stretch`] of its routes; `END` as long as it has none.
    pub(super) first: u32,
    pub(super) last: u32,
    /// Another chain of the same received set.
    pub(super) next: u32,
}

/// Routes that may be sent with signatures.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Signable {
    /// The set as received.
    pub(super) received: SetId,
    /// We have made them of others.
    pub(super) is_aggregate: bool,
}

pub(super) const END: u32 = u32::MAX;

/// Routes of a chain fit no message with their attributes, or there is no next hop for them: what was announced of them is
/// withdrawn.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct TooLongChain {
    /// The octets of the longest prefix that fits.
    longest: usize,
}

impl TooLongChain {
    /// The routes that do not fit, of all of the chain.
    pub(super) fn of<P: IpPrefix>(
        self,
        chain: &Chain,
        routes: impl Iterator<Item = P>,
    ) -> impl Iterator<Item = P> {
        routes.filter(move |prefix| octets(chain, *prefix) > self.longest)
    }
}

/// The prefixes of a window, those of a chain in stretches: often one, as they came in one UPDATE.
#[derive(Debug)]
pub(super) struct Announced<P> {
    prefixes: Vec<P>,
    stretches: Vec<Stretch>,
}

/// Prefixes of one chain that lie together.
#[derive(Copy, Clone, Debug)]
struct Stretch {
    start: u32,
    end: u32,
    /// The chain's next one.
    next: u32,
}

impl<P: Copy> Announced<P> {
    pub(super) fn new() -> Self {
        Self { prefixes: Vec::new(), stretches: Vec::new() }
    }

    pub(super) fn clear(&mut self) {
        self.prefixes.clear();
        self.stretches.clear();
    }

    /// Adds prefixes to a chain.
    #[inline]
    pub(super) fn extend(&mut self, chain: &mut Chain, prefixes: impl Iterator<Item = P>) {
        let start = self.prefixes.len() as u32;
        self.prefixes.extend(prefixes);
        let (end, number) = (self.prefixes.len() as u32, self.stretches.len() as u32);
        match self.stretches.get_mut(chain.last as usize) {
            Some(last) if last.end == start => return last.end = end,
            Some(last) => last.next = number,
            None => chain.first = number,
        }
        chain.last = number;
        self.stretches.push(Stretch { start, end, next: END });
    }

    /// The prefixes of a chain.
    pub(super) fn of(&self, chain: &Chain) -> Routes<'_, P> {
        Routes { announced: self, stretch: [].iter(), next: chain.first }
    }

    pub(super) fn memory(&self) -> usize {
        self.prefixes.capacity() * size_of::<P>() + self.stretches.capacity() * size_of::<Stretch>()
    }
}

/// The prefixes of a chain.
#[derive(Clone)]
pub(super) struct Routes<'a, P> {
    announced: &'a Announced<P>,
    /// What is left of a stretch, and which one follows.
    stretch: std::slice::Iter<'a, P>,
    next: u32,
}

impl<P: Copy> Iterator for Routes<'_, P> {
    type Item = P;

    #[inline]
    fn next(&mut self) -> Option<P> {
        loop {
            if let Some(prefix) = self.stretch.next() {
                return Some(*prefix);
            }
            let Stretch { start, end, next } = *self.announced.stretches.get(self.next as usize)?;
            self.stretch = self.announced.prefixes[start as usize..end as usize].iter();
            self.next = next;
        }
    }
}

/// Sets for which there is always room.
const FEW: usize = 1024;

/// For each attribute set its first chain in the present window. Shared by all groups and families: four
/// octets a set would do, but then it had to be cleared for each window.
#[derive(Debug, Default)]
pub(crate) struct SetIndex {
    marks: Vec<(u32, u32)>,
    window: u32,
}

impl SetIndex {
    pub(super) fn begin(&mut self, sets: usize) {
        if self.marks.len() < sets {
            self.marks.resize(sets, (0, 0));
        }
        self.window = self.window.wrapping_add(1);
        if self.window == 0 {
            self.marks.fill((0, 0));
            self.window = 1;
        }
    }

    /// Gives back what a burst of sets has left.
    pub(crate) fn fit(&mut self, sets: usize) {
        if self.marks.len() > 4 * sets.max(FEW) {
            self.marks.truncate(sets);
            self.marks.shrink_to_fit();
        }
    }

    #[inline]
    pub(super) fn chain(&mut self, set: SetId) -> &mut u32 {
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

/// The attributes as they are sent of what a group has judged, and with which next hop; `None` if there is no such address.
pub(super) fn attributes<P: IpPrefix>(
    core: &Core,
    recipients: &Recipients<'_>,
    (judged, side): (ExportDecision, Side),
    stays_inside: bool,
    attributes: &mut Vec<u8>,
) -> Option<(ExportedNextHop, NextHop)> {
    let found = attributes_with_path::<P>(core, recipients, (judged, side), Placed::Attribute, attributes)?;
    if stays_inside && let Some((place, [])) = as_path(attributes) {
        attributes.drain(place);
    }
    Some(found)
}

/// Where AS_PATH stands, and its value.
pub(super) fn as_path(attributes: &[u8]) -> Option<(Range<usize>, &[u8])> {
    let mut at = 0;
    for attribute in Attributes(attributes).iter() {
        let end = at + attribute.wire.len();
        if attribute.code == code::AS_PATH {
            return Some((at..end, attribute.value));
        }
        at = end;
    }
    None
}

/// Where an IPv4 next hop stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Placed {
    Attribute,
    MpReach,
}

/// The same with an AS_PATH in any case.
#[inline(always)]
pub(super) fn attributes_with_path<P: IpPrefix>(
    core: &Core,
    recipients: &Recipients<'_>,
    (judged, side): (ExportDecision, Side),
    placed: Placed,
    attributes: &mut Vec<u8>,
) -> Option<(ExportedNextHop, NextHop)> {
    let group = recipients.group(side);
    let (export, edits) = (&group.export, &*group.edits(judged.outcome));
    let named = rewrite::export::next_hop(core, export, P::WIDTH == 32, judged, edits)?;
    let next_hop = match named {
        ExportedNextHop::Ourselves => recipients.own.get(P::WIDTH == 32)?,
        ExportedNextHop::Other(next_hop) => next_hop,
    };
    let attribute = match (next_hop, placed) {
        (NextHop::V4(address), Placed::Attribute) => Some(address),
        (NextHop::V4(_), Placed::MpReach) | (NextHop::V6 { .. }, _) => None,
    };
    attributes.clear();
    rewrite::export::attributes(core, export, judged, edits, attribute, attributes);
    Some((named, next_hop))
}

/// Encodes the messages of one chain, as one of many.
#[inline(always)]
pub(super) fn encode_chain<P: IpPrefix>(
    core: &Core,
    recipients: &Recipients<'_>,
    encoder: UpdateEncoder,
    chain: &Chain,
    announced: &Announced<P>,
    bytes: &mut Vec<u8>,
    out: &mut Outgoing,
) -> Result<(), TooLongChain> {
    let nobody = chain.member.is_some() && recipients.members.len() == 1;
    if chain.first == END || nobody && recipients.journal.is_none() {
        return Ok(());
    }
    let routes = announced.of(chain);
    let start = out.bytes.len();
    let mut longest = usize::MAX;
    let named = attributes::<P>(core, recipients, (chain.judged, chain.side), chain.stays_inside, bytes)
        .and_then(|(named, next_hop)| {
            if nobody {
                return Some(named);
            }
            let to = (next_hop, chain.identifier);
            let sent = send(encoder, to, None, bytes, routes.clone(), &mut out.bytes).or_else(|too_long| {
                longest = too_long.room();
                let short = routes.clone().filter(|prefix| octets(chain, *prefix) <= longest);
                send_short(encoder, to, too_long, bytes, short, &mut out.bytes)
            });
            out.messages += *sent.as_ref().unwrap_or(&0) as u64;
            sent.is_ok().then_some(named)
        });
    let longest = if named.is_some() { longest } else { 0 };
    if let Some(named) = named {
        if named == ExportedNextHop::Ourselves && !nobody {
            out.note_own_next_hops(start);
        }
        if let (Some(recorder), Some((hasher, _))) = (&mut out.recorder, recipients.journal) {
            let hash = chain.hash.unwrap_or_else(|| hasher.hash(bytes, named));
            let told = format::Announced { hash, source: chain.source };
            let identifier = chain.identifier.unwrap_or(0);
            match longest {
                usize::MAX => recorder.announced(told, identifier, routes.clone()),
                _ => {
                    let short = routes.clone().filter(|prefix| octets(chain, *prefix) <= longest);
                    recorder.announced(told, identifier, short);
                }
            }
        }
    }
    let fits = if longest == usize::MAX { Ok(()) } else { Err(TooLongChain { longest }) };
    if fits.is_err() {
        leave_out(encoder, chain, routes.filter(|prefix| octets(chain, *prefix) > longest), out);
    }
    out.close(chain.member.map_or(Target::All, Target::Except));
    fits
}

/// Octets of a prefix in the list of a message, with the path identifier of its chain.
fn octets<P: IpPrefix>(chain: &Chain, prefix: P) -> usize {
    chain.identifier.map_or_else(|| prefix.octets(), |identifier| Identified { identifier, prefix }.octets())
}

/// Encodes routes that have the same attributes. `longest`: they have at most so many octets; `None`: any.
#[inline(always)]
fn send<P: IpPrefix>(
    encoder: UpdateEncoder,
    (next_hop, identifier): (NextHop, Option<u32>),
    longest: Option<usize>,
    attributes: &[u8],
    routes: impl Iterator<Item = P> + Clone,
    out: &mut Vec<u8>,
) -> Result<usize, AttributesTooLong> {
    match (next_hop, identifier) {
        (NextHop::V4(_), None) => {
            let longest = longest.unwrap_or(Ipv4Prefix::MAX_OCTETS);
            encoder.announce_short(longest, attributes, ipv4(routes), out)
        }
        (NextHop::V6 { .. }, None) => {
            let longest = longest.unwrap_or(P::MAX_OCTETS);
            encoder.announce_mp_short(longest, attributes, next_hop, routes, out)
        }
        (NextHop::V4(_), Some(identifier)) => {
            let longest = longest.unwrap_or(Identified::<Ipv4Prefix>::MAX_OCTETS);
            let paths = ipv4(routes).map(|prefix| Identified { identifier, prefix });
            encoder.announce_short(longest, attributes, paths, out)
        }
        (NextHop::V6 { .. }, Some(identifier)) => {
            let longest = longest.unwrap_or(Identified::<P>::MAX_OCTETS);
            let paths = routes.map(|prefix| Identified { identifier, prefix });
            encoder.announce_mp_short(longest, attributes, next_hop, paths, out)
        }
    }
}

/// The same of those routes that have room where others are too long. Fails where there are none.
#[cold]
fn send_short<P: IpPrefix>(
    encoder: UpdateEncoder,
    to: (NextHop, Option<u32>),
    too_long: AttributesTooLong,
    attributes: &[u8],
    routes: impl Iterator<Item = P> + Clone,
    out: &mut Vec<u8>,
) -> Result<usize, AttributesTooLong> {
    match routes.clone().next() {
        Some(_) => send(encoder, to, Some(too_long.room()), attributes, routes, out),
        None => Err(too_long),
    }
}

/// Withdraws routes that fit no message: what cannot be said must not leave the old route standing.
#[cold]
fn leave_out<P: IpPrefix>(
    encoder: UpdateEncoder,
    chain: &Chain,
    routes: impl Iterator<Item = P> + Clone,
    out: &mut Outgoing,
) {
    out.too_long += routes.clone().count() as u64;
    match chain.identifier {
        None => withdraw(encoder, routes, out),
        Some(identifier) => {
            withdraw_paths(encoder, routes.map(|prefix| Identified { identifier, prefix }), out);
        }
    }
}

/// The same of one alone.
#[inline(never)]
pub(super) fn encode_one_chain<P: IpPrefix>(
    core: &Core,
    recipients: &Recipients<'_>,
    encoder: UpdateEncoder,
    chain: &Chain,
    announced: &Announced<P>,
    bytes: &mut Vec<u8>,
    out: &mut Outgoing,
) -> Result<(), TooLongChain> {
    encode_chain(core, recipients, encoder, chain, announced, bytes, out)
}
