//! Of which prefixes the paths have their standings.
//!
//! While somebody reads each path of a prefix, every event on a prefix puts its paths in order. What was in the table
//! before that is put in order by the first walk that comes by. All others read what is there: putting a table in order
//! once for each reader would cost the square of the members of a route server.

/// How far walks have come, all of them together.
#[derive(Debug)]
pub(super) struct InOrder<P> {
    /// So many paths have standings of their own; `None`: nobody reads each, and standings are stale.
    ranked: Option<u8>,
    /// Up to this prefix all are in order.
    to: Option<P>,
    /// All are.
    whole: bool,
}

impl<P> Default for InOrder<P> {
    fn default() -> Self {
        Self { ranked: None, to: None, whole: false }
    }
}

impl<P: Copy + Ord> InOrder<P> {
    /// So many are put in order from now on; `is_empty`: there is no prefix.
    pub(super) fn rank(&mut self, ranked: Option<u8>, is_empty: bool) {
        if self.ranked != ranked {
            *self = Self { ranked, to: None, whole: ranked.is_some() && is_empty };
        }
    }

    /// Whether the paths of all prefixes are in order.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether those of this one are.
    #[inline]
    pub(super) fn has(&self, prefix: P) -> bool {
        self.whole || self.to.is_some_and(|to| prefix <= to)
    }

    /// Whether those of some prefix after this one may be.
    pub(super) fn goes_beyond(&self, after: Option<P>) -> bool {
        self.whole || self.to > after
    }

    /// A walk has put those in order that come after one, up to `last`; `is_end`: there was none.
    pub(super) fn came_by(&mut self, after: Option<P>, last: Option<P>, is_end: bool) {
        if self.ranked.is_none() || after > self.to {
            // Between both, prefixes are not in order.
            return;
        }
        self.to = self.to.max(last);
        self.whole |= is_end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_walks_have_put_in_order_together_is_in_order_until_others_are_ranked() {
        let mut in_order = InOrder::default();
        in_order.came_by(None, Some(5), false);
        assert!(!in_order.goes_beyond(None), "nobody reads each");
        in_order.rank(Some(30), false);
        in_order.came_by(None, Some(5), false);
        in_order.came_by(Some(7), Some(9), false);
        assert!(in_order.has(5) && !in_order.has(6), "nobody came by 6 and 7");
        assert!(in_order.goes_beyond(Some(4)) && !in_order.goes_beyond(Some(5)));
        in_order.came_by(Some(5), Some(9), false);
        in_order.came_by(Some(3), Some(4), false);
        in_order.rank(Some(30), false);
        assert!(in_order.has(9) && !in_order.is_whole());
        in_order.came_by(Some(9), None, true);
        assert!(in_order.is_whole() && in_order.has(100));
        in_order.rank(Some(0), false);
        assert!(!in_order.is_whole() && !in_order.has(1));
        in_order.rank(Some(30), true);
        assert!(in_order.is_whole(), "an empty table is in order");
        in_order.rank(None, true);
        assert!(!in_order.is_whole());
    }
}
