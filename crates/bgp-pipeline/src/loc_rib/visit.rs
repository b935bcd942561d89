//! What a walk over the table finds: paths to sweep, to move, and to decide about again.

use holdfast_types::{IpPrefix, Prefix};

use super::update::PrefixUpdate;
use crate::{
    PeerIndex,
    path::{Flags, Path},
    stage::Cause,
};

impl<P: IpPrefix> PrefixUpdate<'_, P> {
    /// A path is swept: of a session that lives (RFC 7313 section 4), those are told who know of it.
    #[inline]
    pub(super) fn tell_swept(&mut self, prefix: Prefix, path: Path) {
        let source = self.core.sources.get(path.source);
        if source.is_alive()
            && let Some(peer) = source.peer
        {
            self.tell_swept_by(peer, prefix, path);
        }
    }

    #[cold]
    fn tell_swept_by(&mut self, peer: PeerIndex, prefix: Prefix, path: Path) {
        let place = self.core.sources.get(path.source).place;
        self.core.swept.push((peer, prefix, place));
        if let Some(stages) = self.stages.as_deref_mut().filter(|stages| !stages.is_empty()) {
            stages.push_one(self.core, (Cause::Refresh, peer), prefix, path, Path::NONE);
        }
    }

    /// Drops a path of a dead session, or that was not announced again, moves one whose import policy changed, and has the decision look at one
    /// whose next hop has changed.
    pub(super) fn visited(&mut self, prefix: Prefix, path: Path) -> Option<Path> {
        let source = self.core.sources.get(path.source);
        if source.drops(self.family, path) {
            self.tell_swept(prefix, path);
            return Some(self.gone(path));
        }
        let is_moving = source.moving >= self.core.walk;
        if is_moving && self.core.refuses(path.source, path.set) {
            self.tell_swept(prefix, path);
            return Some(self.gone(path));
        }
        if (is_moving || self.core.validating_anew)
            && let Some(moved) = self.moved(prefix, path)
        {
            return Some(moved);
        }
        self.next_hop_changed(prefix, path).then_some(path)
    }

    /// The path under its source's present import policy, and with what validation says of it now; `None` if it is that already.
    pub(super) fn moved(&mut self, prefix: Prefix, old: Path) -> Option<Path> {
        let set = self.core.reclass(prefix, old)?;
        let mut new = Path { set, ..old };
        let effective = self.core.effective(prefix, set);
        new.flags.set(Flags::ACCEPTED, effective.is_some());
        if let Some(hop) = effective.and_then(|set| self.core.unanswered(set)) {
            self.core.next_hops.wait_unnamed(hop);
        }
        if let Some(peer) = self.core.sources.get(new.source).peer
            && let Some(stages) = self.stages.as_deref_mut().filter(|stages| !stages.is_empty())
        {
            let suppress = stages.push_one(self.core, (Cause::Policy, peer), prefix, old, new);
            new.flags.set(Flags::SUPPRESSED, suppress);
        }
        self.core.sets.release(old.set);
        Some(new)
    }

    pub(super) fn next_hop_changed(&mut self, prefix: Prefix, path: Path) -> bool {
        if !self.core.next_hops_moving {
            return false;
        }
        let (walk, set) = (self.core.walk, self.core.imported(prefix, path));
        set.is_some_and(|set| self.core.next_hops.has_changed(self.core.sets.next_hop(set), walk))
    }
}
