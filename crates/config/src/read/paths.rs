//! What becomes of paths from peer to peer: keys of `[bgp]` and `[[bgp.peer]]`.

use holdfast_types::{Asn, BgpRole};

use super::usable;
use crate::{
    input::{Problem, Section},
    schema::{Confederation, Decision, LocalAsn, LocalAsnMode, NextHopRule, PathRules, PeerAsn, PrivateAsns},
};

/// Our AS, and the confederation that it is a member of.
#[derive(Clone, Default)]
pub(super) struct Ourselves {
    pub(super) asn: Option<Asn>,
    pub(super) confederation: Option<Confederation>,
}

impl Ourselves {
    /// Whether a peer is surely not outside.
    fn has_inside(&self, peer: &PeerAsn) -> bool {
        let PeerAsn::One(asn) = peer else { return false };
        let members = self.confederation.iter().flat_map(|confederation| &confederation.members);
        members.chain(&self.asn).any(|inside| inside == asn)
    }
}

pub(super) fn confederation(section: &Section<'_>, ours: Option<Asn>) -> Option<Confederation> {
    let section = section.section("confederation", "[bgp.confederation]")?;
    let id = section.required::<Asn>("id");
    let members = section.list::<Asn>("members").unwrap_or_default();
    id.iter().chain(&members).for_each(|asn| usable(&section, asn));
    let id = id?;
    if Some(id.value) == ours || members.iter().any(|member| member.value == id.value) {
        let problem = Problem::new(format!("AS {} is the confederation and a member of it", id.value));
        section.report.add(&id.span, problem.expected("a number that no member has"));
    }
    Some(Confederation { id: id.value, members: members.into_iter().map(|at| at.value).collect() })
}

pub(super) fn decision(section: &Section<'_>) -> Decision {
    Decision {
        always_compare_med: section.or("always-compare-med", false),
        med_missing_as_worst: section.or("med-missing-as-worst", false),
        multipath_relax: section.or("multipath-relax", true),
    }
}

/// Of a peer. `graceful_shutdown` is what `[bgp]` says.
pub(super) fn peer(
    section: &Section<'_>,
    ours: &Ourselves,
    asn: Option<&PeerAsn>,
    graceful_shutdown: bool,
) -> PathRules {
    let inside = asn.is_some_and(|asn| ours.has_inside(asn));
    let rules = PathRules {
        route_reflector_client: section.or("route-reflector-client", false),
        route_server_client: section.or("route-server-client", false),
        next_hop: section.word(
            "next-hop",
            &[
                ("auto", NextHopRule::Auto),
                ("self", NextHopRule::Ourselves),
                ("unchanged", NextHopRule::Unchanged),
            ],
            NextHopRule::Auto,
        ),
        local_asn: local_asn(section, ours, asn),
        allow_own_asn: section.number("allow-own-asn", 0..=10, 0),
        remove_private_asns: section.word(
            "remove-private-asns",
            &[("off", PrivateAsns::Keep), ("all", PrivateAsns::Remove), ("replace", PrivateAsns::Replace)],
            PrivateAsns::Keep,
        ),
        as_override: section.or("as-override", false),
        role: role(section),
        role_strict: role_strict(section),
        graceful_shutdown: section.or("graceful-shutdown", graceful_shutdown),
        blackhole: section.or("blackhole", false),
    };
    if rules.route_reflector_client && asn.is_some() && (!inside || is_member(ours, asn)) {
        let problem = Problem::new("only a neighbour of our own AS can be a client of a route reflector");
        section.add("route-reflector-client", problem.hint("remove it"));
    }
    let outside = [
        ("route-server-client", rules.route_server_client),
        ("local-asn", rules.local_asn.is_some()),
        ("remove-private-asns", rules.remove_private_asns != PrivateAsns::Keep),
        ("as-override", rules.as_override),
        ("role", rules.role.is_some()),
    ];
    for (key, _) in outside.into_iter().filter(|(_, set)| *set && inside) {
        section.add(key, Problem::new(format!("`{key}` has no effect inside our AS")).hint("remove it"));
    }
    rules
}

/// Whether the peer is of another member of our confederation.
fn is_member(ours: &Ourselves, asn: Option<&PeerAsn>) -> bool {
    matches!((asn, ours.asn), (Some(PeerAsn::One(asn)), Some(ours)) if *asn != ours)
}

fn local_asn(section: &Section<'_>, ours: &Ourselves, peer: Option<&PeerAsn>) -> Option<LocalAsn> {
    let modes = [
        ("prepend", LocalAsnMode::Prepend),
        ("no-prepend", LocalAsnMode::NoPrepend),
        ("replace", LocalAsnMode::Replace),
    ];
    let mode = section.word("local-asn-mode", &modes, LocalAsnMode::Prepend);
    let at = section.optional::<Asn>("local-asn");
    if !section.has("local-asn") && mode != LocalAsnMode::Prepend {
        let problem = Problem::new("`local-asn-mode` has no effect without `local-asn`");
        section.add("local-asn-mode", problem.hint("remove it"));
    }
    let at = at?;
    usable(section, &at);
    if peer == Some(&PeerAsn::One(at.value)) {
        let problem = Problem::new(format!("AS {} is the neighbour's own", at.value));
        section.report.add(&at.span, problem.expected("another number"));
    }
    if ours.asn == Some(at.value) {
        section.report.add(&at.span, Problem::new(format!("AS {} is ours in any case", at.value)));
    }
    Some(LocalAsn { asn: at.value, mode })
}

fn role(section: &Section<'_>) -> Option<BgpRole> {
    let words = BgpRole::ALL.map(|role| (role.name(), Some(role)));
    section.word("role", &words, None)
}

fn role_strict(section: &Section<'_>) -> bool {
    let strict = section.or("role-strict", false);
    if strict && !section.has("role") {
        let problem = Problem::new("`role-strict` has no effect without `role`");
        section.add("role-strict", problem.hint("say what we are to the neighbour, or remove it"));
    }
    strict
}
