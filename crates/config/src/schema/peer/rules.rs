//! What a peer says that needs nothing else of the file to be read.

use std::{marker::PhantomData, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    describe::Type,
    keyed::{Flag, Maybe, MaybeNumber, Most, OneOf, keys, number, seconds, words},
    keys::types::FREE,
    size::Size,
};

const TEXT: Type = Type::Text("up to 255 octets", "maintenance until 05:00 UTC");
const PATHS: Type = Type::Either(&[Type::Word(&["all"]), Type::Number(1, 16)]);

keys! {
    /// What a peer says for itself alone.
    pub struct PeerRules {
        "description" description: Option<String> = Maybe(FREE, "none"), Reload, "free text";
        "port" port: u16 = number!(1..=65535, 179), Reload, "where we connect to; from the next attempt on";
        "quic-port" quic_port: Option<u16> = MaybeNumber(1, 65535, "that of `[bgp]` for the same library"), Reload, "where we connect to over QUIC; from the next attempt on";
        "ttl-security" ttl_security: bool = Flag(false), Reload, "GTSM: TTL 255 sent and required (RFC 5082); not with `multihop`";
        "multihop" multihop: Option<u8> = MaybeNumber(1, 255, "1 to another AS, the kernel's inside ours"), Reload, "TTL of our packets over TCP and TLS, for a neighbour several hops away; over QUIC it is always 255";
        "graceful-restart" graceful_restart: GracefulRestart = OneOf::<GracefulRestart>(PhantomData), Session, "`\"helper\"`: when the neighbour restarts, its routes stay until it has sent them again (RFC 4724, RFC 8538); `\"full\"`: and the neighbour is asked to do so for us";
        "restart-time" restart_time: Duration = seconds!(1..=4095, 120), Session, "seconds that we may need to come back, with `\"full\"`";
        "long-lived-stale-time" long_lived_stale_time: Duration = seconds!(0..=16777215, 0), Session, "seconds that routes of a neighbour that stays away for longer are kept as the last resort, and ours there with `\"full\"` (RFC 9494); 0: not at all";
        "stale-time" stale_time: Duration = seconds!(1..=65535, 360), Reload, "seconds that routes of a neighbour stay at most while it is away, and again until its End-of-RIB when it is back";
        "max-octets" max_octets: Size = Most("\"1 GiB\""), Reload, "what is kept for it at most: its routes, and attributes that it brought first; above that its session ends (see [operations](operations.md#what-one-peer-can-cost))";
        "max-cost" max_cost: Option<u8> = MaybeNumber(1, 100, "any"), Reload, "how long other peers may wait for it, in percent of a core over 10 seconds, once the tables are exchanged; above that its session ends (see [operations](operations.md#what-one-peer-can-cost))";
        "disabled" disabled: bool = Flag(false), Reload, "keep the session down";
        "shutdown-text" shutdown_text: Option<String> = Maybe(TEXT, "none"), Reload, "what the neighbour is told when the session ends because of `disabled` (RFC 9003)";
        "orf" orf: Orf = OneOf::<Orf>(PhantomData), Session, "outbound route filtering by prefix (RFC 5291, RFC 5292): `\"receive\"`: the neighbour says which prefixes it wants to be told; `\"send\"`: we say so to it; `\"both\"`";
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
