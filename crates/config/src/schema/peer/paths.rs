//! What becomes of paths from and to a peer.

use std::marker::PhantomData;

use holdfast_types::{Asn, BgpRole};

use crate::{
    describe::Type,
    keyed::{Flag, Inherited, Maybe, OneOf, keys, number, words},
};

const ROLES: Type = Type::Word(&["provider", "rs-server", "rs-client", "customer", "peer"]);

const VALIDATION: Type = Type::Word(&["off", "log", "prefer", "require"]);

keys! {
    /// How the paths of a peer are judged, and how those to it are written, besides policy. The default is RFC 4271's.
    pub struct PathRules {
        "enforce-first-as" enforce_first_as: bool = Flag(true), Reload, "whether a path from another AS must begin with that AS (RFC 4271 section 6.3); `false` for route servers";
        "next-hop" next_hop: NextHopRule = OneOf::<NextHopRule>(PhantomData), Reload, "whom routes to it name: `\"auto\"`: ourselves to another AS, the received next hop inside ours; `\"self\"`: ourselves, but for reflected routes; `\"unchanged\"`: the received one";
        "route-reflector-client" route_reflector_client: bool = Flag(false), Reload, "reflect routes to and from it (RFC 4456); inside our AS only";
        "route-server-client" route_server_client: bool = Flag(false), Reload, "AS path, next hop and MED go to it as they came (RFC 7947)";
        "own-view" own_view: bool = Flag(false), Reload, "with `route-server-client`: it is told of the best path that it may have, not of the best path if it may have that (RFC 7947 section 2.3)";
        "local-asn" local_asn: Option<Asn> = Maybe(Type::Asn, "the router's, or that of the confederation"), Session, "the AS number that we have for this neighbour";
        "local-asn-mode" local_asn_mode: LocalAsnMode = OneOf::<LocalAsnMode>(PhantomData), Reload, "where `local-asn` stands: `\"prepend\"`: in front of paths from the neighbour, and of our real number in those to it; `\"no-prepend\"`: only the latter; `\"replace\"`: in the place of our real number in paths to it";
        "allow-own-asn" allow_own_asn: u8 = number!(0..=10, 0), Reload, "how often our own AS may be in its paths";
        "remove-private-asns" remove_private_asns: PrivateAsnRule = OneOf::<PrivateAsnRule>(PhantomData), Reload, "private AS numbers (RFC 6996) in paths to it, but for its own: `\"all\"`: are left out; `\"replace\"`: become ours";
        "as-override" as_override: bool = Flag(false), Reload, "our AS number takes the place of its own in paths to it";
        "role" role: Option<BgpRole> = Maybe(ROLES, "none"), Session, "what we are to it (RFC 9234)";
        "graceful-shutdown" graceful_shutdown: bool = Inherited(Flag(false), "that of `[bgp]`"), Reload, "its routes are the last choice, and ours are marked for it (RFC 8326): before maintenance";
        "blackhole" blackhole: bool = Flag(false), Reload, "packets to prefixes that it marks with BLACKHOLE are dropped (RFC 7999), as far as `import` takes them";
        "default-originate" default_originate: bool = Flag(false), Reload, "it is told of a default route of ours, in each family of the session, whatever the table and `export` say";
        "origin-validation" origin_validation: bool = Flag(true), Reload, "its routes are validated by what the RPKI says, where `[rpki]` has a cache (RFC 8481)";
        "accept-validity" accept_validity: bool = Flag(false), Reload, "inside our AS: the validity that it says its routes have counts where the RPKI is not asked, or has said nothing (RFC 8097)";
        "announce-validity" announce_validity: bool = Flag(false), Reload, "inside our AS: it is told of the validity of routes (RFC 8097)";
        "bgpsec-validation" bgpsec_validation: Option<BgpsecValidation> = Maybe(VALIDATION, "`\"log\"` from another AS, `\"off\"` inside ours"), Reload, "what the signatures of its paths mean (RFC 8205): `\"log\"`: policies and `show` know; `\"prefer\"`: a valid route is better by 10 in local preference, one that is not valid is the last choice; `\"require\"`: only valid routes are used";
    }
}

words! {
    /// What the signatures of a peer's paths mean.
    pub enum BgpsecValidation = Log "log" {
        /// They are not verified.
        Off = "off",
        /// Policies may ask.
        Log = "log",
        /// A valid route is better, one that is not valid the last choice.
        Prefer = "prefer",
        /// Only valid routes are used.
        Require = "require",
    }
}

words! {
    /// Whom routes name as next hop where policy does not say.
    pub enum NextHopRule = Auto "auto" {
        /// Ourselves to another AS; inside, and to clients of a route server, who it is.
        Auto = "auto",
        /// Ourselves also inside, but for reflected routes (RFC 4456 section 10).
        Ourselves = "self",
        /// Who it is, also towards another AS; ourselves for our own routes.
        Unchanged = "unchanged",
    }
}

words! {
    /// Where another AS number of ours stands in paths.
    pub enum LocalAsnMode = Prepend "prepend" {
        /// In front of paths from the peer, and in front of our real number in paths to it.
        Prepend = "prepend",
        /// Only the latter.
        NoPrepend = "no-prepend",
        /// In the place of our real number in paths to the peer.
        Replace = "replace",
    }
}

words! {
    /// What becomes of private AS numbers (RFC 6996) in paths to a peer.
    pub enum PrivateAsnRule = Keep "off" {
        /// They stay.
        Keep = "off",
        /// They are left out.
        Remove = "all",
        /// Ours stands in their place.
        Replace = "replace",
    }
}

impl PathRules {
    /// The AS number that is put in front of the paths that the peer sends, as if that AS lay between us.
    pub fn prepended_asn(&self) -> Option<Asn> {
        self.local_asn.filter(|_| self.local_asn_mode == LocalAsnMode::Prepend)
    }

    /// Whether paths to the peer have our real number besides `local-asn`.
    pub fn has_real_asn(&self) -> bool {
        self.local_asn_mode != LocalAsnMode::Replace
    }

    /// What differs from the default, in the words of the file: `route-reflector-client`, `next-hop self`.
    pub fn options(&self) -> Vec<String> {
        let (Ok(own), Ok(usual)) = (serde_json::to_value(self), serde_json::to_value(Self::default())) else {
            return Vec::new();
        };
        let own = own.as_object().into_iter().flatten();
        let other = own.filter(|(key, value)| usual.get(key.as_str()) != Some(*value));
        other.map(|(key, value)| option(key, value)).collect()
    }
}

fn option(key: &str, value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Bool(true) => key.to_owned(),
        serde_json::Value::String(word) => format!("{key} {word}"),
        other => format!("{key} {other}"),
    }
}
