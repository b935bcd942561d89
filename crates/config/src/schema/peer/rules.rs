//! What a peer says beside its session that needs nothing else of the file to be read.

use crate::{
    describe::Type,
    keyed::{Flag, Maybe, MaybeNumber, Most, keys, number},
    keys::types::FREE,
    size::Size,
};

const TEXT: Type = Type::Text("up to 255 octets", "maintenance until 05:00 UTC");

keys! {
    /// What a peer says for itself alone.
    pub struct PeerRules {
        "description" description: Option<String> = Maybe(FREE, "none"), Reload, "free text";
        "port" port: u16 = number!(1..=65535, 179), Reload, "where we connect to; from the next attempt on";
        "quic-port" quic_port: Option<u16> = MaybeNumber(1, 65535, "that of `[bgp]` for the same library"), Reload, "where we connect to over QUIC; from the next attempt on";
        "ttl-security" ttl_security: bool = Flag(false), Reload, "GTSM: TTL 255 sent and required (RFC 5082); not with `multihop`";
        "multihop" multihop: Option<u8> = MaybeNumber(1, 255, "1 to another AS, the kernel's inside ours"), Reload, "TTL of our packets over TCP and TLS, for a neighbour several hops away; over QUIC it is always 255";
        "max-octets" max_octets: Size = Most("\"1 GiB\""), Reload, "what is kept for it at most: its routes, and attributes that it brought first; above that its session ends (see [operations](operations.md#what-one-peer-can-cost))";
        "max-cost" max_cost: Option<u8> = MaybeNumber(1, 100, "any"), Reload, "how long other peers may wait for it, in percent of a core over 10 seconds, once the tables are exchanged; above that its session ends (see [operations](operations.md#what-one-peer-can-cost))";
        "disabled" disabled: bool = Flag(false), Reload, "keep the session down";
        "shutdown-text" shutdown_text: Option<String> = Maybe(TEXT, "none"), Reload, "what the neighbour is told when the session ends because of `disabled` (RFC 9003)";
    }
}
