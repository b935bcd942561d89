//! Room for one prefix at a time.

use crate::{decision::Decision, path::Path};

/// Room for one prefix at a time.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) paths: Vec<Path>,
    pub(super) before: Vec<Path>,
    pub(super) visited: Vec<Path>,
    pub(super) decision: Decision,
    pub(super) each: Each,
}

/// The same for telling of each path.
#[derive(Debug, Default)]
pub(super) struct Each {
    pub(super) before: Vec<Path>,
    /// Each path in the place that it had, and behind them those that were not there. What is gone leaves its source.
    pub(super) after: Vec<Path>,
    /// Those that are there, in the order of their standings.
    pub(super) ordered: Vec<Path>,
    pub(super) decision: Decision,
}

impl Each {
    /// Whether anything is to be told that was not.
    pub(super) fn is_other(&self) -> bool {
        let mut is_other = false;
        self.for_each_told(|old, new| {
            is_other |= old.standing() != new.standing() || old.set != new.set;
        });
        is_other
    }

    /// What was told of each path of the prefix that was looked at last, and what is to be told now.
    pub(super) fn for_each_told(&self, mut show: impl FnMut(Path, Path)) {
        for (at, new) in self.after.iter().enumerate() {
            let old = self.before.get(at).map_or(new.absent(), |old| *old);
            if old.standing() != 0 || new.standing() != 0 {
                show(old, *new);
            }
        }
    }
}
