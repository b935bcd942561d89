//! The ExportPolicy stage: which best paths a group of peers is told of.

use std::net::{Ipv4Addr, Ipv6Addr};

use holdfast_bgp_wire::NextHop;
use holdfast_policy::{Edits, Verdict};
use holdfast_types::{Afi, Asn, Prefix};

use crate::{
    PeerConfig, PeerKind, SessionFacts,
    class::Policy,
    core::{Core, family_index},
    path::{Path, SetId},
    rewrite,
    route::RouteView,
    sets::SetFlags,
};

/// All that decides what a peer receives: peers for which it is equal form an update group, for which routes
/// are filtered, rewritten and encoded once.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Export {
    policy: Policy,
    pub(crate) kind: PeerKind,
    /// The receivers' AS where the policy may ask, else 0.
    receiver: Asn,
    pub(crate) families: [bool; 2],
    pub(crate) four_octet_as: bool,
    pub(crate) max_message_len: usize,
    pub(crate) extended_next_hop: bool,
    next_hop_v4: Option<Ipv4Addr>,
    next_hop_v6: Option<Ipv6Addr>,
    link_local: Option<Ipv6Addr>,
    pub(crate) next_hop_self: bool,
}

impl Export {
    pub(crate) fn new(config: &PeerConfig, facts: &SessionFacts) -> Self {
        let policy = policy(config.export.as_ref(), config.kind);
        let mut export = Self {
            receiver: if policy.reads_prefix() { config.asn } else { Asn(0) },
            policy,
            kind: config.kind,
            families: [false; 2],
            four_octet_as: facts.four_octet_as,
            max_message_len: facts.max_message_len,
            extended_next_hop: facts.extended_next_hop,
            next_hop_v4: facts.next_hop_v4,
            next_hop_v6: facts.next_hop_v6,
            link_local: facts.link_local,
            next_hop_self: config.next_hop_self,
        };
        // Also without an address of our own to announce: the peer waits for End-of-RIB.
        for index in facts.families.iter().filter_map(|family| family_index(*family)) {
            export.families[index] = true;
        }
        export
    }

    /// Whether two routes with the same attributes may be judged differently.
    pub(crate) fn reads_prefix(&self) -> bool {
        self.policy.reads_prefix()
    }

    /// Ourselves as next hop. IPv4 routes over a link without IPv4 go by RFC 8950.
    pub(crate) fn own_next_hop(&self, ipv4: bool) -> Option<NextHop> {
        let v6 = || {
            let global = self.next_hop_v6.or(self.link_local)?;
            Some(NextHop::V6 { global, link_local: self.link_local })
        };
        if !ipv4 {
            return v6();
        }
        self.next_hop_v4.map(NextHop::V4).or_else(|| self.extended_next_hop.then(v6)?)
    }

    /// Whether the path is announced to this group: then the set to start from, with `edits` to make.
    pub(crate) fn passes(
        &self,
        core: &mut Core,
        prefix: Prefix,
        path: Path,
        edits: &mut Edits,
    ) -> Option<SetId> {
        edits.clear();
        let source = core.sources.get(path.source);
        if self.kind == PeerKind::Ibgp && source.kind == PeerKind::Ibgp && source.peer.is_some() {
            // RFC 4271 section 9.2: not from one internal peer to another.
            return None;
        }
        let set = core.effective(prefix, path.set)?;
        let flags = core.sets.flags(set);
        let stays = flags.has(SetFlags::NO_EXPORT) && self.kind == PeerKind::Ebgp;
        if flags.has(SetFlags::NO_ADVERTISE) || stays {
            return None;
        }
        let accepted = match &self.policy {
            Policy::Missing => false,
            Policy::AcceptAll => true,
            Policy::Program(program) => {
                let route = RouteView::exported(core, prefix, set, self.receiver);
                program.evaluate(&route, edits) == Verdict::Accept
            }
        };
        (accepted && self.has_next_hop(core, prefix, set, edits)).then_some(set)
    }

    /// Whether there is a next hop to announce the route with: almost always, as we nearly always have an address.
    fn has_next_hop(&self, core: &Core, prefix: Prefix, set: SetId, edits: &Edits) -> bool {
        let ipv4 = prefix.afi() == Afi::IPV4;
        self.own_next_hop(ipv4).is_some()
            || rewrite::exported_next_hop(core, self, ipv4, set, Some(edits)).is_some()
    }
}

/// RFC 8212 section 2: without a policy nothing passes to or from another AS.
pub(crate) fn policy(program: Option<&holdfast_policy::Program>, kind: PeerKind) -> Policy {
    match (program, kind) {
        (Some(program), _) => Policy::Program(program.clone()),
        (None, PeerKind::Ebgp) => Policy::Missing,
        (None, PeerKind::Ibgp) => Policy::AcceptAll,
    }
}
