//! Session classes: what decides how received attribute bytes are to be understood.
//!
//! Equal bytes of two peers mean the same only under the same rules and the same import policy. A class
//! names such a combination, and the interner keeps sets of different classes apart. So a set's verdict
//! under import policy is a property of the set alone, and a changed policy is a new class: the walk that
//! follows moves the peer's paths from sets of the old class to sets of the new one.

use std::collections::HashMap;

use holdfast_bgp_wire::update::Rules;
use holdfast_policy::{PathSecurity, Program, ProgramId, Protocol};
use holdfast_types::{Asn, BgpRole};

use crate::PeerKind;
use crate::validity::{Demand, Rule, States};

/// What import or export policy a peer has.
#[derive(Clone, Debug)]
pub(crate) enum Policy {
    /// None is needed: iBGP without a policy, and our own routes.
    AcceptAll,
    /// eBGP without a policy (RFC 8212).
    Missing,
    /// A configured one.
    Program(Program),
}

impl Policy {
    /// RFC 8212 section 2: without a policy nothing passes to or from another AS.
    pub(crate) fn of(program: Option<&Program>, kind: PeerKind) -> Self {
        match (program, kind) {
            (Some(program), _) => Self::Program(program.clone()),
            (None, PeerKind::Ebgp) => Self::Missing,
            (None, PeerKind::Ibgp | PeerKind::ConfedEbgp) => Self::AcceptAll,
        }
    }

    pub(crate) fn reads_prefix(&self) -> bool {
        match self {
            Self::AcceptAll | Self::Missing => false,
            Self::Program(program) => program.reads_prefix(),
        }
    }

    /// The part of a policy that is equal wherever two policies are.
    pub(crate) fn key(&self) -> PolicyKey {
        match self {
            Self::AcceptAll => PolicyKey::AcceptAll,
            Self::Missing => PolicyKey::Missing,
            Self::Program(program) => PolicyKey::Program(program.id()),
        }
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

/// Stands for a policy.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum PolicyKey {
    AcceptAll,
    Missing,
    Program(ProgramId),
}

/// The number of a class.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ClassId(pub(crate) u16);

impl ClassId {
    /// Sets that no session brought: our own, and what import policy made of received ones.
    pub(crate) const OURS: Self = Self(0);
}

/// What is asked of paths, and done to them, before policy is. The default asks that our AS is not in them.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ingress {
    /// How often our AS may be in the path.
    pub(crate) allow_own_asn: u8,
    /// Another number that we have there, which is not to be in the path either.
    pub(crate) local_asn: Option<Asn>,
    /// Put in front of the path.
    pub(crate) prepend: Option<Asn>,
    /// What we are to the sender (RFC 9234).
    pub(crate) role: Option<BgpRole>,
    /// GRACEFUL_SHUTDOWN is obeyed: the sender is outside.
    pub(crate) external: bool,
    /// All routes count as marked with it.
    pub(crate) graceful_shutdown: bool,
    /// BLACKHOLE is obeyed (RFC 7999).
    pub(crate) blackhole: bool,
    /// How it is found out what is known of their origin and of the path; `None`: it is not.
    pub(crate) validation: Option<Rule>,
}

/// What is added to the LOCAL_PREF of valid routes where these are preferred.
const VALID_IS_BETTER: u32 = 10;

/// How to understand a set.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Class {
    /// Rules of the session; `None` for sets that no session brought.
    pub(crate) rules: Option<Rules>,
    /// The next hop came in MP_REACH_NLRI, so the bytes may lack NEXT_HOP.
    pub(crate) multiprotocol: bool,
    /// The sender's AS: its policy may ask.
    pub(crate) peer_asn: Asn,
    /// Whether a path must begin with that AS.
    pub(crate) enforce_first_as: bool,
    pub(crate) ingress: Ingress,
    /// Who brought it, for policies: another protocol's routes may be originated here.
    pub(crate) protocol: Protocol,
    /// The tag it carries between protocols; 0 is none.
    pub(crate) tag: u32,
    /// The weight that import policy gave it.
    pub(crate) weight: u32,
    /// Its routes are the last resort (RFC 9494 section 4.3).
    pub(crate) long_lived: bool,
    /// What validation says of its routes; `None` where nobody has asked.
    pub(crate) states: Option<States>,
    /// A stage behind the decision has made it: no path in the table has it.
    pub(crate) offered: bool,
    pub(crate) import: Policy,
}

impl Class {
    /// The LOCAL_PREF of its routes where their signatures have a part in it: `bgpsec-validation = "prefer"`.
    pub(crate) fn preferred(&self, local_pref: u32) -> Option<u32> {
        let rule = self.ingress.validation.and_then(|rule| rule.signatures)?;
        match self.states?.signatures {
            _ if rule.demand != Demand::Prefers => None,
            PathSecurity::Valid => Some(local_pref.saturating_add(VALID_IS_BETTER)),
            PathSecurity::NotValid => Some(0),
            PathSecurity::Unsigned | PathSecurity::Unverified => None,
        }
    }

    /// Whether its routes are not used, as their signatures are not known to be good.
    pub(crate) fn lacks_signatures(&self) -> bool {
        let rule = self.ingress.validation.and_then(|rule| rule.signatures);
        let state = self.states.map_or(PathSecurity::Unsigned, |states| states.signatures);
        rule.is_some_and(|rule| rule.demand == Demand::Requires) && state != PathSecurity::Valid
    }
}

/// The classes in use: a session has two, and there are as many more as import policies give tags and weights.
#[derive(Debug)]
pub(crate) struct Classes {
    slots: Vec<Slot>,
    /// Those in use but the first, by what sets most of them apart.
    numbers: HashMap<Kin, Vec<ClassId>>,
    /// Slots that nobody uses.
    free: Vec<ClassId>,
    /// How many are in use that are not of sessions.
    ours: usize,
}

/// The fields in which most classes differ: the sender, tag and weight, and the import policy.
type Kin = (Asn, u32, u32, PolicyKey);

fn kin(class: &Class) -> Kin {
    (class.peer_asn, class.tag, class.weight, class.import.key())
}

#[derive(Debug)]
struct Slot {
    class: Class,
    /// Sources and sets that name it; a slot without any is used again.
    users: u32,
    /// Classes that differ from this one in their states, those that were asked for; each with a user. Of a source's class
    /// only, so that none is another's in turn.
    variants: Vec<ClassId>,
}

impl Classes {
    pub(crate) fn new() -> Self {
        let ours = Class {
            rules: None,
            multiprotocol: true,
            peer_asn: Asn(0),
            enforce_first_as: false,
            ingress: Ingress::default(),
            protocol: Protocol::Bgp,
            tag: 0,
            weight: 0,
            long_lived: false,
            states: None,
            offered: false,
            import: Policy::AcceptAll,
        };
        Self {
            slots: vec![Slot { class: ours, users: 1, variants: Vec::new() }],
            numbers: HashMap::new(),
            free: Vec::new(),
            ours: 1,
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: ClassId) -> &Class {
        &self.slots[usize::from(id.0)].class
    }

    /// The number of a class, with one more user. `None` when all 65,536 are in use.
    pub(crate) fn acquire(&mut self, class: &Class) -> Option<ClassId> {
        self.acquire_one_of(class, usize::MAX)
    }

    /// The same where there are to be no more than so many that are not of sessions.
    pub(crate) fn acquire_one_of(&mut self, class: &Class, most: usize) -> Option<ClassId> {
        let kin = kin(class);
        let alike = self.numbers.get(&kin).into_iter().flatten();
        if let Some(&found) = alike.into_iter().find(|id| self.get(**id) == class) {
            self.retain(found);
            return Some(found);
        }
        let is_ours = class.rules.is_none();
        if is_ours && self.ours >= most {
            return None;
        }
        let slot = Slot { class: class.clone(), users: 1, variants: Vec::new() };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[usize::from(id.0)] = slot;
                id
            }
            None => {
                let id = ClassId(u16::try_from(self.slots.len()).ok()?);
                self.slots.push(slot);
                id
            }
        };
        self.ours += usize::from(is_ours);
        self.numbers.entry(kin).or_default().push(id);
        Some(id)
    }

    /// Takes all that are left.
    #[cfg(test)]
    pub(crate) fn fill(&mut self) {
        let ours = self.get(ClassId::OURS).clone();
        self.slots.resize_with(1 << 16, || Slot { class: ours.clone(), users: 1, variants: Vec::new() });
        self.free.clear();
    }

    pub(crate) fn retain(&mut self, id: ClassId) {
        self.slots[usize::from(id.0)].users += 1;
    }

    pub(crate) fn release(&mut self, id: ClassId) {
        let slot = &mut self.slots[usize::from(id.0)];
        slot.users -= 1;
        if slot.users == 0 {
            let variants = std::mem::take(&mut slot.variants);
            self.forget(id);
            variants.into_iter().for_each(|variant| self.release(variant));
        }
    }

    /// Nobody uses a class any more.
    fn forget(&mut self, id: ClassId) {
        let class = self.get(id);
        let (kin, is_ours) = (kin(class), class.rules.is_none());
        if let Some(alike) = self.numbers.get_mut(&kin) {
            alike.retain(|other| *other != id);
            if alike.is_empty() {
                self.numbers.remove(&kin);
            }
        }
        self.ours -= usize::from(is_ours);
        self.free.push(id);
    }

    /// The class of a source's sets with these states, which stays as long as the source's. When all 65,536 are in use it
    /// is the source's own: then nothing is known of the routes, which is better than to lose them.
    pub(crate) fn variant(&mut self, of: ClassId, states: States) -> ClassId {
        let Slot { class, variants, .. } = &self.slots[usize::from(of.0)];
        if class.states == Some(states) {
            return of;
        }
        let is_wanted = |variant: &&ClassId| self.get(**variant).states == Some(states);
        if let Some(found) = variants.iter().find(is_wanted) {
            return *found;
        }
        let Some(variant) = self.acquire(&Class { states: Some(states), ..class.clone() }) else { return of };
        self.slots[usize::from(of.0)].variants.push(variant);
        variant
    }
}
