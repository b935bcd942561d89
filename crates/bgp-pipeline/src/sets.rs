//! The interner of attribute sets: canonical bytes, stored once, named by a number.
//!
//! A set is its class, its next hop and its bytes as `bgp_wire::update::check` makes them. Beside the bytes
//! lies what the decision and the export filters ask of every route, so that the bytes are read again only
//! on ties and when a route is announced.
//!
//! Path records count as users. A set without users stays until every reader of the change log has passed
//! the changes that may name it ([`AttributeSets::collect`]).

mod births;

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, Hasher},
};

use holdfast_bgp_wire::{
    as_path::{AsPath, Segment},
    attribute::{Attribute, code},
    attributes::{Attributes, community},
    edit::validation_state,
};
use holdfast_policy::Edits;
use holdfast_prefix_table::{Handle, Pool};
use holdfast_types::{Asn, BgpRole, HashKey, RouterId};

use self::births::Births;
use crate::{
    PeerIndex,
    by_set::BySet,
    class::{Class, ClassId, Classes, Ingress},
    hashes::Hashes,
    index::{Index, Indexed},
    next_hop::{NextHopId, NextHops},
    path::SetId,
    rewriter::Receiver,
    route_verdicts::RouteVerdicts,
    slab::Slab,
    verdicts::Verdicts,
};

/// What is found out about a set once.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct SetFlags(u16);

impl SetFlags {
    /// Our AS is in the path (RFC 4271 section 9.1.2).
    pub(crate) const AS_LOOP: Self = Self(1);
    /// We are the originator or in the cluster list (RFC 4456 section 8).
    pub(crate) const REFLECTION_LOOP: Self = Self(2);
    /// The path does not begin with the sender's AS.
    pub(crate) const WRONG_FIRST_AS: Self = Self(4);
    /// Told to us by somebody who must not (RFC 9234 section 5).
    pub(crate) const ROUTE_LEAK: Self = Self(512);
    /// Any of the four: the path takes no part in the decision.
    pub(crate) const INVALID: Self = Self(7 | 512);
    /// Not to leave our AS or confederation.
    pub(crate) const NO_EXPORT: Self = Self(8);
    /// Not to leave our AS, though it may be a member of a confederation.
    pub(crate) const NO_EXPORT_SUBCONFED: Self = Self(1024);
    /// Not to be told to anyone.
    pub(crate) const NO_ADVERTISE: Self = Self(16);
    /// It has been reflected (RFC 4456): the decision asks by whom.
    pub(crate) const REFLECTED: Self = Self(128);
    /// Without users, in the queue of [`AttributeSets::collect`].
    const IDLE: Self = Self(32);
    /// Was used again and dropped again since it was put there.
    const AGAIN: Self = Self(64);
    /// Import policy gave it a weight: its class says which.
    pub(crate) const WEIGHTED: Self = Self(256);

    /// It has ONLY_TO_CUSTOMER (RFC 9234).
    pub(crate) const ONLY_TO_CUSTOMER: Self = Self(2048);
    /// What counts of it is not what was received, whatever policy says: see [`Ingress`](crate::class::Ingress).
    pub(crate) const AMENDED: Self = Self(4096);
    /// Packets are to be dropped (RFC 7999).
    pub(crate) const BLACKHOLE: Self = Self(8192);

    /// Any that keeps a route from other ASes.
    pub(crate) const STAYS_INSIDE: Self =
        Self::NO_ADVERTISE.and(Self::NO_EXPORT).and(Self::NO_EXPORT_SUBCONFED);

    /// These and others.
    pub(crate) const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
    /// It is about to go (RFC 8326): no policy makes more of it.
    pub(crate) const GRACEFUL_SHUTDOWN: Self = Self(1 << 15);
    /// The last resort (RFC 9494 section 4.3).
    pub(crate) const LLGR_STALE: Self = Self(1 << 14);

    /// Whether any of these is set.
    pub(crate) fn has(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    fn set(&mut self, flag: Self, on: bool) {
        self.0 = if on { self.0 | flag.0 } else { self.0 & !flag.0 };
    }

    /// Obeys the well-known communities; whether GRACEFUL_SHUTDOWN is among them.
    fn add_communities(&mut self, values: &[[u8; 4]], blackhole: bool) -> bool {
        let mut graceful_shutdown = false;
        for value in values {
            match u32::from_be_bytes(*value) {
                community::NO_ADVERTISE => self.set(Self::NO_ADVERTISE, true),
                community::NO_EXPORT => self.set(Self::NO_EXPORT, true),
                community::NO_EXPORT_SUBCONFED => self.set(Self::NO_EXPORT_SUBCONFED, true),
                community::GRACEFUL_SHUTDOWN => graceful_shutdown = true,
                community::BLACKHOLE if blackhole => {
                    self.set(Self::BLACKHOLE, true);
                    self.set(Self::AMENDED, true);
                }
                community::LLGR_STALE => self.set(Self::LLGR_STALE, true),
                _ => {}
            }
        }
        graceful_shutdown
    }

    /// What ORIGINATOR_ID or CLUSTER_LIST says.
    fn add_reflection(&mut self, value: &[u8], ourselves: u32) {
        let loops = value.as_chunks().0.contains(&ourselves.to_be_bytes());
        self.set(Self::REFLECTION_LOOP, loops || self.has(Self::REFLECTION_LOOP));
        self.set(Self::REFLECTED, true);
    }
}

/// What import policy makes of a set.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nobody asked yet.
    Unknown,
    /// It does not pass.
    Rejected,
    /// It passes and becomes this set, often itself.
    Accepted(SetId),
    /// The policy looks at more than the set: ask it for each route.
    PerRoute,
}

/// How good a set is before ties: higher wins (RFC 4271 sections 9.1.1, 9.1.2.2 a and b).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Preference {
    /// LOCAL_PREF, or the configured default.
    pub(crate) local_pref: u32,
    /// Shorter paths first, then lower ORIGIN.
    rank: u16,
}

impl Preference {
    /// More fit into no message: 65,535 octets.
    const MAX_HOPS: u16 = (1 << 14) - 1;

    fn new(local_pref: u32, hops: usize, origin: u8) -> Self {
        let hops = u16::try_from(hops).map_or(Self::MAX_HOPS, |hops| hops.min(Self::MAX_HOPS));
        let rank = (Self::MAX_HOPS - hops) << 2 | u16::from(3 - origin.min(3));
        Self { local_pref, rank }
    }

    /// The greater, the better.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.local_pref) << 16 | u64::from(self.rank)
    }

    /// The part that counts the AS path.
    pub(crate) fn path_rank(self) -> u16 {
        self.rank >> 2
    }
}

/// Who brought a set first: it is counted as kept for this one as long as anybody uses it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner(u16);

impl Owner {
    /// Sets of our own routes, and those that nobody is charged for.
    pub(crate) const OURS: Self = Self(u16::MAX);

    /// `None`: [`Self::OURS`].
    pub(crate) fn of(peer: Option<PeerIndex>) -> Self {
        peer.map_or(Self::OURS, |peer| Self(peer.0))
    }
}

/// What the sets take which a peer brought first.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Kept {
    pub(crate) sets: u64,
    /// Of their attributes.
    pub(crate) attributes: u64,
}

impl Kept {
    /// Octets of all that is stored for them.
    pub(crate) fn octets(self) -> u64 {
        self.attributes + self.sets * RECORD_OCTETS
    }
}

/// 32 octets.
#[derive(Debug)]
struct Record {
    /// The [`Preference`], in its parts.
    local_pref: u32,
    rank: u16,
    length: u16,
    bytes: Handle,
    users: u32,
    next_hop: NextHopId,
    /// [`Verdict`] in one word: 0 unknown, `u32::MAX` rejected, one less per route.
    verdict: u32,
    class: ClassId,
    flags: SetFlags,
    owner: Owner,
}

/// What a set takes beside its attributes: its record, and its place in the index.
const RECORD_OCTETS: u64 = size_of::<Record>() as u64 + 12;

const REJECTED: u32 = u32::MAX;
const PER_ROUTE: u32 = u32::MAX - 1;

/// Room kept in the queue of idle sets when it is empty.
const IDLE_ROOM: usize = 1 << 12;

/// Positions in the change logs of all families.
pub(crate) type Stamp = [u64; 2];

/// Whether we are in the path (RFC 4271 section 9.1.2, RFC 5065 section 4) more often than that is allowed.
fn loops(path: AsPath<'_>, identity: Identity, ingress: &Ingress) -> bool {
    let allowed = ingress.allow_own_asn;
    let too_often =
        |asn| path.contains(asn) && (allowed == 0 || path.occurrences(asn) > usize::from(allowed));
    let member = || {
        let confed = path.segments().filter(|segment| segment.kind.is_confed());
        confed.flat_map(Segment::asns).filter(|asn| *asn == identity.asn).count() > usize::from(allowed)
    };
    let ours = match identity.confederation {
        // A member's number says nothing outside of the confederation's segments.
        Some(confederation) => member() || too_often(confederation),
        None => too_often(identity.asn),
    };
    ours || ingress.local_asn.is_some_and(too_often)
}

impl Ingress {
    /// RFC 9234 section 5, ingress procedure 1 and 2.
    fn is_leak(&self, only_to_customer: Option<Asn>, peer: Asn) -> bool {
        match self.role {
            Some(BgpRole::Provider | BgpRole::RsServer) => only_to_customer.is_some(),
            Some(BgpRole::Peer) => only_to_customer.is_some_and(|asn| asn != peer),
            Some(BgpRole::Customer | BgpRole::RsClient) | None => false,
        }
    }

    /// RFC 9234 section 5, ingress procedure 3: what such a neighbour tells is for our customers only.
    pub(crate) fn marks_only_to_customer(&self) -> bool {
        matches!(self.role, Some(BgpRole::Customer | BgpRole::RsClient | BgpRole::Peer))
    }
}

/// Who we are, as far as sets depend on it.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) asn: Asn,
    pub(crate) router_id: RouterId,
    pub(crate) cluster_id: u32,
    /// That of our confederation, if there is one.
    pub(crate) confederation: Option<Asn>,
    pub(crate) local_pref: u32,
}

/// Who is offered a set behind the decision.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Asker {
    Rib,
    Receiver(Receiver),
}

/// Of so many it is remembered what was made of a set for them. What is beyond is asked again.
const MOST_ASKERS: usize = 256;

/// A set that is not there: what it is beside its bytes, and the hash of both.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Absent {
    pub(crate) class: ClassId,
    pub(crate) next_hop: NextHopId,
    hash: u32,
}

/// All sets in use.
#[derive(Debug)]
pub(crate) struct AttributeSets {
    identity: Identity,
    /// Number 0 is no set.
    records: Slab<Record>,
    index: Index<SetId>,
    key: HashKey,
    pool: Pool,
    /// Lost their last user since the last stamp.
    dropped: Vec<SetId>,
    idle: VecDeque<(SetId, Stamp)>,
    /// What policies that are asked for each route have made of sets: few, as a policy has few outcomes.
    variants: BySet<HashMap<Edits, SetId, HashKey>>,
    /// What stages behind the decision have made of sets ([`Core::before_export`](crate::core::Core::before_export)).
    offered: BySet<HashMap<Asker, Option<SetId>, HashKey>>,
    /// What export policies say of the sets.
    pub(crate) exported: Verdicts,
    /// The same of sets after an import policy that looks at prefixes: one that does not is asked once all the same.
    pub(crate) exported_after: Verdicts,
    /// What they are hashed to where they are announced, while that is asked.
    pub(crate) hashes: Hashes,
    /// What the sets of each peer take.
    kept: Vec<Kept>,
    births: Births,
    /// What was said of routes with sets of which the verdict is [`Verdict::PerRoute`].
    pub(crate) of_routes: RouteVerdicts,
}

impl AttributeSets {
    pub(crate) fn new(identity: Identity, key: HashKey) -> Self {
        let none = Record {
            local_pref: 0,
            rank: 0,
            bytes: Handle::from_bits(0),
            users: 1,
            next_hop: NextHopId::LOCAL,
            verdict: REJECTED,
            length: 0,
            class: ClassId::OURS,
            flags: SetFlags(0),
            owner: Owner::OURS,
        };
        let mut records = Slab::new();
        records.add(none);
        Self {
            identity,
            records,
            index: Index::new(),
            key,
            pool: Pool::new(),
            dropped: Vec::new(),
            idle: VecDeque::new(),
            variants: BySet::default(),
            offered: BySet::default(),
            exported: Verdicts::default(),
            exported_after: Verdicts::default(),
            hashes: Hashes::default(),
            kept: Vec::new(),
            births: Births::default(),
            of_routes: RouteVerdicts::default(),
        }
    }

    /// The set with these bytes if it is known, with one more user; else what [`Self::add`] wants.
    pub(crate) fn find(
        &mut self,
        class: ClassId,
        next_hop: NextHopId,
        bytes: &[u8],
    ) -> Result<SetId, Absent> {
        let absent = Absent { class, next_hop, hash: self.hash(class, next_hop, bytes) };
        let found = self.look_for(absent, bytes).ok_or(absent)?;
        self.retain(found, 1);
        Ok(found)
    }

    /// The same for the attributes and the next hop of a set that is there.
    pub(crate) fn find_in(&mut self, class: ClassId, like: SetId) -> Result<SetId, Absent> {
        let (next_hop, bytes) = (self.next_hop(like), self.bytes(like));
        let absent = Absent { class, next_hop, hash: self.hash(class, next_hop, bytes) };
        let found = self.look_for(absent, bytes).ok_or(absent)?;
        self.retain(found, 1);
        Ok(found)
    }

    #[inline(always)]
    fn look_for(&self, Absent { class, next_hop, hash }: Absent, bytes: &[u8]) -> Option<SetId> {
        self.index.find(hash, |set| {
            let record = self.records.get(set.0);
            (record.class, record.next_hop) == (class, next_hop) && self.bytes(set) == bytes
        })
    }

    /// Of the bytes, by the key; class and next hop, which are numbers of ours, only set apart those with the same bytes.
    #[inline]
    fn hash(&self, class: ClassId, next_hop: NextHopId, bytes: &[u8]) -> u32 {
        let mut hasher = self.key.build_hasher();
        hasher.write(bytes);
        let apart = u32::from(class.0).wrapping_mul(0x9e37_79b1) ^ next_hop.0.wrapping_mul(0x85eb_ca6b);
        hasher.finish() as u32 ^ apart
    }

    /// The set with these canonical bytes, with one more user; `owner` brought it if it is new. `None` when the pool holds all
    /// it can address (16 GiB of attributes), or for over 65,535 octets, which no message could carry.
    pub(crate) fn acquire(
        &mut self,
        owner: Owner,
        class: ClassId,
        next_hop: NextHopId,
        bytes: &[u8],
        classes: &mut Classes,
        next_hops: &mut NextHops,
    ) -> Option<SetId> {
        match self.find(class, next_hop, bytes) {
            Ok(set) => Some(set),
            Err(absent) => self.add(owner, absent, bytes, classes, next_hops),
        }
    }

    /// Stores a set that was just looked for, with one user. `None` as for [`Self::acquire`].
    pub(crate) fn add(
        &mut self,
        owner: Owner,
        absent: Absent,
        bytes: &[u8],
        classes: &mut Classes,
        next_hops: &mut NextHops,
    ) -> Option<SetId> {
        let merits = self.describe(classes.get(absent.class), bytes);
        self.store(owner, absent, bytes, merits, classes, next_hops)
    }

    /// The same with these attributes of another set, whose class says the same of all that is found out about a set.
    pub(crate) fn add_like(
        &mut self,
        other: SetId,
        absent: Absent,
        bytes: &[u8],
        classes: &mut Classes,
        next_hops: &mut NextHops,
    ) -> Option<SetId> {
        let (preference, mut flags) = self.merits(other);
        flags.set(SetFlags::IDLE.and(SetFlags::AGAIN), false);
        self.store(self.owner(other), absent, bytes, (preference, flags), classes, next_hops)
    }

    #[inline(always)]
    fn store(
        &mut self,
        owner: Owner,
        Absent { class, next_hop, hash }: Absent,
        bytes: &[u8],
        (Preference { local_pref, rank }, flags): (Preference, SetFlags),
        classes: &mut Classes,
        next_hops: &mut NextHops,
    ) -> Option<SetId> {
        let length = u16::try_from(bytes.len()).ok()?;
        let record = Record {
            local_pref,
            rank,
            bytes: self.pool.try_store(bytes)?,
            users: 1,
            next_hop,
            verdict: 0,
            length,
            class,
            flags,
            owner,
        };
        if let Some(kept) = self.kept_by(owner) {
            kept.sets += 1;
            kept.attributes += u64::from(length);
        }
        classes.retain(class);
        next_hops.retain(next_hop);
        let set = SetId(self.records.add(record));
        self.index.insert(Indexed { hash, number: set });
        self.births.note(set);
        self.of_routes.born(set);
        Some(set)
    }

    /// Begins, or ends, to note which numbers are given to new sets.
    pub(crate) fn watch_births(&mut self, are_watched: bool) {
        self.births.watch(are_watched);
    }

    /// Numbers given to new sets since this was last asked; `None`: there were too many.
    pub(crate) fn take_births(&mut self) -> Option<std::vec::Drain<'_, SetId>> {
        self.births.take()
    }

    /// That of all hashes.
    pub(crate) fn key(&self) -> HashKey {
        self.key
    }

    fn describe(&self, class: &Class, bytes: &[u8]) -> (Preference, SetFlags) {
        let (identity, ingress) = (self.identity, &class.ingress);
        let (mut flags, mut local_pref, mut origin) = (SetFlags(0), identity.local_pref, 2);
        let mut path = AsPath::default();
        let (mut only_to_customer, mut graceful_shutdown, mut is_signed) = (None, false, false);
        for Attribute { code, value, .. } in Attributes(bytes).iter() {
            match code {
                code::ORIGIN => origin = value.first().map_or(2, |origin| *origin),
                code::AS_PATH => path = AsPath::new(value),
                code::LOCAL_PREF => local_pref = number(value).unwrap_or(local_pref),
                code::COMMUNITIES => {
                    graceful_shutdown = flags.add_communities(value.as_chunks().0, ingress.blackhole);
                }
                code::ORIGINATOR_ID => flags.add_reflection(value, identity.router_id.bits()),
                code::CLUSTER_LIST => flags.add_reflection(value, identity.cluster_id),
                code::BGPSEC_PATH => is_signed = !value.is_empty(),
                code::ONLY_TO_CUSTOMER => only_to_customer = number(value).map(Asn),
                // RFC 8097 section 2: what another AS says of validity is dropped.
                code::EXTENDED_COMMUNITIES if ingress.external => {
                    let states = |value: &[u8; 8]| validation_state(*value).is_some();
                    flags.set(
                        SetFlags::AMENDED,
                        flags.has(SetFlags::AMENDED) || value.as_chunks().0.iter().any(states),
                    );
                }
                _ => {}
            }
        }
        if let Some(preferred) = class.preferred(local_pref) {
            local_pref = preferred;
            flags.set(SetFlags::AMENDED, true);
        }
        // RFC 8326 section 4.2: from another AS, or for the whole session.
        if ingress.graceful_shutdown || graceful_shutdown && ingress.external {
            local_pref = 0;
            flags.set(SetFlags::AMENDED.and(SetFlags::GRACEFUL_SHUTDOWN), true);
        }
        flags.set(SetFlags::AS_LOOP, loops(path, identity, ingress));
        flags.set(SetFlags::WEIGHTED, class.weight != 0);
        // Who may leave itself out of a signed path has signed it (RFC 8205 section 5.2, check 2).
        let secured = class.rules.and_then(|rules| rules.bgpsec).filter(|_| is_signed);
        let leaves_out = secured.is_some_and(|secured| secured.ingress.pcount_zero);
        let enforced = class.enforce_first_as && !leaves_out;
        flags.set(SetFlags::WRONG_FIRST_AS, enforced && path.first_as() != Some(class.peer_asn));
        flags.set(SetFlags::ONLY_TO_CUSTOMER, only_to_customer.is_some());
        flags.set(SetFlags::ROUTE_LEAK, ingress.is_leak(only_to_customer, class.peer_asn));
        let marked = ingress.marks_only_to_customer() && only_to_customer.is_none();
        flags.set(SetFlags::AMENDED, flags.has(SetFlags::AMENDED) || marked || ingress.prepend.is_some());
        (Preference::new(local_pref, path.hops(), origin), flags)
    }

    #[inline]
    pub(crate) fn bytes(&self, set: SetId) -> &[u8] {
        let record = self.records.get(set.0);
        &self.pool.bytes(record.bytes)[..usize::from(record.length)]
    }

    /// A hash of the attributes, whatever class they are in.
    pub(crate) fn fingerprint(&self, set: SetId) -> u64 {
        self.key.hash_one((self.next_hop(set), self.bytes(set)))
    }

    #[inline]
    pub(crate) fn attributes(&self, set: SetId) -> Attributes<'_> {
        Attributes(self.bytes(set))
    }

    #[inline]
    pub(crate) fn preference(&self, set: SetId) -> Preference {
        let record = self.records.get(set.0);
        Preference { local_pref: record.local_pref, rank: record.rank }
    }

    /// What the decision asks first.
    #[inline]
    pub(crate) fn merits(&self, set: SetId) -> (Preference, SetFlags) {
        let &Record { local_pref, rank, flags, .. } = self.records.get(set.0);
        (Preference { local_pref, rank }, flags)
    }

    #[inline]
    pub(crate) fn next_hop(&self, set: SetId) -> NextHopId {
        self.records.get(set.0).next_hop
    }

    #[inline]
    pub(crate) fn class(&self, set: SetId) -> ClassId {
        self.records.get(set.0).class
    }

    #[inline]
    pub(crate) fn flags(&self, set: SetId) -> SetFlags {
        self.records.get(set.0).flags
    }

    #[inline]
    pub(crate) fn verdict(&self, set: SetId) -> Verdict {
        match self.records.get(set.0).verdict {
            0 => Verdict::Unknown,
            REJECTED => Verdict::Rejected,
            PER_ROUTE => Verdict::PerRoute,
            derived => Verdict::Accepted(SetId(derived)),
        }
    }

    /// The set that import policy makes of this one, if it was asked, takes it, and looks at nothing else.
    #[inline(always)]
    pub(crate) fn accepted(&self, set: SetId) -> Option<SetId> {
        let verdict = self.records.get(set.0).verdict;
        // Unknown is 0, the other two are the greatest.
        (verdict.wrapping_sub(1) < PER_ROUTE - 1).then_some(SetId(verdict))
    }

    /// Remembers what import policy says. A derived set keeps the user it was acquired with.
    pub(crate) fn set_verdict(&mut self, set: SetId, verdict: Verdict) {
        self.records.get_mut(set.0).verdict = match verdict {
            Verdict::Unknown => 0,
            Verdict::Rejected => REJECTED,
            Verdict::PerRoute => PER_ROUTE,
            Verdict::Accepted(derived) => derived.0,
        };
    }

    /// The set that these edits have made of another; [`SetId::NONE`]: it is refused then.
    pub(crate) fn variant(&self, set: SetId, edits: &Edits) -> Option<SetId> {
        self.variants.get(set)?.get(edits).copied()
    }

    /// Remembers one, with the user it was acquired with.
    pub(crate) fn add_variant(&mut self, set: SetId, edits: Edits, derived: SetId) {
        let key = self.key;
        self.variants.get_or_insert_with(set, || HashMap::with_hasher(key)).insert(edits, derived);
    }

    /// What was made of a set for one who asks; `None`: nobody has asked.
    pub(crate) fn offered(&self, set: SetId, asker: Asker) -> Option<Option<SetId>> {
        self.offered.get(set)?.get(&asker).copied()
    }

    /// Remembers it, with the user it was acquired with if it is another set; whether there is room.
    pub(crate) fn keep_offered(&mut self, set: SetId, asker: Asker, made: Option<SetId>) -> bool {
        let key = self.key;
        let answers = self.offered.get_or_insert_with(set, || HashMap::with_hasher(key));
        let has_room = answers.len() < MOST_ASKERS;
        if has_room {
            answers.insert(asker, made);
        }
        has_room
    }

    /// A set is about to go, and what was made of it.
    #[cold]
    fn forget_offered(&mut self, set: SetId) {
        let answers = self.offered.remove(set).into_iter().flatten();
        let made = answers.filter_map(|(_, made)| made);
        made.filter(|made| *made != set).for_each(|made| self.release(made));
    }

    /// There are so many who ask about sets.
    pub(crate) fn make_room(&mut self, asking: usize) {
        self.exported.make_room(asking);
        self.exported_after.make_room(asking);
        self.hashes.make_room(asking);
        self.of_routes.make_room(asking);
    }

    /// More users.
    #[inline]
    pub(crate) fn retain(&mut self, set: SetId, users: u32) {
        self.records.get_mut(set.0).users += users;
    }

    /// One user less.
    #[inline]
    pub(crate) fn release(&mut self, set: SetId) {
        let record = self.records.get_mut(set.0);
        record.users -= 1;
        if record.users > 0 {
            return;
        }
        if record.flags.has(SetFlags::IDLE) {
            record.flags.set(SetFlags::AGAIN, true);
        } else {
            record.flags.set(SetFlags::IDLE, true);
            self.dropped.push(set);
        }
    }

    /// Whether sets have lost their last users, so that [`Self::collect`] has something to do now or later.
    pub(crate) fn has_dropped(&self) -> bool {
        !self.dropped.is_empty() || !self.idle.is_empty()
    }

    /// Frees up to `budget` sets that nobody uses and that no reader can meet any more: those dropped
    /// before the logs stood at `passed`, where the slowest reader is. The logs stand at `now`.
    pub(crate) fn collect(
        &mut self,
        now: Stamp,
        passed: Stamp,
        budget: usize,
        classes: &mut Classes,
        next_hops: &mut NextHops,
    ) -> bool {
        self.idle.extend(self.dropped.drain(..).map(|set| (set, now)));
        for _ in 0..budget {
            match self.idle.front() {
                Some((_, stamp)) if stamp.iter().zip(passed).all(|(at, passed)| *at <= passed) => {}
                Some(_) | None => return false,
            }
            if let Some((set, _)) = self.idle.pop_front() {
                self.settle(set, now, classes, next_hops);
            }
        }
        true
    }

    fn settle(&mut self, set: SetId, now: Stamp, classes: &mut Classes, next_hops: &mut NextHops) {
        let record = self.records.get_mut(set.0);
        let again = record.flags.has(SetFlags::AGAIN);
        record.flags.set(SetFlags::AGAIN, false);
        if record.users == 0 && again {
            return self.idle.push_back((set, now));
        }
        record.flags.set(SetFlags::IDLE, false);
        if record.users == 0 {
            self.drop_set(set, classes, next_hops);
        }
    }

    fn drop_set(&mut self, set: SetId, classes: &mut Classes, next_hops: &mut NextHops) {
        match self.verdict(set) {
            Verdict::Accepted(derived) if derived != set => self.release(derived),
            Verdict::PerRoute => {
                let others = self.variants.remove(set).into_iter().flatten();
                others
                    .map(|(_, derived)| derived)
                    .filter(|other| ![set, SetId::NONE].contains(other))
                    .for_each(|other| self.release(other));
            }
            Verdict::Accepted(_) | Verdict::Rejected | Verdict::Unknown => {}
        }
        if !self.offered.is_empty() {
            self.forget_offered(set);
        }
        let record = self.records.get(set.0);
        classes.release(record.class);
        next_hops.release(record.next_hop);
        let (bytes, hash) = (record.bytes, self.hash(record.class, record.next_hop, self.bytes(set)));
        let (owner, length) = (record.owner, record.length);
        if let Some(kept) = self.kept_by(owner) {
            kept.sets -= 1;
            kept.attributes -= u64::from(length);
        }
        self.index.remove(Indexed { hash, number: set });
        self.pool.free(bytes);
        self.records.remove(set.0);
        self.exported.forget(set, self.records.numbers());
        self.exported_after.forget(set, self.records.numbers());
        self.of_routes.fit(self.records.numbers());
        self.hashes.forget(set);
        if self.idle.is_empty() && self.idle.capacity() > IDLE_ROOM {
            self.idle = VecDeque::new();
        }
    }

    fn kept_by(&mut self, owner: Owner) -> Option<&mut Kept> {
        if owner == Owner::OURS {
            return None;
        }
        let at = usize::from(owner.0);
        if self.kept.len() <= at {
            self.kept.resize(at + 1, Kept::default());
        }
        Some(&mut self.kept[at])
    }

    /// What the sets take which this one brought first.
    pub(crate) fn kept(&self, owner: Owner) -> Kept {
        self.kept.get(usize::from(owner.0)).copied().unwrap_or_default()
    }

    /// Who brought a set.
    pub(crate) fn owner(&self, set: SetId) -> Owner {
        self.records.get(set.0).owner
    }

    /// Sets that are stored, those about to go included.
    pub(crate) fn len(&self) -> usize {
        self.records.len() - 1
    }

    /// All numbers given out are below this: the size of tables indexed by set.
    pub(crate) fn numbers(&self) -> usize {
        self.records.numbers()
    }

    /// Octets held for attributes.
    pub(crate) fn octets(&self) -> usize {
        self.pool.memory()
    }

    pub(crate) fn memory(&self) -> usize {
        self.pool.memory()
            + self.records.memory()
            + self.index.memory()
            + self.idle.capacity() * size_of::<(SetId, Stamp)>()
            + self.variants.memory()
            + self.offered.memory()
            + self.exported.memory()
            + self.exported_after.memory()
            + self.of_routes.memory()
            + self.hashes.memory()
    }
}

fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}
