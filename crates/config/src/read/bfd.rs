//! `bfd` of peers and static routes.

use crate::{
    input::{Names, Problem, Section},
    schema::{BfdHops, PeerBfd, Remote, StaticBfd, StaticTarget, bfd::DEFAULT_PROFILE},
};

/// The profiles of `[bfd]`. The rows of that section are with its process; here only the names count.
pub(super) fn profiles<'a>(root: &Section<'a>) -> Names<'a> {
    Names::new(root.report, "BFD profile")
        .built_in([DEFAULT_PROFILE])
        .named(root.names_below("bfd", "profile"))
}

pub(super) fn of_peer(
    section: &Section<'_>,
    remote: Option<&Remote>,
    profiles: &Names<'_>,
) -> Option<PeerBfd> {
    let Some(table) = table(section, "[bgp.peer.bfd]", profiles) else {
        return is_on(section).then(PeerBfd::default);
    };
    let bfd = PeerBfd::read(&table);
    if bfd.hops == BfdHops::Multiple && remote.is_some_and(|remote| remote.interface().is_some()) {
        let problem = Problem::new("a neighbour with an `interface` is one hop away");
        table.add("hops", problem.hint("remove `hops`"));
    }
    Some(bfd)
}

pub(super) fn of_static(
    section: &Section<'_>,
    target: &StaticTarget,
    profiles: &Names<'_>,
) -> Option<StaticBfd> {
    let bfd = match table(section, "[static.bfd]", profiles) {
        Some(table) => Some(StaticBfd::read(&table)),
        None => is_on(section).then(StaticBfd::default),
    };
    let has_interface = match target {
        StaticTarget::NextHop { interface, .. } => interface.is_some(),
        StaticTarget::Interface(_) | StaticTarget::Blackhole => {
            if bfd.is_some() {
                let problem = Problem::new("there is no neighbour that BFD could ask");
                section.add("bfd", problem.expected("a route with `next-hop`"));
            }
            return None;
        }
    };
    if has_interface && bfd.as_ref().is_some_and(|bfd| bfd.hops == BfdHops::Multiple) {
        section
            .add("bfd", Problem::new("a next hop with an `interface` is one hop away").hint("remove `hops`"));
    }
    bfd
}

/// What stands there if it is a table, which is not said with `true`.
fn table<'a>(section: &Section<'a>, name: &'static str, profiles: &Names<'_>) -> Option<Section<'a>> {
    let table = section.is_table("bfd").then(|| section.section("bfd", name))??;
    table.optional::<String>("profile").iter().for_each(|profile| profiles.refer(profile));
    Some(table)
}

fn is_on(section: &Section<'_>) -> bool {
    !section.is_table("bfd") && section.or("bfd", false)
}
