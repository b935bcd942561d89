//! From what a policy says to attribute bytes: edits of import and export (RFC 4271 section 5.1).

pub(crate) mod export;
pub(crate) mod import;

use holdfast_bgp_wire::{
    Origin as WireOrigin,
    edit::{Change, Values},
};
use holdfast_policy::{ListEdit, MedEdit, Origin, Prepend, PrependAs};
use holdfast_types::Asn;
use smallvec::SmallVec;

use crate::{path::SetId, sets::AttributeSets};

/// Numbers that go in front of a path.
type Front = SmallVec<[(Asn, u8); 3]>;

/// What to put before the path of a set, and how often; `None`: nothing. `own` is our AS there.
fn prepended(prepend: Prepend, sets: &AttributeSets, set: SetId, own: Asn) -> Option<(Asn, u8)> {
    let asn = match prepend.asn {
        PrependAs::Own => own,
        PrependAs::Last => sets.attributes(set).as_path().first_as()?,
        PrependAs::Asn(asn) => asn,
    };
    Some((asn, prepend.count))
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
