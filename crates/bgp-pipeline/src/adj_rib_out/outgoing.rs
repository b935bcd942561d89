//! What a window is encoded to: messages in runs, each for its target.

use holdfast_bgp_wire::{MessageType, RouteRefresh, UpdateEncoder, encode, nlri::Identified};
use holdfast_types::{IpPrefix, Ipv4Prefix};

use crate::{PeerIndex, journal::format::Recorder};

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
    /// What all of them are.
    pub(crate) kind: MessageType,
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
    pub(super) messages: u64,
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

    /// Where a refresh begins or ends (RFC 7313). The journal has nothing of it.
    pub(crate) fn refresh<P: IpPrefix>(&mut self, subtype: u8) {
        self.bytes.extend_from_slice(&RouteRefresh { family: P::UNICAST, subtype }.encode());
        let (end, items_end) = (self.bytes.len(), self.runs.last().map_or(0, |run| run.items_end));
        let kind = MessageType::RouteRefresh;
        self.runs.push(Run { target: Target::All, end, items_end, messages: 1, kind });
    }

    /// The messages from `start` on name us as next hop.
    pub(super) fn note_own_next_hops(&mut self, start: usize) {
        let places = encode::next_hops(&self.bytes[start..]).map(|at| (start + at) as u32);
        self.own_next_hops.extend(places);
    }

    /// Ends a run; joins it to the last if that has the same target and is not long.
    pub(super) fn close(&mut self, target: Target) {
        let (messages, kind) = (std::mem::take(&mut self.messages), MessageType::Update);
        let end = self.bytes.len();
        let items_end = self.recorder.as_ref().map_or(0, |recorder| recorder.items.len());
        if messages == 0 && self.runs.last().map_or(0, |run| run.items_end) == items_end {
            return;
        }
        let start = self.runs.iter().nth_back(1).map_or(0, |before| before.end);
        match self.runs.last_mut() {
            Some(run) if (run.target, run.kind) == (target, kind) && end - start <= LONG_RUN => {
                (run.end, run.items_end) = (end, items_end);
                run.messages += messages;
            }
            Some(_) | None => self.runs.push(Run { target, end, items_end, messages, kind }),
        }
    }
}

pub(super) fn ipv4<P: IpPrefix>(prefixes: impl Iterator<Item = P>) -> impl Iterator<Item = Ipv4Prefix> {
    prefixes.filter_map(|prefix| Ipv4Prefix::from_prefix(prefix.into()))
}

pub(super) fn withdraw<P: IpPrefix>(
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

/// The same for paths under identifiers.
pub(super) fn withdraw_paths<P: IpPrefix>(
    encoder: UpdateEncoder,
    paths: impl Iterator<Item = Identified<P>> + Clone,
    out: &mut Outgoing,
) {
    if let Some(recorder) = &mut out.recorder
        && paths.clone().next().is_some()
    {
        recorder.paths_withdrawn(paths.clone());
    }
    out.messages += if P::WIDTH == 32 {
        let path = |Identified { identifier, prefix }: Identified<P>| {
            Some(Identified { identifier, prefix: Ipv4Prefix::from_prefix(prefix.into())? })
        };
        encoder.withdraw(paths.filter_map(path), &mut out.bytes)
    } else {
        encoder.withdraw_mp(paths, &mut out.bytes)
    } as u64;
}
