//! BFD as its clients ask for it. What sessions are like is in the profiles of `[bfd]`, which its process reads.

use std::{marker::PhantomData, time::Duration};

use crate::{
    describe::Type,
    keyed::{Flag, Maybe, OneOf, keys, seconds, words},
};

/// The profile that is there without being configured.
pub(crate) const DEFAULT_PROFILE: &str = "default";
const PROFILE: Type = Type::Name("bfd.profile", &[DEFAULT_PROFILE]);

keys! {
    /// The BFD session to the next hop of a static route.
    pub struct StaticBfd {
        "profile" profile: Option<String> = Maybe(PROFILE, "`\"default\"`"), Reload, "the `[[bfd.profile]]` that says how fast a failure is found";
        "hops" hops: BfdHops = OneOf::<BfdHops>(PhantomData), Reload, "`\"single\"`: the next hop is on a link (RFC 5881); `\"multiple\"`: behind other routers (RFC 5883); `\"automatic\"`: on a link if its address is in a network of ours there, or if there is an `interface`";
    }
}

keys! {
    /// The BFD session to a peer.
    pub struct PeerBfd {
        "profile" profile: Option<String> = Maybe(PROFILE, "`\"default\"`"), Reload, "the `[[bfd.profile]]` that says how fast a failure is found";
        "hops" hops: BfdHops = OneOf::<BfdHops>(PhantomData), Reload, "`\"single\"`: the neighbour is on a link (RFC 5881); `\"multiple\"`: behind other routers (RFC 5883); `\"automatic\"`: one hop with `ttl-security`, at a link-local address, and to another AS without `multihop`; several with `multihop`; else as its address is in a network of ours or not";
        "strict" strict: bool = Flag(false), Reload, "no session before BFD is up, if the neighbour says so, too (BFD Strict-Mode, draft-ietf-idr-bgp-bfd-strict-mode); from the next OPEN on";
        "strict-hold-time" strict_hold_time: Duration = seconds!(1..=65535, 30), Reload, "seconds that `strict` waits for BFD where the hold time is 0; otherwise it waits for the hold time";
    }
}

words! {
    /// How many routers are between us and who is asked by BFD.
    pub enum BfdHops = Automatic "automatic" {
        /// As it follows from where the neighbour is.
        Automatic = "automatic",
        /// None: it is on a link.
        Single = "single",
        /// There may be some.
        Multiple = "multiple",
    }
}
