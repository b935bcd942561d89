//! What becomes of paths from peer to peer: keys of `[bgp]` and `[[bgp.peer]]`.

use holdfast_types::{Asn, BgpRole};

use super::usable;
use crate::{
    input::{At, Problem, Section},
    schema::{Confederation, LocalAsnMode, PathRules, PeerAsn, PrivateAsnRule},
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

/// Of a peer. `graceful_shutdown` is what `[bgp]` says.
pub(super) fn peer(
    section: &Section<'_>,
    ours: &Ourselves,
    asn: Option<&PeerAsn>,
    graceful_shutdown: bool,
) -> PathRules {
    let inside = asn.is_some_and(|asn| ours.has_inside(asn));
    let mut rules = PathRules::read(section);
    if !section.has("graceful-shutdown") {
        rules.graceful_shutdown = graceful_shutdown;
    }
    local_asn(section, &rules, ours, asn);
    let states = [("accept-validity", rules.accept_validity), ("announce-validity", rules.announce_validity)];
    for (key, _) in
        states.into_iter().filter(|(_, set)| *set && asn.is_some() && (!inside || is_member(ours, asn)))
    {
        let problem = Problem::new(format!("`{key}` has no effect outside our AS (RFC 8097 section 2)"));
        section.add(key, problem.hint("remove it"));
    }
    if rules.own_view && !rules.route_server_client {
        let problem = Problem::new("`own-view` has no effect without `route-server-client`");
        section.add("own-view", problem.hint("remove it"));
    }
    if rules.route_reflector_client && asn.is_some() && (!inside || is_member(ours, asn)) {
        let problem = Problem::new("only a neighbour of our own AS can be a client of a route reflector");
        section.add("route-reflector-client", problem.hint("remove it"));
    }
    let outside = [
        ("route-server-client", rules.route_server_client),
        ("local-asn", rules.local_asn.is_some()),
        ("remove-private-asns", rules.remove_private_asns != PrivateAsnRule::Keep),
        ("as-override", rules.as_override),
        ("role", rules.role.is_some()),
    ];
    for (key, _) in outside.into_iter().filter(|(_, set)| *set && inside) {
        section.add(key, Problem::new(format!("`{key}` has no effect inside our AS")).hint("remove it"));
    }
    if rules.route_server_client {
        transparent(section, &rules);
    }
    if let (Some(Confederation { id, .. }), Some(PeerAsn::One(asn))) = (&ours.confederation, asn)
        && id == asn
    {
        let problem = Problem::new(format!("AS {id} is our confederation, seen from outside"));
        section.add("asn", problem.expected("the number of the member that the neighbour is of"));
    }
    rules
}

/// A route server changes no path and has one role only (RFC 7947 section 2.2, RFC 9234 section 4).
fn transparent(section: &Section<'_>, rules: &PathRules) {
    let amending = [
        ("local-asn", rules.local_asn.is_some()),
        ("remove-private-asns", rules.remove_private_asns != PrivateAsnRule::Keep),
        ("as-override", rules.as_override),
    ];
    for (key, _) in amending.into_iter().filter(|(_, set)| *set) {
        let problem = Problem::new(format!("a route server leaves paths alone: `{key}` has no effect"));
        section.add(key, problem.hint("remove it, or `route-server-client`"));
    }
    if rules.role.is_some_and(|role| role != BgpRole::RsServer) {
        let problem = Problem::new("who has route server clients is a route server to them");
        section.add("role", problem.expected("\"rs-server\""));
    }
}

/// Whether the peer is of another member of our confederation.
fn is_member(ours: &Ourselves, asn: Option<&PeerAsn>) -> bool {
    matches!((asn, ours.asn), (Some(PeerAsn::One(asn)), Some(ours)) if *asn != ours)
}

fn local_asn(section: &Section<'_>, rules: &PathRules, ours: &Ourselves, peer: Option<&PeerAsn>) {
    if !section.has("local-asn") && rules.local_asn_mode != LocalAsnMode::Prepend {
        let problem = Problem::new("`local-asn-mode` has no effect without `local-asn`");
        section.add("local-asn-mode", problem.hint("remove it"));
    }
    let Some(asn) = rules.local_asn else { return };
    let at = At { value: asn, span: section.span_of("local-asn") };
    usable(section, &at);
    if peer == Some(&PeerAsn::One(asn)) {
        let problem = Problem::new(format!("AS {asn} is the neighbour's own"));
        section.report.add(&at.span, problem.expected("another number"));
    }
    if ours.asn == Some(asn) {
        section.report.add(&at.span, Problem::new(format!("AS {asn} is ours in any case")));
    }
    let confederation = ours.confederation.iter();
    let mut others = confederation.flat_map(|inside| inside.members.iter().chain([&inside.id]));
    if ours.asn != Some(asn) && others.any(|other| *other == asn) {
        let problem = Problem::new(format!("AS {asn} is our confederation or a member of it"));
        section.report.add(&at.span, problem.expected("a number from outside"));
    }
}
