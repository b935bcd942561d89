//! Peers, and what is advertised to them.

mod bgpsec;
mod paths;
mod place;
mod rules;
mod session;

use super::{PeerBfd, Transport, Trust};
use holdfast_policy::AsnRange;
use holdfast_types::{Asn, Family, Prefix};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::time::Duration;

pub use self::{
    bgpsec::{Bgpsec, BgpsecFamily},
    paths::{BgpsecValidation, LocalAsnMode, NextHopRule, PathRules, PrivateAsnRule},
    rules::PeerRules,
    session::{AddPath, GracefulRestart, Orf, SendPaths, SessionRules},
};
use crate::keyed::words;

/// A BGP neighbour, or a range of them. It travels as JSON, without what only `transport` and who opens sockets may know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Peer {
    /// What the operator calls it.
    pub name: String,
    /// The VRF that it is in; `None`: the default table.
    pub vrf: Option<String>,
    /// `address`, `listen-range` or `interface`.
    #[serde(flatten)]
    pub remote: Remote,
    /// Our end of the session; chosen by the kernel if there is none. Of the remote's family.
    pub local_address: Option<IpAddr>,
    /// Whose session it may be. A single number unless it is a `listen-range`, or an `interface` without address.
    pub asn: PeerAsn,
    /// Offered in OPEN; the remote's own unicast family by default, both for a neighbour on an `interface`. Never empty.
    pub families: Vec<Family>,
    /// Policy for what we learn. `None`: nothing passes from another AS (RFC 8212).
    pub import: Option<String>,
    /// Policy for what we announce. `None`: nothing passes to another AS (RFC 8212).
    pub export: Option<String>,
    /// What carries its session, the preferred first; nothing else is ever used. Never empty; TCP alone by default.
    #[serde(rename = "transport")]
    pub transports: Vec<Transport>,
    /// What it has to prove over those that prove something: never nothing where there is one.
    #[serde(skip)]
    pub trust: Trust,
    /// TCP-MD5 key (RFC 2385), 1 to 80 octets.
    #[serde(skip)]
    pub md5: Option<Secret>,
    /// Hold time that we offer: 0, or 3 s and more; 90 s by default.
    pub hold_time: Duration,
    /// Our address that we announce as next hop for IPv4 prefixes where the session runs over IPv6.
    pub next_hop_ipv4: Option<Ipv4Addr>,
    /// Our address that we announce as next hop for IPv6 prefixes where the session runs over IPv4.
    pub next_hop_ipv6: Option<Ipv6Addr>,
    /// What becomes of paths from and to it besides policy; the keys are the peer's own.
    #[serde(flatten)]
    pub paths: PathRules,
    /// What its session is like; the keys are the peer's own. Always passive for a `listen-range`.
    #[serde(flatten)]
    pub session: SessionRules,
    /// What else it says that needs nothing else of the file; the keys are the peer's own.
    #[serde(flatten)]
    pub rules: PeerRules,
    /// `add-path`
    pub add_path: AddPath,
    /// `bgpsec`
    #[serde(default)]
    pub bgpsec: Bgpsec,
    /// `bfd`; `None`: it has no BFD session.
    #[serde(default)]
    pub bfd: Option<PeerBfd>,
    /// Whether the session outlives the `bgp` process; that of [`Bgp`] by default, and never `true` where that is
    /// `false`.
    pub nonstop: bool,
    /// Whether its routes are damped if it is of another AS; `true` by default where there is [`Bgp::damping`], and never
    /// where there is none.
    pub damping: bool,

    /// The `[[bgp.group]]` that it takes what it does not say from; that has been done.
    pub group: Option<String>,
    /// `[[bgp.peer.limit]]`, each family once.
    pub limits: Vec<PrefixLimit>,
    /// The prefix set that the peer is told of, where [`Orf::sends`].
    pub orf_prefix_set: Option<String>,
}

impl Peer {
    /// What differs from the default of how its paths are judged, in the words of the file, and whether it has to say its role.
    pub fn options(&self) -> Vec<String> {
        let strict = self.session.role_strict.then(|| "role-strict".to_owned());
        self.paths.options().into_iter().chain(strict).collect()
    }

    /// Whether it is one neighbour, and others prove as much as it does.
    pub(super) fn could_be_several(&self) -> bool {
        !matches!(self.remote, Remote::Range(_)) && self.trust.could_be_several()
    }

    /// Whether there is a way around what it has to prove.
    pub(super) fn need_not_prove(&self) -> bool {
        let proves = |transport: &Transport| transport.proves();
        self.transports.iter().any(proves) && !self.transports.iter().all(proves)
    }
}

/// How many prefixes of a family a peer may have; `None`: any number.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PrefixLimit {
    /// Of which family.
    pub family: Family,
    /// Announced to us.
    pub received: Option<u32>,
    /// Of those, taken by import policy.
    pub accepted: Option<u32>,
    /// Announced by us.
    pub announced: Option<u32>,
    /// Percent of a limit from which on the log warns; 75 by default.
    pub warn_percent: u8,
    /// What happens above a limit; [`LimitAction::Idle`] by default.
    pub action: LimitAction,
    /// For [`LimitAction::Restart`]; 300 s by default.
    pub restart_after: Duration,
}

words! {
    /// What happens to a session above a limit of prefixes.
    pub enum LimitAction = Idle "idle" {
        /// It ends until somebody clears it or raises the limit.
        Idle = "idle",
        /// It ends for a while.
        Restart = "restart",
        /// It stays, and the log says so.
        Warn = "warn",
    }
}

/// Where a peer is.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "place::Place", try_from = "place::Place")]
pub enum Remote {
    /// One neighbour.
    Address(IpAddr),
    /// One neighbour at a link-local address of this interface.
    LinkLocal(Ipv6Addr, String),
    /// One neighbour at an address of wider scope, on the link of this interface: the session ends with the link.
    OnLink(IpAddr, String),
    /// Whoever is the neighbour on this interface, by its link-local address.
    Interface(String),
    /// Any number of neighbours, which connect from addresses of this prefix.
    Range(Prefix),
}

impl Remote {
    /// The interface whose link the peer is on, if the configuration names one.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::LinkLocal(_, interface) | Self::OnLink(_, interface) | Self::Interface(interface) => {
                Some(interface)
            }
            Self::Address(_) | Self::Range(_) => None,
        }
    }
}

/// The AS numbers that a peer may have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PeerAsn {
    /// This one.
    One(Asn),
    /// One of these; never empty.
    OneOf(Vec<AsnRange>),
    /// Any that a neighbour may have.
    Any,
}

/// A text that is not shown in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// This text.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;

    const FILE: &str = r#"
        [router]
        id = "10.0.0.1"
        asn = 65000
        [bgp]
        [[bgp.peer]]
        name = "a"
        address = "fe80::2"
        interface = "eth1"
        asn = 65001
        ttl-security = true
        max-octets = "3 MiB"
        local-asn = 65009
        local-asn-mode = "replace"
        role = "provider"
        restart-time = 7
        add-path = { send = 2 }
        bgpsec = { receive = true, families = ["ipv6"], most-hops = 7 }
        bgpsec-validation = "require"
        bfd = { strict = true, hops = "single" }
        limit = [{ family = "ipv6-unicast", received = 1 }]
        [[bgp.peer]]
        name = "b"
        listen-range = "10.1.0.0/16"
        asn = [65004, "65010-65020"]
        md5 = "secret"
        next-hop = "self"
    "#;

    #[test]
    fn a_peer_travels_without_its_secret_and_what_is_not_there_has_its_default() {
        let mut peers =
            crate::parse(FILE, "test", Schema::new([])).expect("no errors").bgp.expect("there is").peers;
        for peer in &mut peers {
            let json = serde_json::to_value(&*peer).expect("JSON");
            assert!(!json.to_string().contains("secret"), "{json}");
            peer.md5 = None;
            assert_eq!(serde_json::from_value::<Peer>(json).as_ref().ok(), Some(&*peer));
        }
        let mut json = serde_json::to_value(&peers[1]).expect("JSON");
        json.as_object_mut().expect("an object").remove("enforce-first-as");
        let peer: Peer = serde_json::from_value(json).expect("a peer");
        assert!(peer.paths.enforce_first_as && peer.paths.options() == ["next-hop self"]);
    }
}
