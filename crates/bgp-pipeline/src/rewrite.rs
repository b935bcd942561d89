//! From what a policy says to attribute bytes: edits of import and export (RFC 4271 section 5.1).

use std::net::IpAddr;

use holdfast_bgp_wire::{
    NextHop, Origin as WireOrigin,
    edit::{Change, Edit, Values, rewrite},
};
use holdfast_policy::{Edits, ListEdit, MedEdit, NextHopEdit, Origin, Prepend, PrependAs};
use holdfast_types::Asn;

use crate::{PeerKind, core::Core, export::Export, next_hop::Gateway, next_hop::NextHopId, path::SetId};

/// Appends the set's attributes as import policy changes them.
pub(crate) fn import(core: &Core, set: SetId, edits: &Edits, out: &mut Vec<u8>) {
    let ext_communities = octets(&edits.ext_communities);
    let edit = Edit {
        origin: edits.origin.map(origin),
        prepend: edits.prepend.and_then(|prepend| prepended(prepend, core, set)),
        local_pref: edits.local_pref.map_or(Change::Keep, Change::Set),
        med: edits.med.map_or(Change::Keep, imported_med),
        communities: values(&edits.communities),
        ext_communities: values(&ext_communities),
        large_communities: values(&edits.large_communities),
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
/// It is always ourselves towards other ASes: third-party next hops (RFC 4271 section 5.1.3 2) are not sent.
pub(crate) fn exported_next_hop(
    core: &Core,
    export: &Export,
    ipv4: bool,
    set: SetId,
    edits: &Edits,
) -> Option<ExportedNextHop> {
    let ourselves = || export.has_own_next_hop(ipv4).then_some(ExportedNextHop::Ourselves);
    let other = |address| third_party(export, ipv4, address).map(ExportedNextHop::Other);
    match edits.next_hop {
        Some(NextHopEdit::Address(address)) => return other(address),
        Some(NextHopEdit::SelfAddress) => return ourselves(),
        None => {}
    }
    if export.kind == PeerKind::Ebgp || export.next_hop_self {
        return ourselves();
    }
    let gateway = core.next_hops.gateway(core.sets.next_hop(set));
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

/// Appends the set's attributes as this group receives them. `scratch` is for paths that get two AS numbers.
pub(crate) fn export(
    core: &Core,
    export: &Export,
    set: SetId,
    edits: &Edits,
    next_hop: NextHop,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) {
    let external = export.kind == PeerKind::Ebgp;
    let local_pref = edits.local_pref.unwrap_or(core.sets.preference(set).local_pref);
    // A MED of another AS goes no further than ours (RFC 4271 section 5.1.4); our own routes' may.
    let received = core.sets.next_hop(set) != NextHopId::LOCAL;
    let kept_med = if external && received { Change::Remove } else { Change::Keep };
    let metric = || core.next_hops.metric(core.sets.next_hop(set));
    let ext_communities = octets(&edits.ext_communities);
    let own = core.speaker.asn;
    let mut bytes = core.sets.bytes(set);
    let prepend = match edits.prepend.and_then(|prepend| prepended(prepend, core, set)) {
        Some((asn, count)) if external && asn == own => Some((own, count.saturating_add(1))),
        Some(prepend) if external => {
            scratch.clear();
            rewrite(bytes, &Edit { prepend: Some(prepend), ..Edit::default() }, scratch);
            bytes = scratch;
            Some((own, 1))
        }
        None if external => Some((own, 1)),
        other => other,
    };
    let edit = Edit {
        origin: edits.origin.map(origin),
        prepend,
        next_hop: match next_hop {
            NextHop::V4(address) => Change::Set(address),
            NextHop::V6 { .. } => Change::Remove,
        },
        local_pref: Change::Set(local_pref),
        med: edits.med.map_or(kept_med, |edit| med(edit, metric())),
        communities: values(&edits.communities),
        ext_communities: values(&ext_communities),
        large_communities: values(&edits.large_communities),
        external,
        four_octet_as: export.four_octet_as,
        ..Edit::default()
    };
    rewrite(bytes, &edit, out);
}

/// What to put before the path of a set, and how often; `None`: nothing.
fn prepended(prepend: Prepend, core: &Core, set: SetId) -> Option<(Asn, u8)> {
    let asn = match prepend.asn {
        PrependAs::Own => core.speaker.asn,
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
