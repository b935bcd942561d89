//! One family: its table, the way in past the plugged-in stages, and the room for the way out.

use std::collections::BTreeSet;

use holdfast_types::IpPrefix;

use crate::{
    PeerIndex,
    adj_rib_out::Window,
    core::Core,
    loc_rib::LocRib,
    path::{Flags, Path, SetId, SourceId},
    stage::{Batch, RouteChange, Stage},
};

/// Prefixes whose memory is touched ahead of the work on them.
const AHEAD: usize = 64;
/// Below this many it is not worth it.
const FEW: usize = 8;

/// What prefixes of an UPDATE have in common.
#[derive(Copy, Clone)]
struct Arriving {
    source: SourceId,
    /// As received; `None`: they are withdrawn.
    set: Option<SetId>,
    /// What import policy says; `None`: it has to be asked for each.
    accepted: Option<bool>,
}

/// A family.
#[derive(Debug)]
pub(crate) struct Table<P> {
    pub(crate) rib: LocRib<P>,
    /// Prefixes withdrawn by changes that some update group lost; they may be back.
    pub(crate) gone: BTreeSet<P>,
    pub(crate) window: Window<P>,
    changes: Vec<RouteChange>,
}

impl<P: IpPrefix> Table<P> {
    pub(crate) fn new(family: usize, seed: u64) -> Self {
        Self {
            rib: LocRib::new(family, seed),
            gone: BTreeSet::new(),
            window: Window::new(seed),
            changes: Vec::new(),
        }
    }

    /// All these prefixes of a source have this set now, or are withdrawn. Import policy is asked here, once
    /// for all of them unless it looks at the prefix.
    pub(crate) fn arrive(
        &mut self,
        core: &mut Core,
        stages: &mut [Box<dyn Stage>],
        source: SourceId,
        prefixes: &[P],
        set: Option<SetId>,
    ) {
        let Some(&first) = prefixes.first() else { return };
        let accepted = set.and_then(|set| core.accepts_for_all(first.into(), set));
        let arriving = Arriving { source, set, accepted };
        for chunk in prefixes.chunks(AHEAD) {
            if chunk.len() >= FEW {
                self.rib.table.prefetch(chunk);
            }
            match core.sources.get(source).peer {
                Some(peer) if !stages.is_empty() => {
                    self.arrive_staged(core, stages, peer, chunk, arriving);
                }
                Some(_) | None => chunk.iter().for_each(|prefix| self.set(core, *prefix, arriving, false)),
            }
        }
    }

    fn arrive_staged(
        &mut self,
        core: &mut Core,
        stages: &mut [Box<dyn Stage>],
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
        for stage in stages {
            stage.push(&mut Batch { peer, family: P::UNICAST, changes: &mut self.changes });
        }
        let changes = std::mem::take(&mut self.changes);
        let mut passed = changes.iter().peekable();
        for prefix in prefixes {
            let change = passed.next_if(|change| change.prefix == (*prefix).into());
            self.set(core, *prefix, arriving, change.is_some_and(|change| change.suppress));
        }
        self.changes = changes;
    }

    fn set(&mut self, core: &mut Core, prefix: P, arriving: Arriving, suppress: bool) {
        let Arriving { source, set, accepted } = arriving;
        let Some(set) = set else { return self.rib.remove(core, prefix, source) };
        core.sets.retain(set);
        let accepted = accepted.unwrap_or_else(|| core.effective(prefix.into(), set).is_some());
        let mut flags = Flags::default();
        flags.set(Flags::ACCEPTED, accepted);
        flags.set(Flags::SUPPRESSED, suppress);
        self.rib.put(core, prefix, Path { set, source, flags });
    }

    pub(crate) fn memory(&self) -> usize {
        self.rib.memory() + self.window.memory() + self.gone.len() * size_of::<P>() * 2
    }
}
