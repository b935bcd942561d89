//! What the peers of a listen range have done, those included that are gone: a peer of a range is forgotten with its
//! connection, and what it did counts on here. One entry for each configured range, of bounded size.

use holdfast_bgp_pipeline::Drops;

use crate::location::Location;

/// What peers have done together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) peers: u64,
    /// How often their sessions came up, and how many of these ended.
    pub(crate) established: u64,
    pub(crate) dropped: u64,
    pub(crate) drops: Drops,
    /// Why the last session ended or did not come up, of those that went wrong, and whose it was.
    pub(crate) last_error: Option<(Location, String)>,
}

impl Totals {
    /// One more peer, with how often its session came up and ended.
    pub(crate) fn add(
        &mut self,
        location: &Location,
        (established, dropped): (u64, u64),
        drops: Option<&Drops>,
        last_error: String,
    ) {
        self.peers += 1;
        self.established += established;
        self.dropped += dropped;
        drops.into_iter().for_each(|drops| self.drops.merge(drops));
        if !last_error.is_empty() {
            self.last_error = Some((location.clone(), last_error));
        }
    }
}

/// One listen range.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    /// How many there are.
    pub(crate) present: usize,
    /// What those did that are gone.
    pub(crate) gone: Totals,
}
