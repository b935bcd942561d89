//! Redistribution: the winning routes of some origins, to whoever asks.

use holdfast_types::{Family, Prefix};

use crate::{nexthops::NexthopSetId, origin::OriginId, reader::Reader};

/// Number of a subscription to routes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubscriptionId(pub(crate) u32);

/// Which routes a subscriber gets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RedistFilter {
    /// Names of origins, known already or not; empty: all.
    pub origins: Vec<String>,
    /// One family; `None`: both.
    pub family: Option<Family>,
}

impl RedistFilter {
    pub(crate) fn wants_family(&self, family: Family) -> bool {
        self.family.is_none_or(|only| only == family)
    }

    pub(crate) fn wants_origin(&self, name: &str) -> bool {
        self.origins.is_empty() || self.origins.iter().any(|origin| origin == name)
    }
}

/// A route that wins its prefix.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RedistRoute {
    /// Where it comes from.
    pub origin: OriginId,
    /// Administrative distance.
    pub distance: u8,
    /// Metric inside the origin.
    pub metric: u32,
    /// Tag that the origin gave; 0 is none.
    pub tag: u32,
    /// Its next hops as the origin gave them. Valid until the next change of the table.
    pub nexthops: NexthopSetId,
}

/// Changes for a subscriber, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RedistBatch {
    /// Everything said before is void: what follows until `synced` is all there is.
    pub begin: bool,
    /// The route of a prefix; `None`: there is none (any more).
    pub changes: Vec<(Prefix, Option<RedistRoute>)>,
    /// Everything has been said.
    pub synced: bool,
}

impl RedistBatch {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) filter: RedistFilter,
    pub(crate) reader: Reader,
}

/// A subscription was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are already {} subscriptions to routes", crate::MAX_SUBSCRIPTIONS)]
pub struct TooManySubscriptions;
