//! What a peer says of its session that needs nothing else of the file to be read: `bgp-session` takes it as it is.

use std::{marker::PhantomData, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    describe::Type,
    keyed::{Flag, Inherited, Maybe, OneOf, keys, seconds, words},
};

const PATHS: Type = Type::Either(&[Type::Word(&["all"]), Type::Number(1, 16)]);

keys! {
    /// How a session is begun, what its OPEN offers, and what becomes of it. Rows that end sessions stay in this order:
    /// [`session`](crate::session()) has them so.
    pub struct SessionRules {
        "passive" passive: bool = Flag(false), Reload, "wait for the neighbour to connect; always so with a `listen-range`";
        "connect-retry" connect_retry: Duration = Inherited(seconds!(1..=65535, 5), "that of `[bgp]`"), Reload, "seconds between attempts to connect";
        "graceful-restart" graceful_restart: GracefulRestart = OneOf::<GracefulRestart>(PhantomData), Session, "`\"helper\"`: when the neighbour restarts, its routes stay until it has sent them again (RFC 4724, RFC 8538); `\"full\"`: and the neighbour is asked to do so for us";
        "restart-time" restart_time: Duration = seconds!(1..=4095, 120), Session, "seconds that we may need to come back, with `\"full\"`";
        "long-lived-stale-time" long_lived_stale_time: Duration = seconds!(0..=16777215, 0), Session, "seconds that routes of a neighbour that stays away for longer are kept as the last resort, and ours there with `\"full\"` (RFC 9494); 0: not at all";
        "stale-time" stale_time: Duration = seconds!(1..=65535, 360), Reload, "seconds that routes of a neighbour stay at most while it is away, and again until its End-of-RIB when it is back";
        "orf" orf: Orf = OneOf::<Orf>(PhantomData), Session, "outbound route filtering by prefix (RFC 5291, RFC 5292): `\"receive\"`: the neighbour says which prefixes it wants to be told; `\"send\"`: we say so to it; `\"both\"`";
        "role-strict" role_strict: bool = Flag(false), Reload, "no session with a neighbour that does not say its role";
    }
}

keys! {
    /// Several paths of a prefix (RFC 7911).
    pub struct AddPath {
        "receive" receive: bool = Flag(false), Session, "take several paths from the neighbour, 64 of a prefix at most";
        "send" send: Option<SendPaths> = Maybe(PATHS, "the best, as ever"), Session, "which paths it is sent: all that can be used, or so many of the best; `export` is asked about each. Another number needs no new session";
    }
}

words! {
    /// Our part in graceful restart (RFC 4724).
    pub enum GracefulRestart = Helper "helper" {
        /// None; End-of-RIB is sent all the same.
        Off = "off",
        /// Routes of a neighbour that restarts stay.
        Helper = "helper",
        /// And it keeps ours when we restart.
        Full = "full",
    }
}

words! {
    /// Outbound route filtering by address prefix (RFC 5291, RFC 5292).
    pub enum Orf = Off "off" {
        /// Nobody filters.
        Off = "off",
        /// The peer tells us.
        Receive = "receive",
        /// We tell the peer.
        Send = "send",
        /// Each tells the other.
        Both = "both",
    }
}

impl Orf {
    /// Whether we tell the peer.
    pub fn sends(self) -> bool {
        match self {
            Self::Send | Self::Both => true,
            Self::Off | Self::Receive => false,
        }
    }

    /// Whether the peer tells us.
    pub fn receives(self) -> bool {
        match self {
            Self::Receive | Self::Both => true,
            Self::Off | Self::Send => false,
        }
    }
}

/// Which paths of a prefix a peer is sent that takes several (RFC 7911).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SendPaths {
    /// All that take part in the decision.
    All,
    /// So many of the best, 1 to 16.
    Best(u8),
}
