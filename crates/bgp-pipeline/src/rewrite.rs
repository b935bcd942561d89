//! From what a policy says to attribute bytes: edits of import and export (RFC 4271 section 5.1).

use std::net::IpAddr;

use holdfast_bgp_wire::{
    NextHop, Origin as WireOrigin,
    as_path::SegmentType,
    attributes::community,
    edit::{Change, Edit, Values, rewrite},
};
use holdfast_policy::{Edits, ListEdit, MedEdit, NextHopEdit, Origin, Prepend, PrependAs};
use holdfast_types::Asn;
use smallvec::SmallVec;

use crate::{
    NextHopRule, PeerKind,
    core::Core,
    export::{Export, Judged},
    next_hop::{Gateway, NextHopId},
    path::SetId,
    sets::SetFlags,
};

/// Appends the set's attributes as import policy changes them, and before it the session.
pub(crate) fn import(core: &Core, set: SetId, edits: &Edits, out: &mut Vec<u8>) {
    let ext_communities = octets(&edits.ext_communities);
    let class = core.classes.get(core.sets.class(set));
    // A member's number would leave the confederation, and be a loop inside.
    let own = |prepend: &Prepend| prepend.asn == PrependAs::Own && core.speaker.confederation.is_some();
    let by_policy = edits
        .prepend
        .filter(|prepend| !own(prepend))
        .and_then(|prepend| prepended(prepend, core, set, core.speaker.asn));
    let prepend: Front = by_policy.into_iter().chain(class.ingress.prepend.map(|asn| (asn, 1))).collect();
    let flags = core.sets.flags(set);
    let local_pref = match edits.local_pref {
        // Most policies say how good a neighbour is: they must not keep traffic where it will be lost.
        _ if flags.has(SetFlags::GRACEFUL_SHUTDOWN) => Change::Set(0),
        Some(value) => Change::Set(value),
        None if flags.has(SetFlags::AMENDED) => Change::Set(core.sets.preference(set).local_pref),
        None => Change::Keep,
    };
    let mut marked = Vec::new();
    let mut communities = values(&edits.communities);
    if flags.has(SetFlags::BLACKHOLE) {
        // RFC 7999 section 3.2: it is to go no further.
        marked.extend_from_slice(communities.add);
        marked.push(community::NO_EXPORT);
        communities.add = &marked;
    }
    let edit = Edit {
        origin: edits.origin.map(origin),
        prepend: &prepend,
        local_pref,
        med: edits.med.map_or(Change::Keep, imported_med),
        communities,
        ext_communities: values(&ext_communities),
        validation_state: if class.ingress.external { Change::Remove } else { Change::Keep },
        large_communities: values(&edits.large_communities),
        only_to_customer: class.ingress.marks_only_to_customer().then_some(class.peer_asn),
        ..Edit::default()
    };
    rewrite(core.sets.bytes(set), &edit, out);
}

/// The gateway that import policy puts in the place of the received one.
pub(crate) fn imported_next_hop(edits: &Edits) -> Option<Gateway> {
    match edits.next_hop {
        Some(NextHopEdit::Address(address)) => Some(Gateway { address, interface: 0 }),
        // Our own address is no gateway for us.
        Some(NextHopEdit::SelfAddress) | None => None,
    }
}

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
pub(crate) fn exported_next_hop(
    core: &Core,
    export: &Export,
    ipv4: bool,
    judged: Judged,
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
        NextHopRule::Usual => export.kind != PeerKind::Ebgp || export.transparent,
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

/// Numbers that go in front of a path.
type Front = SmallVec<[(Asn, u8); 3]>;

/// Appends the set's attributes as this group receives them.
pub(crate) fn export(
    core: &Core,
    export: &Export,
    judged: Judged,
    edits: &Edits,
    next_hop: NextHop,
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
    let by_policy = edits.prepend.and_then(|prepend| prepended(prepend, core, set, export.known_as));
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
        next_hop: match next_hop {
            NextHop::V4(address) => Change::Set(address),
            NextHop::V6 { .. } => Change::Remove,
        },
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
    };
    rewrite(core.sets.bytes(set), &edit, out);
}

/// What to put before the path of a set, and how often; `None`: nothing. `own` is our AS there.
fn prepended(prepend: Prepend, core: &Core, set: SetId, own: Asn) -> Option<(Asn, u8)> {
    let asn = match prepend.asn {
        PrependAs::Own => own,
        PrependAs::Last => core.sets.attributes(set).as_path().first_as()?,
        PrependAs::Asn(asn) => asn,
    };
    Some((asn, prepend.count))
}

/// The metric to a next hop is what the router announces, not what it makes of what it learns.
fn imported_med(edit: MedEdit) -> Change<u32> {
    match edit {
        MedEdit::Metric(_) => Change::Keep,
        edit => med(edit, None),
    }
}

/// What becomes of the MED where the way to the next hop has this metric.
fn med(edit: MedEdit, metric: Option<u32>) -> Change<u32> {
    edit.value(metric).map_or(Change::Remove, Change::Set)
}

/// Extended communities as they are on the wire.
fn octets(edit: &ListEdit<u64>) -> ListEdit<[u8; 8]> {
    let octets = |list: &[u64]| list.iter().map(|value| value.to_be_bytes()).collect();
    ListEdit { replace: edit.replace, add: octets(&edit.add), remove: octets(&edit.remove) }
}

fn values<T>(edit: &ListEdit<T>) -> Values<'_, T> {
    Values { replace: edit.replace, remove: &edit.remove, add: &edit.add }
}

fn origin(origin: Origin) -> WireOrigin {
    match origin {
        Origin::Igp => WireOrigin::Igp,
        Origin::Egp => WireOrigin::Egp,
        Origin::Incomplete => WireOrigin::Incomplete,
    }
}
