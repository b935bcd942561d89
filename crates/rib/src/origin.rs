//! Origins: who routes come from, alive or dead.

use std::time::Instant;

/// Number of an origin, from [`Rib::add_origin`](crate::Rib::add_origin).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OriginId(pub(crate) u16);

impl OriginId {
    /// The number, as it travels between processes.
    pub fn number(self) -> u32 {
        self.0.into()
    }

    /// This origin in a set of origins.
    pub(crate) fn bit(self) -> u32 {
        1 << self.0
    }
}

/// What an origin's routes are good for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OriginKind {
    /// Inside the network (connected, static, an IGP): other routes' next hops are resolved through these.
    Internal,
    /// About the outside (BGP): next hops are resolved through internal routes, never through these.
    External,
}

/// How the routes of an origin are treated.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct OriginConfig {
    /// Administrative distance of routes that do not bring their own; lower wins, 255 is never used.
    pub distance: u8,
    /// Internal or external.
    pub kind: OriginKind,
    /// Whether the forwarding engine gets the routes; not so where the kernel makes them itself.
    pub install: bool,
}

impl OriginConfig {
    /// Internal routes with this distance, installed.
    pub fn internal(distance: u8) -> Self {
        Self { distance, kind: OriginKind::Internal, install: true }
    }

    /// External routes with this distance, installed.
    pub fn external(distance: u8) -> Self {
        Self { distance, kind: OriginKind::External, install: true }
    }
}

#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) name: Box<str>,
    pub(crate) config: OriginConfig,
    /// Counts its lives; routes of an earlier one are stale.
    pub(crate) generation: u32,
    pub(crate) alive: bool,
    /// Has sent all it has, in this life.
    pub(crate) told: bool,
    /// And waits for nobody.
    pub(crate) synced: bool,
    /// When stale routes go even without an end of sync. `None`: there are none.
    pub(crate) deadline: Option<Instant>,
    pub(crate) routes: u64,
}

impl Origin {
    pub(crate) fn new(name: &str, config: OriginConfig) -> Self {
        let name = name.into();
        Self {
            name,
            config,
            generation: 0,
            alive: true,
            told: false,
            synced: false,
            deadline: None,
            routes: 0,
        }
    }

    pub(crate) fn is_internal(&self) -> bool {
        self.config.kind == OriginKind::Internal
    }

    /// Whether a route of this generation was left by a life that ended.
    pub(crate) fn is_stale(&self, generation: u32) -> bool {
        !self.alive || generation != self.generation
    }
}

/// An origin could not be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// The limit of origins is reached.
    #[error("there are already {} origins of routes", crate::MAX_ORIGINS)]
    TooMany,
    /// The origin is known as internal and returns as external, or the other way round.
    #[error("origin `{0}` was registered before with the other kind of routes")]
    KindChanged(String),
}
