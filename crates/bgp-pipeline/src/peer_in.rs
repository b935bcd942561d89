//! The PeerIn stage: from the body of an UPDATE to prefixes and interned sets.
//!
//! Most UPDATEs carry attributes that are known already: one pass over the attribute headers and a hash.
//! The full check of RFC 7606 is made for the others.

use std::{collections::VecDeque, fmt, net::IpAddr};

use holdfast_bgp_wire::{
    Attributes, Fault, MpReach, MpUnreach, NextHop, Notification,
    nlri::{count, count_identified, identified, prefixes},
    update::{self, Checked, Cut, FamilySet, Mp, Rules, Sections, Verdict},
};
use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    SessionFacts,
    class::ClassId,
    core::{Core, family_index},
    next_hop::Gateway,
    path::{SetId, SourceId},
    secure_path::secure_path_value,
    sets::{Absent, Owner, SetFlags},
};

/// Why something in an UPDATE was not taken as it is.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum DropReason {
    /// The routes count as withdrawn because of an attribute (RFC 7606).
    Withdrawn(Fault),
    /// An attribute was left out, the routes stand (RFC 7606).
    Discarded(Fault),
    /// The next hop is our own address (RFC 4271 section 5.1.3).
    OwnNextHop,
    /// The next hop of MP_REACH_NLRI can be no host's.
    UnusableNextHop,
    /// The session has not agreed on this family.
    Family(Family),
    /// No room for another attribute set.
    Full,
    /// A route leak (RFC 9234 section 5).
    RouteLeak,
    /// The session has [`crate::MOST_PATHS`] paths to the prefix already.
    TooManyPaths,
    /// All sessions together have so many paths of one prefix that no room is left but for further sessions.
    NoPlace,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Withdrawn(fault) => write!(f, "treated as withdrawn: {fault}"),
            Self::Discarded(fault) => write!(f, "attribute discarded: {fault}"),
            Self::OwnNextHop => f.write_str("treated as withdrawn: the next hop is our own address"),
            Self::UnusableNextHop => f.write_str("treated as withdrawn: unusable next hop in MP_REACH_NLRI"),
            Self::Family(family) => write!(f, "ignored: {family} is not negotiated"),
            Self::Full => f.write_str("treated as withdrawn: no room for more attribute sets"),
            Self::RouteLeak => f.write_str("not used: a route leak (RFC 9234 section 5)"),
            Self::TooManyPaths => write!(f, "ignored: more than {} paths to the prefix", crate::MOST_PATHS),
            Self::NoPlace => f.write_str("ignored: no room for more paths of one prefix"),
        }
    }
}

/// One event that [`Drops`] remembers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// The first prefix concerned, if there is one that we can read.
    pub prefix: Option<Prefix>,
    /// How many are concerned: as many as the UPDATE announces in a family that we can read.
    pub routes: usize,
    /// What happened.
    pub reason: DropReason,
}

/// What was wrong in a peer's UPDATEs: counted, and the last few in detail.
#[derive(Clone, Debug, Default)]
pub struct Drops {
    counts: Vec<(DropReason, u64)>,
    total: u64,
    last: VecDeque<Dropped>,
}

impl Drops {
    /// How many of the last are kept.
    pub const LAST: usize = 16;
    /// How many reasons are told apart; others are added to the last of them.
    pub const REASONS: usize = 64;

    /// How often each reason occurred.
    pub fn counts(&self) -> &[(DropReason, u64)] {
        &self.counts
    }

    /// How often any of them did.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The last ones, oldest first.
    pub fn last(&self) -> impl DoubleEndedIterator<Item = &Dropped> + ExactSizeIterator {
        self.last.iter()
    }

    pub(crate) fn add(&mut self, reason: DropReason, concerned: Concerned) {
        let Concerned { prefix, routes } = concerned;
        self.count(reason, 1);
        self.note(Dropped { prefix, routes, reason });
    }

    /// Adds those of another peer, as if they had come after these.
    pub fn merge(&mut self, other: &Self) {
        other.counts.iter().for_each(|(reason, count)| self.count(*reason, *count));
        other.last.iter().for_each(|dropped| self.note(*dropped));
    }

    fn count(&mut self, reason: DropReason, count: u64) {
        let known = self.counts.iter().position(|(other, _)| *other == reason);
        let at = known.unwrap_or_else(|| {
            if self.counts.len() < Self::REASONS {
                self.counts.push((reason, 0));
            }
            self.counts.len() - 1
        });
        self.counts[at].1 += count;
        self.total += count;
    }

    fn note(&mut self, dropped: Dropped) {
        if self.last.len() == Self::LAST {
            self.last.pop_front();
        }
        self.last.push_back(dropped);
    }
}

/// The prefixes of which something is dropped.
#[derive(Copy, Clone, Default)]
pub(crate) struct Concerned {
    prefix: Option<Prefix>,
    routes: usize,
}

impl Concerned {
    /// Those of a list, in the families that we can read.
    fn of(family: Family, nlri: &[u8], identifiers: FamilySet) -> Self {
        match family {
            Family::IPV4_UNICAST => Self::of_list::<Ipv4Prefix>(nlri, identifiers),
            Family::IPV6_UNICAST => Self::of_list::<Ipv6Prefix>(nlri, identifiers),
            _ => Self::default(),
        }
    }

    fn of_list<P: IpPrefix>(nlri: &[u8], identifiers: FamilySet) -> Self {
        let routes = match identifiers.of(P::UNICAST) {
            false => count::<P>(nlri),
            true => count_identified::<P>(nlri),
        };
        Self { prefix: first_of_list::<P>(nlri, identifiers), routes: routes.unwrap_or(0) }
    }

    /// One route.
    pub(crate) fn one(prefix: Prefix) -> Self {
        Self { prefix: Some(prefix), routes: 1 }
    }

    fn and(self, other: Self) -> Self {
        Self { prefix: self.prefix.or(other.prefix), routes: self.routes + other.routes }
    }
}

/// The first prefix of a list, in the families that we can read.
fn first_of(family: Family, nlri: &[u8], identifiers: FamilySet) -> Option<Prefix> {
    match family {
        Family::IPV4_UNICAST => first_of_list::<Ipv4Prefix>(nlri, identifiers),
        Family::IPV6_UNICAST => first_of_list::<Ipv6Prefix>(nlri, identifiers),
        _ => None,
    }
}

fn first_of_list<P: IpPrefix>(nlri: &[u8], identifiers: FamilySet) -> Option<Prefix> {
    let first = match identifiers.of(P::UNICAST) {
        false => prefixes::<P>(nlri).next()?.ok()?,
        true => identified::<P>(nlri).next()?.ok()?.prefix,
    };
    Some(first.into())
}

/// What an UPDATE says, with one user of each set.
#[derive(Debug, Default)]
pub(crate) struct Arrival<'a> {
    /// IPv4 prefixes to withdraw.
    pub(crate) withdrawn: &'a [u8],
    /// Prefixes to withdraw in MP_UNREACH_NLRI.
    pub(crate) unreach: Option<MpUnreach<'a>>,
    /// IPv4 prefixes and their set; without one they are withdrawn.
    pub(crate) nlri: (&'a [u8], Option<SetId>),
    /// The same for MP_REACH_NLRI.
    pub(crate) reach: Option<(MpReach<'a>, Option<SetId>)>,
}

/// How far an UPDATE has been taken in: one of 64 KiB may have 30,000 prefixes, each in a part of the table of its own.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct UpdatePart {
    /// Prefixes that are taken in.
    passed: usize,
}

impl UpdatePart {
    /// Whether nothing of the UPDATE was taken in before.
    pub(crate) fn is_first(self) -> bool {
        self.passed == 0
    }
}

/// Prefixes that are taken in at once of an UPDATE that is longer than [`WHOLE`].
const PART: usize = 1024;
/// Octets of prefixes that are always taken in at once: as many as a message without RFC 8654 has.
pub(crate) const WHOLE: usize = 4096;

/// Reads UPDATEs; keeps its buffers.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    rest: Vec<u8>,
    checked: Checked,
    /// The set of `rest` that was looked for last, in vain, and the source's own class for it.
    absent: Option<(ClassId, Absent)>,
}

/// The session that an UPDATE came on.
pub(crate) struct Origin<'a> {
    pub(crate) source: SourceId,
    pub(crate) facts: &'a SessionFacts,
    pub(crate) drops: &'a mut Drops,
}

impl Reader {
    /// # Errors
    /// The UPDATE ends the session (RFC 7606 section 2).
    pub(crate) fn read<'a>(
        &mut self,
        core: &mut Core,
        sections: Sections<'a>,
        origin: &mut Origin<'_>,
    ) -> Result<Arrival<'a>, Notification> {
        let [classic, multiprotocol] = core.sources.get(origin.source).classes;
        let Some(rules) = core.classes.get(classic).rules else { return Ok(Arrival::default()) };
        let classes = [classic, multiprotocol];
        let cut = update::cut(sections.attributes, &mut self.rest);
        self.absent = None;
        // Its canonical octets have two paths.
        let is_signed = rules.bgpsec.is_some() && secure_path_value(Attributes(&self.rest)).is_some();
        let repeats = |cut: Cut<'_>| is_signed && cut.repeats(sections.nlri, &rules);
        let nlri = if cut.is_some_and(repeats) { &[] } else { sections.nlri };
        let sections = Sections { nlri, ..sections };
        if let Some(cut) = cut.filter(|_| rules.four_octet_as && !is_signed)
            && let Some(arrival) = self.read_known(core, sections, cut, &rules, classes, origin)?
        {
            return Ok(arrival);
        }
        self.read_new(core, sections, &rules, classes, origin)
    }

    /// The quick way; `None` if an attribute set is not known yet.
    fn read_known<'a>(
        &mut self,
        core: &mut Core,
        sections: Sections<'a>,
        cut: Cut<'a>,
        rules: &Rules,
        classes: [ClassId; 2],
        origin: &mut Origin<'_>,
    ) -> Result<Option<Arrival<'a>>, Notification> {
        let Mp { reach, unreach } = cut.parse(rules)?;
        // RFC 7606 section 5.2: errors in attributes of nothing end the session, so they are looked for.
        if sections.nlri.is_empty() && reach.is_none() && !self.rest.is_empty() {
            return Ok(None);
        }
        let mut find = |own, gateway, (family, nlri): (Family, &[u8])| {
            let hop = core.next_hops.find(gateway?)?;
            let first = || first_of(family, nlri, rules.identifiers);
            let class = core.class_on_arrival(own, &self.rest, first);
            let found = core.sets.find(class, hop, &self.rest);
            self.absent = found.err().map(|absent| (own, absent));
            found.ok()
        };
        let mut arrival = Arrival { withdrawn: sections.withdrawn, unreach, ..Arrival::default() };
        if !sections.nlri.is_empty() {
            let nlri = (Family::IPV4_UNICAST, sections.nlri);
            let set = find(classes[0], classic_gateway(&self.rest, origin.facts), nlri);
            arrival.nlri = (sections.nlri, set);
        }
        if let Some(reach) = reach {
            let nlri = (reach.family, reach.nlri);
            arrival.reach = Some((reach, find(classes[1], mp_gateway(reach, origin.facts), nlri)));
        }
        let nlri_unknown = !sections.nlri.is_empty() && arrival.nlri.1.is_none();
        let reach_unknown = arrival.reach.is_some_and(|(_, set)| set.is_none());
        if nlri_unknown || reach_unknown {
            arrival.release(core);
            return Ok(None);
        }
        Ok(Some(arrival))
    }

    fn read_new<'a>(
        &mut self,
        core: &mut Core,
        sections: Sections<'a>,
        rules: &Rules,
        classes: [ClassId; 2],
        origin: &mut Origin<'_>,
    ) -> Result<Arrival<'a>, Notification> {
        let has_nlri = !sections.nlri.is_empty();
        let Mp { reach, unreach } = update::check(sections.attributes, has_nlri, rules, &mut self.checked);
        let classic = || Concerned::of(Family::IPV4_UNICAST, sections.nlri, rules.identifiers);
        let mp = || {
            reach.map_or(Concerned::default(), |reach| {
                Concerned::of(reach.family, reach.nlri, rules.identifiers)
            })
        };
        for fault in &self.checked.discarded {
            origin.drops.add(DropReason::Discarded(*fault), classic().and(mp()));
        }
        let fault = match &self.checked.verdict {
            Verdict::Ok => None,
            Verdict::TreatAsWithdraw(fault) => Some(DropReason::Withdrawn(*fault)),
            Verdict::SessionReset(error) => return Err(error.clone()),
        };
        let bytes = &self.checked.canonical;
        let absent = self.absent.filter(|_| *bytes == self.rest);
        // Whatever is wrong with routes that are ignored is nobody's concern.
        let reach = reach.filter(|reach| !refused(reach.family, reach.nlri, origin.facts, origin.drops));
        let owner = Owner::of(core.sources.get(origin.source).peer);
        let mut acquire = |own,
                           gateway: &dyn Fn() -> Result<Gateway, DropReason>,
                           concerned: &dyn Fn() -> _,
                           nlri: (Family, &[u8])| {
            let acquired = match (fault, absent) {
                (Some(reason), _) => Err(reason),
                // Looked for with these bytes and the next hop of this UPDATE, which depends on the class only.
                (None, Some((of, absent))) if of == own => {
                    core.add(owner, absent, bytes).ok_or(DropReason::Full)
                }
                (None, Some(_) | None) => gateway().and_then(|gateway| {
                    let first = || first_of(nlri.0, nlri.1, rules.identifiers);
                    let class = core.class_on_arrival(own, bytes, first);
                    let hop = core.next_hops.acquire(gateway);
                    let set = core.acquire(owner, class, hop, bytes);
                    core.next_hops.release(hop);
                    set.ok_or(DropReason::Full)
                }),
            };
            acquired.map_err(|reason| origin.drops.add(reason, concerned())).ok()
        };
        let mut arrival = Arrival { withdrawn: sections.withdrawn, unreach, ..Arrival::default() };
        if has_nlri {
            let gateway = || classic_gateway(bytes, origin.facts).ok_or(DropReason::OwnNextHop);
            let nlri = (Family::IPV4_UNICAST, sections.nlri);
            arrival.nlri = (sections.nlri, acquire(classes[0], &gateway, &classic, nlri));
        }
        if let Some(reach) = reach {
            let gateway = || mp_gateway(reach, origin.facts).ok_or_else(|| no_gateway(reach, origin.facts));
            let nlri = (reach.family, reach.nlri);
            arrival.reach = Some((reach, acquire(classes[1], &gateway, &mp, nlri)));
        }
        Ok(arrival)
    }
}

impl Arrival<'_> {
    /// Stages before import have their say: what they make of a set counts as received.
    #[cold]
    pub(crate) fn rewrite(&mut self, core: &mut Core) {
        self.nlri.1 = self.nlri.1.and_then(|set| core.before_import(set));
        if let Some((_, set)) = &mut self.reach {
            *set = set.and_then(|set| core.before_import(set));
        }
    }

    /// Counts what somebody has told us who must not. The routes are kept, so that an operator sees them.
    pub(crate) fn count_leaks(&self, core: &Core, identifiers: FamilySet, drops: &mut Drops) {
        let of = |family, nlri| Concerned::of(family, nlri, identifiers);
        let nlri = self.nlri.1.map(|set| (set, of(Family::IPV4_UNICAST, self.nlri.0)));
        let reach = self.reach.and_then(|(reach, set)| Some((set?, of(reach.family, reach.nlri))));
        for (set, concerned) in nlri.into_iter().chain(reach) {
            if core.sets.flags(set).has(SetFlags::ROUTE_LEAK) {
                drops.add(DropReason::RouteLeak, concerned);
            }
        }
    }

    /// Leaves of a long UPDATE what this part has; the next one, if there is more.
    pub(crate) fn keep_part(&mut self, part: UpdatePart, identifiers: FamilySet) -> Option<UpdatePart> {
        let unreach = self.unreach.map_or(&[][..], |unreach| unreach.nlri);
        let reach = self.reach.map_or(&[][..], |(reach, _)| reach.nlri);
        let octets = [self.withdrawn, unreach, self.nlri.0, reach].map(<[u8]>::len).iter().sum::<usize>();
        if octets <= WHOLE {
            return None;
        }
        let mut window = Window { skip: part.passed, room: PART, is_more: false };
        let is_identified = |family| identifiers.of(family);
        window.cut(&mut self.withdrawn, is_identified(Family::IPV4_UNICAST));
        if let Some(unreach) = &mut self.unreach {
            window.cut(&mut unreach.nlri, is_identified(unreach.family));
        }
        window.cut(&mut self.nlri.0, is_identified(Family::IPV4_UNICAST));
        if let Some((reach, _)) = &mut self.reach {
            window.cut(&mut reach.nlri, is_identified(reach.family));
        }
        window.is_more.then_some(UpdatePart { passed: part.passed + PART })
    }

    /// Gives the sets back.
    pub(crate) fn release(&self, core: &mut Core) {
        if let Some(set) = self.nlri.1 {
            core.sets.release(set);
        }
        if let Some((_, Some(set))) = self.reach {
            core.sets.release(set);
        }
    }

    /// Takes out what belongs to families that the session has not agreed on (RFC 4760 section 8).
    pub(crate) fn retain_families(&mut self, core: &mut Core, facts: &SessionFacts, drops: &mut Drops) {
        if self.unreach.is_some_and(|unreach| refused(unreach.family, unreach.nlri, facts, drops)) {
            self.unreach = None;
        }
        if let Some((_, set)) =
            self.reach.take_if(|(reach, _)| refused(reach.family, reach.nlri, facts, drops))
        {
            set.into_iter().for_each(|set| core.sets.release(set));
        }
        let ipv4 = if self.nlri.0.is_empty() { self.withdrawn } else { self.nlri.0 };
        if !ipv4.is_empty() && refused(Family::IPV4_UNICAST, ipv4, facts, drops) {
            self.withdrawn = &[];
            let (_, set) = std::mem::take(&mut self.nlri);
            set.into_iter().for_each(|set| core.sets.release(set));
        }
    }
}

/// Some of the prefixes of several lists.
struct Window {
    skip: usize,
    room: usize,
    is_more: bool,
}

impl Window {
    /// Leaves of a list what is in the window.
    fn cut(&mut self, list: &mut &[u8], is_identified: bool) {
        let start = pass(list, is_identified, &mut self.skip);
        let end = start + pass(&list[start..], is_identified, &mut self.room);
        self.is_more |= end < list.len();
        *list = &list[start..end];
    }
}

/// The octets of so many prefixes, as far as they are there; the number becomes less by those.
fn pass(list: &[u8], is_identified: bool, count: &mut usize) -> usize {
    let (mut at, before) = (0, if is_identified { 4 } else { 0 });
    while *count > 0
        && let Some(length) = list.get(at + before)
    {
        at += before + 1 + usize::from(*length).div_ceil(8);
        *count -= 1;
    }
    at.min(list.len())
}

/// NEXT_HOP; `None` if it is ourselves, or missing.
fn classic_gateway(attributes: &[u8], facts: &SessionFacts) -> Option<Gateway> {
    let address = Attributes(attributes).next_hop()?;
    gateway(IpAddr::V4(address), facts)
}

/// The next hop of MP_REACH_NLRI; `None` if it is ourselves, or unusable. On a link the link-local address leads there
/// whatever is known of the global one beside it.
pub(crate) fn mp_gateway(reach: MpReach<'_>, facts: &SessionFacts) -> Option<Gateway> {
    let address = match reach.next_hop? {
        NextHop::V6 { link_local: Some(address), .. } if facts.interface != 0 => address.into(),
        next_hop => next_hop.address(),
    };
    gateway(address, facts)
}

/// A link-local address means nothing without its interface.
pub(crate) fn gateway(address: IpAddr, facts: &SessionFacts) -> Option<Gateway> {
    let ours = match address {
        IpAddr::V4(address) => facts.next_hop_v4 == Some(address),
        IpAddr::V6(address) => [facts.next_hop_v6, facts.link_local].contains(&Some(address)),
    };
    let interface = if is_near(address) { facts.interface } else { 0 };
    (!ours && (!is_near(address) || interface != 0)).then_some(Gateway { address, interface })
}

/// Why routes with this next hop lead nowhere.
fn no_gateway(reach: MpReach<'_>, facts: &SessionFacts) -> DropReason {
    match reach.next_hop.map(NextHop::address) {
        Some(address) if !is_near(address) || facts.interface != 0 => DropReason::OwnNextHop,
        Some(_) | None => DropReason::UnusableNextHop,
    }
}

fn is_near(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Whether routes are ignored because the session has not agreed on their family; if so, it is noted.
fn refused(family: Family, nlri: &[u8], facts: &SessionFacts, drops: &mut Drops) -> bool {
    let negotiated = facts.families.contains(&family) && family_index(family).is_some();
    if !negotiated {
        drops.add(DropReason::Family(family), Concerned::of(family, nlri, facts.identifiers_received));
    }
    !negotiated
}
