//! The edits of export policy, and what the session to the receiver asks for.

use std::net::{IpAddr, Ipv4Addr};

use holdfast_bgp_wire::{
    NextHop,
    as_path::SegmentType,
    attributes::community,
    edit::{Change, Edit, rewrite},
};
use holdfast_policy::{Edits, NextHopEdit};

use super::{Front, med, octets, origin, prepended, values};
use crate::{
    NextHopRule, PeerKind,
    core::Core,
    export::rules::{Export, ExportDecision},
    next_hop::NextHopId,
};

/// Whom a route to a group of peers names as next hop.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ExportedNextHop {
    /// Us, by whatever address we have on each link.
    Ourselves,
    /// Somebody else, the same for all.
    Other(NextHop),
}

/// The next hop of a route to this group; `None` if we have no address of a kind that the peers take.
///
/// Third-party next hops (RFC 4271 section 5.1.3 2) are not sent unless they are asked for.
pub(crate) fn next_hop(
    core: &Core,
    export: &Export,
    ipv4: bool,
    judged: ExportDecision,
    edits: &Edits,
) -> Option<ExportedNextHop> {
    let ourselves = || export.has_own_next_hop(ipv4).then_some(ExportedNextHop::Ourselves);
    let other = |address| third_party(export, ipv4, address).map(ExportedNextHop::Other);
    match edits.next_hop {
        Some(NextHopEdit::Address(address)) => return other(address),
        Some(NextHopEdit::SelfAddress) => return ourselves(),
        None => {}
    }
    let keeps = match export.next_hop {
        NextHopRule::Unchanged => true,
        NextHopRule::Auto => export.kind != PeerKind::Ebgp || export.transparent,
        // RFC 4456 section 10: a reflector is not in the way of packets.
        NextHopRule::Ourselves => judged.originator.is_some(),
    };
    if !keeps {
        return ourselves();
    }
    let gateway = core.next_hops.gateway(core.sets.next_hop(judged.set));
    let passed_on = gateway.filter(|gateway| gateway.interface == 0);
    passed_on.and_then(|gateway| other(gateway.address)).or_else(ourselves)
}

fn third_party(export: &Export, ipv4: bool, address: IpAddr) -> Option<NextHop> {
    match address {
        IpAddr::V4(address) => ipv4.then_some(NextHop::V4(address)),
        IpAddr::V6(global) => {
            (!ipv4 || export.extended_next_hop).then_some(NextHop::V6 { global, link_local: None })
        }
    }
}

/// Appends the set's attributes as this group receives them, with a NEXT_HOP if there is one that is not in MP_REACH_NLRI.
pub(crate) fn attributes(
    core: &Core,
    export: &Export,
    judged: ExportDecision,
    edits: &Edits,
    next_hop: Option<Ipv4Addr>,
    out: &mut Vec<u8>,
) {
    let set = judged.set;
    let external = export.kind == PeerKind::Ebgp;
    let local_pref = edits.local_pref.unwrap_or(core.sets.preference(set).local_pref);
    // A MED of another AS goes no further than ours (RFC 4271 section 5.1.4); our own routes' may.
    let received = core.sets.next_hop(set) != NextHopId::LOCAL;
    let stays = external && received && !export.transparent;
    let kept_med = if stays { Change::Remove } else { Change::Keep };
    let metric = || core.next_hops.metric(core.sets.next_hop(set));
    let ext_communities = octets(&edits.ext_communities);
    let by_policy = edits.prepend.and_then(|prepend| prepended(prepend, &core.sets, set, export.known_as));
    let ours = export.own_asns.iter().map(|asn| (*asn, 1));
    let prepend: Front = ours.chain(by_policy).collect();
    let mut marked = Vec::new();
    let mut communities = values(&edits.communities);
    if export.graceful_shutdown {
        marked.extend_from_slice(communities.add);
        marked.push(community::GRACEFUL_SHUTDOWN);
        communities.add = &marked;
    }
    let edit = Edit {
        origin: edits.origin.map(origin),
        path: export.path,
        prepend: &prepend,
        prepend_into: match export.kind {
            PeerKind::ConfedEbgp => SegmentType::ConfedSequence,
            PeerKind::Ebgp | PeerKind::Ibgp => SegmentType::Sequence,
        },
        next_hop: next_hop.map_or(Change::Remove, Change::Set),
        local_pref: Change::Set(local_pref),
        med: edits.med.map_or(kept_med, |edit| med(edit, metric())),
        communities,
        ext_communities: values(&ext_communities),
        validation_state: match core.classes.get(core.sets.class(set)).states {
            _ if external => Change::Remove,
            Some(states) if export.announces_validity => Change::Set(states.octet()),
            Some(_) | None => Change::Keep,
        },
        large_communities: values(&edits.large_communities),
        external,
        four_octet_as: export.four_octet_as,
        reflection: match (judged.originator, export.kind) {
            (Some(originator), _) => Change::Set((originator, core.speaker.cluster_id)),
            (None, PeerKind::Ibgp) => Change::Keep,
            (None, PeerKind::Ebgp | PeerKind::ConfedEbgp) => Change::Remove,
        },
        only_to_customer: export.only_to_customer(),
        secure_path: false,
    };
    rewrite(core.sets.bytes(set), &edit, out);
}
