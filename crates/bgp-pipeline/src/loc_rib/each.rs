//! The same while groups are sent several paths of a prefix: what has changed about each is told to those whom it concerns.

use holdfast_types::{IpPrefix, Prefix};

use super::{edit::Edit, scratch::Each, update::PrefixUpdate};
use crate::{
    core::Core,
    decision::Decision,
    fanout::Change,
    path::{Flags, Path, PathCounts},
};

impl<P: IpPrefix> PrefixUpdate<'_, P> {
    /// The same, or no event at all, while groups are sent several paths: all that take part are looked at again, and
    /// what has changed about each is told to those whom it concerns.
    pub(super) fn revise_each(
        &mut self,
        prefix: P,
        word: Option<u64>,
        edits: &[(P, Edit)],
        readers: PathCounts,
    ) -> Option<u64> {
        let mut room = std::mem::take(&mut self.room.each);
        room.before.clear();
        word.iter().for_each(|word| self.lists.load(*word, &mut room.before));
        room.after.clone_from(&room.before);
        // Most often a walk finds nothing, and some peers say the same again: comparing all paths is dear.
        let mut is_new = edits.is_empty() || self.core.next_hops_moving || self.core.deciding_anew;
        for (_, edit) in edits {
            is_new |= self.change(prefix, &mut room.after, *edit);
        }
        let word = if is_new { self.order(prefix, word, !edits.is_empty(), &mut room) } else { word };
        self.room.each = room;
        if !is_new {
            return word;
        }
        let log = &mut *self.log;
        let for_views = readers.has_view() && self.room.each.is_other();
        self.room.each.for_each_told(|old, new| {
            if for_views || readers.concerns(old, new) {
                log.push_each(Change::each(prefix, old, new));
            }
        });
        word
    }

    /// Finds out how the paths stand, and decides with that which is the best, unless no event asks for it.
    pub(super) fn order(
        &mut self,
        prefix: P,
        word: Option<u64>,
        decides: bool,
        room: &mut Each,
    ) -> Option<u64> {
        self.core.effort.ordered += 1;
        let Each { before, after, ordered, decision } = room;
        let most = if decides { usize::from(self.core.speaker.max_paths) } else { 1 };
        let mut shares = Vec::new();
        if most > 1 {
            decision.choose(self.core, prefix.into(), after);
            shares = decision.equal_cost(self.core, most);
        }
        let ranked = usize::from(self.mosts().ranked());
        let standings = decision.rank(self.core, prefix.into(), after);
        debug_assert!(standings.eq(&Self::ranked_by_choice(self.core, prefix.into(), after)));
        after.iter_mut().for_each(|path| path.set_standing(0));
        for (place, index) in standings.iter().enumerate() {
            after[*index].set_standing(if place < ranked { place as u8 + 1 } else { Path::BEYOND });
        }
        if decides {
            after.iter_mut().for_each(|path| *path = path.unchosen());
            standings.iter().take(1).for_each(|best| after[*best] = after[*best].chosen());
            shares.iter().for_each(|index| after[*index].flags.set(Flags::MULTIPATH, true));
            let chosen = after.iter().copied().find(|path| path.is_best()).unwrap_or(Path::NONE);
            let mut beside = std::mem::take(&mut self.room.decision);
            self.mark_backup(prefix.into(), after, chosen, &mut beside);
            self.room.decision = beside;
            ordered.clear();
            ordered.extend(standings.iter().map(|index| after[*index]));
            ordered.extend(after.iter().filter(|path| path.is_some() && path.standing() == 0));
            let best = |paths: &[Path]| paths.first().map_or(Path::NONE, |path| path.if_best());
            let (old, new) = (best(before), best(ordered));
            self.count_best(old, new);
            let others = self.has_others(before) && self.uses_others(before, ordered);
            self.announce(prefix, old, new, others);
        } else {
            ordered.clone_from(after);
        }
        match (word, ordered.first()) {
            (None, None) => None,
            _ if before == ordered => word,
            (Some(word), _) => self.lists.store(word, ordered),
            (None, Some(first)) => self.lists.store(first.alone()?, ordered),
        }
    }

    /// What [`Decision::rank`] says, by the RFC's procedure alone: each is chosen from those that are left.
    pub(super) fn ranked_by_choice(core: &mut Core, prefix: Prefix, paths: &[Path]) -> Vec<usize> {
        let (mut left, mut decision) = (paths.to_vec(), Decision::default());
        std::iter::from_fn(|| {
            let best = decision.choose(core, prefix, &left)?;
            left[best] = Path::NONE;
            Some(best)
        })
        .collect()
    }
}
