//! What decides which routes a group of peers is told, and how.

use std::{fmt, rc::Rc};

use holdfast_bgp_wire::{
    as_path::{AsPath, Segment},
    edit::{PathEdit, PrivateAsns},
};
use holdfast_policy::{Edits, Verdict};
use holdfast_types::{Asn, BgpRole, Family, IpPrefix, Prefix, RouterId};
use smallvec::{SmallVec, smallvec};

use super::outcomes::Outcome;
use crate::{
    NextHopRule, PeerConfig, PeerIndex, PeerKind, PrivateAsnRule, SendPaths, SessionFacts, SpeakerConfig,
    class::{Policy, PolicyKey},
    core::{Core, family_index},
    onward::Signing,
    orf::{Orf, PrefixFilter},
    own_next_hop::OwnNextHops,
    path::{Path, SetId, SourceId},
    rewriter::Receiver,
    sets::SetFlags,
    summary::Summaries,
};

/// All that decides what a peer receives: peers for which it is equal form an update group, for which routes
/// are filtered, rewritten and encoded once. Our address as next hop may differ: it is put in afterwards.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Export {
    pub(super) policy: Policy,
    pub(crate) kind: PeerKind,
    /// The receivers' AS where the policy may ask, else 0.
    pub(crate) receiver: Asn,
    pub(crate) families: [bool; 2],
    pub(crate) four_octet_as: bool,
    pub(crate) max_message_len: usize,
    pub(crate) extended_next_hop: bool,
    /// By family, how long our own address is as next hop; `None` without one.
    own_next_hops: [Option<u8>; 2],
    pub(crate) next_hop: NextHopRule,
    /// Its members are our clients as a route reflector.
    pub(super) client: bool,
    /// AS path, next hop and MED go out as they came.
    pub(crate) transparent: bool,
    /// Our AS as the receivers know it.
    pub(crate) known_as: Asn,
    /// Our numbers that go in front of the path, the first outermost.
    pub(crate) own_asns: SmallVec<[Asn; 2]>,
    pub(crate) path: PathEdit,
    /// What we are to the receivers (RFC 9234).
    role: Option<BgpRole>,
    /// GRACEFUL_SHUTDOWN is added (RFC 8326).
    pub(crate) graceful_shutdown: bool,
    /// They know what the last resort is (RFC 9494).
    long_lived: bool,
    /// They are told what validation says of origins (RFC 8097).
    pub(crate) announces_validity: bool,
    /// By family, how many of the best paths are told ([`Path::BEYOND`]: all), under path identifiers; 0: the best,
    /// without.
    pub(crate) paths: [u8; 2],
    /// The only receiver, if it has a view of its own: it is told of the best that this lets pass, and not whether the best
    /// of all passes.
    pub(crate) viewer: Option<Viewer>,
    /// Routes for which an aggregate stands are not told.
    pub(crate) summaries: Option<Summaries>,
    /// The set of a default route that takes the place of any in the table.
    pub(crate) default_route: Option<SetId>,
    /// Who the receivers are for stages that rewrite before export; `None` where there are none.
    pub(crate) offered: Option<Receiver>,
    /// By family, which prefixes the receivers want (RFC 5292); `None`: all.
    pub(super) wanted: [Option<Rc<PrefixFilter>>; 2],
    /// What paths are signed for where the receivers take BGPsec_PATH.
    pub(crate) signing: Option<Signing>,
}

/// Who has a view of its own.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Viewer {
    pub(crate) peer: PeerIndex,
    /// Paths with its AS are of no use to it: it would take them for loops.
    asn: Asn,
}

impl Export {
    /// Without what follows from other routes: aggregates, and a default route of our own.
    pub(crate) fn new(
        index: PeerIndex,
        config: &PeerConfig,
        facts: &SessionFacts,
        orf: &[Option<Box<Orf>>; 2],
        speaker: &SpeakerConfig,
    ) -> Self {
        let policy = Policy::of(config.export.as_ref(), config.kind);
        let (paths, external) = (&config.paths, config.kind == PeerKind::Ebgp);
        let (known_as, own_asns) = own_asns(config, speaker);
        let mut export = Self {
            receiver: if policy.reads_prefix() { config.asn } else { Asn(0) },
            policy,
            kind: config.kind,
            families: [false; 2],
            four_octet_as: facts.four_octet_as,
            max_message_len: facts.max_message_len,
            extended_next_hop: facts.extended_next_hop,
            own_next_hops: OwnNextHops::new(facts).octets(),
            next_hop: paths.next_hop,
            client: paths.route_reflector_client,
            transparent: paths.route_server_client && external,
            path: path_edit(config, speaker, known_as),
            known_as,
            own_asns,
            role: paths.role.filter(|_| external),
            graceful_shutdown: paths.graceful_shutdown && external,
            long_lived: facts.long_lived,
            announces_validity: paths.announce_validity && config.kind == PeerKind::Ibgp,
            paths: Family::ALL.map(|family| match config.send_paths {
                _ if !facts.identifiers_sent.of(family) => 0,
                SendPaths::All => Path::BEYOND,
                SendPaths::Best(most) => most.clamp(1, SendPaths::MOST_BEST),
            }),
            viewer: (paths.own_view && external).then_some(Viewer { peer: index, asn: config.asn }),
            summaries: None,
            default_route: None,
            offered: None,
            wanted: orf.each_ref().map(|orf| orf.as_ref().and_then(|orf| orf.filter())),
            signing: facts.bgpsec_sent.map(|sent| Signing {
                families: Family::ALL.map(|family| sent.families.of(family)),
                target: sent.target,
                signers: None,
            }),
        };
        // Also without an address of our own to announce: the peer waits for End-of-RIB.
        for index in facts.families.iter().filter_map(|family| family_index(*family)) {
            export.families[index] = orf[index].as_ref().is_none_or(|orf| orf.is_open());
        }
        export
    }

    /// Steps that its policy takes for one route at most; 1 or more.
    pub(crate) fn steps(&self) -> usize {
        match &self.policy {
            Policy::Program(program) => program.steps().max(1),
            Policy::AcceptAll | Policy::Missing => 1,
        }
    }

    /// Stands for its policy.
    pub(crate) fn policy_key(&self) -> PolicyKey {
        self.policy.key()
    }

    /// The same for receivers with four-octet AS numbers: what a route is when it is shown.
    pub(crate) fn with_four_octet_as(self) -> Self {
        Self { four_octet_as: true, ..self }
    }

    /// How many paths of a prefix are told, as in `paths`.
    #[inline]
    pub(crate) fn paths<P: IpPrefix>(&self) -> u8 {
        self.paths[usize::from(P::WIDTH != 32)]
    }

    /// What paths of a family are signed for; `None`: they are not.
    #[inline]
    pub(crate) fn signs<P: IpPrefix>(&self) -> Option<&Signing> {
        self.signing.as_ref().filter(|signing| signing.families[usize::from(P::WIDTH != 32)])
    }

    /// Whether a route over this path is one of ours towards the receivers: all numbers in it are private, and are removed
    /// (RFC 8205 section 7.5).
    pub(crate) fn originates_anew(&self, path: AsPath<'_>) -> bool {
        let PrivateAsns::Remove(except) = self.path.private else { return false };
        let mut asns = path.segments().flat_map(Segment::asns).peekable();
        asns.peek().is_some() && asns.all(|asn| asn.is_private() && asn != except)
    }

    /// Whether paths are signed with other keys than before.
    pub(crate) fn has_other_keys(&self, before: &Self) -> bool {
        let keys = |export: &Self| export.signing.as_ref().and_then(|signing| signing.signers.clone());
        let (before, now) = (keys(before), keys(self));
        before.is_some() && now.is_some() && before != now
    }

    /// Whether all paths of a prefix have to be looked at, in a family, to say what is told of it.
    #[inline]
    pub(crate) fn reads_each(&self, family: usize) -> bool {
        self.paths[family] != 0 || self.viewer.is_some()
    }

    /// What of a path of the default prefix is told of, if it is selected.
    #[inline]
    pub(crate) fn select_default<P: IpPrefix>(&self, path: Path) -> Path {
        match self.default_route {
            Some(set) if self.paths::<P>() == 0 || path.source == SourceId::DEFAULT => {
                Path::default_route(set)
            }
            // One of several: ours is told of besides.
            Some(_) => path.absent(),
            None if path.source == SourceId::DEFAULT => path.absent(),
            None => path,
        }
    }

    /// Whether the receivers are told the same as others, but for the prefixes that they want, and families of which they
    /// have not asked for any.
    pub(crate) fn differs_only_in_filter(&self, other: &Self) -> bool {
        Self { wanted: other.wanted.clone(), families: other.families, ..self.clone() } == *other
    }

    /// Whether they are told the same, but with signatures by other keys.
    pub(crate) fn differs_only_in_keys(&self, other: &Self) -> bool {
        let keys = |export: &Self| export.signing.as_ref().map(|signing| signing.signers.clone());
        let Some(signers) = keys(other) else { return false };
        let mut with_keys = self.clone();
        with_keys.signing.iter_mut().for_each(|signing| signing.signers.clone_from(&signers));
        with_keys == *other
    }

    /// Whether the receivers want a prefix.
    #[inline]
    pub(crate) fn wants<P: IpPrefix>(&self, prefix: P) -> bool {
        self.wanted[usize::from(P::WIDTH != 32)].as_ref().is_none_or(|filter| filter.permits(prefix))
    }

    /// Whether we have an address to announce ourselves as next hop with.
    #[inline]
    pub(crate) fn has_own_next_hop(&self, ipv4: bool) -> bool {
        self.own_next_hops[usize::from(!ipv4)].is_some()
    }

    /// Why a set with these flags does not go there, whatever policy says.
    #[inline]
    pub(super) fn keeps(&self, flags: SetFlags) -> Option<Withheld> {
        let inside = match self.kind {
            PeerKind::Ibgp => SetFlags::NO_ADVERTISE,
            PeerKind::ConfedEbgp => SetFlags::NO_ADVERTISE.and(SetFlags::NO_EXPORT_SUBCONFED),
            PeerKind::Ebgp => SetFlags::STAYS_INSIDE,
        };
        // RFC 9234 section 5, egress procedure 2.
        let upwards = matches!(self.role, Some(BgpRole::Customer | BgpRole::RsClient | BgpRole::Peer));
        match () {
            () if flags.has(inside) => Some(Withheld::Community),
            () if flags.has(SetFlags::LLGR_STALE) && !self.long_lived => Some(Withheld::Community),
            () if upwards && flags.has(SetFlags::ONLY_TO_CUSTOMER) => Some(Withheld::OnlyToCustomer),
            () => None,
        }
    }

    /// Whether a receiver with a view of its own would take a path for a loop.
    #[inline]
    pub(super) fn would_loop(&self, core: &Core, set: SetId) -> bool {
        self.viewer.is_some_and(|viewer| core.sets.attributes(set).as_path().contains(viewer.asn))
    }

    /// RFC 9234 section 5, egress procedure 1: what goes there is for customers only from then on.
    pub(crate) fn only_to_customer(&self) -> Option<Asn> {
        let downwards = matches!(self.role, Some(BgpRole::Provider | BgpRole::RsServer | BgpRole::Peer));
        downwards.then_some(self.known_as)
    }

    /// What this makes of a set after import policy; the changes are left in `edits`. The next hop is not looked at.
    #[inline]
    pub(super) fn accepts(&self, core: &Core, prefix: Prefix, set: SetId, edits: &mut Edits) -> bool {
        edits.clear();
        if self.keeps(core.sets.flags(set)).is_some() || self.would_loop(core, set) {
            return false;
        }
        match &self.policy {
            Policy::Missing => false,
            Policy::AcceptAll => true,
            Policy::Program(program) => {
                let route = core.route(prefix, set).to(self.receiver);
                program.evaluate(&route, edits) == Verdict::Accept
            }
        }
    }
}

/// Why a best route is not told to a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Withheld {
    /// It came from there.
    Sender,
    /// From one internal peer to another (RFC 4271 section 9.2), neither of them a client (RFC 4456 section 6).
    Internal,
    /// NO_ADVERTISE, NO_EXPORT towards another AS (RFC 1997), or LLGR_STALE where that is not known (RFC 9494).
    Community,
    /// It is for customers only (RFC 9234 section 5).
    OnlyToCustomer,
    /// The peer's AS is in the path, and it has a view of its own.
    Loop,
    /// The peer has said that it does not want it (RFC 5292).
    Unwanted,
    /// No export policy is configured (RFC 8212).
    NoPolicy,
    /// A term of the export policy refuses it.
    Rejected {
        /// The policy's name.
        policy: String,
        /// The term's name.
        term: String,
    },
    /// A `summary-only` aggregate stands for it.
    Summarised,
    /// The peer is told of a default route of our own.
    OwnDefault,
    /// We have no address of our own to name as next hop.
    NoNextHop,
    /// A stage refuses it.
    ByStage,
    /// Its attributes fit into no message that the peer takes.
    TooLong,
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sender => f.write_str("it came from this peer"),
            Self::Internal => f.write_str("from one internal peer to another"),
            Self::Community => f.write_str("a well-known community keeps it here"),
            Self::OnlyToCustomer => f.write_str("it is for customers only (RFC 9234)"),
            Self::Loop => f.write_str("its own AS is in the path"),
            Self::Unwanted => f.write_str("the peer's outbound route filter has it out (RFC 5292)"),
            Self::NoPolicy => f.write_str("no export policy is configured (RFC 8212)"),
            Self::Rejected { policy, term } => write!(f, "refused by policy {policy}, term {term}"),
            Self::Summarised => f.write_str("part of a summary-only aggregate"),
            Self::OwnDefault => f.write_str("the peer is told of a default route of our own"),
            Self::NoNextHop => f.write_str("no own address for the next hop"),
            Self::ByStage => f.write_str("refused by a stage"),
            Self::TooLong => f.write_str("too long for a message to this peer"),
        }
    }
}

/// A route that a group is told of: the set to start from, and what is changed in it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExportDecision {
    pub(crate) set: SetId,
    pub(crate) outcome: Outcome,
    /// It is reflected (RFC 4456); who brought it into our AS if nobody has said so yet.
    pub(crate) originator: Option<RouterId>,
}

/// Our AS as the peer knows it, and the numbers that go in front of paths to it.
fn own_asns(config: &PeerConfig, speaker: &SpeakerConfig) -> (Asn, SmallVec<[Asn; 2]>) {
    let real = speaker.outer_asn();
    match (config.kind, config.paths.local_asn) {
        (PeerKind::Ibgp, _) => (speaker.asn, SmallVec::new()),
        // RFC 5065 section 4: inside the confederation each member goes by its own.
        (PeerKind::ConfedEbgp, _) => (speaker.asn, smallvec![speaker.asn]),
        (PeerKind::Ebgp, local) if config.paths.route_server_client => {
            (local.unwrap_or(real), SmallVec::new())
        }
        (PeerKind::Ebgp, None) => (real, smallvec![real]),
        (PeerKind::Ebgp, Some(local)) if config.paths.has_real_asn() => (local, smallvec![local, real]),
        (PeerKind::Ebgp, Some(local)) => (local, smallvec![local]),
    }
}

/// What becomes of a path before those are put in front of it.
fn path_edit(config: &PeerConfig, speaker: &SpeakerConfig, ours: Asn) -> PathEdit {
    if config.kind != PeerKind::Ebgp {
        return PathEdit::default();
    }
    // Its own number lets the receiver see a loop; another would only tell groups apart.
    let except = if config.asn.is_private() { config.asn } else { Asn(0) };
    PathEdit {
        strip_confederation: speaker.confederation.is_some(),
        private: match config.paths.remove_private_asns {
            PrivateAsnRule::Keep => PrivateAsns::Keep,
            PrivateAsnRule::Remove => PrivateAsns::Remove(except),
            PrivateAsnRule::Replace => PrivateAsns::Replace(except, ours),
        },
        replace: config.paths.as_override.then_some((config.asn, ours)),
    }
}
