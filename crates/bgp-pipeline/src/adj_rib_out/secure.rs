//! Which routes may be sent with signatures, and how each of them goes on.

use holdfast_bgp_wire::{UpdateEncoder, as_path::AsPath};
use holdfast_bgpsec_wire::Session;
use holdfast_types::IpPrefix;

use super::{
    chain::{Signable, as_path},
    outgoing::Outgoing,
    recipients::Recipients,
};
use crate::{
    core::Core,
    export::{
        Group,
        rules::{Export, ExportDecision},
    },
    onward::{Onward, Route, Signing, Towards, Unsigned},
    path::{Path, SetId, SourceId},
    rewrite,
    secure_path::{has_secure_path, secure_path, starts_inside},
    signing::{Had, Waiting},
};

/// A route of a window that may be sent with signatures.
#[derive(Copy, Clone, Debug)]
pub(super) struct ToSign<P> {
    pub(super) chain: u32,
    pub(super) prefix: P,
    pub(super) source: SourceId,
    /// Who has been told of the route before.
    pub(super) had: Had,
    /// What is known of it if it was put off already.
    pub(super) before: Option<Waiting>,
}

/// What a window is encoded with.
pub(super) struct Sending<'a, 'b> {
    pub(super) core: &'a mut Core,
    pub(super) recipients: &'a Recipients<'b>,
    pub(super) encoder: UpdateEncoder,
    pub(super) out: &'a mut Outgoing,
}

/// How routes go on of which a group is told this set.
pub(super) fn onward(
    core: &Core,
    (export, signing): (&Export, Option<&Signing>),
    signable: Signable,
    set: SetId,
    as_path: AsPath<'_>,
) -> Onward {
    let Some(signing) = signing else { return Onward::Plain(Unsigned::NotAgreed) };
    let class = core.classes.get(core.sets.class(signable.received));
    let signed = secure_path(core.sets.attributes(set));
    let is_ours = class.rules.is_none() || is_originated(core, export, (signable.received, set));
    let secured = class.rules.and_then(|rules| rules.bgpsec).filter(|_| !is_ours);
    if signable.is_aggregate {
        return Onward::Plain(Unsigned::Aggregate);
    }
    let route = match (signed, secured) {
        (Some(path), Some(secured)) => Route { signed: Some(path), holder: secured.ingress.own, as_path },
        _ if is_ours => Route { signed: None, holder: core.speaker.asn, as_path },
        _ => return Onward::Plain(Unsigned::Received),
    };
    let (own, outer) = (core.speaker.asn, core.speaker.outer_asn());
    Onward::of(&route, &Towards { kind: export.kind, own, outer, known_as: export.known_as, signing })
}

/// How a path goes on to a group that it was judged for.
pub(crate) fn goes_on<P: IpPrefix>(
    core: &Core,
    group: &Group,
    path: Path,
    judged: ExportDecision,
) -> Result<(), Unsigned> {
    let export = &group.export;
    export.signs::<P>().ok_or(Unsigned::NotAgreed)?;
    if !is_signable(core, export, path, judged.set) {
        return Err(Unsigned::Received);
    }
    let mut bytes = Vec::new();
    rewrite::export::attributes(core, export, judged, &group.edits(judged.outcome), None, &mut bytes);
    let (_, value) = as_path(&bytes).ok_or(Unsigned::Changed)?;
    let signable = Signable { received: path.set, is_aggregate: path.source == SourceId::AGGREGATED };
    match onward(core, (export, export.signs::<P>()), signable, judged.set, AsPath::new(value)) {
        Onward::Plain(why) => Err(why),
        Onward::Unchanged | Onward::Signed(_) | Onward::Undecided => Ok(()),
    }
}

/// Whether a path may be sent with signatures; `set` is what the peers are told of it.
pub(crate) fn is_signable(core: &Core, export: &Export, path: Path, set: SetId) -> bool {
    path.source.is_ours()
        || has_secure_path(core.sets.attributes(set))
        || is_originated(core, export, (path.set, set))
}

/// Whether routes that a peer has brought start with us all the same: another router of our AS has said that they start there
/// (RFC 8205 section 4.1), or they come from a customer with private numbers.
fn is_originated(core: &Core, export: &Export, (received, set): (SetId, SetId)) -> bool {
    let secured = core.classes.get(core.sets.class(received)).rules.and_then(|rules| rules.bgpsec);
    let is_internal = secured.is_some_and(|secured| secured.ingress.session == Session::Internal);
    let is_empty = |set| core.sets.attributes(set).as_path().as_bytes().is_empty();
    is_internal && starts_inside(core.sets.attributes(received)) && is_empty(set)
        || export.originates_anew(core.sets.attributes(set).as_path())
}
