//! The edits of import policy, and what sessions add to them.

use holdfast_bgp_wire::{
    attributes::community,
    edit::{Change, Edit, rewrite},
};
use holdfast_policy::{Edits, MedEdit, NextHopEdit, Prepend, PrependAs};

use super::{Front, med, octets, origin, prepended, values};
use crate::{
    SpeakerConfig,
    class::Classes,
    next_hop::Gateway,
    path::SetId,
    sets::{AttributeSets, SetFlags},
};

/// Appends the set's attributes as import policy changes them, and before it the session.
pub(crate) fn attributes(
    speaker: &SpeakerConfig,
    classes: &Classes,
    sets: &AttributeSets,
    set: SetId,
    edits: &Edits,
    out: &mut Vec<u8>,
) {
    let ext_communities = octets(&edits.ext_communities);
    let class = classes.get(sets.class(set));
    // A member's number would leave the confederation, and be a loop inside.
    let own = |prepend: &Prepend| prepend.asn == PrependAs::Own && speaker.confederation.is_some();
    let by_policy = edits
        .prepend
        .filter(|prepend| !own(prepend))
        .and_then(|prepend| prepended(prepend, sets, set, speaker.asn));
    let prepend: Front = by_policy.into_iter().chain(class.ingress.prepend.map(|asn| (asn, 1))).collect();
    let flags = sets.flags(set);
    let local_pref = match edits.local_pref {
        // Most policies say how good a neighbour is: they must not keep traffic where it will be lost.
        _ if flags.has(SetFlags::GRACEFUL_SHUTDOWN) => Change::Set(0),
        Some(value) => Change::Set(value),
        None if flags.has(SetFlags::AMENDED) => Change::Set(sets.preference(set).local_pref),
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
        secure_path: true,
        ..Edit::default()
    };
    rewrite(sets.bytes(set), &edit, out);
}

/// The gateway that import policy puts in the place of the received one.
pub(crate) fn next_hop(edits: &Edits) -> Option<Gateway> {
    match edits.next_hop {
        Some(NextHopEdit::Address(address)) => Some(Gateway { address, interface: 0 }),
        // Our own address is no gateway for us.
        Some(NextHopEdit::SelfAddress) | None => None,
    }
}

/// The metric to a next hop is what the router announces, not what it makes of what it learns.
fn imported_med(edit: MedEdit) -> Change<u32> {
    match edit {
        MedEdit::Metric(_) => Change::Keep,
        edit => med(edit, None),
    }
}
