//! For whom a window is encoded, and how a route looks to them.

use holdfast_bgp_wire::nlri::Identified;
use holdfast_types::IpPrefix;

use crate::{
    PeerIndex,
    core::Core,
    export::Group,
    fanout::Change,
    hashes::Asked,
    journal::{
        AttributeHasher, Names,
        format::{OURS_AGAIN, PeerNumber},
    },
    own_next_hop::OwnNextHops,
    path::{Path, SourceId},
    peer_set::PeerSet,
    seam::StreamKey,
};

/// What is known of what was announced for a prefix before.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Before {
    /// What this export makes of the path before (or none).
    Announced(Side),
    /// The same, by the present export. They have asked for everything again: what is as it was is announced, too.
    Asked,
    /// Nobody knows: withdraw what must not be there.
    Unknown,
}

impl Before {
    /// By which policy it was announced; `None`: nobody knows.
    pub(super) fn side(self) -> Option<Side> {
        match self {
            Self::Announced(side) => Some(side),
            Self::Asked => Some(Side::Current),
            Self::Unknown => None,
        }
    }
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
pub(crate) struct Recipients<'a> {
    pub(crate) current: &'a Group,
    pub(crate) previous: &'a Group,
    /// The default route of our own that they are told of, or may have been: walks come by it.
    pub(crate) default_route: Option<Path>,
    /// What messages are encoded with.
    pub(crate) own: &'a OwnNextHops,
    pub(crate) members: &'a PeerSet,
    /// The group's position, for who looks at the seams.
    pub(crate) lane: StreamKey,
    /// Of the journal, if there is one.
    pub(crate) journal: Option<(&'a AttributeHasher, &'a Names)>,
}

impl Recipients<'_> {
    pub(crate) fn group(&self, side: Side) -> &Group {
        match side {
            Side::Current => self.current,
            Side::Previous => self.previous,
        }
    }

    /// Whether the filters of the two groups say the same of a prefix.
    pub(crate) fn agree_on<P: IpPrefix>(&self, prefix: P) -> bool {
        self.current.export.wants(prefix) == self.previous.export.wants(prefix)
    }

    /// Whether several paths of a prefix are told.
    pub(super) fn tells_each<P: IpPrefix>(&self) -> bool {
        self.current.export.paths::<P>() != 0
    }

    /// The path if it is one of those that are told; of the default prefix, the one that takes its place.
    #[inline]
    pub(crate) fn select<P: IpPrefix>(&self, side: Side, prefix: P, path: Path) -> Path {
        let export = &self.group(side).export;
        let path = match export.paths::<P>() {
            0 => path,
            most => path.within(most),
        };
        if prefix.length() == 0 { export.select_default::<P>(path) } else { path }
    }

    /// The change as it is for those who are told only some of the paths, or have a default route of our own.
    #[inline]
    pub(crate) fn select_both<P: IpPrefix>(&self, side: Side, change: Change<P>) -> Change<P> {
        let Change { prefix, old, new } = change;
        Change { prefix, old: self.select(side, prefix, old), new: self.select(side, prefix, new) }
    }

    /// Whether what is made of these paths is the same for all prefixes.
    #[inline]
    pub(super) fn holds_for_all<P: IpPrefix>(
        &self,
        core: &Core,
        (before, old): (Before, Path),
        (new, side): (Path, Side),
    ) -> bool {
        let holds = |side, path: Path| !path.is_some() || self.group(side).remembers::<P>(core, path);
        before.side().is_none_or(|side| holds(side, old)) && holds(side, new)
    }

    /// Whether hashes of what is announced are kept: they are the same for all prefixes, and as the policies say.
    pub(crate) fn keep_hashes<P: IpPrefix>(&self, core: &Core) -> bool {
        let is_watched = core.seams.are_watched();
        let has_own_next_hop = self.own.get(P::WIDTH == 32).is_some();
        // What is signed is another for each prefix.
        let signs = self.current.export.signs::<P>().is_some();
        !is_watched && has_own_next_hop && !signs && self.current.keeps_hashes::<P>()
    }

    /// Of what one is, in the place of a path.
    pub(super) fn asked<P: IpPrefix>(&self, core: &Core, path: Path) -> Option<Asked> {
        let originator = self.current.originator_of(core, path)?;
        Some(Asked {
            group: self.current.number,
            family: u8::from(P::WIDTH != 32),
            originator,
            is_imported: false,
        })
    }

    /// The lane of a path.
    pub(super) fn lane<P: IpPrefix>(&self, source: SourceId) -> StreamKey {
        match self.lane {
            StreamKey::Group(group) if self.tells_each::<P>() => StreamKey::GroupPath(group, source.0),
            lane => lane,
        }
    }

    /// Whether the path would be announced.
    pub(crate) fn passes<P: IpPrefix>(&self, core: &mut Core, prefix: P, path: Path) -> bool {
        self.current.judge(core, prefix, path).is_some()
    }

    /// Whether nobody needs to know of routes that come from the one member: not even the journal, for those that may
    /// join it.
    pub(super) fn is_alone_and_silent(&self) -> bool {
        self.members.len() == 1 && self.journal.is_none()
    }

    /// A route of a source as it is told: under the source's identifier where several paths of a prefix are, else under 0.
    pub(crate) fn route<P: IpPrefix>(&self, core: &Core, prefix: P, source: SourceId) -> Identified<P> {
        let identifier = if self.tells_each::<P>() { core.sources.get(source).identifier } else { 0 };
        Identified { identifier, prefix }
    }

    /// What the journal calls the peer that a source is; [`OURS_AGAIN`] or 0 if it is none.
    pub(super) fn source_number(&self, core: &Core, source: SourceId) -> PeerNumber {
        if self.journal.is_some() && [SourceId::REDISTRIBUTED, SourceId::AGGREGATED].contains(&source) {
            return OURS_AGAIN;
        }
        let peer = || core.sources.get(source).peer;
        self.journal.and_then(|(_, names)| Some(names.number(peer()?))).unwrap_or(0)
    }

    /// The member that the journal calls so.
    pub(super) fn named(&self, number: PeerNumber) -> Option<PeerIndex> {
        let (_, names) = self.journal.filter(|_| number != 0)?;
        names.peer(number).filter(|peer| self.members.contains(*peer))
    }

    /// The member that a source is.
    pub(super) fn member(&self, core: &Core, source: SourceId) -> Option<PeerIndex> {
        core.sources.get(source).peer.filter(|peer| self.members.contains(*peer))
    }
}
