//! The ExportPolicy stage: which best paths a group of peers is told of.

use std::{
    cell::{Ref, RefCell},
    collections::HashMap,
    rc::Rc,
};

use holdfast_bgp_wire::edit::{PathEdit, PrivateAsns};
use holdfast_policy::{Edits, Verdict};
use holdfast_types::{Asn, BgpRole, Family, IpPrefix, Prefix, RouterId};
use smallvec::{SmallVec, smallvec};

use crate::{
    NextHopRule, PeerConfig, PeerIndex, PeerKind, PrivateAsnRule, SendPaths, SessionFacts, SpeakerConfig,
    class::Policy,
    core::{Core, family_index},
    neighbor_routes::Withheld,
    orf::{Orf, PrefixFilter},
    own_next_hop::OwnNextHops,
    path::{Path, SetId, SourceId},
    rewrite,
    sets::{SetFlags, Verdict as Imported},
    summary::Summaries,
    verdicts::GroupNumber,
};

/// All that decides what a peer receives: peers for which it is equal form an update group, for which routes
/// are filtered, rewritten and encoded once. Our address as next hop may differ: it is put in afterwards.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Export {
    policy: Policy,
    pub(crate) kind: PeerKind,
    /// The receivers' AS where the policy may ask, else 0.
    receiver: Asn,
    pub(crate) families: [bool; 2],
    pub(crate) four_octet_as: bool,
    pub(crate) max_message_len: usize,
    pub(crate) extended_next_hop: bool,
    /// By family, how long our own address is as next hop; `None` without one.
    own_next_hops: [Option<u8>; 2],
    pub(crate) next_hop: NextHopRule,
    /// Its members are our clients as a route reflector.
    client: bool,
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
    /// By family, which prefixes the receivers want (RFC 5292); `None`: all.
    wanted: [Option<Rc<PrefixFilter>>; 2],
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
        let policy = policy(config.export.as_ref(), config.kind);
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
            client: paths.reflector_client,
            transparent: paths.transparent && external,
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
            wanted: orf.each_ref().map(|orf| orf.as_ref().and_then(|orf| orf.filter())),
        };
        // Also without an address of our own to announce: the peer waits for End-of-RIB.
        for index in facts.families.iter().filter_map(|family| family_index(*family)) {
            export.families[index] = orf[index].as_ref().is_none_or(|orf| orf.is_open());
        }
        export
    }

    /// The same for receivers with four-octet AS numbers: what a route is when it is shown.
    pub(crate) fn with_four_octet_as(self) -> Self {
        Self { four_octet_as: true, ..self }
    }

    /// How many paths of a prefix are told, as in `paths`.
    pub(crate) fn paths<P: IpPrefix>(&self) -> u8 {
        self.paths[usize::from(P::WIDTH != 32)]
    }

    /// Whether all paths of a prefix have to be looked at, in a family, to say what is told of it.
    pub(crate) fn reads_each(&self, family: usize) -> bool {
        self.paths[family] != 0 || self.viewer.is_some()
    }

    /// What of a path of the default prefix is told of, if it is selected.
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

    /// Whether the receivers want a prefix.
    #[inline]
    pub(crate) fn wants<P: IpPrefix>(&self, prefix: P) -> bool {
        self.wanted[usize::from(P::WIDTH != 32)].as_ref().is_none_or(|filter| filter.permits(prefix))
    }

    /// Whether we have an address to announce ourselves as next hop with.
    pub(crate) fn has_own_next_hop(&self, ipv4: bool) -> bool {
        self.own_next_hops[usize::from(!ipv4)].is_some()
    }

    /// Why a set with these flags does not go there, whatever policy says.
    fn keeps(&self, flags: SetFlags) -> Option<Withheld> {
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
    fn would_loop(&self, core: &Core, set: SetId) -> bool {
        self.viewer.is_some_and(|viewer| core.sets.attributes(set).as_path().contains(viewer.asn))
    }

    /// RFC 9234 section 5, egress procedure 1: what goes there is for customers only from then on.
    pub(crate) fn only_to_customer(&self) -> Option<Asn> {
        let downwards = matches!(self.role, Some(BgpRole::Provider | BgpRole::RsServer | BgpRole::Peer));
        downwards.then_some(self.known_as)
    }

    /// What this makes of a set after import policy; the changes are left in `edits`. The next hop is not looked at.
    fn accepts(&self, core: &Core, prefix: Prefix, set: SetId, edits: &mut Edits) -> bool {
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

/// Peers for which the [`Export`] is equal, and what it has made of sets so far.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) export: Export,
    pub(crate) number: GroupNumber,
    outcomes: RefCell<Outcomes>,
}

/// A route that a group is told of: the set to start from, and what is changed in it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Judged {
    pub(crate) set: SetId,
    pub(crate) outcome: Outcome,
    /// It is reflected (RFC 4456); who brought it into our AS if nobody has said so yet.
    pub(crate) originator: Option<RouterId>,
}

impl Group {
    pub(crate) fn new(export: Export, number: GroupNumber) -> Self {
        Self { export, number, outcomes: RefCell::default() }
    }

    /// Leaves of all paths of a prefix those that are told, if export policy lets them pass: the best, or several, or those
    /// of a view.
    pub(crate) fn select<P: IpPrefix>(&self, core: &mut Core, prefix: P, paths: &mut Vec<Path>) {
        if !self.export.families[usize::from(P::WIDTH != 32)] {
            return paths.clear();
        }
        match (self.export.viewer, self.export.paths::<P>()) {
            (Some(_), _) => self.choose(core, prefix, paths),
            (None, 0) => paths.retain(|path| path.is_best()),
            (None, most) => paths.retain(|path| path.within(most).is_some()),
        }
    }

    /// Whether the path is announced to this group, and how.
    #[inline]
    pub(crate) fn judge<P: IpPrefix>(&self, core: &mut Core, prefix: P, path: Path) -> Option<Judged> {
        if path.is_some() { self.judge_path(core, prefix, path) } else { None }
    }

    fn judge_path<P: IpPrefix>(&self, core: &mut Core, prefix: P, path: Path) -> Option<Judged> {
        if !self.export.wants(prefix) {
            return None;
        }
        if path.source == SourceId::DEFAULT {
            return self.judge_default::<P>(core, path);
        }
        if self.is_summarised(core, prefix.into(), path) {
            return None;
        }
        let originator = match self.export.kind {
            PeerKind::Ibgp => self.originator(core, path)?,
            PeerKind::Ebgp | PeerKind::ConfedEbgp => None,
        };
        match core.sets.exported.get(path.set, self.number) {
            Some(REFUSED) => None,
            Some(UNCHANGED) if self.export.has_own_next_hop(P::WIDTH == 32) => {
                let set = core.sets.accepted(path.set)?;
                Some(Judged { set, outcome: Outcome(UNCHANGED.into()), originator })
            }
            answer => self.judge_closely(core, prefix, (path.set, originator), answer),
        }
    }

    /// The default route of ours is told by the peer's own configuration: policy is not asked.
    fn judge_default<P: IpPrefix>(&self, core: &mut Core, path: Path) -> Option<Judged> {
        let set = core.effective(P::from_bits(0, 0).into(), path.set)?;
        let judged = Judged { set, outcome: Outcome(UNCHANGED.into()), originator: None };
        self.export.has_own_next_hop(P::WIDTH == 32).then_some(judged)
    }

    /// Whether an aggregate stands for it. Where there is a view that is for the best path to say, which alone counts: the
    /// others go with it ([`Self::choose`]).
    #[inline]
    pub(crate) fn is_summarised(&self, core: &mut Core, prefix: Prefix, path: Path) -> bool {
        let Some(summaries) = &self.export.summaries else { return false };
        let is_asked = self.export.viewer.is_none() || path.standing() == 1;
        is_asked && summaries.keep_back(core, prefix, path)
    }

    /// Of a path to internal peers: by whom it came if it is reflected. `None` if it is not for them.
    fn originator(&self, core: &Core, path: Path) -> Option<Option<RouterId>> {
        let source = core.sources.get(path.source);
        if source.kind != PeerKind::Ibgp || source.peer.is_none() {
            return Some(None);
        }
        // RFC 4456 section 6: from a client to all, from others to clients; without clients RFC 4271 section 9.2.
        (source.client || self.export.client).then(|| RouterId::new(source.router_id))
    }

    fn judge_closely<P: IpPrefix>(
        &self,
        core: &mut Core,
        prefix: P,
        (received, originator): (SetId, Option<RouterId>),
        answer: Option<u8>,
    ) -> Option<Judged> {
        let known = answer.and_then(|answer| Some((core.sets.accepted(received)?, Outcome(answer.into()))));
        let (set, outcome) = match known {
            Some(known) => known,
            None => self.ask(core, prefix.into(), received)?,
        };
        let judged = Judged { set, outcome, originator };
        let edits = self.edits(outcome);
        let next_hop = rewrite::exported_next_hop(core, &self.export, P::WIDTH == 32, judged, &edits);
        next_hop.map(|_| judged)
    }

    /// Why a path that [`Self::judge`] does not let pass is kept back.
    pub(crate) fn refusal(&self, core: &mut Core, prefix: Prefix, path: Path) -> Withheld {
        if self.export.kind == PeerKind::Ibgp && self.originator(core, path).is_none() {
            return Withheld::Internal;
        }
        let is_wanted = match prefix {
            Prefix::V4(prefix) => self.export.wants(prefix),
            Prefix::V6(prefix) => self.export.wants(prefix),
        };
        if !is_wanted {
            return Withheld::Unwanted;
        }
        if self.is_summarised(core, prefix, path) {
            return Withheld::Summarised;
        }
        let Some(set) = core.effective(prefix, path.set) else { return Withheld::NoNextHop };
        if let Some(why) = self.export.keeps(core.sets.flags(set)) {
            return why;
        }
        if self.export.would_loop(core, set) {
            return Withheld::Loop;
        }
        match &self.export.policy {
            Policy::Missing => Withheld::NoPolicy,
            Policy::AcceptAll => Withheld::NoNextHop,
            Policy::Program(program) => {
                let route = core.route(prefix, set).to(self.export.receiver);
                match program.evaluate(&route, &mut Edits::default()) {
                    Verdict::Accept => Withheld::NoNextHop,
                    Verdict::Reject(term) => Withheld::Rejected {
                        policy: program.name().to_owned(),
                        term: program.term_name(term).to_owned(),
                    },
                }
            }
        }
    }

    /// Whether what was said of a path holds for every prefix.
    pub(crate) fn remembers<P: IpPrefix>(&self, core: &Core, path: Path) -> bool {
        let summaries = self.export.summaries.as_ref();
        !summaries.is_some_and(Summaries::has_any::<P>)
            && self.export.wanted[usize::from(P::WIDTH != 32)].is_none()
            && core.sets.exported.get(path.set, self.number).is_some()
    }

    /// Asks the policies, and remembers what they say if it is the same for all prefixes.
    fn ask(&self, core: &mut Core, prefix: Prefix, received: SetId) -> Option<(SetId, Outcome)> {
        let outcomes = &mut *self.outcomes.borrow_mut();
        let judged = core.effective(prefix, received).and_then(|set| {
            let accepted = self.export.accepts(core, prefix, set, &mut outcomes.edits);
            accepted.then(|| (set, outcomes.number()))
        });
        if !self.export.policy.reads_prefix() && core.sets.verdict(received) != Imported::PerRoute {
            let answer = judged.map_or(Some(REFUSED), |(_, outcome)| outcome.to_keep());
            answer.into_iter().for_each(|answer| core.sets.exported.put(received, self.number, answer));
        }
        judged
    }

    /// What an outcome changes.
    pub(crate) fn edits(&self, outcome: Outcome) -> Ref<'_, Edits> {
        Ref::map(self.outcomes.borrow(), |outcomes| &outcomes.known[outcome.0 as usize])
    }

    /// How many outcomes are kept.
    #[cfg(test)]
    pub(crate) fn outcomes(&self) -> usize {
        self.outcomes.borrow().known.len()
    }

    /// Forgets the outcomes of the window before that will not be met again by their number.
    pub(crate) fn begin_window(&self) {
        self.outcomes.borrow_mut().begin_window();
    }
}

/// The answer of a policy that does not let a set pass; all others are outcomes.
const REFUSED: u8 = u8::MAX;

/// The answer of a policy that lets a set pass as it is: its first outcome.
const UNCHANGED: u8 = 0;

/// What a policy changes in routes that it lets pass, by number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome(u32);

impl Outcome {
    /// As an answer that can be kept beside a set.
    fn to_keep(self) -> Option<u8> {
        u8::try_from(self.0).ok().filter(|answer| *answer != REFUSED)
    }
}

/// The outcomes of one policy: few, but where it removes some of the values that a route has got, many.
#[derive(Debug)]
struct Outcomes {
    /// The first changes nothing.
    known: Vec<Edits>,
    numbers: HashMap<Edits, u32>,
    /// Room for one evaluation.
    edits: Edits,
}

impl Default for Outcomes {
    fn default() -> Self {
        Self { known: vec![Edits::default()], numbers: HashMap::new(), edits: Edits::default() }
    }
}

impl Outcomes {
    /// The number of what was found out last.
    fn number(&mut self) -> Outcome {
        if self.edits.is_empty() {
            return Outcome(UNCHANGED.into());
        }
        if let Some(number) = self.numbers.get(&self.edits) {
            return Outcome(*number);
        }
        let number = self.known.len() as u32;
        self.known.push(self.edits.clone());
        self.numbers.insert(self.edits.clone(), number);
        Outcome(number)
    }

    fn begin_window(&mut self) {
        while self.known.len() > usize::from(REFUSED) {
            self.known.pop().iter().for_each(|edits| {
                self.numbers.remove(edits);
            });
        }
    }
}

/// RFC 8212 section 2: without a policy nothing passes to or from another AS.
pub(crate) fn policy(program: Option<&holdfast_policy::Program>, kind: PeerKind) -> Policy {
    match (program, kind) {
        (Some(program), _) => Policy::Program(program.clone()),
        (None, PeerKind::Ebgp) => Policy::Missing,
        (None, PeerKind::Ibgp | PeerKind::ConfedEbgp) => Policy::AcceptAll,
    }
}

/// Our AS as the peer knows it, and the numbers that go in front of paths to it.
fn own_asns(config: &PeerConfig, speaker: &SpeakerConfig) -> (Asn, SmallVec<[Asn; 2]>) {
    let real = speaker.outer_asn();
    match (config.kind, config.paths.local_asn) {
        (PeerKind::Ibgp, _) => (speaker.asn, SmallVec::new()),
        // RFC 5065 section 4: inside the confederation each member goes by its own.
        (PeerKind::ConfedEbgp, _) => (speaker.asn, smallvec![speaker.asn]),
        (PeerKind::Ebgp, local) if config.paths.transparent => {
            (local.map_or(real, |local| local.asn), SmallVec::new())
        }
        (PeerKind::Ebgp, None) => (real, smallvec![real]),
        (PeerKind::Ebgp, Some(local)) if local.with_real => (local.asn, smallvec![local.asn, real]),
        (PeerKind::Ebgp, Some(local)) => (local.asn, smallvec![local.asn]),
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
        private: match config.paths.private_asns {
            PrivateAsnRule::Keep => PrivateAsns::Keep,
            PrivateAsnRule::Remove => PrivateAsns::Remove(except),
            PrivateAsnRule::Replace => PrivateAsns::Replace(except, ours),
        },
        replace: config.paths.as_override.then_some((config.asn, ours)),
    }
}
