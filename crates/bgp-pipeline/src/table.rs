//! One family: its table, the way in past the plugged-in stages, and the room for the way out.

use std::collections::BTreeSet;

use holdfast_bgp_wire::Attributes;
use holdfast_policy::Validity;
use holdfast_types::{HashKey, IpPrefix};
use smallvec::SmallVec;

use crate::{
    PeerIndex,
    adj_rib_out::Window,
    aggregate::list::Aggregates,
    core::Core,
    loc_rib::LocRib,
    path::{Epoch, Flags, Path, SetId, SourceId},
    stage::{Occasion, RouteChange, Stages},
};

/// Prefixes whose memory is touched ahead of the work on them.
pub(crate) const AHEAD: usize = 64;
/// Below this many it is not worth it.
const FEW: usize = 8;

/// What prefixes of an UPDATE have in common.
#[derive(Copy, Clone)]
struct Arriving {
    source: SourceId,
    epoch: Epoch,
    /// As received; `None`: they are withdrawn.
    set: Option<SetId>,
    /// If it is the same for all prefixes: what import policy and the next hop make of it.
    path: Option<Path>,
}

/// A family.
#[derive(Debug)]
pub(crate) struct Table<P> {
    pub(crate) rib: LocRib<P>,
    /// Prefixes withdrawn by changes that some update group lost; they may be back.
    pub(crate) gone: BTreeSet<P>,
    /// The same of each path, for groups that are sent several, with the identifier that it was told under: a reader that
    /// has lost its place keeps no source from being buried, and another one may have the number when it withdraws.
    pub(crate) gone_paths: BTreeSet<(P, SourceId, u32)>,
    pub(crate) window: Window<P>,
    pub(crate) aggregates: Aggregates<P>,
    changes: Vec<RouteChange>,
    /// What validation says of the prefixes of an UPDATE, and those of which it says the same.
    room: (Vec<Validity>, Vec<P>),
}

impl<P: IpPrefix> Table<P> {
    pub(crate) fn new(family: usize, key: HashKey) -> Self {
        Self {
            rib: LocRib::new(family, key),
            gone: BTreeSet::new(),
            gone_paths: BTreeSet::new(),
            window: Window::new(key),
            aggregates: Aggregates::default(),
            changes: Vec::new(),
            room: Default::default(),
        }
    }

    /// All these prefixes of a source have this set now, or are withdrawn. What validation says of them is found out first,
    /// and makes a set of its own for each answer.
    pub(crate) fn arrive(
        &mut self,
        core: &mut Core,
        stages: &mut Stages,
        source: SourceId,
        prefixes: &[P],
        set: Option<SetId>,
    ) {
        let Some((set, question)) = set.and_then(|set| Some((set, core.question(source, set)?))) else {
            return self.arrive_as(core, stages, source, prefixes, set);
        };
        if let Some(rule) = core.signature_rule(set) {
            for prefix in prefixes {
                let states = question.states(question.ask((*prefix).into()));
                self.arrive_signed(core, stages, (source, *prefix), set, (rule, states));
            }
            return;
        }
        let (mut answers, mut alike) = std::mem::take(&mut self.room);
        question.ask_each(prefixes, &mut answers);
        let mut said = SmallVec::<[Validity; 3]>::new();
        for validity in &answers {
            if !said.contains(validity) {
                said.push(*validity);
            }
        }
        for validity in &said {
            let of_these = if said.len() == 1 {
                prefixes
            } else {
                let answered = prefixes.iter().zip(&answers).filter(|(_, answer)| *answer == validity);
                alike.clear();
                alike.extend(answered.map(|(prefix, _)| *prefix));
                alike.as_slice()
            };
            let set = core.validated(source, set, question.states(*validity));
            self.arrive_as(core, stages, source, of_these, set);
            set.into_iter().for_each(|set| core.sets.release(set));
        }
        self.room = (answers, alike);
    }

    /// The same with a set that says what validation says. Import policy is asked here, once for all of them unless it looks at
    /// the prefix.
    pub(crate) fn arrive_as(
        &mut self,
        core: &mut Core,
        stages: &mut Stages,
        source: SourceId,
        prefixes: &[P],
        set: Option<SetId>,
    ) {
        let epoch = core.sources.get(source).epochs[self.rib.family].current;
        self.arrive_at(core, stages, (source, epoch), prefixes, set);
    }

    /// The same of paths that were announced in this epoch.
    #[inline]
    pub(crate) fn arrive_at(
        &mut self,
        core: &mut Core,
        stages: &mut Stages,
        (source, epoch): (SourceId, Epoch),
        prefixes: &[P],
        set: Option<SetId>,
    ) {
        let Some(&first) = prefixes.first() else { return };
        let path = set.and_then(|set| {
            let effective = core.effective_for_all(first.into(), set)?;
            wait_for_next_hop(core, prefixes, effective);
            Some(core.lone(first.into(), Path::arriving(source, epoch, set, effective.is_some())))
        });
        let arriving = Arriving { source, epoch, set, path };
        for chunk in prefixes.chunks(AHEAD) {
            if chunk.len() >= FEW {
                self.rib.table.prefetch(chunk);
            }
            match core.sources.get(source).peer {
                Some(peer) if !stages.is_empty() => {
                    self.arrive_staged(core, stages, peer, chunk, arriving);
                }
                Some(_) | None => self.set(core, chunk, arriving),
            }
        }
    }

    fn arrive_staged(
        &mut self,
        core: &mut Core,
        stages: &mut Stages,
        peer: PeerIndex,
        prefixes: &[P],
        arriving: Arriving,
    ) {
        self.changes.clear();
        for (at, prefix) in prefixes.iter().enumerate() {
            let new = arriving.set.and_then(|set| core.effective((*prefix).into(), set));
            let old = if prefixes[..at].contains(prefix) {
                new
            } else {
                let path = self.rib.path_of(*prefix, arriving.source);
                core.imported((*prefix).into(), path)
            };
            self.changes.extend(RouteChange::new(core, (*prefix).into(), old, new));
        }
        let path = core.sources.get(arriving.source).place;
        let occasion = Occasion { cause: stages.cause_of_update(peer), peer, family: P::UNICAST, path };
        let attributes = arriving.set.map(|set| Attributes(core.sets.bytes(set)));
        stages.push(occasion, attributes, &mut self.changes);
        let changes = std::mem::take(&mut self.changes);
        let mut passed = changes.iter().peekable();
        for prefix in prefixes {
            let change = passed.next_if(|change| change.prefix == (*prefix).into());
            match (change, arriving.set) {
                (Some(change), Some(set)) if change.suppress => {
                    let effective = core.effective((*prefix).into(), set);
                    wait_for_next_hop(core, &[*prefix], effective);
                    let mut path = Path::arriving(arriving.source, arriving.epoch, set, effective.is_some());
                    path.flags.set(Flags::SUPPRESSED, true);
                    self.rib.put(core, &[*prefix], path);
                }
                _ => self.set(core, &[*prefix], arriving),
            }
        }
        self.changes = changes;
    }

    fn set(&mut self, core: &mut Core, prefixes: &[P], arriving: Arriving) {
        let Arriving { source, epoch, set, path } = arriving;
        match (set, path) {
            (None, _) => self.rib.remove(core, prefixes, source),
            (Some(_), Some(path)) => self.rib.put(core, prefixes, path),
            (Some(set), None) => {
                for prefix in prefixes {
                    let effective = core.effective((*prefix).into(), set);
                    wait_for_next_hop(core, &[*prefix], effective);
                    let path = Path::arriving(source, epoch, set, effective.is_some());
                    let path = core.lone((*prefix).into(), path);
                    self.rib.put(core, &[*prefix], path);
                }
            }
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.rib.memory()
            + self.window.memory()
            + (self.gone.len() + self.gone_paths.len()) * size_of::<P>() * 2
    }
}

/// If the RIB has not said where the next hop of these prefixes is, they are named for when it does. Import policy
/// makes this set of theirs, or refuses it.
#[inline]
fn wait_for_next_hop<P: IpPrefix>(core: &mut Core, prefixes: &[P], effective: Option<SetId>) {
    if let Some(hop) = effective.and_then(|set| core.unanswered(set)) {
        core.next_hops.wait(hop, prefixes.iter().map(|prefix| (*prefix).into()));
    }
}
