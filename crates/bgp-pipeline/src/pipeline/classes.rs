//! The classes of sources: under what rules and policy their sets are read.

use holdfast_bgp_wire::update::{PeerKind as WireKind, Rules};
use holdfast_policy::Protocol;

use super::Pipeline;
use crate::{
    PeerConfig, PeerKind, SessionFacts,
    class::{Class, ClassId, Ingress, Policy},
    core::Core,
    path::SourceId,
    validity::{Rule, States},
};

impl Pipeline {
    /// A source has other classes from now on; what it has brought moves to them as a walk comes by.
    pub(crate) fn change_import(&mut self, source: SourceId, classes: &[Class; 2]) {
        let old = self.core.sources.get(source).classes;
        if old.iter().zip(classes).all(|(old, new)| self.core.classes.get(*old) == new) {
            return;
        }
        let Some(new) = self.acquire_classes(classes) else { return };
        old.into_iter().for_each(|class| self.core.classes.release(class));
        let moving = self.core.walk + 1;
        let source = self.core.sources.get_mut(source);
        (source.classes, source.moving) = (new, moving);
        self.background.want_walk();
    }

    pub(super) fn acquire_classes(&mut self, classes: &[Class; 2]) -> Option<[ClassId; 2]> {
        let first = self.core.classes.acquire(&classes[0])?;
        let second = self.core.classes.acquire(&classes[1]);
        if second.is_none() {
            self.core.classes.release(first);
        }
        Some([first, second?])
    }
}

/// The classes of a session: for NEXT_HOP and for MP_REACH_NLRI.
pub(super) fn classes(config: &PeerConfig, facts: &SessionFacts, core: &Core) -> [Class; 2] {
    let rules = Rules {
        kind: match config.kind {
            PeerKind::Ebgp => WireKind::Ebgp,
            PeerKind::Ibgp if core.speaker.confederation.is_some() => WireKind::ConfedIbgp,
            PeerKind::Ibgp => WireKind::Ibgp,
            PeerKind::ConfedEbgp => WireKind::ConfedEbgp,
        },
        four_octet_as: facts.four_octet_as,
        as_sets: core.speaker.as_sets,
        extended_next_hop: facts.extended_next_hop,
        identifiers: facts.identifiers_received,
        bgpsec: facts.bgpsec_received,
    };
    let (paths, external) = (&config.paths, config.kind == PeerKind::Ebgp);
    let ingress = Ingress {
        allow_own_asn: paths.allow_own_asn,
        local_asn: paths.local_asn,
        prepend: paths.prepended_asn(),
        role: paths.role.filter(|_| external),
        external,
        graceful_shutdown: paths.graceful_shutdown,
        blackhole: paths.blackhole,
        validation: Rule::new(config, core.authorizations.is_some(), rules.bgpsec.is_some()),
    };
    [false, true].map(|multiprotocol| Class {
        rules: Some(rules),
        multiprotocol,
        peer_asn: config.asn,
        enforce_first_as: config.paths.enforce_first_as && external,
        ingress,
        protocol: Protocol::Bgp,
        tag: 0,
        weight: 0,
        long_lived: false,
        offered: false,
        states: ingress.validation.map(|_| States::default()),
        import: Policy::of(config.import.as_ref(), config.kind),
    })
}
