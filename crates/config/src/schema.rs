//! What a configuration says. Field names are the keys of the file, with `-` for `_`.

pub(crate) mod bfd;
pub(crate) mod bgp;
pub(crate) mod door;
mod monitor;
mod nonstop;
pub(crate) mod peer;
mod process;
mod rpki;
mod signing;
mod table;

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use holdfast_policy::{Condition, PolicySource};
use holdfast_types::{Asn, RouterId};

pub use self::bfd::{BfdHops, PeerBfd, StaticBfd};
pub use self::bgp::{Aggregate, AsSets, Bgp, Confederation, Damping, DecisionRules, Redistribute};
pub use self::door::{Admission, AdmissionSet, DerFile, KeyFile, Pin, Rate, Retry, Tls, Transport, Trust};
pub use self::monitor::{Bmp, BmpTable, Mrt, MrtKind};
pub use self::nonstop::{OnStoreLoss, ServiceAddress, Standby, Store, StoreKind};
pub use self::peer::{
    AddPath, Bgpsec, BgpsecFamily, BgpsecValidation, GracefulRestart, LimitAction, LocalAsnMode, NextHopRule,
    Orf, PathRules, Peer, PeerAsn, PeerRules, PrefixLimit, PrivateAsnRule, Remote, Secret, SendPaths,
    SessionRules,
};
pub use self::process::{
    Log, LogFormat, LogLevel, ProcessLimits, ProcessSection, Sandbox, SandboxMode, Xrl, XrlClient, XrlRole,
};
pub use self::rpki::{Cache, ExceptionsFile, Rpki};
pub use self::signing::{Signing, SigningKey};
pub use self::table::{Backend, Distances, Fea, Protocol, Rib, StaticRoute, StaticTarget, Vrf, VrfPlace};
use crate::Descriptor;
pub use crate::{moment::Moment, processes::Routing, size::Size};

/// A whole configuration, checked: every name resolves, every value is in range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// `[router]`
    pub router: Router,
    /// `[log]`
    pub log: Log,
    /// `[metrics]`; `None` when the file does not mention it, and no `metrics` process is wanted.
    pub metrics: Option<Metrics>,
    /// `[glass]`; `None` when the file does not mention it, and no `glass` process is wanted.
    pub glass: Option<Glass>,
    /// `[fea]`
    pub fea: Fea,
    /// `[rib]`
    pub rib: Rib,
    /// `[sandbox]`
    pub sandbox: Sandbox,
    /// `[tls]`; `None`: we have nothing to show, and no peer uses TLS or QUIC.
    pub tls: Option<Tls>,
    /// `[admission]`
    pub admission: Admission,
    /// `[[vrf]]`; names, devices with their tables, and namespaces are unique.
    pub vrfs: Vec<Vrf>,
    /// `[[static]]`, in each VRF one per prefix.
    pub statics: Vec<StaticRoute>,
    /// `[[protocol]]`; names are unique, and none of ours.
    pub protocols: Vec<Protocol>,
    /// `[rpki]`; no `rpki` process is wanted without a cache in it.
    pub rpki: Rpki,
    /// `[bgpsec]`: with what paths are signed.
    pub bgpsec: Signing,
    /// `[nonstop.store]`; `None`: sessions end with this host, and no `replicator` process is wanted.
    pub store: Option<Store>,
    /// `[bgp]`; `None` when the file does not mention BGP, and no `bgp` process is wanted.
    pub bgp: Option<Bgp>,
    /// `[[policy]]` and the sets they name. Compiles without errors.
    pub policy: PolicySource,
    /// `[xrl]`; without it XRL does not listen on TCP.
    pub xrl: Xrl,
    /// The sections that belong to one process each, by the process's name; it is wanted where its section is there.
    /// One that only other parts of the file imply is there, with what its keys are by default.
    pub sections: BTreeMap<&'static str, ProcessSection>,
}

const ANYBODY_SIGNED: &str =
    "whoever its authorities have signed for may be it, since there is no `tls-name`";

impl Config {
    /// The protocols of others whose programs the router starts.
    pub fn described(&self) -> impl Iterator<Item = (&'static str, &'static Descriptor)> {
        self.protocols.iter().filter_map(|protocol| {
            let (name, _) = self.sections.get_key_value(protocol.name.as_str())?;
            Some((*name, protocol.descriptor?))
        })
    }

    /// The processes that speak a routing protocol in this table, by name.
    pub fn routing<'c>(
        &'c self,
        table: Option<&Vrf>,
    ) -> impl Iterator<Item = (&'static str, &'c ProcessSection)> {
        let vrf = table.map(|vrf| vrf.name.as_str());
        let sections = self.sections.iter().filter(move |(_, section)| section.routes_in(vrf));
        sections.map(|(process, section)| (*process, section))
    }

    /// Whether a peer or a static route has a BFD session.
    pub fn uses_bfd(&self) -> bool {
        let peers = self.bgp.iter().flat_map(|bgp| &bgp.peers);
        peers
            .map(|peer| peer.bfd.is_some())
            .chain(self.statics.iter().map(|route| route.bfd.is_some()))
            .any(|is| is)
    }

    /// The peers in this table.
    pub fn peers<'c>(&'c self, table: Option<&'c Vrf>) -> impl Iterator<Item = &'c Peer> {
        let peers = self.bgp.iter().flat_map(|bgp| &bgp.peers);
        peers.filter(move |peer| is_in(peer.vrf.as_ref(), table))
    }

    /// The RPKI caches that are asked from this table: all from the default one.
    pub fn caches(&self, table: Option<&Vrf>) -> &[Cache] {
        if table.is_none() { &self.rpki.caches } else { &[] }
    }

    /// The servers of the store that are connected from this table: all from the default one.
    pub fn store_servers(&self, table: Option<&Vrf>) -> Option<&Store> {
        self.store.as_ref().filter(|_| table.is_none())
    }

    /// The names of the VRFs, which who has the default table is told; none for that of a VRF.
    pub fn vrf_names(&self, table: Option<&Vrf>) -> Vec<String> {
        let vrfs = if table.is_none() { self.vrfs.as_slice() } else { &[] };
        vrfs.iter().map(|vrf| vrf.name.clone()).collect()
    }

    /// What is allowed, and may not be what was meant; in words of the operator.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.store.as_ref().is_some_and(|store| store.trust.could_be_several()) {
            notes.push(format!("[nonstop.store]: {ANYBODY_SIGNED}"));
        }
        for cache in &self.rpki.caches {
            if cache.trust.could_be_several() {
                notes.push(format!("cache `{}`: {ANYBODY_SIGNED}", cache.name));
            }
        }
        let runs = |name: &String| self.sections.contains_key(name.as_str());
        let described = self.protocols.iter().filter(|protocol| protocol.descriptor.is_some());
        for Protocol { name, .. } in described.filter(|protocol| !runs(&protocol.name)) {
            notes.push(format!("protocol `{name}` does not run: there is no [{name}]"));
        }
        if self.rpki.caches.is_empty() && !self.rpki.exceptions.is_empty() {
            notes.push("`exceptions` of the RPKI do nothing without an `[[rpki.cache]]`".to_owned());
        }
        self.note_keys(&mut notes);
        for peer in self.bgp.iter().flat_map(|bgp| &bgp.peers) {
            let mut note = |text: &str| notes.push(format!("peer `{}`: {text}", peer.name));
            if peer.could_be_several() {
                note(ANYBODY_SIGNED);
            }
            if peer.need_not_prove() {
                note("who comes over `tcp`, which is in its list, proves nothing");
            }
            self.note_signatures(peer, &mut note);
            self.note_signing(peer, &mut note);
        }
        notes
    }

    /// Whether somebody can know what the signatures of a peer's paths say.
    fn note_signatures(&self, peer: &Peer, note: &mut impl FnMut(&str)) {
        if peer.bgpsec.receive {
            if self.rpki.caches.is_empty() {
                note("without an `[[rpki.cache]]` no signature of its paths is verified");
            }
            return;
        }
        match peer.paths.bgpsec_validation {
            Some(BgpsecValidation::Require) => {
                note(
                    "none of its routes is used: `bgpsec-validation` asks for signed paths, and `bgpsec` does not receive",
                );
            }
            Some(BgpsecValidation::Prefer) => {
                note("`bgpsec-validation` has no effect, since `bgpsec` does not receive");
            }
            Some(BgpsecValidation::Off | BgpsecValidation::Log) | None => {}
        }
        let asks = |condition: &Condition| matches!(condition, Condition::Bgpsec(_));
        if peer.import.as_ref().is_some_and(|import| self.policy.has(import, asks)) {
            note(
                "`import` asks for `bgpsec`, and all its paths are `unsigned`, since its `bgpsec` does not receive",
            );
        }
    }
}

/// Whether what is in this VRF is in this table; `None` is the default one in both places.
pub fn is_in(vrf: Option<&String>, table: Option<&Vrf>) -> bool {
    vrf == table.map(|table| &table.name)
}

/// Who the router is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Router {
    /// BGP identifier (RFC 6286).
    pub id: RouterId,
    /// Our AS number.
    pub asn: Asn,
    /// A process that does not answer for so long is hung; zero: none ever is.
    pub hang_limit: Duration,
}

/// Where Prometheus is answered.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// `127.0.0.1:9179` by default.
    pub listen: SocketAddr,
}

/// Where looking glasses are answered.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Glass {
    /// `127.0.0.1:29184` by default.
    pub listen: SocketAddr,
}

/// Most VRFs of a router.
pub const MOST_VRFS: usize = 512;
