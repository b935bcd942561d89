//! What was repaired, for others.

use holdfast_api::fea::v1 as api;
use holdfast_fib::Repairs;

/// As `fea.v1` has it.
pub(crate) fn api(repairs: Repairs) -> api::Repairs {
    let Repairs { removed, replaced, next_hops, unseen, strays, pauses, overruns, comparisons } = repairs;
    api::Repairs { removed, replaced, next_hops, unseen, strays, pauses, overruns, comparisons }
}

/// What was counted between two times. Another backend begins at 0.
pub(crate) fn since(now: Repairs, before: Repairs) -> Repairs {
    let less = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
    Repairs {
        removed: less(now.removed, before.removed),
        replaced: less(now.replaced, before.replaced),
        next_hops: less(now.next_hops, before.next_hops),
        unseen: less(now.unseen, before.unseen),
        strays: less(now.strays, before.strays),
        pauses: less(now.pauses, before.pauses),
        overruns: less(now.overruns, before.overruns),
        comparisons: less(now.comparisons, before.comparisons),
    }
}
