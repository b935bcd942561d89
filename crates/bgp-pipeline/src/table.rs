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

    /// All these prefixes of a source have this set now, or are withdrawn.
    pub(crate) fn arrive(
        &mut self,
        core: &mut Core,
        stages: &mut [Box<dyn Stage>],
        source: SourceId,
        prefixes: &[P],
        set: Option<SetId>,
    ) {
        for chunk in prefixes.chunks(AHEAD) {
            if chunk.len() >= FEW {
                self.rib.table.prefetch(chunk);
            }
            match core.sources.get(source).peer {
                Some(peer) if !stages.is_empty() => {
                    self.arrive_staged(core, stages, (peer, source), chunk, set);
                }
                Some(_) | None => chunk.iter().for_each(|prefix| self.set(core, source, *prefix, set, false)),
            }
        }
    }

    fn arrive_staged(
        &mut self,
        core: &mut Core,
        stages: &mut [Box<dyn Stage>],
        (peer, source): (PeerIndex, SourceId),
        prefixes: &[P],
        set: Option<SetId>,
    ) {
        self.changes.clear();
        for (at, prefix) in prefixes.iter().enumerate() {
            let new = set.and_then(|set| core.effective((*prefix).into(), set));
            let old = if prefixes[..at].contains(prefix) {
                new
            } else {
                let path = self.rib.path_of(*prefix, source);
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
            self.set(core, source, *prefix, set, change.is_some_and(|change| change.suppress));
        }
        self.changes = changes;
    }

    fn set(&mut self, core: &mut Core, source: SourceId, prefix: P, set: Option<SetId>, suppress: bool) {
        let Some(set) = set else { return self.rib.remove(core, prefix, source) };
        core.sets.retain(set);
        let mut flags = Flags::default();
        flags.set(Flags::SUPPRESSED, suppress);
        self.rib.put(core, prefix, Path { set, source, flags });
    }

    pub(crate) fn memory(&self) -> usize {
        self.rib.memory() + self.window.memory() + self.gone.len() * size_of::<P>() * 2
    }
}
